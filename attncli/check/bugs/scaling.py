"""Bugs between the scores and the weights that no mask has a part in: scale, softcap, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from attncli.attention import functional
from attncli.attention.dot_product import Step
from attncli.check.bugs.hypothesis import Change, Clues, Hypothesis, Variant, hypothesis
from attncli.check.case import Array, Case, Edit
from attncli.convention import Convention

FLOAT16_MAX = 65504.0


def _scaled_by(factor: Callable[[Case], float]) -> Change:
    def change(case: Case, _: Clues) -> Iterator[Variant]:
        yield Variant(case.with_how(scale=factor(case)))

    return change


def _d_k(case: Case) -> int:
    return int(case.q.shape[-1])


def _no_scale(case: Case, _: Clues) -> Iterator[Variant]:
    yield Variant(case.with_how(scale="none"))


def _default_scale(case: Case, _: Clues) -> Iterator[Variant]:
    if case.how.scale != "1/sqrt(d_k)":
        yield Variant(case.with_how(scale="1/sqrt(d_k)"))


def _scale_twice(case: Case, _: Clues) -> Iterator[Variant]:
    twice = case.how.scale_factor(_d_k(case)) ** 2
    if not math.isclose(twice, 1 / _d_k(case)):
        yield Variant(case.with_how(scale=twice))


def instead(
    name: str, compute: Callable[[Array | None, Convention], Callable[[Array], Array]]
) -> Edit:
    """The edit that computes one step of the plan in another way."""

    def edit(steps: list[Step], mask: Array | None, how: Convention) -> list[Step]:
        other = compute(mask, how)
        return [replace(step, compute=other) if step.name == name else step for step in steps]

    return edit


def with_edit(case: Case, *edits: Edit) -> Case:
    """The case with further edits of its plan."""
    return replace(case, edits=(*case.edits, *edits))


def _softmax_over_keys_or_queries(axis: str) -> Change:
    def change(case: Case, _: Clues) -> Iterator[Variant]:
        if case.how.softmax_over != axis:
            for empty in ("zero", "nan", "uniform") if may_mask(case) else ("zero",):
                yield Variant(case.with_how(softmax_over=axis, empty_rows=empty))

    return change


def may_mask(case: Case) -> bool:
    """Whether anything at all restricts who may attend to whom."""
    how = case.how
    restricts = (case.mask, case.kv_len, how.window)
    return how.causal or bool(case.seen.bands) or any(x is not None for x in restricts)


def _softmax_over_outer(axis: int) -> Change:
    """Softmax over batch items (0) or heads (1)."""

    def change(case: Case, _: Clues) -> Iterator[Variant]:
        if case.shape[axis] == 1:
            return
        for empty in ("zero", "nan", "uniform") if may_mask(case) else ("zero",):
            edit = instead("weights", lambda mask, how: _outer_softmax(axis, mask, how))
            changed = replace(case.with_how(empty_rows=empty), over=("batch", "heads")[axis])
            yield Variant(with_edit(changed, edit))

    return change


def _outer_softmax(axis: int, mask: Array | None, how: Convention) -> Callable[[Array], Array]:
    def compute(x: Array) -> Array:
        hidden = None if mask is None else np.broadcast_to(np.isneginf(mask), x.shape)
        return functional.softmax(x, axis, hidden, how.empty_rows)

    return compute


def _softcap_elsewhere(case: Case, _: Clues) -> Iterator[Variant]:
    if case.how.softcap is not None and may_mask(case):
        other = "after-mask" if case.how.softcap_place == "before-mask" else "before-mask"
        yield Variant(case.with_how(softcap_place=other), f"{other.replace('-', ' the ')}")


def _no_softcap(case: Case, _: Clues) -> Iterator[Variant]:
    if case.how.softcap is not None:
        yield Variant(case.with_how(softcap=None))


def plain_softmax(_: Array | None, __: Convention) -> Callable[[Array], Array]:
    """Softmax as IEEE 754 has it: a row of −inf, or one with a NaN in it, becomes NaN."""
    return functional.softmax


def _overflow(case: Case, _: Clues) -> Iterator[Variant]:
    placed = case.placed()
    largest = (float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in (placed.q, placed.k))
    if math.prod(largest) * _d_k(case) < FLOAT16_MAX:
        return
    yield Variant(with_edit(case, _clipped))
    yield Variant(with_edit(case, _clipped, instead("weights", plain_softmax)))


def _clipped(steps: list[Step], _: Array | None, __: Convention) -> list[Step]:
    return [Step("scores", "S", "", _to_float16_range), *steps]


def _to_float16_range(x: Array) -> Array:
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
        _scaled_by(lambda case: 1 / math.sqrt(case.shape[1] * _d_k(case))),
        "scale",
        "the scores are divided by the root of the whole width, heads · d_k, not of one head's",
        "FareedKhan-dev/train-llm-from-scratch#3, Graylab/DL4Proteins-notebooks#12",
    ),
    hypothesis(
        "divided by d_k, not √d_k",
        _scaled_by(lambda case: 1 / _d_k(case)),
        "scale",
        "the scores are multiplied by 1/d_k, which is also what scaling by 1/√d_k twice gives",
        "esceptico/perceiver-io#9, transformers#38290, maxtext#3138",
    ),
    hypothesis(
        "multiplied by √d_k",
        _scaled_by(lambda case: math.sqrt(_d_k(case))),
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
