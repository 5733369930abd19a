"""Least squares: where the residuals of a setup, whose numbers are open, are smallest.

Target(sample) ── residuals ── may_reach ──> is any number worth a search?
               └─ misfit ── minimum ── polished ──> the numbers
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import count, pairwise

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.rule import distance, rms
from attncli.tolerance.run import Indices
from attncli.tolerance.setup import Setup

LEVEL = 1e-4
"""The noise of a row counts as at least so much of the errors to be explained: with that of float64
every number but the very best would be hopelessly far off, and the search would have no slope."""

FAR = 1e6
"""A number further off than so many noises is as wrong as one at this distance."""


@dataclass(frozen=True, eq=False)
class Target:
    """The comparison whose errors are to be small; of each row they count over its noise."""

    comparison: Comparison

    @cached_property
    def noise(self) -> dict[str, Array]:
        """The noise of every row of each stage, [batch, head, row, 1], of which each may be 1."""
        result = dict[str, Array]()
        for name, stage in self.comparison.errors.items():
            rows = stage.by_row[0]
            typical = rms(rows, np.asarray(np.isfinite(rows)))
            noise = np.full((1, 1, 1), typical)
            if stage.noise is not None:
                noise = np.maximum(stage.row_noise, LEVEL * typical)
            result[name] = np.maximum(noise, 1e-300)[..., None]
        return result

    def misfit(self, setup: Setup) -> Array:
        """How far off a setup is: mean squares of each batch item and head."""
        comparison = self.comparison
        total = np.zeros(comparison.subset.sizes[:2])
        for name, x in comparison.expected(setup).items():
            errors = distance(comparison.observed_by(setup, name), x)
            errors = np.minimum(errors / self.noise[name], FAR)
            total += comparison.by_heads(name, np.square(errors).mean(axis=(-1, -2)))
        return total

    def residuals(self, setup: Setup) -> Array:
        """The errors with their signs, [n]; the sum of squares is the sum of a mean per stage."""
        parts = list[Array]()
        for name, x in self.comparison.expected(setup).items():
            observed = self.comparison.observed_by(setup, name)
            with np.errstate(invalid="ignore", over="ignore"):
                errors = (x - observed) / self.noise[name]
            if not np.isfinite(errors).all():
                is_same = (x == observed) | (np.isnan(x) & np.isnan(observed))
                errors = np.where(is_same, 0.0, np.where(np.isnan(errors), FAR, errors))
            parts.append(errors.clip(-FAR, FAR).ravel() / math.sqrt(max(1, errors.size)))
        return np.concatenate(parts)


# ---- whether there is a number at all

FIRST, FINEST, MOST_TRIED = 4, 2**9, 48
"""Into so many intervals a range is cut first, and at last; and so many numbers are tried at most,
before a range counts as worth a search."""


def may_reach(
    residuals: Callable[[float], Array], low: float, high: float, most: float, whole: bool = False
) -> bool:
    """Whether the squares of the residuals of a number from low to high may sum up to `most`.

    As a number goes from one end of an interval to the other, its residuals go along a curve. They
    count as no further from the chord between its ends than this is long: an interval whose chord
    is further from 0 has no such number. The other intervals are halved, the nearest first.

    whole  whether the numbers are whole

    >>> turning = lambda x: np.array([np.cos(x), np.sin(x), 0.1 * x - 0.2])
    >>> may_reach(turning, 0, 3, most=1.001), may_reach(turning, 0, 3, most=0.8)
    (True, False)
    """
    points = np.linspace(low, high, FIRST + 1)
    points = np.unique(points.round()) if whole else points
    limit, n_tried, number = math.sqrt(most), len(points), count()
    intervals = list[tuple[float, int, tuple[float, float], tuple[Array, Array]]]()

    def put(ends: tuple[float, float], values: tuple[Array, Array]) -> None:
        if not whole or ends[1] - ends[0] > 1:
            heapq.heappush(intervals, (least(*values), next(number), ends, values))

    values = [residuals(float(x)) for x in points]
    if any(np.linalg.norm(x) <= limit for x in values):
        return True
    for ends, both in zip(pairwise(points.tolist()), pairwise(values), strict=True):
        put(ends, both)
    while intervals and intervals[0][0] <= limit:
        _, _, (a, b), (at_a, at_b) = heapq.heappop(intervals)
        middle = (a + b) // 2 if whole else (a + b) / 2
        at_middle = residuals(middle)
        is_fine = not whole and b - a < 2 * (high - low) / FINEST
        n_tried += 1
        if np.linalg.norm(at_middle) <= limit or is_fine or n_tried >= MOST_TRIED:
            return True
        put((a, middle), (at_a, at_middle))
        put((middle, b), (at_middle, at_b))
    return False


def least(start: Array, end: Array) -> float:
    """The least size of residuals that go from a start to an end, as `may_reach` has it."""
    chord = end - start
    length = float(chord @ chord)
    share = -float(start @ chord) / length if length else 0.0
    nearest = start + min(max(share, 0.0), 1.0) * chord
    return float(np.linalg.norm(nearest)) - math.sqrt(length)


# ---- where the misfits are smallest

Loss = Callable[[Array], Array]
"""Misfits of so many numbers, of which each is fitted by itself: [m] -> [m]."""

GRID = 33
"""Into so many intervals a range is cut before the best is searched further."""

STEPS, FIRST_STEPS = 40, 12
"""Each step leaves 0.618 of the interval: 40 leave 4·10⁻⁹ of it, about all that a sum of squares
can show in float64; 12 leave 0.003 of it, which shows whether there is anything to find."""


def minimum(
    loss: Loss,
    low: float,
    high: float,
    n: int = 1,
    most: float = math.inf,
) -> tuple[Array, Array]:
    """Where the losses of n numbers are smallest, and how small: a grid, then golden sections.

    It ends early where their mean is not below `most` after FIRST_STEPS.

    >>> at, least = minimum(lambda x: (x - np.array([0.3, -2.0])) ** 2, -3, 3, n=2)
    >>> at.round(6).tolist()
    [0.3, -2.0]
    """
    grid = np.linspace(low, high, GRID + 1)
    losses = np.array([loss(np.full(n, x)) for x in grid])
    best = losses.argmin(axis=0)
    a, b = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, GRID)]
    golden = (math.sqrt(5) - 1) / 2
    c, d = b - golden * (b - a), a + golden * (b - a)
    at_c, at_d = loss(c), loss(d)
    for step in range(STEPS):
        if step == FIRST_STEPS and np.minimum(at_c, at_d).mean() > most:
            break
        is_lower = at_c < at_d
        a, b = np.where(is_lower, a, c), np.where(is_lower, d, b)
        inner = np.where(is_lower, b - golden * (b - a), a + golden * (b - a))
        at_inner = loss(inner)
        c, d = np.where(is_lower, inner, d), np.where(is_lower, c, inner)
        at_c, at_d = np.where(is_lower, at_inner, at_d), np.where(is_lower, at_c, at_inner)
    at = (a + b) / 2
    return at, loss(at)


def polished(
    x: Array, make: Callable[[Array], Setup], comparison: Comparison, numbers: Indices | None = None
) -> Array:
    """Fitted numbers made exact by least squares: near the best one, errors are linear in it.

    numbers  for each head which of the numbers it uses; None: there is one number for all. Shared
             keys and values have gradients of several numbers: those do not count.
    """
    for _ in range(POLISH):
        size = np.maximum(np.abs(x), LEAST)
        step = 1e-5 * size
        before, after = (comparison.expected(make(at)) for at in (x, x + step))
        above, below = np.zeros(len(x)), np.zeros(len(x))
        for name, stage in comparison.errors.items():
            n_heads = stage.expected.shape[1]
            of_head = np.zeros(n_heads, np.intp) if numbers is None else numbers
            if len(of_head) != n_heads:
                continue
            noise = np.ones((1, 1, 1)) if stage.noise is None else stage.row_noise
            weight = 1 / np.maximum(noise, 1e-300)[..., None]
            with np.errstate(invalid="ignore", over="ignore"):
                slope = (after[name] - before[name]) / step[of_head, None, None] * weight
                residuals = (stage.observed - before[name]) * weight
            fine = np.isfinite(slope) & np.isfinite(residuals)
            slope, residuals = (np.where(fine, y, 0) for y in (slope, residuals))
            for sums, y in ((above, residuals), (below, slope)):
                np.add.at(sums, of_head, np.einsum("bhrd,bhrd->h", slope, y))
        with np.errstate(divide="ignore", invalid="ignore"):
            change = above / below
        x = x + np.clip(np.nan_to_num(change), -0.1 * size, 0.1 * size)
    return x


LEAST = 1e-3
"""A number nearer to 0 counts as so large: a sink may be 0 itself."""

POLISH = 3
"""Each time the error of a fitted number is squared, from about 10⁻⁸ on."""


def whole_minimum(
    loss: Loss, low: int, high: int, n: int = 1
) -> tuple[npt.NDArray[np.int64], Array]:
    """The same of whole numbers: ever finer grids around the best."""
    first, last = np.full(n, low), np.full(n, high)
    while True:
        step = np.maximum(1, -(-(last - first) // GRID))
        candidates = [np.minimum(first + i * step, last) for i in range(GRID + 1)]
        losses = np.array([loss(x) for x in candidates])
        best = losses.argmin(axis=0)
        at = np.array(candidates)[best, np.arange(n)]
        if (step == 1).all():
            return at.astype(np.int64), losses.min(axis=0)
        first, last = np.maximum(at - step, low), np.minimum(at + step, high)
