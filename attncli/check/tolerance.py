"""How far apart two right results may be, and how far apart two arrays are.

noise floor   the same stages with every stage rounded to the observed type, and their distance N
              from the float64 result: |observed − expected| ≤ f·max N + 4·eps·(|expected| + mean),
              f = 3 for 16-bit types, 6 for larger ones
decimals      half a unit of the last printed decimal
given         atol + rtol · |expected|
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.attention.functional import round_to
from attncli.convention import DType
from attncli.errors import ConventionError

EPS: dict[DType, float] = {
    "bfloat16": 2.0**-7,
    "float16": 2.0**-10,
    "float32": 2.0**-23,
    "float64": 2.0**-52,
}
"""The distance from 1 to the next number of each type, the narrowest type first."""

NOISE_FACTOR = {"float64": 6.0, "float32": 6.0, "float16": 3.0, "bfloat16": 3.0}
"""FlashAttention's own tests allow 2. Small types are rounded alike in every implementation; in
the large ones the order of the sums decides, and adding term by term is up to 5 times as noisy as
the order measured here."""

EPS_FACTOR = 4.0
"""An entry is rounded several times: as a score, a weight, a product and a sum."""


@dataclass(frozen=True)
class Rule:
    """How far an observed number may be from the expected one.

    kind   "noise": the noise floor of dtype; "decimals"; "given": rtol and atol
    dtype  the number type the observed values are judged in

    >>> Rule("decimals", decimals=2).describe()
    'half a unit of decimal 2'
    """

    kind: Literal["noise", "decimals", "given"] = "noise"
    dtype: DType = "float64"
    decimals: int = 0
    rtol: float = 0.0
    atol: float = 0.0

    def describe(self) -> str:
        """The rule in words."""
        if self.kind == "noise":
            return f"noise floor of {self.dtype}"
        if self.kind == "decimals":
            return f"half a unit of decimal {self.decimals}"
        return f"atol {self.atol:g}, rtol {self.rtol:g}"

    def noise_type(self) -> tuple[DType, float]:
        """The type to measure the noise in, and what to multiply it by.

        float64 is the reference itself: its noise is that of float32, scaled.
        """
        if self.dtype == "float64":
            return "float32", EPS["float64"] / EPS["float32"]
        return self.dtype, 1.0

    def tolerance(
        self, expected: Array, noise: Array | float, mask_value: float = -np.inf
    ) -> Tolerance:
        """The allowed distance, by the largest noise of the stage."""
        if self.kind == "decimals":
            return Tolerance(0.5 * 10.0**-self.decimals * (1 + 1e-9), 1e-12)
        if self.kind == "given":
            return Tolerance(self.atol, self.rtol)
        size = sizes(expected)
        counted = (size > 0) & (expected != mask_value)
        mean = float(size.mean(where=counted)) if counted.any() else 0.0
        share = EPS_FACTOR * EPS[self.dtype]
        return Tolerance(NOISE_FACTOR[self.dtype] * float(np.max(noise)) + share * mean, share)

    def allowed(self, expected: Array, noise: Array | float, mask_value: float = -np.inf) -> Array:
        """The allowed distance of every entry, by the largest noise of the stage."""
        return self.tolerance(expected, noise, mask_value).of(expected)


class Tolerance(NamedTuple):
    """How far an entry may be off: so much, and so much of its own size."""

    absolute: float
    relative: float

    def of(self, expected: Array) -> Array:
        """The allowed distance of every entry."""
        allowed = sizes(expected)
        allowed *= self.relative
        allowed += self.absolute
        return allowed


def sizes(x: Array) -> Array:
    """The size of every entry; 0 where it is not finite."""
    size = np.abs(x)
    np.copyto(size, 0.0, where=~np.isfinite(size))
    return size


def rule_of(decimals: int | None, rtol: float | None, atol: float | None, dtype: DType) -> Rule:
    """The rule that was asked for; ConventionError where the choices exclude each other."""
    if decimals is not None:
        if rtol is not None or atol is not None:
            raise ConventionError("decimals and rtol or atol are both given", "use one of them")
        if not 0 <= decimals <= 16:
            raise ConventionError(f"decimals is {decimals}", "use a whole number from 0 to 16")
        return Rule("decimals", dtype, decimals=decimals)
    if rtol is None and atol is None:
        return Rule("noise", dtype)
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < np.inf:
            raise ConventionError(f"{name} is {value}", "use a number from 0")
    return Rule("given", dtype, rtol=rtol or 0.0, atol=atol or 0.0)


def distance(observed: Array, expected: Array) -> Array:
    """|observed − expected|; 0 where both are NaN or the same infinity, inf where only one is.

    >>> distance(np.array([np.nan, np.nan, np.inf, 1.0]), np.array([np.nan, 1, np.inf, 3])).tolist()
    [0.0, inf, 0.0, 2.0]
    """
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.asarray(observed - expected)
    np.abs(apart, out=apart)
    np.copyto(apart, np.inf, where=np.isnan(apart))
    same = (observed == expected) | (np.isnan(observed) & np.isnan(expected))
    np.copyto(apart, 0.0, where=same)
    return apart


def largest(x: Array) -> float:
    """The largest size of a finite entry; 0 where there is none."""
    return float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))


def noise_of(rounded: Array, exact: Array, rule: Rule) -> Array:
    """The noise of every entry beyond its own last rounding; 0 where either is not finite.

    `rounded` is overwritten: each of these may be as large as all stages.
    """
    dtype, factor = rule.noise_type()
    noise = distance(rounded, exact)
    np.copyto(noise, 0.0, where=~(np.isfinite(noise) & np.isfinite(exact)))
    own = np.abs(exact, out=rounded)
    own *= EPS[dtype]
    noise -= own
    np.fmax(noise, 0.0, out=noise)  # also where either is not finite
    noise *= factor
    return noise


def rms(x: Array, where: BoolArray | Literal[True] = True) -> float:
    """Root of the mean square of some entries; inf where one is infinite."""
    top = float(np.max(x, initial=0.0, where=where))
    if top == 0 or not np.isfinite(top):
        return top
    squares = x / top
    squares *= squares
    return top * float(np.sqrt(np.mean(squares, where=where)))


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
    counted = np.isfinite(x) & (x * 16 != np.floor(x * 16))
    at_least: dict[DType, int] = {"bfloat16": 4, "float16": 4, "float32": 1}
    for name in at_least if dtype in ("float64", "float32") else ():
        exact = round_to(x, name).astype(np.float64)
        if counted.sum() >= at_least[name] and not distance(exact, x).any():
            return name
    return dtype
