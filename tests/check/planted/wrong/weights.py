"""From inputs to weights: scale and factors, softmax, who may attend to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.check.planted import worlds as w
from tests.check.planted.parts import (
    INF,
    OPEN,
    Array,
    Inputs,
    attend,
    exponentials,
    normalised,
    padded,
    scores,
    softmax,
    weights_of,
)
from tests.check.planted.rows import Row
from tests.check.planted.worlds import World

# ---- scale, factors, softmax, softcap, sinks

NARROW = World("more channels than keys", b=1, h=2, n_q=19, n_k=13, d_k=16, d_v=32)


def summed_over(axis: int, s: Array) -> Array:
    e = exponentials(s)
    return np.asarray(e / e.sum(axis, keepdims=True))


def capped(s: Array, c: float) -> Array:
    return np.asarray(c * np.tanh(s / c))


def dropped(x: Inputs, weights: Array) -> Array:
    kept = np.random.default_rng(5).random(weights.shape) >= 0.2
    return np.asarray(np.where(kept, weights / 0.8, 0).astype(x.wide))


SCORES = (
    Row("no scale", ("scale left out",), lambda x: attend(x, scale=1.0), (w.PRIMES, w.KERNEL, w.CAUSAL, w.LARGE, w.TWO), "cntkx#10"),
    Row("width of the model", ("√d_model instead of √d_k",), lambda x: attend(x, scale=(x.h * x.d_k) ** -0.5), (w.PRIMES, w.KERNEL), "Graylab/DL4Proteins-notebooks#12"),
    Row("divided by d_k", ("divided by d_k, not √d_k", "scale applied twice"), lambda x: attend(x, scale=1 / x.d_k), (w.PRIMES, w.KERNEL, w.LARGE_KERNEL), "esceptico/perceiver-io#9"),
    Row("times the root", ("multiplied by √d_k",), lambda x: attend(x, scale=x.d_k**0.5), (w.PRIMES, w.ODD), "maxtext#3138"),
    Row("scaled twice", ("scale applied twice",), lambda x: attend(x, scale=0.3 * 0.3), (w.SCALED,), "transformers PR 38290"),
    Row("default scale", ("default scale, not the one given",), lambda x: attend(x, scale=x.d_k**-0.5), (w.SCALED,)),
    Row("padded width of 72", ("another scale",), lambda x: attend(x, scale=72**-0.5), (w.KERNEL, w.ODD), "ipex-llm PR 12619"),
    Row("float16 scores overflow", ("scores overflow in float16",), lambda x: normalised(exponentials(scores(x.q, x.k).astype(np.float16).astype(x.wide) * x.scale)) @ x.v, (w.HUGE,), "ultralytics PR 24990"),
    Row("scale after softmax", ("scale after softmax",), lambda x: attend(x, weigh=lambda s: softmax(s / x.scale) * x.scale), (w.PRIMES, w.KERNEL)),
    Row("output times 0.95", ("output times a factor",), lambda x: attend(x) * 0.95, (w.PRIMES, w.KERNEL, w.LARGE_KERNEL, w.TWO)),
    Row("scale of V forgotten, per head", ("output times a factor",), lambda x: attend(x, v=x.v / np.linspace(0.5, 2, x.h)[:, None, None].astype(x.wide)), (w.ODD, w.LARGE), "sgl-kernel-xpu PR 252"),
    Row("last head not written", ("a head not written",), lambda x: attend(x) * (np.arange(x.h) < x.h - 1)[:, None, None], (w.ODD,)),
    Row("scale of K forgotten, per head", ("keys times a factor",), lambda x: attend(x, k=x.k / np.linspace(0.4, 1.7, x.h)[:, None, None].astype(x.wide)), (w.ODD, w.THREE, w.LARGE), "sgl-kernel-xpu PR 252"),
    Row("scale of K forgotten, per channel", ("channels of the keys times factors", "keys times a factor"), lambda x: attend(x, k=x.k * np.random.default_rng(3).uniform(0.5, 2, size=x.d_k).astype(x.wide)), (w.ODD,)),
    Row("over queries", ("softmax over queries, not keys",), lambda x: attend(x, weigh=lambda s: softmax(s, axis=-2)), (w.PRIMES, w.KERNEL, w.LARGE), "labmlai/annotated_deep_learning_paper_implementations#146"),
    Row("over queries, as weights", ("softmax over queries, not keys",), lambda x: softmax(scores(x.q, x.k) * x.scale, axis=-2), (w.SQUARE,), "PyTorch-NLP#2", stage="weights"),
    Row("over keys", ("softmax over keys, not queries",), lambda x: attend(x, weigh=softmax), (w.OVER_QUERIES,)),
    Row("over heads", ("softmax over heads",), lambda x: attend(x, weigh=lambda s: softmax(s, axis=1)), (w.PRIMES, w.ODD, w.LARGE), "labmlai/annotated_deep_learning_paper_implementations#282"),
    Row("over the batch", ("softmax over the batch",), lambda x: attend(x, weigh=lambda s: softmax(s, axis=0)), (w.PRIMES,)),
    Row("no sum, no maximum", ("softmax not normalised",), lambda x: attend(x, weigh=np.exp), (w.PRIMES,)),
    Row("no sum", ("softmax not normalised",), lambda x: attend(x, weigh=exponentials), (w.PRIMES, w.KERNEL, w.CAUSAL, w.LARGE)),
    Row("sum over queries", ("sum over queries, maximum over keys",), lambda x: attend(x, weigh=lambda s: summed_over(-2, s)), (w.SQUARE, w.KERNEL)),
    Row("sigmoid", ("sigmoid, not softmax",), lambda x: attend(x, weigh=lambda s: 1 / (1 + np.exp(-s))), (w.PRIMES, w.CAUSAL, w.LARGE)),
    Row("softmax1", ("softmax with 1 added to the sum", "sinks where none are wanted"), lambda x: attend(x, weigh=lambda s: np.exp(s) / (1 + np.exp(s).sum(-1, keepdims=True))), (w.PRIMES, w.ODD), but=(("odd", "among several"),)),
    Row("no softcap", ("softcap left out",), lambda x: attend(x, cap=0.0), (w.CAPPED, w.CAPPED_CAUSAL), "onnxruntime PR 28370"),
    Row("softcap of 4", ("another softcap",), lambda x: attend(x, cap=4.0), (w.CAPPED_CAUSAL,)),
    Row("softcap after the mask", ("softcap on the other side of the mask",), lambda x: attend(x, cap=0.0, weigh=lambda s: softmax(capped(s, x.how["softcap"]))), (w.CAPPED_CAUSAL,), "onnx#7865"),
    Row("no sinks", ("sinks left out",), lambda x: attend(x, sinks=np.zeros(0)), (w.SINKS,), "radixark/miles#1500"),
    Row("dropout, from the output", ("dropout left on",), lambda x: attend(x, weigh=lambda s: dropped(x, softmax(s))), (NARROW,), "pytorch#124464"),
    Row("dropout, from the weights", ("dropout left on",), lambda x: dropped(x, weights_of(x)), (w.PRIMES,), "timm PR 1978", stage="weights"),
    Row("weights turned", ("rows and columns exchanged",), lambda x: weights_of(x).swapaxes(-1, -2), (w.SQUARE,), stage="weights"),
    Row("scaled scores", ("the observed scores are scaled already",), lambda x: scores(x.q, x.k) * x.scale, (w.PRIMES, w.THREE), stage="scores"),
    Row("scale 1/√(d + ¼)", ("another scale",), lambda x: attend(x, scale=(x.d_k + 0.25) ** -0.5), (w.QUIET,), kind="quiet", always=True),
    Row("softcap 50 too many", ("another softcap",), lambda x: attend(x, cap=50.0), (w.QUIET,), kind="quiet"),
    Row("a sink of −6", ("sinks where none are wanted",), lambda x: attend(x, sinks=np.full(x.h, -6.0)), (w.QUIET,), kind="quiet", always=True),
    Row("window of 255 of 256", ("window one too narrow", "another window"), lambda x: attend(x, hide=(x.j > x.i) | (x.j < x.i - 254)), (w.QUIET_WINDOW,), kind="quiet"),
    Row("sum over heads", ("sum over queries, maximum over keys",), lambda x: attend(x, weigh=lambda s: summed_over(1, s)), (w.PRIMES,)),
    Row("sigmoid less the logarithm of the keys", ("sigmoid, not softmax",), lambda x: attend(x, weigh=lambda s: 1 / (1 + x.n_k * np.exp(-s))), (w.PRIMES,)),
    Row("numbers in the softcap", ("numbers of the mask inside the softcap",), lambda x: attend(x, cap=0.0, weigh=lambda s: softmax(np.where(x.hidden, s, capped(s, 2.0)))), (w.CAPPED_BIAS,)),
    Row("numbers after the softcap", ("numbers of the mask outside the softcap",), lambda x: attend(x, cap=0.0, add=np.zeros(1), weigh=lambda s: softmax(np.where(x.hidden, s, capped(s, 2.0) + x.bias))), (w.CAPPED_AFTER,)),
)  # fmt: skip


# ---- causality, windows, masks, padding, caches, the arithmetic of masking


def lengths(change: Callable[[Array], Any]) -> Callable[[Inputs], Array]:
    """An attention with other valid lengths."""
    return lambda x: attend(x, hide=padded(x, change(np.array(x.lengths))))


def keys(x: Inputs, at: list[int] | Array) -> Array:
    """Only the keys of these places."""
    return attend(x, k=x.k[:, :, at], v=x.v[:, :, at], hide=OPEN)


def unmasked(x: Inputs, **more: Any) -> Array:
    return attend(x, hide=OPEN, **more)


def lowered(x: Inputs, by: float) -> Array:
    """A number is added to what is hidden."""
    return attend(x, hide=OPEN, add=np.where(x.hidden, x.wide(-by), x.wide(0)))


BOTH = ("causal mask where none is wanted", "causal mask where none is wanted, bottom-right")
FINITE = ("finite mask value", "another finite mask value")
MASKS = (
    Row("mask inverted", ("boolean mask read the other way round",), lambda x: attend(x, hide=~x.masked), (w.MASKED, w.MASKED_HEADS), "pytorch PR 170415"),
    Row("mask added as 0 and 1", ("boolean mask added as numbers",), lambda x: unmasked(x, add=(~x.masked).astype(x.wide)), (w.MASKED,)),
    Row("no mask", ("mask left out",), unmasked, (w.MASKED, w.MASKED_ALL)),
    Row("no causal beside a mask", ("causal mask left out",), lambda x: attend(x, hide=x.masked), (w.MASKED_CAUSAL,), "Mikyx-1/TinyLLM#17"),
    Row("no added numbers", ("mask left out", "numbers of the mask times a factor"), lambda x: attend(x, add=np.zeros(1)), (w.BIAS,)),
    Row("mask turned", ("mask transposed",), lambda x: attend(x, hide=x.masked.T), (w.MASKED_SQUARE,)),
    Row("added numbers turned", ("mask transposed",), lambda x: attend(x, add=x.bias.swapaxes(-1, -2)), (w.BIAS_SQUARE,)),
    Row("mask of the first item for all", ("mask of another batch item",), lambda x: attend(x, hide=x.masked[:1]), (w.MASKED,)),
    Row("after softmax", ("mask applied after softmax, not renormalised",), lambda x: unmasked(x, weigh=lambda s: softmax(s) * ~x.hidden), (w.MASKED, w.CAUSAL), "timm PR 2236"),
    Row("multiplied into the scores", ("mask multiplied into the scores", "finite mask value"), lambda x: attend(x, value=0.0), (w.MASKED, w.CAUSAL), "timm PR 2236"),
    Row("mask value −5", FINITE[::-1], lambda x: attend(x, value=-5.0), (w.MASKED,)),
    Row("mask value −100, reached", FINITE, lambda x: attend(x, value=-100.0), (w.MASKED_LARGE,), "TransformerLens#385"),
    Row("−100 added, reached", FINITE, lambda x: lowered(x, 100), (w.MASKED_FAR,), "fairseq#3575"),
    Row("−∞ for the finite value", ("mask value −∞, not the finite one given",), lambda x: attend(x, value=-INF), (w.FINITE,), gives="among several"),
    Row("empty row: NaN", ("rows with nothing to attend to become NaN",), lambda x: attend(x, weigh=lambda s: normalised(exponentials(s))), (w.EMPTY,), "pytorch#103749"),
    Row("empty row: zeros", ("rows with nothing to attend to become zero",), attend, (w.EMPTY_NAN,)),
    Row("empty row: mean", ("rows with nothing to attend to get the mean of V", "finite mask value"), lambda x: attend(x, value=-30000.0), (w.EMPTY,), "mlx#2395", gives="among several"),
    Row("empty row: as if unmasked", ("finite mask value", "rows with nothing to attend to as if unmasked"), lambda x: lowered(x, 10000), (w.EMPTY,), "onnxruntime#28904"),
    Row("0 · −∞", ("0 · −∞ in the mask",), lambda x: unmasked(x, add=x.hidden.astype(x.wide) * -INF, weigh=lambda s: normalised(exponentials(s))), (w.MASKED,), "onnx PR 8068"),
    Row("NaN of a masked key", ("NaN leaks from masked keys",), lambda x: unmasked(x, add=np.where(x.hidden, -INF, 0)), (w.NAN_KEY,), "pytorch#101967"),
    Row("NaN of a masked value", ("NaN leaks from masked values",), attend, (w.NAN_VALUE,), "pytorch#101967"),
    Row("numbers twice", ("numbers of the mask times a factor",), lambda x: attend(x, add=x.bias * x.wide(2)), (w.BIAS,)),
    Row("slopes of the heads reversed", ("numbers of the mask times a factor",), lambda x: attend(x, add=np.where(np.isinf(x.bias), x.bias, np.maximum(x.bias, -1e9)[::-1])), (w.ALIBI,)),
    Row("no causal", ("causal mask left out",), unmasked, (w.CAUSAL, w.CAUSAL_KERNEL, w.CAUSAL_WIDE)),
    Row("causal, unasked", BOTH, lambda x: attend(x, hide=x.j > x.i), (w.SQUARE, w.KERNEL, w.LARGE_KERNEL)),
    Row("causal, unasked, bottom-right", BOTH[1:], lambda x: attend(x, hide=x.j > x.i + x.n_k - x.n_q), (w.WIDER,)),
    Row("bottom-right", ("causal mask aligned bottom-right, not top-left",), lambda x: attend(x, hide=x.j > x.i + x.n_k - x.n_q), (w.CAUSAL_WIDE,), "pytorch#108108"),
    Row("top-left", ("causal mask aligned top-left, not bottom-right",), lambda x: attend(x, hide=x.j > x.i), (w.BOTTOM,), "flash-attention#1778"),
    Row("own position hidden", ("causal mask hides each query's own position",), lambda x: attend(x, hide=x.j >= x.i), (w.CAUSAL,)),
    Row("next position visible", ("causal mask shows the next position",), lambda x: attend(x, hide=x.j > x.i + 1), (w.CAUSAL, w.CAUSAL_KERNEL)),
    Row("causal, the wrong way round", ("causal the wrong way round",), lambda x: attend(x, hide=x.j < x.i), (w.CAUSAL, w.CAUSAL_KERNEL)),
    Row("window one wider", ("window one too wide", "another window"), lambda x: attend(x, hide=(x.j > x.i) | (x.j < x.i - 8)), (w.WINDOW,), "transformers#39408"),
    Row("window one narrower", ("window one too narrow", "another window"), lambda x: attend(x, hide=(x.j > x.i) | (x.j < x.i - 6)), (w.WINDOW,), "transformers#29623"),
    Row("no window", ("window left out",), lambda x: attend(x, hide=x.j > x.i), (w.WINDOW,), "nanochat#452"),
    Row("half the window", ("another window",), lambda x: attend(x, hide=(x.j > x.i) | (x.j < x.i - 3)), (w.WINDOW,)),
    Row("chunks", ("chunks, not a sliding window",), lambda x: attend(x, hide=(x.j > x.i) | (x.j // 8 != x.i // 8)), (w.WINDOW,)),
    Row("no padding mask", ("padding left out", "other key lengths"), unmasked, (w.PADDED,)),
    Row("padding on queries", ("padding mask on queries, not keys",), lambda x: attend(x, hide=x.padded.swapaxes(-1, -2)), (w.PADDED_SQUARE,), "hyunwoongko/transformer PR 40"),
    Row("one key more", ("key lengths off by one", "other key lengths"), lengths(lambda n: n + 1), (w.PADDED,)),
    Row("length of the first", ("one batch item's key length for all", "other key lengths"), lengths(lambda n: n[[0, 0, 0]]), (w.PADDED,)),
    Row("lengths of other items", ("mask of another batch item", "other key lengths"), lengths(lambda n: n[[1, 2, 0]]), (w.PADDED,)),
    Row("lengths rounded up to 16", ("other key lengths",), lengths(lambda n: -(-n // 16) * 16), (w.PADDED,)),
    Row("left for right", ("padding on the left taken for right",), lambda x: attend(x, hide=~padded(x, x.n_k - np.array(x.lengths))), (w.PADDED,)),
    Row("right for left", ("padding on the left taken for right",), lambda x: attend(x, hide=padded(x, (~x.masked).sum(-1).ravel())), (w.LEFT,)),
    Row("mask not added as 0 and 1", ("boolean mask not added as numbers",), lambda x: attend(x, hide=~np.asarray(x.mask), add=np.zeros(1)), (w.MASK_ADDED,)),
    Row("numbers taken for truth", ("numbers of the mask read as true or false",), lambda x: attend(x, hide=np.asarray(x.mask == 0), add=np.zeros(1)), (w.LOWERED,)),
    Row("truth added", ("numbers of the mask added, not read as true or false",), lambda x: unmasked(x, add=x.mask), (w.TRUTH,)),
    Row("truth of numbers inverted", ("boolean mask read the other way round",), lambda x: attend(x, hide=~x.masked), (w.TRUTH,)),
    Row("mask and causal, the mask alone wanted", ("mask and causal both applied, not one alone",), lambda x: attend(x, hide=x.banned | x.masked), (w.MASK_ALONE,)),
    Row("mask and causal, causal alone wanted", ("mask and causal both applied, not one alone",), lambda x: attend(x, hide=x.banned | x.masked), (w.CAUSAL_ALONE,)),
    Row("the last query sees every key", ("causal mask leaves the last query all keys",), lambda x: attend(x, hide=(x.j > x.i) & (x.i < x.n_q - 1)), (w.CAUSAL_WIDE,)),
    Row("the last query causal, too", ("causal mask for the last query too",), lambda x: attend(x, hide=x.j > x.i), (w.OPEN_LAST,)),
    Row("causal, the wrong way round, own position hidden", ("causal the wrong way round",), lambda x: attend(x, hide=x.j <= x.i), (w.CAUSAL,), always=True),
    Row("masked scores", ("the observed scores are masked already",), lambda x: np.where(x.hidden, -INF, scores(x.q, x.k) * x.scale), (w.CAUSAL,), stage="scores"),
    Row("empty row: as if unmasked, causal", ("rows with nothing to attend to as if unmasked",), lambda x: attend(x, hide=x.banned | (x.masked & ~x.masked.all(-1, keepdims=True))), (w.EMPTY_CAUSAL,)),
    Row("window of own key one wider", ("window one too wide", "another window"), lambda x: attend(x, hide=(x.j > x.i) | (x.j < x.i - 7)), (w.OWN_WINDOW,)),
    Row("window of own key one narrower", ("window one too narrow", "another window"), lambda x: attend(x, hide=(x.j > x.i) | (x.j < x.i - 5)), (w.OWN_WINDOW,)),
    Row("chunks, own key counts", ("chunks, not a sliding window",), lambda x: attend(x, hide=(x.j > x.i) | (x.j // 7 != x.i // 7)), (w.OWN_WINDOW,)),
    Row("padding mask of one row on queries", ("padding mask on queries, not keys",), lambda x: attend(x, hide=x.masked.swapaxes(-1, -2)), (w.LEFT_SQUARE,)),
    Row("history masked", ("cached decode masks its own history",), lambda x: attend(x, hide=x.j > x.i - x.n_past), (w.CACHED,), "gpt-fast#233"),
    Row("newest key not cached", ("newest key not cached", "causal mask hides each query's own position", "key lengths off by one", "other key lengths", "last block of keys skipped", "one block of keys lost"), lambda x: keys(x, np.arange(x.n_k - 1)), (w.DECODE,), "harvard-edge/cs249r_book PR 1953"),
    Row("newest overwrites the last", ("newest key overwrites the last one", "one block of keys lost"), lambda x: keys(x, [*range(x.n_past - 1), *range(x.n_past, x.n_k)]), (w.DECODE,)),
    Row("cache ignored", ("cache ignored", "one block of keys lost"), lambda x: keys(x, np.arange(x.n_past, x.n_k)), (w.PREFILL,)),
    Row("oldest key lost", ("another window", "one block of keys lost"), lambda x: keys(x, np.arange(1, x.n_k)), (w.DECODE,)),
    Row("no new key cached", ("newest key not cached", "one block of keys lost", "other key lengths", "last block of keys skipped"), lambda x: keys(x, np.arange(x.n_past)), (w.PREFILL,)),
)  # fmt: skip
