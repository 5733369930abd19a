"""Bugs of the log-sum-exp that a kernel keeps of each row, for merging and for the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.check.bugs.bug import Bug, Evidence, bug
from attncli.check.bugs.kernels import BLOCKS
from attncli.check.run import steps_of
from attncli.check.setup import Setup
from attncli.stages import LSE, MASKED

TOUCHES = "lse"


def _instead(compute: Callable[..., Array]) -> Callable[[Setup, Evidence], Iterator[Setup]]:
    """The change of the step of lse alone, where lse was observed."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if LSE in evidence.expected:
            yield setup.with_steps(**{LSE: compute})

    return change


def largest(x: Array, **_: Any) -> Array:
    """The largest score of each row.

    >>> largest(np.array([[1.0, 3.0]]))
    array([3.])
    """
    return np.asarray(x.max(axis=-1))


def less_largest(x: Array, **how: Any) -> Array:
    """ln Σ exp(X − m), without m."""
    top = x.max(axis=-1)
    return f.log_sum_exp(x, **how) - np.where(np.isneginf(top), 0, top)


def of_powers_of_two(x: Array, **how: Any) -> Array:
    """ln Σ 2^X."""
    two = np.log(2).astype(x.dtype)
    sinks = how.pop("sinks", None)
    return f.log_sum_exp(x * two, sinks=None if sinks is None else sinks * two, **how)


def plain_sum(x: Array, **how: Any) -> Array:
    """Σ exp(X): its logarithm is not taken."""
    return np.asarray(np.exp(f.log_sum_exp(x, **how)))


def without_sinks(x: Array, sinks: Array | None = None, **how: Any) -> Array:
    """ln Σ exp(X), without the sink."""
    return f.log_sum_exp(x, **how)


def of_blocks(x: Array, *, block: int, added: bool, **how: Any) -> Array:
    """The log-sum-exps of blocks of keys, added, or that of the last alone.

    >>> x = np.log([[1.0, 2.0, 4.0]])
    >>> of_blocks(x, block=2, added=True).round(4) == np.log([3.0 * 4.0]).round(4)
    array([ True])
    """
    allowed = how.pop("allowed", None)
    each = []
    for start in range(0, x.shape[-1], block):
        keys = slice(start, start + block)
        own = allowed if allowed is None or allowed.shape[-1] == 1 else allowed[..., keys]
        each.append(f.log_sum_exp(x[..., keys], own, **how))
    return np.asarray(sum(each) if added else each[-1])


def _in_blocks(added: bool) -> Callable[[Setup, Evidence], Iterator[Setup]]:
    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        n_k = setup.shape[3]
        halves = -(-n_k // 2)
        for block in dict.fromkeys((halves, *BLOCKS)) if LSE in evidence.expected else ():
            if block < n_k:
                changed = setup.with_steps(**{LSE: partial(of_blocks, block=block, added=added)})
                yield changed.with_detail(f"blocks of {block} keys")

    return change


def _sinks_left_out(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if "sinks" in setup.inputs:
        yield from _instead(without_sinks)(setup, evidence)


def _mask_left_out(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Of the scores before what the mask hides: the weights are masked all the same."""
    steps = {step.name: step for step in steps_of(setup)}
    if LSE in evidence.expected and MASKED in steps:
        before = setup.with_reads(LSE, unmasked=steps[MASKED].reads["x"])
        yield before.with_steps(**{LSE: of_unmasked})


def of_unmasked(x: Array, unmasked: Array, allowed: Array | None = None, **how: Any) -> Array:
    """ln Σ exp of other scores than those of the weights."""
    return f.log_sum_exp(unmasked, **how)


SUMS: tuple[Bug, ...] = (
    bug(
        "lse is the largest score",
        _instead(largest),
        TOUCHES,
        "the running maximum is written, without the logarithm of the sum",
        "flash-attention#1884",
        pairs=False,
    ),
    bug(
        "maximum left out of lse",
        _instead(less_largest),
        TOUCHES,
        "the logarithm of the running sum is written, without the maximum",
        "flash-attention#404",
        pairs=False,
    ),
    bug(
        "logarithm left out of lse",
        _instead(plain_sum),
        TOUCHES,
        "the sum of exp of the scores is written, not its logarithm",
        pairs=False,
    ),
    bug(
        "lse of powers of 2",
        _instead(of_powers_of_two),
        TOUCHES,
        "2^score is summed where exp(score) is due, and the natural logarithm taken",
        "flashinfer#4485",
        pairs=False,
    ),
    bug(
        "lse added",
        _in_blocks(added=True),
        TOUCHES,
        "the log-sum-exps of blocks of keys are added, where the sums of their powers are to be",
        "ring-flash-attention#20",
        pairs=False,
    ),
    bug(
        "lse of the last block alone",
        _in_blocks(added=False),
        TOUCHES,
        "the log-sum-exp of the last block of keys replaces that of all before",
        pairs=False,
    ),
    bug(
        "sinks left out of lse",
        _sinks_left_out,
        TOUCHES,
        "the weights have a sink in their sum, but the log-sum-exp has not",
        pairs=False,
    ),
    bug(
        "mask left out of lse",
        _mask_left_out,
        TOUCHES,
        "keys that no weight is given to are counted in the log-sum-exp",
        pairs=False,
    ),
)
"""The same forward pass, with another number kept of each row."""
