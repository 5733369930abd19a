"""The types of arrays that signatures name, and what stands for an array that is not there yet."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class Like(NamedTuple):
    """The shape and the type of an array that is not there: enough to count its bytes.

    Its sizes are whole numbers of Python, of any length. The steps of a plan, and the layers of a
    transformer, are made of these as they are of arrays.

    takes  the most bytes that are there until it is, its own included; 0: it is a part of another
           array; None: its own alone
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any] = np.dtype(np.float64)
    takes: int | None = None

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its numbers."""
        return self.size * self.dtype.itemsize
