"""What was given, as an array of float64, or one line that says why it is none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attncli.errors import ShapeError


def real_numbers(values: npt.ArrayLike, name: str) -> npt.NDArray[np.float64]:
    """The values in float64; ShapeError, naming them, where they are ragged or no numbers.

    >>> real_numbers([[1, 2]], "x")
    array([[1., 2.]])
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError(f"{name} is ragged", "every row needs the same length") from None
    if array.dtype.kind not in "fiub" and array.dtype.name != "bfloat16":
        raise ShapeError(f"{name} holds {array.dtype} entries", "it must hold real numbers")
    return array.astype(np.float64)


def shape_text(array: npt.NDArray[np.float64]) -> str:
    """A shape as it is read aloud.

    >>> shape_text(np.zeros((2, 3)))
    '2×3'
    """
    return "×".join(map(str, array.shape))
