"""Pieces of SVG: text, boxes, and drawings put beside and below each other.

Only what SVG 1.1, SVG 2 and every program that draws them have. No font is embedded, so the width
of a text is a guess, on the wide side: it is that of DejaVu Sans, the widest of the usual ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import accumulate
from typing import NamedTuple

from rich.cells import cell_len

from attncli.views.text import fold

FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
WIDTH = 900.0
"""Pixels that a figure takes at most: those of a page of text on a screen."""
SIZE = 12.0  # of the letters, in pixels
SMALL = 11.0
QUIET = "#555"  # the colour of words that only explain
_EM = 0.6  # the mean width of a letter, as a part of the size
_WIDER = 0.28  # what a capital, m, w or % takes more
_LINE = 1.4  # height of a line, as a part of the size


class Drawing(NamedTuple):
    """Lines of SVG that fill a box of this size, whose upper left corner is 0, 0."""

    width: float
    height: float
    lines: tuple[str, ...] = ()


def text_width(text: str, size: float = SIZE) -> float:
    """How wide a text of this size is at most.

    >>> text_width("money") < text_width("MONEY") < text_width("注意力注意力")
    True
    """
    wide = sum(char in "mw%@" or char.isupper() for char in text)
    return size * (_EM * cell_len(text) + _WIDER * wide)


def px(x: float) -> str:
    """A length to a tenth of a pixel.

    >>> px(12.0), px(0.25), px(-0.01)
    ('12', '0.2', '0')
    """
    return f"{round(x, 1) + 0:g}" if abs(x) < 1e5 else f"{x:.0f}"


def text(x: float, y: float, words: str, more: str = "") -> str:
    """A line of text from x on, standing on y; `more` are further attributes."""
    return f'<text x="{px(x)}" y="{px(y)}"{more and f" {more}"}>{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, more: str) -> str:
    """A rectangle."""
    sizes = f'width="{px(width)}" height="{px(height)}"'
    return f'<rect x="{px(x)}" y="{px(y)}" {sizes} {more}/>'


def paragraph(words: str, more: str = "", size: float = SMALL, bold: str = "") -> Drawing:
    """Words on as many lines as they need; `bold` comes before them."""
    height, lead = size * _LINE, text_width(bold, size) + size if bold else 0.0
    first, *others = fold(words, int(WIDTH / (size * _EM)), first=int(lead / (size * _EM)))
    first = first.lstrip(" ")
    drawn = [f'<g font-size="{px(size)}"{more and f" {more}"}>']
    if bold:
        parts = f'<tspan font-weight="bold">{escape(bold)}</tspan>'
        parts += f'<tspan dx="{px(size)}">{escape(first)}</tspan>' if first else ""
        drawn.append(f'<text y="{px(size)}">{parts}</text>')
    elif first:
        drawn.append(text(0, size, first))
    drawn += [text(0, at * height + size, line) for at, line in enumerate(others, 1)]
    widest = max(lead + text_width(first, size), *(text_width(line, size) for line in others), 0.0)
    return Drawing(widest, math.ceil((1 + len(others)) * height), (*drawn, "</g>"))


def moved(drawing: Drawing, x: float, y: float) -> tuple[str, ...]:
    """The lines of a drawing with its corner at x, y."""
    return (f'<g transform="translate({px(x)} {px(y)})">', *drawing.lines, "</g>")


def below(drawings: Sequence[Drawing], gap: float = 0.0) -> Drawing:
    """Drawings below each other."""
    tops = [0.0, *accumulate(one.height + gap for one in drawings)]
    lines = (moved(one, 0, top) for one, top in zip(drawings, tops, strict=False))
    width = max((one.width for one in drawings), default=0.0)
    return Drawing(width, max(tops[-1] - gap, 0.0), tuple(line for one in lines for line in one))


def beside(drawings: Sequence[Drawing], gap: float) -> Drawing:
    """Drawings beside each other, as many in a row as there is room for, in even rows."""
    room = max((one.width for one in drawings), default=0.0) + gap
    n = len(drawings)
    n_rows = -(-n // max(int((WIDTH + gap) / room), 1))
    n_columns = -(-n // n_rows) if n else 1
    rows = []
    for start in range(0, n, n_columns):
        row = drawings[start : start + n_columns]
        lines = (line for at, one in enumerate(row) for line in moved(one, at * room, 0))
        height = max(one.height for one in row)
        rows.append(Drawing(room * len(row) - gap, height, tuple(lines)))
    return below(rows, gap)
