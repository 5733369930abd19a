"""Comparison: observed stages over a subset and those of a setup; which other setup fits them?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.stages import spec_of
from attncli.tolerance.noise import AGAIN, FEW, draws_of, rounding_noise, simulated_noise
from attncli.tolerance.number_types import SMALL, Arithmetic, row_rms
from attncli.tolerance.rule import (
    ROW_FLOOR,
    Rule,
    StageErrors,
    errors_of,
    largest,
    rms,
)
from attncli.tolerance.run import Indices, Subset, all_of, stages
from attncli.tolerance.setup import Relayout, Setup
from attncli.tolerance.spans import OF_ALL_HEADS, is_whole, rows_of, span_of

CLOSER = 0.5
"""A bug must explain at least half of the difference. A difference just over the tolerance is
brought under it by any change that moves the numbers a little in the right direction; one that
explains half of it has moved them by at least half the tolerance, which is no accident."""

SAMPLE_SLACK = 2.0
"""A sample is allowed more than everything: its noise may be less than that of all, perhaps half of
it. What passes the sample by mistake is judged again on everything."""

SAME_DIGITS = 6
"""Numbers that agree in so many digits, beside the largest of their stage, are one number."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Observed stages over a subset, compared with a setup that has no bug.

    errors    by stage
    observed  the stages whole, and `at` the positions of them that are compared
    slack     a factor on the tolerance, for a sample
    relayouts the observed stages of a sample in the layouts that they were tried in
    """

    setup: Setup
    subset: Subset
    rule: Rule
    errors: Mapping[str, StageErrors]
    observed: Mapping[str, Array]
    at: Subset
    slack: float = 1.0
    relayouts: dict[tuple[str, Relayout], Array] = field(default_factory=dict, init=False)

    @property
    def is_whole(self) -> bool:
        """Whether a stage of it depends on all queries, so that no rows are left out."""
        return is_whole(self.errors, self.setup.convention.softmax_over)

    @cached_property
    def n_different(self) -> int:
        """How many different numbers were observed; such as are and should be equal count once."""
        return n_different(*(x.expected + 1j * x.observed for x in self.errors.values()))

    def has_different(self, n: int) -> bool:
        """Whether there are at least n of them: mostly the first numbers say so."""
        parts = (
            x.ravel()[: 16 * n] for y in self.errors.values() for x in (y.expected, y.observed)
        )
        return any(n_different(x) >= n for x in parts) or self.n_different >= n

    @property
    def matches(self) -> bool:
        """Whether every stage is within its tolerance."""
        return all(stage.matches for stage in self.errors.values())

    def observed_by(self, setup: Setup, stage: str) -> Array:
        """A stage as observed, in the layout that is right under this setup."""
        if stage not in setup.relayout:
            return self.errors[stage].observed
        key = stage, setup.relayout[stage]
        if key in self.relayouts:
            return self.relayouts[key]
        picked = setup.relayout[stage](self.observed[stage])[np.ix_(*self.positions(stage))]
        if self.slack > 1:  # a sample is small, and asked for one layout many times
            self.relayouts[key] = picked
        return picked

    def positions(self, stage: str) -> tuple[Indices, ...]:
        """Which batch items, heads and rows of an observed stage are compared."""
        span = span_of(stage, self.setup.convention.softmax_over)
        if span == "rows":
            return tuple(rows_of(stage, self.at))
        sizes = tuple(np.arange(n) for n in self.observed[stage].shape[:3])
        if span == "totals":
            return sizes
        return self.at.batch, self.setup.key_heads_of(self.at.head), sizes[2]

    def by_heads(self, stage: str, x: Array) -> Array:
        """Numbers of each batch item and head of a stage, for each batch item and query head."""
        span = span_of(stage, self.setup.convention.softmax_over)
        if span == "keys":
            keys = self.setup.key_heads_of(self.subset.head)
            mine = self.setup.key_heads_by_grouping[self.subset.head]
            return x[:, np.searchsorted(keys, mine)]
        return np.broadcast_to(x, self.subset.sizes[:2]) if span == "rows" else x.max(keepdims=True)

    def of_rows(self) -> Comparison:
        """The comparison of those stages alone whose rows depend on their own queries."""
        over = self.setup.convention.softmax_over
        errors = {x: stage for x, stage in self.errors.items() if span_of(x, over) == "rows"}
        return replace(self, errors=errors)

    def expected(self, setup: Setup) -> dict[str, Array]:
        """The observed stages as this setup computes them; rows of other places are at hand."""
        if setup.instead and not setup.written and setup.differs_in(self.setup) == {"instead"}:
            sizes = setup.shape[:3]
            places = [setup.instead.get(axis, np.arange(n)) for axis, n in enumerate(sizes)]
            is_all = self.subset.sizes == sizes and not self.is_whole
            is_of_heads = not self.errors.keys() & {*OF_ALL_HEADS}
            if is_all and is_of_heads and all(at.min() >= 0 for at in places):
                return {x: y.expected[np.ix_(*places)] for x, y in self.errors.items()}
        return stages(setup, self.subset, self.errors)

    def beside(
        self,
        setup: Setup,
        rule: Rule | None = None,
        expected: Mapping[str, Array] | None = None,
    ) -> dict[str, StageErrors]:
        """What was observed beside the stages of another setup, or by another rule."""
        observed = {name: self.observed_by(setup, name) for name in self.errors}
        return compared(setup, self.subset, observed, rule or self.rule, self.slack, expected)

    def under(self, rule: Rule) -> Comparison:
        """The same by another rule."""
        return replace(self, rule=rule, errors=self.beside(self.setup, rule))

    def sample(self, at: Subset) -> Comparison:
        """The comparison of some positions alone, which is allowed a little more.

        Where stages depend on all queries: of whole batch items and key heads, without the sums
        over these, but where it is all or nothing else is left.
        """
        over = self.setup.convention.softmax_over
        is_whole = self.is_whole
        of_keys = tuple[Indices, ...]()
        if is_whole:
            keys = self.setup.key_heads_of(self.subset.head[at.head])
            mine = self.setup.key_heads_by_grouping[self.subset.head]
            heads = np.flatnonzero(np.isin(mine, keys))
            of_keys = at.batch, np.searchsorted(self.setup.key_heads_of(self.subset.head), keys)
            at = Subset(at.batch, heads, np.arange(self.subset.sizes[2]))
        errors = {}
        for name, stage in self.errors.items():
            if (span := span_of(name, over)) != "totals":
                every_key = np.arange(stage.expected.shape[2])
                positions = rows_of(name, at) if span == "rows" else (*of_keys, every_key)
                errors[name] = stage.at(*positions, slack=SAMPLE_SLACK)
        if is_whole and (not errors or at.sizes == self.subset.sizes):
            errors = {name: replace(x, slack=SAMPLE_SLACK) for name, x in self.errors.items()}
            return replace(self, errors=errors, slack=SAMPLE_SLACK)
        subset, whole = self.subset.take(at), self.at.take(at)
        return replace(self, subset=subset, errors=errors, at=whole, slack=SAMPLE_SLACK)


def n_different(*arrays: Array) -> int:
    """How many numbers of some arrays differ, beside the largest of each array.

    >>> n_different(np.array([1.0, 1.0, 2.0]), np.array([1.0]))
    2
    """
    shares = [x.ravel() / max(largest(x), 1e-300) for x in arrays]
    return len(np.unique(np.concatenate(shares).round(SAME_DIGITS)))


def comparison_of(
    setup: Setup, subset: Subset, observed: Mapping[str, Array], rule: Rule
) -> Comparison:
    """The comparison of what was observed with the setup."""
    errors = compared(setup, subset, observed, rule)
    return Comparison(setup, subset, rule, errors, observed, all_of(subset.sizes))


def compared(
    setup: Setup,
    subset: Subset,
    observed: Mapping[str, Array],
    rule: Rule,
    slack: float = 1.0,
    expected: Mapping[str, Array] | None = None,
) -> dict[str, StageErrors]:
    """What was observed beside the stages of a setup, by the rule or beside the noise.

    expected  these stages, where they are computed already
    """
    setup = setup.in_parts()
    expected = expected or stages(setup, subset, observed)
    value, errors = setup.convention.mask_value, dict[str, StageErrors]()
    for name, x in expected.items():
        errors[name] = StageErrors(
            observed[name],
            x,
            rule.of(name),
            mask_value=value,
            slack=slack,
            are_shares=spec_of(name).sums,
        )
    rounded = {name: x for name, x in expected.items() if errors[name].rule.kind == "noise"}
    for noise, of_heads in _noises(setup, subset, rule, rounded, errors) if rounded else ():
        for name, x in noise.items():
            errors[name] = replace(errors[name], noise=x, head_noise=of_heads.get(name))
        wrong = [errors[name].ratios.head for name in rounded if not errors[name].matches]
        is_far = max(wrong, default=0.0) > CERTAINLY and (slack > 1 or min(wrong) > CERTAINLY)
        is_open = rule.dtype in SMALL or setup.positions is not None
        if not wrong or (is_far and not is_open):
            break  # what overflows in 16 bits, and angles of positions, are still computed
    return errors


def _noises(
    setup: Setup,
    subset: Subset,
    rule: Rule,
    expected: Mapping[str, Array],
    errors: Mapping[str, StageErrors],
) -> Iterator[tuple[dict[str, Array], dict[str, Array]]]:
    """The noise of the rows, and of heads where that of most rows is not known, ever more exactly.

    errors  of these stages by the noise before
    """
    arithmetic, has_long_type = rule.arithmetic(), rule.dtype not in SMALL and rule.inside is None
    is_of_rows = not is_whole(expected, setup.convention.softmax_over)
    if has_long_type and is_of_rows and subset.sizes[2] > 4 * FEW:
        yield noise_of_few(setup, subset, expected, rule)
    is_sample = any(errors[name].slack > 1 for name in expected)
    draws = draws_of(setup, subset, expected, is_sample=is_sample)
    noise = rounding_noise(setup, subset, expected, arithmetic, draws)
    yield noise, {}
    likely = [name for name in expected if errors[name].ratios.head <= LIKELY]
    unsure = {name: errors[name] for name in likely if not errors[name].matches}
    if unsure and (len(likely) == len(expected) or not is_sample):
        _draw_again(setup, subset, arithmetic, unsure, noise, draws)
        yield noise, {}
    observed = {name: errors[name].observed for name in expected}
    overflows = (
        (np.isfinite(x) & ~np.isfinite(observed[name])).any() for name, x in expected.items()
    )
    has_table = setup.positions is not None  # whose angles are off by more, the further they are
    if rule.inside == rule.dtype or has_table or any(overflows):
        simulated = simulated_noise(setup, subset, observed, rule, expected)
        yield {name: np.fmax(x, simulated[name]) for name, x in noise.items()}, {}


def _draw_again(
    setup: Setup,
    subset: Subset,
    arithmetic: Arithmetic,
    unsure: Mapping[str, StageErrors],
    noise: Mapping[str, Array],
    draws: int,
) -> None:
    """Puts more draws into the noise of these stages, of the rows that are off by too much."""
    is_of_rows = not is_whole(noise, setup.convention.softmax_over)
    rows = np.arange(subset.sizes[2])
    if is_of_rows:
        wrong = np.any([x.wrong_rows.any(axis=(0, 1)) for x in unsure.values()], axis=0)
        rows = rows[wrong] if wrong.any() else rows
    at = (..., rows) if is_of_rows else ...
    some = {
        name: stage.expected[:, :, rows] if is_of_rows else stage.expected
        for name, stage in unsure.items()
    }
    subset = subset.with_axis(2, subset.row[rows])
    for name, x in rounding_noise(setup, subset, some, arithmetic, AGAIN).items():
        total = np.hypot(math.sqrt(draws) * noise[name][at], math.sqrt(AGAIN) * x)
        noise[name][at] = total / math.sqrt(draws + AGAIN)  # the mean over the draws of both


CERTAINLY = 20.0
"""A head that is off by so many times what is allowed is wrong, however its noise is estimated."""

LIKELY = 4.0
"""By so many times the noise of a head may be larger than few draws of errors say."""


def noise_of_few(
    setup: Setup, subset: Subset, expected: Mapping[str, Array], rule: Rule
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The noise of a few rows of each head, at the others the least that counts; that of heads."""
    few = np.unique(np.linspace(0, subset.sizes[2] - 1, FEW).round().astype(np.intp))
    rows = subset.with_axis(2, subset.row[few])
    some = {name: x[:, :, few] for name, x in expected.items()}
    noise, heads = {}, {}
    for name, x in rounding_noise(setup, rows, some, rule.arithmetic(), draws=1).items():
        heads[name] = row_rms(x)
        least = ROW_FLOOR * heads[name][..., None]
        noise[name] = np.repeat(least, subset.sizes[2], axis=-1)
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
    plain = comparison.errors
    by_noise = [name for name, x in plain.items() if x.rule.kind == "noise"]
    wrong = [name for name in by_noise if plain[name].wrong.any()]
    if wrong and len(plain) > 1 and comparison.slack > 1:  # most setups fail here, at one stage
        alone = stages(setup, comparison.subset, wrong[:1])[wrong[0]]
        if not is_closer(setup, wrong[0], alone, comparison):
            return None
    expected = comparison.expected(setup)
    if not all(is_closer(setup, name, expected[name], comparison) for name in by_noise):
        return None
    errors = comparison.beside(setup, expected=expected)
    for name, stage in errors.items():
        if not stage.matches or (name in by_noise and not _is_small_enough(stage, plain[name])):
            return None
    return Fit(setup, {name: Size(x.typical, x.largest) for name, x in errors.items()})


def lowers(errors: Mapping[str, Size], plain: Mapping[str, StageErrors]) -> bool:
    """Whether a cause leaves smaller errors: the root mean square, and the largest, of each stage.

    errors  what it leaves
    plain   the stages without it; of those that match where others differ, rounding is all there is
    """
    differing = {name: x for name, x in plain.items() if not x.matches} or plain
    return all(
        error.rms < plain[name].typical and error.largest < plain[name].largest
        for name, error in errors.items()
        if name in differing
    )


def is_closer(setup: Setup, name: str, expected: Array, comparison: Comparison) -> bool:
    """Whether a setup explains at least half of what is wrong with a stage."""
    observed = comparison.observed_by(setup, name)
    if observed.shape != expected.shape:
        return False
    plain = comparison.errors[name]
    errors = errors_of(observed, expected, plain.rule, setup.convention.mask_value)
    return not np.isinf(errors).any() and rms(errors, plain.wrong) <= CLOSER * plain.typical_wrong


def are_closer(
    setup: Setup, name: str, expected: Array, comparison: Comparison, most: float
) -> BoolArray:
    """The same of several setups: each entry of the first axis is what one of them gives, of the
    one batch item that is compared.

    most  the share of what is wrong that each may leave
    """
    observed, n = comparison.observed_by(setup, name), len(expected)
    if observed.shape != (1, *expected.shape[1:]):
        return np.zeros(n, dtype=np.bool_)
    plain = comparison.errors[name]
    errors = errors_of(observed, expected, plain.rule, setup.convention.mask_value)
    shares = errors[:, plain.wrong[0]] / max(plain.typical_wrong, 1e-300)
    with np.errstate(over="ignore"):
        is_near = np.square(shares).sum(axis=-1) <= most**2 * shares.shape[-1]
    return np.asarray(is_near & ~np.isinf(errors).any(axis=(1, 2, 3)))


def _is_small_enough(stage: StageErrors, plain: StageErrors) -> bool:
    """Whether the noise of a setup is at most half of the difference that it explains."""
    if stage.noise is None or not plain.wrong.any():
        return True
    rows: BoolArray = np.asarray(plain.wrong.any(axis=-1))
    before = plain.typical_wrong
    if np.isinf(before):  # one of the two is NaN or infinite: the size of the other
        either = np.where(np.isfinite(plain.expected), plain.expected, plain.observed)
        before = rms(np.abs(either[plain.wrong & np.isfinite(either)]))
    return bool(rms(stage.noise, rows) <= max(CLOSER * before, 1e-300))
