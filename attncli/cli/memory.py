"""What the stages of an attention will need, before anything is allocated."""

from __future__ import annotations

import math

from attncli import budget
from attncli.convention import Convention

_STAGES = 6  # scores, scaled, masked, weights and what softmax needs, at least


def fits(score_shape: tuple[int, ...], convention: Convention) -> bool:
    """Whether the stages of this many scores are allowed to be made, and fit into memory."""
    return budget.fits(_need(score_shape, convention))


def check_fits(score_shape: tuple[int, ...], convention: Convention, hint: str = "") -> None:
    """SizeError where the stages of this many scores would not fit into memory."""
    shape = " × ".join(str(size) for size in score_shape)
    default = "give fewer queries, heads or batch items, or --dtype float32"
    what = f"the stages of {shape} scores need"
    budget.check_bytes(_need(score_shape, convention), what, hint or default)


def _need(score_shape: tuple[int, ...], convention: Convention) -> int:
    return math.prod(score_shape) * (8 if convention.dtype == "float64" else 4) * _STAGES
