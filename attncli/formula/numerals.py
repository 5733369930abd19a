"""Numbers as people write them where a computer would not: .5, 1/2, −1, 1/√8."""

from __future__ import annotations

import math
import re

_DECIMAL = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_ROOT = rf"(?:√|sqrt)\s*(?:({_DECIMAL})|\(\s*({_DECIMAL})\s*\))"
_TERM = rf"(?:({_DECIMAL})|({_DECIMAL})?\s*[·*]?\s*{_ROOT})"
_NUMBER = rf"\s*([-+−]?)\s*{_TERM}(?:\s*/\s*{_TERM})?\s*"  # compiled once there is a text
_LONGEST = 100  # characters: more digits than any number needs, and few to search


def number(text: str) -> float | None:
    """The number of a decimal, a fraction or a square root, or None where it is none of them.

    >>> number(".5"), number("−1/8"), number("1/√4"), number("3·sqrt(4)"), number("1/0")
    (0.5, -0.125, 0.5, 6.0, None)
    >>> number("1e999"), number("2x"), number("1/2/3")
    (inf, None, None)
    """
    match = re.fullmatch(_NUMBER, text, re.ASCII) if len(text) <= _LONGEST else None
    if match is None:
        return None
    sign, *parts = match.groups()
    above, below = _value(parts[:4]), _value(parts[4:])
    if not below or math.isinf(below):
        return None
    if math.isinf(above) and (parts[0] is None or parts[4:] != [None] * 4):
        return None
    return -above / below if sign in ("-", "−") else above / below


def _value(parts: list[str | None]) -> float:
    """The value of a term: a decimal, or a root and its factor; 1 where there is none."""
    plain, factor, *roots = (None if part is None else float(part) for part in parts)
    root = next((root for root in roots if root is not None), None)
    if root is None:
        return 1.0 if plain is None else plain
    return (1.0 if factor is None else factor) * math.sqrt(root)
