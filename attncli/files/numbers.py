"""Numbers: from nested lists, as JSON gives them, to an array; and NaN and infinity as text."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.errors import InputError
from attncli.files.messages import entry_at, quote

NOT_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The numbers that JSON lacks: their text and their value."""

_LARGEST = int(sys.float_info.max)

MAX_DEPTH = 16
"""Deepest nesting that is read; an attention needs 4."""


class Beyond:
    """A number too large for float64, as text, until its location is known."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return quote(self.text, 24)[1:-1]


class Printed(float):
    """A number that was written with zeros at its end, such as 0.40, and with how many decimals."""

    decimals: int


def number_of(text: str) -> float | Beyond:
    """The number of a text: Printed where it ends in zeros, Beyond where it is too large."""
    number = float(text)
    if text.endswith("0") and not text.endswith(".0") and "." in text and "e" not in text.lower():
        number = Printed(number)
        number.decimals = len(text.partition(".")[2])
    return Beyond(text) if math.isinf(number) else number


def decimals_of(nested: object) -> int:
    """The most decimals of the numbers in the lists of an array that are Printed, or 0."""
    cells: list[Any] = [nested]
    while list in set(map(type, cells)):
        cells = list(chain.from_iterable(cells))
    return max((cell.decimals for cell in cells if isinstance(cell, Printed)), default=0)


def nan_to_text(x: Any) -> Any:
    """The same data with NaN and infinity as strings; mappings and sequences entry by entry."""
    if isinstance(x, Mapping):
        return {name: nan_to_text(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [nan_to_text(value) for value in x]
    if not isinstance(x, float) or math.isfinite(x):
        return x
    return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def text_to_nan(cell: Any) -> Any:
    """The number that "NaN", "Infinity" or "-Infinity" is, in a mapping too; all else as it is."""
    if isinstance(cell, dict):
        return {name: text_to_nan(value) for name, value in cell.items()}
    return NOT_JSON.get(cell, cell) if isinstance(cell, str) else cell


def to_array(nested: object, where: str) -> Array:
    """The array of nested lists of equal length: bool, int64 where all are whole, else float64.

    Entries are numbers, "NaN", "Infinity", "-Infinity", or all of them true or false. `where` is
    what messages call the array. Level after level is joined, so depth costs no recursion.
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
    if kinds <= {int, float, Printed}:
        with suppress(OverflowError):
            dtype = np.int64 if kinds == {int} else np.float64
            return np.array(cells, dtype=dtype).reshape(shape)
    return _converted(cells, shape, where)


def _converted(cells: list[Any], shape: tuple[int, ...], where: str) -> Array:
    """The array of entries that are not all numbers, or whole numbers beyond int64."""
    numbers = [text_to_nan(cell) for cell in cells]
    is_bool = type(numbers[0]) is bool
    for flat, number in enumerate(numbers):
        is_int = type(number) is int and not is_bool
        if isinstance(number, bool if is_bool else float) or (is_int and abs(number) <= _LARGEST):
            continue
        at = f"{where}: {_entry(flat, shape, len(shape))}" if shape else where
        if is_int or isinstance(number, Beyond):
            message = f"{at} is {described(number)}, beyond float64"
            raise InputError(message, "the limit is 1.8e308")
        expected = "true or false as before it" if is_bool else "a number"
        hint = 'a number may also be "NaN", "Infinity" or "-Infinity"; true and false do not mix'
        raise InputError(f"{at} is {described(number)}, expected {expected}", f"{hint} with it")
    return np.array(numbers, dtype=np.bool_ if is_bool else np.float64).reshape(shape)


def _uneven(cells: list[Any], shape: tuple[int, ...], nested: object, where: str) -> InputError:
    """The error for the first list that is not as long, or as deep, as the first of all."""
    depth = 0
    while isinstance(nested, list):
        depth, nested = depth + 1, nested[0] if nested else None
    first = cells[0]
    for flat, cell in enumerate(cells):
        here, there = (_entry(i, shape, depth) for i in (flat, 0))
        if isinstance(cell, list) != isinstance(first, list):
            message = f"{where}: {here} is {described(cell)}, {there} is {described(first)}"
            return InputError(message, "give every entry the same depth")
        if isinstance(cell, list) and len(cell) != len(first):
            entries = "1 entry" if len(cell) == 1 else f"{len(cell)} entries"
            message = f"{where}: {here} has {entries}, {there} has {len(first)}"
            return InputError(message, "give every row as many")
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
