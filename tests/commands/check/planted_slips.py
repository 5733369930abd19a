"""Slips of a hand in NumPy, planted in random sheets, and what a mark of such a sheet should say.

Nothing here comes from the table of slips: each is written as a pupil would compute it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.by_hand.marking import Written

Stages = dict[str, Array]
CHAIN = ("scores", "scaled", "masked", "weights", "output")


def softmax(x: Array, axis: int = -1) -> Array:
    with np.errstate(invalid="ignore"):  # a row with nothing to attend to
        powers = np.exp(x - x.max(axis=axis, keepdims=True))
        shares: Array = powers / powers.sum(axis=axis, keepdims=True)
        return shares


def transposed(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def hidden(n_q: int, n_k: int) -> Array:
    later: Array = np.arange(n_k) > np.arange(n_q)[:, None]
    return later


def stages(inputs: tuple[Array, ...], wrong: Stages, *, causal: bool = False) -> Stages:
    """Attention in NumPy; each stage follows from those before it, wrong ones included."""
    q, k, v = inputs
    s: Stages = {"scores": wrong.get("scores", q @ transposed(k))}
    s["scaled"] = wrong.get("scaled", s["scores"] / np.sqrt(q.shape[-1]))
    if causal:
        is_later = hidden(q.shape[-2], k.shape[-2])
        s["masked"] = wrong.get("masked", np.where(is_later, -np.inf, s["scaled"]))
    s["weights"] = wrong.get("weights", softmax(s["masked" if causal else "scaled"]))
    s["output"] = wrong.get("output", s["weights"] @ v)
    return s


def rounded(inputs: tuple[Array, ...], wrong: Stages, decimals: int, *, causal: bool) -> Stages:
    """The same, each stage computed from the rounded one before it."""
    written: Stages = {}
    for name in stages(inputs, {}, causal=causal):
        own = {name: wrong[name]} if name in wrong else {}
        written[name] = stages(inputs, written | own, causal=causal)[name].round(decimals)
    return written


def sheet_of(numbers: Stages, decimals: int) -> dict[str, Written]:
    return {name: Written(np.round(x, decimals), decimals) for name, x in numbers.items()}


def one(numbers: Array, at: tuple[int, ...], value: float) -> Array:
    x = numbers.copy()
    x[at] = value
    return x


class Sheet(NamedTuple):
    """What a slip is made in: the inputs, the right stages, and a cell of each stage."""

    q: Array
    k: Array
    v: Array
    stages: Stages
    cell: tuple[int, ...]

    @property
    def scores(self) -> Array:
        return self.stages["scores"]

    @property
    def scaled(self) -> Array:
        return self.stages["scaled"]

    @property
    def weights(self) -> Array:
        return self.stages["weights"]

    @property
    def output(self) -> Array:
        return self.stages["output"]

    @property
    def is_hidden(self) -> Array:
        return hidden(self.q.shape[-2], self.k.shape[-2])


def sheet_with(
    inputs: tuple[Array, Array, Array], cell: tuple[int, ...] = (0, 0), *, causal: bool
) -> Sheet:
    q, k, v = inputs
    return Sheet(q, k, v, stages(inputs, {}, causal=causal), cell)


def _term(sheet: Sheet, factor: float) -> Array:
    """A score with so many times its last term more."""
    i, j = sheet.cell
    term = sheet.q[i, -1] * sheet.k[j, -1]
    return one(sheet.scores, sheet.cell, sheet.scores[sheet.cell] + factor * term)


def _term_of_output(sheet: Sheet, factor: float) -> Array:
    i, e = sheet.cell
    term = sheet.weights[i, 1] * sheet.v[1, e]
    return one(sheet.output, sheet.cell, sheet.output[sheet.cell] + factor * term)


def _exp(sheet: Sheet) -> Array:
    powers: Array = np.exp(sheet.scaled)
    return powers


def _swapped(x: Array, axis: int) -> Array:
    order = [*range(x.shape[axis])]
    order[-2:] = order[:-3:-1]
    return np.take(x, order, axis)


def _of_next_row(x: Array, at: int) -> Array:
    return one(x, (at,), x[(at + 1) % len(x)])


def _cut(x: Array, decimals: int) -> Array:
    cut: Array = np.trunc(x * 10**decimals) / 10**decimals
    return cut


def _per_row(numbers: Array, divisor: Array) -> Array:
    quotient: Array = numbers / divisor.sum(-1, keepdims=True)
    return quotient


Planted = tuple[str, Callable[[Sheet], Array], str]
"""The stage, what is written there, and what inputs it needs: square, heads, causal, wide."""
PLANTED: dict[str, Planted] = {
    "K is not transposed": ("scores", lambda s: s.q @ s.k, "square"),
    "K of another head": ("scores", lambda s: s.q @ transposed(s.k[::-1]), "heads"),
    "added in place of multiplied": ("scores", lambda s: (s.q[:, None] + s.k).sum(-1), ""),
    "a term is left out": ("scores", lambda s: _term(s, -1), ""),
    "a term has the wrong sign": ("output", lambda s: _term_of_output(s, -2), ""),
    "a term is counted twice": ("output", lambda s: _term_of_output(s, 1), ""),
    "the sign is wrong": ("scaled", lambda s: -s.scaled, ""),
    "not divided by √d_k": ("scaled", lambda s: s.scores, ""),
    "divided by d_k, not by √d_k": ("scaled", lambda s: s.scores / s.q.shape[-1], ""),
    "multiplied by √d_k, not divided": (
        "scaled", lambda s: s.scores * np.sqrt(s.q.shape[-1]), "",
    ),
    "divided by the square root of the number of keys": (
        "scaled", lambda s: s.scores / np.sqrt(s.k.shape[-2]), "",
    ),
    "divided by the number of keys": ("scaled", lambda s: s.scores / s.k.shape[-2], ""),
    "divided by the square root of d_model, the width of all heads": (
        "scaled", lambda s: s.scores / np.sqrt(2 * s.q.shape[-1]), "heads",
    ),
    "√d_k is rounded too early": (
        "scaled", lambda s: s.scores / np.sqrt(s.q.shape[-1]).round(1), "",
    ),
    "the mask is left out": ("masked", lambda s: s.scaled, "causal"),
    "0 in place of −∞": ("masked", lambda s: np.where(s.is_hidden, 0, s.scaled), "causal"),
    "the mask is of the other triangle": (
        "masked", lambda s: np.where(s.is_hidden.T, -np.inf, s.scaled), "causal square",
    ),
    "a query does not see its own key": (
        "masked", lambda s: np.where(~s.is_hidden.T, -np.inf, s.scaled), "causal square",
    ),
    "no exp, each score is divided by the sum of its row": (
        "weights", lambda s: _per_row(s.scaled, s.scaled), "",
    ),
    "softmax over columns, not over rows": ("weights", lambda s: softmax(s.scaled, 0), ""),
    "exp, but not divided by the sum of the row": ("weights", _exp, ""),
    "divided by the sum of another row": (
        "weights", lambda s: _exp(s) / _of_next_row(_exp(s).sum(-1, keepdims=True), 0), "",
    ),
    "exp with another base than e": (
        "weights", lambda s: _per_row(10**s.scaled, 10**s.scaled), "",
    ),
    "softmax of the whole table, not of the row": (
        "weights", lambda s: _exp(s) / _exp(s).sum(), "",
    ),
    "exp(−Z) in place of exp(Z)": ("weights", lambda s: softmax(-s.scaled), ""),
    "no softmax": ("weights", lambda s: s.scaled, ""),
    "softmax twice": ("weights", lambda s: softmax(s.weights), ""),
    "ReLU in place of exp": (
        "weights", lambda s: _per_row(np.maximum(s.scaled, 0), np.maximum(s.scaled, 0)), "square",
    ),
    "the mask is applied after softmax, so the rows do not sum to 1": (
        "weights", lambda s: np.where(s.is_hidden, 0, softmax(s.scaled)), "causal",
    ),
    "a term is missing from the sum of exp": (
        "weights", lambda s: _per_row(_exp(s), _exp(s)[:, 1:]), "",
    ),
    "exp is rounded too early": (
        "weights", lambda s: _per_row(_exp(s).round(1), _exp(s).round(1)), "",
    ),
    "a column of the weights is used, not their row": (
        "output", lambda s: s.weights.T @ s.v, "square",
    ),
    "the values are added without their weights": (
        "output", lambda s: np.ones_like(s.weights) @ s.v, "",
    ),
    "V of another head": ("output", lambda s: s.weights @ s.v[::-1], "heads"),
    "the plain mean of the values": (
        "output", lambda s: np.ones_like(s.weights) / s.k.shape[-2] @ s.v, "",
    ),
    "the scores in place of the weights": ("output", lambda s: s.scores @ s.v, ""),
    "the scores in place of the values": ("output", lambda s: s.weights @ s.scores, "square"),
    "K in place of V": ("output", lambda s: s.weights @ s.k, "square"),
    "V is transposed": ("output", lambda s: s.weights @ s.v.T, "square"),
    "the weights are rounded too early": (
        "output", lambda s: s.weights.round(1) @ s.v, "wide",
    ),
    "rows and columns are swapped": ("weights", lambda s: s.weights.T, "square"),
    "two rows are swapped": ("scores", lambda s: _swapped(s.scores, 0), ""),
    "two columns are swapped": ("output", lambda s: _swapped(s.output, 1), ""),
    "the numbers of another row": ("scaled", lambda s: _of_next_row(s.scaled, 1), ""),
    "rounded too early": ("scaled", lambda s: s.scaled.round(2), ""),
    "truncated, not rounded": ("scaled", lambda s: _cut(s.scaled, 3), ""),
    "the decimal point is in the wrong place": (
        "weights", lambda s: one(s.weights, s.cell, s.weights[s.cell].round(4) * 10), "",
    ),
    "copied from its neighbour": (
        "weights", lambda s: one(s.weights, s.cell, s.weights[abs(s.cell[0] - 1), s.cell[1]]), "",
    ),
}  # fmt: skip
ELSEWHERE: list[tuple[str, Planted]] = [
    ("not divided by √d_k", ("weights", lambda s: softmax(s.scores), "")),
    ("the mask is left out", ("weights", lambda s: softmax(s.scaled), "causal")),
    (
        "exp, but not divided by the sum of the row",
        ("weights", lambda s: np.exp(s.scaled - s.scaled.max(-1, keepdims=True)), ""),
    ),
    ("rows and columns are swapped", ("scores", lambda s: s.scores.T, "square")),
    ("two rows are swapped", ("output", lambda s: _swapped(s.output, 0), "")),
]
"""The same slips in other stages."""


def exercise(rng: np.random.Generator, needs: str = "") -> tuple[Array, Array, Array]:
    """Inputs as exercises have them: small whole numbers, or numbers of one decimal."""
    n_q, n_k, d_k, d_v = rng.integers(2, 5, size=4)
    front: tuple[int, ...] = (2,) if "heads" in needs else ()
    if "square" in needs:
        n_q = d_k = d_v = n_k
    if "wide" in needs:
        d_v = 5
    shapes = ((n_q, d_k), (n_k, d_k), (n_k, d_v))
    if rng.random() < 0.5:
        q, k, v = (rng.integers(-4, 5, size=(*front, *x)).astype(float) for x in shapes)
    else:
        q, k, v = (rng.normal(size=(*front, *x)).round(1) for x in shapes)
    return q, k, v
