"""Attention: q, k and v in; a Trace of every stage out.

S = Q Kᵀ  →  Z = S / √d_k  →  L = Z + M  →  A = softmax(L)  →  O = A V
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, overload

import numpy.typing as npt

from attncli.attention.heads import shape_text, split_heads
from attncli.attention.inputs import Inputs, from_keywords
from attncli.attention.run import Labels
from attncli.attention.shapes import Gradient, as_numbers, in_order
from attncli.convention import Convention, Fields, Layout, convention_of
from attncli.errors import ConventionError, ShapeError
from attncli.recorded import recorded
from attncli.trace import Trace


@overload
def attend(q: Inputs) -> Trace: ...


@overload
def attend(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    mask: npt.ArrayLike | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    sinks: npt.ArrayLike | None = None,
    q_gain: npt.ArrayLike | None = None,
    k_gain: npt.ArrayLike | None = None,
    d_output: Gradient | None = None,
    layout: Layout | None = None,
    query_labels: Labels = None,
    key_labels: Labels = None,
    rows: Sequence[int] | None = None,
    formulas: str | None = None,
    inputs: Mapping[str, npt.ArrayLike] = {},
    convention: Convention | None = None,
    **fields: Unpack[Fields],
) -> Trace: ...


@recorded
def attend(  # noqa: PLR0913 - what goes in, how, and which part of it
    q: npt.ArrayLike | Inputs,
    k: npt.ArrayLike | None = None,
    v: npt.ArrayLike | None = None,
    *,
    mask: npt.ArrayLike | None = None,
    past_k: npt.ArrayLike | None = None,
    past_v: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    sinks: npt.ArrayLike | None = None,
    q_gain: npt.ArrayLike | None = None,
    k_gain: npt.ArrayLike | None = None,
    d_output: Gradient | None = None,
    layout: Layout | None = None,
    query_labels: Labels = None,
    key_labels: Labels = None,
    rows: Sequence[int] | None = None,
    formulas: str | None = None,
    inputs: Mapping[str, npt.ArrayLike] = {},
    convention: Convention | None = None,
    **fields: Unpack[Fields],
) -> Trace:
    """Attention of queries to keys and values, with every stage.

    softmax(Q Kᵀ / √d_k) V, and whatever else the convention asks for.

    q            [n_q, d_k], [head, n_q, d_k] or [batch, head, n_q, d_k]; or Inputs of `load`, which
                 hold everything else
    k, v         [..., n_k, d_k], [..., n_k, d_v]; fewer heads than q are shared between them
    mask         True/False, or numbers that are added to the scores; broadcasts from the right.
                 One of nothing but 0 and 1 needs `mask_means`
    past_k/_v    a cache of earlier keys and values, put before k and v
    kv_len       valid keys per batch item; those past it are padding
    sinks        [head], a score of each head that joins its softmax and has no value
    q/k_gain     [d_k], the gains of the norm of queries, and of keys; they need `qk_norm`
    d_output     [..., n_q, d_v], the gradient of a loss with respect to the output, or "ones" (the
                 loss is its sum) or "random": adds the stages d_v, d_weights, … d_q, d_k
    layout       another order of the axes of q, k, v and the cache: "shd", "bshd", or "bsd" of one
                 head; the stages have their heads before their tokens all the same
    *_labels     names of the tokens
    rows         the stages of these queries alone, counted from 0; each keeps its place and name
    formulas     the stages by formulas of your own instead: a text of lines, a file, or the name
                 of a variant; `inputs` are further arrays that they read, by name
    fields       those of Convention, such as causal=True, beside `convention` or instead of it

    Arrays are whatever NumPy or DLPack takes, tensors on a device and of 8 and 16 bits included.
    Raises ShapeError where these do not fit together, ConventionError where a field contradicts
    `convention`; for `rows` where a row depends on the others: a softmax over queries, and
    dropout, which is drawn for all, and gradients of keys, which are sums over queries; and for
    `sinks` with a softmax over queries, and gains without `qk_norm`.
    Source: "Attention Is All You Need", section 3.2.1, equation 1.

    >>> trace = attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]])
    >>> list(trace)
    ['q', 'k', 'v', 'scores', 'scaled', 'weights', 'output']
    >>> trace["weights"].value.round(4)
    array([[0.6698, 0.3302]])
    >>> attend([[1, 0]], [[1, 1], [0, 1]], [[10, 0], [0, 10]], scale=1.0)["output"].value.round(4)
    array([[7.3106, 2.6894]])
    """
    arrays: dict[str, Any] = {"mask": mask, "past_k": past_k, "past_v": past_v, "kv_len": kv_len}
    arrays |= {"sinks": sinks, "q_gain": q_gain, "k_gain": k_gain}
    others: dict[str, Any] = {"d_output": d_output, "layout": layout, "rows": rows}
    others |= {"query_labels": query_labels, "key_labels": key_labels}
    if isinstance(q, Inputs):
        every = {
            "k": k,
            "v": v,
            **arrays,
            **others,
            "formulas": formulas,
            "convention": convention,
            **fields,
        }
        for name in (name for name, x in every.items() if x is not None):
            raise ConventionError(f"{name} is given beside inputs", f"give it to load: {name}=…")
        return q.trace()
    if k is None or v is None:
        raise TypeError("attend takes q, k and v, or the inputs of load")
    if formulas is not None:
        import attncli

        qkv = {"q": q, "k": k, "v": v}
        values: dict[str, Any] = {name: in_order(x, name, layout) for name, x in qkv.items()}
        values |= {n: x for n, x in {**arrays, **inputs}.items() if x is not None}
        if rows is not None:
            raise ConventionError("formulas are of all queries", "leave out rows")
        labels = {"query": query_labels, "key": key_labels or query_labels}
        convention = convention_of(convention, fields)
        return attncli.attend_by(
            formulas, values, convention=convention, labels=labels, d_output=d_output
        )
    if inputs:
        raise ConventionError("inputs are read by formulas alone", "give formulas=…")
    return from_keywords(q, k, v, **arrays, **others, convention=convention, **fields).trace()


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
    parts = in_heads(q, k, v, n_heads, n_kv_heads)
    return from_keywords(**parts, **more, merge="shown").trace()


def in_heads(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    n_heads: int,
    n_kv_heads: int | None = None,
) -> dict[str, Any]:
    """q, k and v by name, the last axis split into heads; raises as `attend_heads` does."""
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
    return parts
