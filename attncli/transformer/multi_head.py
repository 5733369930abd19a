"""Attention of x: projected by W_q, W_k and W_v, split into heads, merged and projected by W_o.

x ── x W_q, x W_k, x W_v ── q, k, v ── attend ── output ── concat ── projected
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Unpack

import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.inputs import inputs_of
from attncli.attention.run import Labels
from attncli.attention.shapes import Gradient, as_numbers, token_rows
from attncli.convention import Convention, Fields, convention_of
from attncli.recorded import recorded
from attncli.trace import Trace
from attncli.transformer.published import published


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

    def arrays(self) -> dict[str, Array]:
        """Those that are given, by name."""
        return {name: as_numbers(x, name) for name, x in vars(self).items() if x is not None}


@recorded
def multi_head_attention(  # noqa: PLR0913 - what goes in, and how
    x: npt.ArrayLike,
    weights: Projections | Mapping[str, npt.ArrayLike],
    *,
    n_heads: int | None = None,
    n_kv_heads: int | None = None,
    context: npt.ArrayLike | None = None,
    mask: npt.ArrayLike | None = None,
    kv_len: npt.ArrayLike | None = None,
    d_output: Gradient | None = None,
    query_labels: Labels = None,
    key_labels: Labels = None,
    convention: Convention | None = None,
    **fields: Unpack[Fields],
) -> Trace:
    """MultiHead(x, c) = [head₁ … head_h] W_o, each head the attention of x W_q to c W_k and c W_v.

    x [..., n_q, d_model]; context c [..., n_k, d_context], x itself where it is left out
    (self-attention). The trace holds x, the weights, `attend`'s stages, `concat` and `projected`.
    `weights` by name may be a state dict, or others as they are published: Wq, in_proj_weight,
    query/kernel …; those of several heads have their n_heads, which else is 1.
    The `fields` are those of Convention, as `attend` takes them. `d_output`, the gradient of a loss
    with respect to the last stage, adds those of x, the weights and every stage between.

    Raises ShapeError where a width does not fit its weights, InputError where one is missing.
    Source: "Attention Is All You Need", section 3.2.2.

    >>> import numpy as np
    >>> eye = np.eye(2)
    >>> trace = multi_head_attention(eye, Projections(eye, eye, eye, 2 * eye), n_heads=1)
    >>> bool((trace["projected"].value == 2 * trace["concat"].value).all())
    True
    """
    convention = convention_of(convention, fields)
    rows = {"x": token_rows(x)} | ({} if context is None else {"x_kv": token_rows(context)})
    if not isinstance(weights, Projections):
        shapes = [array.shape for array in rows.values()]
        read = published(weights, shapes, n_heads=n_heads, n_kv_heads=n_kv_heads)
        weights = Projections(**read.arrays)
        n_heads, n_kv_heads = read.n_heads, read.n_kv_heads
        if read.columns:
            rows = {name: array.T for name, array in rows.items()}
    arrays = {**rows, **weights.arrays(), "mask": mask, "kv_len": kv_len, "d_output": d_output}
    return inputs_of(
        arrays,
        convention,
        n_heads=n_heads or 1,
        n_kv_heads=n_kv_heads,
        merge="shown",
        means=fields.get("mask_means"),
        labels={"query": query_labels, "key": key_labels},
        title=f"Multi-head {'cross' if context is not None else 'self'}-attention",
    ).trace()
