"""A sheet that was computed by hand: the numbers on it, and its marking as data, text and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.files.messages import count
from attncli.tolerance.rule import Places

MOST_CELLS_NAMED = 3
"""So many numbers are named one by one; of more the first is, and how many there are."""


FEWEST = Places(2), Places(3, "digit")
"""A number that needs rounding has two decimals at least, or three digits if it is large."""
HIDES = -1e4
"""What is no larger stands for −∞."""


class Written(NamedTuple):
    """A stage as it was written: the axes are those of the inputs.

    values    the numbers; NaN where a cell is blank
    decimals  the most decimals of a number
    """

    values: Array
    decimals: int


class Cell(NamedTuple):
    """A number that is not right: its name, its place from 0, what it is and what it should be."""

    name: str
    at: tuple[int, ...]
    written: str
    expected: str

    @property
    def off(self) -> str:
        """By how much it is off, as whoever reads both numbers computes it; "" beside infinity."""
        difference = Decimal(self.written) - Decimal(self.expected)
        return f"{abs(difference)}" if difference.is_finite() else ""

    def __str__(self) -> str:
        return f"{self.name} is {self.written}, should be {self.expected}"


class Mistake(NamedTuple):
    """Numbers of a stage that are not right, and the slips that give just these.

    stage  its name
    cells  the numbers; none where the table has another shape
    slips  their names: one, none, or several that cannot be told apart here
    shape  what is wrong with the shape
    """

    stage: str
    cells: tuple[Cell, ...]
    slips: tuple[str, ...] = ()
    shape: str = ""

    @property
    def start(self) -> str:
        """The first wrong number, and how many more there are; or what is wrong with the shape."""
        if not self.cells:
            return f"{self.stage} {self.shape}"
        more = len(self.cells) - 1
        return f"{self.cells[0]}{f', and {more} more of {self.stage}' if more else ''}"

    @property
    def slip(self) -> str:
        """The slip in words, several that cannot be told apart as "either … or …"; else that none
        is known, and how far off the number is."""
        if self.cells and not self.slips:
            off = self.cells[0].off if len(self.cells) == 1 else ""
            return f"off by {off}, cause unknown" if off else "cause unknown"
        return f"{'either ' if len(self.slips) > 1 else ''}{', or '.join(self.slips)}"

    def __str__(self) -> str:
        names_all = 0 < len(self.cells) <= MOST_CELLS_NAMED
        place = "; ".join(map(str, self.cells)) if names_all else self.start
        return f"{place}: {self.slip}" if self.slip else place

    def to_dict(self) -> dict[str, Any]:
        """The mistake as JSON has it, with the words of the text: places count from 1."""
        cells = [
            {**cell._asdict(), "at": [n + 1 for n in cell.at], "off": cell.off}
            for cell in self.cells
        ]
        return {**self._asdict(), "cells": cells, "cause": self.slip}


class Marking(NamedTuple):
    """What was found on a sheet.

    mistakes  in the order of the computation
    follows   the stages that are computed rightly, but from wrong numbers
    right_stages    those that are right
    numbers, blank  how many numbers there are, and how many cells are blank
    decimals  the most decimals of a number
    points    stage → how many of its numbers are right, those among them that follow from wrong
              ones, and how many it has; what a mask hides is no number
    """

    mistakes: tuple[Mistake, ...]
    follows: tuple[str, ...]
    right_stages: tuple[str, ...]
    numbers: int
    blank: int
    decimals: int
    points: Mapping[str, tuple[int, int]]

    @property
    def n_right(self) -> int:
        """How many numbers are right."""
        return sum(right for right, _ in self.points.values())

    @property
    def n_cells(self) -> int:
        """How many there are to be computed."""
        return sum(n_cells for _, n_cells in self.points.values())

    def __str__(self) -> str:
        blank = f"{count(self.blank, 'cell')} left blank" if self.blank else ""
        if not self.mistakes:
            return ", ".join(filter(None, (f"all right: {count(self.numbers, 'number')}", blank)))
        is_one = len(self.mistakes) == 1
        first = f"one mistake: {self.mistakes[0]}" if is_one else f"{len(self.mistakes)} mistakes"
        rest = "the rest is right" if self.right_stages else ""
        if self.follows:
            rest = f"the rest follows from {'it' if is_one else 'these'}"
        lines = [] if is_one else [f"  {mistake}" for mistake in self.mistakes]
        return "\n".join(("; ".join(filter(None, (first, rest, blank))), *lines))

    def to_dict(self) -> dict[str, Any]:
        """The marking as JSON has it."""
        mistakes = [mistake.to_dict() for mistake in self.mistakes]
        points = {x: {"right": right, "of": n_cells} for x, (right, n_cells) in self.points.items()}
        return {"right": not mistakes, **self._asdict(), "mistakes": mistakes, "points": points}


def number_text(x: float, decimals: int) -> str:
    """A number with so many decimals, a whole one without.

    >>> number_text(0.70710, 2), number_text(0.5, 2), number_text(-0.0, 2), number_text(-np.inf, 2)
    ('0.71', '0.50', '0', '-inf')
    """
    is_whole = np.round(x, 9) == np.round(x)
    return f"{np.round(x, decimals) + 0.0:.{0 if is_whole else decimals}f}"


def half_units(values: Array, decimals: int) -> Array:
    """Half a unit of the last place of every number, which has two decimals or three digits."""
    numbers = np.nan_to_num(values)
    fewest = np.maximum(*(places.half_unit(numbers) for places in FEWEST))
    result: Array = np.minimum(Places(decimals).half_unit(numbers), fewest)
    return result


def near(values: Array, expected: Array, allowed: Array | float) -> BoolArray:
    """Where numbers are no further from what they should be than is allowed."""
    floor = 1e-9 * np.maximum(1, np.abs(expected))
    is_near = np.abs(values - expected) <= allowed + np.where(np.isfinite(floor), floor, 0)
    hidden = np.isneginf(expected) & (values <= HIDES)
    both = np.isnan(values) & np.isnan(expected)
    result: BoolArray = is_near | (values == expected) | hidden | both
    return result
