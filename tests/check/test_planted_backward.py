"""Planted backward passes: their kernel is right, every wrong one differs from it and is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import attend
from attncli.check import check
from attncli.check.bugs import BACKWARD
from tests.check.planted.parts import TYPES
from tests.check.planted_backward.kernel import WORLDS, Kernel, call_of, eager
from tests.check.planted_backward.wrong import WRONG, Wrong


@pytest.mark.parametrize("world", [world for world in WORLDS if world != "rope"])
def test_the_kernel_and_the_plain_one_are_those_of_attend(world: str) -> None:
    call = call_of(WORLDS[world], "float64", 3)
    given: dict[str, Any] = {**call.arrays, **call.given}
    trace = attend(**given)
    for found in (Kernel(call).run(), eager(call)):
        for name, x in found.items():
            np.testing.assert_allclose(x, trace[name].value, rtol=0, atol=1e-12)


def test_rotary_gradients_are_those_of_finite_differences() -> None:
    """Of a sum of products: the loss is Σ O ∘ dO, moved along one way of q and of k."""
    call, step = call_of(WORLDS["rope"], "float64", 3), 1e-5
    found, rng = Kernel(call).run(), np.random.default_rng(5)
    for name in ("q", "k", "v"):
        own = call.arrays[name]
        way, ends = rng.standard_normal(own.shape), []
        for h in (step, -step):
            call.arrays[name] = own + h * way
            moved = Kernel(call)
            moved.forward()
            ends.append(float((moved.o * moved.d_o).sum()))
        call.arrays[name] = own
        expected = (ends[0] - ends[1]) / (2 * step)
        assert float((found[f"d_{name}"] * way).sum()) == pytest.approx(expected, rel=1e-6)


def test_there_are_many_and_no_two_of_one_name() -> None:
    assert len({row.what for row in WRONG}) == len(WRONG) >= 45


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row.what)
def test_a_wrong_one_differs_in_each_of_its_worlds(row: Wrong) -> None:
    for world in row.worlds:
        call = call_of(WORLDS[world], "float64", 3)
        right, found = Kernel(call).run(), row.run(call)
        assert any(not np.allclose(found[name], x, rtol=1e-3) for name, x in right.items()), world
        for name, x in right.items():
            assert found[name].shape == x.shape


@pytest.mark.parametrize(("number", "row"), [*enumerate(WRONG)], ids=[x.what for x in WRONG])
def test_a_wrong_one_is_named(number: int, row: Wrong) -> None:
    """In its first world, and in one number type in turn; all are in planted_backward.py."""
    call = call_of(WORLDS[row.worlds[0]], [*TYPES][number % 4], 0)
    given: dict[str, Any] = {**call.arrays, **call.given}
    verdict = check(dict(row.run(call)), **given)
    named = {found.name for found in verdict.explanations}
    assert not verdict.matches
    assert {*row.names} & named if row.names else not named


PAIRS = [  # a world, and two of WRONG that change different methods
    ("plain", "scale left out of dQ", "weights of dV not normalised", "float64"),
    ("plain", "δ left out", "the last block of queries lost in dV", "float32"),
    ("grouped", "the heads of a group averaged", "scale left out of dQ", "bfloat16"),
]


@pytest.mark.parametrize(("world", "one", "other", "dtype"), PAIRS)
def test_two_wrong_ones_are_named(world: str, one: str, other: str, dtype: str) -> None:
    first, second = (next(row for row in WRONG if row.what == what) for what in (one, other))
    both = second._replace(methods={**first.methods, **second.methods})
    call = call_of(WORLDS[world], dtype, 0)
    given: dict[str, Any] = {**call.arrays, **call.given}
    verdict = check(dict(both.run(call)), **given)
    assert [{bug.name for bug in x.bugs} for x in verdict.explanations] == [
        {*first.names, *second.names}
    ]


def test_every_row_of_the_catalogue_is_planted() -> None:
    assert {name for row in WRONG for name in row.names} == {bug.name for bug in BACKWARD}
