"""NaN and infinity, which JSON lacks, as text and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NOT_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The numbers that JSON lacks: their text and their value."""

MAX_DEPTH = 16
"""Deepest nesting that is read; an attention needs 4."""


def nan_to_text(x: Any) -> Any:
    """The same data with NaN and infinity as strings; mappings and sequences entry by entry."""
    if isinstance(x, Mapping):
        return {name: nan_to_text(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [nan_to_text(value) for value in x]
    if not isinstance(x, float) or math.isfinite(x):
        return x
    return "NaN" if math.isnan(x) else "Infinity" if x > 0 else "-Infinity"


def text_to_nan(cell: Any) -> Any:
    """The number that "NaN", "Infinity" or "-Infinity" is, in a mapping too; all else as it is."""
    if isinstance(cell, dict):
        return {name: text_to_nan(value) for name, value in cell.items()}
    return NOT_JSON.get(cell, cell) if isinstance(cell, str) else cell
