"""The formula of a stage as the page's script reads it: a tree in JSON, bound to what it reads.

    S[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d])
    {"is": ["sum d", ["*", {"q": ["b", "h", "i", "d"]}, {"k": ["b", "h", "j", "d"]}]],
     "at": ["b", "h", "i", "j"], "sizes": {"d": 2, …}, "reads": {"q": "q", "k": "k"}}

A list is an operator and what it is of; a string a parameter, or if it is one letter its place; an
object a cell and its axes: letters side by side, a fixed place, or a computed one in a list. What
runs along letters is ["sum d", body, where, sink, what a softmax of nothing is]. The last ones are
left out where there are none.
"""

from __future__ import annotations

import math
from base64 import b64encode
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.files.write import plain_lists
from attncli.formula.evaluate import Values, place_along
from attncli.formula.expression import (
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
    Size,
    cells,
    letters_at,
    rebuilt,
    walk,
)
from attncli.page.arithmetic import bound_formula
from attncli.page.select import Block
from attncli.page.sources import array_aside, dotted
from attncli.trace import Stage

ROOT = "root"
"""The parameter √d_k, by which scores are divided."""


def tree_of(node: Expr) -> Any:
    """An expression in JSON.

    >>> from attncli.formula.parser import parse
    >>> tree_of(parse("μ[i] = sum[m](x[i,m]) / size[m]").body)
    ['/', ['sum m', {'x': ['i', 'm']}], ['size', 'm']]
    """
    match node:
        case Number(value):
            return _number(value)
        case Param(name) | Place(name):
            return name
        case Size(letter):
            return ["size", letter]
        case Cell(name, index):
            return {name: [*map(_axis, index)]}
        case If(condition, then, otherwise):
            return ["if", tree_of(condition), tree_of(then), tree_of(otherwise)]
        case Over(kind, letters, body, where, sink, empty):
            more = [x if x is None else tree_of(x) for x in (where, sink)] + [empty or None]
            while more and more[-1] is None:
                more.pop()
            return [f"{kind} {''.join(letters)}", tree_of(body), *more]
        case Apply("floor" | "sigmoid" | "softplus" as function, (x,)):
            of_x = tree_of(x)
            share, log = ["/", 1, ["+", 1, ["exp", ["neg", of_x]]]], ["ln", ["+", 1, ["exp", of_x]]]
            return {"floor": ["//", of_x, 1], "sigmoid": share, "softplus": log}[function]
        case Apply("/", (x, Apply("sqrt", (Size(),)))):  # the scale, which a page may change
            return ["/", tree_of(x), ROOT]
        case Apply("exp2", (x,)):
            return ["**", 2, tree_of(x)]
        case Apply(function, args):
            return [function, *map(tree_of, args)]
    raise TypeError(node)


def _number(value: float) -> float | str:
    if not math.isfinite(value):
        return "-Infinity" if value < 0 else "Infinity"
    return int(value) if value.is_integer() else value


def _axis(axis: Index | Expr) -> Any:
    if not isinstance(axis, tuple):
        return [tree_of(axis)]
    return axis[0] if axis and isinstance(axis[0], int) else "".join(map(str, axis))


def _computed(node: Expr, values: Values) -> Expr:
    """A cell in which p·0 is a computed place."""
    if not isinstance(node, Cell):
        return node
    shape = np.shape(values.arrays.get(node.name, ()))
    n, index = len(node.index) - len(shape), [*node.index]
    for at, axis in enumerate(node.index):
        if (
            at >= n
            and isinstance(axis, tuple)
            and len(axis) > 1
            and len(letters_at([axis])) < len(axis)
        ):
            index[at] = place_along(axis, shape[at - n], values.sizes)
    return Cell(node.name, tuple(index))


def formula(formula: Formula, sizes: dict[str, int]) -> dict[str, Any]:
    """A formula without what it reads; sizes of 1 are left out."""
    several = {letter: size for letter, size in sizes.items() if size > 1}
    words = {"remark": formula.remark} if formula.remark else {}
    pair = {"pair": formula.symbol} if formula.in_words else {}
    axes = [*map(_axis, formula.index)]
    return {"is": tree_of(formula.body), "at": axes, "sizes": several, **words, **pair}


def stage_tree(block: Block, stage: Stage) -> dict[str, Any]:
    """The formula of a stage with the stages that it reads, by their dotted names.

    Empty where it has none, where the trace does not hold all that it is computed from, or where
    a letter, a parameter or an index is not what the formula takes it for.
    """
    binding = bound_formula(block, stage)
    if binding is None:
        return {}
    values, stages = binding
    body = rebuilt(values.formula.body, lambda node: _computed(node, values))
    names = dict.fromkeys(cell.name for cell in cells(body, guards=True))
    arrays = {}
    for name in (x for x in names if x not in stages):
        array = array_aside(block, stage, name, values)
        if array is None:
            return {}
        arrays[name] = {"shape": np.shape(array), "float64": bytes_of(array)}
    reads = {name: dotted(block, stage, name, source) for name, source in stages.items()}
    if None in reads.values():
        return {}
    nodes = [*walk(body, guards=True)]
    param_names = [node.name for node in nodes if isinstance(node, Param)]
    letters = [node.letter for node in nodes if isinstance(node, Place)]
    param_names += [letter for letter in letters if letter not in values.sizes]
    params = {name: stage.params.get(name) for name in param_names}
    if not all(isinstance(x, int | float) for x in params.values()):
        return {}
    if any(node.letter not in values.sizes for node in nodes if isinstance(node, Size)):
        return {}
    tree = formula(replace(values.formula, body=body), dict(values.sizes))
    read = {name: source for name, source in reads.items() if name in names}
    tree |= {"reads": read} | ({"arrays": arrays} if arrays else {})
    roots = {letter for node in nodes for letter in _root(node)}
    if len(roots) > 1:  # the page has one scale, and these are none
        tree["is"] = tree_of(rebuilt(body, _no_scale))
    for letter in roots if len(roots) == 1 else ():
        params[ROOT] = math.sqrt(values.sizes[letter])
    numbers = {name: plain_lists(np.asarray(x)) for name, x in params.items()}
    return tree | ({"params": numbers} if numbers else {})


def _root(node: Expr) -> list[str]:
    """The letter by the root of whose size a node divides."""
    match node:
        case Apply("/", (_, Apply("sqrt", (Size(letter),)))):
            return [letter]
    return []


def _no_scale(node: Expr) -> Expr:
    """A root of a size, so that it is not taken for the scale."""
    match node:
        case Apply("sqrt", (Size() as size,)):
            return Apply("sqrt", (Apply("+", (size, Number(0.0))),))
    return node


def bytes_of(array: Any) -> str:
    """The numbers of an array one after another: the bytes of float64 in base64."""
    return b64encode(np.ascontiguousarray(array, "<f8").tobytes()).decode()
