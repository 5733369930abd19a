"""Attention and its gradients as a kernel computes them, in plain NumPy, without attncli.

The forward pass saves O and lse, the log Σ exp of each row. The backward pass computes the weights
again:

    P = exp(X − lse)    δ = rowsum(O ∘ dO)    dX = P ∘ (dP − δ)    dS = dX · scale

Each step is a method, so that a wrong implementation (wrong.py) replaces one of them. As in a
kernel, inputs of 16 bits are multiplied in float32, P and dS are rounded to their type before the
products, and results are rounded at the end.
Source: Dao, "FlashAttention-2" (2023), algorithm 2.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.commands.check.planted.parts import TYPES, Array, rotate

BLOCK = 16
P, SEED, CAP, WINDOW = 0.3, 5, 2.0, (5, 3)

_PRIMES, _SQUARE = (2, 3, 3, 37, 53, 13, 11), (2, 3, 3, 48, 48, 16, 16)
_GROUPED = (2, 6, 3, 37, 53, 13, 11)
WORLDS = {
    "plain": (_PRIMES, ""),
    "square": (_SQUARE, ""),
    "causal": (_SQUARE, "causal"),
    "causal, n_q ≠ n_k": (_PRIMES, "causal"),
    "window": (_SQUARE, "window"),
    "grouped": (_GROUPED, ""),
    "empty row": (_PRIMES, "mask"),
    "bias": (_PRIMES, "bias"),
    "bias of all heads": (_PRIMES, "bias shared"),
    "softcap": (_PRIMES, "softcap"),
    "sinks": (_PRIMES, "sinks"),
    "dropout": (_PRIMES, "dropout"),
    "rope": (_SQUARE, "rope"),
    "all": (_GROUPED, "mask bias softcap sinks dropout"),
    "one query": ((1, 2, 2, 1, 257, 64, 64), "shifted"),  # V far from 0: δ cancels most of dP
    "tiny": ((1, 1, 1, 3, 3, 2, 2), "large"),
}
"""Name → sizes (batch, heads, key heads, n_q, n_k, d_k, d_v) and features."""
SMALLER = {37: 19, 53: 23, 48: 20, 13: 5, 11: 7, 16: 6}
"""Sizes for a quicker verdict, of what is not about blocks."""


@dataclass(frozen=True, eq=False)
class Call:
    """The inputs of one attention in a number type.

    arrays  q, k, v, d_output (and sinks) in the number type
    given   what attncli takes besides: the same restrictions in its words
    keep    may attend, [n_q, n_k]; kept: not dropped, [batch, head, n_q, n_k]
    """

    dtype: str
    arrays: dict[str, Array]
    given: dict[str, Any]
    keep: Array
    bias: Array | None = None
    kept: Array | None = None

    @property
    def acc(self) -> Any:
        """The type of products and sums."""
        return np.float64 if self.dtype == "float64" else np.float32

    @property
    def keywords(self) -> dict[str, Any]:
        """All that attncli takes."""
        return {**self.arrays, **self.given}

    def rounded(self, x: Array) -> Array:
        """Rounded to the number type."""
        with np.errstate(over="ignore"):
            return np.asarray(x).astype(TYPES[self.dtype]).astype(self.acc)


def call_of(world: str, dtype: str, seed: int = 0, *, is_small: bool = False) -> Call:
    sizes, features = WORLDS[world]
    b, h, h_kv, n_q, n_k, d_k, d_v = (SMALLER.get(n, n) if is_small else n for n in sizes)
    has = features.split()
    rng = np.random.default_rng(seed)
    shapes = {"q": (b, h, n_q, d_k), "k": (b, h_kv, n_k, d_k), "v": (b, h_kv, n_k, d_v)}
    shapes["d_output"] = (b, h, n_q, d_v)
    given, more = dict[str, Any](), dict[str, Any]()
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    arrays["q"] *= 4 if "large" in has else 2 if "softcap" in has else 1
    arrays["v"] += 10 if "shifted" in has else 0
    if "softcap" in has:
        given["softcap"] = CAP
    if "sinks" in has:
        arrays["sinks"] = rng.standard_normal(h)
    arrays = {name: x.astype(TYPES[dtype]) for name, x in arrays.items()}
    far = np.arange(n_k) - np.arange(n_q)[:, None]
    keep = np.ones((n_q, n_k), bool)
    if "causal" in has:
        given["causal"], keep = True, far <= 0
    if "window" in has:
        given["window"], keep = WINDOW, (far >= -WINDOW[0]) & (far <= WINDOW[1])
    if "mask" in has:
        keep = rng.random((n_q, n_k)) < 0.7
        keep[3] = False
        given["mask"] = keep
    if "bias" in has:
        bias = rng.standard_normal((1 if "shared" in has else h, n_q, n_k))
        more["bias"] = np.where(keep, bias, 0).astype(TYPES[dtype]).astype(np.float64)
        given["mask"] = np.where(keep, more["bias"], -np.inf)
    if "dropout" in has:  # as attncli says that it draws: PCG64, kept where not below p
        more["kept"] = np.random.default_rng(SEED).random((b, h, n_q, n_k)) >= P
        given |= {"dropout": P, "seed": SEED}
    if "rope" in has:
        given["positions"] = "rope-halves"
    return Call(dtype, arrays, given, keep, **more)


def swap(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def rotated(x: Array, sign: int = 1) -> Array:
    return rotate(x, sign * np.arange(x.shape[-2]))


class Kernel:
    """One attention and its gradients; names as in the paper."""

    def __init__(self, call: Call) -> None:
        self.c, acc = call, call.acc
        own = {name: x.astype(acc) for name, x in call.arrays.items()}
        if "positions" in call.given:
            own |= {name: call.rounded(rotated(own[name])) for name in "qk"}
        self.sinks = own["sinks"][:, None, None] if "sinks" in own else np.full(1, -np.inf, acc)
        self.q, self.d_o = own["q"], own["d_output"]
        h, self.n_q, d = self.q.shape[1:]
        self.n_kv, self.n_k = own["k"].shape[1:3]
        self.kv_of = np.arange(h) // (h // self.n_kv)
        self.k, self.v = own["k"][:, self.kv_of], own["v"][:, self.kv_of]
        self.scale, self.cap = acc(d**-0.5), acc(call.given.get("softcap", np.inf))
        self.one_minus_p = acc(1 - P)

    def forward(self) -> None:
        x = Kernel.biased(self, Kernel.capped(self, Kernel.scored(self)))
        x = np.where(self.c.keep, x, -np.inf).astype(self.c.acc)
        self.top = np.maximum(x.max(axis=-1, keepdims=True), self.sinks)
        self.top[np.isneginf(self.top)] = 0
        power = np.exp(x - self.top)
        self.total = power.sum(axis=-1, keepdims=True) + np.exp(self.sinks - self.top)
        self.is_empty = self.total == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            o = (self.c.rounded(Kernel.dropped(self, power)) @ self.v) / self.total
            lse = self.top + np.log(self.total)
        self.o = self.c.rounded(np.where(self.is_empty, 0, o))
        self.lse = np.where(self.is_empty, np.inf, lse)  # exp(x − ∞) = 0, as FlashAttention has it
        self.a = np.exp(x - self.lse)

    # ---- the backward pass

    def read(self) -> None:
        """What the way back reads, where it is not what the forward pass had."""

    def scored(self) -> Array:
        return np.asarray(self.scale * (self.q @ swap(self.k)))

    def capped(self, z: Array) -> Array:
        return z if np.isinf(self.cap) else self.cap * np.tanh(z / self.cap)

    def biased(self, x: Array) -> Array:
        return x if self.c.bias is None else x + self.c.bias.astype(self.c.acc)

    def hidden(self) -> Array:
        """Where the way back hides a key: [n_q, n_k]."""
        return ~self.c.keep

    def saved(self) -> Array:
        return self.lse

    def weights(self, x: Array) -> Array:
        return np.asarray(np.exp(x - self.saved()))

    def delta(self) -> Array:
        return np.asarray((self.o * self.d_o).sum(axis=-1, keepdims=True))

    def dropped(self, p: Array) -> Array:
        return p if self.c.kept is None else np.where(self.c.kept, p / self.one_minus_p, 0)

    def for_values(self, p: Array) -> Array:
        """The weights that dV is made of."""
        return self.dropped(p)

    def d_dropped(self, d: Array) -> Array:
        return Kernel.dropped(self, d)

    def softmax(self, p: Array, d: Array, delta: Array) -> Array:
        return np.asarray(p * (d - delta))

    def d_cap(self, d: Array, z: Array, c: Array) -> Array:
        return np.asarray(d * (1 - np.square(c / self.cap)))

    def of_q(self, d_s: Array) -> Array:
        return np.asarray(d_s @ self.k)

    def of_k(self, d_s: Array) -> Array:
        return np.asarray(swap(d_s) @ self.q)

    def of_v(self, p: Array) -> Array:
        return np.asarray(swap(p) @ self.d_o)

    def factors(self) -> tuple[float, float, float]:
        """What d_q, d_k and d_v are multiplied by at the end."""
        return float(self.scale), float(self.scale), 1.0

    def grouped(self, x: Array, name: str) -> Array:
        return np.stack([x[:, self.kv_of == n].sum(axis=1) for n in range(self.n_kv)], axis=1)

    def unrotated(self, x: Array) -> Array:
        return rotated(x, -1) if "positions" in self.c.given else x

    def d_sinks(self, delta: Array) -> Array:
        return np.asarray(-(np.exp(self.sinks - self.saved()) * delta).sum(axis=(0, 2, 3)))

    def d_bias(self, d_x: Array) -> Array:
        """[head, n_q, n_k], summed where all heads share a bias."""
        own, is_shared = d_x.sum(axis=0), self.c.bias is not None and len(self.c.bias) == 1
        return np.asarray(own.sum(axis=0, keepdims=True) if is_shared else own)

    def written(self, gradients: dict[str, Array]) -> dict[str, Array]:
        return gradients

    @np.errstate(all="ignore")  # wrong ones overflow
    def run(self) -> dict[str, Array]:
        """The gradients by name, in the number type."""
        self.forward()
        self.read()
        z = self.scored()
        c = self.capped(z)
        p = self.weights(np.where(self.hidden(), -np.inf, self.biased(c)).astype(self.c.acc))
        delta = self.delta()
        d_x = self.softmax(p, self.d_dropped(self.d_o @ swap(self.v)), delta)
        d_s, of_v = self.c.rounded(self.d_cap(d_x, z, c)), self.c.rounded(self.for_values(p))
        q_times, k_times, v_times = (self.c.acc(x) for x in self.factors())
        gradients = {
            "d_q": self.unrotated(self.of_q(d_s) * q_times),
            "d_k": self.unrotated(self.grouped(self.of_k(d_s), "d_k") * k_times),
            "d_v": self.grouped(self.of_v(of_v), "d_v") * v_times,
        }
        if "sinks" in self.c.arrays:
            gradients["d_sinks"] = self.d_sinks(delta)
        if self.c.bias is not None:
            gradients["d_bias"] = self.d_bias(d_x)
        return {name: x.astype(TYPES[self.c.dtype]) for name, x in self.written(gradients).items()}


def run_with(call: Call, **methods: Callable[..., Any]) -> dict[str, Array]:
    """The gradients of the kernel whose methods of these names are other ones."""
    gradients: dict[str, Array] = type("Other", (Kernel,), methods)(call).run()
    return gradients


def eager(call: Call) -> dict[str, Array]:
    """The same without lse: every stage rounded; δ is the sum of P ∘ dP."""

    def rounding(name: str) -> Callable[..., Array]:
        return lambda s, *args: s.c.rounded(getattr(Kernel, name)(s, *args))

    def weights(s: Kernel, x: Array) -> Array:
        top = x.max(axis=-1, keepdims=True)
        top = np.where(np.isneginf(top), 0, top)
        total = np.exp(x - top).sum(axis=-1, keepdims=True) + np.exp(s.sinks - top)
        return s.c.rounded(np.where(total == 0, 0, np.exp(x - top) / total))

    def softmax(s: Kernel, p: Array, d: Array, _: Array) -> Array:
        r = s.c.rounded
        return r(p * r(d - r((p * d).sum(axis=-1, keepdims=True))))

    names = ("scored", "capped", "biased", "dropped", "d_dropped", "d_cap")
    own: dict[str, Any] = {name: rounding(name) for name in names}
    return run_with(call, **own, weights=weights, softmax=softmax)


def right(call: Call) -> dict[str, dict[str, Array]]:
    """The gradients of right implementations, by name."""
    wide = {name: x.astype(np.float64) for name, x in call.arrays.items()}
    exact = Kernel(replace(call, dtype="float64", arrays=wide)).run()
    rounded = {name: x.astype(TYPES[call.dtype]) for name, x in exact.items()}
    return {"kernel": Kernel(call).run(), "stages": eager(call), "float64 inside": rounded}
