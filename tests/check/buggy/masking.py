"""Buggy attentions: who may attend to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.check.buggy.parts import (
    Array,
    Computed,
    Inputs,
    mask_scores,
    masked_softmax,
    positions,
    random_mask,
    scale,
    scores,
    softmax,
    weighted_sum,
)


def mask_inverted(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    observed = weighted_sum(softmax(mask_scores(scores(q, k) * scale(q), keep)), v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def mask_as_numbers(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    s = scores(q, k) * scale(q)
    observed = weighted_sum(softmax(s + keep.astype(s.dtype)), v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def mask_not_as_numbers(inputs: Inputs) -> Computed:
    """True and false are to be added as 1 and 0, as transformers' eager attention does."""
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    observed = weighted_sum(masked_softmax(scores(q, k) * scale(q), keep), v)
    return Computed(inputs.round(observed), q, k, v, {"mask_means": "add"}, {"mask": keep})


def numbers_as_truth(inputs: Inputs) -> Computed:
    """0 and −10⁹ are to be added; read as truth they mean the opposite."""
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    mask = np.where(keep, 0.0, -1e9)
    observed = weighted_sum(masked_softmax(scores(q, k) * scale(q), mask != 0), v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": mask})


def truth_as_numbers(inputs: Inputs) -> Computed:
    """0 and 1 are to be false and true, and are added."""
    q, k, v = inputs.qkv()
    mask = random_mask(inputs, inputs.n_q, inputs.n_k).astype(np.float32)
    s = scores(q, k) * scale(q)
    observed = weighted_sum(softmax(s + mask.astype(s.dtype)), v)
    return Computed(inputs.round(observed), q, k, v, {"mask_numbers": "truth"}, {"mask": mask})


def truth_inverted(inputs: Inputs) -> Computed:
    """Numbers that are to be true and false, and are the other way round."""
    q, k, v = inputs.qkv()
    keep = random_mask(inputs, inputs.n_q, inputs.n_k)
    observed = weighted_sum(masked_softmax(scores(q, k) * scale(q), ~keep), v)
    how, mask = {"mask_numbers": "truth"}, keep.astype(np.float32)
    return Computed(inputs.round(observed), q, k, v, how, {"mask": mask})


def mask_left_out(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    observed = weighted_sum(softmax(scores(q, k) * scale(q)), v)
    return Computed(
        inputs.round(observed), q, k, v, {}, {"mask": random_mask(inputs, inputs.n_q, inputs.n_k)}
    )


def both_restrict(alone: str) -> Callable[[Inputs], Computed]:
    """A mask and causal, of which one alone ought to count."""

    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv(n_q=7)
        keep = random_mask(inputs, 7, inputs.n_k)
        keep[3, 0], keep[3, 4] = False, True
        both = keep & np.tri(7, inputs.n_k, dtype=bool)
        observed = weighted_sum(masked_softmax(scores(q, k) * scale(q), both), v)
        how = {"causal": True, "mask_and_causal": alone}
        return Computed(inputs.round(observed), q, k, v, how, {"mask": keep})

    return make


def batched(inputs: Inputs, n_q: int, n_k: int) -> tuple[Array, Array, Array]:
    pairs = [inputs.qkv(n_q=n_q, n_k=n_k) for _ in range(2)]
    q, k, v = (np.stack(parts) for parts in zip(*pairs, strict=True))
    return q, k, v


def per_item(q: Array, k: Array, v: Array, masked: Callable[[int, Array, Array], Array]) -> Array:
    """Each batch item by itself, without the cells (i, j) for which the rule is true."""
    outputs = []
    for b in range(q.shape[0]):
        i, j = positions(q.shape[-2], k.shape[-2])
        s = mask_scores(scores(q[b], k[b]) * scale(q), masked(b, i, j))
        outputs.append(weighted_sum(softmax(s), v[b]))
    return np.stack(outputs)


def padding_left_out(inputs: Inputs) -> Computed:
    q, k, v = batched(inputs, inputs.n_q, inputs.n_k)
    lengths = [inputs.n_k - 1, inputs.n_k - 2]
    observed = per_item(q, k, v, lambda b, i, j: j < 0)
    return Computed(inputs.round(observed), q, k, v, {}, {"kv_len": lengths})


def padding_on_queries(inputs: Inputs) -> Computed:
    n = inputs.n_k
    q, k, v = batched(inputs, n, n)
    lengths = [n - 1, n - 2]
    observed = per_item(q, k, v, lambda b, i, j: i >= lengths[b])
    return Computed(inputs.round(observed), q, k, v, {}, {"kv_len": lengths})


def mask_transposed(inputs: Inputs) -> Computed:
    n = inputs.n_k
    q, k, v = inputs.qkv(n_q=n)
    keep = random_mask(inputs, n, n)
    keep[:, 0] = keep[0] = True
    keep[1, 2], keep[2, 1] = True, False
    observed = weighted_sum(masked_softmax(scores(q, k) * scale(q), keep.T), v)
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def with_masked(
    rule: Callable[[Array, Array, Inputs], Array], how: dict[str, Any], **sizes: int
) -> Callable[[Inputs], Computed]:
    """An attention that masks the cells rule(i, j); it should have followed `how`."""

    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv(**sizes)
        i, j = positions(q.shape[-2], k.shape[-2])
        observed = weighted_sum(
            softmax(mask_scores(scores(q, k) * scale(q), rule(i, j, inputs))), v
        )
        return Computed(inputs.round(observed), q, k, v, how)

    return make


def past_masked(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    n_past = inputs.n_k - inputs.n_q
    past_k, past_v = k[:, :n_past], v[:, :n_past]
    i, j = positions(inputs.n_q, inputs.n_k)
    observed = weighted_sum(softmax(mask_scores(scores(q, k) * scale(q), j > i)), v)
    given = {"past_k": past_k, "past_v": past_v}
    return Computed(
        inputs.round(observed), q, k[:, n_past:], v[:, n_past:], {"causal": True}, given
    )


def padding_mask_on_queries(inputs: Inputs) -> Computed:
    """A mask of the keys, one row, laid on the queries: those that are padding attend to nothing."""
    n = inputs.n_k
    q, k, v = inputs.qkv(n_q=n)
    keep = np.arange(n) != n - 2
    s = mask_scores(scores(q, k) * scale(q), ~keep[:, None] & np.ones((1, n), dtype=bool))
    observed = np.nan_to_num(weighted_sum(softmax(s), v))
    return Computed(inputs.round(observed), q, k, v, {}, {"mask": keep})


def in_chunks(chunk: int, counts: str = "others") -> Callable[[Inputs], Computed]:
    """Causal, within chunks, where a window of two keys before each query is wanted."""

    def masked(i: Array, j: Array, _: Inputs) -> Array:
        return np.asarray((j > i) | (j // chunk != i // chunk))

    window = (2 + (counts == "own"), 0)
    how = {"causal": True, "window": window, "window_counts": counts}
    return with_masked(masked, how, n_q=7)
