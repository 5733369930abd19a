"""Heads: splitting a model's width into them, merging them, sharing keys between them.

The one order in which attention is computed is (batch, head, token, d); a layout names another.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array, Like
from attncli.convention import LAYOUTS, HeadOrder, Layout
from attncli.errors import ConventionError, ShapeError


def split_heads(x: Array, n_heads: int) -> Array:  # [..., n, h·d] -> [..., h, n, d]
    """The last axis split into heads of equal width; the head axis comes before the tokens.

    Source: "Attention Is All You Need", section 3.2.2. Raises ShapeError where the width does not
    divide.

    >>> split_heads(np.arange(6.0).reshape(1, 6), 2).tolist()
    [[[0.0, 1.0, 2.0]], [[3.0, 4.0, 5.0]]]
    """
    apart = x.reshape(*x.shape[:-1], n_heads, head_width(x.shape[-1], n_heads))
    return np.swapaxes(apart, -2, -3)


def head_width(width: int, n_heads: int) -> int:
    """The width of one of so many heads; ShapeError where they do not divide it."""
    if n_heads < 1 or width % n_heads:
        hint = f"use a number of heads that divides {width}"
        raise ShapeError(f"a width of {width} does not divide into {n_heads} heads", hint)
    return width // n_heads


def merge_heads(x: Array) -> Array:  # [..., h, n, d] -> [..., n, h·d]
    """The heads side by side again: the concat of section 3.2.2.

    >>> merge_heads(np.arange(6.0).reshape(2, 1, 3)).tolist()
    [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]]
    """
    together = np.swapaxes(x, -2, -3)
    return together.reshape(*together.shape[:-2], -1)


def key_head_of(n_heads: int, n_kv_heads: int, order: HeadOrder = "blocks") -> npt.NDArray[np.intp]:
    """For every query head, the key head it uses: Ainslie et al. (2023), section 2.2.

    >>> key_head_of(4, 2).tolist(), key_head_of(4, 2, "tiled").tolist()
    ([0, 0, 1, 1], [0, 1, 0, 1])
    """
    check_shared(n_heads, n_kv_heads)
    heads = np.arange(n_heads)
    return heads // (n_heads // n_kv_heads) if order == "blocks" else heads % n_kv_heads


def check_shared(n_heads: int, n_kv_heads: int) -> None:
    """ShapeError unless each key head has equally many query heads."""
    if n_kv_heads < 1 or n_heads % n_kv_heads:
        message = f"{n_heads} query heads cannot evenly share {n_kv_heads} key heads"
        hint = "the number of query heads must be a multiple of the number of key heads"
        raise ShapeError(message, hint)


def heads_first(x: Array, layout: Layout, n_heads: int | None = None) -> Array:
    """An array of the layout, in the order (batch, head, token, d) or (head, token, d).

    `n_heads` splits the last axis of (batch, token, d); without it that is one head.
    Raises ConventionError for an unknown layout, ShapeError where the dimensions do not fit it.

    >>> heads_first(np.zeros((2, 3, 5, 7)), "bshd").shape
    (2, 5, 3, 7)
    """
    if layout not in LAYOUTS:
        raise ConventionError(f"there is no layout {layout!r}", f"use {', '.join(LAYOUTS)}")
    if x.ndim != len(layout):
        message = f"the layout {layout} has {len(layout)} axes, the array {x.ndim}: {shape_text(x)}"
        raise ShapeError(message)
    if layout == "bsd":
        return split_heads(x, n_heads or 1)
    return np.swapaxes(x, -2, -3) if layout.endswith("shd") else x


def four_axes(x: Array) -> Array:
    """x with axes of length 1 before it, up to four axes."""
    return x.reshape((1,) * (4 - x.ndim) + x.shape)


def shape_text(x: Array | Like) -> str:
    """The shape as it is written everywhere: 3 × 4."""
    return " × ".join(str(size) for size in x.shape)
