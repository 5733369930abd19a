"""Another scale, none, one too many; a factor on what goes in or comes out."""

from __future__ import annotations

import numpy as np

from tests.check.planted.parts import Array, Inputs, attend, head_of, hidden, scores, softmax
from tests.check.planted.rows import Row
from tests.check.planted.worlds import (
    CAUSAL,
    CAUSAL_KERNEL,
    GROUPED,
    HUGE,
    KERNEL,
    LARGE,
    LARGE_KERNEL,
    MASKED,
    ODD,
    PRIMES,
    SCALED,
    THREE,
    TWO,
    World,
)


def over_root(width: float) -> Array:
    return np.asarray(width**-0.5)


def overflow(x: Inputs) -> Array:
    with np.errstate(over="ignore"):
        s = scores(x.q, x.k).astype(np.float16).astype(x.wide) * x.scale
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True) @ x.v)


def exp2_forgotten(x: Inputs) -> Array:
    """2^s where e^s is meant: log2(e) was not folded into the scale."""
    s = np.where(hidden(x), -np.inf, scores(x.q, head_of(x, x.k)) * x.scale)
    e = np.exp2(s - s.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True) @ head_of(x, x.v))


def sharpened(x: Inputs) -> Array:
    def weigh(s: Array) -> Array:
        power = softmax(s) ** 1.3
        return np.asarray(power / power.sum(-1, keepdims=True))

    return attend(x, weigh=weigh)


def per_head(x: Inputs, low: float, high: float, n: int | None = None) -> Array:
    return np.linspace(low, high, n or x.h)[:, None, None].astype(x.wide)


def per_channel(x: Inputs, n: int) -> Array:
    return np.random.default_rng(3).uniform(0.5, 2, size=n).astype(x.wide)


def last_head_not_written(x: Inputs) -> Array:
    out = attend(x)
    out[:, -1] = 0
    return out


WIDE = World("width 32", b=1, h=4, n_q=47, n_k=53, d_k=32, d_v=24)
ANY = ("another scale",)
TIMES = ("output times a factor",)
ROWS = (
    Row("no scale", ("scale left out",), lambda x: attend(x, scale=1.0), (PRIMES, KERNEL, CAUSAL, LARGE, TWO), "cntkx#10"),
    Row("no scale, grouped", ("scale left out",), lambda x: attend(x, scale=1.0), (GROUPED,), "PAIR-code/tiny-transformers#71"),
    Row("width of the model", ("√d_model instead of √d_k",), lambda x: attend(x, scale=over_root(x.h * x.d_k)), (PRIMES, KERNEL), "Graylab/DL4Proteins-notebooks#12"),
    Row("divided by d_k", ("divided by d_k, not √d_k", "scale applied twice"), lambda x: attend(x, scale=1 / x.d_k), (PRIMES, KERNEL, LARGE_KERNEL), "esceptico/perceiver-io#9"),
    Row("times the root", ("multiplied by √d_k",), lambda x: attend(x, scale=x.d_k**0.5), (PRIMES, ODD), "maxtext#3138"),
    Row("scaled twice", ("scale applied twice",), lambda x: attend(x, scale=0.3 * 0.3), (SCALED,), "transformers PR 38290"),
    Row("default scale", ("default scale, not the one given",), lambda x: attend(x, scale=over_root(x.d_k)), (SCALED,)),
    Row("padded width of 72", ANY, lambda x: attend(x, scale=over_root(72)), (KERNEL, LARGE_KERNEL), "ipex-llm PR 12619"),
    Row("width of the values", ANY, lambda x: attend(x, scale=over_root(x.d_v)), (PRIMES,)),
    Row("width of 24 in place of 16", ANY, lambda x: attend(x, scale=over_root(24)), (ODD, MASKED, LARGE), "transformers PR 43481"),
    Row("2^s for e^s", ANY, exp2_forgotten, (ODD, CAUSAL_KERNEL, LARGE_KERNEL)),
    Row("log2(e) twice", ANY, lambda x: attend(x, scale=x.scale / np.log(2)), (ODD,)),
    Row("two over the root", ANY, lambda x: attend(x, scale=2 * x.scale), (ODD, KERNEL, LARGE)),
    Row("root cut to a whole number", ANY, lambda x: attend(x, scale=1 / int(x.d_k**0.5)), (PRIMES,)),
    Row("a quarter of the scale", ANY, lambda x: attend(x, scale=x.scale / 4), (KERNEL,), "stanford-crfm/mistral PR 77"),
    Row("weights to the power 1.3", ANY, sharpened, (ODD,)),
    Row("the mean of all values", ANY, lambda x: attend(x, scale=0.0), (PRIMES,)),
    Row("float16 scores overflow", ("scores overflow in float16",), overflow, (HUGE,), "ultralytics PR 24990"),
    Row("scale after softmax", ("scale after softmax",), lambda x: attend(x, weigh=lambda s: softmax(s / x.scale) * x.scale), (PRIMES, KERNEL)),
    Row("weights divided by the root too", TIMES, lambda x: attend(x) / x.d_k**0.5, (KERNEL,)),
    Row("output times 0.95", TIMES, lambda x: attend(x) * 0.95, (PRIMES, KERNEL, LARGE_KERNEL, TWO)),
    Row("mean of weighted values, not the sum", TIMES, lambda x: attend(x) / x.n_k, (ODD,)),
    Row("scale of V forgotten, per head", TIMES, lambda x: attend(x, v=x.v / per_head(x, 0.5, 2)), (ODD, LARGE), "sgl-kernel-xpu PR 252"),
    Row("scale of V forgotten, per channel", TIMES, lambda x: attend(x, v=x.v * per_channel(x, x.d_v)), (ODD,)),
    Row("last head not written", ("a head not written",), last_head_not_written, (ODD,)),
    Row("scale of K forgotten, per head", ("keys times a factor",), lambda x: attend(x, k=x.k / per_head(x, 0.4, 1.7)), (ODD, THREE, LARGE), "sgl-kernel-xpu PR 252"),
    Row("scale of K forgotten, per channel", ("keys times a factor", "channels of the keys times factors"), lambda x: attend(x, k=x.k * per_channel(x, x.d_k)), (ODD,)),
    Row("width cut to 24, the scale not", ("keys times a factor", "channels of the keys times factors"), lambda x: attend(x, q=x.q[..., :24], k=x.k[..., :24]), (WIDE,), "triton#621"),
    Row("scale of K forgotten, one for all", (*ANY, "keys times a factor"), lambda x: attend(x, k=x.k * x.wide(1 / 0.37)), (THREE,), "flashinfer#4979"),
)  # fmt: skip
