"""Two bugs at once, each pair as somebody would have written it: both are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from attncli.check import check
from tests.check.buggy import verdict_of
from tests.check.buggy.parts import (
    TYPES,
    Computed,
    Inputs,
    causal_cells,
    mask_scores,
    merge,
    positions,
    random_mask,
    scale,
    scores,
    softmax,
    split,
    weighted_sum,
)

CAUSAL = {"causal": True}


def unscaled_and_not_causal(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    return Computed(inputs.round(weighted_sum(softmax(scores(q, k)), v)), q, k, v, CAUSAL)


def d_model_and_off_by_one(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    i, j = positions(inputs.n_q, inputs.n_k)
    s = scores(q, k) * (inputs.h * inputs.d_k) ** -0.5
    return Computed(
        inputs.round(weighted_sum(softmax(mask_scores(s, j > i + 1)), v)), q, k, v, CAUSAL
    )


def tiled_and_unscaled(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(h=4, h_kv=2)
    both = [np.concatenate([x, x]) for x in (k, v)]
    return Computed(inputs.round(weighted_sum(softmax(scores(q, both[0])), both[1])), q, k, v)


def inverted_and_d_k(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    observed = weighted_sum(softmax(mask_scores(scores(q, k) / inputs.d_k, keep)), v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def over_queries_and_unscaled(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    return Computed(inputs.round(weighted_sum(softmax(scores(q, k), axis=-2), v)), q, k, v)


def after_softmax_and_unscaled(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    return Computed(
        inputs.round(weighted_sum(softmax(scores(q, k)) * keep, v)), q, k, v, {}, {"mask": keep}
    )


def split_and_unscaled(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    wrong = [merge(x).reshape(x.shape) for x in (q, k, v)]
    return Computed(
        inputs.round(weighted_sum(softmax(scores(wrong[0], wrong[1])), wrong[2])), q, k, v
    )


def merged_and_not_causal(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    output = np.ascontiguousarray(weighted_sum(softmax(scores(q, k) * scale(q)), v))
    merged = output.reshape(inputs.n_q, inputs.h * inputs.d_v)
    return Computed(inputs.round(split(merged, inputs.h)), q, k, v, CAUSAL)


def swapped_and_causal(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(d_v=inputs.d_k)
    s = mask_scores(scores(q, v) * scale(q), causal_cells(inputs))
    return Computed(inputs.round(weighted_sum(softmax(s), k)), q, k, v)


def uncapped_and_bottom_right(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    i, j = positions(inputs.n_q, inputs.n_k)
    s = mask_scores(scores(q, k) * scale(q), j > i + inputs.n_k - inputs.n_q)
    return Computed(
        inputs.round(weighted_sum(softmax(s), v)), q, k, v, {"softcap": 1.5, "causal": True}
    )


UNSCALED = "scale left out"
PAIRS: tuple[tuple[Callable[[Inputs], Computed], set[str]], ...] = (
    (unscaled_and_not_causal, {UNSCALED, "causal mask left out"}),
    (d_model_and_off_by_one, {"√d_model instead of √d_k", "causal mask shows the next position"}),
    (tiled_and_unscaled, {"key heads tiled, not in blocks", UNSCALED}),
    (inverted_and_d_k, {"boolean mask read the other way round", "divided by d_k, not √d_k"}),
    (over_queries_and_unscaled, {"softmax over queries, not keys", UNSCALED}),
    (after_softmax_and_unscaled, {"mask applied after softmax, not renormalised", UNSCALED}),
    (split_and_unscaled, {"heads split by reshape without transpose", UNSCALED}),
    (
        merged_and_not_causal,
        {"heads merged by reshape without transpose", "causal mask left out"},
    ),
    (swapped_and_causal, {"K and V swapped", "causal mask where none is wanted"}),
    (
        uncapped_and_bottom_right,
        {"softcap left out", "causal mask aligned bottom-right, not top-left"},
    ),
)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("make", "names"), PAIRS, ids=[make.__name__ for make, _ in PAIRS])
def test_both_are_named(make: Callable[[Inputs], Computed], names: set[str], dtype: str) -> None:
    inputs = Inputs(dtype, np.random.default_rng(3), 2, 3, 5, 7, 11)
    for seed in (3, 4):
        computed = make(replace(inputs, rng=np.random.default_rng(seed)))
        verdict = verdict_of(computed)
        found = [{bug.name for bug in one.bugs} for one in verdict.explanations]
        assert found == [names]
        assert verdict.status == "found"


def test_pairs_can_be_left_out() -> None:
    inputs = Inputs("float64", np.random.default_rng(3), 2, 3, 5, 7, 11)
    computed = unscaled_and_not_causal(inputs)
    assert verdict_of(computed, pairs=False).status == "no match"


def test_a_few_rounded_numbers_name_no_pair() -> None:
    """Three numbers of two decimals fit too many pairs by chance."""
    q, k, v = [[1.0, 0.0]], [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0], [3.0]]
    observed = [[0.30, 0.30, 0.40]]
    assert check(observed, q, k, v, stage="weights", decimals=2).status == "no match"
