"""A row of the planted set, where it runs, and what a verdict on it counts as."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from attncli import Convention
from attncli.commands.check.diagnose import check
from attncli.commands.check.verdict import Verdict, report_text
from tests.commands.check.planted.parts import HALF, TYPES, Array, Inputs, World

Kind = Literal["wrong", "control", "quiet", "right", "inside"]
Outcome = Literal[
    "named", "among several", "none of several", "no match", "inside", "not decided", "matched",
    "wrong name", "meaning", "synonym",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Row:
    """One implementation.

    names   what it is to be called: a bug of the catalogue, two at once joined by " + "; then
            synonyms, and what gives the same numbers in these worlds. Nothing: "no match" is right
    thread  where somebody met it, repository#number
    kind    quiet: below the noise of the 16-bit types; inside: right with less precision inside
    types   the number types it makes sense in
    as_is   what it gives is not rounded to the type of the inputs
    gives   the outcome; but: that in a world, a type, or both
    always  whether it runs by default, though its name is judged in a row before it
    says    what the sentence of an answer has in it, as a regular expression: of no names
    """

    what: str
    names: tuple[str, ...]
    make: Callable[[Inputs], Array]
    worlds: tuple[World, ...]
    thread: str = ""
    stage: str = "output"
    kind: Kind = "wrong"
    types: tuple[str, ...] = tuple(TYPES)
    as_is: bool = False
    gives: Outcome = "named"
    but: tuple[tuple[str, Outcome], ...] = ()
    always: bool = False
    says: str = ""

    def expected(self, world: World, dtype: str) -> Outcome:
        """What a verdict on it counts as in this world and type."""
        places = (f"{world.name} {dtype}", world.name, dtype)
        return next((what for at in places for own, what in self.but if own == at), self.gives)


def runs(rows: Iterable[Row], *, every_row: bool = False) -> Iterator[tuple[Row, World, str, bool]]:
    """Each row in each of its worlds, in one type in turn, and whether that is run by default.

    By default runs every third name of a "wrong" row in its smallest world, or each row in one in
    turn: what a row computes is on record, see test_catalogue.py.
    """
    judged: set[str] = set()
    n_new = 0
    for number, row in enumerate(rows):
        names = {name for both in row.names[:1] or [row.says] for name in both.split(" + ")}
        is_new = row.always or every_row or (row.kind == "wrong" and not names <= judged | {""})
        judged |= names if row.kind == "wrong" else set()
        if is_new and not (row.always or every_row):
            n_new += 1
            is_new = n_new % 3 == 1
        chosen = min(row.worlds, key=lambda x: x.b * x.h * x.n_q * x.n_k * (x.d_k + x.d_v))
        chosen = row.worlds[number % len(row.worlds)] if every_row else chosen
        for place, world in enumerate(row.worlds):
            dtype = row.types[(number + place) % len(row.types)]
            yield row, world, dtype, is_new and world is chosen


def observed(row: Row, x: Inputs) -> Array:
    """What the implementation gives, in the number type."""
    with np.errstate(all="ignore"):
        seen = row.make(x)
        return seen if row.as_is else x.round(seen)


def verdict_on(row: Row, x: Inputs, seen: Array, **more: Any) -> Verdict:
    """The verdict; pairs are tried where one is meant, and where nothing is to be named."""
    two = row.kind == "control" or any(" + " in name for name in row.names)
    (q, k, v), given = x.given()
    convention = {
        "stage": row.stage,
        "convention": Convention(**x.convention),
        "pairs": two,
        **given,
        **more,
    }
    return check(seen[(0,) * (4 - x.world.axes)], q, k, v, **convention)


def names(verdict: Verdict) -> list[str]:
    return [explanation.name for explanation in verdict.explanations]


def outcome(row: Row, x: Inputs, verdict: Verdict) -> Outcome:
    """What the verdict counts as; the row's first name is the one to be said."""
    if row.says and verdict.status == "found":
        is_said = re.search(row.says, verdict.explanations[0].name)
        return "named" if is_said and len(verdict.explanations) == 1 else "wrong name"
    if verdict.status in {"found", "ambiguous"}:
        said = [frozenset(bug.name for bug in one.bugs) for one in verdict.explanations]
        accepted = [frozenset(name.split(" + ")) for name in row.names]
        if verdict.status == "found":
            is_other = said[0] not in accepted[:1]
            return "named" if not is_other else "synonym" if said[0] in accepted else "wrong name"
        return "among several" if accepted[:1] and accepted[0] in said else "none of several"
    if verdict.status == "match":
        quiet = row.kind == "quiet" and x.dtype in HALF
        lists_it = quiet and any(name in report_text(verdict) for name in row.names)
        return "not decided" if lists_it else "matched"
    others: dict[str, Outcome] = {"inside": "inside", "meaning": "meaning"}
    return others.get(verdict.status, "no match")
