"""The planted set: wrong attentions are named as they were, right ones match.

By default each name of the catalogue is judged once, in one world and one number type in turn.
"""

from __future__ import annotations

from typing import Any

import pytest

from attncli.check import CATALOGUE, check
from attncli.check.bugs import BACKWARD, RUNNING
from tests.check.planted.parts import TYPES, attend
from tests.check.planted.right import INSIDE, RIGHT
from tests.check.planted.rows import Row, observed, outcome, runs, verdict_on
from tests.check.planted.worlds import ALL, World
from tests.check.planted.wrong import ROWS

ELSEWHERE = {bug.name for bug in (*BACKWARD, *RUNNING)}  # test_planted_backward.py, test_tiles.py
ELSEWHERE |= {bug.name for bug in CATALOGUE if "lse" in bug.touches}  # test_lse.py
ELSEWHERE |= {"part without a key not guarded", "log-sum-exps of parts added"}  # there, too
ELSEWHERE |= {bug.name for bug in CATALOGUE if "projections" in bug.touches}  # test_projections.py


CASES = [
    pytest.param(row, world, dtype, id=f"{row.what}-{world.name}-{dtype}", marks=marks)
    for rows in (ROWS, RIGHT, INSIDE)
    for row, world, dtype, is_default in runs(rows, every_row=rows is not ROWS)
    for marks in [() if is_default else pytest.mark.exhaustive]
]


@pytest.mark.parametrize(("row", "world", "dtype"), CASES)
def test_a_wrong_one_is_named_and_a_right_one_matches(row: Row, world: World, dtype: str) -> None:
    x = world.inputs(dtype)
    verdict = verdict_on(row, x, observed(row, x))
    names = [explanation.name for explanation in verdict.explanations]
    assert outcome(row, x, verdict) == row.expected(world, dtype), names


def test_what_is_asked_for_matches_in_every_world() -> None:
    """So that a wrong one differs by its bug alone; right ones run in the larger worlds."""
    row, wrong = Row("right", (), attend, ALL), []
    for number, world in enumerate(x for x in ALL if x.b * x.h * x.n_q * x.n_k < 20_000):
        x = world.inputs([*TYPES][number % 4])
        if not verdict_on(row, x, observed(row, x)).matches:
            wrong.append((world.name, x.dtype))
    assert not wrong


def test_every_name_of_the_catalogue_is_planted() -> None:
    planted = {name for row in ROWS for both in row.names[:1] for name in both.split(" + ")}
    assert planted | ELSEWHERE == {bug.name for bug in CATALOGUE}


@pytest.mark.parametrize("what", ["no scale", "k cut by reshape", "no mask", "rows one later"])
def test_some_heads_and_rows_tell_as_much_as_all(what: str) -> None:
    """In any order, and where some are taken twice."""
    row = next(row for row in ROWS if row.what == what)
    x = row.worlds[0].inputs("float64")
    at = {"heads": [2, 0], "rows": [*range(12, 0, -1), 5]}
    part = observed(row, x)[:, at["heads"]][:, :, at["rows"]]
    assert outcome(row, x, verdict_on(row, x, part, **at)) == "named"


# ---- pairs


def status_of(what: str, **more: Any) -> str:
    row = next(row for row in ROWS if row.what == what)
    x = row.worlds[0].inputs("float64")
    return verdict_on(row, x, observed(row, x), **more).status


def test_pairs_can_be_left_out() -> None:
    assert status_of("scale and causal", pairs=False) == "no match"
    assert status_of("scale and causal") == "found"


def test_two_that_touch_the_same_thing_are_not_tried_together() -> None:
    """Were they, both would be named."""
    assert status_of("mask inverted and turned") == "no match"


def test_a_few_rounded_numbers_name_no_pair() -> None:
    """Three numbers of two decimals fit too many pairs by chance."""
    q, k, v = [[1.0, 0.0]], [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0], [3.0]]
    weights = [[0.30, 0.30, 0.40]]
    assert check(weights, q, k, v, stage="weights", decimals=2).status == "no match"
