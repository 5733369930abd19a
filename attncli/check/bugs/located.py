"""Bugs of places that the errors show: heads exchanged, a block lost, rows that are not written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from attncli.arrays import Array
from attncli.attention.kernels import draw_kept
from attncli.check.bugs.bug import Change, Evidence
from attncli.check.bugs.edits import changed
from attncli.check.bugs.numbers import BLOCKS
from attncli.check.bugs.parts import is_plain
from attncli.check.run import Indices, Subset, stages
from attncli.check.setup import NANS, ZEROS, Setup
from attncli.stages import OUTPUT, WEIGHTS

BATCH, HEAD = 0, 1
KINDS = {BATCH: "batch items", HEAD: "heads"}

# ---- two batch items or heads


def errors_along(axis: int, evidence: Evidence) -> Array:
    """The mean squared error of each batch item or head, relative to its numbers."""
    total: Array = np.zeros(1)
    others = tuple(i for i in range(4) if i != axis)
    for name in evidence.observed:
        observed, expected, _ = evidence.few(name)
        known = np.isfinite(observed) & np.isfinite(expected)
        apart = np.where(known, observed - expected, 0.0)
        size = np.mean(np.square(np.where(known, expected, 0.0)), axis=others) + 1e-300
        total = total + np.mean(apart * apart, axis=others) / size
    return np.asarray(total)


def _two_exchanged(axis: int, setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The two batch items or heads with the largest errors, or all neighbours, exchanged."""
    over = next((evidence.over(setup, stage) for stage in evidence.observed), None)
    if over is None:
        return
    worst = over[axis][np.argsort(-errors_along(axis, evidence), kind="stable")]
    for words, swap in _swaps(axis, setup.shape[axis], worst):
        yield setup.computing({axis: swap}).with_detail(f"the outputs of {words}")
    by_key = setup.key_heads[worst] if axis == HEAD else worst
    for words, swap in _swaps(axis, setup.inputs["k"].shape[axis], by_key):
        for names in ("kv", "k", "v"):
            taken = {name: np.take(setup.inputs[name], swap, axis) for name in names}
            detail = f"{' and '.join(names.upper())} of {words}"
            yield setup.with_inputs(**taken).with_detail(detail)


def _swaps(axis: int, n: int, worst: Indices) -> Iterator[tuple[str, Indices]]:
    """The indices 0 to n − 1 with the first two of `worst` exchanged, or each two neighbours."""
    first = list(dict.fromkeys(worst.tolist()))[:2]
    if len(first) == 2:
        swap = np.arange(n)
        swap[first] = swap[first[::-1]]
        one, other = sorted(first)
        yield f"{KINDS[axis]} {one + 1} and {other + 1}", swap
    if n > 2:
        neighbours = np.arange(n) ^ 1
        yield "all neighbours", np.where(neighbours < n, neighbours, np.arange(n))


# ---- a block of keys that is lost


def _block_lost(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The block without which some rows come nearest to what was observed."""
    over = evidence.over(setup, OUTPUT)
    if over is None or not is_plain(setup) or setup.whole_axes:
        return
    observed, expected, rows = evidence.few(OUTPUT)
    with np.errstate(invalid="ignore"):
        errors = np.square(observed - expected).sum(axis=-1)
    if not np.isfinite(errors).any():
        return
    b, h, row = np.unravel_index(np.nanargmax(errors), errors.shape)
    at = Subset(over.batch[[b]], over.head[[h]], over.row[rows[[row]]])
    weights = stages(setup, at, [WEIGHTS])[WEIGHTS][0, 0, 0]
    v = setup.placed().inputs["v"][at.batch[0], setup.key_heads[at.head[0]]]
    candidates = []
    for block in BLOCKS:
        starts = np.arange(0, len(weights), block)[:-1]
        if not starts.size:
            continue
        cuts = [*starts, starts[-1] + block]
        lost = np.add.reduceat(weights, cuts)[:-1]
        terms = np.add.reduceat(weights[:, None] * v, cuts, axis=0)[:-1]
        left = np.maximum(1 - lost, 1e-30)[:, None]
        apart = np.square((expected[b, h, row] - terms) / left - observed[b, h, row]).sum(axis=-1)
        one = int(np.argmin(apart))
        candidates.append((float(apart[one]), block, int(starts[one])))
    for _, block, start in sorted(candidates)[:2]:
        words = f"keys {start + 1} to {start + block}, a block of {block}"
        line = f"weights, lse?: where => where j < {start} or j >= {start + block} -- {words}"
        yield from changed([line], setup, evidence)


# ---- rows and heads that are not written


def _first_of(setup: Setup, wrong: Array) -> tuple[int, str]:
    """From which row on all rows are wrong (n_q: none), and the block that begins there, if any."""
    n_q, at = setup.shape[2], np.flatnonzero(~wrong)
    first = int(at[-1]) + 1 if at.size else n_q
    blocks = [str(n) for n in BLOCKS if (n_q - 1) // n * n == first]
    return first, f", the last block of {' or '.join(blocks)}" if blocks else ""


def _rows_unwritten(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The rows from some one on, if all their observed outputs are 0; or NaN, from a block on.

    Rows are NaN for other reasons too, but those do not begin where a block does.
    """
    if not evidence.has_all(setup, OUTPUT):
        return
    observed, rows = evidence.observed[OUTPUT], np.arange(n_q := setup.shape[2])
    for words, mark, unwritten in (("0", ZEROS, observed == 0), ("NaN", NANS, np.isnan(observed))):
        first, block = _first_of(setup, np.all(unwritten, axis=(0, 1, 3)))
        is_finite = np.isfinite(evidence.expected[OUTPUT][:, :, first:]).all()
        if 0 < first < n_q and (block or mark == ZEROS) and is_finite:
            detail = f"the observed numbers are {words} in rows {first + 1} to {n_q}{block}"
            yield setup.computing({2: np.where(rows < first, rows, mark)}).with_detail(detail)


def _rows_of_garbage(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The rows from a block on, if no weights make their numbers of the values.

    Weights that sum to at most 1 give numbers between the smallest and the largest value, and 0.
    """
    if not evidence.has_all(setup, OUTPUT) or setup.how.dropout or setup.positions is not None:
        return
    observed, expected = evidence.observed[OUTPUT], evidence.expected[OUTPUT]
    v = setup.inputs["v"][:, setup.key_heads]
    low = np.minimum(v.min(axis=2, keepdims=True), 0)
    high = np.maximum(v.max(axis=2, keepdims=True), 0)
    margin = OUTSIDE * (high - low)
    outside = (observed < low - margin) | (observed > high + margin)
    first, block = _first_of(setup, outside.any(axis=(0, 1, 3)))
    if first and block:
        rows = np.arange(setup.shape[2])[:, None] >= first
        words = f"rows {first + 1} to {setup.shape[2]}{block}"
        right = setup.with_relayout(lambda x: np.where(rows, expected, x), OUTPUT)
        yield right.with_detail(f"no weights give the numbers in {words}")


OUTSIDE = 0.05
"""So far beyond the range of the values no rounding takes an output."""


def _heads_unwritten(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The heads of which all observed outputs are 0."""
    if evidence.has_all(setup, OUTPUT):
        heads, written = np.arange(setup.shape[1]), evidence.observed[OUTPUT].any(axis=(0, 2, 3))
        if written.any() and not written.all():
            names = ", ".join(str(head + 1) for head in heads[~written])
            unwritten = setup.computing({1: np.where(written, heads, ZEROS)})
            yield unwritten.with_detail(f"the observed numbers are 0 in head {names}")


# ---- dropout of another seed


def _redrawn(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """With the numbers of another seed: the next ones, and the first few."""
    how, other = setup.how, "kept[b,h,i,j] => again_kept[b,h,i,j]"
    for seed in dict.fromkeys((how.seed + 1, *range(4))) if how.dropout else ():
        if seed != how.seed:
            drawn = {"again.kept": draw_kept(setup.shape, how.dropout, seed)}
            line = f"either delta; again.dropped: {other}; dropped.x: {other} -- seed {seed}"
            yield from changed([line], setup.with_inputs(**drawn), evidence)


LOCATED: Mapping[str, Change] = {
    "two heads exchanged": partial(_two_exchanged, HEAD),
    "two batch items exchanged": partial(_two_exchanged, BATCH),
    "a head not written": _heads_unwritten,
    "last rows not written": _rows_unwritten,
    "last rows hold garbage": _rows_of_garbage,
    "one block of keys lost": _block_lost,
    "dropout drawn again in the backward pass": _redrawn,
}
