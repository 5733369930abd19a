"""From text to expressions: Python's own parser reads the language of expression.py, never runs it.

parse("Z[i] = x[i] / 2")   a whole formula
parsed("x[i] / 2")         an expression
written, relettered        the text of a formula with fewer parts, or other letters
"""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from math import inf
from typing import Any

from attncli.errors import InputError, nearest
from attncli.formula.expression import (
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
    Size,
    depth_of,
    walk,
)


class FormulaError(InputError):
    """What is wrong in an expression, and where: between which characters, or in which part."""

    def __init__(self, message: str, start: int = 0, end: int = 0, part: str = "") -> None:
        super().__init__(message)
        self.start, self.end, self.part = start, end, part


_OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.MatMult: "*", ast.Pow: "**", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=",
    ast.Gt: ">", ast.GtE: ">=", ast.And: "and", ast.Or: "or", ast.Not: "not", ast.USub: "neg",
}  # fmt: skip
ANY = "..."
"""An axis that stands for all axes before others."""
EMPTY = ("nan", "uniform")
"""What a softmax may give where no term counts, instead of 0."""
MOST_DEPTH = 120  # of parentheses and cases: one of 32 parts has 70
MOST_CHARACTERS = 10_000  # of a formula: one of 32 parts has 3,000
TOO_DEEP = (RecursionError, MemoryError)  # of Python's parser
_ONE_PARSER = threading.Lock()  # until 3.11.8 and 3.12.2 two at once count one depth (gh-106905)


_UNREAD: dict[str, Formula] = {}
"""Formulas that were written and not read yet, by their texts."""
MOST_UNREAD = 1024


def written_as(text: str, formula: Formula) -> None:
    """Keeps a formula for `parse`, which then need not read the text that was written of it."""
    if len(text) <= MOST_CHARACTERS and depth_of(formula.body) <= MOST_DEPTH:
        if len(_UNREAD) >= MOST_UNREAD:
            _UNREAD.clear()
        _UNREAD[text] = formula


@lru_cache(8192)  # those of some hundred tiles or parts
def parse(text: str) -> Formula:
    """The formula that a text is. Raises InputError where it is none."""
    if (formula := _UNREAD.pop(text, None)) is not None:
        return formula
    line, _, remark = text.partition("  # ")
    left_side, equals, right_side = line.partition(" = ")
    symbol, bracket, axes = left_side.strip().rpartition("[")
    try:
        if len(text) > MOST_CHARACTERS or not equals or not left_side.strip():
            raise SyntaxError
        indices: Sequence[Index | Expr] = [(x,) for x in re.findall(r"\b[a-z]\b", left_side)]
        if bracket:
            cell = parsed(f"x[{axes}")
            indices = cell.index if isinstance(cell, Cell) else [cell]
        index, body = tuple(x for x in indices if isinstance(x, tuple)), parsed(right_side)
        if len(index) < len(indices):
            raise SyntaxError
        symbol = symbol if bracket else left_side.strip()
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
def without_heads(text: str) -> str:
    """A formula of arrays that have no axis of heads.

    >>> without_heads("Q[b,h,i,d] = sum[m](x[b,i,m] * w[m,h·d]) + sinks[h]")
    'Q[b,i,d] = sum[m](x[b,i,m] * w[m,d]) + sinks[_]'
    """
    text = re.sub(r"\b[gh]·", "", re.sub(r"\[[gh]\]", "[_]", text))
    return re.sub(r"\b[gh],|,[gh]\b", "", text)


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
    "Σ": "sum", "Π": "prod", "√": "sqrt",
}  # fmt: skip
_SPELLING = re.compile(
    "|".join(r"\b" * x.endswith("(") + re.escape(x) for x in _SPELLED if x not in "ΣΠ√")
    + r"|\b[ΣΠ](?=\[[^\[\]]*\]\()|√(?=\()"
)
_FOREIGN = {
    "&": 'write "and" instead',
    "|": 'write "or" instead',
    "!": 'write "not" instead',
    "~": 'write "not" instead',
    "@": "matrices are multiplied by index: sum[d](q[i,d] * k[j,d])",
    ";": "a formula ends with its line; write the next on a line of its own",
}
"""What is said of signs that other languages have."""


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
        if foreign := re.search(r"[@;~]|&+|\|+|!(?!=)", text):
            raise FormulaError(_FOREIGN[foreign[0][0]], *foreign.span())
        with _ONE_PARSER, warnings.catch_warnings():  # such as of 1or 2
            warnings.simplefilter("error", SyntaxWarning)
            tree = ast.parse(plain.strip(), mode="eval")
        body = _parsed(tree.body)
        if depth_of(body) > MOST_DEPTH:
            raise FormulaError(f"more than {MOST_DEPTH} operators within each other", 0, 1)
        return body
    except FormulaError as error:
        if foreign:
            raise
        encoded = plain.strip().encode()  # Python counts bytes
        ends = (len(encoded[:x].decode()) + indent for x in (error.start, error.end))
        start, end = (places[min(x, len(places) - 1)] for x in ends)
        raise FormulaError(error.message, start, end) from None
    except SyntaxError as error:
        for equals in re.finditer(r"(?<![<>=!])=(?!=)", text):
            if not re.search(r"(sink|empty)\s*$", text[: equals.start()]):
                message = 'a condition has "=="; "=" is for what a line defines'
                raise FormulaError(message, *equals.span()) from None
        is_open = "expected 'else'" in error.msg  # which Python finds at the start of the case
        offset = error.end_offset if is_open else error.offset
        at = places[min((offset or 1) - 1 + indent, len(places) - 1)]
        raise FormulaError(_in_words(error.msg), at, at + 1) from None
    except (*TOO_DEEP, ArithmeticError, ValueError):
        message = "there are more operators within each other, or digits, than can be read"
        raise FormulaError(message, 0, 1) from None


def _in_words(message: str) -> str:
    """What Python's parser says is wrong, in the words of the language."""
    if "expected 'else'" in message:
        return "the other case is expected here: … if condition else 0"
    is_known = re.search("never closed|unmatched|does not match", message)
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
        case ast.Subscript(ast.Subscript()):
            raise _wrong("all axes are in one bracket: q[i,d]", node)
    raise _wrong("this is not a part of the language", node)


def _wrong(message: str, node: ast.expr) -> FormulaError:
    return FormulaError(message, node.col_offset, node.end_col_offset or node.col_offset)


def _applied(node: ast.Call, function: str, args: Sequence[ast.expr]) -> Expr:
    """A function of numbers; of several the largest or the smallest."""
    if function in (*KINDS, *MORE_KINDS) and (function not in FUNCTIONS or len(args) == 1):
        raise _wrong(f"{function} is over letters: {function}[j](…)", node)
    if function not in FUNCTIONS:
        names = (*FUNCTIONS, *KINDS, *MORE_KINDS)
        raise _wrong(f'no function is called "{function}"; {nearest(function, names)}', node.func)
    n = FUNCTIONS[function]
    if len(args) != n and not (n == 2 and len(args) > 2):
        arity = "one number" if n == 1 else "two numbers or more"
        raise _wrong(f"{function} is of {arity}, not of {len(args)}", node)
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
    allowed = {"softmax": ("where", "sink", "empty"), "lse": ("where", "sink")}.get(
        kind, ("where",)
    )
    options: dict[str, Any] = {}
    for option in more:
        name = str(option.arg)
        if name not in allowed or name in options:
            raise _wrong(f"{kind} has {' and '.join(allowed)}, no {name} here", option.value)
        options[name] = _parsed(option.value)
    if (empty := options.get("empty")) is not None:
        names = ("zero", *EMPTY)
        if not isinstance(empty, Param) or empty.name not in names:
            raise _wrong(f"empty is {', '.join(names[:-1])} or {names[-1]}", node)
        options["empty"] = empty.name if empty.name in EMPTY else ""
    inner, condition = _parsed(body), options.get("where")
    match kind:
        case "mean":
            sizes: list[Expr] = [Size(x) for x in letters]
            n = reduce(lambda a, b: Apply("*", (a, b)), sizes)
            n = n if condition is None else Over("sum", letters, ONE, condition)
            return Apply("/", (Over("sum", letters, inner, condition), n))
        case "min":
            return Apply("neg", (Over("max", letters, Apply("neg", (inner,)), condition),))
        case "all" | "any":  # counted: those that are not, or that are
            inner = inner if kind == "any" else Apply("not", (inner,))
            counted = inner if condition is None else Apply("and", (condition, inner))
            sign = "==" if kind == "all" else ">"
            return Apply(sign, (Over("sum", letters, ONE, counted), Number(0.0)))
    return Over(kind, letters, inner, **options)


def _axis(node: ast.expr) -> Index | Expr:
    match node:
        case ast.BinOp(left, ast.MatMult(), right):
            both = _axis(left), _axis(right)
            if all(isinstance(x, tuple) and x for x in both):
                whole: Index = (*both[0], *both[1])  # type: ignore[misc]
                if sum(isinstance(x, int) for x in whole) < 2:
                    return whole
            message = "letters are side by side on an axis, one of them may be at a place: h·d, p·0"
            raise _wrong(message, node)
        case ast.Name("_"):
            return ()
        case ast.Name(letter) if len(letter) == 1:
            return (letter,)
        case ast.Constant(int(at)) if type(at) is int:
            return (at,)
        case ast.Constant(value) if value is ...:
            return (ANY,)
    return _parsed(node)


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
