"""Marking by hand: every stage of a sheet is judged from the sheet's own stage before it.

    Setup, {stage: Written} ── mark ──> Marking: the mistakes, their slips, what follows from them

What a stage should be is computed from the numbers that were written, where there are any, else
from the right ones. How far a number may be off follows from the decimals: half a unit of its own
last place, and as much as the same rounding of what it is computed from can change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.run import Step, needed, run
from attncli.attention.slips import slips
from attncli.commands.check.bugs.bug import Evidence
from attncli.commands.check.bugs.edits import variants
from attncli.commands.check.bugs.facts import full
from attncli.commands.check.bugs.rewrite import letters_of
from attncli.commands.check.by_hand.marking import (
    FEWEST,
    HIDES,
    Cell,
    Marking,
    Mistake,
    Written,
    half_units,
    near,
    number_text,
)
from attncli.commands.check.causes import (
    Place,
    Slip,
    most_of,
    of_digits,
    of_one,
    of_rounding,
    of_shape,
)
from attncli.errors import InputError
from attncli.files.messages import safe
from attncli.stages import MAPS, MASKED, QKV, SCALED, spec_of
from attncli.tolerance.run import steps_of
from attncli.tolerance.setup import Setup
from attncli.trace import Stage

MOST_CELLS = 400
"""Larger tables nobody computes by hand."""
PART = 1e-3
"""Of half a unit: a rounding turns over within so little once in 1,000 numbers, and a change of it
has ten digits of its own."""


def mark(
    setup: Setup, sheet: Mapping[str, Written], labels: Mapping[str, Sequence[str] | None] = {}
) -> Marking:
    """Judges every stage of a sheet from the stages before it.

    sheet   stage → what was written, one at least; q, k and v only where they are made of x
    labels  axis → the names of its rows or columns

    Raises InputError for a table that is too large to be computed by hand.

    >>> from attncli.tolerance.setup import setup_of
    >>> setup = setup_of([[1, 0], [3, 1]], [[1, 2], [0, 1]], [[4, 0], [0, 2]])
    >>> print(mark(setup, {"scores": Written(np.array([[1.0, 0], [3, 1]]), decimals=0)}))
    one mistake: S[q2,k1] is 3, should be 5: a term is left out, that of dimension 2
    """
    with np.errstate(all="ignore"):
        return _Marker(setup, sheet, labels).marking()


class _Table(NamedTuple):
    """A stage as it was written beside what it should be, all in the axes of the computation.

    half    half a unit of the last place of each number
    right   what it would be with no mistake before it
    spread  how far off rounding of what it is computed from may put it
    wrong   where it is neither what should be there nor what is right
    """

    stage: str
    values: Array
    half: Array
    expected: Array
    right: Array
    spread: Array
    wrong: BoolArray

    def agrees(self, other: Array, more: Array | float = 0) -> BoolArray:
        """Where the numbers are those of another table, or blank."""
        return near(self.values, other, self.half + more) | np.isnan(self.values)

    def beside(self, at: Place) -> dict[str, float]:
        """The numbers beside a cell that are right there: a wrong one may be copied itself."""
        outer, row, column = at[:-2], *at[-2:]
        places = {
            "the one above": (row - 1, column),
            "the one below": (row + 1, column),
            "the one on the left": (row, column - 1),
            "the one on the right": (row, column + 1),
        }
        n_rows, n_columns = self.values.shape[-2:]
        return {
            which: float(self.values[(*outer, *place)])
            for which, place in places.items()
            if 0 <= place[0] < n_rows and 0 <= place[1] < n_columns
            if not self.wrong[(*outer, *place)]
        }


class _Marker:
    """One sheet, while it is marked.

    setup      what is computed, with q, k and v as they were written
    written    the stages so far, as they were written, and how far off rounding may put them
    unrounded  the same stages as they would be unrounded, with what is wrong in them
    """

    def __init__(
        self, setup: Setup, sheet: Mapping[str, Written], labels: Mapping[str, Sequence[str] | None]
    ) -> None:
        # A form may have a column of scaled scores where nothing scales: the scores again.
        if SCALED in sheet and setup.convention.scale == "none":
            setup = setup.with_convention(scale=1.0)
        self.setup, self.sheet, self.written = setup, sheet, dict[str, tuple[Array, Array]]()
        self.unrounded = dict[str, Array]()
        self.labels = {axis: tuple(names) for axis, names in labels.items() if names}

    def marking(self) -> Marking:
        """Every stage judged, in the order of the computation."""
        names = (*QKV, *(step.name for step in _plan(self.setup)))
        if others := self.sheet.keys() - {*names}:
            message = f"there is no {min(others)} in what the sheet is computed from"
            raise InputError(message, 'leave it out, or say more, such as "causal": true')
        stages = [name for name in names if name in self.sheet]
        right = run(_plan(self.setup), self.inputs(self.setup), stages)
        mistakes, follows, fully = list[Mistake](), list[str](), list[str]()
        points = dict[str, tuple[int, int]]()
        for stage in stages:
            is_number = ~np.isneginf(right[stage])
            points[stage] = 0, int(is_number.sum())
            shapes = self.sheet[stage].values.shape, self.shown(right[stage].shape)
            if [n for n in shapes[0] if n != 1] != [n for n in shapes[1] if n != 1]:
                mistakes.append(of_shape(stage, *shapes, self.setup))
                continue
            if right[stage].size > MOST_CELLS:
                message = f"{stage} has {right[stage].size} numbers, more than are computed by hand"
                raise InputError(message, "leave out --by-hand")
            table = self.table(stage, right[stage])
            is_right = is_number & ~np.isnan(table.values) & ~table.wrong
            points[stage] = int(is_right.sum()), points[stage][1]
            if table.wrong.any():
                mistakes += self.mistakes(table)
            else:
                is_exact = not mistakes or table.agrees(right[stage]).all()
                (fully if is_exact else follows).append(stage)
            self.keep(table)
        cells = np.concatenate([x.values.ravel() for x in self.sheet.values()])
        decimals = max(x.decimals for x in self.sheet.values())
        counts = int(np.isfinite(cells).sum()), int(np.isnan(cells).sum()), decimals
        return Marking(tuple(mistakes), tuple(follows), tuple(fully), *counts, points)

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
        return _Table(stage, values, half, expected, right, spread, wrong & ~np.isnan(values))

    def keep(self, table: _Table) -> None:
        """Takes a stage as it was written for what comes after, blank cells as they should be.

        A blank cell has the rounding of its neighbours: somebody computed it, and went on from it.
        """
        stage, values, expected = table.stage, table.values, table.expected
        is_blank = np.isnan(values)
        hides = (values <= HIDES) & np.isneginf(expected)
        numbers = np.where(is_blank | hides, expected, values)
        decimals = self.sheet[stage].decimals
        is_short = near(expected, np.round(expected, decimals), 0.0)
        is_exact = (is_short | ~is_blank) & near(numbers, expected, 0.0) & (table.spread == 0)
        is_exact |= table.wrong & (values == np.round(values)) & (is_exact | table.wrong).all()
        of_blank = half_units(expected, decimals) + table.spread
        half = np.where(is_exact, 0.0, np.where(is_blank, of_blank, table.half))
        unrounded = run(_plan(self.setup), self.inputs(self.setup, self.unrounded), [stage])[stage]
        self.unrounded[stage] = np.where(table.wrong, numbers, unrounded)
        self.written[stage] = numbers, half
        if stage == MASKED:  # what is hidden from here on is what is hidden there
            hidden = np.where(np.isneginf(numbers), -np.inf, 0.0)
            self.written["mask"] = hidden, np.zeros(hidden.shape)
            self.unrounded["mask"] = hidden
        if stage in QKV:
            self.setup = self.setup.with_inputs(**{stage: numbers})

    def inputs(self, setup: Setup, stages: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """What the plan reads: the stages as they were written, where there are any, or these."""
        stages = {name: x for name, (x, _) in self.written.items()} if stages is None else stages
        arrays = {name: x for name, x in stages.items() if name not in QKV}
        return {**setup.inputs, "rows": np.arange(setup.shape[2]), **arrays}

    def computed(self, stage: str, setup: Setup) -> Array:
        """A stage computed from the stages as they were written."""
        return run(_plan(setup), self.inputs(setup), [stage])[stage]

    def spread(
        self, stage: str, setup: Setup, value: Array, *, of_slip: BoolArray | None = None
    ) -> Array:
        """How far off rounding puts a stage that is computed from what was written.

        of_slip  the stage has a slip, and the spread is asked for in these cells alone

        Each number that was read is put up and down by half a unit of its last place in turn, and
        each of a stage in between that was not written, as if it had as many decimals. A slip may
        itself round: there it is put up and down by so little that no rounding of the slip's turns
        over, and what changes is multiplied.
        """
        part = 1.0 if of_slip is None else PART
        plan, inputs, spread = _plan(setup), self.inputs(setup), np.zeros(value.shape)
        read, between = self.read(stage, setup)
        decimals = self.sheet[stage].decimals
        halves = {name: half for name, (_, half) in self.written.items() if name in read}
        for name, x in run(plan, inputs, between).items():
            if name in between:
                is_exact = near(x, np.round(x, decimals), 0.0)
                inputs[name], halves[name] = x, np.where(is_exact, 0, half_units(x, decimals))
        start = {name: x for name, x in inputs.items() if name not in between}
        plan = [step for step, _ in needed(plan, start, [stage])]

        def with_moved(name: str, step: Array) -> Array:
            return run(plan, {**start, name: inputs[name] + part * step}, [stage])[stage]

        for name, half in halves.items():
            places = (half > 0) & np.isfinite(inputs[name])
            if of_slip is not None:  # rows of which nothing is read in these cells are left out
                for row in np.ndindex(places.shape[:-1]):
                    steps = np.zeros((2, *half.shape))
                    steps[0][row], steps[1][row] = np.nan, np.where(places[row], half[row], 0)
                    others = (with_moved(name, step) for step in steps if places[row].any())
                    places[row] &= any((x != value)[of_slip].any() for x in others)
            for at in map(tuple, np.argwhere(places)):
                step = np.zeros(half.shape)
                step[at] = half[at]
                both = np.abs([with_moved(name, x) - value for x in (step, -step)])
                change = both.max(axis=0) if of_slip is None else both.min(axis=0)
                spread += np.nan_to_num(change, posinf=0) / part
        return spread * 1.05  # beyond the first order

    def read(self, stage: str, setup: Setup) -> tuple[set[str], list[str]]:
        """What a stage is computed from, and those stages of it that were not written, in order."""
        inputs = self.inputs(setup)
        steps = needed(_plan(setup), inputs, [stage])
        read = {name for step, _ in steps for name in step.reads.values()}
        return read, [name for name in MAPS if name in read - inputs.keys()]

    def rounded(self, stage: str, setup: Setup) -> dict[str, Array]:
        """The stages as they were written, and those in between rounded as the numbers of this."""
        inputs, decimals = self.inputs(setup), max(self.sheet[stage].decimals, FEWEST[0].n)
        for name in self.read(stage, setup)[1]:
            inputs[name] = np.round(run(_plan(setup), inputs, [name])[name], decimals)
        return inputs

    def mistakes(self, table: _Table) -> list[Mistake]:
        """The wrong numbers of a stage by their slips: each time that which gives most of them."""
        mistakes = list[Mistake]()
        remaining = {at: self.cell(table, at) for at in _places(table.wrong)}
        digits, decimals = dict[Place, list[Slip]](), self.sheet[table.stage].decimals
        explained, exactly = self.explained(table)
        for at in remaining:
            if cell := _seen(table, at):
                digits[at] = [*of_digits(*cell, decimals)]
                for slip in of_rounding(*cell, max(decimals, FEWEST[0].n)):
                    explained.setdefault(slip, set()).add(at)
                    exactly.setdefault(slip, set()).add(at)
                for slip in of_one(*cell, table.beside(at), decimals):
                    exactly.setdefault(slip, set()).add(at)
        while remaining:
            cells, slips = most_of(explained, exactly, digits, {*remaining})
            mistakes.append(Mistake(table.stage, tuple(map(remaining.pop, sorted(cells))), slips))
        return sorted(mistakes, key=lambda mistake: mistake.cells[0].at)

    def explained(self, table: _Table) -> tuple[dict[Slip, set[Place]], dict[Slip, set[Place]]]:
        """The wrong numbers that each slip of a formula gives: as far as rounding allows, and those
        to the last decimal, of the numbers as they were written, of unrounded ones, or with those
        that are not on the sheet rounded as its numbers are."""
        explained, exactly = dict[Slip, set[Place]](), dict[Slip, set[Place]]()
        for slip, place, other in self.others(table.stage):
            explained.setdefault(slip, set())  # which are named in the order of the table
            exactly.setdefault(slip, set())
            x = self.computed(table.stage, other)
            axes: Any = {"table": (-2, -1), "row": (-1,)}.get(place, ())
            # A slip that leaves a wrong number as it should be is not what made it wrong.
            is_other = ~(table.wrong & (x == table.expected)).any(axis=axes, keepdims=True)
            concerned = is_other & table.wrong.any(axis=axes, keepdims=True)
            is_near = near(table.values, x, 10 * table.half + 0.05 * np.abs(x))
            # One that may be explained is near itself; elsewhere nothing has to be known.
            may_be = is_near & table.wrong & concerned
            concerned = concerned & may_be.any(axis=axes, keepdims=True)
            if concerned.any():
                is_exact = table.agrees(x)
                agrees, unsure = is_exact.copy(), concerned & ~is_exact
                if unsure.any():
                    agrees |= table.agrees(x, self.spread(table.stage, other, x, of_slip=unsure))
                cells = table.wrong & concerned & agrees.all(axis=axes, keepdims=True)
                for inputs in (
                    self.inputs(other, self.unrounded),
                    self.rounded(table.stage, other),
                ):
                    is_exact |= table.agrees(run(_plan(other), inputs, [table.stage])[table.stage])
                explained[slip].update(_places(cells))
                exactly[slip].update(_places(cells & is_exact))
        return explained, exactly

    def others(self, stage: str) -> Iterator[tuple[Slip, str, Setup]]:
        """Every slip that this attention can have, where it may be in a stage, and its setup."""
        letters = letters_of(stage)
        texts = {"outer": ",".join(letters[:-2]), "row": letters[-2], "column": letters[-1]}
        texts["head"] = letters[1]
        place_of_any = f"input.{stage}" if stage in QKV else stage
        setup = self.with_weights(stage)
        for name, place, lines in slips():
            edits = [
                full(re.sub("^(any|qkv)", place_of_any, line), texts)
                for line in lines
                if {*re.findall(r"\bw(?:_\w)?(?=\[)", line)} <= setup.inputs.keys()
            ]
            for patch in variants(edits, setup, Evidence({}, {})):
                if (other := patch.on(setup)) is not None:
                    is_here = any(edit.name == stage for edit in patch.edits)
                    slip = Slip(name, ", ".join(other.details))
                    yield slip, place if is_here else "row", other

    def with_weights(self, stage: str) -> Setup:
        """Of q, k or v made of x the setup with x, its weights as w, and others of their shape."""
        arrays = self.setup.projected.originals if self.setup.projected and stage in QKV else {}
        if not arrays or {"x_kv", "x_v"} & arrays.keys():
            return self.setup
        weights, x = arrays[f"w_{stage}"], arrays["x"]
        others = {name: arrays[name] for name in ("w_q", "w_k", "w_v") if name != f"w_{stage}"}
        others = {name: w for name, w in others.items() if w.shape == weights.shape}
        return self.setup.with_inputs(x=x.reshape(-1, *x.shape[-2:]), w=weights, **others)

    def cell(self, table: _Table, at: Place) -> Cell:
        """A wrong number with its name: S[q3,k1]; with its head, where there are several."""
        kind, decimals = spec_of(table.stage), self.sheet[table.stage].decimals
        whole = Stage(table.stage, "", "", table.values, tuple(kind.axes.split()), self.labels)
        names = ",".join(map(safe, self.shown(tuple(map(whole.label, whole.axes, at)))))
        written = number_text(table.values[at], decimals)
        expected = number_text(table.expected[at], max(decimals, FEWEST[0].n))
        return Cell(f"{kind.symbol or table.stage}[{names}]", self.shown(at), written, expected)


def _plan(setup: Setup) -> list[Step]:
    return steps_of(setup, "float64", setup.shape, setup.inputs["k"].shape[1])


def _seen(table: _Table, at: Place) -> tuple[float, list[float]] | None:
    """A wrong number and those that would be right there; None where one of them is infinite."""
    value, expected, right = (float(x[at]) for x in (table.values, table.expected, table.right))
    is_both = abs(right - expected) <= table.half[at] + table.spread[at]
    numbers = [expected, right] if is_both else [expected]
    return (value, numbers) if np.isfinite([value, *numbers]).all() else None


def _places(cells: BoolArray) -> list[Place]:
    return [tuple(map(int, at)) for at in np.argwhere(cells)]
