"""Numbers as they were printed: their value, and to how many decimals.

| printed | value | decimals |
|---|---|---|
| "0.540" | 0.54 | 3 |
| "-2.5e-3" | −0.0025 | 4 |
| 0.54 (a number of JSON) | 0.54 | 2, or as many as `decimals` says |
| "1/√2", "2/3", "√2", "sin(3/10)", "cos(1)" | to the last digit | exact |
| "NaN", "Infinity", "-Infinity" | the same | exact |
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.messages import quote
from attncli.files.numbers import NOT_JSON, to_array

EXACT = np.iinfo(np.int64).max
"""The decimals of an expression, which has no last digit."""

MOST_DEPTH = 4
_LONGEST = 64
_FARTHEST = 400  # decimals; float64 ends at 324

_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_WAVE = re.compile(r"(-?)(sin|cos)\((.*)\)")


@dataclass(frozen=True, eq=False)
class Printed:
    """Printed numbers: their text, value and decimals, all of one shape.

    text      nested tuples of the texts
    value     float64
    decimals  of each number, EXACT for an expression
    """

    text: Any
    value: npt.NDArray[np.float64]
    decimals: npt.NDArray[np.int64]


def read_printed(node: object, spot: str, decimals: int | None = None) -> Printed:
    """Printed numbers from JSON: one or nested lists of them, at most 4 deep.

    `decimals` is for numbers that are no text; a text has those it shows.
    Raises InputError, naming `spot`, for what is no number, and rows of unequal length.

    >>> printed = read_printed(["0.540", "1/√2", 5.0], "weights")
    >>> printed.value.round(4).tolist(), printed.decimals.tolist()[0]
    ([0.54, 0.7071, 5.0], 3)
    """
    text, value, places = _walk(node, spot, decimals, 0)
    numbers = np.asarray(to_array(value, spot), dtype=np.float64)
    return Printed(text, numbers, np.array(places, dtype=np.int64).reshape(numbers.shape))


def _walk(node: object, spot: str, decimals: int | None, depth: int) -> tuple[Any, Any, Any]:
    if not isinstance(node, list):
        return _one(node, spot, decimals)
    if depth == MOST_DEPTH:
        raise InputError(f"{spot} is nested more than {MOST_DEPTH} deep")
    parts = [_walk(part, spot, decimals, depth + 1) for part in node]
    texts, values, places = ([part[i] for part in parts] for i in range(3))
    flat = [p for place in places for p in (place if isinstance(place, list) else [place])]
    return tuple(texts), values, flat


def _one(node: object, spot: str, decimals: int | None) -> tuple[str, float, int]:
    if isinstance(node, int | float) and not isinstance(node, bool):
        value = float(to_array([node], spot)[0])
        shown = repr(node) if decimals is None else f"{value:.{max(decimals, 0)}f}"
        return shown, value, _decimals(repr(node)) if decimals is None else decimals
    if not isinstance(node, str):
        raise InputError(
            f"{spot} holds {quote(repr(node), 24)[1:-1]}, which is no printed number",
            'write numbers as they are printed, such as "0.540"',
        )
    read = _value(node.strip().replace("−", "-"))
    if read is None:
        raise InputError(
            f"{spot} holds {quote(node)}, which is no number",
            'write "0.540", or an expression such as "1/√2" or "sin(3/10)"',
        )
    return node, read, _decimals(node.strip().replace("−", "-"))


def _decimals(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        return EXACT
    exponent = Decimal(text).as_tuple().exponent
    return min(-int(exponent), _FARTHEST)


def _value(text: str) -> float | None:
    """The value of a number or expression; None for anything else."""
    if len(text) > _LONGEST:
        return None
    if text in NOT_JSON:
        return NOT_JSON[text]
    if wave := _WAVE.fullmatch(text):
        angle = _quotient(wave[3])
        if angle is None:
            return None
        value = math.sin(angle) if wave[2] == "sin" else math.cos(angle)
        return -value if wave[1] else value
    return _quotient(text)


def _quotient(text: str) -> float | None:
    above, bar, below = text.partition("/")
    top = _factor(above)
    bottom = _factor(below) if bar else 1.0
    if top is None or not bottom:
        return None
    value = top / bottom
    return value if math.isfinite(value) else None


def _factor(text: str) -> float | None:
    sign, root, number = text.partition("√")
    if root and (sign not in ("", "-") or number.startswith("-")):
        return None
    text = number if root else text
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        return None
    value = math.sqrt(float(text)) if root else float(text)
    return -value if root and sign else value
