"""Bugs between the scores and the weights that are not about the mask: scale, softcap, softmax."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, get_args

import numpy as np

from attncli.arrays import Array
from attncli.attention import kernels
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.kernels import zero_keys
from attncli.check.bugs.patch import Function, Patch
from attncli.check.bugs.words import Variants, only_if
from attncli.check.setup import Setup
from attncli.check.tolerance import largest
from attncli.convention import EmptyRows
from attncli.stages import SCORES, WEIGHTS

FLOAT16_MAX = 65504.0
HALF_STEP = 16
"""Half the distance between the two largest numbers of float16: so much more is rounded down."""


def how(detail: str = "", **fields: Any) -> Patch:
    """Other fields of the convention; they may be functions of the setup."""
    return Patch(how=fields, detail=detail)


def weights(function: Function, detail: str = "", *whole: int) -> Patch:
    """Another function in the place of softmax."""
    return Patch({WEIGHTS: function}, detail, whole)


# ---- scale


def _twice(setup: Setup, _: Evidence) -> Iterator[Patch]:
    """Unless that is "divided by d_k"."""
    factor = setup.how.scale_factor(setup.d_k)
    squared = min(factor * factor, sys.float_info.max)  # where ** raises an error, * gives inf
    if not math.isclose(squared, 1 / setup.d_k):
        yield how(scale=squared)


def _after_softmax(setup: Setup, _: Evidence) -> Iterator[Patch]:
    factor = setup.how.scale_factor(setup.d_k)
    weighted = lambda right, x: right() * x.dtype.type(factor)  # noqa: E731
    if setup.how.scale != "none":
        yield Patch({WEIGHTS: weighted}, how={"scale": "none"})


def _in_float16(right: Function) -> Array:
    """Scores of which those beyond float16 are infinite."""
    x = np.asarray(right())
    return np.where(np.abs(x) > FLOAT16_MAX + HALF_STEP, np.copysign(np.inf, x), x)


def ieee_softmax(x: Array) -> Array:
    """Softmax as IEEE 754 has it: a row of −inf, or one with a NaN in it, becomes NaN."""
    return kernels.softmax(x)


def _overflow(setup: Setup, _: Evidence) -> Iterator[Variants]:
    inputs = setup.placed().inputs
    if largest(inputs["q"]) * largest(inputs["k"]) * setup.d_k >= FLOAT16_MAX:
        yield {SCORES: _in_float16}
        yield {SCORES: _in_float16, WEIGHTS: ieee_softmax}


# ---- softcap


def _other_side(setup: Setup, _: Evidence) -> Iterator[Patch]:
    if setup.how.softcap is not None and setup.may_mask():
        place = "before" if setup.how.softcap_place == "after-mask" else "after"
        yield how(f"{place} the mask", softcap_place=f"{place}-mask")


def _bias_inside(setup: Setup, _: Evidence) -> Iterator[Patch]:
    """Where something is hidden too: else it is the softcap on the other side of the mask."""
    if setup.how.softcap is None or setup.how.softcap_place != "before-mask" or not setup.is_added:
        return
    hides = setup.how.causal or setup.how.window is not None or "kv_len" in setup.inputs
    if hides or (setup.inputs["given_mask"] == -np.inf).any():
        yield how(softcap_place="after-bias")


# ---- softmax


def each_empty(*variants: Patch) -> Variants:
    """Under each rule for empty rows: over another axis others are empty.

    A causal mask alone leaves every key a query, where there are as many.
    """

    def patches_of(setup: Setup, _: Evidence) -> Iterator[Patch]:
        restricts = setup.inputs.keys() & {"given_mask", "kv_len"} or setup.how.window is not None
        may_empty = restricts or (setup.how.causal and setup.shape[2] < setup.shape[3])
        for empty in get_args(EmptyRows) if may_empty else (setup.empty_rows,):
            yield from (patch.also("", empty_rows=empty) for patch in variants)

    return patches_of


def _over(axis: str) -> Variants:
    return only_if(lambda setup: setup.how.softmax_over != axis, each_empty(how(softmax_over=axis)))


def _over_outer(axis: int) -> Variants:
    """Softmax over batch items (0) or heads (1)."""

    def softmax(x: Array, empty: EmptyRows, allowed: Array | None = None) -> Array:
        every = None if allowed is None else np.broadcast_to(allowed, x.shape)
        return kernels.softmax(x, axis, every, empty=empty)

    return only_if(lambda setup: setup.shape[axis] > 1, each_empty(weights(softmax, "", axis)))


def powers_of(x: Array, *, top: bool = True, sums: int | None = None) -> Array:
    """exp(X − the largest number of each row, if `top`) / Σ over the axis `sums`, if any."""
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        if top:
            of_row = x.max(axis=-1, keepdims=True)
            x = x - np.where(np.isneginf(of_row), 0, of_row)
        powers = np.exp(x)
        total = 1 if sums is None else powers.sum(axis=sums, keepdims=True)
        return np.asarray(powers / np.where(total == 0, 1, total).astype(x.dtype))


def _sum_elsewhere(setup: Setup, _: Evidence) -> Iterator[Patch]:
    for axis, words in ((2, "over queries"), (1, "over heads"), (0, "over the batch")):
        if setup.shape[axis] > 1 and setup.how.softmax_over == "keys":
            yield weights(partial(powers_of, sums=axis), words, axis)


def sigmoid(x: Array, allowed: Array | None = None, *, bias: float = 0.0) -> Array:
    """1 / (1 + exp(−X − bias)), 0 where nothing is allowed."""
    with np.errstate(over="ignore"):
        shares = 1 / (1 + np.exp(-(x + x.dtype.type(bias))))
    return np.asarray(shares if allowed is None else np.where(allowed, shares, 0))


def _sigmoid(setup: Setup, _: Evidence) -> Iterator[Patch]:
    yield weights(sigmoid)
    biased = partial(sigmoid, bias=-math.log(setup.shape[3]))
    yield weights(biased, "with a bias of −ln n_k")


def _one_after_maximum(x: Array, allowed: Array | None = None) -> Array:
    """exp(x − max x) / (1 + Σ exp(x − max x)): a 1 that is not e⁰ but as much as the largest."""
    shares = kernels.softmax(x, allowed=allowed)
    return np.asarray(shares / (1 + shares.max(axis=-1, keepdims=True)))


SCORE_BUGS: dict[str, Variants] = {
    "scale left out": how(scale="none"),
    "√d_model instead of √d_k": how(scale=lambda setup: (setup.shape[1] * setup.d_k) ** -0.5),
    "divided by d_k, not √d_k": how(scale=lambda setup: 1 / setup.d_k),
    "multiplied by √d_k": how(scale=lambda setup: math.sqrt(setup.d_k)),
    "scale applied twice": _twice,
    "default scale, not the one given": how(scale="1/sqrt(d_k)"),
    "scale after softmax": _after_softmax,
    "scores overflow in float16": _overflow,
    "softcap on the other side of the mask": _other_side,
    "numbers of the mask inside the softcap": _bias_inside,
    "numbers of the mask outside the softcap": only_if(
        lambda setup: setup.how.softcap_place == "after-bias" and setup.is_added,
        how(softcap_place="before-mask"),
    ),
    "softcap left out": how(softcap=None),
    "sinks left out": Patch(inputs={"sinks": None}),
    "softmax over queries, not keys": _over("queries"),
    "softmax over keys, not queries": _over("keys"),
    "softmax over heads": _over_outer(1),
    "softmax over the batch": _over_outer(0),
    "softmax not normalised": (
        weights(lambda x: powers_of(x, top=False), "exp(x)"),
        weights(powers_of, "exp(x − the largest of the row)"),
    ),
    "sum over queries, maximum over keys": _sum_elsewhere,
    "sigmoid, not softmax": _sigmoid,
    "softmax with 1 added to the sum": only_if(
        lambda setup: setup.how.softmax_over == "keys",
        weights(partial(zero_keys, n=1)),
        weights(_one_after_maximum, "after the largest score is subtracted"),
    ),
}
