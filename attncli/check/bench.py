"""A bench: observed stages over a cut, beside the plain reference, on which a case is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attncli.check.case import Array, Case, Mask
from attncli.check.engine import Cut, Indices, stages
from attncli.check.tolerance import Rule, distance, noise_of, rms

CLOSER = 0.5
"""A hypothesis must explain at least half of the difference before its noise is asked for."""


@dataclass(frozen=True, eq=False)
class Bench:
    """Observed arrays over a cut, the plain reference there, and how far they lie apart.

    errors   |observed − plain| of every entry
    wrong    which entries lie further apart than the plain reference's tolerance
    allowed  that tolerance
    loose    a factor on it, for a sample whose largest noise is not yet the largest
    source   the bench that this one is a sample of, and which positions of it
    """

    case: Case
    cut: Cut
    rule: Rule
    observed: Mapping[str, Array]
    plain: Mapping[str, Array]
    errors: Mapping[str, Array]
    allowed: Mapping[str, Array]
    wrong: Mapping[str, Mask]
    loose: float = 1.0
    source: Bench | None = None
    positions: tuple[Indices, Indices, Indices] | None = None

    def sample(self, positions: tuple[Indices, Indices, Indices], loose: float) -> Bench:
        """The bench with only these positions of its batch items, heads and rows."""
        at = np.ix_(*positions)
        fields = ("observed", "plain", "errors", "allowed", "wrong")
        parts: dict[str, Any] = {
            part: {name: x[at] for name, x in getattr(self, part).items()} for part in fields
        }
        cut = self.cut.take(positions)
        return replace(self, cut=cut, loose=loose, source=self, positions=positions, **parts)

    def observed_by(self, case: Case) -> Mapping[str, Array]:
        """The observed arrays, put into the order that this case says they are really in."""
        if case.undo is None:
            return self.observed
        if self.source is not None and self.positions is not None:
            at = np.ix_(*self.positions)
            return {name: x[at] for name, x in self.source.observed_by(case).items()}
        return {name: case.undo(name, x) for name, x in self.observed.items()}

    def expected(self, case: Case) -> dict[str, Array]:
        """The observed stages as this case computes them."""
        return stages(case, self.cut, list(self.observed))


def bench_of(case: Case, cut: Cut, observed: Mapping[str, Array], rule: Rule) -> Bench:
    """The bench on which the case itself is the plain reference."""
    plain = stages(case, cut, list(observed))
    errors = {name: distance(observed[name], x) for name, x in plain.items()}
    noise = noise_over(case, cut, plain, rule)
    allowed = allowed_by(case, plain, noise, rule)
    wrong = {name: errors[name] > allowed[name] for name in errors}
    return Bench(case, cut, rule, observed, plain, errors, allowed, wrong)


def noise_over(case: Case, cut: Cut, expected: Mapping[str, Array], rule: Rule) -> dict[str, Array]:
    """The noise of every entry of a case, in the observed type."""
    if rule.kind != "noise":
        return {name: np.zeros(1) for name in expected}
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = stages(case, cut, list(expected), rule.noise_type()[0])
    return {name: noise_of(rounded[name], x, rule) for name, x in expected.items()}


def allowed_by(
    case: Case, expected: Mapping[str, Array], noise: Mapping[str, Array], rule: Rule
) -> dict[str, Array]:
    """The allowed distance of every entry."""
    value = case.how.mask_value
    return {name: rule.allowed(x, float(noise[name].max()), value) for name, x in expected.items()}


@dataclass(frozen=True, eq=False)
class Fit:
    """A case that explains the observed numbers, what it expects, and its largest errors."""

    case: Case
    expected: Mapping[str, Array]
    errors: Mapping[str, float]


def fit(case: Case, bench: Bench) -> Fit | None:
    """The case as an explanation of everything on the bench, or None.

    Each observed stage must lie within the tolerance of the case's own noise; where the plain
    reference is wrong the case must be at least twice as near, and as near as its noise.
    """
    observed = bench.observed_by(case)
    expected = bench.expected(case)
    errors = {name: distance(observed[name], x) for name, x in expected.items()}
    if bench.rule.kind == "noise" and not _closer(errors, bench):
        return None
    noise = noise_over(case, bench.cut, expected, bench.rule)
    allowed = allowed_by(case, expected, noise, bench.rule)
    if any((errors[name] > bench.loose * allowed[name]).any() for name in errors):
        return None
    if bench.rule.kind == "noise" and not _like_noise(errors, expected, noise, bench):
        return None
    return Fit(case, expected, {name: float(x.max(initial=0.0)) for name, x in errors.items()})


def _closer(errors: Mapping[str, Array], bench: Bench) -> bool:
    """Whether the entries that the plain reference misses are missed by at most half."""
    for name, x in errors.items():
        wrong = bench.wrong[name]
        if np.isinf(x).any():
            return False
        if wrong.any() and rms(x[wrong]) > CLOSER * rms(bench.errors[name][wrong]):
            return False
    return True


def _like_noise(
    errors: Mapping[str, Array],
    expected: Mapping[str, Array],
    noise: Mapping[str, Array],
    bench: Bench,
) -> bool:
    """Whether the entries that the plain reference misses are now missed by noise alone.

    Noise as large as the difference itself could explain anything, so it explains nothing.
    """
    for name, x in errors.items():
        wrong = bench.wrong[name]
        if not wrong.any():
            continue
        floor = max(rms(noise[name]), rms(noise[name][wrong]))
        tiny = float(np.median(bench.rule.allowed(expected[name], 0.0)))
        left, before = rms(x[wrong]), rms(bench.errors[name][wrong])
        if np.isinf(before):
            before = rms(np.abs(expected[name][wrong & np.isfinite(expected[name])]))
        if left > 3 * bench.loose * floor + tiny or (left > tiny and floor > CLOSER * before):
            return False
    return True
