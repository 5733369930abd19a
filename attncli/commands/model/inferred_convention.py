"""What a model asks of its attention: the mask and the keywords of a call, as a Convention."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.masks import is_masked, window


class InferredConvention(NamedTuple):
    """A mask, if one is left, and fields of Convention."""

    mask: Array | None
    fields: dict[str, Any]


def convention_of_mask(
    mask: Array, shape: tuple[int, ...], window_left: int | None, empty: str
) -> InferredConvention:
    """What a mask says: the name of its pattern where it has one, else the mask.

    mask         true = may attend, or numbers added to the scores, of which −inf and the least of
                 a number type forbid
    shape        [batch, head, n_q, n_k] of the scores
    window_left  how many keys before a query its window has, where the model names one
    empty        the weights of a row in which −inf is_masked every key: "zero" or "nan"

    A row all of whose scores are the least of a number type has equal weights.
    """
    added = mask.dtype != np.bool_
    forbidden = is_masked(mask) if added else ~mask
    fields: dict[str, Any] = {}
    if added and forbidden.any() and not np.isneginf(mask[forbidden]).all():
        fields["empty_rows"] = "uniform"
    elif empty != "zero" and forbidden.any():
        fields["empty_rows"] = empty
    if added and mask[~forbidden].any():
        return InferredConvention(
            np.where(forbidden, -np.inf, mask), {**fields, "mask_means": "add"}
        )
    if not forbidden.any():
        return InferredConvention(None, {})
    if pattern := _pattern(~forbidden, shape[-2], shape[-1], window_left):
        return InferredConvention(None, pattern)
    return InferredConvention(~forbidden, fields)


def _pattern(allowed: Array, n_q: int, n_k: int, window_left: int | None) -> dict[str, Any]:
    """The fields of Convention that allow the same, or none."""
    if allowed.ndim < 2 or allowed.shape[-2:] != (n_q, n_k):
        return {}
    for before in dict.fromkeys((-1, -1 if window_left is None else window_left)):
        if (allowed == window(n_q, n_k, before, 0, n_k - n_q)).all():
            return fields_of_flags(True, None if before < 0 else before, n_q, n_k)
    return {}


def fields_of_flags(causal: bool, window_left: int | None, n_q: int, n_k: int) -> dict[str, Any]:
    """The fields of Convention: so many keys before a query, the last query at the last key."""
    if not causal or (n_q == 1 and window_left is None):
        return {}
    fields: dict[str, Any] = {"causal": True}
    if n_q != n_k:
        fields["causal_align"] = "bottom-right"
    return fields if window_left is None else {**fields, "window": (window_left, -1)}
