"""Marking by hand: every stage of a sheet is judged from the sheet's own stage before it.

    Setup, {stage: Written} ── mark ──> Marking: the mistakes, their slips, what follows from them

What a stage should be is computed from the numbers that were written, where there are any, else
from the right ones. How far a number may be off follows from the decimals: half a unit of its own
last place, and as much as the same rounding of what it is computed from can change it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.run import Step, needed, run
from attncli.attention.slips import Slip, slips
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.edits import variants
from attncli.check.marking import (
    FEWEST_DECIMALS,
    HIDES,
    MOST_CELLS_NAMED,
    Cell,
    Marking,
    Mistake,
    Written,
    decimal_text,
    half_units,
    near,
)
from attncli.check.run import steps_of
from attncli.check.setup import Setup
from attncli.errors import InputError
from attncli.files.messages import count
from attncli.stages import MASKED, OUTPUT, QKV, SCORES, kind_of
from attncli.trace import Stage

MOST_CELLS = 400
"""Larger tables nobody computes by hand."""


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


Place = tuple[int, ...]
Named = tuple[str, str]
"""A slip, and what its name leaves open."""


class _Table(NamedTuple):
    """A stage as it was written beside what it should be, all in the axes of the computation.

    half    half a unit of the last place of each number
    spread  how far off rounding of what it is computed from may put it
    wrong   where it is neither what should be there nor what is right
    """

    stage: str
    written: Written
    values: Array
    half: Array
    expected: Array
    spread: Array
    wrong: BoolArray

    @property
    def rounding(self) -> Array:
        """How far numbers may be from what was rounded to them; 0 where nothing had to be."""
        is_exact = near(self.values, self.expected, 0.0) & (self.spread == 0)
        is_whole = self.values == np.round(self.values)
        is_exact |= self.wrong & is_whole & (is_exact | self.wrong).all()
        rounded: Array = np.where(is_exact, 0.0, self.half)
        return np.where(np.isnan(self.values), self.spread, rounded)

    @property
    def filled(self) -> Array:
        """The numbers, blank ones as they should be, and those that stand for −∞."""
        hides = (self.values <= HIDES) & np.isneginf(self.expected)
        return np.where(np.isnan(self.values) | hides, self.expected, self.values)

    def agrees(self, other: Array, more: Array | float = 0) -> BoolArray:
        """Where the numbers are those of another table, or blank."""
        return near(self.values, other, self.half + more) | np.isnan(self.values)


class _Marker:
    """One sheet, while it is marked.

    setup  what is computed, with q, k and v as they were written
    own    the stages so far, as they were written, and how far off rounding may put their numbers
    """

    def __init__(
        self, setup: Setup, sheet: Mapping[str, Written], labels: Mapping[str, Sequence[str] | None]
    ) -> None:
        self.setup, self.sheet, self.own = setup, sheet, dict[str, tuple[Array, Array]]()
        self.labels = {axis: tuple(names) for axis, names in labels.items() if names}

    def marking(self) -> Marking:
        """Every stage judged, in the order of the computation."""
        names = (*QKV, *(step.name for step in _plan(self.setup)))
        stages = [name for name in names if name in self.sheet]
        right = run(_plan(self.setup), self.inputs(self.setup), stages)
        mistakes, follows, fully = list[Mistake](), list[str](), list[str]()
        n_numbers = n_blank = 0
        for stage in stages:
            shapes = self.sheet[stage].values.shape, self.shown(right[stage].shape)
            if [n for n in shapes[0] if n != 1] != [n for n in shapes[1] if n != 1]:
                mistakes.append(_of_shape(stage, *shapes, self.setup))
                continue
            if right[stage].size > MOST_CELLS:
                what = f"{stage} has {right[stage].size} numbers, more than are computed by hand"
                raise InputError(what, "leave out --by-hand")
            table = self.table(stage, right[stage])
            is_blank = np.isnan(table.values)
            n_numbers, n_blank = n_numbers + int((~is_blank).sum()), n_blank + int(is_blank.sum())
            if table.wrong.any():
                mistakes += self.mistakes(table)
            else:
                (fully if table.agrees(right[stage]).all() else follows).append(stage)
            self.keep(table)
        return Marking(tuple(mistakes), tuple(follows), tuple(fully), n_numbers, n_blank)

    def shown(self, axes: tuple[Any, ...]) -> tuple[Any, ...]:
        """Of the axes of a stage those that a sheet has."""
        return axes[len(axes) - min(self.setup.ndim, len(axes)) :]

    def table(self, stage: str, right: Array) -> _Table:
        """A stage judged: as it was written, and as it follows from what was written before."""
        written = self.sheet[stage]
        values = written.values.reshape(right.shape)
        half, expected = half_units(values, written.decimals), self.computed(stage, self.setup)
        spread = self.spread(stage, self.setup, expected)
        wrong = ~(near(values, expected, half + spread) | near(values, right, half))
        return _Table(stage, written, values, half, expected, spread, wrong & ~np.isnan(values))

    def keep(self, table: _Table) -> None:
        """Takes a stage as it was written for what comes after."""
        stage, filled = table.stage, table.filled
        self.own[stage] = filled, table.rounding
        if stage == MASKED:  # what is hidden from here on is what is hidden there
            hidden = np.where(np.isneginf(filled), -np.inf, 0.0)
            self.own["mask"] = hidden, np.zeros(hidden.shape)
        if stage in QKV:
            self.setup = self.setup.with_inputs(**{stage: filled})

    def inputs(self, setup: Setup) -> dict[str, Array]:
        """What the plan reads: the stages as they were written, where there are any."""
        own = {name: x for name, (x, _) in self.own.items() if name not in QKV}
        return {**setup.inputs, "rows": np.arange(setup.shape[2]), **own}

    def computed(self, stage: str, setup: Setup) -> Array:
        """A stage computed from the stages as they were written."""
        return run(_plan(setup), self.inputs(setup), [stage])[stage]

    def spread(self, stage: str, setup: Setup, value: Array) -> Array:
        """How far off rounding puts a stage that is computed from what was written.

        Each number that was read is put up and down by half a unit of its last place in turn.
        """
        plan, inputs, spread = _plan(setup), self.inputs(setup), np.zeros(value.shape)
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
        return spread * 1.05  # beyond the first order

    def mistakes(self, table: _Table) -> Iterator[Mistake]:
        """The wrong numbers of a stage by their slips: those of whole rows, else those of cells."""
        stage, cells = table.stage, {at: self.cell(table, at) for at in _places(table.wrong)}
        of_cell: dict[Place, list[Named]] = {at: [] for at in cells}
        every = frozenset(cells)
        of_rows = {every: [*_exchanged(table)]}
        for slip, detail, other in _others(self.setup):
            if (agrees := self.agreement(table, other)) is None:
                continue
            is_row = table.wrong & agrees.all(axis=-1, keepdims=True)
            of_rows.setdefault(frozenset(_places(is_row)), []).append((slip.name, detail))
            for at in _places(table.wrong & agrees) if slip.of_cell else ():
                of_cell[at].append((slip.name, detail))
        for at, slips_of_cell in of_cell.items():
            slips_of_cell.extend(_of_digits(table, at, cells[at].written))
        if len(every) == 1:
            of_rows[every] += next(iter(of_cell.values()))
        of_rows[every] = of_rows[every] or _common(of_cell.values())
        most = max((at for at, own in of_rows.items() if own), key=len, default=frozenset[Place]())
        if len(most) > 1 or most == every:
            yield Mistake(stage, tuple(cells.pop(at) for at in sorted(most)), _named(of_rows[most]))
        unnamed = [cell for at, cell in cells.items() if not of_cell[at]]
        for at, cell in cells.items():
            if of_cell[at] or len(unnamed) <= MOST_CELLS_NAMED:
                yield Mistake(stage, (cell,), _named(of_cell[at]))
        if len(unnamed) > MOST_CELLS_NAMED:
            yield Mistake(stage, tuple(unnamed))

    def agreement(self, table: _Table, other: Setup) -> BoolArray | None:
        """Where numbers are those of another formula; None where no number is near."""
        values, x = table.values, self.computed(table.stage, other)
        if x.shape != values.shape or not near(values, x, 10 * table.half + 0.05 * np.abs(x)).any():
            return None
        return table.agrees(x, self.spread(table.stage, other, x))

    def cell(self, table: _Table, at: Place) -> Cell:
        """A wrong number with its name: S[q3,k1]; with its head, where there are several."""
        kind, written, right = kind_of(table.stage), table.written, float(table.expected[at])
        whole = Stage(table.stage, "", "", table.values, tuple(kind.axes.split()), self.labels)
        names = tuple(map(whole.label, whole.axes, at))
        name = f"{kind.symbol or table.stage}[{','.join(self.shown(names))}]"
        text = str(written.texts.reshape(table.values.shape)[at])
        expected = decimal_text(right, max(written.decimals, FEWEST_DECIMALS))
        return Cell(name, self.shown(at), text, expected)


def _plan(setup: Setup) -> list[Step]:
    return steps_of(setup, "float64", setup.shape, setup.inputs["k"].shape[1])


def _others(setup: Setup) -> Iterator[tuple[Slip, str, Setup]]:
    """Every slip that this attention can have, with what its name leaves open."""
    for slip in slips():
        for patch in variants(slip.edits, setup, Evidence({}, {})):
            if (other := patch.on(setup)) is not None:
                yield slip, ", ".join(other.details), other


def _places(cells: BoolArray) -> list[Place]:
    return [tuple(map(int, at)) for at in np.argwhere(cells)]


# ---- slips that are no formula


def _exchanged(table: _Table) -> Iterator[Named]:
    """Two rows, two columns, or rows and columns that stand in each other's place."""
    others, expected = list[tuple[Named, Array]](), table.expected
    if expected.shape[-1] == expected.shape[-2]:
        others.append((("rows and columns are swapped", ""), np.swapaxes(expected, -1, -2)))
    for axis, kind in ((2, "rows"), (3, "columns")):
        own = np.flatnonzero(table.wrong.any(axis=tuple({0, 1, 2, 3} - {axis})))
        for a, b in combinations(own, 2):
            order = np.arange(expected.shape[axis])
            order[[a, b]] = b, a
            slip = f"two {kind} are swapped", f"{kind} {a + 1} and {b + 1}"
            others.append((slip, np.take(expected, order, axis=axis)))
    yield from (slip for slip, other in others if table.agrees(other).all())


def _of_digits(table: _Table, at: Place, text: str) -> Iterator[Named]:
    """How the digits of one number were written wrongly, and from which cell it may be copied."""
    x, right, allowed = (float(y[at]) for y in (table.values, table.expected, table.half))
    if not (math.isfinite(x) and math.isfinite(right)):
        return
    places = len(text.partition(".")[2])
    digits, correct = text.lstrip("-+"), f"{abs(right):.{places}f}"
    is_as_long = len(correct) == len(digits) > 1
    pairs = [(a, b) for a, b in zip(digits, correct, strict=True) if a != b] if is_as_long else []
    to = f"to {count(places, 'decimal') if places else 'whole numbers'}"
    is_short = places < FEWEST_DECIMALS and abs(x - right) <= 0.5 * 10.0**-places * (1 + 1e-9)
    is_cut = places and 0 < abs(right) - abs(x) < 10.0**-places and x * right >= 0
    is_shifted = right and any(abs(x - right / n) <= allowed for n in (0.01, 0.1, 10, 100))
    slips = {
        ("the sign is wrong", ""): right and abs(x + right) <= allowed,
        ("rounded too early", to): is_short,
        ("cut off, not rounded", ""): is_cut,
        ("the decimal point is in another place", ""): is_shifted,
        ("one digit is wrong", ""): len(pairs) == 1,
        ("two digits are exchanged", ""): len(pairs) == 2 and pairs[0] == pairs[1][::-1],
    }
    for words, by in {"above": (-1, 0), "below": (1, 0), "left": (0, -1), "right": (0, 1)}.items():
        i, j = at[-2] + by[0], at[-1] + by[1]
        is_there = 0 <= i < table.values.shape[-2] and 0 <= j < table.values.shape[-1]
        is_copy = is_there and abs(x - table.expected[(*at[:-2], i, j)]) <= allowed
        slips["copied from its neighbour", words] = is_copy
    yield from (slip for slip, applies in slips.items() if applies)


def _named(found: Iterable[Named]) -> tuple[str, ...]:
    """Slips in words, each once, with all that its name leaves open."""
    details = dict[str, list[str]]()
    for name, detail in found:
        details.setdefault(name, []).extend([detail] if detail else [])
    return tuple(
        ", ".join(filter(None, (name, " or ".join(dict.fromkeys(more)))))
        for name, more in details.items()
    )


def _common(each: Iterable[list[Named]]) -> list[Named]:
    """The slips that all of several numbers may have, else those of the same name."""
    first, *others = each
    same = [x for x in first if all(x in other for other in others)]
    names = [{name for name, _ in other} for other in others]
    return same or [(x, "") for x, _ in first if all(x in other for other in names)]


def _of_shape(stage: str, shape: Sequence[int], right: Sequence[int], setup: Setup) -> Mistake:
    """A table of another shape, and the product that has this one."""
    n_q, n_k, d_k = *setup.shape[2:], setup.d_k
    last = tuple(shape[-2:])
    slips = {
        "rows and columns are swapped": len(shape) > 1 and last == tuple(right[:-3:-1]),
        "Qᵀ K in the place of Q Kᵀ": stage == SCORES and last == (d_k, d_k) and n_q == n_k,
        "the weights times a table of queries and keys, not times V": (
            stage == OUTPUT and last == (n_q, n_k)
        ),
    }
    sizes = (" × ".join(map(str, x)) or "one number" for x in (shape, right))
    names = tuple(name for name, applies in slips.items() if applies)
    return Mistake(stage, (), names, "is {}, should be {}".format(*sizes))
