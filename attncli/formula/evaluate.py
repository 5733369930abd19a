"""The numbers of a formula: of one cell, or of many at once; lengths of letters, and places.

    values = Values(parse("Z[i] = x[i] * factor"), {"x": x}, {"factor": 0.5}, {"i": 3})
    values.number(values.formula.body, {"i": 2})

The places of letters are numbers, or arrays of them that broadcast. Overflow and 0 · NaN are those
of IEEE 754: who calls keeps NumPy quiet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
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
    Size,
    cells,
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
        array_cells = [
            cell for cell in cells(self.formula.body, guards=True) if cell.name in self.arrays
        ]
        for cell, array in ((cell, self.arrays[cell.name]) for cell in array_cells):
            at = place_of(cell, last, self.sizes, array.shape, lambda *_: 0)
            is_whole = len(cell.index) >= array.ndim and array.dtype.kind in "biuf"
            if not is_whole or not np.all(np.less(at, array.shape)):
                return False
        return True

    def number(self, node: Expr, places: Places) -> Any:
        """What an expression is. Raises AbsentError where something that it names is not there.

        >>> from attncli.formula.parser import parse
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


def entries(array: Array, at: tuple[Any, ...]) -> Any:
    """The entries of an array at these places, `array[at]`.

    Where each index is along an axis of its own, and these are in order, one axis is picked after
    another: of many entries that is quicker.

    >>> x = np.arange(35).reshape(5, 7)
    >>> entries(x, np.ix_([4, 0], [1, 1, 6])).tolist()
    [[29, 29, 34], [1, 1, 6]]
    """
    shape = np.broadcast_shapes(*map(np.shape, at))
    aligned = [(1,) * (len(shape) - np.ndim(index)) + np.shape(index) for index in at]
    axes = [[axis for axis, n in enumerate(each) if n > 1] for each in aligned]
    order = [axis for each in axes for axis in each]
    is_mesh = all(len(each) < 2 for each in axes) and order == sorted({*order})
    if prod(shape) < MANY or not is_mesh:
        return array[at]
    each_places = [np.ravel(index) for index in at]
    growth = [len(places) / max(1, n) for places, n in zip(each_places, array.shape, strict=True)]
    for axis in sorted(range(len(at)), key=growth.__getitem__):  # those first that leave the least
        places = each_places[axis]
        if len(places) != array.shape[axis] or (places != np.arange(len(places))).any():
            array = array.take(places, axis=axis)
    return array.reshape(shape)


MANY = 2**10
"""Fewer entries are picked at once."""


# ---- sizes and places


def sizes_of(
    formula: Formula, shape: Shape, shapes: Mapping[str, Shape], lengths: Mapping[str, int] = {}
) -> dict[str, int]:
    """How long each letter is, from the shape of the stage and of what it reads, and what is known.

    A letter whose axis no array has is left out. Of several letters on one axis, one follows from
    the others.
    """
    pairs = [*_axes(formula.index, shape)]
    pairs += [(axis, n) for axis, n, _ in axes_read(formula.body, shapes) if n is not None]
    sizes, packed = {**lengths}, list[tuple[list[str], int]]()
    for axis, size in pairs:
        letters = [x for x in axis if isinstance(x, str)] if isinstance(axis, tuple) else []
        if len(letters) < len(axis if isinstance(axis, tuple) else ()):
            continue  # how long what is at a place is follows from its letters, not they from it
        if len(letters) == 1:
            sizes[letters[0]] = max(size, sizes.get(letters[0], 1))
        elif letters:
            packed.append((letters, size))
    for letters, size in packed * len(packed):
        known_sizes = [sizes[x] for x in letters if x in sizes]
        if len(known_sizes) == len(letters) - 1:
            (letter,) = {*letters} - sizes.keys()
            sizes[letter] = max(1, size // max(1, prod(known_sizes)))
    return sizes


def present_axes(index: tuple[Index, ...], sizes: Mapping[str, int]) -> tuple[Index, ...]:
    """The axes of a stage: without the first ones, if no array has them."""
    while index and not {*map(str, index[0])} <= sizes.keys():
        index = index[1:]
    return index


def axes_read(
    body: Expr, shapes: Mapping[str, Shape]
) -> Iterator[tuple[Index | Expr, int | None, Cell]]:
    """Each axis of each cell in an expression, how long it is, and the cell.

    None: an array of this shape lacks it.
    """
    for cell in cells(body, guards=True):
        shape = shapes.get(cell.name, ())
        lacks: list[int | None] = [None] * (len(cell.index) - len(shape))
        sizes = [*lacks, *shape[max(0, len(shape) - len(cell.index)) :]]
        yield from ((axis, n, cell) for axis, n in zip(cell.index, sizes, strict=True))


def _axes(index: tuple[Index | Expr, ...], shape: Shape) -> Iterator[tuple[Index | Expr, int]]:
    """The axes that an array of this shape has, with their sizes."""
    n = min(len(index), len(shape))
    return zip(index[len(index) - n :], shape[len(shape) - n :], strict=True)


def lengths_along(axis: Index, size: int, sizes: Mapping[str, int]) -> list[int]:
    """How long each of what is side by side on an axis of this size is: p·0 has the rest at 0.

    >>> lengths_along(("p", 0), 6, {"p": 3})
    [3, 2]
    """
    whole = prod(sizes.get(x, 1) for x in axis if isinstance(x, str))
    return [sizes.get(x, 1) if isinstance(x, str) else size // whole for x in axis]


def place_along(axis: Index | Expr, size: int, sizes: Mapping[str, int]) -> Expr:
    """Where an index is on an axis of this size, as an expression.

    >>> from attncli.formula.expression import text_of
    >>> text_of(place_along(("p", 1), 6, {"p": 3}))
    'p * 2 + 1'
    """
    if not isinstance(axis, tuple):
        return axis
    place: Expr = Number(0.0)
    for x, n in zip(axis, lengths_along(axis, size, sizes), strict=True):
        digit: Expr = Place(x) if isinstance(x, str) else Number(float(x))
        before = Apply("*", (place, Number(float(n))))
        place = digit if place == Number(0.0) else Apply("+", (before, digit))
    return place


def place_of(
    cell: Cell,
    places: Mapping[str, Any],
    sizes: Mapping[str, int],
    shape: Shape,
    computed: Callable[[Expr, int], Any],
) -> tuple[Any, ...]:
    """Where a cell is in an array of this shape, with every letter at its place.

    computed  what an index that is computed is, along an axis of this size
    """
    index = []
    for axis, size in _axes(cell.index, shape):
        at = 0
        if not isinstance(axis, tuple):
            at = computed(axis, size)
        else:
            for x, n in zip(axis, lengths_along(axis, size, sizes), strict=True):
                at = at * n + (places.get(x, 0) if isinstance(x, str) else x)
        index.append(at if size > 1 else 0)
    return tuple(index)


def places_at(formula: Formula, index: Shape, sizes: Mapping[str, int]) -> dict[str, int]:
    """The place of each letter in one cell of a stage."""
    places: dict[str, int] = {}
    for axis, at in _axes(formula.index, index):
        rest = at
        for letter in reversed(axis if isinstance(axis, tuple) else ()):
            rest, places[str(letter)] = divmod(rest, sizes.get(str(letter), 1))
    return places
