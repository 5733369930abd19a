"""Buggy attentions: a bias, a norm, a residual or a projection where none is wanted."""

from __future__ import annotations

import numpy as np

from tests.check.buggy.layouts import attention
from tests.check.buggy.parts import Array, Computed, Inputs, merge, split, wide


def value_bias(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    bias = inputs.rng.normal(size=(inputs.h, 1, inputs.d_v))
    return Computed(inputs.round(attention(q, k, wide(v) + bias.astype(wide(v).dtype))), q, k, v)


def query_bias(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_q=23, n_k=31)
    bias = inputs.rng.normal(size=(inputs.h, 1, inputs.d_k))
    return Computed(inputs.round(attention(wide(q) + bias.astype(wide(q).dtype), k, v)), q, k, v)


def key_channels(inputs: Inputs) -> Computed:
    """Keys quantised by channel, of which the scales are forgotten."""
    q, k, v = inputs.qkv(n_q=23, n_k=31)
    times = inputs.rng.uniform(0.5, 2.0, size=(len(k), 1, inputs.d_k))
    return Computed(inputs.round(attention(q, wide(k) * times.astype(wide(k).dtype), v)), q, k, v)


def no_norm(inputs: Inputs) -> Computed:
    """The queries and keys of the file are normalised, those that were used are not."""
    q, k, v = inputs.qkv(n_q=37, n_k=13, d_v=23)
    normed_q, normed_k = (inputs.round(root_mean_square(x)) for x in (q, k))
    return Computed(inputs.round(attention(q, k, v)), normed_q, normed_k, v)


def key_tokens(inputs: Inputs) -> Computed:
    """Keys quantised by token, of which the scales are forgotten."""
    q, k, v = inputs.qkv(n_q=37, n_k=13, d_v=23)
    times = inputs.rng.uniform(0.5, 2.0, size=(*k.shape[:2], 1))
    return Computed(inputs.round(attention(q, wide(k) * times.astype(wide(k).dtype), v)), q, k, v)


def root_mean_square(x: Array) -> Array:
    return np.asarray(wide(x) / np.sqrt((wide(x) ** 2).mean(axis=-1, keepdims=True)))


def unit_length(x: Array) -> Array:
    return np.asarray(wide(x) / np.sqrt((wide(x) ** 2).sum(axis=-1, keepdims=True)))


def rms_norm(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    q = inputs.round(wide(q) * 3)
    return Computed(inputs.round(attention(root_mean_square(q), root_mean_square(k), v)), q, k, v)


def l2_norm(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv()
    return Computed(inputs.round(attention(unit_length(q), unit_length(k), v)), q, k, v)


def query_residual(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(d_v=inputs.d_k)
    return Computed(inputs.round(attention(q, k, v) + wide(q)), q, k, v)


def value_residual(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_q=inputs.n_k)
    return Computed(inputs.round(attention(q, k, v) + wide(v)), q, k, v)


def projected_heads(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_q=73, n_k=31)
    matrix = inputs.rng.normal(size=(inputs.h, inputs.d_v, inputs.d_v)).astype(wide(q).dtype)
    return Computed(inputs.round(np.matmul(attention(q, k, v), matrix)), q, k, v)


def projected_together(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_q=211, n_k=31)
    width = inputs.h * inputs.d_v
    matrix = inputs.rng.normal(size=(width, width)).astype(wide(q).dtype)
    return Computed(inputs.round(split(merge(attention(q, k, v)) @ matrix, inputs.h)), q, k, v)


def right_wide(inputs: Inputs) -> Computed:
    """As many rows as a projection needs, and no projection."""
    q, k, v = inputs.qkv(n_q=211)
    return Computed(inputs.round(attention(q, k, v)), q, k, v)
