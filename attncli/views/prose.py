"""The closing words: what each query attends to, in plain sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.trace import Stage, Trace
from attncli.views.grid import Grid, lower
from attncli.views.numbers import percent
from attncli.views.places import HEADS, Level, Place
from attncli.views.safe import distinct, shorten
from attncli.views.showing import Bounds, Showing

TOP = 3  # names in a sentence
LINES = 12  # sentences in all
TOP_CELLS = 9  # of a name beside its share, in a table
FEWEST = 2  # sentences of one head, however many heads there are

Shares = npt.NDArray[np.float64]
Name = Callable[[int], str]


class _Sharing(NamedTuple):
    """The weights as seen from the side whose weights sum to 1: one row for each of them."""

    rows: Shares
    mask: Shares
    names: Sequence[str]
    others: Name
    bounds: Bounds
    by_keys: bool


def closing(level: Level, place: Place, showing: Showing, n_places: int = 1) -> tuple[str, ...]:
    """One sentence for every query shown; of many, the first few and how many are left out.

    With softmax over queries each key shares itself out, so each key has a sentence.
    """
    sharing = _sharing(level, place, showing)
    wanted = range(len(sharing.rows))[slice(*sharing.bounds)]
    most = len(wanted) if showing.full else max(LINES // n_places, FEWEST)
    told = wanted if len(wanted) <= most + 1 else wanted[:most]
    names = distinct([sharing.names[i] for i in told], told)
    lines = [f"{name} {_sentence(sharing, i)}" for name, i in zip(names, told, strict=True)]
    if left := len(wanted) - len(told):
        what, flag = ("keys", "--cols") if sharing.by_keys else ("queries", "--rows")
        lines.append(f"… {left} more {what}: {flag} A:B or --full")
    return tuple(lines)


def strongest(level: Level, showing: Showing) -> Grid:
    """For every query shown and every head the key it attends to most, with its share.

    With softmax over queries each key shares itself out: for every key, the query it goes to.
    """
    n_heads = level.n_heads()
    sharings = [_sharing(level, {HEADS: head}, showing) for head in range(n_heads)]
    names, bounds = sharings[0].names, sharings[0].bounds
    rows = range(len(names))[slice(*bounds)]
    cells = [[_top(sharing, row) for sharing in sharings] for row in rows]
    labels = {"query": tuple(names[row] for row in rows)}
    stage = Stage("most", "", "", np.array(cells), ("query", HEADS), labels)
    whole = replace(showing, rows=(None, None), cols=(None, None), head=None, heatmap=False)
    grid = lower(Level(Trace("", (stage,))), "most", {}, whole, say_axes=False)
    return replace(grid, number=None, name="", facts=())


def _top(sharing: _Sharing, row: int) -> str:
    """The largest share of a row, and whose it is; nothing where there is none."""
    shares = sharing.rows[row].astype(np.float64)
    if not np.isfinite(shares).all() or not shares.any():
        return "nothing"
    at = int(np.argmax(shares))
    return f"{shorten(sharing.others(at), TOP_CELLS)} {percent(float(shares[at]))}"


def _sharing(level: Level, place: Place, showing: Showing) -> _Sharing:
    stage = level.stages["weights"]
    weights = level.matrix(stage, place)
    mask = level.mask(place)
    mask = np.broadcast_to(0.0, weights.shape) if mask is None else mask
    by_keys = level.convention.softmax_over == "queries"
    givers, takers = stage.axes[:-3:-1] if by_keys else stage.axes[-2:]
    others = _told_apart(stage, takers)
    return _Sharing(
        rows=weights.T if by_keys else weights,
        mask=mask.T if by_keys else mask,
        names=_told_apart(stage, givers),
        others=lambda entry: shorten(others[entry]),
        bounds=showing.cols if by_keys else showing.rows,
        by_keys=by_keys,
    )


def _told_apart(stage: Stage, axis: str) -> Sequence[str]:
    """The names along an axis; tokens of the same text with their number: bank (3), bank (7)."""
    names = stage.names(axis)
    counts = Counter(names)
    return [f"{name} ({at})" if counts[name] > 1 else name for at, name in enumerate(names, 1)]


def _sentence(sharing: _Sharing, i: int) -> str:
    shares = sharing.rows[i].astype(np.float64)
    all_masked = bool(np.isneginf(sharing.mask[i]).all())
    other = "query" if sharing.by_keys else "key"
    why = f"every {other} is masked"
    if not np.isfinite(shares).all():
        return f"has weights that are not numbers{f': {why}' if all_masked else ''}"
    if not shares.any():
        nothing = "goes to nothing" if sharing.by_keys else "attends to nothing"
        return f"{nothing}{f': {why}' if all_masked else ''}"
    verb = "goes to" if sharing.by_keys else "attends to"
    others = "queries" if sharing.by_keys else "keys"
    said = _ranking(shares, sharing.others, others)
    return f"{verb} {said}{f', though {why}' if all_masked else ''}"


def _ranking(shares: Shares, name: Name, others: str) -> str:
    """The largest shares by name, equal ones together, and the rest as one sum."""
    order = np.argsort(-shares, kind="stable")
    order = order[shares[order] > 0]
    texts = [percent(float(share)) for share in shares[order]]
    if len(order) > TOP and texts[0] == texts[-1]:
        return f"{len(order)} {others} alike ({texts[0]} each)"
    if len(order) == 1:
        return f"{name(int(order[0]))} alone ({texts[0]})"
    groups, at = [], 0
    while at < min(len(order), TOP) or at == len(order) - 1:
        tied = texts.count(texts[at])
        named = order[at : at + min(tied, max(TOP - at, 1))]
        groups.append(_group([name(int(i)) for i in named], tied, texts[at]))
        at += tied
    rest = shares[order[at:]]
    tail = f"; {len(rest)} more {others} share {percent(float(rest.sum()))}"
    return ", then ".join(groups) + (tail if len(rest) else "")


def _group(names: list[str], tied: int, share: str) -> str:
    if tied > len(names):
        names = [*names, f"{tied - len(names)} more"]
    together = " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
    return f"{together} ({share}{' each' if tied > 1 else ''})"
