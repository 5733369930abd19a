"""Bugs of kernels that compute parts of the keys, each with a softmax of its own, and merge them.

The weights are those by which the kernel has in effect summed the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.kernels import log_sum_exp, softmax
from attncli.check.bugs.bug import Change, Evidence
from attncli.check.bugs.numbers import BLOCKS
from attncli.check.bugs.patch import Function, patched
from attncli.check.setup import Setup
from attncli.stages import LSE, WEIGHTS

SPLITS = 2, 4, 8
"""Into how many parts of the keys kernels for decoding split their work."""


def is_plain(setup: Setup) -> bool:
    """Whether nothing but the keys of a row takes part in its softmax."""
    return "sinks" not in setup.inputs and setup.how.softmax_over == "keys"


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


def _unscaled_sums(setup: Setup, _: Evidence) -> Iterator[Setup]:
    for block in (1, *BLOCKS) if is_plain(setup) else ():
        for what in ("the sum", "the output", "the sum and the output"):
            if block < setup.shape[3]:
                own = f"in blocks of {block} keys" if block > 1 else "key by key"
                function = lambda x, n=block, what=what: not_rescaled(x, n, what)  # noqa: E731
                yield from _with(setup, {WEIGHTS: function}, f"{what}, {own}")


def _with(setup: Setup, steps: Mapping[str, Function], detail: str) -> Iterator[Setup]:
    """The setup with functions for steps, if it has these."""
    if (other := patched(setup, steps)) is not None:
        yield other.with_detail(detail)


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
        weights = {WEIGHTS: lambda x, at=at: merge(_Parts.of(x, at))}
        yield from _with(setup, weights, f"{words}{detail}")
        if lse is not None and LSE in evidence.expected:
            sums = {LSE: lambda x, at=at: lse(_Parts.of(x, at))}
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

        def lse(parts: _Parts, factor: float = factor) -> Array:
            return log_sum_exp(parts.lse * parts.lse.dtype.type(factor))

        merge = partial(by_powers, factor=factor)
        yield from _merged(merge, setup, evidence, lse=lse, detail=words)


def _unguarded(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Of a split that is known alone: else any rows of NaN could be it."""
    if setup.split:
        yield from _merged(unguarded, setup, evidence, may_be_empty=True)


PARTS: Mapping[str, Change] = {
    "sum not rescaled when the maximum grows": _unscaled_sums,
    "blocks averaged without their log-sum-exp": _averaged,
    "blocks merged in the wrong base": _in_another_base,
    "part without a key not guarded": _unguarded,
    "log-sum-exps of parts added": partial(
        _merged, added, lse=lambda parts: parts.lse.sum(axis=-1)
    ),
}
