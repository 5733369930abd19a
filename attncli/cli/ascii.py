"""For streams that are not UTF-8: near characters instead of those that an encoding lacks."""

from __future__ import annotations

_NEAR = "ᵀ ^T Σ sum ∞ inf ² ^2 ₙ _n ≥ >= ≤ <= ‖ || · * × x − - … ... ′ ' "
_NEAR += "→ -> ← <- │ | ─ - ┼ + ├ |- └ `- ║ | ● o α alpha β beta γ gamma ε epsilon θ theta "
_NEAR += "λ lambda μ mu π pi σ sigma φ phi ░ . ▒ : ▓ % █ #"
_PAIRS = {digit: f"_{n}" for n, digit in enumerate("₀₁₂₃₄₅₆₇₈₉")}
_PAIRS |= {"√": "sqrt ", **dict(zip(_NEAR.split()[::2], _NEAR.split()[1::2], strict=True))}


def near(error: UnicodeError) -> tuple[str, int]:
    """An error handler for codecs: a near character, or the escape of one that has none.

    >>> near(UnicodeEncodeError("ascii", "Q Kᵀ", 3, 4, ""))
    ('^T', 4)
    >>> near(UnicodeEncodeError("ascii", "é", 0, 1, ""))[0] == chr(92) + "xe9"
    True
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    found = (_PAIRS.get(char) or char.encode("unicode_escape").decode() for char in missing)
    return "".join(found), error.end
