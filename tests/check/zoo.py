"""A zoo of wrong attentions: each bug as somebody would have written it, in plain NumPy.

Nothing of attncli is used here. q [h, n_q, d_k], k [h_kv, n_k, d_k], v [h_kv, n_k, d_v].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
TYPES["bfloat16"] = ml_dtypes.bfloat16
INF = np.inf


@dataclass(frozen=True)
class Specimen:
    """What a wrong implementation gave, and how it should have been called."""

    observed: Any
    q: Array
    k: Array
    v: Array
    how: dict[str, Any] = field(default_factory=dict)  # of the Convention
    given: dict[str, Any] = field(default_factory=dict)  # mask, kv_len, …


@dataclass(frozen=True)
class Keeper:
    """A row of the catalogue: the name it must get, and what makes a specimen."""

    name: str
    make: Callable[[Room], Specimen]
    also: tuple[str, ...] = ()  # bugs that give the same numbers on this input


@dataclass(frozen=True)
class Room:
    """A number type, sizes that are all different, and a source of numbers."""

    dtype: str
    rng: np.random.Generator
    h: int
    n_q: int
    n_k: int
    d_k: int
    d_v: int

    def normal(self, *shape: int) -> Array:
        return self.round(self.rng.normal(size=shape))

    def round(self, x: Array) -> Array:
        return x.astype(TYPES[self.dtype])

    def qkv(self, **sizes: int) -> tuple[Array, Array, Array]:
        """q, k, v in the room's type; sizes may be set otherwise by name."""
        s = {
            name: sizes.get(name, getattr(self, name)) for name in ("h", "n_q", "n_k", "d_k", "d_v")
        }
        kv = sizes.get("h_kv", s["h"])
        shapes = (s["h"], s["n_q"], s["d_k"]), (kv, s["n_k"], s["d_k"]), (kv, s["n_k"], s["d_v"])
        return self.normal(*shapes[0]), self.normal(*shapes[1]), self.normal(*shapes[2])


def wide(x: Array) -> Array:
    """Kernels compute small types in float32."""
    return x if x.dtype in (np.float64, np.float32) else x.astype(np.float32)


def softmax(s: Array, axis: int = -1) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(s - s.max(axis=axis, keepdims=True))
        return np.asarray(e / e.sum(axis=axis, keepdims=True))


def dots(q: Array, k: Array) -> Array:
    return np.einsum("hqd,hkd->hqk", wide(q), wide(k))


def mix(weights: Array, v: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.einsum("hqk,hkd->hqd", weights, wide(v))


def root(x: Array) -> float:
    return float(x.shape[-1]) ** -0.5


def positions(n_q: int, n_k: int) -> tuple[Array, Array]:
    i, j = np.indices((n_q, n_k))
    return i, j


def hide(s: Array, hidden: Array, value: float = -INF) -> Array:
    return np.where(hidden, s.dtype.type(value), s)


# --- scale -------------------------------------------------------------------------------------


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


# --- softmax, softcap, overflow ----------------------------------------------------------------


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


def causal_cells(room: Room) -> Array:
    i, j = positions(room.n_q, room.n_k)
    return j > i


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


# --- who may attend to whom --------------------------------------------------------------------


def random_mask(room: Room, n_q: int, n_k: int) -> Array:
    """True where a query may attend; nobody is left with nothing, or with everything."""
    keep = room.rng.random((n_q, n_k)) < 0.6
    at = np.arange(n_q)
    keep[at, at % n_k] = True
    keep[at, (at + 2) % n_k] = False
    return keep


def masked(s: Array, keep: Array) -> Array:
    return softmax(hide(s, ~keep))


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


# --- how a mask does its work ------------------------------------------------------------------


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


# --- what goes where ---------------------------------------------------------------------------


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


def side_by_side(x: Array) -> Array:
    """[h, n, d] -> [n, h·d], as a projection gives it."""
    return np.concatenate(list(x), axis=-1)


def cut_apart(x: Array, h: int) -> Array:
    """[n, h·d] -> [h, n, d], rightly."""
    return np.stack(np.split(x, h, axis=-1))


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


UNIFORM = ("finite mask value",)
ZOO = (
    Keeper("scale left out", scaled_by(lambda room: 1.0)),
    Keeper("√d_model instead of √d_k", scaled_by(lambda room: (room.h * room.d_k) ** -0.5)),
    Keeper("divided by d_k, not √d_k", scaled_by(lambda room: 1 / room.d_k)),
    Keeper("multiplied by √d_k", scaled_by(lambda room: room.d_k**0.5)),
    Keeper("scale applied twice", scaled_twice),
    Keeper("default scale, not the one given", default_scale),
    Keeper("softmax over queries, not keys", over_queries),
    Keeper("softmax over keys, not queries", over_keys),
    Keeper("softmax over heads", over_heads),
    Keeper("softmax over the batch", over_batch),
    Keeper("softcap on the other side of the mask", softcap_after_mask),
    Keeper("softcap left out", no_softcap),
    Keeper("scores overflow in float16", float16_overflow),
    Keeper("boolean mask read the other way round", mask_inverted),
    Keeper("boolean mask added as numbers", mask_as_numbers),
    Keeper("mask left out", mask_forgotten),
    Keeper("padding left out", padding_forgotten),
    Keeper("padding mask on queries, not keys", padding_on_queries),
    Keeper("padding mask on queries, not keys", mask_turned),
    Keeper("causal mask left out", with_hidden(lambda i, j, room: j < 0, {"causal": True})),
    Keeper("causal mask where none is wanted", with_hidden(lambda i, j, room: j > i, {})),
    Keeper(
        "causal mask where none is wanted, bottom-right",
        with_hidden(lambda i, j, room: j > i + room.n_k - room.n_q, {}),
    ),
    Keeper(
        "causal mask aligned bottom-right, not top-left",
        with_hidden(lambda i, j, room: j > i + room.n_k - room.n_q, {"causal": True}),
    ),
    Keeper(
        "causal mask aligned top-left, not bottom-right",
        with_hidden(lambda i, j, room: j > i, {"causal": True, "causal_align": "bottom-right"}),
    ),
    Keeper(
        "causal mask hides each query's own position",
        with_hidden(lambda i, j, room: j >= i, {"causal": True}),
    ),
    Keeper(
        "causal mask shows the next position",
        with_hidden(lambda i, j, room: j > i + 1, {"causal": True}),
    ),
    Keeper("cached decode masks its own history", history_masked),
    Keeper(
        "window one too wide",
        with_hidden(
            lambda i, j, room: (j > i) | (j < i - 3),
            {"causal": True, "window": (2, 0)},
            n_q=7,
        ),
    ),
    Keeper(
        "window one too narrow",
        with_hidden(
            lambda i, j, room: (j > i) | (j < i - 1),
            {"causal": True, "window": (2, 0)},
            n_q=7,
        ),
    ),
    Keeper(
        "window left out",
        with_hidden(lambda i, j, room: j > i, {"causal": True, "window": (2, -1)}, n_q=7),
    ),
    Keeper("mask applied after softmax, not renormalised", after_softmax),
    Keeper("mask multiplied into the scores", multiplied),
    Keeper("finite mask value", finite_value),
    Keeper("rows with nothing to attend to become NaN", empty_nan),
    Keeper("rows with nothing to attend to become zero", empty_zero),
    Keeper("rows with nothing to attend to get the mean of V", empty_uniform, UNIFORM),
    Keeper("0 · −∞ in the mask", zero_times_infinity),
    Keeper("NaN leaks from masked keys", nan_in("keys")),
    Keeper("NaN leaks from masked values", nan_in("values")),
    Keeper("K and V swapped", k_v_swapped),
    Keeper("Q and K swapped", q_k_swapped),
    Keeper("K not transposed", k_not_transposed),
    Keeper("heads split by reshape without transpose", split_by_reshape),
    Keeper("heads merged by reshape without transpose", merged_by_reshape),
    Keeper("heads split by reshape without transpose", split_and_merged_by_reshape),
    Keeper("key heads tiled, not in blocks", heads_tiled),
    Keeper("key heads in blocks, not tiled", heads_in_blocks),
    Keeper("rows and columns exchanged", weights_turned),
    Keeper("heads merged by reshape without transpose", output_turned),
    Keeper("the observed scores are scaled already", scores_scaled),
    Keeper("the observed scores are masked already", scores_masked),
    Keeper("dropout left on", dropout_on),
)
