"""Slips of those who compute an attention by hand, from slips.md: a name, and other formulas.

`check --by-hand` and the quiz of a page name them by the same rows.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple


class Slip(NamedTuple):
    """One row: its name, where it may be, and the other formulas."""

    name: str
    place: str
    edits: tuple[str, ...]


@lru_cache(1)
def slips() -> tuple[Slip, ...]:
    """The rows of slips.md, in the order in which they are named."""
    text = (Path(__file__).parent / "slips.md").read_text(encoding="utf-8").partition("\n---\n")[2]
    rows = re.findall(r"^(\S.*) \| (table|row|cell)\n((?: .*\n)+)", text, re.M)
    return tuple(
        Slip(name, place, tuple(line.strip() for line in edits.splitlines()))
        for name, place, edits in rows
    )
