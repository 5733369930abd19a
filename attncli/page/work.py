"""The arithmetic under a matrix (--work): equations as lines, and softmax as a table.

Of the cell that is asked for (--cell), else of the first, or of every cell where nothing is to be
left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from attncli.arrays import Array
from attncli.page.arithmetic import equation, factors, formula_of
from attncli.page.cell import Entry
from attncli.page.matrix import Matrix
from attncli.page.numbers import is_exact
from attncli.page.options import HEADS, KEY_HEADS, Index
from attncli.page.parts import Equation
from attncli.page.text import clean, fold, hang, plain, shorten, width_of

PAGE = 100  # cells of a line where no terminal sets a width
TERMS = (12, 6, 3)  # terms of a sum on one line: as many as fit
NO_LIMIT = 10**9


def work_lines(matrix: Matrix, width: int | None) -> list[str]:
    """The arithmetic of a matrix's cells, where it is asked for."""
    room, lines = (width or PAGE) - 2, []
    for form in worked(matrix, room):
        line = one_line(form)
        lines += [line] if width_of(line) <= room else at_length(form, room)
    return lines


def worked(matrix: Matrix, room: int) -> Iterator[Equation]:
    """The same as equations, fitted to lines of so many cells."""
    m, options = matrix, matrix.options
    if not (options.work and m.rows and m.columns):
        return
    if m.cell is not None:
        row, column, term = m.cell
        terms = NO_LIMIT if options.full else TERMS[0]
        entry = Entry(m.block, m.stage, m.where, row, column, options.precision, terms)
        yield from filter(None, [equation(entry)])
        yield from shares(entry, term, options.index) if term is not None else ()
        return
    row, column = m.rows[0], m.columns[0]
    if m.stage.axes[-2:-1] == ("position",) and len(m.rows) > 1:  # position 0 says little
        row = m.rows[1]
    cells, formula = [(row, column)], formula_of(m.stage)
    is_pair = formula is not None and formula.in_words and len(formula.index) > 1
    if is_pair and row == column and len(m.columns) > 1:  # cos(a, a) says little
        cells = [(row, m.columns[1])]
    if options.full:
        cells = [(row, column) for row in m.rows for column in m.columns]
    for at in cells:
        entry = Entry(m.block, m.stage, m.where, *at, options.precision, TERMS[0])
        if line := _fitted(entry, room):
            yield line


def shares(entry: Entry, term: int, index: Index) -> Iterator[Equation]:
    """What a term of a product of matrices adds to a row: A[q1,k2] · V[k2] = 0.5 · [1, 2] = …

    index  the head and batch entry that are asked for; of a key head that several heads share, the
           term of each is written where no head is asked for
    """
    block, stage, product = entry.block, entry.stage, factors(entry.stage)
    if product is None:
        return
    place = (term, entry.row) if product[2] else (entry.row, term)
    of_row = f"{clean(stage.symbol)}[{entry.label(entry.places[0][0], entry.row)}]"
    indices = [{**index, **entry.where}]
    is_shared = KEY_HEADS in stage.axes and block.sizes[KEY_HEADS] != block.sizes[HEADS]
    if is_shared:
        of_row += f" of {shorten(stage.label(KEY_HEADS, entry.head))}"
        heads = (n for n in range(block.sizes[HEADS]) if block.key_head(n) == entry.head)
        indices = [{**index, **entry.where, HEADS: n} for n in heads if index.get(HEADS, n) == n]
    for where in indices:
        row, column = place
        left = entry.of(product[0])._replace(where=where, row=row, column=column)
        right = entry.of(product[1])._replace(where=where, row=term)
        numbers = right.matrix[term]
        first, *more = _vector(entry, numbers)
        with np.errstate(all="ignore"):
            result = _vector(entry, left.value * numbers)
        name = f"{clean(right.stage.symbol)}[{right.label(right.stage.axes[-2], term)}]"
        owner = f"{shorten(block.owners[HEADS].label(HEADS, where[HEADS]))}: " if is_shared else ""
        forms = ((f"{entry.write(left.value)} · {first}", *more), result)
        share = plain(entry.write(left.value))
        pairs = zip(_vector(entry, numbers), result, strict=True)
        texts = [[plain(x).strip("[],") for x in pair] for pair in pairs]
        is_rounded = not all(is_exact(f"{share}·({x})", product) for x, product in texts)
        remark = f"{owner}its part of {plain(of_row)}"
        yield Equation(f"{left.name} · {name}", forms, remark, is_rounded)


def _vector(entry: Entry, numbers: Array) -> tuple[str, ...]:
    n = len(numbers)
    places = range(n) if n <= entry.terms else (*range(entry.terms - 1), n - 1)
    words = [entry.write(numbers[i]) for i in places]
    if len(words) < n:
        words.insert(-1, f"… ({n - len(words)} more)")
    *most, last = (f"[{words[0]}", *words[1:])
    return (*(f"{word}," for word in most), f"{last}]")


def one_line(line: Equation) -> str:
    """The equation as text on one line."""
    forms = zip(line.signs, map(" ".join, line.forms), strict=True)
    text = plain(" ".join([line.left, *(f"{sign} {form}" for sign, form in forms)]))
    return f"{text}  ({line.remark})" if line.remark else text


def _fitted(entry: Entry, room: int) -> Equation | None:
    """The equation with as many terms as fit on one line, else lines of as many forms as fit."""
    result = equation(entry)
    if result is None:
        return None
    for terms in TERMS[1:]:
        if width_of(one_line(result)) <= room:
            break
        result = equation(entry._replace(terms=terms)) or result
    beside = room - width_of(plain(result.left)) - 3
    packed, is_rounded = list(result.forms[:1]), result.is_rounded
    for sign, form in [*zip(result.signs, result.forms, strict=True)][1:]:
        together = (*packed[-1], sign, *form)
        if width_of(plain(" ".join(together))) <= beside:
            packed[-1] = together
            is_rounded &= sign == "="
        else:
            packed.append(form)
    return result._replace(forms=tuple(packed), is_rounded=is_rounded)


def at_length(text: Equation, width: int | None) -> list[str]:
    """Every form on lines of its own, the equal signs and the terms in line."""
    width, text = width or PAGE, text.plain
    is_short = width_of(text.left) <= width // 4
    at = width_of(text.left) + 1 if is_short else 2
    lines = [] if is_short else hang([text.left], width, 2, 0)
    for number, (sign, form) in enumerate(zip(text.signs, text.forms, strict=True)):
        words = [piece for word in form for piece in _pieces(word, width - at - 2)]
        first, *more = hang(words, width, at + 2, at + 2)
        before = f"{text.left} " if is_short and not number else " " * at
        lines += [f"{before}{sign} {first[at + 2 :]}", *more]
    if not text.remark:
        return lines
    together = f"{lines[-1]}  ({text.remark})"
    if width_of(together) <= width:
        return [*lines[:-1], together]
    return lines + fold(f"({text.remark})", width, at + 2)


_GAPS = ("(?!^)(?=·)", " (?=[-+/] )", " ")  # before factors, before terms, anywhere


def _pieces(word: str, room: int) -> list[str]:
    """A word of a form; one too wide for a line in parts, between its factors or its terms.

    >>> _pieces("(1.25 + 0.5)·(0.75 + 2)", 15)
    ['(1.25 + 0.5)', '·(0.75 + 2)']
    >>> _pieces("(1.25 + 0.5)·(0.75 + 2)", 8)
    ['(1.25', '+ 0.5)', '·(0.75', '+ 2)']
    """
    gap = next((gap for gap in _GAPS if re.search(gap, word)), None)
    if gap is None or width_of(word) <= room:
        return [word]
    return [piece for part in re.split(gap, word) for piece in _pieces(part, room)]
