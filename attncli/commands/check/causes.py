"""Why a number of a sheet is wrong: what its digits say, and which slip gives most of a table.

Digits and rounding are judged on the number that was written: one with a decimal was not rounded to
a whole number. All other slips are formulas, whose numbers are compared with those of the sheet.
What is written is compared with each number that would be right there: that which follows from the
rounded numbers before it, and that which follows from unrounded ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attncli.commands.check.by_hand.marking import MOST_CELLS_NAMED, Mistake
from attncli.files.messages import count
from attncli.stages import OUTPUT, SCORES
from attncli.tolerance.setup import Setup

Place = tuple[int, ...]


class Slip(NamedTuple):
    """A slip by its name, what that leaves open, and whether it is named where no other fits."""

    name: str
    detail: str = ""
    is_alone: bool = False


def most_of(
    explained: Mapping[Slip, set[Place]],
    exactly: Mapping[Slip, set[Place]],
    digits: Mapping[Place, list[Slip]],
    places: set[Place],
) -> tuple[set[Place], tuple[str, ...]]:
    """The most of the wrong numbers that one slip gives, and the slips that give just these.

    explained  the numbers that each slip gives as far as rounding of all that is before them allows
    exactly    those that it gives to the last decimal: one number alone may fit by chance
    digits     what the digits of each number say: named first, as it is what is seen

    Of many numbers a slip that gives less than half may do so by chance, too, and is not named.
    """
    shared = {slip: cells & places for slip, cells in explained.items()}
    cells = max(shared.values(), key=len, default=set[Place]())
    if len(places) > MOST_CELLS_NAMED and len(cells) < len(places):
        of_name: dict[str, set[Place]] = {slip.name: set() for slip in shared}
        for slip, its in shared.items():
            of_name[slip.name] |= its
        names = tuple(name for name, its in of_name.items() if its == places)
        if names or 2 * len(cells) < len(places):
            return places, names
    if len(cells) > 1:
        return cells, _named(slip for slip, its in shared.items() if its == cells)
    at = min(places)
    slips = [slip for slip, its in exactly.items() if at in its]
    slips = [slip for slip in slips if not slip.is_alone] or slips
    return {at}, _named((*digits.get(at, ()), *slips))


def of_digits(written: float, right: Iterable[float], decimals: int) -> Iterator[Slip]:
    """How the digits of a number differ from those of one of the numbers that would be right.

    >>> [slip.name for slip in of_digits(6.52, [5.52], 2)], [*of_digits(4.3, [3.72], 2)]
    (['one digit is wrong'], [])
    """
    for number in right:
        digits, correct = (f"{abs(x):.{decimals}f}" for x in (written, number))
        pairs = [(a, b) for a, b in zip(digits, correct, strict=False) if a != b]
        off = f"{abs(float(digits) - float(correct)):.{decimals}f}"
        if len(digits) == len(correct) > 1 and len(pairs) == 1:
            yield Slip("one digit is wrong")
        elif len(digits) == len(correct) and len(pairs) == 2 and pairs[0] == pairs[1][::-1]:
            yield Slip("two digits are exchanged")
        elif off.strip("0.") == "1" and float(off) > 1.5 * 10.0**-decimals:  # no rounding
            yield Slip("a carry is wrong", f"the number is off by exactly {float(off):g}")


def of_rounding(written: float, right: Iterable[float], decimals: int) -> Iterator[Slip]:
    """To how few decimals a number was rounded, or after how many it was cut off.

    >>> [slip.name for slip in of_rounding(5, [4.56], 2)], [*of_rounding(5.3, [5], 2)]
    (['rounded too early'], [])
    >>> [slip.detail for slip in of_rounding(4, [4.56], 2)]
    ['after the point']
    """
    for n in range(decimals + 1):
        unit, words = 10.0**-n, count(n, "decimal")
        if abs(written / unit - round(written / unit)) > EXACT:
            continue
        before = EXACT * unit + (0.5 * 10.0**-decimals if n < decimals else 0.0)  # it was rounded
        if n < decimals and any(abs(written - x) <= unit / 2 + before for x in right):
            yield Slip("rounded too early", f"to {words if n else 'whole numbers'}")
        cut = [abs(x) - abs(written) for x in right if written * x >= 0]
        if any(-before <= off < unit * (1 - EXACT) for off in cut):
            yield Slip("truncated, not rounded", f"after {words if n else 'the point'}")


def of_one(
    written: float, right: Iterable[float], neighbours: Mapping[str, float], decimals: int
) -> Iterator[Slip]:
    """What else somebody may have written in place of a number: names that one cell alone has.

    neighbours  what is written in the cells beside it, by what they are called

    >>> [slip.detail for slip in of_one(0.2, [0.4], {"the one above": 0.2}, 2)]
    ['the one above']
    """
    half = 0.5 * 10.0**-decimals
    of_rounded = [(factor * x, factor * np.round(x, decimals)) for x in right for factor in MOVED]
    if abs(written) > half and any(
        abs(written - x) <= half or np.isclose(written, rounded)
        for x, rounded in of_rounded
        if rounded
    ):
        yield Slip("the decimal point is in the wrong place", is_alone=True)
    for which, number in neighbours.items():
        if written == number:
            yield Slip("copied from its neighbour", which, is_alone=True)


MOVED = 0.01, 0.1, 10.0, 100.0
"""By so much a number is larger whose decimal point is one or two places off."""
EXACT = 1e-6
"""A number of so many units is whole but for its binary digits, whatever its size."""


def _named(slips: Iterable[Slip]) -> tuple[str, ...]:
    """Slips in words, each once, with all that its name leaves open."""
    details = dict[str, list[str]]()
    for name, detail, _ in slips:
        details.setdefault(name, []).extend([detail] if detail else [])
    words = {name: " or ".join(dict.fromkeys(more)) for name, more in details.items()}
    return tuple(f"{name}, {more}" if more else name for name, more in words.items())


def of_shape(stage: str, shape: Sequence[int], right: Sequence[int], setup: Setup) -> Mistake:
    """A table of another shape, and the product that has this one."""
    n_q, n_k, last = *setup.shape[2:], tuple(shape[-2:])
    slips = {
        "rows and columns are swapped": last == tuple(right[:-3:-1]),
        "Qᵀ K in place of Q Kᵀ": stage == SCORES and last == (setup.d_k,) * 2 and n_q == n_k,
        "the weights times a table of queries and keys, not times V": (
            stage == OUTPUT and last == (n_q, n_k)
        ),
    }
    sizes = (" × ".join(map(str, x)) for x in (shape, right))
    is_list = "one list of " if len(shape) == 1 else ""
    names = tuple(name for name, applies in slips.items() if applies)
    return Mistake(stage, (), names, f"is {is_list}{{}}, should be {{}}".format(*sizes))
