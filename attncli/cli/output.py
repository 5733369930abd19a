"""From a Trace to the terminal, a pipe or a file, in the form that was asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, BinaryIO

from attncli.cli.commands import Observed
from attncli.cli.groups import given_of
from attncli.cli.options import DisplayFlags
from attncli.cli.parsing import cell_of, slice_of
from attncli.errors import ConventionError, OutputError
from attncli.files.messages import listing, printable
from attncli.trace import Trace
from attncli.views.formats import ENDINGS, FORMATS, PAGE, Format
from attncli.views.page import Page, parts
from attncli.views.select import DisplayOptions

Destination = DisplayFlags | Observed
PRECISION = 4  # decimals, where none are asked for


def present(
    trace: Trace,
    show: DisplayFlags,
    *,
    stdin_used: bool = False,
    page: Page = parts,
    precision: int = PRECISION,
    least_height: int = 0,
) -> None:
    """Writes the trace as `show` says; `page` is what tables and markdown lay out.

    precision     that of the command, where `show` has none
    least_height  lines that a matrix may take its share of, however low the screen
    stdin_used    the input came from standard input, so --step reads keys from the terminal

    Raises ConventionError where its flags contradict, OutputError where it cannot be written.
    """
    check_flags(show)
    form, options = form_of(show), display_options(show, precision)
    if options.blank is not None:
        from attncli.views.blank import without_numbers

        trace = without_numbers(trace, options.blank)
    module: Any = import_module(f"attncli.views.formats.{form.name}")
    if form.binary:
        _write(lambda file: module.write(trace, options, file), show)
    elif form is not FORMATS["table"]:
        document = getattr(module, "document", module.text) if show.output else module.text
        write_text(document(trace, options, page), show)
    elif show.output:
        screen = module.Screen(width=show.width)
        write_text(module.text(trace, options, page, screen), show)
    else:
        from attncli.cli.terminal import print_page

        print_page(trace, show, options, page, stdin_used=stdin_used, least_height=least_height)


def form_of(show: DisplayFlags) -> Format:
    """The form: --format, else what the ending of --output says, else a table."""
    if show.format is not None:
        return FORMATS[show.format]
    if show.output is None:
        return FORMATS["table"]
    ending = ending_of(show.output)
    if ending not in ENDINGS:
        raise ConventionError(
            f"the ending of {show.output} names no format", f"add --format {'|'.join(FORMATS)}"
        )
    return FORMATS[ENDINGS[ending]]


def ending_of(path: str) -> str | None:
    """What follows the last dot of a file's name, in lowercase; None where there is no dot."""
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return ending.lower() if dot else None


def check_flags(show: DisplayFlags) -> None:
    """ConventionError for flags not understood, or with nothing to act on in this form.

    Called before anything is read, so that a wrong call is all that is reported.
    """
    form = form_of(show)
    display_options(show)
    if form.holds != PAGE:
        exact = () if form.rounds else ("precision",)
        for name in given_of(show, "work", "cell", "heatmap", "width", *exact):
            raise ConventionError(
                f"--{name} is for tables and markdown; {form.name} holds {form.holds}",
                f"leave out --{name} or --format {form.name}",
            )
    if show.blank is not None and not form.blanks:
        what = f"--blank is for {listing([row.name for row in FORMATS.values() if row.blanks], 9)}"
        raise ConventionError(f"{what}, not {form.name}", "leave it out, or choose one of them")
    if show.heatmap and not form.shades:
        raise ConventionError(f"{form.name} has no shades", "leave out --heatmap, or use html")
    if show.step and (form is not FORMATS["table"] or show.output):
        raise ConventionError("--step is for tables on the terminal", "leave it out")
    if show.force and not show.output:
        raise ConventionError("--force has no effect without --output", "add it, or leave it out")
    if form.binary and not show.output and sys.stdout.isatty():
        raise ConventionError(f"{form.name} is not for a terminal", "add --output FILE")


def display_options(show: DisplayFlags, precision: int = PRECISION) -> DisplayOptions:
    """The part of the flags that says what of a trace is seen."""
    return DisplayOptions(
        stages=tuple(show.stage or ()),
        batch=None if show.batch is None else show.batch - 1,
        head=None if show.head is None else show.head - 1,
        rows=(None, None) if show.rows is None else slice_of(show.rows, "--rows"),
        cols=(None, None) if show.cols is None else slice_of(show.cols, "--cols"),
        precision=precision if show.precision is None else show.precision,
        rounded=show.precision is not None,
        work=show.work,
        cell=None if show.cell is None else cell_of(show.cell),
        heatmap=show.heatmap,
        full=show.full,
        blank=None if show.blank is None else () if "" in show.blank else tuple(show.blank),
    )


def note(*texts: str, quiet: bool) -> None:
    """A line for each on standard error, besides the result, unless --quiet was given."""
    try:
        for text in () if quiet else texts:
            print(f"attncli: note: {printable(text)}", file=sys.stderr)
    except OSError:  # a full disk, or a reader that went away: the notes are lost, the result not
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def write_text(pieces: Iterable[str], show: Destination) -> None:
    """Writes text to standard output, or whole to the file of --output."""
    if show.output is None:
        for piece in pieces:
            sys.stdout.write(piece)
    else:
        encoded = (piece.encode("utf-8", "surrogatepass") for piece in pieces)
        _write(lambda file: file.writelines(encoded), show)


def _write(write: Callable[[BinaryIO], None], show: Destination) -> None:
    """Standard output, or the file of --output, written whole or not at all."""
    if show.output is None:
        write(sys.stdout.buffer)
        return
    if show.output == "-":
        raise OutputError("--output - names no file", "leave it out to write to standard output")
    from attncli.files.write import write_atomically

    write_atomically(show.output, write, force=show.force)
