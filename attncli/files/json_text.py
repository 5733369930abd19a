"""A JSON text as a document, and nested lists in it as arrays.

Numbers keep how they were written where that matters: Printed, Beyond. It is counted what a text
unpacks to before it is parsed.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.budget import check_cells
from attncli.errors import InputError
from attncli.files.messages import decoded, entry_at, quote
from attncli.files.numbers import MAX_DEPTH, text_to_nan
from attncli.files.source import ARRAY

# escapes one after the other, so that neither \\\\ud800 nor a whole pair is taken for a half
_ESCAPES = re.compile(
    r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>\\u[dD][89a-fA-F]..)|\\.", re.DOTALL
)


_MARKS = re.compile(r"[\s,;\[\]]+")  # what separates two numbers


# half-cells by the sign that shows them: the comma or bracket before a value, both quotes of a text
_COSTS = ((b",", 2), (b"[", 2), (b"{", 8), (b'"', 1))


def parse(
    data: bytes,
    origin: str,
    pairs: Callable[[list[tuple[str, Any]]], Any] | None = None,
    *,
    other_forms: bool = False,
) -> Any:
    """The document in a JSON text; numbers beyond float64 become Beyond.

    Objects are made by `pairs`, from their keys and values. Without it they are dicts, and a key
    that is there twice is refused. With `other_forms` it may be written as forms.py has it.
    """
    check_cells(_cells(data), f"{origin} has", "save the arrays as npy or npz", unit="values")
    text = decoded(data, json.detect_encoding(data), origin)
    del data  # it may be as large as all that follows
    if not text or text.isspace():
        raise InputError(f"{origin} is empty", "it should hold arrays")

    def unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(items)
        if len(document) < len(items):
            (twice, _), *_ = Counter(name for name, _ in items).most_common(1)
            raise InputError(f"{origin} has the key {quote(twice)} twice", "keep one of them")
        return document

    read = partial(json.loads, parse_float=number_of, object_pairs_hook=pairs or unique)
    try:
        try:
            document = read(text)
        except json.JSONDecodeError as problem:
            if not other_forms:
                raise _malformed(problem, origin) from problem
            document = _other_form(text, origin, problem, read)
    except InputError:
        raise
    except ValueError as problem:  # Python reads no whole number of more than 4300 digits
        message = f"{origin} holds a number beyond float64"
        raise InputError(message, "the limit is 1.8e308") from problem
    except RecursionError as problem:
        raise InputError(f"{origin} is nested too deeply", "use 2 to 4 levels") from problem
    for escape in _ESCAPES.finditer(text) if "\\u" in text else ():
        if escape["half"]:  # which no encoding can write
            message = f"{origin} holds {escape['half']}, half of a surrogate pair"
            raise InputError(message, "write whole characters")
    return document


def _other_form(
    text: str, origin: str, problem: json.JSONDecodeError, read: Callable[[str], Any]
) -> Any:
    """The document of a text that is not JSON; InputError where it has no other form either."""
    from attncli.files.forms import HINT, as_json

    check_cells(_MARKS.sub(" ", text).count(" "), f"{origin} has", "save it as npy", unit="values")
    plain = as_json(text, origin)
    check_cells(_cells(plain.encode()), f"{origin} has", "save it as npy", unit="values")
    try:
        return read(plain)
    except json.JSONDecodeError:
        if ARRAY.match(text):
            raise InputError(f"{origin} is no array that is understood", HINT) from problem
        raise _malformed(problem, origin) from problem


def _cells(data: bytes) -> int:
    """How many values a text has at most; one that Python holds in more bytes counts as more."""
    return sum(data.count(sign) * cost for sign, cost in _COSTS) // 2


def _malformed(problem: json.JSONDecodeError, origin: str) -> InputError:
    place = f"line {problem.lineno}, column {problem.colno}"
    hint = "put commas between entries, none after the last, and names in double quotes"
    if "'" in problem.doc and '"' not in problem.doc:
        hint = "use double quotes"
    return InputError(f"{origin} is not JSON: {place}: {problem.msg}", hint)


_LARGEST = int(sys.float_info.max)
BLANK_HINT = "a blank cell of a worksheet is read by attncli check --by-hand"


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


def to_array(nested: object, place: str) -> Array:
    """The array of nested lists of equal length: bool, int64 where all are whole, else float64.

    Entries are numbers, "NaN", "Infinity", "-Infinity", or all of them true or false. `place` is
    what messages call the array. Level after level is joined, so depth costs no recursion.
    """
    cells: list[Any] = [nested]
    shape: tuple[int, ...] = ()
    while list in (kinds := set(map(type, cells))):
        if len(shape) == MAX_DEPTH:
            raise InputError(f"{place} is nested more than {MAX_DEPTH} deep", "use 2 to 4 levels")
        lengths = set(map(len, cells)) if kinds == {list} else set()
        if len(lengths) != 1:
            raise _uneven(cells, shape, nested, place)
        if lengths == {0}:
            raise InputError(f"{place} is empty: it holds an empty list", "give it numbers")
        shape += tuple(lengths)
        cells = list(chain.from_iterable(cells))
    if kinds <= {int, float, Printed}:
        with suppress(OverflowError):
            dtype = np.int64 if kinds == {int} else np.float64
            return np.array(cells, dtype=dtype).reshape(shape)
    return _converted(cells, shape, place)


def _converted(cells: list[Any], shape: tuple[int, ...], place: str) -> Array:
    """The array of entries that are not all numbers, or whole numbers beyond int64."""
    numbers = [text_to_nan(cell) for cell in cells]
    is_bool = type(numbers[0]) is bool
    for flat, number in enumerate(numbers):
        is_int = type(number) is int and not is_bool
        if isinstance(number, bool if is_bool else float) or (is_int and abs(number) <= _LARGEST):
            continue
        at = f"{place}: {_entry(flat, shape, len(shape))}" if shape else place
        if is_int or isinstance(number, Beyond):
            message = f"{at} is {described(number)}, beyond float64"
            raise InputError(message, "the limit is 1.8e308")
        expected = "true or false as before it" if is_bool else "a number"
        hint = 'a number may also be "NaN", "Infinity" or "-Infinity"; true and false do not mix'
        hint = f"{hint} with it"
        if number is None:
            hint = BLANK_HINT
        raise InputError(f"{at} is {described(number)}, expected {expected}", hint)
    return np.array(numbers, dtype=np.bool_ if is_bool else np.float64).reshape(shape)


def _uneven(cells: list[Any], shape: tuple[int, ...], nested: object, place: str) -> InputError:
    """The error for the first list that is not as long, or as deep, as the first of all."""
    depth = 0
    while isinstance(nested, list):
        depth, nested = depth + 1, nested[0] if nested else None
    first = cells[0]
    for flat, cell in enumerate(cells):
        here, there = (_entry(i, shape, depth) for i in (flat, 0))
        if isinstance(cell, list) != isinstance(first, list):
            message = f"{place}: {here} is {described(cell)}, {there} is {described(first)}"
            return InputError(message, "give every entry the same depth")
        if isinstance(cell, list) and len(cell) != len(first):
            entries = "1 entry" if len(cell) == 1 else f"{len(cell)} entries"
            message = f"{place}: {here} has {entries}, {there} has {len(first)}"
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
