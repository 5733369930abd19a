"""Gradients: a plan read in reverse, each formula by the chain rule.

    dO ── d_v, d_weights ── delta ── d_masked ── d_scaled ── d_scores ── d_q, d_k ── d_w_q …, d_x

The gradient of a stage is how fast the loss grows with each of its numbers: d_scores = ∂loss/∂S,
of the shape of the scores, written with a d before the stage's letter: dS. It is the sum over all
letters that are not its own. A step that changes nothing, such as a mask of −inf, has no stage of
its own: the gradient after it is also the one before. Where another form says more than the chain
rule, as δ does for softmax, a step declares it (`Step.back`).

Source: Dao et al., "FlashAttention" (2022), appendix B.2 and B.4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

from attncli.arrays import Array
from attncli.attention.matrices import formula_of, worded
from attncli.attention.run import Step
from attncli.expression import (
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
    cells,
    line_of,
    parse,
    rebuilt,
    summed_letters,
    text_of,
    walk,
    with_letters,
    written,
)
from attncli.stages import GIVEN_GRADIENT, gradient_of, kind_of

ONE, ZERO = Number(1.0), Number(0.0)
D, Y = "d", "y"
"""How a gradient reads that of its stage's result, and the result itself."""


def backward(
    steps: Sequence[Step], *, within: str = "", letters: Mapping[str, str] = {}
) -> list[Step]:
    """The steps of the gradients of everything that a plan was given.

    The first is the gradient of the last stage, which is an input, GIVEN_GRADIENT; then those of
    what each step reads, in reverse order. Those of x, x_kv and x_v come last. Raises TypeError
    where a formula has no gradient by the chain rule and declares none.

    within   what the names of all gradients begin with
    letters  symbols of inputs, where they are not those of the registry
    """
    last = steps[-1]
    own_letters = {step.name: step.symbol for step in steps if step.symbol}
    reverse = _Backward(within, {**letters, **own_letters})
    name, symbol = reverse.named(last.name), reverse.symbol(last.name)
    first = Step(name, "", {"x": GIVEN_GRADIENT}, {}, f"{symbol} given", last.dtype)
    reverse.steps.append(first._replace(symbol=symbol, function=as_given))
    reverse.gradients[last.name] = name
    order = {step.name: at for at, step in enumerate(steps)}
    relevant, goals = {last.name}, dict[str, list[str]]()
    for step in reversed(steps):
        if step.name in relevant:
            goals[step.name] = _goals(step)
            relevant.update(goals[step.name])
            reverse.waiting.update(goals[step.name])
    for step in reversed(steps):
        if step.name in reverse.gradients and step.expression:
            reverse.through(step, goals[step.name], order)
    rows = {reverse.named(x) for x in ("x", "x_kv", "x_v")}
    return sorted(reverse.steps, key=lambda step: step.name in rows)


def as_given(x: Array) -> Array:
    """The gradient that everything else follows from."""
    return x


def _goals(step: Step) -> list[str]:
    """The stages that a step reads and that have a gradient of it; those it declares come first.

    What its formula only decides by has none.
    """
    if not step.expression:
        return []
    body = parse(step.expression).body
    names = {cell.name for cell, _ in _chained(body, ZERO, ZERO, step.params)} - {*step.back}
    names |= {name for name, back in step.back.items() if back is not None}
    order = dict.fromkeys([*step.back, *step.reads])
    return [*dict.fromkeys(step.reads[x] for x in order if x in names & step.reads.keys())]


class Part(NamedTuple):
    """What a stage gets of the gradient of a step that reads it.

    at       the index at which the step reads it
    body     the gradient of that cell, before it is summed over other letters
    reads    name in the body → stage
    step     the step, and of: the name by which it reads the stage
    remark   as in a formula; formula, text: in words and by cells, where the step declares them
    """

    at: tuple[Any, ...]
    body: Expr
    reads: Mapping[str, str]
    step: Step
    of: str
    remark: str = ""
    formula: str = ""
    text: str = ""


@dataclass
class _Backward:
    """The gradients so far.

    gradients  stage → the stage that holds its gradient
    waiting    stage → how many steps that read it have not given their part yet
    parts      stage → what it got so far
    """

    within: str
    letters: dict[str, str]
    steps: list[Step] = field(default_factory=list)
    gradients: dict[str, str] = field(default_factory=dict)
    waiting: Counter[str] = field(default_factory=Counter)
    parts: dict[str, list[Part]] = field(default_factory=dict)

    def named(self, stage: str) -> str:
        """The name of a stage's gradient."""
        return f"{self.within}{gradient_of(stage)}"

    def symbol(self, stage: str) -> str:
        """The letter of the gradient of a stage."""
        own = self.letters.get(stage)
        letter = f"d{own}" if own else kind_of(gradient_of(stage)).symbol
        self.letters[self.named(stage)] = letter
        return letter

    def through(self, step: Step, goals: list[str], order: Mapping[str, int]) -> None:
        """Gives the goals of a step, of all that it reads, their part of the gradient."""
        own = self.of(step)
        if not {*step.reads} <= {*step.back, "mask"}:  # else as they are declared
            goals.sort(key=lambda name: order.get(name, -1))
        for name in goals:
            self.parts.setdefault(name, []).extend(own.get(name, ()))
            self.waiting[name] -= 1
            if not self.waiting[name] and self.parts[name]:
                self.add(name)

    def of(self, step: Step) -> dict[str, list[Part]]:
        """What everything gets that a step reads: as it is declared, else by the chain rule."""
        formula, place = parse(step.expression), step.name[: step.name.rfind(".") + 1]
        reads = {D: self.gradients[step.name], Y: step.name, "mask": f"{place}mask", **step.reads}
        if "delta" in step.back:
            reads["delta"] = f"{self.within}{place}delta"
            part = _declared("delta", reads, step)
            is_of_keys = any("j" in axis for axis in part.at)
            self.append(reads["delta"], "δ", part, "delta_of_keys" * is_of_keys)
        parts: dict[str, list[Part]] = {name: [] for name in step.reads}
        for name in step.reads.keys() & step.back.keys():
            parts[name] += [_declared(name, reads, step)] if step.back[name] else []
        d = Cell(D, formula.index)
        y = None if Y in step.reads else Cell(Y, formula.index)
        for cell, body in _chained(formula.body, d, y, step.params):
            if cell.name in step.reads.keys() - step.back.keys():
                if not _is_of_letters(cell):
                    raise TypeError(f"{text_of(cell)} has no gradient: its index is not of letters")
                part = Part(cell.index, body, reads, step, cell.name)
                parts[cell.name].append(part)
        stages: dict[str, list[Part]] = {}
        for name, own in parts.items():
            stages.setdefault(step.reads[name], []).extend(_united(own))
        return stages

    def add(self, stage: str) -> None:
        """The gradient of a stage of all its parts; one that is another unchanged has no step."""
        parts = self.parts.pop(stage)[::-1]  # the first that reads it comes first
        match parts:
            case [Part(index, Cell(_, read) as cell, reads)] if read == index:
                self.gradients[stage] = reads[cell.name]
                return
        name, symbol = self.named(stage), self.symbol(stage)
        whole = max((part.at for part in parts), key=lambda index: max(map(len, index), default=0))
        if len(parts) == 1:
            self.append(name, symbol, parts[0])
        else:
            self.append_sum(name, symbol, parts, whole)
        self.gradients[stage] = name

    def append(self, name: str, symbol: str, part: Part, kind: str = "") -> None:
        """Adds the step of a gradient that is one part: the sum over the letters not its own."""
        body = _summed(part.body, part.at)
        reads = {cell.name: part.reads[cell.name] for cell in cells(body, guards=True)}
        formula = Formula(symbol, part.at, body, part.remark)
        text = re.sub(r"^[^[ ]+", symbol, part.text) if part.text else line_of(formula)
        step = self.step_of(name, formula, reads, [part], part.formula)
        through = f"{part.step.name}.{part.of}"
        self.steps.append(step._replace(text=text, kind=kind, through=through))

    def append_sum(
        self, name: str, symbol: str, parts: Sequence[Part], index: tuple[Any, ...]
    ) -> None:
        """Adds the step of a gradient that is a sum of parts, which read stages by their names."""
        reads, terms = dict[str, str](), list[Expr]()
        for part in parts:
            term = _summed(_relettered(part, index), index)
            own = {cell.name: part.reads[cell.name] for cell in cells(term, guards=True)}
            names = _by_stage(own, reads)
            reads |= {names[old]: stage for old, stage in own.items()}
            terms.append(_renamed(term, names))
        total = reduce(lambda a, b: Apply("+", (a, b)), terms)
        self.steps.append(self.step_of(name, Formula(symbol, index, total), reads, parts))

    def step_of(
        self,
        name: str,
        formula: Formula,
        reads: Mapping[str, str],
        parts: Sequence[Part],
        words: str = "",
    ) -> Step:
        """The step of a gradient, with the parameters that its formula names."""
        params = {n: x for part in parts for n, x in part.step.params.items()}
        sizes = {n: x for part in parts for n, x in part.step.sizes.items()}
        nodes = [*walk(formula.body, guards=True)]
        shown = {x.name for x in nodes if isinstance(x, Param)} | {*OF_READERS}
        shown |= {x.letter for x in nodes if isinstance(x, Place)}
        params = {n: x for n, x in params.items() if n in shown}
        dtype, symbol = parts[0].step.dtype, formula.symbol
        symbols = self.symbols(reads)
        in_matrices = f"{symbol} = {worded(words, symbols, params)}"
        if not words:
            in_matrices = formula_of(formula, symbols, params)
        step = Step(name, line_of(formula), reads, params, in_matrices, dtype, sizes=sizes)
        return step if symbol == kind_of(name).symbol else step._replace(symbol=symbol)

    def symbols(self, reads: Mapping[str, str]) -> dict[str, str]:
        """The letters of what is read."""
        return {own: self.letters.get(of) or kind_of(of).symbol for own, of in reads.items()}


OF_READERS = ("axis", "n_kv_heads", "order")
"""Parameters that no formula names, but those who read a plan: the axis of a softmax, say."""


def times(a: Expr, b: Expr) -> Expr:
    """The product of two expressions, of which 1 is no factor."""
    return a if b == ONE else b if a == ONE else Apply("*", (a, b))


def _declared(of: str, reads: Mapping[str, str], step: Step) -> Part:
    """A gradient as it is declared."""
    text, words = step.back[of] or ("", "")
    formula = parse(written(text, frozenset({*step.reads, D, Y, "delta"})))
    return Part(formula.index, formula.body, reads, step, of, formula.remark, words, text)


def _united(parts: list[Part]) -> Iterator[Part]:
    """The two cases of a choice in which the gradient is the same, as one."""
    match [part.body for part in parts]:
        case [If(first, a, Number(0.0)), If(second, Number(0.0), b)] if (first, a) == (second, b):
            yield parts[0]._replace(body=a)
        case _:
            yield from parts


# ---- names and letters


def _is_of_letters(cell: Cell) -> bool:
    """Whether an index names letters alone, each once: what is elsewhere is not summed."""
    axes = [axis for axis in cell.index if isinstance(axis, tuple)]
    letters = [x for axis in axes for x in axis if isinstance(x, str)]
    return len(axes) == len(cell.index) and len({*letters}) == sum(map(len, axes))


def _by_stage(names: Mapping[str, str], taken: Mapping[str, str]) -> dict[str, str]:
    """For each name the one of its stage, with a number where another stage has that already."""
    new: dict[str, str] = {}
    for own, stage in names.items():
        plain, n = stage.rpartition(".")[2], 1
        name = plain
        while {**taken, **{b: names[a] for a, b in new.items()}}.get(name, stage) != stage:
            n += 1
            name = f"{plain}_{n}"
        new[own] = name
    return new


def _renamed(node: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with other names of its arrays."""
    return rebuilt(node, lambda x: Cell(names[x.name], x.index) if isinstance(x, Cell) else x)


def _letters(node: Expr) -> dict[str, None]:
    """The letters of all axes in an expression, in order."""
    axes = [axis for cell in cells(node, guards=True) for axis in cell.index]
    letters = [
        axis if isinstance(axis, tuple) else [x.letter for x in walk(axis) if isinstance(x, Place)]
        for axis in axes
    ]
    return dict.fromkeys(x for axis in letters for x in axis if isinstance(x, str))


def _relettered(part: Part, index: tuple[Any, ...]) -> Expr:
    """The expression of a part with the letters of this index, others of it out of their way."""
    change: dict[str, Index] = {}
    for own, axis in zip(part.at, index, strict=True):
        if len(own) == len(axis):
            change |= {a: (b,) for a, b in zip(own, axis, strict=True)}
        elif own:
            change[own[0]] = axis
    used = {*_letters(part.body), *(x for axis in index for x in axis)}
    for letter in _letters(part.body).keys() - change.keys():
        if any(letter in axis for axis in index):
            new = next(x for x in "nfcopqstuvwxyz" if x not in used)
            used.add(new)
            change[letter] = (new,)
    if summed_letters(part.body) & {*change, *(x for axis in index for x in axis)}:
        raise TypeError(f"{text_of(part.body)} sums over a letter that its gradient has")

    def changed(x: Expr) -> Expr:
        if isinstance(x, Size) and len(change.get(x.letter, ())) > 1:
            sizes: list[Expr] = [Size(str(letter)) for letter in change[x.letter]]
            return reduce(times, sizes)
        return with_letters(x, change) if isinstance(x, Cell) else x

    return rebuilt(part.body, changed) if any((a,) != b for a, b in change.items()) else part.body


def _summed(body: Expr, index: tuple[Any, ...]) -> Expr:
    """The sum over all letters that are not of this index.

    Where one shares an axis with a letter of its own, as the query heads of a key head do, the sum
    over it is outside: each head has its part.
    """
    own = {x for axis in index for x in axis}
    rest = [x for x in _letters(body) if x not in own | summed_letters(body)]
    axes = [axis for cell in cells(body) for axis in cell.index if isinstance(axis, tuple)]
    outer = tuple(x for x in rest if any(x in axis and {*axis} & own for axis in axes))
    inner = tuple(x for x in rest if x not in outer)
    body = Over("sum", inner, _in_order(body, index)) if inner else body
    return Over("sum", outer, body) if outer else body


def _in_order(body: Expr, index: tuple[Any, ...]) -> Expr:
    """A product of two matrices in their order: first the one with the rows of the result."""
    match body:
        case Apply("*", (Cell() as a, Cell() as b)) if len(index) > 1:
            rows = {*index[-2]}
            if not rows & {*_letters(a)} and rows & {*_letters(b)}:
                return Apply("*", (b, a))
    return body


# ---- the chain rule


def _chained(  # noqa: PLR0912 - a rule for each kind of node
    node: Expr, d: Expr, y: Expr | None, params: Mapping[str, Any]
) -> Iterator[tuple[Cell, Expr]]:
    """The gradient of each cell in an expression: d times its derivative.

    y  what the expression gives, where a stage holds that

    What only decides a case has no gradient. A softmax, or the log of a sum, has one only as a
    whole formula that declares it. Raises TypeError for what has none by this rule.
    """

    def inner(x: Expr, back: Expr) -> Iterator[tuple[Cell, Expr]]:
        return _chained(x, back, None, params)

    match node:
        case Cell():
            yield node, d
        case Apply("+", (a, b)):
            yield from (*inner(a, d), *inner(b, d))
        case Apply("-", (a, b)):
            yield from (*inner(a, d), *inner(b, Apply("neg", (d,))))
        case Apply("*", (a, b)):
            yield from (*inner(a, times(d, b)), *inner(b, times(a, d)))
        case Apply("/", (a, b)):
            yield from inner(a, Apply("/", (d, b)))
            square = Apply("**", (b, Number(2.0)))
            yield from inner(b, Apply("neg", (Apply("/", (times(d, a), square)),)))
        case Apply("neg", (a,)):
            yield from inner(a, Apply("neg", (d,)))
        case Apply("**", (a, Number(n))):
            slope = a if n == 2 else Apply("**", (a, Number(n - 1)))
            yield from inner(a, times(d, times(Number(n), slope)))
        case Apply("max", (Number() as low, a)):
            yield from inner(a, If(Apply(">", (y or a, low)), d, ZERO))
        case Apply(function, (a,)) if function in _SLOPES:
            yield from inner(a, times(d, _SLOPES[function](a, y or node)))
        case If(Apply("<", (Place(j), Param() as n)), Cell(), b):  # rows after those of a cache
            later = Apply("+", (Place("i"), n))
            rows = _moved(b, Apply("-", (Place(j), n)), ("i",))
            yield from inner(rows, _moved(d, (j,), later))
        case If(_, Param(value), b) if params.get(value) == -float("inf"):
            yield from inner(b, d)  # no power of −∞: its gradient is 0 already
        case If(condition, a, b):
            yield from ((cell, If(condition, back, ZERO)) for cell, back in inner(a, d))
            yield from ((cell, If(condition, ZERO, back)) for cell, back in inner(b, d))
        case Over("sum", _, body, None | Apply("or")):  # 0 · NaN is none, be it counted or not
            yield from inner(body, d)
        case Over("sum", _, body, Apply() as where):
            yield from inner(body, If(where, d, ZERO))
        case Over(_, _, body) if y is not None:
            yield from ((cell, d) for cell in cells(body))  # what declares its gradient
        case _ if cells(node):
            raise TypeError(f"{text_of(node)} has no gradient by the chain rule")


def _moved(node: Expr, axis: Index | Expr, new: Index | Expr) -> Expr:
    """The expression with another axis in place of one, wherever a cell has it."""

    def moved(x: Expr) -> Expr:
        if not isinstance(x, Cell):
            return x
        return Cell(x.name, tuple(new if own == axis else own for own in x.index))

    return rebuilt(node, moved)


_SLOPES: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "exp": lambda _, y: y,
    "ln": lambda x, _: Apply("/", (ONE, x)),
    "sqrt": lambda _, y: Apply("/", (Number(0.5), y)),
    "tanh": lambda _, y: Apply("-", (ONE, Apply("**", (y, Number(2.0))))),
}
