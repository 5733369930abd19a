"""Wrong attentions: how a mask does its work."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.check.zoo_room import (
    INF,
    Array,
    Room,
    Specimen,
    dots,
    hide,
    masked,
    mix,
    random_mask,
    root,
    softmax,
)


def after_softmax(room: Room) -> Specimen:
    q, k, v = room.qkv()
    keep = random_mask(room, room.n_q, room.n_k)
    observed = mix(softmax(dots(q, k) * root(q)) * keep, v)
    return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})


def multiplied(room: Room) -> Specimen:
    q, k, v = room.qkv()
    keep = random_mask(room, room.n_q, room.n_k)
    observed = mix(softmax(dots(q, k) * root(q) * keep), v)
    return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})


def finite_value(room: Room) -> Specimen:
    """All keys share a direction, and the first query scores about −1001 along it."""
    q, k, v = room.qkv()
    k[..., 0] = 1.0
    q[:, 0] = 0.0
    q[:, 0, 0] = -1001.0 / root(q)
    keep = random_mask(room, room.n_q, room.n_k)
    s = hide(dots(q, k) * root(q), ~keep, -1000.0)
    return Specimen(room.round(mix(softmax(s), v)), q, k, v, {}, {"mask": keep})


def last_row_empty(room: Room) -> tuple[Array, Array, Array, Array]:
    keep = random_mask(room, room.n_q, room.n_k)
    keep[-1] = False
    return (*room.qkv(), keep)


def empty_nan(room: Room) -> Specimen:
    q, k, v, keep = last_row_empty(room)
    observed = mix(masked(dots(q, k) * root(q), keep), v)
    return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})


def empty_zero(room: Room) -> Specimen:
    q, k, v, keep = last_row_empty(room)
    observed = np.nan_to_num(mix(masked(dots(q, k) * root(q), keep), v))
    return Specimen(room.round(observed), q, k, v, {"empty_rows": "nan"}, {"mask": keep})


def empty_uniform(room: Room) -> Specimen:
    q, k, v, keep = last_row_empty(room)
    observed = mix(softmax(hide(dots(q, k) * root(q), ~keep, -30000.0)), v)
    return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})


def zero_times_infinity(room: Room) -> Specimen:
    q, k, v = room.qkv()
    keep = random_mask(room, room.n_q, room.n_k)
    with np.errstate(invalid="ignore"):
        bias = (~keep).astype(np.float64) * -INF
        observed = mix(softmax(dots(q, k) * root(q) + bias), v)
    return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})


def nan_in(where: str) -> Callable[[Room], Specimen]:
    """NaN in the last key or value of the first head, to which nobody may attend."""

    def make(room: Room) -> Specimen:
        q, k, v = room.qkv()
        (k if where == "keys" else v)[0, -1] = np.nan
        keep = np.ones((room.n_q, room.n_k), dtype=bool)
        keep[:, -1] = False
        with np.errstate(invalid="ignore"):
            s = dots(q, k) * root(q) + np.where(keep, 0.0, -INF)
            observed = mix(softmax(s), v)
        return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})

    return make
