"""The search: every bug singly, then in pairs, screened on a sample and confirmed on everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from attncli.check.bugs import CATALOGUE
from attncli.check.bugs.hypothesis import Evidence, Hypothesis, Variant
from attncli.check.comparison import Comparison, Fit, fit, sample_of
from attncli.check.run import Subset, at_once, mask_of
from attncli.check.setup import Setup
from attncli.check.tolerance import EPS, distance

Progress = Callable[[int, int], None] | None
MOST_AT_ONCE = 2**25
EMPTY_WORDS = {
    "zero": "rows left with nothing to attend to become zero",
    "nan": "rows left with nothing to attend to become NaN",
    "uniform": "rows left with nothing to attend to attend to every key alike",
}


@dataclass(frozen=True, eq=False)
class Match:
    """Bugs that together explain what was observed: one, or two."""

    bugs: tuple[Hypothesis, ...]
    fits: tuple[Fit, ...]
    details: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Search:
    """A comparison, a sample of it, and what is known of either.

    emptied  which masks leave a query nothing to attend to
    skipped  bugs that would not fit into memory, and how many scores they need at once
    """

    full: Comparison
    sample: Comparison
    evidence: Evidence
    emptied: dict[Any, tuple[bool, Any]] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)

    def has_empty(self, setup: Setup) -> bool:
        """Whether this setup leaves any query of the subset with nothing to attend to."""
        how, mask_change = setup.how, setup.changes.get("mask", {})
        changed = mask_change if callable(mask_change) else tuple(mask_change.items())
        key: tuple[Any, ...] = (id(setup.mask), setup.kv_len is None, changed)
        key += (how.causal, how.causal_align, how.window, how.mask_means)
        if key not in self.emptied:  # with the mask itself, so that its id stays its own
            self.emptied[key] = _has_empty(setup, self.full.subset), setup.mask
        return self.emptied[key][0]


def search_of(comparison: Comparison) -> Search:
    """What the search works on."""
    sample = sample_of(comparison)
    return Search(
        comparison,
        sample,
        Evidence(comparison.observed, comparison.plain, EPS[comparison.rule.dtype]),
    )


def _has_empty(setup: Setup, subset: Subset) -> bool:
    for start in range(0, len(subset.row), 256):
        mask = mask_of(setup, subset.row[start : start + 256])
        if mask is not None and np.isneginf(np.atleast_2d(mask)).all(axis=-1).any():
            return True
    return False


def search_singles(
    search: Search, progress: Progress = None
) -> tuple[list[Match], dict[str, list[Variant]]]:
    """The single bugs that fit, and by name all variants that change a number on the sample."""
    found, telling = [], {}
    nan_alone = only_nan(search.full)
    for at, bug in enumerate(CATALOGUE):
        if nan_alone and "NaN" not in bug.touches:
            continue
        variants = list(variants_of(bug, search.full.setup, search))
        if fits := _confirmed(variants, search):
            found.append(_found((bug,), fits))
        if changing := [variant for variant in variants if _changes(variant, search.sample)]:
            telling[bug.name] = changing
        _tell(progress, at + 1, len(CATALOGUE))
    return found, telling


def search_pairs(
    search: Search, telling: Mapping[str, list[Variant]], progress: Progress = None
) -> list[Match]:
    """The pairs that fit, of bugs that each change numbers and do not touch the same thing.

    None at all where the observed numbers are too few to tell so many pairs apart.
    """
    bugs = [bug for bug in CATALOGUE if bug.name in telling]
    couples = [pair for pair in combinations(bugs, 2) if not pair[0].touches & pair[1].touches]
    if only_nan(search.full) or not _enough_evidence(search.full, len(couples)):
        return []
    found = []
    for at, (first, second) in enumerate(couples):
        both = _both(telling[first.name], second, search)
        if fits := _confirmed(both, search):
            found.append(_found((first, second), fits))
        _tell(progress, at + 1, len(couples))
    return found


def only_nan(comparison: Comparison) -> bool:
    """Whether every wrong number is NaN: that says too little for bugs that are not about NaN."""
    return all(
        np.isnan(comparison.observed[name][wrong]).all() for name, wrong in comparison.wrong.items()
    )


def _both(firsts: Iterable[Variant], second: Hypothesis, search: Search) -> Iterator[Variant]:
    for one in firsts:
        for two in variants_of(second, one.setup, search):
            yield Variant(two.setup, "; ".join(filter(None, (one.detail, two.detail))))


def _tell(progress: Progress, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def variants_of(bug: Hypothesis, setup: Setup, search: Search) -> Iterator[Variant]:
    """The cases a bug stands for; where it leaves rows empty, under each rule for such rows."""
    for variant in bug.change(setup, search.evidence):
        if at_once(variant.setup) > max(MOST_AT_ONCE, at_once(setup)):
            search.skipped[bug.name] = at_once(variant.setup)
            continue
        yield variant
        how = variant.setup.how
        settled = "empty" in bug.touches or how.mask_value != -np.inf
        if settled or search.has_empty(search.full.setup) or not search.has_empty(variant.setup):
            continue
        for empty, words in EMPTY_WORDS.items():
            if empty != how.empty_rows:
                detail = "; ".join(filter(None, (variant.detail, words)))
                yield Variant(variant.setup.with_how(empty_rows=empty), detail)


def _confirmed(variants: Iterable[Variant], search: Search) -> list[tuple[Variant, Fit]]:
    """The variants that fit the sample, and then everything."""
    fits = []
    for variant in variants:
        if fit(variant.setup, search.sample) is None:
            continue
        confirmed = fit(variant.setup, search.full)
        if confirmed is not None:
            fits.append((variant, confirmed))
    return fits


def _found(bugs: tuple[Hypothesis, ...], fits: list[tuple[Variant, Fit]]) -> Match:
    details = tuple(dict.fromkeys(variant.detail for variant, _ in fits if variant.detail))
    if any(not variant.detail for variant, _ in fits):
        details = ()
    return Match(bugs, tuple(fit for _, fit in fits), details)


def _changes(variant: Variant, comparison: Comparison) -> bool:
    """Whether a variant computes other numbers than the plain reference at all."""
    if variant.setup.relayout is not None:
        return True
    expected = comparison.expected(variant.setup)
    for name, x in expected.items():
        plain = comparison.plain[name]
        if (distance(x, plain) > 1e-9 * np.nanmax(np.abs(plain), initial=1e-300)).any():
            return True
    return False


def _enough_evidence(comparison: Comparison, n_pairs: int) -> bool:
    """Whether so many pairs could be told apart: a few rounded numbers fit many by chance."""
    if comparison.rule.kind == "noise":
        return True
    bits = 0.0
    for x in comparison.plain.values():
        finite = x[np.isfinite(x)]
        if finite.size > 1 and (spread := float(np.ptp(finite))) > 0:
            allowed = float(np.median(comparison.rule.allowed(finite, 0.0)))
            ratio = spread / max(2 * allowed, 1e-300)
            bits += (finite.size - 1) * max(0.0, math.log2(max(ratio, 1.0)))
    return bits > math.log2(n_pairs + 1) + 10
