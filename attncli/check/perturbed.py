"""What gradients may be off by where sums are taken in another order: computed a few times, with
errors put in.

Every step reads its numbers with independent relative errors, as large as a rounding error u of
each factor and those of a sum of n products, u √(1 + n/3). Weights are off by 2 u · log Σ exp of
their row besides: a kernel keeps that one number and takes exp(score − it) again in the backward
pass, so that four roundings of numbers about as large no longer cancel: of the score, its sum, its
scale, and that number. And kernels take δ of the rounded O: δ is off by u √(Σ (O ∘ dO)²) besides.
So differences, such as dA − δ, are as uncertain here as in any right implementation.

Source: Higham, "Accuracy and Stability of Numerical Algorithms" (2002), sections 2.2 and 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.backward import as_given
from attncli.attention.run import Step
from attncli.check.noise import MOST_LEVEL, SMALL, Arithmetic
from attncli.check.run import Subset, stages
from attncli.check.setup import Setup
from attncli.check.tolerance import FIRST, fitting_type, row_rms
from attncli.evaluate import sizes_of
from attncli.expression import Apply, Cell, Over, Shape, walk
from attncli.parser import parse
from attncli.stages import CAPPED, DELTA, DROPPED, LSE, OUTPUT, WEIGHTS

DRAWS = 8
"""So many times errors are drawn: the noise of a row of one number is known to a quarter then."""

ENOUGH = 2**22
"""With so many scores one draw says enough."""

LEVEL = 2.0
"""Four independent roundings of a number as large as log Σ exp."""

EXP = 40.0
"""An exp of vector libraries is off by up to 20 units in the last place, 70 u, alike for like
numbers: in this root mean square."""

QUICK = 2.0**-14
"""A kernel whose queries are of 16 bits needs no better exp, and keeps the sum in float32: that of
PyTorch's flash attention on a CPU is off by up to 1.03 times this."""


def perturbed_noise(
    setup: Setup,
    subset: Subset,
    expected: Mapping[str, Array],
    arithmetic: Arithmetic,
    draws: int = DRAWS,
) -> dict[str, Array]:
    """The noise of the rows of these stages, [batch, head, row]; fewer draws of many scores."""
    n_scores = math.prod(subset.sizes) * setup.shape[3]
    n_draws = max(1, min(draws, ENOUGH // max(1, n_scores)))
    sums: dict[str, Array] = {}
    few = setup.inputs["q"].ravel()[:FIRST]
    is_quick = LSE in expected and fitting_type(few, "float64") in SMALL
    for seed in range(n_draws):
        errors = _Errors(arithmetic, seed, is_quick=is_quick)
        for name, x in stages(setup, subset, expected, alter=errors.put_in).items():
            with np.errstate(invalid="ignore", over="ignore"):
                off = np.abs(x - expected[name])
            off[~np.isfinite(off)] = 0.0
            sums[name] = np.hypot(sums.get(name, 0.0), row_rms(off))
    return {name: x / math.sqrt(n_draws) for name, x in sums.items()}


@lru_cache(4096)
def sums_of(
    text: str, shapes: tuple[tuple[str, Shape], ...], known: tuple[tuple[str, int], ...]
) -> tuple[int, bool]:
    """How many terms the sums of a formula have, and whether it is a product of two matrices.

    A log-sum-exp has one: its sum is in what `_of_sums` puts in.
    """
    formula = parse(text)
    sizes = sizes_of(formula, (), dict(shapes), dict(known))
    overs = [x for x in walk(formula.body) if isinstance(x, Over) and x.kind in ("sum", "softmax")]
    letters = dict.fromkeys(letter for over in overs for letter in over.letters)
    match overs[-1:]:
        case [Over("sum", _, Apply("*", (Cell(_, one), Cell(_, other))))]:
            is_product = one != other and formula.body == overs[0]
        case _:
            is_product = False
    return math.prod(sizes.get(letter, 1) for letter in letters), is_product


class _Errors:
    """Errors put into what every step reads; level: of the weights of each row, relative."""

    def __init__(self, arithmetic: Arithmetic, seed: int, *, is_quick: bool) -> None:
        self.unit, self.rng, self.is_quick = arithmetic, np.random.default_rng(seed), is_quick
        self.level: Array | None = None

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

        def compute(rounded_o: Array, its_d: Array, **given: Any) -> Array:
            size = self.unit.stages * np.sqrt(np.square(rounded_o * its_d).sum(axis=-1))
            return np.asarray(step.compute(**given) + size * self._normal(size.shape))

        return compute

    def _off(self, step: Step) -> Step:
        text = step.expression

        def compute(**given: Any) -> Array:
            read = {x: y for x, y in given.items() if x in step.reads and _is_floats(y)}
            shapes = tuple((name, x.shape) for name, x in read.items())
            known = tuple(step.sizes.items())
            terms, is_product = (1, False) if step.function else sums_of(text, shapes, known)
            factor = self.unit.factors if is_product else self.unit.stages  # TF32 rounds factors
            size = math.hypot(factor, self.unit.sums * math.sqrt(terms / 3))
            off = {name: self._with_errors(x, size) for name, x in read.items()}
            for name, stage in step.reads.items():
                if stage in (WEIGHTS, DROPPED) and self.level is not None:
                    off[name] = off[name] * (1 + self.level * self._normal(self.level.shape))
            if step.name == WEIGHTS:
                self.level = self._level_of(read["x"])
            result = step.compute(**given | off)
            if step.name == CAPPED:  # near the cap it is as flat as no other step
                result = self._with_errors(result, self.unit.stages)
            if step.name.rpartition(".")[2] == LSE:
                n = given["x"].shape[-1] if "x" in given else 1
                result = result + self._of_sums(result, n)
            return result

        return step._replace(function=compute)

    def _of_sums(self, lse: Array, n: int) -> Array:
        """What the logarithm of a sum of exp is off by: as much as the sum, of 1, and by itself."""
        of_sum = self.unit.sums * math.hypot(EXP, math.sqrt(n / 3))
        of_sum = max(of_sum, QUICK) if self.is_quick else of_sum
        size = np.hypot(of_sum, self.unit.stages * lse)
        return np.asarray(np.nan_to_num(size, posinf=0.0) * self._normal(lse.shape))

    def _with_errors(self, x: Array, size: float) -> Array:
        return np.asarray(x * (1 + size * self._normal(x.shape)))

    def _normal(self, shape: tuple[int, ...]) -> Array:
        return self.rng.standard_normal(shape, dtype=np.float32).astype(np.float64)

    def _level_of(self, x: Array) -> Array:
        """2 u · |log Σ exp| of each row, and the error of exp."""
        top = x.max(axis=-1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        lse = top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True) + 1e-300)
        return np.asarray(np.minimum(self.unit.sums * np.hypot(LEVEL * lse, EXP), MOST_LEVEL))


def _is_floats(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "f"
