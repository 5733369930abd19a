"""The chain rule along one formula: what of a gradient flows to each cell that is read.

O[i,e] = sum[j](a[i,j] * v[j,e])   →   a[i,j]: d[i,e] * v[j,e],   v[j,e]: a[i,j] * d[i,e]
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain
from typing import Any

from attncli.formula.expression import (
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
    children,
    every_letter,
    free_letters,
    letters_at,
    rebuilt,
    text_of,
    walk,
    with_bound,
    with_letters,
    with_parts,
)
from attncli.formula.parser import MOST_CHARACTERS, MOST_DEPTH, parse

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
    "degrees": ("d * degrees(1)",),
    "abs": ("d * sign(a)",),
}
"""What of the gradient d of y, which a function gives, flows to the numbers a and b that it is of;
c is b − 1."""
_LARGER = {"max": ">", "min": "<"}
FLAT = ("floor", "sign", "//", "==", "!=", "<", "<=", ">", ">=", "and", "or", "not")
"""Functions of which nothing flows back."""
FREE = "nfcopqstuvwxyzklabrghmeijdABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MORE = range(0x4E00, 0x9FA6)  # signs that are a letter each, as words of programs rarely are


def free_names(used: Collection[str]) -> Iterator[str]:
    """Letters that are not taken, those that are usual first."""
    return (x for x in chain(FREE, map(chr, _MORE)) if x not in used)


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


class TooLongError(TypeError):
    """A gradient has more operators within each other, or characters, than a formula may have."""


Guard = tuple[Expr, bool]
"""A condition, and whether what it guards counts where that holds, or where it does not."""


class Chain:
    """The chain rule along one formula.

    params  numbers of its step
    sizes   of letters, with those that are made on the way
    taken   the letters that there are
    """

    def __init__(self, formula: Formula, params: Mapping[str, Any], sizes: Mapping[str, int]):
        self.params, self.sizes = params, dict(sizes)
        self.of_axes = dict[int | None, list[str]]()
        self.extents = dict[int, tuple[int, int, Expr]]()
        self.letters = {*every_letter(formula)}
        self.taken = {*self.letters, *sizes, *params}
        self.body = self.unique(formula.body, {*letters_at(formula.index)})

    def fresh(self, letters: Sequence[str]) -> dict[str, Index]:
        """Other letters for some, of the same sizes."""
        change: dict[str, Index] = {}
        for old in letters:
            new = next(free_names(self.taken))
            self.taken.add(new)
            self.sizes |= {new: self.sizes[old]} if old in self.sizes else {}
            change[old] = (new,)
        return change

    def axis_letter(self, size: int | None, used: Collection[str]) -> str:
        """A letter for an axis of a gradient that none runs along; other gradients may have it."""
        alike = self.of_axes.setdefault(size, []) if size is not None else []
        new = next((x for x in alike if x not in used), "")
        if not new:
            ((new,),) = self.fresh(["_"]).values()  # type: ignore[assignment]
            alike.append(new)
            self.sizes |= {new: size} if size is not None else {}
        return new

    def unique(self, node: Expr, used: set[str]) -> Expr:
        """The expression in which each sum has letters that nothing else has."""
        if isinstance(node, Over) and node.kind != "softmax":
            if clash := [x for x in node.letters if x in used]:
                node = with_bound(node, self.fresh(clash))
            used |= {*node.letters}
        return with_parts(node, lambda x: self.unique(x, used))

    def parts(  # noqa: PLR0912 - a rule for each kind of node
        self, node: Expr, d: Expr, y: Expr | None = None, guards: tuple[Guard, ...] = ()
    ) -> Iterator[tuple[Cell, Expr]]:
        """The gradient of each cell in an expression: d times its derivative.

        y       what the expression gives, where a stage holds that
        guards  where d counts, the outermost first

        Letters that a cell lacks are those of sums, of d and of guards: over them the gradient is
        still to be summed. What only decides a case has no gradient. Raises TypeError for what has
        none by this rule, and where it is too long.
        """
        self.check_length(d)
        match node:
            case Cell():
                yield node, _guarded(d, guards)
            case Apply(function, args) if function in FLOWS:
                a, b = args[0], args[-1]
                c = Number(b.value - 1) if isinstance(b, Number) else Apply("-", (b, ONE))
                names = {"a": a, "b": b, "c": c, "d": d, "y": y or node}
                for x, flow in zip(args, FLOWS[function], strict=True):
                    if cells(x):
                        yield from self.parts(x, _bound(flow, names), guards=guards)
            case Apply("max" | "min" as function, (a, b)):
                is_b = Apply(_LARGER[function], (b, a))
                yield from self.parts(a, d, guards=(*guards, (is_b, False)))
                if isinstance(a, Number):  # by what there is: computed again, it may be rounded up
                    is_b = Apply(_LARGER[function], (y or b, a))
                yield from self.parts(b, d, guards=(*guards, (is_b, True)))
            case Apply(function) if function in FLAT:
                return
            case If(Apply("<", (Place(j), Param() as n)), Cell(), b) if self.is_cache(j):
                rows = _moved(b, Apply("-", (Place(j), n)), ("i",))
                moved = _moved(d, (j,), Apply("+", (Place("i"), n)))
                yield from self.parts(rows, moved, guards=guards)
            case If(_, Param(value), b) if self.params.get(value) == -float("inf"):
                yield from self.parts(b, d, guards=guards)  # of −∞ no power: it is 0 already
            case If(condition, a, b):
                yield from self.parts(a, d, guards=(*guards, (condition, True)))
                yield from self.parts(b, d, guards=(*guards, (condition, False)))
            case Over("softmax"):
                yield from self.softmax(node, d, y, guards)
            case Over():
                yield from self.over(node, d, y, guards)
            case _ if cells(node):
                raise TypeError(f"{text_of(node)} has no gradient by the chain rule")

    def is_cache(self, j: str) -> bool:
        """Whether rows along j are those of a cache and new ones, which have the letter i."""
        return "i" in self.sizes.keys() - self.letters and j in self.letters

    def over(
        self, node: Over, d: Expr, y: Expr | None, guards: tuple[Guard, ...]
    ) -> Iterator[tuple[Cell, Expr]]:
        """The same of what is along letters of its own; of no sum its terms again, under others."""
        body, slope = node.body, d
        if node.kind != "sum":
            other = with_bound(node, self.fresh(node.letters))
            letters, whole = other.letters, y if y is not None and node.kind == "lse" else other
        match node.kind:
            case "lse":
                ends = [body] if node.sink is None else [body, node.sink]
                shares = [Apply("exp", (Apply("-", (x, whole)),)) for x in ends]
                slope, *of_sink = (Apply("*", (d, x)) for x in shares)
                for x in of_sink:
                    yield from self.parts(ends[-1], x, guards=guards)
            case "max" if not _is_exact(body):  # rounded otherwise elsewhere: no two are equal
                steep = Apply("*", (Number(_STEEP), body))
                slope = Apply("*", (d, replace(node, kind="softmax", body=steep)))
            case "max":  # of several that are the largest each has an equal share
                same = Apply("==", (other.body, whole))
                both = same if other.where is None else Apply("and", (other.where, same))
                slope = Apply("/", (d, Over("sum", letters, ONE, both)))
                slope = If(Apply("==", (body, whole)), slope, ZERO)
            case "prod":  # of all other terms
                pairs = zip(letters, node.letters, strict=True)
                apart: Expr = reduce(
                    lambda a, b: Apply("or", (a, b)),
                    [Apply("!=", (Place(a), Place(b))) for a, b in pairs],
                )
                rest = apart if other.where is None else Apply("and", (other.where, apart))
                slope = Apply("*", (d, replace(other, where=rest)))
        for cell, back in self.parts(body, slope, guards=(*guards, *_counted(node))):
            idle = {*node.letters} - {*free_letters(cell)}
            idle -= {*free_letters(back)} if idle else set()
            sizes: list[Expr] = [Size(x) for x in sorted(idle)]  # of terms that are all alike
            yield cell, reduce(lambda a, b: Apply("*", (a, b)), sizes, back)

    def softmax(
        self, node: Over, d: Expr, y: Expr | None, guards: tuple[Guard, ...]
    ) -> Iterator[tuple[Cell, Expr]]:
        """The same of a softmax, of which every term has a part in every share.

        A condition on its own letters says which shares count, and not which terms.
        Source: Dao et al. (2022), appendix B.4.
        """
        change = self.fresh(node.letters)
        of_shares = [x for x in guards if {*free_letters(x[0])} & {*node.letters}]
        rest = tuple(x for x in guards if x not in of_shares)
        d, whole = _guarded(d, of_shares), y or node
        letters = tuple(str(change[x][0]) for x in node.letters)
        product = Apply("*", (with_letters(whole, change), with_letters(d, change)))
        delta = Over("sum", letters, product, node.where and with_letters(node.where, change))
        terms = (*rest, *_counted(node))
        if node.sink is not None:  # of which every share has a part
            log = replace(with_bound(node, change), kind="lse", empty="")
            share = Apply("exp", (Apply("-", (node.sink, log)),))
            back = Apply("neg", (Apply("*", (Apply("*", (whole, d)), share)),))
            yield from self.parts(node.sink, back, guards=terms)
        slope = Apply("*", (whole, Apply("-", (d, delta))))
        yield from self.parts(node.body, slope, guards=terms)

    def check_length(self, d: Expr) -> None:
        """TooLongError where what flows back is more than a formula can be."""
        depth, n_nodes, _ = self.extent(d)
        if depth > MOST_DEPTH or n_nodes > MOST_CHARACTERS:  # a node is a character at least
            raise TooLongError

    def extent(self, node: Expr) -> tuple[int, int, Expr]:
        """How deep an expression is, and of how many nodes; its parts are often the same ones."""
        result = self.extents.get(id(node))
        if result is None:
            parts = [self.extent(x) for x in children(node, guards=True)]
            depth = 1 + max((x[0] for x in parts), default=0)
            result = depth, 1 + sum(x[1] for x in parts), node  # held, so that its id stays its own
            self.extents[id(node)] = result
        return result


_STEEP = float(2**40)
"""A softmax of numbers times so much gives all to the largest; those that differ by rounding alone,
1e-16 of 1, share it, and one that is less by 1e-10 has nothing."""


def _is_exact(node: Expr) -> bool:
    """Whether an expression has the same bits wherever it stands, unlike functions and sums."""
    kinds = (Cell, Number, Param, Place, Size, If)
    plain = ("+", "-", "*", "/", "neg", *FLAT)
    every = walk(node, guards=True)
    return all(isinstance(x, kinds) or (type(x) is Apply and x.function in plain) for x in every)


def _guarded(d: Expr, guards: Sequence[Guard]) -> Expr:
    """What flows back where all of these conditions say so, 0 elsewhere."""
    for condition, is_then in reversed(guards):
        d = If(condition, d, ZERO) if is_then else If(condition, ZERO, d)
    return d


def _counted(node: Over) -> list[Guard]:
    """The condition on the terms to which something flows back."""
    match node:
        case Over(where=None):
            return []
        case Over("sum", _, Apply("*", (Cell() as a, _)), Apply("or", (_, Apply("!=", (b, zero))))):
            if a == b and zero == ZERO:  # left out are terms of 0 alone, as 0 · NaN is none
                return []
    return [] if node.where is None else [(node.where, True)]


def _moved(node: Expr, axis: Index | Expr, new: Index | Expr) -> Expr:
    """The expression with another axis in place of one, wherever a cell has it."""

    def moved(x: Expr) -> Expr:
        if not isinstance(x, Cell):
            return x
        return Cell(x.name, tuple(new if each == axis else each for each in x.index))

    return rebuilt(node, moved)
