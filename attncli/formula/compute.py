"""A formula as NumPy computes it: a summed product by one matrix product, the rest by broadcasting.

    scores = compute("S[h,i,j] = sum[d](q[h,i,d] * k[h,j,d])", {"q": q, "k": k})

A formula is compiled once for the shapes of what it reads: to functions of the arrays, each with
one axis for each letter. Overflow is infinite, as IEEE 754 has it: the runner keeps NumPy quiet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, cast

import numpy as np

from attncli.arrays import Array
from attncli.convention import EmptyRows
from attncli.errors import InputError
from attncli.formula import kernels
from attncli.formula.evaluate import (
    FILLERS,
    Values,
    entries,
    lengths_along,
    present_axes,
    sizes_of,
)
from attncli.formula.evaluate import FUNCTIONS as OF_NUMBERS
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
    Shape,
    Size,
    children,
    walk,
    with_bound,
)
from attncli.formula.parser import parse, written

FUNCTIONS: Mapping[str, Callable[..., Any]] = {**OF_NUMBERS, "**": np.power}
Function = Callable[[Mapping[str, Any]], Any]
"""From what a formula names, arrays and numbers, to an array with an axis for each letter."""
Product = Callable[[Array, Array], Array]
Letters = Sequence[str]
Items = tuple[tuple[str, Any], ...]


def compute(
    text: str | Formula,
    values: Mapping[str, Any],
    sizes: Mapping[str, int] = {},
    product: Product = np.matmul,
    *,
    hides: bool = False,
) -> Array:
    """The array of a formula: [the letters of its left side], in the type of what it reads.

    text     of the formula, or it; a part in braces counts where all arrays of it are there
    values   arrays and numbers by the names that the formula has for them; None: there is none
    sizes    of letters that no array has alone
    product  how matrices are multiplied
    hides    whether what the `where` of a softmax leaves out is −∞ already

    First axes that no array has are left out. A formula that only picks cells may give a view of
    what it reads. A place outside of its array is the nearest one in it. There is no limit on
    memory: formulas of files are for `evaluate` alone.
    Raises InputError for a text that is no formula, and for a letter whose length nothing says.

    >>> compute("O[i,e] = sum[j](a[i,j] * v[j,e])", {"a": np.eye(2), "v": np.array([[3.0], [5.0]])})
    array([[3.],
           [5.]])
    """
    shapes = tuple([(name, x.shape) for name, x in values.items() if isinstance(x, np.ndarray)])
    function = compiled(text, shapes, tuple(sizes.items()), hides).run
    array: Array = function(values if product is np.matmul else {**values, PRODUCT: product})
    return array


PRODUCT = "@"
"""How a function finds another product of matrices than NumPy's."""
GATHERED = 1 << 18
"""Cells at places that are computed, picked at once: of each the places take 48 bytes."""
_EACH = 64
"""Terms of a matrix product that take the time of one number."""


class Compiled(NamedTuple):
    """A formula for arrays of these shapes: what computes it, and the shape of what that gives."""

    run: Function
    shape: Shape
    formula: Formula
    compiler: Compiler

    def cost(self) -> tuple[int, Letters]:
        """How many numbers are made on the way, and the letters of the largest array of these.

        >>> shapes = (("q", (3, 7)), ("k", (5, 7)))
        >>> compiled("S[i,j] = sum[d](q[i,d] * k[j,d]) + 1", shapes, ()).cost()
        (31, ('i', 'j'))
        """
        letters_of, n, sizes = self.compiler.letters, 0, dict[Letters, int]()
        for each, axes, nodes in self.compiler.costs:
            letters = (*dict.fromkeys([*axes, *(x for node in nodes for x in letters_of(node))]),)
            size = prod(self.compiler.shape(letters))
            n += each * size // _EACH
            sizes |= {letters: size} if each >= _EACH else {}
        return n, max(sizes, key=lambda letters: sizes[letters], default=())


@lru_cache(4096)
def compiled(text: str | Formula, shapes: Items, sizes: Items, hides: bool = False) -> Compiled:
    """A formula for arrays of these shapes, with the axes of its left side."""
    arrays = dict(shapes)
    formula = text if isinstance(text, Formula) else parse(written(text, frozenset(arrays)))
    return Compiler(arrays, sizes_of(formula, (), arrays, dict(sizes)), hides, [], {}).whole(
        formula
    )


class Factors(NamedTuple):
    """A sum of a product as one matrix product [both…, rows, inner] · [both…, inner, columns].

    a, b           the letters of the factors
    letters        those of the product
    is_of_nonzero  whether its `where` holds wherever the first factor is not 0
    """

    first: Expr
    second: Expr
    a: Letters
    b: Letters
    both: Letters
    rows: Letters
    inner: Letters
    columns: Letters
    letters: Letters
    is_of_nonzero: bool


class Compiler(NamedTuple):
    """Makes functions of the nodes of a formula, for these shapes of arrays and sizes of letters.

    hides         as in `compute`
    costs         of the arrays on the way: how often, in parts of _EACH, their letters, and
                  nodes that have more of them
    letter_cache  the letters of nodes, by their id
    parts         the functions of nodes that are computed once for the same arrays, by their id
                  and the order of the letters; None: there is none
    """

    shapes: Mapping[str, Shape]
    sizes: dict[str, int]
    hides: bool
    costs: list[tuple[int, Letters, Sequence[Expr]]]
    letter_cache: dict[int, tuple[Expr, list[str]]]
    parts: Mapping[int, dict[Letters, Function]] | None = None

    def whole(self, formula: Formula) -> Compiled:
        """The formula with the axes of its left side."""
        index = present_axes(formula.index, self.sizes)
        order = [str(letter) for axis in index for letter in axis]
        if unknown := {*order} - self.sizes.keys():
            raise InputError(f"nothing says how long {min(unknown)} is")
        value, full = self.of(formula.body, order), self.shape(order)
        shape = tuple(prod(self.shape(axis)) for axis in index)

        def run(values: Mapping[str, Any]) -> Array:
            x = np.asarray(value(values))
            if x.shape != full:
                x = np.array(np.broadcast_to(x, full))
            return x.reshape(shape)

        return Compiled(run, shape, formula, self)

    def shape(self, letters: Sequence[str | int]) -> Shape:
        """How long each of these letters is."""
        return tuple(self.sizes.get(str(x), 1) for x in letters)

    def of(self, node: Expr, order: Letters) -> Function:
        """The function of a node, with an axis for each letter, of one entry where it has none."""
        if self.parts is None or id(node) not in self.parts:
            return self.made(node, order)
        functions, key = self.parts[id(node)], (*order,)
        if key not in functions:
            functions[key] = once(self.made(node, order))
        return functions[key]

    def made(self, node: Expr, order: Letters) -> Function:
        """The function of a node that has none yet."""
        if isinstance(node, Apply | If):
            self.costs.append((_EACH, (), [node]))
        match node:
            case Number(value):
                return lambda _: value
            case Size(letter) if letter in self.sizes:
                size = float(self.sizes[letter])
                return lambda _: size
            case Size(letter):
                raise InputError(f"nothing says how long {letter} is")
            case Place(letter) if letter in self.sizes:
                n = float(self.sizes[letter])
                return aligned(lambda _: np.arange(n), [letter], order)
            case Param(name) | Place(name):
                return lambda values: values[name]
            case Cell():
                is_computed = any(not isinstance(axis, tuple) for axis in node.index)
                every = walk(node, guards=True) if is_computed else ()
                inner = (x for x in every if children(x, guards=True))
                self.costs.extend(((1 + isinstance(x, Cell)) * _EACH, (), [x]) for x in inner)
                return aligned(*self.cell(node), order)
            case Apply("**", (x, Number(2.0))):
                base = self.of(x, order)
                return lambda values: (number := base(values)) * number
            case Apply(name, args):
                function, parts = FUNCTIONS[name], [self.of(x, order) for x in args]
                if all(isinstance(x, Number | Size | Apply) for x in walk(node)):
                    constant = float(function(*(x({}) for x in parts)))  # it changes no type
                    return lambda _: constant
                a, b = parts[0], parts[-1]
                if len(parts) == 1:
                    return lambda values: function(a(values))
                return lambda values: function(a(values), b(values))
            case If(condition, then, otherwise):
                cases = [self.of(x, order) for x in (condition, then, otherwise)]
                return chosen(node, *cases, is_alone=self.parts is None)
        return self.over(node, order)

    def over(self, node: Over, order: Letters) -> Function:
        """A sum, a largest number, a softmax or the log of a sum of powers."""
        kind, is_share = node.kind, node.kind == "softmax"
        if is_share:  # shares are the same along the letters that they do not depend on
            own = [x for x in order if x in (*self.letters(node), *node.letters)]
            if len(own) < len(order):
                return aligned(self.over(node, own), own, order)
        if {*node.letters} & {*order} and not is_share:  # its letters are others than those around
            primes = {x: (f"{x}′",) for x in node.letters}
            self.sizes.update({f"{x}′": self.sizes[x] for x in node.letters})
            node = with_bound(node, primes)
        match node:  # a sum of sums is one sum
            case Over("sum", outer, Over("sum", more, body, guard), None):
                if not {*outer} & {*more}:
                    return self.over(Over("sum", outer + more, body, guard), order)
        if kind == "sum":
            at_once = self.product(node, order) or self.running(node, order)
            if at_once is not None:
                return at_once
        inner = order if is_share else [*order, *node.letters]
        often = 4 if kind in ("softmax", "lse") else 2
        self.costs.append((often * _EACH, node.letters, children(node, guards=True)))
        terms = self.of(node.body, inner)
        ends = self.shape(order if is_share else node.letters)
        condition = None if node.where is None else self.of(node.where, inner)
        sink = None if node.sink is None else self.of(node.sink, order)
        is_hidden, empty = is_share and self.hides, cast(EmptyRows, node.empty or "zero")
        filler = FILLERS.get(kind, -np.inf)
        axes = tuple(inner.index(x) - len(inner) for x in node.letters)
        axis = axes if len(axes) > 1 else axes[0]

        def run(values: Mapping[str, Any]) -> Array:
            x = np.asarray(terms(values))
            counted = condition and np.asarray(condition(values), dtype=bool)
            full = ((1,) * (len(inner) - x.ndim) + x.shape)[: len(inner) - len(ends)] + ends
            end = sink and sink(values)
            if end is not None:  # which may have letters that the terms lack
                lead = np.broadcast_shapes(full[: len(order)], np.shape(end))
                full = (*lead, *full[len(order) :])
            x = x if x.shape == full else np.broadcast_to(x, full)
            if counted is not None and not is_hidden:
                x = np.where(counted, x, filler)
            if kind == "lse":
                return kernels.log_sum_exp(x.reshape(*x.shape[: -len(axes)], prod(ends)), end)
            if is_share:
                return kernels.softmax(x, axis, counted, end, empty)
            return getattr(np, kind)(x, axis=axes)  # type: ignore[no-any-return]

        return run

    def factors(self, node: Over) -> Factors | None:
        """The two factors of a sum that is one matrix product; None where it is none."""
        if not (isinstance(node.body, Apply) and node.body.function == "*"):
            return None
        first, second = node.body.args
        a, b = ([*dict.fromkeys(self.letters(x))] for x in (first, second))
        inner = [x for x in node.letters if x in a and x in b]
        both = [x for x in a if x in b and x not in inner]
        rows, columns = ([x for x in side if x not in (*both, *inner)] for side in (a, b))
        rest = [x for x in node.letters if x not in inner]
        guard = () if node.where is None else self.letters(node.where)
        if not (rows and columns and inner and {*guard} <= {*a}) or prod(self.shape(rest)) > 1:
            return None
        letters = [x for x in (*both, *rows, *columns) if x not in rest]
        match node.where:  # it holds wherever the left factor is not 0
            case Apply("or", (_, Apply("!=", (cell, Number(0.0))))):
                return Factors(
                    first, second, a, b, both, rows, inner, columns, letters, cell == first
                )
        return Factors(first, second, a, b, both, rows, inner, columns, letters, False)

    def product(self, node: Over, order: Letters) -> Function | None:
        """Σ of a product as one matrix product; None where it is none.

        What `where` leaves out is left out of the left factor, so that 0 · NaN is not NaN there.
        """
        if (parts := self.factors(node)) is None:
            return None
        first, second, a, b, both, rows, inner, columns, letters, is_of_nonzero = parts
        matrix_a = self.matrix(first, a, both, rows, inner)
        matrix_b = self.matrix(second, b, both, inner, columns)
        self.costs.extend([(1, [*node.letters, *a, *b], ()), (_EACH, letters, ())])
        shape, counts = self.shape(letters), None
        if node.where is not None:
            counts = self.matrix(node.where, a, both, rows, inner)

        def run(values: Mapping[str, Any]) -> Array:
            x, y, multiply = matrix_a(values), matrix_b(values), values.get(PRODUCT, np.matmul)
            if counts is None or (is_of_nonzero and np.isfinite(y).all()):
                return np.asarray(multiply(x, y)).reshape(shape)
            counted = np.asarray(counts(values), dtype=bool)
            x = x if is_of_nonzero else np.where(counted, x, x.dtype.type(0))
            return kernels.weighted_sum(x, y, counted, multiply).reshape(shape)

        return aligned(run, letters, order)

    def end_of(self, node: Over, order: Letters) -> tuple[str, bool] | None:
        """The letter at whose place a running sum ends, and whether it counts; None for another."""
        match node:
            case Over("sum", (j,), body, Apply("<" | "<=" as sign, (Place(a), Place(i)))) if a == j:
                if i in order and i not in self.letters(body) and i != j:
                    return i, sign == "<="
        return None

    def running(self, node: Over, order: Letters) -> Function | None:
        """Σ of the terms up to another letter's place as one running sum; None where it is none."""
        if (end := self.end_of(node, order)) is None:
            return None
        (i, is_inclusive), (j,), body = end, node.letters, node.body
        inner = [x for x in order if x != i] + [j]
        self.costs.extend([(3 * _EACH, [j], [body]), (_EACH, (), [node])])
        terms, full = self.of(body, inner), self.shape(inner)
        n, most = self.sizes[i], self.sizes[j]

        def run(values: Mapping[str, Any]) -> Array:
            sums = np.cumsum(np.broadcast_to(terms(values), full), axis=-1)
            last = np.minimum(np.arange(n) + is_inclusive, most)
            return np.concatenate([np.zeros_like(sums[..., :1]), sums], axis=-1)[..., last]

        return aligned(run, [*inner[:-1], i], order)

    def letters(self, node: Expr) -> list[str]:
        """The letters along which an expression has numbers: not those of a sum in it."""
        if id(node) in self.letter_cache:
            return self.letter_cache[id(node)][1]
        match node:
            case Cell():
                letters = self.cell(node)[1]
            case Place(letter):
                letters = [letter] if letter in self.sizes else []
            case Over(kind, letters, body, where, sink) if kind != "softmax":
                terms = [x for x in (body, where) if x is not None]
                inner = [x for term in terms for x in self.letters(term) if x not in letters]
                of_sink = [] if sink is None else self.letters(sink)
                letters = [*dict.fromkeys(inner + of_sink)]
            case _:
                parts = children(node, guards=True)
                letters = [*dict.fromkeys(x for part in parts for x in self.letters(part))]
        self.letter_cache[id(node)] = node, letters  # with the node, so that its id stays its own
        return letters

    def matrix(
        self, node: Expr, letters: Letters, both: Letters, rows: Letters, columns: Letters
    ) -> Function:
        """An array of these letters as matrices [both…, rows, columns], several side by side."""
        part, full = self.of(node, letters), self.shape(letters)
        is_whole = isinstance(node, Cell) and self.letters(node) == letters
        value = part if is_whole else lambda values: np.broadcast_to(part(values), full)
        order = [letters.index(x) for x in (*both, *rows, *columns)]
        shape = (*self.shape(both), prod(self.shape(rows)), prod(self.shape(columns)))
        is_in_order = order == [*range(len(order))]
        if len(rows) == len(columns) == 1:
            return value if is_in_order else lambda values: value(values).transpose(order)
        return lambda values: value(values).transpose(order).reshape(shape)

    def cell(self, node: Cell) -> tuple[Function, list[str]]:
        """An array and its letters; an axis of one entry, which is the same for all, has none."""
        name, shape = node.name, self.shapes[node.name]
        index = node.index[len(node.index) - len(shape) :]
        letters: list[str] = []
        apart: list[int] = []  # the shape with an axis for each letter
        picked: list[int | slice] = []
        for axis, size in zip(index, shape, strict=True):
            if not isinstance(axis, tuple) or {*axis} & {*letters}:
                return self.gathered(Cell(name, index))
            match axis:
                case (int(at),):
                    apart, picked = [*apart, size], [*picked, at]
                case _ if not axis or (size == 1 and prod(self.shape(axis)) != 1):
                    apart, picked = [*apart, 1], [*picked, 0]
                case (str(letter),):
                    apart += self.shape([letter])
                    picked.append(slice(None))
                    letters.append(letter)
                case _:
                    apart += lengths_along(axis, size, self.sizes)
                    picked += [slice(None) if isinstance(x, str) else x for x in axis]
                    letters += [x for x in axis if isinstance(x, str)]
        selection, full = tuple(picked), tuple(apart)
        if full == shape and all(isinstance(x, slice) for x in selection):
            return lambda values: values[name], letters
        return lambda values: values[name].reshape(full)[selection], letters

    def gathered(self, node: Cell) -> tuple[Function, list[str]]:
        """The same where places are computed; what no case takes may be outside the array."""
        axes = [axis if isinstance(axis, tuple) else self.letters(axis) for axis in node.index]
        letters = [*dict.fromkeys(x for axis in axes for x in axis if isinstance(x, str))]
        full = self.shape(letters)
        at_once = max(1, GATHERED // max(1, prod(full[1:])))  # entries of the first letter

        def run(values: Mapping[str, Any]) -> Array:
            cells = Values(Formula("", (), node), values, values, self.sizes)

            def picked(*ends: range) -> Array:
                places = dict(zip(letters, np.ix_(*ends), strict=True))
                return np.asarray(entries(values[node.name], cells.at(node, places)))

            if prod(full) <= GATHERED:
                return np.broadcast_to(np.asarray(picked(*map(range, full)), order="C"), full)
            result = np.empty(full, values[node.name].dtype)
            for start in range(0, full[0], at_once):
                piece = range(full[0])[start : start + at_once]
                result[piece.start : piece.stop] = picked(piece, *map(range, full[1:]))
            return result

        return run, letters


def once(function: Function) -> Function:
    """The function that computes its array a first time, and then gives this one."""
    arrays = list[Any]()

    def run(values: Mapping[str, Any]) -> Any:
        if not arrays:
            arrays.append(function(values))
        return arrays[0]

    return run


def aligned(value: Function, letters: Letters, order: Letters) -> Function:
    """The array with an axis for each letter of the order, of one entry where it has none."""
    axes = [letters.index(x) for x in order if x in letters]
    apart = tuple(slice(None) if x in letters else None for x in order)
    if axes != [*range(len(axes))]:
        return lambda values: value(values).transpose(axes)[apart]
    if [*order[len(order) - len(letters) :]] == [*letters]:
        return value
    return lambda values: value(values)[apart]


def chosen(
    node: If, condition: Function, then: Function, otherwise: Function, *, is_alone: bool
) -> Function:
    """One of two cases for every cell; a number is put into what was computed for the other, if
    that is for this node alone."""
    match node:
        case If() if not is_alone:
            pass
        case If(_, Number() | Param(), Apply()):
            return lambda values: _put(otherwise(values), then(values), condition(values))
        case If(_, Apply(), Number() | Param()):
            return lambda values: _put(
                then(values), otherwise(values), np.logical_not(condition(values))
            )
    return lambda values: np.where(condition(values), then(values), otherwise(values))


def _put(x: Any, number: float, condition: Any) -> Any:
    """The numbers of x, which nothing else holds, but a number where a condition is true."""
    shape, other = np.shape(x), np.shape(condition)
    is_whole = shape == other or np.broadcast_shapes(shape, other) == shape
    if not (is_whole and shape) or x.dtype.kind != "f":
        return np.where(condition, number, x)
    np.copyto(x, number, where=np.asarray(condition, dtype=bool))
    return x
