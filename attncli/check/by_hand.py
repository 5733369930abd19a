"""Marking by hand: every stage of a sheet is judged from the sheet's own stage before it.

    Setup, {stage: Written} ── mark ──> Marking: the mistakes, their slips, what follows from them

What a stage should be is computed from the numbers that were written, where there are any, else
from the right ones. How far a number may be off follows from the decimals: half a unit of its own
last place, and as much as the same rounding of what it is computed from can change it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.run import needed, run
from attncli.attention.slips import Slip, slips
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.edits import variants
from attncli.check.marking import MOST_CELLS_NAMED, Cell, Marking, Mistake, decimal_text
from attncli.check.run import steps_of
from attncli.check.setup import Setup
from attncli.errors import InputError
from attncli.files.messages import count
from attncli.stages import MASKED, QKV, kind_of

MOST_CELLS = 400
"""Larger tables nobody computes by hand."""
FEWEST_DECIMALS, FEWEST_DIGITS = 2, 3
"""A number that needs rounding has so many decimals, or so many digits if it is large."""
HIDES = -1e4
"""What is no larger stands for −∞."""


class Written(NamedTuple):
    """A stage as it was written: the axes are those of the inputs.

    values    the numbers; NaN where a cell is blank
    decimals  the most decimals of a number
    texts     the numbers as they were written
    """

    values: Array
    decimals: int
    texts: Array


def mark(
    setup: Setup, sheet: Mapping[str, Written], labels: Mapping[str, Sequence[str] | None] = {}
) -> Marking:
    """Judges every stage of a sheet from the stages before it.

    sheet   stage → what was written; q, k and v only where they are made of x
    labels  axis → the names of its rows or columns

    Raises InputError for a table that is too large to be computed by hand.

    >>> from attncli.check.setup import setup_of
    >>> setup = setup_of([[1, 0], [3, 1]], [[1, 2], [0, 1]], [[4, 0], [0, 2]])
    >>> scores = Written(np.array([[1.0, 0], [3, 1]]), 0, np.array([["1", "0"], ["3", "1"]]))
    >>> print(mark(setup, {"scores": scores}))
    one mistake: S[q2,k1] is 3, should be 5: a term is left out, that of dimension 2
    """
    with np.errstate(all="ignore"):
        return _Marker(setup, sheet, labels).marking()


@dataclass
class _Marker:
    """One sheet, while it is marked; `own` has the stages so far, as they were written."""

    setup: Setup
    sheet: Mapping[str, Written]
    labels: Mapping[str, Sequence[str] | None]
    own: dict[str, tuple[Array, Array]] = field(default_factory=dict)

    def marking(self) -> Marking:
        """Every stage judged, in the order of the computation."""
        names = [*QKV, *(step.name for step in _plan(self.setup))]
        stages = [name for name in names if name in self.sheet]
        whole = self.setup
        right = run(_plan(whole), _inputs(whole), [name for name in stages if name not in QKV])
        mistakes, follows, fully = list[Mistake](), list[str](), list[str]()
        n_numbers = n_blank = 0
        for stage in stages:
            truth = whole.inputs[stage] if stage in QKV else right[stage]
            expected, spread = (truth, np.zeros(truth.shape)) if stage in QKV else self.of(stage)
            written = self.sheet[stage]
            shape = truth.shape[truth.ndim - min(self.setup.ndim, truth.ndim) :]
            if _without_ones(written.values.shape) != _without_ones(shape):
                mistakes.append(_of_shape(stage, written.values.shape, shape, self.setup))
                continue
            if truth.size > MOST_CELLS:
                what = f"{stage} has {truth.size} numbers, more than are computed by hand"
                raise InputError(what, "leave out --by-hand")
            values = written.values.reshape(truth.shape)
            half, is_blank = half_units(values, written.decimals), np.isnan(values)
            wrong = ~near(values, expected, half + spread) & ~is_blank
            wrong &= ~near(values, truth, half)
            n_numbers, n_blank = n_numbers + int((~is_blank).sum()), n_blank + int(is_blank.sum())
            if wrong.any():
                mistakes += self.mistakes(stage, values, expected, half, wrong)
            else:
                is_right = (is_blank | near(values, truth, half)).all()
                (fully if is_right else follows).append(stage)
            filled = np.where(
                is_blank | (values <= HIDES) & np.isneginf(expected), expected, values
            )
            self.own[stage] = filled, _rounding(values, expected, half, spread, wrong)
            if stage == MASKED:  # what is hidden from here on is what is hidden there
                hidden = np.where(np.isneginf(filled), -np.inf, 0.0)
                self.own["mask"] = hidden, np.zeros(hidden.shape)
            if stage in QKV:
                self.setup = self.setup.with_inputs(**{stage: filled})
        return Marking(tuple(mistakes), tuple(follows), tuple(fully), n_numbers, n_blank)

    def of(self, stage: str, other: Setup | None = None) -> tuple[Array, Array]:
        """A stage computed from the stages as they were written, and how far off rounding puts it.

        Each number that was read is put up and down by half a unit of its last place in turn.
        """
        setup = other or self.setup
        plan, inputs = _plan(setup), _inputs(setup)
        inputs |= {name: x for name, (x, _) in self.own.items() if name not in QKV}
        value = run(plan, inputs, [stage])[stage]
        spread = np.zeros(value.shape)
        read = {name for step in needed(plan, inputs, [stage]) for name in step.reads.values()}
        for name in read & self.own.keys():
            x, half = inputs[name], self.own[name][1]
            for at in map(tuple, np.argwhere((half > 0) & np.isfinite(x))):
                changes = []
                for step in (half[at], -half[at]):
                    moved = x.copy()
                    moved[at] += step
                    changes.append(run(plan, {**inputs, name: moved}, [stage])[stage] - value)
                spread += np.nan_to_num(np.max(np.abs(changes), axis=0), posinf=0)
        return value, spread * 1.05  # beyond the first order

    def mistakes(
        self, stage: str, values: Array, expected: Array, half: Array, wrong: BoolArray
    ) -> Iterator[Mistake]:
        """The wrong numbers of a stage by their slips: those of whole rows, else those of cells."""
        of_cell: dict[tuple[int, ...], list[tuple[str, str]]] = {at: [] for at in _places(wrong)}
        every = frozenset(of_cell)
        of_rows = {every: [*_exchanged(values, expected, half, wrong)]}
        for slip, detail, other in _others(self.setup):
            if (agrees := self.agreement(stage, other, values, half)) is None:
                continue
            is_row = (agrees | np.isnan(values)).all(axis=-1, keepdims=True)
            of_rows.setdefault(frozenset(_places(wrong & is_row)), []).append((slip.name, detail))
            for at in _places(wrong & agrees) if slip.of_cell else ():
                of_cell[at].append((slip.name, detail))
        for at, slips_of_cell in of_cell.items():
            text = self.texts(stage, expected)[at]
            slips_of_cell.extend(_of_digits(text, at, values, expected, half))
        if len(every) == 1:
            of_rows[every] += next(iter(of_cell.values()))
        of_rows[every] = of_rows[every] or _common(of_cell.values())
        most = max((at for at, own in of_rows.items() if own), key=len, default=every)
        if most == every and not of_rows[every]:
            most = frozenset()
        cells = {at: self.cell(stage, at, expected) for at in of_cell}
        if len(most) > 1 or most == every:
            yield Mistake(stage, tuple(cells.pop(at) for at in sorted(most)), _named(of_rows[most]))
        unnamed = [cell for at, cell in cells.items() if not of_cell[at]]
        for at, cell in cells.items():
            if of_cell[at] or len(unnamed) <= MOST_CELLS_NAMED:
                yield Mistake(stage, (cell,), _named(of_cell[at]))
        if len(unnamed) > MOST_CELLS_NAMED:
            yield Mistake(stage, tuple(unnamed))

    def agreement(self, stage: str, other: Setup, values: Array, half: Array) -> BoolArray | None:
        """Where numbers are those of another formula; None where no number is near."""
        inputs = _inputs(other) | {n: x for n, (x, _) in self.own.items() if n not in QKV}
        x = run(_plan(other), inputs, [stage])[stage] if stage not in QKV else other.inputs[stage]
        if x.shape != values.shape or not near(values, x, 10 * half + 0.05 * np.abs(x)).any():
            return None
        return near(values, x, half + (0 if stage in QKV else self.of(stage, other)[1]))

    def texts(self, stage: str, expected: Array) -> Array:
        """The numbers of a stage as they were written, in four axes."""
        return self.sheet[stage].texts.reshape(expected.shape)

    def cell(self, stage: str, at: tuple[int, ...], expected: Array) -> Cell:
        """A wrong number with its name: S[q3,k1]; with its head, where there are several."""
        kind, parts = kind_of(stage), list[str]()
        shown = expected.ndim - min(self.setup.ndim, expected.ndim)
        for axis, place in [*zip(kind.axes.split(), at, strict=False)][shown:]:
            letter = {"query": "q", "key": "k"}.get(axis)
            names = self.labels.get(axis) or ()
            if letter:
                parts.append(names[place] if place < len(names) else f"{letter}{place + 1}")
            else:
                parts.append(f"{axis} {place + 1}" if axis in ("batch", "head") else f"{place + 1}")
        n = max(self.sheet[stage].decimals, FEWEST_DECIMALS)
        text = decimal_text(float(expected[at]), n)
        name = f"{kind.symbol or stage}[{','.join(parts)}]"
        return Cell(name, at[shown:], str(self.texts(stage, expected)[at]), text)


def _plan(setup: Setup) -> list[Any]:
    return steps_of(setup, "float64", setup.shape, setup.inputs["k"].shape[1])


def _inputs(setup: Setup) -> dict[str, Array]:
    return {**setup.inputs, "rows": np.arange(setup.shape[2])}


def _others(setup: Setup) -> Iterator[tuple[Slip, str, Setup]]:
    """Every slip that this attention can have, with what its name leaves open."""
    for slip in slips():
        for patch in variants(slip.edits, setup, Evidence({}, {})):
            if (other := patch.on(setup)) is not None:
                yield slip, ", ".join(other.details), other


# ---- how near


def half_units(values: Array, decimals: int) -> Array:
    """Half a unit of the last place of every number, which has two decimals or three digits."""
    with np.errstate(all="ignore"):
        digits = FEWEST_DIGITS - 1 - np.floor(np.log10(np.abs(np.nan_to_num(values))))
    fewest = np.nan_to_num(np.minimum(FEWEST_DECIMALS, digits), posinf=FEWEST_DECIMALS, neginf=0)
    result: Array = 0.5 * 10.0 ** -np.maximum(decimals, fewest) * (1 + 1e-6)
    return result


def _rounding(
    values: Array, expected: Array, half: Array, spread: Array, wrong: BoolArray
) -> Array:
    """How far numbers may be from what was rounded to them: 0 where nothing had to be rounded."""
    is_exact = near(values, expected, 0.0) & (spread == 0)
    is_whole = wrong & (values == np.round(values)) & (is_exact | wrong).all()
    result: Array = np.where(np.isnan(values), spread, np.where(is_exact | is_whole, 0.0, half))
    return result


def _without_ones(shape: Iterable[int]) -> list[int]:
    return [n for n in shape if n != 1]


def near(values: Array, expected: Array, allowed: Array | float) -> BoolArray:
    """Where numbers are no further from what they should be than is allowed."""
    with np.errstate(all="ignore"):
        floor = 1e-9 * np.maximum(1, np.abs(expected))
        is_near = np.abs(values - expected) <= allowed + np.where(np.isfinite(floor), floor, 0)
    hidden = np.isneginf(expected) & (values <= HIDES)
    both = np.isnan(values) & np.isnan(expected)
    result: BoolArray = is_near | (values == expected) | hidden | both
    return result


def _places(cells: BoolArray) -> list[tuple[int, ...]]:
    return [tuple(map(int, at)) for at in np.argwhere(cells)]


# ---- slips that are no formula


def _exchanged(
    values: Array, expected: Array, half: Array, wrong: BoolArray
) -> Iterator[tuple[str, str]]:
    """Two rows, two columns, or rows and columns that stand in each other's place."""
    if values.shape[-1] == values.shape[-2]:
        turned = np.swapaxes(expected, -1, -2)
        if (near(values, turned, half) | np.isnan(values)).all():
            yield "rows and columns are swapped", ""
    for axis, kind in ((-2, "rows"), (-1, "columns")):
        own = np.flatnonzero(wrong.any(axis=tuple({0, 1, 2, 3} - {axis % 4})))
        for a, b in combinations(own, 2):
            order = np.arange(values.shape[axis])
            order[[a, b]] = b, a
            if (near(values, np.take(expected, order, axis=axis), half) | np.isnan(values)).all():
                yield f"two {kind} are swapped", f"{kind} {a + 1} and {b + 1}"


def _of_digits(
    text: str, at: tuple[int, ...], values: Array, expected: Array, half: Array
) -> Iterator[tuple[str, str]]:
    """How the digits of one number were written wrongly, and from which cell it may be copied."""
    x, right, allowed = float(values[at]), float(expected[at]), float(half[at])
    if not (math.isfinite(x) and math.isfinite(right)):
        return
    places = len(text.partition(".")[2])
    if right and abs(x + right) <= allowed:
        yield "the sign is wrong", ""
    if places < FEWEST_DECIMALS and abs(x - right) <= 0.5 * 10.0**-places * (1 + 1e-9):
        yield "rounded too early", f"to {count(places, 'decimal') if places else 'whole numbers'}"
    if 0 < abs(right) - abs(x) < 10.0**-places and places and x * right >= 0:
        yield "cut off, not rounded", ""
    if any(abs(x * 10.0**n - right) <= allowed * 10.0**n and right for n in (-2, -1, 1, 2)):
        yield "the decimal point is in another place", ""
    digits, correct = text.lstrip("-+"), f"{abs(right):.{places}f}"
    if len(correct) == len(digits) > 1:
        pairs = [(a, b) for a, b in zip(digits, correct, strict=True) if a != b]
        if len(pairs) == 1:
            yield "one digit is wrong", ""
        elif len(pairs) == 2 and pairs[0] == pairs[1][::-1]:
            yield "two digits are exchanged", ""
    *outer, i, j = at
    n_rows, n_columns = values.shape[-2:]
    around = {"above": (i - 1, j), "below": (i + 1, j), "left": (i, j - 1), "right": (i, j + 1)}
    for words, (a, b) in around.items():
        is_there = 0 <= a < n_rows and 0 <= b < n_columns
        if is_there and abs(x - expected[(*outer, a, b)]) <= allowed:
            yield "copied from its neighbour", words


def _named(found: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Slips in words, each once, with all that its name leaves open."""
    details = dict[str, list[str]]()
    for name, detail in found:
        details.setdefault(name, []).extend([detail] if detail else [])
    return tuple(
        ", ".join(filter(None, (name, " or ".join(dict.fromkeys(more)))))
        for name, more in details.items()
    )


def _common(each: Iterable[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """The slips that all of several numbers may have, else those of the same name."""
    first, *others = each
    same = [x for x in first if all(x in other for other in others)]
    names = [{name for name, _ in other} for other in others]
    return same or [(x, "") for x, _ in first if all(x in other for other in names)]


def _of_shape(stage: str, shape: Sequence[int], right: Sequence[int], setup: Setup) -> Mistake:
    """A table of another shape, and the product that has this one."""
    n_q, n_k, d_k = *setup.shape[2:], setup.d_k
    names = list[str]()
    if len(shape) > 1 and tuple(shape[-2:]) == tuple(right[:-3:-1]):
        names.append("rows and columns are swapped")
    if stage == "scores" and tuple(shape[-2:]) == (d_k, d_k) and n_q == n_k:
        names.append("Qᵀ K in the place of Q Kᵀ")
    if stage == "output" and tuple(shape[-2:]) == (n_q, n_k):
        names.append("the weights times a table of queries and keys, not times V")
    sizes = (" × ".join(map(str, x)) or "one number" for x in (shape, right))
    return Mistake(stage, (), tuple(names), "is {}, should be {}".format(*sizes))
