"""Bugs of how a mask does its work: after softmax, by a finite number, through 0 · −inf or NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from attncli.attention import functional
from attncli.attention.dot_product import Step
from attncli.check.bugs.hypothesis import Change, Clues, Hypothesis, Variant, hypothesis
from attncli.check.bugs.scaling import instead, may_mask, plain_softmax, with_edit
from attncli.check.case import Array, Case, Edit
from attncli.convention import Convention

Compute = Callable[[Array], Array]
FINITE = (-100.0, -1e3, -1e4, -65504.0, -1e5, -1e9, float(np.finfo(np.float32).min))
SWALLOWED = 0.02


def masking_by(compute: Callable[[Array, Array, Convention], Array]) -> Edit:
    """The edit that masks in another way: (scores, additive mask, convention) -> masked scores."""

    def edit(steps: list[Step], mask: Array | None, how: Convention) -> list[Step]:
        if mask is None:
            return steps
        other = instead("masked", lambda _, how: lambda x: compute(x, mask, how))
        return other(steps, mask, how)

    return edit


def _finite_bias(x: Array, mask: Array, _: Convention) -> Array:
    """Scores with the numbers of the mask added, and nothing masked."""
    masked: Array = x + np.where(np.isneginf(mask), 0.0, mask).astype(x.dtype)
    return masked


def _softmax_then_mask(mask: Array | None, _: Convention) -> Compute:
    def compute(x: Array) -> Array:
        weights = functional.softmax(x)
        return weights if mask is None else np.where(np.isneginf(mask), 0, weights)

    return compute


def _mask_after_softmax(case: Case, _: Clues) -> Iterator[Variant]:
    if may_mask(case):
        edits = masking_by(_finite_bias), instead("weights", _softmax_then_mask)
        yield Variant(with_edit(case, *edits))


def _mask_multiplied(case: Case, _: Clues) -> Iterator[Variant]:
    if may_mask(case):
        yield Variant(case.with_how(mask_value=0.0))


def _finite_value(case: Case, clues: Clues) -> Iterator[Variant]:
    if not may_mask(case):
        return
    for value in FINITE:
        if value == case.how.mask_value:
            continue
        replaced = case.with_how(mask_value=value)
        yield Variant(replaced, f"masked scores become {value:g}")
        # A value so large that it swallows the score is the same as one that replaces it.
        if abs(value) * clues.eps < SWALLOWED:
            added = with_edit(replaced, masking_by(_added))
            yield Variant(added, f"{value:g} is added to masked scores")


def _added(x: Array, mask: Array, how: Convention) -> Array:
    masked: Array = x + np.where(np.isneginf(mask), how.mask_value, mask).astype(x.dtype)
    return masked


def _infinite_value(case: Case, _: Clues) -> Iterator[Variant]:
    if may_mask(case) and case.how.mask_value != -np.inf:
        yield Variant(case.with_how(mask_value=-np.inf))


def _empty_rows(wanted: str) -> Change:
    def change(case: Case, _: Clues) -> Iterator[Variant]:
        if may_mask(case) and case.how.empty_rows != wanted:
            yield Variant(case.with_how(empty_rows=wanted))

    return change


def _zero_times_infinity(case: Case, _: Clues) -> Iterator[Variant]:
    if may_mask(case):
        edits = masking_by(_nan_where_seen), instead("weights", plain_softmax)
        yield Variant(with_edit(case, *edits))


def _nan_where_seen(x: Array, mask: Array, _: Convention) -> Array:
    masked: Array = x + np.where(np.isneginf(mask), -np.inf, np.nan).astype(x.dtype)
    return masked


def _nan_in_keys(case: Case, _: Clues) -> Iterator[Variant]:
    if may_mask(case) and not np.isfinite(case.k).all():
        edits = masking_by(_plain_sum), instead("weights", plain_softmax)
        yield Variant(with_edit(case, *edits))


def _plain_sum(x: Array, mask: Array, _: Convention) -> Array:
    with np.errstate(invalid="ignore"):
        masked: Array = x + mask.astype(x.dtype)
        return masked


def _nan_in_values(case: Case, _: Clues) -> Iterator[Variant]:
    if may_mask(case) and not np.isfinite(case.v).all():
        yield Variant(replace(case, leaky=True))


APPLYING: tuple[Hypothesis, ...] = (
    hypothesis(
        "mask applied after softmax, not renormalised",
        _mask_after_softmax,
        "applying empty",
        "masked weights are set to 0 after softmax, so the rest of a row sums to less than 1",
        "timm#2236",
    ),
    hypothesis(
        "mask multiplied into the scores",
        _mask_multiplied,
        "applying empty",
        "a masked score becomes 0, not −∞, and still gets a weight",
        "timm#2236",
    ),
    hypothesis(
        "finite mask value",
        _finite_value,
        "applying empty",
        "masked scores get a finite number that real scores reach, or that makes a row with "
        "nothing to attend to uniform",
        "TransformerLens#385, fairseq#3575, apex#1105",
    ),
    hypothesis(
        "mask value −∞, not the finite one given",
        _infinite_value,
        "applying empty",
        "masked scores become −∞ although a finite number was asked for",
        "flax#982",
    ),
    hypothesis(
        "rows with nothing to attend to become NaN",
        _empty_rows("nan"),
        "empty NaN",
        "softmax of a row of −∞ is 0/0; so is a finite mask value that overflows in float16",
        "pytorch#103749, mlx#2395, apex#1105",
    ),
    hypothesis(
        "rows with nothing to attend to become zero",
        _empty_rows("zero"),
        "empty",
        "a query with nothing to attend to gets weights of 0",
        "pytorch#103749, cubecl#1070",
    ),
    hypothesis(
        "rows with nothing to attend to get the mean of V",
        _empty_rows("uniform"),
        "empty",
        "a query with nothing to attend to attends to every key alike",
        "mlx#2395, onnxruntime#28904",
    ),
    hypothesis(
        "0 · −∞ in the mask",
        _zero_times_infinity,
        "applying empty NaN",
        "the mask is made as 0 · −∞ = NaN where a query may attend, so every row is NaN",
        "onnx#8068",
    ),
    hypothesis(
        "NaN leaks from masked keys",
        _nan_in_keys,
        "applying empty leak NaN",
        "−∞ is added to a masked score that is NaN, which stays NaN",
        "pytorch#101967",
    ),
    hypothesis(
        "NaN leaks from masked values",
        _nan_in_values,
        "leak NaN",
        "a weight of 0 times a value that is NaN or infinite gives NaN",
        "pytorch#101967",
    ),
)
