"""Attention in one walk through tiles of the keys, with a running softmax, as fused kernels do.

    tile 1 ── m, l, acc ──> tile 2 ── m, l, acc ──> … ──> O = acc / l, lse = m + ln l

Source: Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018), algorithm 3; Dao
et al., "FlashAttention" (2022), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli import formulas
from attncli.arrays import Array, BoolArray
from attncli.attention import functional as f
from attncli.attention.parts import (
    Parts,
    attend_parts,
    by_sum,
    finite,
    of_empty_rows,
    of_heads,
    subscript,
)
from attncli.attention.plan import Sizes
from attncli.attention.run import Step
from attncli.convention import Convention, LseBase
from attncli.errors import ShapeError
from attncli.stages import LSE, OUTPUT, TILE, kind_of
from attncli.trace import Trace

# ---- the mathematics: one function, one stage; the axes are those after each signature


def running_max(
    x: Array,
    before: Array | None = None,
    sinks: Array | None = None,
    allowed: BoolArray | None = None,
) -> Array:  # [n_q, n], [n_q] -> [n_q]
    """m = max(m before, the largest score of the row): −∞ until there is one to attend to.

    With sinks, a score for each head, it starts with that of the head.
    """
    if allowed is not None and np.isnan(x).any():
        x = np.where(allowed, x, x.dtype.type(-np.inf))
    top = x.max(axis=-1)
    started = before if sinks is None else of_heads(sinks, top)
    return np.asarray(top if started is None else np.maximum(started, top))


def rescaling(m: Array, before: Array | None = None, sinks: Array | None = None) -> Array:
    """α = exp(m before − m): what everything summed so far is multiplied by, as m has grown.

    [n_q], [n_q] -> [n_q]. 0 where there was nothing to attend to before, never exp(−∞ − −∞).
    """
    started = of_heads(sinks, m) if before is None and sinks is not None else before
    return np.asarray(np.exp(started - finite(m)))


def powers(x: Array, m: Array, allowed: BoolArray | None = None) -> Array:
    """p = exp(X − m), 0 for what is not `allowed`: [n_q, n], [n_q] -> [n_q, n]."""
    p = np.asarray(np.exp(x - finite(m)[..., None]))
    return p if allowed is None else np.where(allowed, p, x.dtype.type(0))


def running_sum(
    p: Array, before: Array | None = None, alpha: Array | None = None
) -> Array:  # [n_q, n], [n_q], [n_q] -> [n_q]
    """l = α · (l before) + Σ p; where nothing was summed before, but a sink, l before is 1."""
    total = p.sum(axis=-1)
    if alpha is None:
        return np.asarray(total)
    return np.asarray((alpha if before is None else alpha * before) + total)


def running_values(
    p: Array,
    v: Array,
    before: Array | None = None,
    alpha: Array | None = None,
    allowed: BoolArray | None = None,
) -> Array:  # [n_q, n], [n, d_v], [n_q, d_v], [n_q] -> [n_q, d_v]
    """acc = α · (acc before) + p V: the output so far, but for the division by l."""
    own = f.weighted_sum(p, v, allowed)
    return own if before is None or alpha is None else np.asarray(alpha[..., None] * before + own)


def lse_of(m: Array, total: Array, base: LseBase = "e") -> Array:  # [n_q], [n_q] -> [n_q]
    """m + ln l, the total: however the keys are cut into tiles, the log-sum-exp of their scores."""
    lse = finite(m) + np.log(total)
    return np.asarray(lse / m.dtype.type(np.log(2)) if base == "2" else lse)


# ---- the plans


def tile_bounds(n_k: int, size: int) -> list[int]:
    """Where tiles of so many keys begin, and where the last ends.

    ShapeError for a size that is no whole number from 1.
    """
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ShapeError(f"tiles of {size!r} keys", "give a whole number of keys from 1")
    return [*range(0, n_k, int(size)), n_k]


def tile_steps(how: Convention, sizes: Sizes, bounds: Sequence[int]) -> list[Step]:
    """The steps of a walk through tiles of the keys, which end with the output and lse."""
    parts, dtype = Parts.of(how, sizes), how.dtype
    steps, last = list(parts.shared), len(bounds) - 1
    for number in range(1, last + 1):
        steps += parts.part(TILE, number, bounds)
        own = [step._replace(dtype=dtype) for step in _running(parts, number)]
        steps += [step._replace(symbol=step.formula.partition(" = ")[0]) for step in own]
    reads, sub = {"acc": f"{TILE}.{last}.acc", "total": f"{TILE}.{last}.l"}, subscript(last)
    params, filler = of_empty_rows(parts)
    formula = f"O = acc{sub} / l{sub}"
    steps.append(Step(OUTPUT, by_sum, reads | filler, params, formula, formulas.BY_SUM, dtype))
    log = {"e": f"lse = m{sub} + ln l{sub}", "2": f"lse = (m{sub} + ln l{sub}) / ln 2"}
    reads, base = {"m": f"{TILE}.{last}.m", "total": f"{TILE}.{last}.l"}, how.lse_base
    text = formulas.LSE_OF_PARTS[base]
    steps.append(Step(LSE, lse_of, reads, {"base": base}, log[base], text, dtype))
    return steps


def _running(parts: Parts, number: int) -> Iterator[Step]:
    """What a tile adds to the tiles before it: m, α, p, l, acc and what the output would be.

    In the first tile there is nothing before but a sink, if any, of which the sum is 1.
    """
    here, last = f"{TILE}.{number}.", f"{TILE}.{number - 1}."
    sub, old = subscript(number), subscript(number - 1)
    x, z = here + parts.x, kind_of(parts.x).symbol + sub
    softmax, is_first = parts.softmax.reads, number == 1
    visible = {"allowed": f"{here}allowed"} if "allowed" in softmax else {}
    sinks = {"sinks": softmax["sinks"]} if "sinks" in softmax else {}
    before = sinks if is_first else {"before": f"{last}m"}
    started = "" if not before else kind_of("sinks").symbol if is_first else f"m{old}"
    alpha = {"alpha": f"{here}alpha"} if before else {}

    top, start = f"max {z} over each row", next(iter(before), "")
    formula = f"m{sub} = " + (f"max({started}, {top})" if before else top)
    reads = {"x": x, **before, **visible}
    yield Step(f"{here}m", running_max, reads, {}, formula, formulas.RUNNING_MAX[start])
    if before:
        formula, reads = f"α{sub} = exp({started} − m{sub})", {"m": f"{here}m", **before}
        yield Step(f"{here}alpha", rescaling, reads, {}, formula, formulas.RESCALING[start])
    reads = {"x": x, "m": f"{here}m", **visible}
    yield Step(f"{here}p", powers, reads, {}, f"p{sub} = exp({z} − m{sub})", formulas.POWERS)
    grown = f"α{sub} + " if is_first else f"α{sub} l{old} + "
    reads = {"p": f"{here}p", **({} if is_first else {"before": f"{last}l"}), **alpha}
    formula = f"l{sub} = {grown if before else ''}Σ p{sub}"
    yield Step(f"{here}l", running_sum, reads, {}, formula, formulas.summed(reads))
    reads = {"p": f"{here}p", "v": f"{here}v", **visible}
    reads |= {} if is_first else {"before": f"{last}acc", **alpha}
    formula = f"acc{sub} = {'' if is_first else f'α{sub} acc{old} + '}p{sub} V{sub}"
    text = formulas.summed(reads, parts.output.expression)
    yield Step(f"{here}acc", running_values, reads, {}, formula, text)
    reads = {"acc": f"{here}acc", "total": f"{here}l"}
    yield Step(f"{here}so_far", by_sum, reads, {}, f"o{sub} = acc{sub} / l{sub}", formulas.BY_SUM)


# ---- q, k, v in; a trace out


def attend_tiles(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, *, tiles: int, **more: Any
) -> Trace:
    """Attention in one walk through tiles of so many keys, as fused kernels compute it.

    For each tile the trace `tile.1`, `tile.2`, … holds its scores, then what they make of all keys
    so far: the running maximum m, α = exp(m before − m), p = exp(X − m), the running sum l, the
    running values acc, and so_far = acc / l. `output` and `lse` follow.

    tiles  how many keys each tile has; the last may have fewer
    more   what `attend` takes, but gradients

    Raises as `attend` does, ConventionError for a softmax over queries and dropout too, and
    ShapeError where tiles is no whole number from 1.
    Source: Milakov & Gimelshein (2018), algorithm 3; Dao et al. (2022), algorithm 1.

    >>> trace = attend_tiles([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]], tiles=1)
    >>> trace["tile.2.m"].value.round(4), trace["tile.2.l"].value.round(4)
    (array([0.7071]), array([1.4931]))
    >>> trace["output"].value.round(4)
    array([[6.6976, 3.3024]])
    """
    where = "in tiles of one key" if tiles == 1 else f"in tiles of {tiles} keys"
    bounds_of = partial(tile_bounds, size=tiles)
    return attend_parts(TILE, (q, k, v), bounds_of, tile_steps, where, more)
