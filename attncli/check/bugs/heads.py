"""Bugs of what goes where: inputs exchanged, heads cut or joined wrongly, axes transposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attncli.check.bugs.hypothesis import Change, Evidence, Hypothesis, Variant, hypothesis
from attncli.check.setup import Array, Relayout, Setup
from attncli.stages import MAPS, MASKED, OUTPUT, SCALED, SCORES


def _either_order(setup: Setup) -> Iterator[tuple[Setup, str]]:
    """Inputs are exchanged or cut before their positions are put in, or after."""
    if setup.positions is None:
        yield setup, ""
        return
    yield setup, "before the positions are put in"
    yield setup.placed(), "after the positions are put in"


def _k_v_swapped(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.k.shape == setup.v.shape:
        for one, order in _either_order(setup):
            yield Variant(replace(one, k=one.v, v=one.k), order)


def _q_k_swapped(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.q.shape == setup.k.shape:
        for one, order in _either_order(setup):
            yield Variant(replace(one, q=one.k, k=one.q), order)


def _k_not_transposed(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.k.shape[-1] == setup.k.shape[-2]:
        placed = setup.placed()
        yield Variant(replace(placed, k=np.swapaxes(placed.k, -1, -2)))


def without_transpose(x: Array) -> Array:
    """Heads that were made by reshape alone: (n, h·d) read as (h, n, d) instead of (n, h, d).

    >>> without_transpose(np.arange(6).reshape(1, 2, 3, 1)).ravel().tolist()
    [0, 3, 1, 4, 2, 5]
    """
    return np.swapaxes(x, 1, 2).reshape(x.shape)


def _all_observed(setup: Setup, evidence: Evidence, stage: str) -> bool:
    """Whether a stage was observed with all its batch items, heads and rows."""
    return stage in evidence.observed and evidence.observed[stage].shape[:3] == setup.shape[:3]


def _split_wrong(setup: Setup, evidence: Evidence) -> Iterator[Variant]:
    if setup.shape[1] == 1 or setup.n_past:
        return
    for one, order in _either_order(setup):
        q, k, v = (without_transpose(x) for x in (one.q, one.k, one.v))
        split = replace(one, q=q, k=k, v=v)
        yield Variant(split, order)
        if _all_observed(setup, evidence, OUTPUT):
            detail = "; ".join(filter(None, (order, "and merged in the same way")))
            yield Variant(_relaid(split, merge_undone), detail)


def _merged_wrong(setup: Setup, evidence: Evidence) -> Iterator[Variant]:
    if setup.shape[1] > 1 and _all_observed(setup, evidence, OUTPUT):
        yield Variant(_relaid(setup, merge_undone))
        detail = "the other way: (tokens, heads, d) was reshaped to (heads, tokens, d)"
        yield Variant(_relaid(setup, cut_undone), detail)


def merge_undone(stage: str, observed: Array) -> Array:
    return without_transpose(observed) if stage == OUTPUT else observed


def cut_undone(stage: str, observed: Array) -> Array:
    n_batch, n_heads, n, d = observed.shape
    if stage != OUTPUT:
        return observed
    return np.swapaxes(observed.reshape(n_batch, n, n_heads, d), 1, 2)


def _relaid(setup: Setup, relayout: Relayout) -> Setup:
    earlier = setup.relayout
    if earlier is None:
        return replace(setup, relayout=relayout)
    return replace(setup, relayout=lambda stage, x: earlier(stage, relayout(stage, x)))


def _head_order(order: str) -> Change:
    def change(setup: Setup, _: Evidence) -> Iterator[Variant]:
        if setup.q.shape[1] != setup.k.shape[1] and setup.how.head_order != order:
            yield Variant(setup.with_how(head_order=order))

    return change


def _turned(setup: Setup, evidence: Evidence) -> Iterator[Variant]:
    """Every observed map has rows and columns exchanged."""
    maps = [stage for stage in MAPS if _all_observed(setup, evidence, stage)]
    if maps and setup.shape[2] == setup.shape[3] > 1:
        yield Variant(_relaid(setup, turn_undone))


def turn_undone(stage: str, observed: Array) -> Array:
    return np.swapaxes(observed, -1, -2) if stage in MAPS else observed


def _really(stage: str) -> Change:
    """What was observed as `scores` is a later stage."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Variant]:
        how = setup.how
        later = stage == SCALED or setup.may_mask or how.softcap is not None
        if SCORES in evidence.observed and later:
            yield Variant(replace(setup, relabel={**setup.relabel, SCORES: stage}))

    return change


HEADS: tuple[Hypothesis, ...] = (
    hypothesis(
        "heads split by reshape without transpose",
        _split_wrong,
        "inputs",
        "(tokens, heads · d) is reshaped to (heads, tokens, d), which mixes tokens and heads",
        "jsbaan/transformer-from-scratch#6, FuxiCTR#30",
    ),
    hypothesis(
        "heads merged by reshape without transpose",
        _merged_wrong,
        "outputs",
        "(heads, tokens, d) is reshaped to (tokens, heads · d), which mixes tokens and heads",
        "jsbaan/transformer-from-scratch#6, FuxiCTR#30",
    ),
    hypothesis(
        "K and V swapped",
        _k_v_swapped,
        "inputs",
        "the values are used as keys and the keys as values",
    ),
    hypothesis("Q and K swapped", _q_k_swapped, "inputs", "the scores are K Qᵀ: rows are keys"),
    hypothesis(
        "K not transposed",
        _k_not_transposed,
        "inputs",
        "the scores are Q K, which a square K hides",
    ),
    hypothesis(
        "key heads tiled, not in blocks",
        _head_order("tiled"),
        "order",
        "query heads share key heads in turn (0, 1, 0, 1) where they should in blocks (0, 0, 1, 1)",
        "onnx#7274, jax-js#180, axlearn#842",
    ),
    hypothesis(
        "key heads in blocks, not tiled",
        _head_order("blocks"),
        "order",
        "query heads share key heads in blocks (0, 0, 1, 1) where they should in turn (0, 1, 0, 1)",
        "onnx#7274, jax-js#180, axlearn#842",
    ),
    hypothesis(
        "rows and columns exchanged",
        _turned,
        "outputs",
        "the observed map has keys as rows and queries as columns",
    ),
    hypothesis(
        "the observed scores are scaled already",
        _really(SCALED),
        "stage",
        "what was observed as scores is what stands after the scale: name it scaled",
    ),
    hypothesis(
        "the observed scores are masked already",
        _really(MASKED),
        "stage",
        "what was observed as scores is what goes into softmax: name it masked",
    ),
)
