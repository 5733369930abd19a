"""What was found, in words: explanations, what they have in common, what tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from attncli.check.comparison import Comparison
from attncli.check.report import Bug, Explanation
from attncli.check.search import Match
from attncli.check.setup import Setup
from attncli.check.suggest import suggest_input
from attncli.check.tolerance import distance
from attncli.convention import KNOBS, flag_text
from attncli.stages import MASKED, SCALED, SCORES, WEIGHTS

MORE_STAGES = (SCORES, SCALED, MASKED, WEIGHTS)


def explanations_of(found: Sequence[Match], comparison: Comparison) -> tuple[Explanation, ...]:
    """Each way to explain the comparison, in the order of the catalogue."""
    plain = {name: float(x.max(initial=0.0)) for name, x in comparison.errors.items()}
    return tuple(
        Explanation(
            bugs=tuple(Bug(bug.name, bug.sentence, bug.threads) for bug in one.bugs),
            details=one.details,
            flag=flags(comparison.setup, one.fits[0].setup),
            errors=one.fits[0].errors,
            plain_errors=plain,
            command="compute" if comparison.setup.positions is None else "check",
        )
        for one in found
    )


def common_ground(found: Sequence[Match]) -> str:
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


def _touched(one: Match) -> frozenset[str]:
    return frozenset().union(*(bug.touches for bug in one.bugs))


def _same_numbers(one: Match, two: Match) -> bool:
    first, second = one.fits[0], two.fits[0]
    for name, x in first.expected.items():
        size = float(np.max(np.abs(x[np.isfinite(x)]), initial=0.0))
        if (distance(x, second.expected[name]) > 1e-9 * size).any():
            return False
    return True


def telling_input(explanations: Sequence[Explanation], comparison: Comparison) -> str:
    """Which input, or which stage, tells the explanations apart."""
    stages = list(comparison.observed)
    how, positions = comparison.setup.how, comparison.setup.positions
    kind = None if positions is None else positions.kind
    suggestion = suggest_input(explanations, convention=how, positions=kind, stages=stages)
    if suggestion is not None:
        return f"an input with {suggestion.words}"
    for stage in MORE_STAGES:
        wider = [*stages, stage]
        more = suggest_input(explanations, convention=how, positions=kind, stages=wider)
        if more is not None:
            return f"the {stage} observed as well, on an input with {more.words}"
    return "no input that was tried: they may always compute the same numbers"


def flags(plain: Setup, changed: Setup) -> str:
    """What to add to, or take from, the call of `attncli compute`; "" where no flags do it.

    Positions are flags of `attncli check`.

    >>> from attncli.check.setup import setup_of
    >>> setup = setup_of([[1.0]], [[1.0]], [[1.0]])
    >>> flags(setup, setup.with_how(scale="none", causal=True))
    '--causal --scale none'
    """
    swapped = changed.q is plain.q and changed.k is plain.v and changed.v is plain.k
    same = all(getattr(plain, name) is getattr(changed, name) for name in ("q", "k", "v"))
    other_steps = changed.changes or changed.softmax_axis or changed.relayout or changed.relabel
    other_mask = changed.mask is not plain.mask and changed.mask is not None
    if not (same or swapped) or other_steps or other_mask or changed.kept is not plain.kept:
        return ""
    words = ["exchange --k and --v"] if swapped and not same else []
    before, after = plain.positions, changed.positions
    if before is not None and before != after:
        if after is not None and replace(after, kind=before.kind) != before:
            return ""  # no flags for positions that are wrong otherwise than in their kind
        words.append("without --positions" if after is None else f"--positions {after.kind}")
    names = [name for name in KNOBS if getattr(changed.how, name) != getattr(plain.how, name)]
    if "dropout" in names or "seed" in names:  # what was dropped is not drawn from a seed of ours
        return ""
    in_effect = changed.how.changes()
    for name in names:
        needs = KNOBS[name].needs
        if not needs or any(other in in_effect for other in needs):
            words.append(flag_text(name, getattr(changed.how, name)))
    words += ["without --mask"] * (plain.mask is not None and changed.mask is None)
    words += ["without --kv-len"] * (plain.kv_len is not None and changed.kv_len is None)
    return " ".join(words)
