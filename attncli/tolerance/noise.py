"""How exact a right implementation is on given inputs, row by row: errors put into its steps.

In the forward pass every result has an independent relative error, of rounding it and of a sum
of n terms, u √(1 + n/3), and q one besides, as it may be scaled first. In the backward pass all
that a step reads has one. So differences, such as dA − δ, are as uncertain here as in any right
implementation. A few times, each time with other errors. Some are larger, or shared:

    weights    of a row by u · its largest score together; in the backward pass by 2 u · log Σ exp:
               a kernel keeps that one number and takes exp(score − it) again, so that four
               roundings of numbers as large do not cancel
    δ          by u √(Σ (O ∘ dO)²): kernels take it of the rounded O
    equal keys have equal errors, so that nothing averages

What 16-bit sums and an overflow do is no independent error: that is computed in the number type.

Source: Higham, "Accuracy and Stability of Numerical Algorithms" (2002), sections 2.2 and 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.backward import as_given
from attncli.attention.run import Step
from attncli.convention import DType
from attncli.formula.evaluate import sizes_of
from attncli.formula.expression import Apply, Cell, Expr, Formula, Over, Shape, walk
from attncli.formula.parser import parse
from attncli.stages import (
    DELTA,
    DROPPED,
    GIVEN_GRADIENT,
    GRADIENTS,
    LSE,
    MASKED,
    OUTPUT,
    SCALED,
    SCORES,
    WEIGHTS,
)
from attncli.tolerance.number_types import (
    EPS,
    FIRST,
    LEAST,
    SMALL,
    Arithmetic,
    first_equal,
    fitting_type,
    one_by_one,
    row_rms,
    to_tf32,
)
from attncli.tolerance.rule import Rule, distance, errors_of
from attncli.tolerance.run import CELLS, Subset, at_once, stages
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import span_of

FEW = 32
"""So many numbers of a head say how large its noise is, to about a tenth of it."""

DRAWS = 8
"""So many times errors are drawn: the noise of a row of one number is known to a quarter then."""

ENOUGH, ENOUGH_OF_SAMPLE = 2**15, 2**13
"""So many scores are computed with errors, then only the rows again that are off by too much."""

AGAIN = 32
"""So often for the rows again: of two errors that cancel in a draw none is seen."""

PERIOD = 2**19 - 1
"""After so many numbers errors repeat: a prime, so that no two rows have the same."""

LEVEL = 2.0
"""Four independent roundings of a number as large as log Σ exp."""

MOST_LEVEL = 0.01
"""A whole row may be off by so large a share: where log Σ exp cannot be known better than that, an
implementation that goes by it is wrong."""

REPEATED = 4.0
"""So many times the error is allowed where keys are equal. Nothing averages: a row then depends on
the errors of a few scores, each of which may be four standard deviations off."""

SCALED_BACK = math.sqrt(3 / 2)
"""Where q or k is scaled first, scores are observed after one rounding more."""

EXP = 40.0
"""An exp of vector libraries is off by up to 20 units in the last place, 70 u, alike for like
numbers: in this root mean square."""

QUICK = 2.0**-14
"""A kernel whose queries are of 16 bits needs no better exp, and keeps the sum in float32: that of
PyTorch's flash attention on a CPU is off by up to 1.03 times this."""


def draws_of(
    setup: Setup, subset: Subset, expected: Mapping[str, Array], *, is_sample: bool
) -> int:
    """How many draws of errors are made first: fewer of many scores, if each head has many numbers.

    One number of a head is in one draw of ten hardly off, as the gradient of a sink.
    """
    n_scores = max(math.prod(subset.sizes) * setup.shape[3], at_once(setup), 1)
    least = 1 if all(math.prod(x.shape[2:]) >= FEW for x in expected.values()) else DRAWS // 2
    return max(least, min(DRAWS, (ENOUGH_OF_SAMPLE if is_sample else ENOUGH) // n_scores))


def rounding_noise(
    setup: Setup,
    subset: Subset,
    expected: Mapping[str, Array],
    arithmetic: Arithmetic,
    draws: int = DRAWS,
) -> dict[str, Array]:
    """The noise of the rows of these stages, [batch, head, row], by so many draws of errors.

    Draws are computed together, as batch items, but where a stage is a sum over these, or large.
    """
    over, needs_all = setup.convention.softmax_over, setup.whole_axes | setup.instead.keys()
    is_apart = 0 in needs_all or any(span_of(name, over) == "totals" for name in expected)
    is_large = draws * math.prod(subset.sizes) * setup.shape[3] > CELLS
    n_together = 1 if is_apart or is_large else draws
    together = subset._replace(batch=np.tile(subset.batch, n_together))
    squares: dict[str, list[Array]] = {name: [] for name in expected}
    errors = _Errors(setup, arithmetic, n_together)
    for _ in range(draws // n_together):
        for name, x in stages(setup, together, expected, alter=errors.put_in).items():
            every = x.reshape(-1, *expected[name].shape)
            with np.errstate(invalid="ignore", over="ignore"):
                off = np.abs(every - expected[name])
            off[~np.isfinite(off)] = 0.0
            squares[name].extend(row_rms(off))
    noise = dict[str, Array]()
    for name, rows in squares.items():  # no less than half of what rounding the result gives
        size = np.where(np.isfinite(expected[name]), np.abs(expected[name]), 0.0)
        least = arithmetic.stages / 2 * row_rms(size)
        noise[name] = np.maximum(row_rms(np.stack(rows, axis=-1)), least)
    if SCORES in noise:
        noise[SCORES] = noise[SCORES] * SCALED_BACK
    return noise


def simulated_noise(
    setup: Setup,
    subset: Subset,
    observed: Mapping[str, Array],
    rule: Rule,
    expected: Mapping[str, Array],
) -> dict[str, Array]:
    """What the rows of these stages are off by where they are computed in the number type.

    What overflows in the type that is asked for is expected to, and is put into `expected`.
    Frequencies of positions are powers, which may be off by a unit in the last place; the angles
    are off by the more, the further they are.
    """
    simulated, dtype, factor = simulation(setup, rule)
    if (positions := simulated.positions) is not None:
        simulated = simulated.with_positions(factor=positions.factor * (1 + EPS["float32"]))
    noise: dict[str, Array] = {}
    for name, result in stages(simulated, subset, expected, dtype).items():
        x = expected[name]
        if dtype == setup.convention.dtype:
            is_both = ~np.isfinite(result) & (distance(observed[name], result) == 0)
            np.copyto(x, result, where=is_both)
        off = errors_of(result, x, replace(rule, kind="noise"), setup.convention.mask_value)
        off[~(np.isfinite(off) & np.isfinite(x))] = 0.0
        noise[name] = factor * row_rms(off)
    return noise


def simulation(setup: Setup, rule: Rule) -> tuple[Setup, DType, float]:
    """What to compute, in which type, to see the errors of a rule, and what to multiply them by."""
    dtype, factor = rule.simulated()
    if rule.inside == "tf32":
        product = lambda a, b: np.asarray(to_tf32(a) @ to_tf32(b))  # noqa: E731
    elif rule.inside == rule.dtype:
        product = one_by_one(dtype)
    else:
        return setup, dtype, factor

    def edit(steps: list[Step]) -> list[Step]:
        """A bug changes the steps that have these products."""
        return [step._replace(product=product) for step in steps]

    return replace(setup, edits=(edit, *setup.edits)), dtype, factor


@lru_cache(2)
def _signs(*, again: bool) -> npt.NDArray[np.int8]:
    """Errors of ±1, [draw, number]: DRAWS, or AGAIN other ones.

    Of DRAWS those of two numbers are nearly always uncorrelated, as rows of a Hadamard matrix are;
    one time in 16 they cancel in each, which independent ones do not.
    """
    rng, rows = np.random.default_rng(0), np.ones((1, 1), np.int8)
    for _ in range(3):
        rows = np.block([[rows, rows], [rows, -rows]])
    signs = rng.integers(2, size=PERIOD, dtype=np.int8) * 2 - 1
    first = rows[:, rng.integers(len(rows), size=PERIOD)] * signs
    return rng.integers(2, size=(AGAIN, PERIOD), dtype=np.int8) * 2 - 1 if again else first


@lru_cache(4096)
def sums_of(
    text: str, shapes: tuple[tuple[str, Shape], ...], lengths: tuple[tuple[str, int], ...]
) -> tuple[int, bool]:
    """How many terms the sums of a formula have, and whether it is a product of two matrices.

    A log-sum-exp has one: its sum is in what `_of_sums` puts in.
    """
    formula = parse(text)
    sizes = sizes_of(formula, (), dict(shapes), dict(lengths))
    overs = [x for x in walk(formula.body) if isinstance(x, Over) and x.kind in ("sum", "softmax")]
    letters = dict.fromkeys(letter for over in overs for letter in over.letters)
    match overs[-1:]:
        case [Over("sum", _, Apply("*", (Cell(_, one), Cell(_, other))))]:
            is_product = one != other and formula.body in (overs[0], _with_bias(overs[0], formula))
        case _:
            is_product = False
    return math.prod(sizes.get(letter, 1) for letter in letters), is_product


def _with_bias(product: Over, formula: Formula) -> Expr | None:
    """A product of matrices with the bias that the formula adds, if it does."""
    match formula.body:
        case Apply("+", (_, Cell() as bias)):
            return Apply("+", (product, bias))
    return None


class _Errors:
    """Errors put into steps.

    level  of the weights of each row, relative
    alike  the first of the keys that each is equal to, [batch, head, n_k]; None: none repeats
    """

    def __init__(self, setup: Setup, arithmetic: Arithmetic, draws: int) -> None:
        self.unit, self.draws, self.setup = arithmetic, draws, setup
        self.rng = np.random.default_rng(0)
        # a scale is rounded with its scores, and a mask that adds no numbers rounds nothing
        self.unrounded = {SCALED} if setup.is_added else {SCALED, MASKED}
        self.level: Array | None = None
        self.alike: npt.NDArray[np.intp] | None = None

    def put_in(self, steps: list[Step]) -> list[Step]:
        """The steps with errors."""
        d_output = next((step.name for step in steps if step.function is as_given), "")
        more = {"rounded_o": OUTPUT, "its_d": d_output}
        result = []
        for step in steps:
            changed = step
            if step.name == DELTA and step.params.get("axis", -1) == -1:
                changed = step._replace(function=self._delta(step), reads={**step.reads, **more})
            result.append(changed if changed.dtype is None else self._off(changed))
        return result

    def _delta(self, step: Step) -> Callable[..., Array]:
        """δ with what the rounding of O makes of it."""

        def compute(rounded_o: Array, its_d: Array, **values: Any) -> Array:
            size = self.unit.stages * np.sqrt(np.square(rounded_o * its_d).sum(axis=-1))
            return np.asarray(step.compute(**values) + size * self._drawn(size.shape))

        return compute

    def _off(self, step: Step) -> Step:
        leaf = step.name.rpartition(".")[2]

        def backward(**values: Any) -> Array:
            """Every number that is read has the error of a factor, and of a sum of products."""
            read, of_sums, is_product = self._read(step, values)
            size = math.hypot(self.unit.factors if is_product else self.unit.stages, of_sums)
            off = {name: self._with_errors(x, size) for name, x in read.items()}
            for name, stage in step.reads.items():
                if stage in (WEIGHTS, DROPPED) and self.level is not None:
                    off[name] = off[name] * (1 + self.level * self._drawn(self.level.shape))
            return step.compute(**values | off)

        def forward(**values: Any) -> Array:
            """One factor of every product has an error, and every result that of its rounding."""
            read, of_sums, is_product = self._read(step, values)
            size = math.hypot(self.unit.factors, of_sums)
            if leaf == SCORES:
                k = read["k"]  # of all draws
                self.alike = first_equal(k[: max(1, len(k) // self.draws)])
            else:  # q may be scaled first; the weights have an error of their own already
                size = math.sqrt(size**2 - self.unit.stages**2)
            off = {name: self._with_errors(read[name], size) for name in [*read][:is_product]}
            result = step.compute(**values | off)
            if leaf in self.unrounded:
                return result
            if leaf == LSE:
                n = values["x"].shape[-1] if "x" in values else 1
                return np.asarray(result + self._of_sums(result, n))
            if leaf == WEIGHTS:
                of_row = self._level_of(read["x"], of_sums)
                result, of_sums = result * (1 + of_row * self._drawn(of_row.shape)), 0.0
            signs, size = self._drawn(result.shape), math.hypot(self.unit.stages, of_sums)
            if leaf in (SCORES, WEIGHTS) and self.alike is not None:
                signs = self._of_equal(signs)
            if np.isfinite(value := step.params.get("value", -np.inf)):  # it is exact
                signs = np.where(result == value, 0, signs)
            errors = self._with_errors(result, size, signs)
            return self._with_smallest(errors, signs) if leaf in POWERS else errors

        return step._replace(function=backward if leaf in GRADIENTS else forward)

    def _read(self, step: Step, values: Mapping[str, Any]) -> tuple[dict[str, Array], float, bool]:
        """The numbers that a step reads, the error of its sums, and whether it is a product."""
        read = {name: x for name, x in values.items() if name in step.reads and _is_floats(x)}
        shapes = tuple((name, x.shape) for name, x in read.items())
        sizes = tuple(step.sizes.items())
        terms, is_product = (1, False) if step.function else sums_of(step.expression, shapes, sizes)
        return read, self.unit.sums * math.sqrt(terms / 3), is_product

    def _of_equal(self, signs: Array) -> Array:
        """Larger errors that are equal for equal keys; where sums may differ, beside their own."""
        assert self.alike is not None  # noqa: S101
        if signs.shape[-1] != self.alike.shape[-1] or signs.shape[1] != self.alike.shape[1]:
            return signs
        first = np.tile(self.alike, (len(signs) // len(self.alike), 1, 1))
        repeats = (first != np.arange(first.shape[-1])).any(axis=-1)[..., None, None]
        alike = np.broadcast_to(first[..., None, :], signs.shape)
        both = REPEATED * np.take_along_axis(signs, alike, axis=-1)
        if self.unit.sums == self.unit.stages:
            both = both + self._drawn(signs.shape)
        return np.where(repeats, both, signs)

    def _of_sums(self, lse: Array, n: int) -> Array:
        """What the logarithm of a sum of exp is off by: as much as the sum, of 1, and by itself."""
        of_sum = self.unit.sums * math.hypot(EXP, math.sqrt(n / 3))
        is_quick = fitting_type(self.setup.inputs["q"].ravel()[:FIRST], "float64") in SMALL
        of_sum = max(of_sum, QUICK) if is_quick else of_sum
        size = np.hypot(of_sum, self.unit.stages * lse)
        return np.asarray(np.nan_to_num(size, posinf=0.0) * self._drawn(lse.shape))

    def _with_errors(self, x: Array, size: float, signs: Array | None = None) -> Array:
        errors = np.multiply(self._drawn(x.shape) if signs is None else signs, size, dtype=x.dtype)
        errors += 1
        errors *= x
        return errors

    def _with_smallest(self, x: Array, signs: Array) -> Array:
        """Exponentials with what rounds those below the range of normal numbers: these are
        multiples of the smallest number of the type, however small they are."""
        is_double = self.unit.sums < EPS["float32"] / 1000
        dtype: DType = "float64" if is_double else "float32"
        is_small = (x != 0) & (np.abs(x) < LEAST[dtype] / EPS[dtype])
        if not is_small.any():
            return x
        return np.asarray(np.where(is_small, x + LEAST[dtype] / math.sqrt(12) * signs, x))

    def _drawn(self, shape: tuple[int, ...]) -> Array:
        """Errors of ±1; those of all draws are in a row of batch items."""
        draws = self.draws if shape and shape[0] % self.draws == 0 else 1
        n, start = math.prod(shape) // draws, int(self.rng.integers(PERIOD))
        signs = _signs(again=draws > DRAWS)[:draws]
        if start + n > PERIOD:
            signs = np.take(signs, np.arange(start, start + n), axis=1, mode="wrap")
            start = 0
        return signs[:, start : start + n].reshape(shape)

    def _level_of(self, x: Array, of_sums: float) -> Array:
        """What the weights of each row are off by together: u times the largest score, and its sum.

        In a backward pass, which takes exp(score − log Σ exp) again: 2 u · |log Σ exp|, and exp.
        """
        top = x.max(axis=-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        if GIVEN_GRADIENT in self.setup.inputs:
            lse = top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True) + 1e-300)
            of_exp = self.unit.sums * np.hypot(LEVEL * lse, EXP)
            self.level = np.asarray(np.minimum(of_exp, MOST_LEVEL))
        return np.hypot(np.minimum(self.unit.sums * np.abs(top), MOST_LEVEL), of_sums)


POWERS = WEIGHTS, "p"
"""The stages of exponentials, which may be as small as any number: p is that of a tile."""


def _is_floats(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"
