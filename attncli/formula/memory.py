"""The bytes that a formula takes while it is computed, as `compute` does it, known from the shapes.

An expression whose value is a part of an array that is there, such as a cell, takes none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import NamedTuple

from attncli.formula.compute import GATHERED, Compiled, Compiler, Factors, Letters
from attncli.formula.expression import (
    CONDITIONS,
    Apply,
    Cell,
    Expr,
    If,
    Number,
    Over,
    Param,
    Place,
    Size,
    children,
    walk,
)

_FLOAT, _TRUTH = 8, 1  # bytes of a place, and of true or false
_PLACES = 48  # bytes of the places of a cell that are computed


class Bytes(NamedTuple):
    """Of an array: its own, and the most that are there until it is, its own included."""

    value: int = 0
    most: int = 0


def bytes_of(function: Compiled, width: int) -> Bytes:
    """Those of what a formula gives, in numbers of this many bytes.

    >>> from attncli.formula.compute import compiled
    >>> shapes = (("q", (3, 7)), ("k", (5, 7)))
    >>> bytes_of(compiled("S[i,j] = exp(sum[d](q[i,d] * k[j,d]))", shapes, ()), 8)
    Bytes(value=120, most=240)
    >>> bytes_of(compiled("K[j,d] = k[j,d]", shapes, ()), 8)
    Bytes(value=0, most=0)
    """
    formula, compiler = function.formula, function.compiler
    index = formula.index[len(formula.index) - len(function.shape) :]
    order = [str(letter) for axis in index for letter in axis]
    value, most = _Count(compiler, width).of(formula.body, order)
    letters, whole = compiler.letters(formula.body), prod(function.shape) * width
    is_broadcast = prod(compiler.shape(letters)) < prod(function.shape)
    packed = [axis for axis in index if len(axis) > 1]
    is_apart = any(not _are_together([str(x) for x in axis], letters) for axis in packed)
    if is_broadcast or (is_apart and isinstance(formula.body, Cell | Over)):
        return Bytes(whole, max(most, value + whole))  # a copy
    return Bytes(value, most)


def _are_together(some: Sequence[str], letters: Letters) -> bool:
    """Whether some letters stand beside each other in this order."""
    at = [letters.index(x) for x in some if x in letters]
    return at == [*range(at[0], at[0] + len(at))] if at else True


class _Count(NamedTuple):
    """Counts the nodes of a formula that is compiled.

    width  bytes of a number
    """

    compiler: Compiler
    width: int

    def size(self, letters: Collection[str]) -> int:
        """Numbers of an array with these letters."""
        return prod(self.compiler.shape([*letters]))

    def of(self, node: Expr, order: Letters) -> Bytes:
        """The bytes of a node; order: the letters around it."""
        n = self.size(self.compiler.letters(node))
        match node:
            case Number() | Param() | Size():
                return Bytes()
            case Place():
                return Bytes(n * _FLOAT, n * _FLOAT)
            case Cell(_, index):
                letters = [x for axis in index if isinstance(axis, tuple) for x in axis]
                if all(isinstance(axis, tuple) for axis in index) and len(letters) == len(
                    {*letters}
                ):
                    return Bytes()
                return Bytes(n * self.width, n * self.width + min(n, GATHERED) * _PLACES)
            case Apply(name, args):
                if all(isinstance(x, Number | Size | Apply) for x in walk(node)):
                    return Bytes()
                width = _TRUTH if name in CONDITIONS else self.width
                return self.together(
                    args[: 1 if name == "**" and args[1] == Number(2.0) else None], order, n * width
                )
            case If(condition, then, otherwise):
                return self.chosen(condition, then, otherwise, order, n)
        return self.over(node, order)

    def together(self, nodes: Sequence[Expr], order: Letters, result: int) -> Bytes:
        """The bytes of an array made of others, one after another, which are all held for it."""
        n_bytes = most = 0
        for node in nodes:
            value, peak = self.of(node, order)
            n_bytes, most = n_bytes + value, max(most, n_bytes + peak)
        return Bytes(result, max(most, n_bytes + result))

    def chosen(self, condition: Expr, then: Expr, otherwise: Expr, order: Letters, n: int) -> Bytes:
        """A number is put into what was computed for the other case, as `compute.chosen` does."""
        for number, other, turned in ((then, otherwise, 0), (otherwise, then, 1)):
            if isinstance(number, Number | Param) and isinstance(other, Apply):
                value, most = self.of(other, order)
                truth, peak = self.of(condition, order)
                if value == n * self.width:
                    return Bytes(value, max(most, value + peak, value + (1 + turned) * truth))
        return self.together((condition, then, otherwise), order, n * self.width)

    def over(self, node: Over, order: Letters) -> Bytes:
        """A sum, a largest number, a softmax or the log of a sum of powers."""
        match node:
            case Over("sum", outer, Over("sum", more, body, guard), None):
                return self.over(Over("sum", outer + more, body, guard), order)
            case Over("sum") if factors := self.compiler.factors(node):
                return self.product(node, factors)
            case Over("sum", _, body) if end := self.compiler.end_of(node, order):
                n_bytes, most = self.of(body, order)
                sums = self.size({*self.compiler.letters(body), *node.letters}) * self.width
                result = self.size([*self.compiler.letters(node), end[0]]) * self.width
                return Bytes(result, max(most, n_bytes + 3 * sums, 2 * sums + result))
        result = self.size(self.compiler.letters(node)) * self.width
        inner = order if node.kind == "softmax" else [*order, *node.letters]
        n_bytes, of_terms = self.of(node.body, inner)
        if node.where is None:
            return Bytes(result, max(of_terms, n_bytes + result))
        letters = [x for part in children(node, guards=True) for x in self.compiler.letters(part)]
        n = self.size(inner if node.kind == "softmax" else {*letters, *node.letters})
        truth, of_truth = self.of(node.where, inner)
        most = max(of_terms, n_bytes + of_truth)
        if not (node.kind == "softmax" and self.compiler.hides):
            most = max(most, n_bytes + truth + n * self.width)
            n_bytes = n * self.width
        of_nan = n * _TRUTH if node.kind == "softmax" else 0  # which weights are NaN
        return Bytes(result, max(most, n_bytes + truth + result + of_nan))

    def product(self, node: Over, factors: Factors) -> Bytes:
        """A sum that is one matrix product."""
        first, second, a, b, both, rows, inner, columns, letters, is_of_nonzero = factors
        n_bytes = most = 0
        for part, its, sides in ((first, a, (rows, inner)), (second, b, (inner, columns))):
            value, peak = self.of(part, its)
            most = max(most, n_bytes + peak)
            if not all(_are_together(side, its) for side in (*sides, both)):  # a copy in its order
                copy = self.size(its) * self.width
                most, value = max(most, n_bytes + value + copy), copy
            n_bytes += value
        if node.where is not None and not is_of_nonzero:  # what is left out is set to 0
            truth, peak = self.of(node.where, a)
            most = max(most, n_bytes + peak)
            n_bytes += truth + self.size(a) * self.width
        result = self.size(letters) * self.width
        return Bytes(result, max(most, n_bytes + result))
