"""Planted backward passes: their kernel is right, every wrong one differs from it and is named."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from attncli import attend
from attncli.check import CATALOGUE, check
from tests.check.planted.parts import TYPES
from tests.check.planted_backward.kernel import WORLDS, Kernel, call_of, eager
from tests.check.planted_backward.wrong import OUTCOMES, WRONG, Wrong, outcome
from tests.turns import in_turn


@pytest.mark.parametrize("world", [world for world in WORLDS if world != "rope"])
def test_the_kernel_and_the_plain_one_are_those_of_attend(world: str) -> None:
    call = call_of(world, "float64", 3)
    trace = attend(**call.keywords)
    for gradients in (Kernel(call).run(), eager(call)):
        for name, x in gradients.items():
            np.testing.assert_allclose(x, trace[name].value, rtol=0, atol=1e-12)


def test_rotary_gradients_are_those_of_finite_differences() -> None:
    """Of a sum of products: the loss is Σ O ∘ dO, moved along one way of q and of k."""
    call, step = call_of("rope", "float64", 3), 1e-5
    gradients, rng = Kernel(call).run(), np.random.default_rng(5)
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
        assert float((gradients[f"d_{name}"] * way).sum()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("world", "dtype"), in_turn(WORLDS, TYPES))
def test_a_right_one_matches(world: str, dtype: str) -> None:
    call = call_of(world, dtype)
    for gradients in (Kernel(call).run(), eager(call)):
        assert check(dict(gradients), **call.keywords, pairs=False).status == "match"


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row.what)
def test_a_wrong_one_differs_in_each_of_its_worlds(row: Wrong) -> None:
    for world in row.worlds:
        call = call_of(world, "float64", 3)
        right, wrong = Kernel(call).run(), row.run(call)
        assert any(not np.allclose(wrong[name], x, rtol=1e-3) for name, x in right.items()), world
        assert {name: x.shape for name, x in wrong.items()} == {
            n: x.shape for n, x in right.items()
        }


def cases() -> Iterator[Any]:
    """Each row in each of its worlds and types; the first row of a name in one of them, in turn,
    and in the slow world of everything at once only where it has no other."""
    names = set[str]()
    for number, row in enumerate(WRONG):
        worlds = sorted(row.worlds, key=lambda world: world == "all")
        combinations = list(product(worlds, TYPES))
        n_quick = len(TYPES) * (len(worlds) - (len(worlds) > 1 and worlds[-1] == "all"))
        turn = -1 if row.name in names else number % n_quick
        names.add(row.name)
        for place, (world, dtype) in enumerate(combinations):
            marks = () if place == turn else pytest.mark.exhaustive
            yield pytest.param(row, world, dtype, id=f"{row.what}-{world}-{dtype}", marks=marks)


@pytest.mark.parametrize(("row", "world", "dtype"), [*cases()])
def test_a_wrong_one_is_named(row: Wrong, world: str, dtype: str) -> None:
    call = call_of(world, dtype)
    verdict = check(dict(row.run(call)), **call.keywords, pairs=not row.name)
    usual = "named" if row.name else "no match"
    assert outcome(verdict, row.name) == OUTCOMES.get((row.what, world, dtype), usual)


PAIRS = [  # a world, and two of WRONG that change different methods
    ("grouped", "the heads of a group averaged", "scale left out of dQ", "bfloat16"),
    ("dropout", "undropped weights in dV", "scale left out of dQ", "float64"),
    ("plain", "scale left out of dQ", "weights of dV not normalised", "float64"),
    ("plain", "δ left out", "the last block of queries lost in dV", "float32"),
]
MARKED = [pytest.param(*pair, marks=pytest.mark.exhaustive) for pair in PAIRS[2:]]


@pytest.mark.parametrize(("world", "one", "other", "dtype"), [*PAIRS[:2], *MARKED])
def test_two_wrong_ones_are_named(world: str, one: str, other: str, dtype: str) -> None:
    first, second = (next(row for row in WRONG if row.what == what) for what in (one, other))
    both = second._replace(methods={**first.methods, **second.methods})
    call = call_of(world, dtype)
    verdict = check(dict(both.run(call)), **call.keywords)
    (pair,) = verdict.explanations
    assert {bug.name for bug in pair.bugs} == {first.name, second.name}


def test_every_row_of_the_catalogue_is_planted_once() -> None:
    assert len({row.what for row in WRONG}) == len(WRONG)
    backward = {bug.name for bug in CATALOGUE if "gradients" in bug.touches}
    assert {row.name for row in WRONG} - {""} == backward
