"""From a Trace to the terminal, a pipe or a file, in the form that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, BinaryIO, get_args

from attncli.cli.memory import check_json
from attncli.cli.options import Format, Show
from attncli.cli.parsing import cell_of, slice_of
from attncli.errors import ConventionError, OutputError
from attncli.trace import Stage, Trace
from attncli.views.page import Page, parts
from attncli.views.showing import Showing, select

_ENDINGS = {
    "json": "json",
    "csv": "csv",
    "tsv": "tsv",
    "md": "markdown",
    "mmd": "mermaid",
    "markdown": "markdown",
    "npz": "npz",
    "npy": "npy",
    "txt": "table",
}
PRECISION = 4  # decimals, where none are asked for
_BINARY = {"npz", "npy"}
_PLAIN = {"json", "csv", "tsv", "npz", "npy"}  # exact numbers, nothing for the eye
_HOLDS = {**dict.fromkeys(_PLAIN, "the exact numbers"), "mermaid": "formulas and shapes"}


def present(
    trace: Trace,
    show: Show,
    *,
    stdin_used: bool = False,
    page: Page = parts,
    precision: int = PRECISION,
) -> None:
    """Writes the trace as `show` says; `page` is what tables and markdown lay out.

    `precision` is that of the command, where `show` has none.

    Raises ConventionError where its flags contradict, OutputError where it cannot be written.
    """
    form = format_of(show)
    check_flags(show)
    showing = showing_of(show, precision)
    if form == "table":
        _table(trace, show, showing, page, stdin_used=stdin_used)
    elif form in _BINARY:
        _binary(trace, show, showing, form)
    else:
        write_text(_lines(trace, showing, form, page), show)


def format_of(show: Show) -> str:
    """The format: --format, else what the ending of --output says, else table."""
    if show.format is not None:
        return show.format
    if show.output is None:
        return "table"
    name = show.output.rpartition("/")[2]
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if ending not in _ENDINGS:
        raise ConventionError(
            f"the ending of {show.output} names no format",
            f"add --format {'|'.join(get_args(Format))}",
        )
    return _ENDINGS[ending]


def check_flags(show: Show) -> None:
    """ConventionError for flags not understood, or with nothing to act on in this format.

    Called before anything is read, so that a wrong call is all that is said.
    """
    form = format_of(show)
    showing_of(show)
    if form in _HOLDS:
        for flag, given in (
            ("--work", show.work),
            ("--cell", show.cell),
            ("--heatmap", show.heatmap),
            ("--precision", show.precision is not None),
            ("--width", show.width is not None),
        ):
            if given:
                raise ConventionError(
                    f"{flag} is for tables and markdown; {form} holds {_HOLDS[form]}",
                    f"leave out {flag} or --format {form}",
                )
    if show.step and (form != "table" or show.output):
        raise ConventionError("--step is for tables on the terminal", "leave it out")
    if show.force and not show.output:
        raise ConventionError("--force does nothing alone", "add --output FILE, or leave it out")
    if form in _BINARY and not show.output and sys.stdout.isatty():
        raise ConventionError(f"{form} is not for a terminal", "add --output FILE")


def showing_of(show: Show, precision: int = PRECISION) -> Showing:
    """The part of the flags that says what of a trace is seen, for a file or pipe."""
    return Showing(
        stages=tuple(show.stage or ()),
        batch=None if show.batch is None else show.batch - 1,
        head=None if show.head is None else show.head - 1,
        rows=slice_of(show.rows, "--rows"),
        cols=slice_of(show.cols, "--cols"),
        precision=precision if show.precision is None else show.precision,
        work=show.work,
        cell=cell_of(show.cell),
        heatmap=show.heatmap,
        full=show.full,
        width=show.width,
    )


def _table(trace: Trace, show: Show, showing: Showing, page: Page, *, stdin_used: bool) -> None:
    from attncli.cli.screen import print_blocks, text_blocks

    if show.output:
        write_text(text_blocks(trace, showing, page), show)
    else:
        print_blocks(trace, show, showing, page, stdin_used=stdin_used)


def _lines(trace: Trace, showing: Showing, form: str, page: Page) -> Iterable[str]:
    if form == "json":
        from attncli.files.write import trace_json

        cut = select(trace, showing, inputs=not showing.stages)
        check_json(sum(stage.value.size for _, stage in cut.stages()))
        return trace_json(cut)
    if form == "markdown":
        from attncli.views.markdown import markdown

        return _ended(markdown(trace, showing, page))
    if form == "mermaid":
        from attncli.views.mermaid import mermaid

        return _ended(mermaid(trace, showing))
    from attncli.views.delimited import delimited

    return _ended(delimited(trace, showing, "," if form == "csv" else "\t"))


def _ended(lines: Iterable[str]) -> Iterable[str]:
    return (f"{line}\n" for line in lines)


def text_width(show: Show) -> int | None:
    """Columns that lines of text may take: --width, the terminal's, or no limit in a pipe."""
    if show.width is not None or show.output or not sys.stdout.isatty():
        return show.width
    from shutil import get_terminal_size

    return get_terminal_size().columns


def write_text(parts: Iterable[str], show: Show) -> None:
    """Writes text to standard output, or whole to the file of --output."""
    if show.output is None:
        for part in parts:
            sys.stdout.write(part)
        return

    def write(file: BinaryIO) -> None:
        for part in parts:
            file.write(part.encode("utf-8", "surrogatepass"))

    _save(write, show)


def _binary(trace: Trace, show: Show, showing: Showing, form: str) -> None:
    from attncli.files.write import write_npy, write_npz

    cut = select(trace, showing, inputs=form == "npz" and not showing.stages)

    def write(file: BinaryIO) -> None:
        if form == "npz":
            write_npz(cut, file)
        else:
            write_npy(_single(cut, showing), file)

    if show.output is None:
        write(sys.stdout.buffer)
    else:
        _save(write, show)


def _single(trace: Trace, showing: Showing) -> Stage:
    """The one stage that npy holds: the chosen one, else the last, which is the output."""
    stages = list(trace.stages())
    if showing.stages and len(stages) != 1:
        names = ", ".join(name for name, _ in stages)
        raise ConventionError(f"npy holds one stage, not {names}", "name one --stage, or use npz")
    return stages[-1][1]


def _save(write: Any, show: Show) -> None:
    from attncli.files.write import write_atomically

    if show.output == "-":
        raise OutputError("--output - names no file", "leave it out to write to standard output")
    write_atomically(show.output or "", write, force=show.force)
