"""Masks of which a part is ignored: the wrong numbers are computed by loops over cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.check.diagnose import check
from tests.commands.check.test_questions_maps import attention, cause, inputs

BATCH, HEADS, N = 3, 2, 17
DOCUMENT = np.repeat([0, 1, 2], [5, 7, 5])
LENGTHS = 14, 11, 13


def causal(b: int, i: int, j: int) -> bool:
    return j <= i


def documents(b: int, i: int, j: int) -> bool:
    return bool(DOCUMENT[i] == DOCUMENT[j])


def padding(b: int, i: int, j: int) -> bool:
    return j < LENGTHS[b]


def left_padding(b: int, i: int, j: int) -> bool:
    return j >= 17 - LENGTHS[b]


def window(b: int, i: int, j: int) -> bool:
    return i - j <= 3


def first_keys(b: int, i: int, j: int) -> bool:
    return j not in (3, 8) or i % 3 != 0


Part = Callable[[int, int, int], bool]
KINDS = "bool", "finfo.min", "-inf"


def mask_of(parts: list[Part], kind: str = "bool") -> Array:
    """[batch, 1, query, key]."""
    at = np.ndindex(BATCH, N, N)
    mask = np.array([all(part(*x) for part in parts) for x in at]).reshape(BATCH, 1, N, N)
    if kind == "bool":
        return mask
    return np.where(mask, 0.0, np.finfo(np.float32).min if kind == "finfo.min" else -np.inf)


def observed_of(x: Any, parts: list[Part]) -> Array:
    return attention(x, sees=lambda b, h, i, j: all(part(b, i, j) for part in parts))


IGNORED: list[tuple[list[Part], list[Part], list[str]]] = [
    ([causal, documents], [documents], ["documents", "ignored", "causal part remains"]),
    ([causal, documents], [causal], ["causal part", "ignored", "documents remain"]),
    ([causal, padding], [padding], ["padding", "ignored", "causal part remains"]),
    ([causal, left_padding], [left_padding], ["padding", "ignored", "causal part remains"]),
    ([causal, padding], [causal], ["causal part", "ignored", "padding remains"]),
    ([causal, window], [window], ["window", "ignored", "causal part remains"]),
    ([first_keys, padding], [padding], ["padding", "ignored", "rest remains"]),
    ([causal, first_keys], [first_keys], ["rest", "ignored", "causal part remains"]),
    ([causal, documents, padding], [documents, padding], ["documents", "padding", "ignored"]),
]
WITH_KINDS = [
    pytest.param(*case, kind, marks=[pytest.mark.exhaustive] * ((n + at) % 3 != 0))
    for n, case in enumerate(IGNORED)
    for at, kind in enumerate(KINDS)
]
"""Each with one kind of mask; with the others where all is run."""


@pytest.mark.parametrize(("parts", "ignored", "facts", "kind"), WITH_KINDS)
def test_a_part_is_ignored(
    parts: list[Part], ignored: list[Part], facts: list[str], kind: str
) -> None:
    x = inputs(BATCH, HEADS, N, N)
    observed = observed_of(x, [part for part in parts if part not in ignored])
    name = cause(check(observed, *x, mask=mask_of(parts, kind)))
    assert all(fact in name for fact in facts), name


def test_causality_in_the_place_of_a_part(dtype: str) -> None:
    x = inputs(BATCH, HEADS, N, N)
    observed, mask = observed_of(x, [causal, padding]).astype(dtype), mask_of([documents, padding])
    name = cause(check(observed, *(y.astype(dtype) for y in x), mask=mask))
    assert all(fact in name for fact in ("documents", "ignored", "a causal limit")), name


def test_causality_beside_the_mask_is_lost_with_a_part() -> None:
    x = inputs(BATCH, HEADS, N, N)
    mask = mask_of([first_keys, padding])
    verdict = check(observed_of(x, [first_keys]), *x, mask=mask, causal=True)
    name = cause(verdict)
    assert all(fact in name for fact in ("padding", "ignored", "so is the causal limit")), name


@pytest.mark.parametrize(
    ("planted", "facts"),
    [
        (lambda i, j: DOCUMENT[max(i - 1, 0)] == DOCUMENT[max(j - 1, 0)], ["documents", "late"]),
        (lambda i, j: DOCUMENT[min(i + 1, 16)] == DOCUMENT[min(j + 1, 16)], ["document", "early"]),
    ],
)
def test_documents_one_off(planted: Callable[[int, int], bool], facts: list[str]) -> None:
    x = inputs(BATCH, HEADS, N, N)
    observed = attention(x, sees=lambda b, h, i, j: j <= i and planted(i, j))
    name = cause(check(observed, *x, mask=mask_of([causal, documents])))
    assert all(fact in name for fact in facts), name


def test_padding_of_another_batch_item() -> None:
    x = inputs(BATCH, HEADS, N, N)
    observed = attention(x, sees=lambda b, h, i, j: j <= i and j < LENGTHS[2 - b])
    name = cause(check(observed, *x, mask=mask_of([causal, padding])))
    assert "padding" in name
    assert "reverse" in name


@pytest.mark.parametrize("stage", ["d_q", "d_k", "d_v"])
def test_gradients_alone(stage: str) -> None:
    """Where the forward pass was not observed: that of a softmax, by hand."""
    x, random = inputs(BATCH, HEADS, N, N), np.random.default_rng(5)
    d_output = random.normal(size=(BATCH, HEADS, N, x.v.shape[-1]))
    gradients = backward(x, d_output, mask_of([causal])[:1, :1] | np.zeros((3, 2, 1, 1), bool))
    verdict = check(
        {stage: gradients[stage]}, *x, mask=mask_of([causal, documents]), d_output=d_output
    )
    name = cause(verdict)
    assert "documents" in name
    assert "ignored" in name


def backward(x: Any, d_output: Array, visible: Array) -> dict[str, Array]:
    """dQ, dK and dV of softmax(Q Kᵀ / √d) V where a mask leaves some visible."""
    scale = x.q.shape[-1] ** -0.5
    scores = np.where(visible, x.q @ x.k.swapaxes(-1, -2) * scale, -np.inf)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    d_weights = d_output @ x.v.swapaxes(-1, -2)
    d_scores = weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))
    return {
        "d_q": d_scores @ x.k * scale,
        "d_k": d_scores.swapaxes(-1, -2) @ x.q * scale,
        "d_v": weights.swapaxes(-1, -2) @ d_output,
    }
