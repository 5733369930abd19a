"""From nested lists, as JSON gives them, to an array; and the place of what does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.wording import place, quote

NOT_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How numbers that JSON has no word for are written, and what they mean."""

MAX_DEPTH = 16
"""Deepest nesting that is read; an attention needs 4."""


class Beyond:
    """A number of a text that float64 cannot hold, kept until its place is known."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return quote(self.text, 24)[1:-1]


def to_array(nested: object, spot: str) -> npt.NDArray[Any]:
    """The array of nested lists of equal length: bool, int64 where all are whole, else float64.

    Entries are numbers, "NaN", "Infinity", "-Infinity", or all of them true or false. `spot` is
    how messages call the array. The walk goes level by level, so depth costs no recursion.

    Raises InputError, with the place, where rows differ in length, a list is empty, or an entry is
    something else.

    >>> to_array([[1, 2], [3, 4.5]], "q").tolist()
    [[1.0, 2.0], [3.0, 4.5]]
    >>> to_array([[1, 2], [3]], "q")
    Traceback (most recent call last):
        ...
    attncli.errors.InputError: q: row 2 has 1 entry, row 1 has 2; give every row as many
    """
    cells: list[Any] = [nested]
    shape: tuple[int, ...] = ()
    while list in (kinds := set(map(type, cells))):
        if len(shape) == MAX_DEPTH:
            raise InputError(f"{spot} is nested more than {MAX_DEPTH} deep", "use 2 to 4 levels")
        lengths = set(map(len, cells)) if kinds == {list} else set()
        if len(lengths) != 1:
            raise _uneven(cells, shape, _depth(nested), spot)
        if lengths == {0}:
            raise InputError(f"{spot} is empty: it holds an empty list", "give it numbers")
        shape += tuple(lengths)
        cells = list(chain.from_iterable(cells))
    return _convert(cells, shape, spot)


def _convert(cells: list[Any], shape: tuple[int, ...], spot: str) -> npt.NDArray[Any]:
    numbers = [NOT_JSON.get(c, c) if type(c) is str else c for c in cells]
    kinds = set(map(type, numbers))
    foreign = partial(_foreign, numbers, shape, spot)
    if not kinds <= {int, float, bool}:
        raise foreign(lambda cell: type(cell) not in (int, float, bool))
    if bool in kinds and len(kinds) > 1:
        starts_bool = type(numbers[0]) is bool
        raise foreign(
            lambda cell: (type(cell) is bool) != starts_bool,
            "true or false as before it" if starts_bool else "a number as before it",
        )
    for dtype in _TYPES.get(frozenset(kinds), (np.float64,)):
        try:
            return np.array(numbers, dtype=dtype).reshape(shape)
        except OverflowError:  # whole numbers beyond int64, then beyond float64
            continue
    raise foreign(_is_beyond)


# what the cells are made of → the types to try
_TYPES: dict[frozenset[type], tuple[type, ...]] = {
    frozenset({bool}): (np.bool_,),
    frozenset({int}): (np.int64, np.float64),
}


def _is_beyond(cell: Any) -> bool:
    try:
        float(cell)
    except OverflowError:
        return True
    return False


def _foreign(
    cells: list[Any],
    shape: tuple[int, ...],
    spot: str,
    is_foreign: Callable[[Any], bool],
    expected: str = "a number",
) -> InputError:
    """The error for the first cell that is not what it should be."""
    flat = next(i for i, cell in enumerate(cells) if is_foreign(cell))
    at = f"{spot}: {_place(flat, shape, len(shape))}" if shape else spot
    if isinstance(cells[flat], Beyond) or is_foreign is _is_beyond:
        return InputError(f"{at} is {_kind(cells[flat])}, beyond float64", "the limit is 1.8e308")
    return InputError(
        f"{at} is {_kind(cells[flat])}, expected {expected}",
        'a number may also be "NaN", "Infinity" or "-Infinity"; true/false stand alone',
    )


def _uneven(cells: list[Any], shape: tuple[int, ...], depth: int, spot: str) -> InputError:
    """The error for the first list that is not as long, or as deep, as the one before all."""
    first = cells[0]
    for flat, cell in enumerate(cells):
        if (type(cell) is list) == (type(first) is list) and _length(cell) == _length(first):
            continue
        here, there = (_place(i, shape, depth) for i in (flat, 0))
        if (type(cell) is list) != (type(first) is list):
            return InputError(
                f"{spot}: {here} is {_kind(cell)}, {there} is {_kind(first)}",
                "give every entry the same depth",
            )
        return InputError(
            f"{spot}: {here} has {_entries(cell)}, {there} has {len(first)}",
            "give every row as many",
        )
    raise AssertionError("some list differs")


def _length(cell: object) -> int:
    return len(cell) if isinstance(cell, list) else 0


def _entries(cells: list[Any]) -> str:
    return "1 entry" if len(cells) == 1 else f"{len(cells)} entries"


def _place(flat: int, shape: tuple[int, ...], depth: int) -> str:
    return place([int(i) for i in np.unravel_index(flat, shape)], depth)


def _depth(nested: object) -> int:
    """How deep the first entries of the lists are nested."""
    depth = 0
    while isinstance(nested, list):
        depth, nested = depth + 1, nested[0] if nested else None
    return depth


def _kind(cell: object) -> str:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, Beyond | int | float):
        return quote(repr(cell), 24)[1:-1]
    if isinstance(cell, str):
        return f"the text {quote(cell)}"
    return {type(None): "null", list: "a list", dict: "an object"}.get(type(cell), "no number")
