"""From a Trace to the terminal, a pipe or a file, in the form that was asked for."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from attncli.cli.commands import Observed, Program
from attncli.cli.options import DisplayFlags
from attncli.cli.parsing import cell_of, slice_of, unclear
from attncli.errors import ConventionError, OutputError
from attncli.files.messages import printable
from attncli.trace import Trace
from attncli.views.formats import ENDINGS, EXACT, FIGURE, FORMATS, Format
from attncli.views.page import Page, parts
from attncli.views.select import DisplayOptions
from attncli.views.text import fold

Destination = DisplayFlags | Observed | Program
PRECISION = 4  # decimals, where none are asked for
LEAST_HEIGHT = 48  # lines of a long page: it scrolls, so a low screen need not cut its matrices


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
    """
    check_flags(show)
    form, options = form_of(show), display_options(show, precision)
    trace = trace.computing(options.stages)
    if options.query is not None and form.holds == EXACT:
        from attncli.views.walk import walked

        trace, options = walked(trace, options), replace(options, query=None)
    if show.open and not show.output:
        show = _in_a_file_of_its_own(show, form)
    if show.blank is not None:
        from attncli.views.blank import without_numbers

        trace = without_numbers(trace, () if "" in show.blank else show.blank)
    if form.holds == FIGURE:  # what Matplotlib has to say of its fonts and its cache is no error
        logging.getLogger("matplotlib").setLevel(logging.CRITICAL)
    module = form.module()
    if form.binary:
        names = (form.name,) if form.holds == FIGURE else ()
        _write(lambda file: module.write(trace, options, file, *names), show)
    elif form is not FORMATS["table"]:
        text = getattr(module, "standalone", module.text) if show.output else module.text
        write_text(text(trace, options, page), show)
    elif show.output and show.color == "always":
        from attncli.cli.terminal import coloured_text

        write_text(coloured_text(trace, show, options, page), show)
    elif show.output:
        screen = module.Screen(width=show.width)
        write_text(module.text(trace, options, page, screen), show)
    else:
        from attncli.cli.terminal import print_page

        print_page(trace, show, options, page, stdin_used=stdin_used, least_height=least_height)
    if show.open and show.output:
        _open(show.output, quiet=show.quiet)


def _in_a_file_of_its_own(show: DisplayFlags, form: Format) -> DisplayFlags:
    """The same with a new file for the output, which stays for the browser to read."""
    from tempfile import mkdtemp

    folder = mkdtemp(prefix="attncli-")
    return replace(show, output=os.path.join(folder, f"attention.{form.endings[0]}"))


def _open(path: str, *, quiet: bool) -> None:
    """Opens a file in the browser; where there is none the file is there all the same."""
    import webbrowser

    address = Path(path).absolute().as_uri()
    if not webbrowser.open(address):
        note(f"there is no browser to open {address}", quiet=quiet)


def form_of(show: DisplayFlags) -> Format:
    """The form: --format, else what the ending of --output says, else a table."""
    if show.format is not None:
        return FORMATS[show.format]
    if show.output is None:
        return FORMATS["html" if show.open else "table"]
    ending = ending_of(show.output)
    if ending not in ENDINGS:
        what = f"{show.output} does not end in a format that attncli writes"
        raise ConventionError(what, f"add --format {'|'.join(FORMATS)}")
    return FORMATS[ENDINGS[ending]]


def ending_of(path: str) -> str | None:
    """What follows the last dot of a file's name, in lowercase; None where there is no dot."""
    _, dot, ending = path.rpartition("/")[2].rpartition(".")
    return ending.lower() if dot else None


def check_flags(show: DisplayFlags) -> None:
    """ConventionError, before anything is read, for flags with nothing to act on."""
    form = form_of(show)
    display_options(show)
    if show.color == "always" and form is not FORMATS["table"]:
        what = f"--color always has no effect on {form.name}"
        raise ConventionError(what, "use --format table, or leave it out")
    if form.binary and not (show.output or show.open) and sys.stdout.isatty():
        raise ConventionError(f"{form.name} is not for a terminal", "add --output FILE")
    form.check_installed()


def display_options(show: DisplayFlags, precision: int = PRECISION) -> DisplayOptions:
    """The part of the flags that says what of a trace is seen."""
    if show.query == "":
        raise unclear("--query", "", "Q, such as q2 or 2")
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
        query=show.query,
        heatmap=show.heatmap,
        full=show.full,
        arcs=show.arcs,
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


def write_report(
    report: str, data: dict[str, Any], show: Destination, *, as_json: bool = False
) -> None:
    """Writes a report as JSON, or as text as wide as the screen; with --quiet to a file."""
    if show.quiet and not show.output:
        return
    if as_json:
        from attncli.files.write import json_text

        text = json_text(data, indent=2)
    else:
        from attncli.cli.terminal import text_width

        width = text_width(show.output)
        lines: list[str] = []
        for line in report.split("\n"):  # what goes on is indented further
            start = len(line) - len(line.lstrip())
            lines += fold(line.lstrip(), width, start + 2, start)
        text = "\n".join(lines)
    write_text([f"{text}\n"], show)


def _write(write: Callable[[BinaryIO], None], show: Destination) -> None:
    """Standard output, or the file of --output, written whole or not at all."""
    if show.output is None:
        write(sys.stdout.buffer)
        return
    if show.output == "-":
        raise OutputError("--output - names no file", "leave it out to write to standard output")
    from attncli.files.write import write_atomically

    write_atomically(show.output, write, force=show.force)
