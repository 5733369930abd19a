"""One cell of a table: a number, true or false, or text; and the guard before a label."""

from __future__ import annotations

import math

from attncli.files.numbers import Beyond

_WORDS = {"true": True, "false": False}
_RISKY = ("=", "+", "-", "@", "\t", "\r")


def read_cell(cell: str) -> float | bool | Beyond | None:
    """The number or truth value that a cell says; Beyond what float64 holds; None for text.

    NaN, inf and Infinity are numbers, in any case.

    >>> read_cell(" 1.5 "), read_cell("TRUE"), read_cell("-Infinity"), read_cell("1_0")
    (1.5, True, -inf, None)
    """
    word = cell.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    try:
        number = float(word)
    except ValueError:
        return None
    if "_" in word:  # Python's habit, nobody's number
        return None
    return Beyond(cell) if math.isinf(number) and "inf" not in word else number


def guarded(label: str) -> str:
    """A label with an apostrophe before it where a spreadsheet would take it for a formula.

    >>> guarded("=1+1"), guarded("'=1"), guarded("'tis")
    ("'=1+1", "''=1", "'tis")
    """
    return f"'{label}" if _is_risky(label) else label


def unguarded(label: str) -> str:
    """The label that `guarded` made a cell of.

    >>> unguarded("'=1+1"), unguarded("''=1"), unguarded("'tis")
    ('=1+1', "'=1", "'tis")
    """
    return label[1:] if label.startswith("'") and _is_risky(label) else label


def _is_risky(label: str) -> bool:
    return label.lstrip("'").startswith(_RISKY)
