"""What the rows of a stage depend on: their own query, all queries, or everything.

    rows    scores … output, d_weights … d_scores, d_q    [batch, head, query, …]
    keys    d_k, d_v                                       [batch, kv_head, key, …]
    totals  d_sinks, d_bias, d_w_q, d_x …                  sums over batch items or heads as well

A few rows of the first kind represent all of them; the others are computed with all queries. Some
of the first kind are made of all heads: they have one head here, see `OF_ALL_HEADS`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import four_axes
from attncli.convention import SoftmaxOver
from attncli.stages import (
    DELTA,
    MAPS,
    MEAN_WEIGHTS,
    OUTPUT,
    PROJECTED,
    TILE,
    gradient_of,
    spec_of,
)

if TYPE_CHECKING:
    from attncli.tolerance.run import Subset

Span = Literal["rows", "keys", "totals"]

ROWS = ["batch", "head", "query"]

D_BIAS = gradient_of("given_mask")

OF_ALL_HEADS = (MEAN_WEIGHTS, PROJECTED)
"""The stages whose rows are made of all heads: [batch, query, …], compared with one head."""


def span_of(stage: str, over: SoftmaxOver = "keys") -> Span:
    """What the rows of a stage depend on; over: of the softmax.

    >>> span_of("scores"), span_of("d_q"), span_of("d_k"), span_of("d_sinks")
    ('rows', 'rows', 'keys', 'totals')
    """
    axes = spec_of(stage).axes.split()
    if stage in OF_ALL_HEADS:
        return "rows"
    if axes[1:2] == ["kv_head"]:
        return "keys"
    is_turned = over == "queries" and stage == DELTA
    return "rows" if axes[2:3] == ["query"] and stage != D_BIAS and not is_turned else "totals"


def rows_of(stage: str, at: Subset) -> Subset:
    """Where the rows of a stage are, of those of each head: a stage of all heads has one head."""
    return at._replace(head=np.zeros(1, np.intp)) if stage in OF_ALL_HEADS else at


def first_key(stage: str, tiles: int) -> int:
    """The first key of a stage, counted from 0: of a tile of so many keys its own.

    >>> first_key("tile.3.scores", 2), first_key("weights", 0)
    (4, 0)
    """
    kind, _, rest = stage.partition(".")
    return (int(rest.partition(".")[0]) - 1) * tiles if kind == TILE else 0


def is_whole(stages: Collection[str], over: SoftmaxOver) -> bool:
    """Whether some of these stages are computed with all queries."""
    return any(span_of(stage, over) != "rows" for stage in stages)


def axes_of(stage: str, over: SoftmaxOver = "keys") -> tuple[str, ...]:
    """The names of the four axes that a stage is compared with; "" is one of length 1.

    >>> axes_of("delta"), axes_of("d_sinks")
    (('batch', 'head', 'query', ''), ('', 'head', '', ''))
    """
    axes = spec_of(stage).axes.split()
    if stage in OF_ALL_HEADS:
        return axes[0], "", *axes[1:]
    if axes == ROWS:
        return ("batch", "head", "", "key") if over == "queries" else (*axes, "")
    if axes == ["head"]:
        return "", *axes, "", ""
    return (*[""] * (4 - len(axes)), *axes)


def in_four(stage: str, x: Array, over: SoftmaxOver = "keys") -> Array:
    """A stage with the four axes that it is compared with.

    >>> import numpy as np
    >>> in_four("d_sinks", np.zeros(3)).shape, in_four("delta", np.zeros((2, 5))).shape
    ((1, 3, 1, 1), (1, 2, 5, 1))
    """
    if spec_of(stage).axes.split() == ROWS:
        return four_axes(x[..., None, :] if over == "queries" else x[..., None])
    if spec_of(stage).axes == "head":
        return x.reshape(1, -1, 1, 1)
    if stage in OF_ALL_HEADS:
        return four_axes(x[..., None, :, :])
    return four_axes(x)


def source_of(name: str, planned: Collection[str]) -> str:
    """The stage of a plan that is the named one.

    One that the plan lacks, as it would do nothing, is the stage before it; its gradient, where it
    has none of its own, is that of the stage after it.

    >>> source_of("masked", ["scores", "scaled", "weights"])
    'scaled'
    >>> plan = ["scores", "scaled", "masked", "weights", "d_masked", "d_scores"]
    >>> source_of("d_scaled", plan), source_of("d_dropped", plan)
    ('d_masked', 'd_dropped')
    """
    if name in planned:
        return name
    part, dot, leaf = name.rpartition(".")
    if dot:  # of a tile: that of the steps of this tile
        steps = [x.removeprefix(part + dot) for x in planned if x.startswith(part + dot)]
        return part + dot + source_of(leaf, steps)
    stages = (*MAPS, OUTPUT)
    forward = next((x for x in stages if gradient_of(x) == name), name)
    if forward not in stages:
        return name
    before = stages[: stages.index(forward) + 1]
    there = next((x for x in reversed(before) if x in planned), name)
    if forward == name:
        return there
    order = [x for x in planned if x in stages]
    after = order[order.index(there) :] if there in order else []
    return next((gradient_of(x) for x in after if gradient_of(x) in planned), name)
