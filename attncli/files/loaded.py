"""Loaded: what was found in a source, and the remarks on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.files.messages import entry_at
from attncli.trace import Trace


@dataclass(frozen=True, eq=False)
class Loaded:
    """What a source holds.

    origin         how messages call it: its path, "standard input", "the inline literal"
    arrays         name as in the file → array; a matrix without a name is called ""
    query_labels   names of the queries (`tokens`, `query_tokens`; of a trace: its labels), or None
    key_labels     names of the keys, or None
    row_labels     labels of the rows of a csv or tsv: names of queries or of keys, by its role
    column_labels  the header of a csv or tsv, without its corner
    scale          the factor on the scores that the file names, or None
    trace          the trace, where the file is one saved by attncli; arrays then holds the values
                   of its stages by dotted name. `path::part` gives the trace inside called so
    warnings       remarks for the user, one line each
    member         what `::name` asked for, or None

    The number of labels is not held against the arrays: which axis they name depends on a layout.
    """

    origin: str
    arrays: dict[str, npt.NDArray[Any]]
    query_labels: tuple[str, ...] | None = None
    key_labels: tuple[str, ...] | None = None
    row_labels: tuple[str, ...] | None = None
    column_labels: tuple[str, ...] | None = None
    scale: float | None = None
    trace: Trace | None = None
    warnings: tuple[str, ...] = ()
    member: str | None = None


def nonfinite_remark(where: str, array: npt.NDArray[Any], *, is_mask: bool) -> str | None:
    """A line that counts the NaN and infinities of an array, or None where there are none.

    In a mask −∞ is meant, and so it is in an array of nothing but 0 and −∞.

    >>> nonfinite_remark("q.npy", np.array([[1.0, np.nan]]), is_mask=False)
    'q.npy holds 1 NaN of 2 numbers, the first at row 1, column 2'
    """
    if array.dtype.kind != "f" or not array.size or _all_finite(array):
        return None
    nan, infinite = np.isnan(array), np.isinf(array)
    if is_mask or (not nan.any() and bool(np.all((array == 0) | (array == -np.inf)))):
        infinite &= array > 0
    counts = [(int(nan.sum()), "NaN"), (int(infinite.sum()), "infinite")]
    found = " and ".join(f"{number} {word}" for number, word in counts if number)
    if not found:
        return None
    first = np.unravel_index(int(np.argmax(nan | infinite)), array.shape)
    spot = entry_at([int(i) for i in first], array.ndim) if array.ndim else "its only entry"
    return f"{where} holds {found} of {array.size} numbers, the first at {spot}"


def _all_finite(array: npt.NDArray[Any]) -> bool:
    # min and max carry NaN and infinity along and need no second array of the same size
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.min()) and np.isfinite(array.max()))
