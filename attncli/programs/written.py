"""From steps back to text: a program that computes them, to be edited and run again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

from attncli.attention.masks import mask_formula, total_mask
from attncli.attention.run import Step, Values
from attncli.formula.common import joined
from attncli.formula.evaluate import axes_read, present_axes, sizes_of
from attncli.formula.expression import (
    RESERVED,
    Cell,
    Formula,
    Number,
    Param,
    Place,
    Shape,
    cells,
    every_letter,
    line_of,
    renamed,
    text_of,
    walk,
)
from attncli.formula.kernels import draw_kept
from attncli.formula.parser import parse, relettered
from attncli.stages import GIVEN_GRADIENT, spec_of
from attncli.trace import Stage, Trace


def written(steps: Sequence[Step], inputs: Values) -> str:
    """The program of a plan, for what comes with the input, by name."""
    shapes = {name: x.shape for name, x in inputs.items()}
    shapes |= {x.name: x.params["shape"] for x in steps if x.function is draw_kept}
    steps = [
        x for step in steps if step.name not in inputs for x in _by_formulas(step, steps, inputs)
    ]
    symbols = [step.symbol or spec_of(step.name).symbol for step in steps]
    used = {*inputs, *(step.name for step in steps), *RESERVED}
    names = {
        step.name: x if x.isidentifier() and symbols.count(x) == 1 and x not in used else step.name
        for step, x in zip(steps, symbols, strict=True)
    }
    lines, params, declared_sizes = list[str](), dict[str, Any](), dict[str, int]()
    lengths = defaultdict[str, set[int]](set)  # of each letter, in the inputs and in lines so far
    for step in steps:
        for x, n in _alone(step, shapes).items():
            lengths[x].add(n)
    for step in steps:
        formula, alone = parse(step.expression), _alone(step, shapes)
        read = {name: shapes.get(stage, ()) for name, stage in step.reads.items()}
        usual = {x: min(n) for x, n in lengths.items() if n}
        sizes = {**usual, **step.sizes, **sizes_of(formula, (), read, step.sizes)}
        for x in every_letter(formula):
            is_known = x in alone or x not in step.sizes or lengths[x] == {step.sizes[x]}
            if x in sizes and (
                declared_sizes[x] != sizes[x] if x in declared_sizes else not is_known
            ):
                declared_sizes[x] = sizes[x]
                lines.append(f"size[{x}] = {sizes[x]}")
            if x in sizes:
                lengths[x].add(sizes[x])
        index = present_axes(formula.index, sizes)
        shapes[step.name] = tuple(prod(sizes[str(x)] for x in axis) for axis in index)
        arrays = {name: names.get(stage, stage) for name, stage in step.reads.items()}
        body = renamed(formula.body, arrays, _named(step, params))
        line = line_of(Formula(names[step.name], formula.index, body, formula.remark))
        lines.append(line if names[step.name] == step.name else f"{step.name}: {line}")
    numbers = [f"{name} = {text_of(Number(float(x)))}" for name, x in params.items()]
    return "\n".join([*numbers, *lines, ""])


def _alone(step: Step, shapes: Mapping[str, Shape]) -> dict[str, int]:
    """How long the letters are that cells of a step have alone on an axis."""
    read = {name: shapes.get(stage, ()) for name, stage in step.reads.items()}
    axes = axes_read(parse(step.expression).body, read)
    return {str(x[0]): n for x, n, _ in axes if n is not None and type(x) is tuple and len(x) == 1}


def _named(step: Step, params: dict[str, Any]) -> dict[str, str]:
    """What the parameters of a step are called, which are added to those of the program."""
    names = dict[str, str]()
    for x in walk(parse(step.expression).body, guards=True):
        name = x.name if isinstance(x, Param) else x.letter if isinstance(x, Place) else ""
        if name in step.params:
            number, names[name] = 2, name
            while params.setdefault(names[name], step.params[name]) != step.params[name]:
                number, names[name] = number + 1, f"{name}_{number}"
    return names


def _by_formulas(step: Step, steps: Sequence[Step], inputs: Values) -> Iterator[Step]:
    """A step as steps that formulas compute; none of what is drawn, which comes with the input."""
    if step.function is total_mask:
        arrays: dict[str, Any] = {name: inputs[stage] for name, stage in step.reads.items()}
        sizes = {"i": step.params["n_q"], "j": step.params["n_k"]}
        text = mask_formula(**arrays, **step.params)
        yield step._replace(text=text, params={}, function=None, sizes=sizes)
    elif step.reads == {"x": GIVEN_GRADIENT}:
        forward = next(x for x in steps if step.name.endswith(f"d_{x.name}") and x.text)
        index = parse(forward.expression).index
        text = line_of(Formula("d", index, Cell("x", index)))
        yield step._replace(text=text, function=None)
    elif isinstance(step.function, partial):  # after a cache
        new, (projection,) = f"new_{step.name}", step.function.args
        past = step.reads["past"]
        reads = {x: stage for x, stage in step.reads.items() if x != "past"}
        n = inputs[past].shape[-2] + inputs[reads["x"]].shape[-2]
        text = relettered(projection.expression, j="l")
        yield projection._replace(name=new, symbol=new, text=text, reads=reads)
        yield step._replace(
            text=joined(projection.expression.partition(" = ")[0]),
            reads={"past": past, "new": new},
            sizes={**projection.sizes, "j": n},
            function=None,
        )
    elif step.text:
        yield step


def program_of(trace: Trace) -> str:
    """The program that computes the stages of a trace again, of one block, by its formulas.

    >>> import attncli
    >>> trace = attncli.attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]])
    >>> print(program_of(trace).splitlines()[-1])
    output: O[b,i,e] = sum[j](A[b,i,j] * v[b,j,e])
    """
    stages = [step for step in trace.steps if isinstance(step, Stage)]
    steps = [
        Step(x.name, x.expression, _all_reads(x), x.params, symbol=x.symbol, sizes=x.sizes)
        for x in stages
        if x.expression
    ]
    return written(steps, {x.name: x.value for x in stages if not x.expression})


def _all_reads(stage: Stage) -> dict[str, str]:
    """What a stage reads, and what only says which terms count, which it does not name."""
    names = [cell.name for cell in cells(parse(stage.expression).body, guards=True)]
    return {name: stage.reads.get(name, name) for name in names}
