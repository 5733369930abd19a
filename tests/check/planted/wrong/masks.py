"""Who may attend to whom: causality, windows, masks, padding, caches, the arithmetic of masking."""

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
)
from tests.check.planted.rows import Row


def hiding(rule: Callable[[Any, Any, Inputs], Array]) -> Callable[[Inputs], Array]:
    """An attention that hides the cells rule(i, j) alone."""
    return lambda x: attend(x, hide=rule(x.i, x.j, x))


def lengths(change: Callable[[Array], Any]) -> Callable[[Inputs], Array]:
    """An attention with other valid lengths."""
    return lambda x: attend(x, hide=padded(x, change(np.array(x.lengths))))


def keys(x: Inputs, at: list[int] | Array) -> Array:
    """Only the keys of these places."""
    return attend(x, k=x.k[:, :, at], v=x.v[:, :, at], hide=OPEN)


def unmasked(x: Inputs, **more: Any) -> Array:
    return attend(x, hide=OPEN, **more)


def unguarded(s: Array) -> Array:
    """Softmax without a guard for rows with nothing left."""
    return normalised(exponentials(s))


def lowered(x: Inputs, by: float) -> Array:
    """A number is added to what is hidden."""
    return attend(x, hide=OPEN, add=np.where(x.hidden, x.wide(-by), x.wide(0)))


BOTH = ("causal mask where none is wanted", "causal mask where none is wanted, bottom-right")
ALONE = ("mask and causal both applied, not one alone",)
OWN = ("causal mask hides each query's own position",)
REVERSED = ("causal the wrong way round",)
OFF = ("key lengths off by one", "other key lengths")
ONE = ("one batch item's key length for all", "other key lengths")
SIDES = ("padding on the left taken for right",)
FACTOR = ("numbers of the mask times a factor",)
INVERTED = ("boolean mask read the other way round",)
PRODUCT = ("mask multiplied into the scores", "finite mask value")
FINITE = ("finite mask value", "another finite mask value")
MEAN = ("rows with nothing to attend to get the mean of V", "finite mask value")
OTHER = ("mask of another batch item",)
WIDER = ("window one too wide", "another window")
NARROWER = ("window one too narrow", "another window")
CHUNKS = ("chunks, not a sliding window",)
SHORT = ("newest key not cached", "causal mask hides each query's own position", "key lengths off by one", "other key lengths", "last block of keys skipped", "one block of keys lost")  # fmt: skip
ROWS = (
    Row("mask inverted", INVERTED, lambda x: attend(x, hide=~x.masked), (w.MASKED, w.MASKED_HEADS), "pytorch PR 170415"),
    Row("mask inverted, true is ignored", INVERTED, lambda x: attend(x, hide=~x.masked), (w.IGNORED,), "TransformerEngine#614"),
    Row("mask added as 0 and 1", ("boolean mask added as numbers",), lambda x: unmasked(x, add=(~x.masked).astype(x.wide)), (w.MASKED,)),
    Row("no mask", ("mask left out",), unmasked, (w.MASKED, w.MASKED_ALL)),
    Row("no causal beside a mask", ("causal mask left out",), lambda x: attend(x, hide=x.masked), (w.MASKED_CAUSAL,), "Mikyx-1/TinyLLM#17"),
    Row("no added numbers", ("mask left out", "numbers of the mask times a factor"), lambda x: attend(x, add=np.zeros(1)), (w.BIAS,)),
    Row("mask turned", ("mask transposed",), lambda x: attend(x, hide=x.masked.T), (w.MASKED_SQUARE,)),
    Row("added numbers turned", ("mask transposed",), lambda x: attend(x, add=x.bias.swapaxes(-1, -2)), (w.BIAS_SQUARE,)),
    Row("mask of the first item for all", OTHER, lambda x: attend(x, hide=x.masked[:1]), (w.MASKED,)),
    Row("masks of the items exchanged", OTHER, lambda x: attend(x, hide=np.roll(x.masked, 1, axis=0)), (w.MASKED, w.MASKED_HEADS)),
    Row("after softmax", ("mask applied after softmax, not renormalised",), lambda x: unmasked(x, weigh=lambda s: softmax(s) * ~x.hidden), (w.MASKED, w.CAUSAL), "timm PR 2236"),
    Row("multiplied into the scores", PRODUCT, lambda x: attend(x, value=0.0), (w.MASKED, w.CAUSAL), "timm PR 2236"),
    Row("mask value −5", FINITE[::-1], lambda x: attend(x, value=-5.0), (w.MASKED,)),
    Row("mask value −100, reached", FINITE, lambda x: attend(x, value=-100.0), (w.MASKED_LARGE,), "TransformerLens#385"),
    Row("−100 added, reached", FINITE, lambda x: lowered(x, 100), (w.MASKED_FAR,), "fairseq#3575"),
    Row("−∞ for the finite value", ("mask value −∞, not the finite one given",), lambda x: attend(x, value=-INF), (w.FINITE,), gives="among several"),
    Row("empty row: NaN", ("rows with nothing to attend to become NaN",), lambda x: attend(x, weigh=unguarded), (w.EMPTY,), "pytorch#103749"),
    Row("empty row: zeros", ("rows with nothing to attend to become zero",), attend, (w.EMPTY_NAN,)),
    Row("empty row: mean", MEAN, lambda x: attend(x, value=-30000.0), (w.EMPTY,), "mlx#2395", gives="among several"),
    Row("empty row: as if unmasked", ("finite mask value", "rows with nothing to attend to as if unmasked"), lambda x: lowered(x, 10000), (w.EMPTY,), "onnxruntime#28904"),
    Row("0 · −∞", ("0 · −∞ in the mask",), lambda x: unmasked(x, add=x.hidden.astype(x.wide) * -INF, weigh=unguarded), (w.MASKED,), "onnx PR 8068"),
    Row("NaN of a masked key", ("NaN leaks from masked keys",), lambda x: unmasked(x, add=np.where(x.hidden, -INF, 0)), (w.NAN_KEY,), "pytorch#101967"),
    Row("NaN of a masked value", ("NaN leaks from masked values",), attend, (w.NAN_VALUE,), "pytorch#101967"),
    Row("numbers twice", FACTOR, lambda x: attend(x, add=x.bias * x.wide(2)), (w.BIAS,)),
    Row("numbers added before scaling", FACTOR, lambda x: attend(x, add=x.bias * x.wide(x.scale)), (w.BIAS, w.BIAS_SQUARE), "TensorRT-Model-Connect PR 32"),
    Row("slopes of the heads reversed", FACTOR, lambda x: attend(x, add=np.where(np.isinf(x.bias), x.bias, np.maximum(x.bias, -1e9)[::-1])), (w.ALIBI,)),
    Row("no causal", ("causal mask left out",), unmasked, (w.CAUSAL, w.CAUSAL_KERNEL, w.CAUSAL_WIDE)),
    Row("causal, unasked", BOTH, hiding(lambda i, j, x: j > i), (w.SQUARE, w.KERNEL, w.LARGE_KERNEL)),
    Row("causal, unasked, wide", BOTH[:1], hiding(lambda i, j, x: j > i), (w.WIDER,)),
    Row("causal, unasked, bottom-right", BOTH[1:], hiding(lambda i, j, x: j > i + x.n_k - x.n_q), (w.WIDER,)),
    Row("bottom-right", ("causal mask aligned bottom-right, not top-left",), hiding(lambda i, j, x: j > i + x.n_k - x.n_q), (w.CAUSAL_WIDE,), "pytorch#108108"),
    Row("top-left", ("causal mask aligned top-left, not bottom-right",), hiding(lambda i, j, x: j > i), (w.BOTTOM,), "flash-attention#1778"),
    Row("own position hidden", OWN, hiding(lambda i, j, x: j >= i), (w.CAUSAL,)),
    Row("next position visible", ("causal mask shows the next position",), hiding(lambda i, j, x: j > i + 1), (w.CAUSAL, w.CAUSAL_KERNEL)),
    Row("causal, the wrong way round", REVERSED, hiding(lambda i, j, x: j < i), (w.CAUSAL, w.CAUSAL_KERNEL)),
    Row("window one wider", WIDER, hiding(lambda i, j, x: (j > i) | (j < i - 8)), (w.WINDOW,), "transformers#39408"),
    Row("window one narrower", NARROWER, hiding(lambda i, j, x: (j > i) | (j < i - 6)), (w.WINDOW,), "transformers#29623"),
    Row("no window", ("window left out",), hiding(lambda i, j, x: j > i), (w.WINDOW,), "nanochat#452"),
    Row("half the window", ("another window",), hiding(lambda i, j, x: (j > i) | (j < i - 3)), (w.WINDOW,)),
    Row("chunks", CHUNKS, hiding(lambda i, j, x: (j > i) | (j // 8 != i // 8)), (w.WINDOW,)),
    Row("no padding mask", ("padding left out", "other key lengths"), unmasked, (w.PADDED,)),
    Row("padding on queries", ("padding mask on queries, not keys",), lambda x: attend(x, hide=x.padded.swapaxes(-1, -2)), (w.PADDED_SQUARE,), "hyunwoongko/transformer PR 40"),
    Row("one key more", OFF, lengths(lambda n: n + 1), (w.PADDED,)),
    Row("one key fewer", OFF, lengths(lambda n: n - 1), (w.PADDED, w.PADDED_SQUARE)),
    Row("length of the first", ONE, lengths(lambda n: n[[0, 0, 0]]), (w.PADDED,)),
    Row("lengths of other items", ("mask of another batch item", "other key lengths"), lengths(lambda n: n[[1, 2, 0]]), (w.PADDED,)),
    Row("lengths rounded up to 16", ("other key lengths",), lengths(lambda n: -(-n // 16) * 16), (w.PADDED,)),
    Row("left for right", SIDES, lambda x: attend(x, hide=~padded(x, x.n_k - np.array(x.lengths))), (w.PADDED,)),
    Row("right for left", SIDES, lambda x: attend(x, hide=padded(x, (~x.masked).sum(-1).ravel())), (w.LEFT,)),
    Row("mask not added as 0 and 1", ("boolean mask not added as numbers",), lambda x: attend(x, hide=~np.asarray(x.mask), add=np.zeros(1)), (w.MASK_ADDED,)),
    Row("numbers taken for truth", ("numbers of the mask read as true or false",), lambda x: attend(x, hide=x.mask == 0, add=np.zeros(1)), (w.LOWERED,)),
    Row("truth added", ("numbers of the mask added, not read as true or false",), lambda x: unmasked(x, add=x.mask), (w.TRUTH,)),
    Row("truth of numbers inverted", INVERTED, lambda x: attend(x, hide=~x.masked), (w.TRUTH,)),
    Row("mask and causal, the mask alone wanted", ALONE, lambda x: attend(x, hide=x.banned | x.masked), (w.MASK_ALONE,)),
    Row("mask and causal, causal alone wanted", ALONE, lambda x: attend(x, hide=x.banned | x.masked), (w.CAUSAL_ALONE,)),
    Row("the last query sees every key", ("causal mask leaves the last query all keys",), hiding(lambda i, j, x: (j > i) & (i < x.n_q - 1)), (w.CAUSAL_WIDE,)),
    Row("the last query causal, too", ("causal mask for the last query too",), hiding(lambda i, j, x: j > i), (w.OPEN_LAST,)),
    Row("causal, the wrong way round, own position hidden", REVERSED, hiding(lambda i, j, x: j <= i), (w.CAUSAL,), always=True),
    Row("masked scores", ("the observed scores are masked already",), lambda x: np.where(x.hidden, -INF, scores(x.q, x.k) * x.scale), (w.CAUSAL,), stage="scores"),
    Row("empty row: mean, NaN asked for", MEAN, lambda x: attend(x, value=-30000.0), (w.EMPTY_NAN,), gives="among several"),
    Row("empty row: as if unmasked, causal", ("rows with nothing to attend to as if unmasked",), lambda x: attend(x, hide=x.banned | (x.masked & ~x.masked.all(-1, keepdims=True))), (w.EMPTY_CAUSAL,)),
    Row("window of own key one wider", WIDER, hiding(lambda i, j, x: (j > i) | (j < i - 7)), (w.OWN_WINDOW,)),
    Row("window of own key one narrower", NARROWER, hiding(lambda i, j, x: (j > i) | (j < i - 5)), (w.OWN_WINDOW,)),
    Row("window of own key two wider", ("another window",), hiding(lambda i, j, x: (j > i) | (j < i - 8)), (w.OWN_WINDOW,)),
    Row("chunks, own key counts", CHUNKS, hiding(lambda i, j, x: (j > i) | (j // 7 != i // 7)), (w.OWN_WINDOW,)),
    Row("mask on the other side", SIDES, lambda x: attend(x, hide=x.masked[..., ::-1]), (w.LEFT,)),
    Row("padding mask of one row on queries", ("padding mask on queries, not keys",), lambda x: attend(x, hide=x.masked.swapaxes(-1, -2)), (w.LEFT_SQUARE,)),
    Row("history masked", ("cached decode masks its own history",), lambda x: attend(x, hide=x.j > x.i - x.n_past), (w.CACHED,), "gpt-fast#233"),
    Row("newest key not cached", SHORT, lambda x: keys(x, np.arange(x.n_k - 1)), (w.DECODE,), "harvard-edge/cs249r_book PR 1953"),
    Row("newest overwrites the last", ("newest key overwrites the last one", "one block of keys lost"), lambda x: keys(x, [*range(x.n_past - 1), *range(x.n_past, x.n_k)]), (w.DECODE,)),
    Row("cache ignored", ("cache ignored", "one block of keys lost"), lambda x: keys(x, np.arange(x.n_past, x.n_k)), (w.PREFILL,)),
    Row("cache ignored, causal", ("cache ignored",), lambda x: attend(x, hide=(x.j < x.n_past) | (x.j > x.i)), (w.CACHED,)),
    Row("no causal on a cache", ("causal mask left out",), unmasked, (w.CACHED,)),
    Row("oldest key lost", ("another window", "one block of keys lost"), lambda x: keys(x, np.arange(1, x.n_k)), (w.DECODE,)),
    Row("new before old, causal", (), lambda x: attend(x, hide=(np.roll(x.j, -x.n_past) > x.i)), (w.CACHED,), kind="control", gives="no match"),
    Row("no new key cached", ("newest key not cached", "one block of keys lost", "other key lengths", "last block of keys skipped"), lambda x: keys(x, np.arange(x.n_past)), (w.PREFILL,)),
)  # fmt: skip
