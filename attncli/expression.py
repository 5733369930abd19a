"""The language in which a stage says how each of its cells is computed.

    S[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,g,j,d])

A letter runs along an axis. `g·r` is one axis on which r entries of each g are side by side, as
einops has "(g r)": the heads of a model's width are `h·d`, query heads that share a key head `g·r`,
or `r·g` where they take the key heads in turn. An array with fewer axes lacks the first ones, and
an axis of one entry is the same for all. An index may be computed, such as `x[i - n_past,d]`.

    numbers, inf, parameters (two letters or more), letters (the place along an axis, from 0)
    size[d]                          how long an axis is
    + - * / // % **, == != < <= > >=, and or not, … if … else …; `0 <= i - j < 3` is two of them
    exp exp2 ln log2 sqrt tanh sigmoid softplus sin cos arccos degrees abs sign floor, max(a, b),
    min(a, b)
    sum[i,j](…), prod, max, min,     over letters; `… where …` says which terms count
    mean, all[j](…), any
    softmax[j](…), lse[j](…)         `…, sink=…` is one more term, which has no value; where no term
                                     counts, `empty=nan` or `empty=uniform`, else 0

A remark after # is what is said of a cell that is a number of its own, such as a masked one.
Names of arrays are those by which a stage reads them (`Stage.reads`). `q[...,i,d]` has any axes
before i, which a reader names. Text is parsed by Python's own parser, and never evaluated.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import pairwise
from math import inf, prod
from typing import Any, get_args

from attncli.errors import InputError, nearest

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
_NODES = frozenset(get_args(Expr))


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


class FormulaError(InputError):
    """What is wrong in an expression, and where: between which characters, or in which part."""

    def __init__(self, message: str, start: int = 0, end: int = 0, part: str = "") -> None:
        super().__init__(message)
        self.start, self.end, self.part = start, end, part


KINDS = ("sum", "prod", "max", "softmax", "lse")
MORE_KINDS = ("mean", "min", "all", "any")
"""What is written by those: of numbers, and of conditions."""
_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.MatMult: "*", ast.Pow: "**", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=",
    ast.Gt: ">", ast.GtE: ">=", ast.And: "and", ast.Or: "or", ast.Not: "not", ast.USub: "neg",
}  # fmt: skip
_OF_ONE = "exp exp2 ln log2 sqrt tanh sigmoid softplus sin cos arccos degrees abs sign floor"
FUNCTIONS = {**dict.fromkeys(_OF_ONE.split(), 1), "max": 2, "min": 2}
"""How many numbers each function is of."""
RESERVED = {*FUNCTIONS, *KINDS, *MORE_KINDS, "size", "inf", "where"}
"""Words of the language: no array is called so."""
ONE = Number(1.0)
ANY = "..."
"""An axis that stands for all axes before others."""
EMPTY = ("nan", "uniform")
"""What a softmax may give where no term counts, instead of 0."""
MOST_DEPTH = 120  # of parentheses and cases: one of 32 parts has 70
MOST_CHARACTERS = 10_000  # of a formula: one of 32 parts has 3,000
TOO_DEEP = (RecursionError, MemoryError)  # of Python's parser


@lru_cache(1024)
def parse(text: str) -> Formula:
    """The formula that a text is. Raises InputError where it is none."""
    line, _, remark = text.partition("  # ")
    left, equals, right = line.partition(" = ")
    symbol, bracket, axes = left.strip().rpartition("[")
    try:
        if len(text) > MOST_CHARACTERS or not equals or not left.strip():
            raise SyntaxError
        own: Sequence[Index | Expr] = [(x,) for x in re.findall(r"\b[a-z]\b", left)]
        if bracket:
            cell = parsed(f"x[{axes}")
            own = cell.index if isinstance(cell, Cell) else [cell]
        index, body = tuple(x for x in own if isinstance(x, tuple)), parsed(right)
        if len(index) < len(own):
            raise SyntaxError
        symbol = symbol if bracket else left.strip()
        return Formula(symbol, index, body, remark.strip(), in_words=not bracket)
    except (SyntaxError, ArithmeticError, ValueError, LookupError, *TOO_DEEP) as problem:
        raise InputError(f"{text[:60]!r} is not a formula that attncli reads") from problem


_LETTER = re.compile(r"\b[a-z]\b(?=[^[]*\])")  # within brackets


def letters_of(text: str) -> set[str]:
    """The letters of all axes in the text of a formula."""
    return {*_LETTER.findall(text)}


@lru_cache(1024)
def relettered(text: str, **letters: str) -> str:
    """The text with other letters; one may become several that are side by side."""
    return _LETTER.sub(lambda letter: letters.get(letter[0], letter[0]), text)


@lru_cache(1024)
def written(text: str, names: frozenset[str]) -> str:
    """A formula without its optional parts of which something is not read.

    >>> written("A[h,i] = softmax[i](x[h,i]{, sink=sinks[h]})", frozenset({"x"}))
    'A[h,i] = softmax[i](x[h,i])'
    """
    parts = re.split(r"[{}]", text)  # every second one is optional
    parts[1::2] = [x if names.issuperset(re.findall(r"(\w+)\[", x)) else "" for x in parts[1::2]]
    return "".join(parts)


_SPELLED = {
    "·": "@", " where ": ", where=", "[]": "[()]", "≤": "<=", "≥": ">=", "≠": "!=", "−": "-",
    "×": "*", "^": "**", "∞": "inf", "…": "...", "σ(": "sigmoid(", "log(": "ln(",
}  # fmt: skip
_SPELLING = re.compile("|".join(r"\b" * x.endswith("(") + re.escape(x) for x in _SPELLED))


def parsed(text: str) -> Expr:
    """The expression that a text is. FormulaError where it is none, with the place in the text.

    To Python's parser `g·r` is a product of matrices, and `where` a keyword.
    """
    plain, places, end = "", list[int](), 0
    for sign in _SPELLING.finditer(text):
        plain += text[end : sign.start()] + _SPELLED[sign[0]]
        places += [*range(end, sign.start()), *[sign.start()] * len(_SPELLED[sign[0]])]
        end = sign.end()
    plain, places = plain + text[end:], [*places, *range(end, len(text) + 1)]
    indent = len(plain) - len(plain.lstrip())
    try:
        if (at := text.find("@")) >= 0:
            what = "matrices are multiplied by index: sum[d](q[i,d] * k[j,d])"
            raise FormulaError(what, at, at + 1)
        with warnings.catch_warnings():  # such as of 1or 2
            warnings.simplefilter("error", SyntaxWarning)
            body = _parsed(ast.parse(plain.strip(), mode="eval").body)
        if _depth(body) > MOST_DEPTH:
            raise FormulaError(f"more than {MOST_DEPTH} operators within each other", 0, 1)
        return body
    except FormulaError as error:
        if at >= 0:
            raise
        encoded = plain.strip().encode()  # Python counts bytes
        ends = (len(encoded[:x].decode()) + indent for x in (error.start, error.end))
        start, end = (places[min(x, len(places) - 1)] for x in ends)
        raise FormulaError(error.message, start, end) from None
    except SyntaxError as error:
        for equals in re.finditer(r"(?<![<>=!])=(?!=)", text):
            if not re.search(r"(sink|empty)\s*$", text[: equals.start()]):
                what = 'a condition has "=="; "=" is for what a line defines'
                raise FormulaError(what, *equals.span()) from None
        at = places[min((error.offset or 1) - 1 + indent, len(places) - 1)]
        raise FormulaError(_in_words(error.msg), at, at + 1) from None
    except (*TOO_DEEP, ArithmeticError, ValueError):
        what = "there are more operators within each other, or digits, than can be read"
        raise FormulaError(what, 0, 1) from None


def _in_words(message: str) -> str:
    """What Python's parser says is wrong, in the words of the language."""
    is_known = re.search("never closed|unmatched|does not match|expected 'else'", message)
    return message if is_known else "an operator, a name or the end of the line is expected here"


def _parsed(node: ast.expr) -> Expr:  # noqa: PLR0912 - a rule for each kind of node
    match node:
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            return Number(float(value))
        case ast.Name("inf"):
            return Number(inf)
        case ast.Name(name):
            return Place(name) if len(name) == 1 else Param(name)
        case ast.Subscript(ast.Name("size"), ast.Name(letter)):
            return Size(letter)
        case ast.Subscript(ast.Name(name), axes):
            each = axes.elts if isinstance(axes, ast.Tuple) else [axes]
            return Cell(name, tuple(map(_axis, each)))
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            return Apply(_OPERATORS[type(operator)], (_parsed(left), _parsed(right)))
        case ast.Compare(left, operators, rights) if {*map(type, operators)} <= _OPERATORS.keys():
            each_side = [_parsed(x) for x in (left, *rights)]
            pairs = zip(operators, pairwise(each_side), strict=True)
            compared = [Apply(_OPERATORS[type(sign)], both) for sign, both in pairs]
            return reduce(lambda a, b: Apply("and", (a, b)), compared)
        case ast.BoolOp(operator, values):
            sign = _OPERATORS[type(operator)]
            return reduce(lambda a, b: Apply(sign, (a, b)), map(_parsed, values))
        case ast.UnaryOp(operator, operand) if type(operator) in _OPERATORS:
            inner = _parsed(operand)
            if isinstance(inner, Number) and isinstance(operator, ast.USub):
                return Number(-inner.value)
            return Apply(_OPERATORS[type(operator)], (inner,))
        case ast.IfExp(test, then, otherwise):
            return If(_parsed(test), _parsed(then), _parsed(otherwise))
        case ast.Call(ast.Subscript(ast.Name(kind), letters), [body], more):
            return _over(node, kind, letters, body, more)
        case ast.Call(ast.Name(function), args, []):
            return _applied(node, function, args)
    raise _wrong("this is not a part of the language", node)


def _wrong(what: str, node: ast.expr) -> FormulaError:
    return FormulaError(what, node.col_offset, node.end_col_offset or node.col_offset)


def _applied(node: ast.Call, function: str, args: Sequence[ast.expr]) -> Expr:
    """A function of numbers; of several the largest or the smallest."""
    if function in (*KINDS, *MORE_KINDS) and (function not in FUNCTIONS or len(args) == 1):
        raise _wrong(f"{function} is over letters: {function}[j](…)", node)
    if function not in FUNCTIONS:
        names = (*FUNCTIONS, *KINDS, *MORE_KINDS)
        raise _wrong(f'no function is called "{function}"; {nearest(function, names)}', node.func)
    n = FUNCTIONS[function]
    if len(args) != n and not (n == 2 and len(args) > 2):
        wanted = "one number" if n == 1 else "two numbers or more"
        raise _wrong(f"{function} is of {wanted}, not of {len(args)}", node)
    numbers = [*map(_parsed, args)]
    if n == 1:
        return Apply(function, (numbers[0],))
    return reduce(lambda a, b: Apply(function, (a, b)), numbers)


def _over(
    node: ast.Call, kind: str, axes: ast.expr, body: ast.expr, more: Sequence[ast.keyword]
) -> Expr:
    """What runs along letters."""
    if kind not in (*KINDS, *MORE_KINDS):
        hint = nearest(kind, (*KINDS, *MORE_KINDS))
        raise _wrong(f'nothing over letters is called "{kind}"; {hint}', node.func)
    each = axes.elts if isinstance(axes, ast.Tuple) else [axes]
    letters = tuple(x.id for x in each if isinstance(x, ast.Name) and len(x.id) == 1)
    if not letters or len({*letters}) < len(each):
        raise _wrong(f"{kind} is over letters, each once: {kind}[i,j](…)", axes)
    known = {"softmax": ("where", "sink", "empty"), "lse": ("where", "sink")}.get(kind, ("where",))
    options: dict[str, Any] = {}
    for option in more:
        name = str(option.arg)
        if name not in known or name in options:
            raise _wrong(f"{kind} has {' and '.join(known)}, no {name} here", option.value)
        options[name] = _parsed(option.value)
    if (empty := options.get("empty")) is not None:
        names = ("zero", *EMPTY)
        if not isinstance(empty, Param) or empty.name not in names:
            raise _wrong(f"empty is {', '.join(names[:-1])} or {names[-1]}", node)
        options["empty"] = empty.name if empty.name in EMPTY else ""
    inner, where = _parsed(body), options.get("where")
    match kind:
        case "mean":
            sizes: list[Expr] = [Size(x) for x in letters]
            n = reduce(lambda a, b: Apply("*", (a, b)), sizes)
            n = n if where is None else Over("sum", letters, ONE, where)
            return Apply("/", (Over("sum", letters, inner, where), n))
        case "min":
            return Apply("neg", (Over("max", letters, Apply("neg", (inner,)), where),))
        case "all" | "any":  # counted: those that are not, or that are
            inner = inner if kind == "any" else Apply("not", (inner,))
            counted = inner if where is None else Apply("and", (where, inner))
            sign = "==" if kind == "all" else ">"
            return Apply(sign, (Over("sum", letters, ONE, counted), Number(0.0)))
    return Over(kind, letters, inner, **options)


def _axis(node: ast.expr) -> Index | Expr:
    match node:
        case ast.BinOp(left, ast.MatMult(), right):
            both = _axis(left), _axis(right)
            if all(isinstance(x, tuple) and all(isinstance(a, str) for a in x) for x in both):
                return (*both[0], *both[1])  # type: ignore[misc]
            raise _wrong("letters are side by side on an axis: h·d", node)
        case ast.Name("_"):
            return ()
        case ast.Name(letter) if len(letter) == 1:
            return (letter,)
        case ast.Constant(int(at)) if type(at) is int:
            return (at,)
        case ast.Constant(value) if value is ...:
            return (ANY,)
    return _parsed(node)


# ---- what an expression is made of


def children(node: Expr, *, guards: bool = False) -> list[Expr]:
    """What a node is made of; guards: what says which terms count, or where a cell is, too."""
    match node:
        case Apply(_, args):
            return [*args]
        case If(condition, then, otherwise):
            return [condition, then, otherwise]
        case Over(_, _, body, where, sink):
            return [x for x in (body, sink, where if guards else None) if x is not None]
        case Cell(_, index) if guards:
            return [axis for axis in index if not isinstance(axis, tuple)]
    return []


def letters_at(index: Iterable[Index | Expr]) -> list[str]:
    """The letters of an index, in order; those of computed axes too."""
    axes = [
        axis if isinstance(axis, tuple) else [x.letter for x in walk(axis) if isinstance(x, Place)]
        for axis in index
    ]
    return [x for axis in axes for x in axis if isinstance(x, str)]


def letters_in(node: Expr) -> list[str]:
    """The letters of all cells, places and sums in an expression, in order, each once."""
    every = list[str]()
    for x in walk(node, guards=True):
        match x:
            case Cell(_, index):
                every += letters_at(index)
            case Over(_, letters):
                every += letters
            case Place(letter):
                every.append(letter)
    return [*dict.fromkeys(every)]


def every_letter(formula: Formula) -> list[str]:
    """The letters of a whole formula, in order, each once; those of `size[d]` alone, too."""
    sizes = [x.letter for x in walk(formula.body, guards=True) if isinstance(x, Size)]
    return [*dict.fromkeys([*letters_at(formula.index), *letters_in(formula.body), *sizes])]


def _depth(node: Expr) -> int:
    return 1 + max(map(_depth, children(node, guards=True)), default=0)


def walk(node: Expr, *, guards: bool = False) -> Iterator[Expr]:
    """A node and all that it is made of."""
    yield node
    for child in children(node, guards=guards):
        yield from walk(child, guards=guards)


def cells(node: Expr, *, guards: bool = False) -> list[Cell]:
    """Every cell that an expression is made of, in order."""
    return [x for x in walk(node, guards=guards) if isinstance(x, Cell)]


@lru_cache(1024)
def only_guards(text: str) -> frozenset[str]:
    """The arrays that only say where there is something: of which every cell is `… != -inf`.

    >>> only_guards("A[i] = softmax[i](x[i] where m[i] != -inf)")
    frozenset({'m'})
    """
    every, guards = list[str](), list[str]()
    for x in walk(parse(text).body, guards=True):
        match x:
            case Cell(name):
                every.append(name)
            case Apply("!=", (Cell(name), Number(value))) if value == -inf:
                guards.append(name)
    return frozenset(name for name in guards if guards.count(name) == every.count(name))


def summed_letters(node: Expr) -> set[str]:
    """The letters of the sums and largest numbers in an expression, along which it has no axis."""
    overs = (x for x in walk(node, guards=True) if isinstance(x, Over) and x.kind != "softmax")
    return {x for over in overs for x in over.letters}


def rebuilt(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every node changed, from within outwards, what says where included."""

    def inner(x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(inner, x))
        return rebuilt(x, change) if type(x) in _NODES else x

    return change(type(node)(*map(inner, vars(node).values())))


def renamed(node: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with other names for some of its arrays."""

    def change(x: Expr) -> Expr:
        return Cell(names.get(x.name, x.name), x.index) if isinstance(x, Cell) else x

    return rebuilt(node, change)


def with_letters(node: Expr, letters: Mapping[str, Index]) -> Expr:
    """The expression with other letters; one may become several that are side by side."""

    def change(x: Expr) -> Expr:
        match x:
            case Cell(name, index):
                return Cell(name, tuple(other(x) if isinstance(x, tuple) else x for x in index))
            case Over():
                return replace(x, letters=tuple(map(str, other(x.letters))))
            case Place(letter):
                (one,) = other((letter,))
                return Place(str(one))
            case Size(letter):
                sizes: list[Expr] = [Size(str(one)) for one in other((letter,))]
                return reduce(lambda a, b: Apply("*", (a, b)), sizes)
        return x

    def other(axis: Index) -> Index:
        return tuple(b for a in axis for b in letters.get(str(a), (a,)))

    return rebuilt(node, change)


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
    index = f"[{','.join(map(_axis_text, formula.index))}]"
    remark = f"  # {formula.remark}" if formula.remark else ""
    return f"{formula.symbol}{'' if formula.in_words else index} = {text_of(formula.body)}{remark}"


# ---- sizes and places


def sizes_of(
    formula: Formula, shape: Shape, shapes: Mapping[str, Shape], known: Mapping[str, int] = {}
) -> dict[str, int]:
    """How long each letter is, from the shape of the stage and of what it reads, and what is known.

    A letter whose axis no array has is left out. Of several letters on one axis, one follows from
    the others.
    """
    pairs = [*_axes(formula.index, shape)]
    for cell in cells(formula.body, guards=True):
        pairs += _axes(cell.index, shapes.get(cell.name, ()))
    sizes, packed = {**known}, list[tuple[list[str], int]]()
    for axis, size in pairs:
        letters = [x for x in axis if isinstance(x, str)] if isinstance(axis, tuple) else []
        if len(letters) == 1:
            sizes[letters[0]] = max(size, sizes.get(letters[0], 1))
        elif letters:
            packed.append((letters, size))
    for letters, size in packed * len(packed):
        known_sizes = [sizes[x] for x in letters if x in sizes]
        if len(known_sizes) == len(letters) - 1:
            (letter,) = {*letters} - sizes.keys()
            sizes[letter] = max(1, size // max(1, prod(known_sizes)))
    return sizes


def present_axes(index: tuple[Index, ...], sizes: Mapping[str, int]) -> tuple[Index, ...]:
    """The axes of a stage: without the first ones, if no array has them."""
    while index and not {*map(str, index[0])} <= sizes.keys():
        index = index[1:]
    return index


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
