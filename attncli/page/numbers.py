"""Numbers as text: rounded for the eye, decimal points in line, never a false zero.

One rule serves every matrix and every line of arithmetic: the fewest decimals that show each value
exactly, and no more than the precision. So whole numbers have no decimals, and an exact 0 is "0",
not "0.0000" (which was rounded). Where these decimals would show nothing of the largest number,
there are more of them (0.0004), and where that does not help there is an exponent (4e-5).
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array

WIDE = 1e7  # a number from here on is a wall of digits: it has an exponent, its neighbours do not
MOST_ZEROS = 4  # decimals that show a small number at any precision: 0.0004, but 4e-5
NOISE = 1e-12  # of a number: what rounding in float64 leaves of a long sum, 5.000000000000001
ROUND = (1, 2, 5, 10)
"""Where the scale of a table may end: the same numbers come back from matrix to matrix."""
FINER = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10)
"""And that of a figure, which its largest number should reach."""
_POINT = re.compile(r"(?=[.e])")  # the decimal point or the exponent of a number


_LEFT_OUT = re.compile(r"… \d+ more: (\S+) …")  # the sum of terms that are not written
_DECIMAL = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_SUM = re.compile(rf"[(]*{_DECIMAL.pattern}[)]*( ?[-+·] ?[(]*{_DECIMAL.pattern}[)]*)*")
_EXACT: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class Style(NamedTuple):
    """The formats of numbers of one matrix: of those below WIDE, and of the others.

    >>> style_of(np.array([1.0, 2.5]), 4).plain, style_of(np.array([1e-9, 0.0]), 4).plain
    ('.1f', '.0e')
    >>> style_of(np.array([0.25, -1.5e11]), 4)
    Style(plain='.2f', wide='.1e')
    """

    plain: str
    wide: str

    def write(self, x: float) -> str:
        """One number: NaN, inf and -inf by name, an exact zero as "0", no minus before a zero."""
        if not math.isfinite(x):
            return "NaN" if math.isnan(x) else f"{x:.0f}"
        if not x:
            return "0"
        text = f"{x:{self.wide if abs(x) >= WIDE else self.plain}}"
        mantissa, e, exponent = text.partition("e")
        if e:
            return f"{mantissa}e{int(exponent)}"
        return text if float(text) else text.removeprefix("-")


_NO_STYLE = Style("", "")  # of zero, NaN and infinity, which are written as they are


def style_of(values: Array, precision: int, beside: float = 0.0) -> Style:
    """The formats that suit all these values.

    beside  a number of the same kind, next to which one that rounds to 0 is 0
    """
    sizes = np.abs(values[np.isfinite(values)].astype(np.float64))
    plain, wide = sizes[sizes < WIDE], sizes[sizes >= WIDE]
    largest = max(float(plain.max(initial=0.0)), beside)
    noise = min(NOISE, 10.0 ** -(precision + 4)) * plain
    decimals = (d for d in range(precision + 1) if (abs(np.round(plain, d) - plain) <= noise).all())
    more = range(precision, max(precision, MOST_ZEROS) + 1)
    enough = (d for d in more if float(f"{largest:.{d}f}") or not largest)
    n_decimals = next(decimals, next(enough, None))
    as_wide = _with_exponent(wide.tolist(), precision) if wide.size else ".0e"
    if n_decimals is None:
        return Style(_with_exponent(plain.tolist(), precision), as_wide)
    return Style(f".{n_decimals}f", as_wide)


def _with_exponent(sizes: Sequence[float], precision: int) -> str:
    """The format with an exponent and the fewest decimals, no more than the precision."""
    mantissas = {f"{x:.{precision}e}".partition("e")[0] for x in sizes}
    return f".{max((len(m.partition('.')[2].rstrip('0')) for m in mantissas), default=0)}e"


def texts(matrices: Sequence[Array], precision: int, beside: float = 0.0) -> list[list[str]]:
    """Matrices below each other as text, each in the one style that suits it.

    All have one width, decimal points in line, words at the right.

    >>> texts([np.array([[1.25, -10.0], [np.inf, 0.0]])], 2)
    [['  1.25', '-10.00'], ['   inf', '  0   ']]
    """
    split: list[list[list[str]]] = []  # each number before its point and after it
    for values in matrices:
        style = style_of(values, precision, beside)
        split += [
            [_POINT.split(style.write(x), maxsplit=1) for x in row] for row in values.tolist()
        ]
    every = [parts for row in split for parts in row]
    numbers = [parts for parts in every if not parts[0][-1].isalpha()]
    before = max((len(whole) for whole, *_ in numbers), default=0)
    after = max((len("".join(right)) for _, *right in numbers), default=0)
    words = max((len(whole) for whole, *_ in every if whole[-1].isalpha()), default=0)
    width = max(before + after, words)
    return [
        [
            (whole if whole[-1].isalpha() else f"{whole}{''.join(right):<{after}}").rjust(width)
            for whole, *right in row
        ]
        for row in split
    ]


def short(x: float, precision: int) -> str:
    """One number within a sentence or a line of arithmetic.

    >>> short(0.70710678, 4), short(5.0, 4), short(-1e9, 4), short(0.09027, 3), short(0.4011, 1)
    ('0.7071', '5', '-1e9', '0.090', '0.4')

    The same as `style_of(np.array([x]), precision).write(x)`, in plain floats: a line of arithmetic
    has many numbers, and NumPy takes 25 µs for each.
    """
    size = abs(x)
    if not size or not math.isfinite(size):
        return _NO_STYLE.write(x)
    if size >= WIDE:
        return Style("", _with_exponent([size], precision)).write(x)
    rounded = float(f"{size:.{precision}f}")
    if rounded and abs(rounded - size) > 10 * NOISE * size:  # not exact with fewer decimals either
        return f"{x:.{precision}f}"
    noise = min(NOISE, 10.0 ** -(precision + 4)) * size
    for decimals in range(precision + 1):
        power = 10.0**decimals
        if abs(round(size * power) / power - size) <= noise:
            return Style(f".{decimals}f", "").write(x)
    for decimals in range(precision, max(precision, MOST_ZEROS) + 1):
        if float(f"{size:.{decimals}f}"):
            return f"{x:.{decimals}f}"
    return Style(_with_exponent([size], precision), "").write(x)


def is_exact(terms: str, result: str) -> bool:
    """Whether a sum or product of numbers as they are written is exactly the result.

    Of what is not written with +, - and · alone, such as a quotient, it is taken to be.

    >>> is_exact("0.40·10 + 0.20·5", "5"), is_exact("0.40·10 + (-0.20)·5", "3.01")
    (True, False)
    """
    terms = _LEFT_OUT.sub(r"\1", terms)
    if not (_SUM.fullmatch(terms) and _DECIMAL.fullmatch(result)):
        return True

    def exactly(node: ast.expr) -> Fraction:
        match node:
            case ast.BinOp(left, sign, right):
                return _EXACT[type(sign)](exactly(left), exactly(right))
            case ast.UnaryOp(ast.USub(), operand):
                return -exactly(operand)
        return Fraction(ast.unparse(node))

    return exactly(ast.parse(terms.replace("·", "*"), mode="eval").body) == Fraction(result)


def percent(share: float) -> str:
    """A weight in percent: 40.1 %.

    >>> percent(0.40111), percent(1.0), percent(0.0001), percent(0.9999)
    ('40.1 %', '100 %', '< 0.1 %', '> 99.9 %')
    """
    if share == 1 or 0.9995 <= share < 1:
        return "100 %" if share == 1 else "> 99.9 %"
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def round_top(largest: float, steps: Sequence[float] = ROUND) -> float:
    """The end of a scale: the next of 1, 2, 5, 10, …, or of other steps up to 10.

    >>> round_top(0.43), round_top(3.0), round_top(0.0)
    (0.5, 5.0, 1.0)
    """
    if largest <= 0 or not math.isfinite(largest):
        return 1.0
    power = 10.0 ** math.floor(math.log10(largest))
    for step in steps:
        top = step * power
        if largest <= top * (1 + 1e-9) < math.inf:
            return top
    return largest  # at the ends of the number range, where no round number is
