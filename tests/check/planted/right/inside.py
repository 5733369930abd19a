"""Right, but for a lower precision inside: to be called so, not a match and not a bug."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from tests.check.planted.parts import Array, Inputs, scores, softmax
from tests.check.planted.right.steps import parts
from tests.check.planted.rows import Row
from tests.check.planted.worlds import CAUSAL, KERNEL, MASKED, ODD, PRIMES, SEVERAL


def tf32(y: Array) -> Array:
    """Ten bits of the fraction, the nearest, ties to even."""
    bits = y.astype(np.float32).view(np.uint32)
    nearest = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return np.asarray((nearest & np.uint32(0xFFFFE000)).view(np.float32))


def brain(y: Array) -> Array:
    return y.astype(ml_dtypes.bfloat16).astype(y.dtype)


def with_products(x: Inputs, cut: Callable[[Array], Array]) -> Array:
    p = parts(x)
    s = scores(cut(p.q), cut(p.k)) * x.wide(x.scale)
    w = softmax(np.where(p.hide, x.wide(-np.inf), s).astype(x.wide))
    return np.asarray(cut(w) @ cut(p.v))


def softmax_in(x: Inputs, dtype: type) -> Array:
    p = parts(x)
    s = np.where(p.hide, -np.inf, scores(p.q, p.k) * x.wide(x.scale))
    return np.asarray(softmax(s.astype(dtype)).astype(x.wide) @ p.v)


def everything_in(x: Inputs, dtype: type) -> Array:
    p = parts(x)
    q, k, v = (y.astype(dtype).astype(np.float32) for y in (p.q, p.k, p.v))
    s = np.where(p.hide, np.float32(-np.inf), scores(q, k) * np.float32(x.scale))
    return np.asarray(softmax(s) @ v)


def weights_in(x: Inputs, dtype: type) -> Array:
    p = parts(x)
    w = softmax(np.where(p.hide, x.wide(-np.inf), scores(p.q, p.k) * x.wide(x.scale)))
    return np.asarray(w.astype(dtype).astype(x.wide) @ p.v)


def sums_in_type(x: Inputs) -> Array:
    """Every sum is rounded to the number type after each term."""
    p = parts(x)
    s = np.zeros((x.b, x.h, x.n_q, x.n_k), x.wide)
    for d in range(x.d_k):
        s = x.round(s + p.q[..., d : d + 1] * p.k[..., None, :, d]).astype(x.wide)
    s = np.where(p.hide, x.wide(-np.inf), x.round(s * x.wide(x.scale)).astype(x.wide))
    w = x.round(softmax(s)).astype(x.wide)
    out = np.zeros((x.b, x.h, x.n_q, x.d_v), x.wide)
    for j in range(x.n_k):
        out = x.round(out + w[..., j : j + 1] * p.v[:, :, None, j]).astype(x.wide)
    return out


def inside(what: str, make: Callable[[Inputs], Array], *types: str) -> Row:
    return Row(what, (), make, WORLDS, kind="inside", types=types)


WORLDS = (PRIMES, ODD, KERNEL, CAUSAL, MASKED, SEVERAL)
ROWS = (
    inside("TF32 products", lambda x: with_products(x, tf32), "float32"),
    inside("bfloat16 products", lambda x: with_products(x, brain), "float32", "float16"),
    inside("float32 softmax in float64", lambda x: softmax_in(x, np.float32), "float64"),
    inside("float32 inside", lambda x: everything_in(x, np.float32), "float64"),
    inside("float16 weights", lambda x: weights_in(x, np.float16), "float64", "float32"),
    inside("bfloat16 weights", lambda x: weights_in(x, ml_dtypes.bfloat16), "float64", "float32", "float16"),
    inside("bfloat16 inputs", lambda x: everything_in(x, ml_dtypes.bfloat16), "float32", "float16"),
    inside("float16 inputs", lambda x: everything_in(x, np.float16), "float64", "float32"),
    inside("sums kept in the type", sums_in_type, "float16", "bfloat16"),
)  # fmt: skip
