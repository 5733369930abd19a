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
_SIDE = 7  # from a point to its name


def scatter(names: Sequence[str], points: Array, axes: Sequence[str]) -> Drawing:
    """Points [n, 2], each with its name beside it; one unit is as long across as it is down.

    A point that is not finite is left out. A name that fits nowhere is only shown on pointing.
    """
    shown = np.flatnonzero(np.isfinite(points).all(axis=1)).tolist()
    found = points[shown].astype(float)
    low = found.min(axis=0, initial=0.0)
    span = np.maximum(found.max(axis=0, initial=0.0) - low, np.finfo(float).tiny)
    unit = float(min(_WIDTH / span[0], _HEIGHT / span[1]))
    across, down = (span * unit).tolist()
    zero_x, zero_y = (-low * unit).tolist()
    places = [(_EDGE + x, _EDGE + down - y) for x, y in ((found - low) * unit).tolist()]
    lines = [
        f'<path d="M0 {px(_EDGE + down - zero_y)}h{px(across + 2 * _EDGE)}'
        f'M{px(_EDGE + zero_x)} 0v{px(down + 2 * _EDGE)}" stroke="#bbb"/>',
        f'<g font-size="{px(SMALL)}" fill="{QUIET}">',
        text(across + 2 * _EDGE, _EDGE + down - zero_y + 14, axes[0], 'text-anchor="end"'),
        text(_EDGE + zero_x + 4, SMALL, axes[1]),
        "</g>",
    ]
    right = across + 2 * _EDGE
    taken = np.array([(x - 4, y - 4, x + 4, y + 4) for x, y in places]).reshape(-1, 4)
    labels = distinct([names[i] for i in shown], shown, _NAME_CELLS)
    for (x, y), label, at in zip(places, labels, shown, strict=True):
        title = f"<title>{escape(clean(names[at]))}</title>"
        lines.append(f'<circle cx="{px(x)}" cy="{px(y)}" r="3.5" fill="#1c528c">{title}</circle>')
        wide = text_width(label)
        beside = ((x + _SIDE, y + 4), (x - _SIDE - wide, y + 4))
        middle = ((x - wide / 2, y - _SIDE), (x - wide / 2, y + _SIDE + SIZE))
        for left, base in (*beside, *middle):
            own = np.array((left, base - SIZE, left + wide, base + 3))
            meets = (own[:2] < taken[:, 2:]) & (taken[:, :2] < own[2:])
            if left >= 0 and base >= SIZE and not meets.all(axis=1).any():
                taken = np.vstack((taken, own))
                lines.append(text(left, base, label))
                right = max(right, left + wide)
                break
    return Drawing(right, down + 2 * _EDGE, tuple(lines))
