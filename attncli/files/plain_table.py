"""Large tables of nothing but numbers, read by NumPy's own parser: quick and without copies.

Whatever is not plain (a header, labels, quotes, comments, ragged rows, a number beyond float64) is
left to table_file.py, which knows what to make of it or how to say what is wrong.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
import numpy.typing as npt

LARGE = 1 << 20  # bytes from which the quick way is worth trying
_FIRST = 1 << 16


def plain_matrix(data: bytes, delimiters: tuple[str, ...]) -> npt.NDArray[np.float64] | None:
    """The matrix of a large table of numbers alone, or None where it is anything else.

    >>> plain_matrix(b"1,2", (",",)) is None  # too small to bother
    True
    """
    if len(data) < LARGE or data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return None
    first = data[:_FIRST].decode("ascii", "replace").partition("\n")[0]
    delimiter = next((one for one in delimiters if one and one in first), None)
    if delimiter is None:
        return None
    lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline=None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            matrix = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
    except (ValueError, Warning):
        return None
    # An infinity may be a number beyond float64, which is refused by name.
    return matrix if matrix.size and not np.isinf(matrix).any() else None
