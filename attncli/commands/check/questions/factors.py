"""Two numbers at once: the scores times one factor, and the output times another.

One pair for everything, for each head, for each batch item, or for each head of each.

    rows ── outputs for a grid of factors of the scores ── the best, refined ──> Pair ──> Answer
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.edits import changed
from attncli.commands.check.bugs.patch import named, whole_plan
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.questions.rows import Rows, rows_of
from attncli.commands.check.questions.unwritten import KINDS
from attncli.commands.check.search import Search
from attncli.stages import GIVEN_GRADIENT, OUTPUT, SCALED, SCORES
from attncli.tolerance.rule import rms
from attncli.tolerance.run import stages
from attncli.tolerance.setup import Setup

GRID = np.exp(np.linspace(-4, 4, 65))
"""The factors of the scores that are tried: from 1/55 to 55, each 13 % more than the one before;
from the nearest one the steps of Gauss and Newton lead to the exact factor."""

STEPS = 12
"""Gauss and Newton double the number of right digits with each step."""

CELLS = 2**20
"""So many powers are computed for the grid, but those of two rows of each head: 8 MB."""

EXPLAINED = 1e-3
"""Of what is wrong two factors leave no more than this, beside rounding."""

ROUNDINGS = 8.0
"""So many units of rounding may be left of a number."""

MOST_SAID = 4
"""The factors of so many heads or batch items are said."""


class Pair(NamedTuple):
    """By what the scores and the output are multiplied."""

    scores: float
    output: float

    @property
    def text(self) -> str:
        """The two factors in words; "" where both are 1."""
        names = {"the scores": self.scores, "the output": self.output}
        return " and ".join(
            f"{name} times {x:.6g}" for name, x in names.items() if f"{x:.6g}" != "1"
        )

    def rounded(self, within: float) -> Pair:
        """The same with the shortest numbers that are so near in proportion."""
        return Pair(*(short_number(x, within) for x in self))


def short_number(x: float, within: float) -> float:
    """The number with the fewest digits that is so near in proportion, else the number itself."""
    shorter = (float(f"{x:.{digits}g}") for digits in range(1, 8))
    return next((y for y in shorter if abs(y - x) <= within * abs(x)), x)


class _Scores(NamedTuple):
    """Scores of rows, before a softcap and a mask, and what both make of them.

    free   [batch, head, row, key]: what a factor multiplies
    added  [batch, head, row, key]: the numbers of a mask; −∞ where it hides a key
    cap    of the softcap; 0 where there is none
    """

    rows: Rows
    free: Array
    added: Array
    cap: float

    def outputs(self, factors: Array) -> Array:
        """[…, batch, head, row, e] for factors of the scores […, batch, head, row]."""
        x = self.free * factors[..., None]
        x = (self.cap * np.tanh(x / self.cap) if self.cap else x) + self.added
        top = x.max(axis=-1, keepdims=True)
        sinks = self.rows.sinks
        if sinks is not None:
            top = np.maximum(top, sinks[:, None, None])
        powers = np.exp(x - top)
        total = powers.sum(axis=-1, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks[:, None, None] - top)
        return np.asarray((powers / total) @ self.rows.values)


def two_factors(search: Search) -> Iterator[Answer]:
    """The scores times a number and the output times another: of everything, or of its parts."""
    setup, sizes = search.comparison.setup, search.comparison.subset.sizes
    if OUTPUT not in search.evidence.observed:
        return
    per_head = max(2, CELLS // (len(GRID) * setup.shape[3] * sizes[0] * sizes[1]))
    n_rows = min(per_head, MOST_ROWS) * sizes[0] * sizes[1]
    rows = rows_of(search, OUTPUT, most=n_rows, every_head=True)
    if rows is None or not rows.is_usable.any():
        return
    scores = _scores_of(rows, setup)
    grid = np.broadcast_to(GRID[:, None, None, None], (len(GRID), *rows.over.sizes))
    tables = np.stack([scores.outputs(factors) for factors in grid])
    for axes in GROUPS:
        if any(sizes[axis] < 2 for axis in axes):
            continue
        if pairs := _pairs(scores, tables, axes, search.evidence.eps):
            yield from _answers(pairs, axes, search)


MOST_ROWS = 16
"""So many rows of a head tell two factors."""

GROUPS: tuple[tuple[int, ...], ...] = ((), (1,), (0,), (0, 1))
"""Along which axes the factors may differ: none, heads, batch items, both."""

_Pairs = Mapping[tuple[int, ...], Pair]


def _scores_of(rows: Rows, setup: Setup) -> _Scores:
    """What a factor of the scores multiplies, and what is made of it."""
    free = stages(setup, rows.over, [_place(setup)])[_place(setup)]
    cap = setup.convention.softcap or 0.0
    capped = cap * np.tanh(free / cap) if cap else free
    with np.errstate(invalid="ignore"):
        added = np.where(np.isfinite(rows.logits), rows.logits - capped, -np.inf)
    return _Scores(rows, np.where(np.isneginf(added), 0.0, free), added, cap)


def _place(setup: Setup) -> str:
    """The stage that a factor of the scores multiplies."""
    return SCALED if named(whole_plan(setup), SCALED) else SCORES


def _pairs(scores: _Scores, tables: Array, axes: tuple[int, ...], eps: float) -> _Pairs:
    """The factors of each group; none where those of one do not explain it.

    tables  [factor, batch, head, row, e]: the outputs for each factor of the grid
    """
    rows, pairs = scores.rows, dict[tuple[int, ...], Pair]()
    sizes = rows.over.sizes
    right = scores.outputs(np.ones(sizes))
    for group in np.ndindex(*(sizes[axis] for axis in axes)):
        at = np.zeros_like(rows.is_usable)
        place = dict(zip(axes, group, strict=True))
        index = tuple(place.get(axis, slice(None)) for axis in range(2))
        at[index] = rows.is_usable[index]
        observed = rows.observed[at]
        if observed.size < ENOUGH:
            return {}
        of_grid = tables[:, at]
        products = (of_grid * observed).sum(axis=(1, 2))
        squares = np.square(of_grid).sum(axis=(1, 2))
        best = int(np.argmax(np.square(products) / squares))
        pair = Pair(float(GRID[best]), float(products[best] / squares[best]))
        wrong, size = (rms(np.abs(x)) for x in (observed - right[at], observed))
        rest = rms(np.abs(observed - pair.output * of_grid[best]))
        if rest > LIKELY * wrong + ROUNDINGS * eps * size:
            return {}
        pair, rest = _refined(pair, scores, at)
        if not rest <= EXPLAINED * wrong + ROUNDINGS * eps * size:
            return {}
        pairs[group] = pair
    return pairs


LIKELY = 0.5
"""The nearest factor of the grid, off by 6 %, leaves less than this of what is wrong."""

ENOUGH = 8
"""So many numbers there must be for two factors."""


def _refined(pair: Pair, scores: _Scores, at: Array) -> tuple[Pair, float]:
    """The factors after steps of Gauss and Newton, and what they leave of the observed numbers."""
    observed, shape = scores.rows.observed[at], scores.rows.over.sizes
    a, b = pair
    step = 1e-5
    for _ in range(STEPS):
        output, more, less = (
            scores.outputs(np.full(shape, a * (1 + x * step)))[at] for x in (0, 1, -1)
        )
        slope = b * (more - less) / (2 * a * step)
        columns = np.stack([slope.ravel(), output.ravel()], axis=-1)
        if not np.isfinite(columns).all():
            return pair, np.inf
        change = np.linalg.lstsq(columns, (observed - b * output).ravel())[0]
        a, b = a + float(np.clip(change[0], -a / 2, a)), b + float(change[1])
    rest = rms(np.abs(observed - b * scores.outputs(np.full(shape, a))[at]))
    return Pair(a, b), rest


# ---- as answers


def _answers(pairs: _Pairs, axes: tuple[int, ...], search: Search) -> Iterator[Answer]:
    """The factors as short numbers, and as they are."""
    within = min(0.01, NEAR * search.evidence.eps)
    short = {group: pair.rounded(within) for group, pair in pairs.items()}
    for each in (short, pairs) if short != pairs else (short,):
        sentences = list[str]()
        for group, pair in each.items():
            words = ", ".join(
                f"{KINDS[axis]} {int(search.comparison.subset[axis][x]) + 1}"
                for axis, x in zip(axes, group, strict=True)
            )
            sentences += [f"in {words} {pair.text}" if words else pair.text] * bool(pair.text)
        more = len(sentences) - MOST_SAID
        text = "; ".join(sentences[:MOST_SAID]) + (f"; and in {more} more" if more > 0 else "")
        if text:
            yield Answer(text, _setups(each, axes, search), is_fitted=True)


NEAR = 2.0**12
"""So many units of rounding a factor may be off that is solved from rounded numbers."""


def _setups(pairs: _Pairs, axes: tuple[int, ...], search: Search) -> Iterator[Setup]:
    """The setups with these factors: in the gradients too, where there are any, or not in them."""
    setup, place = search.comparison.setup, _place(search.comparison.setup)
    of_scores, of_output = (
        _array([getattr(pair, name) for pair in pairs.values()], [*pairs], axes, search)
        for name in ("scores", "output")
    )
    arrays = {"scores.given_mask": of_scores, "output.given_mask": of_output}
    new, back = dict[str, str](), dict[str, str]()
    for stage, index, x in ((place, "j", of_scores), (OUTPUT, "0", of_output)):
        if (x != 1).any():
            name = "scores" if stage == place else "output"
            factor = f"{x.item():.17g}" if x.size == 1 else f"{name}_given_mask[b,h,i,{index}]"
            new[stage] = f"right * {factor}"
    if place in new:
        through = [f"{SCALED}.x"] if place == SCALED else ["scores.q", "scores.k"]
        back = dict.fromkeys(through, new[place].replace(",j]", ",0]"))
    setup = setup.with_inputs(**{x: y for x, y in arrays.items() if y.size > 1})
    lines = [
        "; ".join(f"{x}: => {text}" for x, text in edits.items()) for edits in (new | back, new)
    ]
    d_output = setup.inputs.get(GIVEN_GRADIENT)
    if d_output is not None:
        with_gradients = setup.with_inputs(**{GIVEN_GRADIENT: d_output * of_output})
        yield from changed(lines[:1], with_gradients, search.evidence)
    yield from changed(lines[1:], setup, search.evidence)


def _array(
    values: Sequence[float],
    groups: Sequence[tuple[int, ...]],
    axes: tuple[int, ...],
    search: Search,
) -> Array:
    """[batch or 1, head or 1, 1, 1]: the factors of the groups, 1 for what was not observed."""
    shape, over = search.comparison.setup.shape, search.comparison.subset
    factors = np.ones((*(shape[axis] if axis in axes else 1 for axis in range(2)), 1, 1))
    for group, value in zip(groups, values, strict=True):
        at = {axis: int(over[axis][x]) for axis, x in zip(axes, group, strict=True)}
        factors[at.get(0, 0), at.get(1, 0)] = value
    return factors
