"""The first stages: tokens, their vectors, their positions."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.errors import ConventionError, InputError
from attncli.pipeline.sentence import Sentence, entry_stages, from_file, random_vocabulary

WORDS = ("She", "visited", "the", "bank", "near", "the", "bank")


def test_equal_words_share_a_number_and_a_vector() -> None:
    stages = entry_stages(Sentence(WORDS), random_vocabulary(WORDS, 5), "paper")
    tokens, embeddings = stages[0].value, stages[1].value
    assert tokens.tolist() == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 3, 4]]
    np.testing.assert_array_equal(embeddings[2], embeddings[5])
    assert not np.array_equal(embeddings[2], embeddings[3])


def test_the_input_is_the_sum_of_both() -> None:
    tokens, embeddings, positions, entry = entry_stages(
        Sentence(WORDS), random_vocabulary(WORDS, 5), "paper"
    )
    np.testing.assert_array_equal(entry.value, embeddings.value + positions.value)
    np.testing.assert_allclose(positions.value[3, :2], [np.sin(3), np.cos(3)])
    np.testing.assert_allclose(positions.value[3, 2], np.sin(3 / 10000 ** (2 / 5)))
    assert tokens.labels["token"] == entry.labels["token"] == WORDS


def test_the_articles_exponent_counts_twice() -> None:
    *_, positions, _ = entry_stages(Sentence(WORDS), random_vocabulary(WORDS, 5), "article")
    np.testing.assert_allclose(positions.value[3, 2], np.sin(3 / 10000 ** (4 / 5)))


def test_without_positions_the_vectors_go_in_as_they_are() -> None:
    stages = entry_stages(Sentence(WORDS), random_vocabulary(WORDS, 5), "none")
    assert [(stage.name, stage.symbol) for stage in stages] == [
        ("tokens", "T"),
        ("embeddings", "E"),
    ]


def test_padding_is_zeros_and_masked() -> None:
    sentence = Sentence.padded(("a", "b"), 5)
    assert sentence.tokens == ("a", "b", "<pad>", "<pad>", "<pad>")
    assert sentence.words == ("a", "b")
    assert sentence.key_mask().tolist() == [True, True, False, False, False]  # type: ignore[union-attr]
    embeddings = entry_stages(sentence, random_vocabulary(("a", "b"), 3), "paper")[1].value
    assert embeddings.any(axis=1).tolist() == [True, True, False, False, False]


def test_a_sentence_that_is_full_has_no_mask() -> None:
    assert Sentence.padded(("a",), 1).key_mask() is None


TOO_MANY = "2 tokens cannot be padded to 1; pad to 2 or more"


@pytest.mark.parametrize(
    ("tokens", "n", "message"),
    [((), None, "the sentence is empty"), (("a", "b"), 1, TOO_MANY)],
)
def test_no_tokens_or_too_many(tokens: tuple[str, ...], n: int | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Sentence.padded(tokens, n)


FILE = "the=1,2,3 bank=4,5,6 She=7,8,9"


def test_a_file_gives_the_vectors_it_has() -> None:
    found = from_file(FILE, ("bank", "the"))
    assert (found.dim, found.remarks) == (3, ())
    assert found.rows(Sentence(("the", "bank", "the"))).tolist() == [
        [1, 2, 3],
        [4, 5, 6],
        [1, 2, 3],
    ]


def test_unknown_words_get_random_vectors_and_are_named() -> None:
    found = from_file(FILE, WORDS, seed=5)
    np.testing.assert_array_equal(
        found.vectors["near"], random_vocabulary(["near"], 3, 5).vectors["near"]
    )
    assert found.remarks == (
        "2 words are not in the inline literal: 'visited', 'near' got random vectors",
    )


def test_unknown_words_may_be_zeros() -> None:
    found = from_file(FILE, WORDS, unknown="zero")
    assert found.vectors["near"].tolist() == [0, 0, 0]
    assert "are vectors of zeros" in found.remarks[0]


def test_unknown_words_may_be_an_error() -> None:
    with pytest.raises(InputError, match=r"has no vector for 'bnak'; did you mean bank\?"):
        from_file(FILE, ["bnak"], unknown="error")


def test_another_case_is_noted() -> None:
    assert from_file(FILE, ["THE"]).remarks == ("found in another case: 'THE' as 'the'",)


def test_a_long_list_of_unknown_words_is_cut() -> None:
    remark = from_file(FILE, [f"w{i}" for i in range(11)]).remarks[0]
    assert "'w7' and 3 more got random vectors" in remark


def test_the_width_is_that_of_the_file() -> None:
    assert from_file(FILE, ["bank"], dim=3).dim == 3
    with pytest.raises(ConventionError, match="--dim is 4, but the vectors have 3 numbers"):
        from_file(FILE, ["bank"], dim=4)
