"""What the weights say, in sentences: q1 attends to k1 and k2 (40.1 % each), then k3 (19.8 %)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.page.numbers import percent, short
from attncli.page.options import HEADS, DisplayOptions, Index
from attncli.page.select import Block
from attncli.page.text import captions, named, shorten
from attncli.stages import DROPPED
from attncli.trace import Stage
from attncli.words.tokens import numbers_of

TOP = 3  # names in a sentence
LINES = 12  # sentences in all
FEWEST = 2  # sentences of one head, however many heads there are
TOP_CELLS = 9  # of a name before its weight, in a table
NAMED = 3  # empty rows called by name
MISSING = 0.01  # of a row's sum: rounding each weight to bfloat16, 8 bits, changes 0.4 % at most


class Shares(NamedTuple):
    """The weights, each row of which sums to 1: transposed where softmax is over queries.

    values [n, m], masked [n, m]; axis, other: of the rows and columns; rows: those asked for;
    dropped [n, m]: weights that dropout set to 0
    """

    block: Block
    where: Index
    options: DisplayOptions
    stage: Stage
    values: Array
    masked: BoolArray
    axis: str
    other: str
    rows: range
    over_queries: bool
    dropped: BoolArray | None = None

    def joined(self, at: Sequence[int], most: int = TOP, subject: str = "") -> str:
        """The first of the columns at these places by name, and how many more there are."""
        others, quotes = self.stage.names(self.other), self.other in self.stage.labels
        places = at if len(at) <= most + 1 else at[:most]  # one more is named
        *names, last = [captions(others, [i], quotes=quotes)[0] for i in places]
        if len(places) < len(at):
            names, last = [*names, last], f"{len(at) - most} more{subject}"
        return f"{', '.join(names)} and {last}" if names else last


def shares_of(
    block: Block, index: Index, options: DisplayOptions, stage: Stage | None = None
) -> Shares:
    """The weights of a block at an index; or another stage of as many queries and keys."""
    stage = stage or block.weights
    assert stage is not None  # noqa: S101 - whoever asks has looked
    values = block.matrix(stage, index)
    masked = np.zeros(values.shape, bool)
    if block.mask is not None:
        masked = block.masked(block.mask, index, values.shape)
    used = block.stages.get(DROPPED)
    dropped = None if used is None else (block.matrix(used, index) == 0) & (values != 0)
    (axis, other), bounds = stage.axes[-2:], options.rows
    over_queries = block.convention.softmax_over == "queries"
    if over_queries:
        values, masked, axis, other, bounds = values.T, masked.T, other, axis, options.cols
        dropped = None if dropped is None else dropped.T
    rows = range(len(values))[slice(*bounds)]
    names = axis, other, rows, over_queries
    return Shares(block, index, options, stage, values, masked, *names, dropped)


def attention(shares: Shares, i: int) -> str:
    """Which keys a query attends to, or by which queries a key is attended to."""
    row, empty = shares.values[i].astype(np.float64), bool(shares.masked[i].all())
    verb, other, others = "attends to", "key", "keys"
    if shares.over_queries:
        verb, other, others = "is attended to by", "query", "queries"
    why = f"every {other} is masked" if empty else ""
    if not np.isfinite(row).all():
        return f"has weights that are not numbers{why and f': {why}'}"
    if not row.any():
        return f"{verb} nothing{why and f': {why}'}"
    with np.errstate(over="ignore", invalid="ignore"):  # what is called weights may be anything
        missing = 1 - float(row.sum())
        ranking = _ranking(shares, row, others)
    rest = f"; {percent(missing)} on no {other}" if missing > MISSING else ""
    dropout = ""
    if shares.dropped is not None:
        left_out = np.flatnonzero(shares.dropped[i]).tolist()
        dropout = f"; dropout leaves out {shares.joined(left_out) if left_out else 'none'}"
    return f"{verb} {ranking}{rest}{why and f', though {why}'}{dropout}"


def _ranking(shares: Shares, row: Array, others: str) -> str:
    """The largest weights by name, equal ones together, and the rest as one sum."""
    order = np.argsort(-row, kind="stable")
    order = order[row[order] > 0].tolist()
    ends = [percent(float(row[at])) for at in (*order[:1], *order[-1:])]
    if len(order) > TOP and ends[0] == ends[1]:
        return f"{len(order)} {others} alike ({ends[0]} each)"
    if len(order) == 1:
        return f"{shares.joined(order)} alone ({ends[0]})"
    groups, n = [], 0
    for size, group in groupby(order, lambda at: percent(float(row[at]))):
        if TOP <= n < len(order) - 1:
            break
        tied = [*group]
        names = shares.joined(tied, max(TOP - n, 1), f" {others}")
        groups.append(f"{names} ({size}{' each' if len(tied) > 1 else ''})")
        n += len(tied)
    rest = row[order[n:]]
    tail = f"; the other {len(rest)} {others}: {percent(float(rest.sum()))}"
    return ", then ".join(groups) + (tail if len(rest) else "")


def sentences(
    block: Block,
    stage: Stage,
    places: Sequence[Index],
    options: DisplayOptions,
    sentence: Callable[[Shares, int], str] = attention,
) -> list[tuple[str, ...]]:
    """One for every query shown, or key where softmax is over queries; of many the first.

    places    the heads and batch entries, each of which has sentences of its own
    sentence  what is said of a row after its name
    """
    among, texts = 1 if options.every else len(places), []
    for place in places:
        shares = shares_of(block, place, options, stage)
        most = len(shares.rows) if options.full else max(LINES // among, FEWEST)
        rows = shares.rows if len(shares.rows) <= most + 1 else shares.rows[:most]
        is_labelled = shares.axis in stage.labels
        names = captions(stage.names(shares.axis), rows, quotes=is_labelled)
        lines = [f"{name} {sentence(shares, i)}" for name, i in zip(names, rows, strict=True)]
        if n_left := len(shares.rows) - len(rows):
            entries, flag = ("keys", "--cols") if shares.over_queries else ("queries", "--rows")
            lines.append(f"… {n_left} more {entries}: {flag} A:B or --full")
        texts.append(tuple(lines))
    return texts


def empty_rows(block: Block, index: Index) -> str:
    """Which queries (or keys, with softmax over queries) attend to nothing, and their weights."""
    shares = shares_of(block, index, DisplayOptions())
    empty = np.flatnonzero(shares.masked.all(axis=-1)).tolist()
    shares_of_empty = shares.values[empty]
    if not shares_of_empty.size or not (
        np.isnan(shares_of_empty).all() or (shares_of_empty == shares_of_empty.flat[0]).all()
    ):
        return ""
    names = [named(shares.stage, shares.axis, i) for i in empty[:NAMED]]
    names += [f"{len(empty) - NAMED} more"] if len(empty) > NAMED else []
    other = "query" if shares.over_queries else "key"
    each = short(float(shares_of_empty.flat[0]), 4)
    convention, value = block.convention, block.mask_value
    is_empty = math.isinf(value)
    used = shares.stage.params.get("empty", convention.empty_rows)
    flag = "--empty-rows" if used == convention.empty_rows else "--empty-rows-inf"
    why = f"{flag} {used}" if is_empty else f"--mask-value {value:g}"
    assert block.mask is not None  # noqa: S101 - or nothing is masked
    mask = np.broadcast_to(block.matrix(block.mask, index), block.matrix(shares.stage, index).shape)
    if is_empty and np.isfinite((mask.T if shares.over_queries else mask)[empty]).any():
        why = "the mask is finite"
    return f"{', '.join(names)}: every {other} is masked; each weight is {each} ({why})"


def strongest(block: Block, options: DisplayOptions) -> tuple[list[str], list[list[str]]]:
    """The queries shown by name, and for each the key with the largest weight of every head.

    With softmax over queries it is the keys, and the query with the largest weight of each.
    """
    heads = [shares_of(block, {HEADS: head}, options) for head in range(block.n_heads)]
    tokens = [heads[0].stage.names(axis) for axis in (heads[0].axis, heads[0].other)]
    names, others = ([*map(str.__add__, labels, numbers_of(labels))] for labels in tokens)

    def largest(shares: Shares, i: int) -> str:
        row = shares.values[i].astype(np.float64)
        if not np.isfinite(row).all() or not row.any():
            return "nothing"
        at = int(np.argmax(row))
        return f"{shorten(others[at], TOP_CELLS)} {percent(float(row[at]))}"

    cells = [[largest(shares, row) for shares in heads] for row in heads[0].rows]
    return [names[row] for row in heads[0].rows], cells
