"""Numbers as text: rounded for the eye, decimal points in line, never a false zero.

One rule serves every matrix: the fewest decimals that show each value exactly, and no more than
the precision. So whole numbers have no decimals, an exact 0 is "0" and not "0.0000" (which was
rounded), and values too large or too small for that are written in scientific notation.
"""

from __future__ import annotations

import math
import re

import numpy as np

from attncli.arrays import Array

WIDE_WHOLE = 1e7  # whole numbers from here on are a wall of digits
WIDE_FRACTION = 1e5
_POINT = re.compile(r"(?=[.e])")  # the decimal point or the exponent of a number


def style_of(values: Array, precision: int, digits: int = 2) -> str:
    """The format that suits all these values: the largest keeps so many digits at least.

    >>> style_of(np.array([1.0, 2.5]), 4), style_of(np.array([1e-9, 0.0]), 4)
    ('.1f', '.0e')
    """
    finite = np.abs(values[np.isfinite(values)].astype(np.float64))
    largest = float(finite.max(initial=0.0))
    if largest == 0:
        return ".0f"
    exact = (d for d in range(precision + 1) if np.array_equal(np.round(finite, d), finite))
    decimals = next(exact, None) if largest < WIDE_WHOLE else None
    if decimals == 0 or (decimals is not None and largest < WIDE_FRACTION):
        return f".{decimals}f"
    if 10.0 ** (digits - 1 - precision) <= largest < WIDE_FRACTION:
        return f".{precision}f"
    mantissas = {f"{x:.{precision}e}".partition("e")[0] for x in finite.ravel().tolist()}
    return f".{max(len(m.partition('.')[2].rstrip('0')) for m in mantissas)}e"


def write(x: float, style: str) -> str:
    """One number in a format: NaN, inf and -inf by name, an exact zero as "0"."""
    if not math.isfinite(x):
        return "NaN" if math.isnan(x) else f"{x:.0f}"
    return f"{x:{style}}" if x else "0"


def texts(values: Array, precision: int) -> list[list[str]]:
    """The texts of a matrix, in the one style that suits it.

    >>> align(texts(np.array([[1.25, -10.0], [np.inf, 0.0]]), 2))
    [['  1.25', '-10.00'], ['   inf', '  0   ']]
    """
    style = style_of(values, precision)
    return [[write(x, style) for x in row] for row in values.tolist()]


def align(rows: list[list[str]]) -> list[list[str]]:
    """Texts of numbers padded to one width, decimal points in line, words at the right."""
    split = [[_POINT.split(text, maxsplit=1) for text in row] for row in rows]
    numbers = [parts for row in split for parts in row if not parts[0][-1].isalpha()]
    before = max((len(left) for left, *_ in numbers), default=0)
    after = max((len("".join(right)) for _, *right in numbers), default=0)
    words = max((len(text) for row in rows for text in row if text[-1].isalpha()), default=0)
    width = max(before + after, words)
    return [
        [
            (left if left[-1].isalpha() else f"{left}{''.join(right):<{after}}").rjust(width)
            for left, *right in row
        ]
        for row in split
    ]


def short(x: float, precision: int) -> str:
    """One number within a sentence or a sum, to three digits at least, without trailing zeros.

    >>> short(0.70710678, 4), short(5.0, 4), short(-1e9, 4), short(0.0012345, 4)
    ('0.7071', '5', '-1e9', '1.2345e-3')
    """
    text = write(x, style_of(np.array([x]), precision, digits=3))
    mantissa, e, exponent = text.partition("e")
    if e:
        return f"{mantissa}e{int(exponent)}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float) -> str:
    """A share of the attention: 40.1 %.

    >>> percent(0.40111), percent(1.0), percent(0.0001)
    ('40.1 %', '100 %', '< 0.1 %')
    """
    if share == 1:
        return "100 %"
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def round_top(largest: float) -> float:
    """The end of a scale: the next of 1, 2, 5, 10, …

    >>> round_top(0.43), round_top(3.0), round_top(0.0)
    (0.5, 5.0, 1.0)
    """
    if largest <= 0 or not math.isfinite(largest):
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    for step in (1, 2, 5, 10):
        top = step * power
        if largest <= top * (1 + 1e-9) < math.inf:
            return top
    return largest  # at the ends of the number range, where no round number is
