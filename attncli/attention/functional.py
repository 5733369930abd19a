"""The mathematics, in the order of the computation: one function, one stage; arrays in, one out.

    x ── project, split ── q, k ── scores ── scale ── softcap ── apply_mask ── softmax ── dropout
                             v ───────────────────────────────────────────────── weighted_sum
    around an attention:     concat ── project ── add ── mean, deviation, normalize ── relu

The axes are those after each signature, with any axes before them. Where a number overflows it is
infinite, as IEEE 754 has it; the runner keeps NumPy quiet about that. Heads are split and merged
(concat) in heads.py.
"""

from __future__ import annotations

import math

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.heads import key_head_of
from attncli.convention import DType, EmptyRows, HeadOrder, LseBase, MaskValueRule

# ---- from x to q, k and v


def project(x: Array, w: Array, b: Array | None = None) -> Array:  # [n, d], [d, m] -> [n, m]
    """A linear map applied from the right: X W + b.

    Source: "Attention Is All You Need", section 3.2.2.
    """
    return x @ w if b is None else x @ w + b


def share(x: Array, n_heads: int, order: HeadOrder) -> Array:  # [h_kv, n, d] -> [h, n, d]
    """For every query head the key head that it uses (grouped-query attention)."""
    return np.take(x, key_head_of(n_heads, x.shape[-3], order), axis=-3)


# ---- attention


def scores(q: Array, k: Array) -> Array:  # [n_q, d_k], [n_k, d_k] -> [n_q, n_k]
    """Dot product of every query with every key: S = Q Kᵀ.

    Source: "Attention Is All You Need", section 3.2.1, equation 1.

    >>> scores(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 1.0]]))
    array([[1., 0.]])
    """
    return np.asarray(q @ np.swapaxes(k, -1, -2))


def scale(x: Array, factor: float) -> Array:
    """Scores times a factor, by default 1/√d_k, which keeps their variance near 1.

    Source: "Attention Is All You Need", section 3.2.1.
    """
    return np.asarray(x * x.dtype.type(factor))


def softcap(x: Array, cap: float) -> Array:
    """Scores bounded smoothly to (−cap, cap): cap · tanh(S / cap).

    Source: Gemma 2 technical report (2024), section 2, "logit soft-capping".
    """
    bound = x.dtype.type(cap)
    return np.asarray(np.tanh(x / bound) * bound)


def add_bias(x: Array, mask: Array) -> Array:  # mask broadcasts from the right
    """Scores with the numbers of the additive mask M, but for its −inf: S + M."""
    return np.asarray(x + np.where(np.isneginf(mask), 0, mask).astype(x.dtype, copy=False))


def apply_mask(x: Array, mask: Array, value: float, rule: MaskValueRule = "replace") -> Array:
    """Scores with the additive mask M: S + M, and `value` wherever M is −inf, or added there.

    Where it is replaced, a NaN or infinity in a masked score goes no further.

    >>> x, mask = np.array([[np.nan, 1.0]]), np.array([[-np.inf, 2.0]])
    >>> apply_mask(x, mask, -np.inf), apply_mask(x, mask, -1e4, "add")
    (array([[-inf,   3.]]), array([[nan,  3.]]))
    """
    hidden, masked, own = np.isneginf(mask), add_bias(x, mask), x.dtype.type(value)
    if rule == "add":
        np.add(masked, own, out=masked, where=hidden)
    else:
        np.copyto(masked, own, where=hidden)
    return masked


def hide(x: Array, mask: Array, value: float, rule: MaskValueRule = "replace") -> Array:
    """The same of the −inf in M alone: its numbers are in the scores already."""
    return apply_mask(x, np.where(np.isneginf(mask), mask, 0), value, rule)


def may_attend(mask: Array) -> BoolArray:
    """True where a key may get a weight: where the additive mask is not −inf."""
    return ~np.isneginf(mask)


def softmax(
    x: Array,
    allowed: BoolArray | None = None,
    axis: int = -1,
    empty: EmptyRows = "zero",
    sinks: Array | None = None,
) -> Array:
    """exp(X) / Σ exp(X) along an axis: −1 makes rows sum to 1, −2 columns.

    The largest score is subtracted first, which changes nothing but keeps exp finite. What is not
    `allowed` gets no weight; where nothing is allowed, `empty` says what the weights are: "zero",
    "nan" or "uniform" (1/n each); "unmasked" is the mask's work, here as "zero". A sink, one score
    for each head, joins the sum in every row and has no weight of its own:
    exp(X) / (Σ exp(X) + exp(s)), in an empty row 0.

    Source of the sinks: gpt-oss model card (OpenAI, 2025), section 2.2.

    >>> softmax(np.array([[1000.0, 1000.0]]))
    array([[0.5, 0.5]])
    >>> softmax(np.full((1, 2), -np.inf), allowed=np.zeros((1, 2), dtype=bool))
    array([[0., 0.]])
    >>> softmax(np.zeros((1, 2)), sinks=np.log([2.0]))
    array([[0.25, 0.25]])
    """
    sink = np.full(1, -np.inf, x.dtype) if sinks is None else sinks  # exp(−inf) = 0: no sink
    sink = sink.reshape(-1, *[1] * min(x.ndim - 1, 2))
    top = np.maximum(np.max(x, axis=axis, keepdims=True), sink)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        top = np.where(np.isneginf(top), 0, top)
        powers = x - top
        np.exp(powers, out=powers)
        total = powers.sum(axis=axis, keepdims=True) + np.exp(sink - top)
        np.divide(powers, total, out=powers)
    if allowed is None:
        return powers
    if np.isnan(powers).any():
        np.copyto(powers, 0, where=~allowed)
    is_empty = ~np.atleast_2d(allowed).any(axis=axis, keepdims=True) & np.isneginf(sink)
    filler = {"nan": np.nan, "uniform": 1.0 / x.shape[axis]}.get(empty, 0.0)
    np.copyto(powers, filler, where=is_empty)
    return powers


def log_sum_exp(
    x: Array, allowed: BoolArray | None = None, sinks: Array | None = None, base: LseBase = "e"
) -> Array:  # [n_q, n_k] -> [n_q]
    """m + ln Σ exp(X − m) of each row, m its largest score: by exp of it softmax divides exp(X).

    What is not `allowed` has no part in it; a sink joins the sum. Where nothing is left it is −∞.
    With base "2" it is log₂ Σ exp(X), as kernels keep it that compute with powers of 2.

    Source: Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018); Dao,
    "FlashAttention-2" (2023), section 3.1.1, L.
    """
    top = np.max(x, axis=-1)
    if allowed is not None and np.isnan(top).any():
        x = np.where(allowed, x, x.dtype.type(-np.inf))
        top = np.max(x, axis=-1)
    sink = np.full(1, -np.inf, x.dtype) if sinks is None else sinks
    sink = sink.reshape(-1, *[1] * min(x.ndim - 2, 1))
    top = np.maximum(top, sink)
    shift = np.where(np.isinf(top), x.dtype.type(0), top)
    rows, shifts = x.reshape(-1, x.shape[-1]), shift.reshape(-1, 1)
    total, at_once = np.empty(len(rows), x.dtype), max(1, CACHED // x.shape[-1])
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for at in range(0, len(rows), at_once):
            powers = rows[at : at + at_once] - shifts[at : at + at_once]
            np.exp(powers, out=powers).sum(axis=-1, out=total[at : at + at_once])
        lse = shift + np.log(total.reshape(shift.shape) + np.exp(sink - shift))
    return np.asarray(lse / x.dtype.type(math.log(2)) if base == "2" else lse)


CACHED = 1 << 15
"""Scores whose powers are summed at once: 256 kB, which a processor's cache keeps."""


def draw_kept(shape: tuple[int, ...], p: float, seed: int) -> BoolArray:
    """Which numbers dropout keeps, a share 1 − p of them.

    Drawn from NumPy's PCG64 with this seed, so the same on every machine.
    """
    return np.random.default_rng(seed).random(shape) >= p


def dropout(x: Array, kept: BoolArray, p: float) -> Array:
    """What is not kept becomes 0, the rest is divided by 1 − p.

    Source: Srivastava et al. (2014), section 10; "Attention Is All You Need", section 5.4.
    """
    dropped = np.asarray(x / x.dtype.type(1 - p))
    np.copyto(dropped, 0, where=~kept)
    return dropped


def weighted_sum(  # [n_q, n_k], [n_k, d_v] -> [n_q, d_v]
    a: Array, v: Array, allowed: BoolArray | None = None
) -> Array:
    """The output: each query's sum of the values, each times its weight: O = A V.

    A NaN or infinity in v reaches a query only through a key it may attend to: 0 · NaN, which
    IEEE 754 calls NaN, does not spoil the rows in which that key is not `allowed`.

    >>> a, v = np.array([[1.0, 0.0]]), np.array([[2.0], [np.nan]])
    >>> weighted_sum(a, v, allowed=np.array([[True, False]]))
    array([[2.]])
    """
    finite = np.isfinite(v)
    with np.errstate(over="ignore", invalid="ignore"):
        if allowed is None or finite.all():
            return np.asarray(a @ v)
        return np.asarray(a @ np.where(finite, v, 0) + _not_finite(a, v, allowed | (a != 0)))


def _not_finite(a: Array, v: Array, reaching: BoolArray) -> Array:
    """What IEEE 754 makes of Σ weight · value over the infinite and NaN values that reach a query.

    [n_q, n_k], [n_k, d_v] -> [n_q, d_v] of 0, inf, −inf and NaN.
    """

    def any_of(cells: BoolArray, values: BoolArray) -> BoolArray:
        hits: Array = cells.astype(a.dtype) @ values.astype(a.dtype)
        return hits > 0

    counted = reaching & (a != 0)
    is_nan = any_of(reaching, np.isnan(v)) | any_of(reaching & (a == 0), np.isinf(v))
    above, below = any_of(counted, np.isposinf(v)), any_of(counted, np.isneginf(v))
    either = np.where(above, np.inf, np.where(below, -np.inf, 0))
    return np.where(is_nan | (above & below), np.nan, either).astype(a.dtype)


# ---- around an attention


def add(x: Array, y: Array) -> Array:
    """X + Y, such as a residual. Source: He et al. (2016), section 3.1."""
    return np.asarray(x + y)


def mean(x: Array) -> Array:  # [n, d] -> [n]
    """The mean of each row."""
    return np.asarray(x.mean(axis=-1))


def deviation(x: Array, mean: Array) -> Array:  # [n, d], [n] -> [n]
    """The standard deviation of each row, of the population: √(mean of (X − μ)²)."""
    centred = x - mean[..., None]
    return np.asarray(np.sqrt(np.mean(centred * centred, axis=-1)))


def normalize(  # [n, d], [n], [n], [d], [d] -> [n, d]
    x: Array,
    mean: Array,
    deviation: Array,
    gamma: Array | None = None,
    beta: Array | None = None,
    epsilon: float = 1e-5,
) -> Array:
    """Layer norm: γ (X − μ) / √(σ² + ε) + β.

    Source: Ba et al. (2016), section 3.1; ε as in PyTorch and ONNX LayerNormalization-17.
    """
    norm = (x - mean[..., None]) / np.sqrt(deviation[..., None] ** 2 + epsilon)
    gained = norm if gamma is None else norm * gamma
    return np.asarray(gained if beta is None else gained + beta)


def relu(x: Array) -> Array:
    """max(0, X)."""
    return np.asarray(np.maximum(x, x.dtype.type(0)))


# ---- number types: what a stage is computed in, and what it is rounded to


def widen(x: Array, dtype: DType) -> Array:
    """The same numbers in the type a stage is computed in: float64, for smaller types float32."""
    with np.errstate(over="ignore"):
        return x.astype(np.float64 if dtype == "float64" else np.float32, copy=False)


def round_to(x: Array, dtype: DType) -> Array:
    """x rounded to the number type, ties to even; beyond its range it becomes infinite.

    float16 is float16; bfloat16 is a float32 whose low 16 bits are 0.
    Source: IEEE 754-2019, section 4.3.1.

    >>> [float(round_to(np.array([x]), "float16")[0]) for x in (0.1, 70000.0)]
    [0.0999755859375, inf]
    >>> [float(round_to(np.array([x]), "bfloat16")[0]) for x in (0.1, 257.0, 259.0)]
    [0.10009765625, 256.0, 260.0]
    """
    with np.errstate(over="ignore"):
        if dtype != "bfloat16":
            return x.astype(dtype, copy=False)
        wide = np.ascontiguousarray(x, dtype=np.float32)
    bits = wide.view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)  # the lowest bit that is kept, for ties to even
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded &= np.uint32(0xFFFF0000)
    kept = rounded.view(np.float32)
    np.copyto(kept, wide, where=np.isnan(wide))
    return kept
