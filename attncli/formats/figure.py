"""Figures by Matplotlib (the extra `figures`): cells in colours, arcs between words, points, lines.

A stage is a part of the figure and a head an Axes in it; Matplotlib lays them out. The user's own
style applies; pyplot, whose state is everybody's, is not used. Lengths are in points: 72 an inch.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import ListedColormap, hsv_to_rgb, to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.path import Path
from matplotlib.text import Text
from matplotlib.ticker import LogLocator, NullLocator

from attncli.errors import ConventionError
from attncli.formats.colours import page_colours, text_on
from attncli.formats.pictured import Pictured, pictured
from attncli.formats.scatter import POINT_SIZE, beside, window
from attncli.page.matrix import MASKED, round_places
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.text import sentence
from attncli.trace import Trace

_RULES: Any = {"svg.fonttype": "none", "svg.hashsalt": "attncli", "pdf.fonttype": 42}
_PLAIN: Any = {"parse_math": False, "usetex": False}  # a text is as it is, never a formula
_TITLE: Any = {"x": 0.01, "ha": "left", "size": "medium", "wrap": True, **_PLAIN}
_CENTRED: Any = {"ha": "center", "va": "center", **_PLAIN}
_GREY = (0.5, 0.5, 0.5, 0.3)  # of a cell without a number, on any ground


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The figure as an element of SVG, in which text is text; every page gives the same."""
    write(trace, options, file := io.BytesIO(), "svg")
    yield '<svg role="img"' + file.getvalue().decode().partition("<svg")[2]


def write(trace: Trace, options: DisplayOptions, file: BinaryIO, form: str) -> None:
    """Writes the figure as svg, png or pdf: of the same trace always the same bytes."""
    with warnings.catch_warnings(action="ignore"), mpl.rc_context(_RULES):
        stages, words = pictured(trace, options)
        about, date = ("Subject", "CreationDate") if form == "pdf" else ("Description", "Date")
        title = options.title or sentence(trace.title)
        metadata = {"Title": title, about: words, date: None}
        figure(stages, options.title).savefig(file, format=form, dpi=200, metadata=metadata)


def plot(trace: Trace, options: DisplayOptions, ax: Axes | None) -> Axes:
    """Draws one matrix into an Axes; without one the whole figure, whose first Axes it gives."""
    with warnings.catch_warnings(action="ignore"):
        stages, _ = pictured(trace, options)
        if ax is None:
            return figure(stages, options.title).axes[0]
        names = [stage.name for stage in stages] if len(stages) > 1 else stages[0].titles
        if len(names) > 1:
            message = f"one Axes cannot hold {', '.join(names)}"
            raise ConventionError(message, "choose with stages=, head= or batch=")
        box, unit = ax.get_window_extent(), ax.figure.dpi / 72
        with mpl.rc_context({"font.family": fonts(stages[0].letters)}):
            _DRAWN[stages[0].form](ax, stages[0], 0, box.width / unit, box.height / unit)
        return ax


def figure(stages: Sequence[Pictured], title: str | None = None) -> Figure:
    """The figure of these stages, as large as their cells and letters want it.

    title  in the place of the name and formula of one stage, above those of several
    """
    fig = Figure(layout=(layout := ConstrainedLayoutEngine()))
    places: Any = fig.add_gridspec(len(stages), 1)
    boxes: list[Any] = [fig.add_subfigure(each) for each in places if len(stages) > 1] or [fig]
    with mpl.rc_context(
        {"font.family": fonts(set().union(title or "", *(x.letters for x in stages)))}
    ):
        drawn = [_panels(*each) for each in zip(boxes, stages, strict=True)]
        _on_one_scale(stages, [grid.flat for grid, _ in drawn])
        if title is not None:
            words = boxes[0].get_suptitle() if len(boxes) > 1 else ""
            boxes[0].suptitle("\n".join(filter(None, (title, words))), **_TITLE)
    sizes, around = np.array([size * grid.shape[::-1] for grid, size in drawn]), np.full(2, 100.0)
    for _ in range(3):  # what stands around the Axes takes as much room in a figure of any size
        widths, heights = np.round(sizes + around).T
        fig.set_size_inches(max(*widths, 240.0) / 72, sum(heights) / 72)
        places.set_height_ratios(heights)
        layout.execute(fig)
        inner = [grid[0, 0].bbox.size * np.array(grid.shape[::-1]) for grid, _ in drawn]
        around = (np.array([box.bbox.size for box in boxes]) - inner) / fig.dpi * 72
    fig.set_layout_engine("none")
    for ax in fig.axes:  # which the layout places up to noise, and the same bytes are to be written
        ax.set_position(np.round(ax.get_position(original=True).bounds, 5).tolist())
    return fig


def _panels(box: Figure | SubFigure, stage: Pictured) -> tuple[Any, Any]:
    """The Axes of a stage [rows, columns], drawn, with title and notes; the size of each."""
    width, height, across = stage.size(mpl.rcParams["font.size"])
    count, down = len(stage.titles), -(-len(stage.titles) // across)  # both divisions round up
    grid = box.subplots(down, -(-count // down), squeeze=False)
    for ax in grid.flat[count:]:
        ax.set_axis_off()
    for at, (ax, title) in enumerate(zip(grid.flat, stage.titles, strict=False)):
        shades = _DRAWN[stage.form](ax, stage, at, width, height)
        ax.set_title(title, **_PLAIN)
        if shades:
            ax.label_outer(remove_inner_ticks=True)
    if shades and stage.ramp:
        place: dict[str, Any] = {"shrink": min(144 / down / height, 1), "anchor": (0, 1)}
        place["extend"] = "max" if stage.top * (1 + 1e-9) < stage.largest else "neither"
        box.colorbar(shades, ax=[*grid.flat], aspect=16, **place).outline.set_visible(False)
    box.suptitle(": ".join(filter(None, (stage.name, stage.first.formula))), **_TITLE)
    box.supxlabel("\n".join(stage.notes), **_TITLE)
    return grid, np.array([width, height])


def _cells(ax: Axes, stage: Pictured, at: int, width: float, height: float) -> Any:
    """Rows down, columns across, as the artist that has their colours: numbers, or minus signs."""
    (n, m), hidden = stage.shape, stage.hidden[at]
    width, height = width / m, height / n
    has_room = stage.has_room(width, height, mpl.rcParams["font.size"])
    is_dark = text_on(*(255 * x for x in to_rgb(ax.get_facecolor()))) == "white"
    colours = ListedColormap(page_colours(stage.ramp or "share", is_dark))
    low, top = -stage.top if stage.ramp == "signed" else 0, stage.top
    numbers = np.clip(stage.values[at] if stage.ramp else np.nan * hidden, low, top)
    style: dict[str, Any] = {"cmap": colours.with_extremes(bad=_GREY), "vmin": low, "vmax": top}
    if stage.is_picture:
        shades: Any = ax.imshow(numbers, aspect="auto", interpolation_stage="data", **style)
    else:
        style |= {"edgecolors": ax.get_facecolor(), "linewidth": min(width, height) / 20}
        shades = ax.pcolormesh(np.arange(m + 1) - 0.5, np.arange(n + 1) - 0.5, numbers, **style)
        below = (numbers < 0) & (not has_room and min(width, height) > 3)  # a grey has no sign
        slashed = hidden & (stage.first.sign == MASKED)  # another sign is written
        lines = [((j - 0.45, i + 0.45), (j + 0.45, i - 0.45)) for i, j in np.argwhere(slashed)]
        dashed = hidden & ~slashed & (not has_room)
        lines += [
            ((j - 0.2, i), (j + 0.2, i)) for i, j in [*np.argwhere(dashed), *np.argwhere(below)]
        ]
        inks = [text_on(*rgb) for *rgb, _ in shades.to_rgba(numbers[below], bytes=True)]
        inks = ["grey"] * np.count_nonzero(slashed | dashed) + inks
        ax.add_collection(LineCollection(lines, colors=inks, linewidths=1))
    written = (~hidden | (stage.first.sign != MASKED)) & has_room
    places = np.argwhere(written).tolist()
    grounds = shades.to_rgba(numbers[written], bytes=True)
    for (i, j), (*rgb, alpha) in zip(places, grounds, strict=True):
        ink = text_on(*rgb) if alpha == 255 else None  # None: that of the style
        ax.text(j, i, stage.texts[at][i][j], color=ink, in_layout=False, **_CENTRED)
    ax.set(xlim=(-0.5, m - 0.5), ylim=(n - 0.5, -0.5), xlabel=stage.axes[1])
    ax.set_ylabel(stage.axes[0], loc="bottom" if n == 1 else None)  # where it has more room
    ax.spines[:].set_visible(False)
    ax.xaxis.set(label_position="top", ticks_position="top")
    _ticks(ax.xaxis, stage.columns, width)
    _ticks(ax.yaxis, stage.rows, height)
    return shades


def _arcs(ax: Axes, stage: Pictured, at: int, width: float, height: float) -> None:
    """Lines from the queries, at the left, to the keys: as wide as the weight, a colour a query."""
    (n, m), cycle = stage.shape, mpl.rcParams["axes.prop_cycle"].by_key()["color"]
    inks = cycle if n <= len(cycle) else [tuple(hsv_to_rgb((i / n, 0.8, 0.75))) for i in range(n)]
    drawn = sorted((x, *cell) for cell, x in np.ndenumerate(stage.shares[at]) if x)
    curve = [Path.MOVETO, *[Path.CURVE4] * 3]
    paths = [Path([(0, i), (0.5, i), (0.5, j), (1, j)], curve) for _, i, j in drawn]
    strokes = [(*to_rgb(inks[i]), 0.25 + 0.65 * share) for share, i, _ in drawn]
    widths = [4 * share for share, *_ in drawn]
    ax.add_collection(PathCollection(paths, fc="none", ec=strokes, lw=widths), autolim=False)
    ax.set(xlim=(0, 1), ylim=(max(n, m) - 0.5, -0.5), xticks=[], ylabel="queries")
    keys = ax.secondary_yaxis("right", ylabel="keys")
    for side, names in ((ax, stage.rows), (keys, stage.columns)):
        side.spines[:].set_visible(False)
        _ticks(side.yaxis, names, height / max(n, m))
    for place, label in zip(ax.get_yticks(), ax.get_yticklabels(), strict=True):
        label.set_color(inks[int(place)])


def _points(ax: Axes, stage: Pictured, at: int, width: float, height: float) -> None:
    """Points at one scale, each with its name beside it or, farther off, at the end of a line."""
    values, room, unit = stage.values[at][:, :2], np.array([width, height]), ax.figure.dpi / 72
    finite = np.flatnonzero(np.isfinite(values).all(axis=1)).tolist()
    ((left, bottom), (right, top)), scale = window(points := values[finite], room)
    ax.set(xlim=(left, right), ylim=(bottom, top), xlabel=stage.columns[0], ylabel=stage.columns[1])
    ax.scatter(*points.T, zorder=3)
    ax.grid(color=_GREY)
    line = {"arrowstyle": "-", "color": _GREY, "shrinkA": 0, "shrinkB": POINT_SIZE}
    style: Any = {"textcoords": "offset points", "arrowprops": line, **_CENTRED}
    labels = [ax.annotate(stage.rows[i], values[i], (0, 0), **style) for i in finite]
    boxes = np.reshape([Text.get_window_extent(label).size for label in labels], (-1, 2))
    places = beside((points - (left, bottom)) * scale, boxes / unit, room)
    for label, place in zip(labels, places, strict=True):
        label.set_position(place)


def _lines(ax: Axes, stage: Pictured, at: int, width: float, height: float) -> None:
    """A line for each column over the values of the rows: of positive numbers their proportions."""
    values = stage.values[at]
    for column, name in zip(values.T, stage.columns, strict=True):
        ax.plot(np.arange(len(column)), column, marker="o", label=name)
    if (values > 0).all():
        ax.set_yscale("log")
        ax.yaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), minor_locator=NullLocator())
        ax.yaxis.set_major_formatter("{x:g}")
    pairs = [row.rpartition(" ") for row in stage.rows]  # d_k 64
    _ticks(ax.xaxis, [value for *_, value in pairs], width / len(pairs))
    for label in ax.get_xticklabels():
        if label.get_rotation():
            label.set(ha="right")
    ax.set_xlabel(pairs[0][0], **_PLAIN)
    ax.grid(color=_GREY)
    legend = ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    for words in legend.get_texts():
        words.set_parse_math(False)


def _on_one_scale(stages: Sequence[Pictured], panels: Sequence[Iterable[Axes]]) -> None:
    """Gives all lines of the same measures one scale of heights: they are there to be compared."""
    of_measures = dict[tuple[str, ...], list[Axes]]()
    for stage, axes in zip(stages, panels, strict=True):
        if stage.form == "lines":
            of_measures.setdefault((*stage.columns,), []).extend(islice(axes, len(stage.titles)))
    for same in of_measures.values():
        if any(ax.get_yscale() == "linear" for ax in same):
            for ax in same:
                ax.set_yscale("linear")
        bottoms, tops = zip(*(ax.get_ylim() for ax in same), strict=True)
        for ax in same:
            ax.set_ylim(min(bottoms), max(tops))


def _ticks(axis: Axis, names: Sequence[str], step: float) -> None:
    """The names along an axis, so many points apart: of many each 2nd, 5th, 10th … in numbers."""
    size = float(axis.get_major_ticks(1)[0].label1.get_fontsize())
    at = round_places(names, size / step)
    step *= at.step
    axis.set_tick_params(length=3 if at.step > 1 else 0)
    style: Any = {"size": min(size, step), "family": mpl.rcParams["font.family"], **_PLAIN}
    axis.set_ticks(at, [names[i] for i in at], **style)
    labels = axis.get_ticklabels()
    widest = max(label.get_window_extent().width for label in labels) * 72 / axis.figure.dpi
    if isinstance(axis, XAxis) and widest > step:
        turn = 45 if step > 1.5 * size else 90
        for label in labels:
            label.set(rotation=turn, rotation_mode="anchor", ha="left", va="center")


def fonts(letters: Collection[str]) -> list[str]:
    """The fonts that are set, and installed ones with the letters that the first has not."""
    first = get_font(findfont(FontProperties()))
    missing = {x for x in letters if not first.get_char_index(ord(x))}
    names = [*mpl.rcParams["font.family"]]
    for entry in fontManager.ttflist:
        if missing and not entry.name.startswith("Last Resort"):  # which has a box for each
            with suppress(OSError, RuntimeError):  # of coloured pictures, or broken
                covered = {x for x in missing if get_font(entry.fname).get_char_index(ord(x))}
                names += [entry.name] * bool(covered)
                missing -= covered
    return names


_DRAWN = {
    "cells": _cells, "arcs": _arcs, "points": _points, "lines": _lines,
    "nothing": lambda ax, *_: ax.set_axis_off(),
}  # fmt: skip
