"""Every bug of the catalogue is named, in every size and number type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from attncli.check import CATALOGUE
from attncli.check.bugs import BACKWARD, RUNNING
from tests.check.buggy import verdict_of
from tests.check.buggy.cases import BUGGY_CASES, MORE_CASES, RIGHT_CASES, BuggyCase
from tests.check.buggy.parts import TYPES, Computed, Inputs
from tests.check.planted.wrong import GROUPS

SUMS = [bug for bug in CATALOGUE if "lse" in bug.touches]
PROJECTIONS = [bug for bug in CATALOGUE if "projections" in bug.touches]
SIZES = {"small": (2, 3, 5, 7, 11), "larger": (3, 11, 19, 13, 7)}
IDS = [f"{case.name}:{case.make.__name__}" for case in BUGGY_CASES]


def inputs_of(dtype: str, size: str, seed: int) -> Inputs:
    return Inputs(dtype, np.random.default_rng(seed), *SIZES[size])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", BUGGY_CASES, ids=IDS)
def test_the_bug_is_named(case: BuggyCase, dtype: str, size: str) -> None:
    _assert_named(case, [inputs_of(dtype, size, seed) for seed in (1, 2)])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("case", MORE_CASES, ids=lambda case: f"{case.name}:{case.make.__name__}")
def test_one_more_bug_is_named(case: BuggyCase, dtype: str) -> None:
    _assert_named(case, [inputs_of(dtype, "small", 1), inputs_of(dtype, "larger", 2)])


def _assert_named(case: BuggyCase, inputs: list[Inputs]) -> None:
    for one in inputs:
        verdict = verdict_of(case.make(one))
        names = {explanation.name for explanation in verdict.explanations}
        assert names == {case.name, *case.also}
        assert verdict.status == ("ambiguous" if case.also else "found")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("make", RIGHT_CASES, ids=lambda make: make.__qualname__)
def test_the_same_without_the_bug_matches(
    make: Callable[[Inputs], Computed], dtype: str, size: str
) -> None:
    for seed in (1, 2):
        verdict = verdict_of(make(inputs_of(dtype, size, seed)))
        assert (verdict.status, verdict.explanations) == ("match", ())


def test_every_row_of_the_catalogue_has_a_case() -> None:
    named = {name for case in (*BUGGY_CASES, *MORE_CASES) for name in (case.name, *case.also)}
    planted = {name for rows in GROUPS.values() for row in rows for name in row.names}
    named |= {bug.name for bug in PROJECTIONS}  # in test_projections.py, with x and the weights
    named |= {bug.name for bug in BACKWARD}  # in test_gradients.py
    named |= {bug.name for bug in SUMS}  # in test_lse.py
    named |= {"part without a key not guarded", "log-sum-exps of parts added"}  # there, too
    named |= {bug.name for bug in RUNNING}  # in test_tiles.py
    assert {bug.name for bug in CATALOGUE if not bug.is_fitted} - planted <= named
    assert {bug.name for bug in CATALOGUE} <= named | planted
