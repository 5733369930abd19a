"""What to show of a trace, and how: the choices of a command line, independent of any terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from attncli.errors import ShapeError, StageError
from attncli.trace import INPUTS, PARAMETERS, Stage, Trace
from attncli.views.places import HEADS, KEY_HEADS, Level, Place, levels

Bounds = tuple[int | None, int | None]


@dataclass(frozen=True)
class Showing:
    """What to show of a trace, and how.

    stages       dotted names, or the ends or blocks of such; () = all that were computed
    batch, head  the 0-based entry; None = all
    rows, cols   0-based half-open slices of the last two axes of every shown matrix
    precision    decimals
    work         the arithmetic of the first cell under each matrix
    cell         (query, key) by label or 1-based number: the derivation of that weight instead
    heatmap      None shades the weights where there is colour, True every stage, False none
    full         leave nothing out
    width        columns of the terminal; None = unlimited (a pipe)
    height       lines of the terminal; None = unlimited
    colour       whether colours will be seen
    """

    stages: tuple[str, ...] = ()
    batch: int | None = None
    head: int | None = None
    rows: Bounds = (None, None)
    cols: Bounds = (None, None)
    precision: int = 4
    work: bool = False
    cell: tuple[str, str] | None = None
    heatmap: bool | None = None
    full: bool = False
    width: int | None = None
    height: int | None = None
    colour: bool = False

    @property
    def place(self) -> Place:
        """The chosen batch entry and head."""
        wishes = {"batch": self.batch, HEADS: self.head}
        return {axis: entry for axis, entry in wishes.items() if entry is not None}

    def on_page(self) -> Showing:
        """The same for a document instead of a terminal: as wide as it needs, no colour."""
        return replace(self, width=None, height=None, colour=False)


def select(trace: Trace, showing: Showing, *, inputs: bool = False) -> Trace:
    """The chosen stages, head, batch entry, rows and columns as a smaller trace.

    Entries keep their names: row 5 of a trace without labels is still "q5". With `inputs` those
    come along, whole along their rows and columns, so that the result can be computed from again.
    Raises StageError for a stage, ShapeError for a head, batch entry, row or column that is not
    there.
    """
    names = check(trace, showing)
    inputs_too = {name for name in trace if inputs and is_input(name)} - names
    return _cut(Level(trace), names, inputs_too, showing)


def is_input(name: str) -> bool:
    """Whether a dotted name is that of something that went in."""
    return name.rpartition(".")[2] in (*INPUTS, *PARAMETERS)


def check(trace: Trace, showing: Showing) -> set[str]:
    """The dotted names of the chosen stages, once all that is asked for is known to be there."""
    names = _chosen(trace, showing)
    found = [
        (level, stage)
        for level in levels(trace)
        for name, stage in level.stages.items()
        if level.prefix + name in names
    ]
    heads = [level.n_heads() for level, stage in found if {HEADS, KEY_HEADS} & {*stage.axes}]
    batches = [level.size("batch") for level, stage in found if "batch" in stage.axes]
    _check_entry("head", heads, showing.head)
    _check_entry("batch entry", batches, showing.batch)
    matrices = [stage.value.shape for _, stage in found if stage.value.ndim >= 2]
    _check_slice("row", [shape[-2] for shape in matrices], showing.rows)
    _check_slice("column", [shape[-1] for shape in matrices], showing.cols)
    return names


def _chosen(trace: Trace, showing: Showing) -> set[str]:
    if not showing.stages:
        return {name for name in trace if not is_input(name)}
    return {name for wish in showing.stages for name in _named(trace, wish)}


def _named(trace: Trace, wish: str) -> list[str]:
    """The stage of just this name; else all whose names end with it; else those of a block."""
    if wish in trace:
        return [wish]
    found = [name for name in trace if name.endswith(f".{wish}")]
    found = found or [name for name in trace if f".{wish}." in f".{name}"]
    if not found:
        raise StageError(f"there is no stage {wish!r}", f"there are {', '.join(trace)}")
    return found


def _check_entry(what: str, counts: list[int], wish: int | None) -> None:
    if wish is None:
        return
    if not counts:
        raise ShapeError(f"there is no {what} to choose", "the stages shown are not split that way")
    if not 0 <= wish < min(counts):
        there = "there is only 1" if min(counts) == 1 else f"choose from 1 to {min(counts)}"
        raise ShapeError(f"there is no {what} {wish + 1}", there)


def _check_slice(what: str, sizes: list[int], bounds: Bounds) -> None:
    if bounds == (None, None) or any(len(range(size)[slice(*bounds)]) for size in sizes):
        return
    start, stop = (bounds[0] or 0) + 1, bounds[1]
    span = f"{start} to {'the end' if stop is None else stop}"
    most = max(sizes, default=0)
    raise ShapeError(f"there are no {what}s {span}", f"the stages shown have {most} at most")


def _cut(level: Level, names: set[str], inputs: set[str], showing: Showing) -> Trace:
    steps: list[Stage | Trace] = []
    for step in level.trace.steps:
        name = f"{level.prefix}{step.name}"
        if isinstance(step, Trace):
            inner = _cut(Level(step, f"{name}."), names, inputs, showing)
            steps += [inner] if inner.steps else []
        elif name in names | inputs:
            slices = dict(_slices(level, step, showing, whole=name in inputs))
            cut = _cut_stage(step, slices)
            steps += [cut] if cut.value.size or not step.value.size else []
    return replace(level.trace, steps=tuple(steps))


def _slices(
    level: Level, stage: Stage, showing: Showing, *, whole: bool
) -> Iterator[tuple[str, slice]]:
    """Which part of which axis is shown."""
    for axis in stage.axes[:-2]:
        entry = level.entry(axis, showing.place)
        if entry is not None:
            yield axis, slice(entry, entry + 1)
    if stage.value.ndim >= 2 and not whole:
        yield stage.axes[-2], slice(*showing.rows)
        yield stage.axes[-1], slice(*showing.cols)


def _cut_stage(stage: Stage, slices: dict[str, slice]) -> Stage:
    shape = stage.value.shape
    value = stage.value[tuple(slices.get(axis, slice(None)) for axis in stage.axes)]
    labels = dict(stage.labels)
    for axis, part in slices.items():
        size = shape[stage.axes.index(axis)]
        if len(range(size)[part]) < size:
            labels[axis] = tuple(stage.label(axis, entry) for entry in range(size)[part])
    return replace(stage, value=value, labels=labels)
