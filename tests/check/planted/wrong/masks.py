"""Who may attend to whom: causality, windows, masks, padding, and the arithmetic of masking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.check.planted.parts import (
    INF,
    Array,
    Inputs,
    at,
    attend,
    banned,
    bias,
    hidden,
    masked,
    padded,
    softmax,
)
from tests.check.planted.rows import Row
from tests.check.planted.worlds import (
    ALIBI,
    BIAS,
    BIAS_SQUARE,
    BOTTOM,
    CAUSAL,
    CAUSAL_KERNEL,
    CAUSAL_WIDE,
    EMPTY,
    EMPTY_NAN,
    FINITE,
    IGNORED,
    KERNEL,
    LARGE_KERNEL,
    LEFT,
    MASKED,
    MASKED_ALL,
    MASKED_CAUSAL,
    MASKED_FAR,
    MASKED_HEADS,
    MASKED_LARGE,
    MASKED_SQUARE,
    NAN_KEY,
    NAN_VALUE,
    PADDED,
    PADDED_SQUARE,
    SQUARE,
    TWO_SIDED,
    WIDER,
    WINDOW,
)


def hiding(rule: Callable[[Any, Any, Inputs], Array]) -> Callable[[Inputs], Array]:
    """An attention that hides the cells rule(i, j) alone."""
    return lambda x: attend(x, hide=rule(*at(x), x))


def lengths(change: Callable[[Array], Any]) -> Callable[[Inputs], Array]:
    """An attention with other valid lengths."""
    return lambda x: attend(x, hide=padded(x, change(np.array(x.lengths))))


def no(x: Inputs) -> Array:
    return np.zeros((1, 1), bool)


def on_queries(x: Inputs) -> Array:
    return attend(x, hide=padded(x).swapaxes(-1, -2))


def left_for_right(x: Inputs) -> Array:
    """The lengths are right, but the padding is taken to stand before the keys."""
    first = x.n_k - np.array(x.lengths)
    return attend(x, hide=(np.arange(x.n_k) < first[:, None])[:, None, None])


def right_for_left(x: Inputs) -> Array:
    """The mask is turned into lengths, though its padding stands before the keys."""
    assert x.mask is not None
    return attend(x, hide=padded(x, x.mask.sum(-1).reshape(-1)))


def plain_softmax(s: Array) -> Array:
    """Without a guard for rows with nothing left."""
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def zeros_times_infinity(x: Inputs) -> Array:
    return attend(x, add=hidden(x).astype(x.wide) * -INF, weigh=plain_softmax, hide=no(x))


def in_another_order(x: Inputs, times: float) -> Array:
    numbers = bias(x)
    assert numbers is not None
    return attend(x, add=numbers * x.wide(times))


def leaking(x: Inputs) -> Array:
    """A value of minus a hundred, added: large scores reach it."""
    return attend(x, hide=no(x), add=np.where(hidden(x), x.wide(-100), x.wide(0)))


def slopes_reversed(x: Inputs) -> Array:
    numbers = bias(x)
    assert numbers is not None
    finite = np.where(np.isinf(numbers), 0, numbers)[::-1]
    return attend(x, add=np.where(np.isinf(numbers), numbers, finite))


BOTH = ("causal mask where none is wanted", "causal mask where none is wanted, bottom-right")
OWN = ("causal mask hides each query's own position",)
OFF = ("key lengths off by one", "other key lengths")
ONE = ("one batch item's key length for all", "other key lengths")
SIDES = ("padding on the left taken for right",)
FACTOR = ("numbers of the mask times a factor",)
INVERTED = ("boolean mask read the other way round",)
PRODUCT = ("mask multiplied into the scores", "finite mask value")
OTHER = ("mask of another batch item",)
ROWS = (
    Row("mask inverted", INVERTED, lambda x: attend(x, hide=~masked(x)), (MASKED, MASKED_HEADS), "pytorch PR 170415"),
    Row("mask inverted, true is ignored", INVERTED, lambda x: attend(x, hide=~masked(x)), (IGNORED,), "TransformerEngine#614"),
    Row("mask added as 0 and 1", ("boolean mask added as numbers",), lambda x: attend(x, hide=no(x), add=(~masked(x)).astype(x.wide)), (MASKED,)),
    Row("no mask", ("mask left out",), lambda x: attend(x, hide=no(x)), (MASKED, MASKED_ALL)),
    Row("no mask beside causal", ("mask left out",), lambda x: attend(x, hide=banned(x)), (MASKED_CAUSAL,)),
    Row("no causal beside a mask", ("causal mask left out",), lambda x: attend(x, hide=masked(x)), (MASKED_CAUSAL,), "Mikyx-1/TinyLLM#17"),
    Row("no added numbers", ("mask left out", "numbers of the mask times a factor"), lambda x: attend(x, add=np.zeros(1)), (BIAS,)),
    Row("mask turned", ("mask transposed",), lambda x: attend(x, hide=masked(x).T), (MASKED_SQUARE,)),
    Row("added numbers turned", ("mask transposed",), lambda x: attend(x, add=bias(x).swapaxes(-1, -2)), (BIAS_SQUARE,)),  # type: ignore[union-attr]
    Row("mask of the first item for all", OTHER, lambda x: attend(x, hide=masked(x)[:1]), (MASKED,)),
    Row("masks of the items exchanged", OTHER, lambda x: attend(x, hide=np.roll(masked(x), 1, axis=0)), (MASKED, MASKED_HEADS)),
    Row("after softmax", ("mask applied after softmax, not renormalised",), lambda x: attend(x, hide=no(x), weigh=lambda s: softmax(s) * ~hidden(x)), (MASKED, CAUSAL), "timm PR 2236"),
    Row("multiplied into the scores", PRODUCT, lambda x: attend(x, value=0.0), (MASKED, CAUSAL), "timm PR 2236"),
    Row("−1e-9 for −1e9", PRODUCT, lambda x: attend(x, value=-1e-9), (MASKED_ALL,)),
    Row("mask value −5", ("finite mask value", "another finite mask value"), lambda x: attend(x, value=-5.0), (MASKED,)),
    Row("mask value −100, reached", ("finite mask value", "another finite mask value"), lambda x: attend(x, value=-100.0), (MASKED_LARGE,), "TransformerLens#385"),
    Row("−100 added, reached", ("finite mask value", "another finite mask value"), leaking, (MASKED_FAR,), "fairseq#3575"),
    Row("−∞ for the finite value", ("mask value −∞, not the finite one given",), lambda x: attend(x, value=-INF), (FINITE,)),
    Row("empty row: NaN", ("rows with nothing to attend to become NaN",), lambda x: attend(x, weigh=plain_softmax), (EMPTY,), "pytorch#103749"),
    Row("empty row: zeros", ("rows with nothing to attend to become zero",), attend, (EMPTY_NAN,)),
    Row("empty row: mean", ("rows with nothing to attend to get the mean of V", "finite mask value"), lambda x: attend(x, value=-30000.0), (EMPTY,), "mlx#2395"),
    Row("empty row: as if unmasked", ("finite mask value", "rows with nothing to attend to as if unmasked"), lambda x: attend(x, hide=no(x), add=np.where(hidden(x), x.wide(-10000), x.wide(0))), (EMPTY,), "onnxruntime#28904"),
    Row("0 · −∞", ("0 · −∞ in the mask",), zeros_times_infinity, (MASKED,), "onnx PR 8068"),
    Row("NaN of a masked key", ("NaN leaks from masked keys",), lambda x: attend(x, hide=no(x), add=np.where(hidden(x), -INF, 0)), (NAN_KEY,), "pytorch#101967"),
    Row("NaN of a masked value", ("NaN leaks from masked values",), attend, (NAN_VALUE,), "pytorch#101967"),
    Row("numbers twice", FACTOR, lambda x: in_another_order(x, 2), (BIAS,)),
    Row("numbers with the sign turned", FACTOR, lambda x: in_another_order(x, -1), (BIAS,), "attention-gym PR 86"),
    Row("numbers added before scaling", FACTOR, lambda x: in_another_order(x, x.scale), (BIAS, BIAS_SQUARE), "TensorRT-Model-Connect PR 32"),
    Row("slopes of the heads reversed", FACTOR, slopes_reversed, (ALIBI,)),
    Row("no causal", ("causal mask left out",), lambda x: attend(x, hide=no(x)), (CAUSAL, CAUSAL_KERNEL, CAUSAL_WIDE)),
    Row("causal, unasked", BOTH, hiding(lambda i, j, x: j > i), (SQUARE, KERNEL, LARGE_KERNEL)),
    Row("causal, unasked, wide", BOTH[:1], hiding(lambda i, j, x: j > i), (WIDER,)),
    Row("causal, unasked, bottom-right", BOTH[1:], hiding(lambda i, j, x: j > i + x.n_k - x.n_q), (WIDER,)),
    Row("bottom-right", ("causal mask aligned bottom-right, not top-left",), hiding(lambda i, j, x: j > i + x.n_k - x.n_q), (CAUSAL_WIDE,), "pytorch#108108"),
    Row("top-left", ("causal mask aligned top-left, not bottom-right",), hiding(lambda i, j, x: j > i), (BOTTOM,), "flash-attention#1778"),
    Row("own position hidden", OWN, hiding(lambda i, j, x: j >= i), (CAUSAL,)),
    Row("own position hidden, first row NaN", OWN, lambda x: attend(x, hide=np.tril(np.ones((x.n_q, x.n_k), bool), -1) == 0, weigh=plain_softmax), (CAUSAL,)),
    Row("next position visible", ("causal mask shows the next position",), hiding(lambda i, j, x: j > i + 1), (CAUSAL, CAUSAL_KERNEL)),
    Row("causal, the wrong way round", ("causal the wrong way round",), hiding(lambda i, j, x: j < i), (CAUSAL, CAUSAL_KERNEL)),
    Row("window one wider", ("window one too wide", "another window"), hiding(lambda i, j, x: (j > i) | (j < i - 8)), (WINDOW,), "transformers#39408"),
    Row("window one narrower", ("window one too narrow", "another window"), hiding(lambda i, j, x: (j > i) | (j < i - 6)), (WINDOW,), "transformers#29623"),
    Row("no window", ("window left out",), hiding(lambda i, j, x: j > i), (WINDOW,), "nanochat#452"),
    Row("half the window", ("another window",), hiding(lambda i, j, x: (j > i) | (j < i - 3)), (WINDOW,)),
    Row("a window of 11", ("another window",), hiding(lambda i, j, x: (j > i) | (j < i - 11)), (WINDOW,)),
    Row("as far on both sides", ("another window",), hiding(lambda i, j, x: abs(i - j) > 5), (TWO_SIDED,)),
    Row("chunks", ("chunks, not a sliding window",), hiding(lambda i, j, x: (j > i) | (j // 8 != i // 8)), (WINDOW,)),
    Row("no padding mask", ("padding left out", "other key lengths"), lambda x: attend(x, hide=no(x)), (PADDED,)),
    Row("padding on queries", ("padding mask on queries, not keys",), on_queries, (PADDED_SQUARE,), "hyunwoongko/transformer PR 40"),
    Row("one key more", OFF, lengths(lambda n: n + 1), (PADDED,)),
    Row("one key fewer", OFF, lengths(lambda n: n - 1), (PADDED, PADDED_SQUARE)),
    Row("length of the first", ONE, lengths(lambda n: n[[0, 0, 0]]), (PADDED,)),
    Row("the longest", ONE, lengths(lambda n: n[[1, 1, 1]]), (PADDED,)),
    Row("the shortest", ONE, lengths(lambda n: n[[2, 2, 2]]), (PADDED,)),
    Row("lengths of other items", ("other key lengths", "mask of another batch item"), lengths(lambda n: n[[1, 2, 0]]), (PADDED,)),
    Row("lengths rounded up to 16", ("other key lengths",), lengths(lambda n: -(-n // 16) * 16), (PADDED,)),
    Row("left for right", SIDES, left_for_right, (PADDED,)),
    Row("right for left", SIDES, right_for_left, (LEFT,)),
)  # fmt: skip
