"""One entry of a stage's matrix, and how an equation names it and writes its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.page.numbers import short
from attncli.page.options import HEADS, KEY_HEADS, Index
from attncli.page.select import BlankStage, Block, has_blanks
from attncli.page.text import (
    BREAK,
    END,
    FRACTION,
    LABEL_CELLS,
    OVER,
    UNDEFINED,
    clean,
    label_mark,
    number_mark,
    shorten,
)
from attncli.trace import Stage
from attncli.words.tokens import number_of

Forms = tuple[list[str], str]
"""What stands between the name of a cell and its number, and a remark."""

NAME_CELLS = 12  # of labels within a formula


class Entry(NamedTuple):
    """One entry of a stage's matrix, and how its numbers are written.

    precision  decimals
    terms      the most terms of a sum that are written out
    """

    block: Block
    stage: Stage
    where: Index
    row: int
    column: int
    precision: int
    terms: int

    def of(self, parameter: str) -> Entry:
        """The same entry of what the stage read as this parameter."""
        stage = self.block.read(self.stage, parameter)
        assert stage is not None  # noqa: S101 - `equation` looked for all of them
        return self._replace(stage=stage)

    @property
    def head(self) -> int:
        """The head that the stage's matrix is of; 0 where it has none."""
        axes = [axis for axis in self.stage.axes[:-2] if axis in (HEADS, KEY_HEADS)]
        return (self.block.entry(axes[0], self.where) or 0) if axes else 0

    @property
    def name(self) -> str:
        """The entry as an equation names it: S[q1,k1]; a number by itself S."""
        labels, symbol = ",".join(self.labels(NAME_CELLS)), clean(self.stage.symbol)
        symbol = f"({symbol})" if {"−", "+"} & {*symbol.split()} else symbol
        return f"{symbol}[{labels}]" if labels else symbol

    @property
    def places(self) -> list[tuple[str, int]]:
        """Its axes and where it is along them; of a vector the one it has."""
        axes = self.stage.axes[-2:]
        places = zip(axes, (self.row, self.column)[2 - len(axes) :], strict=True)
        return [(axis, at) for axis, at in places if axis]

    def labels(self, cells: int = LABEL_CELLS) -> list[str]:
        """The names of its row and its column in an equation; of a vector the latter alone."""
        return [self.label(axis, at, cells) for axis, at in self.places]

    def label(self, axis: str, at: int, cells: int = NAME_CELLS) -> str:
        """One of the names along an axis in an equation."""
        name = shorten(self.stage.label(axis, at), cells)
        name = f'"{name}"' if name == "," else name
        return label_mark(name + number_of(self.stage.labels.get(axis, ()), at))

    @property
    def matrix(self) -> Array:
        """The stage's matrix."""
        return self.block.matrix(self.stage, self.where)

    @property
    def value(self) -> float:
        """The number in this entry; of a vector that in its column."""
        matrix = self.matrix
        return float(matrix[self.row if len(matrix) > 1 else 0, self.column])

    def write(self, x: float) -> str:
        """A number as an equation writes it: nothing where numbers are left out."""
        is_blank = isinstance(self.stage, BlankStage) or (
            math.isnan(x) and has_blanks(self.block.root)
        )
        if math.isnan(x) and self.stage.kind.undefined and not is_blank:
            return number_mark(UNDEFINED)
        return number_mark("" if is_blank else short(float(x), self.precision))

    def constant(self, x: float) -> str:
        """A number that no stage holds, such as a parameter: it is never left out."""
        return number_mark(short(float(x), self.precision))

    def sum(self, values: Array, term: Callable[[int], str], sign: str = "+") -> str:
        """A sum of values, or a product; where they are too many, its middle as one number."""
        n = len(values)
        if n <= self.terms + 1:  # one left out would take no less room
            words = [term(i) for i in range(n)]
        else:
            head, tail = self.terms - self.terms // 3, n - self.terms // 3
            with np.errstate(all="ignore"):
                between = values[head:tail]
                middle = self.write(between.sum() if sign == "+" else between.prod())
            left_out = f"… {tail - head} more: {middle} …"
            words = [*map(term, range(head)), left_out, *map(term, range(tail, n))]
        return f"{BREAK}{sign} ".join(words)

    def numbers(self, numbers: Sequence[float] | Array) -> str:
        """Numbers added."""
        return self.sum(np.array(numbers), lambda at: self.write(numbers[at]))


QUOTIENT = f"{FRACTION}{{}} {OVER}/ {{}}{END}"
"""The form of a quotient."""
