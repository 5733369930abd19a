"""Number types: what a stage is computed in, and what it is rounded to.

| type     | computed in | rounded to                    |
|----------|-------------|-------------------------------|
| float64  | float64     | as it is                      |
| float32  | float32     | as it is                      |
| float16  | float32     | float16, after each stage     |
| bfloat16 | float32     | bfloat16, kept as a float32   |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.convention import DType

Array = npt.NDArray[Any]


def widen(x: Array, dtype: DType) -> Array:
    """The same numbers in the type that a stage of this number type is computed in."""
    return x.astype(np.float64 if dtype == "float64" else np.float32, copy=False)


def round_to(x: Array, dtype: DType) -> Array:
    """x rounded to the number type, ties to even; beyond its range it becomes infinite.

    Source: IEEE 754-2019, section 4.3.1; bfloat16 is a float32 without its low 16 bits.

    >>> [float(round_to(np.array([x]), "float16")[0]) for x in (0.1, 70000.0)]
    [0.0999755859375, inf]
    >>> [float(round_to(np.array([x]), "bfloat16")[0]) for x in (0.1, 257.0, 259.0)]
    [0.10009765625, 256.0, 260.0]
    """
    if dtype == "bfloat16":
        return _round_to_bfloat16(x)
    with np.errstate(over="ignore"):
        return x.astype(dtype, copy=False)


def _round_to_bfloat16(x: Array) -> Array:
    with np.errstate(over="ignore"):
        wide = np.ascontiguousarray(x, dtype=np.float32)
    bits = wide.view(np.uint32)
    lowest_kept = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = bits + np.uint32(0x7FFF) + lowest_kept
    kept = (rounded & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(wide), wide, kept)
