"""Which way an error points: it tells a bug from rounding where both are of one size.

With E the exact stage, O the observed one, H that of a bug, and each row over its noise:

    β = ⟨O − E, H − E⟩ / ⟨H − E, H − E⟩        0: a right implementation; 1: that bug

Thousands of entries make β exact where every tolerance passes. Two simulated right implementations
say whether β can be believed on this input: one that rounds every stage, one that rounds the
weights alone. Where either has a β of its own, rounding itself points that way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.formula.kernels import round_to
from attncli.stages import WEIGHTS
from attncli.tolerance.comparison import Comparison, Size
from attncli.tolerance.noise import simulation
from attncli.tolerance.number_types import EPS, TF32_EPS
from attncli.tolerance.rule import HEAD_FACTOR, StageErrors, distance, rms
from attncli.tolerance.run import stages
from attncli.tolerance.samples import sample_of, wide_sample_of
from attncli.tolerance.setup import Setup

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

    effect  how far the other setup moves the rows: the sum of squares, over the noise
    """

    value: float
    error: float
    effect: float

    @property
    def is_decidable(self) -> bool:
        """Whether the input shows the other setup."""
        return self.effect >= SHOWN or (self.effect >= LESS_SHOWN and self.error <= SHARP)

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
    residuals = ((error - value * way) * way).sum(axis=-1)
    spread = float(np.sqrt(np.square(residuals).sum())) / total
    return Beta(value, spread, total / way.shape[-1])


class WithinRounding(NamedTuple):
    """A variant of a bug: what the directions of the stages that it changes say.

    betas       their β
    right_beta  the largest |β| of a simulated right implementation
    residuals   the errors left, by stage
    """

    setup: Setup
    betas: tuple[Beta, ...]
    right_beta: float
    residuals: Mapping[str, Size]

    @property
    def is_found(self) -> bool:
        """Whether every stage that can decide says that it is this bug."""
        deciding = [stage_beta for stage_beta in self.betas if stage_beta.is_decidable]
        return (
            self.right_beta < OWN
            and bool(deciding)
            and all(stage_beta.is_bug for stage_beta in deciding)
        )

    @property
    def is_decidable(self) -> bool:
        """Whether the input shows the bug at all."""
        return self.right_beta < OWN and any(stage_beta.is_decidable for stage_beta in self.betas)

    def is_likely(self, times: float) -> bool:
        """Whether so many times the rows could show that it is this bug."""
        effect = sum(stage_beta.effect for stage_beta in self.betas)
        lowest = min(stage_beta.value + ERRORS * stage_beta.error for stage_beta in self.betas)
        return effect * times >= LESS_SHOWN and lowest >= 1 - NEAR[1]


class Directions:
    """What the errors of a comparison that matches point to."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison
        setup, dtype, _ = simulation(comparison.setup, comparison.rule)
        self.right = [stages(setup, comparison.subset, comparison.errors, dtype)]
        if WEIGHTS not in setup.patched:
            rounded = comparison.setup.with_result(WEIGHTS, partial(round_to, dtype=dtype))
            fused = stages(rounded, comparison.subset, comparison.errors)
            self.right.append({name: round_to(x, dtype) for name, x in fused.items()})

    def of(self, setup: Setup) -> WithinRounding | None:
        """What this setup is: None where it changes nothing, or where the error is not its own."""
        betas, residuals, right_beta = [], {}, 0.0
        for name, other in self.comparison.expected(setup).items():
            stage = self.comparison.errors[name]
            stage_beta = beta(stage.observed, other, stage)
            if stage_beta.effect == 0 or not np.isfinite(stage_beta.effect):
                continue
            errors = distance(stage.observed, other)
            residuals[name] = Size(rms(errors), float(errors.max(initial=0.0)))
            right_beta = max(
                right_beta, *(abs(beta(right[name], other, stage).value) for right in self.right)
            )
            betas.append(stage_beta)
        return WithinRounding(setup, tuple(betas), right_beta, residuals) if betas else None

    def exactness(self) -> str:
        """How exact numbers in 16 bits are, beside the two simulated right implementations."""
        fused = self.right[-1]
        is_float32_inside = all(
            rms(stage.by_row[0]) <= HEAD_FACTOR * rms(distance(fused[name], stage.expected))
            for name, stage in self.comparison.errors.items()
        )
        words = "keeps float32 inside" if is_float32_inside else "rounds every stage"
        return f"as exact as a kernel that {words}"


# ---- errors that a few numbers make

LITTLE = 1e-4
"""By so much a number is changed to see which way it moves a stage: far above rounding."""

SYSTEMATIC, LEFT = 0.6, 0.4
"""Errors of which a few numbers explain the first share, beyond what as many random ones would, are
no rounding, if these leave at most the second as much of them as of the errors of simulated right
implementations: where a query sees one key alone, they explain all of any errors."""

TIMES = 4
"""So many numbers must be there for each one that may explain them: then the share of errors that
are random is below 0.6 in all but 1 of 10,000 heads."""


def is_systematic(comparison: Comparison) -> bool:
    """Whether the errors of a head, or all, follow from factors of channels of K and V, and a sink.

    comparison  by the arithmetic inside. All scores, and all outputs, may be off by one factor
                each, no further from 1 than the next number of this arithmetic: that is what
                cutting off does, where others round
    """
    sample = wide_sample_of(comparison) or sample_of(comparison)
    setup, right = sample.setup, Directions(sample).right
    moved = [sample.expected(other) for other in _moved_a_little(setup)]
    inside = comparison.rule.inside
    unit = TF32_EPS if inside == "tf32" else EPS[inside or comparison.rule.dtype]
    for name, stage in sample.of_rows().errors.items():
        if stage.expected.shape[1] != sample.subset.sizes[1]:
            continue
        noise = np.maximum(stage.row_noise, 1e-300)[..., None]
        arrays = [stage.observed, *(x[name] for x in (*right, *moved))]
        with np.errstate(invalid="ignore", over="ignore"):
            errors = np.array([(x - stage.expected) / noise for x in arrays])
        every = np.arange(errors.shape[2])
        for heads in (every, *every[:, None]):
            of_heads = errors[:, :, heads].reshape(len(errors), -1)
            of_heads = of_heads[:, np.isfinite(of_heads).all(axis=0)]
            observed, *simulated = of_heads[: 1 + len(right)]
            ways = of_heads[1 + len(right) :] / LITTLE
            shares = [_explained(x, ways, unit) for x in (observed, *simulated)]
            if shares[0] > SYSTEMATIC and 1 - shares[0] < LEFT * (1 - max(shares[1:])):
                return True
    return False


def _moved_a_little(setup: Setup) -> Iterator[Setup]:
    """All keys, all values, then each channel of these, larger by a little; and the sinks."""
    for name in "kv":
        yield setup.with_inputs(**{name: setup.inputs[name] * (1 + LITTLE)})
    for name in "kv":
        for channel in range(setup.inputs[name].shape[-1]):
            x = setup.inputs[name].copy()
            x[..., channel] *= 1 + LITTLE
            yield setup.with_inputs(**{name: x})
    if "sinks" in setup.inputs:
        yield setup.with_inputs(sinks=setup.inputs["sinks"] + LITTLE)


def _explained(errors: Array, ways: Array, unit: float) -> float:
    """The share of the mean square of errors that the ways explain, beyond chance; 0 if too few.

    The first two, by up to a unit, are taken out before.
    """
    ways = ways[np.abs(ways).max(axis=1, initial=0.0) > 0]
    n_ways, n = ways.shape
    if n_ways < 2 or n < TIMES * n_ways:
        return 0.0
    factors = np.linalg.lstsq(ways[:2].T, errors)[0]
    residuals = errors - np.clip(factors, -unit, unit) @ ways[:2]
    if not (total := float(residuals @ residuals)):
        return 0.0
    rest = residuals - np.linalg.lstsq(ways.T, residuals)[0] @ ways
    unexplained = float(rest @ rest) / total
    return float(1 - unexplained * (n - 1) / (n - n_ways - 1))
