"""The derivation of one cell, term by term (--cell): of a weight, or of any stage that is named."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from attncli.arrays import Array
from attncli.errors import ShapeError, StageError
from attncli.stages import MAPS, QKV
from attncli.trace import Stage, Trace
from attncli.views.arithmetic import equation
from attncli.views.cell import Entry, Words
from attncli.views.page import headline, places_of
from attncli.views.parts import Derivation, DerivedStage, Equation, Heading, Part, Remark
from attncli.views.select import Block, DisplayOptions, Index, blocks_of
from attncli.views.text import NAME_CELLS, clean, label_mark, named, plain, sentence, shorten
from attncli.views.work import softmax_table

TERMS = 12  # of a sum, unless all are asked for
NO_LIMIT = 10**9

Steps = list[tuple[Entry, list[Equation | None]]]


def derivations(trace: Trace, names: Collection[str], options: DisplayOptions) -> Iterator[Part]:
    """The derivation of the cell that `options.cell` names, for every stage that is chosen.

    Where none is named it is a weight of every attention, or a cell of a table of positions.
    Raises StageError where there is nothing to derive, or what it is derived from is not in the
    trace; ShapeError for a row or column that is not there.
    """
    blocks = [b for b in blocks_of(trace) if any(b.prefix + name in names for name in b.stages)]
    found = [(block, block.weights) for block in blocks if block.weights]
    # A table of positions before an attention is not what is asked about.
    found = found or [(b, s) for b in blocks for s in b.stages.values() if s.work == "wave"]
    if options.stages:
        found = [(b, s) for b in blocks for own, s in b.stages.items() if b.prefix + own in names]
        for stage in (stage for _, stage in found if not stage.work):
            raise StageError(f"{stage.name} is not computed from the numbers of other stages")
    if not found:
        raise StageError("there are no weights to derive", f"there are {', '.join(trace)}")
    before = None
    for block, target in found:
        places, left_out = places_of(block, [target], options)
        for place in places:
            derived = list(_derived(block, target, place.where, options))
            yield from [headline(block)] if block is not before else []
            yield from [Heading(place.heading)] if place.heading else []
            yield from derived
            before = block
        if left_out:
            yield Remark(left_out)


def _derived(block: Block, target: Stage, index: Index, options: DisplayOptions) -> Iterator[Part]:
    """The derivation of a cell, and the softmax of its row as a table where it is a share."""
    axes, wanted = target.axes[-2:], options.cell or ("1", "1")
    if len(axes) == 1 and wanted[1] not in ("1", clean(target.symbol)):
        raise ShapeError(f"{target.name} has one column", f"use --cell {wanted[0]},1")
    places = [_find(target, axis, name) for axis, name in zip(axes, wanted, strict=False)]
    row, column = places if len(axes) > 1 else (0, *places)
    terms = NO_LIMIT if options.full else TERMS
    entry = Entry(block, target, index, row, column, options.precision, terms, at_length=True)
    title, steps = _chain(entry)
    stages = []
    for step, equations in steps:
        number, name = block.numbers[step.stage.name], shorten(step.stage.name, NAME_CELLS)
        if known := tuple(filter(None, equations)):
            stages.append(DerivedStage(number, name, sentence(step.stage.formula), known))
    if not stages:
        raise StageError(f"what {target.name} is computed from is not in the trace")
    yield Derivation(title, tuple(stages))
    for step, _ in steps:
        if step.stage.work == "softmax":
            yield from softmax_table(step, options)


def _chain(entry: Entry) -> tuple[str, Steps]:
    """What is derived, in words, and the stages of the derivation in the order of computation."""
    target, stages = entry.stage, entry.block.stages
    if target is entry.block.weights:
        names = (named(target, axis, at) for axis, at in entry.places)
        return "How {} attends to {}".format(*names), list(_of_weight(entry))
    title = f"How {plain(entry.name)} is computed"
    if target.name in MAPS:
        earlier = [name for name in entry.block.numbers if name in MAPS]
        steps = [stages[name] for name in earlier[: earlier.index(target.name) + 1]]
        return title, [(e, [equation(e)]) for e in (entry._replace(stage=s) for s in steps)]
    before = []
    if target.work == "wave" and "angles" in target.reads:
        title = "How {} gets its {}".format(*map(plain, entry.labels()))
        angle = entry.of("angles")._replace(column=entry.column // 2)
        before = [angle.of("w"), angle]
    elif "mean" in target.reads and "deviation" in target.reads:
        before = [entry.of_row("mean"), entry.of_row("deviation")]
    elif target.work == "deviation":
        before = [entry.of("mean")]
    return title, [(step, [equation(step)]) for step in (*before, entry)]


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
    left = f"{weights.name} · {clean(values.stage.symbol)}[{label_mark(key)}]"
    yield Equation(left, (product, _vector(output, weight * value)), "its share of the output")
    query = shorten(output.stage.label(output.stage.axes[-2], output.row), 12)
    whole = _vector(output, output.matrix[output.row])
    left = f"{clean(output.stage.symbol)}[{label_mark(query)}]"
    yield Equation(left, (whole,), "the output, of all keys together")


def _vector(entry: Entry, numbers: Array) -> Words:
    n = len(numbers)
    shown = range(n) if n <= entry.terms else (*range(entry.terms - 1), n - 1)
    words = [entry.write(numbers[i]) for i in shown]
    if len(words) < n:
        words.insert(-1, f"… ({n - len(words)} more)")
    *most, last = (f"[{words[0]}", *words[1:])
    return (*(f"{word}," for word in most), f"{last}]")
