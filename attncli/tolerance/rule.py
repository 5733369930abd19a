"""How far apart two right results may be, and how far apart two arrays are.

noise      what a right implementation in the observed number type is off by, see rounding.py: the
           root mean square of a head's errors may be 1.5 times as large, that of a row 5 times, and
           one entry 16 times
decimals   half a unit of the last printed decimal
given      atol + rtol · |expected|
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.convention import DType
from attncli.errors import ConventionError
from attncli.files.messages import count
from attncli.tolerance.number_types import (
    EPS,
    LEAST,
    Arithmetic,
    narrower,
    proportions,
    row_rms,
    sizes,
)
from attncli.tolerance.run import Indices

Inside = Literal["float32", "tf32", "bfloat16", "float16"]
"""The arithmetic inside an implementation, where it is not that of the numbers that come out."""

HEAD_FACTOR = 1.5
"""Right implementations in 16 bits lie at 0.1 to 1.1 times the noise, wrong ones at 7 or more."""

FEW_ROWS = 2.0
"""With n rows that count the root mean square itself is uncertain by about 1/√n of it; the largest
ratio seen in 100,000 right results of few rows was 1.4 × (1 + 2/√n)."""

ROW_FACTOR = 5.0
"""Right rows lie at up to 4.1 times their own noise, which is of few numbers."""

ENTRY_FACTOR = 16.0
"""Right entries lie at up to 13 times the noise of their row: columns of V differ in size. Of 1024
weights they lie at up to 32 times, for one may be 30 times the typical one: see proportions."""

ROW_FLOOR = 0.25
"""A row has at least so much of the noise of its head: a row with nothing to round has none, and
would be wrong by the smallest error."""

CLEARLY = (16.0, 4.0, 1.0)
"""Where a stage is wrong, its wrong entries are those beyond the first of these multiples of the
noise that any is beyond."""


class Places(NamedTuple):
    """To how many decimals or significant digits numbers were rounded."""

    n: int
    kind: Literal["decimal", "digit"] = "decimal"

    def half_unit(self, x: Array) -> Array:
        """Half a unit of the last place of every number; of digits 0 where it is not finite."""
        half = np.full(x.shape, 0.5 * 10.0**-self.n * (1 + 1e-9))
        if self.kind == "digit":
            half *= 10.0 ** (1 + np.floor(np.log10(np.maximum(sizes(x), 1e-300))))
        return half


@dataclass(frozen=True)
class Rule:
    """How far an observed number may be from the expected one.

    kind    "noise": as far as rounding in dtype explains; "decimals"; "given": rtol and atol;
            "printed": by the decimals of each stage, where those are known, else "noise"
    dtype   the number type the observed values are judged in
    inside  the arithmetic that an implementation may have inside, where it is less exact
    printed  stage → the places that its numbers were printed with
    places  those of one stage, where rounding explains half a unit of them more

    >>> Rule("decimals", decimals=2).describe()
    'half a unit of decimal 2'
    >>> Rule("noise", "bfloat16", inside="bfloat16").describe()
    'rounding in sums kept in bfloat16'
    """

    kind: Literal["noise", "decimals", "given", "printed"] = "noise"
    dtype: DType = "float64"
    decimals: int = 0
    rtol: float = 0.0
    atol: float = 0.0
    inside: Inside | None = None
    printed: Mapping[str, Places] = field(default_factory=dict)
    places: Places | None = None

    def of(self, stage: str) -> Rule:
        """The rule for one stage."""
        places = self.printed.get(stage)
        if self.kind == "printed" and places is not None and places.kind == "decimal":
            return Rule("decimals", self.dtype, decimals=places.n)
        kind = "noise" if self.kind == "printed" else self.kind
        return replace(self, kind=kind, printed={}, places=places)

    def describe(self) -> str:
        """The rule in words."""
        if self.kind == "noise":
            unit = f" and to {count(*self.places)}" if self.places else ""
            arithmetic = "TF32" if self.inside == "tf32" else self.inside or self.dtype
            sums = "sums kept in " * (self.inside == self.dtype)
            return f"rounding in {sums}{arithmetic}{unit}"
        if self.kind == "decimals":
            return f"half a unit of decimal {self.decimals}"
        return f"atol {self.atol:g}, rtol {self.rtol:g}"

    def arithmetic(self) -> Arithmetic:
        """How exact a right implementation is."""
        outside = Arithmetic.of(self.dtype)
        if self.inside is None:
            return outside
        if self.inside == self.dtype:  # sums and all
            return outside._replace(sums=outside.stages)
        inside = Arithmetic.tf32() if self.inside == "tf32" else Arithmetic.of(self.inside)
        return Arithmetic(*map(max, outside, inside))

    def simulated(self) -> tuple[DType, float]:
        """The type to simulate the computation in, and what to multiply its errors by."""
        if self.inside is not None:
            return narrower(self.dtype, "float32" if self.inside == "tf32" else self.inside), 1.0
        if self.dtype == "float64":  # the reference itself
            return "float32", EPS["float64"] / EPS["float32"]
        return self.dtype, 1.0

    def allowed(self, expected: Array) -> Array:
        """The allowed distance of every entry, by decimals or as given; beside noise, by places."""
        if self.kind == "decimals":
            return Places(self.decimals).half_unit(expected)
        if self.places is not None:
            return self.places.half_unit(expected)
        return self.atol + self.rtol * sizes(expected)


class Ratios(NamedTuple):
    """How large errors are beside what is allowed: of the worst head, row and entry."""

    head: float
    row: float
    entry: float


@dataclass(frozen=True, eq=False)
class StageErrors:
    """One stage, [batch, head, row, last]: two arrays and how far they are apart.

    Each may be as large as all stages together, so what follows from them is made when asked for.

    noise          [batch, head, row], root mean squares; None where the rule goes by entry
    mask_value     a finite number that stands for −∞ in scores: it is as exact as its type
    slack          a factor on what is allowed, for a sample
    wrong_entries  the wrong entries, where they follow from more than is here
    head_noise     [batch, head], where the noise of most rows is only the least that they count as
    are_shares     weights: what rounds a row's scores moves each of them in proportion to itself
    """

    observed: Array
    expected: Array
    rule: Rule
    noise: Array | None = None
    mask_value: float = -np.inf
    slack: float = 1.0
    wrong_entries: BoolArray | None = None
    head_noise: Array | None = None
    are_shares: bool = False

    def at(self, *positions: Indices, slack: float) -> StageErrors:
        """The same at these positions of the batch items, heads and rows."""
        at = np.ix_(*positions)
        noise = None if self.noise is None else self.row_noise[at]
        return replace(
            self,
            observed=self.observed[at],
            expected=self.expected[at],
            noise=noise,
            slack=slack,
            wrong_entries=self.wrong[at],
            head_noise=None,
        )

    @property
    def errors(self) -> Array:
        """|observed − expected|."""
        return errors_of(self.observed, self.expected, self.rule, self.mask_value)

    @cached_property
    def by_row(self) -> tuple[Array, Array, Array]:
        """Of every row: root mean square error; largest; largest, of shares in proportion."""
        shape = self.expected.shape[:3]
        typical, largest, beside = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        for at in np.ndindex(shape[:2]):  # one at a time: a stage may be as large as memory allows
            errors = errors_of(self.observed[at], self.expected[at], self.rule, self.mask_value)
            largest[at] = errors.max(axis=-1, initial=0.0)
            typical[at] = row_rms(errors)
            if self.are_shares:
                errors /= proportions(self.expected[at])
            beside[at] = errors.max(axis=-1, initial=0.0)
        return typical, largest, beside

    @cached_property
    def matches(self) -> bool:
        """Whether the errors are no larger than the rule allows."""
        if self.noise is None:
            return not bool((self.errors > self.slack * self.rule.allowed(self.expected)).any())
        return all(ratio <= self.slack for ratio in self.ratios)

    @cached_property
    def ratios(self) -> Ratios:
        """The errors beside the noise; 1 is the limit."""
        noise = np.zeros(1) if self.noise is None else self.noise
        typical, _, largest = self.by_row
        top = np.maximum(noise.max(axis=-1, initial=0.0, keepdims=True), 1e-300)
        share = np.square(noise / top)
        counting = share.sum(axis=-1) ** 2 / np.maximum(np.square(share).sum(axis=-1), 1e-300)
        limit = HEAD_FACTOR * (1 + FEW_ROWS / np.sqrt(np.maximum(counting, 1)))
        row, of_heads = self.row_noise, np.maximum(self.of_heads, LEAST[self.rule.dtype])
        return Ratios(
            _largest_ratio(row_rms(typical), limit * of_heads),
            _largest_ratio(typical, ROW_FACTOR * row),
            _largest_ratio(largest, ENTRY_FACTOR * row),
        )

    @property
    def wrong_rows(self) -> BoolArray:
        """The rows that are off by more than their noise allows, [batch, head, row]."""
        typical, _, largest = self.by_row
        noise = self.slack * self.row_noise
        return np.asarray((typical > ROW_FACTOR * noise) | (largest > ENTRY_FACTOR * noise))

    @property
    def row_noise(self) -> Array:
        """The noise of every row: at least a share of that of its head, or a smallest number."""
        noise = np.zeros(1) if self.noise is None else self.noise
        least = np.maximum(ROW_FLOOR * self.of_heads[..., None], LEAST[self.rule.dtype])
        return np.maximum(noise, least)

    @property
    def of_heads(self) -> Array:
        """The noise of every head, [batch, head]."""
        if self.head_noise is not None:
            return self.head_noise
        return row_rms(np.zeros((1, 1, 1)) if self.noise is None else self.noise)

    @cached_property
    def allowed(self) -> Array:
        """The distance within which the right entries of a wrong stage lie; it broadcasts."""
        if self.noise is None:
            return self.rule.allowed(self.expected)
        row, largest = self.row_noise, self.by_row[2]
        factor = next((x for x in CLEARLY if (largest > x * row).any()), CLEARLY[-1])
        allowed: Array = (factor * row)[..., None]
        return allowed * proportions(self.expected) if self.are_shares else allowed

    @cached_property
    def wrong(self) -> BoolArray:
        """The entries that are wrong; none where the stage matches."""
        if self.wrong_entries is not None:
            return self.wrong_entries
        if self.matches:
            return np.zeros(self.expected.shape, dtype=np.bool_)
        return self.errors > self.allowed

    @cached_property
    def largest(self) -> float:
        """The largest error."""
        return float(self.by_row[1].max(initial=0.0))

    @cached_property
    def typical(self) -> float:
        """The root mean square of all errors."""
        return rms(self.by_row[0])

    @cached_property
    def typical_wrong(self) -> float:
        """The root mean square of the errors of wrong entries."""
        return rms(self.errors, self.wrong)


def _largest_ratio(x: Array, limit: Array) -> float:
    """The largest x / limit; 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(x == 0, 0.0, x / limit)
    return float(np.max(ratio, initial=0.0))


def errors_of(observed: Array, expected: Array, rule: Rule, mask_value: float = -np.inf) -> Array:
    """|observed − expected|; 0 for a finite mask value that is as near as its type can be."""
    errors = distance(observed, expected)
    if mask_value != -np.inf and rule.kind == "noise":  # or a score that it is added to
        near = errors <= EPS[narrower(rule.dtype, rule.simulated()[0])] * abs(mask_value)
        near &= np.abs(expected) >= abs(mask_value) / 2
        np.copyto(errors, 0.0, where=near)
    if rule.places is not None:  # of a print, what is beyond its rounding
        errors = np.maximum(errors - rule.allowed(expected), 0.0)
    return errors


def rule_of(
    decimals: int | None,
    rtol: float | None,
    atol: float | None,
    dtype: DType,
    inside: Inside | None = None,
) -> Rule:
    """The rule that was asked for; ConventionError where the choices exclude each other."""
    if inside not in (None, *get_args(Inside)):
        raise ConventionError(f"inside is {inside!r}", f"use {', '.join(get_args(Inside))}")
    if inside is not None and (decimals, rtol, atol) != (None, None, None):
        raise ConventionError("inside and decimals, rtol or atol are both given", "use one of them")
    if decimals is not None:
        if rtol is not None or atol is not None:
            raise ConventionError("decimals and rtol or atol are both given", "use one of them")
        if not 0 <= decimals <= 16:
            raise ConventionError(f"decimals is {decimals}", "use a whole number from 0 to 16")
        return Rule("decimals", dtype, decimals=decimals)
    if rtol is None and atol is None:
        return Rule("noise", dtype, inside=inside)
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
    if np.isfinite(apart).all():
        return apart
    np.copyto(apart, np.inf, where=np.isnan(apart))
    same = (observed == expected) | (np.isnan(observed) & np.isnan(expected))
    np.copyto(apart, 0.0, where=same)
    return apart


def largest(x: Array) -> float:
    """The largest size of a finite entry; 0 where there is none."""
    return float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))


def rms(x: Array, mask: BoolArray | Literal[True] = True) -> float:
    """Root of the mean square of some entries; inf where one is infinite."""
    top = float(np.max(x, initial=0.0, where=mask))
    if top == 0 or not np.isfinite(top):
        return top
    squares = x / top
    squares *= squares
    return top * float(np.sqrt(np.mean(squares, where=mask)))
