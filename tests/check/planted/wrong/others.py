"""Other inputs, positions put in wrongly, two bugs at once, and what no bug of the catalogue is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.check.planted import worlds as w
from tests.check.planted.parts import (
    OPEN,
    PLACED,
    Array,
    Inputs,
    attend,
    rotate,
    sinusoid,
    softmax,
)
from tests.check.planted.rows import Row
from tests.check.planted.worlds import shift
from tests.check.planted.wrong.arrays import SAME, cut, joined

Put = Callable[[Array, Array], Array]


# ---- inputs


def vector(x: Inputs, name: str) -> Array:
    """The bias that `shifted` put in."""
    return shift(name, getattr(x, name).shape).astype(x.wide)


def rms(y: Array) -> Array:
    return np.asarray(y / np.sqrt((y**2).mean(-1, keepdims=True)))


def projected(x: Inputs, n: int) -> Array:
    """Times W_o, n heads side by side."""
    out = attend(x).reshape(x.b, x.h // n, n, x.n_q, x.d_v).swapaxes(2, 3)
    side = out.reshape(x.b, x.h // n, x.n_q, n * x.d_v)
    matrix = np.random.default_rng(11).normal(size=(x.h // n, *side.shape[-1:] * 2))
    side = side @ (matrix * side.shape[-1] ** -0.5).astype(x.wide)
    return np.asarray(side.reshape(out.shape).swapaxes(2, 3).reshape(x.b, x.h, x.n_q, x.d_v))


def unnormalised(x: Inputs, gain: bool) -> Array:
    """What came in is normalised; the queries and keys that are used are as they were before."""
    rng = np.random.default_rng(17)
    q, k = (y * rng.uniform(0.5, 2, size=(*y.shape[:3], 1)).astype(x.wide) for y in (x.q, x.k))
    return attend(x, q=q if gain else x.q, k=k)


INPUTS = (
    Row("no bias on the values", ("bias of the values missing",), lambda x: attend(x, v=x.v - vector(x, "v")), (w.V_BIAS,)),
    Row("no bias on the queries", ("bias of the queries missing",), lambda x: attend(x, q=x.q - vector(x, "q")), (w.Q_BIAS,)),
    Row("RMS norm of q and k", ("queries and keys normalised",), lambda x: attend(x, q=rms(x.q), k=rms(x.k)), (w.THREE, w.KERNEL, w.LARGE)),
    Row("norm of q and k missing", ("queries and keys times factors",), lambda x: unnormalised(x, True), (w.THREE, w.KERNEL, w.CAUSAL_KERNEL), but=(("causal kernel", "no match"),)),
    Row("scale of each key forgotten", ("queries and keys times factors",), lambda x: unnormalised(x, False), (w.THREE, w.KERNEL)),
    Row("q added", ("residual already in the output",), lambda x: attend(x) + x.q, (w.EVEN, w.CAUSAL_KERNEL, w.LARGE_KERNEL)),
    Row("v added", ("residual already in the output",), lambda x: attend(x) + x.v, (w.EVEN,)),
    Row("k added", ("residual already in the output",), lambda x: attend(x) + x.k, (w.EVEN,)),
    Row("projected over all heads", ("output projected already",), lambda x: projected(x, x.h), (w.PROJECTED,)),
    Row("projected, each head", ("output projected already",), lambda x: projected(x, 1), (w.PROJECTED,)),
)  # fmt: skip


# ---- positions


def placing(
    put: Put, names: str = "qk", *, first_q: int | None = None, first_k: int = 0, **more: Any
) -> Callable[[Inputs], Array]:
    """An attention that puts these positions in, the queries' counted from first_q."""

    def make(x: Inputs) -> Array:
        start = {"q": x.n_past if first_q is None else first_q, "k": first_k, "v": first_k}
        parts: dict[str, Any] = {}
        for name in "qkv":
            y = getattr(x, name)
            at = np.arange(start[name], start[name] + y.shape[2])
            parts[name] = put(y, at) if name in names else y
        return attend(x, **parts, **more)

    return make


def restarted(x: Inputs, **more: Any) -> Array:
    """New keys and queries count from 0 again."""
    again = np.r_[np.arange(x.n_past), np.arange(x.n_k - x.n_past)]
    return attend(x, q=rotate(x.q, np.arange(x.n_q)), k=rotate(x.k, again), **more)


def part(y: Array, at: Array) -> Array:
    """The first half of the width is rotated."""
    d = y.shape[-1] // 2
    return np.concatenate([rotate(y[..., :d], at), y[..., d:]], axis=-1)


IN_PAIRS = PLACED["rope-interleaved"]
RESTARTED = ("positions restarted at 0 after the past",)
POSITIONS = (
    Row("interleaved", ("rotary pairs interleaved, not in halves",), placing(IN_PAIRS), (w.ROPE, w.ROPE_CACHED), "transformers#25199"),
    Row("halves", ("rotary pairs in halves, not interleaved",), placing(rotate), (w.ROPE_PAIRS,), "nanochat#264"),
    Row("no rotary positions", ("positions left out",), placing(rotate, ""), (w.ROPE, w.ROPE_PAIRS)),
    Row("no sinusoids", ("positions left out",), placing(rotate, ""), (w.SINUS,)),
    Row("v rotated too", ("rotary positions in the values too",), placing(rotate, "qkv"), (w.ROPE,)),
    Row("base 500000", ("rotary positions with another base",), placing(lambda y, at: rotate(y, at, 500000.0)), (w.ROPE, w.ROPE_CACHED)),
    Row("half of the width", ("rotary positions on a part of the width",), placing(part), (w.ROPE,)),
    Row("queries one too far", ("positions counted from another number",), placing(rotate, first_q=1), (w.ROPE,), "flash-linear-attention#766"),
    Row("queries from 0 after the past", (*RESTARTED, "positions counted from another number"), placing(rotate, first_q=0), (w.ROPE_CACHED,)),
    Row("restarted after the past", RESTARTED, restarted, (w.ROPE_CACHED,)),
    Row("sinusoids from 1", ("positions counted from 1, not 0", "positions counted from another number"), placing(sinusoid, "qkv", first_q=1, first_k=1), (w.SINUS,)),
    Row("sinusoids, not in the values", ("positions left out of the values",), placing(sinusoid, "qk"), (w.SINUS,)),
    Row("the article's exponent", ("sinusoid exponent 2·2i/d, not 2i/d",), placing(PLACED["article"], "qkv"), (w.SINUS,), "jadore801120/attention-is-all-you-need-pytorch#32"),
    Row("the paper's exponent", ("sinusoid exponent 2i/d, not 2·2i/d",), placing(sinusoid, "qkv"), (w.ARTICLE,), "SamLynnEvans/Transformer#25"),
    Row("sines, then cosines", ("sines, then cosines, not interleaved",), placing(lambda y, at: sinusoid(y, at, order="halves"), "qkv"), (w.SINUS,), "allennlp#2993"),
    Row("k alone rotated, on a cache", ("positions left out",), placing(rotate, "k"), (w.ROPE_CACHED,)),
    Row("no scale, rotated", ("scale left out",), placing(rotate, scale=1.0), (w.ROPE_CACHED,), always=True),
    Row("no scale, sinusoids", ("scale left out",), lambda x: attend(x, scale=1.0), (w.SINUS, w.ARTICLE, w.SINUS_CACHED), always=True),
)  # fmt: skip


# ---- two bugs at once; the second shows in few items, heads or rows

PAIRS = (
    Row("scale and one padded item", ("scale left out + padding left out",), lambda x: attend(x, scale=1.0, hide=OPEN), (w.ONE_PADDED, w.PADDED), gives="among several", but=(("padding", "named"),)),
    Row("scale and one masked row", ("scale left out + mask left out",), lambda x: attend(x, scale=1.0, hide=OPEN), (w.ONE_ROW,), always=True),
    Row("scale and causal", ("scale left out + causal mask left out",), lambda x: attend(x, scale=1.0, hide=OPEN), (w.CAUSAL,)),
    Row("mask and causal", ("mask left out + causal mask left out",), lambda x: attend(x, hide=OPEN), (w.MASKED_CAUSAL,), always=True),
    Row("window and scale", ("window left out + scale left out",), lambda x: attend(x, scale=1.0, hide=OPEN), (w.TWO_SIDED,), always=True),
    Row("width of the model, next position visible", ("√d_model instead of √d_k + causal mask shows the next position",), lambda x: attend(x, scale=(x.h * x.d_k) ** -0.5, hide=x.j > x.i + 1), (w.CAUSAL,), always=True),
    Row("mask inverted, divided by d_k", ("boolean mask read the other way round + divided by d_k, not √d_k",), lambda x: attend(x, scale=1 / x.d_k, hide=~x.masked), (w.MASKED,), always=True),
    Row("over queries, unscaled", ("softmax over queries, not keys + scale left out",), lambda x: attend(x, scale=1.0, weigh=lambda s: softmax(s, axis=-2)), (w.PRIMES,), always=True),
    Row("after softmax, unscaled", ("mask applied after softmax, not renormalised + scale left out",), lambda x: attend(x, scale=1.0, hide=OPEN, weigh=lambda s: softmax(s) * ~x.hidden), (w.MASKED,), always=True),
    Row("cut by reshape, unscaled", ("heads split by reshape without transpose + scale left out",), lambda x: attend(x, scale=1.0, q=cut(x.q), k=cut(x.k), v=cut(x.v)), (w.PRIMES,), always=True),
    Row("joined by reshape, not causal", ("heads merged by reshape without transpose + causal mask left out",), lambda x: joined(attend(x, hide=OPEN)), (w.CAUSAL,)),
    Row("K and V exchanged, causal", ("K and V swapped + causal mask where none is wanted",), lambda x: attend(x, k=x.v, v=x.k, hide=x.j > x.i), (SAME,)),
    Row("no softcap, bottom-right", ("softcap left out + causal mask aligned bottom-right, not top-left",), lambda x: attend(x, cap=0.0, hide=x.j > x.i + x.n_k - x.n_q), (w.CAPPED_WIDE,), always=True),
    Row("interleaved, unscaled", ("rotary pairs interleaved, not in halves + scale left out",), placing(IN_PAIRS, scale=1.0), (w.ROPE,), always=True),
    Row("restarted after the past, unscaled", ("positions restarted at 0 after the past + scale left out",), lambda x: restarted(x, scale=1.0), (w.ROPE_CACHED,)),
    Row("the article's exponent, unscaled", ("sinusoid exponent 2·2i/d, not 2i/d + scale left out",), placing(PLACED["article"], "qkv", scale=1.0), (w.SINUS,)),
    Row("no sinusoids, unscaled", ("positions left out + scale left out",), placing(rotate, "", scale=1.0), (w.SINUS,)),
    Row("sines, then cosines, from 1", ("sines, then cosines, not interleaved + positions counted from 1, not 0",), placing(lambda y, at: sinusoid(y, at, order="halves"), "qkv", first_q=1, first_k=1), (w.SINUS,), types=("float64", "float32")),
)  # fmt: skip


# ---- wrong in a place that no row of the catalogue is meant to name


def random(x: Inputs) -> Array:
    return np.random.default_rng(21).normal(size=(x.b, x.h, x.n_q, x.d_v)).astype(x.wide)


CONTROLS = (
    Row("garbage in one block", (), lambda x: attend(x) + random(x) * (np.arange(x.n_q) // 16 == 1)[:, None], (w.ODD,), kind="control", always=True, gives="no match"),
    Row("one wrong number a head", (), lambda x: attend(x) + np.eye(x.n_q, x.d_v) * (np.arange(x.d_v) == 3), (w.ODD,), kind="control", always=True, gives="no match"),
    Row("noise", (), lambda x: attend(x) + random(x) * 0.05, (w.KERNEL,), kind="control", gives="no match"),
    Row("scores squared", (), lambda x: attend(x, weigh=lambda s: softmax(s * s)), (w.ODD,), kind="control", always=True, gives="no match"),
    Row("V one row off", (), lambda x: attend(x, v=np.roll(x.v, 1, axis=2)), (w.ODD,), kind="control", always=True, gives="no match"),
    Row("mask one key off", (), lambda x: attend(x, hide=np.roll(x.masked, 1, axis=-1)), (w.MASKED_ALL,), kind="control", gives="no match"),
    Row("mask of another head", (), lambda x: attend(x, hide=np.roll(x.masked, 1, axis=1)), (w.MASKED_HEADS,), kind="control", always=True, gives="no match"),
    Row("sinks of other heads", (), lambda x: attend(x, sinks=np.linspace(2.5, 0.5, x.h)), (w.SINKS,), kind="control", gives="no match"),
    # shares what it touches, which two that are tried together may not
    Row("mask inverted and turned", (), lambda x: attend(x, hide=~x.masked.T), (w.MASKED_SQUARE,), kind="control", gives="no match"),
)  # fmt: skip
