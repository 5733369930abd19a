"""Units in which a kernel may keep the log-sum-exp of a row, and still be right.

base 2              log₂ Σ exp(Z), as kernels have it that compute with powers of 2
unscaled scores     lse / scale, as kernels have it whose maximum is that of S = Q Kᵀ
+∞ in empty rows    as FlashAttention 2 writes it; −∞ here

Of a walk through tiles the maximum m is a convention too: it may be in base 2, of unscaled scores,
or lag behind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from attncli.arrays import Array
from attncli.check.bugs import RUNNING
from attncli.check.bugs.bug import Evidence
from attncli.check.comparison import Comparison, comparison_of, fit
from attncli.check.setup import Setup
from attncli.stages import LSE


def in_units(comparison: Comparison) -> tuple[Comparison, tuple[str, ...]]:
    """The comparison with lse in the unit that makes it match, and a sentence on that unit."""
    if comparison.setup.tiles:
        comparison, of_m = _in_unit_of_m(comparison)
        comparison, of_invariants = _by_invariants(comparison)
        return comparison, of_m + of_invariants
    stage = comparison.errors.get(LSE)
    if stage is None or stage.matches:
        return comparison, ()
    for words, lse in _units(stage.observed, stage.expected, comparison.setup):
        setup, subset, rule = comparison.setup, comparison.subset, comparison.rule
        if comparison_of(setup, subset, {LSE: lse}, rule).matches:
            observed = {**comparison.observed, LSE: lse}
            return comparison_of(setup, subset, observed, rule), words
    return comparison, ()


def _in_unit_of_m(comparison: Comparison) -> tuple[Comparison, tuple[str, ...]]:
    """The same with the maximum of every tile in its own unit, where another makes all match."""
    setup, subset, rule = comparison.setup, comparison.subset, comparison.rule
    tops = {name: x for name, x in comparison.observed.items() if name.endswith(".m")}
    if not tops or all(comparison.errors[name].matches for name in tops):
        return comparison, ()
    scale = setup.how.scale_factor(setup.d_k)
    for words, factor in (
        ("m is in base 2: your m · ln 2 matches", math.log(2)),
        (f"m is that of unscaled scores: your m · {scale:.5g} matches", scale),
    ):
        turned = {name: x * factor for name, x in tops.items()}
        if comparison_of(setup, subset, turned, rule).matches:
            return comparison_of(setup, subset, {**comparison.observed, **turned}, rule), (words,)
    return comparison, ()


def _by_invariants(comparison: Comparison) -> tuple[Comparison, tuple[str, ...]]:
    """The same by acc / l and m + ln l, where m, l and acc differ and these match.

    A kernel may go by another maximum than the running one, such as one that lags behind: all else
    follows from it, and acc / l and m + ln l are the same. It is a bug only where each tile has its
    own maximum and forgets the one before.
    """
    setup, seen = comparison.setup, comparison.observed
    tiles = {name.removesuffix("acc") for name in seen if name.endswith(".acc")}
    full = [tile for tile in tiles if {f"{tile}m", f"{tile}l"} <= seen.keys()]
    names = {f"{tile}{own}" for tile in full for own in ("m", "l", "acc", "p", "alpha")}
    if not full or all(comparison.errors[name].matches for name in names & seen.keys()):
        return comparison, ()
    own_maximum = RUNNING[0].change(setup, Evidence(seen, {}))
    if any(fit(variant, comparison) for variant in own_maximum):
        return comparison, ()
    others = {name: x for name, x in seen.items() if name not in names}
    with np.errstate(all="ignore"):
        for tile in sorted(full):
            m, total, acc = (seen[f"{tile}{own}"] for own in ("m", "l", "acc"))
            others[f"{tile}so_far"] = acc / np.where(total == 0, 1, total)
            others[f"{tile}{LSE}"] = np.where(total == 0, -np.inf, m + np.log(total))
    invariant = comparison_of(setup, comparison.subset, others, comparison.rule)
    if not invariant.matches:
        return comparison, ()
    words = "m is not the largest score so far, but acc / l and m + ln l match: no bug"
    return invariant, (words,)


def _units(lse: Array, expected: Array, setup: Setup) -> Iterator[tuple[tuple[str, ...], Array]]:
    """The observed numbers in every unit, from the one they may be in to that of the convention."""
    starts: list[tuple[tuple[str, ...], Array]] = [((), lse)]
    infinite = np.isposinf(lse) & np.isneginf(expected)
    if infinite.any():
        words = "lse is +∞ where there is nothing to attend to, as FlashAttention 2 writes it"
        starts.append(((f"{words}: read as −∞",), np.where(infinite, -np.inf, lse)))
    scale = setup.how.scale_factor(setup.d_k)
    base, times, factor = "2", "·", math.log(2)
    if setup.how.lse_base == "2":
        base, times, factor = "e", "/", 1 / math.log(2)
    units = [("", 1.0), (f"lse is in base {base}: your lse {times} ln 2 matches", factor)]
    if scale not in (0.0, 1.0):
        unscaled = "that of unscaled scores: your lse ·"
        both = factor * scale
        units.append((f"lse is {unscaled} {scale:.5g} matches", scale))
        units.append((f"lse is in base {base} and {unscaled} {both:.5g} matches", both))
    for note, start in starts:
        for words, factor in units:
            if note or words:
                yield (*note, *filter(None, [words])), start * factor
