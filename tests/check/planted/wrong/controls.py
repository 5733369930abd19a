"""Wrong in a place that no row of the catalogue is meant to name: the answer is "no match"."""

from __future__ import annotations

import numpy as np

from tests.check.planted.parts import HALF, Array, Inputs, attend, banned, hidden, masked, softmax
from tests.check.planted.rows import Row, noise
from tests.check.planted.worlds import (
    CAPPED,
    CAUSAL_KERNEL,
    KERNEL,
    MASKED_ALL,
    MASKED_CAUSAL,
    MASKED_HEADS,
    ODD,
    SINKS,
    World,
)

FOUR = World("four heads", b=1, h=4, n_q=47, n_k=53, d_k=32, d_v=24)


def random(x: Inputs, shape: tuple[int, ...]) -> Array:
    return np.random.default_rng(21).normal(size=shape).astype(x.wide)


def normalised(w: Array) -> Array:
    return np.asarray(w / w.sum(-1, keepdims=True))


def garbage_block(x: Inputs) -> Array:
    out = attend(x)
    out[:, :1, 16:32] = random(x, out[:, :1, 16:32].shape)
    return out


def one_number(x: Inputs) -> Array:
    out = attend(x)
    out[0, -1, 7, 3] += 30 * noise(x) + 1
    return out


def noisy(x: Inputs) -> Array:
    """Ten times the noise of 16 bits; more in wide types, where only the order of sums differs."""
    times = 10 if x.dtype in HALF else 1000
    out = attend(x)
    return np.asarray(out + random(x, out.shape) * times * noise(x))


def blended(x: Inputs) -> Array:
    """Sharpened, and mixed with uniform weights."""
    return attend(x, weigh=lambda s: 0.8 * normalised(softmax(s) ** 1.3) + 0.2 / x.n_k)


def linear(x: Inputs) -> Array:
    q, k = (np.where(y > 0, y + 1, np.exp(np.minimum(y, 0))) for y in (x.q, x.k))
    return normalised(q @ k.swapaxes(-1, -2)) @ x.v


def diagonal_tile(x: Inputs) -> Array:
    """Causality is applied from tile to tile of 16, and inside none."""
    i, j = np.indices((x.n_q, x.n_k)) // 16
    return attend(x, hide=j > i)


def first_block_twice(x: Inputs) -> Array:
    twice = [np.concatenate([y, y[:, :, :16]], axis=2) for y in (x.k, x.v)]
    return attend(x, k=twice[0], v=twice[1], hide=np.zeros((1, 1), bool))


def one_tile_unscaled(x: Inputs) -> Array:
    factor = np.where(np.arange(x.n_k) // 32 == 1, x.scale * 1.7, x.scale)
    return attend(x, scale=factor)


def rolled(x: Inputs, name: str, by: int) -> Array:
    return np.roll(getattr(x, name), by, axis=2)


def permuted(x: Inputs, name: str) -> Array:
    y = getattr(x, name)
    return np.asarray(y[:, :, np.random.default_rng(22).permutation(y.shape[2])])


def topped(x: Inputs) -> Array:
    """Only the eight largest scores of each row count."""
    return attend(x, weigh=lambda s: softmax(np.where(s < np.sort(s)[..., -8:-7], -np.inf, s)))


def squares(s: Array) -> Array:
    return np.where(np.isneginf(s), s, s * np.abs(s))


NAMELESS = tuple(
    Row(what, (), make, worlds, kind="control")
    for what, make, worlds in (
        ("garbage in one block", garbage_block, (ODD, KERNEL)),
        ("one wrong number", one_number, (ODD,)),
        ("noise", noisy, (KERNEL, ODD)),
        ("all noise", lambda x: random(x, attend(x).shape), (KERNEL,)),
        ("scores squared", lambda x: attend(x, weigh=lambda s: softmax(s * s)), (KERNEL, ODD)),
        ("scores times their size", lambda x: attend(x, weigh=lambda s: softmax(squares(s))), (ODD,)),
        ("sharpened and mixed", blended, (KERNEL, ODD)),
        ("linear attention", linear, (KERNEL,)),
        ("squared ReLU", lambda x: attend(x, weigh=lambda s: normalised(np.maximum(s, 0) ** 2 + 1e-3)), (ODD,)),
        ("sigmoid, normalised", lambda x: attend(x, weigh=lambda s: normalised(1 / (1 + np.exp(-s)))), (ODD,)),
        ("V rows permuted", lambda x: attend(x, v=permuted(x, "v")), (KERNEL, ODD)),
        ("K rows permuted", lambda x: attend(x, k=permuted(x, "k")), (ODD,)),
        ("Q rows permuted", lambda x: attend(x, q=permuted(x, "q")), (FOUR,)),
        ("V one row off", lambda x: attend(x, v=rolled(x, "v", 1)), (ODD,)),
        ("mask one key off", lambda x: attend(x, hide=np.roll(masked(x), 1, axis=-1)), (MASKED_ALL,)),
        ("mask of another head", lambda x: attend(x, hide=np.roll(masked(x), 1, axis=1)), (MASKED_HEADS,)),
        ("mask or causal, not both", lambda x: attend(x, hide=masked(x) & banned(x)), (MASKED_CAUSAL,)),
        ("causal by tiles of 16", diagonal_tile, (CAUSAL_KERNEL,)),
        ("first block twice", first_block_twice, (KERNEL,)),
        ("keys backwards under causality", lambda x: attend(x, hide=hidden(x)[..., ::-1]), (CAUSAL_KERNEL,)),
        ("channels backwards", lambda x: attend(x)[..., ::-1], (ODD,)),
        ("heads backwards", lambda x: attend(x)[:, ::-1], (FOUR,)),
        ("only the eight largest scores", topped, (KERNEL,)),
        ("another softcap, linear", lambda x: attend(x, cap=0.0, weigh=lambda s: softmax(np.clip(s, -4, 4))), (CAPPED,)),
        ("sinks of other heads", lambda x: attend(x, sinks=x.sinks[::-1].copy()), (SINKS,)),
        ("tanh of the output", lambda x: np.tanh(attend(x) * 2), (ODD,)),
        ("output squared", lambda x: attend(x) ** 2, (KERNEL,)),
    )
)  # fmt: skip
ROWS = (
    *NAMELESS,
    Row(  # so are the keys of that block
        "one block with another scale",
        ("queries and keys times factors",),
        one_tile_unscaled,
        (KERNEL,),
    ),
    Row(  # the same vector in every row of a head, once the rest is brought to size
        "mixed with uniform weights",
        ("output times a factor + bias of the values missing",),
        lambda x: attend(x, weigh=lambda s: 0.7 * softmax(s) + 0.3 / x.n_k),
        (KERNEL,),
        kind="control",
    ),
)
