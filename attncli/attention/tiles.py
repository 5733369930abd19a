"""Attention over parts of the keys: tiles in one walk, as fused kernels do, or splits to be merged.

    tile 1 ── m, l, acc ──> tile 2 ── m, l, acc ──> … ──> O = acc / l, lse = m + ln l

    split 1 ── O, lse ──┐
    split 2 ── O, lse ──┴── exp(lseᵢ − lse) ──> O

Source: Milakov & Gimelshein, "Online normalizer calculation for softmax" (2018), algorithm 3; Dao
et al., "FlashAttention" (2022), algorithm 1; Dao et al., "Flash-Decoding" (2023).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array, Like
from attncli.attention.formulas import LSE as LSE_FORMULA
from attncli.attention.formulas import lse_formula
from attncli.attention.inputs import Inputs, from_keywords
from attncli.attention.parts import Parts, by_sum, finite, trace_in_parts
from attncli.attention.plan import Sizes
from attncli.attention.run import Step
from attncli.convention import Convention, LseBase
from attncli.errors import ShapeError, joined
from attncli.formula.matrices import subscript
from attncli.formula.parser import written
from attncli.recorded import recorded
from attncli.stages import LSE, OUTPUT, SPLIT, TILE, WEIGHTS
from attncli.trace import Trace

# ---- formulas of tiles: `before` is what the tile before has

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


# ---- formulas of splits

PART_WEIGHTS = "A[b,h,i,j] = softmax[j](x[b,h,i,j] where x[b,h,i,j] != -inf)"
MOST_PARTS = 32  # whose merging is written by cells: longer formulas nobody reads


def merging(n_parts: int, base: str, *, has_sinks: bool) -> tuple[str, str, str]:
    """The formulas by cells of the merged lse, the weights of parts and the output; "" of many."""
    if n_parts > MOST_PARTS:
        return "", "", ""
    numbers = range(1, n_parts + 1)
    log, power = {"e": ("ln", "exp"), "2": ("log2", "exp2")}[base]
    terms = [f"{power}(lse_{n}[b,h,i])" for n in numbers] + ["exp(sinks[h])"] * has_sinks
    is_empty = " and ".join(f"lse_{n}[b,h,i] == -inf" for n in numbers)
    lse = f"{log}({' + '.join(terms)})"
    if not has_sinks:
        lse = f"-inf if {is_empty} else {lse}  # every key is masked: ln 0"
    cases = [
        f"0 if c == {n - 1} and lse_{n}[b,h,i] == -inf else"
        f" {power}(lse_{n}[b,h,i] - lse[b,h,i]) if c == {n - 1} else"
        for n in numbers
    ]
    outputs = [f"w[b,h,i,{n - 1}] * output_{n}[b,h,i,e]" for n in numbers]
    return (
        f"lse[b,h,i] = {lse}",
        f"w[b,h,i,c] = {' '.join(cases)} 0  # no key of this part",
        f"O[b,h,i,e] = {' + '.join(outputs)}",
    )


def merged_lse(sinks: Array | None = None, base: LseBase = "e", **parts: Array) -> Array:
    """ln Σ exp(lseᵢ): the log-sum-exp [n_q] of all keys from those [n_q] of parts of them."""
    each = np.stack([*parts.values()])
    unit = each.dtype.type(np.log(2) if base == "2" else 1)
    if sinks is not None:
        of_rows = sinks[:, None] if each.ndim > 2 else sinks
        each = np.concatenate([each, np.broadcast_to(of_rows, each[:1].shape) / unit])
    top = finite(each.max(axis=0))
    return np.asarray(top + np.log(np.exp((each - top) * unit).sum(axis=0)) / unit)


def merge_weights(
    lse: Array, base: LseBase = "e", **parts: Array
) -> Array:  # [n_q], [n_q] of each part -> [n_q, parts]
    """exp(lseᵢ − lse): the weight of each part of the keys; 0 where it has none to attend to."""
    each = np.stack([*parts.values()], axis=-1)
    apart = each - finite(lse)[..., None]
    return np.asarray(np.exp2(apart) if base == "2" else np.exp(apart))


def merged(  # [n_q, parts], [n_q], [n_q, d_v] of each part -> [n_q, d_v]
    w: Array, lse: Array, **more: Any
) -> Array:
    """Σ wᵢ Oᵢ: the outputs of parts of the keys, each by its weight; the others are of `by_sum`."""
    outputs = [more.pop(name) for name in [*more] if name.startswith("output_")]
    each = zip(np.moveaxis(w, -1, 0), outputs, strict=True)
    acc = np.sum([share[..., None] * output for share, output in each], axis=0)
    return by_sum(acc, np.where(np.isneginf(lse), lse.dtype.type(0), lse.dtype.type(1)), **more)


def like_part(**parts: Like | Any) -> Like:
    """The shape and the type of what is merged: those of each part."""
    each: list[Like] = [
        x for name, x in parts.items() if name.startswith((LSE, OUTPUT)) and name != LSE
    ]
    return each[0]._replace(takes=sum(x.nbytes for x in each) + each[0].nbytes)


def like_weights(lse: Like, base: LseBase = "e", **parts: Like) -> Like:
    """The shape and the type of the weights of parts."""
    return lse._replace(shape=(*lse.shape, len(parts)))


# ---- the plans


def tile_bounds(n_k: int, size: int) -> list[int]:
    """Where tiles of so many keys begin, and where the last ends.

    ShapeError for a size that is no whole number from 1.
    """
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
        raise ShapeError(f"tiles of {size!r} keys", "give a whole number of keys from 1")
    return [*range(0, n_k, int(size)), n_k]


def tile_steps(convention: Convention, sizes: Sizes, bounds: Sequence[int]) -> list[Step]:
    """The steps of a walk through tiles of the keys, which end with the output and lse."""
    parts = Parts(TILE, convention, sizes, bounds)
    for number in parts.numbers:
        _add_running(parts, number)
    last = f"{TILE}.{len(bounds) - 1}."
    reads, (params, filler) = {"acc": f"{last}acc", "total": f"{last}l"}, parts.of_empty_rows()
    text = parts.text(BY_SUM)
    parts.add(OUTPUT, text, "{acc} / {total}", reads | filler, function=by_sum, **params)
    words = {"e": "{m} + ln {total}", "2": "({m} + ln {total}) / ln 2"}[convention.lse_base]
    reads = {"m": f"{last}m", "total": f"{last}l"}
    text = parts.text(LSE_OF_PARTS[convention.lse_base])
    parts.add(LSE, text, words, reads, base=convention.lse_base)
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


def split_bounds(n_k: int, places: Sequence[int]) -> list[int]:
    """Where the parts that keys are cut into at these places begin, and where the last ends.

    ShapeError where they do not ascend from 1 to n_k − 1.
    """
    bounds = [0, *places, n_k]
    if not places or any(a >= b for a, b in pairwise(bounds)):
        text = ",".join(map(str, places)) or "nothing"
        hint = f"give ascending numbers of keys from 1 to {n_k - 1}, after which to cut"
        raise ShapeError(
            f"{n_k} keys cannot be split at {text}",
            hint if n_k > 1 else "there must be 2 keys at least",
        )
    return [int(at) for at in bounds]


def split_steps(convention: Convention, sizes: Sizes, bounds: Sequence[int]) -> list[Step]:
    """The steps of attention over parts of the keys, each by itself, and of merging them."""
    parts, base = Parts(SPLIT, convention, sizes, bounds), convention.lse_base
    of_lse = written(parts.text(LSE_FORMULA[base]), frozenset())
    for number in parts.numbers:
        here, visible = parts.part(number)
        x, words = {"x": here + parts.x}, "softmax({x}) over its keys: each row sums to 1"
        parts.add(here + WEIGHTS, PART_WEIGHTS, words, x)
        parts.add(here + LSE, of_lse, lse_formula("{x}", base), x, base=base)
        reads, output = {"a": here + WEIGHTS, "v": f"{here}v", **visible}, parts.output
        parts.add(here + OUTPUT, output.text, "{a} {v}", reads, output.sizes)
    each = {f"lse_{number}": f"{SPLIT}.{number}.{LSE}" for number in parts.numbers}
    outputs = {f"output_{number}": f"{SPLIT}.{number}.{OUTPUT}" for number in parts.numbers}
    texts = merging(len(each), base, has_sinks=bool(parts.sinks))
    log, power = {"e": ("ln", "exp({})"), "2": ("log₂", "2^({})")}[base]
    terms = [power.format(f"{{{name}}}") for name in each] + ["exp({sinks})"] * bool(parts.sinks)
    words, reads = f"{log} ({' + '.join(terms)})", each | parts.sinks
    parts.add(LSE, texts[0], words, reads, function=merged_lse, like=like_part, base=base)
    words = ", ".join(power.format(f"{{{name}}} − {{lse}}") for name in each)
    name, reads = "merge_weights", {"lse": LSE, **each}
    parts.add(name, texts[1], words, reads, function=merge_weights, like=like_weights, base=base)
    params, filler = parts.of_empty_rows()
    words = " + ".join(f"w{subscript(n)} {{output_{n}}}" for n in parts.numbers)
    reads = {"w": name, "lse": LSE, **outputs, **filler}
    parts.add(OUTPUT, texts[2], words, reads, function=merged, like=like_part, **params)
    return parts.steps


# ---- q, k, v in; a trace out


@recorded
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
    division = "in tiles of one key" if tiles == 1 else f"in tiles of {tiles} keys"
    bounds = tile_bounds(inputs.sizes.scores[-1], tiles)
    return trace_in_parts(TILE, inputs, bounds, tile_steps, division)


@recorded
def attend_split(
    q: npt.ArrayLike, k: npt.ArrayLike, v: npt.ArrayLike, *, split: Sequence[int], **more: Any
) -> Trace:
    """Attention over parts of the keys, each by itself, merged by their log-sum-exps.

    The traces `split.1`, `split.2`, … hold the stages of each part, its output and lse; then come
    `lse` of all, `merge_weights`, exp(lseᵢ − lse), and `output`, the sum of the outputs times them.

    split  after how many keys to cut: [2, 5] is keys 1 and 2, 3 to 5, and the rest
    more   what `attend` takes, but gradients

    Raises as `attend_tiles` does, ShapeError where the places do not ascend within the keys.
    Source: Dao et al., "Flash-Decoding" (2023).

    >>> trace = attend_split([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]], split=[1])
    >>> trace["merge_weights"].value.round(4), trace["output"].value.round(4)
    (array([[0.6698, 0.3302]]), array([[6.6976, 3.3024]]))
    """
    return trace_in_splits(from_keywords(q, k, v, **more), split)


def trace_in_splits(inputs: Inputs, split: Sequence[int]) -> Trace:
    """The trace of these inputs in parts; raises as `attend_split` does."""
    bounds = split_bounds(inputs.sizes.scores[-1], split)
    division = f"split after key{'s' * (len(split) > 1)} {joined([*map(str, split)])}"
    return trace_in_parts(SPLIT, inputs, bounds, split_steps, division)
