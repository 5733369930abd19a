"""Attention in plain NumPy, written without attncli: the steps from which wrong ones are built.

Everything has four axes, q [b, h, n_q, d_k], k [b, h_kv, n_k, d_k], v [b, h_kv, n_k, d_v]. As in
a kernel, 16-bit inputs are computed in float32, and the output is rounded to their type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
TYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
HALF = ("float16", "bfloat16")
INF = np.inf


@dataclass(frozen=True, eq=False)
class Inputs:
    """The inputs of one attention in a number type, and what it should follow.

    typed    q, k, v in the number type; the first n_past keys are the cache
    how      fields of attncli's Convention
    mask     true = may attend, or numbers to be added
    lengths  valid keys per batch item
    placing  puts positions into q, k (and v), given the first position
    """

    dtype: str
    typed: dict[str, Array]
    rng: np.random.Generator
    how: dict[str, Any] = field(default_factory=dict)
    n_past: int = 0
    mask: Array | None = None
    lengths: tuple[int, ...] | None = None
    sinks: Array | None = None
    positions: str | None = None
    axes: int = 4

    @cached_property
    def wide(self) -> Any:
        """The type in which a kernel computes."""
        return np.float32 if self.dtype in HALF else TYPES[self.dtype]

    @cached_property
    def q(self) -> Array:
        return self.typed["q"].astype(self.wide)

    @cached_property
    def k(self) -> Array:
        return self.typed["k"].astype(self.wide)

    @cached_property
    def v(self) -> Array:
        return self.typed["v"].astype(self.wide)

    @property
    def b(self) -> int:
        return int(self.q.shape[0])

    @property
    def h(self) -> int:
        return int(self.q.shape[1])

    @property
    def n_q(self) -> int:
        return int(self.q.shape[2])

    @property
    def n_k(self) -> int:
        return int(self.k.shape[2])

    @property
    def d_k(self) -> int:
        return int(self.q.shape[3])

    @property
    def d_v(self) -> int:
        return int(self.v.shape[3])

    @property
    def scale(self) -> float:
        scale = self.how.get("scale", 1 / np.sqrt(self.d_k))
        return 1.0 if scale == "none" else float(scale)

    def round(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(x).astype(TYPES[self.dtype])

    def given(self) -> tuple[list[Array], dict[str, Any]]:
        """What check takes: q, k, v, and the other arrays."""
        first = (0,) * (4 - self.axes)
        q, k, v = (self.typed[name] for name in "qkv")
        more: dict[str, Any] = {}
        if self.n_past:
            more = {"past_k": k[:, :, : self.n_past], "past_v": v[:, :, : self.n_past]}
            k, v = k[:, :, self.n_past :], v[:, :, self.n_past :]
        if self.mask is not None:
            more["mask"] = self.mask
        if self.lengths is not None:
            more["kv_len"] = np.array(self.lengths)
        if self.sinks is not None:
            more["sinks"] = self.sinks
        if self.positions is not None:
            more["positions"] = self.positions
        for name in more.keys() & {"past_k", "past_v"}:
            more[name] = more[name][first]
        return [x[first] for x in (q, k, v)], more


def head_of(x: Inputs, y: Array) -> Array:
    """Each query head's keys or values."""
    times = x.h // y.shape[1]
    if x.how.get("head_order") == "tiled":
        return np.tile(y, (1, times, 1, 1))
    return np.repeat(y, times, axis=1)


def at(x: Inputs) -> tuple[Array, Array]:
    """Positions of queries and keys, [n_q, 1] and [1, n_k]: queries come after the cache."""
    return np.arange(x.n_q)[:, None] + x.n_past, np.arange(x.n_k)[None, :]


def banned(x: Inputs) -> Array:
    """Which keys causality and the window hide, [n_q, n_k]."""
    i, j = at(x)
    if x.how.get("causal_align") == "bottom-right":
        i = i + x.n_k - x.n_q - x.n_past
    hidden = np.zeros((x.n_q, x.n_k), bool)
    if x.how.get("causal"):
        hidden |= j > i
    left, right = x.how.get("window") or (-1, -1)
    if left >= 0:
        hidden |= j < i - left
    if right >= 0:
        hidden |= j > i + right
    return hidden


def padded(x: Inputs, lengths: Any = None) -> Array:
    """Which keys lie past the lengths, [b, 1, 1, n_k]."""
    lengths = x.lengths if lengths is None else lengths
    if lengths is None:
        return np.zeros((1, 1, 1, x.n_k), bool)
    return (np.arange(x.n_k) >= np.array(lengths)[:, None])[:, None, None]


def masked(x: Inputs) -> Array:
    """Which keys a boolean mask hides."""
    if x.mask is None or x.mask.dtype != bool:
        return np.zeros((1, 1), bool)
    return np.asarray(x.mask if x.how.get("mask_means") == "ignore" else ~x.mask)


def hidden(x: Inputs) -> Array:
    """Every cell that no query may attend to, [b | 1, h | 1, n_q, n_k]."""
    return np.asarray(banned(x) | padded(x) | masked(x))


def bias(x: Inputs) -> Array | None:
    """The numbers of a mask that is added."""
    return None if x.mask is None or x.mask.dtype == bool else x.mask.astype(x.wide)


def rotate(x: Array, at: Array, base: float = 10000.0, pairs: str = "halves") -> Array:
    """Rotary positions by complex numbers, [..., n, d], at [n]."""
    d = x.shape[-1]
    turn = np.exp(1j * np.outer(at, base ** (-np.arange(0, d, 2) / d)))
    if pairs == "halves":
        z = (x[..., : d // 2] + 1j * x[..., d // 2 :]) * turn
        return np.concatenate([z.real, z.imag], axis=-1).astype(x.dtype)
    z = (x[..., ::2] + 1j * x[..., 1::2]) * turn
    return np.stack([z.real, z.imag], axis=-1).reshape(x.shape).astype(x.dtype)


def sinusoid(x: Array, at: Array, exponent: int = 2, order: str = "interleaved") -> Array:
    """x plus sines and cosines, [..., n, d] with an even d, at [n]."""
    d = x.shape[-1]
    angle = np.outer(at, 10000.0 ** (-exponent * np.arange(d // 2) / d))
    both = [np.sin(angle), np.cos(angle)]
    table = (
        np.stack(both, axis=-1).reshape(-1, d)
        if order == "interleaved"
        else np.concatenate(both, axis=-1)
    )
    return np.asarray(x + table, x.dtype)


PLACED: dict[str, Callable[[Array, Array], Array]] = {
    "rope-halves": rotate,
    "rope-interleaved": lambda x, at: rotate(x, at, pairs="interleaved"),
    "paper": sinusoid,
    "article": lambda x, at: sinusoid(x, at, exponent=4),
}


def placed(x: Inputs, name: str) -> Array:
    """q, k or v with the positions that are asked for."""
    y = np.asarray(getattr(x, name))
    if x.positions is None or (name == "v" and x.positions.startswith("rope")):
        return y
    first = x.n_past if name == "q" else 0
    return PLACED[x.positions](y, np.arange(first, first + y.shape[2]))


def scores(q: Array, k: Array) -> Array:
    return np.asarray(q @ np.swapaxes(k, -1, -2))


def softmax(s: Array, sinks: Array | None = None, axis: int = -1) -> Array:
    """Over keys, with a score for each head that has no value; zeros where nothing is left."""
    with np.errstate(all="ignore"):
        top = s.max(axis=axis, keepdims=True)
        if sinks is not None:
            top = np.maximum(top, sinks[:, None, None]).astype(s.dtype)
        e = np.exp(s - top)
        total = e.sum(axis=axis, keepdims=True)
        if sinks is not None:
            total = total + np.exp(sinks[:, None, None].astype(s.dtype) - top)
        return np.asarray(np.where(np.isneginf(top), 0, e / total))


def attend(  # noqa: PLR0913
    x: Inputs,
    *,
    q: Array | None = None,
    k: Array | None = None,
    v: Array | None = None,
    scale: Any = None,
    hide: Array | None = None,
    value: float | None = None,
    add: Array | None = None,
    cap: float | None = None,
    sinks: Array | None = None,
    weigh: Callable[[Array], Array] | None = None,
) -> Array:
    """Attention as it is asked for; each keyword puts something else in one place.

    hide   the cells to be masked; value, what their scores become
    add    what is added to the scores; cap, the softcap (0 = none)
    sinks  of each head (an empty array = none)
    weigh  from masked scores to weights
    """
    s: Array
    q = placed(x, "q") if q is None else q
    k = head_of(x, placed(x, "k") if k is None else k)
    v = head_of(x, placed(x, "v") if v is None else v)
    s = scores(q, k) * np.asarray(x.scale if scale is None else scale, x.wide)
    cap = x.how.get("softcap") if cap is None else cap
    if cap:
        s = cap * np.tanh(s / cap)
    add = bias(x) if add is None else add
    s = s if add is None else s + add
    value = x.how.get("mask_value", -INF) if value is None else value
    s = np.where(hidden(x) if hide is None else hide, x.wide(value), s).astype(x.wide)
    if weigh is not None:
        return np.asarray(weigh(s) @ v)
    if x.how.get("softmax_over") == "queries":
        return np.asarray(softmax(s, axis=-2) @ v)
    sinks = x.sinks if sinks is None else sinks
    return np.asarray(softmax(s, sinks if sinks is not None and sinks.size else None) @ v)
