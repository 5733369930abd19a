"""From the values of a plan to a Trace: each stage with its formula, axes, labels and notes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.plan import Sizes
from attncli.attention.run import Step, Values, run
from attncli.convention import Convention
from attncli.errors import StageError
from attncli.expression import only_guards
from attncli.stages import HIDDEN, MAPS, kind_of
from attncli.trace import Stage, Trace

Labels = Sequence[str] | None


class Heading(NamedTuple):
    """Title, convention, token names and notes of a block of stages."""

    title: str
    how: Convention | None = None
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
    kinds = {name: (computed[name].kind or name) if name in computed else name for name in values}
    shown = [name for name, kind in kinds.items() if kind_of(kind).role not in HIDDEN]
    asked = [name for name in computed if kind_of(name).asked and name not in values]

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
        names = [name for name in asked if name.rpartition(".")[0] == whole]
        later = {name.removeprefix(prefix): partial(make, name, heading) for name in names}
        last = whole.rpartition(".")[2]
        return Trace(heading.title, tuple(parts), heading.how, last, heading.notes, later)

    def make(name: str, heading: Heading) -> Stage:
        """A stage that is computed only when it is asked for."""
        return _stage(name, computed, run(steps, values, [name]), heading)

    def again(arrays: Values) -> Trace:
        """The trace of other numbers for some of its stages."""
        new = with_stages(steps, inputs or {}, arrays)
        first = {name: replace(x, value=new.get(name, x.value)) for name, x in stages.items()}
        results = run(steps, new)
        return trace_of(steps, {name: results[name] for name in values}, headings, first, new)

    trace = nested("", dict.fromkeys([*stages, *shown]), headings[""])
    return trace if inputs is None else replace(trace, compute=again)


def with_stages(steps: Sequence[Step], inputs: Values, arrays: Values) -> dict[str, Array]:
    """The inputs of a plan with other arrays for some, or for some steps.

    Raises StageError for an array that is neither.
    """
    for name in arrays.keys() - inputs.keys() - {step.name for step in steps}:
        raise StageError(f"nothing is computed from {name}", f"the inputs are {', '.join(inputs)}")
    return {**inputs, **arrays}


def traced(steps: Sequence[Step], heading: Heading, *given: Stage) -> Trace:
    """The trace of a plan computed from these stages, which come first."""
    stages = {stage.name: stage for stage in given}
    inputs = {name: stage.value for name, stage in stages.items()}
    return trace_of(steps, run(steps, inputs), {"": heading}, stages, inputs)


def _stage(name: str, computed: Mapping[str, Step], values: Values, heading: Heading) -> Stage:
    step, value = computed.get(name), values[name]
    kind = kind_of((step and step.kind) or name)
    own = name.rpartition(".")[2]
    prefix = name.removesuffix(own)
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
        axis: tuple(names)[-n_of.get(axis, 0) :] for axis, names in heading.labels.items() if names
    }
    if kind.axes == kind_of(MAPS[0]).axes and not is_own:  # the gradient of what was broadcast
        sizes = zip(axes, value.shape, whole[-len(axes) :], strict=False)
        labels |= {axis: ("all",) for axis, size, of in sizes if size < of}
    if step is None:
        return Stage(own, kind.symbol, "", value, axes, labels)
    text, reads = step.expression, {}  # but for what only says which terms count
    guards = only_guards(text) if text and not is_own else frozenset()
    for parameter, read in step.reads.items():
        place, dot, last = read.rpartition(".")
        if parameter not in guards and kind_of(read).role != "aside":
            reads[parameter] = last if place + dot == prefix else read
    plain = {n: x for n, x in step.params.items() if isinstance(x, bool | int | float | str)}
    symbol = step.symbol or kind.symbol or step.formula.partition(" = ")[0]
    if "[" in text.partition(" = ")[0]:  # under the letter that the stage has here
        text = f"{symbol}{text[text.index('[') :]}"
    more = (step.note, reads, plain, text, step.sizes)
    return Stage(own, symbol, step.formula, value, axes, labels, *more)


def title_of(sizes: Sizes, how: Convention) -> str:
    """What an attention is called: by its scale, and by whether heads share keys."""
    scaled = "Dot-product attention" if how.scale == "none" else "Scaled dot-product attention"
    if sizes.n_kv_heads != sizes.n_heads:
        kind = "Multi-query" if sizes.n_kv_heads == 1 else "Grouped-query"
        return f"{kind} {scaled[0].lower()}{scaled[1:]}"
    return scaled
