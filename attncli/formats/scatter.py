"""A scatter plot in text: points with their names next to them, where no two names overlap.

One unit is as long across as it is down (a line is about two columns high), so distances can be
compared by eye. A name that fits nowhere is a number at its point and a line below the plot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
from rich.cells import cell_len

from attncli.arrays import FloatArray
from attncli.page.text import captions

POINT = "●"
NAME_CELLS = 16
POINT_SIZE = 4.0  # half the side of a point of a figure, in points as a measure of length
_RINGS = 50  # around a point, in which a name is looked for a place within the plot
_FEWEST = 24  # columns below which a plot says nothing

_ZERO = {(True, True): "┼", (True, False): "─", (False, True): "│", (False, False): " "}


class _Canvas:
    """Rows of cells, zero lines in one of them and one column; a wide character fills two cells."""

    def __init__(self, width: int, height: int, row: int, column: int) -> None:
        self.width, self.height = width, height
        self.cells = [[_ZERO[r == row, c == column] for c in range(width)] for r in range(height)]
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


def scatter(
    names: Sequence[str], points: FloatArray, width: int = 72, height: int = 20
) -> list[str]:
    """The lines of the plot: points [n, 2] by name, zero lines where they are within view.

    >>> print(*scatter(["a", "b"], np.array([[-1.0, 0.0], [1.0, 1.0]]), 24, 3), sep="\\n")
                │   ● b
                │
    ────────●─a─┼───────────
    """
    finite = np.flatnonzero(np.isfinite(points).all(axis=1))
    width = max(width, _FEWEST)
    *places, zero = _places(points[finite], width, height)
    canvas = _Canvas(width, height, *zero)
    for row, column in places:
        canvas.write(row, column, POINT)
    labels = captions(names, range(len(names)), NAME_CELLS)
    numbered = zip(places, finite.tolist(), strict=True)
    below = [_name(canvas, row, column, labels[at], at) for (row, column), at in numbered]
    return [*("".join(row).rstrip() for row in canvas.cells), *filter(None, below)]


def window(points: FloatArray, room: FloatArray) -> tuple[FloatArray, float]:
    """The corners of a plot in so much room, with a margin for names, and how long a unit is.

    It has one scale in both directions, and zero in it.

    >>> window(np.array([[3.0, 0.0]]), np.array([8.0, 4.0]))
    (array([[-2.5, -2. ],
           [ 5.5,  2. ]]), 1.0)
    """
    low, high = points.min(axis=0, initial=0), points.max(axis=0, initial=0)
    scale = 0.75 * room.min() / max((high - low).max(), np.finfo(float).tiny)
    return (low + high) / 2 + np.outer((-0.5, 0.5), room / scale), float(scale)


def beside(points: FloatArray, sizes: FloatArray, room: FloatArray) -> list[tuple[float, float]]:
    """Where the names of points stand in a figure; none meets another.

    points, sizes  [n, 2]: of the points, and of the names around their middles
    room           the width and height of the plot, which names leave only where it is full

    Gives the way from each point to the middle of its name.
    """
    angles = np.arange(16) * np.pi / 8
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    occupied = np.hstack([points - POINT_SIZE, points + POINT_SIZE])
    places = []
    for point, half in zip(points, sizes / 2, strict=True):
        for ring in count():
            ways = directions * (half + POINT_SIZE + 1 + 6 * ring)
            boxes = np.hstack([point + ways - half, point + ways + half])
            meets = (boxes[:, None, :2] < occupied[:, 2:]) & (occupied[:, :2] < boxes[:, None, 2:])
            is_free = ~np.any(np.all(meets, axis=2), axis=1)
            if ring < _RINGS:
                is_free &= ((boxes >= 0) & (boxes <= np.tile(room, 2))).all(axis=1)
            if is_free.any():
                break
        best = int(is_free.argmax())
        occupied = np.vstack([occupied, boxes[best]])
        places.append(tuple(ways[best].tolist()))
    return places


def _places(points: FloatArray, width: int, height: int) -> list[list[int]]:
    """Row and column of every point, and last of zero, at one scale in both directions."""
    inside = points if len(points) else np.zeros((1, 2))
    low, high = inside.min(axis=0), inside.max(axis=0)
    ends = np.array([width - 1, height - 1])
    with np.errstate(all="ignore"):
        fits = ends * (1, 2) / np.maximum(high - low, 1e-300)
        scale = fits.min() if (high > low).any() else 1.0
        middle = low / 2 + high / 2
        exact = (np.vstack([points, np.zeros(2)]) - middle) * scale / (1, -2) + ends / 2
    cells = np.clip(np.rint(np.nan_to_num(exact, nan=-1.0)), -1, 10**6)  # zero may be out of view
    return [[int(row), int(column)] for column, row in cells.tolist()]


def _name(canvas: _Canvas, row: int, column: int, label: str, at: int) -> str:
    """Writes a name next to its point, or gives the line for it below the plot."""
    cells = cell_len(label)
    places = [(row, column + 2), (row, column - cells - 1)]
    for line in (row - 1, row + 1):
        places += [(line, start) for start in (column, column - cells + 1, column + 1)]
    for line, start in places:
        if canvas.is_free(line, start, cells):
            canvas.write(line, start, label)
            return ""
    number = str(at + 1)
    canvas.write(row, min(column, canvas.width - len(number)), number)
    return f"{number} = {label}"
