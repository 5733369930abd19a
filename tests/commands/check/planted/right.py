"""Right attentions that look different, and those with less precision inside than their numbers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from tests.commands.check.planted import parts as p
from tests.commands.check.planted import worlds as w
from tests.commands.check.planted.rows import Outcome, Row
from tests.commands.check.planted.worlds import RIGHT_WORLDS
from tests.commands.check.planted.wrong import online, splits

Make = Callable[[p.Inputs], p.Array]


def masking(x: p.Inputs, s: p.Array) -> p.Array:
    return np.where(x.hidden, x.wide(-np.inf), s).astype(x.wide)


def parts(x: p.Inputs) -> tuple[p.Array, p.Array, p.Array, p.Array]:
    """q, k, v with their positions, a row for each query head; scaled scores, masked."""
    q, k, v = p.placed(x, "q"), p.head_of(x, p.placed(x, "k")), p.head_of(x, p.placed(x, "v"))
    return q, k, v, masking(x, p.scores(q, k) * x.wide(x.scale))


# ---- the order and rounding of sums


def in_type(x: p.Inputs, dtype: Any, *, least: Any = None) -> p.Array:
    """Everything in another type; sums in a wider one."""
    wide = least or dtype
    q, k, v = (y.astype(dtype).astype(wide) for y in parts(x)[:3])
    s = np.where(x.hidden, wide(-np.inf), p.scores(q, k) * wide(x.scale))
    return np.asarray((p.softmax(s) @ v).astype(x.wide))


def weighing(weigh: Callable[[p.Inputs, p.Array], p.Array]) -> Make:
    return lambda x: p.attend(x, weigh=lambda s: weigh(x, s))


def rounding(x: p.Inputs, s: p.Array) -> p.Array:
    """Scores and weights are rounded."""
    axis = -2 if x.convention.get("softmax_over") == "queries" else -1
    return x.rounded(p.softmax(x.rounded(s), x.sinks, axis=axis))


# ---- less precision inside


def tf32(y: p.Array) -> p.Array:
    """Ten bits of the fraction, the nearest, ties to even."""
    bits = y.astype(np.float32).view(np.uint32)
    nearest = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return np.asarray((nearest & np.uint32(0xFFFFE000)).view(np.float32))


def products(x: p.Inputs, cut: Callable[[p.Array], p.Array]) -> p.Array:
    q, k, v = map(cut, parts(x)[:3])
    return np.asarray(cut(p.softmax(masking(x, p.scores(q, k) * x.wide(x.scale)))) @ v)


def sums_in_type(x: p.Inputs) -> p.Array:
    """Every sum is rounded to the number type after each term."""
    (q, k, v, s), out = parts(x), np.zeros((x.b, x.h, x.n_q, x.d_v), x.wide)
    s = np.zeros_like(s)
    for d in range(x.d_k):
        s = x.rounded(s + q[..., d : d + 1] * k[..., None, :, d])
    weights = x.rounded(p.softmax(masking(x, x.rounded(s * x.wide(x.scale)))))
    for j in range(x.n_k):
        out = x.rounded(out + weights[..., j : j + 1] * v[:, :, None, j])
    return out


def right(what: str, make: Make, worlds: tuple[p.World, ...] = RIGHT_WORLDS, **more: Any) -> Row:
    return Row(what, (), make, worlds, kind="right", gives="matched", **more)


def inside(what: str, make: Make, *types: str, gives: Outcome = "inside") -> Row:
    worlds = (w.ODD, w.KERNEL, w.CAUSAL)
    return Row(what, (), make, worlds, kind="inside", gives=gives, types=types)


EVERY = tuple(x for x in w.ALL if x not in RIGHT_WORLDS)
HARD = tuple(x for x in RIGHT_WORLDS if not (x.mask or x.lengths or x.convention))
SMALL = (w.PRIMES, w.ODD, w.MASKED, w.PADDED, w.CAUSAL, w.GROUPED)
ROPE = (w.ROPE, w.ROPE_PAIRS, w.ROPE_CACHED)
RIGHT = (
    right("every option, scores and weights rounded", weighing(rounding), EVERY),
    right("fused", p.attend),
    right("every stage rounded", weighing(rounding)),
    right("scale on k, rounded", lambda x: p.attend(x, k=x.rounded(p.placed(x, "k") * x.wide(x.scale)), scale=1.0)),
    right("long double inside", lambda x: in_type(x, np.longdouble), (*SMALL, w.LONG)),
    right("weights in the type", weighing(lambda x, s: x.rounded(p.softmax(s)))),
    right("mask: −1e4", lambda x: p.attend(x, value=-1e4)),
    right("masked after softmax, renormalised", lambda x: p.attend(x, hide=p.OPEN, weigh=lambda s: p.normalised(p.softmax(s) * ~x.hidden)), SMALL),
    right("no maximum taken off", weighing(lambda x, s: p.normalised(np.exp(s))), SMALL),
    right("by the log-sum-exp", weighing(lambda x, s: np.exp(s - (np.log(p.exponentials(s).sum(-1, keepdims=True)) + s.max(-1, keepdims=True))))),
    right("output in float32", lambda x: p.attend(x).astype(np.float32), (*SMALL, w.KERNEL), types=p.HALF, as_is=True),
    *(right(f"flash, blocks of {n}", partial(online, block=n)) for n in (1, 17, 32)),
    *(right(f"flash, 16-bit weights, blocks of {n}", partial(online, block=n, half=True)) for n in (16, 128)),
    right("flash, last block first", lambda x: online(x, 32, step=-1)),
    *(right(f"{n} splits", partial(splits, n=n)) for n in (2, 7)),
    right("weights", p.weights_of, HARD, stage="weights"),
    right("scores, a channel at a time", lambda x: np.sum([x.q[..., d : d + 1] * p.head_of(x, x.k)[..., None, :, d] for d in range(x.d_k)], axis=0), HARD, stage="scores"),
    right("positions rounded to the type", lambda x: p.attend(x, q=x.rounded(p.placed(x, "q")), k=x.rounded(p.placed(x, "k")), v=x.rounded(p.placed(x, "v"))), (*ROPE, w.SINUS, w.ARTICLE)),
    right("rotary positions from 7", lambda x: p.attend(x, q=p.PLACED[str(x.world.positions)](x.q, np.arange(x.n_q) + x.n_past + 7), k=p.PLACED[str(x.world.positions)](x.k, np.arange(x.n_k) + 7)), ROPE),
    right("no bias of the keys", lambda x: p.attend(x, k=x.k - w.shift("k", x.k.shape).astype(x.wide)), (w.K_BIAS,)),
)  # fmt: skip
INSIDE = (
    inside("TF32 products", lambda x: products(x, tf32), "float32"),
    inside("bfloat16 products", lambda x: products(x, lambda y: y.astype(ml_dtypes.bfloat16).astype(y.dtype)), "float32", "float16"),
    inside("float32, widened", lambda x: in_type(x, np.float32), "float64", gives="matched"),
    inside("float16 weights", weighing(lambda x, s: p.softmax(s).astype(np.float16).astype(x.wide)), "float64", "float32"),
    inside("bfloat16 weights", weighing(lambda x, s: p.softmax(s).astype(ml_dtypes.bfloat16).astype(x.wide)), "float64", "float32"),
    inside("bfloat16 inputs", lambda x: in_type(x, ml_dtypes.bfloat16, least=np.float32), "float32", "float16"),
    inside("float16 inputs", lambda x: in_type(x, np.float16, least=np.float32), "float64", "float32"),
    inside("sums kept in the type", sums_in_type, "float16", "bfloat16"),
)  # fmt: skip
