"""Bugs between the scores and the weights that are not about the mask: scale, softcap, softmax."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional
from attncli.check.bugs.bug import Bug, Change, Evidence, bug, changing
from attncli.check.setup import Setup
from attncli.check.tolerance import largest
from attncli.convention import EmptyRows

FLOAT16_MAX = 65504.0
HALF_STEP = 16
"""Half the distance between the two largest numbers of float16: so much more is rounded down."""


def _scale_twice(setup: Setup) -> float:
    return setup.how.scale_factor(setup.d_k) ** 2


def _with_each_empty(setup: Setup) -> Iterator[Setup]:
    """The setup under each rule for empty rows: over another axis other rows are empty."""
    for empty in get_args(EmptyRows) if setup.may_mask() else (setup.how.empty_rows,):
        yield setup.with_how(empty_rows=empty)


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
            yield from _with_each_empty(
                replace(setup, softmax_axis=axis).with_steps(weights=weights)
            )

    return change


def softmax_over_outer(x: Array, allowed: Array | None = None, *, outer: int, **how: Any) -> Array:
    """Softmax over batch items (outer 0) or heads (1)."""
    every = None if allowed is None else np.broadcast_to(allowed, x.shape)
    return functional.softmax(x, every, outer, how["empty"])


def ieee_softmax(x: Array, allowed: Array | None = None, **_: Any) -> Array:
    """Softmax as IEEE 754 has it: a row of −inf, or one with a NaN in it, becomes NaN."""
    return functional.softmax(x)


def _softcap_elsewhere(setup: Setup, _: Evidence) -> Iterator[Setup]:
    if setup.how.softcap is not None and setup.may_mask():
        after = setup.how.softcap_place == "before-mask"
        changed = setup.with_how(softcap_place="after-mask" if after else "before-mask")
        yield changed.with_detail("after the mask" if after else "before the mask")


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
)
