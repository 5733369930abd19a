"""Numbers: from nested lists, as JSON gives them, to an array; and NaN and infinity as text."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.messages import entry_at, quote

Array = npt.NDArray[Any]

NOT_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How numbers that JSON has no word for are written, and what they mean."""

_LARGEST = int(sys.float_info.max)

MAX_DEPTH = 16
"""Deepest nesting that is read; an attention needs 4."""


class Beyond:
    """A number of a text that float64 cannot hold, kept until its place is known."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return quote(self.text, 24)[1:-1]


def nan_to_text(x: Any) -> Any:
    """The same data with NaN and infinity as strings; mappings and sequences entry by entry.

    >>> nan_to_text({"a": (1.5, float("-inf")), "b": [float("nan")]})
    {'a': [1.5, '-Infinity'], 'b': ['NaN']}
    """
    if isinstance(x, Mapping):
        return {name: nan_to_text(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [nan_to_text(value) for value in x]
    if not isinstance(x, float) or math.isfinite(x):
        return x
    return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def to_array(nested: object, where: str) -> Array:
    """The array of nested lists of equal length: bool, int64 where all are whole, else float64.

    Entries are numbers, "NaN", "Infinity", "-Infinity", or all of them true or false. `where` is
    what messages call the array. Level after level is joined, so depth costs no recursion.

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
            raise InputError(f"{where} is nested more than {MAX_DEPTH} deep", "use 2 to 4 levels")
        lengths = set(map(len, cells)) if kinds == {list} else set()
        if len(lengths) != 1:
            raise _uneven(cells, shape, nested, where)
        if lengths == {0}:
            raise InputError(f"{where} is empty: it holds an empty list", "give it numbers")
        shape += tuple(lengths)
        cells = list(chain.from_iterable(cells))
    return _convert(cells, shape, where)


def _convert(cells: list[Any], shape: tuple[int, ...], where: str) -> Array:
    numbers = [NOT_JSON.get(cell, cell) if type(cell) is str else cell for cell in cells]
    kinds = set(map(type, numbers))
    if not kinds <= {int, float, bool}:
        wrong = next(i for i, cell in enumerate(numbers) if type(cell) not in (int, float, bool))
        raise _refused(numbers[wrong], wrong, shape, where, "a number")
    if bool in kinds and len(kinds) > 1:
        starts_bool = type(numbers[0]) is bool
        wrong = next(i for i, x in enumerate(numbers) if (type(x) is bool) != starts_bool)
        expected = "true or false as before it" if starts_bool else "a number as before it"
        raise _refused(numbers[wrong], wrong, shape, where, expected)
    if kinds == {bool}:
        return np.array(numbers, dtype=np.bool_).reshape(shape)
    for dtype in (np.int64, np.float64) if kinds == {int} else (np.float64,):
        with suppress(OverflowError):  # a whole number may be beyond int64, and beyond float64
            return np.array(numbers, dtype=dtype).reshape(shape)
    # float64 holds every float, so what it cannot hold is a whole number
    wrong = next(i for i, x in enumerate(numbers) if type(x) is int and abs(x) > _LARGEST)
    raise _refused(Beyond(str(numbers[wrong])), wrong, shape, where, "")


def _refused(cell: object, flat: int, shape: tuple[int, ...], where: str, text: str) -> InputError:
    """The error for a cell, the `flat`-th of all, that is not what it should be."""
    at = f"{where}: {_entry(flat, shape, len(shape))}" if shape else where
    if isinstance(cell, Beyond):
        return InputError(f"{at} is {cell}, beyond float64", "the limit is 1.8e308")
    return InputError(
        f"{at} is {described(cell)}, expected {text}",
        'a number may also be "NaN", "Infinity" or "-Infinity"; true and false do not mix with it',
    )


def _uneven(cells: list[Any], shape: tuple[int, ...], nested: object, where: str) -> InputError:
    """The error for the first list that is not as long, or as deep, as the first of all."""
    depth = 0
    while isinstance(nested, list):
        depth, nested = depth + 1, nested[0] if nested else None
    first = cells[0]
    for flat, cell in enumerate(cells):
        here, there = (_entry(i, shape, depth) for i in (flat, 0))
        if isinstance(cell, list) != isinstance(first, list):
            return InputError(
                f"{where}: {here} is {described(cell)}, {there} is {described(first)}",
                "give every entry the same depth",
            )
        if isinstance(cell, list) and len(cell) != len(first):
            entries = "1 entry" if len(cell) == 1 else f"{len(cell)} entries"
            return InputError(
                f"{where}: {here} has {entries}, {there} has {len(first)}",
                "give every row as many",
            )
    raise AssertionError("some list differs")


def _entry(flat: int, shape: tuple[int, ...], depth: int) -> str:
    return entry_at([int(i) for i in np.unravel_index(flat, shape)], depth)


def described(cell: object) -> str:
    """A value of JSON, for a message."""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, Beyond | int | float):
        return quote(repr(cell), 24)[1:-1]
    if isinstance(cell, str):
        return f"the text {quote(cell)}"
    return {type(None): "null", list: "a list", dict: "an object"}.get(type(cell), "no number")
