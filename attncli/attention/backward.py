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
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import chain, count
from keyword import iskeyword
from math import isqrt, prod
from typing import Any, NamedTuple

from attncli.arrays import Array, Like
from attncli.attention.run import Step
from attncli.attention.unnumbered import Derived, Worded, with_origins, without_numbers
from attncli.formula.compute import Items
from attncli.formula.derivative import ZERO, Chain, TooLongError, free_names
from attncli.formula.evaluate import lengths_along, place_along
from attncli.formula.expression import (
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
    Shape,
    cells,
    depth_of,
    every_letter,
    free_letters,
    letters_at,
    letters_in,
    line_of,
    renamed,
    text_of,
    walk,
    with_bound,
    with_letters,
    with_parts,
)
from attncli.formula.matrices import axes_of, formula_of, own_formula, worded
from attncli.formula.parser import MOST_CHARACTERS, MOST_DEPTH, parse, written
from attncli.stages import GIVEN_GRADIENT, gradient_of, spec_of

D, Y = "d", "y"
"""How a gradient reads that of its stage's result, and the result itself."""


def backward(
    steps: Sequence[Step],
    *,
    within: str = "",
    letters: Mapping[str, str] = {},
    shapes: Mapping[str, Shape] = {},
) -> list[Step]:
    """The steps of the gradients of everything that a plan was given.

    The first is the gradient of the last stage, which is an input, GIVEN_GRADIENT; then those of
    what each step reads, in reverse order. Those of x, x_kv and x_v come last. Raises TypeError
    where a formula has no gradient by the chain rule and declares none.

    within   what the names of all gradients begin with
    letters  symbols of inputs, where they are not those of the registry
    shapes   of stages that are read at places which are computed, or along axes of one entry
    """
    numbers = {step.name: step.params for step in steps}
    unnumbered = tuple(map(without_numbers, steps))
    items = (*letters.items(),), (*shapes.items(),)
    return [derived.of(numbers) for derived in _derived(unnumbered, within, *items)]


@lru_cache(256)
def _derived(
    unnumbered: tuple[Step, ...], within: str, letters: Items, shapes: Items
) -> list[Derived]:
    """The steps of gradients, whatever the numbers of the steps are that they are of."""
    steps = [with_origins(step) for step in unnumbered]
    last, symbols = steps[-1], {x.name: x.symbol for x in steps if x.symbol}
    reverse = _Backward(within, {**dict(letters), **symbols}, dict(shapes))
    name, symbol = reverse.named(last.name), reverse.symbol(last.name)
    first = Step(name, "", {"x": GIVEN_GRADIENT}, {}, f"{symbol} given", last.dtype)
    reverse.steps.append(
        first._replace(symbol=symbol, function=as_given, like=like_given, axes=last.axes)
    )
    reverse.gradients[last.name] = name
    order = {step.name: at for at, step in enumerate(steps)}
    relevant, goals, flat = {last.name}, dict[str, list[str]](), set[str]()
    for step in reversed(steps):
        if step.name in relevant:
            goals[step.name] = _goals(step, order)
            relevant.update(goals[step.name])
    for step in (step for step in steps if step.name in goals):
        goals[step.name] = [name for name in goals[step.name] if name not in flat]
        reverse.waiting.update(goals[step.name])
        if step.expression and not goals[step.name]:  # it follows from no input: slopes by head
            flat.add(step.name)
    last_first = [*reversed(steps)]
    for at, step in enumerate(last_first):  # queries before keys, as where they have no norm
        after = last_first[at - 1] if at else step
        if step.name.endswith("q_norm") and after.name.endswith("k_norm"):
            last_first[at - 1 : at + 1] = step, last_first[at - 1]
    for step in last_first:
        if step.name in reverse.gradients and step.expression:
            reverse.through(step, goals[step.name])
    rows = {reverse.named(x) for x in ("x", "x_kv", "x_v") if x not in order}
    ordered = sorted(reverse.steps, key=lambda step: step.name in rows)
    return [Derived(step, reverse.wordings.get(step.name)) for step in ordered]


def as_given(x: Array) -> Array:
    """The gradient that everything else follows from."""
    return x


def like_given(x: Like) -> Like:
    """The shape and the type of that."""
    return x._replace(takes=0)


def _goals(step: Step, order: Mapping[str, int]) -> list[str]:
    """The stages that a step reads and that have a gradient of it: not what only decides a case.

    They are in the order of the computation, or as it declares their gradients, where it does all.
    """
    if not step.expression:
        return []
    infinite = frozenset(name for name, x in step.params.items() if x == -float("inf"))
    try:
        names = {*_reached(step.expression, infinite)} - {*step.back}
    except TooLongError:
        raise _too_long(step) from None
    names |= {name for name, back in step.back.items() if back is not None}
    reads = dict.fromkeys([*step.back, *step.reads])
    goals = [*dict.fromkeys(step.reads[x] for x in reads if x in names & step.reads.keys())]
    if not {*step.reads} <= {*step.back, "mask"}:
        goals.sort(key=lambda name: order.get(name, -1))
    return goals


@lru_cache(1024)
def _reached(text: str, infinite: frozenset[str]) -> frozenset[str]:
    """The arrays that a gradient flows to by the chain rule; infinite: parameters of −∞."""
    formula = parse(text)
    chain = Chain(formula, dict.fromkeys(infinite, -float("inf")), {})
    return frozenset(cell.name for cell, _ in chain.parts(formula.body, ZERO, ZERO))


class Part(NamedTuple):
    """What a stage gets of the gradient of a step that reads it."""

    at: tuple[Any, ...]  # the index at which the step reads it
    body: Expr  # the gradient of that cell, before it is summed over other letters
    reads: Mapping[str, str]  # name in the body → stage
    step: Step
    parameter: str  # the name by which the step reads the stage
    remark: str = ""  # as in a formula


class _Backward:
    """The gradients so far."""

    def __init__(self, within: str, letters: dict[str, str], shapes: Mapping[str, Shape]) -> None:
        self.within, self.letters, self.shapes = within, letters, shapes
        self.steps = list[Step]()
        self.wordings = dict[str, Worded]()  # by step
        self.gradients = dict[str, str]()  # stage → the stage that holds its gradient
        self.waiting = Counter[str]()  # stage → how many steps have not given their part yet
        self.parts = defaultdict[str, list[Part]](list)  # what each stage got so far

    def named(self, stage: str) -> str:
        """The name of a stage's gradient."""
        return f"{self.within}{gradient_of(stage)}"

    def symbol(self, stage: str) -> str:
        """The letter of the gradient of a stage."""
        stage_letter = self.letters.get(stage)
        letter = f"d{stage_letter}" if stage_letter else spec_of(gradient_of(stage)).symbol
        self.letters[self.named(stage)] = letter
        return letter

    def through(self, step: Step, goals: Sequence[str]) -> None:
        """Gives the goals of a step their part of its gradient, and adds those that are whole."""
        try:
            parts_of = self.parts_of(step)
        except TooLongError:
            raise _too_long(step) from None
        for name, parts in parts_of.items():
            self.parts[name] += parts
        for name in goals:
            self.waiting[name] -= 1
            if self.waiting[name] or not self.parts[name]:
                continue
            match self.parts.pop(name)[::-1]:  # the first that reads it comes first
                case [Part(index, Cell(_, at) as cell, reads)] if at == index:
                    self.gradients[name] = reads[cell.name]  # one that is another needs no step
                case parts:
                    self.gradients[name] = self.named(name)
                    self.append(self.named(name), self.symbol(name), parts)

    def parts_of(self, step: Step) -> dict[str, list[Part]]:
        """What each stage that a step reads gets: as it is declared, else by the chain rule."""
        formula, place = parse(step.expression), step.name[: step.name.rfind(".") + 1]
        of_result = next(x for x in (D, "dy", "dz") if x not in step.reads)
        reads = {
            of_result: self.gradients[step.name],
            Y: step.name,
            "mask": f"{place}mask",
            **step.reads,
        }
        if "delta" in step.back:
            reads["delta"] = f"{self.within}{place}delta"
            part = _declared("delta", reads, step)
            is_of_keys = any("j" in axis for axis in part.at)
            self.append(reads["delta"], "δ", [part], "delta_of_keys" * is_of_keys)
        parts = defaultdict[str, list[Part]](list)
        for name in step.reads:
            parts[name] += [_declared(name, reads, step)] if step.back.get(name) else []
        y = None if Y in step.reads else Cell(Y, formula.index)
        chain = Chain(formula, step.params, step.sizes)
        for cell, body in chain.parts(chain.body, Cell(of_result, formula.index), y):
            if cell.name in step.reads and cell.name not in step.back:
                at, back = self.placed(cell, body, chain, self.shapes.get(step.reads[cell.name]))
                part = Part(at, back, reads, step._replace(sizes=chain.sizes), cell.name)
                parts[cell.name].append(part)
        stages = defaultdict[str, list[Part]](list)
        for name, group in parts.items():
            match [
                part.body for part in group
            ]:  # both cases of a choice, if it is the same in them
                case [If(a, b, Number(0.0)), If(c, Number(0.0), d)] if (a, b) == (c, d):
                    stages[step.reads[name]].append(group[0]._replace(body=b))
                case _:
                    stages[step.reads[name]] += group
        return stages

    def placed(
        self, cell: Cell, back: Expr, chain: Chain, shape: Shape | None
    ) -> tuple[tuple[Index, ...], Expr]:
        """The index of a gradient, of letters alone: one that is computed says where it is not 0.

        An axis of one entry that is read along a letter, and one that is not there, has none.
        """
        n, index, used = len(cell.index) - len(shape or cell.index), list[Index](), set[str]()
        for at, axis in enumerate(cell.index):
            letters = letters_at([axis]) if isinstance(axis, tuple) else []
            places = [x for x in axis if isinstance(x, int)] if isinstance(axis, tuple) else []
            is_long = prod(chain.sizes.get(x, 1) for x in letters) > 1
            if at < n and chain.sizes.keys() & {*letters}:
                continue
            if shape is not None and at >= n and shape[at - n] == 1 and is_long:
                index.append(())
            elif isinstance(axis, tuple) and letters and places and shape and not used & {*letters}:
                (fixed,) = places  # p·0: 0 elsewhere
                length = lengths_along(axis, shape[at - n], chain.sizes)[axis.index(fixed)]
                new = chain.axis_letter(length, used)
                back = If(Apply("==", (Place(new), Number(float(fixed)))), back, ZERO)
                index.append(tuple(x if isinstance(x, str) else new for x in axis))
                used |= {new, *letters}
            elif not isinstance(axis, tuple) or letters != [*axis] or used & {*letters}:
                size = None if shape is None else shape[at - n]
                new = chain.axis_letter(size, used)
                place = place_along(axis, size or 1, chain.sizes)
                back = If(Apply("==", (Place(new), place)), back, ZERO)
                index.append((new,))
                used.add(new)
            else:
                index.append(axis)
                used |= {*letters}
        return tuple(index), back

    def append(self, name: str, symbol: str, parts: Sequence[Part], kind: str = "") -> None:
        """Adds the step of a gradient; what is too long for one formula is summed in several."""
        try:
            n_characters = sum(len(text_of(part.body)) for part in parts)
            if len(parts) > 1 and n_characters > 2 * MOST_CHARACTERS:
                raise TooLongError
            self.steps.append(self.summed(name, symbol, parts, kind))
        except TooLongError:
            if len(parts) == 1:
                raise _too_long(parts[0].step) from None
            whole = list[Part]()
            for n, half in enumerate((parts[: len(parts) // 2], parts[len(parts) // 2 :]), start=1):
                self.append(f"{name}_{n}", f"{symbol}_{n}", half)
                last = self.steps[-1]
                index = parse(last.text).index
                whole.append(Part(index, Cell(D, index), {D: last.name}, last, D))
            self.append(name, symbol, whole, kind)

    def summed(self, name: str, symbol: str, parts: Sequence[Part], kind: str) -> Step:
        """The step of a gradient: the sum of its parts, over the letters not its own.

        One part reads stages by the names that it has for them, several by those of the stages.
        """
        first, is_sum, index = parts[0], len(parts) > 1, _index_of(parts)
        reads, terms, letters = dict[str, str](), list[Expr](), _Letters(index, parts)
        for part in parts:
            body = _relettered(part, index, letters)
            term, names = _summed(body, index, part.step.params), dict[str, str]()
            term = letters.apart(term, frozenset(letters_at(index)))
            for cell in cells(term, guards=True):
                stage = part.reads[cell.name]
                plain = stage.rpartition(".")[2] if is_sum else cell.name
                plain += "_" * iskeyword(plain)
                numbered = chain([plain], (f"{plain}_{n}" for n in count(2)))
                names[cell.name] = next(x for x in numbered if reads.get(x, stage) == stage)
                reads[names[cell.name]] = stage
            terms.append(renamed(term, names) if is_sum else term)
        whole = _sum_of(terms)
        formula = Formula(symbol, index, whole, "" if is_sum else first.remark)
        text, words = ("", "") if is_sum else first.step.back.get(first.parameter) or ("", "")
        if depth_of(whole) > MOST_DEPTH or len(line_of(formula)) > MOST_CHARACTERS:
            raise TooLongError
        nodes = [*walk(whole, guards=True)]
        param_names = {x.name for x in nodes if isinstance(x, Param)} | {*OF_READERS}
        param_names |= {x.letter for x in nodes if isinstance(x, Place)}
        params = {n: x for part in parts for n, x in part.step.params.items() if n in param_names}
        symbols = {
            x: self.letters.get(source) or spec_of(source).symbol for x, source in reads.items()
        }
        is_own = not spec_of(name).axes or any(part.step.axes for part in parts)
        writer = own_formula if is_own else formula_of

        def in_matrices(numbers: Mapping[str, Any]) -> str:
            """Its formula in words, or in matrices, with these numbers."""
            if words:
                return f"{symbol} = {worded(words, symbols, numbers)}"
            return writer(formula, symbols, numbers)

        self.wordings[name] = in_matrices
        line = re.sub(r"^[^[ ]+", symbol, text) if text else line_of(formula)
        step = Step(name, line, reads, params, "", first.step.dtype, kind)
        return step._replace(
            symbol="" if symbol == spec_of(name).symbol else symbol,
            axes=axes_of(index) if is_own else (),
            sizes=letters.sizes,
            through="" if is_sum else f"{first.step.name}.{first.parameter}",
        )


OF_READERS = ("axis", "n_kv_heads", "order")
"""Parameters that no formula names, but those who read a plan: the axis of a softmax, say."""


def _too_long(step: Step) -> TypeError:
    """What is said of a formula whose gradient is more than a formula may be."""
    limits = f"{MOST_DEPTH} operators within each other, {MOST_CHARACTERS} characters"
    message = f"the gradient of {step.name} is too long for a formula ({limits})"
    return TypeError(f"{message}; write a part of {step.name} as a stage of its own")


def _declared(parameter: str, reads: Mapping[str, str], step: Step) -> Part:
    """A gradient as it is declared."""
    text, _ = step.back[parameter] or ("", "")
    formula = parse(written(text, frozenset({*step.reads, D, Y, "delta"})))
    return Part(formula.index, formula.body, reads, step, parameter, formula.remark)


# ---- names and letters


class _Letters:
    """The letters of a gradient so far, and how long they are."""

    def __init__(self, index: tuple[Any, ...], parts: Sequence[Part]) -> None:
        self.taken = {*letters_at(index)}
        owners = [part.step.sizes for part in parts if {*letters_at(part.at)} >= self.taken]
        self.sizes = {x: n for x, n in owners[0].items() if x in self.taken} if owners else {}

    def other(self, size: int | None, avoided: Collection[str]) -> str:
        """A letter for an axis of this size: one that there is already, or that is free."""
        alike = (x for x, n in self.sizes.items() if n == size and x not in avoided)
        new = next(alike, "") or next(free_names({*self.taken, *self.sizes, *avoided}))
        self.taken.add(new)
        self.sizes |= {new: size} if size is not None else {}
        return new

    def is_alike(self, letter: str, size: int | None) -> bool:
        """Whether a letter may be as long as this, as far as that is known."""
        return size is None or self.sizes.get(letter, size) == size

    def apart(self, node: Expr, used: frozenset[str]) -> Expr:
        """The expression in which no sum has letters that are used around it."""
        if not isinstance(node, Over) or node.kind == "softmax":
            return with_parts(node, lambda x: self.apart(x, used))
        if clash := used & {*node.letters}:
            avoided = used | {*letters_in(node)}
            sizes = {x: self.sizes.get(x) for x in node.letters if x in clash}
            node = with_bound(node, {x: (self.other(n, avoided),) for x, n in sizes.items()})
        inner = used | {*node.letters}
        sink = node.sink and self.apart(node.sink, used)
        condition = node.where and self.apart(node.where, inner)
        return replace(node, body=self.apart(node.body, inner), where=condition, sink=sink)


def _index_of(parts: Sequence[Part]) -> tuple[Any, ...]:
    """The letters of a gradient: those of its longest part, on an axis as many as any has there."""
    longest = max((part.at for part in parts), key=len)
    widest = max((part.at for part in parts), key=lambda at: max(map(len, at), default=0))
    lead = longest[: len(longest) - len(widest)]
    return widest if {*letters_at(lead)} & {*letters_at(widest)} else (*lead, *widest)


def _sum_of(terms: Sequence[Expr]) -> Expr:
    """Their sum; many are summed in groups, so that not all are within each other."""

    def total(group: Sequence[Expr]) -> Expr:
        return reduce(lambda a, b: Apply("+", (a, b)), group)

    if len(terms) + max(map(depth_of, terms)) <= MOST_DEPTH:
        return total(terms)
    n = isqrt(len(terms) - 1) + 1
    return total([total(terms[at : at + n]) for at in range(0, len(terms), n)])


def _relettered(part: Part, index: tuple[Any, ...], alphabet: _Letters) -> Expr:
    """The expression of a part with the letters of this index.

    Others of it are out of their way, and of letters that are known to be of another length.
    """
    change: dict[str, Index] = {}
    n = min(len(part.at), len(index))  # the first axes may be those that an array lacks
    sizes, params, target = part.step.sizes, part.step.params, {*letters_at(index)}
    others_packed = list[tuple[Index, Index]]()
    for part_axis, axis in zip(part.at[len(part.at) - n :], index[len(index) - n :], strict=True):
        pairs = [*zip(part_axis, axis, strict=False)]
        if len(part_axis) == len(axis) and all(
            alphabet.is_alike(b, sizes.get(a)) for a, b in pairs
        ):
            change |= {a: (b,) for a, b in pairs}
        elif len(part_axis) == 1:
            change[part_axis[0]] = axis
        elif part_axis:  # g·r and r·g of one array
            others_packed.append((part_axis, axis))
    letters = [x for x in every_letter(Formula("", part.at, part.body)) if x not in params]
    others = {x for x in letters if not alphabet.is_alike(x, sizes.get(x))}
    for x in letters:
        if x not in change and x in target | others:
            avoided = {*letters, *params, *target, *(str(y) for to in change.values() for y in to)}
            change[x] = (alphabet.other(sizes.get(x), avoided),)
    news = {str(to[0]): sizes[x] for x, to in change.items() if x in sizes and len(to) == 1}
    alphabet.sizes |= {x: sizes[x] for x in letters if x in sizes and x not in change} | news
    alphabet.taken |= {*letters}
    is_same = all(new == (old,) for old, new in change.items())
    body = part.body if is_same else with_letters(part.body, change)
    for part_axis, axis in others_packed:
        place = with_letters(place_along(part_axis, 1, sizes), change)
        body = If(Apply("==", (place_along(axis, 1, alphabet.sizes), place)), body, ZERO)
    return body


def _summed(body: Expr, index: tuple[Any, ...], params: Collection[str]) -> Expr:
    """The sum over all letters that are not of this index.

    Where one shares an axis with a letter of its own, as the query heads of a key head do, the sum
    over it is outside: each head has its part.
    """
    letters = {*letters_at(index)}
    rest = [x for x in free_letters(body) if x not in letters and x not in params]
    axes = [axis for cell in cells(body) for axis in cell.index if isinstance(axis, tuple)]
    outer = tuple(x for x in rest if any(x in axis and {*axis} & letters for axis in axes))
    inner = tuple(x for x in rest if x not in outer)
    match body:  # a product of two matrices in their order: first the one with the rows
        case Apply("*", (Cell() as a, Cell() as b)) if inner and len(index) > 1:
            if not {*index[-2]} & {*free_letters(a)} and {*index[-2]} & {*free_letters(b)}:
                body = Apply("*", (b, a))
    body = Over("sum", inner, body) if inner else body
    return Over("sum", outer, body) if outer else body
