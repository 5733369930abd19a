"""The arithmetic of one cell in real numbers: S[q1,k1] = 1·1 + 0·1 = 1, from its formula itself.

A sum is written with its numbers, term by term; what has no sum first with the names of its cells;
of a choice the case that it is. All numbers are those of the trace, so what is written is what was
computed. The language is that of expression.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.errors import InputError
from attncli.evaluate import AbsentError, Places, Values
from attncli.expression import (
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Number,
    Over,
    Param,
    Place,
    Shape,
    Size,
    cells,
    parse,
    places_at,
    walk,
)
from attncli.trace import Stage
from attncli.views.cell import Entry, Forms, Words, after_sign, between
from attncli.views.parts import Equation
from attncli.views.powers import log_sum, softmax
from attncli.views.select import Block
from attncli.views.text import shorten

FEW = 2  # addends up to which a sum is written with the names of its cells too

_SIGNS = {"+": " + ", "-": " - ", "/": " / "}
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2}  # what binds closer; all else 3
_NAMES = {
    **{"ln": "ln({})", "log2": "log₂ ({})", "exp2": "2^({})"},
    **{"sqrt": "√({})", "abs": "|{}|", "neg": "-({})", "degrees": "{}"},
}
_CALLED: dict[Expr, str]  # where the cells are named too
_CALLED = {Param("cap"): "c", Param("epsilon"): "ε", Apply("ln", (Number(2.0),)): "ln 2"}
_WIDTHS = {"d": "d_k", "e": "d_v", "m": "d_model"}


def equation(entry: Entry) -> Equation | None:
    """How a stage came to its number in this entry.

    None where the stage does not say, or where what it was computed from is not in the trace.
    """
    work = work_of(entry)
    return None if work is None else work.equation()


def work_of(entry: Entry) -> Work | None:
    """The arithmetic of an entry; None as `equation` has it."""
    block, stage = entry.block, entry.stage
    if id(stage) not in block.formulas:  # of all its cells
        block.formulas[id(stage)] = stage, bound_formula(block, stage)
    bound = block.formulas[id(stage)][1]
    if bound is None:
        return None
    values, stages = bound
    return Work(entry, values, stages, places_at(values.formula, index_of(entry), values.sizes))


def bound_formula(block: Block, stage: Stage) -> tuple[Values, Mapping[str, Stage]] | None:
    """The formula of a stage with what it reads; None where the trace does not hold all of it."""
    formula = formula_of(stage)
    sources = {name: block.read(stage, name) for name in stage.reads}
    if formula is None or None in sources.values():
        return None
    for cell in cells(formula.body, guards=True):
        if cell.name not in sources:  # what only says which terms count, such as the mask
            sources[cell.name] = block.stages.get(cell.name)
    stages = {name: source for name, source in sources.items() if source is not None}
    arrays = {name: _plain(source) for name, source in stages.items()}
    if rows := stage.labels.get("position"):  # which position a row is of
        numbers = [label.rpartition(" ")[2] for label in rows]
        known = [float(x) if x.lstrip("-").isdecimal() else math.nan for x in numbers]
        arrays["pos"] = np.array(known)
    values = Values.of(formula, _plain(stage).shape, arrays, stage.params, stage.sizes)
    return (values, stages) if values.fits else None


def formula_of(stage: Stage) -> Formula | None:
    """The formula of a stage, None where it has none; a file may hold any text."""
    try:
        return parse(stage.expression) if stage.expression else None
    except InputError:
        return None


def is_softmax(stage: Stage) -> bool:
    """Whether a stage is the softmax of another one."""
    formula = formula_of(stage)
    body = formula and "x" in stage.reads and formula.body
    return isinstance(body, Over) and body.kind == "softmax"


class Factors(NamedTuple):
    """What a product of two matrices reads, and whether rows are summed: Aᵀ B, not A B."""

    left: str
    right: str
    by_column: bool


def factors(stage: Stage) -> Factors | None:
    """The factors of a stage that is a product of two matrices; None of another one."""
    node, letters, formula = None, set[str](), formula_of(stage)
    while isinstance(node := formula.body if formula and node is None else node, Over):
        letters, node = letters | {*node.letters}, node.body
    match node:
        case Apply("*", (Cell(a, index), Cell(b))) if letters:
            rows = index[-2] if len(index) > 1 else ()
            return Factors(a, b, isinstance(rows, tuple) and bool({*rows} & letters))
    return None


def is_pair(stage: Stage) -> bool:
    """Whether a cell is of two vectors, of which one with itself says little: cos(a, b)."""
    formula = formula_of(stage)
    return formula is not None and formula.in_words and len(formula.index) > 1


class Terms(NamedTuple):
    """The terms of a sum: their numbers, and how each is written."""

    values: Array
    text: Callable[[int], str]


class Work(NamedTuple):
    """How one cell came to its number.

    values    the formula with what it reads
    stages    the same as stages
    places    where each letter is
    is_named  whether cells are written by name, not by number
    """

    entry: Entry
    values: Values
    stages: Mapping[str, Stage]
    places: Places
    is_named: bool = False

    def equation(self) -> Equation | None:
        """The cell's name, how its number came about, and the number."""
        body = self.values.formula.body
        try:
            with np.errstate(all="ignore"):
                forms, remark = self.forms(body)
        except AbsentError:
            return None
        unit = "°" * (isinstance(body, Apply) and body.function == "degrees")
        value = self.entry.write(self.entry.value) + unit
        return Equation(self.name(self.entry), (*forms, (value,)), remark)

    def forms(self, node: Expr) -> Forms:
        """What is written between the name of a cell and its number."""
        remark = self.values.formula.remark
        match node:
            case If():
                return self.forms(self.case(node))
            case Number() | Param() if remark:
                return [], remark
            case Cell(name) if name not in self.stages and remark:
                return [], remark
            case Cell():
                return [(self.named.say(node),)], self.side(node)
            case Over("softmax", letters, body):
                scores, score = self.scores(node), float(self.number(body))
                return softmax(self.entry, score, scores, self.values.size(letters), _other(node))
            case Over("lse"):
                return log_sum(self.entry, self.scores(node))
            case Apply("/", (Over("lse") as over, unit)):
                return log_sum(self.entry, self.scores(over), f" / {self.named.say(unit)}")
            case Over("sum", letters, body, None) if self.values.size(letters) == 1:
                return self.along(letters)[0].forms(body)
            case Over("sum", letters, _, where) if where is not None:
                terms, size = self.terms(node), self.values.size(letters)
                if not len(terms.values):
                    return [], remark or f"every {_other(node)} is masked"
                n_masked = size - len(terms.values)
                return [self.entry.sum(*terms)], f"without {n_masked} masked" if n_masked else ""
        return self.of_sums(node) if _has(Over, node) else (self.of_cells(node), "")

    def of_cells(self, node: Expr) -> list[Words]:
        """An expression without a sum: with the names of its cells, and with their numbers."""
        is_log = isinstance(node, Apply) and node.function in ("ln", "log2")
        if is_log or len([*_addends(node)]) > FEW:
            return [self.words(node)]
        both = [self.named, self] if cells(node) else [self]
        return [*dict.fromkeys((one.say(node, " · "),) for one in both)]

    def of_sums(self, node: Expr) -> Forms:
        """An expression with sums: term by term, and of several sums with a number for each."""
        forms, addends = [self.words(node)], [*_addends(node)]
        if len(addends) > 1 and _is_sum(node):
            return [*forms, self.entry.numbers([self.number(addend) for addend in addends])], ""
        match node:
            case Over("sum", letters, Over() as body):
                each = self.along(letters)
                forms.append(self.entry.numbers([one.number(body) for one in each]))
                return forms, " + ".join(one.part(letters, body) for one in each)
            case Apply("/", (_, divisor)) if _has(Over, divisor):
                forms.append((self.say(node),))
        return [*dict.fromkeys(forms)], ""

    def case(self, node: If) -> Expr:
        """The case that it is; where the trace does not hold what decides, by the number itself."""
        try:
            is_first = bool(self.number(node.condition))
        except AbsentError:
            is_first = self.entry.value != 0 or self.number(node.then) == 0
        return node.then if is_first else node.otherwise

    def number(self, node: Expr, places: Places | None = None) -> Any:
        """What an expression is, here or with some letters at other places, one or many."""
        return self.values.number(node, {**self.places, **(places or {})})

    def along(self, letters: tuple[str, ...]) -> list[Work]:
        """The same at every place of some letters."""
        return [self._replace(places=each) for each in self.values.along(letters, self.places)]

    def place(self, cell: Cell, places: Places) -> list[Any]:
        """Where a cell is in its stage, which has one axis more where a vector is beside a map."""
        where, axes = [*self.values.at(cell, places)], self.stages[cell.name].axes
        if "" in axes:
            where.insert(axes.index(""), 0)
        return where

    # ---- words

    def name(self, entry: Entry) -> str:
        """The name of a cell: S[q1,k1]; cos(mom, dad) where its formula says so in words."""
        formula = formula_of(entry.stage)
        if formula is None or not formula.in_words:
            return entry.name
        labels = iter(entry.labels())
        return re.sub(r"\b[a-z]\b", lambda letter: next(labels, letter[0]), formula.symbol)

    def cell(self, node: Cell) -> Entry:
        """The entry of what a cell names."""
        source, where = self.stages[node.name], self.place(node, self.places)
        outer = dict(zip(source.axes[:-2], where, strict=False))
        row, column = ([0, 0, *where])[-2:]
        return self.entry._replace(stage=source, where=outer, row=row, column=column)

    @property
    def named(self) -> Work:
        """The same, its cells by name."""
        return self._replace(is_named=True)

    def say(self, node: Expr, dot: str = "·") -> str:
        """An expression without a sum; of a product `dot` is between the factors."""
        match node:
            case If():
                return self.say(self.case(node), dot)
            case Cell(name) if self.is_named and name in self.stages:
                return self.name(self.cell(node))
            case _ if _is_constant(node):
                return self.constant(node)
            case Cell() | Over():
                return self.entry.write(self.number(node))
            case Apply("neg", (x,)):
                return f"-{after_sign(self.operand(x, '*'))}"
            case Apply("+" | "-" | "/" | "*" as sign, (a, b)):
                right = after_sign(self.operand(b, sign, right=True))
                return f"{self.operand(a, sign)}{_SIGNS.get(sign, dot)}{right}"
            case Apply("**", (Apply() as x, Number(2.0))):
                return f"({self.say(x)})²"
            case Apply("**", (x, Number(2.0))):
                return f"{after_sign(self.say(x))}²"
            case Apply("**", (x, power)):
                exponent = self.say(power).replace(" / ", "/")
                exponent = f"({exponent})" if isinstance(power, Apply) else exponent
                return f"{self.operand(x, '*')}^{exponent}"
            case Apply("sqrt", (x,)) if _has(Over, x):
                return self.entry.write(self.number(node))
            case Apply("arccos", (x,)) if not self.is_named and self.entry.value in (0, 180):
                return f"arccos({round(self.number(x))})"  # but for rounding
            case Apply(function, args):
                inner = ", ".join(map(self.say, args))
                return _NAMES.get(function, f"{function}({{}})").format(inner)
        raise TypeError(node)

    def constant(self, node: Expr) -> str:
        """A number that is no cell: by its name, such as √d_k, where the cells are named too."""
        if self.is_named and node in _CALLED:
            return _CALLED[node]
        match node:
            case Size(letter) | Apply("sqrt", (Size(letter),)) if self.is_named:
                return f"{'√' * isinstance(node, Apply)}{self.axis(letter)}"
        return self.entry.constant(self.number(node))

    def operand(self, node: Expr, sign: str, *, right: bool = False) -> str:
        """One side of an operator, in parentheses where it would be read otherwise."""
        function = node.function if isinstance(node, Apply) and not _is_constant(node) else ""
        is_loose = _RANK.get(function, 3) < _RANK[sign] + (right and sign in "-/")
        return f"({self.say(node)})" if is_loose else self.say(node)

    def words(self, node: Expr) -> Words:
        """An expression with a sum, a word for each place where a line may end."""
        match node:
            case If():
                return self.words(self.case(node))
            case Over("max"):
                return self.largest(node)
            case Apply("max", (low, Over("max") as over)):
                return self.largest(over, self.number(low))
            case Apply("max", (low, x)):
                return between(f"max({self.say(low)}, ", self.words(x), ")")
            case Apply("+", (a, b)) if _has(Over, node) and not _is_sum(node):
                first, *more = self.words(b)
                return (*self.words(a), f"+ {after_sign(first)}", *more)
            case Over("sum") | Apply("+"):
                return self.entry.sum(*self.terms(node))
            case Apply("*", (Apply("neg") as a, b)) if _has(Over, a) and not _has(Over, b):
                return (*self.words(a), f"· {after_sign(self.operand(b, '*'))}")
            case Apply("/", (a, b)) if not _has(Over, a):
                return between(f"{self.operand(a, '/')} / ", self.words(b), "")
            case Apply("/", (a, b)):
                divisor = after_sign(self.operand(b, "/", right=True))
                return (*between("(", self.words(a), ")"), f"/ {divisor}")
            case Apply("ln" | "log2" | "sqrt" | "neg" as function, (x,)):
                before, after = _NAMES[function].split("{}")
                return between(before, self.words(x), after)
        return (self.say(node),)

    def terms(self, node: Expr) -> Terms:
        """Every term of sums that are added: its number, and how it is written."""
        match node:
            case Apply("+", (a, b)):
                first, second = self.terms(a), self.terms(b)
                n, values = len(first.values), np.append(first.values, second.values)
                return Terms(values, lambda at: first.text(at) if at < n else second.text(at - n))
            case Over("sum", letters, Over("sum", more, body, None), None):
                return self.terms(Over("sum", letters + more, body))
            case Over("sum", letters, body, where):
                grid, size = self.values.grid(letters), self.values.size(letters)
                if where is not None:
                    kept = np.broadcast_to(self.number(where, grid), size).astype(bool)
                    kept |= np.broadcast_to(self.number(body, grid), size) == 0
                    grid = {letter: places[kept] for letter, places in grid.items()}
                    size = int(kept.sum())
                match body:
                    case Apply("*", (Cell() as a, Cell() as b)):  # most sums: at once
                        x, y = (np.broadcast_to(self.number(row, grid), size) for row in (a, b))
                        write, factor = self.entry.write, self.entry.factor
                        return Terms(x * y, lambda at: f"{write(x[at])}·{factor(y[at])}")
                values = np.broadcast_to(np.asarray(self.number(body, grid), float), size)

                def text(at: int) -> str:
                    places = {letter: int(places[at]) for letter, places in grid.items()}
                    return self._replace(places={**self.places, **places}).say(body)

                return Terms(values, text)
        value = np.array([float(self.number(node))])
        return Terms(value, lambda _: self.say(node))

    def largest(self, node: Over, *before: float) -> Words:
        """The largest of some numbers, of many the first and the last."""
        texts = [self.entry.write(x) for x in (*before, *self.scores(node))]
        half = self.entry.terms // 2
        if len(texts) > self.entry.terms:
            texts = [*texts[:half], "…", *texts[-half:]]
        return (f"max({', '.join(texts)})",)

    def scores(self, node: Over) -> Array:
        """The numbers along the letters of a softmax or a largest number, and that of a sink."""
        numbers = np.asarray(self.number(node.body, self.values.grid(node.letters)), float)
        scores = np.broadcast_to(numbers, self.values.size(node.letters))
        return scores if node.sink is None else np.append(scores, self.number(node.sink))

    def axis(self, letter: str) -> str:
        """What an axis is called, such as d_k."""
        for name, source in self.stages.items():
            for cell in cells(self.values.formula.body):
                if cell.name == name and (letter,) in cell.index:
                    return source.axes[cell.index.index((letter,)) - len(cell.index)]
        return _WIDTHS.get(letter, letter)

    def side(self, node: Cell) -> str:
        """Which of those that are side by side along an axis of the stage a cell is of: head 2."""
        packed = [(str(x),) for axis in self.values.formula.index for x in axis[:-1]]
        several = [x for x in packed if x in node.index and self.values.size(x) > 1]
        return " ".join(self.part(letters, node) for letters in several)

    def part(self, letters: tuple[str, ...], node: Expr) -> str:
        """What a part of a sum along letters is called, such as a head that shares a key head."""
        for cell in cells(node):
            for back, axis in enumerate(reversed(cell.index), 1):
                if isinstance(axis, tuple) and {*letters} & {*axis}:
                    stage, at = self.stages[cell.name], self.values.at(cell, self.places)[-back]
                    return shorten(stage.label(stage.axes[-back], at))
        return ""


def _plain(stage: Stage) -> Array:
    """The numbers of a stage without the axis that a vector has beside a map."""
    return stage.value.squeeze(stage.axes.index("")) if "" in stage.axes else stage.value


def index_of(entry: Entry) -> Shape:
    """Where an entry is in the array of its stage."""
    axes = entry.stage.axes
    full = (*entry.block.place(entry.stage, entry.where), entry.row, entry.column)
    places = zip(full[len(full) - len(axes) :], axes, strict=True)
    return tuple(at for at, axis in places if axis)


def _addends(node: Expr) -> Iterator[Expr]:
    if isinstance(node, Apply) and node.function == "+":
        yield from (*_addends(node.args[0]), *_addends(node.args[1]))
    else:
        yield node


def _is_sum(node: Expr) -> bool:
    """A sum, or sums that are added."""
    return all(isinstance(x, Over) and x.kind == "sum" for x in _addends(node))


def _has(kind: type[Over | Place], node: Expr) -> bool:
    return any(isinstance(x, kind) for x in walk(node))


def _is_constant(node: Expr) -> bool:
    """A number that is written as one: what has neither cells nor a choice nor an operator to show.

    The place of a letter counts as one with what is added to it, or multiplies it alone.
    """
    match node:
        case Number() | Param() | Size() | Place():
            return True
        case Apply("+" | "-" | "*" | "//" | "%" | "sqrt" | "ln" | "neg" as function, args):
            placed = [x for x in args if _has(Place, x)]
            is_shown = function == "*" and any(len([*_addends(x)]) > 1 for x in placed)
            return all(map(_is_constant, args)) and len(placed) < 2 and not is_shown
    return False


def _other(node: Over) -> str:
    return "query" if "i" in node.letters else "key"
