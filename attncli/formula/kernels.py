"""What is more than its formula: softmax that does not overflow, 0 · NaN, dropout, number types.

A formula says what softmax, the log of a sum and a product are; here they are computed such that
exp stays finite, rows without a key get what a convention says, and NaN goes no further than a
query that may attend to it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attncli.arrays import Array, BoolArray, Like
from attncli.convention import DType, EmptyRows


def softmax(
    x: Array,
    axis: int | tuple[int, ...] = -1,
    allowed: BoolArray | None = None,
    sink: Array | None = None,
    empty: EmptyRows = "zero",
) -> Array:
    """exp(X) / (Σ exp(X) + exp(s)) along one axis or several; a sink s joins the sum.

    The largest score is subtracted first, which changes nothing but keeps exp finite. What is not
    `allowed` is −∞ in x, and gets no weight; where nothing is, nor a sink, `empty` says what the
    weights are ("unmasked" is the mask's work, here as "zero"). Both broadcast to x.
    Source of the sinks: gpt-oss model card (OpenAI, 2025), section 2.2.

    >>> softmax(np.array([[1000.0, 1000.0]])), softmax(np.zeros((1, 2)), sink=np.log([[2.0]]))
    (array([[0.5, 0.5]]), array([[0.25, 0.25]]))
    """
    hidden = None if allowed is None else ~allowed
    top = x.max(axis=axis, keepdims=True)
    top = top if sink is None else np.maximum(top, sink)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        top = np.where(np.isneginf(top), 0, top)
        powers = x - top
        if hidden is not None:  # of numbers exp takes a fraction of the time that it takes of −∞
            np.copyto(powers, 0, where=hidden)
        np.exp(powers, out=powers)
        if hidden is not None:
            np.copyto(powers, 0, where=hidden)
        total = powers.sum(axis=axis, keepdims=True)
        total = total if sink is None else total + np.exp(sink - top)
        np.divide(powers, total, out=powers)
    if hidden is None:
        return powers
    if not (np.isfinite(total) & (total > 0)).all():  # else no quotient is NaN
        np.copyto(powers, 0, where=hidden)
    of_every_axis = hidden.reshape((1,) * (x.ndim - hidden.ndim) + hidden.shape)
    is_empty = of_every_axis.all(axis=axis, keepdims=True)
    is_empty = is_empty if sink is None else is_empty & np.isneginf(sink)
    size = x.size // max(1, total.size)
    filler = {"nan": np.nan, "uniform": 1.0 / max(1, size)}.get(empty, 0.0)
    if is_empty.any():
        np.copyto(powers, filler, where=is_empty)
    return powers


def log_sum_exp(x: Array, sink: Array | None = None) -> Array:  # [..., n] -> [...]
    """m + ln Σ exp(X − m) of each row, m its largest score: by exp of it softmax divides exp(X).

    A sink, [...], joins the sum. Where all are −∞ it is −∞.
    Source: Milakov & Gimelshein (2018); Dao, "FlashAttention-2" (2023), section 3.1.1, L.
    """
    top = x.max(axis=-1)
    top = top if sink is None else np.maximum(top, sink)
    shift = np.where(np.isinf(top), x.dtype.type(0), top)
    rows, shifts = x.reshape(-1, x.shape[-1]), shift.reshape(-1, 1)
    total, at_once = np.empty(len(rows), x.dtype), max(1, CACHED // max(1, x.shape[-1]))
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for at in range(0, len(rows), at_once):
            powers = rows[at : at + at_once] - shifts[at : at + at_once]
            np.exp(powers, out=powers).sum(axis=-1, out=total[at : at + at_once])
        whole = total.reshape(shift.shape)
        whole = whole if sink is None else whole + np.exp(sink - shift)
        return np.asarray(shift + np.log(whole))


CACHED = 1 << 15
"""Scores whose powers are summed at once: 256 kB, which a processor's cache keeps."""


def weighted_sum(
    a: Array,
    v: Array,
    allowed: BoolArray | None = None,
    multiply: Callable[[Array, Array], Array] = np.matmul,
) -> Array:  # [n_q, n_k], [n_k, d_v] -> [n_q, d_v]
    """A V, in which a NaN or infinity in v reaches a query only through a key it may attend to.

    0 · NaN, which IEEE 754 calls NaN, does not spoil the rows in which that key is not `allowed`.

    >>> a, v = np.array([[1.0, 0.0]]), np.array([[2.0], [np.nan]])
    >>> weighted_sum(a, v, allowed=np.array([[True, False]]))
    array([[2.]])
    """

    def any_of(cells: BoolArray, values: BoolArray) -> BoolArray:
        hits: Array = cells.astype(a.dtype) @ values.astype(a.dtype)
        return hits > 0

    finite = np.isfinite(v)
    with np.errstate(over="ignore", invalid="ignore"):
        if allowed is None or finite.all():
            return np.asarray(multiply(a, v))
        reaching = np.broadcast_to(allowed | (a != 0), a.shape)
        counted = reaching & (a != 0)
        is_nan = any_of(reaching, np.isnan(v)) | any_of(reaching & (a == 0), np.isinf(v))
        above, below = any_of(counted, np.isposinf(v)), any_of(counted, np.isneginf(v))
        either = np.where(above, np.inf, np.where(below, -np.inf, 0))
        more = np.where(is_nan | (above & below), np.nan, either).astype(a.dtype)
        return np.asarray(multiply(a, np.where(finite, v, 0)) + more)


def draw_kept(shape: tuple[int, ...], p: float, seed: int) -> BoolArray:
    """Which numbers dropout keeps, a share 1 − p: by NumPy's PCG64, the same on every machine."""
    return np.random.default_rng(seed).random(shape) >= p


def like_kept(shape: tuple[int, ...], **_: float) -> Like:
    """The shape and the type of that, which is drawn as float64."""
    mask = Like(shape, np.dtype(np.bool_))
    return mask._replace(takes=mask.nbytes + Like(shape).nbytes)


# ---- number types: what a stage is computed in, and what it is rounded to


NUMBERS = {"float64": "float64", "float32": "float32", "bfloat16": "float32", "float16": "float16"}
"""What NumPy holds numbers of a type as."""


def widen(x: Array, dtype: DType) -> Array:
    """The same numbers in the type a stage is computed in: float64, for smaller types float32."""
    wide = np.dtype("float64" if dtype == "float64" else "float32")
    if x.dtype == wide:
        return x
    with np.errstate(over="ignore"):
        return x.astype(wide)


def round_to(x: Array, dtype: DType) -> Array:
    """x rounded to the number type, ties to even; beyond its range it becomes infinite.

    float16 is float16; bfloat16 is a float32 whose low 16 bits are 0.
    Source: IEEE 754-2019, section 4.3.1.

    >>> [float(round_to(np.array([x]), "float16")[0]) for x in (0.1, 70000.0)]
    [0.0999755859375, inf]
    >>> [float(round_to(np.array([x]), "bfloat16")[0]) for x in (0.1, 257.0, 259.0)]
    [0.10009765625, 256.0, 260.0]
    """
    if x.dtype == dtype:
        return x
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return x.astype(dtype)
        wide = np.ascontiguousarray(x, dtype=np.float32)
    bits = wide.view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)  # the lowest bit that is kept, for ties to even
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded &= np.uint32(0xFFFF0000)
    result = rounded.view(np.float32)
    np.copyto(result, wide, where=np.isnan(wide))
    return result
