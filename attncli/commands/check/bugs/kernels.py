"""Bugs of kernels: sums that are not rescaled, parts without a key, rows of garbage, other dropout.

Weights are those by which a kernel has in effect summed the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.bugs.bug import Change, Evidence
from attncli.commands.check.bugs.edits import changed
from attncli.commands.check.bugs.patch import Function, patched
from attncli.commands.check.bugs.terms import BLOCKS, LOOPS, last_block_text
from attncli.formula.kernels import draw_kept, softmax
from attncli.stages import OUTPUT, WEIGHTS
from attncli.tolerance.setup import Setup

# ---- parts of the keys, each with a softmax of its own


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


def unguarded(parts: Parts) -> Array:
    """The right weights, but NaN in a row with a part that has no key: 0 · (0 / 0)."""
    has_none = (parts.sums == 0).any(axis=-1, keepdims=True)
    return np.where(has_none, np.nan, parts.weights(np.nan_to_num(softmax(parts.lse))))


def _unguarded(setup: Setup, _: Evidence) -> Iterator[Setup]:
    """Of a split that is known alone: else any rows of NaN could be it."""
    if setup.split and is_plain(setup) and setup.may_mask():
        starts, cuts = (0, *setup.split), ", ".join(map(str, setup.split))
        weights = {WEIGHTS: lambda x: unguarded(Parts.of(x, starts))}
        yield from _with(setup, weights, f"parts cut after key {cuts}")


# ---- rows that hold garbage


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
    n_q, is_within = setup.shape[2], np.flatnonzero(~outside.any(axis=(0, 1, 3)))
    first = int(is_within[-1]) + 1 if is_within.size else n_q
    if block := last_block_text(first, n_q):
        rows = np.arange(n_q)[:, None] >= first
        right = setup.with_relayout(lambda x: np.where(rows, expected, x), OUTPUT)
        words = f"no weights give the numbers in rows {first + 1} to {n_q}, {block}"
        yield right.with_detail(words)


OUTSIDE = 0.05
"""So far beyond the range of the values no rounding takes an output."""


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
    "part without a key not guarded": _unguarded,
    "last rows hold garbage": _rows_of_garbage,
    "dropout drawn again in the backward pass": _redrawn,
}
