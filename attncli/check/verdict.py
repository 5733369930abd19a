"""Verdict: what came of holding somebody else's numbers against the reference.

Verdict ──┬── StageVerdict …   each observed stage: how far off, where, the worst entries
          └── Explanation …    each way to explain it: one bug, or two at once
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

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
    """One observed stage beside the reference.

    tolerance     the rule in words; allowed is its median over the entries
    largest       the largest error, inf where a NaN or an infinity stands on one side only
    median        the median error
    share_wrong   the share of entries that lie further apart than allowed, 0 … 1
    places        where those lie, a sentence each
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
class Bug:
    """A bug by its stable name, and in a sentence; threads are public, as repository#number."""

    name: str
    sentence: str
    threads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """One bug, or two at once, under which the observed numbers are the expected ones.

    details       what the names leave open, such as the share of dropout
    flag          the flags that reproduce it, or ""
    command       the command that has them: "compute", or "check" where positions are put in
    errors        stage → largest error under this explanation
    plain_errors  stage → largest error under the plain reference
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
    """What came of a check.

    status            "match", "found" (one explanation), "ambiguous" (several), "no match",
                      "wrong shape"
    dtype             the number type in which the observed values were judged
    stages            each observed stage, in the order of the computation
    first_difference  the first observed stage that differs, or ""
    explanations      each fits within tolerance; never merely the nearest
    common            what several explanations have in common, or ""
    tell_apart        which input would tell them apart, or ""
    shape             what is wrong with the shape, and which re-layout would mend it, or ""
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
    notes: tuple[str, ...] = field(default=())

    @property
    def matches(self) -> bool:
        """Whether the observed numbers are the expected ones."""
        return self.status == "match"
