"""What a check finds: how each stage differs, and the bug, edit or convention that explains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attncli.commands.check.bugs.bug import Bug


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

    tolerance     the rule in words
    rms, largest  of the errors; inf where only one number is NaN or infinite
    ulps          the largest error in units in the last place of the observed type
    allowed       by decimals or as given: the median over the entries of what is allowed
    noise         else the root mean square by which a right implementation in this type is off
    ratios        of the worst head, row and entry: the errors beside what is allowed, see Rule
    median        the median error
    share_wrong   the share of entries that are wrong, 0 … 1
    places        where those are, a sentence each
    worst         up to five entries, the worst first
    """

    name: str
    matches: bool
    tolerance: str
    rms: float
    largest: float
    ulps: float
    allowed: float | None
    noise: float | None
    ratios: tuple[float, float, float] | None
    median: float
    share_wrong: float
    n: int
    places: tuple[str, ...] = ()
    worst: tuple[Worst, ...] = ()


@dataclass(frozen=True)
class Residual:
    """The errors of a stage with the bugs of an explanation, and without them."""

    rms: float
    largest: float
    rms_without: float
    largest_without: float


@dataclass(frozen=True)
class Edit:
    """The shortest edit of the formulas that gives the observed numbers, where no known bug does.

    stage      whose formula it is, or that of which it is another array or another convention
    formula    of the stage, as it is
    edited     as it would have to be, or what is otherwise, in words
    old, new   the part of the formula that differs
    n_alike    how many other edits, no longer than it, give the same numbers
    """

    stage: str
    formula: str
    edited: str
    old: str = ""
    new: str = ""
    n_alike: int = 0


@dataclass(frozen=True)
class Meaning:
    """A library convention: under it the observed numbers are the expected ones.

    names      the libraries that have them, as --semantics has it
    sentences  what is meant, as far as it has an effect on this input
    flag       the flag that makes the numbers match
    fields     the fields of the convention that have an effect, as the libraries have them
    """

    names: tuple[str, ...]
    sentences: tuple[str, ...]
    flag: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Explanation:
    """One bug, or two at once, under which the observed numbers are the expected ones.

    details   what the names leave open, such as the share of dropout
    expected  the formula of the first stage that the bugs change, as it should be, or ""
    formula, edited  that of its cells, as it is right and as it was observed, where both are
    fix       which part of the observed one to put right, or ""
    flag      the flags that reproduce it, or ""
    command   the command that has them: "compute", or "check" where positions are put in
    errors    stage → what is left of the errors under this explanation
    part      the part that it explains, such as "batch item 4", where all else is right; or ""
    """

    bugs: tuple[Bug, ...]
    details: tuple[str, ...]
    flag: str
    errors: Mapping[str, Residual]
    command: str = "compute"
    expected: str = ""
    formula: str = ""
    edited: str = ""
    fix: str = ""
    part: str = ""

    @property
    def name(self) -> str:
        """The names of the bugs, joined, behind the part that has them."""
        names = " and ".join(bug.name for bug in self.bugs)
        return f"in {self.part}: {names}" if self.part else names
