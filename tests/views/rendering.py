"""What a page looks like on a terminal, as text."""

from __future__ import annotations

from io import StringIO

from rich.cells import cell_len
from rich.console import Console

from attncli.trace import Trace
from attncli.views.showing import Showing
from attncli.views.table import table_blocks


def rendered(trace: Trace, showing: Showing) -> str:
    """The table as a console without colour prints it."""
    out = StringIO()
    console = Console(
        width=showing.width or 80,
        color_system=None,
        force_terminal=False,
        file=out,
        legacy_windows=False,
    )
    for block in table_blocks(trace, showing):
        console.print(block, soft_wrap=True)
    return out.getvalue()


def lines_of(trace: Trace, showing: Showing | None = None) -> list[str]:
    """The lines of the table."""
    return rendered(trace, showing or Showing()).splitlines()


def widest(text: str) -> int:
    """The cells of the widest line."""
    return max(map(cell_len, text.splitlines()), default=0)
