"""Numbers that were printed: the decimals or the digits to which they look rounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.tolerance.rule import Places, largest

DYADIC = 2.0**10
"""Numbers with 10 bits after the point may be of any type, and have up to 10 decimals."""
MOST_DECIMALS = 8
"""So many NumPy prints. Sums and quotients in float64 have 16."""
MOST_DIGITS = 9
"""So many NumPy prints of numbers in scientific notation, and of any in float32."""
EXACT_DIGITS = 14
"""A number in float64 that was not rounded hardly ever has so few."""
FEW, SPREAD = 4, 1000
"""So many decimals PyTorch prints, and numbers no further apart, unless in scientific notation."""


def rounded_to(arrays: Iterable[Array], least: int = 0) -> int | None:
    """The number of decimals to which numbers look rounded, or None; `least` is known of them.

    >>> rounded_to([np.array([0.42, 0.5])]), rounded_to([np.array([0.375, 1.0])])
    (2, None)
    """
    finite = np.concatenate([x[np.isfinite(x)] for x in arrays])
    if not least and _all(finite, lambda x: x * DYADIC % 1 == 0):  # 0.375, exact in every type
        return None
    most = min(MOST_DECIMALS, EXACT_DIGITS - len(f"{largest(finite):.0f}"))

    def have(n: int) -> bool:
        return _all(finite, lambda x: np.round(x, n) == x)

    return next(filter(have, range(max(1, least), most + 1)), None)


def places_of(arrays: Sequence[Array], least: int = 0) -> Places | None:
    """The decimals or the digits to which numbers look rounded: those that most of them use up.

    >>> places_of([np.array([0.0012346, 12.346])])
    Places(n=5, kind='digit')
    """
    decimals = rounded_to(arrays, least)
    finite = np.abs(np.concatenate([x[np.isfinite(x) & (x != 0)] for x in arrays]))
    is_exact = _all(finite, lambda x: np.frexp(x)[0] * 2 * DYADIC % 1 == 0)  # such as 2⁻¹²
    digits = [] if least or is_exact else _digits(finite)
    n, few = max(digits, default=0), 0 if decimals is None else decimals
    is_scientific = few == 0 or max(n, few) > FEW or finite.max() > SPREAD * finite.min()
    if is_scientific and digits.count(n) > (few and (np.round(finite, few - 1) != finite).sum()):
        return Places(n, "digit")
    return Places(few) if few else None


def _all(x: Array, holds: Callable[[Array], BoolArray]) -> bool:
    """Whether something holds of all numbers; mostly the first few show that it does not."""
    return bool(holds(x[:FIRST]).all() and holds(x[FIRST:]).all())


FIRST = 64
"""So many numbers are looked at before all others."""


def _digits(x: Array) -> list[int]:
    """How many significant digits each number has; none where one has more than are printed."""
    digits = []
    for number in x:
        digits.append(len(f"{number.item()!r}".partition("e")[0].replace(".", "").strip("0")))
        if digits[-1] > MOST_DIGITS:
            return []
    return digits
