"""Comparison: observed stages over a subset and those of a setup; which other setup fits them?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.functional import round_to, widen
from attncli.check.run import Indices, Subset, all_of, stages
from attncli.check.setup import Setup
from attncli.check.tolerance import Rule, Tolerance, distance, noise_of, rms
from attncli.convention import DType

CLOSER = 0.5
"""A bug must explain at least half of the difference. A difference just over the tolerance is
brought under it by any change that moves the numbers a little in the right direction; one that
explains half of it has moved them by at least half the tolerance, which is no accident."""

LIKE_NOISE = 3.0
"""What a bug leaves may be so many times its noise, both as root mean squares: the factor that
`NOISE_FACTOR` allows a 16-bit implementation that rounds elsewhere. The tolerance alone goes by the
largest noise, and where one entry is noisy it would conceal a difference in all the others."""

SAMPLE_FACTOR = 2.0
"""A sample is allowed more than everything: its largest noise may be less than the largest, perhaps
half of it. What passes the sample by mistake is judged again on everything."""


@dataclass(frozen=True, eq=False)
class StageErrors:
    """One stage, [batch, head, row, last]: two arrays and how far they are apart.

    Each may be as large as all stages together, so what follows from them is made when asked for.

    tolerance  how far they may be apart
    wrong      errors > allowed
    """

    observed: Array
    expected: Array
    tolerance: Tolerance
    wrong: BoolArray

    @property
    def errors(self) -> Array:
        """|observed − expected|."""
        return distance(self.observed, self.expected)

    @property
    def allowed(self) -> Array:
        """The tolerance of every entry."""
        return self.tolerance.of(self.expected)

    @cached_property
    def largest(self) -> float:
        """The largest error."""
        return float(self.errors.max(initial=0.0))

    @cached_property
    def typical(self) -> float:
        """The root mean square of the errors that are too large."""
        return rms(self.errors, self.wrong)

    def at(self, positions: Subset) -> StageErrors:
        """The same at these positions of the batch items, heads and rows."""
        at = np.ix_(*positions)
        return StageErrors(self.observed[at], self.expected[at], self.tolerance, self.wrong[at])


@dataclass(frozen=True, eq=False)
class Comparison:
    """Observed stages over a subset, compared with a setup that has no bug.

    errors    by stage
    observed  the stages whole, and `at` the positions of them that are compared
    loose     a factor on the tolerance, for a sample
    """

    setup: Setup
    subset: Subset
    rule: Rule
    errors: Mapping[str, StageErrors]
    observed: Mapping[str, Array]
    at: Subset
    loose: float = 1.0

    @property
    def matches(self) -> bool:
        """Whether every entry is within its tolerance."""
        return not any(stage.wrong.any() for stage in self.errors.values())

    def observed_by(self, setup: Setup, stage: str) -> Array:
        """A stage as observed, in the layout that is right under this setup."""
        if stage not in setup.relayout:
            return self.errors[stage].observed
        return setup.relayout[stage](self.observed[stage])[np.ix_(*self.at)]

    def expected(self, setup: Setup) -> dict[str, Array]:
        """The observed stages as this setup computes them."""
        return stages(setup, self.subset, self.errors)


def comparison_of(
    setup: Setup, subset: Subset, observed: Mapping[str, Array], rule: Rule
) -> Comparison:
    """The comparison of what was observed with the setup."""
    expected = stages(setup, subset, observed)
    noise = noise_over(setup, subset, expected, rule)
    errors = {}
    for name, x in expected.items():
        tolerance = rule.tolerance(x, noise.pop(name), setup.how.mask_value)
        wrong = distance(observed[name], x) > tolerance.of(x)
        errors[name] = StageErrors(observed[name], x, tolerance, wrong)
    return Comparison(setup, subset, rule, errors, observed, all_of(subset.sizes))


def noise_over(
    setup: Setup, subset: Subset, expected: Mapping[str, Array], rule: Rule
) -> dict[str, Array]:
    """The noise of every entry of a setup, in the observed type."""
    if rule.kind != "noise":
        return {name: np.zeros(1) for name in expected}
    rounded = stages(setup, subset, expected, rule.noise_type()[0])
    return {name: noise_of(rounded.pop(name), x, rule) for name, x in expected.items()}


class Fit(NamedTuple):
    """A setup that explains what was observed, and the largest error of each stage."""

    setup: Setup
    errors: Mapping[str, float]


def fit(setup: Setup, comparison: Comparison) -> Fit | None:
    """The setup as an explanation of everything that was observed, or None.

    Each observed stage must be within the tolerance of the setup's own noise; where the comparison
    has wrong entries the setup must be at least twice as near, and as near as its noise.
    """
    rule, expected = comparison.rule, comparison.expected(setup)
    by_noise, largest = rule.kind == "noise", {}
    for name, plain in comparison.errors.items() if by_noise else ():
        wrong, most = plain.wrong, CLOSER * plain.typical
        errors = distance(comparison.observed_by(setup, name), expected[name])
        if np.isinf(errors).any() or rms(errors, wrong) > most:  # not at most half as wrong
            return None
        del errors  # before the next ones are made
    noise = noise_over(setup, comparison.subset, expected, rule)
    for name, x in expected.items():
        level = Level.of(noise.pop(name), comparison.errors[name])
        errors = distance(comparison.observed_by(setup, name), x)
        allowed = rule.tolerance(x, level.largest, setup.how.mask_value)
        if (errors > comparison.loose * allowed.of(x)).any():
            return None
        if by_noise and not _like_noise(errors, x, level, name, comparison):
            return None
        largest[name] = float(errors.max(initial=0.0))
    return Fit(setup, largest)


class Level(NamedTuple):
    """The noise of a stage: the largest, and root mean squares of all and of the wrong entries."""

    largest: float
    typical: float
    at_wrong: float

    @classmethod
    def of(cls, noise: Array, plain: StageErrors) -> Level:
        """The level of this noise, which is of the shape of the stage, or one 0."""
        at_wrong = rms(noise, plain.wrong) if noise.shape == plain.wrong.shape else 0.0
        return cls(float(noise.max()), rms(noise), at_wrong)


def _like_noise(
    errors: Array, expected: Array, noise: Level, stage: str, comparison: Comparison
) -> bool:
    """Whether the entries that were wrong are now wrong by no more than noise.

    Noise as large as the difference itself could explain anything, so it explains nothing.
    """
    plain = comparison.errors[stage]
    wrong = plain.wrong
    if not wrong.any():
        return True
    floor = max(noise.typical, noise.at_wrong)
    tiny = float(np.median(comparison.rule.allowed(expected, 0.0), overwrite_input=True))
    left, before = rms(errors, wrong), plain.typical
    if np.isinf(before):
        before = rms(np.abs(expected[wrong & np.isfinite(expected)]))
    if left > LIKE_NOISE * comparison.loose * floor + tiny:
        return False
    return left <= tiny or floor <= CLOSER * before


# ---- a sample: a few batch items, heads and rows that represent all

SAMPLE = 2**15
"""About how many scores a sample has: enough for every pattern, and computed in a millisecond."""
MOST = 2, 2, 16
"""How many batch items, heads and rows a sample has at most; and at least four rows of any width,
two of the worst and two of the others."""


def sample_of(comparison: Comparison) -> Comparison:
    """The comparison with a sample of its subset: the same for the same input.

    Of each axis the entries with the largest error, then the first, the last and some between.
    """
    worst = _row_errors(comparison.errors)
    batch = _chosen(worst.max(axis=(1, 2)), MOST[0])
    head = _chosen(worst[batch].max(axis=(0, 2)), MOST[1])
    n_rows = SAMPLE // (comparison.setup.shape[3] * len(batch) * len(head))
    row = _chosen(worst[np.ix_(batch, head)].max(axis=(0, 1)), max(4, min(MOST[2], n_rows)))
    at = Subset(batch, head, row)
    subset, loose = comparison.subset.take(at), SAMPLE_FACTOR
    errors = {name: x.at(at) for name, x in comparison.errors.items()}
    return replace(comparison, subset=subset, errors=errors, at=at, loose=loose)


def _row_errors(errors: Mapping[str, StageErrors]) -> Array:
    """[batch, head, row]: the largest error of each row, relative to the largest of its stage."""
    total: Array = np.zeros(1)
    for stage in errors.values():
        rows = np.minimum(stage.errors.max(axis=-1), np.finfo(np.float64).max)
        top = rows.max()
        total = np.maximum(total, rows / top if top > 0 else rows)
    return total


def _chosen(errors: Array, most: int) -> Indices:
    """Positions of up to `most` entries: half of them the worst, the others evenly spread."""
    if len(errors) <= most:
        return np.arange(len(errors))
    worst = np.argsort(-errors, kind="stable")[: max(1, most // 2)]
    spread = np.linspace(0, len(errors) - 1, most - len(worst)).round().astype(np.intp)
    return np.unique(np.concatenate([worst, spread]))


# ---- sums kept in low precision: no bug, a wider noise floor


def one_by_one(dtype: DType) -> Callable[[Array, Array], Array]:
    """A matrix product that rounds its running sum to dtype after every term.

    [..., n, m], [..., m, p] -> [..., n, p]

    >>> a = np.full((1, 300), 1.0, dtype=np.float32)
    >>> one_by_one("bfloat16")(a, a.T).item()
    256.0
    """

    def multiply(a: Array, b: Array) -> Array:
        total = np.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
        for term in range(a.shape[-1]):
            product = a[..., :, term, None] * b[..., None, term, :]
            total = widen(round_to(total + product, dtype), dtype)
        return total

    return multiply


def within_low_sums(comparison: Comparison, sample: Comparison) -> bool:
    """Whether everything that is wrong is within the noise of sums kept in the observed type."""
    rule, setup = comparison.rule, comparison.setup
    if rule.kind != "noise" or setup.whole_axis is not None:
        return False
    multiply = one_by_one(rule.noise_type()[0])
    low = setup.with_steps(
        scores=lambda q, k: multiply(q, np.swapaxes(k, -1, -2)),
        output=lambda a, v, allowed=None: multiply(a, v),
    )
    expected = {name: x.expected for name, x in sample.errors.items()}
    noise = noise_over(low, sample.subset, expected, rule)
    return all(
        (x.errors <= rule.allowed(x.expected, noise[name], setup.how.mask_value)).all()
        for name, x in comparison.errors.items()
    )
