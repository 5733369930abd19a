"""From scores to weights: another axis, another function, softcap, sinks, dropout."""

from __future__ import annotations

import numpy as np

from tests.check.planted.parts import Array, Inputs, attend, softmax
from tests.check.planted.rows import Row
from tests.check.planted.worlds import (
    CAPPED,
    CAPPED_CAUSAL,
    CAUSAL,
    KERNEL,
    LARGE,
    ODD,
    OVER_QUERIES,
    PRIMES,
    QUIET,
    QUIET_WINDOW,
    SINKS,
    SQUARE,
    THREE,
    World,
)

NARROW = World("more channels than keys", b=1, h=2, n_q=19, n_k=13, d_k=16, d_v=32)


def exponentials(s: Array) -> Array:
    return np.asarray(np.exp(s - s.max(-1, keepdims=True)))


def over_the_wrong_axis(s: Array) -> Array:
    e = exponentials(s)
    return np.asarray(e / e.sum(-2, keepdims=True))


def one_added(s: Array) -> Array:
    e = np.exp(s)
    return np.asarray(e / (1 + e.sum(-1, keepdims=True)))


def one_added_after_maximum(s: Array) -> Array:
    e = exponentials(s)
    return np.asarray(e / (1 + e.sum(-1, keepdims=True)))


def cap_after_mask(x: Inputs) -> Array:
    c = x.how["softcap"]
    return attend(x, cap=0.0, weigh=lambda s: softmax(c * np.tanh(s / c)))


def dropped(x: Inputs) -> Array:
    def weigh(s: Array) -> Array:
        kept = np.random.default_rng(5).random(s.shape) >= 0.2
        return np.asarray(np.where(kept, softmax(s) / 0.8, 0).astype(x.wide))

    return attend(x, weigh=weigh)


def dropped_weights(x: Inputs) -> Array:
    kept = np.random.default_rng(5).random((x.b, x.h, x.n_q, x.n_k)) >= 0.2
    return np.asarray(np.where(kept, weights(x) / 0.8, 0))


def weights(x: Inputs) -> Array:
    eye = np.eye(x.n_k, dtype=x.wide)
    return attend(x, v=np.broadcast_to(eye, (x.b, x.h, x.n_k, x.n_k)))


NONE = np.zeros(0)
CAP = ("another softcap",)
SINK = ("sinks where none are wanted",)
# a sink of 0 adds 1 to the sum
ADDED = ("softmax with 1 added to the sum", "sinks where none are wanted")
DROPOUT = ("dropout left on",)
AXIS = ("softmax over queries, not keys",)
ROWS = (
    Row("over queries", AXIS, lambda x: attend(x, weigh=lambda s: softmax(s, axis=-2)), (PRIMES, KERNEL, LARGE), "labmlai/annotated_deep_learning_paper_implementations#146"),
    Row("over queries, as weights", AXIS, lambda x: softmax(x.q @ x.k.swapaxes(-1, -2) * x.scale, axis=-2), (SQUARE,), "PyTorch-NLP#2", stage="weights"),
    Row("over keys", ("softmax over keys, not queries",), lambda x: attend(x, weigh=softmax), (OVER_QUERIES,)),
    Row("over heads", ("softmax over heads",), lambda x: attend(x, weigh=lambda s: softmax(s, axis=1)), (PRIMES, ODD, LARGE), "labmlai/annotated_deep_learning_paper_implementations#282"),
    Row("over the batch", ("softmax over the batch",), lambda x: attend(x, weigh=lambda s: softmax(s, axis=0)), (PRIMES,)),
    Row("no sum, no maximum", ("softmax not normalised",), lambda x: attend(x, weigh=np.exp), (PRIMES,)),
    Row("no sum", ("softmax not normalised",), lambda x: attend(x, weigh=exponentials), (PRIMES, KERNEL, CAUSAL, LARGE)),
    Row("sum over queries", ("sum over queries, maximum over keys",), lambda x: attend(x, weigh=over_the_wrong_axis), (SQUARE, KERNEL)),
    Row("sigmoid", ("sigmoid, not softmax",), lambda x: attend(x, weigh=lambda s: 1 / (1 + np.exp(-s))), (PRIMES, CAUSAL, LARGE)),
    Row("softmax1", ADDED, lambda x: attend(x, weigh=one_added), (PRIMES, ODD)),
    Row("1 added after the maximum", ADDED, lambda x: attend(x, weigh=one_added_after_maximum), (ODD,)),
    Row("no softcap", ("softcap left out",), lambda x: attend(x, cap=0.0), (CAPPED, CAPPED_CAUSAL), "onnxruntime PR 28370"),
    Row("softcap after the mask", ("softcap on the other side of the mask",), cap_after_mask, (CAPPED_CAUSAL,), "onnx#7865"),
    Row("no sinks", ("sinks left out",), lambda x: attend(x, sinks=NONE), (SINKS,), "radixark/miles#1500"),
    Row("dropout, from the output", DROPOUT, dropped, (NARROW,), "pytorch#124464"),
    Row("dropout, from the weights", DROPOUT, dropped_weights, (PRIMES,), "timm PR 1978", stage="weights"),
    Row("weights turned", ("rows and columns exchanged",), lambda x: weights(x).swapaxes(-1, -2), (SQUARE,), stage="weights"),
    Row("scaled scores", ("the observed scores are scaled already",), lambda x: x.q @ x.k.swapaxes(-1, -2) * x.scale, (PRIMES, THREE), stage="scores"),
    Row("scale 1/√(d + ¼)", ("another scale",), lambda x: attend(x, scale=(x.d_k + 0.25) ** -0.5), (QUIET,), kind="quiet"),
    Row("softcap 50 too many", CAP, lambda x: attend(x, cap=50.0), (QUIET,), kind="quiet"),
    Row("softcap 100 too many", CAP, lambda x: attend(x, cap=100.0), (QUIET,), kind="quiet"),
    Row("a sink of −6", SINK, lambda x: attend(x, sinks=np.full(x.h, -6.0)), (QUIET,), kind="quiet"),
    Row("window of 255 of 256", ("window one too narrow", "another window"), lambda x: attend(x, hide=_narrower(x)), (QUIET_WINDOW,), kind="quiet"),
)  # fmt: skip


def _narrower(x: Inputs) -> Array:
    i, j = np.indices((x.n_q, x.n_k))
    return np.asarray((j > i) | (j < i - 254))
