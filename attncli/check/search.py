"""The search: every bug singly, then in pairs, screened on a sample and confirmed on everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from attncli.check.bench import Bench, Fit, fit
from attncli.check.bugs.catalogue import CATALOGUE
from attncli.check.bugs.hypothesis import Clues, Hypothesis, Variant
from attncli.check.case import Case, total_mask
from attncli.check.engine import Cut, at_once
from attncli.check.sample import sample_of
from attncli.check.tolerance import EPS, distance

Progress = Callable[[int, int], None] | None
MOST_AT_ONCE = 2**25
EMPTY_WORDS = {
    "zero": "rows left with nothing to attend to become zero",
    "nan": "rows left with nothing to attend to become NaN",
    "uniform": "rows left with nothing to attend to attend to every key alike",
}


@dataclass(frozen=True, eq=False)
class Found:
    """Bugs that together explain what was observed: one, or two."""

    bugs: tuple[Hypothesis, ...]
    fits: tuple[Fit, ...]
    details: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Trial:
    """A bench, a sample of it, and what is known of either.

    emptied  which masks leave a query nothing to attend to
    skipped  bugs that would not fit into memory, and how many scores they need at once
    """

    full: Bench
    sample: Bench
    clues: Clues
    emptied: dict[Any, bool] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)

    def has_empty(self, case: Case) -> bool:
        """Whether this case leaves any query of the cut with nothing to attend to."""
        how = case.how
        key = (case.seen, how.causal, how.causal_align, how.window, how.mask_means)
        if key not in self.emptied:
            self.emptied[key] = _has_empty(case, self.full.cut)
        return self.emptied[key]


def trial_of(bench: Bench) -> Trial:
    """What the search works on."""
    sample = sample_of(bench)
    return Trial(bench, sample, Clues(bench.observed, bench.plain, EPS[bench.rule.dtype]))


def _has_empty(case: Case, cut: Cut) -> bool:
    for start in range(0, len(cut.row), 256):
        mask = total_mask(case, cut.row[start : start + 256])
        if mask is not None and np.isneginf(np.atleast_2d(mask)).all(axis=-1).any():
            return True
    return False


def search_singles(
    trial: Trial, progress: Progress = None
) -> tuple[list[Found], dict[str, list[Variant]]]:
    """The single bugs that fit, and by name all variants that change a number on the sample."""
    found, telling = [], {}
    nan_alone = only_nan(trial.full)
    for at, bug in enumerate(CATALOGUE):
        if nan_alone and "NaN" not in bug.touches:
            continue
        variants = list(variants_of(bug, trial.full.case, trial))
        if fits := _confirmed(variants, trial):
            found.append(_found((bug,), fits))
        if changing := [variant for variant in variants if _changes(variant, trial.sample)]:
            telling[bug.name] = changing
        _tell(progress, at + 1, len(CATALOGUE))
    return found, telling


def search_pairs(
    trial: Trial, telling: Mapping[str, list[Variant]], progress: Progress = None
) -> list[Found]:
    """The pairs that fit, of bugs that each change numbers and do not touch the same thing.

    None at all where the observed numbers are too few to tell so many pairs apart.
    """
    bugs = [bug for bug in CATALOGUE if bug.name in telling]
    couples = [pair for pair in combinations(bugs, 2) if not pair[0].touches & pair[1].touches]
    if only_nan(trial.full) or not _enough_evidence(trial.full, len(couples)):
        return []
    found = []
    for at, (first, second) in enumerate(couples):
        both = _both(telling[first.name], second, trial)
        if fits := _confirmed(both, trial):
            found.append(_found((first, second), fits))
        _tell(progress, at + 1, len(couples))
    return found


def only_nan(bench: Bench) -> bool:
    """Whether every wrong number is NaN: that says too little for bugs that are not about NaN."""
    return all(np.isnan(bench.observed[name][wrong]).all() for name, wrong in bench.wrong.items())


def _both(firsts: Iterable[Variant], second: Hypothesis, trial: Trial) -> Iterator[Variant]:
    for one in firsts:
        for two in variants_of(second, one.case, trial):
            yield Variant(two.case, "; ".join(filter(None, (one.detail, two.detail))))


def _tell(progress: Progress, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def variants_of(bug: Hypothesis, case: Case, trial: Trial) -> Iterator[Variant]:
    """The cases a bug stands for; where it leaves rows empty, under each rule for such rows."""
    for variant in bug.change(case, trial.clues):
        if at_once(variant.case) > max(MOST_AT_ONCE, at_once(case)):
            trial.skipped[bug.name] = at_once(variant.case)
            continue
        yield variant
        how = variant.case.how
        settled = "empty" in bug.touches or how.mask_value != -np.inf
        if settled or trial.has_empty(trial.full.case) or not trial.has_empty(variant.case):
            continue
        for empty, words in EMPTY_WORDS.items():
            if empty != how.empty_rows:
                detail = "; ".join(filter(None, (variant.detail, words)))
                yield Variant(variant.case.with_how(empty_rows=empty), detail)


def _confirmed(variants: Iterable[Variant], trial: Trial) -> list[tuple[Variant, Fit]]:
    """The variants that fit the sample, and then everything."""
    fits = []
    for variant in variants:
        if fit(variant.case, trial.sample) is None:
            continue
        confirmed = fit(variant.case, trial.full)
        if confirmed is not None:
            fits.append((variant, confirmed))
    return fits


def _found(bugs: tuple[Hypothesis, ...], fits: list[tuple[Variant, Fit]]) -> Found:
    details = tuple(dict.fromkeys(variant.detail for variant, _ in fits if variant.detail))
    if any(not variant.detail for variant, _ in fits):
        details = ()
    return Found(bugs, tuple(fit for _, fit in fits), details)


def _changes(variant: Variant, bench: Bench) -> bool:
    """Whether a variant computes other numbers than the plain reference at all."""
    if variant.case.undo is not None:
        return True
    expected = bench.expected(variant.case)
    for name, x in expected.items():
        plain = bench.plain[name]
        if (distance(x, plain) > 1e-9 * np.nanmax(np.abs(plain), initial=1e-300)).any():
            return True
    return False


def _enough_evidence(bench: Bench, n_pairs: int) -> bool:
    """Whether so many pairs could be told apart: a few rounded numbers fit many by chance."""
    if bench.rule.kind == "noise":
        return True
    bits = 0.0
    for x in bench.plain.values():
        finite = x[np.isfinite(x)]
        if finite.size > 1 and (spread := float(np.ptp(finite))) > 0:
            allowed = float(np.median(bench.rule.allowed(finite, 0.0)))
            ratio = spread / max(2 * allowed, 1e-300)
            bits += (finite.size - 1) * max(0.0, math.log2(max(ratio, 1.0)))
    return bits > math.log2(n_pairs + 1) + 10
