"""Buggy attentions: kernels that compute block by block, each beside the right one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

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

N_K = 70  # no multiple of any block


def with_output(
    compute: Callable[[Array, Array, Array], Array], **sizes: int
) -> Callable[[Inputs], Computed]:
    def make(inputs: Inputs) -> Computed:
        q, k, v = inputs.qkv(**{"n_k": N_K, **sizes})
        return Computed(inputs.round(compute(q, k, v)), q, k, v)

    return make


def filled_up(block: int, *, masked: bool) -> Callable[[Array, Array, Array], Array]:
    """Keys and values filled up with zeros to whole blocks."""

    def compute(q: Array, k: Array, v: Array) -> Array:
        more = [(0, 0), (0, -k.shape[1] % block), (0, 0)]
        s = scores(q, np.pad(wide(k), more)) * scale(q)
        if masked:
            s[..., k.shape[1] :] = -np.inf
        return weighted_sum(softmax(s), np.pad(wide(v), more))

    return compute


def some_blocks(block: int, keep: Callable[[int, int], bool]) -> Callable[..., Array]:
    """Only the blocks of keys for which keep(start, n_k) is true."""

    def compute(q: Array, k: Array, v: Array) -> Array:
        n = k.shape[1]
        starts = [start for start in range(0, n, block) if keep(start, n)]
        kept = np.concatenate([np.arange(n)[start : start + block] for start in starts])
        return weighted_sum(softmax(scores(q, k[:, kept]) * scale(q)), v[:, kept])

    return compute


def one_lost(block: int, lost: int) -> Callable[..., Array]:
    return some_blocks(block, lambda start, n: start != lost)


def whole_blocks_of_rows(q: Array, k: Array, v: Array) -> Array:
    output = np.zeros((*q.shape[:2], v.shape[-1]), dtype=wide(q).dtype)
    n = q.shape[1] // 16 * 16
    output[:, :n] = weighted_sum(softmax(scores(q[:, :n], k) * scale(q)), v)
    return output


def online(
    block: int, *, rescale_sum: bool = True, rescale_output: bool = True
) -> Callable[[Array, Array, Array], Array]:
    """A running maximum, sum and output, which are rescaled where the maximum grows."""

    def compute(q: Array, k: Array, v: Array) -> Array:
        top = np.full((*q.shape[:2], 1), -np.inf, dtype=wide(q).dtype)
        total, output = np.zeros_like(top), np.zeros((*q.shape[:2], v.shape[-1]), dtype=top.dtype)
        for start in range(0, k.shape[1], block):
            s = scores(q, k[:, start : start + block]) * scale(q)
            new = np.maximum(top, s.max(axis=-1, keepdims=True))
            powers, old = np.exp(s - new), np.exp(top - new)
            total = total * (old if rescale_sum else 1) + powers.sum(axis=-1, keepdims=True)
            output = output * (old if rescale_output else 1)
            output = output + weighted_sum(powers, v[:, start : start + block])
            top = new
        return np.asarray(output / total)

    return compute


def split_keys(
    n: int, power: Callable[[Array], Array], log: Callable[[Array], Array]
) -> Callable[[Array, Array, Array], Array]:
    """Parts of the keys, merged by power(log-sum-exp)."""

    def compute(q: Array, k: Array, v: Array) -> Array:
        size = -(-k.shape[1] // n)
        outputs, sums = [], []
        for start in range(0, k.shape[1], size):
            s = scores(q, k[:, start : start + size]) * scale(q)
            outputs.append(weighted_sum(softmax(s), v[:, start : start + size]))
            sums.append(log(np.exp(s).sum(axis=-1, keepdims=True)))
        parts = [power(x - np.maximum.reduce(sums)) for x in sums]
        shares = [part / sum(parts) for part in parts]
        return np.asarray(sum(x * y for x, y in zip(shares, outputs, strict=True)))

    return compute


RIGHT = (
    with_output(filled_up(16, masked=True)),
    with_output(some_blocks(16, lambda start, n: True)),
    with_output(online(16)),
    with_output(online(1)),
    with_output(split_keys(4, np.exp, np.log)),
    with_output(split_keys(2, np.exp2, np.log2)),
)
