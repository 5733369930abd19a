"""What a page looks like on a terminal, as text."""

from __future__ import annotations

from io import StringIO
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Console

from attncli.trace import Trace
from attncli.views.formats.table import Screen, blocks
from attncli.views.select import DisplayOptions


class View(NamedTuple):
    """What is shown, and on which screen."""

    options: DisplayOptions
    screen: Screen


def view(
    width: int | None = None, height: int | None = None, colour: bool = False, **options: Any
) -> View:
    """A screen and what it shows."""
    return View(DisplayOptions(**options), Screen(width, height, colour))


def rendered(trace: Trace, shown: View) -> str:
    """The table as a console without colour prints it."""
    out = StringIO()
    console = Console(
        width=shown.screen.width or 80,
        color_system=None,
        force_terminal=False,
        file=out,
        legacy_windows=False,
    )
    for block in blocks(trace, shown.options, screen=shown.screen):
        console.print(block, soft_wrap=True)
    return out.getvalue()


def lines_of(trace: Trace, shown: View | None = None) -> list[str]:
    """The lines of the table."""
    return rendered(trace, shown or view()).splitlines()


def widest(text: str) -> int:
    """The cells of the widest line."""
    return max(map(cell_len, text.splitlines()), default=0)
