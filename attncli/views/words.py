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
    children,
    parse,
    places_at,
    walk,
)
from attncli.trace import Stage
from attncli.views.cell import Entry, Words, between, bracketed
from attncli.views.matrix import NUMERIC
from attncli.views.parts import Equation
from attncli.views.select import Block
from attncli.views.text import number_mark, plain, shorten

FEW = 2  # addends up to which a sum is written with the names of its cells too
LARGE_SCORE = 20  # beyond it softmax is shown as it is computed: with the maximum subtracted
Form = Words | str

_SIGNS = {"+": " + ", "-": " - ", "/": " / "}
_LOGS = ("ln", "log2")
_NAMES = {
    "ln": "ln({})",
    "sqrt": "√({})",
    "abs": "|{}|",
    "exp2": "2^({})",
    "log2": "log₂ ({})",
    "degrees": "{}",
}
_WIDTHS = {"d": "d_k", "e": "d_v", "m": "d_model"}
_SYMBOLS = {"cap": "c", "epsilon": "ε"}  # of parameters, where the cells are named too


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
        block.formulas[id(stage)] = stage, _bound(block, stage)
    bound = block.formulas[id(stage)][1]
    return None if bound is None else Work(entry, *bound)


def _bound(block: Block, stage: Stage) -> tuple[Values, Mapping[str, Stage]] | None:
    """The formula of a stage with what it reads; None where the trace does not hold all of it."""
    formula = formula_of(stage)
    sources = {name: block.read(stage, name) for name in stage.reads}
    if formula is None or None in sources.values():
        return None
    for node in walk(formula.body):
        for cell in cells(node.where) if isinstance(node, Over) and node.where else cells(node):
            if cell.name not in sources:  # what only says which terms count, such as the mask
                sources[cell.name] = block.stages.get(cell.name)
    stages = {name: source for name, source in sources.items() if source is not None}
    arrays = {name: _plain(source) for name, source in stages.items()}
    if any(x.dtype.kind not in NUMERIC for x in arrays.values()) or any(
        len(cell.index) < arrays[cell.name].ndim
        for cell in cells(formula.body)
        if cell.name in arrays
    ):
        return None  # a file may hold any formula
    if rows := stage.labels.get("position"):  # which position a row is of
        numbers = [label.rpartition(" ")[2] for label in rows]
        known = [float(x) if x.lstrip("-").isdecimal() else math.nan for x in numbers]
        arrays["pos"] = np.array(known)
    values = Values.of(formula, _plain(stage).shape, arrays, stage.params, stage.sizes)
    return values, stages


def formula_of(stage: Stage) -> Formula | None:
    """The formula of a stage, None where it has none; a file may hold any text."""
    try:
        return parse(stage.expression) if stage.expression else None
    except InputError:
        return None


def is_softmax(stage: Stage) -> bool:
    """Whether a stage is the softmax of another one."""
    formula = formula_of(stage)
    return formula is not None and isinstance(formula.body, Over) and formula.body.kind == "softmax"


def is_pair(stage: Stage) -> bool:
    """Whether a cell is of two vectors, of which one with itself says little: cos(a, b)."""
    left = stage.expression.partition(" = ")[0]
    return "[" not in left and len(re.findall(r"\b[a-z]\b", left)) > 1


class Terms(NamedTuple):
    """The terms of a sum: their numbers, and how each is written, after an operator or first."""

    values: Array
    text: Callable[..., str]


class Work(NamedTuple):
    """How one cell came to its number.

    values  the formula with what it reads
    stages  the same as stages
    """

    entry: Entry
    values: Values
    stages: Mapping[str, Stage]

    @property
    def remark(self) -> str:
        """What is said of a cell that is a number of its own."""
        return self.values.formula.remark

    @property
    def places(self) -> dict[str, Any]:
        """Where each letter is in this cell."""
        return places_at(self.values.formula, index_of(self.entry), self.values.sizes)

    def equation(self) -> Equation | None:
        """The cell's name, how its number came about, and the number."""
        try:
            with np.errstate(all="ignore"):
                forms, remark = self.forms(self.values.formula.body, self.places)
        except AbsentError:
            return None
        value = self.entry.write(self.entry.value)
        body = self.values.formula.body
        value += "°" * (isinstance(body, Apply) and body.function == "degrees")
        each = [(form,) if isinstance(form, str) else form for form in forms]
        return Equation(self.name(self.entry), (*each, (value,)), remark)

    def forms(self, node: Expr, places: Places) -> tuple[list[Form], str]:
        """The forms between the name of a cell and its number, and a remark."""
        match node:
            case If():
                return self.forms(self.case(node, places), places)
            case Number() | Param() if self.remark:
                return [], self.remark
            case Cell(name):
                if name not in self.stages and self.remark:
                    return [], self.remark
                return [self.say(node, places, named=True)], self.side(node, places)
            case Over("softmax"):
                return self.softmax(node, places)
            case Over("lse") | Apply("/", (Over("lse"), _)):
                return self.log_sum(node, places)
            case Over("sum", letters, body, None) if self.values.size(letters) == 1:
                return self.forms(body, next(self.values.along(letters, places)))
            case Over("sum", _, _, where) if where is not None:
                return self.counted(node, places)
        return self.of_sums(node, places) if _has_over(node) else (self.of_cells(node, places), "")

    def of_cells(self, node: Expr, places: Places) -> list[Form]:
        """An expression without a sum: with the names of its cells, and with their numbers."""
        is_log = isinstance(node, Apply) and node.function in _LOGS
        if is_log or len([*_addends(node)]) > FEW:
            return [self.words(node, places)]
        named = [self.say(node, places, named=True, top=True)] if cells(node) else []
        return [*dict.fromkeys([*named, self.say(node, places, top=True)])]

    def of_sums(self, node: Expr, places: Places) -> tuple[list[Form], str]:
        """An expression with sums: term by term, and of several sums with a number for each."""
        forms: list[Form] = [self.words(node, places)]
        remark, addends = "", [*_addends(node)]
        if len(addends) > 1 and all(map(_is_sum, addends)):
            forms.append(self.numbers([self.number(addend, places) for addend in addends]))
        elif isinstance(node, Over) and isinstance(node.body, Over) and node.kind == "sum":
            each = [*self.values.along(node.letters, places)]
            forms.append(self.numbers([self.number(node.body, one) for one in each]))
            remark = " + ".join(self.part(node, one) for one in each)
        elif isinstance(node, Apply) and node.function == "/" and _has_over(node.args[1]):
            forms.append(self.say(node, places))
        return forms, remark

    def case(self, node: If, places: Places) -> Expr:
        """The case that it is; where the trace does not hold what decides, by the number itself."""
        try:
            is_first = bool(self.number(node.condition, places))
        except AbsentError:
            is_first = self.entry.value != 0 or self.number(node.then, places) == 0
        return node.then if is_first else node.otherwise

    def number(self, node: Expr, places: Places) -> Any:
        """What an expression is at one place, or at many."""
        return self.values.number(node, places)

    # ---- words

    def name(self, entry: Entry) -> str:
        """The name of a cell: S[q1,k1]; cos(mom, dad) where its formula says so in words."""
        formula = formula_of(entry.stage)
        if formula is None or "[" in entry.stage.expression.partition(" = ")[0]:
            return entry.name
        labels = iter(entry.labels())
        return re.sub(r"\b[a-z]\b", lambda _: next(labels), formula.symbol)

    def cell(self, node: Cell, places: Places) -> Entry:
        """The entry of what a cell names."""
        source = self.stages[node.name]
        where = [*self.values.at(node, places)]
        if "" in source.axes:
            where.insert(source.axes.index(""), 0)
        outer = dict(zip(source.axes[:-2], where, strict=False))
        row, column = ([0, 0, *where])[-2:]
        return self.entry._replace(stage=source, where=outer, row=row, column=column)

    def say(
        self,
        node: Expr,
        places: Places,
        *,
        after: bool = False,
        named: bool = False,
        top: bool = False,
    ) -> str:
        """An expression without a sum, its cells by name or by number.

        after  it stands after an operator: a negative number is in parentheses
        top    it is all there is: a product has room around its dot
        """
        if isinstance(node, If):
            node = self.case(node, places)
        match node:
            case Cell(name) if named and name in self.stages:
                return self.name(self.cell(node, places))
            case _ if _is_constant(node):
                return self.constant(node, places, after=after, named=named)
            case Cell() | Over():
                number = self.number(node, places)
                return self.entry.factor(number) if after else self.entry.write(number)
            case Apply("neg", (x,)):
                return f"-{self.operand(x, places, '*', named=named)}"
            case Apply("+" | "-" | "/" | "*" as sign, (a, b)):
                dot = " · " if top else "·"
                left = self.operand(a, places, sign, after=after, named=named)
                right = self.operand(b, places, sign, after=True, named=named, right=True)
                return f"{left}{_SIGNS.get(sign, dot)}{right}"
            case Apply("**", (x, Number(2.0))):
                inner = self.say(x, places, after=not isinstance(x, Apply), named=named)
                return f"({inner})²" if isinstance(x, Apply) else f"{inner}²"
            case Apply("**", (x, power)):
                exponent = self.say(power, places, named=named)
                if isinstance(power, Apply):
                    exponent = f"({exponent.replace(' / ', '/')})"
                return f"{self.operand(x, places, '*', after=after, named=named)}^{exponent}"
            case Apply(function, args):
                if function == "sqrt" and _has_over(args[0]):
                    return self.entry.write(self.number(node, places))
                if function == "arccos" and not named and self.entry.value in (0, 180):
                    return f"arccos({round(self.number(args[0], places))})"  # but for rounding
                inner = ", ".join(self.say(x, places, named=named) for x in args)
                return _NAMES.get(function, f"{function}({{}})").format(inner)
        raise TypeError(node)

    def constant(self, node: Expr, places: Places, *, after: bool, named: bool) -> str:
        """A number that is no cell: by its name, such as √d_k, where the cells are named too."""
        match node:
            case Size(letter) | Apply("sqrt", (Size(letter),)) if named:
                return f"{'√' * isinstance(node, Apply)}{self.axis(letter)}"
            case Param(name) if named and name in _SYMBOLS:
                return _SYMBOLS[name]
            case Apply("ln", (Number(2.0),)) if named:
                return "ln 2"
        text = self.entry.constant(self.number(node, places))
        return number_mark(f"({plain(text)})") if after and plain(text)[0] == "-" else text

    def operand(
        self,
        node: Expr,
        places: Places,
        of: str,
        *,
        after: bool = False,
        named: bool = False,
        right: bool = False,
    ) -> str:
        """One side of an operator, in parentheses where it would be read otherwise."""
        own = node.function if isinstance(node, Apply) and not _is_constant(node) else ""
        loose = ("+", "-") if of in ("*", "/") or (of == "-" and right) else ()
        if own in loose or (of == "/" and right and own in ("*", "/")):
            return f"({self.say(node, places, named=named)})"
        return self.say(node, places, after=after, named=named)

    def words(self, node: Expr, places: Places) -> Words:
        """An expression with a sum, a word for each place where a line may end."""
        match node:
            case If():
                return self.words(self.case(node, places), places)
            case _ if _is_sum(node):
                return self.listed(self.terms(node, places))
            case Over("max") | Apply("max", (_, Over("max"))):
                return self.largest(node, places)
            case Apply("+") if not _has_over(node):
                return self.listed(self.terms(node, places))
            case Apply("ln" | "log2" as log, (x,)):
                before, _, after = _NAMES[log].partition("{}")
                return between(before, self.words(x, places), after)
            case Apply("+", (a, b)):
                first, *more = self.words(b, places)
                if not _has_over(b):
                    first = self.say(b, places, after=True)
                return (*self.words(a, places), f"+ {first}", *more)
            case Apply("/", (a, b)):
                divisor = self.operand(b, places, "/", after=True, right=True)
                return (*between("(", self.words(a, places), ")"), f"/ {divisor}")
            case Apply("neg", (x,)):
                return between("-(", self.words(x, places), ")")
            case Apply("max", (low, x)):
                return between(f"max({self.say(low, places)}, ", self.words(x, places), ")")
            case Apply("sqrt", (x,)):
                return between("√(", self.words(x, places), ")")
        return (self.say(node, places),)

    def terms(self, node: Expr, places: Places) -> Terms:
        """Every term of sums that are added: its number, and how it is written."""
        match node:
            case Over("sum", letters, Over("sum", more, body, None), None):
                return self.terms(Over("sum", letters + more, body), places)
            case Over("sum", letters, body, where):
                grid = self.values.grid(letters)
                kept = np.ones(self.values.size(letters), bool)
                if where is not None:
                    kept &= np.asarray(self.number(where, {**places, **grid}), bool)
                at = np.flatnonzero(kept)
                match body:
                    case Apply("*", (Cell() as a, Cell() as b)):  # most sums: at once
                        rows = (self.number(x, {**places, **grid}) for x in (a, b))
                        return self.products(*(np.broadcast_to(x, kept.shape)[at] for x in rows))
                every = np.asarray(self.number(body, {**places, **grid}), float)
                values = np.broadcast_to(every, kept.shape)[at]

                def text(n: int, *, after: bool) -> str:
                    own = {letter: int(x[at[n]]) for letter, x in grid.items()}
                    return self.say(body, {**places, **own}, after=after)

                return Terms(values, text)
            case Apply("+", (a, b)):
                first, second = self.terms(a, places), self.terms(b, places)
                n = len(first.values)
                return Terms(
                    np.append(first.values, second.values),
                    lambda i, *, after: (
                        first.text(i, after=after) if i < n else second.text(i - n, after=after)
                    ),
                )
        value = np.array([float(self.number(node, places))])
        return Terms(value, lambda _, *, after: self.say(node, places, after=after))

    def products(self, a: Array, b: Array) -> Terms:
        """The products of two rows, which most sums are of."""
        write, factor = self.entry.write, self.entry.factor

        def text(n: int, *, after: bool) -> str:
            return f"{(factor if after else write)(float(a[n]))}·{factor(float(b[n]))}"

        return Terms(a * b, text)

    def listed(self, terms: Terms) -> Words:
        """A sum of terms; where they are too many, its middle as one number."""
        return self.entry.sum(terms.values, lambda at: terms.text(at, after=at > 0))

    def numbers(self, numbers: list[float]) -> Words:
        """Numbers added."""
        write = (self.entry.write, self.entry.factor)
        return self.entry.sum(np.array(numbers), lambda at: write[at > 0](numbers[at]))

    def largest(self, node: Over | Apply, places: Places) -> Words:
        """The largest of some numbers, of many the first and the last."""
        over = node if isinstance(node, Over) else node.args[1]
        assert isinstance(over, Over)  # noqa: S101 - `words` asked
        before = [] if isinstance(node, Over) else [self.number(node.args[0], places)]
        numbers = [*before, *self.scores(over, places)]
        texts, half = [*map(self.entry.write, numbers)], self.entry.terms // 2
        if len(texts) > self.entry.terms:
            texts = [*texts[:half], "…", *texts[-half:]]
        return (f"max({', '.join(texts)})",)

    def counted(self, node: Over, places: Places) -> tuple[list[Form], str]:
        """A sum of those terms alone that count."""
        terms, n = self.terms(node, places), self.values.size(node.letters)
        if not len(terms.values):
            return [], self.remark or f"every {_other(node)} is masked"
        remark = f"without {n - len(terms.values)} masked" if n > len(terms.values) else ""
        return [self.listed(terms)], remark

    def axis(self, letter: str) -> str:
        """What an axis is called, such as d_k."""
        for name, source in self.stages.items():
            for cell in cells(self.values.formula.body):
                if cell.name == name and (letter,) in cell.index:
                    return source.axes[cell.index.index((letter,)) - len(cell.index)]
        return _WIDTHS.get(letter, letter)

    def side(self, node: Cell, places: Places) -> str:
        """Which of those that are side by side along an axis of the stage a cell is of: head 2."""
        packed = {str(x) for axis in self.values.formula.index for x in axis[:-1]}
        own = [x for x in packed if (x,) in node.index and self.values.size((x,)) > 1]
        return " ".join(self.part(Over("sum", (x,), node), places) for x in own)

    def part(self, node: Over, places: Places) -> str:
        """What a part of a sum is called, such as a head that shares a key head."""
        for cell in cells(node):
            for back, axis in enumerate(reversed(cell.index), 1):
                if isinstance(axis, tuple) and {*node.letters} & {*axis}:
                    stage, at = self.stages[cell.name], self.values.at(cell, places)[-back]
                    return shorten(stage.label(stage.axes[-back], at))
        return ""

    # ---- softmax, and the logarithm of its sum

    def scores(self, node: Over, places: Places) -> Array:
        """The numbers along the letters of a softmax or a largest number."""
        numbers = self.number(node.body, {**places, **self.values.grid(node.letters)})
        return np.broadcast_to(np.asarray(numbers, float), self.values.size(node.letters))

    def powers(self, node: Over, places: Places) -> tuple[Array, Array, str, Words]:
        """Scores that are not −inf, their powers, what is subtracted, and the sum in words."""
        scores = self.scores(node, places)
        if node.sink is not None:
            scores = np.append(scores, self.number(node.sink, places))
        scores = scores[~np.isneginf(scores)]
        is_large = len(scores) and np.abs(scores).max() > LARGE_SCORE
        shift = float(scores.max()) if is_large else 0.0
        minus = f" - {self.entry.factor(shift)}" if shift else ""
        exps = np.exp(scores - shift)
        words = self.entry.sum(exps, lambda at: f"exp({self.entry.write(scores[at])}{minus})")
        return scores, exps, minus, words

    def softmax(self, node: Over, places: Places) -> tuple[list[Form], str]:
        """exp over the sum of exps, of the scores that are not −inf."""
        write = self.entry.write
        along = self.scores(node, places)
        score, n_masked = float(self.number(node.body, places)), int(np.isneginf(along).sum())
        if n_masked == len(along):
            return [], f"every {_other(node)} is masked"
        if score == -math.inf:
            return [], "masked: exp(-inf) = 0"
        scores, exps, minus, words = self.powers(node, places)
        power = write(float(np.exp(score - (scores.max() if minus else 0.0))))
        forms: list[Form] = [(f"exp({write(score)}{minus}) /", *bracketed(words))]
        if self.entry.at_length:
            terms = self.entry.sum(exps, lambda at: write(exps[at]))
            forms.append((f"{power} /", *bracketed(terms)))
        remark = f"and exp(-inf) = 0 for {n_masked} masked" if n_masked else ""
        return [*forms, f"{power} / {write(float(exps.sum()))}"], remark

    def log_sum(self, node: Expr, places: Places) -> tuple[list[Form], str]:
        """The log of a sum of powers; or that in units of another log."""
        unit, over = "", node
        if isinstance(node, Apply):
            over, unit = node.args[0], self.say(node.args[1], places, named=True)
        assert isinstance(over, Over)  # noqa: S101 - `forms` asked
        scores, exps, minus, words = self.powers(over, places)
        if not len(scores):
            return [], "every key is masked: ln 0"
        before = f"{self.entry.write(float(scores.max()))} + " if minus else ""
        after = f" / {unit}" if unit else ""
        if minus and unit:
            before, after = f"({before}", f"){after}"
        whole = self.entry.write(float(exps.sum()))
        sums = between(f"{before}ln ", between("(", words, ")"), after)
        return [sums, f"{before}ln {whole}{after}"], ""


def _plain(stage: Stage) -> Array:
    """The numbers of a stage without the axis that a vector has beside a map."""
    return stage.value.squeeze(stage.axes.index("")) if "" in stage.axes else stage.value


def index_of(entry: Entry) -> Shape:
    """Where an entry is in the array of its stage."""
    stage = entry.stage
    outer = entry.block.place(stage, entry.where)
    full = (*outer, entry.row, entry.column)[-len(stage.axes) :] if stage.axes else ()
    return tuple(at for at, axis in zip(full, stage.axes, strict=True) if axis)


def _addends(node: Expr) -> Iterator[Expr]:
    if isinstance(node, Apply) and node.function == "+":
        yield from (*_addends(node.args[0]), *_addends(node.args[1]))
    else:
        yield node


def _is_sum(node: Expr) -> bool:
    """A sum, or sums that are added."""
    return all(isinstance(x, Over) and x.kind == "sum" for x in _addends(node))


def _has_over(node: Expr) -> bool:
    return isinstance(node, Over) or any(map(_has_over, children(node)))


def _is_constant(node: Expr) -> bool:
    """A number that is written as one: what has neither cells nor a choice nor an operator to show.

    The place of a letter counts as one with what is added to it or multiplies it.
    """
    match node:
        case Number() | Param() | Size() | Place():
            return True
        case Apply("+" | "-" | "//" | "%", (a, b)):
            return _is_constant(a) and _is_constant(b) and not (_has_place(a) and _has_place(b))
        case Apply("*", (Number(), x)) | Apply("*", (x, Number())) if _has_place(x):
            return isinstance(x, Place) or (isinstance(x, Apply) and x.function in ("//", "%", "-"))
        case Apply("*" | "sqrt" | "ln" | "neg", args):
            return all(map(_is_constant, args)) and not any(map(_has_place, args))
    return False


def _has_place(node: Expr) -> bool:
    return any(isinstance(x, Place) for x in walk(node))


def _other(node: Over) -> str:
    return "query" if "i" in node.letters else "key"
