"""Sums kept in low precision: no bug, a wider noise floor.

A matrix product whose running sum is rounded after every term is right arithmetic in that type,
and much noisier than one that is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attncli.attention.precision import round_to, widen
from attncli.check.bench import Bench
from attncli.check.case import Array
from attncli.check.engine import run
from attncli.check.tolerance import noise_of
from attncli.convention import DType


def one_by_one(dtype: DType) -> Callable[[Array, Array], Array]:
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


def within_low_sums(bench: Bench, sample: Bench) -> bool:
    """Whether everything that is wrong lies within the noise of sums kept in the observed type."""
    if bench.rule.kind != "noise" or bench.case.whole_axis is not None:
        return False
    dtype, _ = bench.rule.noise_type()
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = run(sample.case, sample.cut, dtype, one_by_one(dtype))
    for name, expected in bench.plain.items():
        noise = noise_of(rounded[name].astype(np.float64), sample.plain[name], bench.rule)
        allowed = bench.rule.allowed(expected, float(noise.max()), bench.case.how.mask_value)
        if (bench.errors[name] > allowed).any():
            return False
    return True
