"""Right arithmetic in another order: where the scale goes, how sums run, what is rounded when."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.check.planted.parts import HALF, Array, Inputs, attend, scores, softmax
from tests.check.planted.right.steps import parts
from tests.check.planted.rows import Row
from tests.check.planted.worlds import (
    CAUSAL,
    GROUPED,
    KERNEL,
    LONG,
    MASKED,
    ODD,
    PADDED,
    PRIMES,
    RIGHT_WORLDS,
    World,
)

Sum = Callable[[Array], Array]


def masking(x: Inputs, s: Array) -> Array:
    return np.where(parts(x).hide, x.wide(-np.inf), s).astype(x.wide)


def finish(x: Inputs, s: Array) -> Array:
    """The rest, from scaled scores."""
    return np.asarray(softmax(masking(x, s)) @ parts(x).v)


def rounded(x: Inputs, y: Array) -> Array:
    return x.round(y).astype(x.wide)


def every_stage_rounded(x: Inputs) -> Array:
    p = parts(x)
    s = rounded(x, rounded(x, scores(p.q, p.k)) * x.wide(x.scale))
    return np.asarray(rounded(x, softmax(masking(x, s))) @ p.v)


def scale_on(x: Inputs, names: str, *, keep: bool) -> Array:
    """The scale, or its root where it is on both, is put on q and k before the product."""
    p = parts(x)
    q, k = p.q, p.k
    factor = x.wide(x.scale ** (1 / len(names)))
    if "q" in names:
        q = q * factor if keep else rounded(x, q * factor)
    if "k" in names:
        k = k * factor if keep else rounded(x, k * factor)
    return finish(x, scores(q, k))


def forward(y: Array) -> Array:
    return np.asarray(np.cumsum(y, axis=-1)[..., -1])


def backward(y: Array) -> Array:
    return forward(y[..., ::-1])


def pairwise(y: Array) -> Array:
    while y.shape[-1] > 1:
        y = np.concatenate([y, np.zeros_like(y[..., : y.shape[-1] % 2])], axis=-1)
        y = y[..., ::2] + y[..., 1::2]
    return np.asarray(y[..., 0])


def in_blocks(y: Array) -> Array:
    """Eight at a time, then the blocks."""
    y = np.concatenate([y, np.zeros((*y.shape[:-1], -y.shape[-1] % 8), y.dtype)], axis=-1)
    return forward(forward(y.reshape(*y.shape[:-1], -1, 8)))


def in_lanes(y: Array) -> Array:
    """Eight sums side by side, as vector units do."""
    y = np.concatenate([y, np.zeros((*y.shape[:-1], -y.shape[-1] % 8), y.dtype)], axis=-1)
    return pairwise(forward(y.reshape(*y.shape[:-1], -1, 8).swapaxes(-1, -2)))


def kahan(y: Array) -> Array:
    total, lost = np.zeros_like(y[..., 0]), np.zeros_like(y[..., 0])
    for i in range(y.shape[-1]):
        term = y[..., i] - lost
        new = total + term
        lost, total = (new - total) - term, new
    return total


def summed(total: Sum) -> Callable[[Inputs], Array]:
    """Every sum of the computation in this order."""

    def make(x: Inputs) -> Array:
        p = parts(x)
        s = total(p.q[:, :, :, None] * p.k[:, :, None]) * x.wide(x.scale)
        s = masking(x, s)
        e = np.exp(s - s.max(-1, keepdims=True))
        w = e / total(e)[..., None]
        return total(w[:, :, :, None] * p.v.swapaxes(-1, -2)[:, :, None])

    return make


def wider(x: Inputs, dtype: type) -> Array:
    """Everything in a wider type."""
    p = parts(x)
    s = scores(p.q.astype(dtype), p.k.astype(dtype)) * dtype(x.scale)
    out: Array = softmax(np.where(p.hide, -np.inf, s)) @ p.v.astype(dtype)
    return out.astype(x.wide)


def unnormalised(x: Inputs, *, in_type: bool) -> Array:
    """Divided by the sum at the end."""
    p = parts(x)
    s = masking(x, scores(p.q, p.k) * x.wide(x.scale))
    e = np.exp(s - s.max(-1, keepdims=True))
    total = e.sum(-1, keepdims=True)
    return np.asarray((rounded(x, e) if in_type else e) @ p.v / total)


def weights_in_type(x: Inputs) -> Array:
    p = parts(x)
    w = softmax(masking(x, scores(p.q, p.k) * x.wide(x.scale)))
    return np.asarray(rounded(x, w) @ p.v)


def masked_by(
    value: Callable[[Inputs], float], *, added: bool = False
) -> Callable[[Inputs], Array]:
    def make(x: Inputs) -> Array:
        p = parts(x)
        s = scores(p.q, p.k) * x.wide(x.scale)
        low = x.wide(value(x))
        s = s + np.where(p.hide, low, x.wide(0)) if added else np.where(p.hide, low, s)
        return np.asarray(softmax(s) @ p.v)

    return make


def smallest(x: Inputs) -> float:
    return float(np.finfo(x.wide).min) if x.dtype != "float16" else -65504.0


def renormalised(x: Inputs) -> Array:
    """Masked after softmax, and brought back to 1."""
    p = parts(x)
    w = softmax(scores(p.q, p.k) * x.wide(x.scale)) * ~p.hide
    return np.asarray(w / w.sum(-1, keepdims=True) @ p.v)


def no_maximum(x: Inputs) -> Array:
    e = np.exp(masking(x, scores(parts(x).q, parts(x).k) * x.wide(x.scale)))
    return np.asarray(e / e.sum(-1, keepdims=True) @ parts(x).v)


def by_lse(x: Inputs) -> Array:
    p = parts(x)
    s = masking(x, scores(p.q, p.k) * x.wide(x.scale))
    top = s.max(-1, keepdims=True)
    lse = np.log(np.exp(s - top).sum(-1, keepdims=True)) + top
    return np.asarray(np.exp(s - lse) @ p.v)


def one_maximum(x: Inputs) -> Array:
    """One maximum for eight rows, as some tiles keep it; scores near each other."""
    p = parts(x)
    s = masking(x, scores(p.q, p.k) * x.wide(x.scale))
    top = np.concatenate(
        [
            np.broadcast_to(t.max((-1, -2), keepdims=True), (*t.shape[:3], 1))
            for t in np.split(s, range(8, x.n_q, 8), axis=2)
        ],
        axis=2,
    )
    e = np.exp(s - top)
    return np.asarray(e / e.sum(-1, keepdims=True) @ p.v)


def exp2_fused(x: Inputs) -> Array:
    p = parts(x)
    s = masking(x, scores(p.q, p.k))
    factor = x.wide(x.scale / np.log(2))
    e = np.exp2(s * factor - s.max(-1, keepdims=True) * factor)
    return np.asarray(e / e.sum(-1, keepdims=True) @ p.v)


def polynomial(x: Inputs) -> Array:
    """2^x of the fraction by a polynomial of the fourth degree, as on units that lack it."""
    p = parts(x)
    s = masking(x, scores(p.q, p.k)) * x.wide(x.scale / np.log(2))
    s = s - s.max(-1, keepdims=True)
    whole = np.floor(np.maximum(s, -126))
    rest = np.maximum(s, -126) - whole
    at = (np.cos(np.pi * (np.arange(5) + 0.5) / 5) + 1) / 2
    fit = np.polyval(np.polyfit(at, np.exp2(at), 4), rest)
    e = np.where(s < -125, 0, fit * np.exp2(whole)).astype(x.wide)
    return np.asarray(e / e.sum(-1, keepdims=True) @ p.v)


def reciprocal(x: Inputs) -> Array:
    p = parts(x)
    s = masking(x, scores(p.q, p.k) * x.wide(x.scale))
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray((e @ p.v) * (x.wide(1) / e.sum(-1, keepdims=True)))


def permuted(x: Inputs, order: Callable[[Inputs], Array]) -> Array:
    """Keys, values and masks in another order: the sums run differently."""
    p, at = parts(x), order(x)
    s = scores(p.q, p.k[:, :, at]) * x.wide(x.scale)
    s = np.where(p.hide[..., at], x.wide(-np.inf), s)
    return np.asarray(softmax(s) @ p.v[:, :, at])


def by_einsum(x: Inputs) -> Array:
    p = parts(x)
    s = np.einsum("bhqd,bhkd->bhqk", p.q, p.k) * x.wide(x.scale)
    return np.asarray(np.einsum("bhqk,bhkd->bhqd", softmax(masking(x, s)), p.v))


def grouped(x: Inputs) -> Array:
    """Queries reshaped into groups; K and V are not repeated."""
    h = x.k.shape[1]
    q = x.q.reshape(x.b, h, x.h // h, x.n_q, x.d_k)
    s = np.einsum("bhgqd,bhkd->bhgqk", q, x.k) * x.wide(x.scale)
    hide = parts(x).hide.reshape(x.b, h, x.h // h, x.n_q, x.n_k)
    w = softmax(np.where(hide, x.wide(-np.inf), s))
    out = np.asarray(np.einsum("bhgqk,bhkd->bhgqd", w, x.v))
    return out.reshape(x.b, x.h, x.n_q, x.d_v)


def per_head(x: Inputs) -> Array:
    p = parts(x)
    out = np.zeros((x.b, x.h, x.n_q, x.d_v), x.wide)
    for b, h in np.ndindex(x.b, x.h):
        s = p.q[b, h] @ p.k[b, h].T * x.wide(x.scale)
        out[b, h] = softmax(np.where(p.hide[b, h], x.wide(-np.inf), s)) @ p.v[b, h]
    return out


def half_widths(x: Inputs) -> Array:
    p, d = parts(x), x.d_k // 2
    s = scores(p.q[..., :d], p.k[..., :d]) + scores(p.q[..., d:], p.k[..., d:])
    return finish(x, s * x.wide(x.scale))


def divided(x: Inputs) -> Array:
    p = parts(x)
    return finish(x, scores(p.q, p.k) / x.wide(1 / x.scale))


def mean_subtracted(x: Inputs) -> Array:
    """A row's mean score taken off first: softmax does not see it."""
    p = parts(x)
    s = scores(p.q, p.k) * x.wide(x.scale)
    return finish(x, s - s.mean(-1, keepdims=True))


def right(
    what: str,
    make: Callable[[Inputs], Array],
    worlds: tuple[World, ...] = RIGHT_WORLDS,
    **more: object,
) -> Row:
    return Row(what, (), make, worlds, kind="right", **more)  # type: ignore[arg-type]


SMALL = (PRIMES, ODD, MASKED, PADDED, CAUSAL, GROUPED)
ROWS = (
    right("fused", attend),
    right("every stage rounded", every_stage_rounded),
    right("scale on q, rounded", lambda x: scale_on(x, "q", keep=False)),
    right("scale on q", lambda x: scale_on(x, "q", keep=True)),
    right("scale on k, rounded", lambda x: scale_on(x, "k", keep=False)),
    right("root of the scale on both, rounded", lambda x: scale_on(x, "qk", keep=False)),
    right("root of the scale on both", lambda x: scale_on(x, "qk", keep=True)),
    right("divided by the root", divided),
    right("sums forward", summed(forward)),
    right("sums backward", summed(backward)),
    right("sums in pairs", summed(pairwise)),
    right("sums in blocks", summed(in_blocks)),
    right("sums in lanes", summed(in_lanes)),
    right("Kahan's sums", summed(kahan)),
    right("float64 inside", lambda x: wider(x, np.float64)),
    right("long double inside", lambda x: wider(x, np.longdouble), (*SMALL, LONG)),
    right("divided at the end", lambda x: unnormalised(x, in_type=False)),
    right("16-bit weights, divided at the end", lambda x: unnormalised(x, in_type=True)),
    right("weights in the type", weights_in_type),
    right("mask: the smallest number", masked_by(smallest)),
    right("mask: −1e9 added", masked_by(lambda x: -1e9, added=True)),
    right("mask: −1e4 added", masked_by(lambda x: -1e4, added=True)),
    right("mask: −∞ added", masked_by(lambda x: -np.inf, added=True)),
    right("masked after softmax, renormalised", renormalised, SMALL),
    right("no maximum taken off", no_maximum, SMALL),
    right("by the log-sum-exp", by_lse),
    right("one maximum for eight rows", one_maximum, SMALL),
    right("2^x in one step", exp2_fused),
    right("2^x by a polynomial", polynomial, types=HALF),
    right("times the reciprocal", reciprocal),
    right("keys backwards", lambda x: permuted(x, lambda x: np.arange(x.n_k)[::-1])),
    right("keys sorted", lambda x: permuted(x, lambda x: np.argsort(x.k[0, 0, :, 0], kind="stable"))),
    right("einsum", by_einsum),
    right("grouped by reshape", grouped),
    right("each head by itself", per_head),
    right("widths in two halves", half_widths),
    right("mean score taken off", mean_subtracted),
    right("output in float32", lambda x: wider(x, np.float64).astype(np.float32), types=HALF, as_is=True),
    right("computed and given in float32", lambda x: attend(x).astype(np.float32), (*SMALL, KERNEL), types=HALF, as_is=True),
    right("given in float64", lambda x: attend(x).astype(np.float64), SMALL, types=("float64",), as_is=True),
)  # fmt: skip
