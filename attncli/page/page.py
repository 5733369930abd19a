"""A trace as parts in reading order: which stages, at which heads and batch entries.

All stages of head 1 come before those of head 2; stages without heads, such as the concatenation,
come after them as they do in the trace.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

import numpy as np

from attncli.page.headline import entries_of, headline
from attncli.page.matrix import Matrix
from attncli.page.options import DisplayOptions
from attncli.page.parts import Closing, Heading, Part, Plot, Remark
from attncli.page.places import MOST, places_of
from attncli.page.select import BlankStage, Block, chosen, is_computed
from attncli.page.sentences import attention, sentences
from attncli.page.steps import Steps, steps_to_cell
from attncli.page.text import sentence
from attncli.stages import PARTS, QKV, WEIGHTS, spec_of
from attncli.trace import Stage, Trace

Page = Callable[[Trace, DisplayOptions], Iterator[Part]]
"""What lays a trace out in parts: `parts`, or another page."""


def parts(trace: Trace, options: DisplayOptions) -> Iterator[Part]:
    """Everything that is shown of a trace, in reading order.

    An attention whose q or x is given begins with its inputs, so that it can be checked by hand.
    Where the arithmetic is written out, the weights that it reads are there too, and the steps of
    a table of positions.
    Raises StageError or ShapeError for what is asked for and not there.
    """
    is_part = (
        options.stages or options.cell or options.query or {*options.rows, *options.cols} - {None}
    )
    steps = {step.name: step for step in trace.steps}
    inputs = [step for name, step in steps.items() if name in ("q", "x")]
    is_of_inputs = any(isinstance(x, Stage) and not is_computed(x) for x in inputs)
    if not is_part and is_of_inputs and {WEIGHTS, *PARTS} & steps.keys():
        options = replace(options, given=True)
    names = chosen(trace, options)
    if options.given:  # the keys of a tile are among those of all
        names = {n for n in names if n.split(".")[0] not in PARTS or is_computed(trace[n])}
    if options.query is not None:
        from attncli.page.walk import walks

        yield from walks(trace, names, options)
        return
    is_whole = options.stages or options.work or options.given or options.full
    steps_of_work = {name for name, stage in trace.stages() if stage.kind.for_work}
    is_brief = not is_whole and options.cell is None and options.blank is None
    omitted = [name for name in trace if name in steps_of_work & names] if is_brief else []
    names -= {*omitted}
    cell_steps = Steps()
    if options.cell is not None:
        cell_steps, options = steps_to_cell(trace, names, options), replace(options, work=True)
        names = {*cell_steps.places}
    blocks = {name[:at] for name in names for at, x in enumerate(name) if x == "."}
    yield from _block(Block(trace), names | blocks, options, cell_steps)
    if omitted:
        yield Remark(f"left out: {' and '.join(omitted)} (--work)")


def _block(
    block: Block, names: Collection[str], options: DisplayOptions, cell_steps: Steps
) -> Iterator[Part]:
    """A block and those within it; `names` are those of the chosen stages and of their blocks."""
    first = next((s for s in block.trace.steps if block.prefix + s.name in names), None)
    if first is None:
        return
    if isinstance(first, Stage) or not block.prefix:
        yield headline(block, options)  # a block that begins with another has none of its own
    if block.prefix in cell_steps.titles:
        yield Heading(cell_steps.titles[block.prefix])
    axes_named: set[tuple[str, ...]] = set()
    steps, above = block.trace.steps, ""
    start = next((at for at, x in enumerate(steps) if spec_of(x.name).heading), len(steps))
    for part in filter(None, (steps[:start], steps[start:])):  # the computation, its gradients
        heading = spec_of(part[0].name).heading
        above = heading or above
        are_blocks = (isinstance(step, Trace) for step in part)
        for _, group in groupby(zip(are_blocks, part, strict=True), key=itemgetter(0)):
            run, left_out = [step for _, step in group], ""
            if block.trace.name in PARTS and not (options.full or options.every):
                run, left_out = _few(block, run, names)
            stages = [
                block.stages[s.name]
                for s in run
                if block.prefix + s.name in names
                if isinstance(s, Stage)
            ]
            yield from _matrices(block, stages, axes_named, options, above, cell_steps)
            for step in run:
                if isinstance(step, Trace):
                    above = f"{sentence(block.trace.title)}, continued"
                    inner = Block(step, f"{block.prefix}{step.name}.", block.root)
                    yield from _block(inner, names, options, cell_steps)
            yield from [Remark(left_out)] if left_out else []
        stage, tell = block.weights, attention
        if heading:
            from attncli.page.sentences_of_gradients import wishes, wishing

            stage, tell = wishing(block), wishes
        if stage and not isinstance(stage, BlankStage) and block.prefix + stage.name in names:
            places, _ = places_of(block, [stage], options)
            indices = tuple(place.where for place in places)
            if cell := cell_steps.places.get(block.prefix + stage.name):
                row, column, _ = cell
                options = replace(options, rows=(row, row + 1), cols=(column, column + 1))
            texts = sentences(block, stage, indices, options, tell)
            heads = zip((place.heading for place in places), texts, strict=True)
            yield Closing(tuple(heads), indices, stage.name)


def _few(
    block: Block, steps: list[Stage | Trace], names: Collection[str]
) -> tuple[list[Stage | Trace], str]:
    """Of many tiles or splits the first and last; and a line on the others, or ""."""
    kind = block.trace.name
    chosen_steps = [step for step in steps if block.prefix + step.name in names]
    omitted = chosen_steps[MOST // 2 : -MOST // 2]
    if not omitted:
        return steps, ""
    span = f"{omitted[0].name} to {omitted[-1].name}"
    text = f"left out: {len(omitted)} of {len(chosen_steps)} {kind}s, {span}"
    ends = chosen_steps[: MOST // 2] + chosen_steps[-MOST // 2 :]
    return ends, f"{text} (--stage {kind}.N or --full)"


def _matrices(
    block: Block,
    stages: Sequence[Stage],
    axes_named: set[tuple[str, ...]],
    options: DisplayOptions,
    above: str,
    cell_steps: Steps,
) -> Iterator[Part]:
    """The matrices of these stages; what rows and columns are is named once for each kind."""
    if stages and above:
        yield Heading(above, is_whole=True)
    places, left_out = places_of(block, stages, options)
    heading = ""
    inputs = [s for s in stages if s.name in QKV and s.name not in block.numbers]
    pairs = ((s, x) for at, s in enumerate(inputs) for x in inputs[:at])  # such as K and Q: K = Q
    same = {s.name: x for s, x in pairs if np.array_equal(x.value, s.value)}
    for place in places:
        if place.heading and place.heading != heading:
            yield Heading(place.heading)
        heading, axes = place.heading, place.stage.axes[-2:]
        is_new = axes not in axes_named
        axes_named.add(axes)
        entries = entries_of(place.stage, block) if is_new else ()
        cell = cell_steps.places.get(block.prefix + place.stage.name)
        matrix = Matrix(block, place.stage, place.where, options, entries, cell)
        if place.stage.name in same and not options.every:
            symbols = place.stage.symbol, same[place.stage.name].symbol
            matrix.formula = " = ".join(map(sentence, symbols))
            matrix.rows, matrix.facts, matrix.is_repeated = range(0), (), True
        yield matrix
        if options.work:
            from attncli.page.walk import softmax_tables

            yield from softmax_tables(matrix)
        if place.stage.kind.plotted and not cell and not matrix.is_blank:
            rows = slice(matrix.rows.start, matrix.rows.stop)
            points = matrix.values[rows, :2].astype(np.float64)
            yield Plot(tuple(place.stage.names(axes[0])[rows]), points)
    yield from [Remark(left_out)] if left_out else []
