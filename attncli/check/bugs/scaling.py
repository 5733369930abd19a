"""Bugs between the scores and the weights that are not about the mask: scale, softcap, softmax."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, get_args

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional
from attncli.check.bugs.bug import Bug, Change, Evidence, bug, changing
from attncli.check.bugs.kernels import SOFTMAX, with_zero_keys
from attncli.check.setup import Setup
from attncli.check.tolerance import largest
from attncli.convention import EmptyRows

FLOAT16_MAX = 65504.0
HALF_STEP = 16
"""Half the distance between the two largest numbers of float16: so much more is rounded down."""


def _scale_twice(setup: Setup) -> float:
    factor = setup.how.scale_factor(setup.d_k)
    return min(factor * factor, sys.float_info.max)  # where ** raises an error, * gives inf


def _with_each_empty(setup: Setup) -> Iterator[Setup]:
    """The setup under each rule for empty rows: over another axis other rows are empty.

    A causal mask alone leaves every key a query, where there are as many.
    """
    restricts = setup.inputs.keys() & {"given_mask", "kv_len"} or setup.how.window is not None
    may_empty = restricts or (setup.how.causal and setup.shape[2] < setup.shape[3])
    for empty in get_args(EmptyRows) if may_empty else (setup.empty_rows,):
        yield setup.with_empty_rows(empty)


def _softmax_over(axis: str) -> Change:
    """Softmax over keys or queries."""

    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        if setup.how.softmax_over != axis:
            yield from _with_each_empty(setup.with_how(softmax_over=axis))

    return change


def _softmax_over_outer(axis: int) -> Change:
    """Softmax over batch items (0) or heads (1)."""

    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        if setup.shape[axis] > 1:
            weights = partial(softmax_over_outer, outer=axis)
            yield from _with_each_empty(setup.with_whole(axis).with_steps(weights=weights))

    return change


def softmax_over_outer(x: Array, allowed: Array | None = None, *, outer: int, **how: Any) -> Array:
    """Softmax over batch items (outer 0) or heads (1)."""
    every = None if allowed is None else np.broadcast_to(allowed, x.shape)
    return functional.softmax(x, every, outer, how["empty"])


def ieee_softmax(x: Array, allowed: Array | None = None, **_: Any) -> Array:
    """Softmax as IEEE 754 has it: a row of −inf, or one with a NaN in it, becomes NaN."""
    return functional.softmax(x)


def powers_of(x: Array, allowed: Array | None = None, *, top: str, sums: int | None) -> Array:
    """exp(X − its largest number over the axis `top`) / Σ over the axis `sums`.

    top   "none" or "keys"
    sums  None: not divided

    >>> powers_of(np.log([[1.0, 3.0]]), top="none", sums=None).round(4)
    array([[1., 3.]])
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        if top == "keys":
            largest_of_row = x.max(axis=-1, keepdims=True)
            x = x - np.where(np.isneginf(largest_of_row), 0, largest_of_row)
        powers = np.exp(x)
        total = 1 if sums is None else powers.sum(axis=sums, keepdims=True)
        return np.asarray(powers / np.where(total == 0, 1, total).astype(x.dtype))


def _other_weights(compute: Callable[..., Array]) -> Callable[..., Array]:
    """A function in the place of softmax, which takes no parameters of softmax."""
    return lambda x, allowed=None, **_: compute(x, allowed)


def _not_normalised(setup: Setup, _: Evidence) -> Iterator[Setup]:
    for top, words in (("none", "exp(x)"), ("keys", "exp(x − the largest of the row)")):
        weights = _other_weights(partial(powers_of, top=top, sums=None))
        yield setup.with_steps(weights=weights).with_detail(words)


def _sum_elsewhere(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.how.softmax_over != "keys":
        return
    for axis, words in ((2, "over queries"), (1, "over heads"), (0, "over the batch")):
        if setup.shape[axis] > 1:
            weights = _other_weights(partial(powers_of, top="keys", sums=axis))
            yield setup.with_whole(axis).with_steps(weights=weights).with_detail(words)


def sigmoid(x: Array, allowed: Array | None = None, *, bias: float) -> Array:
    """1 / (1 + exp(−X − bias)), 0 where nothing is allowed.

    >>> sigmoid(np.array([[0.0, -np.inf]]), bias=0.0)
    array([[0.5, 0. ]])
    """
    with np.errstate(over="ignore"):
        weights = 1 / (1 + np.exp(-(x + x.dtype.type(bias))))
    return np.asarray(weights if allowed is None else np.where(allowed, weights, 0))


def _sigmoid(setup: Setup, _: Evidence) -> Iterator[Setup]:
    for bias, words in ((0.0, ""), (-math.log(setup.shape[3]), "with a bias of −ln n_k")):
        changed = setup.with_steps(weights=_other_weights(partial(sigmoid, bias=bias)))
        yield changed.with_detail(words) if words else changed


def _one_added(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.how.softmax_over == "keys":
        yield setup.with_steps(weights=partial(with_zero_keys, n=1))
        after = setup.with_steps(weights=one_added_after_maximum)
        yield after.with_detail("after the largest score is subtracted")


def one_added_after_maximum(x: Array, allowed: Array | None = None, **_: Any) -> Array:
    """exp(x − max x) / (1 + Σ exp(x − max x)): a 1 that is not e⁰ but as much as the largest."""
    weights = functional.softmax(x, allowed)
    return np.asarray(weights / (1 + weights.max(axis=-1, keepdims=True)))


def _scale_after_softmax(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.how.scale == "none":
        return
    factor = setup.how.scale_factor(setup.d_k)

    def weights(x: Array, allowed: Array | None = None, **how: Any) -> Array:
        return np.asarray(functional.softmax(x, allowed, **how) * x.dtype.type(factor))

    yield setup.with_how(scale="none").with_steps(weights=weights)


def _softcap_elsewhere(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.how.softcap is not None and setup.may_mask():
        after = setup.how.softcap_place != "after-mask"
        changed = setup.with_how(softcap_place="after-mask" if after else "before-mask")
        yield changed.with_detail("after the mask" if after else "before the mask")


def _bias_inside(setup: Setup, _: Evidence) -> Iterator[Setup]:
    """Where something is hidden too: else it is the softcap on the other side of the mask."""
    how = setup.how
    if how.softcap is None or how.softcap_place != "before-mask" or not setup.is_added:
        return
    is_hidden = how.causal or how.window is not None or "kv_len" in setup.inputs
    if is_hidden or (setup.inputs["given_mask"] == -np.inf).any():
        yield setup.with_how(softcap_place="after-bias")


def _is_bias_inside(setup: Setup) -> bool:
    how = setup.how
    return how.softcap is not None and how.softcap_place == "after-bias" and setup.is_added


def _overflow(setup: Setup, _: Evidence) -> Iterator[Setup]:
    inputs = setup.placed().inputs
    if largest(inputs["q"]) * largest(inputs["k"]) * setup.d_k >= FLOAT16_MAX:
        yield setup.with_steps(scores=scores_in_float16)
        yield setup.with_steps(scores=scores_in_float16, weights=ieee_softmax)


def scores_in_float16(q: Array, k: Array) -> Array:
    """Scores of which those beyond float16 are infinite."""
    x = functional.scores(q, k)
    return np.where(np.abs(x) > FLOAT16_MAX + HALF_STEP, np.copysign(np.inf, x), x)


SCALING: tuple[Bug, ...] = (
    bug(
        "scale left out",
        changing(scale="none"),
        "scale",
        "the scores go into softmax as they are, not multiplied by 1/√d_k",
        "cntkx#10, PAIR-code/tiny-transformers#71",
    ),
    bug(
        "√d_model instead of √d_k",
        changing(scale=lambda setup: 1 / math.sqrt(setup.shape[1] * setup.d_k)),
        "scale",
        "the scores are divided by the root of the whole width, heads · d_k, not of one head's",
        "FareedKhan-dev/train-llm-from-scratch#3, Graylab/DL4Proteins-notebooks#12",
    ),
    bug(
        "divided by d_k, not √d_k",
        changing(scale=lambda setup: 1 / setup.d_k),
        "scale",
        "the scores are multiplied by 1/d_k, which is also what scaling by 1/√d_k twice gives",
        "esceptico/perceiver-io#9, transformers#38290, maxtext#3138",
    ),
    bug(
        "multiplied by √d_k",
        changing(scale=lambda setup: math.sqrt(setup.d_k)),
        "scale",
        "the scores are multiplied by √d_k, not divided by it",
        "esceptico/perceiver-io#9",
    ),
    bug(
        "scale applied twice",
        changing(  # unless that is "divided by d_k"
            scale=_scale_twice,
            when=lambda setup: not math.isclose(_scale_twice(setup), 1 / setup.d_k),
        ),
        "scale",
        "the scores are multiplied by the scale two times",
        "transformers#38290, maxtext#3138",
    ),
    bug(
        "default scale, not the one given",
        changing(scale="1/sqrt(d_k)"),
        "scale",
        "the scores are multiplied by 1/√d_k although another scale was asked for",
    ),
    bug(
        "scores overflow in float16",
        _overflow,
        "scores NaN",
        "scores beyond 65504 become infinite in float16 before they are scaled",
        "ultralytics#24990, metal-flash-attention#8",
    ),
    bug(
        "softcap on the other side of the mask",
        _softcap_elsewhere,
        "softcap",
        "softcap and mask are applied in the other order, so a masked score may become −c, not −∞",
        "onnx#7865, onnxruntime#28370, onnxruntime#28379",
    ),
    bug(
        "numbers of the mask inside the softcap",
        _bias_inside,
        "softcap",
        "they are added before the scores are capped, and what is masked is hidden after it",
        "tokamax#1121",
    ),
    bug(
        "numbers of the mask outside the softcap",
        changing(softcap_place="before-mask", when=_is_bias_inside),
        "softcap",
        "they are added after the scores are capped, not before",
    ),
    bug(
        "softcap left out",
        changing(softcap=None),
        "softcap",
        "the scores are not capped",
        "onnx#7865, onnxruntime#28370",
    ),
    bug(
        "sinks left out",
        changing(inputs={"sinks": None}),
        "sinks",
        "the learned scores of the heads do not join the softmax",
    ),
    bug(
        "softmax over queries, not keys",
        _softmax_over("queries"),
        "softmax",
        "each column of the weights sums to 1, not each row",
        "labmlai/annotated_deep_learning_paper_implementations#146, "
        "labmlai/annotated_deep_learning_paper_implementations#282",
    ),
    bug(
        "softmax over keys, not queries",
        _softmax_over("keys"),
        "softmax",
        "each row of the weights sums to 1, not each column",
    ),
    bug(
        "softmax over heads",
        _softmax_over_outer(1),
        "softmax",
        "the weights of one query and key sum to 1 over the heads",
        "PyTorch-NLP#2",
    ),
    bug(
        "softmax over the batch",
        _softmax_over_outer(0),
        "softmax",
        "the weights of one query and key sum to 1 over the batch items",
        "PyTorch-NLP#2",
    ),
    bug(
        "softmax not normalised",
        _not_normalised,
        SOFTMAX,
        "the weights are exp of the scores, not divided by their sum",
        pairs=False,
    ),
    bug(
        "sum over queries, maximum over keys",
        _sum_elsewhere,
        SOFTMAX,
        "the largest score of a row is subtracted, but the powers are divided by another sum",
        pairs=False,
    ),
    bug(
        "sigmoid, not softmax",
        _sigmoid,
        SOFTMAX,
        "each weight is the sigmoid of its score",
        pairs=False,
    ),
    bug(
        "softmax with 1 added to the sum",
        _one_added,
        SOFTMAX,
        "a row sums to less than 1, as if there were one more key with a score and value of 0",
    ),
    bug(
        "scale after softmax",
        _scale_after_softmax,
        "scale " + SOFTMAX,
        "the weights are multiplied by the scale, not the scores",
        pairs=False,
    ),
)
