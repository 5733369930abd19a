"""The arithmetic of one cell in real numbers: S[q1,k1] = 1·1 + 0·1 = 1, from its formula itself.

A sum is written with its numbers, term by term; what has no sum first with the names of its cells;
of a choice the case that it is. All numbers are those of the trace, so what is written is what was
computed. The language is that of expression.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.errors import InputError
from attncli.formula.evaluate import AbsentError, Places, Values, places_at, sizes_of
from attncli.formula.expression import (
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Number,
    Over,
    Param,
    Place,
    Size,
    cells,
    children,
    free_letters,
    text_of,
    walk,
)
from attncli.formula.matrices import FORMS, PARAMS, RANKS, SIZES, applied
from attncli.formula.parser import parse
from attncli.page.cell import QUOTIENT, Entry, Forms
from attncli.page.numbers import is_exact
from attncli.page.parts import Equation
from attncli.page.select import Block
from attncli.page.text import BREAK, END, FRACTION, NUMBER, plain, shorten
from attncli.trace import Stage

_COUNTED = ("batch", "head", "kv_head", "query", "key")  # whose names say not how many there are
FEW = 2  # addends up to which a sum is written with the names of its cells too
LARGE = 20  # a score beyond it is shown as it is computed: with the maximum subtracted

_FORMS = {
    **{**FORMS, "neg": "-{}", "-": "{} - {}", "*": "{}·{}", "/": QUOTIENT},
    **{"log2": "log₂ ({})", "exp2": "2^({})", "abs": "|{}|", "degrees": "{}"},
    **{sign: f"{{}} {sign} {{}}" for sign in RANKS if sign not in FORMS},
}
_SPACED = {**_FORMS, "*": "{} · {}"}  # where a product is all there is
# A negative number behind a sign, or below a power: in parentheses.
_NEGATIVE = f"{NUMBER}(-[^{END}]*){END}"
_SIGNED = re.compile(f"([-+·/][ {BREAK}{FRACTION}]*|(?={_NEGATIVE}[²^])){_NEGATIVE}")
_IN_POWER = {**_FORMS, "/": f"{FRACTION}{{}}/{{}}{END}"}
_BROKEN = {sign: _SPACED[sign].replace(" ", BREAK, 1) for sign in "+-*/"}


def equation(entry: Entry) -> Equation | None:
    """How a stage came to its number in this entry.

    None where the stage does not say, or where what it was computed from is not in the trace.
    """
    work = work_of(entry)
    if work is None:
        return None
    body = work.values.formula.body
    try:
        with np.errstate(all="ignore"):
            forms, remark = work.forms(body)
    except AbsentError:
        return None
    unit = "°" * (isinstance(body, Apply) and body.function == "degrees")
    forms = [
        _SIGNED.sub(rf"\1{NUMBER}(\3){END}", form) if f"{NUMBER}-" in form else form
        for form in dict.fromkeys(forms)
    ]
    forms.append(entry.write(entry.value) + unit)
    is_rounded = len(forms) > 1 and not is_exact(plain(forms[-2]), plain(forms[-1]))
    parts = tuple(tuple(form.split(BREAK)) for form in forms)
    return Equation(work.name(entry), parts, remark, is_rounded)


def work_of(entry: Entry) -> Work | None:
    """The arithmetic of an entry; None as `equation` has it."""
    block, stage = entry.block, entry.stage
    if id(stage) not in block.formulas:  # of all its cells
        block.formulas[id(stage)] = stage, bound_formula(block, stage)
    bound = block.formulas[id(stage)][1]
    if bound is None:
        return None
    values, stages = bound
    full = (*block.place(stage, entry.where), entry.row, entry.column)
    places = zip(full[len(full) - len(stage.axes) :], stage.axes, strict=True)
    index = tuple(at for at, axis in places if axis)  # in the array of the stage
    return Work(entry, values, stages, places_at(values.formula, index, values.sizes))


def bound_formula(block: Block, stage: Stage) -> tuple[Values, Mapping[str, Stage]] | None:
    """The formula of a stage with what it reads; None where the trace does not hold all of it."""
    formula = formula_of(stage)
    sources = {name: block.read(stage, name) for name in stage.reads}
    if formula is None or None in sources.values():
        return None
    others = {x.name: block.stages.get(x.name) for x in cells(formula.body, guards=True)}
    stages = {name: x for name, x in {**others, **sources}.items() if x is not None}
    arrays = {name: _plain(source) for name, source in stages.items()}
    if rows := stage.labels.get("position"):  # which position a row is of
        numbers = [label.rpartition(" ")[2] for label in rows]
        places = [float(x) if x.lstrip("-").isdecimal() else math.nan for x in numbers]
        arrays["pos"] = np.array(places)
    shapes = {name: x.shape for name, x in arrays.items()}
    sizes = sizes_of(formula, _plain(stage).shape, shapes) | {**stage.sizes}
    values = Values(formula, arrays, stage.params, sizes)
    return (values, stages) if values.fits else None


def _plain(stage: Stage) -> Array:
    """The numbers of a stage without the axis that a vector has beside a map."""
    return stage.value.squeeze(stage.axes.index("")) if "" in stage.axes else stage.value


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


def factors(stage: Stage) -> tuple[str, str, bool] | None:
    """The factors of a product of two matrices, and whether rows are summed: Aᵀ B, not A B.

    None of a stage that is none.
    """
    formula, letters = formula_of(stage), set[str]()
    node = formula and formula.body
    while isinstance(node, Over):
        letters |= {*node.letters}
        node = node.body
    match node:
        case Apply("*", (Cell(a, index), Cell(b))) if letters:
            rows = index[-2] if len(index) > 1 else ()
            return a, b, isinstance(rows, tuple) and bool({*rows} & letters)
    return None


def single_cells(entry: Entry) -> Iterator[Entry]:
    """The entries that an entry is made of one by one: of a softmax its own, none of a sum."""
    work = work_of(entry)
    for node in _single(work.values.formula.body, frozenset()) if work else ():
        with suppress(AbsentError), np.errstate(all="ignore"):  # of a place that is computed
            if work and node.name in work.stages:
                yield work.cell(node)


def _single(node: Expr, bound: frozenset[str]) -> Iterator[Cell]:
    """The cells of which there is one, not one at each place of the letters that are bound."""
    if isinstance(node, Cell) and bound.isdisjoint(free_letters(node)):
        yield node
    if isinstance(node, Over) and node.kind != "softmax":
        bound |= {*node.letters}
    for part in children(node):
        yield from _single(part, bound)


class Work(NamedTuple):
    """How one cell came to its number.

    values    the formula with what it reads
    stages    the same as stages
    places    where each letter is
    is_named  whether cells are written by name, not by number
    is_long   whether of a sum every term is written, not its number
    """

    entry: Entry
    values: Values
    stages: Mapping[str, Stage]
    places: Places
    is_named: bool = False
    is_long: bool = False

    def forms(self, node: Expr) -> Forms:  # noqa: PLR0912 - a rule for each kind of node
        """What is written between the name of a cell and its number."""
        remark, with_names = self.values.formula.remark, self._replace(is_named=True)
        match node:
            case If(test):
                case = self.case(node)
                if isinstance(case, Number | Param) and not remark:
                    return [], f"as {text_of(test)} is {'true' if case is node.then else 'false'}"
                return self.forms(case)
            case Cell(name) if name in self.stages:
                packed = [(str(x),) for axis in self.values.formula.index for x in axis[:-1]]
                beside = [x for x in packed if x in node.index and self.values.size(x) > 1]
                return [with_names.say(node)], " ".join(
                    self.part(x, node) for x in beside
                )  # head 2
            case Number() | Param() | Cell() if remark:
                return [], remark
            case Over("softmax"):
                return self.softmax(node)
            case Over("lse"):
                return self.log_sum(node)
            case Apply("/", (Over("lse") as lse, unit)):
                return self.log_sum(lse, with_names.say(unit))
            case Over("sum", letters, body, None) if self.values.size(letters) == 1:
                return self.along(letters)[0].forms(body)
            case Over("sum" | "prod" as kind, letters, _, where) if where is not None:
                values, text = self.terms(node)
                condition, n_without = _condition(where), self.values.size(letters) - len(values)
                left_out = f"{condition}: without {n_without}" if condition else ""
                if not len(values):
                    return [], remark or left_out or f"every {_other(node)} is masked"
                left_out = left_out or f"without {n_without} masked"
                sign = "·" if kind == "prod" else "+"
                return [self.entry.sum(values, text, sign)], left_out if n_without else ""
        is_log = isinstance(node, Apply) and node.function in ("ln", "log2")
        if not (_has(Over, node) or is_log or len([*_addends(node)]) > FEW):
            both = [with_names, self] if cells(node) else [self]
            return [values.say(node, _SPACED) for values in both], ""
        forms = [self._replace(is_long=True).say(node)]
        match node:  # of several sums, a number for each
            case Over("sum", letters, Over() as body):
                each = self.along(letters)
                forms.append(self.entry.numbers([term.number(body) for term in each]))
                return forms, " + ".join(term.part(letters, body) for term in each)
            case Apply("+") if _is_sum(node):
                forms.append(self.entry.numbers([self.number(x) for x in _addends(node)]))
            case Apply("/", (_, divisor)) if _has(Over, divisor):
                forms.append(self.say(node))
        return forms, ""

    def softmax(self, node: Over) -> Forms:
        """exp of a score over the sum of exps, of the scores that are not −inf."""
        entry, scores, guard = self.entry, self.scores(node), node.where
        is_out = guard is not None and not self.number(guard)
        score = -math.inf if is_out else float(self.number(node.body))
        n = self.values.size(node.letters)  # a sink follows
        n_masked = int(np.isneginf(scores[:n]).sum())
        condition = _condition(guard)
        left_out = f"{condition}: without {n_masked}" if condition else ""
        if n_masked == n:
            return [], left_out or f"every {_other(node)} is masked"
        if np.isneginf(score):
            return [], left_out or "masked: exp(-inf) = 0"
        exps, shift, minus, terms = self.powers(scores)
        power = entry.write(np.exp(score - shift))
        parts = [(f"exp({entry.write(score)}{minus})", terms)]
        form = QUOTIENT.replace("/ ", f"/{BREAK}")  # a line may end after the slash
        forms = [form.format(a, f"({b})" if BREAK in b else b) for a, b in parts]
        left_out = left_out or f"and exp(-inf) = 0 for {n_masked} masked"
        return [
            *forms,
            QUOTIENT.format(power, entry.write(exps.sum())),
        ], left_out if n_masked else ""

    def log_sum(self, node: Over, unit: str = "") -> Forms:
        """The log of the sum of the powers of scores; `unit` divides it, to be of another base."""
        scores = self.scores(node)
        if np.isneginf(scores).all():
            return [], "every key is masked: ln 0"
        exps, shift, _, terms = self.powers(scores)
        forms = [f"ln ({terms})", f"ln {self.entry.write(exps.sum())}"]
        if shift:
            forms = [f"{self.entry.write(shift)} + {form}" for form in forms]
        if unit:
            forms = [QUOTIENT.format(f"({form})" if shift else form, unit) for form in forms]
        return forms, ""

    def powers(self, scores: Array) -> tuple[Array, float, str, str]:
        """The powers of all scores but −inf, what is subtracted from these, it and all as text."""
        finite = scores[~np.isneginf(scores)]
        shift = float(finite.max()) if np.abs(finite).max() > LARGE else 0.0
        minus = f" - {self.entry.write(shift)}" if shift else ""
        exps = np.exp(finite - shift)
        terms = self.entry.sum(exps, lambda at: f"exp({self.entry.write(finite[at])}{minus})")
        return exps, shift, minus, terms

    # ---- numbers and places

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

    def scores(self, node: Over) -> Array:
        """The numbers along the letters of a softmax or a largest number, and that of a sink."""
        numbers = np.asarray(self.number(node.body, self.values.grid(node.letters)), float)
        scores = np.broadcast_to(numbers, self.values.size(node.letters))
        if node.where is not None and _condition(node.where):
            counted = self.number(node.where, self.values.grid(node.letters))
            scores = np.where(counted, scores, -np.inf)
        return scores if node.sink is None else np.append(scores, self.number(node.sink))

    def along(self, letters: tuple[str, ...]) -> list[Work]:
        """The same at every place of some letters."""
        grid = self.values.grid(letters).items()
        every = range(self.values.size(letters))
        places = [{letter: int(each[at]) for letter, each in grid} for at in every]
        return [self._replace(places={**self.places, **x}) for x in places]

    def holding(self, letters: tuple[str, ...], node: Expr) -> Iterator[tuple[Cell, Stage, int]]:
        """The cells that have some of these letters, their stages, and on which axis."""
        for cell in (cell for cell in cells(node) if cell.name in self.stages):
            for at, axis in enumerate(cell.index, -len(cell.index)):
                if isinstance(axis, tuple) and {*letters} & {*axis}:
                    yield cell, self.stages[cell.name], at

    def part(self, letters: tuple[str, ...], node: Expr) -> str:
        """What a part of a sum along letters is called, such as a head that shares a key head."""
        for cell, stage, at in self.holding(letters, node):
            return shorten(stage.label(stage.axes[at], self.values.at(cell, self.places)[at]))
        return ""

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
        stage, index = self.stages[node.name], [*self.values.at(node, self.places)]
        if "" in stage.axes:  # a vector beside a map
            index.insert(stage.axes.index(""), 0)
        outer = dict(zip(stage.axes[:-2], index, strict=False))
        row, column = ([0, 0, *index])[-2:]
        return self.entry._replace(stage=stage, where=outer, row=row, column=column)

    def say(self, node: Expr, forms: Mapping[str, str] = _FORMS) -> str:
        """An expression; `forms` are those of its operators."""
        match node:
            case If():
                return self.say(self.case(node), forms)
            case Cell(name) if self.is_named and name in self.stages:
                return self.name(self.cell(node))
            case _ if _is_constant(node):
                return self.constant(node)
            case Over("max") if self.is_long:
                return self.largest(node)
            case Apply("max", (low, Over("max") as over)) if self.is_long:
                return self.largest(over, self.number(low))
            case Over("sum") | Apply("+") if self.is_long and (
                _is_sum(node) or not _has(Over, node)
            ):
                return self.entry.sum(*self.terms(node)) or self.entry.constant(0)
            case Over("prod") if self.is_long:
                return self.entry.sum(*self.terms(node), "·") or self.entry.constant(1)
            case Apply("arccos", (x,)) if not self.is_named and self.entry.value in (0, 180):
                return f"arccos({round(self.number(x))})"  # but for rounding
            case Apply("sqrt") if _has(Over, node) and not self.is_long:
                return self.entry.write(self.number(node))
            case Apply(function, args):
                beside, within, summed = self, _FORMS, node if function == "+" else args[0]
                if self.is_long and function in _BROKEN and _has(Over, summed):
                    forms = _BROKEN  # a line may end beside a sum that is written out
                    beside = self._replace(is_long=False) if function == "/" else self
                elif function == "**":
                    within = _IN_POWER
                    forms = {"**": "{}²"} if args[1] == Number(2.0) else forms
                texts = [self.say(x) for x in args[:1]] + [beside.say(x, within) for x in args[1:]]
                ranks = [self.rank(x) for x in args[:1]] + [beside.rank(x) for x in args[1:]]
                return applied(function, [*zip(texts, ranks, strict=True)], forms.get(function, ""))
        return self.entry.write(self.number(node))

    def rank(self, node: Expr) -> int:
        """How closely an expression binds."""
        match node:
            case If():
                return self.rank(self.case(node))
            case Over("sum" | "prod" as kind) if self.is_long:
                return RANKS["+" if kind == "sum" else "*"]
            case Apply(function):
                return 3 if _is_constant(node) else RANKS.get(function, 3)
        return 4

    def constant(self, node: Expr) -> str:
        """A number that is no cell: by its name, such as √d_k, where the cells are named too."""
        match node if self.is_named else None:
            case Param(name) if name in PARAMS:
                return PARAMS[name]
            case Apply("ln", (Number(2.0),)):
                return "ln 2"
            case Size(letter) | Apply("sqrt", (Size(letter),)):
                values = self.holding((letter,), self.values.formula.body)
                name = [*(stage.axes[at] for _, stage, at in values), SIZES.get(letter, letter)][0]
                if name not in _COUNTED:
                    return f"{'√' * isinstance(node, Apply)}{name}"
        return self.entry.constant(self.number(node))

    def terms(self, node: Expr) -> tuple[Array, Callable[[int], str]]:
        """Every term of sums that are added: its number, and how it is written."""
        short = self._replace(is_long=False)
        match node:
            case Apply("+", (a, b)):
                (first, one), (second, other) = self.terms(a), self.terms(b)
                n = len(first)
                return np.append(first, second), lambda at: one(at) if at < n else other(at - n)
            case Over("sum", letters, Over("sum", more, body, None), None):
                return self.terms(Over("sum", letters + more, body))
            case Over("sum" | "prod" as kind, letters, body, where):
                grid, size = self.values.grid(letters), self.values.size(letters)
                if where is not None:
                    terms_left = np.broadcast_to(self.number(where, grid), size).astype(bool)
                    if not _condition(where):
                        terms_left |= np.broadcast_to(self.number(body, grid), size) == 0
                    grid = {letter: places[terms_left] for letter, places in grid.items()}
                    size = int(terms_left.sum())
                match body:
                    case Apply("*", (Cell() as a, Cell() as b)):  # most sums: at once
                        x, y = (np.broadcast_to(self.number(row, grid), size) for row in (a, b))
                        write = self.entry.write
                        return x * y, lambda at: f"{write(x[at])}·{write(y[at])}"
                values = np.broadcast_to(np.asarray(self.number(body, grid), float), size)

                def text(at: int) -> str:
                    places = {letter: int(places[at]) for letter, places in grid.items()}
                    term = short._replace(places={**self.places, **places})
                    within = kind == "prod" and term.rank(body) < RANKS["*"]
                    return f"({term.say(body)})" if within else term.say(body)

                return values, text
        value = np.array([float(self.number(node))])
        return value, lambda _: short.say(node)

    def largest(self, node: Over, *before: float) -> str:
        """The largest of some numbers, of many the first and the last."""
        texts = [self.entry.write(x) for x in (*before, *self.scores(node))]
        half = self.entry.terms // 2
        if len(texts) > self.entry.terms:
            texts = [*texts[:half], "…", *texts[-half:]]
        return f"max({', '.join(texts)})"


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


def _condition(condition: Expr | None) -> str:
    """What says which terms count, in words; "" where it is a mask, which has words of its own."""
    match condition:
        case None | Apply("!=", (Cell(), Number())) | Apply("or", (Apply("!=", (Cell(), _)), _)):
            return ""
    return f"only where {text_of(condition)}"


def _other(node: Over) -> str:
    return "query" if "i" in node.letters else "key"
