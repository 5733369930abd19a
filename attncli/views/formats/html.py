"""A page of HTML that works offline: tables shaded by value, without scripts or other files.

Labels, titles and notes are escaped, so that none of them becomes markup. Colours of text and
background are those of the reader's page, but in shaded cells, which have both.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from attncli.trace import Trace
from attncli.views.formats.colours import css
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
    Remark,
    Tree,
)
from attncli.views.scatter import scatter
from attncli.views.select import DisplayOptions
from attncli.views.text import clean
from attncli.views.work import at_length, work_lines

STYLE = """
.attncli { line-height: 1.4; }
.attncli .scroll { overflow-x: auto; }
.attncli table { border-collapse: collapse; margin: .3em 0; font-variant-numeric: tabular-nums; }
.attncli th, .attncli td { padding: .1em .6em; text-align: right; white-space: pre; border: 0; }
.attncli th[scope=row] { text-align: left; }
.attncli td.mark, .attncli td.gap, .attncli td.sum, .attncli .quiet { opacity: .65; }
.attncli h4 { margin: 1em 0 0; }
.attncli h4 code { font-weight: normal; margin: 0 .6em; }
.attncli h4 small { font-weight: normal; opacity: .65; }
.attncli p { margin: .2em 0; }
.attncli pre { margin: .2em 0; overflow-x: auto; }
""".strip()

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font-family: system-ui, sans-serif; margin: 1.5em auto; max-width: 70em; padding: 0 1em; }}
</style>
</head>
<body>
"""


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The page as a document of HTML, part by part."""
    yield _HEAD.format(title=escape(clean(trace.title)))
    yield from fragment(trace, options, page)
    yield "</body>\n</html>\n"


def fragment(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The page as one element with its style, to stand in another page."""
    yield f'<div class="attncli">\n<style>\n{STYLE}\n</style>\n'
    for part in page(trace, options):
        yield from (f"{line}\n" for line in _lines(part))
    yield "</div>\n"


def _lines(part: Part) -> Iterator[str]:
    match part:
        case Headline():
            yield f"<h2>{escape(part.title)}</h2>"
            for words in (" · ".join(part.facts), " · ".join(part.choices), *part.notes):
                yield from [f"<p>{escape(words)}</p>"] if words else []
        case Heading(words):
            yield f"<h3>{escape(words)}</h3>"
        case Remark(words):
            yield _quiet(words)
        case Matrix():
            yield from _matrix(part)
        case Plot(names, points):
            yield f"<pre>{escape(chr(10).join(scatter(names, points)))}</pre>"
        case Derivation(title, stages):
            yield f"<h3>{escape(title)}</h3>"
            for stage in stages:
                yield _title(stage.number, stage.name, stage.formula)
                lines = [line for found in stage.equations for line in at_length(found, None)]
                yield f"<pre>{escape(chr(10).join(lines))}</pre>"
        case Closing(heads):
            for heading, sentences in heads:
                yield from [f"<h4>{escape(heading)}</h4>"] if heading else []
                yield f"<ul>{''.join(f'<li>{escape(words)}</li>' for words in sentences)}</ul>"
        case Tree(branches):
            lines = [f"{b.lead}{b.name}  {b.shape}  {b.formula}".rstrip() for b in branches]
            yield f"<pre>{escape(chr(10).join(lines))}</pre>"


def _matrix(part: Matrix) -> Iterator[str]:
    if part.name:
        yield _title(part.number, part.name, part.formula, " · ".join(part.facts))
    yield from [f"<p>{escape(part.note)}</p>"] if part.note else []
    grid = part.grid(part.window(part.rows), part.window(part.columns), colour=True)
    rows, columns = part.labels(-2, grid.rows), part.labels(-1, grid.columns)
    if rows and columns:
        names = "".join(f'<th scope="col"><bdi>{escape(name)}</bdi></th>' for name in columns)
        label = f'role="group" aria-label="{escape(part.name)}" tabindex="0"'
        yield f'<div class="scroll" {label}><table>'
        yield f"<tr><td></td>{names}</tr>"
        for name, cells in zip(rows, grid.cells, strict=True):
            shown = "".join(_cell(cell, grid) for cell in cells)
            yield f'<tr><th scope="row"><bdi>{escape(name)}</bdi></th>{shown}</tr>'
        yield "</table></div>"
    if lines := work_lines(part, None):
        yield f"<pre>{escape(chr(10).join(lines))}</pre>"
    yield from map(_quiet, part.footnotes(grid, colour=True))


def _cell(cell: Cell, grid: Grid) -> str:
    kind = "" if cell.kind == "number" else f' class="{cell.kind}"'
    style = ""
    if cell.shade is not None and grid.shading is not None:
        style = ' style="background:{};color:{}"'.format(*css(cell.shade, grid.shading.ramp))
    return f"<td{kind}{style}>{escape(cell.text.strip())}</td>"


def _title(number: int | None, name: str, formula: str, facts: str = "") -> str:
    count = "" if number is None else f"{number} "
    code = f" <code>{escape(formula)}</code>" if formula else ""
    small = f" <small>{escape(facts)}</small>" if facts else ""
    return f"<h4>{count}{escape(name)}{code}{small}</h4>"


def _quiet(words: str) -> str:
    return f'<p class="quiet">{escape(words)}</p>'
