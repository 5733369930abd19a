"""The blocks of a trace, and what of them is shown: stages, heads, batch entries, rows and columns.

A stage's last two axes are its matrix; the axes before them say which matrix it is. An index names
an entry of some of those axes, such as {"batch": 0, "head": 2}.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.masks import is_masked
from attncli.budget import check_cells
from attncli.convention import Convention
from attncli.errors import ShapeError, StageError, nearest
from attncli.page.options import HEADS, KEY_HEADS, DisplayOptions, Index
from attncli.stages import CALLED, HIDDEN, LEFT_OUT, MASKED, spec_of
from attncli.trace import Stage, Trace


class BlankStage(Stage):
    """A stage whose numbers are left out: NaN stands in their place (see blank.py)."""


def has_blanks(trace: Trace) -> bool:
    """Whether numbers of any stage are left out."""
    return any(isinstance(stage, BlankStage) for _, stage in trace.stages())


class Block:
    """The stages of one block of a trace, without those of the blocks within it.

    trace, prefix  the block, and its dotted name with a dot after it; "" for the whole trace
    root           the whole trace
    stages         by their own names, in the order of computation; vectors beside a map as matrices
    numbers        name → the number of every stage that is computed; what is given has none
    mask, weights  the stages with the mask and with the weights of an attention, or None
    owners, sizes  axis → the first stage that has it, and its size there; 0 where none has it
    several        the axes whose entries are told apart: several, or one that has a label
    n_heads        how many heads there are to choose from
    layer          its number among the layers of a stack, "" where it is in none
    """

    def __init__(self, trace: Trace, prefix: str = "", root: Trace | None = None) -> None:
        self.trace, self.prefix, self.root = trace, prefix, root or trace
        self.convention = trace.convention or Convention()
        self._others: dict[str, Stage] = {}  # of other blocks, as they were read
        self.formulas: dict[int, Any] = {}  # of stages by identity: see words.py
        stages = (step for step in trace.steps if isinstance(step, Stage))
        self.stages = {x.name: as_matrix(x) if x.kind.vector else x for x in stages}
        computed = [name for name, stage in self.stages.items() if is_computed(stage)]
        self.numbers = {name: number for number, name in enumerate(computed, start=1)}
        kinds = [(spec_of(name), stage) for name, stage in self.stages.items()]
        self.mask = next((stage for kind, stage in kinds if kind.role == "input"), None)
        maps = (stage for kind, stage in kinds if kind.summarized and stage.value.ndim >= 2)
        self.weights = next(maps, None)
        self.owners: dict[str, Stage] = {}
        self.sizes: Counter[str] = Counter()
        for stage in self.stages.values():
            for axis, size in zip(stage.axes, stage.value.shape, strict=True):
                if axis not in self.owners:
                    self.owners[axis], self.sizes[axis] = stage, size
        owners = self.owners.items()
        self.several = {axis for axis, s in owners if self.sizes[axis] > 1 or axis in s.labels}
        self.n_heads = self.sizes[HEADS] or self.sizes[KEY_HEADS]
        self.layer = next((name for name in prefix.split(".") if name.isdecimal()), "")

    def key_head(self, head: int) -> int:
        """The key head that a head reads (grouped-query attention)."""
        n_heads, n_key_heads = self.sizes[HEADS], self.sizes[KEY_HEADS]
        if not n_heads or not n_key_heads:
            return head
        blocks = self.convention.head_order == "blocks"
        return head * n_key_heads // n_heads if blocks else head % n_key_heads

    def entry(self, axis: str, index: Index) -> int | None:
        """The entry of an axis that an index names; a head names its key head too."""
        if axis == KEY_HEADS and axis not in index and HEADS in index:
            return self.key_head(index[HEADS])
        return index.get(axis)

    def place(self, stage: Stage, index: Index) -> tuple[int, ...]:
        """Where the stage's matrix at an index is along the axes before its last two."""
        return tuple(
            (self.entry(axis, index) or 0) if size > 1 else 0
            for axis, size in zip(stage.axes[:-2], stage.value.shape, strict=False)
        )

    def matrix(self, stage: Stage, index: Index) -> Array:
        """The stage's matrix at an index; a vector or a number is a matrix of one row."""
        matrix: Array = np.atleast_2d(stage.value[self.place(stage, index)])
        return matrix

    @property
    def mask_value(self) -> float:
        """What a masked score became, or had added."""
        value = self.stages[MASKED].params.get("value") if MASKED in self.stages else None
        return float(self.convention.mask_value if value is None else value)

    def masked(self, by: Stage, index: Index, shape: tuple[int, ...]) -> BoolArray:
        """True where a mask hides a key from a query, of scores [n_q, n_k] of this shape."""
        mask = self.matrix(by, index)
        fits = all(size in (1, whole) for size, whole in zip(mask.shape, shape, strict=True))
        return np.broadcast_to(is_masked(mask) if fits else False, shape)

    def read(self, stage: Stage, parameter: str) -> Stage | None:
        """What a stage read as this parameter: of this block, or by its dotted name of any other.

        None where it read nothing so, or the trace does not hold it. No stage reads itself: the
        keys of a part are those of the keys of all.
        """
        name = stage.reads.get(parameter, "")
        source = self.stages.get(name)
        if (source is None or source is stage) and name in self.root:
            return self._others.setdefault(name, as_matrix(self.root[name]))
        return None if source is stage else source


def as_matrix(stage: Stage) -> Stage:
    """The stage; a vector of one number for each row of a map as a column, of its columns as a row.

    The axis that is added has no name, and its one entry is called by the stage's symbol.
    """
    if not stage.kind.vector or not stage.value.ndim or "" in stage.axes:
        return stage
    *before, last = stage.axes
    at = -1 if last == "query" else -2
    axes = (*before, last, "") if at == -1 else (*before, "", last)
    labels = {**stage.labels, "": (stage.symbol,)}
    return replace(stage, value=np.expand_dims(stage.value, at), axes=axes, labels=labels)


def is_computed(stage: Stage) -> bool:
    """Whether a stage is a step; a q, k, v or x is one where it says how it was computed."""
    role = stage.kind.role
    return role == "step" or (role == "operand" and bool(stage.formula))


def blocks_of(trace: Trace, prefix: str = "", root: Trace | None = None) -> Iterator[Block]:
    """The trace's own block, then those within it."""
    yield Block(trace, prefix, root)
    for step in trace.steps:
        if isinstance(step, Trace):
            yield from blocks_of(step, f"{prefix}{step.name}.", root or trace)


def select(trace: Trace, options: DisplayOptions, *, inputs: bool = False) -> Trace:
    """The chosen stages, head, batch entry, rows and columns as a smaller trace.

    Entries keep their names: row 5 of a trace without labels is still "q5". With `inputs` those
    come along, whole along their rows and columns, so that the result can be computed from again.
    Raises StageError for a stage, ShapeError for a head, batch entry, row or column that is not
    there.
    """
    names = chosen(trace, options)
    input_names = {
        name for name, stage in trace.stages() if inputs and not is_computed(stage)
    } - names

    def cut(block: Block) -> Trace:
        steps: list[Stage | Trace] = []
        for step in block.trace.steps:
            name = f"{block.prefix}{step.name}"
            if isinstance(step, Trace):
                inner = cut(Block(step, f"{name}."))
                steps += [inner] if inner.steps else []
            elif name in names or name in input_names:
                part = _cut_stage(block, step, options, whole=name in input_names)
                steps += [part] if part.value.size or not step.value.size else []
        return replace(block.trace, steps=tuple(steps))

    return cut(Block(trace))


def _cut_stage(block: Block, stage: Stage, options: DisplayOptions, *, whole: bool) -> Stage:
    axes = as_matrix(stage).axes
    slices = dict.fromkeys(axes, slice(None))
    for axis in axes[:-2]:
        entry = block.entry(axis, options.index)
        if entry is not None:
            slices[axis] = slice(entry, entry + 1)
    if len(axes) >= 2 and not whole:
        slices[axes[-2]], slices[axes[-1]] = slice(*options.rows), slice(*options.cols)
    value = stage.value[tuple(slices[axis] for axis in stage.axes)]
    labels = dict(stage.labels)
    for axis, size, n_left in zip(stage.axes, stage.value.shape, value.shape, strict=True):
        if n_left < size:
            labels[axis] = tuple(stage.names(axis)[slices[axis]])
    return replace(stage, value=value, labels=labels)


def check_written(count: int) -> None:
    """SizeError for more numbers, each written as text, than are allowed."""
    hint = "choose some with --stage, --head or --rows, or use --format npz"
    check_cells(count, "the stages have", hint)


def chosen(trace: Trace, options: DisplayOptions) -> set[str]:
    """The dotted names of the chosen stages, once all that is asked for is known to be there.

    A name selects the stage of exactly this name; else all whose names end with it; else
    those of a block. Where none is named, those that are computed: with `options.given` what is
    given too, with `options.work` the weights, which its arithmetic reads. What stages without
    numbers are computed from comes along, unless the steps to a cell are asked for, which say it.
    Raises as `select` does.
    """
    names = {name for query in options.stages for name in named_stages(trace, query)}
    if not options.stages:
        for name, stage in trace.stages():
            role = stage.kind.role
            is_shown = options.given and role not in HIDDEN
            is_shown |= options.work and role == "parameter"
            names |= {name} if is_shown or is_computed(stage) else set()
    blanks = [name for name, x in trace.stages() if name in names and isinstance(x, BlankStage)]
    if blanks and not (options.stages and options.cell):
        names |= _sources_of_blanks(trace, blanks)
    if {options.head, options.batch, *options.rows, *options.cols} != {None}:
        _check_places(trace, names, options)
    return names


def _sources_of_blanks(trace: Trace, blanks: Collection[str]) -> set[str]:
    """The stages with numbers from which these without any are to be computed."""
    sources, waiting, passed = set[str](), [*blanks], {*blanks}
    while waiting:
        name = waiting.pop()
        prefix = name[: name.rfind(".") + 1]
        for read in trace[name].reads.values():
            source = prefix + read if prefix + read in trace else read
            if source not in trace or source in passed:
                continue
            stage = trace[source]
            if isinstance(stage, BlankStage) or stage.kind.role in HIDDEN:
                passed.add(source)
                waiting.append(source)
            else:
                sources.add(source)
    return sources


def _check_places(trace: Trace, names: Collection[str], options: DisplayOptions) -> None:
    """ShapeError for a head, batch entry, row or column that none of the stages has."""
    stages = [
        (block, stage)
        for block in blocks_of(trace)
        for name, stage in block.stages.items()
        if block.prefix + name in names
    ]
    heads = [block.n_heads for block, stage in stages if {HEADS, KEY_HEADS} & {*stage.axes}]
    batches = [block.sizes["batch"] for block, stage in stages if "batch" in stage.axes]
    for axis_name, counts, entry in (
        ("head", heads, options.head),
        ("batch entry", batches, options.batch),
    ):
        if entry is not None and not counts:
            raise ShapeError(
                f"there is no {axis_name} to choose", "the stages shown have no such axis"
            )
        if entry is not None and not 0 <= entry < min(counts):
            least = min(counts)
            there = "there is only 1" if least == 1 else f"choose from 1 to {least}"
            raise ShapeError(f"there is no {axis_name} {entry + 1}", there)
    matrices = [stage.value.shape for _, stage in stages if stage.value.ndim >= 2]
    for axis_name, at, (start, stop) in (("row", -2, options.rows), ("column", -1, options.cols)):
        sizes = [shape[at] for shape in matrices]
        if (start, stop) != (None, None) and not any(range(size)[start:stop] for size in sizes):
            span = f"{(start or 0) + 1} to {'the end' if stop is None else stop}"
            most = f"the stages shown have {max(sizes, default=0)} at most"
            raise ShapeError(f"there are no {axis_name}s {span}", most)


def named_stages(trace: Trace, query: str) -> Collection[str]:
    """The dotted names that a name stands for. Raises StageError where there is none."""
    if query in trace:
        return [query]
    names = [name for name in trace if name.endswith(f".{query}")]
    names = names or [name for name in trace if f".{query}." in f".{name}"]
    names = names or [name for name in trace if name.rpartition(".")[2].lower() == query]
    if names:
        return names
    called = CALLED.get(query, (query,))
    hint = LEFT_OUT.get(query) or nearest(called[0], trace)
    raise StageError(f"there is no stage {query!r}", hint)
