"""Attention in one walk through tiles of the keys, with a running softmax, as fused kernels do.

    tile 1 ── m, l, acc ──> tile 2 ── m, l, acc ──> … ──> O = acc / l, lse = m + ln l

Source: Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018), algorithm 3; Dao
et al., "FlashAttention" (2022), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.attention.inputs import Inputs, from_keywords
from attncli.attention.parts import Parts, by_sum, trace_in_parts
from attncli.attention.plan import Sizes
from attncli.attention.run import Step
from attncli.convention import Convention
from attncli.errors import ShapeError
from attncli.stages import LSE, OUTPUT, TILE
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
    parts = Parts(TILE, how, sizes, bounds)
    for number in parts.numbers:
        _add_running(parts, number)
    last = f"{TILE}.{len(bounds) - 1}."
    reads, (params, filler) = {"acc": f"{last}acc", "total": f"{last}l"}, parts.of_empty_rows()
    text = parts.text(BY_SUM)
    parts.add(OUTPUT, text, "{acc} / {total}", reads | filler, function=by_sum, **params)
    words = {"e": "{m} + ln {total}", "2": "({m} + ln {total}) / ln 2"}[how.lse_base]
    reads, text = {"m": f"{last}m", "total": f"{last}l"}, parts.text(LSE_OF_PARTS[how.lse_base])
    parts.add(LSE, text, words, reads, base=how.lse_base)
    return parts.steps


def _add_running(parts: Parts, number: int) -> None:
    """What a tile adds to the tiles before it: m, α, p, l, acc and what the output would be.

    In the first tile there is nothing before but a sink, if any, of which the sum is 1.
    """
    here, visible = parts.part(number)
    last, is_first = f"{TILE}.{number - 1}.", number == 1
    x, m, p = {"x": here + parts.x}, {"m": f"{here}m"}, {"p": f"{here}p"}
    before = parts.sinks if is_first else {"before": f"{last}m"}
    start = next(iter(before), "")
    top = "max {x} over each row"
    top = f"max({{{start}}}, {top})" if start else top
    parts.add(f"{here}m", parts.text(RUNNING_MAX[start]), top, x | before)
    alpha = {"alpha": f"{here}alpha"} if start else {}
    if start:
        words = f"exp({{{start}}} − {{m}})"
        parts.add(f"{here}alpha", parts.text(RESCALING[start]), words, m | before)
    parts.add(f"{here}p", parts.text(POWERS), "exp({x} − {m})", x | m)
    carried = {"": "", "sinks": "{alpha} + ", "before": "{alpha} {before} + "}[start]
    reads = {**p, **({} if is_first else {"before": f"{last}l"}), **alpha}
    parts.add(f"{here}l", parts.text(summed(reads)), f"{carried}Σ {{p}}", reads)
    reads = {**p, "v": f"{here}v", **visible}
    reads |= {} if is_first else {"before": f"{last}acc", **alpha}
    words = "{p} {v}" if is_first else f"{carried}{{p}} {{v}}"
    parts.add(f"{here}acc", summed(reads, parts.output.text), words, reads, parts.output.sizes)
    reads = {"acc": f"{here}acc", "total": f"{here}l"}
    parts.add(f"{here}so_far", parts.text(BY_SUM), "{acc} / {total}", reads)


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
