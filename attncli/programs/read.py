"""From text to lines: every name, letter and condition of a program checked, every error placed.

    scores: S[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d])   # a note
    temperature = 0.5                                      a parameter
    size[h] = 2                                            how long an axis is

The right side is read by expression.py. A line that begins with a space continues the one before.
A name that no line defines comes with the input. Nothing is computed here, but parameters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple, NoReturn

import numpy as np

from attncli.arrays import Array
from attncli.errors import InputError, nearest
from attncli.evaluate import AbsentError, Values
from attncli.expression import (
    ANY,
    FUNCTIONS,
    KINDS,
    MORE_KINDS,
    Apply,
    Cell,
    Expr,
    Formula,
    FormulaError,
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
    parsed,
    rebuilt,
    text_of,
    walk,
)
from attncli.stages import HIDDEN
from attncli.stages import KINDS as STAGES

MOST_TEXT, MOST_LINES, MOST_AXES, MOST_NODES = 100_000, 300, 8, 4_000
"""Of a program, and of one line."""
WIDTH = 100  # characters of a line that are shown with an error
COMPARED = ("==", "!=", "<", "<=", ">", ">=")
_STAGE = re.compile(
    r"(?:(?P<name>\w+)\s*:)?\s*(?P<symbol>[^\W\d]\w*)\s*\[(?P<axes>[^\]=]*)\]\s*=(?!=)"
)
_CONDITION = "a condition, and should be a number: (1 if … else 0)"
_PARAM = re.compile(r"(?P<name>[^\W\d]\w*)\s*=(?!=)")


class ProgramError(InputError):
    """What is wrong with a program: its message names the line; `excerpt` is that, and a caret."""

    excerpt: tuple[str, str] = ("", "")


class Statement(NamedTuple):
    """A line with those that continue it: comments and line ends are spaces, so places stay."""

    code: str
    start: int  # in the text of the program
    note: str

    def find(self, part: str) -> tuple[int, int]:
        """Where in the program a part of the statement is, after the "=" if it is there."""
        pattern = re.compile(r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", part))))
        equals = self.code.find("=") + 1
        place = pattern.search(self.code, equals) or pattern.search(self.code)
        start, end = place.span() if place and part else (0, len(self.code.rstrip()))
        return self.start + start, self.start + end


class Line(NamedTuple):
    """A stage as it is written.

    params  the parameters that it has, by name
    sizes   of letters that lines before it say
    """

    name: str
    formula: Formula
    params: Mapping[str, float]
    sizes: Mapping[str, int]
    statement: Statement
    is_truth: bool

    @property
    def symbol(self) -> str:
        """Its letter."""
        return self.formula.symbol


class Program(NamedTuple):
    """Lines in the order of computation; remarks on what no line needs."""

    lines: tuple[Line, ...]
    text: str
    origin: str
    names: Mapping[str, str]  # every name that a formula may have for a stage or an input → that
    remarks: tuple[str, ...] = ()

    @property
    def inputs(self) -> list[str]:
        """The names of what comes with the input, as they are first read."""
        own = {name for line in self.lines for name in (line.name, line.symbol)}
        reads = (x.name for line in self.lines for x in cells(line.formula.body, guards=True))
        return [name for name in dict.fromkeys(reads) if name not in own]

    def fail(self, message: str, statement: Statement, part: str = "") -> NoReturn:
        """Raises ProgramError at a part of a statement."""
        raise error_at(message, self.text, self.origin, *statement.find(part))


def error_at(message: str, text: str, origin: str, start: int, end: int) -> ProgramError:
    """The error with its line, and a caret below what it is about."""
    first = text.rfind("\n", 0, start) + 1
    row, at = text[first:].partition("\n")[0], start - first
    left = max(0, at - WIDTH // 2)
    below = " " * (at - left) + "^" * max(1, min(end - start, len(row) - at, WIDTH // 2))
    number = text.count("\n", 0, start) + 1
    error = ProgramError(f"{origin}, line {number}: {message[:300]}")
    error.excerpt = row[left : left + WIDTH].replace("\t", " "), below
    return error


def read(text: str, arrays: Mapping[str, Array], origin: str = "the program") -> Program:
    """The program of a text, for these inputs. ProgramError where it is none.

    >>> text = "A[i,j] = softmax[j](q[i,j] where j <= i)"
    >>> read(text, {"q": np.eye(2)}).inputs
    ['q']
    >>> read("A[i,j] = q[i,j] * kk[j,i]", {"q": np.eye(2)}, "mine")
    Traceback (most recent call last):
        ...
    attncli.programs.read.ProgramError: mine, line 1: "kk" is no stage before this line, and not \
in the input; there is only q
    """
    return _Reader(text, arrays, origin).program()


def needs(text: str) -> set[str]:
    """The names in brackets that a text has: those of all arrays that it may read, and more."""
    code = re.sub("#.*", "", text)
    return {unicodedata.normalize("NFKC", x) for x in re.findall(r"([^\W\d]\w*)\s*\[", code)}


def statements(text: str) -> Iterator[Statement]:
    """The statements of a text, without empty ones."""
    code, start, note = "", 0, ""
    at = 0
    for row in text.split("\n"):
        own, _, comment = row.partition("#")
        if code.strip() and own.strip() and not own[0].isspace():
            yield Statement(code, start, note)
            code, note = "", ""
        if not code.strip():
            code, start, note = "", at, ""
        code += own + " " * (len(row) - len(own) + 1)
        note = comment.strip() if own.strip() and comment.strip() else note
        at += len(row) + 1
    if code.strip():
        yield Statement(code, start, note)


def defined(code: str) -> set[str]:
    """The names that a line defines: of a stage two, if it has a letter beside its name."""
    left, param = _STAGE.match(code.lstrip()), _PARAM.match(code.lstrip())
    names = left.group("name", "symbol") if left else param.groups() if param else ()
    if left and left["symbol"] == "size":
        names = (f"size[{left['axes']}]",)
    return {unicodedata.normalize("NFKC", x) for x in names if x}


def replaced(text: str, lines: Sequence[str]) -> str:
    """The text with other lines for some of its stages and parameters; a new parameter comes first.

    Raises InputError for a line that is no line, or of a stage that is not there.
    """
    for line in lines:
        own = [*statements(line.lstrip())]
        names = defined(own[0].code) if len(own) == 1 else set()
        if not names:
            hint = "write --set 'scores[i,j] = …', or a parameter: 'temperature = 2'"
            raise InputError(f"{line[:60]!r} is not one line of a program", hint)
        code = own[0].code.strip()
        before = [x for x in statements(text) if defined(x.code) & names]
        left = _STAGE.match(code)
        if not before and left and not code.startswith("size"):
            known = sorted({x for one in statements(text) for x in defined(one.code)})
            raise InputError(f"there is no stage {min(names)!r} to set", nearest(min(names), known))
        if not before:
            text = f"{code}\n{text}"
            continue
        at, old = before[0].start, _STAGE.match(before[0].code)
        if left and old:  # under the names that other lines have for it
            named = f"{old['name']}: " if old["name"] else ""
            code = f"{named}{old['symbol']}{code[left.end('symbol') :]}"
        text = f"{text[:at]}{code}\n{text[at + len(before[0].code) :]}"
    return text


class _Reader:
    """What is known at one line of a program."""

    def __init__(self, text: str, arrays: Mapping[str, Array], origin: str) -> None:
        self.text, self.origin = text, origin
        own = {x for line in statements(text) for x in defined(line.code)}
        self.arrays = arrays = {name: x for name, x in arrays.items() if name not in own}
        self.names = {name: name for name in arrays}
        self.axes: dict[str, int] = {name: np.ndim(x) for name, x in arrays.items()}
        self.truths = {name for name, x in arrays.items() if x.dtype == np.bool_}
        self.params: dict[str, float] = {}
        self.sizes: dict[str, int] = {}
        self.unused: dict[str, Statement] = {}
        self.here, self.left = Statement(text, 0, ""), set[str]()
        letters = {*re.findall(r"\b\w\b", text)}
        self.leading = [x for x in "bhacltuwoy" if x not in letters]

    def fail(self, message: str, part: str = "") -> NoReturn:
        """Raises ProgramError at a part of the statement that is read."""
        raise error_at(message, self.text, self.origin, *self.here.find(part))

    def program(self) -> Program:
        """The whole program."""
        if len(self.text) > MOST_TEXT:
            what = f"{len(self.text)} characters are more than {MOST_TEXT}"
            raise ProgramError(f"{self.origin}: {what}")
        lines: list[Line] = []
        for statement in statements(self.text):
            self.here = statement
            indent = len(self.here.code) - len(self.here.code.lstrip())
            if stage := _STAGE.match(self.here.code, indent):
                if stage["symbol"] == "size" and not stage["name"]:
                    self.size(stage["axes"].strip(), stage.end())
                else:
                    lines.append(self.stage(stage))
            elif param := _PARAM.match(self.here.code, indent):
                self.param(unicodedata.normalize("NFKC", param["name"]), param.end())
            else:
                self.fail("a line is name[axes] = …, or a parameter: name = 0.5")
            if len(lines) > MOST_LINES:
                self.fail(f"more than {MOST_LINES} stages")
        if not lines:
            what = "there is no stage; write one, such as O[i,e] = sum[j](a[i,j] * v[j,e])"
            raise ProgramError(f"{self.origin}: {what}")
        read = {self.names[x.name] for s in lines for x in cells(s.formula.body, guards=True)}
        idle = {s.name: s.statement for s in lines[:-1] if s.name not in {*read, *STAGES}}
        remarks = tuple(
            f"{error_at('', self.text, self.origin, *at.find(x)).message}no line reads {x}"
            for x, at in (self.unused | idle).items()
        )
        return Program(tuple(lines), self.text, self.origin, self.names, remarks)

    # ---- the three kinds of lines

    def stage(self, left: re.Match[str]) -> Line:
        """A stage: its left side, then what it is."""
        symbol = unicodedata.normalize("NFKC", left["symbol"])
        name = unicodedata.normalize("NFKC", left["name"] or symbol)
        for own in (name, symbol):
            if own in STAGES and STAGES[own].role in HIDDEN:
                self.fail(f'"{own}" is what attncli calls an input; take another name', own)
            if own in self.names or own in self.params:
                self.fail(f'"{own}" is there already; give the stage another name', own)
        if iskeyword(symbol) or symbol in ("size", "inf", "where"):
            self.fail(f"{symbol} is a word of the language; call the stage {symbol}: X[…]", symbol)
        cell = self.parsed(f"x[{left['axes']}]", left.start("axes") - 2)
        index = cell.index if isinstance(cell, Cell) else ()
        own_letters = [x for axis in index if isinstance(axis, tuple) for x in axis if x != ANY]
        if len({*map(str, own_letters)}) < len(own_letters) or not all(
            isinstance(x, str) for x in own_letters
        ):
            self.fail("the axes on the left are letters, each once", left["axes"].strip())
        body, n_leading = self.with_leading(self.parsed(self.here.code[left.end() :], left.end()))
        lead = tuple((x,) for x in reversed(self.leading[:n_leading]))
        whole = list[Index]()
        for axis in index:
            if not isinstance(axis, tuple):
                self.fail("the axes on the left are letters", left["axes"].strip())
            whole += lead if axis == (ANY,) else [axis]
        if len(whole) > MOST_AXES or sum(1 for _ in walk(body, guards=True)) > MOST_NODES:
            self.fail("this is too long for one line; write a part of it as a stage of its own")
        formula = Formula(symbol, tuple(whole), body)
        used = {x.name for x in walk(body, guards=True) if isinstance(x, Param)}
        used |= {x.letter for x in walk(body, guards=True) if isinstance(x, Place)}
        self.left = {*letters_at(formula.index)}
        is_truth = self.check(body, self.left)
        if both := self.params.keys() & {*letters_at(formula.index)}:
            self.fail(f"{min(both)} is a parameter, and a letter here", min(both))
        params = {x: self.params[x] for x in sorted(used & self.params.keys())}
        for letter in {*letters_at(formula.index), *letters_in(body), *sizes_in(body)}:
            self.unused.pop(f"size[{letter}]", None)
        for used_name in params:
            self.unused.pop(used_name, None)
        self.names |= {symbol: name, name: name}
        self.axes[name] = self.rank(formula)
        self.truths |= {name} if is_truth else set()
        return Line(name, formula, params, dict(self.sizes), self.here, is_truth)

    def rank(self, formula: Formula) -> int:
        """How many axes a stage has: not the first ones, if all that it reads lacks them."""
        there, lacking = set[str](), set[str]()
        for cell in cells(formula.body, guards=True):
            n = len(cell.index) - self.axes[self.names[cell.name]]
            lacking |= {*letters_at(cell.index[:n])}
            there |= {*letters_at(cell.index[n:])}
        there |= {x.letter for x in walk(formula.body, guards=True) if isinstance(x, Place)}
        kept = [not axis or not {*map(str, axis)} <= lacking - there for axis in formula.index]
        return len(kept) - kept.index(True) if True in kept else 0

    def param(self, name: str, start: int) -> None:
        """A parameter."""
        if name in self.names or name in self.params or name in (*FUNCTIONS, *KINDS, *MORE_KINDS):
            self.fail(f'"{name}" is there already', name)
        self.params[name] = self.constant(start, name)
        self.unused[name] = self.here

    def size(self, letter: str, start: int) -> None:
        """How long an axis is."""
        n = self.constant(start, letter)
        if len(letter) != 1 or not (1 <= n <= 1 << 31 and n.is_integer()):
            self.fail("an axis is a letter, and has a whole number of entries from 1", letter)
        self.sizes[letter] = int(n)
        self.unused[f"size[{letter}]"] = self.here

    def constant(self, start: int, name: str) -> float:
        """The number of a parameter."""
        body = self.parsed(self.here.code[start:], start)
        if any(isinstance(x, Cell | Over) for x in walk(body, guards=True)):
            what = f"{name} = … is one number; a stage has its axes: {name}[i,j] = …, {name}[] = …"
            self.fail(what)
        if self.check(body, set()):
            self.fail("this is a condition, and should be a number")
        for x in walk(body):
            self.unused.pop(getattr(x, "name", getattr(x, "letter", "")), None)
        try:
            with np.errstate(all="ignore"):
                number = float(Values(Formula("", (), body), {}, self.params, {}).number(body, {}))
        except AbsentError as error:
            self.fail(f"{error} is known within stages alone", str(error))
        if np.isnan(number):
            self.fail("this is no number")
        return number

    def parsed(self, text: str, start: int) -> Expr:
        """An expression that begins at this place of the statement."""
        try:
            return parsed(text)
        except FormulaError as error:
            first = self.here.start + start
            places = first + error.start, first + error.end
            raise error_at(error.message, self.text, self.origin, *places) from None

    def with_leading(self, body: Expr) -> tuple[Expr, int]:
        """The expression with letters for the axes that `...` stands for, and how many they are."""
        most = 0

        def change(x: Expr) -> Expr:
            nonlocal most
            if not isinstance(x, Cell) or (ANY,) not in x.index:
                return x
            n = self.axes.get(self.names.get(x.name, ""), 0) - len(x.index) + 1
            if x.index[0] != (ANY,) or (ANY,) in x.index[1:] or not 0 <= n <= len(self.leading):
                self.fail('"..." stands for the first axes of an array', text_of(x))
            most = max(most, n)
            return Cell(x.name, (*((a,) for a in reversed(self.leading[:n])), *x.index[1:]))

        return rebuilt(body, change), most

    # ---- names, letters, numbers and conditions

    def check(self, node: Expr, scope: set[str]) -> bool:
        """Whether an expression is a condition; ProgramError where it is neither, nor a number."""
        match node:
            case Place(name) | Param(name) if name not in scope:
                self.param_of(name, scope)
            case Cell(name):
                self.cell(node, scope)
                return self.names[name] in self.truths
            case If(condition, then, otherwise):
                self.wanted(True, scope, condition)
                is_truth = self.check(then, scope)
                self.wanted(is_truth, scope, otherwise)
                return is_truth
            case Over(kind, letters, body, where, sink):
                if kind == "softmax" and (out := {*letters} - scope):
                    what = f"softmax is over {min(out)}, which is no letter on the left"
                    self.fail(f"{what} or of a sum around it", f"softmax[{','.join(letters)}]")
                if kind != "softmax" and (twice := {*letters} & scope - self.left):
                    what = f"{min(twice)} is the letter of a sum around this already"
                    self.fail(what, f"{kind}[{','.join(letters)}]")
                parts = [body] if where is None else [body, where]
                occurring = {x for part in parts for x in _free(part)}
                if idle := [x for x in letters if x not in occurring]:
                    what = f"{idle[0]} does not occur in what {kind} is of"
                    self.fail(what, f"{kind}[{','.join(letters)}]")
                self.wanted(False, scope | {*letters}, body)
                self.wanted(True, scope | {*letters}, *([] if where is None else [where]))
                self.wanted(False, scope, *([] if sink is None else [sink]))
            case Apply("and" | "or" | "not", args):
                self.wanted(True, scope, *args)
                return True
            case Apply(function, args):
                first, *others = args
                is_same = self.check(first, scope)
                if is_same and function not in ("==", "!="):
                    self.fail(f"this is {_CONDITION}", text_of(first))
                self.wanted(is_same, scope, *others)
                return function in COMPARED
        return False

    def wanted(self, is_truth: bool, scope: set[str], *nodes: Expr) -> None:
        """ProgramError where one of the nodes is a number and should be a condition, or so."""
        for node in nodes:
            if self.check(node, scope) != is_truth:
                what = "a number, and should be a condition such as j <= i"
                self.fail(f"this is {what if is_truth else _CONDITION}", text_of(node))

    def cell(self, node: Cell, scope: set[str]) -> None:
        """ProgramError where there is no such array, or it has not these axes."""
        known = self.names.get(node.name)
        if known is None:
            what = f'"{node.name}" is no stage before this line, and not in the input'
            self.fail(f"{what}; {nearest(node.name, self.names)}", node.name)
        if len(node.index) < self.axes[known]:
            shape = f" {self.arrays[known].shape}" if known in self.arrays else ""
            n, named = self.axes[known], len(node.index)
            self.fail(f"{node.name} has {n} axes{shape}, {named} are named", text_of(node))
        for axis in node.index[len(node.index) - self.axes[known] :]:
            if not isinstance(axis, tuple):
                self.wanted(False, scope, axis)
            for x in axis if isinstance(axis, tuple) else ():
                if isinstance(x, str) and x not in scope:
                    what = f"{x} is no letter on the left, nor of a sum around it"
                    self.fail(f"{what}: write sum[{x}](…), or name it on the left", text_of(node))

    def param_of(self, name: str, scope: set[str]) -> None:
        """ProgramError where a name by itself is none of a parameter."""
        if name in self.names:
            letters = ",".join("ijdembhn"[: self.axes[self.names[name]]])
            self.fail(f'"{name}" needs its axes: {name}[{letters}]', name)
        if name not in self.params:
            known = [*self.params, *sorted(scope)]
            hint = f"; {nearest(name, known)}" if known else ""
            what = f'"{name}" is no parameter before this line, nor a letter on the left'
            self.fail(f"{what} or of a sum around it{hint}", name)


def sizes_in(node: Expr) -> set[str]:
    """The letters whose lengths an expression has."""
    return {x.letter for x in walk(node, guards=True) if isinstance(x, Size)}


def _free(node: Expr) -> list[str]:
    """The letters of all cells and places in an expression."""
    nodes = [*walk(node, guards=True)]
    own = [x.letter for x in nodes if isinstance(x, Place)]
    return own + [x for cell in nodes if isinstance(cell, Cell) for x in letters_at(cell.index)]


def literal(x: Any) -> str:
    """A number as a line has it."""
    return text_of(Number(float(x)))
