"""Right ones of every convention: the worlds that the wrong ones use, and what changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.check.planted import worlds
from tests.check.planted.parts import (
    Array,
    Inputs,
    at,
    attend,
    banned,
    head_of,
    placed,
    rotate,
    scores,
    softmax,
)
from tests.check.planted.rows import Row
from tests.check.planted.worlds import World

NOT_RIGHT = (worlds.EMPTY_NAN, worlds.NAN_KEY, worlds.NAN_VALUE, worlds.HUGE)
EVERY = tuple(
    world
    for world in vars(worlds).values()
    if isinstance(world, World) and world not in (*NOT_RIGHT, *worlds.RIGHT_WORLDS)
)
HARD = tuple(
    world for world in worlds.RIGHT_WORLDS if not (world.mask or world.lengths or world.how)
)
ROPE = (worlds.ROPE, worlds.ROPE_PAIRS, worlds.ROPE_CACHED)
SINUS = (worlds.SINUS, worlds.ARTICLE)


def weigh_in_type(x: Inputs) -> Array:
    """Scores and weights are rounded; not where numbers are kept out of softmax by sinks."""

    def weigh(s: Array) -> Array:
        s = x.round(s).astype(x.wide)
        return x.round(softmax(s, x.sinks)).astype(x.wide)

    if x.how.get("softmax_over") == "queries":
        return attend(x)
    return attend(x, weigh=weigh)


def positions_in_type(x: Inputs) -> Array:
    q, k, v = (x.round(placed(x, name)).astype(x.wide) for name in "qkv")
    return attend(x, q=q, k=k, v=v)


def by_table(x: Inputs, *, rounded: bool, first: int = 0) -> Array:
    """Rotated by tables of cosines and sines, which may be in the number type."""

    def put(y: Array, start: int) -> Array:
        d = y.shape[-1]
        angle = np.outer(np.arange(start, start + y.shape[2]), 10000.0 ** (-np.arange(0, d, 2) / d))
        c, s = np.cos(angle).astype(x.wide), np.sin(angle).astype(x.wide)
        if rounded:
            c, s = (x.round(t).astype(x.wide) for t in (c, s))
        pairs = x.positions == "rope-interleaved"
        one, two = (y[..., ::2], y[..., 1::2]) if pairs else (y[..., : d // 2], y[..., d // 2 :])
        turned = [one * c - two * s, one * s + two * c]
        joined = np.stack(turned, -1).reshape(y.shape) if pairs else np.concatenate(turned, -1)
        return joined.astype(x.wide)

    return attend(x, q=put(x.q, first + x.n_past), k=put(x.k, first))


def from_one(x: Inputs) -> Array:
    """Rotary positions of q and k alike counted from 1: the scores see differences only."""
    pairs = "interleaved" if x.positions == "rope-interleaved" else "halves"
    q = rotate(x.q, np.arange(x.n_q) + x.n_past + 1, pairs=pairs)
    return attend(x, q=q, k=rotate(x.k, np.arange(x.n_k) + 1, pairs=pairs))


def sink_as_key(x: Inputs) -> Array:
    """The sink is one key more, with a value of zeros."""
    assert x.sinks is not None
    s = scores(x.q, head_of(x, x.k)) * x.wide(x.scale)
    sink = np.broadcast_to(x.sinks[:, None, None].astype(x.wide), (x.b, x.h, x.n_q, 1))
    w = softmax(np.concatenate([s, sink], axis=-1))
    return np.asarray(w[..., :-1] @ head_of(x, x.v))


def sink_by_lse(x: Inputs) -> Array:
    """The output without sinks times the share that the keys have."""
    assert x.sinks is not None
    s = scores(x.q, head_of(x, x.k)) * x.wide(x.scale)
    lse = np.log(np.exp(s).sum(-1, keepdims=True))
    others = np.exp(x.sinks[:, None, None].astype(x.wide) - lse)
    return np.asarray(attend(x, sinks=np.zeros(0)) / (1 + others))


def cap_by_exp(x: Inputs) -> Array:
    """tanh from exponentials."""
    c = x.how["softcap"]
    s = scores(x.q, head_of(x, x.k)) * x.wide(x.scale)
    capped = c * (1 - 2 / (np.exp(2 * s / c) + 1))
    s = np.where(banned(x), x.wide(-np.inf), capped).astype(x.wide)
    return np.asarray(softmax(s) @ head_of(x, x.v))


def no_bias_of_k(x: Inputs) -> Array:
    """Without the bias of the keys: a row's scores all change alike."""
    y = np.zeros(x.k.shape)
    worlds.shifted("k", 1.0)(np.random.default_rng(0), {"k": y})
    return attend(x, k=x.k - y[:1, :, :1].astype(x.wide))


def gathered(x: Inputs) -> Array:
    """Only the keys inside the window are looked at, row by row."""
    out = np.zeros((x.b, x.h, x.n_q, x.d_v), x.wide)
    hide = banned(x)
    for i in range(x.n_q):
        cells = ~hide[i]
        s = scores(x.q[:, :, i : i + 1], x.k[:, :, cells]) * x.wide(x.scale)
        out[:, :, i : i + 1] = softmax(s) @ x.v[:, :, cells]
    return out


def cache_merged(x: Inputs) -> Array:
    """Cached and new keys by themselves, merged by their log-sum-exp."""
    i, j = at(x)
    hide = (j > i) if x.how.get("causal") else np.zeros((x.n_q, x.n_k), bool)
    outs, sums = [], []
    for part in (slice(0, x.n_past), slice(x.n_past, x.n_k)):
        s = scores(x.q, x.k[:, :, part]) * x.wide(x.scale)
        e = np.exp(np.where(hide[:, part], x.wide(-np.inf), s))
        outs.append(e @ x.v[:, :, part])
        sums.append(e.sum(-1, keepdims=True))
    return np.asarray(sum(outs) / sum(sums))


def weights(x: Inputs, *, base_2: bool = False) -> Array:
    k = head_of(x, x.k)
    s = scores(x.q, k) * x.wide(x.scale / np.log(2) if base_2 else x.scale)
    e = (np.exp2 if base_2 else np.exp)(s - s.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def one_by_one(x: Inputs) -> Array:
    """Scores summed a channel at a time."""
    total = np.zeros((x.b, x.h, x.n_q, x.n_k), x.wide)
    for d in range(x.d_k):
        total += x.q[..., d : d + 1] * head_of(x, x.k)[..., None, :, d]
    return total


def right(what: str, make: Callable[[Inputs], Array], chosen: tuple[World, ...]) -> Row:
    return Row(what, (), make, chosen, kind="right")


ROWS = (
    right("fused, every option", attend, EVERY),
    right("scores and weights rounded, every option", weigh_in_type, EVERY),
    Row("weights", (), weights, HARD, stage="weights", kind="right"),
    Row("weights in base 2", (), lambda x: weights(x, base_2=True), HARD, stage="weights", kind="right"),
    Row("scores, a channel at a time", (), one_by_one, HARD, stage="scores", kind="right"),
    right("positions rounded to the type", positions_in_type, (*ROPE, *SINUS)),
    right("rotated by tables", lambda x: by_table(x, rounded=False), ROPE),
    right("rotated by tables in the type", lambda x: by_table(x, rounded=True), ROPE),
    right("rotary positions from 1", from_one, ROPE),
    right("a sink as a key", sink_as_key, (worlds.SINKS,)),
    right("sinks by the log-sum-exp", sink_by_lse, (worlds.SINKS,)),
    right("softcap by exponentials", cap_by_exp, (worlds.CAPPED, worlds.CAPPED_CAUSAL)),
    right("no bias of the keys", no_bias_of_k, (worlds.K_BIAS,)),
    right("a window gathered", gathered, (worlds.WINDOW, worlds.TWO_SIDED)),
    right("cache and new keys merged", cache_merged, (worlds.DECODE, worlds.PREFILL, worlds.CACHED)),
)  # fmt: skip
