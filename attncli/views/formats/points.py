"""Points in a plane with their names: the principal components of words, as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from attncli.arrays import Array
from attncli.views.formats.drawing import QUIET, SIZE, SMALL, Drawing, px, text, text_width
from attncli.views.text import clean, distinct

_WIDTH, _HEIGHT = 480.0, 320.0
_EDGE = 24.0
_NAME_CELLS = 16
_SIDE = 7  # pixels from a point to its name

Place = tuple[float, float]


def scatter(names: Sequence[str], points: Array, axes: Sequence[str]) -> Drawing:
    """The finite points [n, 2] at one scale, each with its name beside it where there is room."""
    shown = np.flatnonzero(np.isfinite(points).all(axis=1)).tolist()
    found = points[shown].astype(float)
    low = found.min(axis=0, initial=0.0)
    span = np.maximum(found.max(axis=0, initial=0.0) - low, np.finfo(float).tiny)
    unit = float(min(_WIDTH / span[0], _HEIGHT / span[1]))
    width, height = (span * unit + 2 * _EDGE).tolist()
    zero, *places = [
        (_EDGE + x, height - _EDGE - y) for x, y in ((np.vstack(((0, 0), found)) - low) * unit)
    ]
    lines = [
        f'<path d="M0 {px(zero[1])}h{px(width)}M{px(zero[0])} 0v{px(height)}" stroke="#bbb"/>',
        f'<g font-size="{px(SMALL)}" fill="{QUIET}">',
        text(width, zero[1] + 14, axes[0], 'text-anchor="end"'),
        text(zero[0] + 4, SMALL, axes[1]),
        "</g>",
    ]
    for (x, y), at in zip(places, shown, strict=True):
        title = f"<title>{escape(clean(names[at]))}</title>"
        lines.append(f'<circle cx="{px(x)}" cy="{px(y)}" r="3.5" fill="#1c528c">{title}</circle>')
    right = width
    labels = distinct([names[i] for i in shown], shown, _NAME_CELLS)
    for name, (x, y) in _beside(labels, places):
        lines.append(text(x, y, name))
        right = max(right, x + text_width(name))
    return Drawing(right, height, tuple(lines))


def _beside(names: Sequence[str], points: Sequence[Place]) -> list[tuple[str, Place]]:
    """Where the names of points stand, those that there is room for; none meets another."""
    taken = np.array([(x - 4, y - 4, x + 4, y + 4) for x, y in points]).reshape(-1, 4)
    placed = []
    for name, (x, y) in zip(names, points, strict=True):
        wide = text_width(name)
        level = ((x + _SIDE, y + 4), (x - _SIDE - wide, y + 4))
        for left, base in (*level, (x - wide / 2, y - _SIDE), (x - wide / 2, y + _SIDE + SIZE)):
            own = np.array((left, base - SIZE, left + wide, base + 3))
            meets = (own[:2] < taken[:, 2:]) & (taken[:, :2] < own[2:])
            if left >= 0 and base >= SIZE and not meets.all(axis=1).any():
                taken = np.vstack((taken, own))
                placed.append((name, (left, base)))
                break
    return placed
