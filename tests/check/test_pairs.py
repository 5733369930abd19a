"""Two bugs at once, each pair as somebody would have written it: both are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from attncli import Convention
from attncli.check import check
from tests.check.zoo_room import (
    TYPES,
    Room,
    Specimen,
    causal_cells,
    cut_apart,
    dots,
    hide,
    mix,
    positions,
    random_mask,
    root,
    side_by_side,
    softmax,
)

CAUSAL = {"causal": True}


def unscaled_and_not_causal(room: Room) -> Specimen:
    q, k, v = room.qkv()
    return Specimen(room.round(mix(softmax(dots(q, k)), v)), q, k, v, CAUSAL)


def d_model_and_off_by_one(room: Room) -> Specimen:
    q, k, v = room.qkv()
    i, j = positions(room.n_q, room.n_k)
    s = dots(q, k) * (room.h * room.d_k) ** -0.5
    return Specimen(room.round(mix(softmax(hide(s, j > i + 1)), v)), q, k, v, CAUSAL)


def tiled_and_unscaled(room: Room) -> Specimen:
    q, k, v = room.qkv(h=4, h_kv=2)
    both = [np.concatenate([x, x]) for x in (k, v)]
    return Specimen(room.round(mix(softmax(dots(q, both[0])), both[1])), q, k, v)


def inverted_and_d_k(room: Room) -> Specimen:
    q, k, v = room.qkv()
    keep = random_mask(room, room.n_q, room.n_k)
    observed = mix(softmax(hide(dots(q, k) / room.d_k, keep)), v)
    return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})


def over_queries_and_unscaled(room: Room) -> Specimen:
    q, k, v = room.qkv()
    return Specimen(room.round(mix(softmax(dots(q, k), axis=-2), v)), q, k, v)


def after_softmax_and_unscaled(room: Room) -> Specimen:
    q, k, v = room.qkv()
    keep = random_mask(room, room.n_q, room.n_k)
    return Specimen(room.round(mix(softmax(dots(q, k)) * keep, v)), q, k, v, {}, {"mask": keep})


def split_and_unscaled(room: Room) -> Specimen:
    q, k, v = room.qkv()
    wrong = [side_by_side(x).reshape(x.shape) for x in (q, k, v)]
    return Specimen(room.round(mix(softmax(dots(wrong[0], wrong[1])), wrong[2])), q, k, v)


def merged_and_not_causal(room: Room) -> Specimen:
    q, k, v = room.qkv()
    output = np.ascontiguousarray(mix(softmax(dots(q, k) * root(q)), v))
    merged = output.reshape(room.n_q, room.h * room.d_v)
    return Specimen(room.round(cut_apart(merged, room.h)), q, k, v, CAUSAL)


def swapped_and_causal(room: Room) -> Specimen:
    q, k, v = room.qkv(d_v=room.d_k)
    s = hide(dots(q, v) * root(q), causal_cells(room))
    return Specimen(room.round(mix(softmax(s), k)), q, k, v)


def uncapped_and_bottom_right(room: Room) -> Specimen:
    q, k, v = room.qkv()
    i, j = positions(room.n_q, room.n_k)
    s = hide(dots(q, k) * root(q), j > i + room.n_k - room.n_q)
    return Specimen(room.round(mix(softmax(s), v)), q, k, v, {"softcap": 1.5, "causal": True})


UNSCALED = "scale left out"
PAIRS: tuple[tuple[Callable[[Room], Specimen], set[str]], ...] = (
    (unscaled_and_not_causal, {UNSCALED, "causal mask left out"}),
    (d_model_and_off_by_one, {"√d_model instead of √d_k", "causal mask shows the next position"}),
    (tiled_and_unscaled, {"key heads tiled, not in blocks", UNSCALED}),
    (inverted_and_d_k, {"boolean mask read the other way round", "divided by d_k, not √d_k"}),
    (over_queries_and_unscaled, {"softmax over queries, not keys", UNSCALED}),
    (after_softmax_and_unscaled, {"mask applied after softmax, not renormalised", UNSCALED}),
    (split_and_unscaled, {"heads split by reshape without transpose", UNSCALED}),
    (
        merged_and_not_causal,
        {"heads merged by reshape without transpose", "causal mask left out"},
    ),
    (swapped_and_causal, {"K and V swapped", "causal mask where none is wanted"}),
    (
        uncapped_and_bottom_right,
        {"softcap left out", "causal mask aligned bottom-right, not top-left"},
    ),
)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("make", "names"), PAIRS, ids=[make.__name__ for make, _ in PAIRS])
def test_both_are_named(make: Callable[[Room], Specimen], names: set[str], dtype: str) -> None:
    room = Room(dtype, np.random.default_rng(3), 2, 3, 5, 7, 11)
    for seed in (3, 4):
        animal = make(replace(room, rng=np.random.default_rng(seed)))
        how = Convention(**animal.how)
        verdict = check(
            animal.observed, animal.q, animal.k, animal.v, convention=how, **animal.given
        )
        found = [{bug.name for bug in one.bugs} for one in verdict.explanations]
        assert found == [names]
        assert verdict.status == "found"


def test_pairs_can_be_left_out() -> None:
    room = Room("float64", np.random.default_rng(3), 2, 3, 5, 7, 11)
    animal = unscaled_and_not_causal(room)
    how = Convention(causal=True)
    verdict = check(animal.observed, animal.q, animal.k, animal.v, convention=how, pairs=False)
    assert verdict.status == "no match"


def test_a_few_rounded_numbers_name_no_pair() -> None:
    """Three numbers of two decimals fit too many pairs by chance."""
    q, k, v = [[1.0, 0.0]], [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]], [[1.0], [2.0], [3.0]]
    observed = [[0.30, 0.30, 0.40]]
    assert check(observed, q, k, v, stage="weights", decimals=2).status == "no match"
