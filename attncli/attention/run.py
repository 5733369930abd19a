"""Steps, and the one loop that computes them.

    plan ──> steps ── changed, within ──> steps ── run(inputs) ──> values

A step names what it reads, and the rest follows from that: only what is wanted is computed, a stage
that is given is not, a flowchart has its arrows, and gradients go the same way back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.convention import DType
from attncli.errors import StageError
from attncli.stages import HIDDEN, kind_of

Values = Mapping[str, Array]
Change = Callable[..., Array] | Mapping[str, Any]


class Step(NamedTuple):
    """One stage still to be computed: compute(**what it reads, **params).

    name     of the stage, with dots for the blocks it is in
    reads    parameter of `compute` → the stage that it is given
    params   its other parameters
    formula  such as "Z = S / √d_k"
    expression, sizes  how each cell is computed, see Stage; of what it reads and shows, as a trace
             leaves inner steps out
    dtype    the number type the result is rounded to; None: left as it is
    kind     the row of the registry, where it is not that of the name
    note     a sentence for the reader
    symbol   its letter, where it is not that of the registry
    """

    name: str
    compute: Callable[..., Array]
    reads: Mapping[str, str]
    params: Mapping[str, Any] = {}
    formula: str = ""
    expression: str = ""
    dtype: DType | None = None
    kind: str = ""
    note: str = ""
    symbol: str = ""
    sizes: Mapping[str, int] = {}


def plain(x: float) -> str:
    """A parameter within a formula: an exponent is written as in the tables.

    >>> plain(-1e9), plain(1e-5), plain(0.25), plain(-153513871339.0)
    ('-1e9', '1e-5', '0.25', '-1.5351e11')
    """
    text = f"{x:g}"
    mantissa, e, exponent = f"{x:.4e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}{e}{int(exponent)}" if "e" in text else text


def within(prefix: str, steps: Iterable[Step], **outer: str) -> list[Step]:
    """The steps as a block of a larger plan: every name gets the prefix, but those in `outer`."""

    def named(name: str) -> str:
        return outer.get(name, prefix + name)

    return [
        step._replace(name=prefix + step.name, reads={p: named(n) for p, n in step.reads.items()})
        for step in steps
    ]


def changed(steps: Iterable[Step], changes: Mapping[str, Change]) -> list[Step]:
    """The plan with another function for some steps, or with some of their parameters replaced."""

    def change(step: Step) -> Step:
        new = changes.get(step.name, {})
        if callable(new):
            return step._replace(compute=new)
        return step._replace(params={**step.params, **new})

    return [change(step) for step in steps]


def run(
    steps: Sequence[Step], inputs: Values, wanted: Collection[str] | None = None
) -> dict[str, Array]:
    """The values of the wanted stages (of all that are shown, where none are named) and the inputs.

    An input by a step's name takes its place: nothing is computed that only that step would read.
    Each step is computed in its number type: in float64 or float32, then rounded.

    Raises StageError for a stage that follows from nothing that is given.
    """
    if wanted is None:
        kinds = {step.name: kind_of(step.kind or step.name) for step in steps}
        shown_kinds = {n: kind for n, kind in kinds.items() if kind.role not in HIDDEN}
        wanted = [name for name, kind in shown_kinds.items() if not kind.asked]
    todo, shown = needed(steps, inputs, wanted), set(wanted)
    last_read = {name: at for at, step in enumerate(todo) for name in step.reads.values()}
    values = dict(inputs)
    with np.errstate(all="ignore"):  # an overflow is infinite, as IEEE 754 has it, and is shown
        for at, step in enumerate(todo):
            values[step.name] = _computed(step, values)
            for name in step.reads.values():  # what is not read any more is dropped
                if last_read[name] == at and name not in shown and name not in inputs:
                    values.pop(name, None)
    return values


def _computed(step: Step, values: Values) -> Array:
    """The stage of one step. A function, so that nothing it makes on the way outlives the step."""
    reads = {parameter: values[name] for parameter, name in step.reads.items()}
    if (dtype := step.dtype) in (None, "float64"):  # what goes in is float64 already
        return step.compute(**reads, **step.params)
    floats = {p: f.widen(x, dtype) for p, x in reads.items() if x.dtype.kind == "f"}
    return f.round_to(step.compute(**reads | floats, **step.params), dtype)


def needed(steps: Sequence[Step], inputs: Values, wanted: Collection[str]) -> list[Step]:
    """The steps that the wanted stages follow from. StageError where one does not."""
    names, todo = set(wanted), list[Step]()
    for step in reversed(steps):
        if step.name in names and step.name not in inputs:
            names.update(step.reads.values())
            todo.append(step)
    if missing := names - inputs.keys() - {step.name for step in todo}:
        raise StageError(
            f"there is no {', '.join(sorted(missing))}", f"the inputs are {', '.join(inputs)}"
        )
    return todo[::-1]
