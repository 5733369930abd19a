"""Buggy attentions: scale, softmax, softcap, overflow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.check.buggy.parts import (
    Array,
    Computed,
    Inputs,
    causal_cells,
    mask_scores,
    scale,
    scores,
    softmax,
    weighted_sum,
    wide,
)


def scaled_by(factor: Callable[[Inputs], float]) -> Callable[[Inputs], Computed]:
    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv()
        return Computed(
            inputs.round(weighted_sum(softmax(scores(q, k) * factor(inputs)), v)), q, k, v
        )

    return make


def scaled_twice(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    s = scores(q, k) * 0.7 * 0.7
    return Computed(inputs.round(weighted_sum(softmax(s), v)), q, k, v, {"scale": 0.7})


def default_scale(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    return Computed(
        inputs.round(weighted_sum(softmax(scores(q, k) * scale(q)), v)), q, k, v, {"scale": 0.9}
    )


def over_queries(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    return Computed(
        inputs.round(weighted_sum(softmax(scores(q, k) * scale(q), axis=-2), v)), q, k, v
    )


def over_keys(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    observed = inputs.round(weighted_sum(softmax(scores(q, k) * scale(q)), v))
    return Computed(observed, q, k, v, {"softmax_over": "queries"})


def over_heads(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(h=inputs.h + 1)
    return Computed(
        inputs.round(weighted_sum(softmax(scores(q, k) * scale(q), axis=0), v)), q, k, v
    )


def over_batch(inputs: Inputs) -> Computed:
    pairs = [inputs.qkv() for _ in range(3)]
    q, k, v = (np.stack(parts) for parts in zip(*pairs, strict=True))
    s = np.einsum("bhqd,bhkd->bhqk", wide(q), wide(k)) * scale(q)
    observed = np.einsum("bhqk,bhkd->bhqd", softmax(s, axis=0), wide(v))
    return Computed(inputs.round(observed), q, k, v)


def cap(s: Array, c: float) -> Array:
    return np.asarray(c * np.tanh(s / c))


def softcap_after_mask(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    s = cap(mask_scores(scores(q, k) * scale(q), causal_cells(inputs)), 2.0)
    observed = inputs.round(weighted_sum(softmax(s), v))
    return Computed(observed, q, k, v, {"softcap": 2.0, "causal": True})


def bias_by_softcap(*, inside: bool) -> Callable[[Inputs], Computed]:
    """A bias added before or after the scores are capped; where it ought to be the other."""

    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv()
        bias, hidden = inputs.normal(inputs.n_q, inputs.n_k), causal_cells(inputs)
        s, added = scores(q, k) * scale(q), wide(bias)
        capped = cap(s + added, 2.0) if inside else cap(s, 2.0) + added
        observed = inputs.round(weighted_sum(softmax(mask_scores(capped, hidden)), v))
        place = "before-mask" if inside else "after-bias"
        how = {"softcap": 2.0, "causal": True, "softcap_place": place}
        return Computed(observed, q, k, v, how, {"mask": wide(bias)})

    return make


def no_sinks(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    observed = weighted_sum(softmax(scores(q, k) * scale(q)), v)
    sinks = np.linspace(0.5, 1.5, inputs.h)
    return Computed(inputs.round(observed), q, k, v, {}, {"sinks": sinks})


def no_softcap(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    observed = inputs.round(weighted_sum(softmax(scores(q, k) * scale(q)), v))
    return Computed(observed, q, k, v, {"softcap": 1.5})


def float16_overflow(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    q = inputs.round(wide(q) * 200)
    k = inputs.round(wide(k) * 300)
    with np.errstate(over="ignore"):
        s = scores(q, k).astype(np.float16).astype(np.float32) * scale(q)
    return Computed(inputs.round(weighted_sum(softmax(s), v)), q, k, v)


def by_weights(
    weights_of: Callable[[Array, Inputs], Array], *, scaled: bool = True, **sizes: int
) -> Callable[[Inputs], Computed]:
    """Other weights than softmax, made of the scores."""

    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv(**sizes)
        s = scores(q, k) * (scale(q) if scaled else 1)
        return Computed(inputs.round(weighted_sum(weights_of(s, inputs), v)), q, k, v)

    return make


def exp_alone(s: Array, _: Inputs) -> Array:
    return np.asarray(np.exp(s))


def exp_less_the_largest(s: Array, _: Inputs) -> Array:
    return np.asarray(np.exp(s - s.max(axis=-1, keepdims=True)))


def sum_over_queries(s: Array, _: Inputs) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-2, keepdims=True))


def sum_over_heads(s: Array, _: Inputs) -> Array:
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=0, keepdims=True))


def sigmoid(s: Array, _: Inputs) -> Array:
    return np.asarray(1 / (1 + np.exp(-s)))


def biased_sigmoid(s: Array, inputs: Inputs) -> Array:
    return np.asarray(1 / (1 + inputs.n_k * np.exp(-s)))


def one_more_in_the_sum(s: Array, _: Inputs) -> Array:
    e = np.exp(s)
    return np.asarray(e / (1 + e.sum(axis=-1, keepdims=True)))


def scaled_afterwards(s: Array, inputs: Inputs) -> Array:
    return np.asarray(softmax(s) * s.dtype.type(inputs.d_k**-0.5))
