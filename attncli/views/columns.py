"""The columns of a table: their labels, how wide they are, and which of them fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len

from attncli.trace import Stage
from attncli.views import legend, window
from attncli.views.piece import NUMERIC, Piece, Shading, real
from attncli.views.safe import LABEL_CELLS, clean, distinct
from attncli.views.showing import Showing

INDENT = 2
NARROW_LABEL = 8  # cells of a column's label where the columns would not fit otherwise


class Columns(NamedTuple):
    """The columns that fit: which they are, their labels and widths, the blocks they stand in."""

    kept: window.Kept
    labels: tuple[str, ...]
    widths: tuple[int, ...]
    blocks: tuple[range, ...]


def row_labels(piece: Piece, showing: Showing) -> tuple[str, ...]:
    """What the rows are called; a vector's one row by its symbol."""
    most = LABEL_CELLS if showing.width is None else min(LABEL_CELLS, max(showing.width // 5, 6))
    if piece.stage.value.ndim < 2:
        return (clean(piece.stage.symbol),)
    return _labels(piece.stage, piece.stage.axes[-2], piece.rows, "⋮", most)


def _column_labels(piece: Piece, cells: int) -> tuple[str, ...]:
    if piece.stage.value.ndim == 0:
        return ("",)
    return _labels(piece.stage, piece.stage.axes[-1], piece.columns, "…", cells)


def _labels(stage: Stage, axis: str, kept: window.Kept, gap: str, cells: int) -> tuple[str, ...]:
    indices = real(kept)
    labels = list(distinct([stage.label(axis, i) for i in indices], indices, cells))
    if None in kept:
        labels.insert(kept.index(None), gap)
    return tuple(labels)


def fit(
    piece: Piece,
    texts: list[list[str]],
    rows: Sequence[str],
    sums: Sequence[str],
    shades: Shading | None,
    showing: Showing,
) -> Columns:
    """The columns that fit: side by side if need be narrower, else whole labels in blocks."""
    cell = _cell_width(piece, texts, shades, showing)
    sum_width = max(map(len, sums), default=0)
    room = _room(rows, shades, showing)
    most = window.max_blocks(showing, len(rows) + 1)
    tries = [(LABEL_CELLS, showing.precision + 2), (LABEL_CELLS, 0), (NARROW_LABEL, 0)]
    whole = None
    for label_cells, least in tries[2:] if room and None in piece.columns else tries:
        labels = _column_labels(piece, label_cells)
        widths = [1 if at is None else max(cell, least) for at in piece.columns]
        widths = [max(cell_len(text), width) for text, width in zip(labels, widths, strict=True)]
        found = window.fit(widths, sum_width, room, most)
        is_complete = len(found.kept) == len(widths)
        if is_complete and len(found.blocks) == 1:
            break
        if is_complete and whole is None and label_cells == LABEL_CELLS:
            whole = labels, widths, found
    else:
        labels, widths, found = whole or (labels, widths, found)
    kept = found.kept
    return Columns(
        kept=tuple(None if at is None else piece.columns[at] for at in kept),
        labels=(*("…" if at is None else labels[at] for at in kept), *(["Σ"] if sums else [])),
        widths=(*(1 if at is None else widths[at] for at in kept), *([sum_width] if sums else [])),
        blocks=found.blocks,
    )


def _cell_width(
    piece: Piece, texts: list[list[str]], shades: Shading | None, showing: Showing
) -> int:
    if piece.numbers.dtype.kind in NUMERIC:  # aligned, so all of one width
        number = len(texts[0][0]) if texts and texts[0] else 0
    else:
        number = max((cell_len(text) for row in texts for text in row), default=0)
    mark = 2 if shades and not showing.colour else 0
    return max(number + mark, len(legend.MASKED) if piece.hidden.any() else 0)


def _room(rows: Sequence[str], shades: Shading | None, showing: Showing) -> int | None:
    """The cells beside the row labels; a shade reaches one past its number."""
    if showing.width is None:
        return None
    beyond = 1 if shades and showing.colour else 0
    return showing.width - INDENT - max(map(cell_len, rows), default=0) - beyond
