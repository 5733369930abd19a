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
from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.check.bugs import RUNNING
from attncli.check.bugs.bug import Evidence
from attncli.check.comparison import Comparison, comparison_of, fit
from attncli.check.setup import Setup
from attncli.stages import LSE


def in_units(comparison: Comparison) -> tuple[Comparison, tuple[str, ...]]:
    """The comparison with lse in its own unit, where it differs and another unit makes it match.

    And a sentence on that unit.
    """
    if comparison.setup.tiles:
        comparison, said = _in_unit_of_m(comparison)
        comparison, more = _by_invariants(comparison)
        return comparison, said + more
    own = comparison.errors.get(LSE)
    if own is None or own.matches:
        return comparison, ()
    for words, lse in _units(own.observed, own.expected, comparison.setup):
        observed = {**comparison.observed, LSE: lse}
        alone = {LSE: lse}
        setup, subset, rule = comparison.setup, comparison.subset, comparison.rule
        if comparison_of(setup, subset, alone, rule).matches:
            return replace(comparison_of(setup, subset, observed, rule)), words
    return comparison, ()


def _in_unit_of_m(comparison: Comparison) -> tuple[Comparison, tuple[str, ...]]:
    """The same with the maximum of every tile in its own unit, where another makes all match."""
    setup, subset, rule = comparison.setup, comparison.subset, comparison.rule
    tops = {name: x for name, x in comparison.observed.items() if name.endswith(".m")}
    if not tops or all(comparison.errors[name].matches for name in tops):
        return comparison, ()
    scale = setup.how.scale_factor(setup.d_k)
    two = ("m is in base 2: your m · ln 2 matches", math.log(2))
    units = [two, (f"m is that of unscaled scores: your m · {scale:.5g} matches", scale)]
    for words, factor in units:
        own = {name: x * factor for name, x in tops.items()}
        if comparison_of(setup, subset, own, rule).matches:
            return comparison_of(setup, subset, {**comparison.observed, **own}, rule), (words,)
    return comparison, ()


def _by_invariants(comparison: Comparison) -> tuple[Comparison, tuple[str, ...]]:
    """The same by acc / l and m + ln l, where m, l and acc differ and these match.

    A kernel may go by another maximum than the running one, such as one that lags behind: all else
    follows from it, and acc / l and m + ln l are the same. It is a bug only where each tile has its
    own maximum and forgets the one before.
    """
    setup, subset, rule, seen = (
        comparison.setup,
        comparison.subset,
        comparison.rule,
        comparison.observed,
    )
    found = {name.removesuffix("acc") for name in seen if name.endswith(".acc")}
    full = [tile for tile in found if {f"{tile}m", f"{tile}l"} <= seen.keys()]
    names = {f"{tile}{own}" for tile in full for own in ("m", "l", "acc", "p", "alpha")}
    if not full or all(comparison.errors[name].matches for name in names & seen.keys()):
        return comparison, ()
    evidence = Evidence(seen, {})
    own_maximum = RUNNING[0].change(setup, evidence)
    if any(fit(variant, comparison) for variant in own_maximum):
        return comparison, ()
    others = {name: x for name, x in seen.items() if name not in names}
    with np.errstate(all="ignore"):
        for tile in sorted(full):
            m, total, acc = (seen[f"{tile}{own}"] for own in ("m", "l", "acc"))
            others[f"{tile}so_far"] = acc / np.where(total == 0, 1, total)
            others[f"{tile}{LSE}"] = np.where(total == 0, -np.inf, m + np.log(total))
    invariant = comparison_of(setup, subset, others, rule)
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
    two = setup.how.lse_base == "2"
    base = (
        ("lse is in base e: your lse / ln 2 matches", 1 / math.log(2))
        if two
        else ("lse is in base 2: your lse · ln 2 matches", math.log(2))
    )
    units = [("", 1.0), base]
    if scale not in (0.0, 1.0):
        unscaled = f"lse is that of unscaled scores: your lse · {scale:.5g} matches"
        units.append((unscaled, scale))
        both = f"lse is in base {'e' if two else '2'} and that of unscaled scores: your lse · "
        units.append((f"{both}{base[1] * scale:.5g} matches", base[1] * scale))
    for said, start in starts:
        for words, factor in units:
            if said or words:
                yield (*said, *filter(None, [words])), start * factor
