"""From a program and its inputs to a Trace: every stage, and the gradients where they are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.backward import backward
from attncli.attention.inputs import cast_input
from attncli.attention.run import Heading, Labels, Step, Values, run, trace_of
from attncli.attention.shapes import Gradient, as_numbers, given_gradient
from attncli.convention import Convention, DType
from attncli.errors import ConventionError, ShapeError
from attncli.formula.expression import Shape
from attncli.formula.kernels import draw_kept
from attncli.formula.matrices import axes_of
from attncli.programs.read import SHOWN, Line, Program, arrays_named, lines_of, read
from attncli.programs.variants import text_of
from attncli.programs.written import written
from attncli.stages import GIVEN_GRADIENT, HIDDEN, OUTPUT, QKV, gradient_of, spec_of
from attncli.trace import Stage, Trace

if TYPE_CHECKING:
    from attncli.transformer.layers import Alter

_EXACT = Convention()
"""For a mask, and whole numbers, which are places and lengths: they are not rounded."""


def attend_by(
    formulas: str,
    arrays: Mapping[str, npt.ArrayLike],
    *,
    convention: Convention | None = None,
    labels: Mapping[str, Labels] = {},
    d_output: Gradient | None = None,
    others: Sequence[str] = (),
    title: str = "",
    origin: str = "",
    ready: Callable[[Mapping[str, Shape]], None] | None = None,
) -> Trace:
    """Every stage that a program defines, computed from these arrays by name.

    formulas    a text of lines (attncli help formulas), a file, or the name of a variant
    convention  its number type, and its seed for a gradient that is drawn
    labels      the names of the tokens by axis, "query" and "key"
    d_output    the gradient of the last stage: adds those of everything that it follows from
    others      lines in the place of those of the same stage or parameter
    origin      what messages call a text
    ready       called with the shape of every stage by name, before the first is computed

    Raises ProgramError where the program is none, SizeError where it costs too much, ShapeError
    for a gradient of another shape, ConventionError where a formula has no gradient.

    >>> q = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> attend_by("A[i,j] = softmax[j](q[i,j] where j <= i)", {"q": q})["A"].value.round(3)
    array([[1.   , 0.   ],
           [0.269, 0.731]])
    """
    text, origin = (formulas, origin) if origin else text_of(formulas)
    source = text, origin, tuple(others)
    lines = _lines(*source)
    numbers = {name: as_numbers(x, name) for name, x in arrays.items()}
    convention = convention or Convention()
    if fields := convention.changes().keys() - {"dtype", "seed", "dropout"}:
        message = f"{', '.join(sorted(fields))} is not of formulas: these say it themselves"
        raise ConventionError(message, "leave it out")
    defined = {name for line in lines for name in line.names}
    is_written_out = GIVEN_GRADIENT in arrays_named(lines) - defined
    if d_output is not None and is_written_out:
        numbers[GIVEN_GRADIENT] = _where_read(lines, numbers, d_output, convention.seed)
        d_output = None
    kinds = tuple([(name, x.shape, x.dtype == np.bool_) for name, x in numbers.items()])
    program = _compiled(*source, kinds, convention.dtype).again()
    inputs = dict[str, Array]()
    for name in program.inputs:
        x = numbers[name]
        is_exact = x.dtype.kind != "f" or name == "given_mask"
        inputs[name] = (
            x.copy() if x.dtype == np.bool_ else cast_input(x, _EXACT if is_exact else convention)
        )
    steps, values = program.steps, {**inputs}
    shapes: Mapping[str, Shape] = program.shapes
    if d_output is not None:
        last = steps[-1].name
        d = given_gradient(d_output, program.shapes[last], last, convention.seed)
        values[GIVEN_GRADIENT] = cast_input(d, convention)
        gradients, shapes = _gradients(program, origin)
        steps = [*steps, *gradients]
    if ready is not None:
        ready({step.name: shapes[step.name] for step in steps})
    stages = dict[str, Stage]()
    for name, x in inputs.items():
        axes = input_axes(program, name)
        sizes = dict(zip(axes, x.shape, strict=True))
        axis_labels = {
            axis: tuple(x) for axis, x in labels.items() if x and len(x) == sizes.get(axis)
        }
        stages[name] = Stage(name, spec_of(name).symbol, "", x, axes, axis_labels)
    results = run(steps, values)
    hidden = {GIVEN_GRADIENT} - defined
    visible = {name: results[name] for name in results if name not in hidden}
    title = title or f"Attention by the formulas of {origin}"
    heading = Heading(title, None, labels, program.remarks)
    return trace_of(steps, visible, {"": heading}, stages, values)


@lru_cache(64)
def _lines(text: str, origin: str, others: tuple[str, ...]) -> tuple[Line, ...]:
    """The lines of a text, with others in the place of some."""
    return tuple(lines_of(text, origin, others))


@lru_cache(64)
def _compiled(
    text: str,
    origin: str,
    others: tuple[str, ...],
    kinds: tuple[tuple[str, tuple[int, ...], bool], ...],
    dtype: DType,
) -> Program:
    """The program of a text for inputs of these shapes, which are of true and false or not."""
    arrays: dict[str, Array] = {
        name: np.broadcast_to(np.zeros((), np.bool_ if is_truth else np.float64), shape)
        for name, shape, is_truth in kinds
    }
    return read(_lines(text, origin, others), arrays, origin, dtype)


def _where_read(
    lines: Sequence[Line], arrays: Mapping[str, Array], d: Gradient, seed: int
) -> Array:
    """The gradient that a program reads, of the shape of the stage whose gradient it is."""
    at = next(n for n, line in enumerate(lines) if GIVEN_GRADIENT in arrays_named([line]))
    stage = lines[at].name.removeprefix("d_")
    return given_gradient(d, read(lines[:at], arrays).shapes.get(stage, ()), stage, seed)


def _gradients(program: Program, origin: str) -> tuple[list[Step], Mapping[str, Shape]]:
    """The steps of the gradients of a program, once what they cost is known; and all shapes."""
    shapes = program.shapes
    letters = {name: spec_of(name).symbol for name in shapes}
    try:
        steps = backward(program.steps, letters=letters, shapes=shapes)
    except TypeError as error:
        raise ConventionError(f"{origin}: {error}", "leave out --d-output") from None
    names = {*program.inputs, *(step.name for step in program.steps)}
    twice = names & {GIVEN_GRADIENT, *(step.name for step in steps)}
    if twice:
        message = f"{min(twice)} is a stage, and a gradient would be called so"
        raise ConventionError(f"{origin}: {message}", "give the stage another name")
    all_shapes = {**shapes, GIVEN_GRADIENT: shapes[program.steps[-1].name]}
    for step in steps:
        subject, shape = f"{origin}: the gradients", all_shapes[GIVEN_GRADIENT]
        all_shapes[step.name] = program.costs.add(subject, step, all_shapes) if step.text else shape
    axes = {gradient_of(step.name): step.axes for step in program.steps}
    axes |= {gradient_of(name): input_axes(program, name) for name in program.inputs}
    hidden = {step.name for step in steps if spec_of(step.name).role in HIDDEN}
    result = [
        step._replace(
            axes=axes.get(step.name, step.axes), kind=SHOWN if step.name in hidden else step.kind
        )
        for step in steps
    ]
    return result, all_shapes


def input_axes(program: Program, name: str) -> tuple[str, ...]:
    """The names of the axes of an input: of letters, or as usual where it is read at places."""
    index, usual = program.inputs[name], spec_of(name).axes.split()
    n = len(program.shapes[name])
    axes = list[str]()
    for at, axis in zip(range(-n, 0), index[len(index) - n :], strict=True):
        is_letters = isinstance(axis, tuple) and all(isinstance(x, str) for x in axis)
        axis_name = axes_of([axis])[0] if is_letters and isinstance(axis, tuple) else ""
        axes.append(axis_name or (usual[at] if len(usual) >= -at else "entry"))
    return tuple(x if axes.count(x) == 1 else f"{x} {at}" for at, x in enumerate(axes, start=1))


# ---- in the place of an attention: of a sentence that is explained, or in a layer


def replacing(source: tuple[str, str] | None, lines: Sequence[str], dtype: DType) -> Alter:
    """What puts the stages of a program in the place of those of an attention.

    source  the text of a program and what messages call it; None: that of the attention itself
    lines   other lines for some of its stages

    -> a function of the steps and of what they read (of q, k and v only the shapes count), to the
    steps with those of the program from the scores to the output, and the shapes of all of these
    """

    def alter(steps: list[Step], values: Values) -> tuple[list[Step], Mapping[str, Shape]]:
        names = [step.name for step in steps]
        first = max((at + 1 for at, name in enumerate(names) if name in QKV), default=0)
        last = names.index(OUTPUT) + 1
        text, origin = source or ("", "the formulas")
        (*lead, n_q, _), d_v = values["q"].shape, values["v"].shape[-1]
        if source is None:
            text = written(steps[first:last], values)
        drawn = [step for step in steps if step.function is draw_kept]
        masks = {step.name: np.broadcast_to(True, step.params["shape"]) for step in drawn}
        program = read(lines_of(text, origin, lines), {**values, **masks}, origin, dtype)
        new_steps = [*(steps[:first] if {*program.inputs} & {*QKV} else []), *drawn, *program.steps]
        end, shape = new_steps[-1].name, program.shapes[new_steps[-1].name]
        if shape == (*lead, n_q, d_v):
            reads = [
                {x: end if stage == OUTPUT else stage for x, stage in s.reads.items()}
                for s in steps
            ]
            after = [s._replace(reads=x) for s, x in zip(steps, reads, strict=True)]
            return [*new_steps, *after[last:]], program.shapes
        if shape != (n_q, np.prod(lead, dtype=int) * d_v) and len(shape) != 2:
            message = (
                f"{end} is {' × '.join(map(str, shape))}, and should be the output of the heads"
            )
            raise ShapeError(
                message, f"{' × '.join(map(str, (*lead, n_q, d_v)))}, or rows of tokens"
            )
        return new_steps, program.shapes

    return alter
