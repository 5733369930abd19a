"""From inputs to weights: scale and factors, softmax along another axis or of another kind."""

from __future__ import annotations

import numpy as np

from tests.check.planted import worlds as w
from tests.check.planted.parts import (
    Array,
    Inputs,
    attend,
    exponentials,
    head_of,
    normalised,
    scores,
    softmax,
    weights_of,
)
from tests.check.planted.rows import Row
from tests.check.planted.worlds import World

NARROW = World("more channels than keys", b=1, h=2, n_q=19, n_k=13, d_k=16, d_v=32)


def per_head(x: Inputs, low: float, high: float) -> Array:
    return np.linspace(low, high, x.h)[:, None, None].astype(x.wide)


def per_channel(x: Inputs, n: int) -> Array:
    return np.random.default_rng(3).uniform(0.5, 2, size=n).astype(x.wide)


def raw(x: Inputs) -> Array:
    """Scaled scores."""
    return scores(x.q, head_of(x, x.k)) * x.scale


def summed_over(axis: int, s: Array) -> Array:
    e = exponentials(s)
    return np.asarray(e / e.sum(axis, keepdims=True))


def one_added(e: Array) -> Array:
    return np.asarray(e / (1 + e.sum(-1, keepdims=True)))


def capped(s: Array, c: float) -> Array:
    return np.asarray(c * np.tanh(s / c))


def dropped(x: Inputs, weights: Array) -> Array:
    kept = np.random.default_rng(5).random(weights.shape) >= 0.2
    return np.asarray(np.where(kept, weights / 0.8, 0).astype(x.wide))


ANY = ("another scale",)
TIMES = ("output times a factor",)
SINK = ("sinks where none are wanted",)
# a sink of 0 adds 1 to the sum
ADDED = ("softmax with 1 added to the sum", "sinks where none are wanted")
AXIS = ("softmax over queries, not keys",)
KEYS = ("keys times a factor", "channels of the keys times factors")
SUMMED = ("sum over queries, maximum over keys",)
ROWS = (
    Row("no scale", ("scale left out",), lambda x: attend(x, scale=1.0), (w.PRIMES, w.KERNEL, w.CAUSAL, w.LARGE, w.TWO), "cntkx#10"),
    Row("width of the model", ("√d_model instead of √d_k",), lambda x: attend(x, scale=(x.h * x.d_k) ** -0.5), (w.PRIMES, w.KERNEL), "Graylab/DL4Proteins-notebooks#12"),
    Row("divided by d_k", ("divided by d_k, not √d_k", "scale applied twice"), lambda x: attend(x, scale=1 / x.d_k), (w.PRIMES, w.KERNEL, w.LARGE_KERNEL), "esceptico/perceiver-io#9"),
    Row("times the root", ("multiplied by √d_k",), lambda x: attend(x, scale=x.d_k**0.5), (w.PRIMES, w.ODD), "maxtext#3138"),
    Row("scaled twice", ("scale applied twice",), lambda x: attend(x, scale=0.3 * 0.3), (w.SCALED,), "transformers PR 38290"),
    Row("default scale", ("default scale, not the one given",), lambda x: attend(x, scale=x.d_k**-0.5), (w.SCALED,)),
    Row("padded width of 72", ANY, lambda x: attend(x, scale=72**-0.5), (w.KERNEL, w.ODD), "ipex-llm PR 12619"),
    Row("2^s for e^s", ANY, lambda x: attend(x, weigh=lambda s: softmax(s * np.log(2))), (w.ODD, w.CAUSAL_KERNEL, w.LARGE_KERNEL)),
    Row("float16 scores overflow", ("scores overflow in float16",), lambda x: normalised(exponentials(scores(x.q, x.k).astype(np.float16).astype(x.wide) * x.scale)) @ x.v, (w.HUGE,), "ultralytics PR 24990"),
    Row("scale after softmax", ("scale after softmax",), lambda x: attend(x, weigh=lambda s: softmax(s / x.scale) * x.scale), (w.PRIMES, w.KERNEL)),
    Row("output times 0.95", TIMES, lambda x: attend(x) * 0.95, (w.PRIMES, w.KERNEL, w.LARGE_KERNEL, w.TWO)),
    Row("scale of V forgotten, per head", TIMES, lambda x: attend(x, v=x.v / per_head(x, 0.5, 2)), (w.ODD, w.LARGE), "sgl-kernel-xpu PR 252"),
    Row("scale of V forgotten, per channel", TIMES, lambda x: attend(x, v=x.v * per_channel(x, x.d_v)), (w.ODD,)),
    Row("last head not written", ("a head not written",), lambda x: attend(x) * (np.arange(x.h) < x.h - 1)[:, None, None], (w.ODD,)),
    Row("scale of K forgotten, per head", ("keys times a factor",), lambda x: attend(x, k=x.k / per_head(x, 0.4, 1.7)), (w.ODD, w.THREE, w.LARGE), "sgl-kernel-xpu PR 252"),
    Row("scale of K forgotten, per channel", KEYS[::-1], lambda x: attend(x, k=x.k * per_channel(x, x.d_k)), (w.ODD,)),
    Row("over queries", AXIS, lambda x: attend(x, weigh=lambda s: softmax(s, axis=-2)), (w.PRIMES, w.KERNEL, w.LARGE), "labmlai/annotated_deep_learning_paper_implementations#146"),
    Row("over queries, as weights", AXIS, lambda x: softmax(raw(x), axis=-2), (w.SQUARE,), "PyTorch-NLP#2", stage="weights"),
    Row("over keys", ("softmax over keys, not queries",), lambda x: attend(x, weigh=softmax), (w.OVER_QUERIES,)),
    Row("over heads", ("softmax over heads",), lambda x: attend(x, weigh=lambda s: softmax(s, axis=1)), (w.PRIMES, w.ODD, w.LARGE), "labmlai/annotated_deep_learning_paper_implementations#282"),
    Row("over the batch", ("softmax over the batch",), lambda x: attend(x, weigh=lambda s: softmax(s, axis=0)), (w.PRIMES,)),
    Row("no sum, no maximum", ("softmax not normalised",), lambda x: attend(x, weigh=np.exp), (w.PRIMES,)),
    Row("no sum", ("softmax not normalised",), lambda x: attend(x, weigh=exponentials), (w.PRIMES, w.KERNEL, w.CAUSAL, w.LARGE)),
    Row("sum over queries", SUMMED, lambda x: attend(x, weigh=lambda s: summed_over(-2, s)), (w.SQUARE, w.KERNEL)),
    Row("sigmoid", ("sigmoid, not softmax",), lambda x: attend(x, weigh=lambda s: 1 / (1 + np.exp(-s))), (w.PRIMES, w.CAUSAL, w.LARGE)),
    Row("softmax1", ADDED, lambda x: attend(x, weigh=lambda s: one_added(np.exp(s))), (w.PRIMES, w.ODD), but=(("odd", "among several"),)),
    Row("no softcap", ("softcap left out",), lambda x: attend(x, cap=0.0), (w.CAPPED, w.CAPPED_CAUSAL), "onnxruntime PR 28370"),
    Row("softcap of 4", ("another softcap",), lambda x: attend(x, cap=4.0), (w.CAPPED_CAUSAL,)),
    Row("softcap after the mask", ("softcap on the other side of the mask",), lambda x: attend(x, cap=0.0, weigh=lambda s: softmax(capped(s, x.how["softcap"]))), (w.CAPPED_CAUSAL,), "onnx#7865"),
    Row("no sinks", ("sinks left out",), lambda x: attend(x, sinks=np.zeros(0)), (w.SINKS,), "radixark/miles#1500"),
    Row("dropout, from the output", ("dropout left on",), lambda x: attend(x, weigh=lambda s: dropped(x, softmax(s))), (NARROW,), "pytorch#124464"),
    Row("dropout, from the weights", ("dropout left on",), lambda x: dropped(x, weights_of(x)), (w.PRIMES,), "timm PR 1978", stage="weights"),
    Row("weights turned", ("rows and columns exchanged",), lambda x: weights_of(x).swapaxes(-1, -2), (w.SQUARE,), stage="weights"),
    Row("scaled scores", ("the observed scores are scaled already",), raw, (w.PRIMES, w.THREE), stage="scores"),
    Row("scale 1/√(d + ¼)", ("another scale",), lambda x: attend(x, scale=(x.d_k + 0.25) ** -0.5), (w.QUIET,), kind="quiet", always=True),
    Row("softcap 50 too many", ("another softcap",), lambda x: attend(x, cap=50.0), (w.QUIET,), kind="quiet"),
    Row("a sink of −6", SINK, lambda x: attend(x, sinks=np.full(x.h, -6.0)), (w.QUIET,), kind="quiet", always=True),
    Row("window of 255 of 256", ("window one too narrow", "another window"), lambda x: attend(x, hide=(x.j > x.i) | (x.j < x.i - 254)), (w.QUIET_WINDOW,), kind="quiet"),
    Row("sum over heads", SUMMED, lambda x: attend(x, weigh=lambda s: summed_over(1, s)), (w.PRIMES,)),
    Row("sigmoid less the logarithm of the keys", ("sigmoid, not softmax",), lambda x: attend(x, weigh=lambda s: 1 / (1 + x.n_k * np.exp(-s))), (w.PRIMES,)),
    Row("numbers in the softcap", ("numbers of the mask inside the softcap",), lambda x: attend(x, cap=0.0, weigh=lambda s: softmax(np.where(x.hidden, s, capped(s, 2.0)))), (w.CAPPED_BIAS,)),
    Row("numbers after the softcap", ("numbers of the mask outside the softcap",), lambda x: attend(x, cap=0.0, add=np.zeros(1), weigh=lambda s: softmax(np.where(x.hidden, s, capped(s, 2.0) + x.bias))), (w.CAPPED_AFTER,)),
)  # fmt: skip
