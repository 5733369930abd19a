"""Verdict: the result of comparing somebody else's numbers, and the report of it as plain text.

Verdict ──┬── StageVerdict …   each observed stage: how far off, where, the largest errors
          ├── Meaning …        libraries as whose conventions have it the numbers are right
          └── Explanation …    each explanation: one bug, or two at once
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from itertools import chain
from typing import Literal

from attncli.commands.check.findings import Edit, Explanation, Meaning, StageVerdict
from attncli.commands.check.probe import Probe
from attncli.errors import joined
from attncli.stages import GRADIENTS, spec_of

Status = Literal[
    "match", "found", "several", "ambiguous", "meaning", "inside", "no match", "wrong shape"
]


BUGS_FIRST = {"scale", "causal"}
"""A convention that differs in these alone is said after the bug: a scale left out, or a causal
mask that none asked for, is a mistake more often than it is what a library means."""


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    status            "match", "found" (one explanation), "several" (one for each part that is
                      wrong), "ambiguous" (several for the same numbers), "meaning" (none,
                      but the numbers are right as a library means it), "inside" (right but for
                      arithmetic that is less exact than the numbers), "no match", "wrong shape"
    dtype             the number type in which the observed values were judged
    stages            each observed stage, in the order of the computation
    first_difference  the first observed stage that differs, or ""
    meanings          the conventions of libraries that fit, those of the fewest fields first
    is_default        whether nothing but the default conventions was asked for
    explanations      each fits within tolerance; never merely the nearest
    quiet             whether every error is within rounding, and its direction alone tells the bug
    inside            the less exact arithmetic that explains every error, or None
    common            what several explanations have in common, or ""
    tell_apart        which stage or input would distinguish them, or ""
    shape             what is wrong with the shape, and which layout would be right, or ""
    exactness         in 16 bits, how exact matching numbers are, or ""
    undecided         bugs that would be within rounding on this input, so that it cannot show them
    notes             what was assumed
    hidden            where gradients match, bugs of gradients that this input cannot show
    reading           what an observed array was read as, where its name leaves it open, or ""
    probe             what the weights say, where the values are those of a probe
    edit              where nothing known explains the numbers, the edit of the formulas that does
    """

    status: Status
    dtype: str
    stages: tuple[StageVerdict, ...] = ()
    first_difference: str = ""
    explanations: tuple[Explanation, ...] = ()
    quiet: bool = False
    inside: str | None = None
    common: str = ""
    tell_apart: str = ""
    shape: str = ""
    exactness: str = ""
    undecided: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    meanings: tuple[Meaning, ...] = ()
    is_default: bool = True
    hidden: tuple[str, ...] = ()
    edit: Edit | None = None
    reading: str = ""
    probe: Probe | None = None

    def __str__(self) -> str:
        return report_text(self)

    def of_part(self, part: str) -> Verdict:
        """The same with explanations of a part alone, such as "batch item 4"."""
        explanations = tuple(replace(explanation, part=part) for explanation in self.explanations)
        return replace(self, explanations=explanations)

    @property
    def is_meant(self) -> bool:
        """Whether what a library means is said before any bug."""
        is_only = self.status == "meaning"
        return any(is_only or meaning.fields.keys() - BUGS_FIRST for meaning in self.meanings[:1])

    @property
    def matches(self) -> bool:
        """Whether the observed numbers are the expected ones."""
        return self.status == "match"

    def __bool__(self) -> bool:
        """The same: `assert check(…)` fails where they are not."""
        return self.matches


def report_text(verdict: Verdict) -> str:
    """The verdict for a reader: the answer, its cause, where the errors are, and how large.

    >>> print(report_text(Verdict("match", "float32")))
    it matches
    """
    return "\n".join(_lines(verdict))


def _lines(verdict: Verdict) -> Iterator[str]:
    yield headline(verdict)
    if verdict.shape:
        yield f"  {verdict.shape}"
    yield from _libraries(verdict) if verdict.is_meant else ()
    yield from _explanations(verdict)
    yield from _libraries(verdict) if not verdict.is_meant else ()
    if verdict.common:
        yield f"  in common: {verdict.common}"
    if verdict.tell_apart:
        yield f"  distinguished by: {verdict.tell_apart}"
    if verdict.probe is not None:
        yield "the weights, which this output shows:"
        yield from (f"  {line}" for line in (*verdict.probe.sentences, *verdict.probe.drawing))
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
        yield f"  this input cannot show {bugs}; check --bug ID has an input that shows one"


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


def headline(verdict: Verdict) -> str:
    """The answer in one line; it ends in a colon where the cause follows."""
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
        "several": "it differs; there are several causes:",
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
        if bug.sentence:
            yield f"     {bug.sentence}"
        if bug.threads:
            yield f"     seen in {', '.join(bug.threads)}"
        if bug.id:  # an answer of the numbers has none
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
        if verdict.quiet:
            with_it = f"with {bugs} the RMS error is {rms}, the largest {largest}"
            yield f"     {stage}: {with_it}; without {before} and {largest_before}"
        else:
            with_it = f"the largest error is {largest} with {bugs}, {largest_before} without"
            yield f"     {stage}: {with_it}"


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
    if verdict.explanations or verdict.probe:  # which say more than entries do
        return
    yield from _sizes(stage, verdict)
    yield "  where it differs most"
    symbol = spec_of(stage.name).symbol or stage.name
    for worst in stage.worst:
        place = _COLUMN.sub(",", worst.place).replace(", ", ",")
        observed, expected = _number(worst.observed, 8), _number(worst.expected, 8)
        yield f"    {symbol}[{place}] is {observed}, expected {expected}"


_COLUMN = re.compile(r", d_\w+ (?=\d+$)")  # O[q1,2], as sheets and the arithmetic have it


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
