"""Columns: which keys have other numbers in a stage with a number for every query and key.

All numbers of a key are 0, −∞ or NaN; those of another key; a factor times what they should be, or
more by an addend. The same is asked by the distance from the query, and for each head by itself.

    errors of a stage ── numbers of each column ── Reading of each ── same ones together ──> Answer
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.commands.check.bugs.patch import whole_plan
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.questions.counting import (
    GROUPS,
    MOST_APART,
    distance_text,
    first_position,
)
from attncli.commands.check.questions.counts import MOST_OTHERS, MOST_SAID, times_text
from attncli.commands.check.questions.factors import NEAR, short_number
from attncli.commands.check.questions.key_sets import KeySet, key_set
from attncli.commands.check.questions.rows import LARGEST, logits_of
from attncli.commands.check.questions.unwritten import KINDS
from attncli.commands.check.search import Search
from attncli.errors import joined
from attncli.formula.matrices import plain, shown
from attncli.stages import DROPPED, MASKED, WEIGHTS, spec_of
from attncli.tolerance.rule import rms
from attncli.tolerance.run import Indices
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import source_of

MOST_CELLS = 2**20
"""So many numbers of a stage are looked at, of rows that are evenly spread."""

ENOUGH = 3
"""So many numbers of a column confirm what is solved from it."""

LEFT = 0.05
"""Of what is wrong in a column its reading leaves no more than this share: the rounding of
bfloat16 is less. What all numbers say decides."""

Kind = Literal["number", "column", "factor", "addend"]


class Reading(NamedTuple):
    """What the numbers of a column are: all this number, those of this column, or this times or
    more than what is right."""

    kind: Kind
    value: float


class Columns(NamedTuple):
    """The numbers of some batch items and heads by column: of a key, or of a distance.

    observed, right  [cell, column]
    is_wrong         [cell, column]
    is_there         [cell, column]: whether there is such a number
    """

    observed: Array
    right: Array
    is_wrong: BoolArray
    is_there: BoolArray
    is_of_keys: bool

    def reading(self, at: int, eps: float) -> Reading | None:
        """What the numbers of a wrong column are; None where that is none of these."""
        cells = self.is_there[:, at]
        observed, right = self.observed[cells, at], self.right[cells, at]
        wrong = self.observed[self.is_wrong[:, at], at]
        number = math.nan if np.isnan(wrong[0]) else float(wrong[0]) + 0.0  # no -0, one NaN
        is_special = number == 0 or not math.isfinite(number)
        if np.array_equal(wrong, np.full_like(wrong, number), equal_nan=True) and (
            is_special or len(wrong) >= ENOUGH
        ):
            return Reading("number", number)
        if len(wrong) < ENOUGH:
            return None
        return self._of_column(at) or _multiple(observed, right, eps)

    def _of_column(self, at: int) -> Reading | None:
        """The other column whose right numbers these are."""
        if not self.is_of_keys:
            return None
        n = len(self.right)
        some = (
            np.arange(n) if n <= MOST_COMPARED else np.linspace(0, n - 1, MOST_COMPARED).astype(int)
        )
        observed, right = self.observed[some][:, [at]], self.right[some]
        is_finite = np.isfinite(right) & np.isfinite(right[:, [at]]) & (np.abs(observed) <= LARGEST)
        apart = np.where(is_finite, np.abs(observed - right), 0.0)
        wrong = np.where(is_finite, np.abs(right[:, [at]] - observed), 0.0)
        rest, size = (np.square(x).sum(axis=0) for x in (apart, wrong))
        is_near = (rest <= LEFT**2 * size) & (is_finite.sum(axis=0) >= ENOUGH)
        is_near[at] = False
        return Reading("column", float(np.flatnonzero(is_near)[0])) if is_near.any() else None


MOST_COMPARED = 256
"""So many numbers of a column are compared with those of every other one."""


def _multiple(observed: Array, right: Array, eps: float) -> Reading | None:
    """A factor by which numbers are multiplied, or an addend."""
    is_small = (np.abs(observed) <= LARGEST) & (np.abs(right) <= LARGEST)  # no infinity, nor NaN
    observed, right = observed[is_small], right[is_small]
    wrong, squares = rms(np.abs(observed - right)), float(right @ right)
    if len(right) < ENOUGH or not squares:
        return None
    within = min(0.01, NEAR * eps)
    factor, addend = float(observed @ right) / squares, float(np.median(observed - right))
    if rms(np.abs(observed - factor * right)) <= LEFT * wrong:
        return Reading("factor", short_number(factor, within))
    if rms(np.abs(observed - right - addend)) <= LEFT * wrong:
        times = short_number(math.exp(min(addend, EXPONENT)), within)
        is_count = 0 < times == round(times, 3)
        return Reading("addend", math.log(times) if is_count else short_number(addend, within))
    return None


EXPONENT = 100.0
"""A power of e with a larger exponent is no count."""


def columns_otherwise(search: Search) -> Iterator[Answer]:
    """Other numbers of some keys, or at some distances from the query, in the first wrong map."""
    errors, setup = search.comparison.errors, search.comparison.setup
    axes = spec_of(WEIGHTS).axes
    name = next((x for x, y in errors.items() if not y.matches and spec_of(x).axes == axes), None)
    is_usual = not setup.tiles and not setup.relabel and name not in (None, "d_bias")
    if name is None or not is_usual or errors[name].expected.shape[3] != setup.shape[3]:
        return
    subset = search.comparison.subset
    n_rows = max(1, MOST_CELLS // (len(subset.batch) * len(subset.head) * setup.shape[3]))
    rows = np.unique(np.linspace(0, len(subset.row) - 1, n_rows).astype(int))
    stage = errors[name]
    arrays = [x[:, :, rows] for x in (stage.observed, stage.expected, stage.wrong)]
    for groups in ((), *GROUPS):
        if all(subset.sizes[axis] > 1 for axis in groups):
            yield from _of_keys(search, name, arrays, groups)
    yield from _of_distances(search, name, arrays, subset.row[rows])


def _of_keys(
    search: Search, name: str, arrays: Sequence[Array], axes: tuple[int, ...]
) -> Iterator[Answer]:
    """The answer by keys, of all heads and batch items or of each by itself."""
    subset, setup = search.comparison.subset, search.comparison.setup
    n, of_group = setup.shape[3], dict[tuple[int, ...], Mapping[int, Reading]]()
    for group in np.ndindex(*(subset.sizes[axis] for axis in axes)):
        index = dict(zip(axes, group, strict=True))
        place = tuple(index.get(axis, slice(None)) for axis in range(2))
        observed, right, is_wrong = (x[place].reshape(-1, n) for x in arrays)
        is_there = np.ones(is_wrong.shape, np.bool_)
        columns = Columns(observed, right, is_wrong, is_there, is_of_keys=True)
        if (of_columns := _readings(columns, search.evidence.eps)) is None:
            return
        of_group[tuple(int(subset[axis][x]) for axis, x in index.items())] = of_columns
    if not any(of_group.values()):
        return
    places = np.arange(n)[None]
    setups = _setups(setup, name, _table(of_group, axes, setup, n, places))
    sentences, formulas = list[str](), list[str]()
    for group, readings in of_group.items():
        words = ", ".join(f"{KINDS[axis]} {x + 1}" for axis, x in zip(axes, group, strict=True))
        text, formula = _text(readings, n, name, setup)
        sentences += [f"in {words} {text}" if words else text] * bool(text)
        formulas += [formula] * bool(formula)
    more = f"; and in {len(sentences) - MOST_SAID} more" if len(sentences) > MOST_SAID else ""
    formula = formulas[0] if len(of_group) == 1 else ""
    is_fitted = any(_is_fitted(readings) for readings in of_group.values())
    yield Answer("; ".join(sentences[:MOST_SAID]) + more, setups, formula, is_fitted)


def _of_distances(
    search: Search, name: str, arrays: Sequence[Array], rows: Indices
) -> Iterator[Answer]:
    """The answer by the distance of a key from the query's own position."""
    setup = search.comparison.setup
    _, _, n_q, n_k = setup.shape
    first = first_position(setup)
    if first is None:
        return
    at = np.arange(n_k) - rows[:, None] + n_q - 1  # the distance, counted from the least one
    n = n_k + n_q - 1
    of_place = np.full((len(rows), n), -1)
    np.put_along_axis(of_place, at, np.arange(n_k)[None], axis=1)
    shape = (*arrays[0].shape[:2], *of_place.shape)
    index = np.broadcast_to(np.maximum(of_place, 0), shape)
    observed, right, is_wrong = (np.take_along_axis(x, index, -1).reshape(-1, n) for x in arrays)
    is_there = np.broadcast_to(of_place >= 0, shape).reshape(-1, n)
    columns = Columns(observed, right, is_wrong & is_there, is_there, is_of_keys=False)
    readings = _readings(columns, search.evidence.eps)
    if not readings or len(readings) > MOST_APART:
        return
    places = np.arange(n_k) - np.arange(n_q)[:, None] + n_q - 1
    table = _table({(): readings}, (), setup, n, places)
    noun, cell = _noun(name), f"{spec_of(name).symbol}[b,h,i,j]"
    sentences, formulas = list[str](), list[str]()
    for place, reading in readings.items():
        distance = place - n_q + 1
        words = distance_text(distance - first)
        sentences.append(
            _sentence(reading, words, noun, "counts", is_logits=name == _logits(setup))
        )
        offset = f"{distance:+d}".replace("+", "+ ").replace("-", "− ") if distance else ""
        formulas.append(f"{_right_side(reading, cell)} if j = i {offset}".rstrip())
    formula = ", ".join(formulas)
    is_fitted = _is_fitted(readings)
    yield Answer(joined(sentences), _setups(setup, name, table), formula, is_fitted)


def _readings(columns: Columns, eps: float) -> dict[int, Reading] | None:
    """What each wrong column is; None where one is nothing, or where all are by fitted numbers."""
    wrong = np.flatnonzero(columns.is_wrong.any(axis=0))
    readings = dict[int, Reading]()
    for at in wrong.tolist():
        if (reading := columns.reading(at, eps)) is None:
            return None
        readings[at] = reading
    values = {reading for reading in readings.values() if reading.kind != "column"}
    is_all = len(values) > 0 and len(wrong) == columns.right.shape[1]
    return None if is_all or len(values) > MOST_OTHERS else readings


def _is_fitted(readings: Mapping[int, Reading]) -> bool:
    """Whether a factor or an addend is one that is no count."""
    return any(
        x.kind == "factor" or (x.kind == "addend" and not _times(x)) for x in readings.values()
    )


def _times(reading: Reading) -> float:
    """How often a key counts that has this much more; 0 where that is no short number."""
    times = math.exp(min(reading.value, EXPONENT))
    return round(times, 3) if abs(times - round(times, 3)) < 1e-9 * times else 0.0


# ---- in words


def _logits(setup: Setup) -> str:
    """The masked scores, where softmax reads these; else ""."""
    planned = dict.fromkeys(step.name for step in whole_plan(setup))
    return MASKED if source_of(MASKED, planned) == logits_of(setup) else ""


NOUNS = {
    "scaled": "scaled scores",
    "capped": "capped scores",
    MASKED: "masked scores",
    DROPPED: "dropped weights",
}

WEIGHTS_OF = WEIGHTS, NOUNS[DROPPED]


def _noun(name: str) -> str:
    return NOUNS.get(name, name)


def _text(readings: Mapping[int, Reading], n: int, name: str, setup: Setup) -> tuple[str, str]:
    """The readings of keys in words, and as a formula."""
    noun, cell, is_logits = _noun(name), f"{spec_of(name).symbol}[b,h,i,j]", name == _logits(setup)
    sentences, formulas = list[str](), list[str]()
    for reading in dict.fromkeys(readings.values()):
        members = np.isin(np.arange(n), [x for x, y in readings.items() if y == reading])
        keys: KeySet = key_set(members, np.ones(n, np.bool_))
        verb = "counts" if keys.is_one else "count"
        sentences.append(_sentence(reading, keys.words, noun, verb, is_logits=is_logits))
        condition = shown(keys.inside).replace("==", "=") if keys.inside else "j is one of these"
        formulas.append(f"{_right_side(reading, cell)} if {condition}")
    more = len(sentences) - MOST_SAID
    text = joined(sentences[:MOST_SAID]) + (f", and {more} more" if more > 0 else "")
    return text, ", ".join(formulas[:MOST_SAID])


def _sentence(reading: Reading, words: str, noun: str, verb: str, *, is_logits: bool) -> str:
    """What the numbers of some keys are."""
    kind, value = reading
    if kind == "number":
        if np.isneginf(value) and is_logits:
            return f"{words} {verb} 0 times: hidden in {noun}"
        if value == 0 and noun in WEIGHTS_OF:
            return f"the {noun} of {words} are 0 after the softmax: what remains does not sum to 1"
        if value == 0 or math.isnan(value):
            return f"the {noun} of {words} are {value:g}: not written".replace("nan", "NaN")
        return f"the {noun} of {words} are {plain(value)}".replace("-inf", "−∞")
    if kind == "column":
        return f"the {noun} of {words} are those of key {int(value) + 1}"
    if kind == "factor":
        return f"the {noun} of {words} are multiplied by {value:.6g}"
    if is_logits and (times := _times(reading)):
        return f"{words} {verb} {times_text(times)}: {noun} are larger by ln {times:g}"
    return f"{value:.6g} is added to the {noun} of {words}"


def _right_side(reading: Reading, cell: str) -> str:
    kind, value = reading
    times = _times(reading) if kind == "addend" else 0.0
    right = {
        "number": plain(value).replace("-inf", "−∞").replace("nan", "NaN"),
        "column": f"right[b,h,i,{int(value) if kind == 'column' else 0}]",
        "factor": f"right · {value:.6g}",
        "addend": f"right + {f'ln {times:g}' if times else f'{value:.6g}'}",
    }[kind]
    return f"{cell} = {right}"


# ---- as setups


class Table(NamedTuple):
    """What becomes of the numbers at each place.

    at       [row or 1, key]: which place is that of a number
    whole    the axes (0 batch, 1 head, 2 query) along which it differs
    others   [batch or 1, head or 1, place]: of each place
    """

    at: Indices
    whole: tuple[int, ...]
    is_number: Array
    number: Array
    factor: Array
    addend: Array
    source: Array

    def on(self, x: Array, *, hides: float | None) -> Array:
        """The numbers of a stage, changed; hidden ones stay so, where there is a number for it."""
        of_cell = [y[..., self.at] for y in (self.is_number, self.number, self.factor, self.addend)]
        is_number, number, factor, addend = of_cell
        result = x
        if (self.source >= 0).any():
            places = np.arange(x.shape[-1])
            source = np.where(self.source >= 0, self.source, places)[..., None, :]
            result = np.take_along_axis(x, np.broadcast_to(source, x.shape), axis=-1)
        with np.errstate(invalid="ignore"):
            result = result * factor.astype(x.dtype) + addend.astype(x.dtype)
        is_number = is_number if hides is None else is_number & (x != hides)
        return np.where(is_number, number.astype(x.dtype), result)


def _table(
    of_group: Mapping[tuple[int, ...], Mapping[int, Reading]],
    axes: Sequence[int],
    setup: Setup,
    n: int,
    at: Indices,
) -> Table:
    """The table of the readings of each group."""
    lead = [setup.shape[axis] if axis in axes else 1 for axis in range(2)]
    shape = (*lead, n)
    values = {
        "number": np.zeros(shape),
        "factor": np.ones(shape),
        "addend": np.zeros(shape),
        "column": np.full(shape, -1.0),
    }
    is_number = np.zeros(shape, np.bool_)
    for group, readings in of_group.items():
        index = dict(zip(axes, group, strict=True))
        for place, (kind, value) in readings.items():
            cell = index.get(0, 0), index.get(1, 0), place
            values[kind][cell] = value
            is_number[cell] = kind == "number"
    whole = (*axes, *((2,) if len(at) > 1 else ()))
    return Table(
        at,
        whole,
        is_number,
        number=values["number"],
        factor=values["factor"],
        addend=values["addend"],
        source=values["column"].astype(np.intp),
    )


def _setups(setup: Setup, name: str, table: Table) -> Iterator[Setup]:
    """The setups whose stage has these numbers: hidden ones as well, or not those."""
    planned = dict.fromkeys(step.name for step in whole_plan(setup))
    step, whole = source_of(name, planned), setup.with_whole(*table.whole)
    for hides in (None, -np.inf, 0.0):
        if hides is None or table.is_number.any():
            yield whole.with_result(step, partial(table.on, hides=hides))
