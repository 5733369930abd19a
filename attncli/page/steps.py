"""The stages that lead to one cell (--cell): of a weight, or of any stage that is named.

    scores[i,j] → scaled[i,j] → weights[i,j] → its part of output[i]

A cell is made of single cells of the stages before it, or of a sum over many: there its steps
begin. To the steps of a weight belong its gradients, and the sums that it takes part in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from attncli.errors import ShapeError, StageError
from attncli.files.messages import listing
from attncli.page.arithmetic import equation, factors, single_cells
from attncli.page.cell import Entry
from attncli.page.matrix import CellPlace
from attncli.page.options import DisplayOptions
from attncli.page.places import places_of
from attncli.page.select import Block, blocks_of
from attncli.page.text import clean, find, named, plain
from attncli.stages import QKV
from attncli.trace import Stage, Trace


class Steps(NamedTuple):
    """The steps to a cell.

    places  dotted name of a stage → where its cell is
    titles  prefix of a block → what its steps lead to
    """

    places: Mapping[str, CellPlace] = MappingProxyType({})
    titles: Mapping[str, str] = MappingProxyType({})


def steps_to_cell(trace: Trace, names: Collection[str], options: DisplayOptions) -> Steps:
    """The steps to the cell of every stage that is named, else of weights or a table of positions.

    Raises StageError where there are no steps, or what the cell is computed from is not in the
    trace; ShapeError for a row or column that is not there.
    """
    targets = [
        (b, s) for b in blocks_of(trace) for s in b.stages.values() if b.prefix + s.name in names
    ]
    if options.stages:
        for stage in (stage for _, stage in targets if not stage.expression):
            raise StageError(f"{stage.name} is not computed from the numbers of other stages")
    else:  # a table of positions before an attention is not what is asked about
        weights = [(block, stage) for block, stage in targets if stage is block.weights]
        targets = weights or [(b, s) for b, s in targets if s.name == "positions" and s.expression]
    if not targets:
        raise StageError("there are no weights to derive", f"there are {listing(trace)}")
    places, titles = dict[str, CellPlace](), dict[str, str]()
    for block, stage in targets:
        entry = _entry(block, stage, options)
        if stage is block.weights:
            steps = _steps_of_weight(entry)
            places |= {block.prefix + name: place for name, place in _sums(entry, steps)}
            title = "How {} attends to {}".format(*(named(stage, *x) for x in entry.places))
        else:
            steps, title = _steps(entry), f"How {plain(entry.name)} is computed"
            if not any(map(equation, steps.values())):
                raise StageError(f"what {stage.name} is computed from is not in the trace")
        places |= {block.prefix + name: CellPlace(x.row, x.column) for name, x in steps.items()}
        titles[block.prefix] = title
    return Steps(places, titles)


def _entry(block: Block, stage: Stage, options: DisplayOptions) -> Entry:
    """The cell that is asked for, at the first of the heads and batch entries."""
    axes, cell = stage.axes[-2:], options.cell or ("1", "1")
    if len(axes) == 1 and cell[1] not in ("1", clean(stage.symbol)):
        raise ShapeError(f"{stage.name} has one column", f"use --cell {cell[0]},1")
    at = [find(stage.names(axis), axis, name) for axis, name in zip(axes, cell, strict=False)]
    row, column = at if len(axes) > 1 else (0, *at)
    where = places_of(block, [stage], options)[0][0].where
    return Entry(block, stage, where, row, column, options.precision, terms=1)


def _steps(entry: Entry) -> dict[str, Entry]:
    """The cell and those of its block that it is made of, each by the name of its stage."""
    steps, waiting = dict[str, Entry](), [entry]
    while waiting:
        step = waiting.pop()
        steps.setdefault(step.stage.name, step)
        for source in single_cells(step):
            name, outer = source.stage.name, {*source.stage.axes[:-2]}
            is_step = name in entry.block.numbers and name not in steps
            is_step &= entry.block.stages.get(name) is source.stage
            is_step &= source.stage.kind.heading == entry.stage.kind.heading
            waiting += [source] if is_step and outer <= {*step.stage.axes[:-2]} else []
    return steps


def _steps_of_weight(entry: Entry) -> dict[str, Entry]:
    """Those of a weight, of what the output takes of it, and of its gradients."""
    stages = entry.block.stages
    for name in QKV:
        if name not in stages:
            raise StageError(f"a weight is derived from q, k and v, and the trace holds no {name}")
    ends = [entry]
    for stage in stages.values():
        if {"a", "v"} <= stage.reads.keys() and (taken := entry.block.read(stage, "a")):
            ends.append(entry._replace(stage=taken))
        is_map = (stage.axes, stage.value.shape) == (entry.stage.axes, entry.stage.value.shape)
        ends += [entry._replace(stage=stage)] if stage.kind.heading and is_map else []
    return {name: step for end in ends for name, step in _steps(end).items()}


def _sums(entry: Entry, steps: Collection[str]) -> Iterator[tuple[str, CellPlace]]:
    """The products of matrices that one of these steps is a factor of, and which term it is."""
    for name in entry.block.numbers:
        stage = entry.block.stages[name]
        product = None if name in steps else factors(stage)
        read = [entry.block.read(stage, x) for x in product[:2]] if product else [None]
        is_of_matrices = all(x is not None and len(x.axes) > 1 for x in (stage, *read))
        if product and is_of_matrices and stage.reads[product[0]] in steps:
            row, term = entry.row, entry.column
            row, term = (term, row) if product[2] else (row, term)
            yield name, CellPlace(row, 0, term)
