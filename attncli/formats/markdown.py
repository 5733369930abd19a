"""Markdown as GitHub reads it: headings, right-aligned tables, formulas in code spans.

Labels, titles and notes are escaped, so that none of them becomes a link, HTML or another column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attncli.formats.scatter import scatter
from attncli.page import parts as kinds
from attncli.page.matrix import Matrix
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.work import work_lines
from attncli.trace import Trace

# A character that may begin emphasis, a link, HTML, a column, a reference or mathematics; an
# underscore within a word does not, and a bare address becomes a link by its "://" or "www.".
_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~!&$@]|(?<!\w)_|_(?!\w)|:(?=//)|(?<=www)\.)")
_LINE_START = re.compile(r"^(\d*)([-+.)=])(?=\s|[-=]*$)")  # of a list, a rule or an underline


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The page as Markdown, line by line."""
    for at, part in enumerate(page(trace, options)):
        yield from ["\n"] if at else []
        yield from (f"{line}\n" for line in _lines(part))


def _lines(part: kinds.Part) -> Iterator[str]:
    match part:
        case kinds.Headline():
            yield f"## {escape(part.title)}"
            for words in part.lines:
                yield from ["", escape(words)]
        case kinds.Heading(words):
            yield f"### {escape(words)}"
        case kinds.Remark(words):
            yield f"*{escape(words)}*"
        case Matrix():
            yield from _matrix(part)
        case kinds.Plot(names, points):
            yield from fenced(scatter(names, points))
        case kinds.Closing(heads):
            for at, (heading, sentences) in enumerate(heads):
                yield from [""] if at else []
                yield from [f"**{escape(heading)}**", ""] if heading else []
                yield from (f"- {escape(line)}" for line in sentences)
        case kinds.Tree():
            yield from _tree(part)


def _matrix(part: Matrix) -> Iterator[str]:
    above = [_title(part.number, part.name, part.formula)] if part.name else []
    above += [escape(words) for words in (" · ".join(part.facts), part.note) if words]
    yield from ("\n\n".join(above)).split("\n") if above else []
    grid = part.grid(part.window(part.rows), part.window(part.columns))
    rows, columns = part.labels(-2, grid.rows), part.labels(-1, grid.columns)
    if rows and columns:
        side = ":--" if part.has_words else "--:"
        yield from ["", _row(["", *map(escape, columns)]), _row([":--", *[side] * len(columns)])]
        for label, row in zip(rows, grid.cells, strict=True):
            yield _row([f"**{escape(label)}**", *(escape(cell.text.strip()) for cell in row)])
    if lines := work_lines(part, None):
        yield from ["", *fenced(lines)]
    for line in part.footnotes(grid):
        yield from ["", f"*{escape(line)}*"]


def _title(number: int | None, name: str, formula: str) -> str:
    count = "" if number is None else f"{number}. "
    return f"#### {count}{escape(name)}{f': {code(formula)}' if formula else ''}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _tree(part: kinds.Tree) -> Iterator[str]:
    """A list within lists, a bullet for each step."""
    for branch in part.branches:
        depth = len(branch.lead) // len("├─ ")
        formula = branch.formula and code(branch.formula)
        words = filter(None, (f"**{escape(branch.name)}**", branch.shape, formula))
        yield "  " * max(depth - 1, 0) + "- " + " ".join(words)


def fenced(lines: Sequence[str], language: str = "") -> Iterator[str]:
    """Lines as they are, between fences that none of them ends."""
    fence = "`" * max(3, _longest_run("\n".join(lines)) + 1)
    yield from [fence + language, *lines, fence]


def escape(text: str) -> str:
    """Text in which no character means anything to Markdown.

    >>> escape("[red]|<b>")
    '\\\\[red\\\\]\\\\|\\\\<b\\\\>'
    """
    return _LINE_START.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", text))


def code(text: str) -> str:
    """A code span that the text cannot leave."""
    fence = "`" * (_longest_run(text) + 1)
    edge = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{edge}{text}{edge}{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
