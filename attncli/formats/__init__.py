"""The forms of a result: one row here for each, and the function that writes it.

A form of another package is an entry point in the group of plugins.FORMATS: its row, beside which
its function stands.

The function of a form is `text(trace, options, page)`, which gives the text piece by piece, or
`write(trace, options, file)` where the form is binary. One that has arrays beside its text has
`with_arrays(trace, options, name of their file)` too, which gives both. It raises StageError or
ShapeError for what is asked for and not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, Literal, NamedTuple

from attncli import plugins
from attncli.errors import AttncliError, ConventionError, MissingExtraError

PAGE: Literal["the page"] = "the page"
EXACT: Literal["the exact numbers"] = "the exact numbers"
FIGURE: Literal["a figure"] = "a figure"
SCRIPT: Literal["a script"] = "a script"


class Format(NamedTuple):
    """What is known of a form before it is written.

    holds     the page, laid out to be read; the exact numbers; formulas and shapes; a figure; a
              script that computes the numbers
    one_stage it holds the output alone, where no stage is named
    """

    name: str  # as --format has it
    endings: tuple[str, ...]  # of the files that hold it
    holds: Literal[
        "the page", "the exact numbers", "formulas and shapes", "a figure", "a script"
    ] = PAGE
    binary: bool = False  # it is not text
    notes: bool = True  # it holds the notes of a trace
    rounds: bool = False  # its numbers are rounded where --precision says so
    one_stage: bool = False
    opens: bool = False  # a browser shows it
    every: bool = False  # it holds every head and layer, of which others show the first
    shades: bool = True  # it can shade numbers by value
    needs: str = ""  # a package that writes it, which the extra `figures` installs
    blanks: bool = False  # numbers may be left out of it: a worksheet
    beside: str = ""  # the ending of a second file, with the arrays that are too large for it
    writer: str = ""  # the module that writes it, where it is not that of its name in this package
    function: str = ""  # the one in it that does; "": text, or write where the form is binary

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
        if self.writer:
            return import_module(self.writer)
        if self.holds != FIGURE:
            return import_module(f"attncli.formats.{self.name}")
        try:
            return import_module("attncli.formats.figure")
        except ValueError as problem:  # Matplotlib reads it as it is imported
            message = f"Matplotlib refuses MPLBACKEND={os.environ.get('MPLBACKEND', '')}"
            raise ConventionError(message, "unset it: no window is opened") from problem

    def load(self) -> Any:
        """The function in it that writes the form."""
        return getattr(self.module(), self.function)


_EXACT = "attncli.formats.exact"
_ROWS = (
    Format("table", ("txt",), blanks=True),
    Format("json", ("json",), EXACT, blanks=True, writer=_EXACT, function="json_text"),
    *(
        Format(
            name,
            (name,),
            EXACT,
            notes=False,
            rounds=True,
            blanks=True,
            writer=_EXACT,
            function=f"{name}_text",
        )
        for name in ("csv", "tsv")
    ),
    Format("markdown", ("md", "markdown"), blanks=True),
    Format("html", ("html", "htm"), opens=True, every=True, blanks=True),
    Format("mermaid", ("mmd",), "formulas and shapes", notes=False),
    Format("npz", ("npz",), EXACT, binary=True, writer=_EXACT, function="npz_file"),
    Format(
        "npy",
        ("npy",),
        EXACT,
        binary=True,
        notes=False,
        one_stage=True,
        writer=_EXACT,
        function="npy_file",
    ),
    Format("python", ("py",), SCRIPT, every=True, shades=False, beside="npz"),
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


class _Formats(dict[str, Format]):
    """Ours by name; one of another package is imported where its name is looked up."""

    def __missing__(self, name: str) -> Format:
        if name not in plugins.entry_points(plugins.FORMATS):
            raise KeyError(name)
        form = plugins.load(plugins.FORMATS, name, Format)
        module = plugins.entry_points(plugins.FORMATS)[name].module
        function = form.function or _FUNCTIONS[form.binary]
        return form._replace(name=name, writer=form.writer or module, function=function)


_FUNCTIONS = {False: "text", True: "write"}
FORMATS = _Formats({x.name: x._replace(function=x.function or _FUNCTIONS[x.binary]) for x in _ROWS})
ENDINGS = {ending: form.name for form in _ROWS for ending in form.endings}
_USES: dict[str, list[Callable[[Format], bool]]] = {}


def names() -> list[str]:
    """Of every format, those of other packages last."""
    return [*dict.fromkeys((*FORMATS, *plugins.entry_points(plugins.FORMATS)))]


def of_ending(ending: str | None) -> str | None:
    """The name of the format whose files end so; of other packages those that can be imported."""
    if ending is None or ending in ENDINGS:
        return ENDINGS.get(ending or "")
    for name in names()[len(FORMATS) :]:
        with suppress(AttncliError):
            if ending in FORMATS[name].endings:
                return name
    return None


def names_where(has_use: Callable[[Format], bool]) -> str:
    """Our formats of which something is true, with | between them."""
    text = "|".join(name for name, form in FORMATS.items() if has_use(form))
    _USES.setdefault(text, []).append(has_use)
    return text


def is_among(name: str, choices: str) -> bool:
    """Whether a format is one of names_where, or one of another package of which it is true, too.

    >>> is_among("csv", names_where(lambda form: form.rounds))
    True
    """
    if name in choices.split("|"):
        return True
    uses = () if name in FORMATS else _USES.get(choices, ())
    return any(has_use(FORMATS[name]) for has_use in uses)
