"""Right kernels: tilings, running softmaxes, split keys, padded tails."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.check.planted.parts import Array, Inputs, head_of, hidden, scores
from tests.check.planted.right.steps import Parts, parts
from tests.check.planted.rows import Row
from tests.check.planted.worlds import CAUSAL, CAUSAL_KERNEL, EQUAL_CAUSAL, RIGHT_WORLDS


def flash(
    x: Inputs,
    block: int,
    tile: int = 0,
    *,
    base_2: bool = False,
    weights_in_type: bool = False,
    skip: bool = False,
    patience: float = 0.0,
    backward: bool = False,
) -> Array:
    """Running softmax over blocks of keys, a tile of queries at a time.

    skip      blocks in which every cell is masked are not visited
    patience  the maximum is not renewed until it has grown by so much
    """
    p = parts(x)
    exp = np.exp2 if base_2 else np.exp
    factor = x.wide(x.scale / np.log(2) if base_2 else x.scale)
    tile = tile or x.n_q
    outs = []
    for i in range(0, x.n_q, tile):
        q, hide = p.q[:, :, i : i + tile], p.hide[:, :, i : i + tile]
        top = np.full((*q.shape[:3], 1), -np.inf, x.wide)
        total, out = np.zeros_like(top), np.zeros((*q.shape[:3], x.d_v), x.wide)
        starts = list(range(0, x.n_k, block))
        for j in reversed(starts) if backward else starts:
            k, v = p.k[:, :, j : j + block], p.v[:, :, j : j + block]
            cells = hide[..., j : j + block]
            if skip and cells.all():
                continue
            s = np.where(cells, x.wide(-np.inf), scores(q, k) * factor)
            peak = s.max(-1, keepdims=True)
            new = np.where(peak > top + x.wide(patience), peak, top)
            known = np.where(np.isneginf(new), x.wide(0), new)
            fix = np.where(np.isneginf(top), x.wide(0), exp(top - known))
            e = exp(s - known)
            total = total * fix + e.sum(-1, keepdims=True)
            e = x.round(e).astype(x.wide) if weights_in_type else e
            out = out * fix + e @ v
            top = new
        outs.append(out / total)
    return np.concatenate(outs, axis=2)


def one_split(x: Inputs, p: Parts, at: Array) -> tuple[Array, Array]:
    s = np.where(p.hide[..., at], x.wide(-np.inf), scores(p.q, p.k[:, :, at]) * x.wide(x.scale))
    top = s.max(-1, keepdims=True)
    top = np.where(np.isneginf(top), x.wide(0), top)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    return (e @ p.v[:, :, at]) / np.where(total == 0, x.wide(1), total), np.log(total) + top


def split(x: Inputs, n: int, *, base_2: bool = False, partial_in_type: bool = False) -> Array:
    """The keys in n parts, merged by their log-sum-exp."""
    p = parts(x)
    pairs = [one_split(x, p, at) for at in np.array_split(np.arange(x.n_k), n) if at.size]
    outs = np.stack([x.round(o).astype(x.wide) if partial_in_type else o for o, _ in pairs])
    lse = np.stack([part for _, part in pairs])
    if base_2:
        lse = (lse / np.log(2)).astype(x.wide)
    w = (np.exp2 if base_2 else np.exp)(lse - lse.max(0))
    return np.asarray((w * outs).sum(0) / w.sum(0))


def padded_tail(x: Inputs, block: int) -> Array:
    """Keys and queries padded with zeros to whole blocks; the padding is masked and cut off."""
    p = parts(x)
    more_q, more_k = -x.n_q % block, -x.n_k % block
    k, v = (np.pad(y, [(0, 0), (0, 0), (0, more_k), (0, 0)]) for y in (p.k, p.v))
    q = np.pad(p.q, [(0, 0), (0, 0), (0, more_q), (0, 0)])
    hide = np.pad(p.hide, [(0, 0), (0, 0), (0, more_q), (0, 0)])
    hide = np.pad(hide, [(0, 0), (0, 0), (0, 0), (0, more_k)], constant_values=True)
    s = np.where(hide, x.wide(-np.inf), scores(q, k) * x.wide(x.scale))
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.asarray((e / e.sum(-1, keepdims=True) @ v)[:, :, : x.n_q])


def flashing(block: int, tile: int = 0, **how: bool | float) -> Callable[[Inputs], Array]:
    return lambda x: flash(x, block, tile, **how)  # type: ignore[arg-type]


def splitting(n: int, **how: bool) -> Callable[[Inputs], Array]:
    return lambda x: split(x, n, **how)


def right(what: str, make: Callable[[Inputs], Array]) -> Row:
    return Row(what, (), make, RIGHT_WORLDS, kind="right")


def per_row(x: Inputs) -> Array:
    """Each query by itself, over the keys that it may attend to."""
    hide = np.broadcast_to(hidden(x), (x.b, x.h, x.n_q, x.n_k))
    k, v = head_of(x, x.k), head_of(x, x.v)
    out = np.zeros((x.b, x.h, x.n_q, x.d_v), x.wide)
    for b, h, i in np.ndindex(out.shape[:3]):
        at = ~hide[b, h, i]
        s = k[b, h, at] @ x.q[b, h, i] * x.wide(x.scale)
        e = np.exp(s - s.max())
        out[b, h, i] = e @ v[b, h, at] / e.sum()
    return out


ROWS = (
    *(right(f"flash, blocks of {n}", flashing(n)) for n in (16, 32, 64, 128, 17)),
    *(right(f"flash, tiles of {m} x {n}", flashing(n, m)) for m, n in ((16, 16), (64, 32), (128, 64))),
    *(right(f"flash, 16-bit weights, blocks of {n}", flashing(n, weights_in_type=True)) for n in (16, 64, 128)),
    *(right(f"flash in base 2, blocks of {n}", flashing(n, base_2=True)) for n in (32, 64)),
    right("flash in base 2, 16-bit weights", flashing(64, 128, base_2=True, weights_in_type=True)),
    right("flash, last block first", flashing(32, backward=True)),
    right("flash, maximum renewed seldom", flashing(16, patience=5.0)),
    right("flash, one key at a time", flashing(1)),
    *(right(f"{n} splits", splitting(n)) for n in (2, 4, 7)),
    right("4 splits, base 2", splitting(4, base_2=True)),
    right("3 splits, partial outputs in the type", splitting(3, partial_in_type=True)),
    right("padded to 16, masked", lambda x: padded_tail(x, 16)),
    right("padded to 128, masked", lambda x: padded_tail(x, 128)),
    right("each query by itself", per_row),
    Row("flash, masked tiles skipped", (), flashing(16, 16, skip=True), (CAUSAL, CAUSAL_KERNEL, EQUAL_CAUSAL), kind="right"),
)  # fmt: skip
