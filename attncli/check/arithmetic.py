"""Attention computed in another arithmetic: TF32 products, sums kept in 16 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.attention.kernels import round_to, widen
from attncli.attention.run import Step
from attncli.check.noise import TF32_EPS
from attncli.check.setup import Setup
from attncli.check.tolerance import Rule
from attncli.convention import DType

Product = Callable[[Array, Array], Array]


def simulation(setup: Setup, rule: Rule) -> tuple[Setup, DType, float]:
    """What to compute, in which type, to see the errors of a rule, and what to multiply them by."""
    dtype, factor = rule.simulated()
    if rule.inside == "tf32":
        setup = with_products(setup, lambda a, b: np.asarray(to_tf32(a) @ to_tf32(b)))
    elif rule.inside == rule.dtype:
        setup = with_products(setup, one_by_one(dtype))
    return setup, dtype, factor


def with_products(setup: Setup, multiply: Product) -> Setup:
    """The setup with another function for its products; a bug changes the steps that have these."""

    def edit(steps: list[Step]) -> list[Step]:
        return [step._replace(product=multiply) for step in steps]

    return replace(setup, edits=(edit, *setup.edits))


def to_tf32(x: Array) -> Array:
    """x rounded to 10 bits after the point, in float32, as the factors of products of TF32 are.

    Source: NVIDIA A100 Tensor Core GPU Architecture (2020), "TF32".

    >>> to_tf32(np.array([1 + 2**-10 + 2**-12])).item() == 1 + 2**-10
    True
    """
    mantissa, exponent = np.frexp(x.astype(np.float32))
    step = np.float32(2 * 1 / TF32_EPS)
    return np.ldexp(np.rint(mantissa * step) / step, exponent)


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
