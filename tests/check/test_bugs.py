"""Every bug of the catalogue is named, in every size and number type."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.check import CATALOGUE
from tests.check.buggy import verdict_of
from tests.check.buggy.cases import BUGGY_CASES, BuggyCase
from tests.check.buggy.parts import TYPES, Inputs

SIZES = {"small": (2, 3, 5, 7, 11), "larger": (3, 11, 19, 13, 7)}
IDS = [f"{case.name}:{case.make.__name__}" for case in BUGGY_CASES]


def inputs_of(dtype: str, size: str, seed: int) -> Inputs:
    return Inputs(dtype, np.random.default_rng(seed), *SIZES[size])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", BUGGY_CASES, ids=IDS)
def test_the_bug_is_named(case: BuggyCase, dtype: str, size: str) -> None:
    for seed in (1, 2):
        verdict = verdict_of(case.make(inputs_of(dtype, size, seed)))
        names = {explanation.name for explanation in verdict.explanations}
        assert names == {case.name, *case.also}
        assert verdict.status == ("ambiguous" if case.also else "found")


def test_every_row_of_the_catalogue_has_a_case() -> None:
    named = {name for case in BUGGY_CASES for name in (case.name, *case.also)}
    assert named == {bug.name for bug in CATALOGUE}
