"""Buggy attentions: inputs exchanged, heads split or merged wrongly, the wrong stage observed."""

from __future__ import annotations

import numpy as np

from tests.check.buggy.parts import (
    Computed,
    Inputs,
    causal_cells,
    mask_scores,
    merge,
    scale,
    scores,
    softmax,
    split,
    weighted_sum,
    wide,
)


def k_v_swapped(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(d_v=inputs.d_k)
    return Computed(inputs.round(weighted_sum(softmax(scores(q, v) * scale(q)), k)), q, k, v)


def q_k_swapped(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_q=inputs.n_k)
    return Computed(inputs.round(weighted_sum(softmax(scores(k, q) * scale(q)), v)), q, k, v)


def k_not_transposed(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_k=inputs.d_k)
    s = np.einsum("hqd,hdk->hqk", wide(q), wide(k)) * scale(q)
    return Computed(inputs.round(weighted_sum(softmax(s), v)), q, k, v)


def split_by_reshape(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    wrong = [merge(x).reshape(x.shape) for x in (q, k, v)]
    observed = weighted_sum(softmax(scores(wrong[0], wrong[1]) * scale(q)), wrong[2])
    return Computed(inputs.round(observed), q, k, v)


def merged_by_reshape(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    output = weighted_sum(softmax(scores(q, k) * scale(q)), v)
    merged = np.ascontiguousarray(output).reshape(inputs.n_q, inputs.h * inputs.d_v)
    return Computed(inputs.round(split(merged, inputs.h)), q, k, v)


def split_and_merged_by_reshape(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    wrong = [merge(x).reshape(x.shape) for x in (q, k, v)]
    output = weighted_sum(softmax(scores(wrong[0], wrong[1]) * scale(q)), wrong[2])
    merged = np.ascontiguousarray(output).reshape(inputs.n_q, inputs.h * inputs.d_v)
    return Computed(inputs.round(split(merged, inputs.h)), q, k, v)


def output_cut_by_reshape(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    tokens_first = np.stack(list(weighted_sum(softmax(scores(q, k) * scale(q)), v)), axis=1)
    return Computed(inputs.round(tokens_first.reshape(inputs.h, inputs.n_q, inputs.d_v)), q, k, v)


def heads_tiled(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(h=4, h_kv=2)
    both = [np.concatenate([x, x]) for x in (k, v)]
    return Computed(
        inputs.round(weighted_sum(softmax(scores(q, both[0]) * scale(q)), both[1])), q, k, v
    )


def heads_in_blocks(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(h=6, h_kv=3)
    both = [np.repeat(x, 2, axis=0) for x in (k, v)]
    observed = weighted_sum(softmax(scores(q, both[0]) * scale(q)), both[1])
    return Computed(inputs.round(observed), q, k, v, {"head_order": "tiled"})


def weights_transposed(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_q=inputs.n_k)
    weights = softmax(scores(q, k) * scale(q))
    return Computed({"weights": inputs.round(np.swapaxes(weights, 1, 2))}, q, k, v)


def output_transposed(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(h=inputs.n_q)
    output = weighted_sum(softmax(scores(q, k) * scale(q)), v)
    return Computed(inputs.round(np.swapaxes(output, 0, 1)), q, k, v)


def scores_scaled(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    s = scores(q, k) * scale(q)
    stages = {"scores": inputs.round(s), "weights": inputs.round(softmax(s))}
    return Computed(stages, q, k, v)


def scores_masked(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    s = mask_scores(scores(q, k) * scale(q), causal_cells(inputs))
    return Computed({"scores": inputs.round(s)}, q, k, v, {"causal": True})


def dropout_on(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_q=13, n_k=17)
    kept = inputs.rng.random((inputs.h, 13, 17)) >= 0.2
    weights = np.where(kept, softmax(scores(q, k) * scale(q)) / 0.8, 0)
    return Computed({"weights": inputs.round(weights)}, q, k, v)


def dropout_in_the_output(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_q=13, n_k=17, d_v=29)
    kept = inputs.rng.random((inputs.h, 13, 17)) >= 0.2
    weights = np.where(kept, softmax(scores(q, k) * scale(q)) / 0.8, 0)
    return Computed(inputs.round(weighted_sum(weights, v)), q, k, v)
