"""Attention over parts of the keys, each by itself, merged by their log-sum-exps.

    split 1 ── O, lse ──┐
    split 2 ── O, lse ──┴── exp(lseᵢ − lse) ──> O

Source: Dao et al., "Flash-Decoding" (2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.attention import LSE as LSE_FORMULA
from attncli.attention.attention import lse_words
from attncli.attention.inputs import Inputs, from_keywords
from attncli.attention.matrices import subscript
from attncli.attention.parts import (
    Parts,
    by_sum,
    finite,
    of_empty_rows,
    of_heads,
    trace_in_parts,
)
from attncli.attention.plan import Sizes
from attncli.attention.run import Step
from attncli.convention import Convention, EmptyRows, HeadOrder, LseBase
from attncli.errors import ShapeError, joined
from attncli.expression import written
from attncli.stages import LSE, OUTPUT, SPLIT, WEIGHTS, kind_of
from attncli.trace import Trace

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
        each = np.concatenate([each, of_heads(sinks, each[:1]) / unit])
    top = finite(each.max(axis=0))
    return np.asarray(top + np.log(np.exp((each - top) * unit).sum(axis=0)) / unit)


def merge_weights(
    lse: Array, base: LseBase = "e", **parts: Array
) -> Array:  # [n_q], [n_q] of each part -> [n_q, parts]
    """exp(lseᵢ − lse): the share of each part of the keys; 0 where it has none to attend to."""
    each = np.stack([*parts.values()], axis=-1)
    apart = each - finite(lse)[..., None]
    return np.asarray(np.exp2(apart) if base == "2" else np.exp(apart))


def merged(
    w: Array,
    lse: Array,
    v: Array | None = None,
    mask: Array | None = None,
    empty: EmptyRows = "zero",
    order: HeadOrder = "blocks",
    **outputs: Array,
) -> Array:  # [n_q, parts], [n_q], [n_q, d_v] of each part -> [n_q, d_v]
    """Σ wᵢ Oᵢ: the outputs of parts of the keys, each by its share; `empty` as in `by_sum`."""
    each = zip(np.moveaxis(w, -1, 0), outputs.values(), strict=True)
    acc = np.sum([share[..., None] * output for share, output in each], axis=0)
    total = np.where(np.isneginf(lse), lse.dtype.type(0), lse.dtype.type(1))
    return by_sum(acc, total, v, mask, empty, order)


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


def split_steps(how: Convention, sizes: Sizes, bounds: Sequence[int]) -> list[Step]:
    """The steps of attention over parts of the keys, each by itself, and of merging them."""
    parts, dtype = Parts.of(how, sizes), how.dtype
    steps, numbers = list(parts.shared), range(1, len(bounds))
    subs = [subscript(number) for number in numbers]
    for number, sub in zip(numbers, subs, strict=True):
        prefix = f"{SPLIT}.{number}."
        x, z = f"{prefix}{parts.x}", f"{kind_of(parts.x).symbol}{sub}"
        visible = {"mask": f"{prefix}mask"} if "mask" in parts.softmax.reads else {}
        steps += parts.part(SPLIT, number, bounds)
        of_lse = f"lse{sub} = {lse_words(z, how.lse_base)}"
        formula = f"A{sub} = softmax({z}) over its keys: each row sums to 1"
        of_output = {"a": f"{prefix}{WEIGHTS}", "v": f"{prefix}v", **visible}
        lse = written(parts.text(LSE_FORMULA[how.lse_base]), frozenset())
        output, params = f"O{sub} = A{sub} V{sub}", {"base": how.lse_base}
        own = [
            Step(WEIGHTS, PART_WEIGHTS, {"x": x}, {}, formula, symbol=f"A{sub}"),
            Step(LSE, lse, {"x": x}, params, of_lse, symbol=f"lse{sub}"),
            parts.output._replace(reads=of_output, formula=output, symbol=f"O{sub}"),
        ]
        steps += [step._replace(name=prefix + step.name, dtype=dtype) for step in own]
    each = {f"lse_{number}": f"{SPLIT}.{number}.{LSE}" for number in numbers}
    sinks = {name: read for name, read in parts.softmax.reads.items() if name == "sinks"}
    base = {"base": how.lse_base}
    log, power = {"e": ("ln", "exp({})"), "2": ("log₂", "2^({})")}[how.lse_base]
    terms = [power.format(f"lse{sub}") for sub in subs] + ["exp(s)"] * bool(sinks)
    formula = f"lse = {log} ({' + '.join(terms)})"
    texts = merging(len(subs), how.lse_base, has_sinks=bool(sinks))
    reads = each | sinks
    steps.append(Step(LSE, texts[0], reads, base, formula, dtype, function=merged_lse))
    shares = ", ".join(power.format(f"lse{sub} − lse") for sub in subs)
    reads, formula = {"lse": LSE, **each}, f"w = {shares}"
    w = Step("merge_weights", texts[1], reads, base, formula, dtype, function=merge_weights)
    steps.append(w)
    params, filler = of_empty_rows(parts)
    reads = {"w": "merge_weights", "lse": LSE}
    reads |= {f"output_{number}": f"{SPLIT}.{number}.{OUTPUT}" for number in numbers} | filler
    formula = "O = " + " + ".join(f"w{sub} O{sub}" for sub in subs)
    steps.append(Step(OUTPUT, texts[2], reads, params, formula, dtype, function=merged))
    return steps


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
    where = f"split after key{'s' * (len(split) > 1)} {joined([*map(str, split)])}"
    return trace_in_parts(SPLIT, inputs, bounds, split_steps, where)
