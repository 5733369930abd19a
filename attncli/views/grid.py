"""Grid: one matrix lowered to text, ready for any format to spell.

`lower` is the only place where numbers, labels, masks, sums and shades become strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from attncli.views import heatmap, legend, numbers, window
from attncli.views.columns import fit, row_labels
from attncli.views.headline import entries
from attncli.views.piece import NUMERIC, Piece, Shading, cut, real, shading
from attncli.views.places import Level, Place
from attncli.views.safe import NAME_CELLS, clean, sentence, shorten
from attncli.views.showing import Showing

Kind = Literal["number", "masked", "gap", "sum"]

SUMMED = ("weights", "dropped")


class Cell(NamedTuple):
    """One cell: its text, what it stands for, and its shade (0 to 1, or −1 to 1)."""

    text: str
    kind: Kind = "number"
    shade: float | None = None


Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Grid:
    """A matrix as text.

    number, name, symbol, formula, note   what the stage is
    facts    its size, and what its rows and columns are
    rows, columns, cells                  labels and cells, sums and gaps among them
    widths   how wide each column is in a terminal
    blocks   which columns stand side by side there
    ramp     how shades are coloured; None = there are none
    legend   lines that explain marks and say what is left out
    """

    number: int | None
    name: str
    symbol: str
    formula: str
    note: str
    facts: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[Row, ...]
    widths: tuple[int, ...]
    blocks: tuple[range, ...]
    ramp: heatmap.Ramp | None
    legend: tuple[str, ...]


def lower(level: Level, name: str, place: Place, showing: Showing, *, say_axes: bool) -> Grid:
    """The matrix of a stage at a place, as much of it as is shown.

    `say_axes` adds what the rows and columns are.
    """
    piece = cut(level, name, place, showing)
    shades = shading(piece, showing)
    summed = name in SUMMED and piece.values.dtype.kind in NUMERIC
    beneath = summed and level.convention.softmax_over == "queries"
    texts = _texts(piece, showing, sums_beneath=beneath)
    last = _sum_column(piece, showing) if summed and not beneath else ()
    rows = row_labels(piece, showing) + (("Σ",) if beneath else ())
    columns = fit(piece, texts, rows, [cell.text for cell in last], shades, showing)
    cells = _cells(piece, texts, columns.kept, shades, showing)
    return Grid(
        number=level.numbers.get(name),
        name=shorten(name, NAME_CELLS),
        symbol=clean(piece.stage.symbol),
        formula=sentence(piece.stage.formula),
        note=sentence(piece.stage.note),
        facts=tuple(_facts(piece, say_axes=say_axes)),
        rows=rows,
        columns=columns.labels,
        cells=tuple(row + last[at : at + 1] for at, row in enumerate(cells)),
        widths=columns.widths,
        blocks=columns.blocks,
        ramp=shades.ramp if shades and showing.colour else None,
        legend=tuple(_legend(level, place, piece, columns.kept, shades, showing)),
    )


def _texts(piece: Piece, showing: Showing, *, sums_beneath: bool) -> list[list[str]]:
    """The numbers of the rows and candidate columns as text, and the sums beneath them."""
    kind = piece.numbers.dtype.kind
    if kind not in NUMERIC:
        return [[shorten(str(x)) for x in row] for row in piece.numbers.tolist()]
    values = piece.numbers.astype(int) if kind == "b" else piece.numbers
    written = numbers.texts(values, showing.precision)
    if sums_beneath:
        written += numbers.texts(piece.sums(-2)[None], showing.precision)
    return numbers.align(written)


def _cells(
    piece: Piece,
    texts: list[list[str]],
    columns: window.Kept,
    shades: Shading | None,
    showing: Showing,
) -> Iterator[Row]:
    """The cells of the rows, gaps among them, and those of the sums beneath."""
    at_column = {column: at for at, column in enumerate(real(piece.columns))}
    ats = [None if column is None else at_column[column] for column in columns]
    written = iter(range(len(texts)))
    dots, more_dots, cross = (Cell(text, "gap") for text in "…⋮⋱")
    for row in piece.rows:
        if row is None:
            yield tuple(cross if at is None else more_dots for at in ats)
            continue
        i = next(written)
        yield tuple(
            dots if at is None else _cell(piece, texts[i][at], (i, at), shades, showing)
            for at in ats
        )
    for i in written:
        yield tuple(dots if at is None else Cell(texts[i][at], "sum") for at in ats)


def _cell(
    piece: Piece, text: str, at: tuple[int, int], shades: Shading | None, showing: Showing
) -> Cell:
    if piece.hidden[at]:
        return Cell(legend.MASKED, "masked")
    if shades is None:
        return Cell(text)
    shade = shades.of(float(piece.numbers[at]))
    if showing.colour:
        return Cell(text, "number", shade)
    return Cell(f"{heatmap.mark(shade or 0)} {text}", "number", shade)


def _sum_column(piece: Piece, showing: Showing) -> Row:
    sums = numbers.align(numbers.texts(piece.sums(-1)[:, None], showing.precision))
    column = [Cell(text, "sum") for (text,) in sums]
    if None in piece.rows:
        column.insert(piece.rows.index(None), Cell("⋮", "gap"))
    return tuple(column)


def _facts(piece: Piece, *, say_axes: bool) -> Iterator[str]:
    whole = " × ".join(str(size) for size in piece.values.shape)
    asked = " × ".join(str(len(part)) for part in piece.wanted)
    yield whole if asked == whole else f"{asked} of {whole}"
    if say_axes and len(piece.stage.axes) >= 2:
        rows, columns = (entries(axis) for axis in piece.stage.axes[-2:])
        yield f"rows are {rows}, columns are {columns}"


def _legend(
    level: Level,
    place: Place,
    piece: Piece,
    columns: window.Kept,
    shades: Shading | None,
    showing: Showing,
) -> Iterator[str]:
    name = piece.stage.name
    if not piece.numbers.size:
        yield "nothing to show"
        return
    if piece.hidden.any():
        yield legend.masked(name, level.convention)
    if name == "weights":
        yield from legend.empty(level, place)
    if shades is not None and (showing.heatmap or shades.top != 1):
        yield legend.shading(shades.ramp, shades.top, showing.colour)
    n_rows, n_columns = map(len, piece.wanted)
    yield from legend.left_out(n_rows - len(real(piece.rows)), n_columns - len(real(columns)))
