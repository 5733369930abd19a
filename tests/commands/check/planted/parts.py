"""Attention in plain NumPy, written without attncli: the steps from which wrong ones are built.

Everything has four axes, q [b, h, n_q, d_k], k [b, h_kv, n_k, d_k], v [b, h_kv, n_k, d_v]. As in
a kernel, 16-bit inputs are computed in float32, and the output is rounded to their type.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Rng = np.random.Generator
TYPES: dict[str, Any] = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
TYPES["bfloat16"] = ml_dtypes.bfloat16
HALF = ("float16", "bfloat16")
INF = np.inf
OPEN = np.zeros((1, 1), bool)  # hides nothing


@dataclass(frozen=True, eq=False)
class World:
    """What the inputs of an attention are like.

    n_k      with the n_past cached keys
    axes     how many check is given: 3 without the batch, 2 without heads
    q_times  2 or more makes large scores
    how      fields of attncli's Convention
    lengths  valid keys per batch item
    mask     draws a mask: true = may attend, or numbers to be added
    adjust   changes q, k and v before they are rounded
    """

    name: str
    b: int = 2
    h: int = 3
    h_kv: int = 0
    n_q: int = 13
    n_k: int = 17
    d_k: int = 7
    d_v: int = 11
    axes: int = 4
    n_past: int = 0
    q_times: float = 1.0
    convention: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] | None = None
    mask: Callable[[Rng, World], Array] | None = None
    sinks: tuple[float, float] | None = None
    positions: str | None = None
    adjust: Callable[[Rng, dict[str, Array]], None] | None = None

    def inputs(self, dtype: str, seed: int = 0) -> Inputs:
        return Inputs(self, dtype, seed)


class Inputs:
    """The inputs of one attention in a number type: the same numbers in each, but for rounding.

    typed    q, k, v in the number type; the first n_past keys are the cache
    i, j     positions of queries, [n_q, 1], and keys, [1, n_k]: queries come after the cache
    hidden   cells that no query may attend to, [b | 1, h | 1, n_q, n_k]: those masked by a boolean
             mask, padded, or banned by causality and the window
    bias     the numbers of a mask that is added
    """

    def __init__(self, world: World, dtype: str, seed: int) -> None:
        self.world, self.dtype, self.convention, self.n_past = (
            world,
            dtype,
            world.convention,
            world.n_past,
        )
        self.b, self.h, self.n_q, self.d_k = world.b, world.h, world.n_q, world.d_k
        self.n_k, self.d_v, self.lengths = world.n_k, world.d_v, world.lengths
        rng, h_kv = np.random.default_rng([zlib.crc32(world.name.encode()), seed]), world.h_kv
        sizes = {"q": (self.h, self.n_q, self.d_k), "k": (h_kv or self.h, self.n_k, self.d_k)}
        sizes["v"] = (h_kv or self.h, self.n_k, self.d_v)
        arrays = {name: rng.normal(size=(self.b, *size)) for name, size in sizes.items()}
        arrays["q"] *= world.q_times
        if world.adjust:
            world.adjust(rng, arrays)
        self.wide: Any = np.float32 if dtype in HALF else TYPES[dtype]
        self.typed = {name: x.astype(TYPES[dtype]) for name, x in arrays.items()}
        self.q, self.k, self.v = (self.typed[name].astype(self.wide) for name in "qkv")
        self.scale = float(self.convention.get("scale", 1 / np.sqrt(self.d_k)))
        self.full = (self.b, self.h, self.n_q, self.n_k)
        self.sinks = np.linspace(*world.sinks, self.h) if world.sinks else None
        self.i, self.j = np.arange(self.n_q)[:, None] + self.n_past, np.arange(self.n_k)[None, :]
        self.masked, self.bias, self.banned = OPEN, np.zeros(1, self.wide), self._banned()
        self.mask = world.mask(rng, world) if world.mask else None
        if self.mask is not None:
            means = self.convention.get("mask_means")
            is_truth = self.mask.dtype == bool or self.convention.get("mask_numbers") == "truth"
            self.mask = self.mask if self.mask.dtype == bool else self.mask.astype(TYPES[dtype])
            if is_truth and means != "add":
                self.masked = np.asarray((self.mask != 0) == (means == "ignore"))
            else:
                self.bias = self.mask.astype(self.wide)
        self.padded = OPEN if self.lengths is None else padded(self, self.lengths)
        alone = self.convention.get("mask_and_causal", "both")
        rest = {"mask": self.masked, "causal": self.banned}.get(alone, self.masked | self.banned)
        self.hidden = np.asarray(rest | self.padded)

    def _banned(self) -> Array:
        """Which keys causality and the window hide, [n_q, n_k]."""
        align, j = self.convention.get("causal_align"), self.j
        i = self.i + (self.n_k - self.n_q - self.n_past if align == "bottom-right" else 0)
        cells = (j > i) & bool(self.convention.get("causal"))
        if align == "open-last":
            cells[-1] = False
        left, right = self.convention.get("window") or (-1, -1)
        left -= self.convention.get("window_counts") == "own"
        return np.asarray(cells | (left >= 0) & (j < i - left) | (right >= 0) & (j > i + right))

    def round(self, x: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(x).astype(TYPES[self.dtype])

    def rounded(self, x: Array) -> Array:
        """In the number type, and back in the wide one."""
        return self.round(x).astype(self.wide)

    def given(self) -> tuple[list[Array], dict[str, Any]]:
        """What check takes: q, k, v, and the other arrays."""
        q, k, v = (self.typed[name][(0,) * (4 - self.world.axes)] for name in "qkv")
        more: dict[str, Any] = {"mask": self.mask, "sinks": self.sinks}
        more |= {"kv_len": self.lengths, "positions": self.world.positions}
        if self.n_past:
            more |= {"past_k": k[..., : self.n_past, :], "past_v": v[..., : self.n_past, :]}
            k, v = k[..., self.n_past :, :], v[..., self.n_past :, :]
        return [q, k, v], {name: y for name, y in more.items() if y is not None}


def head_of(x: Inputs, y: Array) -> Array:
    """Each query head's keys or values."""
    times = x.h // y.shape[1]
    tiled = x.convention.get("head_order") == "tiled"
    return np.tile(y, (1, times, 1, 1)) if tiled else np.repeat(y, times, axis=1)


def padded(x: Inputs, lengths: Any) -> Array:
    """Which keys lie past the lengths, [b, 1, 1, n_k]."""
    return np.asarray(x.j >= np.array(lengths)[:, None])[:, None, None]


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
    pairs = np.stack(both, axis=-1).reshape(-1, d)
    return np.asarray(x + (pairs if order == "interleaved" else np.hstack(both)), x.dtype)


PLACED: dict[str, Callable[[Array, Array], Array]] = {
    "rope-halves": rotate,
    "rope-interleaved": lambda x, at: rotate(x, at, pairs="interleaved"),
    "paper": sinusoid,
    "article": lambda x, at: sinusoid(x, at, exponent=4),
}


def placed(x: Inputs, name: str) -> Array:
    """q, k or v with the positions that are asked for."""
    y: Array = getattr(x, name)
    if x.world.positions is None or (name == "v" and x.world.positions.startswith("rope")):
        return y
    first = x.n_past if name == "q" else 0
    return PLACED[x.world.positions](y, np.arange(first, first + y.shape[2]))


def scores(q: Array, k: Array) -> Array:
    return np.asarray(q @ np.swapaxes(k, -1, -2))


def softmax(s: Array, sinks: Array | None = None, axis: int = -1) -> Array:
    """Over keys, with a score for each head that has no value; zeros where nothing is left."""
    extra = np.full(1, -INF, s.dtype) if sinks is None else sinks[:, None, None].astype(s.dtype)
    with np.errstate(all="ignore"):
        top = np.maximum(s.max(axis=axis, keepdims=True), extra)
        e = np.exp(s - top)
        total = e.sum(axis=axis, keepdims=True) + np.exp(extra - top)
        return np.asarray(np.where(np.isneginf(top), 0, e / total))


def normed(x: Inputs, name: str) -> Array:
    """Queries or keys with their positions, over their root mean square where that is asked for."""
    y = placed(x, name)
    return (
        y / np.sqrt(np.mean(y * y, axis=-1, keepdims=True) + 1e-6)
        if x.convention.get("qk_norm")
        else y
    )


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
    q, k = (normed(x, name) if y is None else y for name, y in (("q", q), ("k", k)))
    k = head_of(x, k)
    v = head_of(x, placed(x, "v") if v is None else v)
    s = scores(q, k) * np.asarray(x.scale if scale is None else scale, x.wide)
    cap = x.convention.get("softcap") if cap is None else cap
    add = x.bias if add is None else add
    late = x.convention.get("softcap_place") == "after-bias"
    s = s + add if late else s
    s = cap * np.tanh(s / cap) if cap else s
    s = s if late else s + add
    value = x.convention.get("mask_value", -INF) if value is None else value
    s = np.where(x.hidden if hide is None else hide, x.wide(value), s).astype(x.wide)
    if weigh is not None:
        return np.asarray(weigh(s) @ v)
    if x.convention.get("softmax_over") == "queries":
        return np.asarray(softmax(s, axis=-2) @ v)
    sinks = x.sinks if sinks is None else sinks
    return np.asarray(softmax(s, sinks if sinks is not None and sinks.size else None) @ v)


def weights_of(x: Inputs) -> Array:
    """The weights of the attention that is asked for."""
    eye = np.eye(x.n_k, dtype=x.wide)
    return attend(x, v=np.broadcast_to(eye, (x.b, x.h, x.n_k, x.n_k)))


def normalised(w: Array) -> Array:
    return np.asarray(w / w.sum(-1, keepdims=True))


def exponentials(s: Array) -> Array:
    return np.asarray(np.exp(s - s.max(-1, keepdims=True)))
