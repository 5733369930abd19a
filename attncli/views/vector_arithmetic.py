"""The arithmetic of one cell of what is not an attention: positions, and how alike vectors are.

As in arithmetic.py, each stage's function gives an Equation from the numbers in the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.trace import Stage
from attncli.views.arithmetic import Equation, Spot
from attncli.views.safe import shorten

Vector = npt.NDArray[Any]


def equation(spot: Spot, name: str) -> Equation | None:
    """How the named stage came to its number in this cell; None for a stage of another kind."""
    compute = _EQUATIONS.get(name)
    return None if compute is None else compute(spot, spot.level.stages[name])


def _divisors(spot: Spot, stage: Stage) -> Equation | None:
    """How slowly a pair turns: the formula with its numbers in place of i and d."""
    table = spot.level.stages.get("positions")
    power = stage.formula.partition(" = ")[2]
    if table is None or not power:
        return None
    filled = power.replace("2i", str(2 * spot.column)).replace("/d", f"/{table.value.shape[-1]}")
    divisor = spot.write(float(stage.value[spot.column]))
    return Equation(f"{stage.symbol}[{stage.label('pair', spot.column)}]", ((filled,), (divisor,)))


def _angles(spot: Spot, stage: Stage) -> Equation | None:
    """θ = pos / w, of a table of positions; angles between words are in degrees."""
    if "word" in stage.axes:
        return _between(spot, stage)
    divisors = spot.level.stages.get("divisors")
    if divisors is None or "position" not in stage.axes:
        return None
    divisor = float(divisors.value[spot.column])
    return spot.equals(stage, f"{_position(stage, spot.row)} / {spot.write(divisor)}")


def _positions(spot: Spot, stage: Stage) -> Equation | None:
    """sin or cos of the angle of the column's pair."""
    angles, divisors = (spot.level.stages.get(name) for name in ("angles", "divisors"))
    if angles is None or divisors is None:
        return None
    pair, wave = spot.column // 2, ("sin", "cos")[spot.column % 2]
    quotient = f"{_position(stage, spot.row)} / {spot.write(float(divisors.value[pair]))}"
    angle = spot.write(float(angles.value[spot.row, pair]))
    return spot.equals(stage, f"{wave}({quotient})", f"{wave}({angle})")


def _position(stage: Stage, row: int) -> str:
    """The position that a row stands for: the number in its label."""
    return stage.label("position", row).rpartition(" ")[2]


def _input(spot: Spot, stage: Stage) -> Equation | None:
    words, table = (spot.level.stages.get(name) for name in ("embeddings", "positions"))
    if words is None or table is None or words.value.shape != stage.value.shape:
        return None
    summands = spot.write(spot.value(words)), spot.factor(spot.value(table))
    return spot.equals(stage, " + ".join(summands))


def _dots(spot: Spot, stage: Stage) -> Equation | None:
    rows = spot.level.stages.get("vectors") or spot.level.stages.get("positions")
    if rows is None:
        return None
    spot = _apart(spot, stage)
    a, b = rows.value[spot.row], rows.value[spot.column]
    return Equation(_pair(spot, stage), (spot.product(a, b), (spot.write(spot.value(stage)),)))


def _lengths(spot: Spot, stage: Stage) -> Equation | None:
    vectors = spot.level.stages.get("vectors")
    if vectors is None:
        return None
    a = vectors.value[spot.column]
    squares = spot.sum(a.astype(np.float64) ** 2, lambda i: f"{spot.factor(float(a[i]))}²")
    under_root = (f"√({squares[0]}", *squares[1:-1], f"{squares[-1]})") if len(a) > 1 else squares
    name = shorten(stage.label("word", spot.column))
    return Equation(f"‖{name}‖", (under_root, (spot.write(float(stage.value[spot.column])),)))


def _cosines(spot: Spot, stage: Stage) -> Equation | None:
    dots, lengths = (spot.level.stages.get(name) for name in ("dots", "lengths"))
    if dots is None or lengths is None:
        return None
    spot = _apart(spot, stage)
    a, b = (spot.write(float(lengths.value[at])) for at in (spot.row, spot.column))
    quotient = f"{spot.write(spot.value(dots))} / ({a} · {b})"
    left = f"cos({_names(spot, stage, ', ')})"
    return Equation(left, ((quotient,), (spot.write(spot.value(stage)),)))


def _between(spot: Spot, stage: Stage) -> Equation | None:
    cosines = spot.level.stages.get("cosines")
    if cosines is None:
        return None
    spot = _apart(spot, stage)
    arc = f"arccos({spot.write(spot.value(cosines))})"
    left = f"angle({_names(spot, stage, ', ')})"
    return Equation(left, ((arc,), (f"{spot.write(spot.value(stage))}°",)))


def _apart(spot: Spot, stage: Stage) -> Spot:
    """Another pair than one entry with itself, which says nothing, where there is one."""
    if spot.row == spot.column and spot.column + 1 < stage.value.shape[-1]:
        return spot._replace(column=spot.column + 1)
    return spot


def _names(spot: Spot, stage: Stage, between: str) -> str:
    at = zip(stage.axes[-2:], (spot.row, spot.column), strict=True)
    return between.join(shorten(stage.label(axis, entry)) for axis, entry in at)


def _pair(spot: Spot, stage: Stage) -> str:
    return _names(spot, stage, " · ")


_EQUATIONS: dict[str, Callable[[Spot, Stage], Equation | None]] = {
    "divisors": _divisors,
    "angles": _angles,
    "positions": _positions,
    "input": _input,
    "dots": _dots,
    "lengths": _lengths,
    "cosines": _cosines,
}
