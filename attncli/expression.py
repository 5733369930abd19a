"""The language in which a stage says how each of its cells is computed.

    S[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,g,j,d])

A letter runs along an axis. `g·r` is one axis on which r entries of each g are side by side, as
einops has "(g r)": the heads of a model's width are `h·d`, query heads that share a key head `g·r`,
or `r·g` where they take the key heads in turn. An array with fewer axes lacks the first ones, and
an axis of one entry is the same for all. An index may be computed, such as `x[i - n_past,d]`.

    numbers, inf, parameters (two letters or more), letters (the place along an axis, from 0)
    size[d]                          how long an axis is
    + - * / // % **, == != < <= > >=, and or not, … if … else …
    exp exp2 ln log2 sqrt tanh sin cos arccos degrees abs, max(a, b)
    sum[i,j](…), max[j](…)           over letters; `… where …` says which terms count
    softmax[j](…), lse[j](…)         `…, sink=…` is one more term, which has no value; where no term
                                     counts, `empty=nan` or `empty=uniform`, else 0

A remark after # is what is said of a cell that is a number of its own, such as a masked one.
Names of arrays are those by which a stage reads them (`Stage.reads`). Text is parsed by Python's
own parser, and never evaluated.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, reduce
from math import inf, prod
from typing import Any

from attncli.errors import InputError

Index = tuple[str | int, ...]
"""The letters that are side by side on one axis, mostly one."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Number:
    """A number as it is written."""

    value: float


@dataclass(frozen=True)
class Param:
    """A number that the stage has beside what it reads, such as `factor`."""

    name: str


@dataclass(frozen=True)
class Size:
    """How many entries a letter runs along."""

    letter: str


@dataclass(frozen=True)
class Place:
    """Where a letter is along its axis, from 0."""

    letter: str


@dataclass(frozen=True)
class Cell:
    """One number of an array: q[b,h,i,d]; an axis of its index may be computed."""

    name: str
    index: tuple[Index | Expr, ...]


@dataclass(frozen=True)
class Apply:
    """An operator or a function of numbers."""

    function: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class If:
    """One of two cases."""

    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True)
class Over:
    """A sum, a largest number, a softmax or the log-sum-exp along letters."""

    kind: str
    letters: tuple[str, ...]
    body: Expr
    where: Expr | None = None
    sink: Expr | None = None
    empty: str = ""


Expr = Number | Param | Size | Place | Cell | Apply | If | Over


@dataclass(frozen=True)
class Formula:
    """A whole line: symbol[index] = body  # remark.

    A symbol without brackets names the cell in words, in which single letters are its axes:
    `cos(a, b) = dots[a,b] / (lengths[a] * lengths[b])`.
    """

    symbol: str
    index: tuple[Index, ...]
    body: Expr
    remark: str = ""
    in_words: bool = False


_KINDS = ("sum", "max", "softmax", "lse")
_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.And: "and", ast.Or: "or", ast.Not: "not", ast.USub: "neg",
}  # fmt: skip
FUNCTIONS = {
    **dict.fromkeys(("exp", "exp2", "ln", "log2", "sqrt", "tanh", "sin", "cos", "arccos"), 1),
    **{"degrees": 1, "abs": 1, "max": 2},
}
"""How many numbers each function is of."""
EMPTY = ("nan", "uniform")
"""What a softmax may give where no term counts, instead of 0."""
MOST_DEPTH = 120  # of parentheses and cases: one of 32 parts has 70
MOST_CHARACTERS = 10_000  # of a formula: one of 32 parts has 3,000


@lru_cache(1024)
def parse(text: str) -> Formula:
    """The formula that a text is. Raises InputError where it is none."""
    line, _, remark = text.partition("  # ")
    left, equals, right = line.partition(" = ")
    symbol, bracket, axes = left.strip().rpartition("[")
    try:
        if len(text) > MOST_CHARACTERS or not equals or not left.strip():
            raise SyntaxError
        if bracket:
            own = _index(_tree(f"x[{axes}"))
        else:
            symbol, own = left.strip(), tuple((x,) for x in re.findall(r"\b[a-z]\b", left))
        index, body = tuple(x for x in own if isinstance(x, tuple)), _parsed(_tree(right))
        if len(index) < len(own) or _depth(body) > MOST_DEPTH:
            raise SyntaxError
        return Formula(symbol, index, body, remark.strip(), in_words=not bracket)
    except (
        SyntaxError,
        ArithmeticError,
        ValueError,
        LookupError,
        RecursionError,
        MemoryError,
    ) as e:
        raise InputError(f"{text[:60]!r} is not a formula that attncli reads") from e


@lru_cache(1024)
def relettered(text: str, **letters: str) -> str:
    """The text with other letters; one may become several that are side by side."""

    def change(brackets: re.Match[str]) -> str:
        return re.sub(r"\b[a-z]\b", lambda letter: letters.get(letter[0], letter[0]), brackets[0])

    return re.sub(r"\[[^]]*\]", change, text)


@lru_cache(1024)
def written(text: str, names: frozenset[str]) -> str:
    """A formula without its optional parts of which something is not read.

    >>> written("A[h,i] = softmax[i](x[h,i]{, sink=sinks[h]})", frozenset({"x"}))
    'A[h,i] = softmax[i](x[h,i])'
    """

    def kept(part: re.Match[str]) -> str:
        return part[1] if names.issuperset(re.findall(r"(\w+)\[", part[1])) else ""

    return re.sub(r"\{([^}]*)\}", kept, text)


def letters_of(text: str) -> set[str]:
    """The letters of all axes in the text of a formula."""
    return {*re.findall(r"\b[a-z]\b", " ".join(re.findall(r"\[[^]]*\]", text)))}


def _tree(text: str) -> ast.expr:
    """Python's own tree: `g·r` is a product of matrices to it, and `where` a keyword."""
    plain = text.replace("·", "@").replace(" where ", ", where=")
    with warnings.catch_warnings():  # such as of 1or 2
        warnings.simplefilter("error", SyntaxWarning)
        return ast.parse(plain.strip(), mode="eval").body


def _parsed(node: ast.expr) -> Expr:  # noqa: PLR0912 - a rule for each kind of node
    match node:
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            return Number(float(value))
        case ast.Name("inf"):
            return Number(inf)
        case ast.Name(name):
            return Place(name) if len(name) == 1 else Param(name)
        case ast.Subscript(ast.Name(name), letter):
            is_size = name == "size" and isinstance(letter, ast.Name)
            return Size(ast.unparse(letter)) if is_size else Cell(name, _index(node))
        case ast.BinOp(left, operator, right) | ast.Compare(left, [operator], [right]):
            return Apply(_OPERATORS[type(operator)], (_parsed(left), _parsed(right)))
        case ast.BoolOp(operator, values):
            sign = _OPERATORS[type(operator)]
            return reduce(lambda a, b: Apply(sign, (a, b)), map(_parsed, values))
        case ast.UnaryOp(operator, operand):
            inner = _parsed(operand)
            if isinstance(inner, Number) and isinstance(operator, ast.USub):
                return Number(-inner.value)
            return Apply(_OPERATORS[type(operator)], (inner,))
        case ast.IfExp(test, then, otherwise):
            return If(_parsed(test), _parsed(then), _parsed(otherwise))
        case ast.Call(ast.Subscript(ast.Name(kind), letters), [body], more) if kind in _KINDS:
            each = letters.elts if isinstance(letters, ast.Tuple) else [letters]
            names = tuple(letter.id for letter in each if isinstance(letter, ast.Name))
            options: dict[str, Any] = {str(x.arg): _parsed(x.value) for x in more}
            if isinstance(empty := options.get("empty"), Param) and empty.name in EMPTY:
                options["empty"] = empty.name
            is_known = options.keys() <= {"where", "sink", "empty"} and len(options) == len(more)
            if len(names) == len(each) and all(len(x) == 1 for x in names) and is_known:
                return Over(kind, names, _parsed(body), **options)
        case ast.Call(ast.Name(function), args, []) if len(args) == FUNCTIONS.get(function):
            return Apply(function, tuple(map(_parsed, args)))
    raise SyntaxError


def _index(node: ast.expr) -> tuple[Index | Expr, ...]:
    if not isinstance(node, ast.Subscript):
        raise SyntaxError
    axes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return tuple(_axis(axis) for axis in axes)


def _axis(node: ast.expr) -> Index | Expr:
    match node:
        case ast.BinOp(left, ast.MatMult(), right):
            both = _axis(left), _axis(right)
            if all(isinstance(x, tuple) and all(isinstance(a, str) for a in x) for x in both):
                return (*both[0], *both[1])  # type: ignore[misc]
        case ast.Name("_"):
            return ()
        case ast.Name(letter) if len(letter) == 1:
            return (letter,)
        case ast.Constant(int(at)) if not isinstance(at, bool):
            return (at,)
        case _:
            return _parsed(node)
    raise SyntaxError


def children(node: Expr) -> tuple[Expr, ...]:
    """What a node is made of; what says which terms count, or where a cell is, is none of it."""
    match node:
        case Apply(_, args):
            return args
        case If(condition, then, otherwise):
            return (condition, then, otherwise)
        case Over(_, _, body, _, sink):
            return (body,) if sink is None else (body, sink)
    return ()


def _depth(node: Expr) -> int:
    return 1 + max(map(_depth, (*children(node), *_beside(node))), default=0)


def walk(node: Expr, *, guards: bool = False) -> Iterator[Expr]:
    """A node and all that it is made of; guards: with what says which terms count or where."""
    yield node
    for child in (*children(node), *(_beside(node) if guards else ())):
        yield from walk(child, guards=guards)


def cells(node: Expr, *, guards: bool = False) -> list[Cell]:
    """Every cell that an expression is made of, in order."""
    return [x for x in walk(node, guards=guards) if isinstance(x, Cell)]


@lru_cache(1024)
def only_guards(node: Expr) -> frozenset[str]:
    """The arrays that only say where there is something: of which every cell is `… != -inf`."""
    guards = [x for x in walk(node, guards=True) if isinstance(x, Apply) and x.function == "!="]
    named = [x.args[0].name for x in guards if isinstance(x.args[0], Cell) and x.args[1] == ABSENT]
    every = [cell.name for cell in cells(node, guards=True)]
    return frozenset(name for name in named if named.count(name) == every.count(name))


ABSENT = Number(-inf)


def _beside(node: Expr) -> tuple[Expr, ...]:
    """What says which terms of a sum count, or where a cell is."""
    match node:
        case Over(where=guard) if guard is not None:
            return (guard,)
        case Cell(_, index):
            return tuple(axis for axis in index if not isinstance(axis, tuple))
    return ()


def rebuilt(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every node changed, from within outwards, what says where included."""

    def inner(x: Expr) -> Expr:
        return rebuilt(x, change)

    match node:
        case Cell(name, index):
            node = Cell(name, tuple(x if isinstance(x, tuple) else inner(x) for x in index))
        case Apply(function, args):
            node = Apply(function, tuple(map(inner, args)))
        case If(condition, then, otherwise):
            node = If(inner(condition), inner(then), inner(otherwise))
        case Over(_, _, body, where, sink):
            counted, more = (None if x is None else inner(x) for x in (where, sink))
            node = Over(node.kind, node.letters, inner(body), counted, more, node.empty)
    return change(node)


def summed_letters(node: Expr) -> set[str]:
    """The letters of the sums, largest numbers and softmaxes in an expression."""
    return {x for over in walk(node) if isinstance(over, Over) for x in over.letters}


def with_letters(cell: Cell, letters: Mapping[str, Index]) -> Cell:
    """The cell with other letters; one may become several that are side by side."""
    index = (
        tuple(b for a in axis for b in letters.get(str(a), (a,)))
        if isinstance(axis, tuple)
        else axis
        for axis in cell.index
    )
    return Cell(cell.name, tuple(index))


def primed(node: Over) -> Over:
    """The same with other letters than those around it: each has a prime."""
    primes: dict[str, Index] = {letter: (f"{letter}′",) for letter in node.letters}

    def change(x: Expr) -> Expr:
        match x:
            case Cell():
                return with_letters(x, primes)
            case Place(letter) if letter in primes:
                return Place(f"{letter}′")
        return x

    where, sink = (None if x is None else rebuilt(x, change) for x in (node.where, node.sink))
    letters = tuple(f"{x}′" for x in node.letters)
    return Over(node.kind, letters, rebuilt(node.body, change), where, sink, node.empty)


_BINDS = {
    **{"or": 1, "and": 2, "not": 3, "neg": 7, "**": 8},
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 4),
    **{"+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6},
}
"""How closely operators bind, as in Python."""


def text_of(node: Expr, outer: int = 0) -> str:
    """The text of an expression, which `parse` reads back; `outer` is how closely it is bound.

    >>> text_of(parse("Z[i] = (x[i] - 1) * 2 / size[d] if i < 3 else -inf").body)
    '(x[i] - 1) * 2 / size[d] if i < 3 else -inf'
    """
    own, text = 9, ""
    match node:
        case Number(value):
            own = 7 if value < 0 else 9
            text = f"{int(value)}" if value.is_integer() else repr(value)
        case Param(name) | Place(name):
            text = name
        case Size(letter):
            text = f"size[{letter}]"
        case Cell(name, index):
            text = f"{name}[{','.join(map(_axis_text, index))}]"
        case If(condition, then, otherwise):
            own = 0
            text = f"{text_of(then, 1)} if {text_of(condition, 1)} else {text_of(otherwise)}"
        case Over(kind, letters, body, where, sink, empty):
            more = "" if where is None else f" where {text_of(where)}"
            more += "" if sink is None else f", sink={text_of(sink)}"
            more += f", empty={empty}" if empty else ""
            text = f"{kind}[{','.join(letters)}]({text_of(body)}{more})"
        case Apply("neg" | "not" as sign, (x,)):
            own = _BINDS[sign]
            text = f"{'-' if sign == 'neg' else 'not '}{text_of(x, own)}"
        case Apply(sign, (a, b)) if sign in _BINDS:
            own = _BINDS[sign]  # a chain of comparisons, or of powers, would be read otherwise
            text = f"{text_of(a, own + (own in (4, 8)))} {sign} {text_of(b, own + 1)}"
        case Apply(function, args):
            text = f"{function}({', '.join(map(text_of, args))})"
    return f"({text})" if own < outer else text


def _axis_text(axis: Index | Expr) -> str:
    return text_of(axis) if not isinstance(axis, tuple) else "·".join(map(str, axis)) or "_"


def line_of(formula: Formula) -> str:
    """The text of a whole formula."""
    index = f"[{','.join(map(_axis_text, formula.index))}]" if formula.index else ""
    remark = f"  # {formula.remark}" if formula.remark else ""
    return f"{formula.symbol}{'' if formula.in_words else index} = {text_of(formula.body)}{remark}"


# ---- sizes and places


def sizes_of(
    formula: Formula,
    shape: Shape,
    shapes: Mapping[str, Shape],
    known: Mapping[str, int] = {},
) -> dict[str, int]:
    """How long each letter is, from the shape of the stage and of what it reads, and what is known.

    A letter whose axis no array has is left out. Of several letters on one axis, one follows from
    the others.
    """
    pairs = [*_axes(formula.index, shape)]
    for cell in cells(formula.body, guards=True):
        pairs += _axes(cell.index, shapes[cell.name]) if cell.name in shapes else ()
    sizes: dict[str, int] = {**known}
    for axis, size in pairs:
        if isinstance(axis, tuple) and len(axis) == 1 and isinstance(axis[0], str):
            sizes[axis[0]] = max(size, sizes.get(axis[0], 1))
    packed = [(axis, n) for axis, n in pairs if isinstance(axis, tuple) and len(axis) > 1]
    for _ in packed:
        for axis, size in packed:
            unknown = [x for x in axis if isinstance(x, str) and x not in sizes]
            if len(unknown) == 1:
                rest = prod(sizes[x] for x in axis if isinstance(x, str) and x in sizes)
                sizes[unknown[0]] = max(1, size // max(1, rest))
    return sizes


def _axes(index: tuple[Index | Expr, ...], shape: Shape) -> Iterator[tuple[Index | Expr, int]]:
    """The axes that an array of this shape has, with their sizes."""
    n = min(len(index), len(shape))
    return zip(index[len(index) - n :], shape[len(shape) - n :], strict=True)


def place_of(
    cell: Cell,
    places: Mapping[str, Any],
    sizes: Mapping[str, int],
    shape: Shape,
    computed: Callable[[Expr, int], Any],
) -> tuple[Any, ...]:
    """Where a cell is in an array of this shape, with every letter at its place.

    computed  what an index that is computed is, along an axis of this size
    """
    index = []
    for axis, size in _axes(cell.index, shape):
        at = 0
        if not isinstance(axis, tuple):
            at = computed(axis, size)
        else:
            for x in axis:
                at = at * sizes.get(x, 1) + places.get(x, 0) if isinstance(x, str) else x
        index.append(at if size > 1 else 0)
    return tuple(index)


def places_at(formula: Formula, index: Shape, sizes: Mapping[str, int]) -> dict[str, int]:
    """The place of each letter in one cell of a stage."""
    places: dict[str, int] = {}
    for axis, at in _axes(formula.index, index):
        rest = at
        for letter in reversed(axis if isinstance(axis, tuple) else ()):
            rest, places[str(letter)] = divmod(rest, sizes.get(str(letter), 1))
    return places
