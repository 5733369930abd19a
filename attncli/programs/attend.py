"""From a program and its inputs to a Trace: every stage, and the gradients where they are asked."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.backward import backward
from attncli.attention.inputs import entered
from attncli.attention.matrices import axes_of
from attncli.attention.run import Heading, Labels, Step, run, trace_of
from attncli.attention.shapes import Gradient, as_numbers, given_gradient
from attncli.convention import Convention
from attncli.errors import ConventionError
from attncli.expression import Index, cells, parse
from attncli.programs.bind import Bound
from attncli.programs.read import defined, needs, read, statements
from attncli.programs.variants import text_of
from attncli.stages import GIVEN_GRADIENT, kind_of
from attncli.trace import Stage, Trace

_EXACT = Convention()
"""For a mask, and whole numbers, which are places and lengths: they are not rounded."""


def attend_by(
    formulas: str,
    arrays: Mapping[str, npt.ArrayLike],
    *,
    how: Convention | None = None,
    labels: Mapping[str, Labels] = {},
    d_output: Gradient | None = None,
    title: str = "",
    origin: str = "",
) -> Trace:
    """Every stage that a program defines, computed from these arrays by name.

    formulas  a text of lines (attncli help formulas), a file, or the name of a variant
    how       its number type, and its seed for a gradient that is drawn
    labels    the names of the tokens by axis, "query" and "key"
    d_output  the gradient of the last stage: adds those of everything that it follows from
    origin    what messages call a text

    Raises ProgramError where the program is none, SizeError where it costs too much, ShapeError
    for a gradient of another shape, ConventionError where a formula has no gradient.

    >>> q = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> attend_by("A[i,j] = softmax[j](q[i,j] where j <= i)", {"q": q})["A"].value.round(3)
    array([[1.   , 0.   ],
           [0.269, 0.731]])
    """
    text, origin = (formulas, origin) if origin else text_of(formulas)
    known = {name: as_numbers(x, name) for name, x in arrays.items()}
    how = how or Convention()
    if d_output is not None and GIVEN_GRADIENT in needs(text):  # its backward pass is written out
        known[GIVEN_GRADIENT] = _where_read(text, known, d_output, how, origin)
        d_output = None
    program = read(text, known, origin)
    if others := how.changes().keys() - {"dtype", "seed", "dropout"}:
        what = f"{', '.join(sorted(others))} is not of formulas: these say it themselves"
        raise ConventionError(what, "leave it out")
    inputs = {name: _entered(name, known[name], how) for name in program.inputs}
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
    lengths = [
        (axis, n)
        for step in steps
        if step.name in shown
        for axis, n in zip(step.axes[::-1], shown[step.name].shape[::-1], strict=False)
    ]
    own = {  # names for all entries of an axis, wherever it is
        axis: names
        for axis, names in labels.items()
        if names and all(n == len(names) for other, n in lengths if other == axis)
    }
    title = title or f"Attention by the formulas of {origin}"
    heading = Heading(title, None, own, program.remarks)
    return trace_of(steps, shown, {"": heading}, stages, values)


def _where_read(
    text: str, known: Mapping[str, Array], d: Gradient, how: Convention, origin: str
) -> Array:
    """The gradient that a program reads, of the shape of the stage whose gradient it is."""
    first = next(x for x in statements(text) if f"{GIVEN_GRADIENT}[" in x.code.replace(" ", ""))
    program = read(text[: first.start], known, origin)
    inputs = {name: _entered(name, known[name], how) for name in program.inputs}
    of = min(defined(first.code) - {""}, key=lambda name: not name.startswith("d_")).removeprefix(
        "d_"
    )
    shapes = Bound(program, inputs, how.dtype).shapes
    return given_gradient(d, shapes.get(of, ()), of, how.seed)


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
    for step in (step for step in steps if step.text):
        what, shape = f"{bound.program.origin}: the gradients need", bound.shapes.get(step.name[2:])
        bound.afford(what, parse(step.text).body, step.sizes, shape or ())
    return steps
