"""Steps, and the one loop that computes them.

    plan ──> steps ── within ──> steps ── run(inputs) ──> values

A step names what it reads, and the rest follows from that: only what is wanted is computed, a stage
that is given is not, a flowchart has its arrows, and gradients follow them in reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.compute import compute
from attncli.attention.kernels import round_to, widen
from attncli.convention import DType
from attncli.errors import StageError
from attncli.expression import written
from attncli.stages import HIDDEN, kind_of

Values = Mapping[str, Array]


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
    note: str = ""  # a sentence for the reader
    symbol: str = ""  # its letter, where it is not that of the registry
    sizes: Mapping[str, int] = {}  # of letters that no array has alone
    axes: tuple[str, ...] = ()  # their names, or more before them, where not those of the registry
    function: Callable[..., Array] | None = None  # what computes it instead, of reads and params
    back: Mapping[str, tuple[str, str] | None] = {}
    through: str = ""  # of a gradient: the stage whose formula it goes back through, and its read
    product: Callable[[Array, Array], Array] = np.matmul  # how matrices are multiplied
    hides: bool = False  # whether what its softmax leaves out is −∞ already

    @property
    def expression(self) -> str:
        """Its formula by cells, with those optional parts of which all is read."""
        return written(self.text, frozenset(self.reads))

    def compute(self, **values: Any) -> Array:
        """The stage, of what it reads and its parameters, by name; None: there is no such thing."""
        if self.function is not None:
            return self.function(**values)
        text = self.text
        if "{" in text:
            values = {name: x for name, x in values.items() if x is not None}
            text = written(text, frozenset(values))
        return compute(text, values, self.sizes, self.product, hides=self.hides)


def within(prefix: str, steps: Iterable[Step], **outer: str) -> list[Step]:
    """The steps as a block of a larger plan: every name gets the prefix, but those in `outer`."""

    def named(name: str) -> str:
        return outer.get(name, prefix + name)

    return [
        step._replace(name=prefix + step.name, reads={p: named(n) for p, n in step.reads.items()})
        for step in steps
    ]


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
        wanted = [n for n, kind in kinds.items() if kind.role not in HIDDEN and not kind.asked]
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
    floats = {p: widen(x, dtype) for p, x in reads.items() if x.dtype.kind == "f"}
    return round_to(step.compute(**reads | floats, **step.params), dtype)


def needed(steps: Sequence[Step], inputs: Values, wanted: Collection[str]) -> list[Step]:
    """The steps that the wanted stages follow from. StageError where one does not."""
    names, todo = set(wanted), list[Step]()
    for step in reversed(steps):
        if step.name in names and step.name not in inputs:
            names.update(step.reads.values())
            todo.append(step)
    if missing := names - inputs.keys() - {step.name for step in todo}:
        what = f"there is no {', '.join(sorted(missing))}"
        raise StageError(what, f"the inputs are {', '.join(inputs)}")
    return todo[::-1]
