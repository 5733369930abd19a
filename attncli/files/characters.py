"""Characters that the encoding of a stream lacks, and the near ones that stand for them there.

√ is printed as "sqrt ", so what is laid out in columns is measured as it will be printed: within
`printed_on` the text that is shortened, padded or wrapped is that text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

NEAR = "attncli"
"""The name of the error handler `near`: streams that are not UTF-8 have it."""

_TABLE = "ᵀ ^T Σ sum ∞ inf ₀ _0 ₁ _1 ₂ _2 ₃ _3 ₄ _4 ₅ _5 ₆ _6 ₇ _7 ₈ _8 ₉ _9 ₙ _n "
_TABLE += "≥ >= ≤ <= ≠ != ≈ ~ ‖ || · * ∘ * × x − - … ... ′ ' ½ 1/2 ⋮ : ⋱ \\ ␣ _ ◌ o "
_TABLE += (
    "→ -> ← <- │ | ─ - ┼ + ├ |- └ `- ║ | ● o α alpha β beta γ gamma δ delta ε epsilon θ theta "
)
_TABLE += "╭ + ╮ + ╰ + ╯ + Δ d ∂ d • * Π prod ━ - ╺ - ╸ - ▌ | "
_TABLE += "┏ + ┓ + ┗ + ┛ + ┃ | "  # titles of help, by older versions of Rich
_TABLE += "λ lambda μ mu π pi σ sigma φ phi ░ . ▒ : ▓ % █ # “ \" ” \" ‘ ' ’ ' – - — -- ‐ - ‑ - "
_PAIRS = dict(zip(_TABLE.split()[::2], _TABLE.split()[1::2], strict=True))
_PAIRS |= {"√": "sqrt ", "°": " deg"}
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_POWER = "([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)"

_encoding = "utf-8"  # of the stream that text is laid out for


@contextmanager
def printed_on(stream: TextIO) -> Iterator[None]:
    """Within it text is laid out for this stream."""
    global _encoding  # noqa: PLW0603 - as a stream is one for all
    before = _encoding
    _encoding = stream.encoding if stream.errors == NEAR else "utf-8"
    try:
        yield
    finally:
        _encoding = before


def as_printed(text: str) -> str:
    """The text as the stream that it is laid out for prints it."""
    if _encoding == "utf-8" or text.isascii():
        return text
    return text.encode(_encoding, NEAR).decode(_encoding)


def near(error: UnicodeError) -> tuple[str, int]:
    """An error handler for codecs: a near character, or the escape of one that has none.

    >>> near(UnicodeEncodeError("ascii", "Q Kᵀ", 3, 4, ""))
    ('^T', 4)
    >>> near(UnicodeEncodeError("ascii", "10⁻⁸", 2, 4, ""))
    ('^-8', 4)
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    missing = re.sub(_POWER, lambda power: f"^{power[1].translate(_POWERS)}", missing)
    pieces = (_PAIRS.get(x) or x.encode("unicode_escape").decode() for x in missing)
    return "".join(pieces), error.end
