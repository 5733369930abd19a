"""Parts of the keys merged by other shares: computed here part by part, by plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from tests.commands.check.planted.parts import TYPES

Array = np.ndarray[Any, Any]
HEADS, N_Q, N_K, D, D_V = 3, 7, 13, 5, 11
CUT = 8


def inputs(seed: int, *lead: int, heads: int = HEADS, n_q: int = N_Q) -> tuple[Array, ...]:
    rng = np.random.default_rng(seed)
    shapes = (*lead, heads, n_q, D), (*lead, heads, N_K, D), (*lead, heads, N_K, D_V)
    return tuple(1.5 * rng.normal(size=shape) for shape in shapes)


class Part:
    """Keys from one to another: their output, the largest score, the sum of powers, the mean."""

    def __init__(self, q: Array, k: Array, v: Array, start: int, end: int, *, causal: bool) -> None:
        lead = q.shape[:-1]
        self.n = end - start
        self.output = np.zeros((*lead, v.shape[-1]))
        self.top, self.sum, self.mean = (np.zeros(lead) for _ in range(3))
        for at in np.ndindex(lead):
            last = min(end, at[-1] + k.shape[-2] - lead[-1] + 1) if causal else end
            scores = k[at[:-1]][start:end] @ q[at] / np.sqrt(q.shape[-1])
            self.mean[at], scores = scores.mean(), scores[: max(0, last - start)]
            self.top[at] = scores.max(initial=-np.inf)
            powers = np.exp(scores - self.top[at])
            self.sum[at] = powers.sum()
            if len(powers):
                self.output[at] = powers @ v[at[:-1]][start : start + len(powers)] / powers.sum()

    @property
    def lse(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.where(self.sum > 0, self.top + np.log(self.sum), -np.inf)


Logarithms = Callable[[list[Part]], list[Array]]


def merged(
    arrays: Sequence[Array], cuts: Sequence[int], logarithms: Logarithms, *, causal: bool = False
) -> Array:
    q, k, v = arrays
    ends = [*cuts, k.shape[-2]]
    parts = [Part(q, k, v, a, b, causal=causal) for a, b in zip([0, *cuts], ends, strict=True)]
    shares = [np.exp(x) for x in logarithms(parts)]
    total = sum(shares)
    terms = (part.output * (x / total)[..., None] for part, x in zip(parts, shares, strict=True))
    return np.asarray(sum(terms))


def said(observed: Any, *arrays: Array, **more: Any) -> str:
    verdict = check(observed, *arrays, pairs=False, **more)
    assert verdict.status == "found", str(verdict)
    return verdict.explanations[0].name


WAYS: dict[str, Logarithms] = {
    "2 to the power of a natural logarithm": lambda parts: [x.lse * np.log(2) for x in parts],
    "e to the power of a logarithm of 2": lambda parts: [x.lse / np.log(2) for x in parts],
    "by their maxima alone": lambda parts: [x.top for x in parts],
    "without the maxima": lambda parts: [np.log(x.sum) for x in parts],
    "by their lengths": lambda parts: [x.top * 0 + np.log(x.n) for x in parts],
    "as their mean": lambda parts: [x.top * 0 for x in parts],
    "smoothed keys": lambda parts: [x.lse - x.mean for x in parts],
    "maximum is scaled again": lambda parts: [x.top / np.sqrt(D) + np.log(x.sum) for x in parts],
    "exchanged among the parts": lambda parts: [x.lse for x in parts[::-1]],
    "another head: in reverse order": lambda parts: [x.lse[..., ::-1, :] for x in parts],
    "part 2 of another query: the first": lambda parts: [parts[0].lse, parts[1].lse[..., :1] + 0 * parts[1].lse],
}  # fmt: skip


@pytest.mark.parametrize("words", WAYS)
def test_two_parts_of_an_unknown_cut(words: str, dtype: str) -> None:
    arrays = tuple(x.astype(dtype) for x in inputs(1, 2))
    output = merged([x.astype(float) for x in arrays], [CUT], WAYS[words])
    sentence = said(output.astype(dtype), *arrays)
    assert words in sentence
    assert "cut after key 8" in sentence


@pytest.mark.parametrize("split", [(6,), (4, 9)])
def test_a_split_that_is_known(split: tuple[int, ...]) -> None:
    arrays = inputs(2)
    output = merged(arrays, split, WAYS["smoothed keys"])
    assert "smoothed keys" in said(output, *arrays, split=split)


def test_under_a_causal_mask() -> None:
    arrays = inputs(3, n_q=N_K)
    output = merged(arrays, [5], WAYS["by their maxima alone"], causal=True)
    assert "cut after key 5, are merged by their maxima alone" in said(output, *arrays, causal=True)


def test_blocks_of_an_unknown_size() -> None:
    arrays = inputs(4, 2)
    output = merged(arrays, [3, 6, 9, 12], WAYS["e to the power of a logarithm of 2"])
    sentence = said(output, *arrays)
    assert "blocks of 3 keys are merged" in sentence
    assert "e to the power of a logarithm of 2" in sentence


@pytest.mark.parametrize("split", [None, (6,)])
def test_log_sum_exps_read_token_by_head(split: Any) -> None:
    arrays = inputs(5, heads=5, n_q=5)
    output = merged(arrays, [6], lambda parts: [x.lse.swapaxes(-1, -2) for x in parts])
    sentence = said(output, *arrays, split=split)
    assert "heads and queries are exchanged" in sentence
    assert "cut after key 6" in sentence


def test_log_sum_exps_read_with_other_strides() -> None:
    arrays = inputs(6)

    def viewed(parts: list[Part]) -> list[Array]:
        lse = np.stack([x.lse for x in parts])  # [part, head, query], read as [head, query, part]
        return [*np.moveaxis(lse.ravel().reshape(HEADS, N_Q, 2), -1, 0)]

    assert "strides of another order" in said(merged(arrays, [CUT], viewed), *arrays)


def test_in_bfloat16() -> None:
    rng = np.random.default_rng(7)
    shapes = (3, 31, 17), (3, 29, 17), (3, 29, 13)
    arrays = [(1.5 * rng.normal(size=x)).astype(TYPES["bfloat16"]) for x in shapes]
    output = merged([x.astype(float) for x in arrays], [11], WAYS["by their maxima alone"])
    sentence = said(output.astype(TYPES["bfloat16"]), *arrays, split=(11,))
    assert "by their maxima alone" in sentence


def test_other_shares_are_named() -> None:
    arrays, rng = inputs(8), np.random.default_rng(8)
    other = [rng.normal(size=(HEADS, N_Q)) for _ in range(2)]
    sentence = said(merged(arrays, [CUT], lambda _: other), *arrays)
    assert "cut after key 8, are merged by other shares" in sentence


def test_gradients_of_values_follow() -> None:
    arrays = inputs(9)
    q, k, v = arrays
    d_output = np.random.default_rng(9).normal(size=(HEADS, N_Q, D_V))
    way = WAYS["by their maxima alone"]
    d_v = np.zeros_like(v)
    for at in np.ndindex(v.shape):  # the output is linear in v
        one = np.zeros_like(v)
        one[at] = 1
        d_v[at] = (merged((q, k, one), [CUT], way) * d_output).sum()
    observed = {"output": merged(arrays, [CUT], way), "d_v": d_v}
    assert "by their maxima alone" in said(observed, *arrays, d_output=d_output)


@pytest.mark.parametrize("base", ["e", "2"])
def test_the_log_sum_exp_of_smoothed_keys(base: str) -> None:
    arrays = inputs(10, 2)
    part = Part(arrays[0], arrays[1], arrays[2], 0, N_K, causal=False)
    lse = (part.lse - part.mean) / (np.log(2) if base == "2" else 1)
    sentence = said({"output": part.output, "lse": lse}, *arrays, lse_base=base)
    assert "lse is that of K − mean(K)" in sentence
    sentence = said(
        {"lse": lse.astype("float32")}, *(x.astype("float32") for x in arrays), lse_base=base
    )
    assert "lse is that of K − mean(K)" in sentence
