"""Number types: how exact each is, which one numbers are of, products in less exact ones; how large
numbers are, and which are equal.

Source: Higham, "Accuracy and Stability of Numerical Algorithms" (2002), sections 2.2 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.convention import DType
from attncli.formula.kernels import round_to, widen

EPS: dict[DType, float] = {
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
}
"""The distance from 1 to the next number of each type, the narrowest type first."""

LEAST: dict[DType, float] = {
    "bfloat16": 2.0**-133,
    "float16": 2.0**-24,
    "float32": 2.0**-149,
    "float64": 2.0**-1074,
}
"""Numbers of each type below its range are multiples of this one."""

SMALL: tuple[DType, ...] = ("float16", "bfloat16")
"""The types whose rounding is large enough to conceal a bug; their sums are kept in float32."""

TF32_EPS = 2.0**-10
"""The factors of a product in TF32 have 10 bits after the point."""

ROUNDING = 0.21
"""Root mean square of a rounding error, in eps of the number rounded: uniform in half a unit of the
last place, 1/√12, over numbers uniform in [1, 2), √½."""

FIRST = 1000
"""So many numbers are tried first for whether they fit a type: one that does not is enough."""


class Arithmetic(NamedTuple):
    """Relative rounding errors, as root mean squares.

    stages   of each stage
    factors  of what goes into the products: of q or k that are scaled first; in TF32 of all
    sums     of each addition
    """

    stages: float
    factors: float
    sums: float

    @classmethod
    def of(cls, dtype: DType) -> Arithmetic:
        """That of a number type: 16-bit types are summed in float32, the others in themselves."""
        unit = ROUNDING * EPS[dtype]
        if dtype in SMALL:
            return cls(unit, unit, ROUNDING * EPS["float32"])
        unit *= 2 if dtype == "float64" else 1.4  # the reference is off by as much as float64
        return cls(unit, unit, unit)

    @classmethod
    def tf32(cls) -> Arithmetic:
        """That of float32 with TF32 products, whose four factors are rounded to 10 bits."""
        return cls.of("float32")._replace(factors=2 * ROUNDING * TF32_EPS)


def narrower(*dtypes: DType) -> DType:
    """The narrowest of some number types.

    >>> narrower("float32", "float16")
    'float16'
    """
    return max(dtypes, key=EPS.__getitem__)


def fitting_type(x: Array, dtype: DType) -> DType:
    """The narrowest type that has every number of x exactly: the type x was widened from.

    Numbers that fit any type, such as 0.5, are not counted. A float16 number fits bfloat16 by
    chance, 1 in 8, so four must fit a 16-bit type; one that fits float32 is enough: 1 in 2²⁹.

    >>> fitting_type(np.float32([0.1, 0.2]).astype(np.float64), "float64")
    'float32'
    """
    if dtype not in ("float64", "float32"):
        return dtype
    counted = np.isfinite(x) & (x * 16 != np.floor(x * 16))
    at_least: dict[DType, int] = {"bfloat16": 4, "float16": 4, "float32": 1}
    for name, least in at_least.items():
        if counted.sum() >= least and all(
            np.array_equal(round_to(some, name), some, equal_nan=True)
            for some in (x.ravel()[:FIRST], x)
        ):
            return name
    return dtype


def to_tf32(x: Array) -> Array:
    """x rounded to 10 bits after the point, in float32, as the factors of products of TF32 are.

    Source: NVIDIA A100 Tensor Core GPU Architecture (2020), "TF32".

    >>> to_tf32(np.array([1 + 2**-10 + 2**-12])).item() == 1 + 2**-10
    True
    """
    mantissa, exponent = np.frexp(x.astype(np.float32))
    step = np.float32(2 * 1 / TF32_EPS)
    return np.ldexp(np.rint(mantissa * step) / step, exponent)


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


def proportions(x: Array) -> Array:
    """How much larger entries are than the root mean square of their row, at least 1."""
    size = sizes(x)
    typical = row_rms(size)[..., None]
    return np.maximum(np.divide(size, typical, out=np.ones_like(size), where=typical > 0), 1)


def sizes(x: Array) -> Array:
    """The size of every entry; 0 where it is not finite."""
    size = np.abs(x)
    np.copyto(size, 0.0, where=~np.isfinite(size))
    return size


def row_rms(x: Array) -> Array:
    """Root of the mean square along the last axis; inf where an entry is infinite."""
    if x.size == 0:
        return np.zeros(x.shape[:-1])
    top = np.max(x, axis=-1, keepdims=True)
    scaled = np.divide(x, top, out=np.zeros_like(x), where=(top > 0) & np.isfinite(top))
    mean = np.einsum("...i,...i->...", scaled, scaled) / x.shape[-1]
    return np.where(np.isinf(top[..., 0]), np.inf, top[..., 0] * np.sqrt(mean))


def first_equal(k: Array) -> npt.NDArray[np.intp] | None:
    """The first key that each is equal to; None where no two keys of a head are equal.

    >>> first_equal(np.array([[[[1.0, 2], [3, 4], [1, 2]]]]))
    array([[[0, 1, 0]]])
    """
    bits = np.ascontiguousarray(k, dtype=np.float64).view(np.uint64)
    odd = np.random.default_rng(0).integers(0, 2**63, bits.shape[-1], dtype=np.uint64) * 2 + 1
    hashes = (bits * odd).sum(axis=-1, dtype=np.uint64)  # whole numbers: the same in any order
    order = np.argsort(hashes, axis=-1, kind="stable")
    ordered = np.take_along_axis(hashes, order, axis=-1)
    repeats = np.zeros(hashes.shape, dtype=np.bool_)
    repeats[..., 1:] = ordered[..., 1:] == ordered[..., :-1]
    if not repeats.any():
        return None
    starts = np.where(repeats, 0, np.arange(hashes.shape[-1]))
    first = np.take_along_axis(order, np.maximum.accumulate(starts, axis=-1), axis=-1)
    result = np.empty_like(first)
    np.put_along_axis(result, order, first, axis=-1)
    return result
