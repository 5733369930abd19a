"""Lower precision inside: the numbers are right but for arithmetic that is less exact than theirs.

TF32 products in float32, a float32 softmax in a float64 model, sums kept in bfloat16. It is a
verdict of its own and no match, unless it is asked for.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attncli.arrays import Array
from attncli.check.comparison import Comparison, is_closer
from attncli.check.direction import beta
from attncli.check.number_types import SMALL
from attncli.check.rounding import simulation
from attncli.check.run import stages
from attncli.check.tolerance import Inside
from attncli.convention import DType

LESS_EXACT: dict[DType, tuple[Inside, ...]] = {
    "float64": ("float32", "tf32", "float16", "bfloat16"),
    "float32": ("tf32", "float16", "bfloat16"),
    "float16": ("bfloat16",),
    "bfloat16": (),
}
"""The arithmetic that an implementation may have inside whose numbers are of this type."""

SINGLE_DIGITS = 7
"""Numbers printed with fewer do not show how exact the arithmetic was."""

EVERYWHERE = 0.9
"""In so many of the rows the error must be nearer to the noise of that arithmetic than to that of
the observed type, as a ratio: rounding spares no row, a lost block does."""

ALIKE = 0.5
"""From this β on errors are those of the simulated arithmetic itself, rounding by rounding."""


def less_exact(comparison: Comparison, sample: Comparison) -> Inside | None:
    """The arithmetic with just these errors, else the most exact that allows them, else None."""
    rule = comparison.rule
    is_short = any(places.n < SINGLE_DIGITS for places in rule.printed.values())
    if rule.kind != "noise" or rule.inside is not None or is_short:
        return None
    if rule.dtype != "float64" and rule.dtype in SMALL and _is_low_sums(sample, rule.dtype):
        return rule.dtype
    allowing = [inside for inside in LESS_EXACT[rule.dtype] if _allows(sample, inside)]
    allowing = [inside for inside in allowing if _allows(comparison, inside)]
    for inside in allowing:
        computed = _computed(sample, inside)
        wrong = {name: x for name, x in sample.errors.items() if x.wrong.any()}
        betas = (beta(x.observed, computed[name], x).value for name, x in wrong.items())
        if all(abs(value - 1) <= ALIKE for value in betas):
            return inside
    return allowing[0] if allowing else None


def _is_low_sums(sample: Comparison, inside: Inside) -> bool:
    """Whether the numbers are those of sums kept in 16 bits, which may be off by any amount."""
    computed = _computed(sample, inside)
    return all(
        replace(stage, expected=computed[name], known=None).matches
        and is_closer(sample.setup, name, computed[name], sample)
        for name, stage in sample.errors.items()
    )


def _allows(comparison: Comparison, inside: Inside) -> bool:
    """Whether the errors are within the noise of this arithmetic, and no smaller than it makes."""
    rule = replace(comparison.rule, inside=inside)
    for name, stage in comparison.beside(comparison.setup, rule).items():
        least = np.sqrt(stage.row_noise * comparison.errors[name].row_noise)
        if not stage.matches or (stage.by_row[0] >= least).mean() < EVERYWHERE:
            return False
    return True


def _computed(sample: Comparison, inside: Inside) -> dict[str, Array]:
    """The stages of the sample in this arithmetic."""
    setup, dtype, _ = simulation(sample.setup, replace(sample.rule, inside=inside))
    return stages(setup, sample.subset, sample.errors, dtype)
