"""A row of the planted set, what a verdict on it counts as, and how wrong it really is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

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
    hidden,
    placed,
    scores,
    softmax,
)
from tests.check.planted.worlds import World

Kind = Literal["wrong", "control", "quiet", "right", "inside"]
Outcome = Literal[
    "named", "among several", "none of several", "no match", "inside", "not decided", "matched",
    "wrong name", "alarm",
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


def observed(row: Row, x: Inputs) -> Array:
    """What the implementation gives, in the number type."""
    with np.errstate(all="ignore"):
        seen = row.make(x)
        return seen if row.as_is else x.round(seen)


def verdict_on(row: Row, x: Inputs, seen: Array, **more: Any) -> Verdict:
    (q, k, v), given = x.given()
    how = Convention(**x.how)
    seen = seen[(0,) * (4 - x.axes)]
    return check(seen, q, k, v, stage=row.stage, convention=how, **{**given, **more})


def outcome(row: Row, x: Inputs, verdict: Verdict) -> Outcome:
    """What the verdict counts as."""
    if row.kind == "right":
        return "matched" if verdict.status == "match" else "alarm"
    if row.kind == "inside":
        return "matched" if verdict.status == "match" else _of_inside(verdict.status)
    if verdict.status == "match":
        lists_it = any(name in report_text(verdict) for name in row.names)
        quiet = row.kind == "quiet" and x.dtype in HALF and lists_it
        return "not decided" if quiet else "matched"
    if verdict.status in {"found", "ambiguous"}:
        accepted = {frozenset(name.split(" + ")) for name in row.names}
        right = any(frozenset(b.name for b in e.bugs) in accepted for e in verdict.explanations)
        if verdict.status == "found":
            return "named" if right else "wrong name"
        return "among several" if right else "none of several"
    return "no match" if verdict.status in {"no match", "wrong shape"} else "inside"


def _of_inside(status: str) -> Outcome:
    return "inside" if status == "inside" else "no match" if status == "no match" else "wrong name"


def right(x: Inputs, stage: str = "output") -> Array:
    """What is asked for, in the wide type."""
    if stage == "scores":
        return scores(x.q, head_of(x, x.k))
    if stage == "weights":
        eye = np.eye(x.n_k, dtype=x.wide)
        return attend(x, v=np.broadcast_to(eye, (x.b, x.h, x.n_k, x.n_k)))
    v = placed(x, "v")
    best = attend(x, v=np.where(np.isnan(v), 0, v))
    empty = np.asarray(hidden(x).all(-1))[..., None]
    return np.where(empty, np.nan, best) if x.how.get("empty_rows") == "nan" else best


def noise(x: Inputs) -> float:
    """Root mean square of what rounding every stage does; at least half a unit in the last place."""
    best = right(x)
    size = float(np.sqrt(np.nanmean(best.astype(float) ** 2)))
    if x.dtype not in HALF:
        return float(np.finfo(x.wide).eps) * size
    eps = 2.0**-10 if x.dtype == "float16" else 2.0**-7
    rounded = attend(x, weigh=lambda s: _weights_in(x, s)).astype(TYPES[x.dtype]).astype(float)
    plain = float(np.sqrt(np.nanmean((rounded - best) ** 2)))
    return max(plain, eps * size / 4) if np.isfinite(plain) else eps * size / 4


def _weights_in(x: Inputs, s: Array) -> Array:
    """Weights whose scores and themselves are rounded to the number type."""
    over = -2 if x.how.get("softmax_over") == "queries" else -1
    weights = softmax(x.round(s).astype(x.wide), x.sinks, axis=over)
    return x.round(weights).astype(x.wide)


def how_wrong(row: Row, x: Inputs, seen: Array) -> float:
    """The largest difference from what is asked for, as a multiple of the noise."""
    best = right(x, row.stage)
    if best.shape != seen.shape:
        return np.inf
    with np.errstate(all="ignore"):
        difference = np.abs(seen.astype(float) - best)
    if (np.isnan(seen.astype(float)) != np.isnan(best)).any():
        return np.inf
    return float(np.nanmax(difference)) / noise(x)
