"""Attention as lines from the queries, at the left, to the keys, at the right; a panel a head.

The larger a weight, the wider and darker its line. Weights below a tenth of the end of the scale
have none, which is said beneath.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attncli.arrays import Array
from attncli.errors import ConventionError
from attncli.views.formats.drawing import (
    QUIET,
    SIZE,
    SMALL,
    Drawing,
    below,
    beside,
    paragraph,
    px,
    text,
    text_width,
)
from attncli.views.formats.heatmap import asked_of, names_of
from attncli.views.matrix import LARGE, Matrix
from attncli.views.numbers import FINER, round_top, short

_SHARE = 0.1  # of the scale, below which a weight has no line: it would hardly be seen
_ACROSS = 150.0  # pixels from the queries to the keys
_PITCH, _TIGHT = 20.0, 13.0  # from one token to the next; of many
_MANY = 30
_WIDEST = 5.0
_PAD = 6.0
_COLOUR = "#1c528c"  # the blue of the other ramp


def arcs(matrices: Sequence[Matrix], titles: Sequence[str]) -> Drawing:
    """The weights of an attention at several heads or batch entries, on a common scale."""
    first = matrices[0]
    if not first.stage.kind.masks or not first.stage.kind.sums:
        what = f"--arcs draws weights, which {first.name} are not"
        raise ConventionError(what, "leave it out, or --stage weights")
    if not first.rows or not first.columns:
        return paragraph("nothing to show", f'fill="{QUIET}"')
    n, m = len(first.rows), len(first.columns)
    if max(n, m) > LARGE and not first.options.full:
        what = f"--arcs draws up to {LARGE} queries and keys, these are {n} × {m}"
        raise ConventionError(what, "choose some with --rows and --cols, or add --full")
    weights = [np.asarray(matrix.values[asked_of(matrix)], dtype=float) for matrix in matrices]
    finite = (one[np.isfinite(one)] for one in weights)
    top = round_top(max(float(one.max(initial=0.0)) for one in finite), FINER)
    queries, keys = names_of(first)
    panels = [
        _panel(title, one / top, queries, keys) for title, one in zip(titles, weights, strict=True)
    ]
    drawn = sum(int((one >= _SHARE * top).sum()) for one in weights)
    return below([beside(panels, 26), _legend(top, drawn, n * m * len(panels))], 16)


def _panel(title: str, shares: Array, queries: list[str], keys: list[str]) -> Drawing:
    """One head: its tokens twice, and the lines, the largest on top."""
    pitch = _PITCH if max(len(queries), len(keys)) <= _MANY else _TIGHT
    size = min(SIZE, pitch - 2)
    left = max(text_width(name, size) for name in (*queries, "queries")) + _PAD
    right = left + _ACROSS
    head = SIZE * 3 if title else SIZE * 1.5
    lines = [text(left, SIZE, title, 'font-weight="bold"')] if title else []
    lines += [f'<g font-size="{px(size)}">']
    for names, x, anchor, words in (
        (queries, left - _PAD, ' text-anchor="end"', "queries"),
        (keys, right + _PAD, "", "keys"),
    ):
        lines += [f"<g{anchor}>", text(x, head - 8, words, f'fill="{QUIET}"')]
        down = head + pitch / 2 + 0.35 * size
        lines += [text(x, down + at * pitch, name) for at, name in enumerate(names)]
        lines += ["</g>"]
    lines += ["</g>", f'<g fill="none" stroke="{_COLOUR}">']
    shown = np.argwhere(shares >= _SHARE)
    order = np.argsort(shares[tuple(shown.T)], kind="stable")
    for i, j in shown[order].tolist():
        start, end = (head + (at + 0.5) * pitch for at in (i, j))
        middle = f"{px((left + right) / 2)}"
        curve = f"M{px(left)} {px(start)}C{middle} {px(start)} {middle} {px(end)}"
        lines.append(f'<path d="{curve} {px(right)} {px(end)}" {_stroke(float(shares[i, j]))}/>')
    height = head + max(len(queries), len(keys)) * pitch
    width = right + _PAD + max(text_width(name, size) for name in (*keys, "keys"))
    return Drawing(width, height, (*lines, "</g>"))


def _stroke(share: float) -> str:
    """Width and opacity of a line for a weight, as a share of the scale."""
    size = min(share, 1.0)
    return f'stroke-width="{px(_WIDEST * size)}" stroke-opacity="{0.25 + 0.65 * size:.2f}"'


def _legend(top: float, drawn: int, count: int) -> Drawing:
    """Lines of three weights, and how many weights have none."""
    x, lines = 0.0, [f'<g font-size="{px(SMALL)}">']
    for share in (_SHARE, 0.5, 1.0):
        words = short(share * top, 4)
        lines.append(f'<path d="M{px(x)} 7h36" stroke="{_COLOUR}" {_stroke(share)}/>')
        lines.append(text(x + 42, SMALL, words))
        x += 42 + text_width(words, SMALL) + 18
    left_out = f"{count - drawn} of {count} weights are" if drawn < count else "no weight is"
    words = f"{left_out} below {short(_SHARE * top, 4)} and left out"
    lines.append("</g>")
    return below([Drawing(x, SMALL + 4, tuple(lines)), paragraph(words, f'fill="{QUIET}"')], 4)
