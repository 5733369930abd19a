"""The bounds of a step: what it may cost, and the places of arrays that it may read.

What it costs is known from the shapes of the inputs. A place that is computed from numbers, as in
table[bucket[i,j],h], is looked at when the stage is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from attncli import budget
from attncli.arrays import Array, Like
from attncli.attention.memory import step_bytes
from attncli.attention.run import Step
from attncli.formula import memory
from attncli.formula.compute import compiled, compute
from attncli.formula.derivative import ZERO
from attncli.formula.evaluate import axes_read
from attncli.formula.expression import (
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Number,
    Over,
    Shape,
    children,
    every_letter,
    free_letters,
    renamed,
    text_of,
    with_bound,
)
from attncli.formula.kernels import NUMBERS
from attncli.formula.parser import FormulaError, parse
from attncli.programs.text import Statement

_BYTES = 8  # of a number
_AT_ONCE = 4  # numbers that may be computed for each that may be held: a second, at 1GB


class Costs:
    """What steps cost together."""

    def __init__(self) -> None:
        self.kept = self.computed = 0  # bytes, and numbers
        self.needs = list[tuple[int, str, str]]()  # bytes up to each step, what needs them, a hint

    def add(self, subject: str, step: Step, shapes: Mapping[str, Shape]) -> Shape:
        """Adds a step, whose shape it gives; SizeError where that is more than is allowed."""
        number = np.dtype(NUMBERS[step.dtype or "float64"])
        likes = {stage: Like(shapes[stage], number) for stage in step.reads.values()}
        stage, value, most = step_bytes(step, likes)
        read_shapes = {name: shapes[read] for name, read in step.reads.items()}
        reads = (*read_shapes.items(),)
        computed, largest = compiled(step.text, reads, (*step.sizes.items(),)).cost()
        if step.function is not None:  # whose places are looked at before
            for _, _, test, sizes in _tests(parse(step.text).body, read_shapes, step.sizes):
                with np.errstate(all="ignore"):  # of constants, which are computed once
                    function = compiled(test, reads, (*sizes.items(),))
                most = max(most, memory.bytes_of(function, _BYTES).most)
        self.computed += computed + stage.size
        need = max(self.kept + most, _BYTES * self.computed // _AT_ONCE)
        self.kept += value
        hint = " · ".join(f"{x} {step.sizes[x]}" for x in sorted(largest) if x in step.sizes)
        hint = f"its largest array has {hint}" if hint else ""
        self.needs.append((need, f"{subject} need", hint))
        _check(self.needs[-1:])
        return stage.shape

    def again(self) -> Costs:
        """The same costs, held against the memory that there is now; SizeError as in `add`."""
        _check(self.needs)
        costs = Costs()
        costs.kept, costs.computed, costs.needs = self.kept, self.computed, [*self.needs]
        return costs


def _check(needs: Sequence[tuple[int, str, str]]) -> None:
    """SizeError where one of these needs is more than is allowed beside what is held."""
    resident = budget.held()
    for need, subject, hint in needs:
        budget.check_bytes(resident + need, subject, hint, resident=resident)


def checked(
    step: Step,
    formula: Formula,
    shapes: Mapping[str, Shape],
    ours: Mapping[str, str],
    statement: Statement,
) -> Step:
    """The step; one that computes places says where in the text one is outside of its array.

    formula  as it is written; ours: the names by which the step reads some of its arrays
    """
    if not any(True for _ in _outside(formula.body, shapes)):
        return step

    def function(**values: Any) -> Array:
        for cell, fault, test, sizes in _tests(formula.body, shapes, step.sizes, ours):
            for at in np.argwhere(compute(test, values, sizes))[:1].tolist():
                letters = (str(x) for axis in test.index for x in axis)
                places = dict(zip(letters, at, strict=True))
                rows = [x for x in free_letters(cell) if x in places]
                here = [f"{x.rstrip('′')} = {places[x]}" for x in rows]
                suffix = f", where {', '.join(here)}" * bool(here)
                words = f"this is {fault}{suffix}; keep it out by where or if"
                raise statement.error(FormulaError(words, part=text_of(cell).replace("′", "")))
        return compute(step.text, values, step.sizes)

    return step._replace(function=function)


def _tests(
    body: Expr,
    shapes: Mapping[str, Shape],
    sizes: Mapping[str, int],
    ours: Mapping[str, str] = {},
) -> Iterator[tuple[Cell, str, Formula, dict[str, int]]]:
    """The same as `_outside`, what may be wrong as a formula, with the lengths of its letters."""
    for cell, fault, test in _outside(body, shapes):
        plain = {x: x.rstrip("′") for x in every_letter(Formula("X", (), test))}
        lengths = {x: sizes[y] for x, y in plain.items() if y in sizes}
        letters = [x for x in free_letters(test) if x in lengths]
        out = Formula("X", tuple((x,) for x in letters), renamed(test, ours))
        yield cell, fault, out, lengths


def _outside(
    node: Expr, shapes: Mapping[str, Shape], guards: tuple[Expr, ...] = ()
) -> Iterator[tuple[Cell, str, Expr]]:
    """The cells at places that are computed, what may be wrong with one, and when it is.

    guards  under which the node counts

    Each sum has letters of its own: j′ in one over j.
    """
    if isinstance(node, Over) and node.kind != "softmax":
        node = with_bound(node, {x: (f"{x}′",) for x in node.letters})
    parts: list[tuple[Expr, tuple[Expr, ...]]]
    parts = [(x, ()) for x in children(node, guards=True)]
    match node:
        case Cell():
            for axis, size, cell in axes_read(node, shapes):
                if cell is node and size is not None and not isinstance(axis, tuple):
                    ends = Apply("<", (axis, ZERO)), Apply(">", (axis, Number(size - 1.0)))
                    between = Apply("!=", (axis, Apply("floor", (axis,))))
                    for fault, test in (
                        (f"outside the array, whose places are 0 to {size - 1}", Apply("or", ends)),
                        ("between two places of the array", between),
                    ):
                        yield (
                            node,
                            fault,
                            reduce(lambda a, b: Apply("and", (a, b)), (*guards, test)),
                        )
        case If(test, then, otherwise):
            parts = [(test, ()), (then, (test,)), (otherwise, (Apply("not", (test,)),))]
        case Apply("and", (first, second)):
            parts = [(first, ()), (second, (first,))]
        case Over(_, _, body, where) if where is not None:
            parts = [(x, (where,) if x is body else ()) for x, _ in parts]
    for part, more in parts:
        yield from _outside(part, shapes, (*guards, *more))
