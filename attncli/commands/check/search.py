"""The search: every bug singly, then in pairs, screened on a sample and confirmed on everything.

candidates: a row of the catalogue, a library's convention, two rows ── among ──> Match …
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from attncli import budget
from attncli.arrays import Array
from attncli.attention.heads import split_heads
from attncli.commands.check.bugs.bug import Bug, Evidence
from attncli.commands.check.bugs.catalogue import CATALOGUE, GRADIENT, TILES
from attncli.commands.check.direction import OWN, Directions, beta
from attncli.convention import EmptyRows
from attncli.errors import ConventionError, InputError
from attncli.stages import BEFORE_SOFTMAX, DELTA, GRADIENTS, OUTPUT, PROJECTED, gradient_of
from attncli.tolerance.column_sums import has_other_sum
from attncli.tolerance.comparison import Comparison, Fit, fit, lowers
from attncli.tolerance.number_types import EPS, SMALL
from attncli.tolerance.rule import distance, largest
from attncli.tolerance.run import CELLS, at_once, computes, mask_of, stages, steps_of
from attncli.tolerance.samples import narrow_sample_of, sample_of, wide_sample_of, worst_of
from attncli.tolerance.setup import Setup

Progress = Callable[[int, int], None] | None

SAME = 1e-9
"""Two computations of one number in float64 are nearer than this, relative to the largest: sums of
a million terms included. Bugs that differ by less compute the same."""

SPARE_BITS = 10
"""So many bits more than distinguish the pairs: in one check of 1,000 a pair fits by chance."""

MOST_SAMPLES = 8
"""How many samples there are at most: each costs a pass for what has passed the others."""

ALL = 2**22
"""Explanations are held against one another on everything, up to so many numbers: 32 MB each."""

ROWS = 256
"""How many rows of a mask are looked at at once: 4 MB for 2,048 keys."""

EMPTY_WORDS: dict[EmptyRows, str] = {
    "zero": "become zero",
    "nan": "become NaN",
    "uniform": "attend to every key alike",
    "unmasked": "attend as if unmasked",
}
"""What becomes of rows left with nothing to attend to."""


def most_at_once() -> int:
    """How many scores a bug may need at once: six stages of them are half of the memory allowed."""
    return max(CELLS, budget.allowed() // 100)


Candidate = tuple[tuple[Bug, ...], Iterable[Setup]]
"""What may explain the numbers: one bug, two, or none but a convention; and its variants."""


class Match(NamedTuple):
    """A candidate that explains what was observed, with those of its variants that fit."""

    bugs: tuple[Bug, ...]
    fits: list[Fit]


Causes = Callable[["Search"], list[Match]]
"""What looks for the causes of a comparison."""


class Search:
    """The bugs that explain a comparison.

    A setup is tried on the samples, one after another, then on everything. Where one passes the
    samples and fails on everything, the place where it is worst becomes another sample.

    comparison  of everything that was observed
    samples     of a few rows of it each
    narrow      of a few rows of one head, which are tried first
    only_nan    whether every wrong number is NaN: too little for bugs that are not about NaN
    skipped     bugs that would not fit into memory, and how many scores they need at once
    unbuilt     bugs, and pairs, of which a variant could not be computed, and why: a fault of the
                catalogue, which its test finds; no candidate ends a check
    alone       bug → its variants under the setup that is right
    right       stages of a few rows that are right, which no bug may change; None: none
    changing    the matches that are none because they change what is right
    """

    def __init__(
        self, comparison: Comparison, progress: Progress = None, right: Comparison | None = None
    ) -> None:
        self.right = right
        self.comparison, self.samples = comparison, [sample_of(comparison)]
        self.progress = progress or (lambda done, total: None)
        of_stages = comparison.errors.items()
        expected = {name: stage.expected for name, stage in of_stages}
        sample, wide = self.samples[0], wide_sample_of(comparison)
        eps = EPS[comparison.rule.dtype]
        rows = comparison.of_rows().errors  # bugs look at batch items, heads and queries
        observed = {name: x for name, x in comparison.observed.items() if name in rows}
        if PROJECTED in observed and OUTPUT not in observed:
            both = before_projection(comparison)
            observed, expected = observed | both.observed, expected | both.expected
        self.evidence = Evidence(observed, expected, eps, sample, wide, comparison.subset)
        self.only_nan = all(np.isnan(stage.observed[stage.wrong]).all() for _, stage in of_stages)
        self.narrow = narrow_sample_of(sample)
        self.skipped: dict[str, int] = {}
        self.unbuilt: dict[str, str] = {}
        self.alone: dict[Bug, list[Setup]] = {}
        self.changing = list[Match]()
        self._emptied: dict[Any, tuple[bool, Setup]] = {}

    @cached_property
    def sampled(self) -> Directions:
        """What the errors of the sample point to."""
        return Directions(self.samples[0])

    @cached_property
    def whole(self) -> Directions:
        """What all errors point to."""
        return Directions(self.comparison)

    def among(
        self, candidates: Iterable[Candidate], total: int = 0, *, to: list[Match] | None = None
    ) -> list[Match]:
        """The candidates that fit, put behind those of `to` one by one; the search itself."""
        matches = [] if to is None else to
        for number, (bugs, variants) in enumerate(candidates, 1):
            fits, changing = list[Fit](), list[Fit]()
            is_fitted = any(bug.is_fitted for bug in bugs)
            with self._noting(bugs):
                for variant in self.fits(variants):
                    changes_right = self.right is not None and changes(variant.setup, [self.right])
                    (changing if changes_right else fits).append(variant)  # kept before a problem
                    if fits and is_fitted:  # its first form is the simplest
                        break
            if fits:
                matches.append(Match(bugs, fits))
            elif changing:
                self.changing.append(Match(bugs, changing))
            if total:
                self.progress(number, total)
        return matches

    @contextmanager
    def _noting(self, bugs: Sequence[Bug]) -> Iterator[None]:
        """Goes on where what is tried of some bugs cannot be computed, and notes why."""
        try:
            yield
        except (InputError, ConventionError, ArithmeticError, LookupError, ValueError) as problem:
            self.unbuilt[" and ".join(bug.name for bug in bugs)] = str(problem)

    def singles(
        self, some: Collection[Bug] | None = None, before_fitted: Causes | None = None
    ) -> list[Match]:
        """The single bugs that fit; those whose number is fitted, where no other does.

        some  of the catalogue, of which alone they are; None: all
        before_fitted  what else may be the cause, and is asked before any number is fitted
        """
        matches: list[Match] = []

        def candidates() -> Iterator[Candidate]:
            is_asked = before_fitted is None
            for bug in self.bugs if some is None else some:
                if bug.is_fitted and not (matches or is_asked) and before_fitted is not None:
                    matches.extend(before_fitted(self))
                    is_asked = True
                if bug.is_fitted and any(not match.bugs[0].is_fitted for match in matches):
                    continue
                if not (bug.fits_many and matches):
                    yield (bug,), self._singly(bug)

        self.among(candidates(), len(CATALOGUE), to=matches)
        return self._or_fitted(matches) if self.comparison.rule.dtype in SMALL else matches

    def _singly(self, bug: Bug) -> Iterable[Setup]:
        """The variants of a bug alone; those that are tried in pairs later are kept."""
        variants = self.variants(bug, self.comparison.setup)
        if bug.pairs or GRADIENT in bug.touches:
            self.alone[bug] = [*variants]
            return self.alone[bug]
        return variants

    @property
    def bugs(self) -> list[Bug]:
        """The bugs of the catalogue that may be; where all that is wrong is NaN, those of NaN."""
        return [bug for bug in CATALOGUE if not self.only_nan or "NaN" in bug.touches]

    def without_singles(self) -> None:
        """Prepares for pairs where it is known that no single bug fits: none of them is tried."""
        for bug in self.bugs:
            if not bug.is_fitted or GRADIENT in bug.touches:  # numbers are fitted to one bug alone
                self._singly(bug)

    def causes(self, before_fitted: Causes | None = None) -> list[Match]:
        """The single bugs that explain the numbers, and that their direction does not exclude."""
        return self.distinct(self.singles(before_fitted=before_fitted))

    def otherwise(self) -> list[Match]:
        """What explains the numbers and changes what is right: a bug that has a name before an
        answer, and one without a fitted number before one with it."""
        matches = [x for x in self.changing if x.bugs[0].id] or self.changing[:1]
        matches = [x for x in matches if not x.bugs[0].is_fitted] or matches
        return self.distinct([x for x in matches if not x.bugs[0].fits_many] or matches[:1])

    def _or_fitted(self, matches: list[Match]) -> list[Match]:
        """The matches, or a number that fits better: 16 bits confuse 1/√(2 d) with ln 2 / √d."""
        for match in matches:
            first = match.bugs[0]
            fitted = (x for x in CATALOGUE if x.is_fitted and x.touches & first.touches)
            for bug in () if first.is_fitted else fitted:
                variants = self.variants(bug, self.comparison.setup)
                for other in self.among([((bug,), variants)]):
                    if self.distinct([match, other]) == [other]:
                        return [other]
        return matches

    def pairs(self) -> list[Match]:
        """The pairs that fit, of bugs that do not touch the same; none of too few numbers."""
        if self.only_nan:
            return []
        if matches := self._pairs_of_gradients():
            return matches
        changing: dict[Bug, list[Setup]] = {}
        for bug, variants in self.alone.items():
            if bug.pairs and (others := [x for x in variants if changes(x, self.samples)]):
                changing[bug] = others
        pairs = [(a, b) for a, b in combinations(changing, 2) if not a.touches & b.touches]
        if not enough_evidence(self.comparison, len(pairs)):
            return []
        both = ((x for changed in changing[a] for x in self.variants(b, changed)) for a, b in pairs)
        return self.among(zip(pairs, both, strict=True), len(pairs))

    def _pairs_of_gradients(self) -> list[Match]:
        """The pairs of bugs of gradients that fit, of which one explains a gradient by itself."""
        sample, matches = self.samples[0], list[Match]()
        bugs = [bug for bug in self.alone if GRADIENT in bug.touches and not bug.fits_many]
        each = [
            replace(sample, errors={name: stage})
            for name, stage in sample.errors.items()
            if name in GRADIENTS and not stage.matches
        ]
        if len(each) < 2 or not enough_evidence(self.comparison, len(bugs) ** 2):
            return []
        firsts: dict[Bug, Setup] = {}
        for bug in bugs:
            ways = (
                variant for variant in self.alone[bug] if any(fit(variant, alone) for alone in each)
            )
            if (variant := next(ways, None)) is not None:
                firsts[bug] = variant
        candidates = (
            (both, self.variants(both[1], firsts[both[0]]))
            for both in product(firsts, bugs)
            if len({*both}) == 2 and not any({*both} == {*match.bugs} for match in matches)
        )
        return self.among(candidates, len(firsts) * len(bugs), to=matches)

    def distinct(self, matches: list[Match]) -> list[Match]:
        """Those matches that the direction of what they leave does not exclude.

        Two may both fit within the rounding of 16 bits; if what one leaves does not point to the
        other at all, and what that one leaves points back, it is the first.
        """
        rule = self.comparison.rule
        if len(matches) < 2 or rule.kind != "noise" or rule.printed:
            return matches
        setups = [match.fits[0].setup for match in matches]
        if any(setup.relayout or setup.relabel for setup in setups):
            return matches
        first, *others = (self.samples[0].expected(setup) for setup in setups)
        if not any(differ(x, first[name]) for other in others for name, x in other.items()):
            return matches
        comparison = self.comparison
        if sum(stage.expected.size for stage in comparison.errors.values()) > ALL:
            comparison = self.evidence.wide or self.samples[0]
        fits = [comparison.beside(x) for x in setups]
        beaten: set[int] = set()
        for errors, (j, other) in product(fits, enumerate(fits)):
            for name, stage in errors.items() if other is not errors else ():
                if beta(stage.observed, other[name].expected, stage).excludes:
                    beaten.add(j)
        return [match for i, match in enumerate(matches) if i not in beaten] or matches

    def within_rounding(self) -> tuple[list[Match], list[Bug]]:
        """The bugs that errors within rounding point to, and those that cannot be decided."""
        matches, undecided = list[Match](), list[Bug]()
        times = math.prod(self.comparison.subset.sizes) / math.prod(self.samples[0].subset.sizes)
        for bug in CATALOGUE:
            fits_of = self._probed if bug.is_fitted else self._pointed_to
            fits: list[Fit] | None = []
            with self._noting((bug,)):
                fits = fits_of(bug, times)
            if fits:
                matches.append(Match((bug,), fits))
            elif fits is None:
                undecided.append(bug)
        return matches, undecided

    def _pointed_to(self, bug: Bug, times: float) -> list[Fit] | None:
        """The variants of a bug that the errors point to; None where the input does not show it."""
        variants = (x for x in self.variants(bug, self.comparison.setup) if not x.relayout)
        directions = [direction for x in variants if (direction := self.sampled.of(x))]
        if likely := [direction for direction in directions if direction.is_likely(times)]:
            directions = [direction for x in likely if (direction := self.whole.of(x.setup))]
            candidates = (
                Fit(direction.setup, direction.residuals)
                for direction in directions
                if direction.is_found
            )
            if fits := [x for x in candidates if lowers(x.errors, self.comparison.errors)]:
                return fits
        return (
            None
            if directions and not any(direction.is_decidable for direction in directions)
            else []
        )

    def _probed(self, bug: Bug, times: float) -> list[Fit]:
        """How much of a bug the errors are, by their β along a little of it: clearly not none."""
        probe = bug.probe(self.comparison.setup) if bug.probe else None
        if probe is None:
            return []
        little, with_much = probe
        direction = self.sampled.of(little)
        if direction is None or not any(
            stage_beta.is_clear(times) for stage_beta in direction.betas
        ):
            return []
        direction = self.whole.of(little)
        if (
            direction is None
            or len(direction.betas) != 1
            or not (stage_beta := direction.betas[0]).is_clear(1.0)
        ):
            return []
        if (
            direction.right_beta > OWN * abs(stage_beta.value)
            or (setup := with_much(stage_beta.value)) is None
        ):
            return []
        much = self.whole.of(setup)
        is_cause = much and much.is_found and lowers(much.residuals, self.comparison.errors)
        return [Fit(setup, much.residuals)] if much and is_cause else []

    def variants(self, bug: Bug, setup: Setup) -> Iterator[Setup]:
        """The setups that a bug can be; where it empties rows, under each rule for those."""
        with self._noting((bug,)):
            yield from self._variants(bug, setup)

    def _variants(self, bug: Bug, setup: Setup) -> Iterator[Setup]:
        for variant in self._changed(bug, setup):
            if variant.is_refused or not self.has_all(variant):
                continue
            if at_once(variant) > max(most_at_once(), at_once(setup)):
                self.skipped[bug.name] = at_once(variant)
                continue
            yield variant
            may_empty = "empty-rows" not in bug.touches and variant.convention.mask_value == -np.inf
            if (
                may_empty
                and self._has_empty(variant)
                and not self._has_empty(self.comparison.setup)
            ):
                for empty in (x for x in EMPTY_WORDS if x != variant.empty_rows):
                    detail = f"rows left with nothing to attend to {EMPTY_WORDS[empty]}"
                    yield variant.with_empty_rows(empty).with_detail(detail)

    def _changed(self, bug: Bug, setup: Setup) -> Iterator[Setup]:
        """The changed setups; of a walk through tiles those of its own bugs, and of its scores."""
        if not setup.tiles or TILES in bug.touches:
            yield from bug.change(setup, self.evidence)
        elif not bug.is_fitted:
            for variant in bug.change(replace(setup, tiles=0), self.evidence):
                is_of_scores = variant.patched <= {"mask", *BEFORE_SOFTMAX}
                is_walk = (
                    variant.convention.softmax_over == "keys" and not variant.convention.dropout
                )
                if is_of_scores and is_walk and not variant.relabel:
                    yield replace(variant, tiles=setup.tiles)

    def fits(self, variants: Iterable[Setup]) -> list[Fit]:
        """The variants that fit every sample, and then everything."""
        fits = []
        for setup in filter(self.fits_samples, variants):
            if setup_fit := fit(setup, self.comparison):
                fits += [setup_fit] * lowers(setup_fit.errors, self.comparison.errors)
            elif len(self.samples) < MOST_SAMPLES:
                self.samples.append(self.comparison.sample(worst_of(setup, self.comparison)))
        return fits

    def fits_samples(self, setup: Setup) -> bool:
        """Whether a variant fits every sample, the narrow one first."""
        if has_other_sum(setup, self.comparison, self.narrow):
            return False
        first = [self.narrow] * (self.narrow is not self.samples[0])
        return all(fit(setup, sample) for sample in (*first, *self.samples))

    def has_all(self, variant: Setup) -> bool:
        """Whether a variant has all the gradients that were observed, of their shapes."""
        observed = self.comparison.errors
        is_turned = variant.convention.softmax_over != self.comparison.setup.convention.softmax_over
        lacks = is_turned and observed.keys() & {DELTA, gradient_of("sinks")}
        return not lacks and computes(variant, observed)

    def _has_empty(self, setup: Setup) -> bool:
        """Whether a query of the subset has nothing to attend to; computed once for each mask."""
        step = next((step for step in steps_of(setup) if step.name == "mask"), None)
        if step is None:
            return False
        reads = (id(setup.inputs.get(name)) for name in step.reads.values())
        key = (step.function, *step.params.items(), *reads)
        if key not in self._emptied:  # with the setup, so that the ids stay those of its inputs
            rows = self.comparison.subset.row
            masks = (mask_of(setup, rows[i : i + ROWS]) for i in range(0, len(rows), ROWS))
            empty = any(x is not None and np.isneginf(x).all(axis=-1).any() for x in masks)
            self._emptied[key] = empty, setup
        return self._emptied[key][0]


class Outputs(NamedTuple):
    """The output of the heads: as it was before a projection, and as it should be."""

    observed: dict[str, Array]
    expected: dict[str, Array]


def before_projection(comparison: Comparison) -> Outputs:
    """The output that the observed projection was made of; none where W_o cannot be inverted.

    It says what a bug may be; whether it is, is judged on the projected numbers.
    """
    setup, observed = comparison.setup, comparison.observed[PROJECTED][:, 0]
    w_o, b_o = setup.inputs["w_o"], setup.inputs.get("b_o", 0.0)
    is_small = observed.size <= ALL and w_o.size <= CELLS
    sizes = np.linalg.svd(w_o, compute_uv=False) if is_small else np.zeros(1)
    if len(w_o) > w_o.shape[1] or sizes[-1] <= INVERTIBLE * sizes[0]:
        return Outputs({}, {})
    output = split_heads((observed - b_o) @ np.linalg.pinv(w_o), setup.shape[1])
    expected = stages(setup, comparison.subset, [OUTPUT])[OUTPUT]
    return Outputs({OUTPUT: output}, {OUTPUT: expected})


INVERTIBLE = 1e-4
"""Below this share of the largest singular value of W_o, the rounding of float32 in what it made
is as large as what went in."""


def enough_evidence(comparison: Comparison, n_pairs: int) -> bool:
    """Whether so many pairs could be distinguished: a few rounded numbers fit many by chance."""
    if comparison.rule.kind == "noise" and not comparison.rule.printed:
        return True
    bits = 0.0
    for stage in comparison.errors.values():
        finite = stage.expected[np.isfinite(stage.expected)]
        if finite.size > 1:
            allowed = float(np.median(stage.rule.allowed(finite)))
            ratio = float(np.ptp(finite)) / max(2 * allowed, 1e-300)
            bits += (finite.size - 1) * math.log2(max(ratio, 1.0))
    return bits > math.log2(n_pairs + 1) + SPARE_BITS


def changes(setup: Setup, samples: Iterable[Comparison]) -> bool:
    """Whether a variant computes other numbers than the setup of the samples at all."""
    return bool(setup.relayout) or any(
        differ(x, sample.errors[name].expected)
        for sample in samples
        for name, x in sample.expected(setup).items()
    )


def differ(x: Array, y: Array, by: float = SAME) -> bool:
    """Whether two arrays differ by more than a share of the largest number."""
    return bool((distance(x, y) > by * max(largest(x), 1e-300)).any())
