"""Shapes that do not fit, but would after a known re-layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from attncli.attention.heads import split_heads
from attncli.check.setup import Array


def fitting_layouts(array: Array, expected: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """Every known re-layout that gives the array the expected shape: what it is, and the result.

    >>> [words for words, _ in fitting_layouts(np.zeros((5, 6)), (2, 5, 3))]
    ['the heads are side by side in the last axis: split them']
    """
    for words, change in _CHANGES:
        try:
            changed = change(array, expected)
        except (ValueError, IndexError):
            continue
        if changed.shape == expected:
            yield words, changed


def _split(x: Array, expected: tuple[int, ...]) -> Array:
    return split_heads(x, expected[-3])


def _flat_heads(x: Array, expected: tuple[int, ...]) -> Array:
    if x.ndim != len(expected) - 1 or x.ndim < 3:
        raise ValueError
    return x.reshape(expected[0], expected[1], *x.shape[1:])


def _swap(first: int, second: int, ndim: int = 2) -> Callable[[Array, tuple[int, ...]], Array]:
    """Two axes swapped, where so many are expected at least."""

    def change(x: Array, expected: tuple[int, ...]) -> Array:
        if len(expected) < ndim:
            raise ValueError
        return np.swapaxes(x, first, second)

    return change


def _without_ones(x: Array, expected: tuple[int, ...]) -> Array:
    if x.ndim == len(expected):
        raise ValueError
    return x.reshape(expected) if x.squeeze().shape == tuple(n for n in expected if n > 1) else x


def _split_swapped(x: Array, expected: tuple[int, ...]) -> Array:
    return split_heads(np.swapaxes(x, -1, -2), expected[-3])


_CHANGES: tuple[tuple[str, Callable[[Array, tuple[int, ...]], Array]], ...] = (
    ("it has axes of length 1 too many or too few", _without_ones),
    ("the heads are side by side in the last axis: split them", _split),
    ("heads and tokens are exchanged: swap these two axes", _swap(-3, -2)),
    ("its last two axes are exchanged: swap them", _swap(-2, -1)),
    ("batch and heads are one axis: reshape it", _flat_heads),
    ("batch and heads are exchanged: swap these two axes", _swap(-4, -3, 4)),
    ("tokens and batch are exchanged: swap these two axes", _swap(-4, -2, 4)),
    ("the width stands before the tokens, its heads side by side: swap and split", _split_swapped),
)
