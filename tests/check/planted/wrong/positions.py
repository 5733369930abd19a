"""Positions of another form, counted from elsewhere, left out, or put in too far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.check.planted.parts import PLACED, Array, Inputs, attend, rotate, sinusoid
from tests.check.planted.rows import Row
from tests.check.planted.worlds import ARTICLE, ROPE, ROPE_CACHED, ROPE_PAIRS, SINUS

Put = Callable[[Array, Array], Array]


def placing(
    put: Put, names: str = "qk", *, first_q: int | None = None, first_k: int = 0
) -> Callable[[Inputs], Array]:
    """An attention that puts these positions in, the queries' counted from first_q."""

    def make(x: Inputs) -> Array:
        start = {"q": x.n_past if first_q is None else first_q, "k": first_k, "v": first_k}
        parts: dict[str, Any] = {}
        for name in "qkv":
            y = getattr(x, name)
            at = np.arange(start[name], start[name] + y.shape[2])
            parts[name] = put(y, at) if name in names else y
        return attend(x, **parts)

    return make


def restarted(x: Inputs) -> Array:
    """New keys and queries count from 0 again."""
    at = np.r_[np.arange(x.n_past), np.arange(x.n_k - x.n_past)]
    return attend(x, q=rotate(x.q, np.arange(x.n_q)), k=rotate(x.k, at))


def part(share: float) -> Put:
    def put(y: Array, at: Array) -> Array:
        d = int(y.shape[-1] * share)
        return np.concatenate([rotate(y[..., :d], at), y[..., d:]], axis=-1)

    return put


def slow_part(y: Array, at: Array) -> Array:
    """The first half is rotated, by the first half of the whole width's frequencies."""
    d = y.shape[-1]
    turn = np.exp(1j * np.outer(at, 10000.0 ** (-np.arange(0, d // 2, 2) / d)))
    z = (y[..., : d // 4] + 1j * y[..., d // 4 : d // 2]) * turn
    return np.concatenate([z.real, z.imag, y[..., d // 2 :]], axis=-1).astype(y.dtype)


ROTARY: Put = rotate
PAIRS = PLACED["rope-interleaved"]
UNPLACED = placing(ROTARY, "")
OUT = ("positions left out",)
BASE = ("rotary positions with another base",)
FROM = ("positions counted from another number",)
ONE = ("positions counted from 1, not 0", "positions counted from another number")
PART = ("rotary positions on a part of the width",)
ROWS = (
    Row("interleaved", ("rotary pairs interleaved, not in halves",), placing(PAIRS), (ROPE, ROPE_CACHED), "transformers#25199"),
    Row("halves", ("rotary pairs in halves, not interleaved",), placing(ROTARY), (ROPE_PAIRS,), "nanochat#264"),
    Row("no rotary positions", OUT, UNPLACED, (ROPE, ROPE_PAIRS)),
    Row("no sinusoids", OUT, UNPLACED, (SINUS,)),
    Row("q alone rotated", OUT, placing(ROTARY, "q"), (ROPE,)),
    Row("v rotated too", ("rotary positions in the values too",), placing(ROTARY, "qkv"), (ROPE,)),
    Row("base 500000", BASE, placing(lambda y, at: rotate(y, at, 500000.0)), (ROPE, ROPE_CACHED)),
    Row("base 1000000, interleaved", BASE, placing(lambda y, at: rotate(y, at, 1e6, "interleaved")), (ROPE_PAIRS,), "SpecForge#265"),
    Row("half of the width", PART, placing(part(0.5)), (ROPE,)),
    Row("a quarter of the width", PART, placing(part(0.25)), (ROPE,)),
    Row("queries one too far", FROM, placing(ROTARY, first_q=1), (ROPE,), "flash-linear-attention#766"),
    Row("queries from 0 after the past", (*FROM, "positions restarted at 0 after the past"), placing(ROTARY, first_q=0), (ROPE_CACHED,)),
    Row("restarted after the past", ("positions restarted at 0 after the past",), restarted, (ROPE_CACHED,)),
    Row("sinusoids from 1", ONE, placing(sinusoid, "qkv", first_q=1, first_k=1), (SINUS,)),
    Row("sinusoids from 5", FROM, placing(sinusoid, "qkv", first_q=5, first_k=5), (SINUS,)),
    Row("sinusoids, not in the values", ("positions left out of the values",), placing(sinusoid, "qk"), (SINUS,)),
    Row("the article's exponent", ("sinusoid exponent 2·2i/d, not 2i/d",), placing(PLACED["article"], "qkv"), (SINUS,), "jadore801120/attention-is-all-you-need-pytorch#32"),
    Row("the paper's exponent", ("sinusoid exponent 2i/d, not 2·2i/d",), placing(sinusoid, "qkv"), (ARTICLE,), "SamLynnEvans/Transformer#25"),
    Row("sines, then cosines", ("sines, then cosines, not interleaved",), placing(lambda y, at: sinusoid(y, at, order="halves"), "qkv"), (SINUS,), "allennlp#2993"),
    Row("half of the width, frequencies of the whole", PART, placing(slow_part), (ROPE,), "pie-project/pie#602"),
    Row("q turned the other way", (), lambda x: attend(x, q=rotate(x.q, -np.arange(x.n_q)), k=rotate(x.k, np.arange(x.n_k))), (ROPE,), kind="control"),
    Row("positions divided by four", (), placing(lambda y, at: rotate(y, at / 4)), (ROPE,), kind="control"),
)  # fmt: skip
