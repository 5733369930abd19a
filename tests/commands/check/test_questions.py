"""What the numbers say: right rows at other places, rows that were not written, the wrong part."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attncli import attend
from attncli.commands.check.diagnose import check
from attncli.commands.check.verdict import Verdict

B, H, N_Q, N_K, D = 3, 5, 7, 11, 4


def qkv(seed: int, dtype: str = "float64", heads: int = H) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    shapes = {"q": (B, heads, N_Q, D), "k": (B, heads, N_K, D), "v": (B, heads, N_K, D)}
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def output_of(q: Any, k: Any, v: Any) -> Any:
    """softmax(Q Kᵀ / √d_k) V."""
    scores = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1])
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return np.einsum("bhij,bhje->bhie", weights, v).astype(q.dtype)


def cause(verdict: Verdict) -> str:
    assert verdict.status == "found", str(verdict)
    assert not verdict.explanations[0].bugs[0].id, "a row of the catalogue"
    return verdict.explanations[0].name


PLACES: dict[str, tuple[Any, str]] = {
    "heads of one group": (
        lambda x: x[:, [0, 0, 2, 2, 4]],
        "head 2 has the numbers of head 1, head 4 those of head 3",
    ),
    "the last batch item": (
        lambda x: x[[2, 2, 2]],
        "batch items 1 and 2 have the numbers of batch item 3",
    ),
    "one query for several": (
        lambda x: x[:, :, [3, 3, 3, 3, 4, 5, 6]],
        "queries 1 to 3 have the numbers of query 4",
    ),
    "queries in pairs": (
        lambda x: x[:, :, [0, 0, 2, 2, 4, 4, 6]],
        "query 2 has the numbers of query 1, query 4 those of query 3",
    ),
    "no family": (lambda x: x[:, [0, 3, 2, 1, 1]], "head 2 has the numbers of head 4"),
}


@pytest.mark.parametrize("name", PLACES)
def test_right_rows_at_other_places(name: str, dtype: str) -> None:
    inputs, (moved, words) = qkv(3, dtype), PLACES[name]
    verdict = check(moved(output_of(**inputs)), **inputs)
    assert "another place" in cause(verdict)
    assert words in cause(verdict)


@pytest.mark.parametrize(("axes", "words"), [((1, 0), "batch items and heads"), ((2, 1), "heads")])
def test_axes_that_a_view_exchanges(axes: tuple[int, int], words: str) -> None:
    """Stored with two axes in another order, and read as if they were not."""
    inputs = qkv(5)
    observed = output_of(**inputs)
    stored = np.ascontiguousarray(np.swapaxes(observed, *axes))
    sentence = check(stored.reshape(observed.shape), **inputs)
    names = [explanation.name for explanation in sentence.explanations]
    assert any(words in name or "reshape" in name for name in names)


def test_rows_that_follow_no_rule_are_counted() -> None:
    inputs = qkv(7)
    observed = output_of(**inputs)
    flat = observed.reshape(-1, D).copy()
    flat[[3, 50, 71]] = output_of(**inputs).reshape(-1, D)[[20, 4, 99]]
    sentence = cause(check(flat.reshape(observed.shape), **inputs))
    assert "3 of 105 rows" in sentence
    assert "query 4" in sentence  # row 3 is batch item 1, head 1, query 4
    assert "head 3, query 7" in sentence  # and has the numbers of row 20


@pytest.mark.parametrize("mark", [0.0, np.nan])
def test_rows_that_were_not_written(mark: float) -> None:
    inputs = qkv(11)
    observed = output_of(**inputs)
    observed[:, 1, 2:4] = mark
    if mark == 0:
        sentence = cause(check(observed, **inputs))
        assert "queries 3 and 4" in sentence
        assert "head 2" in sentence
        assert "0: not written" in sentence
    else:
        assert not check(observed, **inputs)


def test_rows_that_were_not_written_beside_another_cause() -> None:
    inputs = qkv(13)
    observed = output_of(inputs["q"] * 2, inputs["k"], inputs["v"])
    observed[:, :, 3] = 0
    verdict = check(observed, **inputs)
    assert verdict.status == "found"
    name = verdict.explanations[0].name
    assert "scale" in name
    assert name.endswith("and query 4 is 0: not written")


@pytest.mark.parametrize("mark", [0.0, np.nan])
@pytest.mark.parametrize(("axis", "kind"), [(0, "batch item"), (1, "head"), (2, "query")])
def test_rows_that_were_written_to_another_place(
    axis: int, kind: str, mark: float, dtype: str
) -> None:
    """A kernel that stores place 3 at place 2 leaves nothing at place 3."""
    inputs = qkv(19, dtype)
    observed = output_of(**inputs)
    places = np.moveaxis(observed, axis, 0)  # a view
    places[1], places[2] = places[2].copy(), mark
    sentence = cause(check(observed, **inputs))
    assert f"{kind} 2 has the numbers of {kind} 3" in sentence
    number = "NaN" if np.isnan(mark) else "0"
    assert sentence.endswith(f"and {kind} 3 is {number}: not written")


def test_gradients_that_were_written_to_another_place() -> None:
    inputs = qkv(23)
    d_output = np.random.default_rng(23).normal(size=(B, H, N_Q, D))
    trace = attend(**inputs, causal=True, d_output=d_output)
    gradients = {name: trace[name].value.copy() for name in ("d_q", "d_k", "d_v")}
    d_k = gradients["d_k"]
    d_k[:, :, 5], d_k[:, :, 4] = d_k[:, :, 4].copy(), 0
    verdict = check(gradients, **inputs, causal=True, d_output=d_output)
    sentence = cause(verdict)
    assert "key 6 has the numbers of key 5" in sentence
    assert sentence.endswith("and key 5 of d_k is 0: not written")


def test_the_part_that_is_wrong_is_explained_alone() -> None:
    inputs = qkv(17)
    observed = output_of(**inputs)
    hidden = np.arange(N_K) <= np.arange(N_Q)[:, None]
    item = {name: x[2:] for name, x in inputs.items()}
    scores = np.einsum("bhid,bhjd->bhij", item["q"], item["k"]) / 2
    powers = np.exp(np.where(hidden, scores, -np.inf))
    observed[2:] = np.einsum(
        "bhij,bhje->bhie", powers / powers.sum(axis=-1, keepdims=True), item["v"]
    )
    verdict = check(observed, **inputs)
    assert verdict.status == "found"
    assert verdict.explanations[0].name.startswith("in batch item 3: ")
    assert "causal" in verdict.explanations[0].name


def gradients(seed: int, heads: int = 2) -> tuple[dict[str, Any], dict[str, Any]]:
    inputs = qkv(seed, heads=heads)
    inputs["d_output"] = np.random.default_rng(seed + 1).normal(size=(B, heads, N_Q, D))
    trace = attend(**inputs)
    return inputs, {name: trace[name].value.copy() for name in ("d_q", "d_k", "d_v")}


def test_gradients_that_are_wrong_for_different_reasons() -> None:
    inputs, right = gradients(19)
    wrong = {"d_q": right["d_q"] * 2, "d_k": right["d_k"], "d_v": -right["d_v"]}
    verdict = check(wrong, **inputs)
    assert verdict.status == "several"
    of_v, of_q = verdict.explanations
    assert (of_v.part, of_q.part) == ("d_v", "d_q")
    assert "scale left out of dQ" in of_q.name  # 1/√4 is 1/2; d_k is right, so it is not in dS
    assert "sign" in of_v.name
    assert of_v.details == ("dV",)
    assert "several causes" in str(verdict)


@pytest.mark.parametrize(
    ("name", "at", "words"),
    [
        ("d_q", np.s_[:, :, 3:6], "queries 4 to 6 of d_q are 0"),
        ("d_k", np.s_[:, :, 1:3], "keys 2 and 3 of d_k are 0"),
        ("d_v", np.s_[:, :], "d_v is 0"),
    ],
)
def test_gradients_that_were_not_written(name: str, at: Any, words: str) -> None:
    inputs, wrong = gradients(23)
    wrong[name] = wrong[name].copy()
    wrong[name][at] = 0
    verdict = check(wrong, **inputs)
    names = " ".join(explanation.name for explanation in verdict.explanations)
    assert words in names or "zero" in names or "0" in names, str(verdict)


@pytest.mark.parametrize(
    ("name", "axis", "places", "words"),
    [
        ("d_q", 2, [1, 0, 3, 2, 5, 4, 6], "reverse order within each block of 2"),
        ("d_k", 1, [1, 1, 2], "key head 1 has the numbers of key head 2"),
        ("d_v", 0, [0, 0, 0], "batch items 2 and 3 have the numbers of batch item 1"),
    ],
)
def test_gradients_of_other_places(name: str, axis: int, places: list[int], words: str) -> None:
    inputs, wrong = gradients(37, heads=3)
    wrong[name] = wrong[name].take(places, axis=axis)
    verdict = check(wrong, **inputs)
    assert verdict.status == "found", str(verdict)
    assert words in str(verdict)


def test_a_part_of_a_gradient_is_explained_alone() -> None:
    inputs, wrong = gradients(41, heads=3)
    wrong["d_k"][1, 2] *= -1
    verdict = check(wrong, **inputs)
    assert verdict.status == "found", str(verdict)
    assert verdict.explanations[0].name.startswith("in batch item 2, key head 3: ")
    assert "sign" in verdict.explanations[0].name


def test_a_cause_needs_no_list_of_entries() -> None:
    inputs = qkv(29)
    text = str(check(output_of(**inputs)[:, ::-1], **inputs))
    assert "worst entries" not in text
    assert "×" not in text


def test_data_of_an_answer() -> None:
    from attncli.commands.check.report import verdict_to_dict

    inputs = qkv(31)
    observed = output_of(**inputs)
    observed[1:2] = observed[0:1]
    data = verdict_to_dict(check(observed, **inputs))
    (explanation,) = data["explanations"]
    assert explanation["bugs"][0]["id"] == ""
    assert explanation["part"] == ""
    assert "batch item 2 has the numbers of batch item 1" in explanation["name"]


SMALL = st.integers(1, 3)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.tuples(SMALL, SMALL, SMALL, SMALL, SMALL, SMALL),
    number=st.sampled_from([0.0, 1.0, np.nan, np.inf]),
    has_gradients=st.booleans(),
)
@example(seed=1, sizes=(1, 2, 1, 2, 1, 3), number=0.0, has_gradients=False)
@example(seed=7, sizes=(1, 3, 1, 1, 3, 1), number=0.0, has_gradients=False)
@example(seed=3, sizes=(1, 3, 2, 3, 1, 1), number=np.nan, has_gradients=True)
def test_whatever_is_wrong_is_judged(
    seed: int, sizes: tuple[int, ...], number: float, has_gradients: bool
) -> None:
    """Small whole numbers, many of them 0, with a row that is one number and others that are moved."""
    rng, (b, h, n_q, n_k, d, d_v) = np.random.default_rng(seed), sizes
    shapes = {"q": (b, h, n_q, d), "k": (b, h, n_k, d), "v": (b, h, n_k, d_v)}
    x: dict[str, Any] = {name: rng.integers(-1, 2, shape) + 0.0 for name, shape in shapes.items()}
    x |= {"d_output": rng.integers(-1, 2, (b, h, n_q, d_v)) + 0.0} if has_gradients else {}
    x |= {"qk_norm": True} if seed % 2 else {}
    trace, name = attend(**x), ["output", "scaled", "weights"][seed % 3]
    if has_gradients:
        name = ["d_q", "d_k", "d_v"][seed % 3]
    right = trace[name].value
    assert check({name: right}, **x, pairs=False).matches
    observed = np.roll(right, 1, axis=int(rng.integers(4)))
    observed[:, seed % h, -1] = number
    is_same = np.array_equal(observed, right)
    assert check({name: observed}, **x, pairs=False).matches == is_same
