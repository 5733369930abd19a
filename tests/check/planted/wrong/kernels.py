"""Tiled kernels: the tail block, the running softmax, splits of the keys and their merge."""

from __future__ import annotations

import numpy as np

from tests.check.planted.parts import (
    Array,
    Inputs,
    attend,
    head_of,
    hidden,
    padded,
    scores,
    softmax,
)
from tests.check.planted.rows import Row
from tests.check.planted.worlds import (
    CAUSAL,
    CAUSAL_KERNEL,
    DECODE,
    KERNEL,
    LARGE,
    LARGE_KERNEL,
    MASKED_LARGE,
    ODD,
    PADDED,
    PREFILL,
    World,
)

TAIL = World("tail of 5", b=1, h=2, n_q=101, n_k=101, d_k=32, d_v=32)
SHORT_ROWS = World("fewer queries than keys", b=1, h=3, n_q=41, n_k=197, d_k=32, d_v=24)


def parts_of(x: Inputs) -> tuple[Array, Array]:
    """Masked scores and values, a row for each query head."""
    s = scores(x.q, head_of(x, x.k)) * x.wide(x.scale)
    return np.where(hidden(x), x.wide(-np.inf), s), head_of(x, x.v)


def cells(x: Inputs) -> Array:
    return np.broadcast_to(hidden(x), (x.b, x.h, x.n_q, x.n_k)).copy()


def zero_keys(x: Inputs, block: int) -> Array:
    """Keys and values are padded with zeros to whole blocks, which nobody masks."""
    more = -x.n_k % block
    wide = [(0, 0), (0, 0), (0, more), (0, 0)]
    hide = np.pad(cells(x), [(0, 0), (0, 0), (0, 0), (0, more)])
    k, v = np.pad(x.k, wide), np.pad(x.v, wide)
    w = softmax(np.where(hide, -np.inf, scores(x.q, head_of(x, k)) * x.scale))
    return np.asarray(w @ head_of(x, v))


def without(x: Inputs, first: int, last: int) -> Array:
    hide = cells(x)
    hide[..., first:last] = True
    return attend(x, hide=hide)


def tail_of(n: int, block: int) -> int:
    """Where the last block begins."""
    return (n - 1) // block * block


def online(x: Inputs, block: int, *, sums: bool = True, values: bool = True) -> Array:
    """Running softmax; the sum or the values so far may miss the correction for a new maximum."""
    s, v = parts_of(x)
    top = np.full((*s.shape[:3], 1), -np.inf, x.wide)
    total, out = np.zeros_like(top), np.zeros((*s.shape[:3], v.shape[3]), x.wide)
    for j in range(0, x.n_k, block):
        new = np.maximum(top, s[..., j : j + block].max(-1, keepdims=True))
        fix = np.where(np.isneginf(top), 1, np.exp(top - new))
        e = np.where(np.isneginf(new), 0, np.exp(s[..., j : j + block] - new))
        total = total * (fix if sums else 1) + e.sum(-1, keepdims=True)
        out = out * (fix if values else 1) + e @ v[:, :, j : j + block]
        top = new
    return np.asarray(out / total)


def splits(x: Inputs, n: int, merge: str) -> Array:
    """The keys in n parts, each with its own softmax, merged by their log-sum-exp."""
    s, v = parts_of(x)
    outs, sums = [], []
    for at in np.array_split(np.arange(x.n_k), n):
        top = s[..., at].max(-1, keepdims=True)
        top = np.where(np.isneginf(top), 0, top)
        e = np.exp(s[..., at] - top)
        total = e.sum(-1, keepdims=True)
        outs.append(np.where(total > 0, e / np.where(total > 0, total, 1), 0) @ v[:, :, at])
        sums.append(np.log(total) + top)
    lse = np.stack(sums)
    if merge == "even":
        return np.asarray(np.mean(outs, axis=0))
    if merge == "exp2 of natural":
        w = np.exp2(lse - lse.max(0))
    elif merge == "exp of base 2":
        w = np.exp((lse - lse.max(0)) / np.log(2))
    else:  # the sums without their maximum
        w = np.stack([np.exp(one - part) for one, part in zip(sums, tops(s, n), strict=True)])
    return np.asarray((w / w.sum(0) * np.stack(outs)).sum(0))


def tops(s: Array, n: int) -> list[Array]:
    return [s[..., at].max(-1, keepdims=True) for at in np.array_split(np.arange(s.shape[-1]), n)]


def last_rows(x: Inputs, tile: int, what: str) -> Array:
    out, first = attend(x), tail_of(x.n_q, tile)
    if what == "zero":
        out[:, :, first:] = 0
    elif what == "garbage":
        out[:, :, first:] = np.random.default_rng(9).normal(size=out[:, :, first:].shape) * 50
    elif what == "NaN":
        out[:, :, first:] = np.nan
    else:  # those of the tile before
        out[:, :, first:] = out[:, :, first - tile : x.n_q - tile]
    return out


def maximum_from_zero(x: Inputs) -> Array:
    """The running maximum begins at 0: rows far below it vanish."""
    s, v = parts_of(x)
    e = np.exp(s - np.maximum(s.max(-1, keepdims=True), 0))
    total = e.sum(-1, keepdims=True)
    return np.asarray(np.where(total > 1e-30, e / np.where(total > 0, total, 1), 0) @ v)


def with_hole(x: Inputs) -> Array:
    """A place of the cache was left empty and counts: a key and a value of zeros."""
    k, v = (np.pad(y, [(0, 0), (0, 0), (0, 1), (0, 0)]) for y in (x.k, x.v))
    return attend(x, k=k, v=v, hide=np.zeros((1, 1), bool))


# m keys of zeros are a sink of ln m
COUNTED = ("zero keys of the last block counted", "sinks where none are wanted")
SKIPPED = ("last block of keys skipped", "one block of keys lost", "other key lengths")
LOST = ("one block of keys lost",)
RESCALED = ("sum not rescaled when the maximum grows",)
EVEN = ("blocks averaged without their log-sum-exp",)
BASE = ("blocks merged in the wrong base",)
UNWRITTEN = ("last rows not written",)
ROWS = (
    Row("zero keys to 16", COUNTED, lambda x: zero_keys(x, 16), (TAIL, ODD), "jax#27224"),
    Row("zero keys to 64", COUNTED, lambda x: zero_keys(x, 64), (ODD, SHORT_ROWS), "flashinfer PR 5090"),
    Row("zero keys to 128", COUNTED, lambda x: zero_keys(x, 128), (TAIL,)),
    Row("last 16 skipped", SKIPPED, lambda x: without(x, tail_of(x.n_k, 16), x.n_k), (ODD, TAIL, LARGE)),
    Row("last 32 skipped", SKIPPED, lambda x: without(x, tail_of(x.n_k, 32), x.n_k), (TAIL, KERNEL)),
    Row("first 16 lost", LOST, lambda x: without(x, 0, 16), (ODD, KERNEL, LARGE_KERNEL)),
    Row("32 in the middle lost", LOST, lambda x: without(x, 64, 96), (KERNEL, SHORT_ROWS)),
    Row("64 in the middle lost", LOST, lambda x: without(x, 64, 128), (SHORT_ROWS,)),
    Row("values not rescaled, 16", RESCALED, lambda x: online(x, 16, values=False), (ODD, CAUSAL_KERNEL, LARGE)),
    Row("sum not rescaled, 32", RESCALED, lambda x: online(x, 32, sums=False), (KERNEL, LARGE_KERNEL)),
    Row("neither rescaled, 16", RESCALED, lambda x: online(x, 16, sums=False, values=False), (KERNEL, ODD, LARGE_KERNEL)),
    Row("neither rescaled, 64", RESCALED, lambda x: online(x, 64, sums=False, values=False), (SHORT_ROWS,)),
    Row("two splits averaged", EVEN, lambda x: splits(x, 2, "even"), (ODD, KERNEL, LARGE)),
    Row("four splits averaged", EVEN, lambda x: splits(x, 4, "even"), (KERNEL, SHORT_ROWS)),
    Row("natural lse merged by 2^x", BASE, lambda x: splits(x, 2, "exp2 of natural"), (KERNEL, ODD, LARGE_KERNEL)),
    Row("lse of base 2 merged by e^x", BASE, lambda x: splits(x, 4, "exp of base 2"), (KERNEL, SHORT_ROWS, LARGE_KERNEL), "sglang#40903"),
    Row("last tile of 16 rows zero", UNWRITTEN, lambda x: last_rows(x, 16, "zero"), (ODD, CAUSAL, LARGE)),
    Row("last tile of 64 rows zero", UNWRITTEN, lambda x: last_rows(x, 64, "zero"), (KERNEL, TAIL)),
    Row("last tile of 32 rows garbage", ("last rows hold garbage",), lambda x: last_rows(x, 32, "garbage"), (TAIL, KERNEL)),
    Row("last tile of 16 rows NaN", UNWRITTEN, lambda x: last_rows(x, 16, "NaN"), (ODD,)),
    Row("a hole in the cache", ("softmax with 1 added to the sum", *COUNTED), with_hole, (DECODE, PREFILL), "onnxruntime-genai PR 2354"),
    Row("rows far below 0 vanish", ("sinks where none are wanted",), maximum_from_zero, (MASKED_LARGE,), "flash-attention#2082", kind="control"),
    Row("last tile of 16 rows as the one before", (), lambda x: last_rows(x, 16, "before"), (ODD,), kind="control"),
    Row("splits merged by sums without maxima", (), lambda x: splits(x, 4, "sums"), (KERNEL,), kind="control"),
    Row("last, partial block of each item skipped", ("last block of keys skipped", "other key lengths"), lambda x: attend(x, hide=padded(x, np.array(x.lengths) // 16 * 16)), (PADDED,)),
)  # fmt: skip
