"""What a check found: a verdict of every stage, and the bugs or conventions that explain it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from attncli.commands.check.bugs.bug import Bug

Status = Literal["match", "found", "ambiguous", "meaning", "inside", "no match", "wrong shape"]


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


BUGS_FIRST = {"scale", "causal"}
"""A convention that differs in these alone is said after the bug: a scale left out, or a causal
mask that none asked for, is a mistake more often than it is what a library means."""


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

    @property
    def name(self) -> str:
        """The names of the bugs, joined."""
        return " and ".join(bug.name for bug in self.bugs)


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    status            "match", "found" (one explanation), "ambiguous" (several), "meaning" (none,
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
    tell_apart        which input would distinguish them, or ""
    shape             what is wrong with the shape, and which layout would be right, or ""
    exactness         in 16 bits, how exact matching numbers are, or ""
    undecided         bugs that would be within rounding on this input, so that it cannot show them
    notes             what was assumed
    hidden            where gradients match, bugs of gradients that this input cannot show
    reading           what an observed array was read as, where its name leaves it open, or ""
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

    def __str__(self) -> str:
        from attncli.commands.check.report import report_text

        return report_text(self)

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
