"""Bugs of weights that a kernel computes again for the gradients: another log-sum-exp, mask, score.

forward    A = softmax(L), lse = log Σ exp(L)          right
backward   A = exp(L − lse), with an L or an lse that is not that of the forward pass
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.kernels import log_sum_exp
from attncli.check.bugs.backward.shared import D_SINKS, HEAD, OF_V, ROW, rolled
from attncli.check.bugs.backward.steps import first_head, total
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.kernels import last_blocks
from attncli.check.bugs.patch import OF_SOFTCAP, Function, Patch
from attncli.check.bugs.words import Variants
from attncli.check.setup import Setup
from attncli.stages import CAPPED, DELTA, SCALED, WEIGHTS

LN2 = math.log(2)

HIDES = -1e3
"""Numbers of a mask that are no larger stand for −∞."""


def share_of_sink(sinks: Array, delta: Array, lse_again: Array) -> Array:
    """The gradient of sinks by the same log-sum-exp as the weights."""
    share = np.exp(sinks.reshape(-1, 1) - lse_again)
    found = -(np.where(np.isfinite(share), share, 0) * delta)
    return np.asarray(found.reshape(-1, *found.shape[-2:]).sum(axis=(0, 2)))


def again(*variants: Patch) -> Variants:
    """With δ of the forward pass, and of these weights; and with the sink's share by their lse."""

    def patches_of(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
        own_delta = {DELTA: lambda right, weights_again: right(y=weights_again, allowed=None)}
        for patch in variants:
            for one in (patch, patch.also("δ from the same weights", own_delta)):
                if "lse" in patch.again and D_SINKS in evidence.expected:
                    by_lse = {D_SINKS: share_of_sink}
                    yield one.also("the sink's share by the same log-sum-exp", by_lse)
                yield one

    return patches_of


def lse(function: Function, detail: str = "", *whole: int) -> Patch:
    """Weights by another log-sum-exp."""
    return Patch(detail=detail, whole=whole, again={"lse": function})


def mask(function: Function, detail: str = "") -> Patch:
    """Weights of another mask."""
    return Patch(detail=detail, again={"mask": function})


def parameters(detail: str, **others: Any) -> Patch:
    """Weights of a mask with other parameters."""
    return mask(lambda right: right(**others), detail)


# ---- log-sum-exp


def _of_last_block(setup: Setup, _: Evidence) -> Iterator[Variants]:
    for start, blocks in last_blocks(setup.shape[3]):
        words = f"the last of {blocks} keys"
        own = lambda right, x, start=start: right(x=x[..., start:])  # noqa: E731
        bare = lambda x, sinks, start=start: log_sum_exp(x[..., start:])  # noqa: E731
        yield again(lse(own, words), lse(bare, f"{words}, without the sink"))


LSE: dict[str, Variants] = {
    "log-sum-exp in base 2 read as natural": again(lse(lambda right: right() / LN2)),
    "log-sum-exp natural read as base 2": again(lse(lambda right: right() * LN2)),
    "row maximum used for the log-sum-exp (weights not normalised)": again(
        lse(lambda x: x.max(axis=-1)),
        lse(lambda x, sinks: np.maximum(x.max(axis=-1), sinks.reshape(-1, 1)), "with the sink"),
    ),
    "maximum left out of the log-sum-exp": again(
        lse(lambda x, sinks=None: np.log(total(x, sinks)))
    ),
    "log-sum-exp of the last block of keys": _of_last_block,
    "weights not normalised in dV": (
        {
            OF_V: lambda right, a, logits, sinks=None: right(
                a=a * total(logits, sinks, sink_in_top=False)[..., None]
            )
        },
        Patch(
            {OF_V: lambda right, a, logits, sinks: right(a=a * total(logits, sinks)[..., None])},
            "the sink in the maximum",
        ),
    ),
    "log-sum-exp of another query": again(
        lse(rolled(1, -1), "the row before", ROW), lse(rolled(-1, -1), "the row after", ROW)
    ),
    "log-sum-exp of another head": again(
        lse(rolled(1, -2), "the head before", HEAD), lse(first_head, "the first head", HEAD)
    ),
    "0 · NaN from an empty row": again(
        Patch(again={WEIGHTS: lambda x, lse: np.exp(x - lse[..., None])})
    ),
    "sink left out of the recomputed weights": again(lse(lambda x, sinks: log_sum_exp(x))),
}

# ---- masks and scores


def _shown(right: Function) -> Array:
    """The numbers of a mask, and nothing hidden."""
    return np.where(right() <= HIDES, 0.0, right())


def _unmasked(setup: Setup, _: Evidence) -> Iterator[Variants]:
    """All of it left out, or one part of it alone."""
    yield again(mask(_shown))
    if setup.how.causal:
        yield again(parameters("causal alone", causal=False))
    if setup.how.window is not None:
        yield again(parameters("the window alone", window_size=None))
    given = setup.inputs.get("given_mask")
    if given is not None and (given.dtype == np.bool_ or (given <= HIDES).any()):
        yield again(parameters("the given mask alone", given_mask=None))


def _other_mask(setup: Setup, _: Evidence) -> Iterator[Variants]:
    """Causal where none is asked for, aligned otherwise, shifted, inverted."""
    how, (n_q, n_k) = setup.how, setup.shape[2:]
    ahead = np.arange(n_k) - np.arange(n_q)[:, None]
    for at, words in ((setup.n_past, ""), (n_k - n_q, ", aligned bottom-right")):
        if not how.causal and (not words or n_q != n_k):
            more = np.where(ahead > at, -np.inf, 0.0)
            hides = {WEIGHTS: lambda right, x, more=more: right(x=x + more)}
            detail = f"causal, which is not asked for{words}"
            yield again(Patch(detail=detail, whole=(ROW,), again=hides))
    if how.causal:
        for by, words in ((1, "one key more"), (-1, "one key fewer")):
            yield again(parameters(f"causal, {words}", n_past=setup.n_past + by))
        if n_q != n_k:
            other = "bottom-right" if how.causal_align == "top-left" else "top-left"
            yield again(parameters(f"aligned {other}", align=other))
    for side, name in enumerate(("before", "after")):
        for by in (1, -1):
            size = [*(how.reach or (-1, -1))]
            if size[side] >= max(0, -by):
                words = f"the window {size[side] + by} keys {name} the query, not {size[side]}"
                size[side] += by
                yield again(parameters(words, window_size=tuple(size)))
    inverted = "inverted: what is to be hidden is shown, and the reverse"
    yield again(mask(lambda right: np.where(right() <= HIDES, 0.0, -np.inf), inverted))


_uncapped = Patch(again={CAPPED: lambda x: x})
_of_uncapped = {OF_SOFTCAP: lambda right, uncapped: right(y=uncapped)}

MASKS: dict[str, Variants] = {
    "mask left out of the recomputed weights": _unmasked,
    "another mask on the recomputed weights": _other_mask,
    "numbers of the mask left out of the recomputed weights": again(
        mask(lambda right, given_mask: np.where(np.isneginf(right()), right(), 0.0))
    ),
    "softcap left out of the recomputed weights": again(
        _uncapped,
        _uncapped.also("its derivative of the score that is not capped", _of_uncapped),
        _uncapped.also("and its derivative", {OF_SOFTCAP: lambda d: d}),
    ),
    "scale left out of the recomputed weights": again(Patch(again={SCALED: lambda x: x})),
}

RECOMPUTED = {**MASKS, **LSE}
