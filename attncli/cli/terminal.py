"""The terminal: a console of the right width and colours, keys, notes and progress bars."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import typer
from rich.console import Console

from attncli.cli.options import DisplayFlags
from attncli.errors import ConventionError
from attncli.trace import Trace
from attncli.views.formats.table import Screen, blocks
from attncli.views.page import Page
from attncli.views.select import DisplayOptions

_UNLIMITED = 1_000_000  # columns of a pipe, in which nothing is cut or wrapped
PATIENCE = 1.0  # seconds before a progress bar is shown


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
        what = "--step reads keys from the terminal, and there is none"
        raise ConventionError(what, "leave it out, or name the input's file")
    (console, screen), is_tty = _console(show), sys.stdout.isatty()
    if is_tty:
        screen = screen._replace(width=console.width, height=max(console.size.height, least_height))
    found = blocks(trace, options, page, screen)
    ready = list(islice(found, 2))  # what cannot be shown is found before anything is printed
    for number, block in enumerate(chain(ready, found)):
        if show.step and number > 1 and not _wait(stdin_used):
            return
        console.print(block, soft_wrap=not is_tty and show.width is None)


def coloured_text(
    trace: Trace, show: DisplayFlags, options: DisplayOptions, page: Page
) -> Iterator[str]:
    """The page with the escape sequences of colours, for a file; of any width unless one is set."""
    console, screen = _console(show)
    for block in blocks(trace, options, page, screen):
        with console.capture() as captured:
            console.print(block, soft_wrap=True)
        yield captured.get()


def _console(show: DisplayFlags) -> tuple[Console, Screen]:
    """A console, with colours as a flag says, else NO_COLOR, else FORCE_COLOR (no-color.org); and
    a screen with the same, of any height."""
    is_tty = sys.stdout.isatty()
    off = show.no_color or show.color == "never"
    always = show.color == "always"
    if not (off or always):
        off = bool(os.environ.get("NO_COLOR"))
        always = not off and bool(os.environ.get("FORCE_COLOR"))
    width = _UNLIMITED if show.width is None and (not is_tty or show.output) else show.width
    fixed: Any = {"highlight": False, "markup": False, "emoji": False, "width": width}
    fixed |= {"no_color": off, "force_terminal": is_tty or always}
    console = Console(**fixed)
    if always and console.color_system is None:  # of a terminal that names none
        console = Console(**fixed, color_system="standard")
    colour = bool(console.color_system) and not console.no_color
    few = colour and console.color_system in ("standard", "windows")
    is_256 = colour and console.color_system == "256"
    return console, Screen(show.width, None, colour, few, is_256)


def text_width(output: str | None, width: int | None = None) -> int | None:
    """Columns that lines of text may take: --width, the terminal's, or no limit in a pipe."""
    if width is not None or output or not sys.stdout.isatty():
        return width
    from shutil import get_terminal_size

    return get_terminal_size().columns


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
        print(erase, end="", file=sys.stderr, flush=True)
    return key.lower() not in {"q", "\x04", "\x1b"}


@contextmanager
def progress_bar(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A function to call with how much is done, of how much; None where nothing is to be drawn."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress

    bar: Any = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task(what)
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
