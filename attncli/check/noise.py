"""How exact a right implementation is in a number type, row by row.

Two estimates, and the larger one counts. One is simulated: the same stages with every stage rounded
to the type. The other is what rounding does to first order, with S = Q Kᵀ, Z = c S, A = softmax(Z),
O = A V, and u the root mean square of a rounding error, relative to the number rounded:

    var S[i,j] = u² · (2 S² + 2 Σ q² k²)              the score, the scale; q and k scaled before
    var A[i,j] = A² · ((1 − A)² var Z + Σ A² var Z)  the sum over the other keys; and u² A²
    var O[i]   = Σ var A[i,j] · ‖V[j] − mean V‖² / d_v

A row of two keys that matter has one rounding error that counts: it may be 0 in the simulation and
large in another right implementation. The first-order estimate depends on no such luck.
Where sums are rounded to the type too (float32, float64), n terms added one after another are off
by u √(n/3) of the sum. Equal keys are rounded alike, so they count as one.

Source: Higham, "Accuracy and Stability of Numerical Algorithms" (2002), sections 2.2 and 4.2.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.check.setup import Setup
from attncli.convention import Convention, DType
from attncli.stages import DROPPED, OUTPUT, SCALED, SCORES, WEIGHTS

EPS: dict[DType, float] = {
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
}
"""The distance from 1 to the next number of each type, the narrowest type first."""

SMALL: tuple[DType, ...] = ("float16", "bfloat16")
"""The types whose rounding is large enough to conceal a bug; their sums are kept in float32."""

TF32_EPS = 2.0**-10
"""The factors of a product in TF32 have 10 bits after the point."""

ROUNDING = 0.21
"""Root mean square of a rounding error, in eps of the number rounded: uniform in half a unit of the
last place, 1/√12, over numbers uniform in [1, 2), √½."""

REPEATED = 4.0
"""So many times the error is allowed where keys are equal. Nothing averages: a row then depends on
the errors of a few scores, each of which may be four standard deviations off."""

RARE = 3.0
"""Errors of a score are followed through exp up to so many standard deviations."""

NONLINEAR = 10.0
"""Above this standard deviation a score says nothing any more: exp(30) is 10¹³."""

HALVES = 3.4
"""A unit of the last place in root mean squares of two rounding errors, √2 · 0.21 eps. Two scores
that differ by a share p of a unit are rounded to one number or to two, and the variance of their
difference is p (1 − p) of a squared unit."""

LINEAR = 0.0025
"""Up to this variance of a score, exp of its error is 1 plus the error to within 5 %."""

MOST_LEVEL = 0.01
"""A whole row may be off by so large a share: where log Σ exp cannot be known better than that, an
implementation that goes by it is wrong."""

MOST_ADDED = 1e150
"""Squares of larger numbers are infinite."""

LARGE = 1e9
"""A number beyond it makes every error large; squares and sums of such are still float32."""

SMALL_WEIGHT = 1e-12
"""Of smaller weights, beside a sink that takes all, squares of errors are no float32 any more."""

_FLOAT = np.float32
"""An estimate of an error need not be exact."""


class Arithmetic(NamedTuple):
    """Relative rounding errors, as root mean squares.

    stages   of each stage
    factors  of what goes into the products: of q or k that are scaled first; in TF32 of all
    sums     of each addition
    """

    stages: float
    factors: float
    sums: float

    @classmethod
    def of(cls, dtype: DType) -> Arithmetic:
        """That of a number type: 16-bit types are summed in float32, the others in themselves."""
        unit = ROUNDING * EPS[dtype]
        if dtype in SMALL:
            return cls(unit, unit, ROUNDING * EPS["float32"])
        unit *= 2 if dtype == "float64" else 1.4  # the reference is off by as much as float64
        return cls(unit, unit, unit)

    @classmethod
    def tf32(cls) -> Arithmetic:
        """That of float32 with TF32 products, whose four factors are rounded to 10 bits."""
        return cls.of("float32")._replace(factors=2 * ROUNDING * TF32_EPS)


def row_noise(
    values: Mapping[str, Array],
    setup: Setup,
    stages: Collection[str],
    arithmetic: Arithmetic,
    logits: str,
) -> dict[str, Array]:
    """The noise of each row, to first order: stage → root mean square, [batch, head, row].

    values  q, k, v, scores and weights of these rows, and the mask where a number is added to what
            it hides; every query head has its own key head
    logits  the stage among them that softmax reads
    """
    shape = values[SCORES].shape[:3]
    result = {name: np.zeros(shape) for name in stages}
    for at in np.ndindex(shape[:2]):
        head = _Head(values, at, logits, setup, arithmetic)
        for name, noise in head.noise(stages).items():
            # what is no number is not known, and must not allow anything
            result[name][at] = np.nan_to_num(noise, nan=0.0, posinf=0.0)
        if OUTPUT in setup.patched and OUTPUT in stages:  # the sum through a matrix, say
            outputs = values[OUTPUT][at], head.weights @ head.v
            squares = (np.square(x).mean(axis=-1) for x in outputs)
            with np.errstate(divide="ignore", invalid="ignore"):
                grown = np.nan_to_num(np.sqrt(np.divide(*squares)), nan=1.0, posinf=1.0)
            result[OUTPUT][at] *= np.maximum(grown, 1.0)
    return result


def lowers(how: Convention) -> bool:
    """Whether a finite number is added to the scores that a mask hides."""
    return how.mask_value_rule == "add" and bool(np.isfinite(how.mask_value))


def _of_head(x: Array, at: tuple[int, ...]) -> Array:
    """The matrix of one head; an axis of one is shared by all."""
    matrix: Array = x[tuple(min(i, n - 1) for i, n in zip(at, x.shape[:2], strict=True))]
    return matrix


class _Head:
    """One head: its matrices, and how its keys repeat.

    lowered  what rounds each score that a large number is added to, [n_q, n_k]: such a score keeps
             its order, but few of its digits; None where there is no such number
    """

    def __init__(
        self,
        values: Mapping[str, Array],
        at: tuple[int, ...],
        logits: str,
        setup: Setup,
        arithmetic: Arithmetic,
    ) -> None:
        names = [f"{name}_norm" if f"{name}_norm" in values else name for name in "qkv"]
        self.q, self.k, self.v = (_of_head(values[name], at) for name in names)
        self.scores, self.logits = values[SCORES][at], values[logits][at]
        self.weights = np.nan_to_num(values[WEIGHTS][at])  # over queries some of a row may be NaN
        self.lowered: Array | None = None
        if "mask" in values and lowers(setup.how):
            mask = values["mask"][(None,) * (4 - values["mask"].ndim)]
            size = _FLOAT(arithmetic.stages * abs(setup.how.mask_value))
            self.lowered = np.isneginf(_of_head(mask, at)) * size
        self.scale, self.drop = setup.how.scale_factor(self.q.shape[-1]), setup.how.dropout
        self.mask_value = setup.how.mask_value if np.isfinite(setup.how.mask_value) else np.nan
        self.unit = arithmetic
        self.groups = equal_rows(self.k)
        self.top = self.weights.argmax(axis=-1)[:, None]

    def noise(self, stages: Collection[str]) -> dict[str, Array]:
        """The noise of each row of the stages, as root mean squares."""
        noise: dict[str, Array] = {}
        late = [name for name in stages if name in (WEIGHTS, DROPPED, OUTPUT)]
        if early := [name for name in stages if name not in late]:
            of_scores = np.sqrt(self._scores_variance(1.0, self.scores, self.k).mean(axis=-1))
            of_scaled = of_scores * abs(self.scale)
            # what rounds the scores with the numbers that a mask adds, but for its value
            is_hidden = np.abs(self.logits - self.mask_value) <= abs(self.mask_value) / 2
            x = np.where((np.abs(self.logits) < MOST_ADDED) & ~is_hidden, self.logits, 0.0)
            of_sums = self.unit.stages * np.sqrt(np.square(x).mean(axis=-1))
            linear = {SCORES: of_scores, SCALED: of_scaled}
            noise |= {name: linear.get(name, np.hypot(of_scaled, of_sums)) for name in early}
        if late:
            of_weights, of_output = self._after_softmax()
            noise |= {x: of_output if x == OUTPUT else of_weights for x in late}
            noise |= {x: noise[x] / (1 - self.drop) for x in late if x != WEIGHTS}
        return noise

    def _scores_variance(
        self, scale: float, scores: Array, k: Array, top: Array | None = None
    ) -> Array:
        """[n_q, n_k] -> [n_q, n_k]: the variance of each score, scaled by this factor.

        top: of each row the score that the others are compared with, [n_q, 1]. Softmax sees their
        differences alone, each with the error of its exp, and 16-bit types round equal numbers
        alike.
        """
        unit, d = self.unit, self.q.shape[-1]
        sums = unit.sums**2 * d / 3
        alike = top is not None and unit.sums < unit.stages
        kind = np.float64 if top is None else _FLOAT
        variance: Array = (scores * (scale * np.sqrt(2 * (unit.stages**2 + sums)))).astype(kind)
        if alike:
            np.abs(variance, out=variance)
            away = np.abs(scores - top).astype(_FLOAT) * _FLOAT(scale * HALVES)
            variance *= np.minimum(variance, away)
            k = k * (k != k[0]).any(axis=0)
        else:
            variance *= variance
        factor = scale * np.sqrt((1 + alike) * unit.factors**2 + sums)  # alike: of q and of k
        q, k = (np.clip(x, -LARGE, LARGE).astype(_FLOAT) for x in (self.q * factor, k))
        variance += np.square(q) @ np.square(k).T
        if top is None:
            return variance
        variance += _FLOAT(unit.stages**2)
        return np.minimum(variance, NONLINEAR**2, out=variance)

    def _after_softmax(self) -> tuple[Array, Array]:
        """The noise of the weights and of the output, by row."""
        unit, n, most = self.unit, len(self.k), 0
        tops = self.weights.max(axis=-1)
        kind = np.float64 if (tops[tops > 0] < SMALL_WEIGHT).any() else _FLOAT
        weights, v64 = self.weights.astype(kind), np.where(np.isfinite(self.v), self.v, 0)
        size = float(np.abs(v64).max(initial=0.0))
        size = size if 0 < size < np.inf else 1.0
        v = (v64 / size).astype(_FLOAT)
        parts: list[tuple[Array, Array | None, Array, Array, Array, float]] = []
        if self.groups is None or unit.sums == unit.stages:
            # Equal keys that are summed in another order, as at the end of a block, may differ.
            parts.append((self.scores, self.lowered, weights, self.k, v, 1.0))
        if self.groups is not None:
            order, starts = self.groups
            counts = np.diff(starts, append=n)
            most, first = int(counts.max()), order[starts]
            shares = np.add.reduceat(weights[:, order], starts, axis=-1)
            means = np.add.reduceat(v[order], starts, axis=0) / counts[:, None].astype(_FLOAT)
            lowered = None if self.lowered is None else self.lowered[:, first]
            parts.append((self.scores[:, first], lowered, shares, self.k[first], means, REPEATED))
        of_weights, of_output = np.zeros(len(self.q)), np.zeros(len(self.q))
        for x, lowered, a, k, values, times in parts:
            variance = self._weights_variance(x, lowered, a, k)
            variance *= _FLOAT(times**2)
            of_weights += variance.mean(axis=-1)
            of_output += variance @ np.square(values - values.mean(axis=0)).mean(axis=-1)
            of_output += unit.stages**2 * (np.square(a) @ np.square(values).mean(axis=-1))
        # n equal terms are rounded alike: one binade's n/2 errors of half a unit, not √n of them
        sums = unit.sums * (np.sqrt(n / 3) + most / 2)
        # one number for the row, such as log Σ exp: as large as the largest score that counts
        level = unit.sums * np.take_along_axis(self.logits, self.top, axis=-1)[:, 0]
        level = np.where(np.isfinite(level), np.abs(level), 0.0)
        sums = np.hypot(sums, np.minimum(level, MOST_LEVEL))
        squares = np.square(weights)
        of_weights += (unit.stages**2 + sums**2) * squares.mean(axis=-1)
        of_output += (unit.stages**2 + sums**2) * np.square(weights @ v).mean(axis=-1)
        of_output += sums**2 * (squares @ np.square(v).mean(axis=-1))
        return np.sqrt(of_weights), np.sqrt(of_output) * size

    def _weights_variance(self, scores: Array, lowered: Array | None, a: Array, k: Array) -> Array:
        """[n_q, n_k], [n_q, n_k] -> [n_q, n_k]: of each weight, from the noise of the scores."""
        top = np.take_along_axis(scores, a.argmax(axis=-1)[:, None], axis=-1)
        variance = self._scores_variance(abs(self.scale), scores, k, top).astype(a.dtype)
        if lowered is not None:
            variance += np.square(np.minimum(lowered, NONLINEAR))
        if variance.max(initial=0.0) > LINEAR:
            variance = np.square(np.expm1(RARE * np.sqrt(variance)) / RARE)
        squares = a * a
        variance *= squares
        others = variance.sum(axis=-1, keepdims=True) - variance
        np.maximum(others, 0, out=others)
        others *= squares
        np.subtract(1, a, out=squares)
        squares *= squares
        variance *= squares
        variance += others
        return variance


def equal_rows(x: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]] | None:
    """An order in which equal rows are neighbours and where each group starts; None: none repeats.

    >>> order, starts = equal_rows(np.array([[1.0, 2], [3, 4], [1, 2]]))
    >>> order.tolist(), starts.tolist()
    ([0, 2, 1], [0, 2])
    """
    bits = np.ascontiguousarray(x, dtype=np.float64).view(np.uint64)
    odd = np.random.default_rng(0).integers(0, 2**63, bits.shape[-1], dtype=np.uint64) * 2 + 1
    hashes = (bits * odd).sum(axis=-1, dtype=np.uint64)  # whole numbers: the same in any order
    _, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) == len(x):
        return None
    by_first = first[inverse.ravel()]
    order = np.argsort(by_first, kind="stable")
    return order, np.flatnonzero(np.diff(by_first[order], prepend=-1))
