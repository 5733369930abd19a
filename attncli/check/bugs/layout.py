"""Bugs of what goes where: inputs exchanged, heads cut or joined wrongly, axes transposed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attncli.check.bugs.hypothesis import Change, Clues, Hypothesis, Variant, hypothesis
from attncli.check.bugs.scaling import may_mask
from attncli.check.case import Array, Case, Relayout

QUERY_KEY_STAGES = ("scores", "scaled", "capped", "masked", "weights", "dropped")


def _either_order(case: Case) -> Iterator[tuple[Case, str]]:
    """Inputs are exchanged or cut before their positions are put in, or after."""
    if case.placement is None:
        yield case, ""
        return
    yield case, "before the positions are put in"
    yield case.placed(), "after the positions are put in"


def _k_v_swapped(case: Case, _: Clues) -> Iterator[Variant]:
    if case.k.shape == case.v.shape:
        for one, order in _either_order(case):
            yield Variant(replace(one, k=one.v, v=one.k), order)


def _q_k_swapped(case: Case, _: Clues) -> Iterator[Variant]:
    if case.q.shape == case.k.shape:
        for one, order in _either_order(case):
            yield Variant(replace(one, q=one.k, k=one.q), order)


def _k_not_transposed(case: Case, _: Clues) -> Iterator[Variant]:
    if case.k.shape[-1] == case.k.shape[-2]:
        placed = case.placed()
        yield Variant(replace(placed, k=np.swapaxes(placed.k, -1, -2)))


def without_transpose(x: Array) -> Array:
    """Heads that were made by reshape alone: (n, h·d) read as (h, n, d) instead of (n, h, d).

    >>> without_transpose(np.arange(6).reshape(1, 2, 3, 1)).ravel().tolist()
    [0, 3, 1, 4, 2, 5]
    """
    return np.swapaxes(x, 1, 2).reshape(x.shape)


def _all_observed(case: Case, clues: Clues, stage: str) -> bool:
    """Whether a stage was observed with all its batch items, heads and rows."""
    return stage in clues.observed and clues.observed[stage].shape[:3] == case.shape[:3]


def _split_wrong(case: Case, clues: Clues) -> Iterator[Variant]:
    if case.shape[1] == 1 or case.seen.n_past:
        return
    for one, order in _either_order(case):
        q, k, v = (without_transpose(x) for x in (one.q, one.k, one.v))
        split = replace(one, q=q, k=k, v=v)
        yield Variant(split, order)
        if _all_observed(case, clues, "output"):
            detail = "; ".join(filter(None, (order, "and merged in the same way")))
            yield Variant(_undone(split, _merge_undone), detail)


def _merged_wrong(case: Case, clues: Clues) -> Iterator[Variant]:
    if case.shape[1] > 1 and _all_observed(case, clues, "output"):
        yield Variant(_undone(case, _merge_undone))
        detail = "the other way: (tokens, heads, d) was reshaped to (heads, tokens, d)"
        yield Variant(_undone(case, _cut_undone), detail)


def _merge_undone(stage: str, observed: Array) -> Array:
    return without_transpose(observed) if stage == "output" else observed


def _cut_undone(stage: str, observed: Array) -> Array:
    n_batch, n_heads, n, d = observed.shape
    if stage != "output":
        return observed
    return np.swapaxes(observed.reshape(n_batch, n, n_heads, d), 1, 2)


def _undone(case: Case, undo: Relayout) -> Case:
    earlier = case.undo
    if earlier is None:
        return replace(case, undo=undo)
    return replace(case, undo=lambda stage, x: earlier(stage, undo(stage, x)))


def _head_order(order: str) -> Change:
    def change(case: Case, _: Clues) -> Iterator[Variant]:
        if case.q.shape[1] != case.k.shape[1] and case.how.head_order != order:
            yield Variant(case.with_how(head_order=order))

    return change


def _turned(case: Case, clues: Clues) -> Iterator[Variant]:
    """Every observed map has rows and columns exchanged."""
    maps = [stage for stage in QUERY_KEY_STAGES if _all_observed(case, clues, stage)]
    if maps and case.shape[2] == case.shape[3] > 1:
        yield Variant(_undone(case, _turn_undone))


def _turn_undone(stage: str, observed: Array) -> Array:
    return np.swapaxes(observed, -1, -2) if stage in QUERY_KEY_STAGES else observed


def _really(stage: str) -> Change:
    """What was observed as `scores` is a later stage."""

    def change(case: Case, clues: Clues) -> Iterator[Variant]:
        how = case.how
        later = stage == "scaled" or may_mask(case) or how.softcap is not None
        if "scores" in clues.observed and later:
            yield Variant(replace(case, instead={**case.instead, "scores": stage}))

    return change


LAYOUT: tuple[Hypothesis, ...] = (
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
        "output",
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
        "output",
        "the observed map has keys as rows and queries as columns",
    ),
    hypothesis(
        "the observed scores are scaled already",
        _really("scaled"),
        "stage",
        "what was observed as scores is what stands after the scale: name it scaled",
    ),
    hypothesis(
        "the observed scores are masked already",
        _really("masked"),
        "stage",
        "what was observed as scores is what goes into softmax: name it masked",
    ),
)
