"""Bugs of arrangement: inputs exchanged, heads split or merged wrongly, axes transposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.check.bugs.bug import Bug, Change, Evidence, bug, changing
from attncli.check.setup import Setup
from attncli.stages import MAPS, MASKED, OUTPUT, QKV, SCALED, SCORES


def either_order(setup: Setup) -> Iterator[Setup]:
    """Inputs are exchanged or split before their positions are put in, or after."""
    if setup.positions is None:
        yield setup
        return
    yield setup.with_detail("before the positions are put in")
    yield setup.placed().with_detail("after the positions are put in")


def _exchanged(one: str, other: str) -> Change:
    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        for base in either_order(setup):
            x, y = base.inputs[one], base.inputs[other]
            if x.shape == y.shape:
                yield base.with_inputs(**{one: y, other: x})

    return change


def _k_not_transposed(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.d_k == setup.shape[3]:
        placed = setup.placed()
        yield placed.with_inputs(k=np.swapaxes(placed.inputs["k"], -1, -2))


def without_transpose(x: Array) -> Array:
    """Heads made by reshape alone: (n, h·d) read as (h, n, d) instead of (n, h, d).

    >>> without_transpose(np.arange(6).reshape(1, 2, 3, 1)).ravel().tolist()
    [0, 3, 1, 4, 2, 5]
    """
    return np.swapaxes(x, 1, 2).reshape(x.shape)


def _split_wrong(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if setup.shape[1] == 1 or setup.n_past:
        return
    for base in either_order(setup):
        split = base.with_inputs(**{name: without_transpose(base.inputs[name]) for name in QKV})
        yield split
        if evidence.has_all(setup, OUTPUT):
            merged = split.with_relayout(without_transpose, OUTPUT)
            yield merged.with_detail("and merged in the same way")


def _merged_wrong(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if setup.shape[1] > 1 and evidence.has_all(setup, OUTPUT):
        yield setup.with_relayout(without_transpose, OUTPUT)
        detail = "the reverse: (tokens, heads, d) was reshaped to (heads, tokens, d)"
        yield setup.with_relayout(with_transpose, OUTPUT).with_detail(detail)


def with_transpose(x: Array) -> Array:
    """What was reshaped from (n, h, d) to (h, n, d), transposed instead."""
    n_batch, n_heads, n, d = x.shape
    return np.swapaxes(x.reshape(n_batch, n, n_heads, d), 1, 2)


def _transposed(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    maps = [stage for stage in MAPS if evidence.has_all(setup, stage)]
    if maps and setup.shape[2] == setup.shape[3] > 1:
        yield setup.with_relayout(lambda x: np.swapaxes(x, -1, -2), *MAPS)


def _shares_key_heads(setup: Setup) -> bool:
    return bool(setup.shape[1] != setup.inputs["k"].shape[1])


def _really(stage: str) -> Change:
    """What was observed as `scores` is a later stage."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        later = stage == SCALED or setup.may_mask() or setup.how.softcap is not None
        if SCORES in evidence.observed and later:
            yield replace(setup, relabel={**setup.relabel, SCORES: stage})

    return change


_RESHAPE_THREADS = "jsbaan/transformer-from-scratch#6, FuxiCTR#30"
_SHARING_THREADS = "onnx#7274, jax-js#180, axlearn#842"

HEADS: tuple[Bug, ...] = (
    bug(
        "heads split by reshape without transpose",
        _split_wrong,
        "inputs",
        "(tokens, heads · d) is reshaped to (heads, tokens, d), which mixes tokens and heads",
        _RESHAPE_THREADS,
    ),
    bug(
        "heads merged by reshape without transpose",
        _merged_wrong,
        "outputs",
        "(heads, tokens, d) is reshaped to (tokens, heads · d), which mixes tokens and heads",
        _RESHAPE_THREADS,
    ),
    bug(
        "K and V swapped",
        _exchanged("k", "v"),
        "inputs",
        "the values are used as keys and the keys as values",
    ),
    bug("Q and K swapped", _exchanged("q", "k"), "inputs", "the scores are K Qᵀ: rows are keys"),
    bug(
        "K not transposed",
        _k_not_transposed,
        "inputs",
        "the scores are Q K, which works only because K is square",
    ),
    bug(
        "key heads tiled, not in blocks",
        changing(head_order="tiled", when=_shares_key_heads),
        "head-order",
        "query heads use key heads in turn (0, 1, 0, 1), not in blocks (0, 0, 1, 1)",
        _SHARING_THREADS,
    ),
    bug(
        "key heads in blocks, not tiled",
        changing(head_order="blocks", when=_shares_key_heads),
        "head-order",
        "query heads use key heads in blocks (0, 0, 1, 1), not in turn (0, 1, 0, 1)",
        _SHARING_THREADS,
    ),
    bug(
        "rows and columns exchanged",
        _transposed,
        "outputs",
        "the observed map has keys as rows and queries as columns",
    ),
    bug(
        "the observed scores are scaled already",
        _really(SCALED),
        "stage-name",
        "what was observed as scores are the scores after scaling: name the stage scaled",
    ),
    bug(
        "the observed scores are masked already",
        _really(MASKED),
        "stage-name",
        "what was observed as scores goes into softmax: name the stage masked",
    ),
)
