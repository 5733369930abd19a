"""Figures by Matplotlib (the extra `figures`): cells in colours, arcs between words, and points.

A stage is a part of the figure and a head an Axes in it; Matplotlib lays them out. The user's own
style applies; pyplot, whose state is everybody's, is not used. Lengths are in points: 72 an inch.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from math import ceil
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
from matplotlib.text import Text

from attncli.trace import Trace
from attncli.views.formats.colours import MIDDLE, luminance, page_colours, text_on
from attncli.views.formats.letters import as_it_is
from attncli.views.numbers import round_top
from attncli.views.page import Page, parts
from attncli.views.pictured import SMALL, Pictured, only_one, pictured
from attncli.views.scatter import POINT_SIZE, beside
from attncli.views.select import DisplayOptions
from attncli.views.text import sentence

_RULES: Any = {"svg.fonttype": "none", "svg.hashsalt": "attncli", "pdf.fonttype": 42}
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
        fig.savefig(file, format=form, dpi=200, metadata=metadata)


def plot(trace: Trace, options: DisplayOptions, ax: Axes | None) -> Axes:
    """Draws one matrix into an Axes; without one the whole figure, whose first Axes it gives."""
    with warnings.catch_warnings(action="ignore"):
        if ax is None:
            return figure(trace, options)[0].axes[0]
        stage = only_one(pictured(trace, options)[0])
        box, unit = ax.get_window_extent(), ax.figure.dpi / 72
        _DRAWN[stage.form](ax, stage, 0, box.width / unit, box.height / unit)
        return ax


def figure(trace: Trace, options: DisplayOptions) -> tuple[Figure, str]:
    """The figure of a trace, and what it shows in words."""
    stages, words = pictured(trace, options)
    fig = Figure(layout=(layout := ConstrainedLayoutEngine()))
    places = fig.add_gridspec(len(stages), 1)
    several = [fig.add_subfigure(places[at]) for at in range(len(stages)) if len(stages) > 1]
    boxes: list[Any] = several or [fig]
    sizes = [stage.size(mpl.rcParams["font.size"]) for stage in stages]
    grids = [_panels(*each) for each in zip(boxes, stages, sizes, strict=True)]
    shapes, around = np.array([grid.shape[::-1] for grid in grids]), np.full(2, 100.0)
    for _ in range(3):  # what stands around the Axes takes as much room in a figure of any size
        widths, heights = (shapes * [size[:2] for size in sizes] + around).T
        fig.set_size_inches(round(max(*widths, 240.0)) / 72, round(sum(heights)) / 72)
        places.set_height_ratios(np.round(heights))
        layout.execute(fig)
        inner = np.array([grid[0, 0].get_window_extent().size for grid in grids])
        around = (np.array([box.bbox.size for box in boxes]) - shapes * inner) / fig.dpi * 72
    fig.set_layout_engine("none")
    for ax in fig.axes:  # which the layout places up to noise, and the same bytes are to be written
        ax.set_position(np.round(ax.get_position(original=True).bounds, 5).tolist())
    return fig, words


def _panels(box: Figure | SubFigure, stage: Pictured, size: tuple[float, float, int]) -> Any:
    """The Axes of a stage [rows, columns], drawn, with their scale, title and notes."""
    width, height, across = size
    down = ceil(len(stage.values) / across)
    grid = box.subplots(down, ceil(len(stage.values) / down), squeeze=False)
    for ax in grid.flat[len(stage.values) :]:
        ax.set_axis_off()
    for at, (ax, title) in enumerate(zip(grid.flat, stage.titles, strict=False)):
        _DRAWN[stage.form](ax, stage, at, width, height)
        ax.set_title(title, **as_it_is(title))
        if stage.form == "cells":
            ax.label_outer(remove_inner_ticks=True)
    if stage.form == "cells" and stage.ramp is not None:
        place: dict[str, Any] = {"shrink": min(144 / down / height, 1), "anchor": (0, 1)}
        place |= {"aspect": 16, "extend": "max" if stage.is_cut else "neither"}
        bar = box.colorbar(_shades(stage, grid[0, 0]), ax=[*grid.flat], **place)
        bar.outline.set_visible(False)
    style: dict[str, Any] = {"x": 0.01, "ha": "left", "size": "medium", "wrap": True}
    title = ": ".join(filter(None, (stage.name, stage.first.formula)))
    for write_there, words in ((box.suptitle, title), (box.supxlabel, "\n".join(stage.notes))):
        write_there(words, **style, **as_it_is(words))
    return grid


def _shades(stage: Pictured, ax: Axes) -> ScalarMappable:
    """What gives the numbers of a stage their colours, on the ground of an Axes."""
    is_dark = luminance(*(255 * x for x in to_rgb(ax.get_facecolor()))) < MIDDLE
    colours = ListedColormap(page_colours(stage.ramp or "share", is_dark))
    colours.set_bad(_GREY)
    low = -stage.top if stage.ramp == "signed" else 0.0
    return ScalarMappable(Normalize(low, stage.top, clip=True), colours)


def _cells(ax: Axes, stage: Pictured, at: int, width: float, height: float) -> None:
    """Rows down, columns across; in the cells their numbers, where these have no room a minus."""
    (n, m), em, hidden = stage.shape, mpl.rcParams["font.size"], stage.hidden[at]
    width, height, shades = width / m, height / n, _shades(stage, ax)
    has_room = stage.has_room(width, height, em)
    numbers = stage.values[at] if stage.ramp else np.nan * hidden
    np.clip(numbers, *shades.get_clim(), out=numbers)  # Matplotlib computes with their squares
    style: dict[str, Any] = {"cmap": shades.cmap, "norm": shades.norm}
    rgb: Any = shades.to_rgba(numbers, bytes=True) if has_room or not stage.is_picture else None
    if stage.is_picture:
        ax.imshow(numbers, aspect="auto", interpolation_stage="data", **style)
    else:
        edges, gap = (np.arange(m + 1) - 0.5, np.arange(n + 1) - 0.5), min(width, height) / 20
        ax.pcolormesh(*edges, numbers, edgecolors=ax.get_facecolor(), linewidth=gap, **style)
        masked, below = np.argwhere(hidden).tolist(), np.argwhere(numbers < 0).tolist()
        below = [] if has_room else below  # in grey a shade has no sign
        lines = [((j - 0.45, i + 0.45), (j + 0.45, i - 0.45)) for i, j in masked]
        lines += [((j - 0.2, i), (j + 0.2, i)) for i, j in below]
        inks = ["grey"] * len(masked) + [text_on(*rgb[i, j, :3]) for i, j in below]
        ax.add_collection(LineCollection(lines, colors=inks, linewidths=1))
    for i, j in np.argwhere(~hidden).tolist() if has_room else ():
        words, ink = stage.texts[at][i][j], text_on(*rgb[i, j, :3])
        colour = mpl.rcParams["text.color"] if np.isnan(numbers[i, j]) else ink
        label = ax.text(j, i, words, color=colour, ha="center", va="center", **as_it_is(words))
        label.set_in_layout(False)
    ax.set(xlim=(-0.5, m - 0.5), ylim=(n - 0.5, -0.5), ylabel=stage.axes[0], xlabel=stage.axes[1])
    ax.spines[:].set_visible(False)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    _ticks(ax.xaxis, stage.columns, width)
    _ticks(ax.yaxis, stage.rows, height)


def _arcs(ax: Axes, stage: Pictured, at: int, width: float, height: float) -> None:
    """Lines from the queries, at the left, to the keys: as wide as the weight, a colour a query."""
    n, m = stage.shape
    colours = [to_rgb(colour) for colour in mpl.rcParams["axes.prop_cycle"].by_key()["color"]]
    if n > len(colours):
        colours = [tuple(hsv_to_rgb((i / n, 0.8, 0.75))) for i in range(n)]
    drawn, curve = stage.lines(at), [Path.MOVETO, *[Path.CURVE4] * 3]
    paths = [Path([(0, i), (0.5, i), (0.5, j), (1, j)], curve) for i, j, _ in drawn]
    strokes = [(*colours[i], 0.25 + 0.65 * share) for i, _, share in drawn]
    widths = [4 * share for *_, share in drawn]
    ax.add_collection(PathCollection(paths, fc="none", ec=strokes, lw=widths), autolim=False)
    ax.set(xlim=(0, 1), ylim=(max(n, m) - 0.5, -0.5), xticks=[], ylabel="queries")
    keys = ax.secondary_yaxis("right")
    keys.set_ylabel("keys")
    for side, names in ((ax, stage.rows), (keys, stage.columns)):
        side.spines[:].set_visible(False)
        _ticks(side.yaxis, names, height / max(n, m))
    for place, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True):
        label.set_color(colours[int(place)])


def _points(ax: Axes, stage: Pictured, at: int, width: float, height: float) -> None:
    """Points at one scale, each with its name beside it or, farther off, at the end of a line."""
    finite = np.flatnonzero(np.isfinite(stage.values[at][:, :2]).all(axis=1)).tolist()
    points, room = stage.values[at][finite, :2], np.array([width, height])
    low, high = points.min(axis=0, initial=0), points.max(axis=0, initial=0)
    scale = 0.75 * room.min() / max((high - low).max(), np.finfo(float).tiny)
    (left, bottom), (right, top) = corners = (low + high) / 2 + np.outer((-0.5, 0.5), room / scale)
    ax.set(xlim=(left, right), ylim=(bottom, top), xlabel=stage.columns[0], ylabel=stage.columns[1])
    ax.scatter(*points.T, zorder=3)
    ax.grid(color=_GREY)
    style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": "center"}
    style["arrowprops"] = {"arrowstyle": "-", "color": _GREY, "shrinkA": 0, "shrinkB": POINT_SIZE}
    for i, point in zip(finite, points, strict=True):
        ax.annotate(stage.rows[i], point, (0, 0), **style, **as_it_is(stage.rows[i]))
    boxes = [Text.get_window_extent(label).size for label in ax.texts]
    sizes = np.reshape(boxes, (-1, 2)) / ax.figure.dpi * 72
    places = beside((points - corners[0]) * scale, sizes, room)
    for label, place in zip(ax.texts, places, strict=True):
        label.set_position(place)


def _ticks(axis: Axis, names: Sequence[str], step: float) -> None:
    """The names along an axis, so many points apart: of many each 2nd, 5th, 10th … in numbers."""
    size = float(axis.get_major_ticks(1)[0].label1.get_fontsize())
    each = 1 if step >= SMALL * size else int(round_top(4 * size / step))
    number = re.fullmatch(r"\D*(\d+)", names[0])
    first = -int(number[1]) % each if number else 0
    at = range(min(first, len(names) - 1), len(names), each)
    axis.set_tick_params(length=3 if each > 1 else 0)
    words = [names[i] for i in at]
    axis.set_ticks(at, words, size=min(size, each * step), **as_it_is(*words))
    labels = axis.get_ticklabels()
    widest = max(label.get_window_extent().width for label in labels) * 72 / axis.figure.dpi
    if isinstance(axis, XAxis) and widest > each * step:
        turn = 45 if each * step > 1.5 * size else 90
        for label in labels:
            label.set(rotation=turn, rotation_mode="anchor", ha="left", va="center")


_DRAWN = {
    "cells": _cells, "arcs": _arcs, "points": _points, "nothing": lambda ax, *_: ax.set_axis_off(),
}  # fmt: skip
