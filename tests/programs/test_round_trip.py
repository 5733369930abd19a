"""The program of a convention, printed, read and run: the same bits, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attncli.attention.inputs import Inputs
from attncli.convention import Convention
from attncli.formula.kernels import draw_kept
from attncli.programs.attend import attend_by
from attncli.programs.written import written
from tests.programs.conventions import of_qkv, of_x

Make = Callable[[int], Inputs | None]


def check(inputs: Inputs) -> int:
    """How many stages were compared."""
    convention, arrays = inputs.convention, dict(inputs.arrays)
    if convention.dropout:
        arrays["kept"] = draw_kept(inputs.sizes.scores, convention.dropout, convention.seed)
    text = written(inputs.steps, arrays)
    again = attend_by(text, arrays, convention=Convention(dtype=convention.dtype))
    n = 0
    for name, stage in inputs.trace().stages():
        if name in arrays:
            continue
        ours, theirs = stage.value, again[name].value
        if name == "mask":  # shown with the axes of the scores
            theirs = np.broadcast_to(theirs, ours.shape)
        assert ours.shape == theirs.shape, (name, text)
        np.testing.assert_array_equal(ours, theirs.astype(ours.dtype), name + "\n" + text)
        number = ~np.isnan(ours)
        np.testing.assert_array_equal(np.signbit(ours)[number], np.signbit(theirs)[number], name)
        n += 1
    return n


MORE = range(12, 112, 50)  # of conventions; up to 512 for a thousand, which takes minutes


@pytest.mark.parametrize("make", [of_qkv, of_x])
@pytest.mark.parametrize(
    ("first", "last"),
    [(0, 12), *(pytest.param(n, n + 50, marks=pytest.mark.exhaustive) for n in MORE)],
)
def test_it_gives_the_same_bits(make: Make, first: int, last: int) -> None:
    made: list[Any] = [inputs for seed in range(first, last) if (inputs := make(seed))]
    assert sum(map(check, made)) > 8 * len(made)


def test_it_has_the_names_that_are_its_own() -> None:
    inputs = of_qkv(7)
    assert inputs is not None
    text = written(inputs.steps, inputs.arrays)
    assert "weights: A[" in text
    assert "output: O[" in text
