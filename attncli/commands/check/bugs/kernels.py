"""Bugs of kernels: parts of the keys merged wrongly, a block lost, rows or heads not written.

Weights are those by which a kernel has in effect summed the values. Where errors show a place it is
read off them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Change, Evidence
from attncli.commands.check.bugs.edits import changed
from attncli.commands.check.bugs.patch import Function, patched
from attncli.commands.check.bugs.terms import BLOCKS, LOOPS, blocks_from
from attncli.formula.kernels import draw_kept, log_sum_exp, softmax
from attncli.stages import LSE, OUTPUT, WEIGHTS
from attncli.tolerance.run import Indices, Subset, stages
from attncli.tolerance.setup import NANS, ZEROS, Setup

# ---- parts of the keys, each with a softmax of its own

SPLITS = 2, 4, 8
"""Into how many parts of the keys kernels for decoding split their work."""


def is_plain(setup: Setup) -> bool:
    """Whether nothing but the keys of a row takes part in its softmax."""
    return "sinks" not in setup.inputs and setup.convention.softmax_over == "keys"


class Parts(NamedTuple):
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
    def of(cls, x: Array, starts: Sequence[int]) -> Parts:
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


def not_rescaled(x: Array, block: int, quantity: str) -> Array:
    """Weights by a running maximum, of which the sum, the output or both keep their old scale."""
    parts = Parts.of(x, range(0, x.shape[-1], block))
    running = np.repeat(np.maximum.accumulate(parts.tops, axis=-1), parts.counts, axis=-1)
    old, right = _powers(x, running), _powers(x, running[..., -1:])
    total = (right if quantity == "the output" else old).sum(axis=-1, keepdims=True)
    return np.asarray((right if quantity == "the sum" else old) / np.where(total == 0, 1, total))


FEW = 64
"""Of so few keys blocks may be small, as in an example."""


def _unscaled_sums(setup: Setup, _: Evidence) -> Iterator[Setup]:
    n_k = setup.shape[3]
    for block in LOOPS if n_k <= FEW else (1, *BLOCKS):
        for quantity in ("the sum", "the output", "the sum and the output"):
            if block < n_k and is_plain(setup):
                loop = f"in blocks of {block} keys" if block > 1 else "key by key"
                function = lambda x, n=block, quantity=quantity: not_rescaled(x, n, quantity)  # noqa: E731
                yield from _with(setup, {WEIGHTS: function}, f"{quantity}, {loop}")


def _with(setup: Setup, steps: Mapping[str, Function], detail: str) -> Iterator[Setup]:
    """The setup with functions for steps, if it has these."""
    if (other := patched(setup, steps)) is not None:
        yield other.with_detail(detail)


def averaged(parts: Parts, *, empty_too: bool) -> Array:
    """The mean of the softmaxes over each part of the keys."""
    n = len(parts.counts) if empty_too else np.maximum((parts.sums > 0).sum(axis=-1), 1)[..., None]
    return parts.weights(np.ones_like(parts.sums) / n)


def by_powers(parts: Parts, *, factor: float) -> Array:
    """Softmaxes over parts of the keys, merged by exp(factor · log-sum-exp)."""
    return parts.weights(np.nan_to_num(softmax(parts.lse * parts.lse.dtype.type(factor))))


def added(parts: Parts) -> Array:
    """Softmaxes over parts, each times exp(its log-sum-exp − the sum of all of them)."""
    with np.errstate(invalid="ignore", over="ignore"):
        return parts.weights(np.exp(parts.lse - parts.lse.sum(axis=-1, keepdims=True)))


def unguarded(parts: Parts) -> Array:
    """The right weights, but NaN in a row with a part that has no key: 0 · (0 / 0)."""
    has_none = (parts.sums == 0).any(axis=-1, keepdims=True)
    return np.where(has_none, np.nan, by_powers(parts, factor=1.0))


Merge = Callable[[Parts], Array]


def _merged(
    merge: Merge,
    setup: Setup,
    evidence: Evidence,
    *,
    lse: Merge | None = None,
    detail: str = "",
    may_be_empty: bool = False,
) -> Iterator[Setup]:
    """The blocks of a kernel and the parts of a split, merged so; and the log-sum-exp of that.

    A split has parts of one size, or of sizes that differ by one; or those that are named.
    """
    n_k, cuts = setup.shape[3], dict[tuple[int, ...], str]()
    if not is_plain(setup) or (may_be_empty and not setup.may_mask()):
        return
    if setup.split:
        cuts[0, *setup.split] = f"parts cut after key {', '.join(map(str, setup.split))}"
    for n in (n for n in SPLITS if n < n_k and not setup.split):
        even = np.cumsum([0, *map(len, np.array_split(np.arange(n_k), n))])[:-1]
        cuts[tuple(range(0, n_k, -(-n_k // n)))] = f"{n} parts of the keys"
        cuts.setdefault(tuple(even.tolist()), f"{n} parts of the keys, as even as can be")
    for n in (n for n in BLOCKS if n < n_k and not setup.split):
        cuts[tuple(range(0, n_k, n))] = f"blocks of {n} keys"
    for at, words in cuts.items():
        weights = {WEIGHTS: lambda x, at=at: merge(Parts.of(x, at))}
        yield from _with(setup, weights, f"{words}{detail}")
        if lse is not None and LSE in evidence.expected:
            sums = {LSE: lambda x, at=at: lse(Parts.of(x, at))}
            yield from _with(setup, weights | sums, f"{words}{detail}")


def _averaged(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    without = partial(averaged, empty_too=False)
    words = ", those without a key left out"
    yield from _merged(partial(averaged, empty_too=True), setup, evidence)
    yield from _merged(without, setup, evidence, detail=words, may_be_empty=True)


def _in_another_base(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    for factor, words in (
        (math.log(2), ": 2 to the power of a natural logarithm"),
        (1 / math.log(2), ": e to the power of a logarithm of 2"),
    ):

        def lse(parts: Parts, factor: float = factor) -> Array:
            return log_sum_exp(parts.lse * parts.lse.dtype.type(factor))

        merge = partial(by_powers, factor=factor)
        yield from _merged(merge, setup, evidence, lse=lse, detail=words)


def _unguarded(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Of a split that is known alone: else any rows of NaN could be it."""
    if setup.split:
        yield from _merged(unguarded, setup, evidence, may_be_empty=True)


# ---- two batch items or heads exchanged

BATCH, HEAD = 0, 1
KINDS = {BATCH: "batch items", HEAD: "heads"}


def _two_exchanged(axis: int, setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The two batch items or heads with the largest errors, or all neighbours, exchanged."""
    over = next((evidence.over(setup, stage) for stage in evidence.observed), None)
    if over is None:
        return
    errors: Array = np.zeros(1)  # mean squares, relative to those of the numbers
    others = tuple(i for i in range(4) if i != axis)
    for observed, expected, _ in map(evidence.few, evidence.observed):
        is_finite = np.isfinite(observed) & np.isfinite(expected)
        apart = np.where(is_finite, observed - expected, 0.0)
        size = np.mean(np.square(np.where(is_finite, expected, 0.0)), axis=others) + 1e-300
        errors = errors + np.mean(apart * apart, axis=others) / size
    worst = over[axis][np.argsort(-errors, kind="stable")]
    for words, swap in _swaps(axis, setup.shape[axis], worst):
        yield setup.computing({axis: swap}).with_detail(f"the outputs of {words}")
    by_key = setup.key_heads[worst] if axis == HEAD else worst
    for words, swap in _swaps(axis, setup.inputs["k"].shape[axis], by_key):
        for names in ("kv", "k", "v"):
            arrays = {name: np.take(setup.inputs[name], swap, axis) for name in names}
            detail = f"{' and '.join(names.upper())} of {words}"
            yield setup.with_inputs(**arrays).with_detail(detail)


def _swaps(axis: int, n: int, worst: Indices) -> Iterator[tuple[str, Indices]]:
    """The indices 0 to n − 1 with the first two of `worst` exchanged, or each two neighbours."""
    first = list(dict.fromkeys(worst.tolist()))[:2]
    if len(first) == 2:
        swap = np.arange(n)
        swap[first] = swap[first[::-1]]
        index, other = sorted(first)
        yield f"{KINDS[axis]} {index + 1} and {other + 1}", swap
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
        rest = np.maximum(1 - lost, 1e-30)[:, None]
        apart = np.square((expected[b, h, row] - terms) / rest - observed[b, h, row]).sum(axis=-1)
        nearest = int(np.argmin(apart))
        candidates.append((float(apart[nearest]), block, int(starts[nearest])))
    for _, block, start in sorted(candidates)[:2]:
        words = f"keys {start + 1} to {start + block}, a block of {block}"
        line = f"weights, lse?: where => where j < {start} or j >= {start + block} -- {words}"
        yield from changed([line], setup, evidence)


# ---- rows and heads that are not written


def _first_of(setup: Setup, wrong: Array) -> tuple[int, str]:
    """From which row on all rows are wrong (n_q: none), and the block that begins there, if any."""
    n_q, at = setup.shape[2], np.flatnonzero(~wrong)
    first = int(at[-1]) + 1 if at.size else n_q
    blocks = " or ".join(map(str, blocks_from(first, n_q)))
    return first, f", the last block of {blocks}" if blocks else ""


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
    if (
        not evidence.has_all(setup, OUTPUT)
        or setup.convention.dropout
        or setup.positions is not None
    ):
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
    convention, other = setup.convention, "kept[b,h,i,j] => again_kept[b,h,i,j]"
    for seed in dict.fromkeys((convention.seed + 1, *range(4))) if convention.dropout else ():
        if seed != convention.seed:
            drawn = {"again.kept": draw_kept(setup.shape, convention.dropout, seed)}
            line = f"either delta; again.dropped: {other}; dropped.x: {other} -- seed {seed}"
            yield from changed([line], setup.with_inputs(**drawn), evidence)


KERNELS: Mapping[str, Change] = {
    "sum not rescaled when the maximum grows": _unscaled_sums,
    "blocks averaged without their log-sum-exp": _averaged,
    "blocks merged in the wrong base": _in_another_base,
    "part without a key not guarded": _unguarded,
    "log-sum-exps of parts added": partial(
        _merged, added, lse=lambda parts: parts.lse.sum(axis=-1)
    ),
    "two heads exchanged": partial(_two_exchanged, HEAD),
    "two batch items exchanged": partial(_two_exchanged, BATCH),
    "a head not written": _heads_unwritten,
    "last rows not written": _rows_unwritten,
    "last rows hold garbage": _rows_of_garbage,
    "one block of keys lost": _block_lost,
    "dropout drawn again in the backward pass": _redrawn,
}
