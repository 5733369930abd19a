"""The chain rule along one formula: what of a gradient flows to each cell that is read.

O[i,e] = sum[j](a[i,j] * v[j,e])   →   a[i,j]: d[i,e] * v[j,e],   v[j,e]: a[i,j] * d[i,e]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, cast

from attncli.expression import (
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
    Size,
    cells,
    letters_at,
    letters_in,
    rebuilt,
    text_of,
    with_letters,
    with_parts,
)
from attncli.parser import parse

ZERO = Number(0.0)
FLOWS = {
    "+": ("d", "d"),
    "-": ("d", "-d"),
    "*": ("d * b", "a * d"),
    "/": ("d / b", "-(d * a / b ** 2)"),
    "**": ("d * (b * a ** c)", "d * (y * ln(a))"),
    "%": ("d", "-(d * (a // b))"),
    "neg": ("-d",),
    "exp": ("d * y",),
    "exp2": ("d * (y * ln(2))",),
    "ln": ("d * (1 / a)",),
    "log2": ("d / (a * ln(2))",),
    "sqrt": ("d * (0.5 / y)",),
    "tanh": ("d * (1 - y ** 2)",),
    "sigmoid": ("d * (y * (1 - y))",),
    "softplus": ("d * sigmoid(a)",),
    "sin": ("d * cos(a)",),
    "cos": ("-(d * sin(a))",),
    "arccos": ("-(d / sqrt(1 - a ** 2))",),
    "abs": ("d * sign(a)",),
    "max": ("0 if b > a else d", "d if y > a else 0"),
    "min": ("0 if b < a else d", "d if y < a else 0"),
}
"""What of the gradient d of y, which a function gives, flows to the numbers a and b that it is of;
c is b − 1."""
FLAT = ("floor", "sign", "//", "==", "!=", "<", "<=", ">", ">=", "and", "or", "not")
"""Functions of which nothing flows back."""
FREE = "nfcopqstuvwxyzklabrghmeijdABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _bound(flow: str, names: Mapping[str, Expr]) -> Expr:
    """What flows, with the expressions that its letters stand for; 1 is no factor and no power."""

    def change(x: Expr) -> Expr:
        match x:
            case Place(letter):
                return names[letter]
            case Apply("*", (a, Number(1.0)) | (Number(1.0), a)) | Apply("**", (a, Number(1.0))):
                return a
        return x

    return rebuilt(parse(f"x[_] = {flow}").body, change)


class Chain:
    """The chain rule along one formula.

    params  numbers of its step
    sizes   of letters, with those that are made on the way
    taken   the letters that there are
    """

    def __init__(self, formula: Formula, params: Mapping[str, Any], sizes: Mapping[str, int]):
        self.params, self.sizes = params, dict(sizes)
        self.taken = {*own_letters(formula.body), *letters_at(formula.index), *sizes, *params}
        self.body = self.unique(formula.body, {*letters_at(formula.index)})

    def fresh(self, letters: Sequence[str]) -> dict[str, Index]:
        """Other letters for some, of the same sizes."""
        change: dict[str, Index] = {}
        for old in letters:
            new = next(x for x in FREE if x not in self.taken)
            self.taken.add(new)
            self.sizes |= {new: self.sizes[old]} if old in self.sizes else {}
            change[old] = (new,)
        return change

    def unique(self, node: Expr, used: set[str]) -> Expr:
        """The expression in which each sum has letters that nothing else has."""
        if isinstance(node, Over) and node.kind != "softmax":
            if clash := [x for x in node.letters if x in used]:
                node = cast(Over, with_letters(node, self.fresh(clash)))
            used |= {*node.letters}
        return with_parts(node, lambda x: self.unique(x, used))

    def parts(  # noqa: PLR0912 - a rule for each kind of node
        self, node: Expr, d: Expr, y: Expr | None = None
    ) -> Iterator[tuple[Cell, Expr]]:
        """The gradient of each cell in an expression: d times its derivative.

        y  what the expression gives, where a stage holds that

        What only decides a case has no gradient. Raises TypeError for what has none by this rule.
        """
        match node:
            case Cell():
                yield node, d
            case Apply(function, args) if function in FLOWS:
                a, b = args[0], args[-1]
                c = Number(b.value - 1) if isinstance(b, Number) else Apply("-", (b, ONE))
                other = b if function in ("max", "min") else node
                names = {"a": a, "b": b, "c": c, "d": d, "y": y or other}
                for x, flow in zip(args, FLOWS[function], strict=True):
                    if cells(x):
                        yield from self.parts(x, _bound(flow, names))
            case Apply(function) if function in FLAT:
                return
            case If(Apply("<", (Place(j), Param() as n)), Cell(), b):  # rows after a cache's
                rows = _moved(b, Apply("-", (Place(j), n)), ("i",))
                yield from self.parts(rows, _moved(d, (j,), Apply("+", (Place("i"), n))))
            case If(_, Param(value), b) if self.params.get(value) == -float("inf"):
                yield from self.parts(b, d)  # no power of −∞: its gradient is 0 already
            case If(condition, a, b):
                for cell, back in self.parts(a, d):
                    yield cell, If(condition, back, ZERO)
                for cell, back in self.parts(b, d):
                    yield cell, If(condition, ZERO, back)
            case Over("sum", letters, body, where):
                for cell, part in self.parts(body, d):
                    back = _counted(where, part)
                    idle = {*letters} - {*letters_at(cell.index), *own_letters(back)}
                    sizes: list[Expr] = [Size(x) for x in sorted(idle)]
                    yield cell, reduce(lambda a, b: Apply("*", (a, b)), sizes, back)
            case Over():
                yield from self.over(node, d, y)
            case _ if cells(node):
                raise TypeError(f"{text_of(node)} has no gradient by the chain rule")

    def over(self, node: Over, d: Expr, y: Expr | None) -> Iterator[tuple[Cell, Expr]]:
        """The same of what is no sum: its terms again, under other letters."""
        body, where, change = node.body, node.where, self.fresh(node.letters)
        other = cast(Over, with_letters(node, change))
        own, is_share = other.letters, node.kind == "softmax"
        whole = y or (node if is_share else other)
        match node.kind:
            case "softmax":  # Dao et al. (2022), appendix B.4
                terms = (with_letters(x, change) for x in (whole, d))
                delta = Over("sum", own, Apply("*", tuple(terms)), other.where)
                slope: Expr = Apply("*", (whole, Apply("-", (d, delta))))
                if node.sink is not None:
                    log = replace(other, kind="lse", empty="")
                    share = Apply("exp", (Apply("-", (node.sink, log)),))
                    yield from self.parts(node.sink, Apply("neg", (Apply("*", (delta, share)),)))
            case "lse":
                ends = [body] if node.sink is None else [body, node.sink]
                shares = [Apply("exp", (Apply("-", (x, whole)),)) for x in ends]
                slope, *of_sink = (Apply("*", (d, x)) for x in shares)
                for x in of_sink:
                    yield from self.parts(ends[-1], x)
            case "max":  # of several that are the largest each has an equal share
                same = Apply("==", (other.body, whole))
                both = same if other.where is None else Apply("and", (other.where, same))
                slope = Apply("/", (d, Over("sum", own, ONE, both)))
                slope = If(Apply("==", (body, whole)), slope, ZERO)
            case _:  # a product: of all other terms
                pairs = zip(own, node.letters, strict=True)
                apart: Expr = reduce(
                    lambda a, b: Apply("or", (a, b)),
                    [Apply("!=", (Place(a), Place(b))) for a, b in pairs],
                )
                rest = apart if other.where is None else Apply("and", (other.where, apart))
                slope = Apply("*", (d, replace(other, where=rest)))
        yield from ((cell, _counted(where, back)) for cell, back in self.parts(body, slope))


def _counted(where: Expr | None, d: Expr) -> Expr:
    """What flows back to the terms that count."""
    match where:
        case None | Apply("or", (_, Apply("!=", (Cell(), Number(0.0))))):  # 0 · NaN is none
            return d
    return If(where, d, ZERO)


def _moved(node: Expr, axis: Index | Expr, new: Index | Expr) -> Expr:
    """The expression with another axis in place of one, wherever a cell has it."""

    def moved(x: Expr) -> Expr:
        if not isinstance(x, Cell):
            return x
        return Cell(x.name, tuple(new if own == axis else own for own in x.index))

    return rebuilt(node, moved)


def own_letters(node: Expr, params: Collection[str] = ()) -> list[str]:
    """The letters of an expression; a number of the step may be called by one too."""
    return [x for x in letters_in(node) if x not in params]
