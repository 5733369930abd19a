"""Bugs between the scores and the weights that no mask has a part in: scale, softcap, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from attncli.attention import functional
from attncli.check.bugs.hypothesis import Change, Evidence, Hypothesis, Variant, hypothesis
from attncli.check.setup import Array, Setup

FLOAT16_MAX = 65504.0


def _scaled_by(factor: Callable[[Setup], float]) -> Change:
    def change(setup: Setup, _: Evidence) -> Iterator[Variant]:
        yield Variant(setup.with_how(scale=factor(setup)))

    return change


def _d_k(setup: Setup) -> int:
    return int(setup.q.shape[-1])


def _no_scale(setup: Setup, _: Evidence) -> Iterator[Variant]:
    yield Variant(setup.with_how(scale="none"))


def _default_scale(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.how.scale != "1/sqrt(d_k)":
        yield Variant(setup.with_how(scale="1/sqrt(d_k)"))


def _scale_twice(setup: Setup, _: Evidence) -> Iterator[Variant]:
    twice = setup.how.scale_factor(_d_k(setup)) ** 2
    if not math.isclose(twice, 1 / _d_k(setup)):
        yield Variant(setup.with_how(scale=twice))


def _softmax_over_keys_or_queries(axis: str) -> Change:
    def change(setup: Setup, _: Evidence) -> Iterator[Variant]:
        if setup.how.softmax_over != axis:
            for empty in ("zero", "nan", "uniform") if setup.may_mask else ("zero",):
                yield Variant(setup.with_how(softmax_over=axis, empty_rows=empty))

    return change


def _softmax_over_outer(axis: int) -> Change:
    """Softmax over batch items (0) or heads (1)."""

    def change(setup: Setup, _: Evidence) -> Iterator[Variant]:
        if setup.shape[axis] == 1:
            return
        for empty in ("zero", "nan", "uniform") if setup.may_mask else ("zero",):
            changed = replace(
                setup.with_how(empty_rows=empty), softmax_axis=("batch", "heads")[axis]
            )
            weights = partial(softmax_over_outer, outer=axis)
            yield Variant(changed.with_steps(weights=weights))

    return change


def softmax_over_outer(x: Array, allowed: Array | None = None, *, outer: int, **how: Any) -> Array:
    """Softmax over batch items (outer 0) or heads (1)."""
    every = None if allowed is None else np.broadcast_to(allowed, x.shape)
    return functional.softmax(x, every, outer, how["empty"])


def _softcap_elsewhere(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.how.softcap is not None and setup.may_mask:
        other = "after-mask" if setup.how.softcap_place == "before-mask" else "before-mask"
        yield Variant(setup.with_how(softcap_place=other), f"{other.replace('-', ' the ')}")


def _no_softcap(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.how.softcap is not None:
        yield Variant(setup.with_how(softcap=None))


def ieee_softmax(x: Array, allowed: Array | None = None, **_: Any) -> Array:
    """Softmax as IEEE 754 has it: a row of −inf, or one with a NaN in it, becomes NaN."""
    return functional.softmax(x)


def _overflow(setup: Setup, _: Evidence) -> Iterator[Variant]:
    placed = setup.placed()
    largest = (float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in (placed.q, placed.k))
    if math.prod(largest) * _d_k(setup) < FLOAT16_MAX:
        return
    yield Variant(setup.with_steps(scores=scores_in_float16))
    yield Variant(setup.with_steps(scores=scores_in_float16, weights=ieee_softmax))


def scores_in_float16(q: Array, k: Array) -> Array:
    """Scores of which those beyond float16 are infinite."""
    x = functional.scores(q, k)
    return np.where(np.abs(x) > FLOAT16_MAX + 16, np.copysign(np.inf, x), x)


SCALING: tuple[Hypothesis, ...] = (
    hypothesis(
        "scale left out",
        _no_scale,
        "scale",
        "the scores go into softmax as they are, not multiplied by 1/√d_k",
        "cntkx#10, PAIR-code/tiny-transformers#71",
    ),
    hypothesis(
        "√d_model instead of √d_k",
        _scaled_by(lambda setup: 1 / math.sqrt(setup.shape[1] * _d_k(setup))),
        "scale",
        "the scores are divided by the root of the whole width, heads · d_k, not of one head's",
        "FareedKhan-dev/train-llm-from-scratch#3, Graylab/DL4Proteins-notebooks#12",
    ),
    hypothesis(
        "divided by d_k, not √d_k",
        _scaled_by(lambda setup: 1 / _d_k(setup)),
        "scale",
        "the scores are multiplied by 1/d_k, which is also what scaling by 1/√d_k twice gives",
        "esceptico/perceiver-io#9, transformers#38290, maxtext#3138",
    ),
    hypothesis(
        "multiplied by √d_k",
        _scaled_by(lambda setup: math.sqrt(_d_k(setup))),
        "scale",
        "the scores are multiplied by √d_k, not divided by it",
        "esceptico/perceiver-io#9",
    ),
    hypothesis(
        "scale applied twice",
        _scale_twice,
        "scale",
        "the scores are multiplied by the scale two times",
        "transformers#38290, maxtext#3138",
    ),
    hypothesis(
        "default scale, not the one given",
        _default_scale,
        "scale",
        "the scores are multiplied by 1/√d_k although another scale was asked for",
    ),
    hypothesis(
        "scores overflow in float16",
        _overflow,
        "scores NaN",
        "scores beyond 65504 become infinite in float16 before they are scaled",
        "ultralytics#24990, metal-flash-attention#8",
    ),
    hypothesis(
        "softcap on the other side of the mask",
        _softcap_elsewhere,
        "softcap",
        "softcap and mask are applied in the other order, so a masked score may become −c, not −∞",
        "onnx#7865, onnxruntime#28370, onnxruntime#28379",
    ),
    hypothesis(
        "softcap left out",
        _no_softcap,
        "softcap",
        "the scores are not capped",
        "onnx#7865, onnxruntime#28370",
    ),
    hypothesis(
        "softmax over queries, not keys",
        _softmax_over_keys_or_queries("queries"),
        "softmax",
        "each column of the weights sums to 1, not each row",
        "labmlai/annotated_deep_learning_paper_implementations#146, "
        "labmlai/annotated_deep_learning_paper_implementations#282",
    ),
    hypothesis(
        "softmax over keys, not queries",
        _softmax_over_keys_or_queries("keys"),
        "softmax",
        "each row of the weights sums to 1, not each column",
    ),
    hypothesis(
        "softmax over heads",
        _softmax_over_outer(1),
        "softmax",
        "the weights of one query and key sum to 1 over the heads",
        "PyTorch-NLP#2",
    ),
    hypothesis(
        "softmax over the batch",
        _softmax_over_outer(0),
        "softmax",
        "the weights of one query and key sum to 1 over the batch items",
        "PyTorch-NLP#2",
    ),
)
