"""A page of HTML that works offline: tables with a heatmap, and what each cell was computed from.

    page.html ── title, page.css, page.js, the parts as markup, numbers ──> one file

The tables are markup, so that they can be read and printed without scripts. What the script needs
beyond them (exact numbers, arithmetic, the weights of all heads) is packed beside them; see
html_data.py. Labels, titles and notes are escaped; the page's policy runs no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from importlib.resources import files
from re import sub
from string import Template

from attncli.trace import Trace
from attncli.views import parts as kinds
from attncli.views.formats.colours import STEPS, css
from attncli.views.formats.html_data import Section, first_place, packed
from attncli.views.formats.png import data_uri
from attncli.views.matrix import Cell, Grid, Matrix, Ramp
from attncli.views.page import Page, parts
from attncli.views.scatter import scatter
from attncli.views.select import HEADS, KEY_HEADS, DisplayOptions, Index, chosen
from attncli.views.text import clean
from attncli.views.work import at_length, work_lines

LABEL = 40  # cells of a label
EDGES = 16  # rows or columns of one that is cut
ROOMS = (100, 40, EDGES)  # rows and columns up to which a matrix is whole
CELLS = 30_000  # of all tables, of which a browser draws some 15,000 a second
CELLS_OF_ONE = 2_500  # where the tables of one head stand beside the weights of many
DRAWN = (1_600, 300_000)  # cells of a matrix that has a picture where it is cut: a byte or two each


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The page as a document of HTML."""
    shown, own, room = _chosen(trace, options, page)
    writer = _Writer(room)
    body = "\n".join(line for part in shown for line in writer.lines(part))
    style, script = _file("page.css"), _file("page.js")
    digest = hashlib.sha256(script.encode()).digest()
    yield Template(_file("page.html")).substitute(
        title=escape(clean(trace.title)),
        style=style + _shade_rules(sorted(writer.shades)),
        script=script,
        allowed=f"sha256-{base64.b64encode(digest).decode()}",
        body=body,
        data="\n".join(packed(trace, options, writer.sections, every=own.every)),
    )


def fragment(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The page within a frame of its own, to stand in another page, such as a notebook."""
    document = escape("".join(text(trace, options, page)))
    title = escape(clean(trace.title))
    style = "width:100%;height:40em;border:0;resize:vertical"
    yield f'<iframe title="{title}" style="{style}" srcdoc="{document}"></iframe>\n'


def _chosen(
    trace: Trace, options: DisplayOptions, page: Page
) -> tuple[list[kinds.Part], DisplayOptions, int]:
    """All heads, or where that is too much the first; and up to how many rows tables are whole."""
    heatmap = True if options.heatmap is None else options.heatmap
    whole = replace(options, heatmap=heatmap, given=not options.stages, every=True)
    if options.full:
        return list(page(trace, whole)), whole, EDGES
    for room in ROOMS:
        if _n_cells(trace, whole, room) <= CELLS:
            return list(page(trace, whole)), whole, room
    one = first_place(trace, whole)
    fitting = (room for room in ROOMS if _n_cells(trace, one, room) <= CELLS_OF_ONE)
    first, *others = page(trace, one)
    flags = [f"--{axis} N" for axis in ("head", "batch") if axis in one.index.keys() - whole.index]
    matrices = (part for part in others if isinstance(part, Matrix))
    has_more = any(m.block.weights not in (None, m.stage) for m in matrices)  # than weights
    words = "all stages are shown for one head, batch entry and layer, the weights alone for the"
    words += f" others ({', '.join(flags)} or --full)"
    remark = [kinds.Remark(words)] if flags and has_more else []
    return [first, *remark, *others], one, next(fitting, EDGES)


def _n_cells(trace: Trace, options: DisplayOptions, room: int) -> int:
    """How many cells the tables have, if none has more rows or columns than there is room."""
    names, total = chosen(trace, options), 0
    for stage in (stage for name, stage in trace.stages() if name in names):
        before = zip(stage.axes[:-2], stage.value.shape, strict=False)
        matrices = math.prod(size for axis, size in before if axis not in options.index)
        rows, columns = map(range, (1, 1, *stage.value.shape)[-2:])
        asked = rows[slice(*options.rows)], columns[slice(*options.cols)]
        shown = (len(wanted) if len(wanted) <= room else EDGES for wanted in asked)
        total += matrices * math.prod(shown)
    return total


@cache
def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


class _Writer:
    """Writes the parts, and collects the shades and the sections that it has written."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.shades: set[tuple[Ramp, int]] = set()
        self.sections: list[Section] = []
        # headings are at the place of what follows
        self.before: list[kinds.Heading | kinds.Headline] = []
        self.n_titles = 0

    def lines(self, part: kinds.Part) -> Iterator[str]:
        if isinstance(part, (kinds.Heading, kinds.Headline)) and self.n_titles:
            self.before.append(part)
            return
        place = _place(part) if isinstance(part, Matrix) else ""
        for before in self.before:
            own = _place(part, before) if isinstance(part, Matrix) else ""
            yield f"<div{own}>{''.join(self._heading(before))}</div>"
        self.before = []
        match part:
            case kinds.Headline() | kinds.Heading():
                yield from self._heading(part)
            case kinds.Remark(words):
                yield _quiet(words)
            case Matrix():
                yield from self._matrix(part, place)
            case kinds.Plot(names, points):
                yield _lines_of(scatter(names, points))
            case kinds.Derivation(title, stages):
                yield from self._heading(kinds.Heading(title))
                for stage in stages:
                    yield self._title(stage.number, stage.name, stage.formula)
                    found = (at_length(equation, None) for equation in stage.equations)
                    yield _lines_of([line for lines in found for line in lines])
            case kinds.Closing(heads, places):
                for at, (heading, sentences) in enumerate(heads):
                    own = _attributes(places[at]) if places else ""
                    head = f"<h3>{_isolated(heading)}</h3>" if heading else ""
                    said = "".join(f"<li>{_isolated(words)}</li>" for words in sentences)
                    yield f"<div{own}>{head}<ul>{said}</ul></div>"
            case kinds.Code(program):
                yield _lines_of(program)
            case kinds.Tree(branches):
                lines = [f"{b.lead}{b.name}  {b.shape}  {b.formula}".rstrip() for b in branches]
                yield f"<details><summary>Steps</summary>{_lines_of(lines)}</details>"

    def _heading(self, part: kinds.Heading | kinds.Headline) -> Iterator[str]:
        self.n_titles += 1
        level = min(self.n_titles, 2)
        if isinstance(part, kinds.Heading):
            yield f"<h{level}>{_isolated(part.text)}</h{level}>"
            return
        yield f"<h{level}>{_isolated(part.title)}</h{level}>"
        for words in (" · ".join(part.facts), " · ".join(part.choices), *part.notes):
            yield _quiet(words) if words else ""

    def _title(self, number: int | None, name: str, formula: str, facts: str = "") -> str:
        count = "" if number is None else f"{number} "
        code = f" <code>{escape(formula)}</code>" if formula else ""
        small = f" <small>{escape(facts)}</small>" if facts else ""
        level = min(self.n_titles, 2) + 1
        words = f"{count}{escape(name)}{code}{small}"
        return f'<h{level} class="stage" tabindex="-1">{words}</h{level}>'

    def _matrix(self, m: Matrix, place: str) -> Iterator[str]:
        kept = (m.window(wanted, self.room, EDGES) for wanted in (m.rows, m.columns))
        grid = m.grid(*kept, colour=True)
        section = Section(f"s{len(self.sections) + 1}", m, grid)
        is_stage = bool(m.stage.name)
        if is_stage:
            self.sections.append(section)
            yield f'<section id="{section.id}"{place}>'
            yield self._title(m.number, m.name, m.formula, " · ".join(m.facts))
        yield f"<p>{_isolated(m.note)}</p>" if m.note else ""
        yield from self._table(m, grid)
        if lines := work_lines(m, None):
            yield _lines_of(lines)
        yield from map(_quiet, m.footnotes(grid, colour=True))
        yield "</section>" if is_stage else ""

    def _table(self, m: Matrix, grid: Grid) -> Iterator[str]:
        rows, columns = m.labels(-2, grid.rows, LABEL), m.labels(-1, grid.columns, LABEL)
        if not rows or not columns:
            return
        label = f'role="group" aria-label="{escape(m.name or "table")}" tabindex="0"'
        kind = " class=word" if m.has_words else ""
        names = "".join(f"<th scope=col{kind}><bdi>{escape(name)}</bdi>" for name in columns)
        lines = [f"<tr><td>{names}"]
        for name, cells in zip(rows, grid.cells, strict=True):
            shown = "".join(self._cell(cell, grid) for cell in cells)
            lines.append(f"<tr><th scope=row><bdi>{escape(name)}</bdi>{shown}")
        yield f'<div class="scroll" {label}><table>{"".join(lines)}</table></div>'
        is_cut = None in grid.rows or None in grid.columns
        if grid.shading and is_cut and DRAWN[0] < m.values.size <= DRAWN[1]:
            address = data_uri(m.values, grid.shading, m.marked)
            yield f'<img class="picture" alt="the whole of {escape(m.name)}" src="{address}">'

    def _cell(self, cell: Cell, grid: Grid) -> str:
        kind = "" if cell.kind == "number" else f" class={cell.kind}"
        if cell.shade is not None and grid.shading is not None:
            shade = grid.shading.ramp, round(cell.shade * STEPS)
            self.shades.add(shade)
            kind = f" class={_shade_class(*shade)}"
        return f"<td{kind}>{escape(cell.text.strip())}"  # end tags of cells may be left out


def _shade_class(ramp: Ramp, step: int) -> str:
    return f"{'a' if ramp == 'share' else 'b'}{step + STEPS}"


def _shade_rules(shades: Sequence[tuple[Ramp, int]]) -> str:
    """The colours of the shades, on paper and on a dark screen."""

    def rules(paper: bool) -> str:
        found = ((_shade_class(*shade), css(shade[1] / STEPS, shade[0], paper)) for shade in shades)
        return "".join(f".{own}{{background:{back};color:{ink}}}" for own, (back, ink) in found)

    return f"{rules(True)}\n@media screen and (prefers-color-scheme:dark){{{rules(False)}}}\n"


def _place(m: Matrix, heading: kinds.Heading | kinds.Headline | None = None) -> str:
    """The head, batch entry and layer of a matrix; of a title of all heads the layer alone."""
    layer = m.block.layer
    if isinstance(heading, kinds.Headline) or (heading and heading.is_whole):
        return _attributes({}, layer)
    own = m.where.get(KEY_HEADS)
    heads = [head for head in range(m.block.n_heads) if m.block.key_head(head) == own]
    return _attributes(m.where, layer, heads)


def _attributes(where: Index, layer: str = "", heads: Sequence[int] = ()) -> str:
    """Where it is, counted from 1; of a key head the heads that share it."""
    found = {axis: str(entry + 1) for axis, entry in where.items() if axis != KEY_HEADS}
    found |= {"layer": layer} if layer else {}
    found |= {HEADS: " ".join(str(head + 1) for head in heads)} if heads else {}
    return "".join(f' data-{axis}="{entry}"' for axis, entry in found.items())


def _isolated(words: str) -> str:
    """Words in which a token in quotation marks keeps its direction to itself."""
    return sub("&quot;(.*?)&quot;", r"&quot;<bdi>\1</bdi>&quot;", escape(words))


def _quiet(words: str) -> str:
    return f'<p class="quiet">{_isolated(words)}</p>'


def _lines_of(lines: Sequence[str]) -> str:
    return f"<pre>{escape(chr(10).join(lines))}</pre>"
