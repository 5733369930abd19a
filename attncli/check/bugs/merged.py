"""Bugs of blocks of keys that are merged: the running maximum, shares and log-sum-exps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional
from attncli.check.bugs.bug import Bug, Evidence, bug
from attncli.check.bugs.kernels import BLOCKS, SOFTMAX, has_plain_softmax
from attncli.check.setup import Setup
from attncli.stages import LSE

SPLITS = 2, 4, 8
"""Into how many parts of the keys kernels for decoding split their work."""

Merge = Callable[..., Array]


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
    if not has_plain_softmax(setup):
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


def _merged(
    setup: Setup, evidence: Evidence, *merges: tuple[str, Merge, Merge | None]
) -> Iterator[Setup]:
    """The blocks of a kernel and the parts of a split, merged in each of these forms.

    A split has parts of one size, the last of them smaller, or of sizes that differ by one; or
    those that are named. Each form is words, the weights that it makes, and the log-sum-exp.
    """
    n_k = setup.shape[3]
    if not has_plain_softmax(setup):
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


MERGED: tuple[Bug, ...] = (
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
