"""Buggy attentions: arrays read with wrong strides, in place of each other, exchanged or shifted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.check.buggy.masking import batched
from tests.check.buggy.parts import (
    Array,
    Computed,
    Inputs,
    scale,
    scores,
    softmax,
    weighted_sum,
    wide,
)


def attention(q: Array, k: Array, v: Array) -> Array:
    """[h, n, d], or with batch items before: one at a time."""
    if q.ndim == 4:
        return np.stack([attention(*item) for item in zip(q, k, v, strict=True)])
    return weighted_sum(softmax(scores(q, k) * scale(q)), v)


def right(inputs: Inputs) -> Computed:
    q, k, v = batched(inputs, inputs.n_k, inputs.n_k)
    return Computed(inputs.round(attention(q, k, v)), q, k, v)


def heads_as_tokens(inputs: Inputs) -> Computed:
    """q, k and v as [tokens, heads, d], in a function that takes [heads, tokens, d]."""
    q, k, v = inputs.qkv(n_q=inputs.n_k)
    wrong = attention(*(np.stack(list(x), axis=1) for x in (q, k, v)))
    return Computed(inputs.round(np.stack(list(wrong), axis=1)), q, k, v)


def tokens_first(x: Array) -> Array:
    """The memory of [tokens, heads, d]."""
    return np.stack(list(x), axis=1).ravel()


def read_as_tokens_first(x: Array) -> Array:
    h, n, d = x.shape
    memory, y = x.ravel(), np.empty_like(x)
    for head in range(h):
        for token in range(n):
            start = (token * h + head) * d
            y[head, token] = memory[start : start + d]
    return y


def misread(name: str, read: Callable[[Array], Array]) -> Callable[[Inputs], Computed]:
    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv()
        wrong = {"q": q, "k": k, "v": v}
        wrong[name] = read(wrong[name])
        return Computed(inputs.round(attention(**wrong)), q, k, v)

    return make


def columns_first(x: Array) -> Array:
    """The memory of [heads, d, tokens], read as [heads, tokens, d]."""
    return np.stack([head.T.ravel().reshape(head.shape) for head in x])


def used_as(source: str, target: str) -> Callable[[Inputs], Computed]:
    def make(inputs: Inputs) -> Computed:
        sizes = {"n_q": inputs.n_k} if "q" in source + target else {"d_v": inputs.d_k}
        q, k, v = inputs.qkv(**sizes)
        wrong = {"q": q, "k": k, "v": v}
        wrong[target] = wrong[source]
        return Computed(inputs.round(attention(**wrong)), q, k, v)

    return make


def heads_exchanged(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(h=5)
    return Computed(inputs.round(attention(q, k, v)[[0, 1, 3, 2, 4]]), q, k, v)


def keys_of_heads_exchanged(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(h=4)
    other = [1, 0, 3, 2]
    return Computed(inputs.round(attention(q, k[other], v[other])), q, k, v)


def shared_keys_exchanged(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(h=6, h_kv=3)
    wrong = [0, 0, 2, 2, 1, 1]  # two heads share a key head: 0, 0, 1, 1, 2, 2 would be right
    return Computed(inputs.round(attention(q, k[wrong], v[wrong])), q, k, v)


def three_items(inputs: Inputs) -> tuple[Array, Array, Array]:
    q, k, v = (np.stack(x) for x in zip(*(inputs.qkv() for _ in range(3)), strict=True))
    return q, k, v


def items_exchanged(inputs: Inputs) -> Computed:
    q, k, v = three_items(inputs)
    return Computed(inputs.round(attention(q, k, v)[[2, 1, 0]]), q, k, v)


def keys_of_items_exchanged(inputs: Inputs) -> Computed:
    q, k, v = three_items(inputs)
    return Computed(inputs.round(attention(q, k[[1, 0, 2]], v[[1, 0, 2]])), q, k, v)


def one_head(inputs: Inputs) -> Computed:
    """The stride of the heads of K and V is 0."""
    q, k, v = inputs.qkv(h=3)
    return Computed(inputs.round(attention(q, k[[0, 0, 0]], v[[0, 0, 0]])), q, k, v)


def one_head_of_the_output(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(h=3)
    return Computed(inputs.round(attention(q, k, v)[[0, 0, 0]]), q, k, v)


def one_item(inputs: Inputs) -> Computed:
    q, k, v = three_items(inputs)
    return Computed(inputs.round(attention(q, k, v[[0, 0, 0]])), q, k, v)


def shifted(step: int, *, rolled: bool) -> Callable[[Inputs], Computed]:
    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv(n_q=inputs.n_q + 2)
        observed = np.roll(attention(q, k, v), step, axis=1)
        if not rolled:
            observed[:, 0 if step > 0 else -1] = 0
        return Computed(inputs.round(observed), q, k, v)

    return make


def weights_transposed(inputs: Inputs) -> Computed:
    q, k, v = inputs.qkv(n_q=inputs.n_k)
    weights = softmax(scores(q, k) * scale(q))
    return Computed(inputs.round(np.einsum("hkq,hkd->hqd", weights, wide(v))), q, k, v)
