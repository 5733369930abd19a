"""Equations laid out: on a line beneath a matrix (--work), or one weight term by term (--cell)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.cells import cell_len

from attncli.errors import ShapeError, StageError
from attncli.trace import Stage
from attncli.views import arithmetic, vector_arithmetic
from attncli.views.arithmetic import Equation, Spot, Vector, Words
from attncli.views.places import Level, Place
from attncli.views.safe import NAME_CELLS, clean, fold, hang, sentence, shorten
from attncli.views.showing import Showing

PAGE = 100  # cells of a line where no terminal sets a width
TERMS = (12, 6, 3)  # terms of a sum on one line: as many as fit
TERMS_AT_LENGTH = 12
NO_LIMIT = 10**9


class Step(NamedTuple):
    """One stage of a derivation: its heading, and how it came to its number."""

    number: int | None
    name: str
    formula: str
    equations: tuple[Equation, ...]


class Derivation(NamedTuple):
    """One weight from the dot product to its share of the output, or one cell of a table."""

    title: str
    steps: tuple[Step, ...]


def work(level: Level, name: str, place: Place, showing: Showing) -> list[str]:
    """The arithmetic of the first cell shown of a stage, on a line if it fits."""
    sizes = level.matrix(level.stages[name], place).shape
    row, column = (bounds[0] or 0 for bounds in (showing.rows, showing.cols))
    if not (0 <= row < sizes[0] and 0 <= column < sizes[1]):
        return []
    room = (showing.width or PAGE) - 2
    found = None
    for terms in TERMS:
        found = equation(Spot(level, place, row, column, showing.precision, terms), name)
        if found is None or cell_len(on_a_line(found)) <= room:
            break
    return [] if found is None else in_few_lines(found, room)


def on_a_line(found: Equation) -> str:
    """left = form = … = result (remark)."""
    line = " = ".join([found.left, *(" ".join(form) for form in found.forms)])
    return f"{line}  ({found.remark})" if found.remark else line


def in_few_lines(found: Equation, width: int) -> list[str]:
    """On a line if it fits; else as many forms on each line as fit."""
    if cell_len(on_a_line(found)) <= width:
        return [on_a_line(found)]
    room = width - cell_len(found.left) - 3
    packed = list(found.forms[:1])
    for form in found.forms[1:]:
        together = (*packed[-1], "=", *form)
        if cell_len(" ".join(together)) <= room:
            packed[-1] = together
        else:
            packed.append(form)
    return at_length(found._replace(forms=tuple(packed)), width)


def at_length(found: Equation, width: int | None) -> list[str]:
    """Every form on lines of its own, the equal signs and the terms in line."""
    width = width or PAGE
    beside = cell_len(found.left) <= width // 4
    at = cell_len(found.left) + 1 if beside else 2
    lines = [] if beside else hang([found.left], width, 2, 0)
    for number, form in enumerate(found.forms):
        first, *more = hang(form, width, at + 2, at + 2)
        before = f"{found.left} " if beside and not number else " " * at
        lines += [f"{before}= {first[at + 2 :]}", *more]
    return _with_remark(lines, found.remark, width, at + 2)


def _with_remark(lines: list[str], remark: str, width: int, indent: int) -> list[str]:
    if not remark:
        return lines
    together = f"{lines[-1]}  ({remark})"
    if cell_len(together) <= width:
        return [*lines[:-1], together]
    return lines + fold(f"({remark})", width, indent)


def equation(spot: Spot, name: str) -> Equation | None:
    """How the named stage came to its number in this cell, where that can be said."""
    return arithmetic.equation(spot, name) or vector_arithmetic.equation(spot, name)


def target(level: Level) -> str | None:
    """The stage whose cells are derived: the weights of an attention, or a table of positions."""
    return next((name for name in ("weights", "positions") if name in level.stages), None)


def derive(level: Level, place: Place, showing: Showing) -> Derivation:
    """The derivation of the weight, or of the entry of a table, that `showing.cell` names.

    Raises StageError where what it is derived from is not in the trace, ShapeError for a row or
    column that is not there.
    """
    if target(level) == "positions":
        return _of_positions(level, place, showing)
    for name in ("q", "k", "v"):
        if name not in level.stages:
            raise StageError(f"a weight is derived from q, k and v, and the trace holds no {name}")
    wishes = showing.cell or ("1", "1")
    weights = level.stages["weights"]
    row, column = (
        find(weights, axis, wish) for axis, wish in zip(weights.axes[-2:], wishes, strict=True)
    )
    terms = NO_LIMIT if showing.full else TERMS_AT_LENGTH
    spot = Spot(level, place, row, column, showing.precision, terms, at_length=True)
    query, key = (
        shorten(weights.label(*at)) for at in zip(weights.axes[-2:], (row, column), strict=True)
    )
    return Derivation(f"How {query} attends to {key}", tuple(_steps(spot)))


def _of_positions(level: Level, place: Place, showing: Showing) -> Derivation:
    """An entry of a table of positions: its angle, and the wave at that angle."""
    table = level.stages["positions"]
    wishes = showing.cell or ("1", "1")
    row, column = (find(table, axis, wish) for axis, wish in zip(table.axes, wishes, strict=True))
    steps = []
    pair = column // 2
    for name, at in (("divisors", pair), ("angles", pair), ("positions", column)):
        spot = Spot(level, place, row, at, showing.precision, TERMS_AT_LENGTH, at_length=True)
        found = equation(spot, name) if name in level.stages else None
        if found is not None:
            steps.append(_step(spot, name, level.numbers[name], found))
    title = f"How {table.label('position', row)} gets its {table.label('dimension', column)}"
    return Derivation(title, tuple(steps))


def find(stage: Stage, axis: str, wish: str) -> int:
    """The entry of an axis called so, by its label or its number counted from 1."""
    names = stage.names(axis)
    found = [at for at, name in enumerate(names) if name == wish]
    if len(found) == 1:
        return found[0]
    if wish.isdecimal() and 1 <= int(wish) <= len(names):
        return int(wish) - 1
    if found:
        numbers = " and ".join(str(at + 1) for at in found[:3])
        raise ShapeError(
            f"more than one {axis} is called {clean(wish)!r}", f"use its number: {numbers}"
        )
    there = ", ".join(shorten(name) for name in names[:8])
    more = f" … ({len(names)} in all)" if len(names) > 8 else ""
    raise ShapeError(f"there is no {axis} {wish!r}", f"there are {there}{more}, or a number from 1")


def _steps(spot: Spot) -> Iterator[Step]:
    for name, number in spot.level.numbers.items():
        if name == "output":
            yield _step(spot, name, number, *_share(spot))
            return
        found = equation(spot, name)
        if found:
            yield _step(spot, name, number, found)


def _step(spot: Spot, name: str, number: int, *equations: Equation) -> Step:
    stage = spot.level.stages[name]
    return Step(number, shorten(name, NAME_CELLS), sentence(stage.formula), equations)


def _share(spot: Spot) -> Iterator[Equation]:
    """What the key's value adds to the query's output, and that output whole."""
    output, source = spot.level.stages["output"], spot.level.before("output")
    v = spot.level.at("v", spot.place)
    if source is None or v is None:
        return
    weight, value = spot.value(source), v[spot.column]
    key = shorten(spot.level.stages["v"].label("key", spot.column), 12)
    numbers = _vector(spot, value)
    product = (f"{spot.write(weight)} · {numbers[0]}", *numbers[1:])
    left = f"{spot.cell(source)} · V[{key}]"
    yield Equation(left, (product, _vector(spot, weight * value)), "its share of the output")
    query = shorten(output.label(output.axes[-2], spot.row), 12)
    whole = _vector(spot, spot.matrix(output)[spot.row])
    yield Equation(f"{clean(output.symbol)}[{query}]", (whole,), "the output, of all keys together")


def _vector(spot: Spot, numbers: Vector) -> Words:
    n = len(numbers)
    shown = range(n) if n <= spot.terms else (*range(spot.terms - 1), n - 1)
    words = [spot.write(numbers[i]) for i in shown]
    if len(words) < n:
        words.insert(-1, f"… ({n - len(words)} more)")
    return (*(f"{'' if at else '['}{word}," for at, word in enumerate(words[:-1])), f"{words[-1]}]")
