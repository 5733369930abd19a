"""The terminal: a console of the right width and colours, and waiting between stages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

import typer
from rich.console import Console

from attncli.cli.options import Show
from attncli.trace import Trace
from attncli.views.page import Page, parts
from attncli.views.showing import Showing
from attncli.views.table import table_blocks

_UNLIMITED = 1_000_000  # columns of a pipe, in which nothing is cut or wrapped


def print_blocks(
    trace: Trace, show: Show, showing: Showing, page: Page = parts, *, stdin_used: bool
) -> None:
    """Prints the trace on standard output, waiting between its blocks where that is asked for.

    stdin_used: the input came from there, so keys have to come from the terminal itself.
    """
    console = _console(show)
    blocks = iter(table_blocks(trace, _for(console, showing), page))
    ready = list(islice(blocks, 2))  # a wish that cannot be met shows before anything is printed
    for number, block in enumerate(chain(ready, blocks)):
        if show.step and number > 1 and not _wait(stdin_used):
            return
        console.print(block, soft_wrap=not console.is_terminal and show.width is None)


def text_blocks(trace: Trace, showing: Showing, page: Page = parts) -> Iterator[str]:
    """The same as text without colour, for a file."""
    console = Console(width=showing.width or _UNLIMITED, color_system=None, force_terminal=False)
    for block in table_blocks(trace, showing, page):
        with console.capture() as captured:
            console.print(block, soft_wrap=showing.width is None)
        yield captured.get()


def _console(show: Show) -> Console:
    colour = not show.no_color and not os.environ.get("NO_COLOR")
    width = show.width
    if width is None and not sys.stdout.isatty():
        width = _UNLIMITED
    return Console(width=width, no_color=not colour, highlight=False, markup=False, emoji=False)


def _for(console: Console, showing: Showing) -> Showing:
    """The screen's size and colours laid over what is to be shown."""
    sees_colour = bool(console.color_system) and not console.no_color
    if not console.is_terminal:
        return replace(showing, colour=sees_colour)
    height = None if showing.full else console.size.height
    return replace(showing, width=console.width, height=height, colour=sees_colour)


def _wait(stdin_used: bool) -> bool:
    """Waits for a key; False where the user leaves: q, Ctrl-D, or the end of input."""
    print("— a key: next stage · q: leave —", end="", file=sys.stderr, flush=True)
    try:
        key = _key(stdin_used)
    except EOFError:
        key = "q"
    finally:
        erase = "\r\033[K" if sys.stderr.isatty() else "\n"
        print(erase, end="", file=sys.stderr, flush=True)
    return key.lower() not in {"q", "\x04", "\x1b"}


def _key(stdin_used: bool) -> str:
    """One key from the terminal; where standard input is a pipe, one line of it."""
    if not stdin_used and not sys.stdin.isatty():
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.strip() or " "
    return typer.getchar()
