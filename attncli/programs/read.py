"""From text to steps: every line checked for the inputs at hand, and every error placed.

The right side is read by expression.py. A name that no line defines comes with the input. Lengths
and costs are known from the shapes of the inputs; nothing is computed here but parameters. A place
that an index computes from numbers, as in table[bucket[i,j],h], is looked at when its stage is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from keyword import iskeyword
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.run import Step
from attncli.convention import DType
from attncli.errors import InputError, nearest
from attncli.formula.evaluate import AbsentError, Values, axes_read, present_axes
from attncli.formula.expression import (
    RESERVED,
    Apply,
    Cell,
    Expr,
    Formula,
    Index,
    Over,
    Param,
    Place,
    Shape,
    cells,
    every_letter,
    letters_at,
    line_of,
    rebuilt,
    renamed,
    text_of,
    walk,
)
from attncli.formula.matrices import axes_of, own_formula
from attncli.formula.parser import ANY, MOST_CHARACTERS, FormulaError, parse, parsed
from attncli.programs.bounds import Costs, checked
from attncli.programs.scope import Checker, Scope, lengths_of
from attncli.programs.text import ProgramError, Statement, statements
from attncli.stages import HIDDEN, SPECS, spec_of

MOST_LINES, MOST_AXES, MOST_LETTERS, MOST_NODES = 300, 8, 24, 4_000  # NumPy has 32 axes
"""Of a program, and of one line."""
SHOWN = "stage"
"""The kind of a stage whose name is one that attncli does not show by itself."""
_LEFT = re.compile(
    r"\s*(?:(?P<name>\w+)\s*:)?\s*(?P<symbol>[^\W\d]\w*)\s*(?:\[(?P<axes>[^\]=]*)\])?\s*=(?!=)"
)
"""The left side of a line; that of a parameter has no axes."""


class Line(NamedTuple):
    """A stage as it is written; or a number, which has no symbol: a parameter, or size[j]."""

    statement: Statement
    name: str
    formula: Formula

    @property
    def symbol(self) -> str:
        """Its letter."""
        return self.formula.symbol

    @property
    def names(self) -> set[str]:
        """Those under which later lines read it."""
        return {self.name, self.symbol or self.name}


class Program(NamedTuple):
    """The steps of a text of formulas, in the order of computation.

    inputs   what they read of the input: name → the index at which they do, as it comes first
    shapes   of all that they read and give
    costs    of all of them
    remarks  on what no line needs
    """

    steps: list[Step]
    inputs: dict[str, tuple[Index | Expr, ...]]
    shapes: dict[str, Shape]
    costs: Costs
    remarks: tuple[str, ...]

    def again(self) -> Program:
        """The same program for another call; SizeError where by now it costs too much."""
        return self._replace(steps=[*self.steps], shapes={**self.shapes}, costs=self.costs.again())


def lines_of(text: str, origin: str = "the program", others: Iterable[str] = ()) -> list[Line]:
    """The lines of a text. Raises ProgramError for one that is none.

    others  put in the place of those of the same name; a new parameter comes first. Raises
            InputError where one is not one line, or of a stage that is not there
    """
    lines = list[Line]()
    for statement in statements(text, origin):
        with statement.within():
            lines.append(_line(statement))
    for other in others:
        match lines_of(other.strip(), "--set"):
            case [line]:
                at = next((n for n, old in enumerate(lines) if old.names & line.names), None)
            case _:
                hint = "write --set 'scores[i,j] = …', or a parameter: 'temperature = 2'"
                raise InputError(f"{other[:60]!r} is not one line of a program", hint)
        if at is not None and lines[at].symbol and not line.symbol:
            hint = f"write its axes: {line.name}[i,j] = …"
            raise InputError(f"{line.name} is a stage, not one number", hint)
        if at is not None:  # under the names that other lines have for it
            symbol = line.symbol and (lines[at].symbol or line.symbol)
            formula = replace(line.formula, symbol=symbol)
            lines[at] = line._replace(name=lines[at].name, formula=formula)
        elif line.symbol:
            names = sorted({x for old in lines for x in old.names})
            raise InputError(f"there is no stage {line.name!r} to set", nearest(line.name, names))
        else:
            lines.insert(0, line)
    return lines


def stage_names(text: str) -> list[str]:
    r"""The names of the stages of a program, of which no formula is read.

    >>> stage_names("scale = 2\nscores: S[i,j] = q[i,0] * k[j,0]\nA[i,j] = softmax[j](S[i,j])")
    ['scores', 'A']
    """
    lefts = filter(None, (_LEFT.match(statement.code) for statement in statements(text, "")))
    stages = (x for x in lefts if x["axes"] is not None and (x["name"] or x["symbol"] != "size"))
    return [unicodedata.normalize("NFKC", x["name"] or x["symbol"]) for x in stages]


def arrays_named(lines: Iterable[Line]) -> set[str]:
    """The names of all arrays that lines read: of the input, and of stages."""
    return {x.name for line in lines for x in cells(line.formula.body, guards=True)}


def read(
    lines: Sequence[Line],
    arrays: Mapping[str, Array],
    origin: str = "the program",
    dtype: DType = "float64",
) -> Program:
    """The program of some lines, for these inputs.

    Raises ProgramError where it is none, SizeError where it costs more than is allowed.

    >>> read(lines_of("A[i,j] = softmax[j](q[i,j] where j <= i)"), {"q": np.eye(2)}).shapes
    {'q': (2, 2), 'A': (2, 2)}
    >>> read(lines_of("A[i,j] = q[i,j] * kk[j,i]", "mine"), {"q": np.eye(2)})
    Traceback (most recent call last):
        ...
    attncli.programs.text.ProgramError: mine, line 1: "kk" is no stage before this line, and not \
in the input; there is only q
    """
    scope, costs, steps = _scope(lines, arrays), Costs(), list[Step]()
    inputs = dict[str, tuple[Index | Expr, ...]]()
    for line in lines:
        with line.statement.within():
            _check_new(line, scope)
            if not line.symbol:
                _define(line, scope)
                continue
            steps.append(_step(line, scope, dtype))
            subject = f"{line.statement.origin}: the stages up to line {line.statement.number}"
            shape = costs.add(subject, steps[-1], scope.shapes)
            scope.shapes |= dict.fromkeys(sorted(line.names), shape)
            for cell in cells(parse(steps[-1].text).body, guards=True):
                if (source := steps[-1].reads[cell.name]) not in scope.symbols:
                    inputs.setdefault(source, cell.index)
            if len(steps) > MOST_LINES:
                raise FormulaError(f"more than {MOST_LINES} stages")
    if not steps:
        message = "there is no stage; write one, such as O[i,e] = sum[j](a[i,j] * v[j,e])"
        raise ProgramError(f"{origin}: {message}")
    idle = [(x, FormulaError(f"no line reads {x.name}", part=x.name)) for x in _idle(lines)]
    remarks = tuple(line.statement.error(error).message for line, error in idle)
    return Program(steps, inputs, scope.shapes, costs, remarks)


def _line(statement: Statement) -> Line:
    """A line read; FormulaError where it is none."""
    code = statement.code

    def side(start: int, text: str) -> Expr:  # at its place, so that errors have theirs
        return parsed(" " * start + text)

    def normal(name: str) -> str:  # as Python's parser has it
        return unicodedata.normalize("NFKC", name)

    head = _LEFT.match(code)
    if head is None or (head["name"] and head["axes"] is None):
        raise FormulaError("a line is name[axes] = …, or a parameter: name = 0.5")
    is_size = head["symbol"] == "size" and not head["name"]
    if is_size or head["axes"] is None:
        name = f"size[{(head['axes'] or '').strip()}]" if is_size else normal(head["symbol"])
        return Line(statement, name, Formula("", (), side(head.end(), code[head.end() :])))
    symbol, name = normal(head["symbol"]), normal(head["name"] or head["symbol"])
    if iskeyword(symbol) or symbol in ("size", "inf", "where"):
        message = f"{symbol} is a word of the language; call the stage {symbol}: X[…]"
        raise FormulaError(message, part=symbol)
    cell = side(head.start("axes") - 2, f"x[{head['axes']}]")
    index = cell.index if isinstance(cell, Cell) else ()
    axes = tuple(axis for axis in index if isinstance(axis, tuple))
    letters = [x for axis in axes for x in axis if x != ANY]
    is_plain = len(axes) == len(index) and all(isinstance(x, str) for x in letters)
    if not is_plain or len({*letters}) < len(letters):
        message = "the axes on the left are letters" + ", each once" * is_plain
        raise FormulaError(message, part=head["axes"].strip())
    return Line(statement, name, Formula(symbol, axes, side(head.end(), code[head.end() :])))


def _scope(lines: Sequence[Line], arrays: Mapping[str, Array]) -> Scope:
    """What is known before the first line: the inputs, and how long their letters are."""
    defined = {name for line in lines for name in (line.name, line.symbol)}
    shapes = {name: np.shape(x) for name, x in arrays.items() if name not in defined}
    truths = {name for name in shapes if arrays[name].dtype == np.bool_}
    scope = Scope({name: name for name in shapes}, shapes, truths)
    every = (x for line in lines for x in axes_read(line.formula.body, shapes))
    for axis, size, cell in every:
        n = len(shapes.get(cell.name, ()))
        if cell.name not in shapes or (len(cell.index) < n and (ANY,) not in cell.index):
            continue  # a stage, or what is refused where the line is checked
        if size is None or (size == 1 and isinstance(axis, tuple)):
            scope.absent |= {*letters_at([axis])}
        elif isinstance(axis, tuple) and len(axis) == 1:
            scope.lengths[str(axis[0])].add(size)
    letters = {x for line in lines for x in every_letter(line.formula)}
    scope.free = [x for x in "bhacltuwoy" if x not in letters]
    return scope


def _check_new(line: Line, scope: Scope) -> None:
    """FormulaError where a line defines what is there already, or has a name that is not free."""
    for name in (line.name, line.symbol or line.name):
        if name in scope.names or name in scope.params or (name in RESERVED and not line.symbol):
            hint = "; give the stage another name" * bool(line.symbol)
            raise FormulaError(f'"{name}" is there already{hint}', part=name)


def _define(line: Line, scope: Scope) -> None:
    """Adds a parameter, or how long an axis is."""
    body, name = line.formula.body, line.name
    if any(isinstance(x, Cell | Over) for x in walk(body, guards=True)):
        message = f"{name} = … is one number; a stage has its axes: {name}[i,j] = …, {name}[] = …"
        raise FormulaError(message)
    if Checker(scope, set()).is_condition(body):
        raise FormulaError("this is a condition, and should be a number")
    try:
        with np.errstate(all="ignore"):
            number = float(Values(Formula("", (), body), {}, scope.params, {}).number(body, {}))
    except AbsentError as error:
        raise FormulaError(f"{error} is known within stages alone", part=str(error)) from None
    letter = name.removeprefix("size[").removesuffix("]")
    if np.isnan(number):
        raise FormulaError("this is no number")
    if letter == name:
        scope.params[name] = number
    elif len(letter) != 1 or not (1 <= number <= 1 << 31 and number.is_integer()):
        message = "an axis is a letter, and has a whole number of entries from 1"
        raise FormulaError(message, part=letter)
    else:
        scope.sizes[letter] = int(number)


def _step(line: Line, scope: Scope, dtype: DType) -> Step:
    """The step of a stage, which is known from now on, but for its shape."""
    formula = _with_leading(line.formula, scope)
    ours = _as_ours(line.name, formula.body)
    text = line_of(replace(formula, body=renamed(formula.body, ours)))
    nodes, letters = [*walk(formula.body, guards=True)], {*letters_at(formula.index)}
    is_wide = len(formula.index) > MOST_AXES or len(every_letter(formula)) > MOST_LETTERS
    if is_wide or len(text) > MOST_CHARACTERS or len(nodes) > MOST_NODES:
        message = "this is too long for one line; write a part of it as a stage of its own"
        raise FormulaError(message)
    if cycle := line.names & {x.name for x in nodes if isinstance(x, Cell)}:
        message = f"{min(cycle)} is what this line defines, and a line cannot read itself"
        raise FormulaError(message, part=min(cycle))
    if both := scope.params.keys() & letters:
        raise FormulaError(f"{min(both)} is a parameter, and a letter here", part=min(both))
    is_truth = Checker(scope, letters).is_condition(formula.body)
    used = {x.name for x in nodes if isinstance(x, Param)}
    used |= {x.letter for x in nodes if isinstance(x, Place)}
    params = {x: scope.params[x] for x in sorted(used & scope.params.keys())}
    sizes = lengths_of(formula, scope)
    index = present_axes(formula.index, sizes)
    if out := [x for x in letters_at(index) if x not in sizes]:
        raise FormulaError(f"{out[0]} has no length, though axes before it have", part=out[0])
    reads = {x.name: scope.names[x.name] for x in nodes if isinstance(x, Cell)}
    symbols = {
        name: scope.symbols.get(stage) or spec_of(stage).symbol for name, stage in reads.items()
    }
    scope.names |= {line.symbol: line.name, line.name: line.name}
    scope.symbols[line.name] = line.symbol
    scope.truths |= {line.name} if is_truth else set()
    for letter, n in sizes.items():
        scope.lengths[letter].add(n)
    reads = {ours.get(name, name): stage for name, stage in reads.items()}
    usual = spec_of(line.name)
    is_shown = not (usual.asked or usual.role in HIDDEN)  # every name is free in a program
    step = Step(line.name, text, reads, params)._replace(
        kind="" if is_shown else SHOWN,
        formula=own_formula(formula, symbols, params),
        dtype=None if is_truth or spec_of(line.name).role == "input" else dtype,
        note=line.statement.note,
        symbol=line.symbol,
        sizes=sizes,
        axes=axes_of(index),
    )
    return checked(step, formula, scope.shapes, ours, line.statement)


def _with_leading(formula: Formula, scope: Scope) -> Formula:
    """The formula with letters for the axes that `...` stands for."""
    most = 0

    def change(x: Expr) -> Expr:
        nonlocal most
        if not isinstance(x, Cell) or (ANY,) not in x.index:
            return x
        n = len(scope.shapes[x.name]) - len(x.index) + 1 if x.name in scope.names else -1
        if x.index[0] != (ANY,) or (ANY,) in x.index[1:] or not 0 <= n <= len(scope.free):
            raise FormulaError('"..." stands for the first axes of an array', part=text_of(x))
        most = max(most, n)
        return Cell(x.name, (*lead(n), *x.index[1:]))

    def lead(n: int) -> list[Index]:
        return [(x,) for x in reversed(scope.free[:n])]

    body = rebuilt(formula.body, change)
    index = [axis for each in formula.index for axis in (lead(most) if each == (ANY,) else [each])]
    return replace(formula, index=tuple(index), body=body)


def _as_ours(name: str, body: Expr) -> dict[str, str]:
    """The names by which views know what weights and an output read, where they are as ours."""
    match name, body:
        case "weights", Over("softmax", _, Cell(x)):
            names = {x: "x"}
        case "output", Over("sum", _, Apply("*", (Cell(a), Cell(v)))) if a != v:
            names = {a: "a", v: "v"}
        case _:
            return {}
    others = {x.name for x in cells(body, guards=True)} - names.keys()
    return {} if others & {*names.values()} else names


def _idle(lines: Sequence[Line]) -> list[Line]:
    """The lines that no later one needs; not the last stage, and those that attncli knows."""
    used, idle, has_stage = set[str](), list[Line](), False
    for line in reversed(lines):
        is_result = bool(line.symbol) and (not has_stage or line.name in SPECS)
        if not (is_result or line.names & used):
            idle.append(line)
        has_stage = has_stage or bool(line.symbol)
        used |= {getattr(x, "name", "") for x in walk(line.formula.body, guards=True)}
        letters = every_letter(line.formula)
        used |= {*letters} | {f"size[{x}]" for x in letters}
    return idle[::-1]
