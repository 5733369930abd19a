"""One query's walk through attention (--query): a table with a row for each key.

    q·k   scaled   masked   exp   weight   value   weight · value

Its last row is the sum: of exp, of the weights, and of what the keys give, which is the output.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.errors import StageError
from attncli.files.messages import listing
from attncli.page.arithmetic import is_softmax
from attncli.page.cell import Entry
from attncli.page.headline import headline
from attncli.page.matrix import Matrix, table_of
from attncli.page.options import HEADS, DisplayOptions, Index
from attncli.page.parts import Heading, Part, Remark
from attncli.page.places import places_of
from attncli.page.select import BlankStage, Block, blocks_of, chosen
from attncli.page.text import BLANK, captions, clean, find, named, sentence
from attncli.stages import BEFORE_SOFTMAX, SCORES, WEIGHTS
from attncli.trace import Stage, Trace

LARGE = 600.0  # of a score beyond it exp is infinite or 0: the largest is subtracted from each
FEW, FIRST = 9, 4  # of more values than FEW the FIRST are shown
TABLE, ENDS = "contributions", ("sink", "Σ")  # its name as a stage, and its last rows
ROUNDING = 1e-12  # weights that sum to 1 within it do so exactly, but for rounding in float64


class Column(NamedTuple):
    """A column of the walk: its heading, a number for each key, their sum and that of a sink.

    None where there is none; is_given: it is an input, which a worksheet shows.
    """

    heading: str
    numbers: Array
    total: float | None = None
    sink: float | None = None
    is_given: bool = False


class QueryTable(Stage):
    """The table of a query. NaN stands in its last rows where a column has no sum or no sink."""


def walks(trace: Trace, names: Collection[str], options: DisplayOptions) -> Iterator[Part]:
    """The walk of the query that `options.query` names, through every attention that is chosen.

    Raises StageError where there is no attention to walk through, ShapeError for a query that is
    not there.
    """
    blocks = [
        (block, weights, output)
        for block in blocks_of(trace)
        if (weights := block.weights) and block.prefix + weights.name in names
        for output in block.stages.values()
        if {"a", "v"} <= output.reads.keys() and weights.name == WEIGHTS
    ]
    if not blocks:
        message = "there are no weights and values to walk through"
        raise StageError(message, f"there are {listing(trace)}")
    for block, weights, output in blocks:
        row = find(weights.names(weights.axes[-2]), weights.axes[-2], options.query or "1")
        places, left_out = places_of(block, [weights], options)
        yield headline(block, options)
        for place in places:
            yield from [Heading(place.heading)] if place.heading else []
            yield _walk(block, output, row, place.where, options)
        yield from [Remark(left_out)] if left_out else []


def walked(trace: Trace, options: DisplayOptions) -> Trace:
    """The walk as a trace of its tables, whole: one, or one a head, `contributions_1` …"""
    tables = walks(trace, chosen(trace, options), replace(options, full=True))
    stages = [part.stage for part in tables if isinstance(part, Matrix)]
    names = [f"{TABLE}_{n}" for n in range(1, len(stages) + 1)] if len(stages) > 1 else [TABLE]
    renamed = (replace(stage, name=name) for stage, name in zip(stages, names, strict=True))
    return Trace(trace.title, tuple(renamed), trace.convention)


def softmax_tables(m: Matrix) -> Iterator[Matrix]:
    """The tables of a matrix's first softmax, or of every one where all is asked for."""
    if is_softmax(m.stage):
        over_queries = m.stage.params.get("axis") == -2
        groups: Sequence[int] = m.columns if over_queries else m.rows
        if m.cell is not None:
            groups = [m.cell.column if over_queries else m.cell.row]
        for at in groups if m.options.full else groups[:1]:
            cell = (m.rows[0], at) if over_queries else (at, m.columns[0])
            entry = Entry(m.block, m.stage, m.where, *cell, m.options.precision, 1)
            yield from softmax_table(entry, m.options)


def softmax_table(entry: Entry, options: DisplayOptions) -> Iterator[Matrix]:
    """Every score of a row of weights, or column with softmax over queries, its exp and weight.

    Nothing where all of it is masked, or not a number.
    """
    if entry.block.read(entry.stage, "x") is None:
        return
    over_queries = entry.stage.params.get("axis") == -2
    axis, at = entry.places[over_queries]
    matrices = (x.matrix.T if over_queries else x.matrix for x in (entry.of("x"), entry))
    scores, shares = (matrix[at].astype(np.float64) for matrix in matrices)
    is_blank = any(isinstance(x.stage, BlankStage) for x in (entry, entry.of("x")))
    if not np.isfinite(scores.max()) and not (is_blank and np.isnan(scores.max())):
        return
    softmax = _softmax(entry.block, entry.stage, scores, shares, entry.where)
    columns = [Column("score", scores), *softmax]
    names = entry.stage.names(entry.stage.axes[-2 if over_queries else -1])
    note = f"softmax of {named(entry.stage, axis, at)}: each exp divided by their sum"
    yield _table(columns, names, note, options, is_blank=is_blank)


def _walk(block: Block, output: Stage, row: int, index: Index, options: DisplayOptions) -> Matrix:
    """The table of one query, at a head and batch entry."""
    weights = block.stages[WEIGHTS]
    query = named(weights, weights.axes[-2], row)
    note = f"{query}: a row for each key; the last row is the sum, {clean(output.symbol)}[{query}]"
    whole = n_shown = output.value.shape[-1]
    if whole > FEW and not options.full:
        n_shown = FIRST
        note += f"; {n_shown} of the {whole} columns of V (--full shows all)"
    columns = [*_columns(block, output, row, index, n_shown)]
    is_blank = isinstance(weights, BlankStage)
    return _table(columns, weights.names(weights.axes[-1]), note, options, is_blank=is_blank)


def _table(
    columns: Sequence[Column],
    names: Sequence[str],
    note: str,
    options: DisplayOptions,
    *,
    is_blank: bool,
) -> Matrix:
    """Columns as a table, below them the sink, where there is one, and their sums."""
    rows, ends = captions(names, range(len(names))), [[column.total for column in columns]]
    if any(column.sink is not None for column in columns):
        rows, ends = [*rows, "sink"], [[column.sink for column in columns], *ends]
    last = np.array([[np.nan if x is None else x for x in line] for line in ends])
    values = np.vstack([np.column_stack([column.numbers for column in columns]), last])
    labels = {"key": (*rows, "Σ"), "measure": tuple(column.heading for column in columns)}
    stage = QueryTable("", "", "", values, ("key", "measure"), labels, sentence(note))
    matrix = table_of(stage, options)
    matrix.facts, matrix.by_column = (), True
    matrix.empty[-len(ends) :] = [[x is None for x in line] for line in ends]
    if is_blank:
        is_asked = np.array([not column.is_given for column in columns])
        matrix.marked, matrix.sign = ~matrix.empty & is_asked, BLANK
    return matrix


def _columns(
    block: Block, output: Stage, row: int, index: Index, n_values: int
) -> Iterator[Column]:
    """The columns in the order of computation: scores, softmax, values, and what each gives."""
    weights, values = block.stages[WEIGHTS], block.read(output, "v")
    shares, stage = block.matrix(weights, index)[row], block.read(output, "a")
    if values is None or stage is None:
        raise StageError("the values that the weights are of are not in the trace")
    for name in (name for name in block.numbers if name in BEFORE_SOFTMAX):
        numbers = block.matrix(block.stages[name], index)[row]
        is_product = name == SCORES and block.stages[name].reads.get("q", "q") == "q"
        yield Column("q·k" if is_product else name, numbers)
    logits = block.read(weights, "x")
    if logits is None or weights.params.get("axis") == -2:  # of a column, whose sum is no row's
        yield Column("weight", shares, float(shares.sum()))
    else:
        scores = block.matrix(logits, index)[row].astype(np.float64)
        yield from _softmax(block, weights, scores, shares, index)
    coefficients = block.matrix(stage, index)[row]
    if stage is not weights:
        yield Column(stage.name, coefficients, float(coefficients.sum()))
    letter, value = clean(values.symbol), block.matrix(values, index)
    result = block.matrix(output, index)[row]
    names = [str(at) for at in range(1, n_values + 1)] if value.shape[1] > 1 else [""]
    for at, name in enumerate(names):
        yield Column(f"{letter}{name}", value[:, at], is_given=not isinstance(values, BlankStage))
    factor = "weight" if stage is weights else stage.name
    for at, name in enumerate(names):
        with np.errstate(all="ignore"):
            yield Column(f"{factor}·{letter}{name}", coefficients * value[:, at], float(result[at]))


def _softmax(
    block: Block, weights: Stage, scores: Array, shares: Array, index: Index
) -> Iterator[Column]:
    """exp of every score and its weight; of scores beyond LARGE the largest is subtracted first."""
    sinks = block.read(weights, "sinks")
    sink = [] if sinks is None else [float(np.ravel(sinks.value)[index.get(HEADS, 0)])]
    every = np.append(scores, sink)
    top = every.max(initial=-np.inf)
    top = top if LARGE < abs(top) < np.inf else 0.0
    powers, total = np.exp(every - top), float(shares.sum())
    of_sink = (None, None) if sinks is None else (float(powers[-1]), 1.0 - total)
    total = 1.0 if sinks is not None or abs(total - 1) < ROUNDING else total
    heading = "exp(x − max)" if top else "exp"
    yield Column(heading, powers[: len(scores)], float(powers.sum()), of_sink[0])
    yield Column("weight", shares, total, of_sink[1])
