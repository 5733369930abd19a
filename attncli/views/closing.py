"""What the weights say, in sentences: q1 attends to k1 and k2 (40.1 % each), then k3 (19.8 %)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.errors import joined
from attncli.stages import DROPPED
from attncli.trace import Stage
from attncli.views.numbers import percent, short
from attncli.views.select import HEADS, Block, DisplayOptions, Index
from attncli.views.text import distinct, is_token, named, quoted, shorten
from attncli.words.tokens import numbers_of

TOP = 3  # names in a sentence
LINES = 12  # sentences in all
FEWEST = 2  # sentences of one head, however many heads there are
TOP_CELLS = 9  # of a name before its share, in a table
NAMED = 3  # empty rows called by name
MISSING = 0.01  # of a row's sum: rounding each share to bfloat16, 8 bits, changes 0.4 % at most


class Name(NamedTuple):
    """A token, " (3)" where there are several of the same text, and whether it is quoted."""

    token: str
    number: str
    is_quoted: bool

    def spoken(self, shown: str = "") -> str:
        """Within a sentence: "bank" (3), a token in quotation marks; `shown` is it shortened."""
        text = shown or shorten(self.token)
        return (quoted(text) if self.is_quoted else text) + self.number

    @property
    def plain(self) -> str:
        """In a table: bank (3)."""
        return self.token + self.number


def _names(stage: Stage, axis: str) -> list[Name]:
    tokens = stage.names(axis)
    named = zip(tokens, numbers_of(tokens), strict=True)
    return [Name(token, number, is_token(stage, axis, token)) for token, number in named]


class Shares(NamedTuple):
    """The weights, each row of which sums to 1: transposed where softmax is over queries.

    values [n, m], masked [n, m]; names of the n, others: of the m; rows: those asked for;
    dropped [n, m]: weights that dropout set to 0
    """

    stage: Stage
    values: Array
    masked: BoolArray
    names: Sequence[Name]
    others: Sequence[Name]
    rows: range
    over_queries: bool
    dropped: BoolArray | None = None


def shares_of(
    block: Block, index: Index, options: DisplayOptions, stage: Stage | None = None
) -> Shares:
    """The weights of a block at an index; or another stage of as many queries and keys."""
    stage = stage or block.weights
    assert stage is not None  # noqa: S101 - whoever asks has looked
    values = block.matrix(stage, index)
    masked = block.masked(index, values.shape)
    used = block.stages.get(DROPPED)
    dropped = None if used is None else (block.matrix(used, index) == 0) & (values != 0)
    names, others = (_names(stage, axis) for axis in stage.axes[-2:])
    over_queries, bounds = block.convention.softmax_over == "queries", options.rows
    if over_queries:
        values, masked, names, others, bounds = values.T, masked.T, others, names, options.cols
        dropped = None if dropped is None else dropped.T
    rows = range(len(values))[slice(*bounds)]
    return Shares(stage, values, masked, names, others, rows, over_queries, dropped)


def sentences(
    block: Block, index: Index, options: DisplayOptions, n_heads: int = 1
) -> tuple[str, ...]:
    """One sentence for every query shown, or key where softmax is over queries; of many the first.

    n_heads  among how many the lines are shared
    """
    shares = shares_of(block, index, options)
    return told(shares, lambda i: _sentence(shares, i), options, n_heads)


def told(
    shares: Shares, sentence: Callable[[int], str], options: DisplayOptions, n_heads: int
) -> tuple[str, ...]:
    """The sentence on each row, after its name; of many rows the first few, as `sentences` says."""
    most = len(shares.rows) if options.full else max(LINES // n_heads, FEWEST)
    shown = shares.rows if len(shares.rows) <= most + 1 else shares.rows[:most]
    texts = distinct([shares.names[i].token for i in shown], shown)
    lines = [
        f"{shares.names[i].spoken(text)} {sentence(i)}"
        for text, i in zip(texts, shown, strict=True)
    ]
    if left := len(shares.rows) - len(shown):
        what, flag = ("keys", "--cols") if shares.over_queries else ("queries", "--rows")
        lines.append(f"… {left} more {what}: {flag} A:B or --full")
    return tuple(lines)


def _sentence(shares: Shares, i: int) -> str:
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
        ranking = _ranking(row, shares.others, others)
    rest = f"; {percent(missing)} on no {other}" if missing > MISSING else ""
    dropout = ""
    if shares.dropped is not None:
        left_out = [shares.others[at].spoken() for at in np.flatnonzero(shares.dropped[i]).tolist()]
        dropout = f"; dropout leaves out {joined(some(left_out)) if left_out else 'none'}"
    return f"{verb} {ranking}{rest}{why and f', though {why}'}{dropout}"


def some(names: list[str], most: int = TOP, of: str = "") -> list[str]:
    """The first of many names and how many more there are; one more is named."""
    if len(names) <= most + 1:
        return names
    return [*names[:most], f"{len(names) - most} more{of}"]


def _ranking(row: Array, names: Sequence[Name], others: str) -> str:
    """The largest shares by name, equal ones together, and the rest as one sum."""
    order = np.argsort(-row, kind="stable")
    order = order[row[order] > 0]

    def text(at: int) -> str:
        return percent(float(row[order[at]]))

    if len(order) > TOP and text(0) == text(-1):
        return f"{len(order)} {others} alike ({text(0)} each)"
    if len(order) == 1:
        return f"{names[order[0]].spoken()} alone ({text(0)})"
    groups, at = [], 0
    while at < min(len(order), TOP) or at == len(order) - 1:
        own = text(at)
        tied = bisect_left(range(at, len(order)), True, key=lambda i: text(i) != own)
        alike = [names[i].spoken() for i in order[at : at + tied]]
        top = some(alike, max(TOP - at, 1), f" {others}")
        groups.append(f"{joined(top)} ({own}{' each' if tied > 1 else ''})")
        at += tied
    rest = row[order[at:]]
    tail = f"; {len(rest)} more {others} share {percent(float(rest.sum()))}"
    return ", then ".join(groups) + (tail if len(rest) else "")


def empty_rows(block: Block, index: Index) -> str:
    """Which queries (or keys, with softmax over queries) attend to nothing, and their weights."""
    shares = shares_of(block, index, DisplayOptions())
    empty = np.flatnonzero(shares.masked.all(axis=-1)).tolist()
    left = shares.values[empty]
    if not left.size or not (np.isnan(left).all() or (left == left.flat[0]).all()):
        return ""
    axis = shares.stage.axes[-1 if shares.over_queries else -2]
    names = [named(shares.stage, axis, i) for i in empty[:NAMED]]
    names += [f"{len(empty) - NAMED} more"] if len(empty) > NAMED else []
    other, each = "query" if shares.over_queries else "key", short(float(left.flat[0]), 4)
    how, value = block.convention, block.mask_value
    is_empty = math.isinf(value)
    used = shares.stage.params.get("empty", how.empty_rows)
    flag = "--empty-rows" if used == how.empty_rows else "--empty-rows-inf"
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

    def largest(shares: Shares, i: int) -> str:
        row = shares.values[i].astype(np.float64)
        if not np.isfinite(row).all() or not row.any():
            return "nothing"
        at = int(np.argmax(row))
        return f"{shorten(shares.others[at].plain, TOP_CELLS)} {percent(float(row[at]))}"

    cells = [[largest(shares, row) for shares in heads] for row in heads[0].rows]
    return [heads[0].names[row].plain for row in heads[0].rows], cells
