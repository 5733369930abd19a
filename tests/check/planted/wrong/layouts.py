"""Arrays read in another order, one in the place of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.check.planted import worlds as w
from tests.check.planted.parts import (
    OPEN,
    Array,
    Inputs,
    attend,
    placed,
    scores,
    softmax,
    weights_of,
)
from tests.check.planted.rows import Row
from tests.check.planted.worlds import World

SAME = World("one width, n_k larger", h=4, n_q=23, n_k=29, d_k=8, d_v=8)
TALL = World("square, four heads", h=4, n_q=19, n_k=19, d_k=8, d_v=6)


def cut(x: Array) -> Array:
    """[b, n, h·d] cut into heads by a reshape, without the transpose after it."""
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(x.shape)


def joined(x: Array) -> Array:
    """[b, h, n, d] joined by a reshape, without the transpose before it; then cut rightly."""
    b, h, n, d = x.shape
    return np.ascontiguousarray(x).reshape(b, n, h, d).swapaxes(1, 2)


def columns_first(x: Array) -> Array:
    """The memory of [b, h, d, n], read as [b, h, n, d]."""
    return np.ascontiguousarray(x.swapaxes(2, 3)).reshape(x.shape)


def exchanged(x: Array, axis: int, one: int = 0, two: int = 1) -> Array:
    order = np.arange(x.shape[axis])
    order[[one, two]] = two, one
    return x.take(order, axis=axis)


def first_for_all(x: Array, axis: int = 1) -> Array:
    return np.repeat(x.take([0], axis=axis), x.shape[axis], axis=axis)


def tokens_for_heads(x: Inputs) -> Array:
    """A kernel that expects [b, n, h, d] is given [b, h, n, d]: heads attend to heads."""
    q, k, v = (y.swapaxes(1, 2) for y in (x.q, x.k, x.v))
    return (softmax(scores(q, k) * x.wide(x.scale)) @ v).swapaxes(1, 2)


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


SPLIT = ("heads split by reshape without transpose",)
MERGED = ("heads merged by reshape without transpose",)
TWO_HEADS = ("two heads exchanged",)
TWO_ITEMS = ("two batch items exchanged",)
ONE_HEAD = ("one head for all",)
ONE_ITEM = ("one batch item for all",)
SHIFTED = ("rows shifted by one",)
STRIDES = {name: (f"{name.upper()} read with wrong strides",) for name in "qkv"}
ROWS = (
    Row("heads for tokens", ("heads and tokens exchanged in the inputs",), tokens_for_heads, (TALL, w.KERNEL), "flash-attention#1391"),
    Row("all cut by reshape", SPLIT, with_all(cut, "qkv"), (w.PRIMES, w.KERNEL), "jsbaan/transformer-from-scratch PR 6"),
    Row("joined by reshape", MERGED, lambda x: joined(attend(x)), (w.PRIMES, w.ODD, w.LARGE), "FuxiCTR#30"),
    Row("q cut by reshape", STRIDES["q"], with_all(cut, "q"), (w.ODD, w.LARGE), "pytorch#163597"),
    Row("k cut by reshape", STRIDES["k"], with_all(cut, "k"), (w.ODD, w.PRIMES, w.LARGE_KERNEL), "pytorch#112577"),
    Row("v cut by reshape", STRIDES["v"], with_all(cut, "v"), (w.ODD, w.KERNEL, w.LARGE), "pytorch#112577"),
    Row("outputs of two heads exchanged", TWO_HEADS, lambda x: exchanged(attend(x), 1), (w.ODD, w.PRIMES, w.LARGE_KERNEL)),
    Row("K and V of two heads exchanged", TWO_HEADS, with_all(lambda y: exchanged(y, 1), "kv"), (w.PRIMES, w.GROUPED)),
    Row("K of two heads exchanged", TWO_HEADS, with_all(lambda y: exchanged(y, 1), "k"), (w.GROUPED_KERNEL,)),
    Row("outputs of two items exchanged", TWO_ITEMS, lambda x: exchanged(attend(x), 0), (w.PRIMES,)),
    Row("K and V of two items exchanged", TWO_ITEMS, with_all(lambda y: exchanged(y, 0), "kv"), (w.ODD,)),
    Row("K and V of the first head", ONE_HEAD, with_all(first_for_all, "kv"), (w.ODD, w.LARGE)),
    Row("K and V of the first head, grouped", ONE_HEAD, with_all(first_for_all, "kv"), (w.GROUPED,)),
    Row("output of the first head", ONE_HEAD, lambda x: first_for_all(attend(x)), (w.PRIMES,)),
    Row("K and V of the first item", ONE_ITEM, with_all(lambda y: first_for_all(y, 0), "kv"), (w.ODD,)),
    Row("output of the first item", ONE_ITEM, lambda x: first_for_all(attend(x), 0), (w.PRIMES,)),
    Row("K and V exchanged", ("K and V swapped",), instead(k="v", v="k"), (w.EVEN, SAME)),
    Row("Q and K exchanged", ("Q and K swapped",), instead(q="k", k="q"), (w.SQUARE, w.KERNEL)),
    Row("K not turned", ("K not transposed",), lambda x: softmax(x.q @ x.k * x.wide(x.scale)) @ x.v, (w.NOT_TRANSPOSED,)),
    Row("K for V", ("K used as V",), instead(v="k"), (SAME, w.KERNEL, w.LARGE_KERNEL)),
    Row("V for K", ("V used as K",), instead(k="v"), (SAME,)),
    Row("Q for K", ("Q used as K",), instead(k="q"), (w.EVEN, w.KERNEL)),
    Row("K for Q", ("K used as Q",), instead(q="k"), (w.EVEN,)),
    Row("rows one later", SHIFTED, lambda x: np.roll(attend(x), 1, axis=2), (w.PRIMES, w.ODD, w.LARGE)),
    Row("rows one later, first zero", SHIFTED, lambda x: rolled(attend(x), 1), (w.ODD, w.GROUPED_CAUSAL)),
    Row("weights turned before the sum", ("weights transposed before the sum",), lambda x: weights_of(x).swapaxes(-1, -2) @ x.v, (w.SQUARE, w.KERNEL)),
    Row("key heads tiled", ("key heads tiled, not in blocks",), tiled, (w.GROUPED, w.GROUPED_KERNEL), "onnx PR 7274"),
    Row("key heads in blocks", ("key heads in blocks, not tiled",), lambda x: attend(x, k=x.k.repeat(2, 1), v=x.v.repeat(2, 1)), (w.TILED,), "axlearn PR 842"),
    Row("tiled and not causal", ("key heads tiled, not in blocks + causal mask left out",), lambda x: tiled(x, hide=OPEN), (w.GROUPED_CAUSAL,)),
    Row("rows one earlier, last zero", SHIFTED, lambda x: rolled(attend(x), -1), (w.ODD,)),
    *(Row(f"{name} joined by reshape", STRIDES[name], with_all(joined, name), (w.ODD,)) for name in "qkv"),
    *(Row(f"{name} columns first", STRIDES[name], with_all(columns_first, name), (w.ODD,)) for name in "qkv"),
)  # fmt: skip
