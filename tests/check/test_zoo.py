"""Every animal of the zoo gets its own name, whatever its size, number type and seed."""

from __future__ import annotations

import numpy as np
import pytest

from attncli import Convention
from attncli.check import CATALOGUE, Verdict, check
from tests.check.zoo import ZOO, Keeper
from tests.check.zoo_room import TYPES, Room, Specimen

SIZES = {"small": (2, 3, 5, 7, 11), "larger": (3, 11, 19, 13, 7)}
IDS = [f"{keeper.name}:{keeper.make.__name__}" for keeper in ZOO]


def room_of(dtype: str, size: str, seed: int) -> Room:
    return Room(dtype, np.random.default_rng(seed), *SIZES[size])


def verdict_on(animal: Specimen) -> Verdict:
    how = Convention(**animal.how)
    return check(animal.observed, animal.q, animal.k, animal.v, convention=how, **animal.given)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("keeper", ZOO, ids=IDS)
def test_it_is_named(keeper: Keeper, dtype: str, size: str) -> None:
    for seed in (1, 2):
        verdict = verdict_on(keeper.make(room_of(dtype, size, seed)))
        names = {explanation.name for explanation in verdict.explanations}
        assert names == {keeper.name, *keeper.also}
        assert verdict.status == ("ambiguous" if keeper.also else "found")


def test_every_row_of_the_catalogue_is_in_the_zoo() -> None:
    caught = {name for keeper in ZOO for name in (keeper.name, *keeper.also)}
    assert caught | {"mask value −∞, not the finite one given"} == {
        hypothesis.name for hypothesis in CATALOGUE
    }
