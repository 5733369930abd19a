"""What went in or came out is something else: biases, norms, residuals, projections."""

from __future__ import annotations

import numpy as np

from tests.check.planted.parts import Array, Inputs, attend, bias
from tests.check.planted.rows import Row
from tests.check.planted.worlds import (
    BIAS,
    CAUSAL_KERNEL,
    EVEN,
    KERNEL,
    LARGE,
    LARGE_KERNEL,
    ODD,
    PROJECTED,
    Q_BIAS,
    THREE,
    V_BIAS,
    shifted,
)


def vector(x: Inputs, name: str) -> Array:
    """The bias that `shifted` put in."""
    y = np.zeros_like(getattr(x, name), dtype=float)
    shifted(name, 1.0)(np.random.default_rng(0), {name: y})
    return y[:1, :, :1].astype(x.wide)


def rms(y: Array) -> Array:
    return np.asarray(y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-6))


def l2(y: Array) -> Array:
    return np.asarray(y / np.sqrt((y**2).sum(-1, keepdims=True)))


def layer_norm(y: Array) -> Array:
    return np.asarray((y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5))


def projected(x: Inputs) -> Array:
    """Heads side by side, times W_o, and cut into heads again."""
    out = attend(x)
    width = x.h * x.d_v
    w = np.random.default_rng(11).normal(size=(width, width)) * width**-0.5
    side = out.swapaxes(1, 2).reshape(x.b, x.n_q, width) @ w.astype(x.wide)
    return np.asarray(side.reshape(x.b, x.n_q, x.h, x.d_v).swapaxes(1, 2))


def projected_per_head(x: Inputs) -> Array:
    w = np.random.default_rng(12).normal(size=(x.h, x.d_v, x.d_v)) * x.d_v**-0.5
    return np.asarray(attend(x) @ w.astype(x.wide))


def noisy_bias(x: Inputs) -> Array:
    numbers = bias(x)
    assert numbers is not None
    return np.asarray(numbers + np.random.default_rng(13).normal(size=numbers.shape) * 0.2)


def unnormalised(x: Inputs, gain: bool) -> Array:
    """What came in is normalised; the queries and keys that are used are as they were before."""
    rng = np.random.default_rng(17)
    q, k = (y * rng.uniform(0.5, 2, size=(*y.shape[:3], 1)).astype(x.wide) for y in (x.q, x.k))
    return attend(x, q=q if gain else x.q, k=k)


NORMS = ("queries and keys normalised",)
FACTORS = ("queries and keys times factors",)
ADDED = ("residual already in the output",)
ROWS = (
    Row("no bias on the values", ("bias of the values missing",), lambda x: attend(x, v=x.v - vector(x, "v")), (V_BIAS,)),
    Row("a bias too many on the values", ("bias of the values missing",), lambda x: attend(x, v=x.v + vector(x, "v")), (KERNEL,)),
    Row("no bias on the queries", ("bias of the queries missing",), lambda x: attend(x, q=x.q - vector(x, "q")), (Q_BIAS,)),
    Row("a bias too many on the queries", ("bias of the queries missing",), lambda x: attend(x, q=x.q + vector(x, "q")), (KERNEL,)),
    Row("RMS norm of q and k", NORMS, lambda x: attend(x, q=rms(x.q), k=rms(x.k)), (THREE, KERNEL, LARGE)),
    Row("L2 norm of q and k", NORMS, lambda x: attend(x, q=l2(x.q), k=l2(x.k)), (ODD,)),
    Row("L2 norm without a scale", (*NORMS, "queries and keys normalised + scale left out", "queries and keys times factors"), lambda x: attend(x, q=l2(x.q), k=l2(x.k), scale=1.0), (THREE,)),
    Row("norm of q and k missing", FACTORS, lambda x: unnormalised(x, True), (THREE, KERNEL, CAUSAL_KERNEL)),
    Row("scale of each key forgotten", FACTORS, lambda x: unnormalised(x, False), (THREE, KERNEL)),
    Row("q added", ADDED, lambda x: attend(x) + x.q, (EVEN, CAUSAL_KERNEL, LARGE_KERNEL)),
    Row("v added", ADDED, lambda x: attend(x) + x.v, (EVEN,)),
    Row("k added", ADDED, lambda x: attend(x) + x.k, (EVEN,)),
    Row("projected over all heads", ("output projected already",), projected, (PROJECTED,)),
    Row("projected, each head", ("output projected already",), projected_per_head, (PROJECTED,)),
    Row("layer norm of the output", (), lambda x: layer_norm(attend(x)), (ODD,), kind="control"),
    Row("layer norm of q and k", (*NORMS,), lambda x: attend(x, q=layer_norm(x.q), k=layer_norm(x.k)), (ODD,)),
    Row("numbers of the mask with noise", (), lambda x: attend(x, add=noisy_bias(x)), (BIAS,), kind="control"),
)  # fmt: skip
