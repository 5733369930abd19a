"""What a figure shows: the matrices of each stage as panels, before anything is drawn.

Without --stage it is the weights of an attention, else the last stage that is shaded by itself
(positions, cosines), else the last one and those of the same axes (the angles, cos and sin of
rotary positions).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.cells import cell_len

from attncli.arrays import Array, BoolArray, FloatArray
from attncli.errors import ConventionError
from attncli.stages import kind_of
from attncli.trace import Trace
from attncli.views.matrix import LARGE, NUMERIC, Matrix, Ramp
from attncli.views.numbers import FINER, round_top, short
from attncli.views.outline import is_first_layer
from attncli.views.page import entries_of, names_of, parts
from attncli.views.parts import Closing, Plot, Remark
from attncli.views.select import DisplayOptions, is_computed
from attncli.views.text import captions, clean

LETTER = 0.65  # the width of a letter, as a part of its size
_LEAST_LABEL = 0.65  # the share of its size that a label may be reduced to
_MOST_TEXTS = 40  # rows or columns whose cells have their numbers
MANY = 2500  # cells, of which a picture is drawn; weights, of which the scale shows _MOST
_MOST = 0.99
_LEAST = 0.1  # the share of the scale below which a weight has no line: it would hardly be seen
_FURTHEST = 1e100  # from 1, that an end of a scale may be: Matplotlib computes with its square
_MOST_WORDS = 200  # sentences of the description of a figure
_DECIMALS = 2  # in the cells, where none are asked for
_PIXEL = 0.36  # points of a pixel: 200 are an inch
_WIDTH, _TALLEST, ACROSS = 540.0, 500.0, 4  # points of a row of panels, of a panel; in a row


@dataclass(frozen=True)
class Panel:
    """One matrix: what is asked for of it.

    title   which head and batch entry, or ""
    values  [rows, columns]
    hidden  True where a cell is masked
    texts   of the cells; [] where these are too many
    """

    title: str
    values: Array
    hidden: BoolArray
    texts: list[list[str]]

    def numbers(self, block: tuple[int, int]) -> FloatArray:
        """The numbers, NaN where masked; the means of finite ones in blocks of so many of them."""
        high, wide = block
        if high * wide == 1:
            return np.where(self.hidden, np.nan, self.values.astype(float))
        means = []
        for top in range(0, len(self.values), high):  # one row at a time: there are many
            rows = self.values[top : top + high].astype(float)
            is_counted = np.isfinite(rows) & ~self.hidden[top : top + high]
            starts = range(0, rows.shape[1], wide)
            counts = np.add.reduceat(is_counted.sum(axis=0), starts)
            sums = np.add.reduceat(np.where(is_counted, rows, 0).sum(axis=0), starts)
            means.append(np.where(counts, sums / np.maximum(counts, 1), np.nan))
        return np.array(means)


@dataclass(frozen=True)
class Panels:
    """One stage: its matrices at several heads or batch entries, on a common scale.

    form           what is drawn: cells, arcs from queries to keys, points or nothing
    points         where they are, and their names
    rows, columns  labels
    ramp, top      how cells are shaded; None where they are not
    is_cut         whether some numbers are beyond the top
    """

    name: str
    first: Matrix
    panels: list[Panel]
    points: Plot | None
    rows: list[str]
    columns: list[str]
    ramp: Ramp | None
    top: float
    is_cut: bool

    @property
    def form(self) -> str:
        """What is drawn: nothing, arcs from queries to keys, points or cells."""
        if not self.rows or not self.columns:
            return "nothing"
        return "arcs" if self.first.options.arcs else "points" if self.points else "cells"

    @property
    def is_picture(self) -> bool:
        """Whether there are so many cells that one image for a panel is smaller, and as good."""
        return sum(panel.values.size for panel in self.panels) > MANY

    @property
    def axes(self) -> tuple[str, str]:
        """What the rows and columns are, such as queries and keys."""
        names = entries_of(self.first.stage, self.first.block)
        return (names[0], names[1]) if len(names) == 2 else ("", "")

    @property
    def widest(self) -> int:
        """The letters of the widest text of a cell."""
        texts = (text for panel in self.panels for row in panel.texts for text in row)
        return max(map(cell_len, texts), default=0)

    def size(self, em: float) -> tuple[float, float, int]:
        """Width and height of a panel in points, and how many are in a row; em: of the letters.

        Cells have room for their numbers where that takes no more than two rows of panels.
        """
        n, m, n_panels = max(len(self.rows), 1), max(len(self.columns), 1), len(self.panels)
        most, larger = min(n_panels, ACROSS), max(n, m)
        if self.form == "arcs":
            letters = sum(max(map(cell_len, names)) for names in (self.rows, self.columns))
            width = 140.0 + LETTER * em * (letters + 8)
            return 140.0, 1.5 * em * larger, max(min(int(_WIDTH / width), most), 1)
        if self.form == "points":
            side = 320.0 * max(1.0, math.sqrt(n / 30))
            return side, side, 1
        if larger <= _MOST_TEXTS:
            cell = max(LETTER * em * self.widest + em, 2 * em)
            across = min(int(_WIDTH / (m * cell)), most)
            if self.ramp is None or (across >= min(n_panels, 2) and n_panels <= 2 * across):
                return m * cell, 2 * em * n, max(across, 1)
        has_labels = (k for k in range(most, 0, -1) if _WIDTH / (k * m) >= _LEAST_LABEL * em)
        across = next(has_labels, most)
        side = min(_WIDTH / (across * m), _TALLEST / larger, 2 * em)
        return side * max(m, n / 3), side * max(n, m / 3), across

    def block(self, em: float) -> tuple[int, int]:
        """How many rows and columns one pixel of a picture stands for."""
        width, height, _ = self.size(em)
        n, m = len(self.rows), len(self.columns)
        if not self.is_picture:
            return 1, 1
        return math.ceil(n * _PIXEL / height), math.ceil(m * _PIXEL / width)

    def has_room(self, width: float, height: float, em: float) -> bool:
        """Whether cells of this size have room for their texts; if not, they must have shades."""
        if self.panels[0].texts and width >= LETTER * em * self.widest and height >= 1.2 * em:
            return True
        if self.ramp is None:
            size = f"{len(self.rows)} × {len(self.columns)}"
            what = f"{self.name} without shades shows nothing: {size} numbers have no room"
            hint = "choose some with --rows and --cols, or leave out --no-heatmap"
            raise ConventionError(what, hint)
        return False

    def named_points(
        self, width: float, height: float
    ) -> tuple[list[str], FloatArray, FloatArray, float]:
        """The finite points [n, 2] and their names; the lower left corner of a plot, and its scale.

        All of them and 0 are within the inner three quarters of a plot of this size.
        """
        points = self.points.points if self.points is not None else np.zeros((0, 2))
        finite = np.flatnonzero(np.isfinite(points).all(axis=1)).tolist()
        points = points[finite]
        low, high = points.min(axis=0, initial=0), points.max(axis=0, initial=0)
        span = max(float((high - low).max()), np.finfo(float).tiny)
        scale = 0.75 * min(width, height) / span
        corner = (low + high) / 2 - np.array([width, height]) / scale / 2
        names = captions(self.points.names, finite) if self.points is not None else []
        return names, points, corner, scale

    def arcs(self, panel: Panel) -> list[tuple[int, int, float]]:
        """Query, key and share of the scale of each weight that has a line, the largest last."""
        shares = np.nan_to_num(np.clip(panel.values.astype(float) / self.top, 0, 1))
        drawn = ((i, j, float(shares[i, j])) for i, j in np.argwhere(shares >= _LEAST).tolist())
        return sorted(drawn, key=lambda arc: arc[2])

    def notes(self, em: float) -> list[str]:
        """What marks and greys mean, and what has no line."""
        if self.form == "nothing":
            return ["nothing to show"]
        if self.form == "points":
            return []
        if self.form == "arcs":
            n_weights = sum(panel.values.size for panel in self.panels)
            n_left_out = n_weights - sum(len(self.arcs(panel)) for panel in self.panels)
            what = f"{n_left_out} of {n_weights} weights are below {short(_LEAST * self.top, 4)}"
            return [f"the widest line is {short(self.top, 4)}; {what} and left out"]
        notes = [self.first.mark] if any(panel.hidden.any() for panel in self.panels) else []
        if self.is_picture:
            notes = [note.replace("///", "grey is") for note in notes]
        floats = (x.values[~x.hidden] for x in self.panels if x.values.dtype.kind == "f")
        if any(np.isnan(numbers).any() for numbers in floats):
            notes.append("grey is not a number (NaN)")
        notes += [self.first.legend] if self.first.legend else []
        high, wide = self.block(em)
        blocks = f"each pixel is the mean of {high} × {wide} numbers"
        return [*notes, blocks] if high * wide > 1 else notes


def few_names(names: Sequence[str], step: float, size: float) -> range:
    """Of names so many points apart those with room: all, or each 2nd, 5th, 10th …

    Numbers among the names count: those shown are round.

    >>> few_names(["a", "b"], 12, 10), [*few_names([f"q{n}" for n in range(1, 33)], 4, 10)]
    (range(0, 2), [9, 19, 29])
    """
    each = 1 if step >= _LEAST_LABEL * size else int(round_top(4 * size / step))
    number = re.fullmatch(r"\D*(\d+)", names[0])
    first = -int(number[1]) % each if number else 0
    return range(min(first, len(names) - 1), len(names), each)


def stages_of(trace: Trace, options: DisplayOptions) -> tuple[list[Panels], list[str], str]:
    """The stages of a figure, a line on what is left out, and all in words for who cannot see it.

    Raises ConventionError for arcs of what are no weights, or too many.
    """
    precision = options.precision if options.rounded else _DECIMALS
    names = options.stages or _pictured(trace, options)
    shown = list(parts(trace, replace(options, stages=names, precision=precision)))
    matrices: dict[str, list[Matrix]] = {}
    points: dict[str, Plot] = {}
    for before, part in zip([None, *shown], shown, strict=False):
        if isinstance(part, Matrix):
            matrices.setdefault(part.block.prefix + part.stage.name, []).append(part)
        elif isinstance(part, Plot) and isinstance(before, Matrix) and options.heatmap is None:
            points[before.block.prefix + before.stage.name] = part
    several = len({some[0].block.prefix for some in matrices.values()}) > 1
    stages = [
        _panels(clean(name) if several else some[0].name, some, points.get(name))
        for name, some in matrices.items()
    ]
    words = [f"{stage.name}: {' · '.join(stage.first.facts)}" for stage in stages]
    closing = [head for part in shown if isinstance(part, Closing) for head in part.heads]
    words += [f"{head}: {line}" if head else line for head, lines in closing for line in lines]
    left_out = [part.text for part in shown if isinstance(part, Remark)]
    return stages, left_out, ". ".join(words[:_MOST_WORDS])


def only_panel(stages: Sequence[Panels]) -> tuple[Panels, Panel]:
    """The one matrix that an Axes can hold: ConventionError where there are several."""
    names = [stage.name for stage in stages]
    names = names if len(names) > 1 else [panel.title for panel in stages[0].panels]
    if len(names) > 1:
        what = f"one Axes cannot hold {', '.join(names)}"
        raise ConventionError(what, "choose with stages=, head= or batch=")
    return stages[0], stages[0].panels[0]


def _pictured(trace: Trace, options: DisplayOptions) -> tuple[str, ...]:
    """The stages of a figure where none are named, by what is known of each kind."""
    stages = {name: stage for name, stage in trace.stages() if is_computed(stage)}
    names = [name for name in stages if options.full or is_first_layer(name)] or [*stages]
    weights = tuple(name for name in names if kind_of(name).summarized)
    if weights:
        return weights
    if options.arcs:
        raise ConventionError("--arcs draws weights, and there are none", "leave it out")
    shown = [name for name in names if kind_of(name).plotted or kind_of(name).shade]
    if shown:
        return (shown[-1],)
    return tuple(name for name in names if stages[name].axes == stages[names[-1]].axes)


def _panels(name: str, matrices: Sequence[Matrix], points: Plot | None) -> Panels:
    """The panels of one stage: ConventionError where it cannot be drawn as arcs, and should."""
    first = matrices[0]
    rows, columns = tuple(first.rows), tuple(first.columns)
    if first.options.arcs:
        if not first.stage.kind.masks or not first.stage.kind.sums:
            what = f"--arcs draws weights, which {first.name} are not"
            raise ConventionError(what, "leave it out, or --stage weights")
        if max(len(rows), len(columns)) > LARGE and not first.options.full:
            size = f"{len(rows)} × {len(columns)}"
            what = f"--arcs draws up to {LARGE} queries and keys, these are {size}"
            raise ConventionError(what, "choose some with --rows and --cols, or add --full")
    panels = [_panel(matrix) for matrix in matrices]
    labels = first.labels(-2, rows)[: len(rows)], first.labels(-1, columns)[: len(columns)]
    ramp, top, is_cut = _scale(first, panels)
    return Panels(name, first, panels, points, *labels, ramp, top, is_cut)


def _panel(matrix: Matrix) -> Panel:
    """A matrix without the rows, columns and sums that are not drawn."""
    rows, columns = tuple(matrix.rows), tuple(matrix.columns)
    part = np.s_[matrix.rows.start : matrix.rows.stop, matrix.columns.start : matrix.columns.stop]
    texts: list[list[str]] = []
    if rows and columns and max(len(rows), len(columns)) <= _MOST_TEXTS:
        cells = matrix.grid(rows, columns, colour=True).cells[: len(rows)]
        texts = [[cell.text.strip() for cell in row[: len(columns)]] for row in cells]
    names = names_of(matrix.block, matrix.where).items()
    title = " · ".join(name for axis, name in names if axis in matrix.where)
    return Panel(title, matrix.values[part], matrix.marked[part], texts)


def _scale(first: Matrix, panels: Sequence[Panel]) -> tuple[Ramp | None, float, bool]:
    """How cells are shaded: the ramp, its end, and whether some numbers are beyond it.

    Of many weights a few are near 1 (a first query has but one key), and the others near 1/n: the
    scale ends where 99 % of them do, or they would all be pale.
    """
    if first.values.dtype.kind not in NUMERIC or first.options.heatmap is False:
        return None, 1.0, False
    sizes = [np.abs(x.values[np.isfinite(x.values) & ~x.hidden], dtype=float) for x in panels]
    top = largest = max(float(size.max(initial=0.0)) for size in sizes)
    ramp: Ramp = first.stage.kind.shade or "signed"
    if ramp == "share" and panels[0].values.size > MANY and not first.options.arcs:
        most = max(float(np.quantile(size, _MOST)) if size.size else 0.0 for size in sizes)
        top = most if 0 < most < largest / 2 else largest
    top = min(max(round_top(top, FINER), 1 / _FURTHEST), _FURTHEST)
    return ramp, top, top * (1 + 1e-9) < largest
