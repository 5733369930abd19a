"""Numbers fitted to what was observed: the one with the smallest misfit, and its simplest form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.check.comparison import Comparison
from attncli.check.run import Indices
from attncli.check.setup import Setup
from attncli.check.tolerance import distance, rms

Loss = Callable[[Array], Array]
"""Misfits of so many numbers, of which each is fitted by itself: [m] -> [m]."""

LEVEL = 1e-4
"""The noise of a row counts as at least so much of the errors to be explained: with that of float64
every number but the very best would be hopelessly far off, and the search would have no slope."""

FAR = 1e6
"""A number further off than so many noises is as wrong as one at this distance."""

GRID = 33
"""Into so many intervals a range is cut before the best is searched further."""

STEPS = 40
"""Each step leaves 0.618 of the interval: 40 leave 4·10⁻⁹ of it, about all that a sum of squares
can show in float64."""

FIRST_STEPS = 12
"""They leave 0.003 of the interval, which shows whether there is anything to find."""

EXPLAINED = 0.25
"""A fitted number must leave at most so much of the mean square of the errors to be a cause."""

ALIKE = 1.02
"""Numbers whose mean squares are this near fit alike: the simplest of them is said."""


def misfit(setup: Setup, comparison: Comparison) -> Array:
    """How far off a setup is: mean squares, over the noise, of each batch item and head."""
    total = np.zeros(comparison.subset.sizes[:2])
    for name, x in comparison.expected(setup).items():
        stage = comparison.errors[name]
        errors = distance(comparison.observed_by(setup, name), x)
        rows = stage.by_row[0]
        typical = rms(rows, np.asarray(np.isfinite(rows)))
        noise = np.full((1, 1, 1), typical)
        if stage.noise is not None:
            noise = np.maximum(stage.row_noise, LEVEL * typical)
        errors = np.minimum(errors / np.maximum(noise, 1e-300)[..., None], FAR)
        total += comparison.by_heads(name, np.square(errors).mean(axis=(-1, -2)))
    return total


def explains(least: Array, setup: Setup, comparison: Comparison) -> bool:
    """Whether the misfits left by fitted numbers (`least`) are small, and others confirm each."""
    is_confirmed = comparison.n_different >= SEVERAL * least.size
    return is_confirmed and bool(least.mean() < EXPLAINED * misfit(setup, comparison).mean())


SEVERAL = 3
"""So many numbers at least confirm each one that is fitted."""


def minimum(
    loss: Loss, low: float, high: float, n: int = 1, most: float = math.inf
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
        left = at_c < at_d
        a, b = np.where(left, a, c), np.where(left, d, b)
        inner = np.where(left, b - golden * (b - a), a + golden * (b - a))
        at_inner = loss(inner)
        c, d = np.where(left, inner, d), np.where(left, c, inner)
        at_c, at_d = np.where(left, at_inner, at_d), np.where(left, at_c, at_inner)
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
                left = (stage.observed - before[name]) * weight
            fine = np.isfinite(slope) & np.isfinite(left)
            slope, left = (np.where(fine, y, 0) for y in (slope, left))
            for sums, y in ((above, left), (below, slope)):
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


def roots(x: float) -> Iterator[tuple[float, str, tuple[float, float]]]:
    """1/√n and 1/n near x: the number, in words, and the two neighbours of its kind."""
    if not MOST_ROOT**-2 <= x <= MOST_ROOT**2:
        return
    for power, words in ((2, "1/√{}"), (1, "1/{}"), (-2, "√{}"), (-1, "{}")):
        n = round(x**-power) if power > 0 else round(x ** abs(power))
        if 1 < n <= MOST_ROOT:
            sign = -1 / power
            yield n**sign, words.format(n), ((n - 1) ** sign, (n + 1) ** sign)


MOST_ROOT = 1024
"""Widths of heads and of models are rarely larger."""


NEAR = 0.02
"""Only forms within so much of the fitted number are tried."""
