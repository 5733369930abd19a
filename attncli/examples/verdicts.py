"""The rules by which a printed number is judged, cell by cell.

With u one unit of the last printed decimal, and n what float64 loses on the way, 64 ulp (2⁻⁴⁶ of
the number itself):

| verdict | our number and the printed one |
|---|---|
| reproduced | are the same: within n, and within u (or one ulp, if that is more) |
| agrees as rounded | lie within u/2, to within n |
| differs | lie farther apart |

A tie lies u/2 from both its neighbours, so 0.125 agrees with "0.12" (half to even) and with "0.13"
(half up); n lets 2.675, which float64 holds a little below, agree with "2.68". Where u is less than
n, in a number printed in full, n is the bound. An expression ("1/√2") has no last decimal: it is
reproduced, within n, or differs. NaN and infinities are reproduced by themselves alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attncli.examples.example import VERDICTS, States, Verdict
from attncli.examples.printed import EXACT, Printed

Array = npt.NDArray[np.float64]
Cells = npt.NDArray[np.str_]

LOSS = 2.0**-46
CLOSE = 1e-3
"""How near `close_to` is: a thousandth of the value, or of 1 where that is more."""


def compare(ours: npt.ArrayLike, printed: Printed) -> Cells:
    """The verdict of each cell, by the rules at the top of this module.

    `ours` has the shape of the printed numbers.

    >>> from attncli.examples.printed import read_printed
    >>> compare([0.125, 0.125, 0.5], read_printed(["0.12", "0.13", "0.5"], "it")).tolist()
    ['agrees as rounded', 'agrees as rounded', 'reproduced']
    """
    a, b = np.asarray(ours, dtype=np.float64), printed.value
    exact = printed.decimals == EXACT
    with np.errstate(all="ignore"):
        unit = np.where(exact, np.inf, 10.0 ** -np.where(exact, 0, printed.decimals))
        gap = np.abs(a - b)
        loss = LOSS * np.maximum(np.abs(a), np.abs(b))
        finite = np.isfinite(a) & np.isfinite(b)
        whole = gap <= np.minimum(loss, np.maximum(unit, np.spacing(np.abs(b))))
        near = ~exact & (gap <= unit / 2 + loss)
    reproduced = (a == b) | (np.isnan(a) & np.isnan(b)) | (finite & whole)
    return np.select([reproduced, finite & near], VERDICTS[:2], VERDICTS[2])


def holds(ours: npt.ArrayLike, states: States, magnitude: float) -> Cells:
    """Whether a statement holds: "reproduced" or "differs" for each cell.

    `magnitude` is the greatest number that went into ours, which bounds what float64 loses.
    "unequal" holds where any cell is unequal: two vectors differ if one entry does.

    >>> holds([1.0, 0.9], States("equal", 1.0), magnitude=1.0).tolist()
    ['reproduced', 'differs']
    """
    a = np.asarray(ours, dtype=np.float64)
    bound = LOSS * max(magnitude, abs(states.value))
    if states.relation == "close_to":
        bound = CLOSE * max(abs(states.value), 1.0)
    with np.errstate(all="ignore"):
        near = (np.abs(a - states.value) <= bound) | (a == states.value)
    if states.relation == "unequal":
        near = np.broadcast_to((~near & ~np.isnan(a)).any(), a.shape)
    return np.where(near, VERDICTS[0], VERDICTS[2])


def worst(cells: Cells) -> Verdict:
    """The verdict of all cells together: that of the worst."""
    return max((v for v in VERDICTS if v in cells), key=VERDICTS.index, default="not printed")


def cut_off(ours: npt.ArrayLike, printed: Printed) -> bool:
    """Whether each printed number is ours with its further digits cut off instead of rounded.

    >>> from attncli.examples.printed import read_printed
    >>> cut_off([0.1978, 0.4011], read_printed(["0.19", "0.40"], "it"))
    True
    """
    a, decimals = np.asarray(ours, dtype=np.float64), printed.decimals
    if (decimals > 15).any() or (decimals < 0).any() or not np.isfinite(a).all():
        return False
    with np.errstate(over="ignore"):
        power = 10.0**decimals
        kept = np.trunc(a * power * (1 + LOSS)) / power
    return bool((compare(kept, printed) == VERDICTS[0]).all())
