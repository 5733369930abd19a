"""Tables for the terminal: the only form with a width, so the only one that shortens and wraps.

Nothing is left to Rich to wrap, crop or interpret: lines fit the width they were made for, and
text is never markup. Print them with `soft_wrap=True`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from rich.style import Style
from rich.text import Text

from attncli.page import parts as kinds
from attncli.page.matrix import EDGE, NUMERIC, Grid, Matrix, corners, pack
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.text import LABEL_CELLS, fold, pad, width_of
from attncli.trace import Trace

RIGHT_EDGE = 80  # column at which the facts to the right of a title end
NAME = 8  # cells of a stage's name, so that formulas are in line
INDENT, GAP = 2, 2
WORD_LABEL = 20  # cells of the label of a row of words
NARROW_LABEL = 8  # cells of a column's label where the columns would not fit otherwise
FEWEST_LINES = 16  # of a matrix, however low the screen
MARGIN = 6  # lines of the screen that a stage's title, notes and the prompt take
WIDEST_PLOT = 72
FEWEST_DECIMALS = 2  # of a map of tokens that would not fit the screen with more
_NUMBER = re.compile(r" (\(\d+\))$")  # of equal words: it stands below them

BOLD, LABEL = Style(bold=True), Style(color="cyan")
QUIET, NOTE, PLAIN = Style(dim=True), Style(italic=True), Style()
_KINDS = {"number": PLAIN, "word": PLAIN, "mark": QUIET, "gap": QUIET, "sum": QUIET, "blank": PLAIN}
_BELOW = str.maketrans("├└─", "│  ")  # what continues a line of a tree

Line = list[tuple[str, Style]]


class Screen(NamedTuple):
    """Columns and lines of a terminal, None = unlimited (a pipe), and its colours."""

    width: int | None = None
    height: int | None = None
    colour: bool = False
    few: bool = False  # whether it has 16 or 8 of them, so that marks stand beside the shades
    of_256: bool = False  # whether it has 256


PIPE = Screen()


def text(
    trace: Trace, options: DisplayOptions, page: Page = parts, screen: Screen = PIPE
) -> Iterator[str]:
    """The page as text without colour."""
    for block in blocks(trace, options, page, screen):
        yield f"{block.plain}\n"


def blocks(
    trace: Trace, options: DisplayOptions, page: Page = parts, screen: Screen = PIPE
) -> Iterator[Text]:
    """The page in blocks to print one by one: headline, one for each matrix, closing sentences."""
    waiting: list[tuple[str, Style]] = []  # a heading goes with the matrix after it
    for at, part in enumerate(page(trace, options)):
        waiting += [("\n", PLAIN)] if at else []
        for line in _lines(part, screen):
            waiting += [*line, ("\n", PLAIN)]
        if not isinstance(part, kinds.Heading):
            yield Text.assemble(*waiting[:-1], no_wrap=True, overflow="ignore")
            waiting = []
    if waiting:
        yield Text.assemble(*waiting[:-1], no_wrap=True, overflow="ignore")


def _lines(part: kinds.Part, screen: Screen) -> Iterator[Line]:  # noqa: PLR0912 - a case each
    match part:
        case kinds.Headline():
            yield from _title(None, "", part.title, part.facts, screen)
            yield from _folded(" · ".join(part.choices), QUIET, screen)
            for note in part.notes:
                yield from _folded(note, NOTE, screen)
        case kinds.Heading(words):
            yield from _folded(words, BOLD, screen)
        case kinds.Remark(words):
            yield from _folded(words, QUIET, screen)
        case Matrix():
            if part.name:
                yield from _title(part.number, part.name, part.formula, part.facts, screen)
            yield from _folded(part.note, NOTE, screen, INDENT)
            layout = _layout(part, screen)
            for at, columns in enumerate(layout.blocks if layout.rows and layout.columns else ()):
                yield from [[]] if at else []
                yield from _block(layout, columns, screen)
            if part.options.work:
                from attncli.page.work import work_lines

                for line in work_lines(part, screen.width):
                    yield [(" " * INDENT + line, PLAIN)]
            for line in part.footnotes(layout.grid, colour=screen.colour, few=screen.few):
                yield from _folded(line, QUIET, screen, INDENT)
        case kinds.Plot(names, points):
            from attncli.formats.scatter import scatter

            width = min(screen.width or WIDEST_PLOT, WIDEST_PLOT)
            yield from ([(line, PLAIN)] for line in scatter(names, points, width))
        case kinds.Closing(heads):
            for at, (heading, sentences) in enumerate(heads):
                yield from [[]] if at and heading else []
                yield from _folded(heading, BOLD, screen)
                start = INDENT if heading else 0
                for sentence in sentences:
                    folded = fold(sentence, screen.width, start + INDENT, start)
                    yield from ([(line, PLAIN)] for line in folded)
        case kinds.Tree():
            yield from _tree(part, screen)


def _title(
    number: int | None, name: str, words: str, facts: Sequence[str], screen: Screen
) -> Iterator[Line]:
    """1  scores    S = Q Kᵀ                    3 × 3 · rows are queries, columns are keys

    The facts end the last line at the right edge, or follow on their own. What has no name is the
    whole.
    """
    count = "" if number is None else f"{number:<2} "
    start: Line = [(count, QUIET), (f"{pad(name, NAME)}  ", BOLD)] if name else []
    used, indent, style = 0, 0, BOLD
    if name:
        used, indent, style = sum(width_of(piece) for piece, _ in start), INDENT, PLAIN
    first, *more = fold(words, screen.width, indent, used)
    start += [(first[used:], style)] if words or not name else []
    lines = [start, *([(line, style)] for line in more)]
    edge, right = min(screen.width or RIGHT_EDGE, RIGHT_EDGE), " · ".join(facts)
    space = edge - sum(width_of(piece) for piece, _ in lines[-1]) - width_of(right)
    if right and space >= GAP:
        lines[-1] += [(" " * space, PLAIN), (right, QUIET)]
    else:
        piece, last_style = lines[-1].pop()
        lines[-1].append((piece.rstrip(), last_style))
        lines += _folded(right, QUIET, screen, indent)
    yield from lines


def _folded(words: str, style: Style, screen: Screen, indent: int = 0) -> Iterator[Line]:
    if words:
        yield from ([(line, style)] for line in fold(words, screen.width, indent))


def _tree(part: kinds.Tree, screen: Screen) -> Iterator[Line]:
    """├─ scores  11 × 11  S = Q Kᵀ, the formulas in line"""
    names = max((width_of(b.lead + b.name) for b in part.branches if b.shape), default=0) + GAP
    shapes = max((width_of(b.shape) for b in part.branches), default=0)
    start = names + shapes + GAP
    for branch in part.branches:
        at = start if branch.shape else width_of(branch.lead + branch.name) + GAP
        first, *more = fold(branch.formula, screen.width, at)
        name = pad(branch.name, (names if branch.shape else at) - width_of(branch.lead))
        shape = pad(branch.shape, shapes) + " " * GAP if branch.shape else ""
        line = [(branch.lead, QUIET), (name, PLAIN if shape else BOLD), (shape, LABEL)]
        line.append((first[at:], PLAIN))
        while line and not line[-1][0].strip():  # no spaces at its end
            line.pop()
        yield [*line[:-1], (line[-1][0].rstrip(), line[-1][1])]
        below = branch.lead.translate(_BELOW)
        for words in more:
            yield [(pad(below, at), QUIET), (words[at:], PLAIN)]


# ---- a matrix: which of its columns fit, and their cells


class Layout(NamedTuple):
    """The columns that fit: their labels and widths, and the blocks they are printed in."""

    grid: Grid
    rows: Sequence[str]
    columns: Sequence[str]
    widths: Sequence[int]
    blocks: tuple[range, ...]


def _layout(m: Matrix, screen: Screen) -> Layout:
    """The rows and columns that fit the screen, in as few blocks of columns as there can be.

    Columns are first made narrower, then printed in blocks; if those are too tall for the screen,
    the first and last columns are shown.
    """
    rows, columns, most = m.window(m.rows), m.window(m.columns), math.inf
    if screen.height is not None and not m.options.full:
        limit = max(screen.height - MARGIN, FEWEST_LINES)
        rows = corners(m.rows, limit - 2 if len(m.rows) >= limit else limit)
        most = _most(limit, len(rows) + (m.sums == "columns"))
        if screen.width is not None:  # as many as fit if each were one cell wide
            columns = corners(m.columns, _most(limit, len(rows)) * (screen.width // (1 + GAP)) + 2)
    if len(m.columns) > m.widest and not m.options.full:
        columns, most = corners(m.columns, 2 * EDGE), 1
    grid = m.grid(rows, columns, colour=screen.colour, few=screen.few)
    width = math.inf if screen.width is None else screen.width
    most_of_label, share = (WORD_LABEL, 4) if m.has_words else (LABEL_CELLS, 5)
    row_labels = m.labels(-2, rows, int(min(most_of_label, max(width / share, 6))))
    beyond = 1 if grid.shading and screen.colour else 0  # a shade reaches one past its number
    room = width - INDENT - max(map(width_of, row_labels), default=0) - beyond
    is_wave = m.stage.axes[-1:] == ("dimension",)  # all of "2i+1=1023" is needed
    narrow = LABEL_CELLS if is_wave else NARROW_LABEL
    tries = [(LABEL_CELLS, m.options.precision + 2), (LABEL_CELLS, 0), (narrow, 0)]
    layouts: list[Layout] = []
    for label_cells, least in tries[2:] if screen.width and None in columns else tries:
        labels = [_NUMBER.sub(r"\n\1", label) for label in m.labels(-1, columns, label_cells)]
        layout = _fitted(grid, row_labels, labels, least, room, most)
        if len(layout.grid.columns) == len(columns) and len(layout.blocks) == 1:
            return layout
        layouts.append(layout)
    may_fit = m.shade == "share" or len(columns) * (1 + GAP) <= room
    for fewer in _fewer_decimals(m) if may_fit and len(layouts[-1].blocks) > 1 else ():
        grid = m.grid(rows, columns, colour=screen.colour, few=screen.few, precision=fewer)
        layouts.append(_fitted(grid, row_labels, labels, 0, room, most))
        if len(layouts[-1].blocks) == 1:
            break
    whole = [layout for layout in layouts if len(layout.grid.columns) == len(columns)]
    in_one = (layout for layout in whole if len(layout.blocks) == 1)
    return next(in_one, (whole or layouts[-1:])[0])


def _fewer_decimals(m: Matrix) -> range:
    """What a map of tokens may be rounded to, in order, unless the decimals were asked for."""
    is_map = m.stage.axes[-1:] in (("key",), ("other",)) and m.values.dtype.kind in NUMERIC
    if m.options.rounded or not is_map:
        return range(0)
    top = np.abs(m.values[np.isfinite(m.values)]).max(initial=0)
    least = FEWEST_DECIMALS - bool(top >= 2)  # two digits of the largest number are left
    return range(m.options.precision - 1, least - 1, -1)


def _most(lines: int, n_rows: int) -> int:
    """How many blocks of so many rows the lines hold, with labels above and a blank between."""
    return max(1, (lines + 1) // (n_rows + 2))


def _fitted(
    grid: Grid, rows: Sequence[str], labels: list[str], least: int, room: float, most: float
) -> Layout:
    """The columns in blocks no wider than the room; where that are too many, the outer ones.

    least  cells of a column of numbers at least
    most   blocks there may be
    """
    n = len(grid.columns)
    numbers = (cell for row in grid.cells for cell in row[:n] if cell.kind != "gap")
    cell = max((width_of(cell.text) for cell in numbers), default=0)
    sums = max((width_of(cell.text) for row in grid.cells for cell in row[n:]), default=0)
    widths = [width_of("…") if at is None else max(cell, least) for at in grid.columns] + [sums]
    if any(cell.kind == "word" for row in grid.cells[:1] for cell in row):
        # Each column is as wide as its own words.
        widths = [max(width_of(row[at].text) for row in grid.cells) for at in range(n)]
    sizes = [max(map(width_of, label.split("\n"))) for label in labels]
    widths = [max(size, width) for size, width in zip(sizes, widths, strict=False)]
    blocks = pack(widths, room, GAP)
    if len(blocks) > most and n > 1:
        whole = widths
        # As many as fit side by side, at least one; no column is narrower than one cell.
        for ends in range(max(min(n - 1, int(room) // (1 + GAP)), 1), 0, -1):
            columns = (*corners(range(n), ends), *range(n, len(whole)))
            widths = [width_of("…") if at is None else whole[at] for at in columns]
            blocks = pack(widths, room, GAP)
            if len(blocks) == 1:
                break
        grid, labels = grid.only(columns), ["…" if at is None else labels[at] for at in columns]
    return Layout(grid, rows, labels, widths, blocks)


def _block(layout: Layout, block: range, screen: Screen) -> list[Line]:
    """Some columns of a matrix, with the labels of its rows."""
    margin = INDENT + max(map(width_of, layout.rows), default=0)
    widths, grid = layout.widths, layout.grid
    word_columns = {at for row in grid.cells[:1] for at in block if row[at].kind == "word"}
    labels = [(*layout.columns[at].split("\n"), "")[:2] for at in block]
    lines: list[Line] = []
    for line_of in (0, 1) if any(below for _, below in labels) else (0,):
        heads = (
            " " * GAP + pad(label[line_of], widths[at], right=at not in word_columns)
            for at, label in zip(block, labels, strict=True)
        )
        lines.append([((" " * margin + "".join(heads)).rstrip(), LABEL)])
    ramp = grid.shading.ramp if grid.shading and screen.colour else None
    for label, row in zip(layout.rows, grid.cells, strict=True):
        line: Line = [(pad(" " * INDENT + label, margin), LABEL)]
        gap = " "  # a shade fills half of the gap on either side of its cell
        for at in block:
            text, shade = pad(row[at].text, widths[at], right=at not in word_columns), row[at].shade
            if ramp is None or shade is None:
                line += [(gap, PLAIN), (f" {text}", _KINDS[row[at].kind])]
                gap = " "
            else:
                from attncli.formats.colours import style

                line += [
                    (gap, PLAIN),
                    (f" {text} ", style(shade, ramp, few=screen.few, of_256=screen.of_256)),
                ]
                gap = ""
        while gap and len(line) > 1 and line[-1][0].isspace():  # cells in which nothing is written
            line.pop()
        text, plain = line.pop()
        lines.append([*line, (text.rstrip() if gap else text, plain)])
    return lines
