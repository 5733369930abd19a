"""A matrix of a page: which rows and columns are shown, their labels, and every number as text.

Nothing is rounded before `grid`, and nowhere else does a number of a matrix become text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.page import numbers
from attncli.page import sentences as closing
from attncli.page.options import DisplayOptions, Index
from attncli.page.select import BlankStage, Block
from attncli.page.text import (
    BLANK,
    LABEL_CELLS,
    NAME_CELLS,
    UNDEFINED,
    captions,
    clean,
    sentence,
    shorten,
)
from attncli.trace import Stage, Trace

Ramp = Literal["share", "signed"]
Kept = tuple[int | None, ...]
"""Indices in order; None = those left out."""

WIDEST = 16  # numbers of a vector of a word, or of the row of a cell, that are shown unasked
LARGE = 100  # rows or columns a matrix is shown whole up to, where no screen sets a limit
EDGE = 8  # rows or columns at each end of one that is larger
MASKED = "///"
WORD_CELLS = 40  # of a text in a cell
SMALL = 0.65  # the share of its size that a label may be reduced to; of it a letter is as wide

NUMERIC = "biuf"
"""Kinds of arrays that are written as numbers; of others, such as tokens, the text is shown."""
SHADES = " ░▒▓█"
"""The mark before a number where there is no colour: a blank below a fifth of the scale."""


class Cell(NamedTuple):
    """One cell: its text, its kind, and its shade (0 to 1, or −1 to 1)."""

    text: str
    kind: Literal["number", "word", "mark", "gap", "sum", "blank"] = "number"
    shade: float | None = None


class Shading(NamedTuple):
    """How the numbers of a matrix are shaded: by which ramp, up to which number."""

    ramp: Ramp
    top: float


class CellPlace(NamedTuple):
    """Where the cell is that is asked for; term: the term of its row's sums that is asked for."""

    row: int
    column: int
    term: int | None = None


def is_of_softmax(stage: Stage) -> bool:
    """Whether a stage is the gradient of a softmax, whose rows sum to 0 as shares sum to 1."""
    return {"d", "delta"} <= stage.reads.keys()


class Grid(NamedTuple):
    """The rows and columns of a matrix that are shown, as text.

    rows, columns  their indices; None = a gap
    cells          one row for each of `rows`, and one of the sums where those are of columns;
                   at the end of each its sum where those are of rows
    """

    rows: Kept
    columns: Kept
    cells: tuple[tuple[Cell, ...], ...]
    shading: Shading | None

    def only(self, places: Sequence[int | None]) -> Grid:
        """The grid with some of the places in its rows of cells, None for a gap."""
        places_of_columns = [at for at in places if at is None or at < len(self.columns)]
        columns = tuple(None if at is None else self.columns[at] for at in places_of_columns)
        cells = []
        for i, row in enumerate(self.cells):
            gap = Cell("⋱" if None in self.rows[i : i + 1] else "…", "gap")
            cells.append(tuple(gap if at is None else row[at] for at in places))
        return self._replace(columns=columns, cells=tuple(cells))


class Matrix:
    """One matrix of a stage, with all that any format needs of it; nothing is rounded yet.

    where          at which heads and batch entries of its block
    name … note    of the stage, clean; number: its place in the order of computation
    values         the whole matrix; rows, columns: those asked for
    cell           the one that is asked for: its row is shown, of many columns those around it
    facts          its size, and what its rows and columns are
    mask, mark     by which numbers are hidden, and what `sign` in their place means
    by_column      whether each column holds numbers of its own kind, rounded by themselves
    empty          True where nothing is written
    widest         of more columns than these the outer ones are shown, as many as fit one block
    is_blank       whether its numbers are left out
    is_repeated    whether they stand in another matrix, which its formula names
    sums           whether rows or columns have a column or row of sums
    shade, least   how its numbers are shaded; the least number at which the shades end
    legend         a further line below it
    """

    def __init__(
        self,
        block: Block,
        stage: Stage,
        index: Index,
        options: DisplayOptions,
        entries: Sequence[str] = (),
        cell: CellPlace | None = None,
    ) -> None:
        self.block, self.stage, self.where, self.options = block, stage, index, options
        kind, convention, self.cell = stage.kind, block.convention, cell
        self.number, self.widest = block.numbers.get(stage.name), math.inf
        self.name = shorten(stage.name, NAME_CELLS) if stage.name else ""
        letter = stage.symbol if self.number is None else ""
        self.formula, self.note = sentence(stage.formula or letter), sentence(stage.note)
        self.values = block.matrix(stage, index)
        self.rows, self.columns = map(range, self.values.shape)
        whole = f"{len(self.rows)} × {len(self.columns)}"
        if cell is not None:
            self.rows = self.rows[cell.row : cell.row + 1]
            if len(self.columns) > WIDEST and not options.full:
                start = max(0, min(cell.column - EDGE // 2, len(self.columns) - EDGE))
                self.columns = self.columns[start : start + EDGE]
        elif stage.value.ndim >= 2:  # rows and columns are a matrix's; a vector is shown whole
            row_axis, column_axis = stage.axes[-2:]
            self.rows = self.rows[slice(*(options.rows if row_axis else (None,)))]
            self.columns = self.columns[slice(*(options.cols if column_axis else (None,)))]
        extent = f"{len(self.rows)} × {len(self.columns)}"
        about = [f"rows are {entries[0]}, columns are {entries[1]}"] if len(entries) == 2 else []
        self.facts = (extent if extent == whole else f"{extent} of {whole}", *about)
        self.sums: Literal["", "rows", "columns"] = ""
        self.has_words = kind.words
        self.is_blank = isinstance(stage, BlankStage)
        has_sums = kind.sums or (kind.heading and is_of_softmax(stage))
        if has_sums and self.values.dtype.kind in NUMERIC and not self.is_blank:
            self.sums = "columns" if convention.softmax_over == "queries" else "rows"
        self.shade, self.least = kind.shade, 0.0
        self.by_column, self.empty = False, np.zeros(self.values.shape, bool)
        self.mark, self.legend = "", ""
        self.sign, self.is_repeated = MASKED, False
        if kind.undefined and not self.is_blank:
            self.sign, self.mark = UNDEFINED, f"{UNDEFINED} {kind.undefined}"
        self.mask = block.mask if kind.masks else None
        if self.mask is not None:
            value = block.mask_value
            meaning = f"its score is {numbers.short(value, 4)}"
            if convention.mask_value_rule == "add" and np.isfinite(value):
                meaning = f"{numbers.short(value, 4)} is added to its score"
            elif np.isinf(value) and self._holds_finite(self.mask):
                meaning = "the least number of its type is added to its score"
            if self._leaks:
                subject = "gradient" if kind.heading else "weight"
                meaning = f"its {subject} is 0"
            self.mark = f"/// masked: may not attend, {meaning}"
            if stage is block.weights and not self.is_blank:
                self.legend = closing.empty_rows(block, index)

    @property
    def _leaks(self) -> bool:
        """Whether a masked number is shown where it is not 0: a weight, or a gradient."""
        return bool(self.stage.kind.sums or self.stage.kind.heading)

    def _holds_finite(self, mask: Stage) -> bool:
        """Whether a masked score is finite."""
        hidden = self.block.masked(mask, self.where, self.values.shape)
        return bool(np.isfinite(self.values[hidden]).any())

    @cached_property
    def marked(self) -> BoolArray:
        """True where `sign` replaces the number; made where it is looked at, of few matrices."""
        if self.sign == UNDEFINED:
            return np.isnan(self.values)
        if self.mask is None:
            return np.broadcast_to(False, self.values.shape)
        hidden = self.block.masked(self.mask, self.where, self.values.shape)
        return hidden & (self.values == 0) if self._leaks else hidden

    def window(self, places: range, most: int = LARGE, limit: int = 2 * EDGE) -> Kept:
        """The rows or columns shown where no screen sets a limit: up to most all, else `limit`."""
        is_whole = self.options.full or len(places) <= most
        return tuple(places) if is_whole else corners(places, limit)

    def labels(self, axis: Literal[-1, -2], places: Kept, cells: int = LABEL_CELLS) -> list[str]:
        """The names of the rows (−2) or columns (−1) of a grid; a vector's row has its symbol's."""
        axes = self.stage.axes
        if len(axes) >= -axis:
            indices = [at for at in places if at is not None]
            names = captions(self.stage.names(axes[axis]), indices, cells)
            if None in places:
                names.insert(places.index(None), "⋮" if axis == -2 else "…")
        else:
            is_of_words = self.stage.name in ("difference", "analogy")  # queen − king, not b − a
            letter = self.formula if is_of_words else self.stage.symbol
            names = [clean(letter) if axis == -2 else ""]
        is_summed = self.sums == ("columns" if axis == -2 else "rows")
        if not is_summed:
            return names
        n_shown, whole = len(self.columns if axis == -1 else self.rows), self.values.shape[axis]
        return [*names, "Σ" if n_shown == whole else f"Σ of all {whole}"]

    def grid(
        self,
        rows: Kept,
        columns: Kept,
        *,
        colour: bool = False,
        few: bool = False,
        precision: int | None = None,
    ) -> Grid:
        """These rows and columns: the only place where numbers, marks and sums become text.

        few        whether the colours are so few that marks stand beside the shades
        precision  decimals, where not those that are asked for
        """
        at = [np.array([i for i in axis if i is not None], dtype=int) for axis in (rows, columns)]
        values = self.values[np.ix_(*at)]
        hidden = self.marked[np.ix_(*at)]
        values = np.where(hidden, np.zeros_like(values), values) if hidden.any() else values
        precision = self.options.precision if precision is None else precision
        shading, heatmap = None, self.options.heatmap
        cells = self._cells(values, at, precision)
        is_shaded = self.shade and colour if heatmap is None else heatmap
        if is_shaded and values.dtype.kind in NUMERIC and not self.is_blank:
            sizes = np.abs(values[np.isfinite(values)].astype(np.float64))
            top = numbers.round_top(float(sizes.max(initial=self.least)))
            is_share = self.shade == "share" and not (values < 0).any()  # a difference is not
            shading = Shading("share" if is_share else "signed", top)
            for i, row in enumerate(values.tolist()):
                marks = few or not colour
                shaded = (_shaded(cells[i][j].text, x / top, marks) for j, x in enumerate(row))
                cells[i][: len(row)] = shaded
        for i, j in np.argwhere(hidden).tolist():
            cells[i][j] = Cell(self.sign, "mark")
        for i, j in np.argwhere(self.empty[np.ix_(*at)]).tolist():
            cells[i][j] = Cell("", "gap")
        width = len(at[1]) + (self.sums == "rows")
        if None in rows:
            cells.insert(rows.index(None), [Cell("⋮", "gap")] * width)
        grid = Grid(rows, tuple(at[1].tolist()), tuple(map(tuple, cells)), shading)
        if None not in columns:
            return grid
        gap = columns.index(None)
        return grid.only([*range(gap), None, *range(gap, width)])

    def _beside(self) -> float:
        """The largest number next to which one of this matrix that rounds to 0 is 0."""
        read = self.block.read(self.stage, self.stage.kind.beside)
        finite = read.value[np.isfinite(read.value)] if read else np.zeros(0)
        return float(np.abs(finite).max(initial=0.0))

    def _cells(self, values: Array, at: Sequence[Array], precision: int) -> list[list[Cell]]:
        """The text of what is shown, with its sums at the end of each row, or below.

        at  which rows and columns it is of: sums are of whole ones, exact where they round so
        """
        if self.is_blank:
            return [[Cell(BLANK, "blank") for _ in row] for row in values]
        written: Literal["word", "number"] = "word" if self.has_words else "number"
        if values.dtype.kind not in NUMERIC:
            room = WORD_CELLS if self.has_words else LABEL_CELLS
            texts = [[shorten(str(x), room) for x in row] for row in values.tolist()]
            return [[Cell(x, written) for x in row] for row in texts]
        sums: list[Array] = []
        if self.sums:
            axis, summands = -1, self.values[at[0]]
            if self.sums == "columns":
                axis, summands = -2, self.values[:, at[1]]
            with np.errstate(all="ignore"):
                total = summands.astype(np.float64, copy=False).sum(axis=axis, keepdims=True)
                whole = np.round(total)
                top = np.abs(summands).max(axis=axis, initial=1, keepdims=True)
                # Rounding makes a sum of n float64 shares wrong by n · 1e-16; in float32 it shows.
                is_whole = np.abs(total - whole) < 1e-12 * self.values.shape[axis] * top
            sums = [np.where(is_whole, whole, total)]
        signed = values + 0 if values.dtype.kind == "b" else values
        kinds, beside = [], self._beside() if self.stage.kind.beside else 0.0
        below = sums if self.sums == "columns" else []
        for kind in np.hsplit(signed, signed.shape[1]) if self.by_column else [signed]:
            kinds.append(numbers.texts([kind, *below], precision, beside))
        rows = [[Cell(x, written) for x in chain(*row)] for row in zip(*kinds, strict=True)]
        for row in rows[len(values) :]:
            row[:] = [Cell(cell.text, "sum") for cell in row]
        if self.sums == "rows":
            for row, (text,) in zip(rows, numbers.texts(sums, precision), strict=True):
                row.append(Cell(text, "sum"))
        return rows

    def footnotes(self, grid: Grid, *, colour: bool = False, few: bool = False) -> Iterator[str]:
        """What the marks and shades of a grid mean, which rows are empty, what is left out."""
        if not self.rows or not self.columns:
            yield from [] if self.is_repeated else ["nothing to show"]
            return
        if self.mark and any(cell.kind == "mark" for row in grid.cells for cell in row):
            yield self.mark
        yield from [self.legend] if self.legend else []
        shading = grid.shading
        if shading is not None and (self.options.heatmap or shading.top != 1 or few):
            yield _shading_words(shading, colour and not few) + _FEW[shading.ramp] * few
        left_out = []
        for chosen_places, places, axis, flag in (
            (self.rows, grid.rows, "rows", "--rows"),
            (self.columns, grid.columns, "columns", "--cols"),
        ):
            if n := len(chosen_places) - sum(at is not None for at in places):
                left_out.append((f"{n} {axis if n > 1 else axis[:-1]}", f"{flag} A:B"))
        if left_out:
            counts, flags = zip(*left_out, strict=True)
            yield f"left out: {' and '.join(counts)} ({', '.join(flags)} or --full)"


def table_of(stage: Stage, options: DisplayOptions) -> Matrix:
    """A table that is no stage of a trace, with nothing shaded."""
    display = DisplayOptions(precision=options.precision, full=options.full, heatmap=False)
    return Matrix(Block(Trace("", (stage,))), stage, {}, display)


def corners(indices: Sequence[int], room: int) -> Kept:
    """The first and last of the indices, no more than `room` of them.

    >>> corners(range(9), 4)
    (0, 1, None, 7, 8)
    """
    if len(indices) <= room:
        return tuple(indices)
    last = room // 2
    return (*indices[: room - last], None, *indices[len(indices) - last :])


def round_places(names: Sequence[str], size: float) -> range:
    """Which of many names along an axis have room: all, else each 2nd, 5th, 10th … of them.

    size  of their letters, where each of them has a room of 1

    >>> round_places(["k1", "k2", "k3", "k4"], 0.5), round_places(["k1", "k2", "k3"], 2.0)
    (range(0, 4), range(2, 3, 10))
    """
    each = 1 if size <= 1 / SMALL else int(numbers.round_top(4 * size))
    number = re.fullmatch(r"\D*(\d+)", names[0])  # a round one is shown: k10, k20
    first = -int(number[1]) % each if number else 0
    return range(min(first, len(names) - 1), len(names), each)


def pack(widths: Sequence[int], room: float, gap: int) -> tuple[range, ...]:
    """Columns of these widths in as few blocks as fit into the room, at least one column each."""
    starts, used = [0], 0
    for at, width in enumerate(widths):
        used += width + gap
        if used > room and at > starts[-1]:
            starts.append(at)
            used = width + gap
    return tuple(map(range, starts, [*starts[1:], len(widths)]))


def fifth(shade: float) -> int:
    """Which fifth of the scale a shade is in, 0 to 4, whatever its sign."""
    return min(int(abs(shade) * 5), 4)


def _shaded(text: str, share: float, marks: bool) -> Cell:
    """A shaded cell; beyond the scale its shade is that of the scale's end, NaN has none."""
    shade = None if math.isnan(share) else min(max(share, -1.0), 1.0)
    mark = f"{SHADES[fifth(shade or 0)]} " if marks else ""
    return Cell(mark + text, "number", shade)


_FEW: dict[Ramp, str] = {"share": "", "signed": "; red above 0, blue below"}
"""What 16 colours say besides the marks: the sign."""


def _shading_words(shading: Shading, colour: bool) -> str:
    """What the shades of a matrix mean."""
    end, share = numbers.short(shading.top, 4), shading.ramp == "share"
    if not colour:
        size = "number" if share else "size of the number"
        return f"{SHADES[1:]} the {size}, from {numbers.short(shading.top / 5, 4)} to {end}"
    return f"shaded from 0 to {end}" if share else f"shaded from -{end} (blue) to {end} (orange)"
