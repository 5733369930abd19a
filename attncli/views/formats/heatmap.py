"""The matrices of a stage as shaded panels beside each other, with labels, a scale and marks.

Rows have labels in the first column of panels, columns above the first row of them. Cells large
enough have their numbers; many small ones are one picture with a pixel for each, and their axes
have ticks at round numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.errors import ConventionError
from attncli.stages import kind_of
from attncli.views.formats.colours import colour, css
from attncli.views.formats.drawing import (
    QUIET,
    SIZE,
    SMALL,
    WIDTH,
    Drawing,
    below,
    box,
    moved,
    paragraph,
    px,
    text,
    text_width,
)
from attncli.views.formats.png import NOTHING, data_uri
from attncli.views.numbers import FINER, round_top, short
from attncli.views.parts import NUMERIC, PIXELS, Cell, Matrix, Ramp, Shading

_MOST_NUMBERS = 40  # rows or columns whose cells have numbers
_MOST = 0.99  # of many weights, which the scale shows
_MOST_BOXES = 2500  # cells that are drawn one by one; of more, a picture is smaller and as good
_TALLEST = 720.0  # pixels of a panel
_LARGEST, _LABELLED = 24, 9  # pixels of a cell: the most, and the fewest that a label takes
_ACROSS = 4  # panels beside each other at most
_GAP = 18
_LABEL = 72  # pixels of a column that is widened so that its label need not be turned
_PAD = 6.0  # between a label and its cells
_GREY = "#{:02x}{:02x}{:02x}".format(*NOTHING)
_STEEP, _UPRIGHT = -45, -90  # degrees by which labels of narrow columns are turned
_BAR = 140.0  # pixels of the scale


class Panel(NamedTuple):
    """One matrix of the stage: what is asked for of it.

    title   which head and batch entry, or ""
    values  [rows, columns]; hidden: True where a cell is masked; empty: where nothing is written
    cells   their texts, where the cells have numbers
    """

    title: str
    values: Array
    hidden: BoolArray
    empty: BoolArray
    cells: tuple[tuple[Cell, ...], ...]


class Layout(NamedTuple):
    """What all panels share.

    width, height  of a cell, in pixels
    across         panels beside each other
    has_numbers    whether the cells have theirs
    rows, columns  the labels of both
    shading        None where nothing is shaded
    """

    width: float
    height: float
    across: int
    has_numbers: bool
    rows: list[str]
    columns: list[str]
    shading: Shading | None


def heatmap(matrices: Sequence[Matrix], titles: Sequence[str]) -> Drawing:
    """The matrices of one stage at several heads or batch entries, on a common scale.

    Raises ConventionError where nothing could be seen: a large matrix without shades.
    """
    first = matrices[0]
    if not first.rows or not first.columns:
        return paragraph("nothing to show", f'fill="{QUIET}"')
    is_numeric = first.values.dtype.kind in NUMERIC
    is_small = max(len(first.rows), len(first.columns)) <= _MOST_NUMBERS
    panels = [
        _panel(matrix, title, with_texts=is_small or not is_numeric)
        for matrix, title in zip(matrices, titles, strict=True)
    ]
    shading, is_cut = None, False
    if is_numeric and first.options.heatmap is not False:
        shading, is_cut = _shading(panels, kind_of(first.stage.name).shade or "signed")
    layout = _layout(first, panels, shading)
    return below([_panels(panels, layout), *_legend(first, panels, layout, is_cut)], _GAP)


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


def _panel(matrix: Matrix, title: str, *, with_texts: bool) -> Panel:
    rows, columns, part = matrix.rows, matrix.columns, asked_of(matrix)
    cells: tuple[tuple[Cell, ...], ...] = ()
    if with_texts:
        grid = matrix.grid(tuple(rows), tuple(columns), colour=True)
        cells = tuple(row[: len(columns)] for row in grid.cells[: len(rows)])  # without the sums
    return Panel(title, matrix.values[part], matrix.marked[part], matrix.empty[part], cells)


def asked_of(matrix: Matrix) -> tuple[slice, slice]:
    """The part of a matrix that is asked for, as an index of its values."""
    rows, columns = matrix.rows, matrix.columns
    return np.s_[rows.start : rows.stop, columns.start : columns.stop]


def names_of(matrix: Matrix) -> tuple[list[str], list[str]]:
    """The labels of the rows and columns that are asked for, without those of sums."""
    rows, columns = tuple(matrix.rows), tuple(matrix.columns)
    return matrix.labels(-2, rows)[: len(rows)], matrix.labels(-1, columns)[: len(columns)]


# ---- how large


def _layout(matrix: Matrix, panels: Sequence[Panel], shading: Shading | None) -> Layout:
    """Cells with their numbers where these fit, else as large as there is room for."""
    rows, columns = names_of(matrix)
    n, m, k = len(rows), len(columns), len(panels)
    room = WIDTH - max(map(text_width, rows)) - _PAD
    texts = [cell.text.strip() for panel in panels for row in panel.cells for cell in row]
    if texts:
        number: float = math.ceil(max(text_width(words, SMALL) for words in texts)) + 8
        label = math.ceil(max(map(text_width, columns))) + 6
        width = number
        for width in (max(number, label, _LARGEST), max(number, _LARGEST)):
            across = min(int((room + _GAP) / (m * width + _GAP)), k, _ACROSS)
            if across >= min(k, 2) and width <= max(number, _LABEL):
                break
        few = across >= min(k, 2) and k <= 2 * across  # more heads are for an overview
        if few or shading is None:
            across = _evenly(k, max(across, 1))
            return Layout(width, float(_LARGEST), across, True, rows, columns, shading)
    if shading is None:
        raise ConventionError(
            f"{matrix.name} without shades shows nothing: {n} × {m} numbers have no room",
            "choose some with --rows and --cols, or leave out --no-heatmap",
        )
    for across in range(min(k, _ACROSS), 0, -1):
        side = min((room - (across - 1) * _GAP) / (across * m), _TALLEST / max(n, m), _LARGEST)
        if side >= _LABELLED or (across == 1 and k > 1):
            break
    if side < _LABELLED:  # too small for labels, so that there can be as many as fit
        across = min(k, _ACROSS)
        side = min((room - (across - 1) * _GAP) / (across * m), _TALLEST / max(n, m))
    side = float(int(side)) if side >= 1 else side
    width, height = _stretched(side, m, n), _stretched(side, n, m)
    return Layout(width, height, _evenly(k, across), False, rows, columns, shading)


def _evenly(count: int, across: int) -> int:
    """Panels beside each other, so that the rows of panels are of the same length."""
    return math.ceil(count / math.ceil(count / across))


def _stretched(side: float, count: int, other: int) -> float:
    """The side of cells of which there are few, so that the panel is no mere line."""
    enough = side * other / (3 * count)
    return side if enough <= side else float(min(math.ceil(enough), _LARGEST))


# ---- panels


def _panels(panels: Sequence[Panel], layout: Layout) -> Drawing:
    """All panels, with their titles and labels."""
    width, height = layout.width * len(layout.columns), layout.height * len(layout.rows)
    top, top_height, overhang = _column_labels(layout)
    side, side_width = _row_labels(layout)
    top_height, side_width = math.ceil(top_height), math.ceil(side_width)  # sharp edges
    head = 20 if any(panel.title for panel in panels) else 0
    lines: list[str] = []
    y: float = 0
    for at, panel in enumerate(panels):
        row, column = divmod(at, layout.across)
        x = side_width + column * (width + _GAP)
        y = top_height + head + row * (height + head + _GAP)
        if panel.title:
            above = y - head if row else 0
            lines.append(text(x, above + SIZE, panel.title, 'font-weight="bold"'))
        lines += moved(Drawing(0, 0, side), side_width, y) if not column else ()
        lines += moved(Drawing(0, 0, top), x, y) if not row else ()
        lines += moved(Drawing(0, 0, tuple(_cells(panel, layout))), x, y)
    titles = max(text_width(panel.title) for panel in panels) * 1.1
    last = side_width + (layout.across - 1) * (width + _GAP)
    return Drawing(last + max(width + overhang, titles), y + height, tuple(lines))


def _column_labels(layout: Layout) -> tuple[tuple[str, ...], float, float]:
    """What stands above the columns, its height, and how far it goes beyond the last one."""
    width, names = layout.width, layout.columns
    if width < _LABELLED:
        lines = [f'<g text-anchor="middle" font-size="{px(SMALL)}">']
        for at, number in _ticks(names):
            x = (at + 0.5) * width
            lines += [text(x, -8, number), f'<path d="M{px(x)} -1v-4" stroke="{QUIET}"/>']
        return (*lines, "</g>"), SIZE + 10, 10.0
    size = min(SIZE, width - 1)
    widest = max(text_width(name, size) for name in names)
    if widest <= width:
        drawn = [text((at + 0.5) * width, -_PAD, name) for at, name in enumerate(names)]
        return ('<g text-anchor="middle">', *drawn, "</g>"), SIZE + _PAD, 0.0
    turn = _STEEP if width > 1.4 * size else _UPRIGHT
    lines = [f'<g font-size="{px(size)}">']
    for at, name in enumerate(names):
        x = (at + 0.5) * width + 0.35 * size
        lines.append(text(x, -4, name, f'transform="rotate({turn} {px(x)} -4)"'))
    reach = math.radians(-turn)
    height, across = widest * math.sin(reach), widest * math.cos(reach)
    return (*lines, "</g>"), height + size, max(across - width / 2 + size, 0.0)


def _row_labels(layout: Layout) -> tuple[tuple[str, ...], float]:
    """What stands before the rows, ending at 0, and its width."""
    height, size = layout.height, min(SIZE, layout.height - 1)
    if height < _LABELLED:
        lines = [f'<g text-anchor="end" font-size="{px(SMALL)}">']
        ticks = list(_ticks(layout.rows))
        for at, number in ticks:
            y = (at + 0.5) * height
            lines += [text(-8, y + 4, number), f'<path d="M-1 {px(y)}h-4" stroke="{QUIET}"/>']
        return (*lines, "</g>"), max(text_width(number) for _, number in ticks) + 10
    lines = [f'<g text-anchor="end" font-size="{px(size)}">']
    lines += [
        text(-_PAD, (at + 0.5) * height + 0.35 * size, name) for at, name in enumerate(layout.rows)
    ]
    return (*lines, "</g>"), max(text_width(name, size) for name in layout.rows) + _PAD


def _ticks(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Where the ticks of many rows or columns are, and their numbers: every 10th, 20th, 50th …

    The numbers are those in the labels where these count on, as pos 0, pos 1 do, else from 1.
    """
    found = [re.fullmatch(r"\D*?(\d{1,9})", name) for name in (names[0], names[-1])]
    start = 1
    if found[0] and found[1] and int(found[1][1]) - int(found[0][1]) == len(names) - 1:
        start = int(found[0][1])
    step = int(round_top(max(len(names) / 6, 1)))
    numbers = range(-(-start // step) * step, start + len(names), step)
    yield from ((number - start, str(number)) for number in numbers)
    if not numbers:
        yield 0, str(start)


# ---- cells


def _cells(panel: Panel, layout: Layout) -> Iterator[str]:
    """The cells of a panel: boxes and numbers, or a picture."""
    shading, (n, m) = layout.shading, panel.values.shape
    if shading is not None and n * m > _MOST_BOXES:
        yield _picture(panel, layout, shading)
        return
    shades = np.full((n, m), np.nan)
    if shading is not None:
        shares = panel.values.astype(float) / shading.top
        shades = np.where(panel.hidden, np.nan, shares.clip(-1, 1))
    boxes: dict[str, list[str]] = {}
    numbers: list[str] = []
    gap = 1 if min(layout.width, layout.height) >= _LABELLED else 0
    wide, high = px(layout.width - gap), px(layout.height - gap)
    for i, j in np.argwhere(~panel.empty).tolist():
        x, y, shade = j * layout.width, i * layout.height, shades[i, j].item()
        fill, front = ("#f4f4f4" if shading is None else _GREY), "#000"
        if shading is not None and not math.isnan(shade):
            fill, front = css(shade, shading.ramp)
        corner = f"M{px(x)} {px(y)}"
        if panel.hidden[i, j]:
            fill = "#eee"
            boxes.setdefault("hatch", []).append(f"M{px(x)} {px(y + layout.height - gap)}")
        boxes.setdefault(fill, []).append(f"{corner}h{wide}v{high}h-{wide}z")
        if layout.has_numbers and not panel.hidden[i, j]:
            words = panel.cells[i][j].text.strip()
            middle = x + (layout.width - gap) / 2, y + layout.height / 2 + 0.35 * SMALL
            numbers.append(text(*middle, words, "" if front == "#000000" else f'fill="{front}"'))
    hatch = boxes.pop("hatch", [])
    for fill, paths in boxes.items():
        yield f'<path fill="{fill}" shape-rendering="crispEdges" d="{"".join(paths)}"/>'
    if hatch:
        stroke = f"l{wide} -{high}"
        yield f'<path stroke="#999" d="{"".join(start + stroke for start in hatch)}"/>'
    if numbers:
        yield from (f'<g font-size="{px(SMALL)}" text-anchor="middle">', *numbers, "</g>")


def _picture(panel: Panel, layout: Layout, shading: Shading) -> str:
    values, step = panel.values, pixel_of(panel)
    if panel.hidden.any():
        values = np.where(panel.hidden, np.nan, values)
    if step > 1:  # a pixel is the mean of several cells
        edges = ((0, -len(values) % step), (0, -values.shape[1] % step))
        padded = np.pad(values.astype(float), edges, constant_values=np.nan)
        blocks = padded.reshape(padded.shape[0] // step, step, padded.shape[1] // step, step)
        counts = np.isfinite(blocks).sum((1, 3))
        sums = np.where(np.isfinite(blocks), blocks, 0.0).sum((1, 3))
        values = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    width, height = px(layout.width * panel.values.shape[1]), px(layout.height * len(panel.values))
    how = ""
    if layout.width >= 1:  # else a smaller picture is smoothed
        how = ' image-rendering="optimizeSpeed" style="image-rendering:pixelated"'
    return (
        f'<image width="{width}" height="{height}" preserveAspectRatio="none"{how} '
        f'xlink:href="{data_uri(values, shading)}"/>'
    )


def pixel_of(panel: Panel) -> int:
    """How many rows and columns of the matrix a pixel of its picture stands for."""
    n, m = map(int, panel.values.shape)
    return math.ceil(max(n, m) / PIXELS)


# ---- legend


def _legend(
    matrix: Matrix, panels: Sequence[Panel], layout: Layout, is_cut: bool
) -> Iterator[Drawing]:
    """The scale, and what else is seen: masked cells, those without a number."""
    is_picture = panels[0].values.size > _MOST_BOXES
    shown: list[Drawing] = []
    if layout.shading is not None:
        shown.append(_scale(layout.shading, matrix.name, is_cut))
    if any(panel.hidden.any() for panel in panels):
        meaning = matrix.mark.removeprefix("/// ")
        shown.append(_swatch(meaning, "grey" if is_picture else "hatch"))
    floats = (p for p in panels if p.values.dtype.kind == "f" and not layout.has_numbers)
    if any(np.isnan(p.values[~p.hidden]).any() for p in floats):
        shown.append(_swatch("not a number (NaN)", "grey"))
    yield from [below(shown, 4)] if shown else []
    words = [matrix.legend] if matrix.legend else []
    if is_picture and (step := pixel_of(panels[0])) > 1:
        words.append(f"each pixel is the mean of {step} × {step} numbers")
    yield from (paragraph(line, f'fill="{QUIET}"') for line in words)


def _scale(shading: Shading, meaning: str, is_cut: bool) -> Drawing:
    """A bar of all shades with its ends, and what they are of."""
    low, end = ("0" if shading.ramp == "share" else f"-{short(shading.top, 4)}"), 16
    name = f"attncli-{shading.ramp}"
    start = 0.0 if shading.ramp == "share" else -1.0
    stops = (
        (at / end, colour(start + (1 - start) * at / end, shading.ramp)) for at in range(end + 1)
    )
    lead = text_width(meaning, SMALL) + SMALL if meaning else 0.0
    left = lead + text_width(low, SMALL) + _PAD
    high = short(shading.top, 4) + (" or more" if is_cut else "")
    lines = (
        f'<defs><linearGradient id="{name}">',
        *(
            '<stop offset="{:g}" stop-color="#{:02x}{:02x}{:02x}"/>'.format(at, *rgb)
            for at, rgb in stops
        ),
        "</linearGradient></defs>",
        f'<g font-size="{px(SMALL)}">',
        text(0, SMALL, meaning),
        text(left - _PAD, SMALL, low, 'text-anchor="end"'),
        box(left, 1, _BAR, SMALL, f'fill="url(#{name})"'),
        text(left + _BAR + _PAD, SMALL, high),
        "</g>",
    )
    return Drawing(left + _BAR + _PAD + text_width(high, SMALL), SMALL + 4, lines)


def _swatch(meaning: str, kind: Literal["hatch", "grey"]) -> Drawing:
    """A cell as it is drawn, and what it means."""
    fill = "#eee" if kind == "hatch" else _GREY
    lines = [box(0, 0, 14, 14, f'fill="{fill}"')]
    lines += ['<path stroke="#999" d="M0 14l14 -14"/>'] if kind == "hatch" else []
    lines += [text(20, SMALL, meaning, f'font-size="{px(SMALL)}"')]
    return Drawing(20 + text_width(meaning, SMALL), 16, tuple(lines))
