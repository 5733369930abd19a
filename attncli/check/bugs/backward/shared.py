"""What bugs of gradients share: the names of gradients, and variants that many of them have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.patch import Function, Patch
from attncli.check.bugs.words import Variants, patches
from attncli.check.setup import Setup
from attncli.stages import DELTA, OUTPUT, QKV, gradient_of

BATCH, HEAD, ROW, KEY = range(4)
"""Axes of the scores."""

D_Q, D_K, D_V = ALL = tuple(map(gradient_of, QKV))
D_OUTPUT, D_SINKS, D_BIAS = map(gradient_of, (OUTPUT, "sinks", "given_mask"))
D_SCORES, OF_Q, OF_K, OF_V = "d_scores", "scores.q", "scores.k", "output.v"
"""OF_Q, OF_K and OF_V are the products dS K, dSᵀ Q and Aᵀ dO of every query head, before those of a
group are summed."""


def of_output(output: Array, d_output: Array) -> Array:
    """δ as kernels have it: Σ O ∘ dO of each row."""
    return np.asarray((output * d_output).sum(axis=-1))


def either_delta(variants: Variants) -> Variants:
    """Each variant with δ of the wrong dA, and with that of O and dO."""

    def patches_of(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
        for patch in patches(variants, setup, evidence):
            if isinstance(patch, Patch):
                yield patch
                yield patch.also("δ from O and dO", {DELTA: of_output})

    return patches_of


def in_either(one: str, other: str, function: Function, *whole: int) -> Iterator[Patch]:
    """A function at two places, and at each of them alone."""
    for names in ((one, other), (one,), (other,)):
        words = f"in {written(names[0])} alone" if len(names) == 1 else ""
        yield Patch(dict.fromkeys(names, function), words, whole)


def times(factor: float, *names: str, words: str = "") -> Patch:
    """These gradients multiplied by a number."""
    detail = ", ".join(filter(None, (" and ".join(names), words)))
    return Patch(dict.fromkeys(names, lambda right: right() * factor), detail)


def written(name: str) -> str:
    """A gradient as papers write it: d_k is dK."""
    return "d" + name.removeprefix("d_")[0].upper()


def rolled(by: int, axis: int) -> Any:
    """The right numbers, of the neighbour before (1) or after (−1) along an axis."""
    return lambda right: np.roll(right(), by, axis=axis)
