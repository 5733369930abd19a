"""Which cells of which matrices the cells of a matrix were computed from: what a page lights up.

    of O[q1,2], which is the sum of A[q1,k]·V[k,2]: row q1 of the weights, column 2 of the values

It follows from the stage's formula: an axis of what is read is whole where letters are summed along
it, else its index follows from the row or from the column of the cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.evaluate import AbsentError
from attncli.expression import Cell, Expr, If, Over, Place, cells, children, places_at, walk
from attncli.trace import Stage
from attncli.views.cell import Entry
from attncli.views.select import Index
from attncli.views.words import Work, index_of, work_of

Lit = str | int | tuple[str, tuple[int, ...]]
"""Rows or columns that are read: "all"; one of them; "i" or "j", that of the cell's own row or
column; or one for each row or column shown, −1 where none is."""


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
    reads: dict[str, Read] = {}
    try:
        with np.errstate(all="ignore"):
            for cell, summed in dict.fromkeys(_cells(work.values.formula.body, work)):
                if cell.name in entry.stage.reads:
                    for read in _of_cell(work, cell, summed, rows, columns):
                        reads[repr((cell.name, read[1:]))] = read
    except (_UnevenError, AbsentError):
        return []
    return [*reads.values()]


def _cells(
    node: Expr, work: Work, summed: tuple[str, ...] = ()
) -> Iterator[tuple[Cell, tuple[str, ...]]]:
    """Every cell that an expression names, and the letters that are summed where it stands."""
    match node:
        case Cell():
            yield node, tuple(x for x in summed if work.values.sizes.get(x, 1) > 1)
        case If(condition, then, otherwise) if any(isinstance(x, Place) for x in walk(condition)):
            cases = [[*_cells(case, work, summed)] for case in (then, otherwise)]
            always = None if cells(condition) else _always(condition, work)
            if always is None and all(cases) and {*cases[0]} != {*cases[1]}:
                raise _UnevenError
            yield from cases[always is False] or cases[always is not False]
        case _:
            inner = (*summed, *node.letters) if isinstance(node, Over) else summed
            sink = node.sink if isinstance(node, Over) else None
            for child in children(node):
                yield from _cells(child, work, summed if child is sink else inner)


def _always(condition: Expr, work: Work) -> bool | None:
    """Whether a condition on places holds in every cell, or in none; None where in some."""
    places = work.places
    letters = tuple({x.letter for x in walk(condition) if isinstance(x, Place)} & places.keys())
    cases = {*np.ravel(work.number(condition, work.values.grid(letters))).tolist()}
    return None if len(cases) > 1 else bool(cases.pop())


def _of_cell(
    work: Work, cell: Cell, summed: tuple[str, ...], rows: Sequence[int], columns: Sequence[int]
) -> Iterator[Read]:
    """What is read as one cell of the formula: matrices along outer axes, and lines of each."""
    source = work.stages[cell.name]
    n_outer = max(0, len(source.axes) - 2)
    index = [x if isinstance(x, tuple) else () for x in cell.index]
    index = index[len(index) - work.values.arrays[cell.name].ndim :]
    if "" in source.axes:
        index.insert(source.axes.index(""), ())
    letters = [[str(x) for x in axis if x in summed] for axis in index]
    outer = tuple(x for axis in letters[:n_outer] for x in axis)
    free = dict.fromkeys((x for axis in letters[n_outer:] for x in axis), 0)

    def at(row: Any, column: Any, places: dict[str, Any]) -> Array:
        """Where the cell is for some rows and columns of the matrix: [axis, cell]."""
        line = np.broadcast_arrays(np.asarray(row), np.asarray(column))
        here: Any = {"row": line[0], "column": line[1]}
        own_index = index_of(work.entry._replace(**here))
        own = places_at(work.values.formula, own_index, work.values.sizes)
        where = work.place(cell, {**own, **places, **free})
        return np.array([np.broadcast_to(x, line[0].shape) for x in where], dtype=int)

    for each in product(*(range(work.values.sizes.get(x, 1)) for x in outer)):
        places = dict(zip(outer, each, strict=True))
        corner = [(rows[0], columns), (rows, columns[0])]
        tried = [at(*lines, places)[:n_outer] for lines in corner]
        for chosen in {tuple(x): None for line in tried for x in line.T.tolist()}:
            hits = [np.flatnonzero(_is(line, chosen)) for line in tried]
            row = rows[0] if len(hits[0]) else rows[hits[1][0]]
            column = columns[hits[0][0]] if len(hits[0]) else columns[0]
            lines = [at(rows, column, places), at(row, columns, places)]
            kept = [_is(x[:n_outer], chosen) for x in lines]
            lit: list[Lit] = [0, 0]
            for axis in range(n_outer, len(index)):
                sizes = [x in summed for x in index[axis] if work.values.sizes.get(str(x), 1) > 1]
                if any(sizes) and not all(sizes):
                    raise _UnevenError
                values = [np.where(k, x[axis], -1) for k, x in zip(kept, lines, strict=True)]
                lit.append("all" if any(sizes) else _along(values, rows, columns))
            where = dict(zip(source.axes[:n_outer], chosen, strict=True))
            yield Read(source, where, *lit[-2:])


def _is(line: Array, chosen: tuple[int, ...]) -> BoolArray:
    """Which of some cells are of a chosen head and batch entry."""
    same: BoolArray = np.all(line == np.array(chosen, int)[:, None], axis=0)
    return same


def _along(values: list[Array], rows: Sequence[int], columns: Sequence[int]) -> Lit:
    """The rows or columns that are read, by the row or by the column of the cell."""
    there = [{*x.tolist()} - {-1} for x in values]
    if len(there[0]) > 1 < len(there[1]):
        raise _UnevenError
    line = int(len(there[1]) > 1 or (len(there[0]) == 1 and -1 in values[1]))
    each = tuple(values[line].tolist())
    if len({*each}) == 1:
        return int(each[0])
    return "ij"[line] if each == tuple((rows, columns)[line]) else ("ij"[line], each)
