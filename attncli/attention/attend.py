"""Attention: q, k and v in; a Trace of every stage out.

S = Q Kᵀ  →  Z = S / √d_k  →  L = Z + M  →  A = softmax(L)  →  O = A V
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.heads import shape_text, split_heads
from attncli.attention.kernels import round_to, widen
from attncli.attention.masks import meant_mask
from attncli.attention.numbers import as_numbers
from attncli.attention.plan import Sizes, merged, plan
from attncli.attention.run import Step, Values, run
from attncli.attention.shapes import (
    Gradient,
    check_rows,
    given_gradient,
    in_order,
    restrictions,
    with_past,
)
from attncli.convention import Convention, Fields, Layout, MaskMeans, convention_of
from attncli.errors import ConventionError, ShapeError, StageError
from attncli.expression import only_guards, parse
from attncli.stages import GIVEN_GRADIENT, HIDDEN, MAPS, OUTPUT, gradient_of, kind_of
from attncli.trace import Stage, Trace

Labels = Sequence[str] | None


def attend(  # noqa: PLR0913 - what goes in, how, and which part of it
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    sinks: npt.ArrayLike | None = None,
    d_output: Gradient | None = None,
    layout: Layout | None = None,
    query_labels: Labels = None,
    key_labels: Labels = None,
    rows: Sequence[int] | None = None,
    convention: Convention | None = None,
    **fields: Unpack[Fields],
) -> Trace:
    """Attention of queries to keys and values, with every stage.

    softmax(Q Kᵀ / √d_k) V, and whatever else the convention asks for.

    q            [n_q, d_k], [head, n_q, d_k] or [batch, head, n_q, d_k]
    k, v         [..., n_k, d_k], [..., n_k, d_v]; fewer heads than q are shared between them
    mask         True/False, or numbers that are added to the scores; broadcasts from the right.
                 One of nothing but 0 and 1 needs `mask_means`
    past_k/_v    a cache of earlier keys and values, put before k and v
    kv_len       valid keys per batch item; those past it are padding
    sinks        [head], a score of each head that joins its softmax and has no value
    d_output     [..., n_q, d_v], the gradient of a loss with respect to the output, or "ones" (the
                 loss is its sum) or "random": adds the stages d_v, d_weights, … d_q, d_k
    layout       another order of the axes of q, k, v and the cache: "shd", "bshd", or "bsd" of one
                 head; the stages have their heads before their tokens all the same
    *_labels     names of the tokens
    rows         the stages of these queries alone, counted from 0; each keeps its place and name
    fields       those of Convention, such as causal=True, beside `convention` or instead of it

    Arrays are whatever NumPy or DLPack takes, tensors on a device and of 8 and 16 bits included.
    Raises ShapeError where these do not fit together, ConventionError where a field contradicts
    `convention`; for `rows` where a row depends on the others: a softmax over queries, and
    dropout, which is drawn for all, and gradients of keys, which are sums over queries; and for
    `sinks` with a softmax over queries.
    Source: "Attention Is All You Need", section 3.2.1, equation 1.

    >>> trace = attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]])
    >>> list(trace)
    ['q', 'k', 'v', 'scores', 'scaled', 'weights', 'output']
    >>> trace["weights"].value.round(4)
    array([[0.6698, 0.3302]])
    >>> attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]], scale=1.0)["output"].value.round(4)
    array([[7.3106, 2.6894]])
    """
    how = convention_of(convention, fields)
    more = {"past_k": past_k, "past_v": past_v, "kv_len": kv_len, "sinks": sinks}
    more["d_output"] = d_output
    means = fields.get("mask_means")
    inputs, sizes = prepared(q, k, v, how, mask=mask, means=means, rows=rows, layout=layout, **more)
    steps = plan(how, sizes)
    n_q = sizes.scores[-2]
    if rows is not None:
        if query_labels and len(query_labels) != n_q:
            raise ShapeError(
                f"there are {n_q} queries but {len(query_labels)} query labels",
                "give one for each query, not for the rows alone",
            )
        query_labels = [query_labels[row] if query_labels else f"q{row + 1}" for row in rows]
    block = Block(title_of(sizes, how), how, {"query": query_labels, "key": key_labels})
    return trace_of(steps, run(steps, inputs), {"": block}, inputs=inputs)


def prepared(  # noqa: PLR0913 - those of `attend`
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    how: Convention,
    *,
    mask: npt.ArrayLike | None = None,
    means: MaskMeans | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    sinks: npt.ArrayLike | None = None,
    d_output: Gradient | None = None,
    rows: Sequence[int] | None = None,
    layout: Layout | None = None,
) -> tuple[dict[str, Array], Sizes]:
    """The inputs of `attend` by name, checked, in the number type, and their sizes.

    means  what 0 and 1 in a mask mean, where that is not said by the convention

    Raises ShapeError and ConventionError as `attend` does.
    """
    whole, n_past = with_past(q, k, v, past_k, past_v, layout)
    scores = (*whole["q"].shape[:-1], whole["k"].shape[-2])
    n_kv_heads = whole["k"].shape[-3] if whole["k"].ndim > 2 else 1
    sizes = Sizes(scores, n_kv_heads, whole["q"].shape[-1], n_past)
    inputs = {name: entered(x, how) for name, x in whole.items()}
    inputs |= restrictions(sizes, mask, kv_len)
    if "given_mask" in inputs:
        inputs["given_mask"] = meant_mask(inputs["given_mask"], means, how)
    if sinks is not None:
        inputs["sinks"] = entered(as_numbers(sinks, "sinks"), how)
        if inputs["sinks"].shape != (sizes.n_heads,):
            shape = shape_text(inputs["sinks"]) or "one number"
            raise ShapeError(f"sinks ({shape}) need one score per head: {sizes.n_heads}")
        if how.softmax_over == "queries":
            raise ConventionError("sinks join a softmax over keys", "leave out softmax_over")
    if d_output is not None:
        named = isinstance(d_output, str)
        d = d_output if named else in_order(d_output, gradient_of(OUTPUT), layout)
        of_output = (*scores[:-1], whole["v"].shape[-1])
        inputs[GIVEN_GRADIENT] = entered(given_gradient(d, of_output, OUTPUT, how.seed), how)
    if rows is not None:
        inputs["rows"] = check_rows(rows, scores[-2], how)
        if d_output is not None:
            what = "gradients of keys and values are sums over all queries, not over some rows"
            raise ConventionError(what, "leave out rows")
        inputs["q"] = inputs["q"][..., inputs["rows"], :]
    sizes = sizes.with_mask(inputs.get("given_mask"), how)
    return inputs, sizes._replace(given=frozenset(inputs))


def entered(x: Array, how: Convention) -> Array:
    """An input in the number type, and never memory of the caller's that may change."""
    value = x.astype(np.float64, copy=False)
    if how.dtype != "float64":
        value = round_to(widen(x, how.dtype), how.dtype)
    is_fixed = x.base is None and not x.flags.writeable  # a view's memory can change by its base
    return value.copy() if np.may_share_memory(value, x) and not is_fixed else value


def attend_heads(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    n_heads: int,
    n_kv_heads: int | None = None,
    **more: Any,
) -> Trace:
    """Attention in heads: the last axis split into them, and their outputs side by side again.

    q [..., n_q, h·d_k], k [..., n_k, h_kv·d_k], v [..., n_k, h_kv·d_v], with or without a batch
    axis. The trace ends with `concat` [..., n_q, h·d_v]. Further keywords are those of `attend`.

    Raises ShapeError where a width does not divide into the heads.
    Source: "Attention Is All You Need", section 3.2.2.

    >>> x = [[1, 0, 0, 0], [0, 1, 0, 0]]
    >>> trace = attend_heads(x, x, x, n_heads=2)
    >>> trace["weights"].value.shape, trace["concat"].value.shape
    ((2, 2, 2), (2, 4))
    """
    shared = n_heads if n_kv_heads is None else n_kv_heads
    parts = {}
    for name, x, heads in (("q", q, n_heads), ("k", k, shared), ("v", v, shared)):
        array = as_numbers(x, name)
        if array.ndim not in {2, 3}:
            raise ShapeError(
                f"{name} ({shape_text(array)}) has {array.ndim} dimensions",
                "to split it into heads it must be (tokens, width) or (batch, tokens, width)",
            )
        parts[name] = split_heads(array, heads)
    return with_concat(attend(parts["q"], parts["k"], parts["v"], **more))


def with_concat(trace: Trace) -> Trace:
    """The trace of an attention in heads, with their outputs side by side after them.

    Raises ShapeError where the trace has no heads.
    """
    output = trace["output"]
    if "head" not in output.axes:
        raise ShapeError("there are no heads to put side by side", "split q, k and v first")
    beside = traced(merged(output.value.shape[-3]), Block("", None, output.labels), output)
    at = [stage.name for stage in trace.steps].index(OUTPUT) + 1
    return replace(trace, steps=(*trace.steps[:at], beside["concat"], *trace.steps[at:]))


# ---- from values to a trace


class Block(NamedTuple):
    """Title, convention, token names and notes of a block of stages."""

    title: str
    how: Convention | None = None
    labels: Mapping[str, Labels] = {}
    notes: tuple[str, ...] = ()


def trace_of(
    steps: Sequence[Step],
    values: Values,
    blocks: Mapping[str, Block],
    stages: Mapping[str, Stage] = {},
    inputs: Values | None = None,
) -> Trace:
    """The stages of these values, without the inner ones, nested by the dots in their names.

    blocks  by dotted name, "" for the whole; one that is not named is as the one around it
    stages  some that exist already, by dotted name; they come first
    inputs  those of the steps, where the trace can be computed `again`
    """
    computed = {step.name: step for step in steps}
    kinds = {name: (computed[name].kind or name) if name in computed else name for name in values}
    shown = [name for name, kind in kinds.items() if kind_of(kind).role not in HIDDEN]
    asked = [name for name in computed if kind_of(name).asked and name not in values]

    def nested(prefix: str, names: Collection[str], block: Block) -> Trace:
        """The trace of the stages of these names, which all begin with the prefix."""
        inside: dict[str, list[str]] = {}
        for name in names:
            first = name.removeprefix(prefix).partition(".")[0]
            inside.setdefault(prefix + first, []).append(name)
        parts: list[Stage | Trace] = []
        for name, members in inside.items():
            if name in stages:
                parts.append(stages[name])
            elif members == [name]:
                parts.append(_stage(name, computed, values, block))
            else:
                parts.append(nested(f"{name}.", members, blocks.get(name, block)))
        whole = prefix.removesuffix(".")
        names = [name for name in asked if name.rpartition(".")[0] == whole]
        later = {name.removeprefix(prefix): partial(make, name, block) for name in names}
        last = whole.rpartition(".")[2]
        return Trace(block.title, tuple(parts), block.how, last, block.notes, later)

    def make(name: str, block: Block) -> Stage:
        """A stage that is computed only when it is asked for."""
        return _stage(name, computed, run(steps, values, [name]), block)

    def again(arrays: Values) -> Trace:
        """The trace of other numbers for some of its stages."""
        new = with_stages(steps, inputs or {}, arrays)
        first = {name: replace(x, value=new.get(name, x.value)) for name, x in stages.items()}
        results = run(steps, new)
        return trace_of(steps, {name: results[name] for name in values}, blocks, first, new)

    trace = nested("", dict.fromkeys([*stages, *shown]), blocks[""])
    return trace if inputs is None else replace(trace, compute=again)


def with_stages(steps: Sequence[Step], inputs: Values, arrays: Values) -> dict[str, Array]:
    """The inputs of a plan with other arrays for some, or for some steps.

    Raises StageError for an array that is neither.
    """
    for name in arrays.keys() - inputs.keys() - {step.name for step in steps}:
        raise StageError(f"nothing is computed from {name}", f"the inputs are {', '.join(inputs)}")
    return {**inputs, **arrays}


def traced(steps: Sequence[Step], block: Block, *given: Stage) -> Trace:
    """The trace of a plan computed from these stages, which come first."""
    stages = {stage.name: stage for stage in given}
    inputs = {name: stage.value for name, stage in stages.items()}
    return trace_of(steps, run(steps, inputs), {"": block}, stages, inputs)


def _stage(name: str, computed: Mapping[str, Step], values: Values, block: Block) -> Stage:
    step, value = computed.get(name), values[name]
    kind = kind_of((step and step.kind) or name)
    own = name.rpartition(".")[2]
    prefix = name.removesuffix(own)
    shapes = (values[prefix + map_].shape for map_ in MAPS if prefix + map_ in values)
    whole = next(shapes, value.shape)
    if kind.role == "input":  # the mask, which has the axes of the scores
        value = np.broadcast_to(value, whole)
    axes = kind.axes_of(value.ndim)
    labels = {axis: tuple(names) for axis, names in block.labels.items() if names}
    if kind.axes == kind_of(MAPS[0]).axes:  # the gradient of what was broadcast
        sizes = zip(axes, value.shape, whole[-len(axes) :], strict=False)
        labels |= {axis: ("all",) for axis, size, of in sizes if size < of}
    if step is None:
        return Stage(own, kind.symbol, "", value, axes, labels)
    reads = {}
    for parameter, read in _shown_reads(step):
        place, dot, last = read.rpartition(".")
        reads[parameter] = last if place + dot == prefix else read
    plain = {n: x for n, x in step.params.items() if isinstance(x, bool | int | float | str)}
    symbol = step.symbol or kind.symbol or step.formula.partition(" = ")[0]
    text = step.expression
    if "[" in text.partition(" = ")[0]:  # under the letter that the stage has here
        text = f"{symbol}{text[text.index('[') :]}"
    more = (step.note, reads, plain, text, step.sizes)
    return Stage(own, symbol, step.formula, value, axes, labels, *more)


def _shown_reads(step: Step) -> Iterator[tuple[str, str]]:
    """What a step reads, but for what only says which terms count."""
    guards = only_guards(parse(step.expression).body) if step.expression else frozenset()
    for parameter, name in step.reads.items():
        if kind_of(name).role != "aside" and parameter not in guards:
            yield parameter, name


def title_of(sizes: Sizes, how: Convention) -> str:
    """What an attention is called: by its scale, and by whether heads share keys."""
    scaled = "Dot-product attention" if how.scale == "none" else "Scaled dot-product attention"
    if sizes.n_kv_heads != sizes.n_heads:
        kind = "Multi-query" if sizes.n_kv_heads == 1 else "Grouped-query"
        return f"{kind} {scaled[0].lower()}{scaled[1:]}"
    return scaled
