"""The derivation of one cell, term by term (--cell): of a weight, or of any stage that is named."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from attncli.arrays import Array
from attncli.errors import ShapeError, StageError
from attncli.files.messages import listing
from attncli.page.arithmetic import equation, factors, is_softmax
from attncli.page.cell import Entry
from attncli.page.headline import headline
from attncli.page.parts import Derivation, DerivedStage, Equation, Heading, Part, Remark
from attncli.page.places import places_of
from attncli.page.select import HEADS, KEY_HEADS, Block, DisplayOptions, Index, blocks_of
from attncli.page.text import NAME_CELLS, clean, find, named, plain, sentence, shorten
from attncli.page.walk import softmax_table
from attncli.stages import MAPS, QKV, gradient_of, spec_of
from attncli.trace import Stage, Trace

TERMS = 12  # of a sum, unless all are asked for
NO_LIMIT = 10**9

Steps = list[tuple[Entry, list[Equation | None]]]


def derivations(trace: Trace, names: Collection[str], options: DisplayOptions) -> Iterator[Part]:
    """The derivation of a cell of every stage named, else of weights or a table of positions.

    Raises StageError where there is nothing to derive, or what it is derived from is not in the
    trace; ShapeError for a row or column that is not there.
    """
    blocks = [b for b in blocks_of(trace) if any(b.prefix + name in names for name in b.stages)]
    found = [(block, block.weights) for block in blocks if block.weights]
    # A table of positions before an attention is not what is asked about.
    found = found or [
        (b, s) for b in blocks for s in b.stages.values() if s.name == "positions" and s.expression
    ]
    if options.stages:
        found = [(b, s) for b in blocks for own, s in b.stages.items() if b.prefix + own in names]
        for stage in (stage for _, stage in found if not stage.expression):
            raise StageError(f"{stage.name} is not computed from the numbers of other stages")
    if not found:
        raise StageError("there are no weights to derive", f"there are {listing(trace)}")
    before = None
    for block, target in found:
        places, left_out = places_of(block, [target], options)
        for place in places:
            derived = list(_derived(block, target, place.where, options))
            yield from [headline(block, options)] if block is not before else []
            yield from [Heading(place.heading)] if place.heading else []
            yield from derived
            before = block
        yield from [Remark(left_out)] if left_out else []


def _derived(block: Block, target: Stage, index: Index, options: DisplayOptions) -> Iterator[Part]:
    """The derivation of a cell, and the softmax of its row as a table where it is a share."""
    axes, wanted = target.axes[-2:], options.cell or ("1", "1")
    if len(axes) == 1 and wanted[1] not in ("1", clean(target.symbol)):
        raise ShapeError(f"{target.name} has one column", f"use --cell {wanted[0]},1")
    places = [
        find(target.names(axis), axis, name) for axis, name in zip(axes, wanted, strict=False)
    ]
    row, column = places if len(axes) > 1 else (0, *places)
    terms = NO_LIMIT if options.full else TERMS
    entry = Entry(block, target, index, row, column, options.precision, terms, at_length=True)
    title, steps = _chain(entry)
    stages = _stages(steps)
    if not stages:
        raise StageError(f"what {target.name} is computed from is not in the trace")
    yield Derivation(title, stages)
    for step, _ in steps:
        if is_softmax(step.stage):
            yield from softmax_table(step, options)
    if target is block.weights and (stages := _stages(_backward_pass(entry))):
        yield Derivation(spec_of(stages[0].name).heading, stages)


def _stages(steps: Steps) -> tuple[DerivedStage, ...]:
    """Those of which something is known."""
    stages = []
    for step, equations in steps:
        number, name = step.block.numbers[step.stage.name], shorten(step.stage.name, NAME_CELLS)
        if known := tuple(filter(None, equations)):
            stages.append(DerivedStage(number, name, sentence(step.stage.formula), known))
    return tuple(stages)


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
    kind = target.kind
    if kind.heading and not kind.vector and (way := _cells_backward(entry)):
        return title, [(step, [equation(step)]) for step in way]
    before = []
    if target.name == "positions" and "angles" in target.reads:
        row, wave = map(plain, entry.labels())
        own = f"{entry.column}, {wave}" if "dimension" in target.labels else wave
        title = f"How {row} gets its dimension {own}"
        angle = entry.of("angles")._replace(column=entry.column // 2)
        before = [angle.of("w"), angle]
    elif target.name == "norm":
        of_rows = [x for x in ("mean", "deviation", "rms") if x in target.reads]
        before = [entry.of_row(x) for x in of_rows]
    elif "mean" in target.reads and target.name == "deviation":
        before = [entry.of("mean")]
    return title, [(step, [equation(step)]) for step in (*before, entry)]


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


def _backward_pass(entry: Entry) -> Steps:
    """The gradients of the same cell, and what they add to those of the query, key and value."""
    cells = {step.stage.name: step for step in _cells_backward(entry)}
    found: Steps = []
    for name in entry.block.numbers:
        step = entry._replace(stage=entry.block.stages[name])
        if name in cells:
            found.append((cells[name], [equation(cells[name])]))
        elif name in map(gradient_of, QKV) and factors(step.stage):
            is_whole = all(entry.block.read(step.stage, x) for x in step.stage.reads)
            found.append((step, [*_share(step)] if is_whole else []))
    return found


def _cells_backward(entry: Entry) -> list[Entry]:
    """The entry in every gradient of a map, and in the vectors beside them, up to its own stage."""
    block, found = entry.block, list[Entry]()
    shape = next((s.value.shape for name, s in block.stages.items() if name in MAPS), ())
    for name in block.numbers:
        stage, kind = block.stages[name], spec_of(name)
        if kind.heading and kind.vector:
            places = zip(stage.axes[-2:], (entry.row, entry.column), strict=True)
            row, column = (at if axis else 0 for axis, at in places)
            found.append(entry._replace(stage=stage, row=row, column=column))
        elif kind.heading and kind.axes == spec_of(MAPS[0]).axes and stage.value.shape == shape:
            found.append(entry._replace(stage=stage))
        if found and stage is entry.stage:
            return found if found[-1].stage is stage else []
    return [] if entry.stage.kind.heading else found


def _share(step: Entry) -> Iterator[Equation]:
    """What a cell adds to a row of A V, or of Aᵀ B, and that row whole."""
    left, right, by_column = factors(step.stage) or ("a", "v", False)
    weights, values = step.of(left), step.of(right)
    at, own = (step.row, step.column) if by_column else (step.column, step.row)
    weight, value = weights.value, values.matrix[at]
    other = values.label(values.stage.axes[-2], at)
    numbers = _vector(step, value)
    product = (f"{step.write(weight)} · {numbers[0]}", *numbers[1:])
    left = f"{clean(step.stage.symbol)}[{step.label(step.stage.axes[-2], own)}]"
    what, whole = "the output", "the output, of all keys together"
    if step.stage.kind.heading:
        what, whole = plain(left), f"of all {'queries' if by_column else 'keys'} together"
        sizes = step.block.sizes
        is_shared = KEY_HEADS in step.stage.axes and sizes[KEY_HEADS] != sizes[HEADS]
        if by_column and is_shared:
            what += f" of {shorten(step.stage.label(KEY_HEADS, step.head))}"
            heads = (h for h in range(sizes[HEADS]) if step.block.key_head(h) == step.head)
            names = (shorten(step.block.owners[HEADS].label(HEADS, head)) for head in heads)
            whole = f"of all queries of {', '.join(names)}"
    product_of = f"{weights.name} · {clean(values.stage.symbol)}[{other}]"
    with np.errstate(all="ignore"):
        share = np.asarray(weight * value)
    yield Equation(product_of, (product, _vector(step, share)), f"its share of {what}")
    yield Equation(left, (_vector(step, step.matrix[own]),), whole)


def _vector(entry: Entry, numbers: Array) -> tuple[str, ...]:
    n = len(numbers)
    shown = range(n) if n <= entry.terms else (*range(entry.terms - 1), n - 1)
    words = [entry.write(numbers[i]) for i in shown]
    if len(words) < n:
        words.insert(-1, f"… ({n - len(words)} more)")
    *most, last = (f"[{words[0]}", *words[1:])
    return (*(f"{word}," for word in most), f"{last}]")
