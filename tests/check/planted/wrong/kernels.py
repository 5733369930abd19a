"""Tiled kernels: the tail block, the running softmax, splits of the keys and their merge."""

from __future__ import annotations

import numpy as np

from tests.check.planted import worlds as w
from tests.check.planted.parts import (
    Array,
    Inputs,
    attend,
    head_of,
    padded,
    scores,
)
from tests.check.planted.rows import Row
from tests.check.planted.worlds import World

TAIL = World("tail of 5", b=1, h=2, n_q=101, n_k=101, d_k=32, d_v=32)
SHORT_ROWS = World("fewer queries than keys", b=1, h=3, n_q=41, n_k=197, d_k=32, d_v=24)


def parts_of(x: Inputs) -> tuple[Array, Array]:
    """Masked scores and values, a row for each query head."""
    s = scores(x.q, head_of(x, x.k)) * x.wide(x.scale)
    return np.where(x.hidden, x.wide(-np.inf), s), head_of(x, x.v)


def zero_keys(x: Inputs, more: int) -> Array:
    """So many keys and values of zeros at the end, which nobody masks."""
    k, v = (np.pad(y, [(0, 0), (0, 0), (0, more), (0, 0)]) for y in (x.k, x.v))
    hide = np.pad(np.broadcast_to(x.hidden, x.full), [(0, 0), (0, 0), (0, 0), (0, more)])
    return attend(x, k=k, v=v, hide=hide)


def without(x: Inputs, first: int, last: int) -> Array:
    j = np.arange(x.n_k)
    return attend(x, hide=x.hidden | ((j >= first) & (j < last)))


def tail_of(n: int, block: int) -> int:
    """Where the last block begins."""
    return (n - 1) // block * block


def online(
    x: Inputs,
    block: int,
    *,
    sums: bool = True,
    values: bool = True,
    step: int = 1,
    half: bool = False,
) -> Array:
    """Running softmax; the sum or the values so far may miss the correction for a new maximum.

    step  -1 begins with the last block
    half  the weights are rounded to the number type
    """
    s, v = parts_of(x)
    top = np.full((*s.shape[:3], 1), -np.inf, x.wide)
    total, out = np.zeros_like(top), np.zeros((*s.shape[:3], v.shape[3]), x.wide)
    for j in [*range(0, x.n_k, block)][::step]:
        new = np.maximum(top, s[..., j : j + block].max(-1, keepdims=True))
        fix = np.where(np.isneginf(top), 1, np.exp(top - new))
        e = np.where(np.isneginf(new), 0, np.exp(s[..., j : j + block] - new))
        total = total * (fix if sums else 1) + e.sum(-1, keepdims=True)
        out = out * (fix if values else 1) + (x.rounded(e) if half else e) @ v[:, :, j : j + block]
        top = new
    return np.asarray(out / total)


def splits(x: Inputs, n: int, merge: str = "log-sum-exp") -> Array:
    """The keys in n parts, each with its own softmax, merged by their log-sum-exp."""
    s, v = parts_of(x)
    outs, sums, tops = [], [], []
    for at in np.array_split(np.arange(x.n_k), min(n, x.n_k)):
        top = s[..., at].max(-1, keepdims=True)
        tops.append(np.where(np.isneginf(top), 0, top))
        e = np.exp(s[..., at] - tops[-1])
        total = e.sum(-1, keepdims=True)
        outs.append(e / np.where(total > 0, total, 1) @ v[:, :, at])
        sums.append(np.log(total))
    lse = np.stack(sums) + np.stack(tops)
    weights = {
        "log-sum-exp": lambda: np.exp(lse - lse.max(0)),
        "even": lambda: np.ones_like(lse),
        "exp2 of natural": lambda: np.exp2(lse - lse.max(0)),
        "exp of base 2": lambda: np.exp((lse - lse.max(0)) / np.log(2)),
        "sums without maxima": lambda: np.exp(np.stack(sums)),
    }[merge]()
    return np.asarray((weights / weights.sum(0) * np.stack(outs)).sum(0))


def last_rows(x: Inputs, tile: int, value: float | str) -> Array:
    out, first = attend(x), tail_of(x.n_q, tile)
    shape = out[:, :, first:].shape
    if value == "before":
        out[:, :, first:] = out[:, :, first - tile : x.n_q - tile]
    else:
        garbage = np.random.default_rng(9).normal(size=shape) * 50
        out[:, :, first:] = garbage if value == "garbage" else value
    return out


def maximum_from_zero(x: Inputs) -> Array:
    """The running maximum begins at 0: rows far below it vanish."""
    s, v = parts_of(x)
    e = np.exp(s - np.maximum(s.max(-1, keepdims=True), 0))
    total = e.sum(-1, keepdims=True)
    return np.asarray(np.where(total > 1e-30, e / np.where(total > 0, total, 1), 0) @ v)


# m keys of zeros are a sink of ln m
COUNTED = ("zero keys of the last block counted", "sinks where none are wanted")
SKIPPED = ("last block of keys skipped", "one block of keys lost", "other key lengths")
LOST = ("one block of keys lost",)
RESCALED = ("sum not rescaled when the maximum grows",)
AVERAGED = ("blocks averaged without their log-sum-exp",)
BASE = ("blocks merged in the wrong base",)
UNWRITTEN = ("last rows not written",)
ROWS = (
    Row("zero keys to 16", COUNTED, lambda x: zero_keys(x, -x.n_k % 16), (TAIL, w.ODD), "jax#27224"),
    Row("zero keys to 64", COUNTED, lambda x: zero_keys(x, -x.n_k % 64), (w.ODD, SHORT_ROWS), "flashinfer PR 5090"),
    Row("last 16 skipped", SKIPPED, lambda x: without(x, tail_of(x.n_k, 16), x.n_k), (w.ODD, TAIL, w.LARGE)),
    Row("32 in the middle lost", LOST, lambda x: without(x, 64, 96), (w.KERNEL, SHORT_ROWS)),
    Row("values not rescaled, 16", RESCALED, lambda x: online(x, 16, values=False), (w.ODD, w.CAUSAL_KERNEL, w.LARGE)),
    Row("sum not rescaled, 32", RESCALED, lambda x: online(x, 32, sums=False), (w.KERNEL, w.LARGE_KERNEL)),
    Row("neither rescaled, 16", RESCALED, lambda x: online(x, 16, sums=False, values=False), (w.KERNEL, w.ODD, w.LARGE_KERNEL)),
    Row("two splits averaged", AVERAGED, lambda x: splits(x, 2, "even"), (w.ODD, w.KERNEL, w.LARGE)),
    Row("natural lse merged by 2^x", BASE, lambda x: splits(x, 2, "exp2 of natural"), (w.KERNEL, w.ODD, w.LARGE_KERNEL)),
    Row("lse of base 2 merged by e^x", BASE, lambda x: splits(x, 4, "exp of base 2"), (w.KERNEL, SHORT_ROWS, w.LARGE_KERNEL), "sglang#40903"),
    Row("last tile of 16 rows zero", UNWRITTEN, lambda x: last_rows(x, 16, 0), (w.ODD, w.CAUSAL, w.LARGE)),
    Row("last tile of 32 rows garbage", ("last rows hold garbage",), lambda x: last_rows(x, 32, "garbage"), (TAIL, w.KERNEL)),
    Row("last tile of 16 rows NaN", UNWRITTEN, lambda x: last_rows(x, 16, np.nan), (w.ODD,)),
    Row("a hole in the cache", ("softmax with 1 added to the sum", *COUNTED), lambda x: zero_keys(x, 1), (w.DECODE, w.PREFILL), "onnxruntime-genai PR 2354"),
    Row("last tile of 16 rows as the one before", (), lambda x: last_rows(x, 16, "before"), (w.ODD,), kind="control", gives="no match"),
    Row("splits merged by sums without maxima", (), lambda x: splits(x, 4, "sums without maxima"), (w.KERNEL,), kind="control", gives="no match"),
    Row("last, partial block of each item skipped", ("other key lengths", "last block of keys skipped"), lambda x: attend(x, hide=padded(x, np.array(x.lengths) // 16 * 16)), (w.PADDED,)),
)  # fmt: skip
