"""Comparison: observed stages over a subset, beside the plain reference; what explains them?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attncli.attention.functional import round_to, widen
from attncli.attention.run import Change
from attncli.check.run import Indices, Subset, every_stage, stages
from attncli.check.setup import Array, Mask, Setup
from attncli.check.tolerance import Rule, distance, noise_of, rms
from attncli.convention import DType
from attncli.stages import OUTPUT, SCORES

CLOSER = 0.5
"""A hypothesis must explain at least half of the difference. A difference just over the tolerance
is brought under it by any change that moves the numbers a little the right way; one that explains
half of it has moved them by at least half the tolerance, which is no accident."""

LIKE_NOISE = 3.0
"""What a hypothesis leaves may be so many times its noise, both as root mean squares: the factor
that `NOISE_FACTOR` allows a 16-bit implementation that rounds elsewhere. The tolerance alone goes
by the largest noise, and where one entry is noisy it would hide a difference in all the others."""

SAMPLE_FACTOR = 2.0
"""What a sample is allowed more than everything: its largest noise may be less than the largest,
say half of it. What passes the sample by mistake is judged again on everything."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Observed arrays over a subset, the plain reference there, and how far they lie apart.

    errors   |observed − plain| of every entry
    wrong    which entries lie further apart than the plain reference's tolerance
    allowed  that tolerance
    loose    a factor on it, for a sample whose largest noise is not yet the largest
    source   the comparison that this one is a sample of, and which positions of it
    """

    setup: Setup
    subset: Subset
    rule: Rule
    observed: Mapping[str, Array]
    plain: Mapping[str, Array]
    errors: Mapping[str, Array]
    allowed: Mapping[str, Array]
    wrong: Mapping[str, Mask]
    loose: float = 1.0
    source: Comparison | None = None
    positions: tuple[Indices, Indices, Indices] | None = None

    def sample(self, positions: tuple[Indices, Indices, Indices], loose: float) -> Comparison:
        """The comparison with only these positions of its batch items, heads and rows."""
        at = np.ix_(*positions)
        fields = ("observed", "plain", "errors", "allowed", "wrong")
        parts: dict[str, Any] = {
            part: {name: x[at] for name, x in getattr(self, part).items()} for part in fields
        }
        subset = self.subset.take(positions)
        return replace(self, subset=subset, loose=loose, source=self, positions=positions, **parts)

    def observed_by(self, setup: Setup) -> Mapping[str, Array]:
        """The observed arrays, put into the order that this setup says they are really in."""
        if setup.relayout is None:
            return self.observed
        if self.source is not None and self.positions is not None:
            at = np.ix_(*self.positions)
            return {name: x[at] for name, x in self.source.observed_by(setup).items()}
        return {name: setup.relayout(name, x) for name, x in self.observed.items()}

    def expected(self, setup: Setup) -> dict[str, Array]:
        """The observed stages as this setup computes them."""
        return stages(setup, self.subset, list(self.observed))


def comparison_of(
    setup: Setup, subset: Subset, observed: Mapping[str, Array], rule: Rule
) -> Comparison:
    """The comparison on which the setup itself is the plain reference."""
    plain = stages(setup, subset, list(observed))
    errors = {name: distance(observed[name], x) for name, x in plain.items()}
    noise = noise_over(setup, subset, plain, rule)
    allowed = allowed_by(setup, plain, noise, rule)
    wrong = {name: errors[name] > allowed[name] for name in errors}
    return Comparison(setup, subset, rule, observed, plain, errors, allowed, wrong)


def noise_over(
    setup: Setup, subset: Subset, expected: Mapping[str, Array], rule: Rule
) -> dict[str, Array]:
    """The noise of every entry of a setup, in the observed type."""
    if rule.kind != "noise":
        return {name: np.zeros(1) for name in expected}
    rounded = stages(setup, subset, list(expected), rule.noise_type()[0])
    return {name: noise_of(rounded[name], x, rule) for name, x in expected.items()}


def allowed_by(
    setup: Setup, expected: Mapping[str, Array], noise: Mapping[str, Array], rule: Rule
) -> dict[str, Array]:
    """The allowed distance of every entry."""
    value = setup.how.mask_value
    return {name: rule.allowed(x, float(noise[name].max()), value) for name, x in expected.items()}


@dataclass(frozen=True, eq=False)
class Fit:
    """A setup that explains the observed numbers, what it expects, and its largest errors."""

    setup: Setup
    expected: Mapping[str, Array]
    errors: Mapping[str, float]


def fit(setup: Setup, comparison: Comparison) -> Fit | None:
    """The setup as an explanation of everything that was observed, or None.

    Each observed stage must lie within the tolerance of the setup's own noise; where the plain
    reference is wrong the setup must be at least twice as near, and as near as its noise.
    """
    observed = comparison.observed_by(setup)
    expected = comparison.expected(setup)
    errors = {name: distance(observed[name], x) for name, x in expected.items()}
    if comparison.rule.kind == "noise" and not _closer(errors, comparison):
        return None
    noise = noise_over(setup, comparison.subset, expected, comparison.rule)
    allowed = allowed_by(setup, expected, noise, comparison.rule)
    if any((errors[name] > comparison.loose * allowed[name]).any() for name in errors):
        return None
    if comparison.rule.kind == "noise" and not _like_noise(errors, expected, noise, comparison):
        return None
    return Fit(setup, expected, {name: float(x.max(initial=0.0)) for name, x in errors.items()})


def _closer(errors: Mapping[str, Array], comparison: Comparison) -> bool:
    """Whether the entries that the plain reference misses are missed by at most half."""
    for name, x in errors.items():
        wrong = comparison.wrong[name]
        if np.isinf(x).any():
            return False
        if wrong.any() and rms(x[wrong]) > CLOSER * rms(comparison.errors[name][wrong]):
            return False
    return True


def _like_noise(
    errors: Mapping[str, Array],
    expected: Mapping[str, Array],
    noise: Mapping[str, Array],
    comparison: Comparison,
) -> bool:
    """Whether the entries that the plain reference misses are now missed by noise alone.

    Noise as large as the difference itself could explain anything, so it explains nothing.
    """
    for name, x in errors.items():
        wrong = comparison.wrong[name]
        if not wrong.any():
            continue
        floor = max(rms(noise[name]), rms(noise[name][wrong]))
        tiny = float(np.median(comparison.rule.allowed(expected[name], 0.0)))
        left, before = rms(x[wrong]), rms(comparison.errors[name][wrong])
        if np.isinf(before):
            before = rms(np.abs(expected[name][wrong & np.isfinite(expected[name])]))
        if left > LIKE_NOISE * comparison.loose * floor + tiny:
            return False
        if left > tiny and floor > CLOSER * before:
            return False
    return True


# ---- a sample: a few batch items, heads and rows that stand for all

SAMPLE = 2**15
"""About how many scores a sample has."""
MOST = (2, 2, 16)


def sample_of(comparison: Comparison) -> Comparison:
    """The comparison with a sample of its subset: the same for the same input.

    Of each axis the entries with the largest error, then the first, the last and some between.
    """
    return comparison.sample(_positions(comparison), loose=SAMPLE_FACTOR)


def _positions(comparison: Comparison) -> tuple[Indices, Indices, Indices]:
    errors = _row_errors(comparison.errors)
    batch = _chosen(errors.max(axis=(1, 2)), MOST[0])
    head = _chosen(errors[batch].max(axis=(0, 2)), MOST[1])
    room = SAMPLE // (comparison.setup.shape[3] * len(batch) * len(head))
    row = _chosen(errors[np.ix_(batch, head)].max(axis=(0, 1)), max(4, min(MOST[2], room)))
    return batch, head, row


def _row_errors(errors: Mapping[str, Array]) -> Array:
    """[batch, head, row]: the largest error of each row, each stage in parts of its own largest."""
    total: Array = np.zeros(1)
    for x in errors.values():
        rows = np.minimum(x.max(axis=-1), np.finfo(np.float64).max)
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
    """Whether everything that is wrong lies within the noise of sums kept in the observed type."""
    if comparison.rule.kind != "noise" or comparison.setup.whole_axis is not None:
        return False
    dtype, _ = comparison.rule.noise_type()
    multiply = one_by_one(dtype)
    changes: dict[str, Change] = {
        SCORES: lambda q, k: multiply(q, np.swapaxes(k, -1, -2)),
        OUTPUT: lambda a, v, allowed=None: multiply(a, v),
    }
    rounded = every_stage(sample.setup, sample.subset, dtype, changes)
    for name, expected in comparison.plain.items():
        noise = noise_of(rounded[name].astype(np.float64), sample.plain[name], comparison.rule)
        allowed = comparison.rule.allowed(
            expected, float(noise.max()), comparison.setup.how.mask_value
        )
        if (comparison.errors[name] > allowed).any():
            return False
    return True
