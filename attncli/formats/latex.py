r"""LaTeX: each stage an array with its labels, each arithmetic an aligned equation.

What is between `\[` and `\]` and between `$` and `$` is rendered by KaTeX and MathJax too. Text
(`text`) is to be put into a document of one's own, which needs amsmath; `standalone` is a whole
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from rich.cells import cell_len

from attncli.arrays import Array
from attncli.formats.tex import BOX, escape, is_other, label, math, number, prose
from attncli.page import parts as kinds
from attncli.page.matrix import NUMERIC, Cell, Grid, Matrix, pack
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.text import LABEL_CELLS, plain, shorten
from attncli.page.work import worked
from attncli.trace import Trace

ROWS, COLUMNS = 16, 12  # a matrix is shown whole up to; of a larger one its corners, 12 × 10
CORNERS = 12, 10
LINE = 84  # cells of a line of A4 at 10 points, where a digit has 5 points and a margin is 2 cm
COLUMN_GAP = 2  # cells between two columns
ROWS_OF_PAGE = 30  # of one array: LaTeX does not break it
PAGE = 600  # points that one display of equations may be high, for the same reason
MATHJAX = 4500  # characters of one display: of more than 5120 MathJax makes an error
OTHER = 3  # cells of the number that pdflatex shows for a character
BLANK = r"\rule{0pt}{1.8em}\rule{3em}{0.4pt}"  # in a matrix: a line to write on, and room above it
PLOT = 320.0, 200.0  # points across and down at most

_HEAD = r"""\documentclass[a4paper]{article}
\usepackage{iftex,amsmath}
\usepackage[margin=2cm]{geometry}
\setlength{\parindent}{0pt}
\setlength{\emergencystretch}{4em}
\setlength{\fboxsep}{1pt}
\ifPDFTeX
  \usepackage[T1]{fontenc}
  \IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
  % pdflatex has the letters of Latin and Greek alone: any other character is shown as its number.
  \newcommand{\other}[2]{\ifcsname u8:\detokenize{#1}\endcsname\else
    \DeclareUnicodeCharacter{#2}{\framebox{\tiny #2}}\fi}
\else
  % lualatex and xelatex show the characters that this font has, and the numbers of the others.
  \usepackage{fontspec}
  \IfFontExistsTF{DejaVu Sans}{\newfontfamily\otherfont{DejaVu Sans}}{\let\otherfont\relax}
  \newcommand{\other}[2]{\begingroup\lccode`\~="#2 \lowercase{\endgroup\protected\def~}%
    {{\otherfont\iffontchar\font"#2 \char"#2 \else\framebox{\tiny #2}\fi}}\catcode"#2=\active}
\fi
"""


def standalone(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The page as a document that compiles as it is."""
    body = "".join(text(trace, options, page))
    yield _HEAD
    for char in sorted(char for char in set(body) if not char.isascii()):
        yield f"\\other{{{char}}}{{{ord(char):04X}}}\n"
    yield f"\\begin{{document}}\n{body}"
    yield "\\end{document}\n"


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The page as LaTeX to be put into a document, part by part."""
    for place, part in enumerate(page(trace, replace(options, heatmap=False))):
        yield "\n" if place else "% needs \\usepackage{amsmath}\n\n"  # once a page is known to be
        yield from (f"{line}\n" for line in _lines(part))


def _lines(part: kinds.Part) -> Iterator[str]:
    match part:
        case kinds.Headline():
            yield f"\\section*{{{escape(part.title)}}}"
            yield from (_line(escape(words)) for words in part.lines)
        case kinds.Heading(words):
            yield f"\\subsection*{{{escape(words)}}}"
        case kinds.Remark(words):
            yield _line(f"\\emph{{{escape(words)}}}")
        case Matrix():
            yield from _matrix(part)
        case kinds.Plot(names, points):
            yield from _plot(names, points)
        case kinds.Closing(heads):
            for heading, sentences in heads:
                yield from [f"\\paragraph{{{escape(heading)}}}"] if heading else []
                items = [f"\\item {escape(words)}" for words in sentences]
                yield from ["\\begin{itemize}", *items, "\\end{itemize}"] if items else []
        case kinds.Tree(branches):
            yield from map(_branch, branches)


def _branch(branch: kinds.Branch) -> str:
    depth = len(branch.lead) // len("├─ ")
    formula = prose(branch.formula) if branch.shape else escape(branch.formula)
    name = f"\\textbf{{{escape(branch.name)}}}"
    words = r"\quad ".join(filter(None, (name, escape(branch.shape), formula)))
    indent = 1.5 * (depth - 1)
    return _line(f"\\hangindent={indent + 3:g}em\\hspace*{{{indent:g}em}}{words}")


def _cells(text: str) -> int:
    """The width of a text, or of a part of an equation."""
    text = plain(text)
    return cell_len(text) + sum(OTHER - cell_len(char) for char in text if is_other(char))


def _line(words: str) -> str:
    return f"{words}\\par"


def _title(number_: int | None, name: str, formula: str, facts: str = "") -> str:
    count = "" if number_ is None else f"{number_} "
    right = f" \\hfill {escape(facts)}" if facts else ""
    return f"\\paragraph{{{count}{escape(name)}}} {prose(formula)}{right}"


# ---- matrices


def _matrix(m: Matrix) -> Iterator[str]:
    if m.name:
        yield _title(m.number, m.name, m.formula, " · ".join(m.facts))
    # No page ends between a title, its note and the display that is in the same paragraph.
    yield from [r"\par\nopagebreak", f"\\emph{{{escape(m.note)}}}"] if m.note else []
    grid = m.grid(m.window(m.rows, ROWS, CORNERS[0]), m.window(m.columns, COLUMNS, CORNERS[1]))
    rows, columns = m.labels(-2, grid.rows), m.labels(-1, grid.columns)
    for block in _blocks(grid, rows, columns) if rows and columns else ():
        for start in range(0, len(rows), ROWS_OF_PAGE):
            page_rows = slice(start, start + ROWS_OF_PAGE)
            yield from array(m, rows[page_rows], columns, grid.cells[page_rows], block)
    yield from _equations(worked(m, LINE))
    for line in m.footnotes(grid):
        yield _line(f"\\emph{{{escape(line)}}}")


def _blocks(grid: Grid, rows: Sequence[str], columns: Sequence[str]) -> Sequence[range]:
    """The columns that fit on a line, side by side, then those that fit on the next."""
    widths = []
    for at, name in enumerate(columns):
        cells = (6 if row[at].kind == "blank" else _cells(row[at].text) for row in grid.cells)
        widths.append(max(_cells(name), *cells))
    return pack(widths, LINE - max(map(_cells, rows)), COLUMN_GAP)


def array(
    m: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    block: range,
) -> Iterator[str]:
    """Some columns of a grid's cells with their labels; sums are behind a bar."""
    is_last = m.sums == "rows" and block.stop == len(columns)
    bars = "r" * (len(block) - is_last) + "|r" * is_last
    yield f"\\[\\begin{{array}}{{r|{bars}}}"
    yield " & ".join(["", *(_label(columns[at]) for at in block)]) + r" \\ \hline"
    is_text = m.values.dtype.kind not in NUMERIC
    for name, row in zip(rows, cells, strict=True):
        texts = (_cell(row[at], is_text=is_text) for at in block)
        rule = "\\hline " * (m.sums == "columns" and name.startswith("Σ"))
        yield f"{rule}{' & '.join([_label(name), *texts])} \\\\"
    yield "\\end{array}\\]"


def _label(name: str) -> str:
    """The name of a row or column: Σ, a gap, or a label."""
    return math(name) if name in ("Σ", "…", "⋮") else label(name)


def _cell(cell: Cell, *, is_text: bool) -> str:
    """A number in line with the decimal points above and below it, a mark, or a gap."""
    words = cell.text.strip()
    if cell.kind == "blank":
        return BLANK
    if cell.kind == "gap":
        return math(words)
    if cell.kind == "mark" or is_text:
        return label(words)
    behind = len(cell.text) - len(cell.text.rstrip())  # places of a point and digits
    is_wide = "e" in cell.text or not words[-1:].isdigit()
    return number(words) + (f"\\phantom{{.{'0' * (behind - 1)}}}" if behind and not is_wide else "")


# ---- arithmetic


def _equations(equations: Iterable[kinds.Equation]) -> Iterator[str]:
    """Equations below each other, the equal signs in line; many, or a long one, in several."""
    lines: list[str] = []
    for equation in equations:
        block = list(_aligned(equation))
        if lines and _is_too_long([*lines, *block]):
            yield from _display(lines)
            lines = []
        for line in block:
            if lines and _is_too_long([*lines, line]):
                yield from _display(lines)
                lines = []
            lines.append(line)
    yield from _display(lines) if lines else ()


def _is_too_long(lines: Sequence[str]) -> bool:
    """Whether they are too much for a page or for MathJax; fractions and boxes are higher."""
    heights = (15 * (1 + (r"\frac" in line)) * (1 + (BOX in line) / 2) for line in lines)
    return sum(heights) > PAGE or sum(map(len, lines)) > MATHJAX


def _display(lines: Sequence[str]) -> Iterator[str]:
    yield "\\[\\begin{aligned}"
    yield " \\\\\n".join(lines)
    yield "\\end{aligned}\\]"


def _aligned(equation: kinds.Equation) -> Iterator[str]:
    """Each form of an equation on a line, or on several, broken before its terms."""
    left_side, width = math(equation.left), _cells(equation.left)
    if width > LINE // 3:  # it has a line of its own
        yield f"&{left_side}"
        left_side, width = "", 2
    lines = []
    for sign, form in zip(equation.signs, equation.forms, strict=True):
        first, *more = _broken(form, LINE - width - 3)
        lines += [
            f"{left_side} &{math(sign).strip()} {math(first)}",
            *(f"&\\quad {{}} {math(line)}" for line in more),
        ]
        left_side = ""
    if equation.remark:
        words, last = label(f"({equation.remark})"), " ".join(equation.forms[-1])
        fits = width + _cells(last) + _cells(equation.remark) + 6 < LINE
        lines[-1:] = [f"{lines[-1]}\\quad {words}"] if fits else [lines[-1], f"&{words}"]
    yield from (line if line.startswith("&") else f"{{}}{line}" for line in lines)


def _broken(form: Sequence[str], room: int) -> Iterator[str]:
    """The words of a form, as many on each line as fit."""
    line = ""
    for word in form:
        longer = f"{line} {word}" if line else word
        if line and _cells(longer) > room:
            yield line
            longer = word
        line = longer
    yield line


# ---- points


def _plot(names: Sequence[str], points: Array) -> Iterator[str]:
    """Points and their names, at one scale across and down; a cross is where zero is."""
    finite = np.flatnonzero(np.isfinite(points).all(axis=1))
    if not finite.size:
        return
    with np.errstate(all="ignore"):
        places = points[finite].astype(np.float64)
        low, spans = places.min(axis=0), np.ptp(places, axis=0)
        scale = float((PLOT / np.maximum(spans, 1e-300)).min()) * bool(spans.any())
        exact = np.vstack([places, np.zeros(2), low + spans]) - low
        *placed, zero, (width, height) = np.nan_to_num(exact * scale).clip(-1, PLOT).tolist()
    yield r"\begin{center}\setlength{\unitlength}{1pt}"
    yield f"\\begin{{picture}}({width:.0f},{height:.0f})"
    if 0 <= zero[0] <= width:
        yield f"\\put({zero[0]:.1f},0){{\\line(0,1){{{height:.0f}}}}}"
    if 0 <= zero[1] <= height:
        yield f"\\put(0,{zero[1]:.1f}){{\\line(1,0){{{width:.0f}}}}}"
    for at, (x, y) in zip(finite.tolist(), placed, strict=True):
        side, place = ("l", x + 5) if x < width / 2 else ("r", x - 5)
        yield f"\\put({x:.1f},{y:.1f}){{\\circle*{{4}}}}"
        name = escape(shorten(names[at], LABEL_CELLS))
        yield f"\\put({place:.1f},{y:.1f}){{\\makebox(0,0)[{side}]{{{name}}}}}"
    yield "\\end{picture}\\end{center}"
