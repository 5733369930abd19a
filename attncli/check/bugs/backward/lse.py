"""Bugs of weights that are computed again with another log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.parts import finite
from attncli.check.bugs.backward.again import (
    Again,
    again,
    by_lse,
    log_sum_exp,
    powers,
    top_of,
    weights_again,
)
from attncli.check.bugs.backward.edits import (
    D_V,
    HEAD,
    ROW,
    apply,
    of_gradients,
    row,
)
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.bugs.kernels import last_blocks
from attncli.check.setup import Setup


def _top(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
    return powers(x_again, top_of(x))


def _top_with_sinks(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
    return powers(x_again, top_of(x, sinks))


def _without_top(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
    return powers(x_again, log_sum_exp(x, sinks) - finite(top_of(x, sinks)))


def _of_last_block(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """By the log-sum-exp of the last block of keys, the sink in it or not."""
    for start, blocks in last_blocks(setup.shape[3]):

        def by_last(
            x: Array, x_again: Array, sinks: Array | None = None, start: int = start
        ) -> Array:
            return powers(x_again, log_sum_exp(x[..., start:], sinks))

        def without(
            x: Array, x_again: Array, sinks: Array | None = None, start: int = start
        ) -> Array:
            return powers(x_again, log_sum_exp(x[..., start:]))

        words = f"the last of {blocks} keys"
        made: list[Again] = [(words, by_last, None)]
        if "sinks" in setup.inputs:
            made.append((f"{words}, without the sink", without, None))
        yield from again(*made)(setup, evidence)


def _values_unnormalised(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The weights of dV alone, by the row's maximum."""
    if not of_gradients(setup, evidence):
        return
    for words, compute in (("", _top), ("the sink in the maximum", _top_with_sinks)):
        if words and "sinks" not in setup.inputs:
            continue
        edit = weights_again(compute, only=D_V)
        if (found := apply(setup, [edit])) is not None:
            yield found.with_detail(words) if words else found


def _without_sink(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
    return powers(x_again, log_sum_exp(x))


def _with_nan(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
    return np.asarray(np.exp(x_again - log_sum_exp(x, sinks)))


def _needs_sinks(change: Any) -> Any:
    def needing(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if "sinks" in setup.inputs:
            yield from change(setup, evidence)

    return needing


_LN2 = math.log(2)


LSE: tuple[Bug, ...] = (
    row(
        "log-sum-exp in base 2 read as natural",
        again(("", by_lse(lambda lse: lse / _LN2), None)),
        "the forward pass saves log₂ Σ exp, and the way back takes exp(score − it)",
        "attention-gym#200",
    ),
    row(
        "log-sum-exp natural read as base 2",
        again(("", by_lse(lambda lse: lse * _LN2), None)),
        "the forward pass saves ln Σ exp, and the way back takes 2^(score · log₂ e − it)",
        "attention-gym#200",
    ),
    row(
        "row maximum used for the log-sum-exp (weights not normalised)",
        again(("", _top, None), ("with the sink", _top_with_sinks, None)),
        "the weights on the way back are exp(score − largest score), not divided by their sum",
        "flash-attention#404",
    ),
    row(
        "maximum left out of the log-sum-exp",
        again(("", _without_top, None)),
        "the logarithm of the sum of exp(score − largest score) is saved, without that largest",
        "flash-attention#404",
    ),
    row(
        "log-sum-exp of the last block of keys",
        _of_last_block,
        "the log Σ exp that is saved is that of one block of keys, not of all",
        "long-context-attention#149",
    ),
    row(
        "weights not normalised in dV",
        _values_unnormalised,
        "dV is made of exp(score − largest score), not divided by its sum",
        "flash-attention#404",
    ),
    row(
        "log-sum-exp of another query",
        again(
            ("the row before", by_lse(lambda lse: np.roll(lse, 1, axis=-2)), None),
            ("the row after", by_lse(lambda lse: np.roll(lse, -1, axis=-2)), None),
            whole=(ROW,),
        ),
        "the saved log Σ exp is read with the row of another query",
        "flash-attention#404",
    ),
    row(
        "log-sum-exp of another head",
        again(
            ("the head before", by_lse(lambda lse: np.roll(lse, 1, axis=-3)), None),
            (
                "the first head",
                by_lse(lambda lse: np.broadcast_to(lse[..., :1, :, :], lse.shape)),
                None,
            ),
            whole=(HEAD,),
        ),
        "the saved log Σ exp is read with another head",
        "native-sparse-attention-triton#27",
    ),
    row(
        "0 · NaN from an empty row",
        again(("", _with_nan, None)),
        "exp(−∞ − −∞) of a query with nothing to attend to makes the gradients of its keys NaN",
        "pytorch#41508",
        touches="gradients mask NaN",
    ),
    row(
        "sink left out of the recomputed weights",
        _needs_sinks(again(("", _without_sink, None))),
        "the log Σ exp on the way back lacks the sink",
        "aiter#1576",
        touches="gradients sinks",
    ),
)
