"""Wrong attentions: who may attend to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.check.zoo_room import (
    Array,
    Room,
    Specimen,
    dots,
    hide,
    masked,
    mix,
    positions,
    random_mask,
    root,
    softmax,
)


def mask_inverted(room: Room) -> Specimen:
    q, k, v = room.qkv()
    keep = random_mask(room, room.n_q, room.n_k)
    observed = mix(softmax(hide(dots(q, k) * root(q), keep)), v)
    return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})


def mask_as_numbers(room: Room) -> Specimen:
    q, k, v = room.qkv()
    keep = random_mask(room, room.n_q, room.n_k)
    s = dots(q, k) * root(q)
    observed = mix(softmax(s + keep.astype(s.dtype)), v)
    return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})


def mask_forgotten(room: Room) -> Specimen:
    q, k, v = room.qkv()
    observed = mix(softmax(dots(q, k) * root(q)), v)
    return Specimen(
        room.round(observed), q, k, v, {}, {"mask": random_mask(room, room.n_q, room.n_k)}
    )


def batched(room: Room, n_q: int, n_k: int) -> tuple[Array, Array, Array]:
    pairs = [room.qkv(n_q=n_q, n_k=n_k) for _ in range(2)]
    q, k, v = (np.stack(parts) for parts in zip(*pairs, strict=True))
    return q, k, v


def per_item(q: Array, k: Array, v: Array, hidden: Callable[[int, Array, Array], Array]) -> Array:
    """Each batch item by itself, with the cells (i, j) hidden that the rule says."""
    outputs = []
    for b in range(q.shape[0]):
        i, j = positions(q.shape[-2], k.shape[-2])
        s = hide(dots(q[b], k[b]) * root(q), hidden(b, i, j))
        outputs.append(mix(softmax(s), v[b]))
    return np.stack(outputs)


def padding_forgotten(room: Room) -> Specimen:
    q, k, v = batched(room, room.n_q, room.n_k)
    lengths = [room.n_k - 1, room.n_k - 2]
    observed = per_item(q, k, v, lambda b, i, j: j < 0)
    return Specimen(room.round(observed), q, k, v, {}, {"kv_len": lengths})


def padding_on_queries(room: Room) -> Specimen:
    n = room.n_k
    q, k, v = batched(room, n, n)
    lengths = [n - 1, n - 2]
    observed = per_item(q, k, v, lambda b, i, j: i >= lengths[b])
    return Specimen(room.round(observed), q, k, v, {}, {"kv_len": lengths})


def mask_turned(room: Room) -> Specimen:
    n = room.n_k
    q, k, v = room.qkv(n_q=n)
    keep = random_mask(room, n, n)
    keep[:, 0] = keep[0] = True
    keep[1, 2], keep[2, 1] = True, False
    observed = mix(masked(dots(q, k) * root(q), keep.T), v)
    return Specimen(room.round(observed), q, k, v, {}, {"mask": keep})


def with_hidden(
    rule: Callable[[Array, Array, Room], Array], how: dict[str, Any], **sizes: int
) -> Callable[[Room], Specimen]:
    """An attention whose hidden cells are rule(i, j); it should have followed `how`."""

    def make(room: Room) -> Specimen:
        q, k, v = room.qkv(**sizes)
        i, j = positions(q.shape[-2], k.shape[-2])
        observed = mix(softmax(hide(dots(q, k) * root(q), rule(i, j, room))), v)
        return Specimen(room.round(observed), q, k, v, how)

    return make


def history_masked(room: Room) -> Specimen:
    q, k, v = room.qkv()
    n_past = room.n_k - room.n_q
    past_k, past_v = k[:, :n_past], v[:, :n_past]
    i, j = positions(room.n_q, room.n_k)
    observed = mix(softmax(hide(dots(q, k) * root(q), j > i)), v)
    given = {"past_k": past_k, "past_v": past_v}
    return Specimen(room.round(observed), q, k[:, n_past:], v[:, n_past:], {"causal": True}, given)
