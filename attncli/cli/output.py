"""From a Trace to the terminal, a pipe or a file, in the form that was asked for; notes, keys and
progress bars."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import typer

from attncli.arrays import Array
from attncli.cli.options import DisplayFlags
from attncli.cli.terminal import columns, console, direct, tell
from attncli.errors import ConventionError, OutputError
from attncli.files.characters import printed_on
from attncli.files.messages import visible
from attncli.page.options import DisplayOptions
from attncli.page.page import Page
from attncli.page.text import fold
from attncli.trace import Trace

if TYPE_CHECKING:
    from rich.console import Console

    from attncli.formats.table import Screen

PRECISION = 4  # decimals, where none are asked for
_UNLIMITED = 1_000_000  # columns of a pipe, in which nothing is cut or wrapped
PATIENCE = 1.0  # seconds before a progress bar is shown
LEAST_HEIGHT = 48  # lines of a long page: it scrolls, so a low screen need not cut its matrices


class Destination(Protocol):
    """Where a result is written, and whether anything is said beside it: a command's flags."""

    output: str | None
    force: bool
    quiet: bool


def with_file_to_open(show: DisplayFlags) -> DisplayFlags:
    """The same flags; with --open, where --output names no file, one in a temporary folder."""
    if not show.open or show.output:
        return show
    from tempfile import mkdtemp

    folder = mkdtemp(prefix="attncli-")  # which stays for the browser to read
    return replace(show, output=os.path.join(folder, f"attention.{show.form.endings[0]}"))


def open_file(path: str, *, quiet: bool) -> None:
    """Opens a file in the browser; where there is none the file is there all the same."""
    import webbrowser

    address = Path(path).absolute().as_uri()
    if not webbrowser.open(address):
        note(f"there is no browser to open {address}", quiet=quiet)


_printed: set[str] | None = None  # the notes so far, within notes_once


@contextmanager
def notes_once() -> Iterator[None]:
    """Within it no note is printed twice."""
    global _printed  # noqa: PLW0603 - as standard error is one for all
    _printed = set()
    try:
        yield
    finally:
        _printed = None


def note(*texts: str, quiet: bool) -> None:
    """A line for each on standard error, besides the result, unless --quiet was given."""
    try:
        for text in () if quiet else texts:
            if _printed is not None:
                if text in _printed:
                    continue
                _printed.add(text)
            tell(f"note: {text}")
    except OSError:  # a full disk, or a reader that went away: the notes are lost, the result not
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def write_text(pieces: Iterable[str], show: Destination, *, is_safe: bool = False) -> None:
    """Writes text to standard output, or whole to the file of --output.

    is_safe  no terminal acts on it: its format escapes what it holds, or a console wrote it
    """
    pieces = pieces if is_safe else map(visible, pieces)
    if show.output is None:
        with printed_on(sys.stdout):
            for piece in pieces:
                direct(sys.stdout).write(piece)
    else:
        encoded = (piece.encode("utf-8", "surrogatepass") for piece in pieces)
        write_file(lambda file: file.writelines(encoded), show)


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
        width = text_width(show.output)
        lines: list[str] = []
        with printed_on(sys.stdout) if show.output is None else nullcontext():
            for line in report.split("\n"):  # what goes on is indented further
                start = len(line) - len(line.lstrip())
                lines += fold(line.lstrip(), width, start + 2, start)
        text = "\n".join(lines)
    write_text([f"{text}\n"], show, is_safe=as_json)


def write_file(write: Callable[[BinaryIO], None], show: Destination) -> None:
    """Standard output, or the file of --output, written whole or not at all."""
    if show.output is None:
        write(sys.stdout.buffer)
        return
    if show.output == "-":
        raise OutputError("--output - names no file", "leave it out to write to standard output")
    from attncli.files.write import write_atomically

    write_atomically(show.output, write, force=show.force)


def write_with_arrays(
    write: Callable[[str], tuple[Iterable[str], Mapping[str, Array]]], show: DisplayFlags
) -> None:
    """Writes a text to the file of --output, and beside it the arrays that it reads, or neither.

    write  gives both, of the name of the file with the arrays
    """
    from attncli.files.write import check_target, write_arrays, write_atomically

    path = str(show.output)
    beside = f"{os.path.splitext(path)[0]}.{show.form.beside}"
    is_file = os.path.isfile(path) or not os.path.exists(path)  # not /dev/null
    text, arrays = write(os.path.basename(beside) if is_file else "")
    if not (arrays and is_file):
        write_text(text, show)
        return
    if beside == path:
        raise OutputError(f"{path} is the file of the arrays", "give the script another ending")
    check_target(path, force=show.force)

    def write_both(file: BinaryIO) -> None:
        write_arrays(arrays.items(), file)
        write_text(text, show)

    write_atomically(beside, write_both, force=show.force)
    note(f"the script reads its large arrays from {beside}", quiet=show.quiet)


# ---- the terminal


def print_page(
    trace: Trace,
    show: DisplayFlags,
    options: DisplayOptions,
    page: Page,
    *,
    stdin_used: bool,
    least_height: int = 0,
) -> None:
    """Prints the page, waiting between its blocks if asked to: for keys of the terminal."""
    if show.step and stdin_used and not _has_terminal():
        problem = "--step reads keys from the terminal, and there is none"
        raise ConventionError(problem, "leave it out, or name the input's file")
    from attncli.formats.table import blocks

    (terminal, screen), is_tty = _console(show), sys.stdout.isatty()
    if is_tty:
        height = max(terminal.size.height, least_height)
        screen = screen._replace(width=terminal.width, height=height)
    page_blocks = blocks(trace, options, page, screen)
    with printed_on(sys.stdout):
        ready = [*islice(page_blocks, 2)]  # what cannot be shown is found before any is printed
        for number, block in enumerate(chain(ready, page_blocks)):
            if show.step and number > 1 and not _wait(stdin_used):
                return
            terminal.print(block, soft_wrap=not is_tty and show.width is None)


def coloured_text(
    trace: Trace, show: DisplayFlags, options: DisplayOptions, page: Page
) -> Iterator[str]:
    """The page with the escape sequences of colours, for a file; of any width unless one is set."""
    from attncli.formats.table import blocks

    terminal, screen = _console(show)
    for block in blocks(trace, options, page, screen):
        with terminal.capture() as captured:
            terminal.print(block, soft_wrap=True)
        yield captured.get()


def _console(show: DisplayFlags) -> tuple[Console, Screen]:
    """A console, with colours as a flag says, else NO_COLOR, else FORCE_COLOR (no-color.org); and
    a screen with the same, of any height."""
    from attncli.formats.table import Screen

    is_tty = sys.stdout.isatty()
    off = show.no_color or show.color == "never"
    always = show.color == "always"
    if not (off or always):
        off = bool(os.environ.get("NO_COLOR"))
        always = not off and bool(os.environ.get("FORCE_COLOR"))
    width = _UNLIMITED if show.width is None and (not is_tty or show.output) else show.width
    fixed: Any = {"width": width, "no_color": off, "force_terminal": is_tty or always}
    terminal = console(sys.stdout, **fixed)
    if always and terminal.color_system is None:  # of a terminal that names none
        terminal = console(sys.stdout, **fixed, color_system="standard")
    colour = bool(terminal.color_system) and not terminal.no_color
    few = colour and terminal.color_system in ("standard", "windows")
    is_256 = colour and terminal.color_system == "256"
    return terminal, Screen(show.width, None, colour, few, is_256)


def text_width(output: str | None, width: int | None = None) -> int | None:
    """Columns that lines of text may take: --width, the terminal's, or no limit in a pipe."""
    return width if width is not None or output else columns(sys.stdout)


def _has_terminal() -> bool:
    """Whether keys can be read though standard input is used for something else."""
    try:
        with open("/dev/tty", "rb"):
            return True
    except OSError:
        return os.name == "nt"


def _wait(stdin_used: bool) -> bool:
    """Waits for a key; False where the user leaves: q, Ctrl-D, or the end of input."""
    print("press any key for the next stage, q to quit", end="", file=sys.stderr, flush=True)
    try:
        if not stdin_used and not sys.stdin.isatty():  # a pipe: one line of it
            line = sys.stdin.readline()
            key = (line.strip() or " ") if line else "q"
        else:
            key = typer.getchar()
    except EOFError:
        key = "q"
    finally:
        erase = "\r\033[K" if sys.stderr.isatty() else "\n"
        print(erase, end="", file=direct(sys.stderr), flush=True)
    return key.lower() not in {"q", "\x04", "\x1b"}


@contextmanager
def progress_bar(label: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A function to call with how much is done, of how much; None where nothing is to be drawn."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress

    settings: Any = {"redirect_stdout": False, "redirect_stderr": False}  # its proxies obey escapes
    bar: Any = Progress(console=console(sys.stderr), transient=True, **settings)
    task = bar.add_task(label)
    began = time.monotonic()

    def report(done: int, total: int) -> None:
        if not bar.live.is_started and time.monotonic() - began >= PATIENCE:
            bar.start()
        if bar.live.is_started:
            bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
