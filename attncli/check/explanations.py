"""Explanations of a verdict, from the bugs that fit: in words, and what tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from attncli.attention.run import Step
from attncli.check.comparison import Comparison
from attncli.check.explain import Change, changes_between
from attncli.check.run import computes, stages, steps_of
from attncli.check.samples import sample_of, wide_sample_of
from attncli.check.search import Match, differ
from attncli.check.setup import Setup
from attncli.check.suggest import FAR, suggest_input
from attncli.check.verdict import Explanation, Left
from attncli.convention import KNOBS, flag_text
from attncli.stages import GRADIENTS, MASKED, OF_X, OUTPUT, SCALED, SCORES, WEIGHTS


def explanation(match: Match, comparison: Comparison) -> Explanation:
    first = match.fits[0]
    details = tuple(dict.fromkeys("; ".join(fit.setup.details) for fit in match.fits))
    plain = comparison.errors
    change = next(iter(changes_between(comparison.setup, first.setup)), Change("", "", "", ""))
    return Explanation(
        bugs=match.bugs,
        details=details if all(details) else (),
        flag=flags(comparison.setup, first.setup),
        errors={x: Left(*y, plain[x].typical, plain[x].largest) for x, y in first.errors.items()},
        command="compute" if comparison.setup.positions is None else "check",
        expected=_expected(comparison.setup, first.setup),
        formula=change.right,
        edited=change.wrong,
        fix=change.fix,
    )


def _expected(plain: Setup, changed: Setup) -> str:
    """The formula of the first step but the mask that is another one, as it should be, or ""."""
    others = {step.name: step for step in steps_of(changed)}
    for step in steps_of(plain):
        other = others.get(step.name)
        if step.formula and step.name != "mask" and (other is None or _work(other) != _work(step)):
            return step.formula
    return ""


def _work(step: Step) -> tuple[Any, ...]:
    return step.function, step.text, step.reads, step.params


def in_common(matches: Sequence[Match], comparison: Comparison) -> str:
    """What several explanations have in common: what they change, and how alike they are here."""
    shared = frozenset.intersection(
        *(frozenset().union(*(bug.touches for bug in match.bugs)) for match in matches)
    )
    first, *others = (match.fits[0].setup for match in matches)
    expected = comparison.expected(first)
    each = map(comparison.expected, others)  # one at a time: each may be as large as a stage
    if any(differ(x, other[name]) for other in each for name, x in expected.items()):
        alike = "they differ by less than the tolerance on this input"
    else:
        alike = "they compute the same numbers on this input"
    if not shared:
        return alike
    same = ", ".join(sorted(shared)).replace("-", " ")
    return f"they all change the same thing ({same}), and {alike}"


def distinguished_by(explanations: Sequence[Explanation], comparison: Comparison) -> str:
    """Which input, or which stage observed as well, distinguishes the explanations."""
    how, positions = comparison.setup.how, comparison.setup.positions
    kind = None if positions is None else positions.kind
    for more in (None, SCORES, SCALED, MASKED, WEIGHTS):
        stages = [*comparison.errors, *([more] if more else [])]
        suggestion = suggest_input(explanations, convention=how, positions=kind, stages=stages)
        if suggestion is not None:
            observed = f"the {more} observed as well, on " if more else ""
            return f"{observed}an input with {suggestion.words}"
    return "no input that was tried: they may always compute the same numbers"


def told_by(matches: Sequence[Match], comparison: Comparison) -> str:
    """Which gradient that was not observed differs between the explanations on this input."""
    if not any(name in GRADIENTS for name in comparison.observed):
        return ""
    sample = wide_sample_of(comparison) or sample_of(comparison)
    setups = [match.fits[0].setup for match in matches]
    for name in TELLING:
        if name in comparison.observed or not all(computes(x, [name]) for x in setups):
            continue
        each = [stages(x, sample.subset, [name])[name] for x in setups]
        if all(differ(x, y, by=FAR) for x, y in combinations(each, 2)):
            names = (" and ".join(bug.name for bug in match.bugs) for match in matches)
            return f"{name} would distinguish them: {' | '.join(names)}"
    return ""


TELLING = (OUTPUT, "d_q", "d_k", "d_v", SCORES, *GRADIENTS[: -len(OF_X)])
"""Stages that may tell explanations apart: those that are at hand first."""


def flags(plain: Setup, changed: Setup) -> str:
    """What to add to, or take from, the call of `attncli compute`; "" where no flags do it.

    Positions are flags of `attncli check`.

    >>> from attncli.check.setup import setup_of
    >>> setup = setup_of([[1.0]], [[1.0]], [[1.0]])
    >>> flags(setup, setup.with_how(scale="none", causal=True))
    '--causal --scale none'
    """
    before, after = plain.inputs, changed.inputs
    others = {name for name in after if after[name] is not before.get(name)}
    swapped = others == {"k", "v"} and after["k"] is before["v"] and after["v"] is before["k"]
    left_out = before.keys() - after.keys()
    if changed.edits or changed.relayout or changed.relabel or changed.instead:
        return ""
    if (others and not swapped) or left_out - _FLAG_OF.keys():
        return ""
    words = ["exchange --k and --v"] if swapped else []
    if plain.positions is not None and plain.positions != changed.positions:
        kind = plain.positions.kind
        if changed.positions is None:
            words.append("without --positions")
        elif replace(changed.positions, kind=kind) == plain.positions:
            words.append(f"--positions {changed.positions.kind}")
        else:
            return ""  # no flags for positions that are wrong otherwise than in their kind
    names = [name for name in KNOBS if getattr(changed.how, name) != getattr(plain.how, name)]
    if "dropout" in names or "seed" in names:  # what was dropped is not drawn from a seed of ours
        return ""
    in_effect = changed.how.changes()
    for name in names:
        if KNOBS[name].has_effect(in_effect):
            words.append(flag_text(name, getattr(changed.how, name)))
    words += [f"without {flag}" for name, flag in _FLAG_OF.items() if name in left_out]
    return " ".join(words)


_FLAG_OF = {"given_mask": "--mask", "kv_len": "--kv-len"}
