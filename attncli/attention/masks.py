"""Masks: who may attend to whom.

A mask is additive, M [..., n_q, n_k]: 0 where a query may attend to a key, −inf where it may not,
any other number is added to the score. The functions here give `allowed` arrays (True = may
attend) and `combined` makes one additive mask of everything that restricts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.convention import Convention, MaskMeans

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Offset = int | npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp] | None


def causal(n_q: int, n_k: int, offset: Offset = 0, rows: Rows = None) -> Mask:
    """Key j is seen by query i where j ≤ i + offset: nobody looks ahead.

    offset: how many keys come before the first query's own; a number, or one per batch item, in
    which case the result is [batch, 1, n_q, n_k].
    Source: "Attention Is All You Need", section 3.2.3.

    >>> causal(2, 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])
    """
    return window(n_q, n_k, -1, 0, offset, rows)


def window(
    n_q: int, n_k: int, left: int, right: int, offset: Offset = 0, rows: Rows = None
) -> Mask:
    """Key j is seen by query i where −left ≤ j − (i + offset) ≤ right; −1 means no bound.

    rows: the query rows that are wanted, all where it is left out.

    Source: ONNX Attention-25 (left_window_size, right_window_size); Beltagy et al. (2020),
    section 3.1, sliding window attention.

    >>> window(3, 3, 1, 0).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """
    queries = np.arange(n_q) if rows is None else rows
    start = np.reshape(offset, (-1, 1, 1, 1)) if np.ndim(offset) else np.asarray(offset)
    distance = np.arange(n_k) - (queries[:, None] + start)
    seen = np.ones(distance.shape, dtype=bool)
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen


def padding(kv_len: npt.NDArray[np.int64], n_k: int) -> Mask:
    """Keys before each batch item's length are seen: [batch] -> [batch, 1, 1, n_k].

    >>> padding(np.array([2]), 3)[0, 0, 0].tolist()
    [True, True, False]
    """
    return (np.arange(n_k) < kv_len[:, None])[:, None, None, :]


def additive(mask: Array, means: MaskMeans) -> Array:
    """Any mask as numbers to add: a boolean one becomes 0 (may attend) and −inf (may not).

    Chosen with `where`, never multiplied: 0 · −inf is NaN. Where it means "add", true and false
    are the numbers 1 and 0.

    >>> additive(np.array([True, False]), "keep").tolist()
    [0.0, -inf]
    """
    if mask.dtype != np.bool_ or means == "add":
        return mask.astype(np.float64) if mask.dtype == np.bool_ else mask
    allowed = mask if means == "keep" else ~mask
    return np.where(allowed, 0.0, -np.inf)


def first_position(
    convention: Convention, n_q: int, n_k: int, n_past: int, kv_len: npt.NDArray[np.int64] | None
) -> Offset:
    """The key position at which the first query stands.

    top-left: the length of the past; bottom-right: such that the last query stands at the last
    key, or at the last valid one where key lengths are given (then one number per batch item).
    """
    if convention.causal_align == "top-left":
        return n_past
    return n_k - n_q if kv_len is None else kv_len - n_q


def combined(
    mask: Array | None,
    convention: Convention,
    n_q: int,
    n_k: int,
    n_past: int = 0,
    kv_len: npt.NDArray[np.int64] | None = None,
    rows: Rows = None,
) -> Array | None:
    """One additive mask of everything that restricts, or None where nothing does.

    Its shape broadcasts from the right to [batch, head, n_q, n_k], or to [batch, head, row, n_k]
    where `rows` picks some of the queries; `mask` then holds those rows alone.
    """
    offset = first_position(convention, n_q, n_k, n_past, kv_len)
    allowed = []
    if convention.causal:
        allowed.append(causal(n_q, n_k, offset, rows))
    if convention.window is not None:
        allowed.append(window(n_q, n_k, *convention.window, offset, rows))
    if kv_len is not None:
        allowed.append(padding(kv_len, n_k))
    if mask is None and not allowed:
        return None
    total = (
        np.zeros((n_q if rows is None else len(rows), n_k))
        if mask is None
        else additive(mask, convention.mask_means)
    )
    for seen in allowed:
        total = np.where(seen, total, -np.inf)
    return total
