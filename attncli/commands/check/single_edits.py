"""Every single slip of a formula: what its right side may be by mistake.

A letter of an index shifted, exchanged or 0, another array, another operator, an operand or a
function left out, another bound, a factor, a sum of other terms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, replace
from math import isfinite
from typing import Any

from attncli.commands.check.bugs.edits import DELTAS
from attncli.commands.check.bugs.terms import FACTORS, LOOPS, OF_STAGES, last_blocks
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
)
from attncli.formula.parser import parsed

OPERATORS = {
    **{"+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",)},
    **dict.fromkeys(("<", "<=", ">", ">="), ("<", "<=", ">", ">=")),
    **{"==": ("!=",), "!=": ("==",), "and": ("or",), "or": ("and",)},
}
COMPARED = "==", "!=", "<", "<=", ">", ">="
FUNCTIONS = {"exp": ("exp2",), "ln": ("log2",), "tanh": ("sigmoid",), "max": ("min",)}


def slips(
    formula: Formula, index: tuple[Index, ...], sizes: Mapping[str, int], others: Collection[Cell]
) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Every changed right side of a formula, with the part that was there and what stands there.

    index   of all axes of the stage
    sizes   of the letters
    others  cells of other arrays that could be read by mistake
    """
    right = formula.body
    for body in dict.fromkeys((right, rebuilt(right, _unguarded))):
        yield from within(body, sizes, others)
    for factor in (*OF_STAGES, *(f"1 / size[{x}]" for x in letters_at(index))):
        new = Apply("*", (right, parsed(factor)))
        yield new, Number(1.0), parsed(factor)
    for function in ("exp", "ln", "abs", "tanh"):
        yield Apply(function, (right,)), right, Apply(function, (Param("right"),))
    for letter in letters_at(index):  # what is not written stays 0
        place = Cell("rows", (("i",),)) if letter == "i" else Place(letter)
        for bound in bounds(sizes.get(letter, 0)):
            for sign in ("<", ">="):
                counts = Apply(sign, (place, Number(float(bound))))
                yield If(counts, right, Number(0.0)), Number(1.0), counts
    for part in {x for x in cells(right) if x.index == formula.index and x != right}:
        yield part, right, part  # the stage is left out
        yield _nested(right, part), part, right  # and is there twice
        if isinstance(right, Over) and right.where is not None:  # then with what was hidden
            yield replace(right, body=right, where=None), part, right
    cell = Cell("right", index)
    yield from ((other, cell, other) for other in _elsewhere(cell, sizes))


def _unguarded(node: Expr) -> Expr:
    """A node without what it hides: kernels leave a weight of 0 to do that."""
    match node:
        case If(_, then, Number(0.0)):
            return then
        case Over("sum"):
            return replace(node, where=None)
    return node


def _nested(body: Expr, part: Cell) -> Expr:
    """The formula applied to what it gives."""
    return rebuilt(body, lambda x: body if x == part else x)


def within(
    node: Expr, sizes: Mapping[str, int], others: Collection[Cell]
) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Every expression that differs in one node, with that node and its new form."""
    for new in _at(node, sizes, others):
        yield new, node, new
    if isinstance(node, Cell):
        return
    for field in fields(node):
        value = getattr(node, field.name)
        parts = value if isinstance(value, tuple) else (value,)
        for at, part in enumerate(parts):
            if not isinstance(part, Number | Param | Size | Place | Cell | Apply | If | Over):
                continue
            for new, old, form in within(part, sizes, others):
                changed: Any = (
                    (*parts[:at], new, *parts[at + 1 :]) if isinstance(value, tuple) else new
                )
                yield replace(node, **{field.name: changed}), old, form


def _at(node: Expr, sizes: Mapping[str, int], others: Collection[Cell]) -> Iterator[Expr]:
    """What could stand by mistake where a node stands."""
    match node:
        case Cell(name, index):
            yield from _elsewhere(node, sizes)
            yield from (x for x in others if x.index == index and x.name != name)
            yield from (Apply("*", (node, parsed(factor))) for factor in (*FACTORS, "scale"))
            yield Apply("*", (node, node))
        case Number(value) if not isfinite(value):
            yield from (Number(0.0), Number(-value))
        case Number(value):
            yield from map(Number, {value + 1, value - 1, -value} - {value})
        case Param():
            yield from (Apply("*", (node, node)), Apply("/", (Number(1.0), node)), Number(1.0))
        case Size(letter):
            yield from (Size(x) for x in sizes if sizes[x] != sizes[letter])
            yield from (Apply(sign, (node, Number(1.0))) for sign in "+-")
        case Apply(function, (x,)):
            yield x
            yield from (Apply(other, (x,)) for other in FUNCTIONS.get(function, ()))
            if function not in ("neg", "not"):
                yield Apply(function, (node,))
        case Apply(_, (_, _)):
            yield from _other_operations(node)
        case If(condition, then, otherwise):
            yield from (then, otherwise, If(condition, otherwise, then))
        case Over():
            yield from _other_terms(node, sizes)


def _other_operations(node: Apply) -> Iterator[Expr]:
    """Another operation on two operands: another operator or order, one left out, no brackets."""
    sign, (a, b) = node.function, node.args
    yield from () if sign in COMPARED else (a, b)
    yield from (Apply(other, (a, b)) for other in OPERATORS.get(sign, ()) if other != sign)
    if sign in ("-", "/"):
        yield Apply(sign, (b, a))
    if sign in COMPARED[2:]:
        yield from (Apply(sign, (a, Apply(step, (b, Number(1.0))))) for step in "+-")
    match sign, a, b:
        case "*", _, Apply("+" | "-" as other, (c, d)):
            yield Apply(other, (Apply(sign, (a, c)), d))
        case "*" | "/", Apply("+" | "-" as other, (c, d)), _:
            yield Apply(other, (c, Apply(sign, (d, b))))


def _other_terms(node: Over, sizes: Mapping[str, int]) -> Iterator[Expr]:
    """A sum, or a softmax, of other terms."""
    if node.where is not None:
        yield replace(node, where=None)
    if node.sink is not None:
        yield replace(node, sink=None)
    elif node.kind in ("softmax", "lse"):
        yield replace(node, sink=Number(0.0))
    if node.kind == "softmax":
        letters = *((x,) for x in "ijhb"), ("i", "j")
        yield from (replace(node, letters=x) for x in letters if x != node.letters)
        for function in ("exp", "sigmoid", "tanh"):
            each = Apply(function, (node.body,))
            yield each if node.where is None else If(node.where, each, Number(0.0))
    if node.kind in ("sum", "lse"):
        yield replace(node, kind="max", sink=None)
    for letter in node.letters:
        n = sizes.get(letter, 0)
        if node.kind == "sum" and n > 1:
            yield Apply("/", (node, Size(letter)))
        for bound in bounds(n):
            for sign in ("<", ">="):
                counts = Apply(sign, (Place(letter), Number(float(bound))))
                both = counts if node.where is None else Apply("and", (node.where, counts))
                yield replace(node, where=both)


def bounds(n: int) -> list[int]:
    """Where a first block of n ends, or a last one or a half begins."""
    starts = {*last_blocks(n, LOOPS)} | {x for x in LOOPS if x < n}
    return sorted((starts | {n // 2, n - n // 2}) - {0, n}) if n > 1 else []


def _elsewhere(cell: Cell, sizes: Mapping[str, int]) -> Iterator[Cell]:
    """The same array at another place: of a neighbour, the first, or with two axes exchanged."""
    index = cell.index
    for at, axis in enumerate(index):
        if isinstance(axis, tuple) and len(axis) == 2:
            yield Cell(cell.name, (*index[:at], axis[::-1], *index[at + 1 :]))
        if not isinstance(axis, tuple) or len(axis) != 1 or sizes.get(str(axis[0]), 0) < 2:
            continue
        letter = str(axis[0])
        for sign in "-+":
            moved = Apply("%", (Apply(sign, (Place(letter), Number(1.0))), Size(letter)))
            yield Cell(cell.name, (*index[:at], moved, *index[at + 1 :]))
        yield Cell(cell.name, (*index[:at], (0,), *index[at + 1 :]))
        for other in range(at + 1, len(index)):
            pair = index[other]
            if (
                isinstance(pair, tuple)
                and len(pair) == 1
                and sizes.get(str(pair[0])) == sizes[letter]
            ):
                swapped = [*index]
                swapped[at], swapped[other] = pair, axis
                yield Cell(cell.name, tuple(swapped))


def _forms(text: str) -> tuple[str, str]:
    """A formula without a sink, and with one."""
    top, of_sink = "max[c](x[b,h,i,c])", "max(sinks[h], max[c](x[b,h,i,c]))"
    return (
        text.format(top=top, sink=""),
        text.format(top=of_sink, sink=f" + exp(sinks[h] - {of_sink})"),
    )


FORMS = {
    "delta": _forms(DELTAS["either delta"][1]),
    "lse": _forms("{top} + ln(sum[c](exp(x[b,h,i,c] - {top})){sink})"),
    "weights": _forms("exp(x[b,h,i,j] - {top}) / (sum[c](exp(x[b,h,i,c] - {top})){sink})"),
}
"""How kernels compute what has a shorter formula, where every query has a key."""
