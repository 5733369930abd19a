"""A row of the planted set, what a verdict on it counts as, and how wrong it really is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from attncli import Convention
from attncli.check import Verdict, check, report_text
from tests.check.planted.parts import (
    HALF,
    TYPES,
    Array,
    Inputs,
    attend,
    head_of,
    placed,
    scores,
    softmax,
    weights_of,
)
from tests.check.planted.worlds import World

Kind = Literal["wrong", "control", "quiet", "right", "inside"]
Outcome = Literal[
    "named", "among several", "none of several", "no match", "inside", "not decided", "matched",
    "wrong name", "meaning",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Row:
    """One implementation.

    names   what it may be called: bugs of the catalogue, two at once joined by " + "; where there
            are several, they are synonyms or give the same numbers in these worlds. Nothing:
            "no match" is the right answer
    thread  where somebody met it, repository#number
    kind    quiet: below the noise of the 16-bit types; inside: right with less precision inside
    types   the number types it makes sense in
    as_is   what it gives is not rounded to the type of the inputs
    gives   the outcome; but: that in other types or worlds, or in both ("kernel, float16")
    always  whether it runs by default, though its name is judged in a row before it
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

    def expected(self, world: World, dtype: str) -> Outcome:
        """What a verdict on it counts as in this world and type."""
        but, both = dict(self.but), f"{world.name}, {dtype}"
        return but.get(both) or but.get(world.name) or but.get(dtype) or self.gives


class Run(NamedTuple):
    """A row in one world and one type; is_default: in a run without --exhaustive, too."""

    row: Row
    world: World
    dtype: str
    is_default: bool


def runs(rows: Iterable[Row], *, every_row: bool = False) -> Iterator[Run]:
    """Each row in each of its worlds, in one type in turn; by default each name (row) in one."""
    judged: set[tuple[Kind, str]] = set()
    for number, row in enumerate(rows):
        names = {(row.kind, name) for both in row.names[:1] for name in both.split(" + ")}
        is_new = every_row or row.always or not names <= judged
        judged |= names
        for place, world in enumerate(row.worlds):
            dtype = row.types[(number + place) % len(row.types)]
            yield Run(row, world, dtype, is_new and place == number % len(row.worlds))


def observed(row: Row, x: Inputs) -> Array:
    """What the implementation gives, in the number type."""
    with np.errstate(all="ignore"):
        seen = row.make(x)
        return seen if row.as_is else x.round(seen)


def verdict_on(row: Row, x: Inputs, seen: Array, **more: Any) -> Verdict:
    (q, k, v), given = x.given()
    seen = seen[(0,) * (4 - x.axes)]
    return check(seen, q, k, v, stage=row.stage, convention=Convention(**x.how), **given, **more)


def outcome(row: Row, x: Inputs, verdict: Verdict) -> Outcome:
    """What the verdict counts as; of several names the row's first must be said."""
    if verdict.status in {"found", "ambiguous"}:
        said = [frozenset(bug.name for bug in one.bugs) for one in verdict.explanations]
        accepted = [frozenset(name.split(" + ")) for name in row.names]
        if verdict.status == "found":
            return "named" if said[0] in accepted else "wrong name"
        return "among several" if {*said} & {*accepted} else "none of several"
    if verdict.status == "match":
        quiet = row.kind == "quiet" and x.dtype in HALF
        lists_it = quiet and any(name in report_text(verdict) for name in row.names)
        return "not decided" if lists_it else "matched"
    others: dict[str, Outcome] = {"inside": "inside", "meaning": "meaning"}
    return others.get(verdict.status, "no match")


def right(x: Inputs, stage: str = "output") -> Array:
    """What is asked for, in the wide type."""
    if stage == "scores":
        return scores(x.q, head_of(x, x.k))
    if stage == "weights":
        return weights_of(x)
    v = placed(x, "v")
    best = attend(x, v=np.where(np.isnan(v), 0, v))
    empty = np.asarray(x.hidden.all(-1))[..., None]
    return np.where(empty, np.nan, best) if x.how.get("empty_rows") == "nan" else best


def noise(x: Inputs) -> float:
    """Root mean square of what rounding every stage does; at least half a unit in the last place."""
    best = right(x)
    size = float(np.sqrt(np.nanmean(best.astype(float) ** 2)))
    if x.dtype not in HALF:
        return float(np.finfo(x.wide).eps) * size
    eps = 2.0**-10 if x.dtype == "float16" else 2.0**-7
    over = -2 if x.how.get("softmax_over") == "queries" else -1
    seen = attend(x, weigh=lambda s: x.rounded(softmax(x.rounded(s), x.sinks, axis=over)))
    plain = float(np.sqrt(np.nanmean((x.round(seen).astype(float) - best) ** 2)))
    return max(plain, eps * size / 4) if np.isfinite(plain) else eps * size / 4


def how_wrong(row: Row, x: Inputs, seen: Array) -> float:
    """The largest difference from what is asked for, as a multiple of the noise."""
    best = right(x, row.stage)
    if best.shape != seen.shape or (np.isnan(seen.astype(float)) != np.isnan(best)).any():
        return np.inf
    with np.errstate(all="ignore"):
        return float(np.nanmax(np.abs(seen.astype(float) - best))) / noise(x)
