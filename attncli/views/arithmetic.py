"""The arithmetic of one cell in real numbers: S[q1,k1] = 1·1 + 0·1 = 1, and so for every stage.

Each stage's function gives an Equation from the numbers in the trace, so what is written is what
was computed. `--work` prints it on a line, `--cell` term by term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.trace import Stage
from attncli.views.numbers import short
from attncli.views.places import Level, Place
from attncli.views.safe import clean, shorten

Words = tuple[str, ...]
Vector = npt.NDArray[Any]

LARGE_SCORE = 20  # beyond it softmax is shown as it is computed: with the maximum subtracted
LABEL_CELLS = 12  # labels within a formula


class Equation(NamedTuple):
    """left = one form = the next = the result; words of a form may stand on separate lines."""

    left: str
    forms: tuple[Words, ...]
    remark: str = ""


class Spot(NamedTuple):
    """One cell of an attention's matrices: where it is and how its numbers are written.

    precision  decimals
    terms      the most terms of a sum that are written out
    at_length  whether intermediate forms are written that a single line has no room for
    """

    level: Level
    place: Place
    row: int
    column: int
    precision: int
    terms: int
    at_length: bool = False

    def cell(self, stage: Stage) -> str:
        """The cell as a formula calls it: S[q1,k1]."""
        row, column = (
            shorten(stage.label(axis, entry), LABEL_CELLS)
            for axis, entry in zip(stage.axes[-2:], (self.row, self.column), strict=True)
        )
        return f"{clean(stage.symbol)}[{row},{column}]"

    def matrix(self, stage: Stage) -> Vector:
        """The stage's matrix at this place."""
        return self.level.matrix(stage, self.place)

    def value(self, stage: Stage) -> float:
        """The stage's number in this cell."""
        return float(self.matrix(stage)[self.row, self.column])

    def write(self, x: float) -> str:
        """A number as it stands in a formula."""
        return short(float(x), self.precision)

    def factor(self, x: float) -> str:
        """A number after an operator: a negative one in parentheses."""
        text = self.write(x)
        return f"({text})" if text.startswith("-") else text

    def product(self, a: Vector, b: Vector) -> Words:
        """a·b, term by term."""
        with np.errstate(all="ignore"):
            values = a * b
        return self.sum(values, lambda i: f"{self.write(a[i])}·{self.factor(b[i])}")

    def sum(self, values: Vector, term: Callable[[int], str]) -> Words:
        """A sum of these values; where they are too many, its middle as one number."""
        n = len(values)
        if n <= self.terms:
            words = [term(i) for i in range(n)]
        else:
            head, tail = self.terms - self.terms // 3, n - self.terms // 3
            with np.errstate(all="ignore"):
                middle = self.write(values[head:tail].sum())
            left_out = f"… {tail - head} more: {middle} …"
            words = [*map(term, range(head)), left_out, *map(term, range(tail, n))]
        return (*words[:1], *(f"+ {_in_parentheses(word)}" for word in words[1:]))

    def equals(self, stage: Stage, *forms: Words | str, remark: str = "") -> Equation:
        """The equation that ends with the number the trace holds for this cell."""
        ways = tuple((form,) if isinstance(form, str) else form for form in forms)
        return Equation(self.cell(stage), (*ways, (self.write(self.value(stage)),)), remark)


def _in_parentheses(term: str) -> str:
    """A term after a plus: the leading factor in parentheses where it is negative."""
    first, dot, rest = term.partition("·")
    return f"({first}){dot}{rest}" if first.startswith("-") else term


def equation(spot: Spot, name: str) -> Equation | None:
    """How the named stage came to its number in this cell.

    None for a stage of another kind, or where what it was computed from is not in the trace.
    """
    stage = spot.level.stages[name]
    if name == "scores":
        return _scores(spot, stage)
    compute, source = _EQUATIONS.get(name), spot.level.before(name)
    if compute is None or source is None:
        return None
    sizes = slice(-2, -1) if name == "output" else slice(-2, None)
    same = source.value.ndim >= 2 and source.value.shape[sizes] == stage.value.shape[sizes]
    return compute(spot, stage, source) if same else None


def _scores(spot: Spot, stage: Stage) -> Equation | None:
    q, k = (spot.level.at(name, spot.place) for name in ("q", "k"))
    if q is None or k is None or (len(q), len(k)) != stage.value.shape[-2:]:
        return None
    return spot.equals(stage, spot.product(q[spot.row], k[spot.column]))


def _scaled(spot: Spot, stage: Stage, source: Stage) -> Equation | None:
    how, d_k = spot.level.convention, spot.level.size("d_k")
    cell, x = spot.cell(source), spot.write(spot.value(source))
    if isinstance(how.scale, str):
        return spot.equals(stage, f"{cell} / √d_k", f"{x} / {spot.write(math.sqrt(d_k))}")
    factor = spot.factor(how.scale)
    return spot.equals(stage, f"{cell} · {factor}", f"{x} · {factor}")


def _capped(spot: Spot, stage: Stage, source: Stage) -> Equation | None:
    cap = spot.level.convention.softcap
    if cap is None:
        return None
    cell, x, c = spot.cell(source), spot.write(spot.value(source)), spot.write(cap)
    return spot.equals(stage, f"c · tanh({cell} / c)", f"{c} · tanh({x} / {c})")


def _masked(spot: Spot, stage: Stage, source: Stage) -> Equation | None:
    mask = spot.level.mask(spot.place)
    if mask is None:
        return None
    bias = float(mask[spot.row, spot.column])
    if np.isneginf(bias):
        return spot.equals(stage, remark="masked: may not attend")
    cells = f"{spot.cell(source)} + {spot.cell(spot.level.stages['mask'])}"
    return spot.equals(stage, cells, f"{spot.write(spot.value(source))} + {spot.factor(bias)}")


def _weights(spot: Spot, stage: Stage, source: Stage) -> Equation | None:
    by_keys = spot.level.convention.softmax_over == "queries"
    matrix = spot.matrix(source).astype(np.float64)
    scores, at = (matrix[:, spot.column], spot.row) if by_keys else (matrix[spot.row], spot.column)
    allowed = ~np.isneginf(scores)
    if not allowed.any():
        return spot.equals(stage, remark=f"every {'query' if by_keys else 'key'} is masked")
    if not allowed[at]:
        return spot.equals(stage, remark="masked: exp(-inf) = 0")
    n_masked = len(scores) - int(allowed.sum())
    remark = f"and exp(-inf) = 0 for {n_masked} masked" if n_masked else ""
    return _softmax(spot, stage, scores[allowed], int(allowed[:at].sum()), remark)


def _softmax(spot: Spot, stage: Stage, scores: Vector, at: int, remark: str) -> Equation:
    """exp over the sum of exps, of scores of which none is −inf."""
    shift = float(scores.max()) if np.abs(scores).max() > LARGE_SCORE else 0.0
    minus = f" - {spot.factor(shift)}" if shift else ""
    with np.errstate(all="ignore"):
        exps = np.exp(scores - shift)
    own, whole = spot.write(exps[at]), spot.write(exps.sum())
    powers = spot.sum(exps, lambda i: f"exp({spot.write(scores[i])}{minus})")
    forms = [(f"exp({spot.write(scores[at])}{minus}) /", *_bracketed(powers))]
    if spot.at_length:
        terms = spot.sum(exps, lambda i: spot.write(exps[i]))
        forms.append((f"{own} /", *_bracketed(terms)))
    return spot.equals(stage, *forms, f"{own} / {whole}", remark=remark)


def _bracketed(words: Words) -> Words:
    return words if len(words) == 1 else (f"({words[0]}", *words[1:-1], f"{words[-1]})")


def _dropped(spot: Spot, stage: Stage, source: Stage) -> Equation | None:
    weight, kept = spot.value(source), 1 - spot.level.convention.dropout
    if spot.value(stage) == 0 and weight != 0:
        return spot.equals(stage, remark="dropped")
    cells = f"{spot.cell(source)} / {spot.write(kept)}"
    return spot.equals(stage, cells, f"{spot.write(weight)} / {spot.write(kept)}")


def _output(spot: Spot, stage: Stage, source: Stage) -> Equation | None:
    v, weights = spot.level.at("v", spot.place), spot.matrix(source)[spot.row]
    if v is None or len(v) != len(weights):
        return None
    return spot.equals(stage, spot.product(weights, v[:, spot.column]))


_EQUATIONS: dict[str, Callable[[Spot, Stage, Stage], Equation | None]] = {
    "scaled": _scaled,
    "capped": _capped,
    "masked": _masked,
    "weights": _weights,
    "dropped": _dropped,
    "output": _output,
}
