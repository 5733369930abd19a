"""Verdict: the result of comparing somebody else's numbers; as plain text, and as data for scripts.

Verdict ──┬── StageVerdict …   each observed stage: how far off, where, the worst entries
          ├── Meaning …        libraries as whose conventions have it the numbers are right
          └── Explanation …    each explanation: one bug, or two at once

The data (`verdict_to_dict`) are the fields below by their names; besides them
    schema    5; from 3 on there are meanings and is_default, and the status may be "meaning"; a
              bug has an id from 4 on, and there is edit: None, or {stage, formula, edited, old,
              new, n_alike}; from 5 on there is reading
    matches   true | false
    name      of an explanation: the names of its bugs, joined
A bug is {id, name, sentence, threads}. NaN and infinity are strings, as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple
from itertools import chain
from typing import Any

from attncli.commands.check.verdict import Edit, Explanation, StageVerdict, Verdict
from attncli.errors import joined
from attncli.files.numbers import nan_to_text
from attncli.stages import GRADIENTS

SCHEMA = 5


def verdict_to_dict(verdict: Verdict) -> dict[str, Any]:
    """The verdict as dictionaries, lists, strings and numbers, ready for JSON.

    >>> verdict_to_dict(Verdict("match", "float32"))["status"]
    'match'
    """
    data = asdict(verdict)
    for explanation, source in zip(data["explanations"], verdict.explanations, strict=True):
        fields = "id", "name", "sentence", "threads"
        explanation["bugs"] = [{x: getattr(bug, x) for x in fields} for bug in source.bugs]
        explanation["name"] = source.name
    plain: dict[str, Any] = nan_to_text({"schema": SCHEMA, "matches": verdict.matches, **data})
    return plain


def report_text(verdict: Verdict) -> str:
    """The verdict for a reader: the answer, its cause, where the errors are, and how large.

    >>> print(report_text(Verdict("match", "float32")))
    it matches
    """
    return "\n".join(_lines(verdict))


def summary_to_dict(verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """Verdicts of several attentions by name, ready for JSON."""
    each = {name: verdict_to_dict(verdict) for name, verdict in verdicts.items()}
    return {"schema": SCHEMA, "matches": all(verdicts.values()), "attentions": each}


def summary_text(verdicts: Mapping[str, Verdict]) -> str:
    """Verdicts of several attentions, a line each, and the first that does not match, whole.

    >>> print(summary_text({"layers.0": Verdict("match", "float32")}))
    1 of 1 matches
      layers.0  it matches
    """
    matching = sum(map(bool, verdicts.values()))
    width = max(map(len, verdicts), default=0)
    lines = [f"{matching} of {len(verdicts)} match{'es' * (matching == 1)}"]
    for name, verdict in verdicts.items():
        causes = " or ".join(explanation.name for explanation in verdict.explanations)
        answer = _headline(verdict).removesuffix(":")
        if verdict.is_meant:
            answer = f"it differs, and matches {verdict.meanings[0].names[0]}'s conventions"
            causes = ""
        lines.append(f"  {name:{width}}  {answer}{f': {causes}' if causes else ''}")
    if different := [name for name, verdict in verdicts.items() if not verdict]:
        lines += ["", different[0], report_text(verdicts[different[0]])]
    return "\n".join(lines)


def _lines(verdict: Verdict) -> Iterator[str]:
    yield _headline(verdict)
    if verdict.shape:
        yield f"  {verdict.shape}"
    yield from _libraries(verdict) if verdict.is_meant else ()
    yield from _explanations(verdict)
    yield from _libraries(verdict) if not verdict.is_meant else ()
    if verdict.common:
        yield f"  in common: {verdict.common}"
    if verdict.tell_apart:
        yield f"  distinguished by: {verdict.tell_apart}"
    reading = [verdict.reading] if verdict.reading and not verdict.matches else []
    notes = [f"  note: {note}" for note in (*reading, *verdict.notes)]
    parts = [[*_stages(verdict)], notes]
    # what to try comes before where it differs
    yield from chain(*(reversed(parts) if verdict.status == "no match" else parts))


def _stages(verdict: Verdict) -> Iterator[str]:
    """Each stage, of gradients those that differ; and the bugs that this input cannot show."""
    is_summed_up = not verdict.matches and any(x.name in GRADIENTS for x in verdict.stages)
    if is_summed_up:
        yield _sum_of(verdict)
    for stage in verdict.stages:
        if not (is_summed_up and stage.matches):
            yield from _stage(stage, verdict)
    if undecided := verdict.undecided:
        more = len(undecided) - MOST_LISTED
        listing = "; ".join(undecided[:MOST_LISTED]) + f" and {more} more" * (more > 0)
        yield f"  bugs too small to be seen on this input: {listing}"
    if verdict.hidden:
        bugs = f"{len(verdict.hidden)} known bug{'s' * (len(verdict.hidden) > 1)}"
        yield f"  this input cannot show {bugs}: --suggest input.npz writes one that does"


def _edit(edit: Edit) -> Iterator[str]:
    """The edit that gives the observed numbers: both formulas, and what differs between them."""
    if not edit.formula:
        yield f"  these are the numbers if {edit.edited}"
        return
    yield f"  these are the numbers of {edit.new} in {edit.stage} where the formula has {edit.old}:"
    yield f"    right     {edit.formula}"
    yield f"    observed  {edit.edited}"
    if edit.n_alike:
        more = "one other edit" if edit.n_alike == 1 else f"{edit.n_alike} other edits"
        yield f"    {more} as short would give the same numbers"


def _headline(verdict: Verdict) -> str:
    if verdict.is_meant:
        target = "the default conventions" if verdict.is_default else "what was asked for"
        return f"it differs from {target}, and matches {verdict.meanings[0].names[0]}'s:"
    if verdict.quiet:
        cause = "it is:" if verdict.status == "found" else "each of these explains it:"
        return f"within {verdict.dtype}'s rounding, but the errors are those of a bug; {cause}"
    if verdict.inside == verdict.dtype:
        return (
            f"it matches only if sums are kept in {verdict.dtype} and rounded after every term; "
            f"--inside {verdict.inside} accepts that"
        )
    inside = "TF32" if verdict.inside == "tf32" else verdict.inside
    return {
        "match": "it matches"
        + f": {verdict.reading}" * bool(verdict.reading)
        + f", {verdict.exactness}" * bool(verdict.exactness),
        "found": "it differs; the cause:",
        "ambiguous": "it differs, and the cause is ambiguous: each of these explains it",
        "inside": f"it matches only with {inside} arithmetic inside, which is less exact than "
        f"{verdict.dtype}; --inside {verdict.inside} accepts that",
        "no match": f"it differs, first in {verdict.first_difference}; no known bug explains it"
        if verdict.stages
        else f"the inputs differ, {verdict.first_difference} first; no stage was compared",
        "wrong shape": "the shape is wrong",
    }[verdict.status]


MOST_LISTED = 8
"""So many names are listed: a line of them, not a page."""


def _libraries(verdict: Verdict) -> Iterator[str]:
    """The library conventions by which the numbers match; where a bug is said first, in short."""
    names = [name for meaning in verdict.meanings for name in meaning.names]
    if names and not verdict.is_meant:
        do = "does" if len(names) == 1 else "do"
        yield f"  {joined(names)} {do} the same: {verdict.meanings[0].flag}"
        return
    for number, meaning in enumerate(verdict.meanings):
        first, *others = meaning.names
        if number:
            yield f"or {first}'s:"
        yield from (f"  {sentence}" for sentence in meaning.sentences)
        yield f"  attncli check … {meaning.flag}     → matches"
        if others:
            yield f"  the same in {', '.join(others)}"


def _explanations(verdict: Verdict) -> Iterator[str]:
    """The bugs; where it may be meant so, only if it was not. Else the edit with these numbers."""
    if verdict.edit is not None:
        yield from _edit(verdict.edit)
    is_one = len(verdict.explanations) == 1
    otherwise = "If that was not meant, it is a bug"
    if verdict.is_meant and len(verdict.explanations) > 1:
        yield f"{otherwise}, and ambiguous: each of these explains it"
    for number, explanation in enumerate(verdict.explanations, 1):
        lead = f"  {number}. "
        if is_one:
            lead = f"{otherwise}: " if verdict.is_meant else "  "
        yield from _explanation(explanation, lead, verdict)


def _explanation(explanation: Explanation, lead: str, verdict: Verdict) -> Iterator[str]:
    """A bug, and what it leaves of the errors of each stage that differs; of all if none does."""
    yield f"{lead}{explanation.name}"
    for bug in explanation.bugs:
        yield f"     {bug.sentence}"
        if bug.threads:
            yield f"     seen in {', '.join(bug.threads)}"
        yield f"     more about it: attncli check --bug {bug.id}"
    yield from (f"     {detail}" for detail in explanation.details)
    labelled = {
        "expected:": explanation.expected,
        "right:   ": explanation.formula,
        "observed:": explanation.edited,
        "the fix:": explanation.fix,
        f"to reproduce it, attncli {explanation.command}:": explanation.flag,
    }
    yield from (f"     {label} {text}" for label, text in labelled.items() if text)
    bugs = "this bug" if len(explanation.bugs) == 1 else "these bugs"
    differing = {stage.name for stage in verdict.stages if not stage.matches}
    for stage, size in explanation.errors.items():
        if differing and stage not in differing:
            continue
        rms, largest, before, largest_before = map(_number, astuple(size))
        with_it = f"with {bugs} the RMS error is {rms}, the largest {largest}"
        yield f"     {stage}: {with_it}; without {before} and {largest_before}"


def _sum_of(verdict: Verdict) -> str:
    """All stages in one line, those that differ first."""
    parts = []
    for stage in sorted(verdict.stages, key=lambda stage: stage.matches):
        part = f"{stage.name} matches"
        if not stage.matches:
            part = f"{stage.name} differs: largest error {_number(stage.largest)}"
        if not stage.matches and stage.noise is not None:
            part += f" (rounding in {verdict.dtype} gives {_number(stage.noise)})"
        parts.append(part)
    return " · ".join(parts)


def _stage(stage: StageVerdict, verdict: Verdict) -> Iterator[str]:
    if stage.matches:
        yield f"{stage.name} matches"
        yield from _sizes(stage, verdict)
        return
    yield f"{stage.name} differs in {100 * stage.share_wrong:.3g} % of {stage.n} entries"
    yield from (f"  {place}" for place in stage.places)
    yield from _sizes(stage, verdict)
    yield "  worst entries (place: observed, expected)"
    for worst in stage.worst:
        yield f"    {worst.place}: {_number(worst.observed, 8)}, {_number(worst.expected, 8)}"


def _sizes(stage: StageVerdict, verdict: Verdict) -> Iterator[str]:
    """How large the errors are, beside what is allowed."""
    largest = f"largest error {_number(stage.largest)}"
    if stage.noise is None or stage.ratios is None:
        allowed = "" if stage.allowed is None else f", allowed {_number(stage.allowed)}"
        yield f"  {largest}{allowed} ({stage.tolerance})"
        return
    is_far = not stage.matches and stage.ratios[2] > MANY  # an entry is by far no rounding
    if is_far or not stage.largest:
        yield f"  {largest}"
        return
    if 1 <= stage.ulps <= MANY:
        largest += f" ({_number(stage.ulps)} ULPs of {verdict.dtype})"
    alone = f"{stage.tolerance} alone gives {_number(stage.noise)}"
    yield f"  RMS error {_number(stage.rms)}; {alone}; {largest}"
    if not stage.matches:
        head, row, entry = (_number(ratio) for ratio in stage.ratios)
        yield f"  beside what is allowed: worst head {head} ×, worst row {row} ×, entry {entry} ×"


MANY = 1e6
"""More units in the last place, or times what is allowed, say nothing that the error does not."""


def _number(x: float, digits: int = 3) -> str:
    if math.isfinite(x):
        return f"{x:.{digits}g}"
    return "NaN" if math.isnan(x) else "∞" if x > 0 else "−∞"
