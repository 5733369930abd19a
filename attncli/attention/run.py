"""Steps, the one loop that computes them, and the trace of what they give.

    plan ──> steps ── within ──> steps ── run(inputs) ──> values ── trace_of ──> Trace

A step names what it reads, and the rest follows from that: only what is wanted is computed, a stage
that is given is not, a flowchart has its arrows, and gradients follow them in reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, Like
from attncli.convention import Convention, DType
from attncli.errors import StageError
from attncli.formula.compute import Compiled, compiled, compute
from attncli.formula.kernels import round_to, widen
from attncli.formula.parser import only_guards, written
from attncli.stages import GIVEN_GRADIENT, HIDDEN, MAPS, StageSpec, spec_of
from attncli.trace import Stage, Trace

Values = Mapping[str, Array]
Labels = Sequence[str] | None


class Step(NamedTuple):
    """One stage still to be computed, by its formula.

    back  what it reads → the formula of its gradient, by cells and in words, where the chain rule
          is not how it is written; None: it has none
    """

    name: str  # of the stage, with dots for the blocks it is in
    text: str  # its formula by cells, with optional parts in braces; "": only a function says it
    reads: Mapping[str, str]  # name in the formula → the stage that it is
    params: Mapping[str, Any] = {}  # its numbers
    formula: str = ""  # in matrices, such as "Z = S / √d_k"
    dtype: DType | None = None  # the number type the result is rounded to; None: left as it is
    kind: str = ""  # the row of the registry, where it is not that of the name
    spec: StageSpec | None = None  # the row, where it is not in the registry
    note: str = ""  # a sentence for the reader
    symbol: str = ""  # its letter, where it is not that of the registry
    sizes: Mapping[str, int] = {}  # of letters that no array has alone
    axes: tuple[str, ...] = ()  # their names, or more before them, where not those of the registry
    function: Callable[..., Array] | None = None  # what computes it instead, of reads and params
    like: Callable[..., Like | Compiled] | None = None  # its shape and type, or formula, of theirs
    back: Mapping[str, tuple[str, str] | None] = {}
    through: str = ""  # of a gradient: the stage whose formula it goes back through, and its read
    product: Callable[[Array, Array], Array] = np.matmul  # how matrices are multiplied
    hides: bool = False  # whether what its softmax leaves out is −∞ already

    @property
    def row(self) -> StageSpec:
        """What is known of its stage."""
        return self.spec or spec_of(self.kind or self.name)

    @property
    def expression(self) -> str:
        """Its formula by cells, with those optional parts of which all is read."""
        return written(self.text, frozenset(self.reads))

    def compute(self, **values: Any) -> Array:
        """The stage, of what it reads and its parameters, by name; None: there is no such thing."""
        if self.function is not None:
            return self.function(**values)
        return compute(self.text, values, self.sizes, self.product, hides=self.hides)

    def alike(self, **reads: Like) -> Like | Compiled:
        """Its formula for arrays of these shapes and types, or where it has none its stage's."""
        if self.like is not None:
            return self.like(**reads, **self.params)
        shapes = tuple([(name, x.shape) for name, x in reads.items()])
        return compiled(self.text, shapes, (*self.sizes.items(),), self.hides)


def within(prefix: str, steps: Iterable[Step], **outer: str) -> list[Step]:
    """The steps as a block of a larger plan: every name gets the prefix, but those in `outer`."""

    def named(name: str) -> str:
        return outer.get(name, prefix + name)

    return [
        step._replace(name=prefix + step.name, reads={p: named(n) for p, n in step.reads.items()})
        for step in steps
    ]


def computed(step: Step, values: Values) -> Array:
    """The stage of one step. A function, so that nothing it makes on the way outlives the step."""
    arguments = {**step.params} | {
        parameter: values[name] for parameter, name in step.reads.items()
    }
    dtype = None if step.dtype == "float64" else step.dtype  # what goes in is float64 already
    if dtype is not None:
        arguments |= {
            p: widen(arguments[p], dtype) for p in step.reads if arguments[p].dtype.kind == "f"
        }
    result = step.compute(**arguments)
    return result if dtype is None else round_to(result, dtype)


def run(
    steps: Sequence[Step],
    inputs: Values,
    names: Collection[str] | None = None,
    compute_step: Callable[[Step, Values], Array] = computed,
) -> dict[str, Array]:
    """The values of the wanted stages (of all that are shown, where none are named) and the inputs.

    An input by a step's name takes its place: nothing is computed that only that step would read.
    Each step is computed in its number type: in float64 or float32, then rounded; `compute_step`
    computes one of the values so far.

    Raises StageError for a stage that follows from nothing that is given.
    """
    values = dict(inputs)
    with np.errstate(all="ignore"):  # an overflow is infinite, as IEEE 754 has it, and is shown
        for step, unread in needed(steps, inputs, names):
            values[step.name] = compute_step(step, values)
            for name in unread:
                del values[name]
    return values


def needed(
    steps: Sequence[Step], inputs: Mapping[str, Any], names: Collection[str] | None = None
) -> list[tuple[Step, list[str]]]:
    """The steps that the wanted stages follow from, and after each what is not read any more.

    names  of the stages; None: all that are shown

    StageError where one follows from nothing that is given.
    """
    if names is None:
        kinds = {step.name: step.row for step in steps}
        names = [n for n, kind in kinds.items() if kind.role not in HIDDEN and not kind.asked]
    reads, todo = set(names), list[tuple[Step, list[str]]]()
    read_later = {*names, *inputs}  # after a step, or kept
    for step in reversed(steps):
        if step.name in reads and step.name not in inputs:
            unread = {*step.reads.values()} - read_later
            todo.append((step, [*unread]))
            reads.update(step.reads.values())
            read_later |= unread
    if missing := reads - inputs.keys() - {step.name for step, _ in todo}:
        message = f"there is no {', '.join(sorted(missing))}"
        raise StageError(message, f"the inputs are {', '.join(inputs)}")
    return todo[::-1]


# ---- from values to a trace: each stage with its formula, axes, labels and notes


class Heading(NamedTuple):
    """Title, convention, token names and notes of a block of stages."""

    title: str
    convention: Convention | None = None
    labels: Mapping[str, Labels] = {}
    notes: tuple[str, ...] = ()


def trace_of(
    steps: Sequence[Step],
    values: Values,
    headings: Mapping[str, Heading],
    stages: Mapping[str, Stage] = {},
    inputs: Values | None = None,
) -> Trace:
    """The stages of these values, without the inner ones, nested by the dots in their names.

    headings  by dotted name, "" for the whole; one that is not named is as the one around it
    stages  some that exist already, by dotted name; they come first
    inputs  those of the steps, where the trace can be computed `again`
    """
    computed = {step.name: step for step in steps}
    kinds = {name: computed[name].row if name in computed else spec_of(name) for name in values}
    visible = [name for name, kind in kinds.items() if kind.role not in HIDDEN]
    deferred = [x for x, step in computed.items() if step.row.asked and x not in values]

    def nested(prefix: str, names: Collection[str], heading: Heading) -> Trace:
        """The trace of the stages of these names, which all begin with the prefix."""
        inside: dict[str, list[str]] = {}
        for name in names:
            first = name.removeprefix(prefix).partition(".")[0]
            inside.setdefault(prefix + first, []).append(name)
        parts: list[Stage | Trace] = []
        for name, members in inside.items():
            if name in stages:
                parts.append(stages[name])
            elif members == [name]:
                parts.append(_stage(name, computed, values, heading))
            else:
                parts.append(nested(f"{name}.", members, headings.get(name, heading)))
        whole = prefix.removesuffix(".")
        names = [name for name in deferred if name.rpartition(".")[0] == whole]
        later = {name.removeprefix(prefix): partial(make, name, heading) for name in names}
        last = whole.rpartition(".")[2]
        return Trace(heading.title, tuple(parts), heading.convention, last, heading.notes, later)

    def make(name: str, heading: Heading) -> Stage:
        """A stage that is computed only when it is asked for."""
        return _stage(name, computed, run(steps, values, [name]), heading)

    def again(arrays: Values) -> Trace:
        """The trace of other numbers for some of its stages."""
        new = with_stages(steps, inputs or {}, arrays)
        first = {name: replace(x, value=new.get(name, x.value)) for name, x in stages.items()}
        results = run(steps, new)
        return trace_of(steps, {name: results[name] for name in values}, headings, first, new)

    trace = nested("", dict.fromkeys([*stages, *visible]), headings[""])
    return trace if inputs is None else replace(trace, compute=again)


def with_stages(steps: Sequence[Step], inputs: Values, arrays: Values) -> dict[str, Array]:
    """The inputs of a plan with other arrays for some, or for some steps.

    Raises StageError for an array that is neither.
    """
    for name in arrays.keys() - inputs.keys() - {step.name for step in steps}:
        raise StageError(f"nothing is computed from {name}", f"the inputs are {', '.join(inputs)}")
    return {**inputs, **arrays}


def traced(steps: Sequence[Step], heading: Heading, *sources: Stage) -> Trace:
    """The trace of a plan computed from these stages, which come first."""
    stages = {stage.name: stage for stage in sources}
    inputs = {name: stage.value for name, stage in stages.items()}
    return trace_of(steps, run(steps, inputs), {"": heading}, stages, inputs)


def _stage(name: str, computed: Mapping[str, Step], values: Values, heading: Heading) -> Stage:
    step, value = computed.get(name), values[name]
    kind = spec_of(name) if step is None else step.row
    leaf = name.rpartition(".")[2]
    prefix = name.removesuffix(leaf)
    shapes = (values[prefix + map_].shape for map_ in MAPS if prefix + map_ in values)
    whole = next(shapes, value.shape)
    is_own = step is not None and bool(step.axes)
    if kind.role == "input" and not is_own:  # the mask, which has the axes of the scores
        value = np.broadcast_to(value, whole)
    axes = kind.axes_of(value.ndim)
    if step is not None and is_own:
        axes = step.axes[len(step.axes) - value.ndim :]
    n_of = dict(zip(axes, value.shape, strict=True))  # keys of a cache have no rows of x
    labels = {
        axis: tuple(names)[-n_of.get(axis, 0) :]
        for axis, names in heading.labels.items()
        if names and not (is_own and len(names) != n_of.get(axis))
    }
    if kind.axes == spec_of(MAPS[0]).axes and not is_own:  # the gradient of what was broadcast
        sizes = zip(axes, value.shape, whole[-len(axes) :], strict=False)
        labels |= {axis: ("all",) for axis, size, full in sizes if size < full}
    if step is None:
        return Stage(leaf, kind.symbol, "", value, axes, labels)
    text, reads = written(step.text, frozenset(step.reads)), dict[str, str]()
    guards = only_guards(text) if text and not is_own else frozenset()  # which terms count, alone
    for parameter, read in step.reads.items():
        place, dot, last = read.rpartition(".")
        is_aside = spec_of(read).role == "aside" and not (is_own and read != GIVEN_GRADIENT)
        if parameter not in guards and not is_aside:
            reads[parameter] = last if place + dot == prefix else read
    plain = {n: x for n, x in step.params.items() if isinstance(x, bool | int | float | str)}
    symbol = step.symbol or kind.symbol or step.formula.partition(" = ")[0]
    if "[" in text.partition(" = ")[0]:  # under the letter that the stage has here
        text = f"{symbol}{text[text.index('[') :]}"
    more = (step.note, reads, plain, text, step.sizes, step.spec)
    return Stage(leaf, symbol, step.formula, value, axes, labels, *more)
