"""Tables for the terminal: the only form with a width, so the only one that shortens and wraps.

Nothing is left to Rich to wrap, crop or interpret: lines fit the width they were made for, and
text is never markup. Print them with `soft_wrap=True`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from attncli.trace import Trace
from attncli.views.page import Page, parts
from attncli.views.parts import (
    Cell,
    Closing,
    Derivation,
    Grid,
    Heading,
    Headline,
    Matrix,
    Part,
    Plot,
    Ramp,
    Remark,
    Tree,
    corners,
)
from attncli.views.select import Showing
from attncli.views.text import LABEL_CELLS, fold, pad

RIGHT_EDGE = 80  # column at which the facts to the right of a title end
NAME = 8  # cells of a stage's name, so that formulas are in line
INDENT, GAP = 2, 2
NARROW_LABEL = 8  # cells of a column's label where the columns would not fit otherwise
FEWEST_LINES = 16  # of a matrix, however low the screen
MARGIN = 6  # lines of the screen that a stage's title, notes and the prompt take
WIDEST_PLOT = 72

BOLD, LABEL = Style(bold=True), Style(color="cyan")
QUIET, NOTE, PLAIN = Style(dim=True), Style(italic=True), Style()
_KINDS = {"number": PLAIN, "mark": QUIET, "gap": QUIET, "sum": QUIET}

Line = list[tuple[str, Style]]


class Screen(NamedTuple):
    """Columns and lines of a terminal, None = unlimited (a pipe), and whether it has colour."""

    width: int | None = None
    height: int | None = None
    colour: bool = False


PIPE = Screen()


def text(
    trace: Trace, showing: Showing, page: Page = parts, screen: Screen = PIPE
) -> Iterator[str]:
    """The page as text without colour. Raises as `blocks` does."""
    for block in blocks(trace, showing, page, screen):
        yield f"{block.plain}\n"


def blocks(
    trace: Trace, showing: Showing, page: Page = parts, screen: Screen = PIPE
) -> Iterator[Text]:
    """The page in blocks to print one by one: headline, one for each matrix, closing sentences.

    Raises StageError or ShapeError for what is asked for and not there.
    """
    waiting: list[tuple[str, Style]] = []  # a heading goes with the matrix after it
    for at, part in enumerate(page(trace, showing)):
        waiting += [("\n", PLAIN)] if at else []
        for line in _lines(part, screen):
            waiting += [*line, ("\n", PLAIN)]
        if not isinstance(part, Heading):
            yield Text.assemble(*waiting[:-1], no_wrap=True, overflow="ignore")
            waiting = []
    if waiting:
        yield Text.assemble(*waiting[:-1], no_wrap=True, overflow="ignore")


def _lines(part: Part, screen: Screen) -> Iterator[Line]:
    match part:
        case Headline():
            words = f"{part.title} ({part.name})" if part.name else part.title
            title: list[Line] = [[(line, BOLD)] for line in fold(words, screen.width)]
            yield from _beside(title, part.facts, 0, screen)
            yield from _folded(" · ".join(part.choices), QUIET, screen)
            for note in part.notes:
                yield from _folded(note, NOTE, screen)
        case Heading(words):
            yield from _folded(words, BOLD, screen)
        case Remark(words):
            yield from _folded(words, QUIET, screen)
        case Matrix():
            yield from _matrix(part, screen)
        case Plot(names, points):
            from attncli.views.scatter import scatter

            width = min(screen.width or WIDEST_PLOT, WIDEST_PLOT)
            yield from ([(line, PLAIN)] for line in scatter(names, points, width))
        case Derivation():
            yield from _derivation(part, screen)
        case Closing(heads):
            for at, (heading, sentences) in enumerate(heads):
                yield from [[]] if at and heading else []
                yield from _folded(heading, BOLD, screen)
                start = INDENT if heading else 0
                for sentence in sentences:
                    folded = fold(sentence, screen.width, start + INDENT, start)
                    yield from ([(line, PLAIN)] for line in folded)
        case Tree():
            yield from _tree(part, screen)


def _matrix(m: Matrix, screen: Screen) -> Iterator[Line]:
    if m.name:
        yield from _title(m.number, m.name, m.formula, m.facts, screen)
    yield from _folded(m.note, NOTE, screen, INDENT)
    layout = _layout(m, screen)
    for at, columns in enumerate(layout.blocks if layout.rows and layout.columns else ()):
        yield from [[]] if at else []
        yield from _block(layout, columns, screen)
    if m.work:
        from attncli.views.work import work_lines

        yield from ([(" " * INDENT + line, PLAIN)] for line in work_lines(m, screen.width))
    for line in m.footnotes(layout.grid, colour=screen.colour):
        yield from _folded(line, QUIET, screen, INDENT)


def _title(
    number: int | None, name: str, formula: str, facts: Sequence[str], screen: Screen
) -> Iterator[Line]:
    """1  scores    S = Q Kᵀ                    3 × 3 · rows are queries, columns are keys"""
    count = "" if number is None else f"{number:<3}"
    start: Line = [(count, QUIET), (f"{pad(name, NAME)}  ", BOLD)]
    used = sum(cell_len(piece) for piece, _ in start)
    first, *more = fold(formula, screen.width, INDENT, used)
    start += [(first[used:], PLAIN)] if formula else []
    lines = [start, *([(line, PLAIN)] for line in more)]
    yield from _beside(lines, facts, INDENT, screen)


def _beside(lines: list[Line], facts: Sequence[str], indent: int, screen: Screen) -> Iterator[Line]:
    """Lines, and facts that end the last one at the right edge, or follow on their own."""
    edge = RIGHT_EDGE if screen.width is None else min(screen.width, RIGHT_EDGE)
    words = " · ".join(facts)
    space = edge - sum(cell_len(piece) for piece, _ in lines[-1]) - cell_len(words)
    if words and space >= GAP:
        yield from [*lines[:-1], [*lines[-1], (" " * space, PLAIN), (words, QUIET)]]
    else:
        piece, style = lines[-1].pop()
        yield from [*lines[:-1], [*lines[-1], (piece.rstrip(), style)]]
        yield from _folded(words, QUIET, screen, indent)


def _folded(words: str, style: Style, screen: Screen, indent: int = 0) -> Iterator[Line]:
    if words:
        yield from ([(line, style)] for line in fold(words, screen.width, indent))


def _derivation(part: Derivation, screen: Screen) -> Iterator[Line]:
    from attncli.views.work import at_length

    room = None if screen.width is None else screen.width - INDENT
    yield from _folded(part.title, BOLD, screen)
    for stage in part.stages:
        yield []
        yield from _title(stage.number, stage.name, stage.formula, (), screen)
        for equation in stage.equations:
            yield from ([(" " * INDENT + line, PLAIN)] for line in at_length(equation, room))


def _tree(part: Tree, screen: Screen) -> Iterator[Line]:
    """├─ scores  11 × 11  S = Q Kᵀ, the formulas in line"""
    names = max((cell_len(b.lead + b.name) for b in part.branches if b.shape), default=0) + GAP
    shapes = max((cell_len(b.shape) for b in part.branches), default=0)
    start = names + shapes + GAP
    for branch in part.branches:
        at = start if branch.shape else cell_len(branch.lead + branch.name) + GAP
        hang = start if branch.shape else at
        first, *more = fold(branch.formula, screen.width, hang, at)
        named = pad(branch.lead + branch.name, names if branch.shape else at)
        shape = pad(branch.shape, shapes) + " " * GAP if branch.shape else ""
        lead, name = named[: len(branch.lead)], named[len(branch.lead) :]
        line = [(lead, QUIET), (name, PLAIN if branch.shape else BOLD), (shape, LABEL)]
        line.append((first[at:], PLAIN))
        while line and not line[-1][0].strip():  # no spaces at its end
            line.pop()
        yield [*line[:-1], (line[-1][0].rstrip(), line[-1][1])]
        for words in more:
            yield [(pad(branch.below, hang), QUIET), (words[hang:], PLAIN)]


# ---- a matrix: which of its columns fit, and their cells


class Layout(NamedTuple):
    """The columns that fit: their labels and widths, and the blocks they are printed in."""

    grid: Grid
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    widths: tuple[int, ...]
    blocks: tuple[range, ...]


def _layout(m: Matrix, screen: Screen) -> Layout:
    """The rows and columns that fit the screen, in as few blocks of columns as there can be.

    Columns are first made narrower, then printed in blocks; if those are too tall for the screen,
    the first and last columns are shown.
    """
    limit = None  # lines that one matrix may take
    if screen.height is not None and not m.full:
        limit = max(screen.height - MARGIN, FEWEST_LINES)
    rows, columns = m.window(m.rows), m.window(m.columns)
    if limit is not None:
        rows = corners(m.rows, limit - 2 if len(m.rows) >= limit else limit)
    if limit is not None and screen.width is not None:  # as many as fit if each were one cell wide
        columns = corners(m.columns, _most(limit, len(rows)) * (screen.width // (1 + GAP)) + 2)
    grid = m.grid(rows, columns, colour=screen.colour)
    cells = LABEL_CELLS if screen.width is None else min(LABEL_CELLS, max(screen.width // 5, 6))
    row_labels = (*m.labels(-2, rows, cells), *(["Σ"] if m.sums == "columns" else []))
    room = most = None
    if screen.width is not None:
        beyond = 1 if grid.shading and screen.colour else 0  # a shade reaches one past its number
        room = screen.width - INDENT - max(map(cell_len, row_labels), default=0) - beyond
        most = None if limit is None else _most(limit, len(row_labels))
    tries = [(LABEL_CELLS, m.precision + 2), (LABEL_CELLS, 0), (NARROW_LABEL, 0)]
    found: list[Layout] = []
    for label_cells, least in tries[2:] if room and None in columns else tries:
        labels = m.labels(-1, columns, label_cells)
        found.append(_fitted(grid, row_labels, labels, least, room, most))
        if len(found[-1].blocks) == 1 and len(found[-1].grid.columns) == len(columns):
            return found[-1]
    complete = (f for f in found[:-1] if len(f.grid.columns) == len(columns))
    return next(complete, found[-1])


def _most(lines: int, n_rows: int) -> int:
    """How many blocks of so many rows the lines hold, with labels above and a blank between."""
    return max(1, (lines + 1) // (n_rows + 2))


def _fitted(
    grid: Grid,
    rows: tuple[str, ...],
    labels: Sequence[str],
    least: int,
    room: int | None,
    most: int | None,
) -> Layout:
    """The columns in blocks no wider than the room; where that are too many, the outer ones.

    least  cells of a column of numbers at least
    most   blocks there may be; None = unlimited
    """
    numbers = (c for row in grid.cells for c in row if c.kind != "gap")
    cell = max((cell_len(c.text) for c in numbers), default=0)
    widths = [1 if at is None else max(cell, least) for at in grid.columns]
    widths = [max(cell_len(label), width) for label, width in zip(labels, widths, strict=True)]
    sums = [max(cell_len(c.text) for c in grid.sums)] if grid.sums else []
    blocks: tuple[range, ...] = (range(len(widths) + len(sums)),)
    if room is not None:
        blocks = _pack([*widths, *sums], room)
    if room is not None and most is not None and len(blocks) > most and len(widths) > 1:
        left, right = _ends(widths, room - sum(width + GAP for width in (1, *sums)))
        kept = [*range(left), None, *range(len(widths) - right, len(widths))]
        grid = grid.only(kept)
        labels = ["…" if at is None else labels[at] for at in kept]
        widths = [1 if at is None else widths[at] for at in kept]
        blocks = _pack([*widths, *sums], room)  # one block, if not a very narrow screen
    return Layout(grid, rows, (*labels, *(["Σ"] if sums else [])), (*widths, *sums), blocks)


def _pack(widths: Sequence[int], room: int) -> tuple[range, ...]:
    """As few blocks as fit into the room, at least one column each."""
    starts, used = [0], 0
    for at, width in enumerate(widths):
        used += width + GAP
        if used > room and at > starts[-1]:
            starts.append(at)
            used = width + GAP
    return tuple(map(range, starts, [*starts[1:], len(widths)]))


def _ends(widths: Sequence[int], room: int) -> tuple[int, int]:
    """How many columns from the left and from the right fit side by side, at least one in all."""
    left, right = 1, 0
    used = widths[0] + GAP
    while left + right < len(widths) - 1:
        take_left = left <= right
        used += GAP + (widths[left] if take_left else widths[-1 - right])
        if used > room:
            break
        left, right = (left + 1, right) if take_left else (left, right + 1)
    return left, right


def _block(layout: Layout, block: range, screen: Screen) -> Iterator[Line]:
    """Some columns of a matrix, with the labels of its rows."""
    margin = INDENT + max(map(cell_len, layout.rows), default=0)
    widths, grid = layout.widths, layout.grid
    heads = (" " * GAP + pad(layout.columns[at], widths[at], right=True) for at in block)
    yield [(" " * margin + "".join(heads), LABEL)]
    ramp = grid.shading.ramp if grid.shading and screen.colour else None
    for i, label in enumerate(layout.rows):
        row = (*grid.cells[i], *grid.sums[i : i + 1])
        cells = _cells([row[at] for at in block], [widths[at] for at in block], ramp)
        yield [(pad(" " * INDENT + label, margin), LABEL), *cells]


def _cells(cells: Sequence[Cell], widths: Sequence[int], ramp: Ramp | None) -> Line:
    """The cells of a row. A shade fills half of the gap on either side of its cell."""
    pieces: Line = []
    gap = " "
    for cell, width in zip(cells, widths, strict=True):
        text = pad(cell.text, width, right=True)
        if ramp is None or cell.shade is None:
            pieces += [(gap, PLAIN), (f" {text}", _KINDS[cell.kind])]
            gap = " "
        else:
            from attncli.views.formats.colours import style

            pieces += [(gap, PLAIN), (f" {text} ", style(cell.shade, ramp))]
            gap = ""
    if gap and pieces:
        text, plain = pieces.pop()
        pieces.append((text.rstrip(), plain))
    return pieces
