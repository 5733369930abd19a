"""For streams that are not UTF-8: near characters instead of those that an encoding lacks."""

from __future__ import annotations

import re

_NEAR = "ᵀ ^T Σ sum ∞ inf ₀ _0 ₁ _1 ₂ _2 ₃ _3 ₄ _4 ₅ _5 ₆ _6 ₇ _7 ₈ _8 ₉ _9 ₙ _n "
_NEAR += "≥ >= ≤ <= ≠ != ‖ || · * ∘ * × x − - … ... ′ ' ½ 1/2 ⋮ : ⋱ \\ ␣ _ ◌ o "
_NEAR += "→ -> ← <- │ | ─ - ┼ + ├ |- └ `- ║ | ● o α alpha β beta γ gamma δ delta ε epsilon θ theta "
_NEAR += "╭ + ╮ + ╰ + ╯ + Δ d ∂ d "
_NEAR += "λ lambda μ mu π pi σ sigma φ phi ░ . ▒ : ▓ % █ # “ \" ” \" ‘ ' ’ ' – - — -- ‐ - ‑ - "
_PAIRS = dict(zip(_NEAR.split()[::2], _NEAR.split()[1::2], strict=True))
_PAIRS |= {"√": "sqrt ", "°": " deg"}
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_POWER = re.compile("([⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)")


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
    missing = _POWER.sub(lambda power: f"^{power[1].translate(_POWERS)}", missing)
    pieces = (_PAIRS.get(x) or x.encode("unicode_escape").decode() for x in missing)
    return "".join(pieces), error.end
