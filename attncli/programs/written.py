"""From steps back to text: a program that computes them, to be edited and run again.

What a function computes in a plan is written as lines: the mask, and what comes after a cache.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np

from attncli.attention.masks import total_mask
from attncli.attention.run import Step, Values
from attncli.expression import (
    FUNCTIONS,
    KINDS,
    MORE_KINDS,
    ONE,
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Index,
    Number,
    Over,
    Param,
    Place,
    Shape,
    cells,
    letters_at,
    letters_in,
    line_of,
    parse,
    parsed,
    rebuilt,
    sizes_of,
    text_of,
    walk,
    with_letters,
)
from attncli.programs.read import literal, sizes_in
from attncli.stages import GIVEN_GRADIENT, kind_of
from attncli.trace import Stage, Trace

_RESERVED = {*FUNCTIONS, *KINDS, *MORE_KINDS, "size", "inf", "where"}


def written(steps: Sequence[Step], given: Values, scores: Shape) -> str:
    """The program of a plan.

    given   what comes with the input, by name
    scores  that of the scores, [batch, head, n_q, n_k] or its last axes
    """
    steps = [x for step in steps for x in _as_formulas(step, steps, given, scores)]
    symbols = [step.symbol or kind_of(step.name).symbol for step in steps]
    taken = {*given, *(step.name for step in steps), *_RESERVED}
    names = {
        step.name: x
        for step, x in zip(steps, symbols, strict=True)
        if x.isidentifier() and symbols.count(x) == 1 and x not in taken
    }
    lines, params, said = list[str](), dict[str, Any](), dict[str, int]()
    shapes, lengths = {name: x.shape for name, x in given.items()}, defaultdict[str, set[int]](set)
    for step in steps:
        for cell in cells(parse(step.expression).body, guards=True):
            for x, n in _alone(cell, shapes.get(step.reads[cell.name], ())):
                lengths[x].add(n)
    every = {x for step in steps for x in letters_in(parse(step.expression).body)} | {*lengths}
    for step in steps:
        formula, renamed = parse(step.expression), dict[str, str]()
        for name in dict.fromkeys(_params(formula.body, step)):
            number, new = 2, name
            while params.setdefault(new, step.params[name]) != step.params[name]:
                new, number = f"{name}_{number}", number + 1
            renamed[name] = new
        own = {name: shapes[of] for name, of in step.reads.items()}
        body_cells = cells(formula.body, guards=True)
        known = {x for cell in body_cells for x, _ in _alone(cell, own[cell.name])}
        sizes = {x: min(n) for x, n in lengths.items() if n} | {**step.sizes}
        sizes |= sizes_of(formula, (), own, step.sizes)
        change = dict[str, Index]()
        letters = [*letters_at(formula.index), *letters_in(formula.body)]
        for x in dict.fromkeys([*letters, *sizes_in(formula.body)]):
            if x not in step.sizes or x in known or lengths[x] == {step.sizes[x]}:
                continue
            if lengths[x]:  # it is of another length elsewhere
                change[x] = (next(y for y in "nfcopqstuvwxyzkl" if y not in every),)
                every.add(str(change[x][0]))
            letter = str(change.get(x, (x,))[0])
            if said.setdefault(letter, step.sizes[x]) == step.sizes[x]:
                lines.append(f"size[{letter}] = {step.sizes[x]}")
        for x in {*letters} & sizes.keys():
            lengths[str(change.get(x, (x,))[0])].add(sizes[x])
        index = formula.index
        while index and not {*map(str, index[0])} <= sizes.keys():
            index = index[1:]
        shapes[step.name] = tuple(prod(sizes[str(x)] for x in axis) for axis in index)
        whole = Cell("", formula.index), formula.body
        left, body = (with_letters(x, change) for x in whole) if change else whole
        reads = {own_name: names.get(of, of) for own_name, of in step.reads.items()}
        symbol = names.get(step.name, step.name)
        assert isinstance(left, Cell)  # noqa: S101 - as it was
        new_index = tuple(x for x in left.index if isinstance(x, tuple))
        line = line_of(Formula(symbol, new_index, _renamed(body, reads, renamed), formula.remark))
        lines.append(f"{step.name}: {line}" if symbol != step.name else line)
    numbers = [f"{name} = {literal(x)}" for name, x in params.items()]
    return "\n".join([*numbers, *lines, ""])


def _alone(cell: Cell, shape: Shape) -> Iterator[tuple[str, int]]:
    """The letters that a cell has alone on an axis, and how long they are."""
    n = len(cell.index) - len(shape)
    for axis, size in zip(cell.index[n:], shape, strict=n >= 0):
        if isinstance(axis, tuple) and len(axis) == 1 and isinstance(axis[0], str):
            yield axis[0], size


def program_of(trace: Trace) -> str:
    """The program that computes the stages of a trace again, of one block, by its formulas."""
    stages = [step for step in trace.steps if isinstance(step, Stage)]
    known = {stage.name: stage for stage in stages if stage.expression}
    steps = [
        Step(x.name, x.expression, _all_reads(x), x.params, symbol=x.symbol, sizes=x.sizes)
        for x in known.values()
    ]
    given = {x.name: x.value for x in stages if x.name not in known}
    return written(steps, given, ())


def _all_reads(stage: Stage) -> dict[str, str]:
    """What a stage reads, and what only says which terms count, which it does not name."""
    names = [cell.name for cell in cells(parse(stage.expression).body, guards=True)]
    return {name: stage.reads.get(name, name) for name in names}


def _params(body: Expr, step: Step) -> Iterator[str]:
    for x in walk(body, guards=True):
        name = getattr(x, "name", "") if isinstance(x, Param) else getattr(x, "letter", "")
        if isinstance(x, Param | Place) and name in step.params:
            yield name


def _renamed(body: Expr, reads: Mapping[str, str], params: Mapping[str, str]) -> Expr:
    """The expression with the names that a program has for arrays and parameters."""

    def change(x: Expr) -> Expr:
        match x:
            case Cell(name, index):
                return Cell(reads[name], index)
            case Param(name) | Place(name) if name in params:
                return Param(params[name])
        return x

    return rebuilt(body, change)


def _as_formulas(step: Step, steps: Sequence[Step], given: Values, scores: Shape) -> Iterator[Step]:
    """A step as steps that formulas compute; none of what is drawn, which comes with the input."""
    if step.name in given:
        return
    if step.function is total_mask:
        mask = _mask(step, given, scores)
        names = {x.name for x in cells(parse(mask.text).body, guards=True)}
        yield mask._replace(reads={name: name for name in names})
    elif step.reads == {"x": GIVEN_GRADIENT}:
        of = next(x for x in steps if step.name.endswith(f"d_{x.name}") and x.text)
        index = parse(of.expression).index
        text = line_of(Formula("d", index, Cell("x", index)))
        yield step._replace(text=text, function=None)
    elif step.function is not None and step.text:  # after a cache
        formula = parse(step.expression)
        assert isinstance(formula.body, If)  # noqa: S101 - see formulas.after_cache
        moved = Apply("-", (Place("j"), Param("n_cached")))

        def own(x: Expr) -> Expr:
            if not isinstance(x, Cell):
                return x
            return Cell(x.name, tuple(("l",) if axis == moved else axis for axis in x.index))

        index = tuple(("l",) if axis == ("j",) else axis for axis in formula.index)
        new = line_of(Formula("N", index, rebuilt(formula.body.otherwise, own)))
        reads = {name: of for name, of in step.reads.items() if name != "past"}
        name, past = f"new_{step.name}", formula.body.then
        yield step._replace(name=name, text=new, reads=reads, function=None, symbol=name)
        j = Apply("+", (Place("j"), parse("x[] = 0").body))
        assert isinstance(past, Cell)  # noqa: S101
        both = (
            Cell(n, tuple(to if axis == ("j",) else axis for axis in past.index))
            for n, to in (("past", j), ("new", moved))
        )
        body = If(formula.body.condition, *both)
        n = {"j": sum(given[step.reads[x]].shape[-2] for x in ("past", "x"))}
        reads = {"past": step.reads["past"], "new": name}
        text = line_of(replace(formula, body=body, remark=""))
        sizes = {**step.sizes, **n}
        yield step._replace(text=text, reads=reads, function=None, sizes=sizes)
    elif step.text:
        yield step


def _mask(step: Step, given: Values, scores: Shape) -> Step:
    """The mask of everything that restricts, as a formula: that of masks.total_mask."""
    how, mask = (
        step.params,
        given.get("given_mask") if "given_mask" in step.reads.values() else None,
    )
    length = "" if "kv_len" not in step.reads else "kv_len[b]" if len(scores) > 3 else "kv_len[0]"
    i = f"i + {how['n_past']}" if how["n_past"] else "i"
    if how["align"] == "bottom-right":
        i = f"i + ({length or 'size[j]'} - size[i])"
    around = [f"j <= {i}"] if how["causal"] else []
    if how["causal"] and how["align"] == "open-last" and how["n_q"] < how["n_k"]:
        around = [f"({around[0]} or i == size[i] - 1)"]
    if how["window_size"] is not None:
        left, right = how["window_size"]
        around += [f"j - ({i}) >= -{left}"] * (left >= 0)
        around += [f"j - ({i}) <= {right}"] * (right >= 0)
    may, number = [*around, *([f"j < {length}"] if length else [])], "0"
    shapes = [scores[-2:]] * bool(around or mask is None or how["unmasks"])
    shapes += [(scores[0] if len(scores) > 3 else 1, 1, 1, scores[-1])] * bool(length)
    if mask is not None:
        number = cell = f"given_mask[{_letters(mask.shape, scores)}]"
        shapes.append(mask.shape)
        is_number = mask.dtype != np.bool_
        if not is_number or how["numbers"] == "truth":
            cell += " != 0" * is_number
            cell = cell if how["means"] != "ignore" else f"not ({cell})"
            number = (
                f"(1 if {cell} else 0)" if how["means"] == "add" else f"(0 if {cell} else -inf)"
            )
    text = f"{number} if {' and '.join(may)} else -inf" if may else number
    if how["unmasks"]:
        body = parsed(text)
        is_empty: Expr = Apply("==", (body, Number(-inf)))
        if "j" in letters_in(body):
            counted = with_letters(Apply("not", (is_empty,)), {"j": ("l",)})
            is_empty = Apply("==", (Over("sum", ("l",), ONE, counted), Number(0.0)))
        other = f"(0 if {' and '.join(around)} else -inf)" if around else "0"
        text = f"{other} if {text_of(is_empty)} else {text_of(body)}"
    letters = _letters(np.broadcast_shapes(*shapes)[-len(scores) :], scores)
    return step._replace(
        text=f"M[{letters}] = {text}", params={}, function=None, sizes={"l": scores[-1]}
    )


def _letters(shape: Shape, scores: Shape) -> str:
    """The letters of a mask of this shape: none for an axis along which it is the same for all."""
    n, letters = len(shape), "bhij"[-len(scores) :]
    pairs = zip(letters[len(letters) - n :], shape, scores[len(scores) - n :], strict=True)
    return ",".join("_" if size < whole else x for x, size, whole in pairs)
