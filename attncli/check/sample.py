"""A few batch items, heads and rows that stand for all: the worst ones, the first and the last."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attncli.check.bench import Bench
from attncli.check.case import Array
from attncli.check.engine import Indices

CELLS = 2**15
"""About how many scores a sample has."""
MOST = (2, 2, 16)


def sample_of(bench: Bench) -> Bench:
    """The bench with a sample of its cut: the same for the same input.

    Of each axis the entries with the largest error, then the first, the last and some between.
    """
    return bench.sample(_positions(bench), loose=2.0)


def _positions(bench: Bench) -> tuple[Indices, Indices, Indices]:
    errors = _row_errors(bench.errors)
    batch = _chosen(errors.max(axis=(1, 2)), MOST[0])
    head = _chosen(errors[batch].max(axis=(0, 2)), MOST[1])
    room = CELLS // (bench.case.shape[3] * len(batch) * len(head))
    row = _chosen(errors[np.ix_(batch, head)].max(axis=(0, 1)), max(4, min(MOST[2], room)))
    return batch, head, row


def _row_errors(errors: Mapping[str, Array]) -> Array:
    """[batch, head, row]: the largest error of each row, each stage in parts of its own largest."""
    total: Array = np.zeros(1)
    for x in errors.values():
        rows = np.minimum(x.max(axis=-1), np.finfo(np.float64).max)
        top = rows.max()
        total = np.maximum(total, rows / top if top > 0 else rows)
    return total


def _chosen(errors: Array, most: int) -> Indices:
    """Positions of up to `most` entries: half of them the worst, the others evenly spread."""
    if len(errors) <= most:
        return np.arange(len(errors))
    worst = np.argsort(-errors, kind="stable")[: max(1, most // 2)]
    spread = np.linspace(0, len(errors) - 1, most - len(worst)).round().astype(np.intp)
    return np.unique(np.concatenate([worst, spread]))
