"""A scatter plot in text: points with their names next to them, where no two names overlap.

One unit is as long across as it is down (a line is about two columns high), so distances can be
compared by eye. A name that fits nowhere is a number at its point and a line below the plot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len

from attncli.arrays import BoolArray, FloatArray
from attncli.views.text import distinct, shorten

POINT, ACROSS, DOWN, CROSS = "●", "─", "│", "┼"
NAME_CELLS = 16
_FEWEST = 24  # columns below which a plot says nothing

Points = FloatArray


class _Canvas:
    """Rows of cells; a wide character fills two."""

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.cells = [[" "] * width for _ in range(height)]
        self.taken = np.zeros((height, width), dtype=bool)

    def write(self, row: int, column: int, text: str) -> None:
        """Text from a cell on, which from now on is taken."""
        at = column
        for character in text:
            cells = cell_len(character)
            self.cells[row][at : at + cells] = [character, *[""] * (cells - 1)]
            at += cells
        self.taken[row, column:at] = True

    def is_free(self, row: int, column: int, cells: int) -> bool:
        """Whether so many cells from here are inside and hold no point and no name."""
        inside = 0 <= row < self.height and column >= 0 and column + cells <= self.width
        return inside and not self.taken[row, column : column + cells].any()

    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.cells]


def scatter(names: Sequence[str], points: Points, width: int = 72, height: int = 20) -> list[str]:
    """The lines of the plot: points [n, 2] by name, zero lines where they are within view.

    >>> print(*scatter(["a", "b"], np.array([[-1.0, 0.0], [1.0, 1.0]]), 24, 3), sep="\\n")
                │   ● b
                │
    ────────●─a─┼───────────
    """
    finite = np.isfinite(points[:, 0]) & np.isfinite(points[:, 1])
    canvas = _Canvas(max(width, _FEWEST), height)
    rows, columns, zero = _places(points, finite, canvas)
    _zero_lines(canvas, zero)
    shown = np.flatnonzero(finite).tolist()
    for at in shown:
        canvas.write(int(rows[at]), int(columns[at]), POINT)
    labels = distinct([shorten(name, NAME_CELLS) for name in names], range(len(names)))
    lines = [_name(canvas, int(rows[at]), int(columns[at]), labels[at], at) for at in shown]
    return [*canvas.lines(), *(line for line in lines if line)]


def _places(points: Points, finite: BoolArray, canvas: _Canvas) -> tuple[
    npt.NDArray[np.int64], npt.NDArray[np.int64], tuple[int, int]
]:  # fmt: skip
    """Row and column of every point and of zero, at one scale in both directions."""
    inside = points[finite] if finite.any() else np.zeros((1, 2))
    low, high = inside.min(axis=0), inside.max(axis=0)
    room = np.array([canvas.width - 1, 2 * (canvas.height - 1)])
    middle = low / 2 + high / 2
    with np.errstate(all="ignore"):
        span = np.maximum(high - low, 1e-300)
        scale = float((room / span).min()) if (high > low).any() else 1.0
        across = (points[:, 0] - middle[0]) * scale + (canvas.width - 1) / 2
        down = (middle[1] - points[:, 1]) * scale / 2 + (canvas.height - 1) / 2
        zero = (middle[1] * scale / 2 + (canvas.height - 1) / 2,
                -middle[0] * scale + (canvas.width - 1) / 2)  # fmt: skip
    limits = canvas.height - 1, canvas.width - 1
    rows, columns = (
        np.clip(np.rint(np.nan_to_num(x)), 0, limit).astype(np.int64)
        for x, limit in zip((down, across), limits, strict=True)
    )
    kept = [int(np.clip(np.rint(np.nan_to_num(x, nan=-1.0)), -1, 10**6)) for x in zero]
    return rows, columns, (kept[0], kept[1])


def _zero_lines(canvas: _Canvas, zero: tuple[int, int]) -> None:
    row, column = zero
    if 0 <= row < canvas.height:
        canvas.cells[row] = [ACROSS] * canvas.width
    if 0 <= column < canvas.width:
        for line in range(canvas.height):
            canvas.cells[line][column] = CROSS if line == row else DOWN


def _name(canvas: _Canvas, row: int, column: int, label: str, at: int) -> str:
    """Writes a name next to its point, or gives the line for it below the plot."""
    cells = cell_len(label)
    next_to = [(row, column + 2), (row, column - cells - 1)]
    above = [
        (row + line, start)
        for line in (-1, 1)
        for start in (column, column - cells + 1, column + 1)
    ]
    for line, start in [*next_to, *above]:
        if canvas.is_free(line, start, cells):
            canvas.write(line, start, label)
            return ""
    number = str(at + 1)
    canvas.write(row, min(column, canvas.width - len(number)), number)
    return f"{number} = {label}"
