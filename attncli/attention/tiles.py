"""Attention in one walk through tiles of the keys, with a running softmax, as fused kernels do.

    tile 1 ── m, l, acc ──> tile 2 ── m, l, acc ──> … ──> O = acc / l, lse = m + ln l

Source: Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018), algorithm 3; Dao
et al., "FlashAttention" (2022), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention.inputs import Inputs, from_keywords
from attncli.attention.matrices import subscript
from attncli.attention.parts import (
    Parts,
    by_sum,
    of_empty_rows,
    trace_in_parts,
)
from attncli.attention.plan import Sizes
from attncli.attention.run import Step
from attncli.convention import Convention
from attncli.errors import ShapeError
from attncli.stages import LSE, OUTPUT, TILE, kind_of
from attncli.trace import Trace

# ---- the formulas: `before` is what the tile before has

_IS_EMPTY = "if m[b,h,i] != -inf else 0  # no key so far"
RUNNING_MAX = {
    "": "m[b,h,i] = max[j](x[b,h,i,j])",
    "sinks": "m[b,h,i] = max(sinks[h], max[j](x[b,h,i,j]))",
    "before": "m[b,h,i] = max(before[b,h,i], max[j](x[b,h,i,j]))",
}
RESCALING = {
    "sinks": f"α[b,h,i] = exp(sinks[h] - m[b,h,i]) {_IS_EMPTY}",
    "before": f"α[b,h,i] = exp(before[b,h,i] - m[b,h,i]) {_IS_EMPTY}",
}
POWERS = (
    "p[b,h,i,j] = exp(x[b,h,i,j] - m[b,h,i]) if x[b,h,i,j] != -inf else 0  # masked: exp(-inf) = 0"
)
BY_SUM = (
    "o[b,h,i,e] = acc[b,h,i,e] / total[b,h,i] if total[b,h,i] != 0 else 0  # no key to attend to"
)
_LSE = "lse[b,h,i] = {} if total[b,h,i] != 0 else -inf  # every key is masked: ln 0"
LSE_OF_PARTS = {
    "e": _LSE.format("m[b,h,i] + ln(total[b,h,i])"),
    "2": _LSE.format("(m[b,h,i] + ln(total[b,h,i])) / ln(2)"),
}


def summed(reads: Collection[str], output: str = "") -> str:
    """What is summed so far, times α, and what the tile adds: l, or with the formula of O acc.

    >>> summed(["p", "alpha", "before"])
    'l[b,h,i] = alpha[b,h,i] * before[b,h,i] + sum[j](p[b,h,i,j])'
    """
    rows = output.partition("[")[2].partition(",e]")[0] or "b,h,i"
    before = f"before[{rows},e]" if output else f"before[{rows}]"
    terms = [f"alpha[{rows}]"] * ("alpha" in reads) + [before] * ("before" in reads)
    carried = " * ".join(terms)
    text = output.replace("a[", "p[") or "l[b,h,i] = sum[j](p[b,h,i,j])"
    return text.replace(" = ", f" = {carried} + ", 1) if carried else text


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
    steps.append(
        Step(OUTPUT, parts.text(BY_SUM), reads | filler, params, formula, dtype, function=by_sum)
    )
    log = {"e": f"lse = m{sub} + ln l{sub}", "2": f"lse = (m{sub} + ln l{sub}) / ln 2"}
    reads, base = {"m": f"{TILE}.{last}.m", "total": f"{TILE}.{last}.l"}, how.lse_base
    text = parts.text(LSE_OF_PARTS[base])
    steps.append(Step(LSE, text, reads, {"base": base}, log[base], dtype))
    return steps


def _running(parts: Parts, number: int) -> Iterator[Step]:
    """What a tile adds to the tiles before it: m, α, p, l, acc and what the output would be.

    In the first tile there is nothing before but a sink, if any, of which the sum is 1.
    """
    here, last = f"{TILE}.{number}.", f"{TILE}.{number - 1}."
    sub, old = subscript(number), subscript(number - 1)
    x, z = here + parts.x, kind_of(parts.x).symbol + sub
    softmax, is_first = parts.softmax.reads, number == 1
    visible = {"mask": f"{here}mask"} if "mask" in softmax else {}
    sinks = {"sinks": softmax["sinks"]} if "sinks" in softmax else {}
    before = sinks if is_first else {"before": f"{last}m"}
    started = "" if not before else kind_of("sinks").symbol if is_first else f"m{old}"
    alpha = {"alpha": f"{here}alpha"} if before else {}

    top, start = f"max {z} over each row", next(iter(before), "")
    formula = f"m{sub} = " + (f"max({started}, {top})" if before else top)
    yield Step(f"{here}m", parts.text(RUNNING_MAX[start]), {"x": x, **before}, {}, formula)
    if before:
        formula, reads = f"α{sub} = exp({started} − m{sub})", {"m": f"{here}m", **before}
        yield Step(f"{here}alpha", parts.text(RESCALING[start]), reads, {}, formula)
    reads = {"x": x, "m": f"{here}m"}
    yield Step(f"{here}p", parts.text(POWERS), reads, {}, f"p{sub} = exp({z} − m{sub})")
    grown = f"α{sub} + " if is_first else f"α{sub} l{old} + "
    reads = {"p": f"{here}p", **({} if is_first else {"before": f"{last}l"}), **alpha}
    formula = f"l{sub} = {grown if before else ''}Σ p{sub}"
    yield Step(f"{here}l", parts.text(summed(reads)), reads, {}, formula)
    reads = {"p": f"{here}p", "v": f"{here}v", **visible}
    reads |= {} if is_first else {"before": f"{last}acc", **alpha}
    formula = f"acc{sub} = {'' if is_first else f'α{sub} acc{old} + '}p{sub} V{sub}"
    text, sizes = summed(reads, parts.output.text), parts.output.sizes
    yield Step(f"{here}acc", text, reads, {}, formula, sizes=sizes)
    reads = {"acc": f"{here}acc", "total": f"{here}l"}
    yield Step(f"{here}so_far", parts.text(BY_SUM), reads, {}, f"o{sub} = acc{sub} / l{sub}")


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
    return trace_in_tiles(from_keywords(q, k, v, **more), tiles)


def trace_in_tiles(inputs: Inputs, tiles: int) -> Trace:
    """The trace of these inputs in tiles; raises as `attend_tiles` does."""
    where = "in tiles of one key" if tiles == 1 else f"in tiles of {tiles} keys"
    bounds = tile_bounds(inputs.sizes.scores[-1], tiles)
    return trace_in_parts(TILE, inputs, bounds, tile_steps, where)
