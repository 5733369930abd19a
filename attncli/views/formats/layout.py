"""How large the cells of a heatmap are, how many panels are beside each other, and their labels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from attncli.views.formats.drawing import QUIET, SIZE, SMALL, WIDTH, px, text, text_width
from attncli.views.matrix import Shading
from attncli.views.numbers import round_top

GAP = 18  # pixels between panels
_TALLEST = 720.0  # pixels of a panel
_LARGEST, _LABELLED = 24, 9  # pixels of a cell: the most, and the fewest that a label takes
_ACROSS = 4  # panels beside each other at most
_LABEL = 72  # pixels of a column that is widened so that its label need not be turned
_PAD = 6.0  # between a label and its cells
_STEEP, _UPRIGHT = -45, -90  # degrees by which labels of narrow columns are turned


class Layout(NamedTuple):
    """What all panels of a stage share."""

    rows: list[str]  # labels
    columns: list[str]  # labels
    shading: Shading | None  # None where nothing is shaded
    width: float = 0.0  # of a cell, in pixels
    height: float = 0.0  # of a cell, in pixels
    across: int = 1  # panels beside each other
    has_numbers: bool = False  # whether the cells have theirs

    @property
    def gap(self) -> int:
        """Pixels between cells; none between those that are too small for it."""
        return 1 if min(self.width, self.height) >= _LABELLED else 0


def fitted(layout: Layout, texts: Sequence[str], count: int) -> Layout | None:
    """The layout with cells that hold these texts, or else as large as there is room for.

    texts  those of all cells, where they may be written; ()
    count  how many panels there are

    None where there is room neither for the texts nor, without shades, for anything else.
    """
    room = WIDTH - max(map(text_width, layout.rows)) - _PAD
    m = len(layout.columns)
    if texts:
        number = max(math.ceil(max(text_width(words, SMALL) for words in texts)) + 8, _LARGEST)
        label = math.ceil(max(map(text_width, layout.columns))) + 6
        width, across = number, 0
        for width in (max(number, label), number):
            across = min(int((room + GAP) / (m * width + GAP)), count, _ACROSS)
            if across >= min(count, 2) and width <= max(number, _LABEL):
                break
        if layout.shading is None or (across >= min(count, 2) and count <= 2 * across):
            across = _evenly(count, max(across, 1))
            return layout._replace(width=width, height=_LARGEST, across=across, has_numbers=True)
    return None if layout.shading is None else _without_numbers(layout, room, count)


def _without_numbers(layout: Layout, room: float, count: int) -> Layout:
    """Cells large enough for labels where there is room for such, else smaller ones."""
    n, m = len(layout.rows), len(layout.columns)

    def side(across: int) -> float:
        return min((room - (across - 1) * GAP) / (across * m), _TALLEST / max(n, m), _LARGEST)

    most = min(count, _ACROSS)
    across = next((k for k in range(most, 0, -1) if side(k) >= _LABELLED), most)
    cell = float(int(side(across))) if side(across) >= 1 else side(across)
    return layout._replace(
        width=_stretched(cell, m, n), height=_stretched(cell, n, m), across=_evenly(count, across)
    )


def _evenly(count: int, across: int) -> int:
    """Panels beside each other, so that the rows of panels are of the same length."""
    return math.ceil(count / math.ceil(count / across))


def _stretched(side: float, count: int, other: int) -> float:
    """The side of cells of which there are few, so that the panel is no mere line."""
    enough = side * other / (3 * count)
    return side if enough <= side else float(min(math.ceil(enough), _LARGEST))


# ---- labels


class Labels(NamedTuple):
    """The labels of an axis: lines, their size across it, and how far they go beyond its end."""

    lines: tuple[str, ...]
    size: int
    beyond: float = 0.0


def column_labels(layout: Layout) -> Labels:
    """What stands above the columns: labels, turned where these are narrow, or ticks."""
    width, names = layout.width, layout.columns
    if width < _LABELLED:
        lines = [f'<g text-anchor="middle" font-size="{px(SMALL)}">']
        for at, number in ticks(names):
            x = (at + 0.5) * width
            lines += [text(x, -8, number), f'<path d="M{px(x)} -1v-4" stroke="{QUIET}"/>']
        return Labels((*lines, "</g>"), math.ceil(SIZE + 10), 10.0)
    size = min(SIZE, width - 1)
    widest = max(text_width(name, size) for name in names)
    if widest <= width:
        drawn = [text((at + 0.5) * width, -_PAD, name) for at, name in enumerate(names)]
        return Labels(('<g text-anchor="middle">', *drawn, "</g>"), math.ceil(SIZE + _PAD))
    turn = _STEEP if width > 1.4 * size else _UPRIGHT
    lines = [f'<g font-size="{px(size)}">']
    for at, name in enumerate(names):
        x = (at + 0.5) * width + 0.35 * size
        lines.append(text(x, -4, name, f'transform="rotate({turn} {px(x)} -4)"'))
    height, across = (widest * f(math.radians(-turn)) for f in (math.sin, math.cos))
    beyond = max(across - width / 2 + size, 0.0)
    return Labels((*lines, "</g>"), math.ceil(height + size), beyond)


def row_labels(layout: Layout) -> Labels:
    """What stands before the rows and ends at 0: labels, or ticks."""
    height, names = layout.height, layout.rows
    if height < _LABELLED:
        lines = [f'<g text-anchor="end" font-size="{px(SMALL)}">']
        found = list(ticks(names))
        for at, number in found:
            y = (at + 0.5) * height
            lines += [text(-8, y + 4, number), f'<path d="M-1 {px(y)}h-4" stroke="{QUIET}"/>']
        widest = max(text_width(number, SMALL) for _, number in found)
        return Labels((*lines, "</g>"), math.ceil(widest + 10))
    size = min(SIZE, height - 1)
    drawn = [text(-_PAD, (at + 0.5) * height + 0.35 * size, name) for at, name in enumerate(names)]
    widest = max(text_width(name, size) for name in names)
    group = f'<g text-anchor="end" font-size="{px(size)}">'
    return Labels((group, *drawn, "</g>"), math.ceil(widest + _PAD))


def ticks(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Where ticks are, every 10th, 20th, 50th …, and their numbers: those of the labels, or from 1.

    >>> list(ticks(["pos 98", "pos 99", "pos 100"])), list(ticks(["the"] * 120))[:2]
    ([(0, '98'), (1, '99'), (2, '100')], [(19, '20'), (39, '40')])
    """
    found = [re.fullmatch(r"\D*?(\d{1,9})", name) for name in (names[0], names[-1])]
    start = 1
    if found[0] and found[1] and int(found[1][1]) - int(found[0][1]) == len(names) - 1:
        start = int(found[0][1])
    step = int(round_top(max(len(names) / 6, 1)))
    numbers = range(-(-start // step) * step, start + len(names), step)
    yield from ((number - start, str(number)) for number in numbers)
