"""What buggy attentions are built from: inputs of given sizes and number types, and the right steps.

Nothing of attncli is used here. q [h, n_q, d_k], k [h_kv, n_k, d_k], v [h_kv, n_k, d_v].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
TYPES["bfloat16"] = ml_dtypes.bfloat16
INF = np.inf


@dataclass(frozen=True)
class Computed:
    """What a wrong implementation computed, from what, and what it should have followed."""

    observed: Any
    q: Array
    k: Array
    v: Array
    how: dict[str, Any] = field(default_factory=dict)  # of the Convention
    given: dict[str, Any] = field(default_factory=dict)  # mask, kv_len, …


@dataclass(frozen=True)
class Inputs:
    """Random inputs of a number type and of sizes that are all different."""

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
        """q, k, v in the number type; other sizes may be given by name."""
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


def scores(q: Array, k: Array) -> Array:
    return np.asarray(np.einsum("hqd,hkd->hqk", wide(q), wide(k)))


def weighted_sum(weights: Array, v: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(np.einsum("hqk,hkd->hqd", weights, wide(v)))


def scale(x: Array) -> float:
    return float(x.shape[-1] ** -0.5)


def positions(n_q: int, n_k: int) -> tuple[Array, Array]:
    i, j = np.indices((n_q, n_k))
    return i, j


def mask_scores(s: Array, masked: Array, value: float = -INF) -> Array:
    return np.where(masked, s.dtype.type(value), s)


def causal_cells(inputs: Inputs) -> Array:
    i, j = positions(inputs.n_q, inputs.n_k)
    return j > i


def random_mask(inputs: Inputs, n_q: int, n_k: int) -> Array:
    """True where a query may attend; no query is left with no key, or with every key."""
    keep = inputs.rng.random((n_q, n_k)) < 0.6
    at = np.arange(n_q)
    keep[at, at % n_k] = True
    keep[at, (at + 2) % n_k] = False
    return keep


def masked_softmax(s: Array, keep: Array) -> Array:
    return softmax(mask_scores(s, ~keep))


def merge(x: Array) -> Array:
    """[h, n, d] -> [n, h·d], as a projection gives it."""
    return np.concatenate(list(x), axis=-1)


def split(x: Array, h: int) -> Array:
    """[n, h·d] -> [h, n, d], the right way round."""
    return np.stack(np.split(x, h, axis=-1))
