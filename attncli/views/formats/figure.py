"""Figures by Matplotlib (the extra `figures`): cells in colours, arcs between words, and points.

A stage is a part of the figure, a head an Axes in it. The user's own style applies; pyplot, whose
state is everybody's, is not used. Lengths are in points, of which an inch has 72.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import ListedColormap, Normalize, hsv_to_rgb, to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.path import Path

from attncli.trace import Trace
from attncli.views.formats.colours import MIDDLE, luminance, page_colours, text_on
from attncli.views.formats.letters import as_it_is
from attncli.views.page import Page, parts
from attncli.views.panels import LETTER, Panel, Panels, few_names, only_panel, stages_of
from attncli.views.scatter import beside
from attncli.views.select import DisplayOptions
from attncli.views.text import fold, sentence

_RULES: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "attncli", "pdf.fonttype": 42}
_DPI, _WIDEST = 200, 4.0  # pixels of an inch of a PNG; points of the widest line
_GREY = (0.5, 0.5, 0.5, 0.3)  # of a cell without a number, on any ground


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The figure as an element of SVG, in which text is text; every page gives the same."""
    write(trace, options, file := io.BytesIO(), "svg")
    yield '<svg role="img"' + file.getvalue().decode().partition("<svg")[2]


def write(trace: Trace, options: DisplayOptions, file: BinaryIO, form: str) -> None:
    """Writes the figure as svg, png or pdf: of the same trace always the same bytes."""
    with warnings.catch_warnings(action="ignore"), mpl.rc_context(_RULES):
        fig, words = figure(trace, options)
        about, date = ("Subject", "CreationDate") if form == "pdf" else ("Description", "Date")
        undated = {} if form == "png" else {date: None}
        metadata = {"Title": sentence(trace.title), about: words, **undated}
        fig.savefig(file, format=form, dpi=_DPI, metadata=metadata)


def plot(trace: Trace, options: DisplayOptions, ax: Axes | None) -> Axes:
    """Draws one matrix into an Axes; without one the whole figure, whose first Axes it gives."""
    with warnings.catch_warnings(action="ignore"):
        if ax is None:
            return figure(trace, options)[0].axes[0]
        stage, panel = only_panel(stages_of(trace, options)[0])
        box, unit = ax.get_window_extent(), ax.figure.dpi / 72
        _DRAWN[stage.form](ax, stage, panel, box.width / unit, box.height / unit)
        return ax


def figure(trace: Trace, options: DisplayOptions) -> tuple[Figure, str]:
    """The figure of a trace, and what it shows in words."""
    stages, left_out, words = stages_of(trace, options)
    fig, layout = Figure(), ConstrainedLayoutEngine()
    fig.set_layout_engine(layout)
    places = fig.add_gridspec(len(stages), 1)
    several = [fig.add_subfigure(places[at]) for at in range(len(stages)) if len(stages) > 1]
    boxes: list[Any] = several or [fig]
    em = mpl.rcParams["font.size"]
    sizes = [stage.size(em) for stage in stages]
    notes = [stage.notes(em) + left_out * (stage is stages[-1]) for stage in stages]
    grids = [_grid(*each) for each in zip(boxes, stages, sizes, notes, strict=True)]
    shapes, around = np.array([grid.shape[::-1] for grid in grids]), np.full(2, 600.0)
    for _ in range(2):  # what stands around the Axes takes as much room in a figure of any size
        widths, heights = (shapes * [size[:2] for size in sizes] + around).T.tolist()
        fig.set_size_inches(max(*widths, 240.0) / 72, sum(heights) / 72)
        places.set_height_ratios(heights)
        layout.execute(fig)
        inner = np.array([grid[0, 0].get_window_extent().size for grid in grids])
        around = (np.array([box.bbox.size for box in boxes]) - shapes * inner) / fig.dpi * 72
    fig.set_layout_engine("none")
    return fig, words


def _grid(
    box: Figure | SubFigure, stage: Panels, size: tuple[float, float, int], notes: Sequence[str]
) -> Any:
    """The Axes of a stage [rows, columns], drawn, its title and its notes."""
    width, height, across = size
    down = math.ceil(len(stage.panels) / across)
    grid = box.subplots(down, math.ceil(len(stage.panels) / down), squeeze=False)
    for ax, panel in zip(grid.flat, stage.panels, strict=False):
        _DRAWN[stage.form](ax, stage, panel, width, height)
        ax.set_title(panel.title, **as_it_is(panel.title))
        if stage.form == "cells":
            ax.label_outer(remove_inner_ticks=True)
    for ax in grid.flat[len(stage.panels) :]:
        ax.set_axis_off()
    if stage.form == "cells" and stage.ramp is not None:
        place: dict[str, Any] = {"shrink": min(144 / down / height, 1), "anchor": (0, 1)}
        place |= {"aspect": 16, "extend": "max" if stage.is_cut else "neither"}
        bar = box.colorbar(_shades(stage, grid[0, 0]), ax=[*grid.flat], **place)
        bar.outline.set_visible(False)
    letters = max(int((width * across + 72) / mpl.rcParams["font.size"] / LETTER), 40)
    title = [": ".join(filter(None, (stage.name, stage.first.formula)))]
    for write_there, lines in ((box.suptitle, title), (box.supxlabel, notes)):
        words = "\n".join(line for each in lines for line in fold(each, letters))
        write_there(words, x=0.01, ha="left", size="medium", **as_it_is(words))
    return grid


def _shades(stage: Panels, ax: Axes) -> ScalarMappable:
    """What gives the numbers of a stage their colours, on the ground of an Axes."""
    is_dark = luminance(*(255 * x for x in to_rgb(ax.get_facecolor()))) < MIDDLE
    colours = ListedColormap(page_colours(stage.ramp or "share", is_dark))
    colours.set_bad(_GREY)
    low = -stage.top if stage.ramp == "signed" else 0.0
    return ScalarMappable(Normalize(low, stage.top, clip=True), colours)


def _cells(ax: Axes, stage: Panels, panel: Panel, width: float, height: float) -> None:
    """Rows down, columns across; in the cells their numbers, where these have no room a minus."""
    n, m = panel.values.shape
    width, height, em = width / m, height / n, mpl.rcParams["font.size"]
    shades, (high, wide) = _shades(stage, ax), stage.block(em)
    style: dict[str, Any] = {"cmap": shades.cmap, "norm": shades.norm}
    numbers, has_room = np.full((n, m), np.nan), stage.has_room(width, height, em)
    if stage.ramp is not None:
        numbers = np.clip(panel.numbers((high, wide)), *shades.get_clim())
    rgb = shades.to_rgba(numbers, bytes=True)[..., :3]
    if stage.is_picture:
        sides = (-0.5, wide * numbers.shape[1] - 0.5, high * len(numbers) - 0.5, -0.5)
        ax.imshow(numbers, extent=sides, aspect="auto", **style)
    else:
        edges, gap = (np.arange(m + 1) - 0.5, np.arange(n + 1) - 0.5), min(width, height) / 20
        ax.pcolormesh(*edges, numbers, edgecolors=ax.get_facecolor(), linewidth=gap, **style)
        no_digits = np.zeros_like(panel.hidden) if has_room else numbers < 0
        hidden, below = (np.argwhere(where).tolist() for where in (panel.hidden, no_digits))
        lines = [((j - 0.45, i + 0.45), (j + 0.45, i - 0.45)) for i, j in hidden]
        lines += [((j - 0.2, i), (j + 0.2, i)) for i, j in below]  # in grey a shade has no sign
        inks = ["grey"] * len(hidden) + [text_on(*rgb[i, j]) for i, j in below]
        ax.add_collection(LineCollection(lines, colors=inks, linewidths=1))
    for i, j in np.argwhere(~panel.hidden & has_room).tolist():
        is_shaded, words = not np.isnan(numbers[i, j]), panel.texts[i][j]
        colour = text_on(*rgb[i, j]) if is_shaded else mpl.rcParams["text.color"]
        label = ax.text(j, i, words, color=colour, ha="center", va="center", **as_it_is(words))
        label.set_in_layout(False)
    ax.set(xlim=(-0.5, m - 0.5), ylim=(n - 0.5, -0.5), ylabel=stage.axes[0], xlabel=stage.axes[1])
    ax.spines[:].set_visible(False)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    _ticks(ax.xaxis, stage.columns, width)
    _ticks(ax.yaxis, stage.rows, height)


def _arcs(ax: Axes, stage: Panels, panel: Panel, width: float, height: float) -> None:
    """Lines from the queries, at the left, to the keys: as wide as the weight, a colour a query."""
    n, m = panel.values.shape
    colours = [to_rgb(colour) for colour in mpl.rcParams["axes.prop_cycle"].by_key()["color"]]
    if n > len(colours):
        colours = [tuple(hsv_to_rgb((i / n, 0.8, 0.75))) for i in range(n)]
    drawn, curve = stage.arcs(panel), [Path.MOVETO, *[Path.CURVE4] * 3]
    paths = [Path([(0, i), (0.5, i), (0.5, j), (1, j)], curve) for i, j, _ in drawn]
    strokes = [(*colours[i], 0.25 + 0.65 * share) for i, _, share in drawn]
    widths = [_WIDEST * share for *_, share in drawn]
    ax.add_collection(PathCollection(paths, fc="none", ec=strokes, lw=widths), autolim=False)
    ax.set(xlim=(0, 1), ylim=(max(n, m) - 0.5, -0.5), xticks=[], ylabel="queries")
    keys = ax.secondary_yaxis("right")
    keys.set_ylabel("keys")
    for side, names in ((ax, stage.rows), (keys, stage.columns)):
        side.spines[:].set_visible(False)
        _ticks(side.yaxis, names, height / max(n, m))
    for at, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True):
        label.set_color(colours[int(at)])


def _points(ax: Axes, stage: Panels, panel: Panel, width: float, height: float) -> None:
    """Points at one scale, each with its name beside it or, farther off, at the end of a line."""
    names, points, corner, scale = stage.named_points(width, height)
    (left, bottom), (right, top) = corner, corner + np.array([width, height]) / scale
    ax.set(xlim=(left, right), ylim=(bottom, top), xlabel=stage.columns[0], ylabel=stage.columns[1])
    ax.scatter(*points.T, zorder=3)
    ax.grid(color=_GREY)
    style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center"}
    labels = [
        ax.annotate(name, point, (0, 0), **style, **as_it_is(name))
        for name, point in zip(names, points, strict=True)
    ]
    boxes = np.array([label.get_window_extent().bounds for label in labels]).reshape(-1, 4)
    places = beside((points - corner) * scale, boxes[:, 2:] * 72 / ax.figure.dpi, (width, height))
    for label, point, (x, y, is_far) in zip(labels, points, places, strict=True):
        label.set_position((x, y))
        if is_far:
            ax.annotate("", point, (x, y), arrowprops={"arrowstyle": "-", "color": _GREY}, **style)


def _ticks(axis: Axis, names: Sequence[str], step: float) -> None:
    """The names along an axis, so many points apart: turned where they are wide, of many some."""
    size = float(axis.get_major_ticks(1)[0].label1.get_fontsize())
    at = few_names(names, step, size)
    words = [names[i] for i in at]
    axis.set_tick_params(length=3 if at.step > 1 else 0)
    axis.set_ticks(at, words, size=min(size, at.step * step), **as_it_is(*words))
    labels = axis.get_ticklabels()
    widest = max(label.get_window_extent().width for label in labels) * 72 / axis.figure.dpi
    if isinstance(axis, XAxis) and widest > at.step * step:
        for label in labels:
            turn = 45 if at.step * step > 1.5 * size else 90
            label.set(rotation=turn, rotation_mode="anchor", ha="left", va="center")


_DRAWN = {
    "cells": _cells, "arcs": _arcs, "points": _points, "nothing": lambda ax, *_: ax.set_axis_off(),
}  # fmt: skip
