"""Bugs of fused kernels, which compute block by block: lost, counted twice, merged or kept wrongly.

All but unwritten rows are other weights: those by which the kernel has in effect summed the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.kernels import log_sum_exp, softmax
from attncli.attention.parts import by_sum
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.patch import Function, Patch
from attncli.check.bugs.words import Variants, only_if
from attncli.check.run import Subset, stages
from attncli.check.setup import NANS, ZEROS, Setup
from attncli.stages import LSE, OUTPUT, TILE, WEIGHTS

BLOCKS = 16, 32, 64, 128
"""The sizes of blocks in which kernels compute."""

SPLITS = 2, 4, 8
"""Into how many parts of the keys kernels for decoding split their work."""


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


def _is_plain(setup: Setup) -> bool:
    return "sinks" not in setup.inputs and setup.how.softmax_over == "keys"


# ---- keys that are lost, or that are none


def without_keys(setup: Setup, lost: slice, detail: str = "") -> Patch:
    """No query sees these keys, wherever the masks allow them."""
    kept = np.ones(setup.shape[3], dtype=bool)
    kept[lost] = False

    def weights(right: Function, x: Array, axis: int, allowed: Array | None = None) -> Array:
        every = np.broadcast_to(kept, x.shape) if allowed is None else allowed & kept
        return np.asarray(right(x=np.where(kept, x, -np.inf), allowed=every))

    sums = {LSE: lambda right, x: right(x=np.where(kept, x, -np.inf))}
    over_keys = setup.how.softmax_over == "keys"
    return Patch({WEIGHTS: weights, **(sums if over_keys else {})}, detail)


def zero_keys(right: Function, x: Array, sinks: Array | None = None, *, n: int) -> Array:
    """Softmax, or its log-sum-exp, in whose sum n more keys take part, with a score of 0."""
    none = np.full(x.shape[-3] if x.ndim > 2 else 1, -np.inf)
    zeros = np.logaddexp(none if sinks is None else sinks, math.log(n))
    return np.asarray(right(sinks=zeros.astype(x.dtype)))


def _zero_keys(setup: Setup, _: Evidence) -> Iterator[Patch]:
    """As many zero keys as fill the last block, for each number that some size of block gives."""
    for n, blocks in paddings(setup.shape[3], (8, *BLOCKS, 256)):
        words = f"{n} of them, as blocks of {blocks} keys have"
        yield Patch(dict.fromkeys((WEIGHTS, LSE), partial(zero_keys, n=n)), words)


def _last_skipped(setup: Setup, _: Evidence) -> Iterator[Patch]:
    n_k = setup.shape[3]
    for start, blocks in last_blocks(n_k):
        words = f"keys {start + 1} to {n_k}, the last of {blocks}"
        yield without_keys(setup, slice(start, None), words)


def _block_lost(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """The block without which some rows come nearest to what was observed."""
    over = evidence.over(setup, OUTPUT)
    if over is None or not _is_plain(setup) or setup.whole_axes:
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
        yield without_keys(setup, slice(start, start + block), words)


# ---- rows and heads that are not written


def _first_of(setup: Setup, wrong: Array) -> tuple[int, str]:
    """From which row on all rows are wrong (n_q: none), and the block that begins there, if any."""
    n_q, at = setup.shape[2], np.flatnonzero(~wrong)
    first = int(at[-1]) + 1 if at.size else n_q
    blocks = [str(n) for n in BLOCKS if (n_q - 1) // n * n == first]
    return first, f", the last block of {' or '.join(blocks)}" if blocks else ""


def _rows_unwritten(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
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
            yield Patch(instead={2: np.where(rows < first, rows, mark)}, detail=detail)


def _rows_of_garbage(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
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
        right = {OUTPUT: lambda x: np.where(rows, expected, x)}
        yield Patch(relayout=right, detail=f"no weights give the numbers in {words}")


OUTSIDE = 0.05
"""So far beyond the range of the values no rounding takes an output."""


def _heads_unwritten(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """The heads of which all observed outputs are 0."""
    if evidence.has_all(setup, OUTPUT):
        heads, written = np.arange(setup.shape[1]), evidence.observed[OUTPUT].any(axis=(0, 2, 3))
        if written.any() and not written.all():
            names = ", ".join(str(head + 1) for head in heads[~written])
            at = {1: np.where(written, heads, ZEROS)}
            yield Patch(instead=at, detail=f"the observed numbers are 0 in head {names}")


# ---- parts of the keys, each with a softmax of its own, and how they are merged


class _Parts(NamedTuple):
    """Scores cut into parts of the keys.

    powers  […, n_k]: exp(score − the largest of its part)
    tops    […, part]: the largest score of each
    sums    […, part]: the sum of the powers of each
    counts  [part]: how many keys it has
    """

    powers: Array
    tops: Array
    sums: Array
    counts: Array

    @classmethod
    def of(cls, x: Array, starts: Sequence[int]) -> _Parts:
        counts = np.diff(starts, append=x.shape[-1])
        tops = np.maximum.reduceat(x, starts, axis=-1)
        powers = _powers(x, np.repeat(tops, counts, axis=-1))
        return cls(powers, tops, np.add.reduceat(powers, starts, axis=-1), counts)

    @property
    def lse(self) -> Array:
        """[…, part]: the log-sum-exp of each part, −∞ of one without a key."""
        with np.errstate(divide="ignore"):
            return np.where(np.isneginf(self.tops), -np.inf, self.tops + np.log(self.sums))

    def weights(self, shares: Array) -> Array:
        """[…, n_k]: the weights where each part has this share."""
        each = shares / np.where(self.sums == 0, 1, self.sums)
        return np.asarray(self.powers * np.repeat(each, self.counts, axis=-1))


def _powers(x: Array, top: Array) -> Array:
    """exp(x − top), 0 where both are −inf."""
    return np.asarray(np.exp(x - np.where(np.isneginf(top), 0, top)))


def not_rescaled(x: Array, block: int, what: str) -> Array:
    """Weights by a running maximum, of which the sum, the output or both keep their old scale."""
    parts = _Parts.of(x, range(0, x.shape[-1], block))
    running = np.repeat(np.maximum.accumulate(parts.tops, axis=-1), parts.counts, axis=-1)
    old, right = _powers(x, running), _powers(x, running[..., -1:])
    total = (right if what == "the output" else old).sum(axis=-1, keepdims=True)
    return np.asarray((right if what == "the sum" else old) / np.where(total == 0, 1, total))


def _unscaled_sums(setup: Setup, _: Evidence) -> Iterator[Patch]:
    for block in (1, *BLOCKS) if _is_plain(setup) else ():
        for what in ("the sum", "the output", "the sum and the output"):
            if block < setup.shape[3]:
                own = f"in blocks of {block} keys" if block > 1 else "key by key"
                function = lambda x, n=block, what=what: not_rescaled(x, n, what)  # noqa: E731
                yield Patch({WEIGHTS: function}, f"{what}, {own}")


def averaged(parts: _Parts, *, empty_too: bool) -> Array:
    """The mean of the softmaxes over each part of the keys."""
    n = len(parts.counts) if empty_too else np.maximum((parts.sums > 0).sum(axis=-1), 1)[..., None]
    return parts.weights(np.ones_like(parts.sums) / n)


def by_powers(parts: _Parts, *, factor: float) -> Array:
    """Softmaxes over parts of the keys, merged by exp(factor · log-sum-exp)."""
    return parts.weights(np.nan_to_num(softmax(parts.lse * parts.lse.dtype.type(factor))))


def added(parts: _Parts) -> Array:
    """Softmaxes over parts, each times exp(its log-sum-exp − the sum of all of them)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return parts.weights(np.exp(parts.lse - parts.lse.sum(axis=-1, keepdims=True)))


def unguarded(parts: _Parts) -> Array:
    """The right weights, but NaN in a row with a part that has no key: 0 · (0 / 0)."""
    has_none = (parts.sums == 0).any(axis=-1, keepdims=True)
    return np.where(has_none, np.nan, by_powers(parts, factor=1.0))


Merge = Callable[[_Parts], Array]


def _merged(
    merge: Merge, setup: Setup, evidence: Evidence, *, lse: Merge | None = None, detail: str = ""
) -> Iterator[Patch]:
    """The blocks of a kernel and the parts of a split, merged so; and the log-sum-exp of that.

    A split has parts of one size, or of sizes that differ by one; or those that are named.
    """
    n_k, cuts = setup.shape[3], dict[tuple[int, ...], str]()
    if setup.split:
        cuts[0, *setup.split] = f"parts cut after key {', '.join(map(str, setup.split))}"
    for n in (n for n in SPLITS if n < n_k and not setup.split):
        even = np.cumsum([0, *map(len, np.array_split(np.arange(n_k), n))])[:-1]
        cuts[tuple(range(0, n_k, -(-n_k // n)))] = f"{n} parts of the keys"
        cuts.setdefault(tuple(even.tolist()), f"{n} parts of the keys, as even as can be")
    for n in (n for n in BLOCKS if n < n_k and not setup.split):
        cuts[tuple(range(0, n_k, n))] = f"blocks of {n} keys"
    for at, words in cuts.items() if _is_plain(setup) else ():
        weights = {WEIGHTS: lambda x, at=at: merge(_Parts.of(x, at))}
        yield Patch(weights, f"{words}{detail}")
        if lse is not None and LSE in evidence.expected:
            sums = {LSE: lambda x, at=at: lse(_Parts.of(x, at))}
            yield Patch({**weights, **sums}, f"{words}{detail}")


def _base(factor: float, words: str) -> Variants:
    def lse(parts: _Parts) -> Array:
        return log_sum_exp(parts.lse * parts.lse.dtype.type(factor))

    return partial(_merged, partial(by_powers, factor=factor), lse=lse, detail=words)


# ---- the log-sum-exp that is kept of each row, and the walk through tiles


def _in_blocks(merge: Callable[[list[Array]], Array], setup: Setup, _: Evidence) -> Iterator[Patch]:
    """The log-sum-exps of blocks of keys, merged so."""
    n_k = setup.shape[3]
    for n in (n for n in dict.fromkeys((-(-n_k // 2), *BLOCKS)) if n < n_k):

        def sums(right: Function, x: Array, allowed: Array | None = None, n: int = n) -> Array:
            each = []
            for at in (slice(start, start + n) for start in range(0, n_k, n)):
                some = allowed if allowed is None or allowed.shape[-1] == 1 else allowed[..., at]
                each.append(right(x=x[..., at], allowed=some))
            return merge(each)

        yield Patch({LSE: sums}, f"blocks of {n} keys")


def _less_largest(right: Function, x: Array) -> Array:
    top = x.max(axis=-1)
    return np.asarray(right() - np.where(np.isneginf(top), 0, top))


def _of_powers_of_two(right: Function, x: Array, sinks: Array | None = None) -> Array:
    two = np.log(2).astype(x.dtype)
    return np.asarray(right(x=x * two, sinks=None if sinks is None else sinks * two))


def _ones(x: Array | None) -> Array | None:
    return None if x is None else np.ones_like(x)


def _padding_attended(setup: Setup, _: Evidence) -> Iterator[Patch]:
    n = setup.tiles and -setup.shape[3] % setup.tiles
    last = setup.tiles and f"{TILE}.{-(-setup.shape[3] // setup.tiles)}."
    steps: dict[Any, Function] = {
        f"{last}m": lambda right: np.maximum(right(), 0),
        f"{last}l": lambda right, m: right() + n * np.exp(-m),
    }
    if n:
        yield Patch(steps, f"{n} of them, in the last tile of {setup.tiles} keys")


KERNEL_BUGS: dict[str, Variants] = {
    "zero keys of the last block counted": _zero_keys,
    "last block of keys skipped": _last_skipped,
    "a head not written": _heads_unwritten,
    "last rows not written": _rows_unwritten,
    "last rows hold garbage": _rows_of_garbage,
    "one block of keys lost": _block_lost,
    "sum not rescaled when the maximum grows": _unscaled_sums,
    "blocks averaged without their log-sum-exp": (
        partial(_merged, partial(averaged, empty_too=True)),
        only_if(
            Setup.may_mask,
            partial(
                _merged, partial(averaged, empty_too=False), detail=", those without a key left out"
            ),
        ),
    ),
    "blocks merged in the wrong base": (
        _base(math.log(2), ": 2 to the power of a natural logarithm"),
        _base(1 / math.log(2), ": e to the power of a logarithm of 2"),
    ),
    "part without a key not guarded": only_if(  # else any rows of NaN could be it
        lambda setup: setup.may_mask() and setup.split, partial(_merged, unguarded)
    ),
    "log-sum-exps of parts added": partial(
        _merged, added, lse=lambda parts: parts.lse.sum(axis=-1)
    ),
    "lse is the largest score": {LSE: lambda x: x.max(axis=-1)},
    "maximum left out of lse": {LSE: _less_largest},
    "logarithm left out of lse": {LSE: lambda right: np.exp(right())},
    "lse of powers of 2": {LSE: _of_powers_of_two},
    "lse added": partial(_in_blocks, lambda each: np.asarray(sum(each))),
    "lse of the last block alone": partial(_in_blocks, lambda each: each[-1]),
    "sinks left out of lse": {LSE: lambda right, sinks: right(sinks=None)},
    "mask left out of lse": {LSE: lambda right, unmasked: right(x=unmasked, allowed=None)},
    "m is the tile's own maximum": {
        "m": lambda right, x, before=None: right() if before is None else x.max(axis=-1)
    },
    "l not rescaled": {"l": lambda right, before=None: right(alpha=_ones(before))},
    "acc not rescaled": {"acc": lambda right, alpha=None: right(alpha=_ones(alpha))},
    "acc normalised in every tile": {"acc": lambda right, l: by_sum(right(), l)},  # noqa: E741
    "padding of the last tile attended": _padding_attended,
}
