"""Comparison: observed stages over a subset and those of a setup; which other setup fits them?"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.check.arithmetic import simulation
from attncli.check.noise import SMALL
from attncli.check.perturbed import perturbed_noise
from attncli.check.run import Indices, Subset, all_of, stages, stages_and_noise
from attncli.check.setup import Setup
from attncli.check.spans import is_whole, span_of
from attncli.check.tolerance import (
    ROW_FLOOR,
    Rule,
    StageErrors,
    distance,
    errors_of,
    largest,
    rms,
    row_rms,
)
from attncli.stages import GRADIENTS, LSE, OUTPUT, kind_of

CLOSER = 0.5
"""A bug must explain at least half of the difference. A difference just over the tolerance is
brought under it by any change that moves the numbers a little in the right direction; one that
explains half of it has moved them by at least half the tolerance, which is no accident."""

SAMPLE_FACTOR = 2.0
"""A sample is allowed more than everything: its noise may be less than that of all, perhaps half of
it. What passes the sample by mistake is judged again on everything."""

SAME_DIGITS = 6
"""Numbers that agree in so many digits, beside the largest of their stage, are one number."""


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
    def is_whole(self) -> bool:
        """Whether a stage of it depends on all queries, so that no rows are left out."""
        return is_whole(self.errors, self.setup.how.softmax_over)

    @cached_property
    def n_different(self) -> int:
        """How many different numbers were observed; such as are and should be equal count once."""
        both = (stage.expected + 1j * stage.observed for stage in self.errors.values())
        pairs = np.concatenate([x.ravel() / max(largest(x), 1e-300) for x in both])
        return len(np.unique(pairs.round(SAME_DIGITS)))

    @property
    def matches(self) -> bool:
        """Whether every stage is within its tolerance."""
        return all(stage.matches for stage in self.errors.values())

    def observed_by(self, setup: Setup, stage: str) -> Array:
        """A stage as observed, in the layout that is right under this setup."""
        if stage not in setup.relayout:
            return self.errors[stage].observed
        return setup.relayout[stage](self.observed[stage])[np.ix_(*self.positions(stage))]

    def positions(self, stage: str) -> tuple[Indices, ...]:
        """Which batch items, heads and rows of an observed stage are compared."""
        span = span_of(stage, self.setup.how.softmax_over)
        if span == "rows":
            return tuple(self.at)
        sizes = tuple(np.arange(n) for n in self.observed[stage].shape[:3])
        if span == "totals":
            return sizes
        return self.at.batch, self.setup.key_heads_of(self.at.head), sizes[2]

    def by_heads(self, stage: str, x: Array) -> Array:
        """Numbers of each batch item and head of a stage, for each batch item and query head."""
        span = span_of(stage, self.setup.how.softmax_over)
        if span == "keys":
            keys = self.setup.key_heads_of(self.subset.head)
            mine = self.setup.key_heads_by_grouping[self.subset.head]
            return x[:, np.searchsorted(keys, mine)]
        return np.broadcast_to(x, self.subset.sizes[:2]) if span == "rows" else x.max(keepdims=True)

    def of_rows(self) -> Comparison:
        """The comparison of those stages alone whose rows depend on their own queries."""
        over = self.setup.how.softmax_over
        errors = {x: stage for x, stage in self.errors.items() if span_of(x, over) == "rows"}
        return replace(self, errors=errors)

    def expected(self, setup: Setup) -> dict[str, Array]:
        """The observed stages as this setup computes them."""
        return stages(setup, self.subset, self.errors)

    def beside(self, setup: Setup, rule: Rule | None = None) -> dict[str, StageErrors]:
        """What was observed beside the stages of another setup, or by another rule."""
        observed = {name: self.observed_by(setup, name) for name in self.errors}
        return compared(setup, self.subset, observed, rule or self.rule, self.loose)

    def sample(self, at: Subset) -> Comparison:
        """The comparison of some positions alone, which is allowed a little more."""
        if self.is_whole:
            return self._whole_sample(at)
        errors = {name: x.at(*at, loose=SAMPLE_FACTOR) for name, x in self.errors.items()}
        subset, whole = self.subset.take(at), self.at.take(at)
        return replace(self, subset=subset, errors=errors, at=whole, loose=SAMPLE_FACTOR)

    def _whole_sample(self, at: Subset) -> Comparison:
        """The same of whole batch items and key heads; without totals where anything is left."""
        over = self.setup.how.softmax_over
        spans = {name: span_of(name, over) for name in self.errors}
        keys = self.setup.key_heads_of(self.subset.head[at.head])
        mine = self.setup.key_heads_by_grouping[self.subset.head]
        heads = np.flatnonzero(np.isin(mine, keys))
        at = Subset(at.batch, heads, np.arange(self.subset.sizes[2]))
        is_all = at.sizes == self.subset.sizes
        kept = [name for name, span in spans.items() if is_all or span != "totals"]
        if not kept or is_all:
            loose = {name: replace(x, loose=SAMPLE_FACTOR) for name, x in self.errors.items()}
            return replace(self, errors=loose, loose=SAMPLE_FACTOR)
        key_heads = np.searchsorted(self.setup.key_heads_of(self.subset.head), keys)
        errors = {}
        for name in kept:
            stage = self.errors[name]
            of_keys = at.batch, key_heads, np.arange(stage.expected.shape[2])
            positions = at if spans[name] == "rows" else of_keys
            errors[name] = stage.at(*positions, loose=SAMPLE_FACTOR)
        subset, whole = self.subset.take(at), self.at.take(at)
        return replace(self, subset=subset, errors=errors, at=whole, loose=SAMPLE_FACTOR)


def comparison_of(
    setup: Setup, subset: Subset, observed: Mapping[str, Array], rule: Rule
) -> Comparison:
    """The comparison of what was observed with the setup."""
    errors = compared(setup, subset, observed, rule)
    return Comparison(setup, subset, rule, errors, observed, all_of(subset.sizes))


def compared(
    setup: Setup, subset: Subset, observed: Mapping[str, Array], rule: Rule, loose: float = 1.0
) -> dict[str, StageErrors]:
    """What was observed beside the stages of a setup, by the rule or beside the noise."""
    by_noise = {name for name in observed if rule.of(name).kind == "noise"}
    parts: Collection[str] = observed if setup.tiles else (OUTPUT,) if setup.split else ()
    drawn = by_noise & {*parts, *GRADIENTS, LSE}
    errors: dict[str, StageErrors] = {}
    for name, x in stages(setup, subset, observed.keys() - by_noise).items():
        errors[name] = StageErrors(observed[name], x, rule.of(name), loose=loose)
    plain = replace(rule, kind="noise")
    for names in filter(None, (by_noise - drawn, drawn)):
        some = {name: x for name, x in observed.items() if name in names}
        errors |= _beside_noise(setup, subset, some, plain, loose, is_drawn=names is drawn)
    return {name: errors[name] for name in observed}


def _beside_noise(
    setup: Setup,
    subset: Subset,
    observed: Mapping[str, Array],
    rule: Rule,
    loose: float,
    *,
    is_drawn: bool,
) -> dict[str, StageErrors]:
    """What was observed beside the stages of a setup, with the noise of a right implementation.

    The noise of a row is the larger of two: what rounding does to first order (is_drawn, of
    gradients, lse and parts: see perturbed.py), and what the stages are off by that are computed
    in the number type. In float32 and float64, where sums matter most, the second is nearly always
    smaller: it is computed where the first allows less than there is.
    """
    noise: dict[str, Array] = {}
    heads: dict[str, Array] = {}
    has_long_type = rule.dtype not in SMALL and rule.inside is None

    def judged() -> dict[str, StageErrors]:
        return {
            name: StageErrors(
                observed[name],
                x,
                rule.of(name),
                noise.get(name),
                setup.how.mask_value,
                loose,
                head_noise=heads.get(name),
                are_shares=kind_of(name).sums,
            )
            for name, x in expected.items()
        }

    if is_drawn:
        setup = setup.in_parts()
        expected = stages(setup, subset, observed)
        noise = perturbed_noise(setup, subset, expected, rule.arithmetic())
    else:
        if has_long_type and subset.sizes[2] > 4 * FEW:
            expected = stages(setup, subset, observed)
            noise, heads = noise_of_few(setup, subset, observed, rule)
            if _is_enough(errors := judged()):
                return errors
            heads = {}
        expected, noise = stages_and_noise(setup, subset, observed, rule.arithmetic())
    if has_long_type and _is_enough(errors := judged()):
        return errors
    _simulate(setup, subset, observed, rule, expected, noise)
    return judged()


def _is_enough(errors: Mapping[str, StageErrors]) -> bool:
    """Whether all match, or a head is so far off that no other estimate of the noise allows it."""
    far = any(stage.ratios.head > CERTAINLY for stage in errors.values())
    return far or all(stage.matches for stage in errors.values())


def _simulate(
    setup: Setup,
    subset: Subset,
    observed: Mapping[str, Array],
    rule: Rule,
    expected: Mapping[str, Array],
    noise: dict[str, Array],
) -> None:
    """Puts into the noise what the stages are off by that are computed in the number type."""
    rounded, dtype, factor = simulation(setup, rule)
    simulated = stages(rounded, subset, observed, dtype)
    for name, x in expected.items():
        result = simulated.pop(name)
        if dtype == setup.how.dtype:  # what overflows in the type that is asked for is expected to
            is_both = ~np.isfinite(result) & (distance(observed[name], result) == 0)
            np.copyto(x, result, where=is_both)
        off = errors_of(result, x, rule, setup.how.mask_value)
        off[~(np.isfinite(off) & np.isfinite(x))] = 0.0
        noise[name] = np.fmax(noise[name], factor * row_rms(off))


CERTAINLY = 20.0
"""A head that is off by so many times what is allowed is wrong, however its noise is estimated."""

FEW = 32
"""So many rows of a head say how large the noise of the head is, to about a tenth of it."""


def noise_of_few(
    setup: Setup, subset: Subset, wanted: Collection[str], rule: Rule
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The noise of a few rows of each head, at the others the least that counts; that of heads."""
    n_rows = subset.sizes[2]
    few = np.unique(np.linspace(0, n_rows - 1, FEW).round().astype(np.intp))
    rows = subset.with_axis(2, subset.row[few])
    noise, heads = {}, {}
    for name, x in stages_and_noise(setup, rows, wanted, rule.arithmetic())[1].items():
        heads[name] = row_rms(x)
        least = ROW_FLOOR * heads[name][..., None]
        noise[name] = np.broadcast_to(least, subset.sizes).copy()
        noise[name][:, :, few] = x
    return noise, heads


class Size(NamedTuple):
    """How large the errors of a stage are."""

    rms: float
    largest: float


class Fit(NamedTuple):
    """A setup that explains what was observed, and what is left of the errors of each stage."""

    setup: Setup
    errors: Mapping[str, Size]


def fit(setup: Setup, comparison: Comparison) -> Fit | None:
    """The setup as an explanation of everything that was observed, or None.

    Each stage must be within the tolerance of the setup's own noise; where entries are wrong the
    setup must be at least twice as near, and its noise no larger than that: noise as large as the
    difference could explain anything.
    """
    by_noise = [name for name, x in comparison.errors.items() if x.rule.kind == "noise"]
    if by_noise and comparison.loose > 1:  # most setups fail here; what passes a sample rarely does
        wrong = [name for name in by_noise if comparison.errors[name].wrong.any()]
        if wrong and len(comparison.errors) > 1:  # at one stage alone, often
            alone = stages(setup, comparison.subset, wrong[:1])[wrong[0]]
            if not is_closer(setup, wrong[0], alone, comparison):
                return None
        expected = comparison.expected(setup)
        if not all(is_closer(setup, name, expected[name], comparison) for name in by_noise):
            return None
        if _is_far(setup, expected, comparison):
            return None
    errors = comparison.beside(setup)
    for name, stage in errors.items():
        if not stage.matches or (
            name in by_noise and not _is_quiet(stage, comparison.errors[name])
        ):
            return None
        if name in by_noise and not is_closer(setup, name, stage.expected, comparison):
            return None
    return Fit(setup, {name: Size(x.typical, x.largest) for name, x in errors.items()})


def _is_far(setup: Setup, expected: Mapping[str, Array], comparison: Comparison) -> bool:
    """Whether a gradient is further from this setup than any noise: that of one draw will do."""
    rule = comparison.rule
    gradients = {
        name: x
        for name, x in expected.items()
        if name in (*GRADIENTS, LSE)
        and rule.of(name).kind == "noise"
        and math.prod(x.shape[2:]) >= FEW
    }
    if not gradients or rule.inside is not None:
        return False
    noise = perturbed_noise(setup, comparison.subset, gradients, rule.arithmetic(), draws=1)
    for name, x in gradients.items():
        observed = comparison.observed_by(setup, name)
        stage = StageErrors(observed, x, rule.of(name), noise[name], loose=comparison.loose)
        if stage.ratios.head > FAR:
            return True
    return False


FAR = 5 * CERTAINLY
"""The same by one draw, which is that of a head of 32 numbers to about an eighth."""


def is_closer(setup: Setup, name: str, expected: Array, comparison: Comparison) -> bool:
    """Whether a setup explains at least half of what is wrong with a stage."""
    plain = comparison.errors[name]
    observed = comparison.observed_by(setup, name)
    errors = errors_of(observed, expected, plain.rule, setup.how.mask_value)
    return not np.isinf(errors).any() and rms(errors, plain.wrong) <= CLOSER * plain.typical_wrong


def _is_quiet(stage: StageErrors, plain: StageErrors) -> bool:
    """Whether the noise of a setup is at most half of the difference that it explains."""
    if stage.noise is None or not plain.wrong.any():
        return True
    rows: BoolArray = np.asarray(plain.wrong.any(axis=-1))
    before = plain.typical_wrong
    if np.isinf(before):  # one of the two is NaN or infinite: the size of the other
        either = np.where(np.isfinite(plain.expected), plain.expected, plain.observed)
        before = rms(np.abs(either[plain.wrong & np.isfinite(either)]))
    return bool(rms(stage.noise, rows) <= max(CLOSER * before, 1e-300))
