"""What was found, in words: explanations, what they have in common, what tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from attncli.check.bench import Bench
from attncli.check.flags import flags
from attncli.check.search import Found
from attncli.check.suggest import suggest_input
from attncli.check.tolerance import distance
from attncli.check.verdict import Bug, Explanation

MORE_STAGES = ("scores", "scaled", "masked", "weights")


def explanations_of(found: Sequence[Found], bench: Bench) -> tuple[Explanation, ...]:
    """Each way to explain the bench, in the order of the catalogue."""
    plain = {name: float(x.max(initial=0.0)) for name, x in bench.errors.items()}
    return tuple(
        Explanation(
            bugs=tuple(Bug(bug.name, bug.sentence, bug.threads) for bug in one.bugs),
            details=one.details,
            flag=flags(bench.case, one.fits[0].case),
            errors=one.fits[0].errors,
            plain_errors=plain,
            command="compute" if bench.case.placement is None else "check",
        )
        for one in found
    )


def common_ground(found: Sequence[Found]) -> str:
    """What several explanations have in common: what they change, and how alike they are here."""
    shared = frozenset.intersection(*(_touched(one) for one in found))
    same = all(_same_numbers(one, two) for one, two in combinations(found, 2))
    alike = (
        "they compute the same numbers on this input"
        if same
        else ("they differ by less than the tolerance on this input")
    )
    if not shared:
        return alike
    return f"they all change the same thing ({', '.join(sorted(shared))}), and {alike}"


def _touched(one: Found) -> frozenset[str]:
    return frozenset().union(*(bug.touches for bug in one.bugs))


def _same_numbers(one: Found, two: Found) -> bool:
    first, second = one.fits[0], two.fits[0]
    for name, x in first.expected.items():
        size = float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0))
        if (distance(x, second.expected[name]) > 1e-9 * size).any():
            return False
    return True


def telling_input(explanations: Sequence[Explanation], bench: Bench) -> str:
    """Which input, or which stage, tells the explanations apart."""
    stages = list(bench.observed)
    how, placement = bench.case.how, bench.case.placement
    kind = None if placement is None else placement.kind
    suggestion = suggest_input(explanations, convention=how, positions=kind, stages=stages)
    if suggestion is not None:
        return f"an input with {suggestion.words}"
    for stage in MORE_STAGES:
        wider = [*stages, stage]
        more = suggest_input(explanations, convention=how, positions=kind, stages=wider)
        if more is not None:
            return f"the {stage} observed as well, on an input with {more.words}"
    return "no input that was tried: they may always compute the same numbers"
