"""Tables for the terminal: every part of a page as a Rich text, laid out cell by cell.

Nothing is left to Rich to wrap, crop or interpret: lines fit the width they were made for, and
text is never markup. Print them with `soft_wrap=True`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style
from rich.text import Span, Text

from attncli.trace import Trace
from attncli.views import heatmap
from attncli.views.columns import INDENT
from attncli.views.derivation import Derivation, at_length
from attncli.views.grid import Cell, Grid
from attncli.views.page import (
    Closing,
    Heading,
    Headline,
    Matrix,
    Page,
    Part,
    Plot,
    Remark,
    Tree,
    parts,
)
from attncli.views.safe import fold, pad
from attncli.views.showing import Showing
from attncli.views.window import GAP

if TYPE_CHECKING:
    from rich.console import RenderableType

RIGHT_EDGE = 80  # where facts end beside a title
NAME = 8  # cells of a stage's name, so that formulas stand in line

BOLD, LABEL = Style(bold=True), Style(color="cyan")
QUIET, NOTE, PLAIN = Style(dim=True), Style(italic=True), Style()
_KINDS = {"number": PLAIN, "masked": QUIET, "gap": QUIET, "sum": QUIET}

Line = list[tuple[str, Style]]


def table_blocks(trace: Trace, showing: Showing, page: Page = parts) -> Iterator[RenderableType]:
    """The page in blocks to print one by one: headline, one for each matrix, closing words.

    Raises StageError or ShapeError for what is asked for and not there.
    """
    waiting: list[Line] = []  # a heading goes with the matrix after it
    for at, part in enumerate(page(trace, showing)):
        blank: list[Line] = [[]] if at else []
        waiting += [*blank, *_lines(part, showing)]
        if not isinstance(part, Heading):
            yield _text(waiting)
            waiting = []
    if waiting:
        yield _text(waiting)


def _text(lines: Sequence[Line]) -> Text:
    words: list[str] = []
    spans: list[Span] = []
    at = 0
    for line in lines:
        for piece, style in line:
            words.append(piece)
            if style:
                spans.append(Span(at, at + len(piece), style))
            at += len(piece)
        words.append("\n")
        at += 1
    return Text("".join(words[:-1]), spans=spans, no_wrap=True, overflow="ignore")


def _lines(part: Part, showing: Showing) -> Iterator[Line]:
    match part:
        case Headline():
            yield from _headline(part, showing)
        case Heading(text):
            yield from _folded(text, BOLD, showing)
        case Remark(text):
            yield from _folded(text, QUIET, showing)
        case Matrix():
            yield from _matrix(part, showing)
        case Plot(lines):
            yield from ([(line, PLAIN)] for line in lines)
        case Derivation():
            yield from _derivation(part, showing)
        case Closing():
            yield from _closing(part, showing)
        case Tree():
            yield from _tree(part, showing)


def _headline(part: Headline, showing: Showing) -> Iterator[Line]:
    title = f"{part.title} ({part.name})" if part.name else part.title
    lines = [[(line, BOLD)] for line in fold(title, showing.width)]
    yield from _beside(lines, part.facts, 0, showing)
    yield from _folded(" · ".join(part.choices), QUIET, showing)
    for note in part.notes:
        yield from _folded(note, NOTE, showing)


def _matrix(part: Matrix, showing: Showing) -> Iterator[Line]:
    grid = part.grid
    if grid.name:
        yield from _title(grid.number, grid.name, grid.formula, grid.facts, showing)
    yield from _folded(grid.note, NOTE, showing, INDENT)
    for at, block in enumerate(grid.blocks if grid.rows and grid.columns else ()):
        yield from [[]] if at else []
        yield from _block(grid, block)
    yield from ([(" " * INDENT + line, PLAIN)] for line in part.work)
    for line in grid.legend:
        yield from _folded(line, QUIET, showing, INDENT)


def _derivation(part: Derivation, showing: Showing) -> Iterator[Line]:
    room = None if showing.width is None else showing.width - INDENT
    yield from _folded(part.title, BOLD, showing)
    for step in part.steps:
        yield []
        yield from _title(step.number, step.name, step.formula, (), showing)
        for equation in step.equations:
            yield from ([(" " * INDENT + line, PLAIN)] for line in at_length(equation, room))


def _closing(part: Closing, showing: Showing) -> Iterator[Line]:
    for at, (heading, sentences) in enumerate(part.heads):
        yield from [[]] if at and heading else []
        yield from _folded(heading, BOLD, showing)
        for said in sentences:
            start = INDENT if heading else 0
            folded = fold(said, showing.width, start + INDENT, start)
            yield from ([(line, PLAIN)] for line in folded)


def _tree(part: Tree, showing: Showing) -> Iterator[Line]:
    """├─ scores  11 × 11  S = Q Kᵀ, the formulas in line"""
    names = max((cell_len(b.lead + b.name) for b in part.branches if b.shape), default=0) + GAP
    shapes = max((cell_len(b.shape) for b in part.branches), default=0)
    start = names + shapes + GAP
    for branch in part.branches:
        at = start if branch.shape else cell_len(branch.lead + branch.name) + GAP
        hang = start if branch.shape else at
        first, *more = fold(branch.formula, showing.width, hang, at)
        named = pad(branch.lead + branch.name, names if branch.shape else at)
        shape = pad(branch.shape, shapes) + " " * GAP if branch.shape else ""
        lead, name = named[: len(branch.lead)], named[len(branch.lead) :]
        line = [(lead, QUIET), (name, PLAIN if branch.shape else BOLD), (shape, LABEL)]
        yield _stripped([*line, (first[at:], PLAIN)])
        for text in more:
            yield [(pad(branch.below, hang), QUIET), (text[hang:], PLAIN)]


def _stripped(line: Line) -> Line:
    """A line without the spaces at its end."""
    while line and not line[-1][0].strip():
        line = line[:-1]
    return [*line[:-1], (line[-1][0].rstrip(), line[-1][1])] if line else line


def _title(
    number: int | None, name: str, formula: str, facts: Sequence[str], showing: Showing
) -> Iterator[Line]:
    """1  scores    S = Q Kᵀ                    3 × 3 · rows are queries, columns are keys"""
    count = "" if number is None else f"{number:<3}"
    start: Line = [(count, QUIET), (f"{pad(name, NAME)}  ", BOLD)]
    used = sum(cell_len(piece) for piece, _ in start)
    first, *more = fold(formula, showing.width, INDENT, used)
    start += [(first[used:], PLAIN)] if formula else []
    lines = [start, *([(line, PLAIN)] for line in more)]
    yield from _beside(lines, facts, INDENT, showing)


def _beside(
    lines: list[Line], facts: Sequence[str], indent: int, showing: Showing
) -> Iterator[Line]:
    """Lines, and facts that end the last one at the right edge, or follow on their own."""
    edge = RIGHT_EDGE if showing.width is None else min(showing.width, RIGHT_EDGE)
    said = " · ".join(facts)
    space = edge - sum(cell_len(piece) for piece, _ in lines[-1]) - cell_len(said)
    if said and space >= GAP:
        yield from [*lines[:-1], [*lines[-1], (" " * space, PLAIN), (said, QUIET)]]
    else:
        text, style = lines[-1].pop()
        yield from [*lines[:-1], [*lines[-1], (text.rstrip(), style)]]
        yield from _folded(said, QUIET, showing, indent)


def _folded(words: str, style: Style, showing: Showing, indent: int = 0) -> Iterator[Line]:
    if words:
        yield from ([(line, style)] for line in fold(words, showing.width, indent))


def _block(grid: Grid, block: range) -> Iterator[Line]:
    """Some columns of a matrix beside the labels of its rows."""
    margin = INDENT + max(map(cell_len, grid.rows), default=0)
    heads = (" " * GAP + pad(grid.columns[at], grid.widths[at], right=True) for at in block)
    yield [(" " * margin + "".join(heads), LABEL)]
    for label, row in zip(grid.rows, grid.cells, strict=True):
        cells = [_cell(row[at], grid.widths[at], grid) for at in block]
        yield [(pad(" " * INDENT + label, margin), LABEL), *_row(cells)]


def _cell(cell: Cell, width: int, grid: Grid) -> tuple[str, Style, bool]:
    """A cell's text, its style, and whether the style fills the space around it."""
    text = pad(cell.text, width, right=True)
    if cell.shade is None or grid.ramp is None:
        return text, _KINDS[cell.kind], False
    return text, heatmap.style(cell.shade, grid.ramp), True


def _row(cells: Iterable[tuple[str, Style, bool]]) -> Iterator[tuple[str, Style]]:
    """Cells side by side, the spaces between them shared: half a gap belongs to each."""
    pieces: Line = []
    before = " "
    for text, style, fills in cells:
        pieces += [(before, PLAIN), (f" {text} " if fills else f" {text}", style)]
        before = "" if fills else " "
    if before and pieces:
        text, style = pieces.pop()
        pieces.append((text.rstrip(), style))
    return iter(pieces)
