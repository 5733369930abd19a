"""What judging gives: a judgement for each claim, a result for each example."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from attncli.examples.example import VERDICTS, Cause, Claim, Example, Verdict
from attncli.examples.places import Piece
from attncli.examples.verdicts import Cells, worst
from attncli.trace import Trace

_FINE = ("reproduced", "agrees as rounded", "not printed", "needs --glove FILE")


@dataclass(frozen=True, eq=False)
class Recomputed:
    """Numbers that come out another way than by our computation.

    ours   the numbers
    cells  the verdict of each against what this way should give (what was printed, by default)
    how    the way in words, or "" for the author's own numbers
    start  the stages whose printed numbers were put in, where there are any
    """

    ours: Piece
    cells: Cells
    how: str = ""
    start: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the cells."""
        return worst(self.cells)


@dataclass(frozen=True, eq=False)
class Judgement:
    """A claim, our numbers, and what came of holding one against the other.

    ours   our numbers at the claim's place; None where the example was not run
    cells  the verdict of each number; empty where nothing is printed
    cause  why it differs, where the numbers alone tell
    own    what the author's own earlier numbers give, where it differs and they give anything
    ways   the recorded ways of computing it wrongly, recomputed
    """

    claim: Claim
    verdict: Verdict
    ours: Piece | None = None
    cells: Cells = field(default_factory=lambda: np.array([], dtype=np.str_))
    cause: Cause | None = None
    own: Recomputed | None = None
    ways: tuple[Recomputed, ...] = ()

    @property
    def problem(self) -> str:
        """What is not as recorded, or "".

        Without a recorded verdict the claim must not differ; with one it must come out so, and
        for the recorded cause and ways.
        """
        if self.verdict == "needs --glove FILE":
            return ""
        expected = self.claim.verdict
        if self.verdict != expected and (expected or self.verdict not in _FINE):
            return f"{self.verdict}, {'recorded as ' + expected if expected else 'not recorded'}"
        if self.claim.cause and self.cause != self.claim.cause:
            return f"the cause is {self.cause or 'unknown'}, recorded as {self.claim.cause}"
        wrong = [way.how for way in self.ways if way.verdict not in _FINE]
        return f"this does not give the recorded numbers: {wrong[0]}" if wrong else ""

    @property
    def ok(self) -> bool:
        """Whether it came out as recorded."""
        return not self.problem


@dataclass(frozen=True, eq=False)
class Result:
    """An example, computed and judged; `needs` says what it could not be run without."""

    example: Example
    judgements: tuple[Judgement, ...]
    trace: Trace | None = None
    needs: str = ""

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its claims; "not printed" only where nothing is."""
        found = {judgement.verdict for judgement in self.judgements}
        judged = [v for v in VERDICTS[:3] if v in found]
        return judged[-1] if judged else next(v for v in VERDICTS[3:] if v in found)

    @property
    def ok(self) -> bool:
        """Whether each claim came out as recorded."""
        return all(judgement.ok for judgement in self.judgements)


@dataclass(frozen=True, eq=False)
class Verification:
    """The results of many examples."""

    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether each example reproduces, agrees or differs in the recorded way."""
        return all(result.ok for result in self.results)

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many claims have each verdict."""
        found = Counter(j.verdict for result in self.results for j in result.judgements)
        return {verdict: found[verdict] for verdict in VERDICTS}

    @property
    def not_run(self) -> tuple[Result, ...]:
        """The examples that need a file."""
        return tuple(result for result in self.results if result.needs)
