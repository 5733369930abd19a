"""Explanations of a verdict, from the bugs that fit: the formulas that they change, in words, and
what tells the bugs apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from attncli.attention.masks import total_mask
from attncli.attention.run import Step
from attncli.commands.check.bugs.bug import Bug, Evidence
from attncli.commands.check.bugs.catalogue import BACKWARD
from attncli.commands.check.bugs.rewrite import formula_of
from attncli.commands.check.findings import Explanation, Residual
from attncli.commands.check.search import Match, Search, changes, differ
from attncli.convention import KNOBS, flag_text
from attncli.formula.expression import Cell, Expr, Formula, letters_in, line_of, rebuilt
from attncli.formula.matrices import shown
from attncli.stages import (
    GRADIENTS,
    MASKED,
    OF_X,
    OUTPUT,
    SCALED,
    SCORES,
    WEIGHTS,
)
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.run import computes, stages, steps_of
from attncli.tolerance.samples import sample_of, wide_sample_of
from attncli.tolerance.setup import Setup

# ---- the formulas that a bug changes


class Change(NamedTuple):
    """A formula, or a setting, as it should be and as the bug has it, and which variant it is."""

    place: str
    right: str
    wrong: str
    detail: str

    @property
    def parts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """From where to where the right and the wrong one differ, at whole brackets of both.

        Of two formulas it is what they say, not the axes of what they say it of.
        """
        ours, theirs = (_TOKEN.findall(x) for x in (self.right, self.wrong))
        starts = [_start_of_body(x) for x in (ours, theirs)]
        if ours[starts[0] :] == theirs[starts[1] :]:
            starts = [0, 0]
        same = 0
        for token, other in zip(ours[starts[0] :], theirs[starts[1] :], strict=False):
            if token != other:
                break
            same += 1
        n = min(len(ours) - starts[0], len(theirs) - starts[1]) - same
        end = next((at for at in range(n) if ours[-1 - at] != theirs[-1 - at]), n)
        spans = [
            [start + same, len(x) - end] for start, x in zip(starts, (ours, theirs), strict=True)
        ]
        while cut := _cut(ours, spans[0]) or _cut(theirs, spans[1]):
            at, step = (0, -1) if cut == ")" else (1, 1)
            for span in spans:
                span[at] += step
        right, wrong = (
            (len("".join(x[:start])), len("".join(x[:stop])))
            for x, (start, stop) in zip((ours, theirs), spans, strict=True)
        )
        return right, wrong

    @property
    def fix(self) -> str:
        """Which part of the formula to put right; "" where what is right is not known.

        >>> Change("d_scaled", "dZ = y · (d − δ)", "dZ = y · (d + δ)", "").fix
        'write − where it has +'
        """
        if not self.right:
            return ""
        ours, theirs = self.parts
        put, was = self.right[slice(*ours)].strip(), self.wrong[slice(*theirs)].strip()
        put, was = (x if x != "none" else "" for x in (put, was))
        if put and was:
            return f"write {put} where it has {was}"
        return f"add {put}" if put else f"leave out {was}" if was else ""


_TOKEN = re.compile(r"-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|∞)|\w+|\s+|.")
"""A number, a name, blanks, or a sign."""


def _start_of_body(tokens: list[str]) -> int:
    """Where the right side of a formula begins; 0 where there is no =."""
    return tokens.index("=") + 1 if "=" in tokens else 0


def _cut(tokens: list[str], span: list[int]) -> str:
    """ ")" where a span begins within brackets, or between a name and its own; "(" where it ends
    within some; else ""."""
    start, stop = span
    depth = 0
    for token in tokens[start:stop]:
        depth += (token in OPENING) - (token in CLOSING)
        if depth < 0:
            return ")"
    if 0 < start < stop and tokens[start] in OPENING and re.match(r"[\w\])]", tokens[start - 1]):
        return ")"
    return "(" if depth else ""


OPENING, CLOSING = ("(", "[", "{"), (")", "]", "}")


def changes_between(plain: Setup, changed: Setup) -> list[Change]:
    """The formulas that differ between two setups, in the order of the computation."""
    groups = plain.inputs["k"].shape[1]
    others = {step.name: step for step in steps_of(changed, n_kv_heads=groups)}
    detail = "; ".join(changed.details[len(plain.details) :])
    pairs = [(x, others[x.name]) for x in steps_of(plain, n_kv_heads=groups) if x.name in others]
    texts = [(x.name, _text(x, plain, {}), _text(y, changed, others)) for x, y in pairs]
    masks = [_mask(setup) for setup in (plain, changed)]
    if "none" in masks and masks[0] != masks[1]:  # then weights and output say only that
        texts = [("mask", masks[0], masks[1])]
    return [Change(name, x, y, detail) for name, x, y in texts if x and y and x != y]


def _mask(setup: Setup) -> str:
    """The formula of the mask of a setup."""
    masks = (_text(step, setup, {}) for step in steps_of(setup) if step.function is total_mask)
    return next(masks, "none")


def _text(step: Step, setup: Setup, others: Mapping[str, Step]) -> str:
    """The formula of a step by cells, without the words beside it; "" where a function says it.

    others  the steps of a changed plan by name: what one of them has been stands in its place
    """
    is_edited = step.function is total_mask or f"{step.name}_right" in step.reads.values()
    if not is_edited:
        text = step.expression.partition("#")[0].strip() if step.text else ""
        return shown(re.sub(r"\bvalue\b", f"{step.params.get('value', -np.inf):g}", text))
    formula, is_mask = formula_of(step, setup.inputs), (step.kind or step.name) == "mask"
    symbol = "M" if is_mask else formula.symbol
    if step.function is None:
        before = formula_of(others[f"{step.name}_right"], setup.inputs)

        def as_it_was(x: Expr) -> Expr:
            """What stands for the formula as it is; of another place, the same stage there."""
            if not isinstance(x, Cell) or x.name != "right":
                return x
            return before.body if x.index == formula.index else Cell(symbol, x.index)

        formula = replace(formula, body=rebuilt(formula.body, as_it_was))
    if is_mask:
        axes = letters_in(formula.body)
        formula = Formula(symbol, tuple((x,) for x in "bhij" if x in axes), formula.body)
    text = line_of(formula).replace("rows[i]", "i")  # here they are all of them
    return shown(re.sub(r" \+ 0(?![.\d])", "", text).replace("+ -", "- "))


# ---- the bugs that fit


def explanation(match: Match, comparison: Comparison) -> Explanation:
    """A match in words, by the first of its variants that fit."""
    first, plain = match.fits[0], comparison.errors
    details = tuple(dict.fromkeys("; ".join(fit.setup.details) for fit in match.fits))
    is_same_shape = first.setup.shape == comparison.setup.shape  # else its formulas say too little
    changed = changes_between(comparison.setup, first.setup) if is_same_shape else []
    change = next(iter(changed), Change("", "", "", ""))
    return Explanation(
        bugs=match.bugs,
        details=details if all(details) else (),
        flag=flags(comparison.setup, first.setup),
        errors={
            x: Residual(*y, plain[x].typical, plain[x].largest) for x, y in first.errors.items()
        },
        command="compute" if comparison.setup.positions is None else "check",
        expected=_expected(comparison.setup, first.setup) if is_same_shape else "",
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


def distinguished_by(matches: Sequence[Match], comparison: Comparison) -> str:
    """Which stage that was not observed differs between the explanations on this input, if any."""
    sample = wide_sample_of(comparison) or sample_of(comparison)
    setups = [match.fits[0].setup for match in matches]
    for name in TELLING:
        if name in comparison.observed or not all(computes(x, [name]) for x in setups):
            continue
        each = [stages(x, sample.subset, [name])[name] for x in setups]
        if all(differ(x, y, by=FAR) for x, y in combinations(each, 2)):
            names = (" and ".join(bug.name for bug in match.bugs) for match in matches)
            return f"{name} would distinguish them: {' | '.join(names)}"
    return "another input, if any: check --bug ID shows one for each bug"


TELLING = (OUTPUT, "d_q", "d_k", "d_v", SCORES, *GRADIENTS[: -len(OF_X)], SCALED, MASKED, WEIGHTS)
"""Stages that may tell explanations apart: those that are at hand first."""

FAR = 1e-3
"""Stages that tell explanations apart differ by this share of the largest number, which every
number type shows: the coarsest, bfloat16, has about 2 decimals for a number, and many of them are
compared."""


def hidden_bugs(search: Search) -> list[Bug]:
    """The bugs of the backward pass that compute the right numbers here, or do not apply."""
    sample, setup = search.evidence.wide or search.samples[0], search.comparison.setup
    right = {name: stage.expected for name, stage in sample.errors.items()}
    evidence, hidden = Evidence(right, right, subset=sample.subset), list[Bug]()
    for bug in BACKWARD:
        applies = False
        for other in bug.change(setup, evidence):
            if not (other.relayout or other.relabel or computes(other, right)):
                continue
            applies = True
            if other.relabel or changes(other, [sample]):
                break
        else:
            if applies or bug.touches & FEATURES:
                hidden.append(bug)
    return hidden


FEATURES = frozenset(["softcap", "dropout", "sinks", "key-heads", "mask"])
"""What an input may lack, so that it cannot show the bugs that touch it."""


def flags(plain: Setup, changed: Setup) -> str:
    """What to add to, or take from, the call of `attncli compute`; "" where no flags do it.

    Positions are flags of `attncli check`.

    >>> from attncli.tolerance.setup import setup_of
    >>> setup = setup_of([[1.0]], [[1.0]], [[1.0]])
    >>> flags(setup, setup.with_convention(scale="none", causal=True))
    '--causal --scale none'
    """
    has_no_flag = changed.positions is not None and not changed.positions.text
    if has_no_flag or changed.edits or changed.relayout or changed.relabel or changed.instead:
        return ""
    was, now, words = _given(plain), _given(changed), list[str]()
    if (now["k"], now["v"]) == (was["v"], was["k"]) and now["k"] != was["k"]:
        words, now = ["exchange --k and --v"], {**now, "k": was["k"], "v": was["v"]}
    for name in [x for x in now | was if now.get(x) != was.get(x)]:
        if name in LEFT_OUT and now.get(name) is None:
            words.append(f"without {LEFT_OUT[name]}")
        elif name == "positions":
            words.append(f"--positions {now[name]}")
        elif name not in KNOBS or name in (
            "dropout",
            "seed",
        ):  # which weights, no seed of ours says
            return ""
        elif KNOBS[name].has_effect(changed.convention.changes()):
            words.append(flag_text(name, now[name]))
    if now["scale"] != was["scale"] and plain.temperature != 1:  # which the scale holds
        words.append("without --temperature")
    return " ".join(words)


def _given(setup: Setup) -> dict[str, Any]:
    """What a call says of a setup, by its name; of arrays which they are."""
    fields = {name: getattr(setup.convention, name) for name in KNOBS}
    arrays = {name: id(x) for name, x in setup.inputs.items()}
    return {"positions": setup.positions and setup.positions.text, **fields, **arrays}


LEFT_OUT = {"positions": "--positions", "given_mask": "--mask", "kv_len": "--kv-len"}
"""The flags of what may be missing."""
