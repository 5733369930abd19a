"""The arithmetic under a matrix (--work): equations as lines, and softmax as a table.

Of the first cell, or of every cell where nothing is to be left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

from attncli.page.arithmetic import equation, formula_of
from attncli.page.cell import Entry
from attncli.page.matrix import Matrix
from attncli.page.parts import Equation
from attncli.page.text import fold, hang, plain

PAGE = 100  # cells of a line where no terminal sets a width
TERMS = (12, 6, 3)  # terms of a sum on one line: as many as fit


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
    cells, formula = [(row, column)], formula_of(m.stage)
    is_pair = formula is not None and formula.in_words and len(formula.index) > 1
    if is_pair and row == column and len(m.columns) > 1:  # cos(a, a) says little
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
    """The equation with as many terms as fit on one line, else lines of as many forms as fit."""
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
        words = [piece for word in form for piece in _pieces(word, width - at - 2)]
        first, *more = hang(words, width, at + 2, at + 2)
        before = f"{found.left} " if is_short and not number else " " * at
        lines += [f"{before}= {first[at + 2 :]}", *more]
    if not found.remark:
        return lines
    together = f"{lines[-1]}  ({found.remark})"
    if cell_len(together) <= width:
        return [*lines[:-1], together]
    return lines + fold(f"({found.remark})", width, at + 2)


_GAPS = ("(?!^)(?=·)", " (?=[-+/] )", " ")  # before factors, before terms, anywhere


def _pieces(word: str, room: int) -> list[str]:
    """A word of a form; one too wide for a line in parts, between its factors or its terms.

    >>> _pieces("(1.25 + 0.5)·(0.75 + 2)", 15)
    ['(1.25 + 0.5)', '·(0.75 + 2)']
    >>> _pieces("(1.25 + 0.5)·(0.75 + 2)", 8)
    ['(1.25', '+ 0.5)', '·(0.75', '+ 2)']
    """
    gap = next((gap for gap in _GAPS if re.search(gap, word)), None)
    if gap is None or cell_len(word) <= room:
        return [word]
    return [piece for part in re.split(gap, word) for piece in _pieces(part, room)]
