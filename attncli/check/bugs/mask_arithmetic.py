"""Bugs of how a mask is applied: after softmax, by a finite number, through 0 · −inf or NaN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional
from attncli.check.bugs.bug import Bug, Change, Evidence, bug, changing
from attncli.check.bugs.scaling import ieee_softmax
from attncli.check.setup import Setup
from attncli.convention import EmptyRows
from attncli.stages import MASKED, OUTPUT, WEIGHTS

FINITE = (-100.0, -1e3, -1e4, -65504.0, -1e5, -1e9, float(np.finfo(np.float32).min))
"""The finite mask values used in real code."""

SWALLOWED = 0.02
"""Where numbers of the observed type are so far apart at the mask value, a score that it is added
to is lost in rounding: adding the value is then the same as replacing the score."""


def _finite_value(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    for value in FINITE if setup.may_mask() else ():
        replaced = setup.with_how(mask_value=value, mask_value_rule="replace")
        added = setup.with_how(mask_value=value, mask_value_rule="add")
        if replaced.how != setup.how:
            yield replaced.with_detail(f"masked scores become {value:g}")
        if abs(value) * evidence.eps < SWALLOWED and added.how != setup.how:
            yield added.with_detail(f"{value:g} is added to masked scores")


def _has_finite_value(setup: Setup) -> bool:
    return setup.may_mask() and setup.how.mask_value != -np.inf


def _with_empty_rows(rule: EmptyRows) -> Change:
    """Another rule for rows with nothing to attend to."""

    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        if setup.may_mask() and setup.empty_rows != rule:
            yield setup.with_empty_rows(rule)

    return change


def _adds_in_one_step(setup: Setup) -> bool:
    """Whether the numbers of the mask are added, and what it hides is hidden, in one step."""
    is_capped_between = setup.how.softcap is not None and setup.how.softcap_place == "after-bias"
    return setup.may_mask() and not (is_capped_between and setup.is_added)


def finite_numbers_added(x: Array, mask: Array, **_: Any) -> Array:
    """Scores with the numbers of the mask added, and nothing masked."""
    return np.asarray(x + np.where(np.isneginf(mask), 0.0, mask).astype(x.dtype))


def softmax_then_mask(x: Array, allowed: Array | None = None, **_: Any) -> Array:
    """Weights of which those of masked keys are set to 0."""
    weights = functional.softmax(x)
    return weights if allowed is None else np.where(allowed, weights, 0)


def nan_where_allowed(x: Array, mask: Array, **_: Any) -> Array:
    """Scores with a mask that is (1 − allowed) · −inf: 0 · −inf is NaN."""
    return np.asarray(x + np.where(np.isneginf(mask), -np.inf, np.nan).astype(x.dtype))


def plain_sum(x: Array, mask: Array, **_: Any) -> Array:
    """S + M, where a NaN stays NaN even if it is masked."""
    return np.asarray(x + mask.astype(x.dtype))


def plain_weighted_sum(a: Array, v: Array, allowed: Array | None = None) -> Array:
    """A V, where a NaN of a masked key gets into every output: 0 · NaN is NaN."""
    return functional.weighted_sum(a, v)


MASK_ARITHMETIC: tuple[Bug, ...] = (
    bug(
        "mask applied after softmax, not renormalised",
        changing(
            mask_value=-np.inf,
            steps={MASKED: finite_numbers_added, WEIGHTS: softmax_then_mask},
            when=_adds_in_one_step,
        ),
        "mask-arithmetic empty-rows",
        "masked weights are set to 0 after softmax, so the rest of a row sums to less than 1",
        "timm#2236",
    ),
    bug(
        "mask multiplied into the scores",
        changing(mask_value=0.0, mask_value_rule="replace", when=Setup.may_mask),
        "mask-arithmetic empty-rows",
        "a masked score becomes 0, not −∞, and still gets a weight",
        "timm#2236",
    ),
    bug(
        "finite mask value",
        _finite_value,
        "mask-arithmetic empty-rows",
        "masked scores get a finite number as low as real scores, or that makes a row with "
        "nothing to attend to uniform",
        "TransformerLens#385, fairseq#3575, apex#1105",
    ),
    bug(
        "mask value −∞, not the finite one given",
        changing(mask_value=-np.inf, mask_value_rule="replace", when=_has_finite_value),
        "mask-arithmetic empty-rows",
        "masked scores become −∞ although a finite number was asked for",
        "flax#982",
    ),
    bug(
        "rows with nothing to attend to become NaN",
        _with_empty_rows("nan"),
        "empty-rows NaN",
        "softmax of a row of −∞ is 0/0; so is a finite mask value that overflows in float16",
        "pytorch#103749, mlx#2395, apex#1105",
    ),
    bug(
        "rows with nothing to attend to become zero",
        _with_empty_rows("zero"),
        "empty-rows",
        "a query with nothing to attend to gets weights of 0",
        "pytorch#103749, cubecl#1070",
    ),
    bug(
        "rows with nothing to attend to get the mean of V",
        _with_empty_rows("uniform"),
        "empty-rows",
        "a query with nothing to attend to attends to every key alike",
        "mlx#2395, onnxruntime#28904",
    ),
    bug(
        "rows with nothing to attend to as if unmasked",
        _with_empty_rows("unmasked"),
        "empty-rows",
        "a query with nothing to attend to attends as it would without the mask and the padding",
        "onnxruntime#28904",
    ),
    bug(
        "0 · −∞ in the mask",
        changing(steps={MASKED: nan_where_allowed, WEIGHTS: ieee_softmax}, when=_adds_in_one_step),
        "mask-arithmetic empty-rows NaN",
        "the mask is made as 0 · −∞ = NaN where a query may attend, so every row is NaN",
        "onnx#8068",
    ),
    bug(
        "NaN leaks from masked keys",
        changing(
            steps={MASKED: plain_sum, WEIGHTS: ieee_softmax},
            when=lambda setup: (
                _adds_in_one_step(setup) and not np.isfinite(setup.inputs["k"]).all()
            ),
        ),
        "mask-arithmetic empty-rows NaN-propagation NaN",
        "−∞ is added to a masked score that is NaN, which stays NaN",
        "pytorch#101967",
    ),
    bug(
        "NaN leaks from masked values",
        changing(
            steps={OUTPUT: plain_weighted_sum},
            when=lambda setup: setup.may_mask() and not np.isfinite(setup.inputs["v"]).all(),
        ),
        "NaN-propagation NaN",
        "a weight of 0 times a value that is NaN or infinite gives NaN",
        "pytorch#101967",
    ),
)
