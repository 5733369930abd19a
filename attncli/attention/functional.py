"""The stages of attention, in the order of the computation: one function, one stage.

    q, k ── scores ── scale ── softcap ── apply_mask ── softmax ── dropout ── weighted_sum ── output
                                              │                                    │
                                             mask                                  v

Every function takes and gives arrays alone: [..., n_q, n_k] with any axes before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.convention import EmptyRows

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


def scores(q: Array, k: Array) -> Array:  # [..., n_q, d_k], [..., n_k, d_k] -> [..., n_q, n_k]
    """Dot product of every query with every key: S = Q Kᵀ.

    Source: "Attention Is All You Need", section 3.2.1, equation 1.

    >>> scores(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 1.0]]))
    array([[1., 0.]])
    """
    return quietly_multiplied(q, np.swapaxes(k, -1, -2))


def scale(scores: Array, factor: float) -> Array:
    """Scores times a factor, by default 1/√d_k, which keeps their variance near 1.

    Source: "Attention Is All You Need", section 3.2.1.

    >>> scale(np.array([[4.0]]), 0.5)
    array([[2.]])
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: Array = scores * scores.dtype.type(factor)
    return scaled


def softcap(scores: Array, cap: float) -> Array:
    """Scores bent smoothly into (−cap, cap): cap · tanh(S / cap).

    Source: Gemma 2 technical report (2024), section 2, "logit soft-capping".

    >>> softcap(np.array([[0.0, 1000.0]]), 2.0)
    array([[0., 2.]])
    """
    bound = scores.dtype.type(cap)
    capped: Array = np.tanh(scores / bound) * bound
    return capped


def apply_mask(scores: Array, mask: Array, mask_value: float) -> Array:
    """Scores with the additive mask M: S + M, and mask_value wherever M is −inf.

    A masked score is replaced, not added to, so a NaN or infinity in it goes no further.

    scores [..., n_q, n_k]; mask broadcasts to it from the right.

    >>> apply_mask(np.array([[np.nan, 1.0]]), np.array([[-np.inf, 2.0]]), -np.inf)
    array([[-inf,   3.]])
    """
    hidden = np.isneginf(mask)
    bias = np.where(hidden, 0, mask).astype(scores.dtype, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        shifted: Array = scores + bias
    np.copyto(shifted, scores.dtype.type(mask_value), where=hidden)
    return shifted


def softmax(
    scores: Array, axis: int = -1, hidden: Mask | None = None, empty: EmptyRows = "zero"
) -> Array:
    """exp(S) / Σ exp(S) along an axis: −1 makes rows sum to 1, −2 columns.

    The largest score is subtracted first, which changes nothing but keeps exp finite.
    Where `hidden` [..., n_q, n_k] leaves a row nothing to attend to, `empty` says what it gets:
    "zero", "nan" or "uniform" (1/n in every place).

    >>> softmax(np.array([[1000.0, 1000.0]]))
    array([[0.5, 0.5]])
    >>> softmax(np.full((1, 2), -np.inf), hidden=np.ones((1, 2), dtype=bool))
    array([[0., 0.]])
    """
    top = np.max(scores, axis=axis, keepdims=True)
    shift = np.where(np.isneginf(top), 0, top)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        powers = scores - shift
        np.exp(powers, out=powers)
        total = powers.sum(axis=axis, keepdims=True)
        np.divide(powers, total, out=powers)
    return powers if hidden is None else _without_hidden(powers, axis, hidden, empty)


def _without_hidden(weights: Array, axis: int, hidden: Mask, empty: EmptyRows) -> Array:
    n = weights.shape[axis]
    filler = {"zero": 0.0, "nan": np.nan, "uniform": 1.0 / n}[empty]
    if np.isnan(weights).any():
        np.copyto(weights, 0, where=hidden)
    is_empty = np.atleast_2d(hidden).all(axis=axis, keepdims=True)
    np.copyto(weights, filler, where=is_empty)
    return weights


def dropout(weights: Array, share: float, seed: int) -> Array:
    """Weights with a share p of them set to 0 at random and the rest divided by 1 − p.

    Drawn from NumPy's PCG64 with this seed, so the same on every machine.
    Source: Srivastava et al. (2014), section 10; "Attention Is All You Need", section 5.4.

    >>> float(dropout(np.ones((100, 100)), 0.25, seed=1).max()) == 1 / 0.75
    True
    """
    kept = np.random.default_rng(seed).random(weights.shape) >= share
    return np.where(kept, weights / weights.dtype.type(1 - share), 0).astype(weights.dtype)


def kept_cells(
    share: float, seed: int, rows: range, keys: slice, n_k: int
) -> Mask:  # -> [rows, keys]
    """The cells that `dropout` keeps, of a block of rows, counted through all leading axes.

    The generator is advanced to each row's part: nothing before or between is drawn.

    >>> whole = np.random.default_rng(7).random((5, 3)) >= 0.5
    >>> bool((kept_cells(0.5, 7, range(2, 5), slice(1, 3), 3) == whole[2:5, 1:3]).all())
    True
    """
    width = keys.stop - keys.start
    bits = np.random.PCG64(seed)
    bits.advance(rows.start * n_k + keys.start)
    draw, drawn = np.random.Generator(bits), np.empty((len(rows), width))
    for row in drawn:
        draw.random(out=row)
        bits.advance(n_k - width)
    return drawn >= share


def weighted_sum(weights: Array, v: Array, hidden: Mask | None = None) -> Array:
    """The output: each query's sum of the values, each times its weight: O = A V.

    weights [..., n_q, n_k], v [..., n_k, d_v] -> [..., n_q, d_v].
    A NaN or infinity in v reaches a query only through a key it may attend to: 0 · NaN, which
    IEEE 754 calls NaN, does not spoil the rows in which `hidden` masks that key.

    >>> a, v = np.array([[1.0, 0.0]]), np.array([[2.0], [np.nan]])
    >>> weighted_sum(a, v, hidden=np.array([[False, True]]))
    array([[2.]])
    """
    finite = np.isfinite(v)
    if hidden is None or finite.all():
        return quietly_multiplied(weights, v)
    reaching = ~hidden | (weights != 0)
    return quietly_multiplied(weights, np.where(finite, v, 0)) + _not_finite(weights, v, reaching)


def _not_finite(weights: Array, v: Array, reaching: Mask) -> Array:
    """What IEEE 754 makes of Σ weight · value over the infinite and NaN values that reach a query.

    [..., n_q, n_k], [..., n_k, d_v] -> [..., n_q, d_v] of 0, inf, −inf and NaN.
    """

    def any_of(cells: Mask, values: Mask) -> Mask:
        hits: Array = cells.astype(weights.dtype) @ values.astype(weights.dtype)
        return hits > 0

    counted = reaching & (weights != 0)
    is_nan = any_of(reaching, np.isnan(v)) | any_of(reaching & (weights == 0), np.isinf(v))
    above, below = any_of(counted, np.isposinf(v)), any_of(counted, np.isneginf(v))
    either = np.where(above, np.inf, np.where(below, -np.inf, 0))
    return np.where(is_nan | (above & below), np.nan, either).astype(weights.dtype)


def quietly_multiplied(a: Array, b: Array) -> Array:
    """a @ b, where an overflow becomes infinite (as IEEE 754 has it) without a warning."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(a @ b)
