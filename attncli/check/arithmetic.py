"""Attention computed in another arithmetic: TF32 products, sums kept in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.functional import round_to, scores, weighted_sum, widen
from attncli.attention.gradients import column_products
from attncli.attention.run import Step
from attncli.attention.tiles import running_values
from attncli.check.noise import TF32_EPS
from attncli.check.setup import Setup
from attncli.check.tolerance import Rule
from attncli.convention import DType

Product = Callable[[Array, Array], Array]


def simulation(setup: Setup, rule: Rule) -> tuple[Setup, DType, float]:
    """What to compute, and in which number type, to see the errors of the rule's arithmetic.

    And what to multiply them by: float64 is the reference itself, so its errors are those of
    float32, scaled.
    """
    dtype, factor = rule.simulated()
    if rule.inside == "tf32":
        return in_tf32(setup), dtype, factor
    if rule.inside == rule.dtype:
        return in_low_sums(setup, dtype), dtype, factor
    return setup, dtype, factor


def with_products(setup: Setup, multiply: Product) -> Setup:
    """The setup with another function for its products; a bug changes the steps that have these."""

    def of_rows(q: Array, k: Array) -> Array:
        return multiply(q, np.swapaxes(k, -1, -2))

    def of_columns(a: Array, b: Array) -> Array:
        return multiply(np.swapaxes(a, -1, -2), b)

    def of_output(a: Array, v: Array, **_: Any) -> Array:
        return multiply(a, v)

    def of_tile(
        p: Array, v: Array, before: Array | None = None, alpha: Array | None = None, **_: Any
    ) -> Array:
        own = multiply(p, v)
        return own if before is None or alpha is None else alpha[..., None] * before + own

    others: dict[Callable[..., Array], Callable[..., Array]]
    others = {scores: of_rows, column_products: of_columns}
    others |= {weighted_sum: of_output, running_values: of_tile}
    own = {product: wraps(product)(other) for product, other in others.items()}

    def edit(steps: list[Step]) -> list[Step]:
        return [step._replace(compute=own.get(step.compute, step.compute)) for step in steps]

    return replace(setup, edits=(edit, *setup.edits))


def in_tf32(setup: Setup) -> Setup:
    """The setup with products of TF32: their factors are rounded to 10 bits after the point.

    Source: NVIDIA A100 Tensor Core GPU Architecture (2020), "TF32".
    """
    return with_products(setup, lambda a, b: np.asarray(to_tf32(a) @ to_tf32(b)))


def to_tf32(x: Array) -> Array:
    """x rounded to 10 bits after the point, in float32.

    >>> to_tf32(np.array([1 + 2**-10 + 2**-12])).item() == 1 + 2**-10
    True
    """
    mantissa, exponent = np.frexp(x.astype(np.float32))
    step = np.float32(2 * 1 / TF32_EPS)
    return np.ldexp(np.rint(mantissa * step) / step, exponent)


def in_low_sums(setup: Setup, dtype: DType) -> Setup:
    """The setup with sums kept in this type, rounded after every term."""
    return with_products(setup, one_by_one(dtype))


def one_by_one(dtype: DType) -> Product:
    """A matrix product that rounds its running sum to dtype after every term.

    [..., n, m], [..., m, p] -> [..., n, p]

    >>> a = np.full((1, 300), 1.0, dtype=np.float32)
    >>> one_by_one("bfloat16")(a, a.T).item()
    256.0
    """

    def multiply(a: Array, b: Array) -> Array:
        total = np.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype)
        for term in range(a.shape[-1]):
            product = a[..., :, term, None] * b[..., None, term, :]
            total = widen(round_to(total + product, dtype), dtype)
        return total

    return multiply
