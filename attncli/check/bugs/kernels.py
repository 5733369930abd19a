"""Bugs of fused kernels, which compute block by block: blocks lost, counted twice, merged wrongly.

All but unwritten rows are other weights: those by which the kernel has in effect summed the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional
from attncli.check.bugs.bug import Bug, Evidence, bug
from attncli.check.run import Subset, stages
from attncli.check.setup import NANS, ZEROS, Setup
from attncli.stages import LSE, OUTPUT, WEIGHTS

BLOCKS = 16, 32, 64, 128
"""The sizes of blocks in which kernels compute."""

SPLITS = 2, 4, 8
"""Into how many parts of the keys kernels for decoding split their work."""

SOFTMAX = "softmax mask-arithmetic sinks"
"""What other weights touch: bugs that change the function of the same step."""


def _has_plain_softmax(setup: Setup) -> bool:
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
    sizes: dict[int, list[int]] = {}
    for block in (8, *BLOCKS, 256):
        sizes.setdefault(-setup.shape[3] % block, []).append(block)
    for n, blocks in sizes.items():
        if n:
            sums = partial(sum_with_zero_keys, n=n)
            counted = setup.with_steps(weights=partial(with_zero_keys, n=n), lse=sums)
            yield counted.with_detail(f"{n} of them, as {_listed(blocks)}")


def _listed(blocks: list[int]) -> str:
    return f"blocks of {' or '.join(map(str, blocks))} keys have"


def _last_skipped(setup: Setup, _: Evidence) -> Iterator[Setup]:
    n_k, sizes = setup.shape[3], dict[int, list[int]]()
    for block in BLOCKS:
        sizes.setdefault((n_k - 1) // block * block, []).append(block)
    for start, blocks in sizes.items():
        if start:
            words = f"keys {start + 1} to {n_k}, the last of {' or '.join(map(str, blocks))}"
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
    if over is None or not _has_plain_softmax(setup) or setup.whole_axes:
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


# ---- the running maximum, and blocks that are merged


def _powers(x: Array, top: Array) -> Array:
    """exp(x − top), 0 where both are −inf."""
    return np.asarray(np.exp(x - np.where(np.isneginf(top), 0, top)))


class _Parts(NamedTuple):
    """Scores cut into parts of the keys, each with a softmax of its own.

    powers  […, n_k]: exp(score − the largest of its part)
    tops    […, part]: the largest score of each
    sums    […, part]: the sum of the powers of each
    counts  [part]: how many keys it has
    """

    powers: Array
    tops: Array
    sums: Array
    counts: Array


def _in_parts(x: Array, starts: Sequence[int]) -> _Parts:
    counts = np.diff(starts, append=x.shape[-1])
    tops = np.maximum.reduceat(x, starts, axis=-1)
    powers = _powers(x, np.repeat(tops, counts, axis=-1))
    return _Parts(powers, tops, np.add.reduceat(powers, starts, axis=-1), counts)


def not_rescaled(
    x: Array, allowed: Array | None = None, *, block: int, what: str, **_: Any
) -> Array:
    """Weights by a running maximum, of which the sum, the output or both keep their old scale."""
    parts = _in_parts(x, range(0, x.shape[-1], block))
    running = np.repeat(np.maximum.accumulate(parts.tops, axis=-1), parts.counts, axis=-1)
    old = _powers(x, running)
    right = _powers(x, running[..., -1:])
    above = right if what == "the sum" else old
    total = (right if what == "the output" else old).sum(axis=-1, keepdims=True)
    return np.asarray(above / np.where(total == 0, 1, total))


def _unscaled_sums(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if not _has_plain_softmax(setup):
        return
    for block in (1, *BLOCKS):
        for what in ("the sum", "the output", "the sum and the output"):
            if block < setup.shape[3]:
                changed = setup.with_steps(weights=partial(not_rescaled, block=block, what=what))
                yield changed.with_detail(f"{what}, {_of_keys(block)}")


def _of_keys(block: int) -> str:
    return f"in blocks of {block} keys" if block > 1 else "key by key"


def averaged(
    x: Array, allowed: Array | None = None, *, starts: Sequence[int], empty_too: bool, **_: Any
) -> Array:
    """The mean of the softmaxes over each part of the keys."""
    powers, _tops, sums, counts = _in_parts(x, starts)
    n = np.full(sums.shape[:-1], len(starts)) if empty_too else (sums > 0).sum(axis=-1)
    each = np.where(sums == 0, 1, sums) * np.maximum(n, 1)[..., None].astype(x.dtype)
    return np.asarray(powers / np.repeat(each, counts, axis=-1))


def merged_by_powers(
    x: Array, allowed: Array | None = None, *, starts: Sequence[int], factor: float, **_: Any
) -> Array:
    """Softmaxes over parts of the keys, merged by exp(factor · log-sum-exp)."""
    parts = _in_parts(x, starts)
    shares = functional.softmax(_log_sums(parts) * x.dtype.type(factor))
    each = np.nan_to_num(shares) / np.where(parts.sums == 0, 1, parts.sums)
    return np.asarray(parts.powers * np.repeat(each, parts.counts, axis=-1))


def _log_sums(parts: _Parts) -> Array:
    """[…, part]: the log-sum-exp of each part, −∞ of one without a key."""
    with np.errstate(divide="ignore"):
        return np.where(np.isneginf(parts.tops), -np.inf, parts.tops + np.log(parts.sums))


def lse_by_powers(x: Array, *, starts: Sequence[int], factor: float, **_: Any) -> Array:
    """ln Σ exp(factor · log-sum-exp) over the parts."""
    return functional.log_sum_exp(_log_sums(_in_parts(x, starts)) * x.dtype.type(factor))


def merged_by_sum(
    x: Array, allowed: Array | None = None, *, starts: Sequence[int], **_: Any
) -> Array:
    """Softmaxes over parts of the keys, each times exp(its log-sum-exp − the sum of all of them).

    >>> merged_by_sum(np.zeros((1, 4)), starts=(0, 2))  # of two, ln 2 each: 1/2 · 2 / 4
    array([[0.25, 0.25, 0.25, 0.25]])
    """
    parts = _in_parts(x, starts)
    log_sums = _log_sums(parts)
    with np.errstate(invalid="ignore", over="ignore"):
        shares = np.exp(log_sums - log_sums.sum(axis=-1, keepdims=True))
        each = shares / np.where(parts.sums == 0, 1, parts.sums)
        return np.asarray(parts.powers * np.repeat(each, parts.counts, axis=-1))


def unguarded(x: Array, allowed: Array | None = None, *, starts: Sequence[int], **_: Any) -> Array:
    """The right weights, but NaN in a row with a part that has no key: 0 · (0 / 0).

    >>> unguarded(np.array([[0.0, 0, -np.inf], [0, 0, 0]]), starts=(0, 2))[:, 0].round(4)
    array([   nan, 0.3333])
    """
    right = merged_by_powers(x, starts=starts, factor=1.0)
    has_none = (_in_parts(x, starts).sums == 0).any(axis=-1, keepdims=True)
    return np.where(has_none, x.dtype.type(np.nan), right)


def lse_by_sum(x: Array, *, starts: Sequence[int], **_: Any) -> Array:
    """The sum of the log-sum-exps of the parts."""
    return np.asarray(_log_sums(_in_parts(x, starts)).sum(axis=-1))


Merge = Callable[..., Array]


def _merged(
    setup: Setup, evidence: Evidence, *merges: tuple[str, Merge, Merge | None]
) -> Iterator[Setup]:
    """The blocks of a kernel and the parts of a split, merged in each of these forms.

    A split has parts of one size, the last of them smaller, or of sizes that differ by one; or
    those that are named. Each form is words, the weights that it makes, and the log-sum-exp.
    """
    n_k = setup.shape[3]
    if not _has_plain_softmax(setup):
        return
    cuts: dict[tuple[int, ...], str] = {}
    if setup.split:
        cuts[0, *setup.split] = f"parts cut after key {', '.join(map(str, setup.split))}"
    for n in SPLITS if not setup.split else ():
        if n < n_k:
            even = np.cumsum([0, *(len(part) for part in np.array_split(np.arange(n_k), n))])[:-1]
            cuts[tuple(range(0, n_k, -(-n_k // n)))] = f"{n} parts of the keys"
            cuts.setdefault(tuple(even.tolist()), f"{n} parts of the keys, as even as can be")
    for block in BLOCKS if not setup.split else ():
        if block < n_k:
            cuts[tuple(range(0, n_k, block))] = f"blocks of {block} keys"
    for starts, words in cuts.items():
        for more, merge, of_lse in merges:
            changed = setup.with_steps(weights=partial(merge, starts=starts))
            yield changed.with_detail(f"{words}{more}")
            if of_lse is not None and LSE in evidence.expected:
                both = changed.with_steps(**{LSE: partial(of_lse, starts=starts)})
                yield both.with_detail(f"{words}{more}")


def _averaged(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    merges = [("", partial(averaged, empty_too=True), None)]
    if setup.may_mask():
        merges.append((", those without a key left out", partial(averaged, empty_too=False), None))
    yield from _merged(setup, evidence, *merges)


def _wrong_base(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    for words, factor in (
        (": 2 to the power of a natural logarithm", math.log(2)),
        (": e to the power of a logarithm of 2", 1 / math.log(2)),
    ):
        by_powers = partial(merged_by_powers, factor=factor)
        of_lse = partial(lse_by_powers, factor=factor)
        yield from _merged(setup, evidence, (words, by_powers, of_lse))


def _unguarded(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if setup.split and setup.may_mask():  # else any rows of NaN could be it
        yield from _merged(setup, evidence, ("", unguarded, None))


def _by_sum(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    yield from _merged(setup, evidence, ("", merged_by_sum, lse_by_sum))


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
    bug(
        "sum not rescaled when the maximum grows",
        _unscaled_sums,
        SOFTMAX,
        "the running sum or output is not multiplied by exp(old maximum − new maximum)",
        pairs=False,
    ),
    bug(
        "blocks averaged without their log-sum-exp",
        _averaged,
        SOFTMAX,
        "the outputs of parts of the keys are averaged evenly, not by the sums of their powers",
        pairs=False,
    ),
    bug(
        "blocks merged in the wrong base",
        _wrong_base,
        SOFTMAX,
        "the outputs of parts of the keys are weighted by 2^x where e^x is due, or the reverse",
        pairs=False,
    ),
    bug(
        "part without a key not guarded",
        _unguarded,
        f"{SOFTMAX} NaN",
        "a part in which a query attends to nothing has the output 0 / 0, and 0 · NaN is NaN",
        "flash-attention#978",
        pairs=False,
    ),
    bug(
        "log-sum-exps of parts added",
        _by_sum,
        SOFTMAX,
        "parts are merged by exp(lse of the part − the sum of all lse), not − log Σ exp of them",
        "ring-flash-attention#20",
        pairs=False,
    ),
)
