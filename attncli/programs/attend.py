"""From a program and its inputs to a Trace: every stage, and the gradients where they are asked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attncli.arrays import Array
from attncli.attention.backward import backward
from attncli.attention.inputs import entered
from attncli.attention.run import Step, run
from attncli.attention.shapes import Gradient, given_gradient
from attncli.attention.traces import Heading, Labels, trace_of
from attncli.convention import Convention
from attncli.errors import ConventionError
from attncli.expression import Index, cells, parse
from attncli.programs.bind import Bound, axes_of
from attncli.programs.read import read
from attncli.stages import GIVEN_GRADIENT, kind_of
from attncli.trace import Stage, Trace

_EXACT = Convention()
"""For a mask, and whole numbers, which are places and lengths: they are not rounded."""


def attend_by(
    text: str,
    arrays: Mapping[str, Array],
    *,
    how: Convention | None = None,
    labels: Mapping[str, Labels] = {},
    d_output: Gradient | None = None,
    origin: str = "the program",
    title: str = "Attention by formulas",
) -> Trace:
    """Every stage that a program defines, computed from these arrays by name.

    d_output  the gradient of the last stage: adds those of everything that it follows from

    Raises ProgramError where the program is none, SizeError where it costs too much, ShapeError
    for a gradient of another shape, ConventionError where a formula has no gradient.

    >>> q = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> attend_by("A[i,j] = softmax[j](q[i,j] where j <= i)", {"q": q})["A"].value.round(3)
    array([[1.   , 0.   ],
           [0.269, 0.731]])
    """
    program, how = read(text, arrays, origin), how or Convention()
    inputs = {name: _entered(name, arrays[name], how) for name in program.inputs}
    bound = Bound(program, inputs, how.dtype)
    steps, values = bound.steps, dict(inputs)
    if d_output is not None:
        last = steps[-1]
        given = given_gradient(d_output, bound.shapes[last.name], last.name, how.seed)
        values[GIVEN_GRADIENT] = entered(given, how)
        steps = [*steps, *_gradients(bound)]
    indices = dict[str, tuple[Index, ...]]()
    for cell in (x for line in program.lines for x in cells(line.formula.body, guards=True)):
        index = tuple(x if isinstance(x, tuple) else ("entry",) for x in cell.index)
        indices.setdefault(program.names[cell.name], index)
    stages = {
        name: _given(name, x, axes_of(indices[name], x.ndim), labels) for name, x in inputs.items()
    }
    results = run(steps, values)
    shown = {name: results[name] for name in results if name != GIVEN_GRADIENT}
    heading = Heading(title, how, labels, program.remarks)
    return trace_of(steps, shown, {"": heading}, stages, values)


def _entered(name: str, x: Array, how: Convention) -> Array:
    """An input in the number type; conditions stay what they are."""
    is_exact = x.dtype.kind != "f" or name == "given_mask"
    return x.copy() if x.dtype == np.bool_ else entered(x, _EXACT if is_exact else how)


def _given(name: str, x: Array, axes: tuple[str, ...], labels: Mapping[str, Labels]) -> Stage:
    """An input as a stage."""
    sizes = dict(zip(axes, x.shape, strict=True))
    own = {axis: tuple(x) for axis, x in labels.items() if x and len(x) == sizes.get(axis)}
    return Stage(name, kind_of(name).symbol, "", x, axes, own)


def _gradients(bound: Bound) -> list[Step]:
    """The steps of the gradients of a program, each with its axes, once what they cost is known."""
    letters = {name: kind_of(name).symbol for name in bound.shapes}
    try:
        steps = backward(bound.steps, letters=letters, shapes=bound.shapes)
    except TypeError as error:
        raise ConventionError(f"{bound.program.origin}: {error}", "leave out --d-output") from None
    for at, step in enumerate(steps):
        axes = bound.steps[-1].axes
        if step.text:
            formula = parse(step.text)
            axes = axes_of(formula.index, len(formula.index))
            what = f"{bound.program.origin}: the gradients need"
            bound.afford(what, formula.body, step.sizes, bound.shapes.get(step.name[2:], ()))
        steps[at] = step._replace(axes=axes)
    return steps
