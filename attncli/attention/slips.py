"""Slips of those who compute an attention by hand, from slips.md: a name, and other formulas.

`check --by-hand` and the quiz of a page name them by the same rows.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple


class Slip(NamedTuple):
    """One row: its name, whether a cell may have it alone, and the other formulas."""

    name: str
    of_cell: bool
    edits: tuple[str, ...]


@lru_cache(1)
def slips() -> tuple[Slip, ...]:
    """The rows of slips.md, in the order in which they are named."""
    text = (Path(__file__).parent / "slips.md").read_text(encoding="utf-8")
    rows = re.findall(r"^(\S.*) \| (table|cell)\n((?: .*\n)+)", text.partition("\n---\n")[2], re.M)
    return tuple(
        Slip(name, of == "cell", tuple(line.strip() for line in edits.splitlines()))
        for name, of, edits in rows
    )
