"""Attention part by part over the keys: what tiles and splits share.

Either gives what one softmax over all keys gives, and no part ever sees the keys of another. The
steps of a part are those of the plan, for its keys alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from attncli.arrays import Array, Like
from attncli.attention.heads import key_head_of
from attncli.attention.inputs import Inputs
from attncli.attention.plan import Sizes, plan
from attncli.attention.run import Heading, Step, Values, run, trace_of
from attncli.convention import Convention, EmptyRows, HeadOrder
from attncli.errors import ConventionError
from attncli.formula.matrices import subscript, worded
from attncli.formula.parser import without_heads
from attncli.stages import (
    CONCAT,
    GIVEN_GRADIENT,
    HIDDEN,
    LSE,
    MAPS,
    OUTPUT,
    PROJECTED,
    WEIGHTS,
    spec_of,
)
from attncli.trace import Trace

StepsOf = Callable[[Convention, Sizes, Sequence[int]], list[Step]]

KEYS_OF = "K[b,g,j,d] = x[b,g,j + start,d]"
VALUES_OF = "V[b,g,j,e] = x[b,g,j + start,e]"
COLUMNS_OF = "M[b,h,i,j] = x[b,h,i,j + start]"


def keys_of(x: Array, start: int, stop: int) -> Array:  # [n_k, d] -> [n, d]
    """Keys, or values, start … stop − 1."""
    return x[..., start:stop, :]


def like_keys(x: Like, start: int, stop: int) -> Like:
    """The shape and the type of that, which is a part of x."""
    *lead, _, d = x.shape
    return Like((*lead, stop - start, d), x.dtype, 0)


def columns_of(x: Array, start: int, stop: int) -> Array:  # [n_q, n_k] -> [n_q, n]
    """The same of a mask; one that is alike for all keys stays as it is."""
    return x if x.shape[-1] == 1 else x[..., start:stop]


def like_columns(x: Like, start: int, stop: int) -> Like:
    """The shape and the type of that, which is a part of x."""
    *lead, n_k = x.shape
    return Like((*lead, min(n_k, stop - start)), x.dtype, 0)


def by_sum(  # [n_q, d_v], [n_q] -> [n_q, d_v]
    acc: Array, total: Array, v: Array | None = None, mask: Array | None = None,
    empty: EmptyRows = "zero", order: HeadOrder = "blocks",
) -> Array:  # fmt: skip
    """acc / l, the total; in a row without a key, as `empty` says, 0, NaN, or the mean of all v.

    Where a key is not masked, and its score −∞, it is 0 / 0.
    """
    has_keys = False if mask is None else (~np.isneginf(mask)).any(axis=-1, keepdims=True)
    is_empty = (total == 0)[..., None] & ~np.asarray(has_keys)
    output = np.asarray(acc / np.where(is_empty, 1, total[..., None]))
    if empty == "nan":
        return np.where(is_empty, acc.dtype.type(np.nan), output)
    if v is None:
        return output
    if v.ndim > 2:  # of the key head of each query head
        v = np.take(v, key_head_of(acc.shape[-3], v.shape[-3], order), axis=-3)
    return np.where(is_empty, v.mean(axis=-2, keepdims=True), output)


def finite(m: Array) -> Array:
    """m, 0 where it is −∞: there is nothing yet to attend to, and −∞ − −∞ would be NaN."""
    return np.where(np.isneginf(m), m.dtype.type(0), m)


def check_parts(convention: Convention) -> None:
    """ConventionError for a softmax over queries and for dropout."""
    if convention.softmax_over == "queries":
        message = "a softmax over queries needs whole columns: its keys cannot be cut into parts"
        raise ConventionError(message, "leave out softmax_over")
    if convention.dropout:
        message = "dropout is drawn for all weights: keys cannot be cut into parts"
        raise ConventionError(message, "leave out dropout")


class Parts:
    """The steps of attention over parts of the keys, in the making: first those that all share.

    bounds   where the parts begin, and where the last ends
    x        what the softmax reads
    softmax  the step of one softmax over all keys, and the step of its output
    """

    def __init__(
        self, kind: str, convention: Convention, sizes: Sizes, bounds: Sequence[int]
    ) -> None:
        self.kind, self.convention, self.bounds = kind, convention, bounds
        whole = {step.name: step for step in plan(convention, sizes)}
        self.has_heads, self.has_mask = len(sizes.scores) > 2, "mask" in whole
        self.softmax, self.output = whole[WEIGHTS], whole[OUTPUT]
        self.x = self.softmax.reads["x"]
        self.sinks = {n: read for n, read in self.softmax.reads.items() if n == "sinks"}
        after = (WEIGHTS, LSE, OUTPUT, CONCAT, PROJECTED)
        before = [step for step in whole.values() if step.name not in after]
        self.own = [step for step in before if step.name in MAPS]
        self.steps = [step for step in before if step not in self.own]
        self.symbols = dict[str, str]()

    @property
    def numbers(self) -> range:
        """Those of the parts, from 1."""
        return range(1, len(self.bounds))

    def text(self, formula: str) -> str:
        """A formula of these parts, which have heads or have none."""
        return formula if self.has_heads else without_heads(formula)

    def add(
        self,
        name: str,
        text: str,
        words: str,
        reads: Mapping[str, str],
        sizes: Mapping[str, int] = {},
        function: Callable[..., Array] | None = None,
        like: Callable[..., Like] | None = None,
        **params: Any,
    ) -> None:
        """Adds a step by its dotted name; its letter has the number of its part.

        words  its formula in words, in which {names} are the letters of what it reads
        """
        _, _, number = name.rpartition(".")[0].rpartition(".")
        symbols = {
            x: self.symbols.get(stage) or spec_of(stage).symbol for x, stage in reads.items()
        }
        symbol = spec_of(name).symbol + (subscript(int(number)) if number else "")
        self.symbols[name] = symbol
        formula = f"{symbol} = {worded(words, symbols)}"
        more: Any = {"symbol": symbol if number else "", "sizes": sizes, "function": function}
        more["like"] = like
        self.steps.append(Step(name, text, reads, params, formula, self.convention.dtype, **more))

    def part(self, number: int) -> tuple[str, dict[str, str]]:
        """Adds the steps of a part up to what its softmax reads.

        -> what their names begin with, and {"mask": …} where the output reads that of the part
        """
        prefix, sub = f"{self.kind}.{number}.", subscript(number)
        at = {"start": self.bounds[number - 1], "stop": self.bounds[number]}
        k = next(step.reads["k"] for step in self.own if "k" in step.reads)
        for name, x, text in (("k", k, KEYS_OF), ("v", "v", VALUES_OF)):
            symbol = self.symbols[prefix + name] = f"{spec_of(x).symbol}{sub}"
            more: Any = {"symbol": symbol, "function": keys_of, "like": like_keys}
            self.steps.append(Step(prefix + name, self.text(text), {"x": x}, at, **more))
        if self.has_mask:
            text, reads = self.text(COLUMNS_OF), {"x": "mask"}
            self.steps.append(
                Step(f"{prefix}mask", text, reads, at, function=columns_of, like=like_columns)
            )
        letters = {spec_of(step.name).symbol for step in self.own} | {"K"}
        letter = re.compile(rf"(?<![\w])({'|'.join(sorted(letters))})(?![\w])|(?<!\w)K(?=ᵀ)")
        names = {k: f"{prefix}k"} | {n: prefix + n for n in ("mask", *(x.name for x in self.own))}
        for step in self.own:
            reads = {x: names.get(stage, stage) for x, stage in step.reads.items()}
            symbol = self.symbols[prefix + step.name] = spec_of(step.name).symbol + sub
            formula = letter.sub(lambda hit: hit[0] + sub, step.formula)
            more = {
                "name": prefix + step.name,
                "reads": reads,
                "formula": formula,
                "symbol": symbol,
            }
            self.steps.append(step._replace(**more))
        return prefix, {"mask": f"{prefix}mask"} if "mask" in self.softmax.reads else {}

    def of_empty_rows(self) -> tuple[dict[str, Any], dict[str, str]]:
        """What becomes of rows with nothing to attend to: parameters and reads of the last step."""
        if "mask" not in self.softmax.reads:  # no key is hidden: a sum of 0 is of scores of −∞
            return {"empty": "nan"}, {}
        empty, reads = self.softmax.params["empty"], {"mask": "mask"}
        if empty != "uniform":
            return {"empty": empty}, reads
        return {"empty": empty, "order": self.convention.head_order}, reads | {"v": "v"}


def trace_in_parts(
    kind: str, inputs: Inputs, bounds: Sequence[int], steps_of: StepsOf, division: str
) -> Trace:
    """The trace of attention in parts that begin at these keys; where: how they are cut, in words.

    Raises ConventionError for what keys in parts do not have.
    """
    if GIVEN_GRADIENT in inputs.originals:
        message = "gradients are those of one softmax over all keys"
        raise ConventionError(message, f"leave out the gradient, or the {kind}s")
    convention, sizes = inputs.convention, inputs.sizes
    check_parts(convention)
    after = [step for step in inputs.steps if step.name in inputs.last]
    steps, n_k = [*steps_of(convention, sizes, bounds), *after], sizes.scores[-1]
    kinds = {step.name: spec_of(step.name) for step in steps}
    visible_names = [name for name, kind in kinds.items() if kind.role not in HIDDEN]
    values = inputs.ordered(run(steps, inputs.arrays, visible_names))
    if "mask" in values:  # as `attend` shows it, of every head, query and key
        values["mask"] = np.broadcast_to(values["mask"], (*values["q"].shape[:-1], n_k))
    heading = inputs.heading
    note, title = _beside_whole(inputs, values), f"{heading.title}, {division}"
    keys = [*(heading.labels["key"] or (f"k{at + 1}" for at in range(n_k)))]
    labels = {**heading.labels, "key": keys}
    headings = {
        "": Heading(title, convention, labels, (note,)),
        kind: Heading(title, convention, labels),
    }
    for number, (start, stop) in enumerate(pairwise(bounds), 1):
        names = keys[start:stop]
        span = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
        title = f"{kind.capitalize()} {number}: {span}"
        headings[f"{kind}.{number}"] = Heading(title, convention, {**labels, "key": names})
    return trace_of(steps, values, headings)


def _beside_whole(inputs: Inputs, values: Values) -> str:
    """How far the output is from that of one softmax over all keys."""
    whole = inputs.run([OUTPUT])[OUTPUT]
    with np.errstate(invalid="ignore"):
        apart = np.abs(values[OUTPUT].astype(np.float64) - whole)
    is_same = (whole == values[OUTPUT]) | (np.isnan(whole) & np.isnan(values[OUTPUT]))
    largest = float(np.where(is_same, 0, apart).max(initial=0.0))
    return f"same result as in one piece (difference ≤ {largest:.2g})"
