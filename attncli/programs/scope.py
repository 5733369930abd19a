"""What is known at one line of a program: whether what it names is there, and how long axes are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from attncli.errors import nearest
from attncli.formula.evaluate import axes_read, sizes_of
from attncli.formula.expression import (
    ONE,
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Index,
    Over,
    Param,
    Place,
    Shape,
    Size,
    every_letter,
    letters_at,
    letters_in,
    text_of,
    walk,
)
from attncli.formula.matrices import SIZES
from attncli.formula.parser import FormulaError

_COMPARED = ("==", "!=", "<", "<=", ">", ">=")
_CONDITION = "a condition, and should be a number: (1 if … else 0)"


@dataclass
class Scope:
    """The inputs, and what the lines so far define.

    names    every name that a formula may have for an array → its own
    shapes   of arrays by all their names; truths: the own names of those of true and false
    sizes    of letters that lines say; lengths: in the inputs and the lines so far
    absent   letters of axes that an input lacks, or of one entry
    symbols  of stages; free: letters that no line has
    """

    names: dict[str, str]
    shapes: dict[str, Shape]
    truths: set[str]
    params: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    lengths: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    absent: set[str] = field(default_factory=set)
    symbols: dict[str, str] = field(default_factory=dict)
    free: list[str] = field(default_factory=list)


class Checker:
    """Names, letters and conditions of a line, whose letters on the left these are."""

    def __init__(self, scope: Scope, letters: set[str]) -> None:
        self.scope, self.letters = scope, letters

    def is_condition(self, node: Expr, around: frozenset[str] = frozenset()) -> bool:
        """Whether an expression is a condition; FormulaError where it is neither, nor a number.

        around  the letters of the sums that it is in
        """
        match node:
            case Place(name) | Param(name) if name not in self.letters | around:
                self.param(name, around)
            case Cell(name):
                self.cell(node, around)
                return self.scope.names[name] in self.scope.truths
            case If(condition, then, otherwise):
                self.check_truth(True, around, condition)
                is_truth = self.is_condition(then, around)
                self.check_truth(is_truth, around, otherwise)
                return is_truth
            case Over(_, letters, body, where, sink):
                self.over(node, around)
                self.check_truth(False, around | {*letters}, body)
                self.check_truth(True, around | {*letters}, where)
                self.check_truth(False, around, sink)
            case Apply("and" | "or" | "not", args):
                self.check_truth(True, around, *args)
                return True
            case Apply(function, (first, *others)):
                is_same = self.is_condition(first, around)
                if is_same and function not in ("==", "!="):
                    raise FormulaError(f"this is {_CONDITION}", part=text_of(first))
                self.check_truth(is_same, around, *others)
                return function in _COMPARED
        return False

    def check_truth(self, is_truth: bool, around: frozenset[str], *nodes: Expr | None) -> None:
        """FormulaError where one of the nodes is a number and should be a condition, or so."""
        for node in nodes:
            if node is not None and self.is_condition(node, around) != is_truth:
                message = "a number, and should be a condition such as j <= i"
                raise FormulaError(
                    f"this is {message if is_truth else _CONDITION}", part=text_of(node)
                )

    def over(self, node: Over, around: frozenset[str]) -> None:
        """FormulaError where what runs along letters has not the right ones."""
        kind, letters, part = node.kind, {*node.letters}, f"{node.kind}[{','.join(node.letters)}]"
        if kind == "softmax" and (out := letters - self.letters - around):
            message = f"softmax is over {min(out)}, which is no letter on the left"
            raise FormulaError(f"{message} or of a sum around it", part=part)
        if kind != "softmax" and (twice := letters & around - self.letters):
            message = f"{min(twice)} is the letter of a sum around this already"
            raise FormulaError(message, part=part)
        terms = (x for x in (node.body, node.where) if x is not None)
        there = {x for term in terms for x in letters_in(term)}
        is_count = node.body == ONE  # of mean, all and any, too
        if not is_count and (idle := [x for x in node.letters if x not in there]):
            raise FormulaError(f"{idle[0]} does not occur in what {kind} is of", part=part)

    def cell(self, node: Cell, around: frozenset[str]) -> None:
        """FormulaError where there is no such array, or it has not these axes."""
        if node.name not in self.scope.names:
            message = f'"{node.name}" is no stage before this line, and not in the input'
            raise FormulaError(f"{message}; {nearest(node.name, self.scope.names)}", part=node.name)
        n, shape = len(node.index), self.scope.shapes[node.name]
        if 0 in shape:
            raise FormulaError(f"{node.name} is empty: its shape is {shape}", part=node.name)
        if n < len(shape):
            message = f"{node.name} has {len(shape)} axes {shape}, {n} are named"
            raise FormulaError(message, part=text_of(node))
        for axis in node.index[n - len(shape) :]:
            if not isinstance(axis, tuple):
                self.check_truth(False, around, axis)
            elif out := [x for x in axis if isinstance(x, str) and x not in self.letters | around]:
                message = f"{out[0]} is no letter on the left, nor of a sum around it"
                hint = f"write sum[{out[0]}](…), or name it on the left"
                raise FormulaError(f"{message}: {hint}", part=text_of(node))

    def param(self, name: str, around: frozenset[str]) -> None:
        """FormulaError where a name by itself is none of a parameter."""
        if name in self.scope.names:
            axes = ",".join("ijdembhn"[: len(self.scope.shapes[name])])
            raise FormulaError(f'"{name}" needs its axes: {name}[{axes}]', part=name)
        if name not in self.scope.params:
            names = [*self.scope.params, *sorted(self.letters | around)]
            hint = f"; {nearest(name, names)}" if names else ""
            letters = (x for x, length in SIZES.items() if length == name)
            hint = next((f"; write size[{x}]" for x in letters), hint)
            message = f'"{name}" is no parameter before this line, nor a letter on the left'
            raise FormulaError(f"{message} or of a sum around it{hint}", part=name)


# ---- how long the axes are


def lengths_of(formula: Formula, scope: Scope) -> dict[str, int]:
    """How long each letter of a line is; those of axes that no array has are left out.

    FormulaError where arrays contradict each other, or nothing says how long a letter is.
    """
    every = [*axes_read(formula.body, scope.shapes)]
    missing = {x for axis, n, _ in every if n is None for x in letters_at([axis])}
    there = {x for axis, n, _ in every if n is not None for x in letters_at([axis])}
    nodes = [*walk(formula.body, guards=True)]
    there |= {x.letter for x in nodes if isinstance(x, Place | Size)}
    letters = [x for x in every_letter(formula) if x not in scope.params.keys() | missing - there]
    axes = [(axis, n, text_of(cell)) for axis, n, cell in every if n is not None]
    plain = [(axis, n, text) for axis, n, text in axes if isinstance(axis, tuple)]
    packed = {x for axis, _, _ in plain if len(axis) > 1 for x in letters_at([axis])}
    alone = [(x, n) for axis, n, _ in plain if len(axis) == 1 for x in axis if isinstance(x, str)]
    ones = {x for x, n in alone if n == 1} | missing - packed
    sizes = {x: n for x, n in alone[::-1] if n != 1}
    sizes |= {x: n for x in letters if x not in sizes for n in _elsewhere(x, scope, ones)}
    sizes |= {x: scope.sizes[x] for x in sizes.keys() & scope.sizes.keys()}
    sizes = {**sizes_of(Formula("", (), formula.body), (), scope.shapes, sizes), **sizes}
    for axis, n, text in sorted(plain, key=lambda x: len(x[0]) > 1):
        sizes |= {x: 1 for x in letters_at([axis]) if len(axis) > n == 1 and x not in sizes}
        if message := _contradiction(axis, n, text, sizes, plain):
            raise FormulaError(message, part=text)
    for x in (x for x in letters if x not in sizes):
        elsewhere = " and ".join(map(str, sorted(scope.lengths[x])))
        elsewhere = f"; elsewhere it is {elsewhere}" * bool(elsewhere)
        message = f"how long is {x}? No array of this line has it{elsewhere}. Say size[{x}] = …"
        raise FormulaError(message, part=x)
    return sizes


def _contradiction(
    axis: Index, n: int, text: str, sizes: Mapping[str, int], axes: Sequence[tuple[Index, int, str]]
) -> str:
    """Why an axis cannot have n entries, or "": what it is in which other array, or is said."""
    match axis:
        case () if n != 1:
            return f'"_" is an axis of one entry, this has {n}'
        case (int(at),) if at >= n:
            return f"there is no entry {at} among {n}, counted from 0"
        case (str(x),) if n not in (1, sizes[x]):
            others = (f"{m} in {other}" for a, m, other in axes if a == axis and m == sizes[x] != 1)
            return f"{x} is {n} in {text}, but " + next(others, f"size[{x}] = {sizes[x]}")
        case (_, _, *_) if n != 1:
            letters = letters_at([axis])
            if unknown := [x for x in letters if x not in sizes]:
                message = (
                    f"an axis of {n} is {'·'.join(map(str, axis))}: say how long one of them is"
                )
                return f"{message}, such as size[{unknown[0]}] = 2"
            whole, places = prod(sizes[x] for x in letters), [x for x in axis if type(x) is int]
            if places and n % whole == 0:
                is_out = places[0] >= n // whole
                message = f"there is no entry {places[0]} among {n // whole}, counted from 0"
                return message if is_out else ""
            if n != prod(sizes[x] for x in letters):
                return f"an axis of {n} is not {' · '.join(str(sizes[x]) for x in letters)}"
    return ""


def _elsewhere(x: str, scope: Scope, ones: set[str]) -> Iterator[int]:
    """How long a letter is that no array of a line has alone, if that is known."""
    if x in scope.sizes:
        yield scope.sizes[x]
    elif x in ones or (not scope.lengths[x] and x in scope.absent):
        yield 1
    elif len(scope.lengths[x]) == 1:
        yield from scope.lengths[x]
