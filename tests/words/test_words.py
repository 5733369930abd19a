"""Tokens, random vectors, and similarity by hand; numbers of documents are in tests/commands/examples."""

import math
import time
import unicodedata
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attncli import ConventionError, InputError, ShapeError, similarity
from attncli.attention.run import run
from attncli.words.measures import (
    analogy,
    analogy_steps,
    pca,
    pca_steps,
    similarity_steps,
)
from attncli.words.sentence import random_vectors
from attncli.words.tokens import tokenize

# ---- tokens

# White space and what is invisible and parts tokens; everything else must survive.
DROPPED = {*"\u200b\ufeff\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
# Characters that meet in every rule, so that random strings of them try the rules together.
TRICKY = "aZé\u0301ß1٣½_'’·-‐.,٫ \t\n\u00a0\u200b\u200c\u200d\u00ad\ufe0f\u20e3हि銀は한💡👍🏽🇩🇪#*€©\x1b\ud800"
SENTENCES = {
    "She visited the money bank, near": "She|visited|the|money|bank|,|near",
    "don't rock'n'roll l’eau 'quoted' dogs'": "don't|rock'n'roll|l’eau|'|quoted|'|dogs|'",
    "well-known -- yes—no -5 snake_case GPT-4": "well-known|--|yes|—|no|-|5|snake_case|GPT-4",
    "3.14, 1,000.50! a,b 10:30 3·4 3.": "3.14|,|1,000.50|!|a|,|b|10|:|30|3|·|4|3|.",
    "U.S., e.g. the U.S.A. J.R.R.Tolkien": "U.S.|,|e.g.|the|U.S.A.|J|.|R|.|R|.|Tolkien",
    "wait... what?! 50% of €5 x²": "wait|...|what|?|!|50|%|of|€|5|x²",
    "<pad> [red] man<PADDING>[PAD]! <padded>": "<pad>|[|red|]|man|<PADDING>|[PAD]|!|<|padded|>",
    "मैं हिन्दी बोलता हूँ। السلام عليكم، ٣٫١٤": "मैं|हिन्दी|बोलता|हूँ|।|السلام|عليكم|،|٣٫١٤",
    "می\u200cخواهم צה״ל Ελλάδα Москва": "می\u200cخواهم|צה״ל|Ελλάδα|Москва",
    "私は銀行。コーヒー 은행에 갔다": "私|は|銀|行|。|コーヒー|은행에|갔다",
    "cafe\u0301\u200b\ufeffnaïve col·lecció": "cafe\u0301|naïve|col·lecció",
    "👨‍👩‍👧‍👦👍🏽🇩🇪🇫🇷 1️⃣2️⃣#️⃣": "👨‍👩‍👧‍👦|👍🏽|🇩🇪|🇫🇷|1️⃣|2️⃣|#️⃣",
    "🏳️‍🌈🙂‍↔️❤️‍🔥!": "🏳️‍🌈|🙂‍↔️|❤️‍🔥|!",
    "🏴\U000e0067\U000e0062\U000e007fx \x1b[31m": "🏴\U000e0067\U000e0062\U000e007f|x|\x1b|[|31m",
}


def test_sentences_and_tokens() -> None:
    for sentence, tokens in SENTENCES.items():
        assert tokenize(sentence) == tuple(tokens.split("|"))
    assert tokenize("The ΟΔΟΣ", lowercase=True) == ("the", "οδος")
    for empty in ("", " \t\n", "\u200b\u3000\ufeff"):
        with pytest.raises(InputError, match="the sentence is empty"):
            tokenize(empty)


@given(st.text() | st.text(alphabet=TRICKY))
def test_nothing_but_space_is_lost_and_marks_stay_with_what_they_mark(sentence: str) -> None:
    kept = "".join(c for c in sentence if not c.isspace() and c not in DROPPED)
    if not kept:
        return
    tokens = tokenize(sentence)
    assert "".join(tokens) == kept
    assert all(tokens)
    assert tokenize(" ".join(tokens)) == tokens
    assert [tokenize(token) for token in tokens] == [(token,) for token in tokens]
    end = 0
    for token in tokens:
        start = sentence.index(token, end)
        before = sentence[:start][-1:] or " "
        is_mark = unicodedata.category(token[0])[0] == "M"
        assert not is_mark or before.isspace() or before in DROPPED
        end = start + len(token)


def test_long_sentences_take_linear_time() -> None:
    start = time.process_time()
    for piece in ("a.", "'", "1,", "👍\u200d", "a-", "\u0301", "..", "bank ", "\u200d"):
        assert tokenize(piece * 50_000 + "xx")
    assert time.process_time() - start < 10


# ---- random vectors


def test_random_vectors_stay_what_they_are() -> None:
    # Written down once, so that a change of NumPy's or ours shows: others have these numbers too.
    expected = [-0.22060458827550744, -0.8264216158630495, -0.5396450448983192]
    assert random_vectors(["bank"], 3)["bank"].tolist() == expected
    other_seed = [-0.4171744971355287, -0.07572138422314012, 0.1703867132254886]
    assert random_vectors(["bank"], 3, seed=1)["bank"].tolist() == other_seed


@given(st.lists(st.text(st.characters()), max_size=7), st.integers(1, 7), st.integers(0, 2**70))
def test_a_word_has_its_vector_wherever_it_occurs(words: list[str], dim: int, seed: int) -> None:
    vectors = random_vectors(words, dim, seed)
    assert vectors.keys() == {*words}
    for word, vector in vectors.items():
        assert vector.shape == (dim,)
        alone = random_vectors([word], dim + 2, seed)[word]
        np.testing.assert_array_equal(alone[:dim], vector)


def test_different_words_differ_and_fill_the_range_evenly() -> None:
    vectors = random_vectors(["bank", "Bank", "banks", "caf\u00e9", "cafe\u0301", "\ud800"], 5)
    assert len({tuple(vector.tolist()) for vector in vectors.values()}) == 5
    np.testing.assert_array_equal(vectors["caf\u00e9"], vectors["cafe\u0301"])
    many = np.array([*random_vectors([str(number) for number in range(301)], 37).values()])
    assert ((many >= -1) & (many < 1)).all()
    np.testing.assert_allclose(many.mean(), 0, atol=0.02)
    np.testing.assert_allclose(many.var(), 1 / 3, rtol=0.03)


# ---- similarity, analogies and components

NUMBERS = st.floats(-100, 100, width=32)


def test_vectors_are_tensors_too() -> None:
    torch = pytest.importorskip("torch")
    rows = [*torch.tensor([[0.2, 0.7], [0.9, 0.7]], dtype=torch.bfloat16, requires_grad=True)]
    exact = [row.detach().double().numpy() for row in rows]
    expected = similarity(["mom", "dad"], exact)["dots"].value
    words = ["mom", "dad"]
    for own in ((words, torch.stack(rows)), (words, rows), ({"mom": rows[0], "dad": rows[1]},)):
        assert (similarity(*own)["dots"].value == expected).all()
    for odd in (rows[0].to("meta"), "x", [1.0]):
        with pytest.raises(ShapeError, match="not rows of numbers"):
            similarity({"mom": odd, "dad": rows[1]})


def test_parallel_vectors_have_an_angle_of_0_or_180_and_small_angles_their_digits() -> None:
    for vector in ([1.0, 2.0], [0.1, 0.7, 0.3], [1e-200, 3e-201], [0.3, -1.7, 2.9, 0.1, 11.3]):
        factors = np.array([1, 2, 3, 0.1, 1e150, -3, -7])
        angles = similarity("abcdefg", factors[:, None] * vector)["angles"].value
        np.testing.assert_array_equal(angles, 180 * (np.sign(factors)[:, None] != np.sign(factors)))
    angle = similarity(["a", "b"], [[1.0, 0.0], [1.0, 1e-9]])["angles"].value[0, 1]
    assert math.radians(angle) == pytest.approx(1e-9, rel=1e-12)


def test_angles_follow_other_cosines_and_vectors() -> None:
    trace = similarity(["a", "b"], [[1.0, 1.0], [1.0, 2.0]])  # 18.4349 degrees apart
    assert trace.again(cosines=[[1.0, 0.5], [0.0, 1.0]])["angles"].value == pytest.approx(
        np.array([[0.0, 60.0], [90.0, 0.0]]), abs=1e-9
    )
    turned = trace.again(vectors=[[1.0, 0.0], [1.0, 1.0]])["angles"].value
    assert turned == pytest.approx(np.array([[0.0, 45.0], [45.0, 0.0]]), abs=1e-6)


@given(arrays(np.float64, (5, 3), elements=NUMBERS))
def test_cosines_are_what_the_math_module_says(matrix: npt.NDArray[np.float64]) -> None:
    cosines = similarity("abcde", matrix)["cosines"].value
    for (row, column), cosine in np.ndenumerate(cosines):
        a, b = (x / (np.abs(x).max() or 1) for x in (matrix[row], matrix[column]))
        if not a.any() or not b.any():
            assert math.isnan(cosine)
            continue
        expected = math.fsum((a * b).tolist()) / math.hypot(*a) / math.hypot(*b)
        assert cosine == pytest.approx(expected, abs=1e-12)
        assert -1 <= cosine <= 1


def test_a_stage_can_be_computed_from_those_before_it() -> None:
    def computed(steps: Any, name: str, **inputs: Any) -> Any:
        return run(steps, {key: np.array(x) for key, x in inputs.items()}, [name])[name].tolist()

    dots, cosine = [[4.0, 3.0], [3.0, 9.0]], [[1.0, 0.5], [0.5, 1.0]]
    assert computed(similarity_steps(), "cosines", dots=dots, lengths=[2.0, 3.0]) == cosine
    (_, angle), _ = computed(similarity_steps(), "angles", cosines=cosine)
    assert angle == pytest.approx(60)
    inputs: dict[str, Any] = {"difference": [10.0, 20.0], "vectors": [[9.0, 9], [9, 9], [1, 2]]}
    assert computed(analogy_steps("abc"), "analogy", **inputs) == [11, 22]
    inputs = {"centred": [[2.0, 3.0]], "components": [[0.0, 1.0], [1.0, 0.0]]}
    assert computed(pca_steps(), "coordinates", **inputs) == [[3, 2]]


def test_zeros_have_no_direction_and_very_large_and_small_vectors_have_one() -> None:
    trace = similarity(["sky", "void"], [[1.0, 2.0], [0.0, 0.0]])
    assert np.isnan(trace["cosines"].value).tolist() == [[False, True], [True, True]]
    assert '"void"' in trace["cosines"].note
    assert trace.notes == (trace["cosines"].note,)
    for power in (1e200, 1e-200):
        trace = similarity(["a", "b"], np.array([[3.0, 4.0], [4.0, 3.0]]) * power)
        assert trace["cosines"].value[0, 1] == pytest.approx(0.96)
        assert trace["lengths"].value[0] == pytest.approx(5 * power)
        assert trace["angles"].value[0, 1] == pytest.approx(math.degrees(math.acos(0.96)))
        assert dict(trace["cosines"].reads) == {"x": "vectors"}  # the dots overflow, or are all 0


@given(arrays(np.float64, (7, 5), elements=NUMBERS))
def test_pca_agrees_with_the_covariance(matrix: npt.NDArray[np.float64]) -> None:
    trace = pca("abcdefg", matrix)
    components = trace["components"].value
    assert all(component[np.abs(component).argmax()] >= 0 for component in components)
    variances, directions = np.linalg.eigh(np.cov(matrix.T, bias=True))
    total = variances.sum()
    if total < 1e-6 or (np.diff(variances)[-2:] < 1e-6 * total).any():
        return  # no variance, or two directions as good as each other
    expected = directions[:, [-1, -2]].T
    expected *= np.sign((components * expected).sum(axis=1))[:, None]
    centred = matrix - matrix.mean(axis=0)
    np.testing.assert_allclose(trace["shares"].value, variances[[-1, -2]] / total, atol=1e-9)
    np.testing.assert_allclose(components, expected, atol=1e-5)
    np.testing.assert_allclose(trace["coordinates"].value, centred @ expected.T, atol=1e-2)


def test_components_by_hand() -> None:
    trace = pca(["a", "b"], [[0.0, 0.0, 0.0], [-2.0, -3.0, -6.0]])
    np.testing.assert_allclose(trace["components"].value, [[2 / 7, 3 / 7, 6 / 7], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(trace["coordinates"].value, [[3.5, 0.0], [-3.5, 0.0]], atol=1e-15)
    assert trace["shares"].value.tolist() == [1, 0]
    assert "one line" in trace.notes[0]
    huge = pca("abc", np.array([[0.0, 0.0], [4.0, 0.0], [2.0, 3.0]]) * 1e200)
    np.testing.assert_allclose(huge["shares"].value, [8 / 14, 6 / 14], rtol=1e-12)
    equal = pca("abc", np.full((3, 5), 7.0))
    assert np.isnan(equal["shares"].value).all()
    assert "no variance" in equal.notes[0]


def test_what_does_not_fit() -> None:
    rows: list[tuple[Any, tuple[Any, ...], str]] = [
        (similarity, (["a"], [1.0, 2.0]), r"shape \(2,\) are given for 1 word"),
        (similarity, (["a"], [[1.0], [2.0]]), "one row per word"),
        (similarity, (["a", "b"], [[1.0], [2.0, 3.0]]), "of one length"),
        (similarity, (["a"], [["x"]]), "rows of numbers"), (similarity, (["a"], [[math.inf]]), "'a' .* not finite"),
        (pca, (["a"], [[1.0, 2.0]]), "1 word of 2"), (pca, (["a", "b"], [[1.0], [2.0]]), "2 words of 1"),
        (pca, ("ab", np.array([[1.7e308, 0.0], [1.7e308, 1.0]])), "too large"), (analogy, (["a"], [[1.0]]), "3 words, not 1"),
        (random_vectors, (["bank"], 0), "dim is 0"), (random_vectors, (["bank"], 3, -1), "seed is -1"),
    ]  # fmt: skip
    for call, arguments, key in rows:
        error = ConventionError if call is random_vectors else ShapeError
        with pytest.raises(error, match=key):
            call(*arguments)
