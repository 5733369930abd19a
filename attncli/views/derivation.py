"""The derivation of one cell, term by term (--cell): of a weight, or of a table of positions."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from attncli.arrays import Array
from attncli.errors import ShapeError, StageError
from attncli.stages import MAPS, QKV
from attncli.trace import Stage, Trace
from attncli.views.page import headline, places_of
from attncli.views.parts import Derivation, DerivedStage, Equation, Heading, Part, Remark
from attncli.views.select import Block, DisplayOptions, Index, blocks_of
from attncli.views.text import NAME_CELLS, clean, sentence, shorten
from attncli.views.work import Entry, Words, equation

TERMS = 12  # of a sum, unless all are asked for
NO_LIMIT = 10**9


def derivations(trace: Trace, names: Collection[str], options: DisplayOptions) -> Iterator[Part]:
    """The derivation of the cell that `options.cell` names, for every attention that is chosen.

    Raises StageError where there is nothing to derive, or what it is derived from is not in the
    trace; ShapeError for a row or column that is not there.
    """
    blocks = [b for b in blocks_of(trace) if any(b.prefix + name in names for name in b.stages)]
    found = [(block, block.weights) for block in blocks if block.weights]
    # A table of positions before an attention is not what is asked about.
    found = found or [(b, s) for b in blocks for s in b.stages.values() if s.work == "wave"]
    if not found:
        raise StageError("there are no weights to derive", f"there are {', '.join(trace)}")
    for block, target in found:
        places, left_out = places_of(block, [target], options)
        for at, place in enumerate(places):
            derived = _derived(block, target, place.where, options)
            yield from [headline(block)] if not at else []
            yield from [Heading(place.heading)] if place.heading else []
            yield derived
        if left_out:
            yield Remark(left_out)


def _derived(block: Block, target: Stage, index: Index, options: DisplayOptions) -> Derivation:
    axes = target.axes[-2:]
    wanted = zip(axes, options.cell or ("1", "1"), strict=True)
    row, column = (_find(target, axis, name) for axis, name in wanted)
    terms = NO_LIMIT if options.full else TERMS
    entry = Entry(block, target, index, row, column, options.precision, terms, at_length=True)
    if target is block.weights:
        title, steps = "How {} attends to {}", _of_weight(entry)
    else:
        title, angle = "How {} gets its {}", entry.of("angles")._replace(column=column // 2)
        steps = ((step, [equation(step)]) for step in (angle.of("w"), angle, entry))
    stages = []
    for step, equations in steps:
        number, name = block.numbers[step.stage.name], shorten(step.stage.name, NAME_CELLS)
        if known := tuple(filter(None, equations)):
            stages.append(DerivedStage(number, name, sentence(step.stage.formula), known))
    return Derivation(title.format(*entry.labels()), tuple(stages))


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


def _of_weight(entry: Entry) -> Iterator[tuple[Entry, list[Equation | None]]]:
    """Every stage with a number for each query and key, then what the key gives to the output."""
    stages = entry.block.stages
    for name in QKV:
        if name not in stages:
            raise StageError(f"a weight is derived from q, k and v, and the trace holds no {name}")
    for name in entry.block.numbers:
        step = entry._replace(stage=stages[name])
        if name in MAPS:
            yield step, [equation(step)]
        elif {"a", "v"} <= step.stage.reads.keys():
            yield step, [*_share(step)]
            return


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
    *most, last = (f"[{words[0]}", *words[1:])
    return (*(f"{word}," for word in most), f"{last}]")
