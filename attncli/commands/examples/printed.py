"""Numbers as they were printed: their value, to how many decimals, and how ours compare with them.

| printed | value | decimals |
|---|---|---|
| "0.540" | 0.54 | 3 |
| "-2.5e-3" | −0.0025 | 4 |
| 0.54 (a number of JSON) | 0.54 | 2, or as many as `decimals` says |
| "1/√2", "2/3", "√2", "sin(3/10)", "cos(1)" | to the last digit | exact |
| "NaN", "Infinity", "-Infinity" | the same | exact |

With u one unit of the last printed decimal, and n the rounding error of a computation in float64,
64 ulp (2⁻⁴⁶ of the number itself):

| verdict | our number and the printed one |
|---|---|
| reproduced | are the same: within n, and within u (or one ulp, if that is more) |
| agrees as rounded | lie within u/2, to within n |
| differs | lie farther apart |

A tie lies u/2 from both its neighbours, so 0.125 agrees with "0.12" (half to even) and with "0.13"
(half up); n lets 2.675, which float64 holds a little below, agree with "2.68". Where u is less than
n, in a number printed in full, n is the bound. An expression ("1/√2") has no last decimal: it is
reproduced, within n, or differs. NaN and infinities are reproduced by themselves alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from operator import itemgetter
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.json_text import described, to_array
from attncli.files.numbers import NOT_JSON

Recorded = Literal["reproduced", "agrees as rounded", "differs", "not printed", "agrees"]
"""The verdicts that an example can record, the best first; the last two: nothing to compare with,
and the same as an illustration of ours, which is not reproduced."""
Verdict = Literal[Recorded, "needs --vectors FILE"]
"""The verdict of a claim."""
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Cells = npt.NDArray[np.str_]
"""A verdict for each number."""

EXACT = np.iinfo(np.int64).max
"""The decimals of an expression, which has no last digit."""
LOSS = 2.0**-46
"""Rounding error of a computation in float64, relative to the number: 64 times its resolution."""

Relation = Literal["equal", "close_to", "unequal", "above", "below"]
"""How a statement compares our numbers with a value."""
CLOSE = 1e-3
"""How near `close_to` is: a thousandth of the value, or of 1 where that is more."""

MOST_DEPTH = 4
"""Deepest nesting of printed numbers: batch, head, row, column."""
_LONGEST = 64  # characters; the longest float64 in decimals has 25
_FARTHEST = 400  # decimals; float64 ends at 324
_TRUSTED = 15  # decimals that a number printed from float64 can be cut off at

_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_FACTOR = rf"[+-]?{_DIGITS}|-?√\+?{_DIGITS}"
_NUMBER = re.compile(rf"[+-]?{_DIGITS}")
_EXPRESSION = re.compile(
    rf"(?:(?P<sign>-?)(?P<wave>sin|cos)\()?(?P<above>{_FACTOR})(?:/(?P<below>{_FACTOR}))?(?(wave)\))"
)


class Printed(NamedTuple):
    """Printed numbers: their text, value and decimals, all of one shape."""

    text: Any  # nested lists of the texts
    value: npt.NDArray[np.float64]  # float64
    decimals: npt.NDArray[np.int64]  # of each number, EXACT for an expression


# ---- reading


def read_printed(data: object, place: str, decimals: int | None = None) -> Printed:
    """Printed numbers from JSON, at most 4 deep; `decimals` is for those that are no text."""
    cells = _each(data, lambda entry: _read_one(entry, place, decimals), place)
    text, value, places = (_each(cells, itemgetter(i), place) for i in range(3))
    numbers = np.asarray(to_array(value, place), dtype=np.float64)
    return Printed(text, numbers, np.array(places, dtype=np.int64))


def _each(data: Any, function: Callable[[Any], Any], place: str, depth: int = 0) -> Any:
    """Nested lists with `function` of each entry in its place."""
    if not isinstance(data, list):
        return function(data)
    if depth == MOST_DEPTH:  # a file can nest deeper than Python recurses
        raise InputError(f"{place} is nested more than {MOST_DEPTH} deep")
    return [_each(part, function, place, depth + 1) for part in data]


def _read_one(entry: object, place: str, decimals: int | None) -> tuple[str, float, int]:
    """The text, value and decimals of one printed number."""
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        value = float(to_array([entry], place)[0])
        if decimals is None:
            return repr(entry), value, _decimals(repr(entry))
        return f"{value:.{decimals}f}", value, decimals
    plain = entry.strip().replace("−", "-") if isinstance(entry, str) else ""
    number = _value(plain)
    if number is None or not isinstance(entry, str):
        hint = 'write "0.540", or an expression such as "1/√2" or "sin(3/10)"'
        raise InputError(f"{place} holds {described(entry)}, which is no number", hint)
    return entry, number, _decimals(plain)


def _decimals(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        return EXACT
    exponent = Decimal(text).as_tuple().exponent
    return min(-int(exponent), _FARTHEST)


def _value(text: str) -> float | None:
    """The value of a number or expression; None for anything else."""
    if text in NOT_JSON:
        return NOT_JSON[text]
    parts = _EXPRESSION.fullmatch(text) if len(text) <= _LONGEST else None
    if parts is None:
        return None
    above, below = _factor(parts["above"]), _factor(parts["below"] or "1")
    if not (below and math.isfinite(below) and math.isfinite(above / below)):
        return None
    if not parts["wave"]:
        return above / below
    value = math.sin(above / below) if parts["wave"] == "sin" else math.cos(above / below)
    return -value if parts["sign"] else value


def _factor(text: str) -> float:
    sign, root, digits = text.partition("√")
    return float(f"{sign}1") * math.sqrt(float(digits)) if root else float(text)


# ---- comparing


def compare(ours: npt.ArrayLike, printed: Printed) -> Cells:
    """The verdict of each cell, by the rules at the top of this module."""
    a, b = np.asarray(ours, dtype=np.float64), printed.value
    exact = printed.decimals == EXACT
    with np.errstate(all="ignore"):
        unit = np.where(exact, np.inf, 10.0 ** -np.where(exact, 0, printed.decimals))
        gap = np.abs(a - b)
        loss = LOSS * np.maximum(np.abs(a), np.abs(b))
        finite = np.isfinite(a) & np.isfinite(b)
        whole = gap <= np.minimum(loss, np.maximum(unit, np.spacing(np.abs(b))))
        near = ~exact & (gap <= unit / 2 + loss)
    reproduced = (a == b) | (np.isnan(a) & np.isnan(b)) | (finite & whole)
    return np.select([reproduced, finite & near], VERDICTS[:2], VERDICTS[2])


def cut_off(ours: npt.ArrayLike, printed: Printed) -> bool:
    """Whether each printed number is ours with its further digits cut off instead of rounded."""
    a, decimals = np.asarray(ours, dtype=np.float64), printed.decimals
    if (decimals > _TRUSTED).any() or (decimals < 0).any() or not np.isfinite(a).all():
        return False
    with np.errstate(over="ignore"):
        power = 10.0**decimals
        truncated = np.trunc(a * power * (1 + LOSS)) / power
    return bool((compare(truncated, printed) == VERDICTS[0]).all())


def holds(ours: npt.ArrayLike, states: Mapping[Relation, float], magnitude: float) -> Cells:
    """Whether a statement holds: "reproduced" or "differs" for each cell.

    `magnitude` is the greatest number that went into ours, which bounds the rounding error.
    "unequal" holds where any cell is unequal: two vectors differ if one entry does.
    """
    a, ((relation, value),) = np.asarray(ours, dtype=np.float64), states.items()
    size = abs(value) if np.isfinite(value) else 0.0
    bound = LOSS * max(magnitude if np.isfinite(magnitude) else 0.0, size)
    if relation == "close_to":
        bound = CLOSE * max(size, 1.0)
    with np.errstate(all="ignore"):
        near = (np.abs(a - value) <= bound) | (a == value) | (np.isnan(a) & np.isnan(value))
        if relation in {"above", "below"}:
            near = a > value if relation == "above" else a < value
    if relation == "unequal":
        near = np.broadcast_to((~near & ~np.isnan(a)).any(), a.shape)
    return np.where(near, VERDICTS[0], VERDICTS[2])


def worst(cells: Cells) -> Verdict:
    """The verdict of all cells together: that of the worst; "not printed" where there are none."""
    return max((v for v in VERDICTS if v in cells), key=VERDICTS.index, default="not printed")
