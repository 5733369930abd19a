"""Arrays read in another order or in another's place, and computed in tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.check.planted import worlds as w
from tests.check.planted.parts import (
    Array,
    Inputs,
    attend,
    head_of,
    padded,
    placed,
    scores,
    softmax,
    weights_of,
)
from tests.check.planted.rows import Row
from tests.check.planted.worlds import World

# ---- arrays read in another order, one in the place of another

SAME = World("one width, n_k larger", h=4, n_q=23, n_k=29, d_k=8, d_v=8)
TALL = World("square, four heads", h=4, n_q=19, n_k=19, d_k=8, d_v=6)


def cut(x: Array) -> Array:
    """[b, n, h·d] cut into heads by a reshape, without the transpose after it."""
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(x.shape)


def joined(x: Array) -> Array:
    """[b, h, n, d] joined by a reshape, without the transpose before it; then cut rightly."""
    b, h, n, d = x.shape
    return np.ascontiguousarray(x).reshape(b, n, h, d).swapaxes(1, 2)


def exchanged(x: Array, axis: int) -> Array:
    """The first two are exchanged."""
    return x.take([1, 0, *range(2, x.shape[axis])], axis=axis)


def first_for_all(x: Array, axis: int = 1) -> Array:
    return np.repeat(x.take([0], axis=axis), x.shape[axis], axis=axis)


def tokens_for_heads(x: Inputs) -> Array:
    """A kernel that expects [b, n, h, d] is given [b, h, n, d]: heads attend to heads."""
    q, k, v = (y.swapaxes(1, 2) for y in (x.q, x.k, x.v))
    return np.asarray((softmax(scores(q, k) * x.wide(x.scale)) @ v).swapaxes(1, 2))


def with_all(change: Callable[[Array], Array], names: str) -> Callable[[Inputs], Array]:
    """An attention some of whose inputs are changed."""

    def make(x: Inputs) -> Array:
        changed: dict[str, Any] = {name: change(placed(x, name)) for name in names}
        return attend(x, **changed)

    return make


def instead(**names: str) -> Callable[[Inputs], Array]:
    """An attention one of whose inputs stands in for another."""
    return lambda x: attend(x, **{name: getattr(x, other) for name, other in names.items()})


def rolled(x: Array, by: int) -> Array:
    """Rows moved by one, with zeros where none came."""
    out = np.roll(x, by, axis=2)
    out[:, :, 0 if by > 0 else -1] = 0
    return out


def tiled(x: Inputs, **more: Any) -> Array:
    return attend(x, k=np.tile(x.k, (1, 2, 1, 1)), v=np.tile(x.v, (1, 2, 1, 1)), **more)


STRIDES = {name: (f"{name.upper()} read with wrong strides",) for name in "qkv"}
LAYOUTS = (
    Row("heads for tokens", ("heads and tokens exchanged in the inputs",), tokens_for_heads, (TALL, w.KERNEL), "flash-attention#1391"),
    Row("all cut by reshape", ("heads split by reshape without transpose",), with_all(cut, "qkv"), (w.PRIMES, w.KERNEL), "jsbaan/transformer-from-scratch PR 6"),
    Row("joined by reshape", ("heads merged by reshape without transpose",), lambda x: joined(attend(x)), (w.PRIMES, w.ODD, w.LARGE), "FuxiCTR#30"),
    Row("q cut by reshape", STRIDES["q"], with_all(cut, "q"), (w.ODD, w.LARGE), "pytorch#163597"),
    Row("k cut by reshape", STRIDES["k"], with_all(cut, "k"), (w.ODD, w.PRIMES, w.LARGE_KERNEL), "pytorch#112577"),
    Row("v cut by reshape", STRIDES["v"], with_all(cut, "v"), (w.ODD, w.KERNEL, w.LARGE), "pytorch#112577"),
    Row("outputs of two heads exchanged", ("two heads exchanged",), lambda x: exchanged(attend(x), 1), (w.ODD, w.PRIMES, w.LARGE_KERNEL)),
    Row("K and V of two heads exchanged", ("two heads exchanged",), with_all(lambda y: exchanged(y, 1), "kv"), (w.PRIMES, w.GROUPED)),
    Row("outputs of two items exchanged", ("two batch items exchanged",), lambda x: exchanged(attend(x), 0), (w.PRIMES,)),
    Row("K and V of the first head", ("one head for all",), with_all(first_for_all, "kv"), (w.ODD, w.LARGE)),
    Row("output of the first head", ("one head for all",), lambda x: first_for_all(attend(x)), (w.PRIMES,)),
    Row("K and V of the first item", ("one batch item for all",), with_all(lambda y: first_for_all(y, 0), "kv"), (w.ODD,)),
    Row("output of the first item", ("one batch item for all",), lambda x: first_for_all(attend(x), 0), (w.PRIMES,)),
    Row("K and V exchanged", ("K and V swapped",), instead(k="v", v="k"), (w.EVEN, SAME)),
    Row("Q and K exchanged", ("Q and K swapped",), instead(q="k", k="q"), (w.SQUARE, w.KERNEL)),
    Row("K not turned", ("K not transposed",), lambda x: softmax(x.q @ x.k * x.wide(x.scale)) @ x.v, (w.NOT_TRANSPOSED,)),
    Row("K for V", ("K used as V",), instead(v="k"), (SAME, w.KERNEL, w.LARGE_KERNEL)),
    Row("V for K", ("V used as K",), instead(k="v"), (SAME,)),
    Row("Q for K", ("Q used as K",), instead(k="q"), (w.EVEN, w.KERNEL)),
    Row("K for Q", ("K used as Q",), instead(q="k"), (w.EVEN,)),
    Row("rows one later", ("rows shifted by one",), lambda x: np.roll(attend(x), 1, axis=2), (w.PRIMES, w.ODD, w.LARGE)),
    Row("rows one later, first zero", ("rows shifted by one",), lambda x: rolled(attend(x), 1), (w.ODD, w.GROUPED_CAUSAL), always=True),
    Row("weights turned before the sum", ("weights transposed before the sum",), lambda x: weights_of(x).swapaxes(-1, -2) @ x.v, (w.SQUARE, w.KERNEL)),
    Row("key heads tiled", ("key heads tiled, not in blocks",), tiled, (w.GROUPED, w.GROUPED_KERNEL), "onnx PR 7274"),
    Row("key heads in blocks", ("key heads in blocks, not tiled",), lambda x: attend(x, k=x.k.repeat(2, 1), v=x.v.repeat(2, 1)), (w.TILED,), "axlearn PR 842"),
    Row("rows one earlier, last zero", ("rows shifted by one",), lambda x: rolled(attend(x), -1), (w.ODD,)),
    *(Row(f"{name} joined by reshape", STRIDES[name], with_all(joined, name), (w.ODD,)) for name in "qkv"),
    *(Row(f"{name} columns first", STRIDES[name], with_all(lambda y: np.ascontiguousarray(y.swapaxes(2, 3)).reshape(y.shape), name), (w.ODD,)) for name in "qkv"),
)  # fmt: skip


# ---- tiles: the tail block, the running softmax, splits of the keys and their merge

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
    }[merge]()
    return np.asarray((weights / weights.sum(0) * np.stack(outs)).sum(0))


def last_rows(x: Inputs, tile: int, value: Any) -> Array:
    return np.where(np.arange(x.n_q)[:, None] < tail_of(x.n_q, tile), attend(x), value)


# m keys of zeros are a sink of ln m
COUNTED = ("zero keys of the last block counted", "sinks where none are wanted")
KERNELS = (
    Row("zero keys to 16", COUNTED, lambda x: zero_keys(x, -x.n_k % 16), (TAIL, w.ODD), "jax#27224"),
    Row("last 16 skipped", ("last block of keys skipped", "one block of keys lost", "other key lengths"), lambda x: without(x, tail_of(x.n_k, 16), x.n_k), (w.ODD, TAIL, w.LARGE)),
    Row("32 in the middle lost", ("one block of keys lost",), lambda x: without(x, 64, 96), (w.KERNEL, SHORT_ROWS)),
    Row("values not rescaled, 16", ("sum not rescaled when the maximum grows",), lambda x: online(x, 16, values=False), (w.ODD, w.CAUSAL_KERNEL, w.LARGE)),
    Row("sum not rescaled, 32", ("sum not rescaled when the maximum grows",), lambda x: online(x, 32, sums=False), (w.KERNEL, w.LARGE_KERNEL)),
    Row("neither rescaled, 16", ("sum not rescaled when the maximum grows",), lambda x: online(x, 16, sums=False, values=False), (w.KERNEL, w.ODD, w.LARGE_KERNEL)),
    Row("two splits averaged", ("blocks averaged without their log-sum-exp",), lambda x: splits(x, 2, "even"), (w.ODD, w.KERNEL, w.LARGE)),
    Row("natural lse merged by 2^x", ("blocks merged in the wrong base",), lambda x: splits(x, 2, "exp2 of natural"), (w.KERNEL, w.ODD, w.LARGE_KERNEL)),
    Row("lse of base 2 merged by e^x", ("blocks merged in the wrong base",), lambda x: splits(x, 4, "exp of base 2"), (w.KERNEL, SHORT_ROWS, w.LARGE_KERNEL), "sglang#40903"),
    Row("last tile of 16 rows zero", ("last rows not written",), lambda x: last_rows(x, 16, 0), (w.ODD, w.CAUSAL, w.LARGE)),
    Row("last tile of 32 rows garbage", ("last rows hold garbage",), lambda x: last_rows(x, 32, np.random.default_rng(9).normal(size=(x.n_q, x.d_v)) * 50), (TAIL, w.KERNEL)),
    Row("last tile of 16 rows NaN", ("last rows not written",), lambda x: last_rows(x, 16, np.nan), (w.ODD,)),
    Row("a hole in the cache", ("softmax with 1 added to the sum", *COUNTED), lambda x: zero_keys(x, 1), (w.DECODE, w.PREFILL), "onnxruntime-genai PR 2354"),
    Row("last, partial block of each item skipped", ("other key lengths", "last block of keys skipped"), lambda x: attend(x, hide=padded(x, np.array(x.lengths) // 16 * 16)), (w.PADDED,)),
)  # fmt: skip
