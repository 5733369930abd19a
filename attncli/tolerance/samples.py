"""Samples of a comparison: a few batch items, heads and rows that represent all."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from attncli.arrays import Array
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.rule import StageErrors, errors_of
from attncli.tolerance.run import Indices, Subset, all_of
from attncli.tolerance.setup import Setup

SAMPLE = 2**14
"""About how many scores a sample has: enough for every pattern, and computed in a millisecond."""

MOST = 2, 2, 16
"""How many batch items, heads and rows a sample has at most; and at least four rows of any width,
two of the worst and two of the others."""


def sample_of(comparison: Comparison) -> Comparison:
    """A sample: of each axis the entries with the largest errors, and some evenly spread."""
    if comparison.is_whole:
        return comparison.sample(_worst_head(comparison))
    worst = _row_errors(comparison.errors)
    batch = _chosen(worst.max(axis=(1, 2)), MOST[0])
    head = _chosen(worst[batch].max(axis=(0, 2)), MOST[1])
    n_rows = SAMPLE // (comparison.setup.shape[3] * len(batch) * len(head))
    row = _chosen(worst[np.ix_(batch, head)].max(axis=(0, 1)), max(4, min(MOST[2], n_rows)))
    return comparison.sample(Subset(batch, head, row))


NARROW, LONG = 4, 256
"""So few rows refuse nearly every setup; of more keys than these, half of them do."""


def narrow_sample_of(sample: Comparison) -> Comparison:
    """A few rows of the head of a sample with the largest error: the first that is tried.

    It is the sample itself where this is small, or where no row by itself has an error.
    """
    if sample.is_whole:
        by_rows = sample.of_rows()
        is_small = math.prod(sample.subset.sizes) * sample.setup.shape[3] <= SAMPLE
        return sample if is_small or by_rows.matches else narrow_sample_of(by_rows)
    worst = _row_errors(sample.errors)
    batch, head, _ = np.unravel_index(int(worst.argmax()), worst.shape)
    rows = _chosen(worst[batch, head], NARROW if sample.setup.shape[3] <= LONG else NARROW // 2)
    return sample.sample(Subset(np.array([batch]), np.array([head]), rows))


WIDE = 2**15
"""About how many scores a sample of every head has."""


def wide_sample_of(comparison: Comparison) -> Comparison | None:
    """The comparison with a few rows of every batch item and head; None where some are missing."""
    n_batch, n_heads = comparison.subset.sizes[:2]
    if (n_batch, n_heads) != comparison.setup.shape[:2]:
        return None
    if comparison.is_whole:
        is_small = math.prod(comparison.setup.shape) <= WHOLE
        return comparison.sample(all_of(comparison.subset.sizes)) if is_small else None
    worst = _row_errors(comparison.errors).max(axis=(0, 1))
    rows = _chosen(worst, max(2, WIDE // (comparison.setup.shape[3] * n_batch * n_heads)))
    return comparison.sample(Subset(np.arange(n_batch), np.arange(n_heads), rows))


WORST_ROWS = 4
"""How many of the worst rows of a head a further sample has."""


def worst_of(setup: Setup, comparison: Comparison) -> Subset:
    """Where a setup that does not fit is worst: a few rows of one head."""
    if comparison.is_whole:
        return _worst_head(comparison, setup)
    worst: Array = np.zeros(comparison.subset.sizes)
    for name, x in comparison.expected(setup).items():
        observed = comparison.observed_by(setup, name)
        plain = comparison.errors[name]
        errors = errors_of(observed, x, plain.rule, setup.convention.mask_value).max(
            axis=-1, initial=0.0
        )
        noise = 1.0 if plain.noise is None else np.maximum(plain.row_noise, 1e-300)
        worst = np.maximum(worst, np.minimum(errors / noise, np.finfo(np.float64).max))
    batch, head, _ = np.unravel_index(int(worst.argmax()), worst.shape)
    rows = np.sort(np.argsort(-worst[batch, head], kind="stable")[:WORST_ROWS])
    return Subset(np.array([batch]), np.array([head]), rows)


WHOLE = 2**15
"""So many scores, with all queries, are their own sample."""


def _worst_head(comparison: Comparison, setup: Setup | None = None) -> Subset:
    """The batch item and head with the largest errors, under another setup; all of few scores."""
    every = all_of(comparison.subset.sizes)
    if math.prod(comparison.subset.sizes) * comparison.setup.shape[3] <= WHOLE:
        return every
    total: Array = np.zeros(comparison.subset.sizes[:2])
    expected = {} if setup is None else comparison.expected(setup)
    for name, stage in comparison.errors.items():
        errors = stage.by_row[1].max(axis=-1)
        if setup is not None:
            observed = comparison.observed_by(setup, name)
            errors = errors_of(observed, expected[name], stage.rule).max(axis=(-1, -2))
        errors = np.minimum(errors, np.finfo(np.float64).max)
        top = errors.max()
        if errors.size > 1 and top > 0:
            total = np.maximum(total, comparison.by_heads(name, errors / top))
    batch, head = np.unravel_index(int(total.argmax()), total.shape)
    return Subset(np.array([batch]), np.array([head]), every.row)


def _row_errors(errors: Mapping[str, StageErrors]) -> Array:
    """[batch, head, row]: the largest error of each row, relative to the largest of its stage."""
    total: Array = np.zeros(1)
    for stage in errors.values():
        rows = np.minimum(stage.by_row[1], np.finfo(np.float64).max)
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
