"""Softmax and weighted sum of one block of queries, a block of keys at a time.

    scores of a block ── exp(x − shift) ──┬── Σ ──────── total    [rows, 1]
                                          └── · V, Σ ─── values   [rows, d_v]

    output = values / total        log-sum-exp = shift + log total

The shift of a row is the largest score so far; what was summed is scaled down when a larger one
comes. None is needed where the norms of q and k show that no power can overflow or vanish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention import functional
from attncli.attention.dot_product import score_steps
from attncli.attention.visibility import KEYS, Block, Rows, Visibility
from attncli.convention import Convention

Array = npt.NDArray[Any]
_LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Keys:
    """The keys and values of one head, and what is known of them beforehand.

    k, v      [n_k, d_k], [n_k, d_v] of one number type; where v is infinite or NaN it holds 0
    odd       those values, 0 elsewhere; None where all are finite
    unit      v is divided by it, a power of 2, so that n_k of them can be summed
    k_top     the largest norm of a key; not finite where a key is not
    v_top     the largest |v|
    """

    k: Array
    v: Array
    odd: Array | None
    unit: float
    k_top: float
    v_top: float

    @classmethod
    def of(cls, k: Array, v: Array, dtype: npt.DTypeLike) -> Keys:
        """From k [n_k, d_k] and v [n_k, d_v] of any type; copied only where the type differs."""
        k, v = (np.ascontiguousarray(x, dtype=dtype) for x in (k, v))
        odd, v_top = None, largest(v)
        if not math.isfinite(v_top):
            finite = np.isfinite(v)
            v, odd = np.where(finite, v, 0), np.where(finite, 0, v)
            v_top = largest(v)
        unit = 1.0
        if v_top > np.finfo(v.dtype).max / 2 / len(v):
            unit = 2.0 ** math.ceil(math.log2(2 * len(v)))
            v, v_top = v / v.dtype.type(unit), v_top / unit
        return cls(k, v, odd, unit, largest_norm(k), v_top)


@dataclass
class Sums:
    """What has been summed so far over the keys, of the powers of the scores less `shift`."""

    total: Array  # [rows, 1]
    values: Array  # [rows, d_v]
    shift: Array  # [rows, 1]

    @classmethod
    def nothing(cls, q: Array, keys: Keys, shift: float) -> Sums:
        """Before the first block."""
        n, dtype = len(q), q.dtype
        values = np.zeros((n, keys.v.shape[1]), dtype)
        return cls(np.zeros((n, 1), dtype), values, np.full((n, 1), shift, dtype))

    def shift_by(self, x: Array, power: Callable[[Array], Array]) -> None:
        """Takes the largest score so far off x [rows, keys] and off what has been summed.

        Source: Milakov & Gimelshein (2018), algorithm 3.
        """
        top = np.maximum(self.shift, x.max(axis=1, keepdims=True))
        x -= _finite_shift(top)
        before = power(self.shift - _finite_shift(top))
        self.total *= before
        self.values *= before
        self.shift = top


@dataclass(frozen=True)
class RowBlock:
    """A block of queries q [rows, d_k], the keys of its head, and what it may see of them."""

    q: Array
    rows: Rows
    first_row: int  # of all rows of all heads, where dropout counts from
    keys: Keys
    visible: Visibility
    how: Convention

    def attend(self) -> tuple[Array, Array]:
        """The output [rows, d_v] and the log-sum-exp [rows]; call with NumPy's warnings off."""
        sums = self._sums()
        output = sums.values / sums.total
        if self.keys.unit != 1:
            output *= self.keys.unit
        if self.keys.odd is not None:
            output += self._odd_values(sums)
        if not sums.total.all():
            empty = self.visible.empty(self.rows)
            output[empty] = self._filler()[empty]
        return output, (_finite_shift(sums.shift) + np.log(sums.total))[:, 0]

    def _sums(self) -> Sums:
        """The quickest way that is safe."""
        info, n_k, v_top = np.finfo(self.q.dtype), len(self.keys.k), self.keys.v_top
        largest_power = self._bound() + abs(math.log2(v_top or 1)) + math.log2(n_k)
        if largest_power <= info.maxexp - info.nmant - 4:  # as small ones keep their digits too
            return self._folded_sums(shifted=False)
        if largest_power <= 2 ** (info.nmant / 2):  # half of a score's digits follow the point
            return self._folded_sums(shifted=True)
        return self._staged_sums()

    def _bound(self) -> float:
        """‖q‖ · ‖k‖ · scale · log2 e ≥ |score| (Cauchy and Schwarz), or NaN or infinity.

        Infinite as well where scores are more than products, and where q times the factor could
        leave the normal range.
        """
        how = self.how
        if how.softcap or how.dropout or self.visible.biased or not self.visible.hides:
            return math.inf
        q_top = largest_norm(self.q) * abs(self._factor())
        room = np.finfo(self.q.dtype).maxexp / 3
        return q_top * self.keys.k_top if abs(math.log2(q_top or 1)) <= room else math.inf

    def _factor(self) -> float:
        return self.how.scale_factor(self.q.shape[1]) * _LOG2_E

    def _folded_sums(self, *, shifted: bool) -> Sums:
        """Σ 2^x with the scale and log2 e, which makes it a power of e, folded into q."""
        sums, keys = Sums.nothing(self.q, self.keys, -np.inf if shifted else 0.0), self.keys
        n, dtype = len(self.q), self.q.dtype
        q = self.q * dtype.type(self._factor())
        scratch, ones = np.empty(n * KEYS, dtype), np.ones((KEYS, 1), dtype)
        for block in self.visible.blocks(self.rows):
            k, v = keys.k[block.keys], keys.v[block.keys]
            x = scratch[: n * len(k)].reshape(n, len(k))
            np.matmul(q, k.T, out=x)
            if block.hidden is not None:
                np.copyto(x, -np.inf, where=block.hidden)
            if shifted:
                sums.shift_by(x, np.exp2)
            powers = np.exp2(x, out=x)
            sums.total += powers @ ones[: len(k)]  # four times as quick as a sum
            sums.values += powers @ v
        sums.shift *= dtype.type(math.log(2))
        return sums

    def _staged_sums(self) -> Sums:
        """Σ exp(x), with the scores computed stage by stage as `attend` does."""
        sums = Sums.nothing(self.q, self.keys, -np.inf)
        for block in self.visible.blocks(self.rows):
            x = self._scores(block)
            sums.shift_by(x, np.exp)
            powers = np.exp(x, out=x)
            sums.total += powers.sum(axis=1, keepdims=True)
            sums.values += self._dropped(powers, block.keys) @ self.keys.v[block.keys]
        return sums

    def _scores(self, block: Block) -> Array:
        """The scores as softmax reads them."""
        x = functional.scores(self.q, self.keys.k[block.keys])
        for step in score_steps(self.how, self.q.shape[1], block.additive()):
            x = step.compute(x)
        return x

    def _dropped(self, weights: Array, keys: slice) -> Array:
        share = self.how.dropout
        if not share:
            return weights
        rows = range(self.first_row, self.first_row + len(weights))
        kept = functional.kept_cells(share, self.how.seed, rows, keys, self.visible.n_k)
        return np.where(kept, weights / weights.dtype.type(1 - share), 0).astype(weights.dtype)

    def _odd_values(self, sums: Sums) -> Array:
        """What infinite and NaN values add to the output, where they reach a query."""
        added = np.zeros_like(sums.values)
        for block in self.visible.blocks(self.rows):
            odd = np.zeros(0) if self.keys.odd is None else self.keys.odd[block.keys]
            if odd.any():
                powers = np.exp(self._scores(block) - _finite_shift(sums.shift))
                weights = self._dropped(powers / sums.total, block.keys)
                hidden = block.hidden if self.visible.hides else None
                added += functional.weighted_sum(weights, odd, hidden)
        return added

    def _filler(self) -> Array:
        """The output of a query that has nothing to attend to: its weights are all alike."""
        n_k, dtype = self.visible.n_k, self.q.dtype
        weight = {"zero": 0.0, "nan": np.nan, "uniform": 1 / n_k}[self.how.empty_rows]
        output = np.zeros((len(self.q), self.keys.v.shape[1]), dtype)
        for keys in _slices(n_k) if weight else ():
            weights = np.full((len(self.q), keys.stop - keys.start), weight, dtype)
            v = self.keys.v[keys] * dtype.type(self.keys.unit)
            v = v if self.keys.odd is None else v + self.keys.odd[keys]
            hidden = np.ones(weights.shape, dtype=bool)
            output += functional.weighted_sum(self._dropped(weights, keys), v, hidden)
        return output


def largest(x: Array) -> float:
    """The largest |x|, NaN where one is, without an array of all of them."""
    return float(np.maximum(x.max(), -x.min()))


def largest_norm(x: Array) -> float:
    """The largest ‖row‖ of x [n, d], rounded up; not finite where an entry is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("nd,nd->n", x, x)
    d, info = x.shape[1], np.finfo(x.dtype)
    # d · ε bounds what summing them loses, d · tiny what squares below the normal range do.
    return math.sqrt(float(squares.max()) * (1 + d * info.eps) + d * float(info.tiny))


def _finite_shift(top: Array) -> Array:
    """What is subtracted: the largest score, or 0 where all are −inf."""
    return np.where(np.isneginf(top), 0, top).astype(top.dtype, copy=False)


def _slices(n: int) -> Iterator[slice]:
    return (slice(start, min(start + KEYS, n)) for start in range(0, n, KEYS))
