"""Bugs of fused kernels, which compute block by block: blocks lost or counted twice.

All but unwritten rows are other weights: those by which the kernel has in effect summed the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional
from attncli.check.bugs.bug import Bug, Evidence, bug
from attncli.check.run import Subset, stages
from attncli.check.setup import NANS, ZEROS, Setup
from attncli.stages import OUTPUT, WEIGHTS

BLOCKS = 16, 32, 64, 128
"""The sizes of blocks in which kernels compute."""


def last_blocks(n: int, sizes: Sequence[int] = BLOCKS) -> Iterator[tuple[int, str]]:
    """Where the last block of n begins, if it is not the only one, and for which sizes.

    >>> [*last_blocks(40)]
    [(32, '16 or 32')]
    """
    return _alike({size: (n - 1) // size * size for size in sizes})


def paddings(n: int, sizes: Sequence[int] = BLOCKS) -> Iterator[tuple[int, str]]:
    """How many are missing until the last block of n is full, and for which sizes.

    >>> [*paddings(40)]
    [(8, '16'), (24, '32 or 64'), (88, '128')]
    """
    return _alike({size: -n % size for size in sizes})


def _alike(numbers: Mapping[int, int]) -> Iterator[tuple[int, str]]:
    """The numbers but 0, and the sizes that come to each."""
    for number in dict.fromkeys(numbers.values()):
        if number:
            yield number, " or ".join(str(size) for size, x in numbers.items() if x == number)


SOFTMAX = "softmax mask-arithmetic sinks"
"""What other weights touch: bugs that change the function of the same step."""


def has_plain_softmax(setup: Setup) -> bool:
    return "sinks" not in setup.inputs and setup.how.softmax_over == "keys"


def of_some_keys(x: Array, allowed: Array | None = None, *, kept: Array, **how: Any) -> Array:
    """Softmax over the keys that are kept alone.

    >>> of_some_keys(np.zeros((1, 3)), kept=np.array([True, False, True]))
    array([[0.5, 0. , 0.5]])
    """
    every = np.broadcast_to(kept, x.shape) if allowed is None else allowed & kept
    return functional.softmax(np.where(kept, x, -np.inf), every, **how)


def sum_of_some_keys(x: Array, allowed: Array | None = None, *, kept: Array, **how: Any) -> Array:
    """The log-sum-exp over the keys that are kept alone."""
    return functional.log_sum_exp(np.where(kept, x, -np.inf), allowed, **how)


def without_keys(setup: Setup, lost: slice) -> Setup:
    """The setup in which no query sees these keys, wherever the masks allow them."""
    kept = np.ones(setup.shape[3], dtype=bool)
    kept[lost] = False
    sums = partial(sum_of_some_keys, kept=kept)
    return setup.with_steps(weights=partial(of_some_keys, kept=kept), lse=sums)


# ---- the last block


def with_zero_keys(x: Array, allowed: Array | None = None, *, n: int, **how: Any) -> Array:
    """Softmax in whose sum n more keys take part, with a score and a value of 0.

    >>> with_zero_keys(np.zeros((1, 2)), n=2)
    array([[0.25, 0.25]])
    """
    sinks = _zeros_as_sinks(x, n, how.pop("sinks", None))
    return functional.softmax(x, allowed, sinks=sinks, **how)


def sum_with_zero_keys(x: Array, allowed: Array | None = None, *, n: int, **how: Any) -> Array:
    """The log-sum-exp of the same scores."""
    sinks = _zeros_as_sinks(x, n, how.pop("sinks", None))
    return functional.log_sum_exp(x, allowed, sinks=sinks, **how)


def _zeros_as_sinks(x: Array, n: int, sinks: Array | None) -> Array:
    """A sink of each head that adds as much to the sum as n keys with a score of 0."""
    zeros, n_heads = math.log(n), x.shape[-3] if x.ndim > 2 else 1
    found = np.full(n_heads, zeros) if sinks is None else np.logaddexp(sinks, zeros)
    return np.asarray(found.astype(x.dtype))


def _zero_keys(setup: Setup, _: Evidence) -> Iterator[Setup]:
    """As many zero keys as fill the last block, for each number that some size of block gives."""
    if setup.how.softmax_over != "keys":
        return
    for n, blocks in paddings(setup.shape[3], (8, *BLOCKS, 256)):
        sums = partial(sum_with_zero_keys, n=n)
        counted = setup.with_steps(weights=partial(with_zero_keys, n=n), lse=sums)
        yield counted.with_detail(f"{n} of them, as blocks of {blocks} keys have")


def _last_skipped(setup: Setup, _: Evidence) -> Iterator[Setup]:
    n_k = setup.shape[3]
    for start, blocks in last_blocks(n_k):
        words = f"keys {start + 1} to {n_k}, the last of {blocks}"
        yield without_keys(setup, slice(start, None)).with_detail(words)


def _rows_unwritten(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The rows from some one on, if all their observed outputs are 0; or NaN, from a block on.

    Rows are NaN for other reasons too, but those do not begin where a block does.
    """
    if not evidence.has_all(setup, OUTPUT):
        return
    observed, n_q = evidence.observed[OUTPUT], setup.shape[2]
    for words, mark, unwritten in (("0", ZEROS, observed == 0), ("NaN", NANS, np.isnan(observed))):
        at = np.flatnonzero(~unwritten.all(axis=(0, 1, 3)))
        first = int(at[-1]) + 1 if at.size else n_q
        blocks = [block for block in BLOCKS if (n_q - 1) // block * block == first]
        if not 0 < first < n_q or (mark == NANS and not blocks):
            continue
        if np.isfinite(evidence.expected[OUTPUT][:, :, first:]).all():
            rows = np.where(np.arange(n_q) < first, np.arange(n_q), mark)
            detail = f"the observed numbers are {words} in rows {first + 1} to {n_q}"
            if blocks:
                detail += f", the last block of {' or '.join(map(str, blocks))}"
            yield setup.with_instead(2, rows).with_detail(detail)


def _rows_of_garbage(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The rows from a block on, if no weights make their numbers of the values.

    Weights that sum to at most 1 give numbers between the smallest and the largest value, and 0.
    """
    if not evidence.has_all(setup, OUTPUT) or setup.how.dropout or setup.positions is not None:
        return
    observed, n_q = evidence.observed[OUTPUT], setup.shape[2]
    v = setup.inputs["v"][:, setup.key_heads]
    low = np.minimum(v.min(axis=2, keepdims=True), 0)
    high = np.maximum(v.max(axis=2, keepdims=True), 0)
    margin = OUTSIDE * (high - low)
    outside = ((observed < low - margin) | (observed > high + margin)).any(axis=(0, 1, 3))
    at = np.flatnonzero(~outside)
    first = int(at[-1]) + 1 if at.size else n_q
    blocks = [block for block in BLOCKS if (n_q - 1) // block * block == first]
    if 0 < first < n_q and blocks:
        rows = np.arange(n_q)[:, None] >= first
        right = setup.with_relayout(partial(_with_rows, rows=rows, of=evidence.expected), OUTPUT)
        words = f"rows {first + 1} to {n_q}, the last block of {' or '.join(map(str, blocks))}"
        yield right.with_detail(f"no weights give the numbers in {words}")


OUTSIDE = 0.05
"""So far beyond the range of the values no rounding takes an output."""


def _with_rows(x: Array, rows: Array, of: Mapping[str, Array]) -> Array:
    return np.where(rows, of[OUTPUT], x)


def _heads_unwritten(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The heads of which all observed outputs are 0."""
    if not evidence.has_all(setup, OUTPUT):
        return
    heads, is_written = np.arange(setup.shape[1]), evidence.observed[OUTPUT].any(axis=(0, 2, 3))
    if is_written.any() and not is_written.all():
        names = ", ".join(str(head + 1) for head in heads[~is_written])
        left = setup.with_instead(1, np.where(is_written, heads, ZEROS))
        yield left.with_detail(f"the observed numbers are 0 in head {names}")


# ---- one of the other blocks


def _block_lost(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The block without which some rows come nearest to what was observed."""
    over = evidence.over(setup, OUTPUT)
    if over is None or not has_plain_softmax(setup) or setup.whole_axes:
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
    found = []
    for block in BLOCKS:
        starts = np.arange(0, len(weights), block)[:-1]
        if not starts.size:
            continue
        lost = np.add.reduceat(weights, [*starts, starts[-1] + block])[:-1]
        terms = np.add.reduceat(weights[:, None] * v, [*starts, starts[-1] + block], axis=0)[:-1]
        left = np.maximum(1 - lost, 1e-30)[:, None]
        apart = (expected[b, h, row] - terms) / left - observed[b, h, row]
        one = int(np.argmin(np.square(apart).sum(axis=-1)))
        found.append((float(np.square(apart[one]).sum()), block, int(starts[one])))
    for _, block, start in sorted(found)[:2]:
        words = f"keys {start + 1} to {start + block}, a block of {block}"
        yield without_keys(setup, slice(start, start + block)).with_detail(words)


KERNELS: tuple[Bug, ...] = (
    bug(
        "zero keys of the last block counted",
        _zero_keys,
        SOFTMAX,
        "the keys are filled up to whole blocks with zeros, whose scores of 0 join the softmax",
        "jax#27224, flashinfer#5090",
        pairs=False,
    ),
    bug(
        "last block of keys skipped",
        _last_skipped,
        SOFTMAX,
        "the loop over blocks of keys ends one too early",
        pairs=False,
    ),
    bug(
        "a head not written",
        _heads_unwritten,
        "outputs",
        "the output of a head stays as it was allocated",
        pairs=False,
    ),
    bug(
        "last rows not written",
        _rows_unwritten,
        "outputs NaN",
        "the output of the last block of queries stays as it was allocated",
        pairs=False,
    ),
    bug(
        "last rows hold garbage",
        _rows_of_garbage,
        "outputs",
        "the output of the last block of queries is not an output, such as what the memory held",
        is_fitted=True,
    ),
    bug(
        "one block of keys lost",
        _block_lost,
        SOFTMAX,
        "a block of keys does not take part, as if it were masked",
        is_fitted=True,
    ),
)
