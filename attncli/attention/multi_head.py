"""Multi-head attention: project, split, attend, merge, project.

    x ── W_q, W_k, W_v ── split ── attend (every head) ── concat ── W_o ── projected

Fewer key heads than query heads are shared between them: grouped-query attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy.typing as npt

from attncli.attention.dot_product import attend
from attncli.attention.heads import merge_heads, shape_text, split_heads
from attncli.attention.precision import round_to, widen
from attncli.attention.shapes import as_numbers
from attncli.convention import Convention
from attncli.errors import ShapeError
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Projections:
    """The weights of multi-head attention, each applied from the right: x W + b.

    w_q [d_model, h·d_k], w_k [d_context, h_kv·d_k], w_v [d_context, h_kv·d_v], w_o [h·d_v, d_out]
    or None for no output projection; b_* [width] or None.
    Source: "Attention Is All You Need", section 3.2.2 (which has no biases).
    """

    w_q: Array
    w_k: Array
    w_v: Array
    w_o: Array | None = None
    b_q: Array | None = None
    b_k: Array | None = None
    b_v: Array | None = None
    b_o: Array | None = None


def attend_heads(
    q: npt.ArrayLike,
    k: npt.ArrayLike,
    v: npt.ArrayLike,
    *,
    n_heads: int,
    n_kv_heads: int | None = None,
    **how: Any,
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
    return with_concat(attend(parts["q"], parts["k"], parts["v"], **how))


def with_concat(trace: Trace) -> Trace:
    """The trace of an attention in heads, with their outputs side by side as its last stage.

    Raises ShapeError where the trace has no heads.
    """
    output = trace["output"]
    if "head" not in output.axes:
        raise ShapeError("there are no heads to put side by side", "split q, k and v first")
    axes = tuple(axis for axis in output.axes[:-1] if axis != "head")
    concat = Stage(
        "concat",
        "H",
        "H = [O₁ … O_h], the heads side by side",
        merge_heads(output.value),
        (*axes, "d_model"),
        output.labels,
    )
    return replace(trace, steps=(*trace.steps, concat))


def multi_head_attention(
    x: npt.ArrayLike,
    weights: Projections,
    *,
    n_heads: int,
    n_kv_heads: int | None = None,
    context: npt.ArrayLike | None = None,
    convention: Convention | None = None,
    symbol: str = "X",
    **how: Any,
) -> Trace:
    """MultiHead(x, c) = [head₁ … head_h] W_o, each head the attention of x W_q to c W_k and c W_v.

    x [..., n_q, d_model]; context c [..., n_k, d_context], x itself where it is left out
    (self-attention). The trace holds `attend`'s stages, then `concat` and `projected`. `symbol` is
    what the formulas call x.

    Raises ShapeError where a width does not fit its weights.
    Source: "Attention Is All You Need", section 3.2.2.

    >>> import numpy as np
    >>> eye = np.eye(2)
    >>> trace = multi_head_attention(eye, Projections(eye, eye, eye, 2 * eye), n_heads=1)
    >>> bool((trace["projected"].value == 2 * trace["concat"].value).all())
    True
    """
    rule = convention or Convention()
    source = x if context is None else context
    given: Mapping[str, tuple[npt.ArrayLike, Array, Array | None]] = {
        "q": (x, weights.w_q, weights.b_q),
        "k": (source, weights.w_k, weights.b_k),
        "v": (source, weights.w_v, weights.b_v),
    }
    qkv = {name: project(as_numbers(a, "x"), w, b, rule) for name, (a, w, b) in given.items()}
    trace = attend_heads(**qkv, n_heads=n_heads, n_kv_heads=n_kv_heads, convention=rule, **how)
    trace = _with_formulas(trace, weights, symbol, symbol if context is None else "C")
    if weights.w_o is None:
        return trace
    concat = trace["concat"]
    value = project(concat.value, weights.w_o, weights.b_o, rule)
    formula = "H W_o" if weights.b_o is None else "H W_o + b_o"
    projected = Stage("projected", "Y", f"Y = {formula}", value, concat.axes, concat.labels)
    return replace(trace, steps=(*trace.steps, projected))


def _with_formulas(trace: Trace, weights: Projections, x: str, c: str) -> Trace:
    """The trace with what q, k and v were projected from in their formulas."""
    formulas = {
        name: f"{name.upper()} = {of} W_{name}" + ("" if bias is None else f" + b_{name}")
        for name, of, bias in (("q", x, weights.b_q), ("k", c, weights.b_k), ("v", c, weights.b_v))
    }
    steps = tuple(
        replace(step, formula=formulas[step.name])
        if isinstance(step, Stage) and step.name in formulas
        else step
        for step in trace.steps
    )
    return replace(trace, steps=steps)


def project(x: Array, w: Array, b: Array | None, how: Convention) -> Array:
    """x W + b in the convention's number type: [..., n, d_in], [d_in, d_out] -> [..., n, d_out].

    Raises ShapeError where the widths differ.
    """
    if w.ndim != 2 or x.shape[-1] != w.shape[0]:
        raise ShapeError(
            f"x ({shape_text(x)}) cannot be multiplied by weights of {shape_text(w)}",
            f"the weights need {x.shape[-1]} rows",
        )
    product = widen(x, how.dtype) @ widen(w, how.dtype)
    if b is not None:
        product = product + widen(b, how.dtype)
    return round_to(product, how.dtype)
