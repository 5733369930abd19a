"""Bugs of how a mask does its work: after softmax, by a finite number, through 0 · −inf or NaN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.attention import functional
from attncli.check.bugs.hypothesis import Change, Evidence, Hypothesis, Variant, hypothesis
from attncli.check.bugs.scaling import ieee_softmax
from attncli.check.setup import Array, Setup

FINITE = (-100.0, -1e3, -1e4, -65504.0, -1e5, -1e9, float(np.finfo(np.float32).min))
SWALLOWED = 0.02


def finite_numbers_added(x: Array, mask: Array, value: float) -> Array:
    """Scores with the numbers of the mask added, and nothing masked."""
    return np.asarray(x + np.where(np.isneginf(mask), 0.0, mask).astype(x.dtype))


def softmax_then_mask(x: Array, allowed: Array | None = None, **_: Any) -> Array:
    """Weights of which those of masked keys are set to 0."""
    weights = functional.softmax(x)
    return weights if allowed is None else np.where(allowed, weights, 0)


def _mask_after_softmax(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.may_mask:
        plain = setup.with_how(mask_value=-np.inf)
        yield Variant(plain.with_steps(masked=finite_numbers_added, weights=softmax_then_mask))


def _mask_multiplied(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.may_mask:
        yield Variant(setup.with_how(mask_value=0.0))


def _finite_value(setup: Setup, evidence: Evidence) -> Iterator[Variant]:
    if not setup.may_mask:
        return
    for value in FINITE:
        if value == setup.how.mask_value:
            continue
        replaced = setup.with_how(mask_value=value)
        yield Variant(replaced, f"masked scores become {value:g}")
        # A value so large that it swallows the score is the same as one that replaces it.
        if abs(value) * evidence.eps < SWALLOWED:
            added = replaced.with_steps(masked=value_added)
            yield Variant(added, f"{value:g} is added to masked scores")


def value_added(x: Array, mask: Array, value: float) -> Array:
    """The mask value added to a masked score, not put in its place."""
    return np.asarray(x + np.where(np.isneginf(mask), value, mask).astype(x.dtype))


def _infinite_value(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.may_mask and setup.how.mask_value != -np.inf:
        yield Variant(setup.with_how(mask_value=-np.inf))


def _empty_rows(wanted: str) -> Change:
    def change(setup: Setup, _: Evidence) -> Iterator[Variant]:
        if setup.may_mask and setup.how.empty_rows != wanted:
            yield Variant(setup.with_how(empty_rows=wanted))

    return change


def _zero_times_infinity(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.may_mask:
        yield Variant(setup.with_steps(masked=nan_where_allowed, weights=ieee_softmax))


def nan_where_allowed(x: Array, mask: Array, value: float) -> Array:
    """Scores with a mask that is (1 − allowed) · −inf: 0 · −inf is NaN."""
    return np.asarray(x + np.where(np.isneginf(mask), -np.inf, np.nan).astype(x.dtype))


def _nan_in_keys(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.may_mask and not np.isfinite(setup.k).all():
        yield Variant(setup.with_steps(masked=plain_sum, weights=ieee_softmax))


def plain_sum(x: Array, mask: Array, value: float) -> Array:
    """S + M, where a NaN stays NaN even if it is masked."""
    return np.asarray(x + mask.astype(x.dtype))


def _nan_in_values(setup: Setup, _: Evidence) -> Iterator[Variant]:
    if setup.may_mask and not np.isfinite(setup.v).all():
        yield Variant(setup.with_steps(output=plain_weighted_sum))


def plain_weighted_sum(a: Array, v: Array, allowed: Array | None = None) -> Array:
    """A V, where a NaN of a masked key reaches every query: 0 · NaN is NaN."""
    return functional.weighted_sum(a, v)


MASK_ARITHMETIC: tuple[Hypothesis, ...] = (
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
