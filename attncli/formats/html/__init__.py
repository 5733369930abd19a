"""A page of HTML that works offline: to look at, to change and to be asked about.

    html/page.html ── title, html/*.css, html/*.js, the parts as markup, data ──> one file

The data (see html/data.py) holds every stage with its formula, and the script makes the tables of
it. Without a script the same tables stand there as markup; titles, notes and sentences are markup
always. Labels are escaped; the page's policy runs no script and no style but its own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from html import escape as markup
from importlib.resources import files
from string import Template

from rich.cells import cell_len

from attncli.files.messages import visible
from attncli.formats.html.content import content
from attncli.formats.scatter import scatter
from attncli.page import parts as kinds
from attncli.page.matrix import Grid, Matrix, pack
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.text import clean
from attncli.page.worksheet import NAME_LINE
from attncli.stages import spec_of
from attncli.trace import Trace

LABEL = 40  # cells of a label
EDGES = 16  # rows or columns of a table that is cut
ROOM = 40  # rows or columns up to which it is whole
PAPER = 64  # digits that stand beside each other on a sheet of A4
CELLS = 1_000  # of all tables that stand there for browsers without scripts
SCRIPT = (
    *("read", "formula", "words", "state", "command", "layout", "point", "map", "tools", "walk"),
    *("sentences", "quiz"),
)
"""Files of the script, which ends with start.js."""
_NAME = '<p><label>Name: <input id="name" size="32" autocomplete="off"></label></p>'


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The page as a document of HTML."""
    document = content(trace, options, page)
    script = _plain("".join(_file(f"{name}.js") for name in (*SCRIPT, *document.script, "start")))
    style = _plain(_file("page.css"))
    writer = _Writer(document.names)
    header, *others = list(document.parts) or [kinds.Heading(clean(trace.title))]
    top = [*_heading(header, 1)]
    for part in others:
        if part is others[0] and isinstance(part, kinds.Remark):  # of the page as a whole
            top.append(_quiet(part.text))
        else:
            writer.add(part)
    yield Template(_file("page.html")).substitute(
        title=escape(clean(trace.title)),
        style=style,
        script=script,
        style_hash=_digest(style),
        script_hash=_digest(script),
        header="\n".join(top),
        tables="\n".join(writer.tables),
        below="\n".join(writer.below),
        data=document.data,
    )


def fragment(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The page within a frame of its own, to stand in another page, such as a notebook."""
    document = markup("".join(text(trace, options, page)))
    title = escape(clean(trace.title))
    style = "width:100%;height:36em;border:0;resize:vertical"
    yield f'<iframe title="{title}" style="{style}" srcdoc="{document}"></iframe>\n'


@cache
def _file(name: str) -> str:
    return files("attncli.formats.html").joinpath(name).read_text("utf-8")


def _plain(source: str) -> str:
    """A script or style as it is written, without comments of whole lines and indentation."""
    source = re.sub(r"(?m)^\s*//.*$|^\s*/\*.*?\*/$|  ?// [^\n\"'`]*$", "", source)
    return re.sub(r"\n\s*", "\n", source)


def _digest(source: str) -> str:
    digest = hashlib.sha256(source.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


class _Writer:
    """Writes the parts: tables that the script makes too, and what stands below them.

    names  the stages of which the script makes tables
    """

    def __init__(self, names: Collection[str]) -> None:
        self.names = names
        self.tables: list[str] = []
        self.below: list[str] = []
        self.headings: list[str] = []  # of what follows
        self.room = CELLS

    def add(self, part: kinds.Part) -> None:
        """Writes a part where it belongs."""
        match part:
            case kinds.Headline() | kinds.Heading():
                self.headings = [*_heading(part, 2)]
            case Matrix() if part.block.prefix + part.stage.name in self.names:
                self._add_table(part)
            case kinds.Remark() | kinds.Tree():
                self.below += self._lines(part)
            case _:  # results, which are hidden as long as what they follow from is
                headings, self.headings = self.headings, []
                lines = "\n".join([*headings, *self._lines(part)])
                self.below.append(f'<section class="closing">{lines}</section>')

    def _add_table(self, m: Matrix) -> None:
        """A table for browsers without scripts, as long as there is room."""
        self.room -= len(m.rows) * len(m.columns)
        if self.room > 0:
            self.tables += [*self.headings, *_matrix(m)]
        self.headings = []

    def _lines(self, part: kinds.Part) -> Iterator[str]:
        match part:
            case kinds.Remark(words):
                yield _quiet(words)
            case Matrix():
                yield from _matrix(part, colour=True)
            case kinds.Plot(names, points):
                yield _lines_of(scatter(names, points))
            case kinds.Closing(heads, stage=name):
                words = "Gradients in words" if spec_of(name).heading else "In words"
                for heading, sentences in heads:
                    items = "".join(f"<li>{_isolated(each)}</li>" for each in sentences)
                    yield f"<h2>{_isolated(heading or words)}</h2><ul>{items}</ul>"
            case kinds.Tree(branches):
                lines = [f"{b.lead}{b.name}  {b.shape}  {b.formula}".rstrip() for b in branches]
                yield f"<details><summary>Steps</summary>{_lines_of(lines)}</details>"


def _heading(part: kinds.Part, level: int) -> Iterator[str]:
    if isinstance(part, kinds.Headline):
        yield f"<h{level}>{_isolated(part.title)}</h{level}>"
        yield from (_NAME if line == NAME_LINE else _quiet(line) for line in part.lines)
    elif isinstance(part, kinds.Heading):
        yield f"<h{level}>{_isolated(part.text)}</h{level}>"


def _title(number: int | None, name: str, formula: str) -> str:
    count = "" if number is None else f"{number} "
    code = f" <code>{escape(formula)}</code>" if formula else ""
    return f"<h3>{count}{escape(name)}{code}</h3>"


def _matrix(m: Matrix, *, colour: bool = False) -> Iterator[str]:
    """A matrix with its title; colour: the script shades it."""
    windows = [m.window(axis, ROOM, EDGES) for axis in (m.rows, m.columns)]
    grid = m.grid(*windows, colour=colour)
    if m.stage.name:
        yield _title(m.number, m.name, m.formula)
    yield _quiet(m.note) if m.note else ""
    yield _table(m, grid, has_shades=colour)
    yield from map(_quiet, m.footnotes(grid, colour=colour))


def _table(m: Matrix, grid: Grid, *, has_shades: bool) -> str:
    """A table, in bands of columns that fit a sheet of paper, each with the names of the rows."""
    rows, columns = m.labels(-2, grid.rows, LABEL), m.labels(-1, grid.columns, LABEL)
    if not rows or not columns:
        return ""
    texts = (
        [name, *(row[at].text.strip() for row in grid.cells)] for at, name in enumerate(columns)
    )
    widths = [max(map(cell_len, each)) for each in texts]
    ramp = grid.shading.ramp if grid.shading else ""
    tables = []
    for band in pack(widths, PAPER - max(map(cell_len, rows)), 2):
        names = "".join(f"<th scope=col><bdi>{escape(columns[at])}</bdi>" for at in band)
        lines = [f"<tr><td>{names}"]
        for name, cells in zip(rows, grid.cells, strict=True):
            lines.append(f"<tr><th scope=row><bdi>{escape(name)}</bdi>")
            for cell in (cells[at] for at in band):
                shade = f" data-x={cell.shade:.3g}" if has_shades and cell.shade is not None else ""
                lines.append(f"<td class={cell.kind}{shade}>{escape(cell.text.strip())}")
        tables.append(f'<table class="plain {ramp}">{"".join(lines)}</table>')
    label = f'role="group" aria-label="{escape(m.name or "table")}" tabindex="0"'
    return f'<div class="scroll" {label}>{"".join(tables)}</div>'


def _isolated(words: str) -> str:
    """Words in which a token in quotation marks keeps its direction to itself."""
    return re.sub("&quot;(.*?)&quot;", r"&quot;<bdi>\1</bdi>&quot;", escape(words))


def _quiet(words: str) -> str:
    return f'<p class="quiet">{_isolated(words)}</p>'


def _lines_of(lines: Sequence[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def escape(text: str) -> str:
    """Text as a page shows it; a terminal that is shown the page does not act on it, either."""
    return markup(visible(text))
