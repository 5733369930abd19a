"""What a matrix takes to 0, up to rounding: the counts of a system of equations."""

from __future__ import annotations

import numpy as np

from attncli.arrays import Array

UNUSED = 1e-10
"""A column that is so small beside the largest says nothing: a key that is hidden everywhere."""

RIDGE = 1e-14
"""What is added to the diagonal, beside its largest entry, so that the products have an inverse."""

ALONE = 3.0
"""The vector must be alone: the next one is taken to something so many times as long at least."""

STEPS = 8
"""Each step brings both vectors nearer by the square of the ratio of their lengths."""


def null_vector(matrix: Array) -> Array | None:
    """The vector that the matrix takes nearest to 0, NaN at columns that say nothing.

    None where there are too few rows, or where more than one vector may be it.
    """
    size = np.abs(matrix).max(axis=0, initial=0.0)
    used = size > UNUSED * size.max(initial=0.0)
    n_used = int(used.sum())
    if n_used < 2 or len(matrix) < n_used + 1:
        return None
    columns = matrix[:, used] / size[used]
    products = columns.T @ columns
    products[np.diag_indices(n_used)] += RIDGE * products.diagonal().max()
    try:
        inverse = np.linalg.inv(products)
    except np.linalg.LinAlgError:
        return None
    both = np.stack([inverse[:, inverse.diagonal().argmax()], np.ones(n_used)], axis=-1)
    for _ in range(STEPS):
        both = np.linalg.qr(inverse @ both)[0]
    # what the rounding of the products has left is taken away with the matrix itself
    first, second = both.T
    for _ in range(2):
        rest = inverse @ (columns.T @ (columns @ first))
        first = first - (rest - first * (first @ rest))
        first = first / np.linalg.norm(first)
    lengths = [float(np.linalg.norm(columns @ x)) for x in (first, second)]
    if not np.isfinite(lengths).all() or lengths[1] < ALONE * lengths[0]:
        return None
    vector = np.full(len(size), np.nan)
    vector[used] = first / size[used]
    return vector
