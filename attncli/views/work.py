"""The arithmetic under a matrix (--work): equations as lines, and softmax as a table.

Of the first cell, or of every cell where nothing is to be left out.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.cells import cell_len

from attncli.trace import Stage, Trace
from attncli.views.arithmetic import equation
from attncli.views.arithmetic_tables import PAIRS
from attncli.views.blank import blank_stage
from attncli.views.cell import Entry
from attncli.views.matrix import Matrix
from attncli.views.numbers import short
from attncli.views.parts import Equation
from attncli.views.select import HEADS, BlankStage, Block, DisplayOptions
from attncli.views.text import fold, hang, named, plain, sentence

PAGE = 100  # cells of a line where no terminal sets a width
TERMS = (12, 6, 3)  # terms of a sum on one line: as many as fit
MEASURES = ("score", "− max", "exp", "share")


def work_lines(matrix: Matrix, width: int | None) -> list[str]:
    """The arithmetic of a matrix's first cell, or of every cell, where it is asked for."""
    room, lines = (width or PAGE) - 2, []
    for found in worked(matrix, room):
        line = one_line(found)
        lines += [line] if cell_len(line) <= room else at_length(found, room)
    return lines


def worked(matrix: Matrix, room: int) -> Iterator[Equation]:
    """The same as equations, fitted to lines of so many cells."""
    m, options = matrix, matrix.options
    if not (options.work and m.rows and m.columns):
        return
    row, column = m.rows[0], m.columns[0]
    cells = [(row, column)]
    if m.stage.work in PAIRS and row == column and len(m.columns) > 1:
        cells = [(row, m.columns[1])]
    if options.full:
        cells = [(row, column) for row in m.rows for column in m.columns]
    for at in cells:
        entry = Entry(m.block, m.stage, m.where, *at, options.precision, TERMS[0])
        if found := _fitted(entry, room):
            yield found


def one_line(found: Equation) -> str:
    """The equation as text on one line."""
    text = plain(" = ".join([found.left, *(" ".join(form) for form in found.forms)]))
    return f"{text}  ({found.remark})" if found.remark else text


def _fitted(entry: Entry, room: int) -> Equation | None:
    """The equation with as many terms as fit on one line, else with as many forms on each line.

    What is on one line is one form.
    """
    found = equation(entry)
    if found is None:
        return None
    for terms in TERMS[1:]:
        if cell_len(one_line(found)) <= room:
            break
        found = equation(entry._replace(terms=terms)) or found
    beside = room - cell_len(plain(found.left)) - 3
    packed = list(found.forms[:1])
    for form in found.forms[1:]:
        together = (*packed[-1], "=", *form)
        if cell_len(plain(" ".join(together))) <= beside:
            packed[-1] = together
        else:
            packed.append(form)
    return found._replace(forms=tuple(packed))


def at_length(found: Equation, width: int | None) -> list[str]:
    """Every form on lines of its own, the equal signs and the terms in line."""
    width, found = width or PAGE, found.plain
    is_short = cell_len(found.left) <= width // 4
    at = cell_len(found.left) + 1 if is_short else 2
    lines = [] if is_short else hang([found.left], width, 2, 0)
    for number, form in enumerate(found.forms):
        first, *more = hang(form, width, at + 2, at + 2)
        before = f"{found.left} " if is_short and not number else " " * at
        lines += [f"{before}= {first[at + 2 :]}", *more]
    if not found.remark:
        return lines
    together = f"{lines[-1]}  ({found.remark})"
    if cell_len(together) <= width:
        return [*lines[:-1], together]
    return lines + fold(f"({found.remark})", width, at + 2)


# ---- softmax as a table


def softmax_tables(matrix: Matrix) -> Iterator[Matrix]:
    """The softmax of the first row of weights, or of every row, as a table."""
    m, over_queries = matrix, matrix.stage.params.get("axis") == -2
    groups = m.columns if over_queries else m.rows
    for at in groups if m.options.full else groups[:1]:
        cell = (m.rows[0], at) if over_queries else (at, m.columns[0])
        entry = Entry(m.block, m.stage, m.where, *cell, m.options.precision, TERMS[0])
        yield from softmax_table(entry, m.options)


def softmax_table(entry: Entry, options: DisplayOptions) -> Iterator[Matrix]:
    """Every score of a row, less the largest one, its exp and its share, and their sums.

    With softmax over queries it is a column. Nothing where all of it is masked, or not a number.
    """
    stage, scores, shares = entry.stage, entry.of("x").matrix, entry.matrix
    (own, at), axis = entry.places[0], stage.axes[-1]
    if stage.params.get("axis") == -2:
        scores, shares, (own, at), axis = scores.T, shares.T, entry.places[1], stage.axes[-2]
    z, share = scores[at].astype(np.float64), shares[at].astype(np.float64)
    names = stage.names(axis)
    if "sinks" in stage.reads:
        sink = float(entry.of("sinks").matrix[0, entry.where.get(HEADS, 0)])
        z, share, names = np.append(z, sink), np.append(share, np.nan), (*names, "sink")
    largest = z.max()
    is_blank = isinstance(stage, BlankStage) or isinstance(entry.of("x").stage, BlankStage)
    if not np.isfinite(largest) and not (is_blank and np.isnan(largest)):
        return
    powers = np.exp(z - largest)
    share = np.where(np.isnan(share), powers / powers.sum(), share)
    sums = [0.0, 0.0, powers.sum(), share.sum()]
    values = np.vstack([np.column_stack([z, z - largest, powers, share]), sums])
    top = "" if is_blank else f" ({short(largest, options.precision)})"
    note = f"softmax of {named(stage, own, at)}: subtracting the largest score{top} first does not "
    note += "change the result; it keeps exp small"
    labels = {"key": (*names, "Σ"), "measure": MEASURES}
    table = Stage("", "", "", values, ("key", "measure"), labels, sentence(note))
    table = blank_stage(table) if is_blank else table
    shown = DisplayOptions(precision=options.precision, full=options.full, heatmap=False)
    found = Matrix(Block(Trace("", (table,))), table, {}, shown)
    found.facts, found.by_column, found.empty[-1, :2] = (), True, True
    yield found
