"""Which cells of which matrices the cells of a matrix were computed from: what a page lights up.

    of O[q1,2], which is the sum of A[q1,k]·V[k,2]: row q1 of the weights, column 2 of the values

It follows from the stage's formula: an axis of what is read is whole where letters are summed along
it, else its index follows from the row or from the column of the cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.evaluate import AbsentError
from attncli.expression import Cell, Expr, If, Over, cells, children, places_at
from attncli.trace import Stage
from attncli.views.cell import Entry
from attncli.views.select import Index
from attncli.views.words import Work, index_of, work_of

Lit = str | int | tuple[str, tuple[int, ...]]
"""Rows or columns that are read: "all"; one of them; "i" or "j", that of the cell's own row or
column; or one for each row or column shown, −1 where none is."""
Letters = tuple[str, ...]
Lines = tuple[Sequence[int], Sequence[int]]


class Read(NamedTuple):
    """Cells of one matrix: of which stage, at which heads and batch entries."""

    stage: Stage
    where: Index
    rows: Lit
    columns: Lit


class _UnevenError(Exception):
    """What is read follows from row and column together: no rule for all cells says it."""


def reads_of(entry: Entry, rows: Sequence[int], columns: Sequence[int]) -> list[Read]:
    """What these rows and columns of the matrix of an entry were computed from.

    Nothing where the trace does not hold it all, or where no rule for all cells says it.
    """
    work = work_of(entry)
    if work is None or not rows or not columns:
        return []
    formula, sizes = work.values.formula, work.values.sizes
    grid: Any = {"row": np.array(rows)[:, None], "column": np.array(columns)}
    work = work._replace(places=places_at(formula, index_of(entry._replace(**grid)), sizes))
    every = np.ones((len(rows), len(columns)), bool)
    reads: dict[str, Read] = {}
    try:
        with np.errstate(all="ignore"):
            for cell, summed, shown in _cells(formula.body, work, every):
                if cell.name in entry.stage.reads:
                    for read in _of_cell(work, cell, summed, shown, (rows, columns)):
                        reads[repr((cell.name, read[1:]))] = read
    except (_UnevenError, AbsentError):
        return []
    return [*reads.values()]


def _cells(
    node: Expr, work: Work, shown: BoolArray, summed: Letters = ()
) -> Iterator[tuple[Cell, Letters, BoolArray]]:
    """Every cell of an expression, the letters summed over it, and the entries that read it."""
    match node:
        case Cell():
            yield node, summed, shown
        case If(condition, then, otherwise) if not cells(condition):
            is_first = np.asarray(work.number(condition), bool)
            yield from _cells(then, work, shown & is_first, summed)
            yield from _cells(otherwise, work, shown & ~is_first, summed)
        case _:
            inner, sink = summed, None
            if isinstance(node, Over):
                inner, sink = summed + node.letters, node.sink
            for child in children(node):
                yield from _cells(child, work, shown, summed if child is sink else inner)


def _of_cell(
    work: Work, cell: Cell, summed: Letters, shown: BoolArray, lines: Lines
) -> Iterator[Read]:
    """What is read as one cell of the formula: matrices along outer axes, and lines of each."""
    source, sizes = work.stages[cell.name], work.values.sizes
    n_outer = max(0, len(source.axes) - 2)
    index = cell.index[len(cell.index) - work.values.arrays[cell.name].ndim :]
    axes = (axis for axis in index[:n_outer] if isinstance(axis, tuple))
    outer = tuple(str(x) for axis in axes for x in axis if x in summed)
    inner = [x for x in summed if x not in outer]
    for one in work.along(outer):
        ends = (dict.fromkeys(inner, 0), {x: sizes.get(x, 1) - 1 for x in inner})
        places = (one.place(cell, {**one.places, **end}) for end in ends)
        first, last = ([np.broadcast_to(x, shown.shape) for x in place] for place in places)
        heads = np.array([x[shown] for x in first[:n_outer]], int).T
        for chosen in np.unique(heads, axis=0).tolist() if n_outer else [()] * bool(shown.any()):
            is_there = np.all([x == n for x, n in zip(first, chosen, strict=False)], axis=0) & shown
            axis_ends = zip(first, last, source.value.shape, strict=True)
            lit: list[Lit] = [_lit(*x, is_there, lines) for x in [*axis_ends][n_outer:]]
            yield Read(source, dict(zip(source.axes, chosen, strict=False)), *[0, 0, *lit][-2:])


def _lit(first: Array, last: Array, size: int, is_there: BoolArray, lines: Lines) -> Lit:
    """The rows or columns that are read: all, or by the row or the column of the cell."""
    if (first < last)[is_there].any():
        if first[is_there].any() or (last[is_there] < size - 1).any():
            raise _UnevenError
        return "all"
    at = np.where(is_there, first, -1)
    each = at.max(axis=1), at.max(axis=0)
    fits = [bool((at == x)[is_there].all()) for x in (each[0][:, None], each[1])]
    if not any(fits):
        raise _UnevenError
    line = int(fits[1] and (not fits[0] or -1 in each[1]))
    numbers = tuple(each[line].tolist())
    if len({*numbers}) == 1:
        return int(numbers[0])
    return "ij"[line] if numbers == tuple(lines[line]) else ("ij"[line], numbers)
