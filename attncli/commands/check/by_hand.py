"""Marking by hand: every stage of a sheet is judged from the sheet's own stage before it.

    Setup, {stage: Written} ── mark ──> Marking: the mistakes, their slips, what follows from them

What a stage should be is computed from the numbers that were written, where there are any, else
from the right ones. How far a number may be off follows from the decimals: half a unit of its own
last place, and as much as the same rounding of what it is computed from can change it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.run import Step, needed, run
from attncli.attention.slips import slips
from attncli.commands.check.bugs.bug import Evidence
from attncli.commands.check.bugs.edits import variants
from attncli.commands.check.bugs.facts import full
from attncli.commands.check.bugs.rewrite import letters_of
from attncli.commands.check.marking import (
    FEWEST,
    HIDES,
    MOST_CELLS_NAMED,
    Cell,
    Marking,
    Mistake,
    Written,
    half_units,
    near,
    number_text,
)
from attncli.commands.check.run import steps_of
from attncli.commands.check.setup import Setup
from attncli.errors import InputError
from attncli.files.messages import safe
from attncli.stages import MAPS, MASKED, OUTPUT, QKV, SCORES, kind_of
from attncli.trace import Stage

MOST_CELLS = 400
"""Larger tables nobody computes by hand."""


def mark(
    setup: Setup, sheet: Mapping[str, Written], labels: Mapping[str, Sequence[str] | None] = {}
) -> Marking:
    """Judges every stage of a sheet from the stages before it.

    sheet   stage → what was written, one at least; q, k and v only where they are made of x
    labels  axis → the names of its rows or columns

    Raises InputError for a table that is too large to be computed by hand.

    >>> from attncli.commands.check.setup import setup_of
    >>> setup = setup_of([[1, 0], [3, 1]], [[1, 2], [0, 1]], [[4, 0], [0, 2]])
    >>> print(mark(setup, {"scores": Written(np.array([[1.0, 0], [3, 1]]), decimals=0)}))
    one mistake: S[q2,k1] is 3, should be 5: a term is left out, that of dimension 2
    """
    with np.errstate(all="ignore"):
        return _Marker(setup, sheet, labels).marking()


Place = tuple[int, ...]


class Named(NamedTuple):
    """A slip, what its name leaves open, and whether it is named where no other explains a cell."""

    name: str
    detail: str
    is_alone: bool


class _Table(NamedTuple):
    """A stage as it was written beside what it should be, all in the axes of the computation.

    half    half a unit of the last place of each number
    spread  how far off rounding of what it is computed from may put it
    wrong   where it is neither what should be there nor what is right
    """

    stage: str
    values: Array
    half: Array
    expected: Array
    spread: Array
    wrong: BoolArray

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
        if others := self.sheet.keys() - {*names}:
            what = f"there is no {min(others)} in what the sheet is computed from"
            raise InputError(what, 'leave it out, or say more, such as "causal": true')
        stages = [name for name in names if name in self.sheet]
        right = run(_plan(self.setup), self.inputs(self.setup), stages)
        mistakes, follows, fully = list[Mistake](), list[str](), list[str]()
        for stage in stages:
            shapes = self.sheet[stage].values.shape, self.shown(right[stage].shape)
            if [n for n in shapes[0] if n != 1] != [n for n in shapes[1] if n != 1]:
                mistakes.append(_of_shape(stage, *shapes, self.setup))
                continue
            if right[stage].size > MOST_CELLS:
                what = f"{stage} has {right[stage].size} numbers, more than are computed by hand"
                raise InputError(what, "leave out --by-hand")
            table = self.table(stage, right[stage])
            if table.wrong.any():
                mistakes += self.mistakes(table)
            else:
                is_right = not mistakes or table.agrees(right[stage]).all()
                (fully if is_right else follows).append(stage)
            self.keep(table)
        blank = np.concatenate([np.isnan(x.values).ravel() for x in self.sheet.values()])
        decimals = max(x.decimals for x in self.sheet.values())
        counts = int((~blank).sum()), int(blank.sum()), decimals
        return Marking(tuple(mistakes), tuple(follows), tuple(fully), *counts)

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
        return _Table(stage, values, half, expected, spread, wrong & ~np.isnan(values))

    def keep(self, table: _Table) -> None:
        """Takes a stage as it was written for what comes after, blank cells as they should be."""
        stage, values, expected = table.stage, table.values, table.expected
        is_blank = np.isnan(values)
        hides = (values <= HIDES) & np.isneginf(expected)
        numbers = np.where(is_blank | hides, expected, values)
        is_exact = near(values, expected, 0.0) & (table.spread == 0)  # nothing had to be rounded
        is_exact |= table.wrong & (values == np.round(values)) & (is_exact | table.wrong).all()
        half = np.where(is_exact, 0.0, np.where(is_blank, table.spread, table.half))
        self.own[stage] = numbers, half
        if stage == MASKED:  # what is hidden from here on is what is hidden there
            hidden = np.where(np.isneginf(numbers), -np.inf, 0.0)
            self.own["mask"] = hidden, np.zeros(hidden.shape)
        if stage in QKV:
            self.setup = self.setup.with_inputs(**{stage: numbers})

    def inputs(self, setup: Setup) -> dict[str, Array]:
        """What the plan reads: the stages as they were written, where there are any."""
        own = {name: x for name, (x, _) in self.own.items() if name not in QKV}
        return {**setup.inputs, "rows": np.arange(setup.shape[2]), **own}

    def computed(self, stage: str, setup: Setup) -> Array:
        """A stage computed from the stages as they were written."""
        return run(_plan(setup), self.inputs(setup), [stage])[stage]

    def spread(self, stage: str, setup: Setup, value: Array) -> Array:
        """How far off rounding puts a stage that is computed from what was written.

        Each number that was read is put up and down by half a unit of its last place in turn, and
        each of a stage in between that was not written, as if it had as many decimals.
        """
        plan, inputs, spread = _plan(setup), self.inputs(setup), np.zeros(value.shape)
        steps, decimals = needed(plan, inputs, [stage]), self.sheet[stage].decimals
        read = {name for step in steps for name in step.reads.values()}
        halves = {name: half for name, (_, half) in self.own.items() if name in read}
        for name, x in run(plan, inputs, between := [*read & {*MAPS} - inputs.keys()]).items():
            if name in between:
                is_exact = near(x, np.round(x, decimals), 0.0)
                inputs[name], halves[name] = x, np.where(is_exact, 0, half_units(x, decimals))
        start = {name: x for name, x in inputs.items() if name not in between}
        for name, half in halves.items():
            for at in map(tuple, np.argwhere((half > 0) & np.isfinite(inputs[name]))):
                changes = []
                for step in (half[at], -half[at]):
                    moved = inputs[name].copy()
                    moved[at] += step
                    changes.append(run(plan, {**start, name: moved}, [stage])[stage] - value)
                spread += np.nan_to_num(np.max(np.abs(changes), axis=0), posinf=0)
        return spread * 1.05  # beyond the first order

    def mistakes(self, table: _Table) -> list[Mistake]:
        """The wrong numbers of a stage by their slips: each time that which gives most of them."""
        mistakes, explained = list[Mistake](), self.explained(table)
        left = {at: self.cell(table, at) for at in _places(table.wrong)}
        while left:
            cells, slips = _most(explained, {*left})
            mistakes.append(Mistake(table.stage, tuple(map(left.pop, sorted(cells))), slips))
        return sorted(mistakes, key=lambda mistake: mistake.cells[0].at)

    def explained(self, table: _Table) -> dict[Named, set[Place]]:
        """The wrong numbers that each slip gives."""
        explained = dict[Named, set[Place]]()
        for slip, place, other in self.others(table.stage):
            x = self.computed(table.stage, other)
            if near(table.values, x, 10 * table.half + 0.05 * np.abs(x)).any():
                agrees = table.agrees(x, self.spread(table.stage, other, x))
                axes = {"table": (-2, -1), "row": (-1,)}.get(place, ())
                places = _places(table.wrong & agrees.all(axis=axes, keepdims=True))
                explained.setdefault(slip, set()).update(places)
        decimals = self.sheet[table.stage].decimals
        for at in _places(table.wrong):
            for name in _of_digits(table.values[at], table.expected[at], decimals):
                explained.setdefault(Named(name, "", is_alone=True), set()).add(at)
        return explained

    def others(self, stage: str) -> Iterator[tuple[Named, str, Setup]]:
        """Every slip that this attention can have, where it may be in a stage, and its setup."""
        letters = letters_of(stage)
        texts = {"outer": ",".join(letters[:-2]), "row": letters[-2], "column": letters[-1]}
        texts |= {"unit": str(10 ** self.sheet[stage].decimals), "head": letters[1]}
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
                    slip = Named(name, ", ".join(other.details), place == "alone")
                    yield slip, place if is_here else "row", other

    def with_weights(self, stage: str) -> Setup:
        """Of q, k or v made of x the setup with x, its weights as w, and others of their shape."""
        arrays = self.setup.projected.originals if self.setup.projected and stage in QKV else {}
        if not arrays or {"x_kv", "x_v"} & arrays.keys():
            return self.setup
        own, x = arrays[f"w_{stage}"], arrays["x"]
        others = {name: arrays[name] for name in ("w_q", "w_k", "w_v") if name != f"w_{stage}"}
        others = {name: w for name, w in others.items() if w.shape == own.shape}
        return self.setup.with_inputs(x=x.reshape(-1, *x.shape[-2:]), w=own, **others)

    def cell(self, table: _Table, at: Place) -> Cell:
        """A wrong number with its name: S[q3,k1]; with its head, where there are several."""
        kind, decimals = kind_of(table.stage), self.sheet[table.stage].decimals
        whole = Stage(table.stage, "", "", table.values, tuple(kind.axes.split()), self.labels)
        names = ",".join(map(safe, self.shown(tuple(map(whole.label, whole.axes, at)))))
        written = number_text(table.values[at], decimals)
        expected = number_text(table.expected[at], max(decimals, FEWEST[0].n))
        return Cell(f"{kind.symbol or table.stage}[{names}]", self.shown(at), written, expected)


def _plan(setup: Setup) -> list[Step]:
    return steps_of(setup, "float64", setup.shape, setup.inputs["k"].shape[1])


def _places(cells: BoolArray) -> list[Place]:
    return [tuple(map(int, at)) for at in np.argwhere(cells)]


def _most(
    explained: Mapping[Named, set[Place]], left: set[Place]
) -> tuple[set[Place], tuple[str, ...]]:
    """The most of the wrong numbers that one slip gives, and the slips that give just these.

    Of many numbers one that gives less than half may do so by chance, and is not named.
    """
    shared = {slip: cells & left for slip, cells in explained.items() if not slip.is_alone}
    most = max(shared.values(), key=len, default=set[Place]())
    if len(left) > MOST_CELLS_NAMED and len(most) < len(left):
        of_name: dict[str, set[Place]] = {slip.name: set() for slip in shared}
        for slip, cells in shared.items():
            of_name[slip.name] |= cells
        names = tuple(name for name, cells in of_name.items() if cells == left)
        if names or 2 * len(most) < len(left):
            return left, names
    elif not most:
        most = {min(left)}
        shared = {slip: cells & most for slip, cells in explained.items()}
    return most, _named(slip for slip, cells in shared.items() if cells == most)


def _of_digits(x: float, right: float, decimals: int) -> Iterator[str]:
    """How the digits of a number differ from those that it should have."""
    digits, correct = (f"{abs(number):.{decimals}f}" for number in (x, right))
    if len(digits) == len(correct) > 1:
        pairs = [(a, b) for a, b in zip(digits, correct, strict=True) if a != b]
        if len(pairs) == 1:
            yield "one digit is wrong"
        elif len(pairs) == 2 and pairs[0] == pairs[1][::-1]:
            yield "two digits are exchanged"


def _named(slips: Iterable[Named]) -> tuple[str, ...]:
    """Slips in words, each once, with all that its name leaves open."""
    details = dict[str, list[str]]()
    for name, detail, _ in slips:
        details.setdefault(name, []).extend([detail] if detail else [])
    words = {name: " or ".join(dict.fromkeys(more)) for name, more in details.items()}
    return tuple(f"{name}, {more}" if more else name for name, more in words.items())


def _of_shape(stage: str, shape: Sequence[int], right: Sequence[int], setup: Setup) -> Mistake:
    """A table of another shape, and the product that has this one."""
    n_q, n_k, last = *setup.shape[2:], tuple(shape[-2:])
    slips = {
        "rows and columns are swapped": last == tuple(right[:-3:-1]),
        "Qᵀ K in place of Q Kᵀ": stage == SCORES and last == (setup.d_k,) * 2 and n_q == n_k,
        "the weights times a table of queries and keys, not times V": (
            stage == OUTPUT and last == (n_q, n_k)
        ),
    }
    sizes = (" × ".join(map(str, x)) for x in (shape, right))
    is_list = "one list of " if len(shape) == 1 else ""
    names = tuple(name for name, applies in slips.items() if applies)
    return Mistake(stage, (), names, f"is {is_list}{{}}, should be {{}}".format(*sizes))
