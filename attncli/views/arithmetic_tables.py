"""The arithmetic of a cell in tables of positions and of word vectors; see arithmetic.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from attncli.attention.run import plain
from attncli.views.cell import Entry, between, bracketed
from attncli.views.parts import Equation
from attncli.views.text import clean, label_mark, shorten

PAIRS = ("pairs", "cosine", "row cosine", "arc")  # of which a row with itself says little


def _power(params: Mapping[str, Any], pair: int) -> str:
    """What the positions of a pair are divided by."""
    twice = "" if params["exponent"] == "paper" else "2·"
    return f"{plain(params['base'])}^({twice}{2 * pair}/{params['dim']})"


def _divisor(entry: Entry) -> Equation:
    """What the positions of a pair are divided by: the formula with its numbers for i and d."""
    label = shorten(entry.stage.label(entry.stage.axes[-1], entry.column))
    left = f"{clean(entry.stage.symbol)}[{label_mark(label)}]"
    return entry.equals(_power(entry.stage.params, entry.column), left=left)


def _position(entry: Entry) -> str:
    """The position in the label of the row."""
    label = entry.stage.label(entry.stage.axes[-2], entry.row)
    return label_mark(shorten(label.rpartition(" ")[2]))


def _angle(entry: Entry) -> Equation:
    """The position, divided."""
    return entry.equals(f"{_position(entry)} / {entry.write(entry.of('w').value)}")


def _wave(entry: Entry) -> Equation:
    """sin or cos of the angle of the column's pair."""
    wave, pair = ("sin", "cos")[entry.column % 2], entry.column // 2
    if "angles" not in entry.stage.reads:
        return entry.equals(f"{wave}({_position(entry)} / {_power(entry.stage.params, pair)})")
    angle = _angle(entry._replace(column=pair).of("angles"))
    return entry.equals(*(f"{wave}({form})" for (form,) in angle.forms))


def _rotary_angle(entry: Entry) -> Equation | None:
    """The position times a power of the base; where the rows are labelled with positions."""
    if "position" not in entry.stage.labels:
        return None
    params = entry.stage.params
    exponent = f"-{2 * entry.column}" if entry.column else "0"
    power = f"{plain(params['base'])}^({exponent}/{params['rotary_dim']})"
    return entry.equals(f"{_position(entry)}·{power}")


def _turned(entry: Entry) -> Equation:
    """A pair turned by its angle; what is no part of a pair stays."""
    x, r = entry.of("x"), int(entry.stage.params["r"])
    if entry.column >= r:
        return entry.equals(x.name)
    if entry.stage.params["layout"] == "halves":
        second, pair = divmod(entry.column, r // 2)
        places = pair, pair + r // 2
    else:
        pair, second = divmod(entry.column, 2)
        places = 2 * pair, 2 * pair + 1
    a, b = (x._replace(column=at).value for at in places)
    cos, sin = (entry.of(name)._replace(column=pair).value for name in ("cos", "sin"))
    first, sign, other = (sin, "+", cos) if second else (cos, "-", sin)
    return entry.equals(
        f"{entry.write(a)}·{entry.factor(first)} {sign} {entry.factor(b)}·{entry.factor(other)}"
    )


def _slope(entry: Entry) -> Equation:
    """2^(−8h/n) of n heads, a power of two; of further heads every other one of twice as many."""
    n, number = int(entry.stage.params["n"]), entry.column + 1
    if number > n:
        n, number = 2 * n, 2 * (number - n) - 1
    return entry.equals(f"2^(-8·{number}/{n})")


def _distance(entry: Entry) -> Equation:
    """The slope of the head times how far the key is from the query."""
    if np.isneginf(entry.value):
        return entry.equals(remark="masked: the key comes after its query")
    slope = entry.write(float(entry.of("m").matrix[0, entry.head]))
    i, j = entry.row + 1 + int(entry.stage.params["first_query"]), entry.column + 1
    apart = f"({i} - {j})" if entry.stage.params["causal"] else f"|{i} - {j}|"
    return entry.equals(f"-{slope}·{apart}")


def _difference(entry: Entry) -> Equation:
    """The second vector without the first."""
    a, b = (entry.of("x").matrix[at, entry.column] for at in (0, 1))
    return entry.equals(f"{entry.write(b)} - {entry.factor(a)}", left=_vector_name(entry))


def _analogy(entry: Entry) -> Equation:
    """The difference and the third vector."""
    c = entry.of("x").matrix[2, entry.column]
    terms = f"{entry.write(entry.of('difference').value)} + {entry.factor(c)}"
    return entry.equals(terms, left=_vector_name(entry))


def _vector_name(entry: Entry) -> str:
    return f"({clean(entry.stage.symbol)})[{entry.labels()[0]}]"


def _length(entry: Entry) -> Equation:
    a = entry.of("x").matrix[entry.column]
    squares = entry.sum(a.astype(np.float64) ** 2, lambda i: f"{entry.factor(float(a[i]))}²")
    name = shorten(entry.stage.label(entry.stage.axes[-1], entry.column))
    return entry.equals(between("√(", squares, ")"), left=f"‖{label_mark(name)}‖")


def _pair(entry: Entry) -> Equation:
    """The dot product, cosine or angle of two rows."""
    (a, b), places = entry.labels(), [entry.row, entry.column]
    if entry.stage.work == "pairs":
        row, other = entry.of("x").matrix[places]
        return entry.equals(entry.product(row, other), left=f"{a} · {b}")
    if entry.stage.work == "row cosine":
        row, other = entry.of("x").matrix[places].astype(np.float64)
        both = " · ".join(entry.write(float(np.linalg.norm(x))) for x in (row, other))
        products = (*bracketed(entry.product(row, other)), f"/ ({both})")
        quotient = f"{entry.write(row @ other)} / ({both})"
        return entry.equals(products, quotient, left=f"cos({a}, {b})")
    if entry.stage.work == "cosine":
        lengths = (entry.write(x) for x in entry.of("lengths").matrix[0, places])
        quotient = f"{entry.write(entry.of('dots').value)} / ({' · '.join(lengths)})"
        return entry.equals(quotient, left=f"cos({a}, {b})")
    cosine = entry.of("x").value
    if entry.value in (0, 180):  # and not what rounding leaves of it, 0.9999999999999998
        cosine = round(cosine)
    arc = f"arccos({entry.write(cosine)})"
    return Equation(f"angle({a}, {b})", ((arc,), (f"{entry.write(entry.value)}°",)))


TABLE_RULES: dict[str, Callable[[Entry], Equation | None]] = {
    "divisor": _divisor,
    "angle": _angle,
    "wave": _wave,
    "rotary angle": _rotary_angle,
    "turned": _turned,
    "slope": _slope,
    "distance": _distance,
    "length": _length,
    "difference": _difference,
    "analogy": _analogy,
    **dict.fromkeys(PAIRS, _pair),
}
