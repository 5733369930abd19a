"""Wrong attentions: scale, softmax, softcap, overflow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.check.zoo_room import (
    Array,
    Room,
    Specimen,
    causal_cells,
    dots,
    hide,
    mix,
    root,
    softmax,
    wide,
)


def scaled_by(factor: Callable[[Room], float]) -> Callable[[Room], Specimen]:
    def make(room: Room) -> Specimen:
        q, k, v = room.qkv()
        return Specimen(room.round(mix(softmax(dots(q, k) * factor(room)), v)), q, k, v)

    return make


def scaled_twice(room: Room) -> Specimen:
    q, k, v = room.qkv()
    s = dots(q, k) * 0.7 * 0.7
    return Specimen(room.round(mix(softmax(s), v)), q, k, v, {"scale": 0.7})


def default_scale(room: Room) -> Specimen:
    q, k, v = room.qkv()
    return Specimen(room.round(mix(softmax(dots(q, k) * root(q)), v)), q, k, v, {"scale": 0.9})


def over_queries(room: Room) -> Specimen:
    q, k, v = room.qkv()
    return Specimen(room.round(mix(softmax(dots(q, k) * root(q), axis=-2), v)), q, k, v)


def over_keys(room: Room) -> Specimen:
    q, k, v = room.qkv()
    observed = room.round(mix(softmax(dots(q, k) * root(q)), v))
    return Specimen(observed, q, k, v, {"softmax_over": "queries"})


def over_heads(room: Room) -> Specimen:
    q, k, v = room.qkv(h=room.h + 1)
    return Specimen(room.round(mix(softmax(dots(q, k) * root(q), axis=0), v)), q, k, v)


def over_batch(room: Room) -> Specimen:
    pairs = [room.qkv() for _ in range(3)]
    q, k, v = (np.stack(parts) for parts in zip(*pairs, strict=True))
    s = np.einsum("bhqd,bhkd->bhqk", wide(q), wide(k)) * root(q)
    observed = np.einsum("bhqk,bhkd->bhqd", softmax(s, axis=0), wide(v))
    return Specimen(room.round(observed), q, k, v)


def cap(s: Array, c: float) -> Array:
    return np.asarray(c * np.tanh(s / c))


def softcap_after_mask(room: Room) -> Specimen:
    q, k, v = room.qkv()
    s = cap(hide(dots(q, k) * root(q), causal_cells(room)), 2.0)
    observed = room.round(mix(softmax(s), v))
    return Specimen(observed, q, k, v, {"softcap": 2.0, "causal": True})


def no_softcap(room: Room) -> Specimen:
    q, k, v = room.qkv()
    observed = room.round(mix(softmax(dots(q, k) * root(q)), v))
    return Specimen(observed, q, k, v, {"softcap": 1.5})


def float16_overflow(room: Room) -> Specimen:
    q, k, v = room.qkv()
    q = room.round(wide(q) * 200)
    k = room.round(wide(k) * 300)
    with np.errstate(over="ignore"):
        s = dots(q, k).astype(np.float16).astype(np.float32) * root(q)
    return Specimen(room.round(mix(softmax(s), v)), q, k, v)
