"""Marking: what was found on a sheet that was computed by hand, as data, text and JSON."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from attncli.files.messages import count

MOST_NAMED = 4
"""So many slips are named; more that fit say nothing."""
MOST_CELLS_NAMED = 3
"""So many numbers are named one by one; of more the first is, and how many there are."""


class Cell(NamedTuple):
    """A number that is not right: its name, its place from 0, what it is and what it should be."""

    name: str
    at: tuple[int, ...]
    written: str
    expected: str


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
    def where(self) -> str:
        """What is wrong, without its slip."""
        if not self.cells:
            return f"{self.stage} {self.shape}"
        first = self.cells[0]
        one = f"{first.name} is {first.written}, should be {first.expected}"
        if len(self.cells) == 1:
            return one
        if len(self.cells) > MOST_CELLS_NAMED:
            return f"{count(len(self.cells), 'number')} of {self.stage}, such as {one}"
        others = (f"{x.name} {x.written}, should be {x.expected}" for x in self.cells[1:])
        return "; ".join((one, *others))

    @property
    def slip(self) -> str:
        """The slip in words; several that cannot be told apart as "either … or …"."""
        if len(self.slips) < 2:
            return "".join(self.slips)
        more = len(self.slips) - MOST_NAMED
        named = [*self.slips[:MOST_NAMED], *([f"one of {more} more"] if more > 0 else [])]
        return f"either {', or '.join(named)}"

    def __str__(self) -> str:
        return f"{self.where}: {self.slip}" if self.slip else self.where


class Marking(NamedTuple):
    """What was found on a sheet.

    mistakes  in the order of the computation
    follows   the stages that are computed rightly, but from wrong numbers
    right     the stages that are right
    n_numbers, n_blank   how many numbers were judged, and how many cells are blank
    """

    mistakes: tuple[Mistake, ...]
    follows: tuple[str, ...]
    right: tuple[str, ...]
    n_numbers: int
    n_blank: int

    @property
    def rest(self) -> str:
        """What is said of the stages without a mistake."""
        it = "it" if len(self.mistakes) == 1 else "these"
        if self.follows:
            return f"the rest follows from {it}"
        return "the rest is right" if self.right else ""

    def __str__(self) -> str:
        blank = f"{count(self.n_blank, 'cell')} left blank" if self.n_blank else ""
        if not self.mistakes:
            return ", ".join(filter(None, (f"all right: {count(self.n_numbers, 'number')}", blank)))
        rest = "; ".join(filter(None, (self.rest, blank)))
        if len(self.mistakes) == 1:
            return "; ".join(filter(None, (f"one mistake: {self.mistakes[0]}", rest)))
        first = "; ".join(filter(None, (f"{len(self.mistakes)} mistakes", rest)))
        return "\n".join((first, *(f"  {mistake}" for mistake in self.mistakes)))

    def to_dict(self) -> dict[str, Any]:
        """The marking as JSON has it."""
        mistakes = [
            {
                "stage": x.stage,
                "cells": [{**cell._asdict(), "at": [n + 1 for n in cell.at]} for cell in x.cells],
                "slips": [*x.slips],
                **({"shape": x.shape} if x.shape else {}),
            }
            for x in self.mistakes
        ]
        return {
            "right": not mistakes,
            "mistakes": mistakes,
            "follows": [*self.follows],
            "right_stages": [*self.right],
            "numbers": self.n_numbers,
            "blank": self.n_blank,
        }


def decimal_text(x: float, decimals: int) -> str:
    """A number with so many decimals, without zeros at the end.

    >>> decimal_text(0.70710, 4), decimal_text(-0.0001, 2), decimal_text(-math.inf, 2)
    ('0.7071', '0', '-inf')
    """
    if not math.isfinite(x):
        return str(x)
    text = f"{x:.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
