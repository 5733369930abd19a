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

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast, get_args

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


KINDS = ("sum", "prod", "max", "softmax", "lse")
MORE_KINDS = ("mean", "min", "all", "any")
"""What is written by those: of numbers, and of conditions."""
_OF_ONE = "exp exp2 ln log2 sqrt tanh sigmoid softplus sin cos arccos degrees abs sign floor"
CONDITIONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "and", "or", "not"})
"""Functions that give true or false."""
FUNCTIONS = {**dict.fromkeys(_OF_ONE.split(), 1), "max": 2, "min": 2}
"""How many numbers each function is of."""
RESERVED = {*FUNCTIONS, *KINDS, *MORE_KINDS, "size", "inf", "where"}
"""Words of the language: no array is called so."""
ONE = Number(1.0)

# ---- what an expression is made of


def children(node: Expr, *, guards: bool = False) -> list[Expr]:
    """What a node is made of; guards: what says which terms count, or where a cell is, too."""
    if isinstance(node, Cell):  # no `match`: a search asks this a million times
        return [x for x in node.index if not isinstance(x, tuple)] if guards else []
    if isinstance(node, Apply):
        return [*node.args]
    if isinstance(node, If):
        return [node.condition, node.then, node.otherwise]
    if isinstance(node, Over):
        parts = node.body, node.sink, node.where if guards else None
        return [x for x in parts if x is not None]
    return []


def depth_of(node: Expr) -> int:
    """How many operators of an expression are within each other."""
    return 1 + max(map(depth_of, children(node, guards=True)), default=0)


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


def walk(node: Expr, *, guards: bool = False) -> Iterator[Expr]:
    """A node and all that it is made of."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(children(node, guards=guards))


def cells(node: Expr, *, guards: bool = False) -> list[Cell]:
    """Every cell that an expression is made of, in order."""
    return [x for x in walk(node, guards=guards) if isinstance(x, Cell)]


def params_in(node: Expr) -> list[str]:
    """The names of all numbers in an expression."""
    return [x.name for x in walk(node, guards=True) if isinstance(x, Param)]


def free_letters(node: Expr) -> list[str]:
    """The letters along which an expression has numbers, each once: not those of a sum in it."""
    index = node.index if isinstance(node, Cell) else ()
    letters = [x for axis in index if isinstance(axis, tuple) for x in axis if isinstance(x, str)]
    letters += [node.letter] if isinstance(node, Place) else []
    sink = node.sink if isinstance(node, Over) else None
    parts = [part for part in children(node, guards=True) if part is not sink]
    inner = [x for part in parts for x in free_letters(part)]
    ends = node.letters if isinstance(node, Over) and node.kind != "softmax" else ()
    of_sink = free_letters(sink) if sink is not None else []
    return [*dict.fromkeys([*(x for x in (*letters, *inner) if x not in ends), *of_sink])]


def with_parts(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The node with each of its parts changed, what says where included; itself if none is."""

    def inner(x: Any) -> Any:
        if isinstance(x, tuple):
            items = [*map(inner, x)]
            return x if all(map(operator.is_, items, x)) else tuple(items)
        return change(x) if type(x) in _NODES else x

    parts = [*vars(node).values()]
    others = [*map(inner, parts)]
    return node if all(map(operator.is_, others, parts)) else type(node)(*others)


def rebuilt(node: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every node changed, from within outwards."""
    return change(with_parts(node, lambda x: rebuilt(x, change)))


def renamed(node: Expr, names: Mapping[str, str], params: Mapping[str, str] = {}) -> Expr:
    """The expression with other names for some of its arrays and parameters."""

    def change(x: Expr) -> Expr:
        match x:
            case Cell(name, index):
                return Cell(names.get(name, name), index)
            case Param(name) | Place(name) if name in params:
                return Param(params[name])
        return x

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
                (new,) = other((letter,))
                return Place(str(new))
            case Size(letter):
                sizes: list[Expr] = [Size(str(new)) for new in other((letter,))]
                return reduce(lambda a, b: Apply("*", (a, b)), sizes)
        return x

    def other(axis: Index) -> Index:
        return tuple(b for a in axis for b in letters.get(str(a), (a,)))

    return rebuilt(node, change)


def with_bound(node: Over, letters: Mapping[str, Index]) -> Over:
    """A sum with other letters of its own; its sink has letters from around it."""
    terms = replace(node, sink=None)
    return replace(cast(Over, with_letters(terms, letters)), sink=node.sink)


_BINDS = {
    **{"or": 1, "and": 2, "not": 3, "neg": 7, "**": 8},
    **dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 4),
    **{"+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6},
}
"""How closely operators bind, as in Python."""


WITH_EXPONENT = 1e16
"""Whole numbers from here on are written as 1e16, as Python does: not all of their digits count."""


def text_of(node: Expr, outer: int = 0) -> str:
    """The text of an expression, which `parse` reads back; `outer` is how closely it is bound.

    >>> from attncli.formula.parser import parse
    >>> text_of(parse("Z[i] = (x[i] - 1) * 2 / size[d] if i < 3 else -inf").body)
    '(x[i] - 1) * 2 / size[d] if i < 3 else -inf'
    """
    binding, text = 9, ""
    match node:
        case Number(value):
            binding = 7 if value < 0 else 9
            is_whole = value.is_integer() and abs(value) < WITH_EXPONENT
            text = f"{int(value)}" if is_whole else repr(value).replace("e+", "e")
        case Param(name) | Place(name):
            text = name
        case Size(letter):
            text = f"size[{letter}]"
        case Cell(name, index):
            text = f"{name}[{','.join(map(_axis_text, index))}]"
        case If(condition, then, otherwise):
            binding = 0
            text = f"{text_of(then, 1)} if {text_of(condition, 1)} else {text_of(otherwise)}"
        case Over(kind, letters, body, where, sink, empty):
            more = "" if where is None else f" where {text_of(where)}"
            more += "" if sink is None else f", sink={text_of(sink)}"
            more += f", empty={empty}" if empty else ""
            text = f"{kind}[{','.join(letters)}]({text_of(body)}{more})"
        case Apply("neg" | "not" as sign, (x,)):
            binding = _BINDS[sign]
            text = f"{'-' if sign == 'neg' else 'not '}{text_of(x, binding)}"
        case Apply(sign, (a, b)) if sign in _BINDS:
            binding = _BINDS[sign]  # a chain of comparisons, or of powers, would be read otherwise
            text = f"{text_of(a, binding + (binding in (4, 8)))} {sign} {text_of(b, binding + 1)}"
        case Apply(function, args):
            text = f"{function}({', '.join(map(text_of, args))})"
    return f"({text})" if binding < outer else text


def _axis_text(axis: Index | Expr) -> str:
    return text_of(axis) if not isinstance(axis, tuple) else "·".join(map(str, axis)) or "_"


def line_of(formula: Formula) -> str:
    """The text of a whole formula."""
    index = f"[{','.join(map(_axis_text, formula.index))}]"
    remark = f"  # {formula.remark}" if formula.remark else ""
    return f"{formula.symbol}{'' if formula.in_words else index} = {text_of(formula.body)}{remark}"
