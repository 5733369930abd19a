"""The forms of a result: one row here and one module each.

The module of a form has `text(trace, options, page)`, which gives the text piece by piece, or
`write(trace, options, file)` where the form is binary; that of figures has both. They raise
StageError or ShapeError for what is asked for and not there.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Literal, NamedTuple

from attncli.errors import ConventionError, MissingExtraError

PAGE: Literal["the page"] = "the page"
EXACT: Literal["the exact numbers"] = "the exact numbers"
FIGURE: Literal["a figure"] = "a figure"


class Format(NamedTuple):
    """What is known of a form before it is written.

    holds     the page, laid out to be read; the exact numbers; formulas and shapes; a figure
    one_stage it holds the output alone, where no stage is named
    """

    name: str  # as --format has it, and of its module in this package
    endings: tuple[str, ...]  # of the files that hold it
    holds: Literal["the page", "the exact numbers", "formulas and shapes", "a figure"] = PAGE
    binary: bool = False  # it is not text
    notes: bool = True  # it holds the notes of a trace
    rounds: bool = False  # its numbers are rounded where --precision says so
    one_stage: bool = False
    opens: bool = False  # a browser shows it
    every: bool = False  # it holds every head and layer, of which others show the first
    shades: bool = True  # it can shade numbers by value
    needs: str = ""  # a package that writes it, which the extra `figures` installs
    blanks: bool = False  # numbers may be left out of it: a worksheet

    @property
    def is_data(self) -> bool:
        """Whether programs read it, with escapes of its own for what a terminal would act on."""
        return self.holds in (EXACT, FIGURE) or self.opens

    def check_installed(self) -> None:
        """MissingExtraError where the package that it needs is not installed."""
        from importlib.util import find_spec

        if find_spec(self.needs) is None:
            message = f"{self.name} needs the package {self.needs}"
            raise MissingExtraError(message, "pip install 'attncli[figures]'")

    def module(self) -> Any:
        """The module that writes it."""
        if self.needs:
            self.check_installed()
        if self.holds != FIGURE:
            return import_module(f"attncli.formats.{self.name}")
        try:
            return import_module("attncli.formats.figure")
        except ValueError as problem:  # Matplotlib reads it as it is imported
            message = f"Matplotlib refuses MPLBACKEND={os.environ.get('MPLBACKEND', '')}"
            raise ConventionError(message, "unset it: no window is opened") from problem


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
    *(
        Format(
            name,
            (name,),
            FIGURE,
            name != "svg",
            notes=False,
            rounds=True,
            opens=True,
            needs="matplotlib",
        )
        for name in ("svg", "png", "pdf")
    ),
)
FORMATS = {form.name: form for form in _ROWS}
ENDINGS = {ending: form.name for form in _ROWS for ending in form.endings}
