"""What the weights say, in sentences: q1 attends to k1 and k2 (40.1 % each), then k3 (19.8 %)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.stages import kind_of
from attncli.trace import Stage
from attncli.views.numbers import percent, short
from attncli.views.select import HEADS, Block, Bounds, Index, Showing
from attncli.views.text import distinct, shorten

TOP = 3  # names in a sentence
LINES = 12  # sentences in all
FEWEST = 2  # sentences of one head, however many heads there are
TOP_CELLS = 9  # of a name before its share, in a table
NAMED = 3  # empty rows called by name
MISSING = 0.01  # of a row's sum: rounding each share to bfloat16, 8 bits, changes 0.4 % at most


class Shares(NamedTuple):
    """The weights, each row of which sums to 1: transposed where softmax is over queries.

    values [n, m], masked [n, m]; names of the n; other(i): the name of one of the m
    bounds  the rows asked for
    """

    stage: Stage
    values: Array
    masked: BoolArray
    names: Sequence[str]
    other: Callable[[int], str]
    bounds: Bounds
    over_queries: bool


def shares_of(block: Block, index: Index, showing: Showing) -> Shares:
    """The weights of a block at an index."""
    stage = next(stage for name, stage in block.stages.items() if kind_of(name).summarized)
    values = block.matrix(stage, index)
    masked = np.zeros(values.shape, bool)
    if block.mask is not None:
        masked = block.masked(index, values.shape)
    tokens = [stage.names(axis) for axis in stage.axes[-2:]]
    counts = map(Counter, tokens)
    names, others = (  # of tokens of the same text the number too: bank (3), bank (7)
        [f"{token} ({at})" if count[token] > 1 else token for at, token in enumerate(found, 1)]
        for found, count in zip(tokens, counts, strict=True)
    )
    over_queries = block.convention.softmax_over == "queries"
    bounds = showing.rows
    if over_queries:
        values, masked, names, others, bounds = values.T, masked.T, others, names, showing.cols
    return Shares(
        stage, values, masked, names, lambda at: shorten(others[at]), bounds, over_queries
    )


def sentences(block: Block, index: Index, showing: Showing, n_heads: int = 1) -> tuple[str, ...]:
    """One sentence for every query shown; of many, the first few and how many are left out.

    With softmax over queries the weights of a key sum to 1, so each key has a sentence. `n_heads`
    is among how many the lines are shared.
    """
    shares = shares_of(block, index, showing)
    wanted = range(len(shares.values))[slice(*shares.bounds)]
    most = len(wanted) if showing.full else max(LINES // n_heads, FEWEST)
    shown = wanted if len(wanted) <= most + 1 else wanted[:most]
    names = distinct([shares.names[i] for i in shown], shown)
    lines = [f"{name} {_sentence(shares, i)}" for name, i in zip(names, shown, strict=True)]
    if left := len(wanted) - len(shown):
        what, flag = ("keys", "--cols") if shares.over_queries else ("queries", "--rows")
        lines.append(f"… {left} more {what}: {flag} A:B or --full")
    return tuple(lines)


def _sentence(shares: Shares, i: int) -> str:
    row, empty = shares.values[i].astype(np.float64), bool(shares.masked[i].all())
    verb, other, others = "attends to", "key", "keys"
    if shares.over_queries:
        verb, other, others = "goes to", "query", "queries"
    why = f"every {other} is masked" if empty else ""
    if not np.isfinite(row).all():
        return f"has weights that are not numbers{why and f': {why}'}"
    if not row.any():
        return f"{verb} nothing{why and f': {why}'}"
    with np.errstate(over="ignore", invalid="ignore"):  # what is called weights may be anything
        missing = 1 - float(row.sum())
        ranking = _ranking(row, shares.other, others)
    rest = f"; {percent(missing)} on no {other}" if missing > MISSING else ""
    return f"{verb} {ranking}{rest}{why and f', though {why}'}"


def _ranking(row: Array, name: Callable[[int], str], others: str) -> str:
    """The largest shares by name, equal ones together, and the rest as one sum."""
    order = np.argsort(-row, kind="stable")
    order = order[row[order] > 0]
    texts = [percent(float(share)) for share in row[order]]
    if len(order) > TOP and texts[0] == texts[-1]:
        return f"{len(order)} {others} alike ({texts[0]} each)"
    if len(order) == 1:
        return f"{name(int(order[0]))} alone ({texts[0]})"
    groups, at = [], 0
    while at < min(len(order), TOP) or at == len(order) - 1:
        tied = texts.count(texts[at])
        names = [name(int(i)) for i in order[at : at + min(tied, max(TOP - at, 1))]]
        names += [f"{tied - len(names)} more"] if tied > len(names) else []
        together = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
        groups.append(f"{together} ({texts[at]}{' each' if tied > 1 else ''})")
        at += tied
    rest = row[order[at:]]
    tail = f"; {len(rest)} more {others} share {percent(float(rest.sum()))}"
    return ", then ".join(groups) + (tail if len(rest) else "")


def empty_rows(block: Block, index: Index) -> str:
    """Which queries (or keys, with softmax over queries) attend to nothing, and their weights."""
    shares = shares_of(block, index, Showing())
    empty = np.flatnonzero(shares.masked.all(axis=-1)).tolist()
    left = shares.values[empty]
    if not left.size or not (np.isnan(left).all() or (left == left.flat[0]).all()):
        return ""
    stage = shares.stage
    axis = stage.axes[-1 if shares.over_queries else -2]
    names = [shorten(stage.label(axis, i)) for i in empty[:NAMED]]
    names += [f"{len(empty) - NAMED} more"] if len(empty) > NAMED else []
    other, each = "query" if shares.over_queries else "key", short(float(left.flat[0]), 4)
    how = block.convention
    is_empty = math.isinf(how.mask_value)
    why = f"--empty-rows {how.empty_rows}" if is_empty else f"--mask-value {how.mask_value:g}"
    return f"{', '.join(names)}: every {other} is masked; each weight is {each} ({why})"


def strongest(block: Block, showing: Showing) -> tuple[list[str], list[list[str]]]:
    """For every query shown and every head the key with the largest weight, and that weight.

    Gives the names of the queries, and a row of texts for each. With softmax over queries it is
    the query with the largest weight of every key.
    """
    heads = [shares_of(block, {HEADS: head}, showing) for head in range(block.n_heads())]
    rows = range(len(heads[0].values))[slice(*heads[0].bounds)]
    cells = [[_largest(shares, row) for shares in heads] for row in rows]
    return [heads[0].names[row] for row in rows], cells


def _largest(shares: Shares, i: int) -> str:
    row = shares.values[i].astype(np.float64)
    if not np.isfinite(row).all() or not row.any():
        return "nothing"
    at = int(np.argmax(row))
    return f"{shorten(shares.other(at), TOP_CELLS)} {percent(float(row[at]))}"
