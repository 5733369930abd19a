"""Verdict: the result of comparing somebody else's numbers; as plain text, and as data for scripts.

Verdict ──┬── StageVerdict …   each observed stage: how far off, where, the worst entries
          └── Explanation …    each explanation: one bug, or two at once

The data (`verdict_to_dict`) are the fields below by their names; besides them
    schema    1
    matches   true | false
    name      of an explanation: the names of its bugs, joined
A bug is {name, sentence, threads}. NaN and infinity are strings, as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from attncli.check.bugs.bug import Bug
from attncli.files.numbers import nan_to_text

Status = Literal["match", "found", "ambiguous", "no match", "wrong shape"]


@dataclass(frozen=True)
class Worst:
    """One entry: its place in words, its 0-based index, and both numbers."""

    place: str
    index: tuple[int, ...]
    observed: float
    expected: float


@dataclass(frozen=True)
class StageVerdict:
    """One observed stage compared with the expected one.

    tolerance     the rule in words; allowed is its median over the entries
    largest       the largest error, inf where only one number is NaN or infinite
    median        the median error
    share_wrong   the share of entries whose error is larger than allowed, 0 … 1
    places        where those are, a sentence each
    worst         up to five entries, the worst first
    """

    name: str
    matches: bool
    tolerance: str
    allowed: float
    largest: float
    median: float
    share_wrong: float
    n: int
    places: tuple[str, ...] = ()
    worst: tuple[Worst, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """One bug, or two at once, under which the observed numbers are the expected ones.

    details       what the names leave open, such as the share of dropout
    flag          the flags that reproduce it, or ""
    command       the command that has them: "compute", or "check" where positions are put in
    errors        stage → largest error under this explanation
    plain_errors  stage → largest error without the bugs
    """

    bugs: tuple[Bug, ...]
    details: tuple[str, ...]
    flag: str
    errors: Mapping[str, float]
    plain_errors: Mapping[str, float]
    command: str = "compute"

    @property
    def name(self) -> str:
        """The names of the bugs, joined."""
        return " and ".join(bug.name for bug in self.bugs)


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    status            "match", "found" (one explanation), "ambiguous" (several), "no match",
                      "wrong shape"
    dtype             the number type in which the observed values were judged
    stages            each observed stage, in the order of the computation
    first_difference  the first observed stage that differs, or ""
    explanations      each fits within tolerance; never merely the nearest
    common            what several explanations have in common, or ""
    tell_apart        which input would distinguish them, or ""
    shape             what is wrong with the shape, and which layout would be right, or ""
    notes             what was assumed
    """

    status: Status
    dtype: str
    stages: tuple[StageVerdict, ...] = ()
    first_difference: str = ""
    explanations: tuple[Explanation, ...] = ()
    common: str = ""
    tell_apart: str = ""
    shape: str = ""
    notes: tuple[str, ...] = ()

    @property
    def matches(self) -> bool:
        """Whether the observed numbers are the expected ones."""
        return self.status == "match"

    def __bool__(self) -> bool:
        """The same: `assert check(…)` fails where they are not."""
        return self.matches


SCHEMA = 1


def verdict_to_dict(verdict: Verdict) -> dict[str, Any]:
    """The verdict as dictionaries, lists, strings and numbers, ready for JSON.

    >>> verdict_to_dict(Verdict("match", "float32"))["status"]
    'match'
    """
    data = asdict(verdict)
    for explanation, source in zip(data["explanations"], verdict.explanations, strict=True):
        fields = "name", "sentence", "threads"
        explanation["bugs"] = [{x: getattr(bug, x) for x in fields} for bug in source.bugs]
        explanation["name"] = source.name
    plain: dict[str, Any] = nan_to_text({"schema": SCHEMA, "matches": verdict.matches, **data})
    return plain


def report_text(verdict: Verdict) -> str:
    """The verdict for a reader: the answer first, then each stage, then what was assumed.

    >>> print(report_text(Verdict("match", "float32")))
    it matches
    """
    return "\n".join(_lines(verdict))


def _lines(verdict: Verdict) -> Iterator[str]:
    yield _HEADLINES[verdict.status].format(first=verdict.first_difference)
    if verdict.shape:
        yield f"  {verdict.shape}"
    for number, explanation in enumerate(verdict.explanations, 1):
        yield from _explanation(explanation, number if len(verdict.explanations) > 1 else 0)
    if verdict.common:
        yield f"  in common: {verdict.common}"
    if verdict.tell_apart:
        yield f"  distinguished by: {verdict.tell_apart}"
    for stage in verdict.stages:
        yield from _stage(stage)
    for note in verdict.notes:
        yield f"  note: {note}"


_HEADLINES = {
    "match": "it matches",
    "found": "it differs, and this is it:",
    "ambiguous": "it differs, and the cause is ambiguous: each of these explains it",
    "no match": "first difference at stage {first}; no known bug explains it",
    "wrong shape": "the shape is wrong",
}


def _explanation(explanation: Explanation, number: int) -> Iterator[str]:
    lead = f"  {number}. " if number else "  "
    yield f"{lead}{explanation.name}"
    for bug in explanation.bugs:
        yield f"     {bug.sentence}"
        if bug.threads:
            yield f"     seen in {', '.join(bug.threads)}"
    for detail in explanation.details:
        yield f"     {detail}"
    if explanation.flag:
        yield f"     attncli {explanation.command}: {explanation.flag}"
    bugs = "this bug" if len(explanation.bugs) == 1 else "these bugs"
    for stage, error in explanation.errors.items():
        plain = f"{_number(explanation.plain_errors[stage])} without {bugs}"
        yield f"     largest error of {stage}: {_number(error)} ({plain})"


def _stage(stage: StageVerdict) -> Iterator[str]:
    state = "matches" if stage.matches else "differs"
    allowed = f"allowed {_number(stage.allowed)}, {stage.tolerance}"
    yield f"{stage.name} {state}: largest error {_number(stage.largest)} ({allowed})"
    if stage.matches:
        return
    share = f"{100 * stage.share_wrong:.3g} % of {stage.n} entries are wrong"
    yield f"  {share}, median error {_number(stage.median)}"
    for place in stage.places:
        yield f"  {place}"
    yield "  worst entries (place: observed, expected)"
    for worst in stage.worst:
        yield f"    {worst.place}: {_number(worst.observed, 8)}, {_number(worst.expected, 8)}"


def _number(x: float, digits: int = 3) -> str:
    if math.isfinite(x):
        return f"{x:.{digits}g}"
    return "NaN" if math.isnan(x) else "∞" if x > 0 else "−∞"
