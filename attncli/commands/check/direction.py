"""Which way an error points: it tells a bug from rounding where both are of one size.

With E the exact stage, O the observed one, H that of a bug, and each row over its noise:

    β = ⟨O − E, H − E⟩ / ⟨H − E, H − E⟩        0: a right implementation; 1: that bug

Thousands of entries make β exact where every tolerance passes. Two simulated right implementations
say whether β can be believed on this input: one that rounds every stage, one that rounds the
weights alone. Where either has a β of its own, rounding itself points that way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.kernels import round_to
from attncli.commands.check.comparison import Comparison, Size
from attncli.commands.check.run import stages
from attncli.commands.check.setup import Setup
from attncli.commands.check.tolerance import HEAD_FACTOR, StageErrors, distance, rms
from attncli.stages import WEIGHTS

SHOWN = 16.0
"""A bug is decidable where it moves the rows by four standard deviations of their noise in all, as
the root of the sum of squares: fewer than 1 in 10,000 right results lie so far off by chance."""

LESS_SHOWN, SHARP = 4.0, 1 / 12
"""Or by two of them, if β itself is known to so little: a kernel that keeps float32 inside is more
exact than the noise says."""

OWN = 0.25
"""The largest β of a simulated right implementation with which a bug is still decidable."""

ERRORS = 4.0
"""How many standard errors from 1 the β of a bug may be."""

CLEAR = 8.0
"""By so many standard errors the β of a little of a bug must differ from 0: rounding that is not
simulated may have a β of its own."""

NEAR = 0.1, 0.35
"""However small or large its standard error is, β may be so far from 1, and no further: the noise
of the bug's own implementation moves it, and half way it would be no bug."""


class Beta(NamedTuple):
    """Which way an error points: 0 exact, 1 the other setup; and the standard error of that.

    shown  how far the other setup moves the rows: the sum of squares, over the noise
    """

    value: float
    error: float
    shown: float

    @property
    def is_decidable(self) -> bool:
        """Whether the input shows the other setup."""
        return self.shown >= SHOWN or (self.shown >= LESS_SHOWN and self.error <= SHARP)

    @property
    def is_bug(self) -> bool:
        """Whether the error is that of the other setup."""
        near = np.clip(ERRORS * self.error, *NEAR)
        return self.is_decidable and bool(abs(self.value - 1) <= near)

    def is_clear(self, times: float) -> bool:
        """Whether so many times the rows could show clearly that β is not 0."""
        return abs(self.value) * math.sqrt(times) >= CLEAR * self.error > 0

    @property
    def excludes(self) -> bool:
        """Whether the error is certainly not that of the other setup."""
        return self.is_decidable and self.value + ERRORS * self.error < 2 * OWN


def beta(observed: Array, other: Array, stage: StageErrors) -> Beta:
    """The direction of observed − expected along other − expected; rows count as one number each.

    The standard error allows for errors that are alike along a row, as those of its scores are.
    """
    noise = np.maximum(stage.row_noise, 1e-300)[..., None]
    with np.errstate(invalid="ignore", over="ignore"):
        error, way = (observed - stage.expected) / noise, (other - stage.expected) / noise
    counted = np.isfinite(error) & np.isfinite(way)
    error, way = np.where(counted, error, 0.0), np.where(counted, way, 0.0)
    way = np.clip(way, -1e150, 1e150)
    total = float((way * way).sum())
    if total == 0:
        return Beta(0.0, np.inf, 0.0)
    value = float((error * way).sum()) / total
    left = ((error - value * way) * way).sum(axis=-1)
    spread = float(np.sqrt(np.square(left).sum())) / total
    return Beta(value, spread, total / way.shape[-1])


class WithinRounding(NamedTuple):
    """A variant of a bug: what the directions of the stages that it changes say.

    betas  their β
    own    the largest |β| of a simulated right implementation
    left   the errors left, by stage
    """

    setup: Setup
    betas: tuple[Beta, ...]
    own: float
    left: Mapping[str, Size]

    @property
    def is_found(self) -> bool:
        """Whether every stage that can decide says that it is this bug."""
        deciding = [one for one in self.betas if one.is_decidable]
        return self.own < OWN and bool(deciding) and all(one.is_bug for one in deciding)

    @property
    def is_decidable(self) -> bool:
        """Whether the input shows the bug at all."""
        return self.own < OWN and any(one.is_decidable for one in self.betas)

    def is_likely(self, times: float) -> bool:
        """Whether so many times the rows could show that it is this bug."""
        shown = sum(one.shown for one in self.betas)
        lowest = min(one.value + ERRORS * one.error for one in self.betas)
        return shown * times >= LESS_SHOWN and lowest >= 1 - NEAR[1]


class Directions:
    """What the errors of a comparison that matches point to."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        setup, dtype = comparison.setup, comparison.rule.dtype
        self.right = [stages(setup, comparison.subset, comparison.errors, dtype)]
        if WEIGHTS not in setup.patched:
            kept = setup.with_result(WEIGHTS, partial(round_to, dtype=dtype))
            fused = stages(kept, comparison.subset, comparison.errors)
            self.right.append({name: round_to(x, dtype) for name, x in fused.items()})

    def of(self, setup: Setup) -> WithinRounding | None:
        """What this setup is: None where it changes nothing, or where the error is not its own."""
        betas, left, own = [], {}, 0.0
        for name, other in self.comparison.expected(setup).items():
            stage = self.comparison.errors[name]
            one = beta(stage.observed, other, stage)
            if one.shown == 0 or not np.isfinite(one.shown):
                continue
            errors = distance(stage.observed, other)
            left[name] = Size(rms(errors), float(errors.max(initial=0.0)))
            own = max(own, *(abs(beta(right[name], other, stage).value) for right in self.right))
            betas.append(one)
        return WithinRounding(setup, tuple(betas), own, left) if betas else None

    def exactness(self) -> str:
        """How exact numbers in 16 bits are, beside the two simulated right implementations."""
        fused = self.right[-1]
        kept = all(
            rms(stage.by_row[0]) <= HEAD_FACTOR * rms(distance(fused[name], stage.expected))
            for name, stage in self.comparison.errors.items()
        )
        return (
            f"as exact as a kernel that {'keeps float32 inside' if kept else 'rounds every stage'}"
        )
