"""Example: a worked example of a document, read and checked, not yet computed.

Example ── claims ── Claim ── printed   Printed    numbers as they were printed
   │                   │   └─ states    States     a statement about our numbers
   │                   └───── ways      Way        how the printed numbers came about, if wrong
   └─ inputs, compute              what is computed: see computations.py
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from attncli.examples.printed import Printed

Verdict = Literal["reproduced", "agrees as rounded", "differs", "not printed", "needs --glove FILE"]
"""What comes of a claim, the best first but for the last two, of which nothing is known."""

Cause = Literal["rounding only", "carried over", "cut off"]
"""Why a number differs, where that can be told from the numbers alone (see own_numbers.py)."""

Relation = Literal["equal", "close_to", "unequal"]
Taken = Literal["sum", "mean", "deviation", "shape", "future", "minus"]
Entries = int | str | tuple[int | str, ...]
At = Mapping[str, Entries]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
RECORDED = VERDICTS[:4]
"""The verdicts that an example can record."""
CAUSES: tuple[Cause, ...] = get_args(Cause)
RELATIONS: tuple[Relation, ...] = get_args(Relation)
TAKEN: tuple[Taken, ...] = get_args(Taken)


@dataclass(frozen=True)
class Source:
    """The document an example is from; "" for what is not known."""

    id: str
    title: str
    author: str = ""
    date: str = ""


@dataclass(frozen=True)
class Take:
    """What is made of the numbers at a place before they are compared.

    sum, mean, deviation   along the axis `of` (the deviation is the population's)
    shape                  how many entries each axis has
    future                 the entries whose key comes after their query
    minus                  the difference to the place `of`
    """

    what: Taken
    of: Any = None


@dataclass(frozen=True)
class States:
    """A statement about our numbers: each is equal or close to a value, or some is unequal."""

    relation: Relation
    value: float


@dataclass(frozen=True, eq=False)
class Way:
    """A way of computing that gives what was printed, or shows that it cannot be right.

    how      in words
    inputs   those that are other than the example's, by name
    start    stage whose printed numbers are put in place of ours, or ""
    at       the place to look at, where it is another than the claim's
    gives    the numbers that come out; None for those that were printed
    """

    how: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    start: str = ""
    at: At | None = None
    gives: Printed | None = None


@dataclass(frozen=True, eq=False)
class Claim:
    """One thing a document says about its example.

    text       what is claimed, in words
    stage      dotted name of the stage it is about
    at         axis → number from 1, label, or several of them; an axis left out is taken whole
    take       what is made of the numbers there, or None
    printed    the numbers, or None where none are printed
    states     the statement, where it is one
    free_sign  axis each of whose entries may be negated as a whole, or ""
    verdict    the recorded one, or None
    cause      the recorded one, or None
    why        what explains it, or ""
    ways       wrong ways of computing, see Way
    spot       how messages call it
    """

    text: str
    stage: str
    at: At = field(default_factory=dict)
    take: Take | None = None
    printed: Printed | None = None
    states: States | None = None
    free_sign: str = ""
    verdict: Verdict | None = None
    cause: Cause | None = None
    why: str = ""
    ways: tuple[Way, ...] = ()
    spot: str = ""


@dataclass(frozen=True, eq=False)
class Example:
    """A worked example: what is computed from which inputs, and what was said to come out."""

    name: str
    title: str
    source: Source
    compute: str
    inputs: Mapping[str, Any]
    claims: tuple[Claim, ...]
    note: str = ""
    spot: str = ""
