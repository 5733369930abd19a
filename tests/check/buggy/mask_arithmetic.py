"""Buggy attentions: how a mask is applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tests.check.buggy.parts import (
    INF,
    Array,
    Computed,
    Inputs,
    mask_scores,
    masked_softmax,
    random_mask,
    scale,
    scores,
    softmax,
    weighted_sum,
)


def after_softmax(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    observed = weighted_sum(softmax(scores(q, k) * scale(q)) * keep, v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def multiplied(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    observed = weighted_sum(softmax(scores(q, k) * scale(q) * keep), v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def finite_value(inputs: Inputs) -> Computed:
    """All keys share a direction, and the first query scores about −1001 along it."""
    q, k, v = inputs.qkv()
    k[..., 0] = 1.0
    q[:, 0] = 0.0
    q[:, 0, 0] = -1001.0 / scale(q)
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    s = mask_scores(scores(q, k) * scale(q), ~keep, -1000.0)
    return Computed(inputs.round(weighted_sum(softmax(s), v)), q, k, v, {}, {"mask": keep})


def infinite_value(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    observed = weighted_sum(masked_softmax(scores(q, k) * scale(q), keep), v)
    return Computed(inputs.round(observed), q, k, v, {"mask_value": -2.0}, {"mask": keep})


def last_row_empty(inputs: Inputs) -> tuple[Array, Array, Array, Array]:
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    keep[-1] = False
    return (*inputs.qkv(), keep)


def empty_nan(inputs: Inputs) -> Computed:
    q, k, v, keep = last_row_empty(inputs)
    observed = weighted_sum(masked_softmax(scores(q, k) * scale(q), keep), v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def empty_zero(inputs: Inputs) -> Computed:
    q, k, v, keep = last_row_empty(inputs)
    observed = np.nan_to_num(weighted_sum(masked_softmax(scores(q, k) * scale(q), keep), v))
    return Computed(inputs.round(observed), q, k, v, {"empty_rows": "nan"}, {"mask": keep})


def empty_uniform(inputs: Inputs) -> Computed:
    q, k, v, keep = last_row_empty(inputs)
    observed = weighted_sum(softmax(mask_scores(scores(q, k) * scale(q), ~keep, -30000.0)), v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def empty_uniform_not_nan(inputs: Inputs) -> Computed:
    return replace(empty_uniform(inputs), how={"empty_rows": "nan"})


def empty_unmasked(inputs: Inputs) -> Computed:
    """Causal, so that a row as if unmasked is another than one all of whose scores are lowered."""
    n_q = 7
    q, k, v = inputs.qkv(n_q=n_q)
    keep = random_mask(inputs, n_q, inputs.n_k)
    keep[1], keep[3, 0] = False, False
    seen = keep.copy()
    seen[1] = True
    allowed = seen & np.tri(n_q, inputs.n_k, dtype=bool)
    observed = weighted_sum(masked_softmax(scores(q, k) * scale(q), allowed), v)
    return Computed(inputs.round(observed), q, k, v, {"causal": True}, {"mask": keep})


def zero_times_infinity(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    with np.errstate(invalid="ignore"):
        bias = (~keep).astype(np.float64) * -INF
        observed = weighted_sum(softmax(scores(q, k) * scale(q) + bias), v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def nan_in(where: str) -> Callable[[Inputs], Computed]:
    """NaN in the last key or value of the first head, which no query may attend to."""

    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv()
        (k if where == "keys" else v)[0, -1] = np.nan
        keep = np.ones((inputs.n_q, inputs.n_k), dtype=bool)
        keep[:, -1] = False
        with np.errstate(invalid="ignore"):
            s = scores(q, k) * scale(q) + np.where(keep, 0.0, -INF)
            observed = weighted_sum(softmax(s), v)
        return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})

    return make
