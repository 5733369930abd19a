"""The matrices of a stage as shaded panels beside each other, with labels, a scale and marks.

Rows have labels in the first column of panels, columns above the first row of them. Cells large
enough have their numbers; many small ones are one picture with a pixel for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.errors import ConventionError
from attncli.views.formats.colours import colour, css
from attncli.views.formats.drawing import (
    QUIET,
    SIZE,
    SMALL,
    Drawing,
    below,
    box,
    moved,
    paragraph,
    px,
    text,
    text_width,
)
from attncli.views.formats.layout import GAP, Layout, column_labels, fitted, row_labels
from attncli.views.formats.png import NOTHING, data_uri
from attncli.views.matrix import NUMERIC, PIXELS, Cell, Matrix, Ramp, Shading
from attncli.views.numbers import FINER, round_top, short

_MOST_NUMBERS = 40  # rows or columns whose cells have numbers
_MOST_BOXES = 2500  # cells that are drawn one by one; of more, a picture is smaller and as good
_MOST = 0.99  # of many weights, which the scale shows
_TITLE = 20  # pixels of the line with the title of a panel
_PLAIN, _MASKED = "#f4f4f4", "#eee"
_HATCH = 'stroke="#999"'
_GREY = "#{:02x}{:02x}{:02x}".format(*NOTHING)
_BAR, _PAD = 140.0, 6.0  # pixels of the scale, and between it and its ends
_STOPS = 16  # of its gradient


class Panel(NamedTuple):
    """One matrix of the stage: what is asked for of it."""

    title: str  # which head and batch entry, or ""
    values: Array  # [rows, columns]
    hidden: BoolArray  # True where a cell is masked
    empty: BoolArray  # True where nothing is written
    cells: tuple[tuple[Cell, ...], ...]  # their texts, where cells may have numbers


def heatmap(matrices: Sequence[Matrix], titles: Sequence[str]) -> Drawing:
    """The matrices of one stage at several heads or batch entries, on a common scale."""
    first = matrices[0]
    n, m = len(first.rows), len(first.columns)
    if not n or not m:
        return paragraph("nothing to show", f'fill="{QUIET}"')
    is_numeric = first.values.dtype.kind in NUMERIC
    has_texts = not is_numeric or max(n, m) <= _MOST_NUMBERS
    panels = [_panel(*one, has_texts) for one in zip(matrices, titles, strict=True)]
    shading, is_cut = None, False
    if is_numeric and first.options.heatmap is not False:
        shading, is_cut = _shading(panels, first.stage.kind.shade or "signed")
    texts = [cell.text.strip() for panel in panels for row in panel.cells for cell in row]
    layout = fitted(Layout(*names_of(first), shading), texts, len(panels))
    if layout is None:
        what = f"{first.name} without shades shows nothing: {n} × {m} numbers have no room"
        raise ConventionError(what, "choose some with --rows and --cols, or leave out --no-heatmap")
    return below([_panels(panels, layout), *_legend(first, panels, layout, is_cut)], GAP)


def asked_of(matrix: Matrix) -> tuple[slice, slice]:
    """The part of a matrix that is asked for, as an index of its values."""
    rows, columns = matrix.rows, matrix.columns
    return np.s_[rows.start : rows.stop, columns.start : columns.stop]


def names_of(matrix: Matrix) -> tuple[list[str], list[str]]:
    """The labels of the rows and columns that are asked for, without those of sums."""
    rows, columns = tuple(matrix.rows), tuple(matrix.columns)
    return matrix.labels(-2, rows)[: len(rows)], matrix.labels(-1, columns)[: len(columns)]


def _panel(matrix: Matrix, title: str, has_texts: bool) -> Panel:
    part = asked_of(matrix)
    cells: tuple[tuple[Cell, ...], ...] = ()
    if has_texts:
        rows, columns = tuple(matrix.rows), tuple(matrix.columns)
        grid = matrix.grid(rows, columns, colour=True)
        cells = tuple(row[: len(columns)] for row in grid.cells[: len(rows)])  # without the sums
    return Panel(title, matrix.values[part], matrix.marked[part], matrix.empty[part], cells)


def _shading(panels: Sequence[Panel], ramp: Ramp) -> tuple[Shading, bool]:
    """The shades of all panels, and whether the largest numbers are beyond their end.

    Of many weights a few are near 1 (a first query has but one key), and the others near 1/n: the
    scale ends where 99 % of them do, or they would all be dark.
    """
    shown = [p.values[np.isfinite(p.values) & ~p.hidden] for p in panels]
    top = largest = max(float(np.abs(x, dtype=float).max(initial=0.0)) for x in shown)
    if ramp == "share" and panels[0].values.size > _MOST_BOXES:
        most = max(float(np.quantile(x, _MOST)) if x.size else 0.0 for x in shown)
        top = most if 0 < most < largest / 2 else largest
    return Shading(ramp, round_top(top, FINER)), top < largest


# ---- panels


def _panels(panels: Sequence[Panel], layout: Layout) -> Drawing:
    """All panels, with their titles and labels."""
    width, height = layout.width * len(layout.columns), layout.height * len(layout.rows)
    top, side = column_labels(layout), row_labels(layout)
    head = _TITLE if any(panel.title for panel in panels) else 0
    lines: list[str] = []
    x: float = 0
    y: float = 0
    for at, panel in enumerate(panels):
        row, column = divmod(at, layout.across)
        x = side.size + column * (width + GAP)
        y = top.size + head + row * (height + head + GAP)
        if panel.title:
            above = y - head if row else 0
            lines.append(text(x, above + SIZE, panel.title, 'font-weight="bold"'))
        lines += moved(Drawing(0, 0, side.lines), side.size, y) if not column else ()
        lines += moved(Drawing(0, 0, top.lines), x, y) if not row else ()
        lines += moved(Drawing(0, 0, tuple(_cells(panel, layout))), x, y)
    titles = max(text_width(panel.title) for panel in panels) * 1.1  # they are bold
    last = side.size + (layout.across - 1) * (width + GAP)
    return Drawing(last + max(width + top.beyond, titles), y + height, tuple(lines))


def _cells(panel: Panel, layout: Layout) -> Iterator[str]:
    """The cells of a panel: boxes, all of one colour as one path, and numbers; or a picture."""
    if layout.shading is not None and panel.values.size > _MOST_BOXES:
        yield _picture(panel, layout, layout.shading)
        return
    boxes: dict[str, list[str]] = {}
    hatch, numbers = [], []
    wide, high = layout.width - layout.gap, layout.height - layout.gap
    for i, j in np.argwhere(~panel.empty).tolist():
        x, y = j * layout.width, i * layout.height
        back, front = _colours(panel, layout.shading, i, j)
        boxes.setdefault(back, []).append(f"M{px(x)} {px(y)}h{px(wide)}v{px(high)}h-{px(wide)}z")
        if panel.hidden[i, j]:
            hatch.append(f"M{px(x)} {px(y + high)}l{px(wide)} -{px(high)}")
        elif layout.has_numbers:
            white = "" if front == "#000000" else f'fill="{front}"'
            words = panel.cells[i][j].text.strip()
            numbers.append(text(x + wide / 2, y + high / 2 + 0.35 * SMALL, words, white))
    for fill, paths in boxes.items():
        yield f'<path fill="{fill}" shape-rendering="crispEdges" d="{"".join(paths)}"/>'
    if hatch:
        yield f'<path {_HATCH} d="{"".join(hatch)}"/>'
    if numbers:
        yield from (f'<g font-size="{px(SMALL)}" text-anchor="middle">', *numbers, "</g>")


def _colours(panel: Panel, shading: Shading | None, i: int, j: int) -> tuple[str, str]:
    """The colours of a cell and of its number."""
    if panel.hidden[i, j]:
        return _MASKED, "#000000"
    if shading is None:
        return _PLAIN, "#000000"
    share = float(panel.values[i, j]) / shading.top
    if math.isnan(share):
        return _GREY, "#000000"
    return css(min(max(share, -1), 1), shading.ramp, paper=True)


def _picture(panel: Panel, layout: Layout, shading: Shading) -> str:
    values = np.where(panel.hidden, np.nan, panel.values) if panel.hidden.any() else panel.values
    high, wide = steps_of(panel)
    if high * wide > 1:
        edges = ((0, -len(values) % high), (0, -values.shape[1] % wide))
        padded = np.pad(values.astype(float), edges, constant_values=np.nan)
        blocks = padded.reshape(len(padded) // high, high, -1, wide)
        is_finite = np.isfinite(blocks)
        counts = is_finite.sum((1, 3))
        sums = np.where(is_finite, blocks, 0.0).sum((1, 3))
        values = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    n, m = panel.values.shape
    size = f'width="{px(layout.width * m)}" height="{px(layout.height * n)}"'
    sharp = ' image-rendering="optimizeSpeed" style="image-rendering:pixelated"'
    how = sharp if layout.width >= 1 else ""  # else a smaller picture is smoothed
    for axis, cell in enumerate((layout.height, layout.width)):  # some readers smooth the larger
        values = np.repeat(values, max(int(cell), 1), axis=axis)
    uri = data_uri(values, shading)
    return f'<image {size} preserveAspectRatio="none"{how} xlink:href="{uri}"/>'


def steps_of(panel: Panel) -> tuple[int, int]:
    """How many rows and columns of the matrix a pixel of its picture stands for."""
    n, m = panel.values.shape
    return math.ceil(n / PIXELS), math.ceil(m / PIXELS)


# ---- legend


def _legend(
    matrix: Matrix, panels: Sequence[Panel], layout: Layout, is_cut: bool
) -> Iterator[Drawing]:
    """The scale, and what else is seen: masked cells, those without a number."""
    is_picture = layout.shading is not None and panels[0].values.size > _MOST_BOXES
    shown = [_scale(layout.shading, matrix.name, is_cut)] if layout.shading else []
    if any(panel.hidden.any() for panel in panels):
        shown.append(_swatch(matrix.mark.removeprefix("/// "), _GREY if is_picture else _MASKED))
    floats = (p for p in panels if p.values.dtype.kind == "f" and not layout.has_numbers)
    if any(np.isnan(p.values[~p.hidden]).any() for p in floats):
        shown.append(_swatch("not a number (NaN)", _GREY))
    yield from [below(shown, 4)] if shown else []
    words = [matrix.legend] if matrix.legend else []
    high, wide = steps_of(panels[0])
    words += [f"each pixel is the mean of {high} × {wide} numbers"] if high * wide > 1 else []
    yield from (paragraph(line, f'fill="{QUIET}"') for line in words)


def _scale(shading: Shading, meaning: str, is_cut: bool) -> Drawing:
    """A bar of all shades with its ends, and what they are of."""
    end, name = short(shading.top, 4), f"attncli-{shading.ramp}"
    low = "0" if shading.ramp == "share" else f"-{end}"
    high = f"{end} or more" if is_cut else end
    lead = text_width(meaning, SMALL) + SMALL if meaning else 0.0
    left = lead + text_width(low, SMALL) + _PAD
    right = left + _BAR + _PAD
    least = 0 if shading.ramp == "share" else -1
    stops = []
    for share in np.linspace(0, 1, _STOPS + 1).tolist():
        red, green, blue = colour(least + (1 - least) * share, shading.ramp, paper=True)
        fill = f"#{red:02x}{green:02x}{blue:02x}"
        stops.append(f'<stop offset="{share:g}" stop-color="{fill}"/>')
    lines = (
        f'<defs><linearGradient id="{name}">',
        *stops,
        "</linearGradient></defs>",
        f'<g font-size="{px(SMALL)}">',
        text(0, SMALL, meaning),
        text(left - _PAD, SMALL, low, 'text-anchor="end"'),
        box(left, 1, _BAR, SMALL, f'fill="url(#{name})"'),
        text(right, SMALL, high),
        "</g>",
    )
    return Drawing(right + text_width(high, SMALL), SMALL + 4, lines)


def _swatch(meaning: str, fill: str) -> Drawing:
    """A cell as it is drawn, and what it means."""
    lines = [box(0, 0, 14, 14, f'fill="{fill}"')]
    lines += [f'<path {_HATCH} d="M0 14l14 -14"/>'] if fill == _MASKED else []
    lines += [text(20, SMALL, meaning, f'font-size="{px(SMALL)}"')]
    return Drawing(20 + text_width(meaning, SMALL), 16, tuple(lines))
