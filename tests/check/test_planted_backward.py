"""Planted backward passes: right ones match, and every wrong one is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from attncli.check import CATALOGUE, check
from tests.check.planted.parts import TYPES
from tests.check.planted_backward.kernel import WORLDS, Kernel, call_of, right
from tests.check.planted_backward.wrong import OUTCOMES, WRONG, Wrong, outcome
from tests.turns import in_turn


@pytest.fixture
def is_small(request: pytest.FixtureRequest) -> bool:
    """Worlds are smaller by default."""
    return not request.config.getoption("--exhaustive")


def test_rotary_gradients_are_those_of_finite_differences() -> None:
    """Of a sum of products: the loss is Σ O ∘ dO, moved along one way of q and of k."""
    call, step = call_of("rope", "float64", 3, is_small=True), 1e-5
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
def test_a_right_one_matches(world: str, dtype: str, is_small: bool) -> None:
    """All of them in each world and type; by default one in each world, in turn."""
    call = call_of(world, dtype, is_small=is_small)
    implementations = [*right(call).items()]
    turn = [*WORLDS].index(world) % len(implementations)
    for what, gradients in [implementations[turn]] if is_small else implementations:
        assert check(dict(gradients), **call.keywords, pairs=False).status == "match", what


def cases() -> Iterator[Any]:
    """Each row in each of its worlds, in one type in turn; by default the first row of a name in
    one of them, in the slow world of everything at once only where it has no other."""
    names = {"dQ and dK swapped", "dropout mask not applied again in dV", "scale left out of dQ"}
    names |= {"grouped heads not summed in dK, dV (the last one wins)"}  # test_gradients.py
    for number, row in enumerate(WRONG):
        worlds = sorted(row.worlds, key=lambda world: world == "all")
        quick = [world for world in worlds if world != "all"] or worlds
        turn = "" if row.name in names else quick[number % len(quick)]
        names.add(row.name)
        for place, world in enumerate(worlds):
            dtype = [*TYPES][(number + place) % len(TYPES)]
            marks = () if world == turn else pytest.mark.exhaustive
            yield pytest.param(row, world, dtype, id=f"{row.what}-{world}-{dtype}", marks=marks)


@pytest.mark.parametrize(("row", "world", "dtype"), [*cases()])
def test_a_wrong_one_is_named(row: Wrong, world: str, dtype: str, is_small: bool) -> None:
    call = call_of(world, dtype, is_small=is_small and "block" not in row.what)
    verdict = check(dict(row.run(call)), **call.keywords, pairs=not row.name)
    usual = "named" if row.name else "no match"
    assert outcome(verdict, row.name) == OUTCOMES.get((row.what, world, dtype), usual)


PAIRS = [  # a world, and two of WRONG that change different methods
    ("grouped", "the heads of a group averaged", "scale left out of dQ", "bfloat16"),
    ("dropout", "undropped weights in dV", "scale left out of dQ", "float64"),
    ("plain", "scale left out of dQ", "weights of dV not normalised", "float64"),
    ("plain", "δ left out", "the last block of queries lost in dV", "float32"),
]
MARKED = [pytest.param(*pair, marks=pytest.mark.exhaustive) for pair in PAIRS[1:]]


@pytest.mark.parametrize(("world", "one", "other", "dtype"), [PAIRS[0], *MARKED])
def test_two_wrong_ones_are_named(world: str, one: str, other: str, dtype: str) -> None:
    first, second = (next(row for row in WRONG if row.what == what) for what in (one, other))
    both = second._replace(methods={**first.methods, **second.methods})
    call = call_of(world, dtype, is_small=world == "grouped")
    verdict = check(dict(both.run(call)), **call.keywords)
    (pair,) = verdict.explanations
    assert {bug.name for bug in pair.bugs} == {first.name, second.name}


def test_every_row_of_the_catalogue_is_planted_once() -> None:
    assert len({row.what for row in WRONG}) == len(WRONG)
    backward = {bug.name for bug in CATALOGUE if "gradients" in bug.touches}
    assert {row.name for row in WRONG} - {""} == backward
