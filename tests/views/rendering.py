"""What a page looks like as text: on a screen of some width, in parts, with colours."""

from __future__ import annotations

import re
from importlib import import_module
from io import StringIO
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console

from attncli.trace import Trace
from attncli.views.explain import explain_page
from attncli.views.formats.table import Screen, blocks
from attncli.views.outline import outline_page
from attncli.views.page import parts
from attncli.views.select import DisplayOptions

__all__ = ["coloured", "lines_of", "outline_page", "shown", "table_of", "widest"]


def shown(
    trace: Trace,
    form: str = "table",
    width: int | None = None,
    height: int | None = None,
    page: Any = None,
    **options: Any,
) -> str:
    """The text of a form as a command writes it: like `render`, with rows, columns and a screen."""
    module: Any = import_module(f"attncli.views.formats.{form}")
    screen = (Screen(width, height),) if form == "table" else ()
    shown_page = page or (explain_page if any(n.endswith("tokens") for n in trace) else parts)
    trace = trace.computing(options.get("stages", ()))
    return "".join(module.text(trace, DisplayOptions(**options), shown_page, *screen))


def lines_of(trace: Trace, **options: Any) -> list[str]:
    """The lines of the table."""
    return shown(trace, **options).splitlines()


def table_of(text: str, name: str) -> list[list[str]]:
    """The words of each line below the title of a stage, up to the next blank line."""
    lines = iter(text.splitlines())
    for line in lines:
        if re.match(rf"(\d+ +)?{re.escape(name)}(  |$)", line):
            break
    else:
        raise AssertionError(f"no {name} in {text}")
    own = []
    for line in lines:
        if not line:
            break
        own.append(line.split())
    return own


def coloured(
    trace: Trace,
    width: int = 80,
    few: bool = False,
    system: Literal["standard", "truecolor"] = "truecolor",
    **options: Any,
) -> str:
    """What a terminal with colours is sent."""
    out = StringIO()
    console = Console(file=out, force_terminal=True, color_system=system, width=width)
    for block in blocks(trace, DisplayOptions(**options), screen=Screen(width, 60, True, few)):
        console.print(block, soft_wrap=True)
    return out.getvalue()


def widest(text: str) -> int:
    """The cells of the widest line."""
    return max(map(cell_len, text.splitlines()), default=0)
