"""The forms of a result: one row here and one module each.

The module of a form has `text(trace, options, page)`, which gives the text piece by piece, or
`write(trace, options, file)` where the form is binary. Both raise StageError or ShapeError for
what is asked for and not there.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

PAGE: Literal["the page"] = "the page"
EXACT: Literal["the exact numbers"] = "the exact numbers"
FIGURE: Literal["a figure"] = "a figure"


class Format(NamedTuple):
    """What is known of a form before it is written.

    name      as --format has it, and of its module in this package
    endings   of the files that hold it
    holds     the page, laid out to be read; the exact numbers; formulas and shapes; a figure
    binary    it is not text
    notes     it holds the notes of a trace
    rounds    its numbers are rounded where --precision says so
    one_stage it holds the output alone, where no stage is named
    opens     a browser shows it
    every     it holds every head and layer, of which others show the first
    shades    it can shade numbers by value
    needs     a package that writes it, which the extra `figures` installs
    blanks    numbers may be left out of it: a worksheet
    """

    name: str
    endings: tuple[str, ...]
    holds: Literal["the page", "the exact numbers", "formulas and shapes", "a figure"] = PAGE
    binary: bool = False
    notes: bool = True
    rounds: bool = False
    one_stage: bool = False
    opens: bool = False
    every: bool = False
    shades: bool = True
    needs: str = ""
    blanks: bool = False


_ROWS = (
    Format("table", ("txt",), blanks=True),
    Format("json", ("json",), EXACT),
    Format("csv", ("csv",), EXACT, notes=False, rounds=True),
    Format("tsv", ("tsv",), EXACT, notes=False, rounds=True),
    Format("markdown", ("md", "markdown"), blanks=True),
    Format("html", ("html", "htm"), opens=True, every=True, blanks=True),
    Format("mermaid", ("mmd",), "formulas and shapes", notes=False),
    Format("npz", ("npz",), EXACT, binary=True),
    Format("npy", ("npy",), EXACT, binary=True, notes=False, one_stage=True),
    Format("latex", ("tex",), shades=False, blanks=True),
    Format("svg", ("svg",), FIGURE, notes=False, rounds=True, opens=True),
    Format(
        "png", ("png",), FIGURE, binary=True, notes=False, rounds=True, needs="typst", opens=True
    ),
    Format(
        "pdf", ("pdf",), FIGURE, binary=True, notes=False, rounds=True, needs="typst", opens=True
    ),
)
FORMATS = {form.name: form for form in _ROWS}
ENDINGS = {ending: form.name for form in _ROWS for ending in form.endings}
