"""Worlds: the sizes and conventions that planted attentions are run in.

Sizes are distinct primes, so that an exchanged axis cannot pass, or those of real kernels.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tests.commands.check.planted.parts import INF, Array, Rng, World

Adjust = Callable[[Rng, dict[str, Array]], None]


def some(share: float, *, per: str = "item", empty: Any = ()) -> Callable[[Rng, World], Array]:
    """A random mask in which every query keeps two keys and loses two; empty ones have none."""

    def draw(rng: Rng, w: World) -> Array:
        first = {"item": (w.b, 1), "head": (w.b, w.h), "all": ()}[per]
        keep = np.asarray(rng.random((*first, w.n_q, w.n_k)) < share)
        row = np.arange(w.n_q)
        keep[..., row, row % w.n_k] = keep[..., row, (row + 4) % w.n_k] = True
        keep[..., row, (row + 2) % w.n_k] = keep[..., row, (row + 5) % w.n_k] = False
        keep[..., empty, :] = False
        return keep

    return draw


def but(*hide: slice | int) -> Callable[[Rng, World], Array]:
    """Everything is allowed, but for these rows and columns."""

    def draw(rng: Rng, w: World) -> Array:
        keep = np.ones((w.n_q, w.n_k), bool)
        keep[hide] = False
        return keep

    return draw


def left_padding(rng: Rng, w: World) -> Array:
    """A quarter of the first keys of one item are padding, and a third of the next one's."""
    first = np.array([w.n_k // (4 - item % 2) for item in range(w.b)])
    return np.asarray(np.arange(w.n_k) >= first[:, None])[:, None, None]


def truth_as(true: float, false: float) -> Callable[[Rng, World], Array]:
    """A mask of two numbers."""
    return lambda rng, w: np.where(some(0.6, per="all")(rng, w), true, false)


def alibi(rng: Rng, w: World) -> Array:
    slopes = 2.0 ** (-8 * np.arange(1, w.h + 1) / w.h)
    i, j = np.indices((w.n_q, w.n_k))
    return np.asarray(np.where(j > i, -INF, -slopes[:, None, None] * (i - j)))


def put(name: str, value: Any, *at: Any) -> Adjust:
    """Some of q, k or v are this number."""

    def adjust(rng: Rng, x: dict[str, Array]) -> None:
        x[name][at] = value

    return adjust


def far_below(rng: Rng, x: dict[str, Array]) -> None:
    """The keys share a direction, along which every fourth query scores about −110."""
    x["k"][..., 0] = 1
    x["q"][:, :, ::4, 0] = -110 * np.sqrt(x["q"].shape[-1])


def shift(name: str, shape: tuple[int, ...]) -> Array:
    """One vector a head, as a bias of the projection has it."""
    return np.random.default_rng(7).normal(size=(1, shape[1], 1, shape[3]))


def shifted(name: str) -> Adjust:
    def adjust(rng: Rng, x: dict[str, Array]) -> None:
        x[name] += shift(name, x[name].shape)

    return adjust


def equal_keys(n: int) -> Adjust:
    """Only n different keys; several are identical."""

    def adjust(rng: Rng, x: dict[str, Array]) -> None:
        k = x["k"]
        x["k"] = k[:, :, rng.integers(0, min(n, k.shape[2]), k.shape[2])]

    return adjust


def times(plus: float = 0.0, channels: Any = slice(None), **factors: float) -> Adjust:
    """Some channels of q, k or v times a factor, as two are large in trained models."""

    def adjust(rng: Rng, x: dict[str, Array]) -> None:
        for name, factor in factors.items():
            x[name][..., channels] = x[name][..., channels] * factor + plus

    return adjust


def constant_v(rng: Rng, x: dict[str, Array]) -> None:
    x["v"][..., ::2] = x["v"][:, :, :1, ::2]


# fmt: off
PRIMES = World("primes")
SQUARE = World("square", n_q=13, n_k=13, d_k=5, d_v=7)
EVEN = World("one width", n_q=17, n_k=17, d_k=8, d_v=8)
KERNEL = World("kernel", b=1, h=2, n_q=128, n_k=128, d_k=64, d_v=64)
ODD = World("odd", h=4, n_q=67, n_k=71, d_k=16, d_v=16)
THREE = World("three axes", b=1, h=5, n_q=23, n_k=29, d_k=12, d_v=10, axes=3)
TWO = World("two axes", b=1, h=1, n_q=31, n_k=37, d_k=12, d_v=10, axes=2)
LARGE = replace(ODD, name="large scores", q_times=8)
LARGE_KERNEL = replace(KERNEL, name="kernel, large scores", q_times=6)
PROJECTED = replace(KERNEL, name="narrow heads", b=2, n_q=97, n_k=101, d_k=8, d_v=8)
DECODE = World("decode", b=2, h=3, n_q=1, n_k=41, d_k=16, d_v=16, n_past=40)
PREFILL = World("prefill on a cache", n_q=7, n_k=29, n_past=22, d_k=16, d_v=16)
CACHED = replace(PREFILL, name="causal on a cache", convention={"causal": True})
CAUSAL = World("causal", n_q=37, n_k=37, d_k=16, d_v=11, convention={"causal": True})
CAUSAL_WIDE = replace(CAUSAL, name="causal, n_k larger", n_q=23)
CAUSAL_KERNEL = replace(KERNEL, name="causal kernel", convention={"causal": True})
BOTTOM = replace(CAUSAL_WIDE, name="causal bottom-right", convention={"causal": True, "causal_align": "bottom-right"})
WIDER = replace(CAUSAL_WIDE, name="n_k larger", convention={})
WINDOW = replace(CAUSAL, name="window", convention={"causal": True, "window": (7, 0)})
TWO_SIDED = replace(CAUSAL, name="two-sided window", convention={"window": (5, 3)})
MASKED = World("mask of each item", n_q=19, n_k=23, d_k=16, mask=some(0.6))
MASKED_HEADS = replace(MASKED, name="mask of each head", mask=some(0.6, per="head"))
MASKED_ALL = replace(MASKED, name="one mask", mask=some(0.6, per="all"))
MASKED_SQUARE = replace(MASKED_ALL, name="square mask", n_k=19)
MASKED_CAUSAL = replace(MASKED_SQUARE, name="mask and causal", convention={"causal": True})
MASKED_LARGE = replace(MASKED_ALL, name="mask, a row far below 0", adjust=far_below)
IGNORED = replace(MASKED, name="true is ignored", convention={"mask_means": "ignore"})
FINITE = replace(MASKED, name="finite mask value asked for", convention={"mask_value": -2.0})
EMPTY = replace(MASKED, name="one row empty", mask=some(0.6, per="all", empty=9))
EMPTY_NAN = replace(EMPTY, name="one row empty, NaN asked for", convention={"empty_rows": "nan"})
NAN_KEY = replace(MASKED, name="NaN in a masked key", mask=but(slice(None), -1), adjust=put("k", np.nan, slice(None), 0, -1))
NAN_VALUE = replace(MASKED, name="NaN in a masked value", mask=but(slice(None), -1), adjust=put("v", np.nan, slice(None), 0, -1))
LEFT = replace(MASKED, name="padding on the left", mask=left_padding)
MASKED_FAR = replace(MASKED_ALL, name="mask, scores of hundreds", q_times=150)
BIAS = replace(MASKED, name="added numbers", mask=lambda rng, w: rng.normal(size=(w.h, w.n_q, w.n_k)) * 1.5)
BIAS_SQUARE = replace(BIAS, name="added numbers, square", n_k=19)
ALIBI = replace(BIAS_SQUARE, name="alibi", h=4, mask=alibi)
PADDED = World("padding", b=3, h=2, n_q=31, n_k=67, d_k=16, d_v=11, lengths=(53, 64, 47))
PADDED_SQUARE = replace(PADDED, name="padding, square", n_q=67)
ONE_PADDED = replace(PADDED, name="one of eight padded", b=8, lengths=(67,) * 7 + (41,))
ONE_ROW = replace(MASKED, name="one row masked", n_q=31, mask=but(-5, slice(11)))
CAPPED = replace(LARGE, name="softcap", q_times=6, convention={"softcap": 5.0})
CAPPED_CAUSAL = replace(CAUSAL, name="softcap, causal", convention={"softcap": 3.0, "causal": True})
SINKS = World("sinks", n_q=29, n_k=31, d_k=16, sinks=(0.5, 2.5))
NORMED = replace(KERNEL, name="QK-norm", convention={"qk_norm": True})
SCALED = replace(PRIMES, name="scale 0.3", convention={"scale": 0.3})
OVER_QUERIES = replace(PRIMES, name="softmax over queries", convention={"softmax_over": "queries"})
GROUPED = World("grouped", h=6, h_kv=3, n_q=19, n_k=23, d_k=16)
GROUPED_KERNEL = replace(KERNEL, name="grouped kernel", h=4, h_kv=2)
GROUPED_CAUSAL = replace(GROUPED, name="grouped, causal", n_k=19, convention={"causal": True})
TILED = replace(GROUPED, name="tiled", convention={"head_order": "tiled"})
NOT_TRANSPOSED = replace(PRIMES, name="n_k equals d_k", n_k=7)
HUGE = replace(PRIMES, name="huge", adjust=times(q=200, k=300))
V_BIAS = replace(ODD, name="bias of the values", adjust=shifted("v"))
Q_BIAS = replace(ODD, name="bias of the queries", adjust=shifted("q"))
K_BIAS = replace(ODD, name="bias of the keys", adjust=shifted("k"))
ROPE = World("rope", n_q=29, n_k=29, d_k=16, d_v=16, positions="rope-halves")
ROPE_PAIRS = replace(ROPE, name="rope, interleaved", positions="rope-interleaved")
ROPE_CACHED = replace(ROPE, name="rope on a cache", n_q=5, n_past=24)
SINUS = replace(ROPE, name="sinusoids", positions="paper")
ARTICLE = replace(SINUS, name="sinusoids of the article", positions="article")
QUIET = World("quiet", b=1, h=4, n_q=256, n_k=256, d_k=64, d_v=64, axes=3, convention={"causal": True})
QUIET_WINDOW = replace(QUIET, name="quiet, window", convention={"causal": True, "window": (255, 0)})
MASK_ADDED = replace(MASKED, name="true is added as 1", convention={"mask_means": "add"})
TRUTH = replace(MASKED_ALL, name="numbers for truth", mask=truth_as(1, 0), convention={"mask_numbers": "truth"})
LOWERED = replace(MASKED_ALL, name="0 and -1e4 added", mask=truth_as(0, -1e4))
MASK_ALONE = replace(MASKED_SQUARE, name="mask alone", convention={"causal": True, "mask_and_causal": "mask"})
CAUSAL_ALONE = replace(MASKED_SQUARE, name="causal alone", convention={"causal": True, "mask_and_causal": "causal"})
EMPTY_CAUSAL = replace(MASKED_CAUSAL, name="one row empty, causal", mask=some(0.6, per="all", empty=9))
OPEN_LAST = replace(CAUSAL_WIDE, name="last query open", convention={"causal": True, "causal_align": "open-last"})
OWN_WINDOW = replace(CAUSAL, name="window, own key counts", convention={"causal": True, "window": (7, 0), "window_counts": "own"})
CAPPED_BIAS = replace(BIAS, name="softcap, numbers added", convention={"softcap": 2.0, "causal": True})
CAPPED_AFTER = replace(BIAS, name="softcap after the numbers", convention={"softcap": 2.0, "causal": True, "softcap_place": "after-bias"})
CAPPED_WIDE = replace(CAPPED_CAUSAL, name="softcap, causal, n_k larger", n_q=23)
LEFT_SQUARE = replace(LEFT, name="padding on the left, square", n_q=23)
SINUS_CACHED = replace(ROPE_CACHED, name="sinusoids on a cache", positions="paper")

# What right implementations are run on: every option that they share, and hard numbers.
EQUAL = replace(ODD, name="large scores, equal keys", q_times=50, adjust=equal_keys(5))
TWO_KEYS = replace(PRIMES, name="two distinct keys, large", q_times=120, adjust=equal_keys(2))
SEVERAL = replace(KERNEL, name="several hundred, equal keys", q_times=60, adjust=equal_keys(24))
CONSTANT = replace(ODD, name="constant columns of V", q_times=4, adjust=constant_v)
ZEROS = replace(ODD, name="zeros in Q", adjust=put("q", 0, ..., slice(None, None, 3), slice(None)))
ONE_KEY = replace(PRIMES, name="one key", n_k=1)
LONG = World("long rows", b=1, h=1, n_q=5, n_k=2053, d_k=16, d_v=16)
EQUAL_CAUSAL = replace(CAUSAL, name="causal, equal keys, large", q_times=30, adjust=equal_keys(3))
OUTLIERS = replace(KERNEL, name="outliers", adjust=times(channels=[1, 4], q=6, k=8))
V_MEAN = replace(ODD, name="V around 30", adjust=times(30, v=1))
V_BIG = replace(ODD, name="V of thousands", adjust=times(v=3000))
V_TINY = replace(ODD, name="V of 1e-4", adjust=times(v=1e-4))
Q_TINY = replace(ODD, name="q of 1e-3", adjust=times(q=1e-3))
WIDE = replace(KERNEL, name="wide heads", n_q=33, n_k=65, d_k=256, d_v=256)
ONE_QUERY = replace(KERNEL, name="one query", b=3, n_q=1)
RIGHT_WORLDS = (PRIMES, KERNEL, EQUAL, TWO_KEYS, SEVERAL, CONSTANT, ZEROS, ONE_KEY, LONG, CAUSAL, EQUAL_CAUSAL, MASKED, PADDED, GROUPED, OUTLIERS, V_MEAN, V_BIG, V_TINY, Q_TINY, WIDE, ONE_QUERY, )  # fmt: skip

NOT_RIGHT = (EMPTY_NAN, NAN_KEY, NAN_VALUE, HUGE)  # what is asked for is another row of the set there
ALL = tuple(x for x in [*globals().values()] if isinstance(x, World) and x not in NOT_RIGHT)
