"""What a mask that somebody gave means."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import ConventionError

Array = npt.NDArray[Any]


def checked_mask(mask: Array, means: str | None, origin: str) -> Array:
    """A mask as true and false, or as numbers to add; 0 and 1 are either, as --mask-means says.

    Raises ConventionError where it could mean either, or cannot mean what was said.
    """
    if mask.dtype == np.bool_:
        if means == "add":
            raise ConventionError(
                f"the mask of {origin} is true/false and cannot be added",
                "use --mask-means keep or ignore",
            )
        return mask
    binary = bool(np.isin(mask, (0, 1)).all())
    if means is None and binary:
        raise ConventionError(
            f"the mask of {origin} holds nothing but 0 and 1",
            "say what 1 means: --mask-means keep, ignore or add",
        )
    if means in {"keep", "ignore"}:
        if not binary:
            raise ConventionError(
                f"--mask-means {means} needs a mask of true/false or 0/1, {origin} has others",
                "use --mask-means add",
            )
        return mask.astype(np.bool_)
    return mask.astype(np.float64)
