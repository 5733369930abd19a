"""The page: what is shown of a trace, part by part in reading order, before any format spells it.

Headline    the title, how large everything is, choices that are not the usual ones, notes
Heading     head 2 of 4; a block continued
Grid        one matrix
Plot        points in a plane
Derivation  one weight, term by term
Closing     what each query attends to
Remark      what is left out
Tree        the steps without their matrices
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attncli.errors import StageError
from attncli.trace import Stage, Trace
from attncli.views import headline
from attncli.views.derivation import Derivation, derive, target, work
from attncli.views.grid import Grid, lower
from attncli.views.places import Level, levels
from attncli.views.prose import closing
from attncli.views.safe import sentence
from attncli.views.scatter import scatter
from attncli.views.showing import Showing, check
from attncli.views.tour import tour

PLOTTED = "coordinates"
"""The stage that is drawn as points too."""
WIDEST_PLOT = 72


class Headline(NamedTuple):
    """The title of a trace or of a block in it; name is the block's dotted name."""

    title: str
    name: str = ""
    facts: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Heading(NamedTuple):
    """What the parts that follow belong to."""

    text: str


class Matrix(NamedTuple):
    """A matrix, and the arithmetic of its first cell where that is asked for."""

    grid: Grid
    work: tuple[str, ...] = ()


class Closing(NamedTuple):
    """Sentences on the weights of an attention, under a heading for each head."""

    heads: tuple[tuple[str, tuple[str, ...]], ...]


class Remark(NamedTuple):
    """A line on what is left out, and what shows it."""

    text: str


class Plot(NamedTuple):
    """Points in a plane, drawn in text."""

    lines: tuple[str, ...]


class Branch(NamedTuple):
    """A line of a tree: what is drawn before it, the step's name, its shape and formula.

    below  what is drawn before the lines that continue it
    """

    lead: str
    below: str
    name: str
    shape: str = ""
    formula: str = ""


class Tree(NamedTuple):
    """The steps of a trace with their formulas and shapes."""

    branches: tuple[Branch, ...]


Part = Headline | Heading | Matrix | Plot | Derivation | Closing | Remark | Tree
Page = Callable[[Trace, Showing], Iterator[Part]]
"""What lays a trace out in parts: `parts`, or one that shows it in another way."""


def parts(trace: Trace, showing: Showing) -> Iterator[Part]:
    """Everything that is shown of a trace, in reading order.

    Raises StageError or ShapeError for what is asked for and not there.
    """
    names = check(trace, showing)
    if showing.cell is None:
        yield from _level(Level(trace), names, showing)
    else:
        yield from _derivations(trace, names, showing)


def _level(level: Level, names: set[str], showing: Showing) -> Iterator[Part]:
    if not any(name.startswith(level.prefix) for name in names):
        return
    yield headline_of(level)
    nested = False
    axes_said: set[tuple[str, ...]] = set()
    for run in _runs(level.trace):
        if isinstance(run, Trace):
            nested = True
            yield from _level(Level(run, f"{level.prefix}{run.name}."), names, showing)
            continue
        shown = [stage for stage in run if level.prefix + stage.name in names]
        if shown and nested:
            yield Heading(f"{sentence(level.trace.title)}, continued")
        yield from _matrices(level, shown, axes_said, showing)
    if f"{level.prefix}weights" in names:
        yield _closing(level, showing)


def _runs(trace: Trace) -> Iterator[tuple[Stage, ...] | Trace]:
    """Nested blocks one by one, the stages between them together."""
    run: list[Stage] = []
    for step in trace.steps:
        if isinstance(step, Stage):
            run.append(step)
            continue
        yield from [tuple(run)] if run else []
        run = []
        yield step
    yield from [tuple(run)] if run else []


def _matrices(
    level: Level, stages: Sequence[Stage], axes_said: set[tuple[str, ...]], showing: Showing
) -> Iterator[Part]:
    round_trip = tour(level, stages, showing)
    heading = ""
    for stop in round_trip.stops:
        if stop.heading and stop.heading != heading:
            yield Heading(stop.heading)
        heading = stop.heading
        axes = stop.stage.axes[-2:]
        name = stop.stage.name
        grid = lower(level, name, stop.place, showing, say_axes=axes not in axes_said)
        axes_said.add(axes)
        lines = work(level, name, stop.place, showing) if showing.work else []
        yield Matrix(grid, tuple(lines))
        if name == PLOTTED:
            yield _plot(level, stop.stage, showing)
    if round_trip.left_out:
        yield Remark(round_trip.left_out)


def _plot(level: Level, stage: Stage, showing: Showing) -> Plot:
    rows = range(stage.value.shape[0])[slice(*showing.rows)]
    points = level.matrix(stage, {})[rows.start : rows.stop, :2].astype(np.float64)
    names = stage.names(stage.axes[-2])[rows.start : rows.stop]
    width = min(showing.width or WIDEST_PLOT, WIDEST_PLOT)
    return Plot(tuple(scatter(names, points, width)))


def _closing(level: Level, showing: Showing) -> Closing:
    stops = tour(level, [level.stages["weights"]], showing).stops
    return Closing(
        tuple((stop.heading, closing(level, stop.place, showing, len(stops))) for stop in stops)
    )


def headline_of(level: Level) -> Headline:
    """The title of a level, its sizes, choices and notes."""
    return Headline(
        title=sentence(level.trace.title),
        name=sentence(level.prefix.removesuffix(".")),
        facts=headline.facts(level),
        choices=headline.choices(level.convention),
        notes=tuple(map(sentence, level.trace.notes)),
    )


def _derivations(trace: Trace, names: set[str], showing: Showing) -> Iterator[Part]:
    wanted = [
        level
        for level in levels(trace)
        if target(level) and any(level.prefix + name in names for name in level.stages)
    ]
    # A table of positions on the way to an attention is not what is asked about.
    found = [level for level in wanted if target(level) == "weights"] or wanted
    if not found:
        raise StageError("there are no weights to derive", f"there are {', '.join(trace)}")
    for level in found:
        yield headline_of(level)
        round_trip = tour(level, [level.stages[target(level) or ""]], showing)
        for stop in round_trip.stops:
            if stop.heading:
                yield Heading(stop.heading)
            yield derive(level, stop.place, showing)
        if round_trip.left_out:
            yield Remark(round_trip.left_out)
