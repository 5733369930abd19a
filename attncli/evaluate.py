"""The numbers of a formula: of one cell, or of many at once.

    values = Values(parse("Z[i] = x[i] * factor"), {"x": x}, {"factor": 0.5}, {"i": 3})
    values.number(values.formula.body, {"i": 2})

The places of letters are numbers, or arrays of them that broadcast. Overflow and 0 · NaN are those
of IEEE 754: who calls keeps NumPy quiet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
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
    Size,
    cells,
    place_of,
)

Places = Mapping[str, Any]
MOST_TERMS = 1 << 24  # of a sum: 128 MB of float64

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": np.divide, "**": np.float_power,
    "//": np.floor_divide, "%": np.mod, "neg": operator.neg, "==": operator.eq,
    "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "exp": np.exp,
    "exp2": np.exp2, "ln": np.log, "log2": np.log2, "sqrt": np.sqrt, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "arccos": np.arccos, "degrees": np.degrees, "abs": np.abs,
    "max": np.maximum, "min": np.minimum, "sign": np.sign, "floor": np.floor,
    "sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)), "softplus": lambda x: np.logaddexp(0, x),
}  # fmt: skip
FILLERS = {"sum": 0.0, "prod": 1.0}
"""What a term is that does not count; −∞ where it is not named."""


class AbsentError(Exception):
    """A formula names an array or a parameter that is not there, or has too many terms."""


class Values(NamedTuple):
    """A formula with what it reads.

    arrays  by the names that the formula has for them
    params  numbers by name
    sizes   how many places each letter has
    """

    formula: Formula
    arrays: Mapping[str, Array]
    params: Mapping[str, Any]
    sizes: Mapping[str, int]

    @property
    def fits(self) -> bool:
        """Whether every cell that is named is one of its array; a file may hold any formula."""
        last = {letter: size - 1 for letter, size in self.sizes.items()}
        named = [cell for cell in cells(self.formula.body, guards=True) if cell.name in self.arrays]
        for cell, array in ((cell, self.arrays[cell.name]) for cell in named):
            at = place_of(cell, last, self.sizes, array.shape, lambda *_: 0)
            is_whole = len(cell.index) >= array.ndim and array.dtype.kind in "biuf"
            if not is_whole or not np.all(np.less(at, array.shape)):
                return False
        return True

    def number(self, node: Expr, places: Places) -> Any:
        """What an expression is. Raises AbsentError where something that it names is not there.

        >>> from attncli.expression import parse
        >>> values = Values(parse("m = max[j](x[j])"), {"x": np.eye(3)[0]}, {}, {"j": 3})
        >>> int(values.number(values.formula.body, {}))
        1
        """
        match node:
            case Number(value):
                return value
            case Place(letter) if letter in places:
                return places[letter]
            case Param(name) | Place(name):
                parameter = self.params.get(name)
                if not isinstance(parameter, int | float):
                    raise AbsentError(name)
                return float(parameter)
            case Size(letter):
                if letter not in self.sizes:
                    raise AbsentError(letter)
                return float(self.sizes[letter])
            case Cell(name):
                if name not in self.arrays:
                    raise AbsentError(name)
                return self.arrays[name][self.at(node, places)]
            case Apply(function, args):
                return FUNCTIONS[function](*(self.number(x, places) for x in args))
            case If(condition, then, otherwise):
                return np.where(*(self.number(x, places) for x in (condition, then, otherwise)))
        return self.over(node, places)

    def over(self, node: Over, places: Places) -> Any:
        """A sum, a largest number, a softmax or the log of a sum of powers."""
        inner = {name: np.asarray(x)[..., None] for name, x in places.items()}
        outer = prod(np.broadcast_shapes(*(np.shape(x) for x in places.values())))
        if outer * self.size(node.letters) > MOST_TERMS:  # a file may hold any formula
            raise AbsentError(node.letters)
        inner |= self.grid(node.letters)
        terms = np.asarray(self.number(node.body, inner))
        terms = np.broadcast_to(terms, (*terms.shape[:-1], self.size(node.letters)))
        if node.where is not None:
            counted = self.number(node.where, inner)
            terms = np.where(counted, terms, FILLERS.get(node.kind, -np.inf))
        if node.kind in ("sum", "prod", "max"):
            return getattr(terms, node.kind)(axis=-1)
        sink = -np.inf if node.sink is None else self.number(node.sink, places)
        top = np.maximum(terms.max(axis=-1), sink)
        top = np.where(np.isneginf(top), 0, top)  # −∞ − −∞ would be NaN
        powers = np.exp(terms - top[..., None]).sum(axis=-1) + np.exp(sink - top)
        whole = top + np.log(powers)
        if node.kind != "softmax":
            return whole
        share = np.exp(self.number(node.body, places) - whole)
        if node.where is None:
            return share
        share = np.where(self.number(node.where, places), share, 0)
        filler = {"nan": np.nan, "uniform": 1 / self.size(node.letters)}.get(node.empty, 0)
        return np.where(np.isneginf(whole), filler, share)

    def at(self, cell: Cell, places: Places) -> tuple[Any, ...]:
        """Where a cell is in its array."""
        shape = self.arrays[cell.name].shape

        def computed(axis: Expr, size: int) -> Any:  # what no case takes may be outside
            return np.clip(np.nan_to_num(self.number(axis, places)), 0, size - 1).astype(int)[()]

        return place_of(cell, places, self.sizes, shape, computed)

    def grid(self, letters: tuple[str, ...]) -> dict[str, Array]:
        """Every place of some letters, one after another."""
        if self.size(letters) > MOST_TERMS:  # a file may hold any formula
            raise AbsentError(letters)
        sizes = [self.sizes.get(letter, 1) for letter in letters]
        indices = np.indices(sizes).reshape(len(letters), self.size(letters))
        return dict(zip(letters, indices, strict=True))

    def size(self, letters: tuple[str, ...]) -> int:
        """How many places some letters have together."""
        return prod(self.sizes.get(letter, 1) for letter in letters)
