"""Wrong attentions: what goes where, and what is kept."""

from __future__ import annotations

import numpy as np

from tests.check.zoo_room import (
    Room,
    Specimen,
    causal_cells,
    cut_apart,
    dots,
    hide,
    mix,
    root,
    side_by_side,
    softmax,
    wide,
)


def k_v_swapped(room: Room) -> Specimen:
    q, k, v = room.qkv(d_v=room.d_k)
    return Specimen(room.round(mix(softmax(dots(q, v) * root(q)), k)), q, k, v)


def q_k_swapped(room: Room) -> Specimen:
    q, k, v = room.qkv(n_q=room.n_k)
    return Specimen(room.round(mix(softmax(dots(k, q) * root(q)), v)), q, k, v)


def k_not_transposed(room: Room) -> Specimen:
    q, k, v = room.qkv(n_k=room.d_k)
    s = np.einsum("hqd,hdk->hqk", wide(q), wide(k)) * root(q)
    return Specimen(room.round(mix(softmax(s), v)), q, k, v)


def split_by_reshape(room: Room) -> Specimen:
    q, k, v = room.qkv()
    wrong = [side_by_side(x).reshape(x.shape) for x in (q, k, v)]
    observed = mix(softmax(dots(wrong[0], wrong[1]) * root(q)), wrong[2])
    return Specimen(room.round(observed), q, k, v)


def merged_by_reshape(room: Room) -> Specimen:
    q, k, v = room.qkv()
    output = mix(softmax(dots(q, k) * root(q)), v)
    merged = np.ascontiguousarray(output).reshape(room.n_q, room.h * room.d_v)
    return Specimen(room.round(cut_apart(merged, room.h)), q, k, v)


def split_and_merged_by_reshape(room: Room) -> Specimen:
    q, k, v = room.qkv()
    wrong = [side_by_side(x).reshape(x.shape) for x in (q, k, v)]
    output = mix(softmax(dots(wrong[0], wrong[1]) * root(q)), wrong[2])
    merged = np.ascontiguousarray(output).reshape(room.n_q, room.h * room.d_v)
    return Specimen(room.round(cut_apart(merged, room.h)), q, k, v)


def output_cut_by_reshape(room: Room) -> Specimen:
    q, k, v = room.qkv()
    tokens_first = np.stack(list(mix(softmax(dots(q, k) * root(q)), v)), axis=1)
    return Specimen(room.round(tokens_first.reshape(room.h, room.n_q, room.d_v)), q, k, v)


def heads_tiled(room: Room) -> Specimen:
    q, k, v = room.qkv(h=4, h_kv=2)
    both = [np.concatenate([x, x]) for x in (k, v)]
    return Specimen(room.round(mix(softmax(dots(q, both[0]) * root(q)), both[1])), q, k, v)


def heads_in_blocks(room: Room) -> Specimen:
    q, k, v = room.qkv(h=6, h_kv=3)
    both = [np.repeat(x, 2, axis=0) for x in (k, v)]
    observed = mix(softmax(dots(q, both[0]) * root(q)), both[1])
    return Specimen(room.round(observed), q, k, v, {"head_order": "tiled"})


def weights_turned(room: Room) -> Specimen:
    q, k, v = room.qkv(n_q=room.n_k)
    weights = softmax(dots(q, k) * root(q))
    return Specimen({"weights": room.round(np.swapaxes(weights, 1, 2))}, q, k, v)


def output_turned(room: Room) -> Specimen:
    q, k, v = room.qkv(h=room.n_q)
    output = mix(softmax(dots(q, k) * root(q)), v)
    return Specimen(room.round(np.swapaxes(output, 0, 1)), q, k, v)


def scores_scaled(room: Room) -> Specimen:
    q, k, v = room.qkv()
    s = dots(q, k) * root(q)
    stages = {"scores": room.round(s), "weights": room.round(softmax(s))}
    return Specimen(stages, q, k, v)


def scores_masked(room: Room) -> Specimen:
    q, k, v = room.qkv()
    s = hide(dots(q, k) * root(q), causal_cells(room))
    return Specimen({"scores": room.round(s)}, q, k, v, {"causal": True})


def dropout_on(room: Room) -> Specimen:
    q, k, v = room.qkv(n_q=13, n_k=17)
    kept = room.rng.random((room.h, 13, 17)) >= 0.2
    weights = np.where(kept, softmax(dots(q, k) * root(q)) / 0.8, 0)
    return Specimen({"weights": room.round(weights)}, q, k, v)
