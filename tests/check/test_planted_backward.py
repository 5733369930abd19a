"""The kernel of the planted backward passes is right, and every wrong one differs from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import attend
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
