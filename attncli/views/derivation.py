"""The derivation of one cell, term by term (--cell): of a weight, or of a table of positions."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from attncli.arrays import Array
from attncli.errors import ShapeError, StageError
from attncli.stages import KINDS, MAPS, QKV
from attncli.trace import Stage, Trace
from attncli.views.page import headline, places_of
from attncli.views.parts import Derivation, DerivedStage, Equation, Heading, Part, Remark
from attncli.views.select import Block, Index, Showing, blocks_of
from attncli.views.text import NAME_CELLS, clean, sentence, shorten
from attncli.views.work import Entry, Words, equation

TERMS = 12  # of a sum, unless all are asked for
NO_LIMIT = 10**9
_SUMMARIZED = {name for name, kind in KINDS.items() if kind.summarized}


def derivations(trace: Trace, names: Collection[str], showing: Showing) -> Iterator[Part]:
    """The derivation of the cell that `showing.cell` names, for every attention that is chosen.

    Raises StageError where there is nothing to derive, or what it is derived from is not in the
    trace; ShapeError for a row or column that is not there.
    """
    wanted = [
        (block, target)
        for block in blocks_of(trace)
        if (target := _target(block)) and any(block.prefix + name in names for name in block.stages)
    ]
    # A table of positions before an attention is not what is asked about.
    found = [(block, target) for block, target in wanted if target.name in _SUMMARIZED] or wanted
    if not found:
        raise StageError("there are no weights to derive", f"there are {', '.join(trace)}")
    for block, target in found:
        places, left_out = places_of(block, [target], showing)
        for at, place in enumerate(places):
            derived = _derived(block, target, place.where, showing)
            yield from [headline(block)] if not at else []
            yield from [Heading(place.heading)] if place.heading else []
            yield derived
        if left_out:
            yield Remark(left_out)


def _target(block: Block) -> Stage | None:
    """The stage whose cells are derived: the weights of an attention, or a table of positions."""
    weights = (stage for name, stage in block.stages.items() if name in _SUMMARIZED)
    tables = (stage for stage in block.stages.values() if stage.work == "wave")
    return next(weights, None) or next(tables, None)


def _derived(block: Block, target: Stage, index: Index, showing: Showing) -> Derivation:
    row, column = (
        _find(target, axis, wanted)
        for axis, wanted in zip(target.axes[-2:], showing.cell or ("1", "1"), strict=True)
    )
    names = (
        shorten(target.label(axis, at))
        for axis, at in zip(target.axes[-2:], (row, column), strict=True)
    )
    terms = NO_LIMIT if showing.full else TERMS
    entry = Entry(block, target, index, row, column, showing.precision, terms, at_length=True)
    if target.name not in _SUMMARIZED:
        return Derivation("How {} gets its {}".format(*names), tuple(_of_table(entry)))
    for name in QKV:
        if name not in block.stages:
            raise StageError(f"a weight is derived from q, k and v, and the trace holds no {name}")
    return Derivation("How {} attends to {}".format(*names), tuple(_of_weight(entry)))


def _find(stage: Stage, axis: str, wanted: str) -> int:
    """The entry of an axis of this name: its label or its number counted from 1."""
    names = stage.names(axis)
    found = [at for at, name in enumerate(names) if name == wanted]
    if len(found) == 1:
        return found[0]
    if wanted.isdecimal() and 1 <= int(wanted) <= len(names):
        return int(wanted) - 1
    if found:
        numbers = " and ".join(str(at + 1) for at in found[:3])
        raise ShapeError(
            f"more than one {axis} is called {clean(wanted)!r}", f"use its number: {numbers}"
        )
    there = ", ".join(shorten(name) for name in names[:8])
    more = f" … ({len(names)} in all)" if len(names) > 8 else ""
    raise ShapeError(
        f"there is no {axis} {wanted!r}", f"there are {there}{more}, or a number from 1"
    )


def _of_table(entry: Entry) -> Iterator[DerivedStage]:
    """An entry of a table of positions: its angle, and the sine or cosine of that."""
    angle = entry.of("angles")._replace(column=entry.column // 2)
    for step in (angle.of("w"), angle, entry):
        yield from _stage(step, equation(step))


def _of_weight(entry: Entry) -> Iterator[DerivedStage]:
    """Every stage with a number for each query and key, then what the key gives to the output."""
    for name in entry.block.numbers:
        stage = entry._replace(stage=entry.block.stages[name])
        if name in MAPS:
            yield from _stage(stage, equation(stage))
        elif {"a", "v"} <= stage.stage.reads.keys():
            yield from _stage(stage, *_share(stage))
            return


def _stage(entry: Entry, *equations: Equation | None) -> Iterator[DerivedStage]:
    found = tuple(equation for equation in equations if equation)
    if found:
        stage = entry.stage
        number, name = entry.block.numbers[stage.name], shorten(stage.name, NAME_CELLS)
        yield DerivedStage(number, name, sentence(stage.formula), found)


def _share(output: Entry) -> Iterator[Equation]:
    """What the key's value adds to the query's output, and that output whole."""
    weights, values = output.of("a"), output.of("v")
    weight, value = weights.value, values.matrix[output.column]
    key = shorten(values.stage.label(values.stage.axes[-2], output.column), 12)
    numbers = _vector(output, value)
    product = (f"{output.write(weight)} · {numbers[0]}", *numbers[1:])
    left = f"{weights.name} · {clean(values.stage.symbol)}[{key}]"
    yield Equation(left, (product, _vector(output, weight * value)), "its share of the output")
    query = shorten(output.stage.label(output.stage.axes[-2], output.row), 12)
    whole = _vector(output, output.matrix[output.row])
    left = f"{clean(output.stage.symbol)}[{query}]"
    yield Equation(left, (whole,), "the output, of all keys together")


def _vector(entry: Entry, numbers: Array) -> Words:
    n = len(numbers)
    shown = range(n) if n <= entry.terms else (*range(entry.terms - 1), n - 1)
    words = [entry.write(numbers[i]) for i in shown]
    if len(words) < n:
        words.insert(-1, f"… ({n - len(words)} more)")
    return (*(f"{'' if at else '['}{word}," for at, word in enumerate(words[:-1])), f"{words[-1]}]")
