"""From lines to steps: how long every letter is, what it all costs, and where its places are.

All is known from the shapes of the inputs, before anything is computed. But a place that an index
computes from numbers, as in table[bucket[i,j],h], is looked at when its stage is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np

from attncli import budget
from attncli.arrays import Array
from attncli.attention.compute import compute
from attncli.attention.matrices import axes_of, own_formula
from attncli.attention.run import Step
from attncli.convention import DType
from attncli.expression import (
    Apply,
    Cell,
    Expr,
    Formula,
    If,
    Index,
    Number,
    Over,
    Place,
    Shape,
    cells,
    children,
    letters_at,
    letters_in,
    line_of,
    present_axes,
    rebuilt,
    text_of,
    walk,
)
from attncli.programs.read import Line, Program, sizes_in
from attncli.stages import kind_of

_BYTES = 8  # of a number
_AT_ONCE = 4  # numbers that may be computed for each that may be held: a second, at 1GB
_PER_PRODUCT = 64  # terms of a matrix product that take the time of one number


class Bound:
    """The steps of a program for these inputs, and the shapes of all that they read and give.

    lengths  how long each letter is in the lines and inputs so far
    absent   letters of axes that an input lacks, or of one entry
    kept, computed  how many numbers, so far

    Raises ProgramError where sizes do not fit, SizeError where they cost more than is allowed.
    """

    def __init__(
        self, program: Program, arrays: Mapping[str, Array], dtype: DType = "float64"
    ) -> None:
        self.program, self.dtype = program, dtype
        self.shapes: dict[str, Shape] = {name: x.shape for name, x in arrays.items()}
        self.lengths: dict[str, set[int]] = {}
        self.absent = set[str]()
        self.kept = self.computed = 0
        for cell in (x for s in program.lines for x in cells(s.formula.body, guards=True)):
            shape = self.shapes.get(program.names[cell.name], None)
            if shape is None:
                continue
            n = len(cell.index) - len(shape)
            self.absent |= {*letters_at(cell.index[:n])}
            for axis, size in zip(cell.index[n:], shape, strict=True):
                if isinstance(axis, tuple) and len(axis) == 1 and size > 1:
                    self.lengths.setdefault(str(axis[0]), set()).add(size)
                elif isinstance(axis, tuple):
                    self.absent |= {*map(str, axis)} if size == 1 else set()
        self.steps = [self.step(line) for line in program.lines]

    def step(self, line: Line) -> Step:
        """The step of a line."""
        formula, names = line.formula, self.program.names
        sizes = self.sizes(line)
        index = present_axes(formula.index, sizes)
        if out := [x for x in letters_at(index) if x not in sizes]:
            self.fail(line, f"{out[0]} has no length, though axes before it have", out[0])
        shape = tuple(prod(sizes[str(x)] for x in axis) for axis in index)
        number = self.program.text.count("\n", 0, line.statement.start) + 1
        what = f"{self.program.origin}: the stages up to line {number} need"
        self.afford(what, formula.body, sizes, shape)
        self.shapes[line.name] = shape
        for letter, n in sizes.items():
            self.lengths.setdefault(letter, set()).add(n)
        reads = {x.name: names[x.name] for x in cells(formula.body, guards=True)}
        symbols = {x.symbol: x.symbol for x in self.program.lines}
        symbols = {own: symbols.get(own) or kind_of(of).symbol for own, of in reads.items()}
        called = _as_ours(line)
        named = replace(formula, body=rebuilt(formula.body, lambda x: _called(x, called)))
        reads = {called.get(name, name): of for name, of in reads.items()}
        step = Step(line.name, line_of(named), reads, {**line.params})
        places = [*_computed(named.body, sizes, reads, self.shapes)]
        return step._replace(
            formula=own_formula(formula, symbols, line.params),
            dtype=None if line.is_truth or kind_of(line.name).role == "input" else self.dtype,
            note=line.statement.note,
            symbol=line.symbol,
            sizes=sizes,
            axes=axes_of(formula.index, len(shape)),
            function=partial(self.checked, line, step, sizes, places) if places else None,
        )

    def fail(self, line: Line, message: str, part: str) -> None:
        self.program.fail(message, line.statement, part)

    def sizes(self, line: Line) -> dict[str, int]:  # noqa: PLR0912 - a case for each kind of axis
        """How long each letter of a line is; those of axes that no array has are left out."""
        formula = line.formula
        sizes, by = dict[str, int](), dict[str, str]()
        packed, missing, ones = list[tuple[Index, int, Cell]](), set[str](), set[str]()
        for cell in cells(formula.body, guards=True):
            shape = self.shapes[self.program.names[cell.name]]
            n = len(cell.index) - len(shape)
            missing |= {*letters_at(cell.index[:n])}
            for axis, size in zip(cell.index[n:], shape, strict=True):
                match axis:
                    case () if size != 1:
                        self.fail(
                            line, f'"_" is an axis of one entry, this has {size}', text_of(cell)
                        )
                    case (int(at),) if at >= size:
                        what = f"there is no entry {at} among {size}, counted from 0"
                        self.fail(line, what, text_of(cell))
                    case (str(x),) if size != 1 and sizes.setdefault(x, size) != size:
                        what = f"{x} is {size} in {text_of(cell)}, but {sizes[x]} in {by[x]}"
                        self.fail(line, what, text_of(cell))
                    case (str(x),) if size != 1:
                        by.setdefault(x, text_of(cell))
                    case (str(x),):
                        missing.add(x)
                        ones.add(x)
                    case tuple() if len(axis) > 1:
                        packed.append((axis, size, cell))
        for x, n in line.sizes.items():
            if sizes.get(x, n) != n:
                self.fail(line, f"{x} is {sizes[x]} in {by[x]}, but size[{x}] = {n}", by[x])
        several = {str(x) for axis, _, _ in packed for x in axis}
        sizes |= {x: n for x, n in line.sizes.items() if x in several}
        sizes |= {x: 1 for x in several & ones if x not in sizes}
        for axis, size, cell in sorted(packed, key=lambda one: len({*one[0]} - sizes.keys())):
            self.cut(line, axis, size, cell, sizes)
        every = [*letters_at(formula.index), *letters_in(formula.body), *sizes_in(formula.body)]
        every = [x for x in every if x not in line.params]
        present = {x for c in cells(formula.body, guards=True) for x in self.held(c)}
        places = {x.letter for x in walk(formula.body, guards=True) if isinstance(x, Place)}
        used = places | sizes_in(formula.body)
        for x in dict.fromkeys(every):
            if x not in sizes and (x in present | used or x not in missing):
                sizes[x] = self.length(line, x, is_one=x in missing)
        return sizes

    def held(self, cell: Cell) -> list[str]:
        """The letters of a cell whose axes its array has."""
        n = len(cell.index) - len(self.shapes[self.program.names[cell.name]])
        return letters_at(cell.index[n:])

    def length(self, line: Line, x: str, *, is_one: bool) -> int:
        """How long a letter is that no array of the line has alone."""
        if x in line.sizes:
            return line.sizes[x]
        others = self.lengths.get(x, set())
        if is_one or (not others and x in self.absent):
            return 1
        if len(others) != 1:
            seen = " and ".join(map(str, sorted(others)))
            what = (
                f"how long is {x}? No array of this line has it"
                + f"; elsewhere it is {seen}" * bool(seen)
            )
            self.fail(line, f"{what}. Say size[{x}] = …", x)
        return next(iter(others))

    def cut(self, line: Line, axis: Index, size: int, cell: Cell, sizes: dict[str, int]) -> None:
        """Finds how long letters are that share an axis; ProgramError where they do not fit."""
        for x in (str(x) for x in axis if x not in sizes):
            if len(self.lengths.get(x, ())) == 1:
                (sizes[x],) = self.lengths[x]
            elif x in self.absent and x not in self.lengths:
                sizes[x] = 1
        unknown = [str(x) for x in axis if x not in sizes]
        known = prod(sizes[str(x)] for x in axis if x in sizes)
        if size == 1:  # it is the same for all
            sizes |= dict.fromkeys(unknown, 1)
            return
        if len(unknown) > 1:
            what = f"an axis of {size} is {'·'.join(map(str, axis))}: say how long one of them is"
            self.fail(line, f"{what}, such as size[{unknown[0]}] = 2", text_of(cell))
        if size % known or (not unknown and size != known):
            parts = " · ".join(str(sizes.get(str(x), "?")) for x in axis)
            self.fail(line, f"an axis of {size} is not {parts}", text_of(cell))
        sizes |= dict.fromkeys(unknown, size // known)

    def checked(
        self,
        line: Line,
        step: Step,
        sizes: Mapping[str, int],
        places: list[_Place],
        /,
        **values: Any,
    ) -> Array:
        """A stage, once no place that it computes is outside of its array. ProgramError for one."""
        for place in places:
            outside = compute(place.formula, values, sizes)
            if outside.any():
                at = zip(place.letters, np.argwhere(outside)[0].tolist(), strict=True)
                where = ", ".join(f"{letter} = {n}" for letter, n in at)
                what = f"this is outside the array, whose places are 0 to {place.size - 1}"
                what += f", where {where}" * bool(where)
                self.fail(line, f"{what}; keep it out by where or if", place.cell)
        return compute(step.text, values, sizes)

    def afford(self, what: str, body: Expr, sizes: Mapping[str, int], shape: Shape) -> None:
        """SizeError where a stage makes more numbers than are allowed."""
        own = cost(body, sizes)
        self.kept += prod(shape)
        self.computed += own.computed + prod(shape)
        need = _BYTES * max(self.kept + own.at_once, self.computed // _AT_ONCE)
        held = budget.held()
        largest = " · ".join(f"{x} {sizes[x]}" for x in sorted(own.largest) if x in sizes)
        hint = f"its largest array has {largest}" if largest else ""
        budget.check_bytes(held + need, what, hint, held=held)


def _as_ours(line: Line) -> dict[str, str]:
    """The names by which views know what weights and an output read, where they are as ours."""
    match line.name, line.formula.body:
        case "weights", Over("softmax", _, Cell(x)):
            names = {x: "x"}
        case "output", Over("sum", _, Apply("*", (Cell(a), Cell(v)))) if a != v:
            names = {a: "a", v: "v"}
        case _:
            return {}
    others = {x.name for x in cells(line.formula.body, guards=True)} - names.keys()
    return {} if others & {*names.values()} else names


def _called(x: Expr, names: Mapping[str, str]) -> Expr:
    return Cell(names.get(x.name, x.name), x.index) if isinstance(x, Cell) else x


# ---- what it costs


class Cost(NamedTuple):
    """The letters of an expression, the numbers that it holds at once and computes.

    largest  the letters of the largest array on the way
    """

    letters: frozenset[str]
    at_once: int = 0
    computed: int = 0
    largest: frozenset[str] = frozenset()


def cost(node: Expr, sizes: Mapping[str, int]) -> Cost:
    """How many numbers an expression takes."""

    def size(letters: frozenset[str]) -> int:
        return prod(sizes.get(x, 1) for x in letters)

    def whole(parts: list[Cost], own: frozenset[str] = frozenset(), each: int = 1) -> Cost:
        """Of all letters of some parts, and those of its own, at full length."""
        letters = own.union(*(x.letters for x in parts))
        at_once = max((x.at_once for x in parts), default=0) + sum(size(x.letters) for x in parts)
        computed = sum(x.computed for x in parts) + each * size(letters)
        largest = max([letters, *(x.largest for x in parts)], key=size)
        return Cost(letters, at_once + 2 * size(letters), computed, largest)

    match node:
        case Cell(_, index):
            parts = [cost(x, sizes) for x in children(node, guards=True)]
            own = frozenset(letters_at(index)) & sizes.keys()
            return whole(parts, own) if parts else Cost(own, largest=own)
        case Place(letter):
            return Cost(frozenset({letter} & sizes.keys()))
        case Over(kind, over, body, where, sink):
            own = frozenset(over)
            guard = [] if where is None else [cost(where, sizes)]
            if kind == "sum" and isinstance(body, Apply) and body.function == "*":
                factors = [cost(x, sizes) for x in body.args]
                a, b = (x.letters for x in factors)
                if a - b and b - a and a & b & own and all(x.letters <= a for x in guard):
                    result = whole([*factors, *guard])
                    letters, n = (a | b) - own, size(a | b)  # a product of matrices
                    held = sum(map(size, (a, b))) + 2 * size(letters)
                    computed = result.computed - n + n // _PER_PRODUCT + size(letters)
                    at_once = max(x.at_once for x in [*factors, *guard]) + held
                    return Cost(letters, at_once, computed, max(a, b, letters, key=size))
                inner = whole(factors)
            else:
                inner = cost(body, sizes)
            match where:
                case Apply("<" | "<=", (Place(j), Place(i))) if (j,) == over and kind == "sum":
                    if i not in inner.letters:  # a running sum
                        run = whole([inner], own, 3)
                        return run._replace(letters=(inner.letters - own) | {i})
            ends = [] if sink is None else [cost(sink, sizes)]
            result = whole([inner, *guard, *ends], own, 4)
            return result if kind == "softmax" else result._replace(letters=result.letters - own)
    return whole([cost(x, sizes) for x in children(node, guards=True)])


# ---- places that are computed


class _Place(NamedTuple):
    """A formula that is true where an index is outside its array, and what names it."""

    formula: str
    letters: list[str]
    cell: str
    size: int


def _computed(
    body: Expr, sizes: Mapping[str, int], reads: Mapping[str, str], shapes: Mapping[str, Shape]
) -> Iterator[_Place]:
    """Every index that is computed, with what has to hold for it to be looked at."""
    for cell, conditions in _guarded(body, ()):
        shape = shapes[reads[cell.name]]
        for axis, size in zip(cell.index[len(cell.index) - len(shape) :], shape, strict=True):
            if isinstance(axis, tuple):
                continue
            n = Number(float(size - 1))
            parts = [Apply("<", (axis, Number(0.0))), Apply(">", (axis, n))]
            whole = [*conditions, reduce(lambda a, b: Apply("or", (a, b)), parts)]
            out = reduce(lambda a, b: Apply("and", (a, b)), whole)
            free = sorted(cost(out, sizes).letters)
            formula = Formula("outside", tuple((x,) for x in free), out)
            yield _Place(line_of(formula), free, text_of(cell), size)


def _guarded(node: Expr, conditions: tuple[Expr, ...]) -> Iterator[tuple[Cell, tuple[Expr, ...]]]:
    """Every cell with the conditions under which it counts."""
    match node:
        case Cell() as cell:
            yield cell, conditions
        case If(condition, then, otherwise):
            yield from _guarded(condition, conditions)
            yield from _guarded(then, (*conditions, condition))
            yield from _guarded(otherwise, (*conditions, Apply("not", (condition,))))
            return
        case Over(_, _, body, where, sink):
            inner = conditions if where is None else (*conditions, where)
            yield from _guarded(body, inner)
            for x in (where, sink):
                yield from _guarded(x, conditions) if x is not None else ()
            return
        case Apply("and", (first, second)):
            yield from _guarded(first, conditions)
            yield from _guarded(second, (*conditions, first))
            return
    for child in children(node, guards=True):
        yield from _guarded(child, conditions)
