"""The search: every bug singly, then in pairs, screened on a sample and confirmed on everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from attncli import budget
from attncli.arrays import Array
from attncli.check.bugs import CATALOGUE
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.comparison import Comparison, Fit, fit, sample_of
from attncli.check.run import CELLS, at_once, mask_of, steps_of
from attncli.check.setup import Setup
from attncli.check.tolerance import EPS, distance, largest

Progress = Callable[[int, int], None] | None

SAME = 1e-9
"""Two computations of one number in float64 are nearer than this, relative to the largest: sums of
a million terms included. Bugs that differ by less compute the same."""

SPARE_BITS = 10
"""So many bits more than distinguish the pairs: in one check of 1,000 a pair fits by chance."""

ROWS = 256
"""How many rows of a mask are looked at at once: 4 MB for 2,048 keys."""

EMPTY_WORDS = {
    "zero": "rows left with nothing to attend to become zero",
    "nan": "rows left with nothing to attend to become NaN",
    "uniform": "rows left with nothing to attend to attend to every key alike",
}


def most_at_once() -> int:
    """How many scores a bug may need at once: six stages of them are half of the memory allowed."""
    return max(CELLS, budget.allowed() // 100)


class Match(NamedTuple):
    """Bugs that together explain what was observed, one or two, and their variants that fit."""

    bugs: tuple[Bug, ...]
    fits: list[Fit]


class Search:
    """The bugs that explain a comparison.

    comparison, sample  of everything that was observed, and of a few rows of it
    only_nan  whether every wrong number is NaN: too little for bugs that are not about NaN
    skipped   bugs that would not fit into memory, and how many scores they need at once
    changing  bug → its variants that change a number of the sample
    """

    def __init__(self, comparison: Comparison, progress: Progress = None) -> None:
        self.comparison, self.sample = comparison, sample_of(comparison)
        self.progress = progress or (lambda done, total: None)
        stages = comparison.errors.items()
        expected = {name: stage.expected for name, stage in stages}
        self.evidence = Evidence(comparison.observed, expected, EPS[comparison.rule.dtype])
        self.only_nan = all(np.isnan(stage.observed[stage.wrong]).all() for _, stage in stages)
        self.skipped: dict[str, int] = {}
        self.changing: dict[Bug, list[Setup]] = {}
        self._emptied: dict[Any, tuple[bool, Setup]] = {}

    def singles(self) -> list[Match]:
        """The single bugs that fit."""
        found = []
        for number, bug in enumerate(CATALOGUE, 1):
            if self.only_nan and "NaN" not in bug.touches:
                continue
            variants = list(self.variants(bug, self.comparison.setup))
            if fits := self.fits(variants):
                found.append(Match((bug,), fits))
            if changing := [setup for setup in variants if self._changes(setup)]:
                self.changing[bug] = changing
            self.progress(number, len(CATALOGUE))
        return found

    def pairs(self) -> list[Match]:
        """The pairs that fit, of bugs that each change numbers and do not touch the same thing.

        None at all where the observed numbers are too few to distinguish so many pairs.
        """
        pairs = [(a, b) for a, b in combinations(self.changing, 2) if not a.touches & b.touches]
        if self.only_nan or not _enough_evidence(self.comparison, len(pairs)):
            return []
        found = []
        for number, (first, second) in enumerate(pairs, 1):
            both = (x for one in self.changing[first] for x in self.variants(second, one))
            if fits := self.fits(both):
                found.append(Match((first, second), fits))
            self.progress(number, len(pairs))
        return found

    def variants(self, bug: Bug, setup: Setup) -> Iterator[Setup]:
        """The setups that a bug can be; where it empties rows, under each rule for those."""
        for variant in bug.change(setup, self.evidence):
            if at_once(variant) > max(most_at_once(), at_once(setup)):
                self.skipped[bug.name] = at_once(variant)
                continue
            yield variant
            how = variant.how
            if "empty-rows" in bug.touches or how.mask_value != -np.inf:
                continue
            if self._has_empty(variant) and not self._has_empty(self.comparison.setup):
                for empty, words in EMPTY_WORDS.items():
                    if empty != how.empty_rows:
                        yield variant.with_how(empty_rows=empty).with_detail(words)

    def fits(self, variants: Iterable[Setup]) -> list[Fit]:
        """The variants that fit the sample, and then everything."""
        likely = (setup for setup in variants if fit(setup, self.sample))
        return [found for setup in likely if (found := fit(setup, self.comparison))]

    def _changes(self, setup: Setup) -> bool:
        """Whether a variant computes other numbers than the plain setup at all."""
        if setup.relayout:
            return True
        expected = self.sample.expected(setup)
        return any(differ(x, self.sample.errors[name].expected) for name, x in expected.items())

    def _has_empty(self, setup: Setup) -> bool:
        """Whether a query of the subset has nothing to attend to; computed once for each mask."""
        step = next((step for step in steps_of(setup) if step.name == "mask"), None)
        if step is None:
            return False
        reads = (id(setup.inputs.get(name)) for name in step.reads.values())
        key = (step.compute, *step.params.items(), *reads)
        if key not in self._emptied:  # with the setup, so that the ids stay those of its inputs
            rows = self.comparison.subset.row
            masks = (mask_of(setup, rows[i : i + ROWS]) for i in range(0, len(rows), ROWS))
            empty = any(x is not None and np.isneginf(x).all(axis=-1).any() for x in masks)
            self._emptied[key] = empty, setup
        return self._emptied[key][0]


def _enough_evidence(comparison: Comparison, n_pairs: int) -> bool:
    """Whether so many pairs could be distinguished: a few rounded numbers fit many by chance."""
    if comparison.rule.kind == "noise":
        return True
    bits = 0.0
    for stage in comparison.errors.values():
        finite = stage.expected[np.isfinite(stage.expected)]
        if finite.size > 1:
            allowed = float(np.median(comparison.rule.allowed(finite, 0.0)))
            ratio = float(np.ptp(finite)) / max(2 * allowed, 1e-300)
            bits += (finite.size - 1) * math.log2(max(ratio, 1.0))
    return bits > math.log2(n_pairs + 1) + SPARE_BITS


def differ(x: Array, y: Array, by: float = SAME) -> bool:
    """Whether two arrays differ by more than a share of the largest number."""
    return bool((distance(x, y) > by * max(largest(x), 1e-300)).any())
