"""Bugs of the gradients of sinks and of a mask of numbers: what is added beside the scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import gradients as g
from attncli.attention.run import Step
from attncli.check.bugs.backward.edits import (
    D_BIAS,
    D_SCORES,
    D_SINKS,
    Given,
    Plan,
    edited,
    instead,
    named,
    replaced,
    row,
    times,
)
from attncli.check.bugs.bug import Bug
from attncli.check.setup import Edit


def _sinks(change: Any) -> Edit:
    return instead(g.d_of_sinks, change)


def _sink_share(given: Given) -> Array:
    """exp(s − lse) of each query, [..., h, n_q]."""
    x, sinks = given["x"], given["sinks"].reshape(-1, 1, 1)
    top = np.maximum(x.max(axis=-1, keepdims=True), sinks)
    power = np.exp(sinks - top)
    return np.asarray((power / (np.exp(x - top).sum(axis=-1, keepdims=True) + power))[..., 0])


def _per_head(found: Array) -> Array:
    heads = found.reshape(-1, *found.shape[-2:])
    return np.asarray(heads.sum(axis=(0, 2)))


def _sinks_of(how: str) -> Any:
    """The gradient of sinks of one batch item alone, or the mean of them."""

    def compute(given: Given) -> Array:
        found = -(_sink_share(given) * given["delta"])
        items = found.reshape(-1, *found.shape[-2:]).sum(axis=2)
        which = {"last": items[-1], "first": items[0], "mean": items.mean(axis=0)}
        return np.asarray(which[how])

    return compute


def _bias_from(name: str) -> Edit:
    def new(step: Step, plan: Plan) -> Step | None:
        at = [s.name for s in plan]
        if name not in at:
            return None
        return step._replace(reads={**step.reads, "d": name})

    def edit(plan: list[Step]) -> list[Step]:
        own = named(plan, D_BIAS)
        source = named(plan, name)
        if own is None or source is None or own.reads["d"] == name:
            return plan
        changed = new(own, plan)
        rest = [step for step in plan if step is not own]
        at = rest.index(source) + 1
        return plan if changed is None else [*rest[:at], changed, *rest[at:]]

    return edit


def _sum_lost(axis: int, how: str) -> Edit:
    """The gradient of a mask of numbers, of one batch item or head alone, or the mean of them."""

    def new(step: Step, _: Plan) -> Step:
        def compute(d: Array, mask: Array, given: Array) -> Array:
            if d.ndim < 4 or d.shape[axis] == 1:
                return g.d_of_mask(d, mask, given)
            n, shape = d.shape[axis], np.broadcast_shapes(mask.shape, d.shape)
            if given.ndim == 4 and given.shape[axis] > 1:
                return g.d_of_mask(d, mask, given)
            if how == "mean":
                return np.asarray(g.d_of_mask(d, mask, given) / n)
            part = np.take(d, [-1 if how == "last" else 0], axis=axis)
            mask = np.take(np.broadcast_to(mask, shape), [0], axis=axis)
            return g.d_of_mask(part, mask, given)

        return step._replace(compute=compute)

    return replaced(D_BIAS, new)


SINKS: tuple[Bug, ...] = (
    row(
        "sink's gradient without its share",
        edited(("", [_sinks(lambda given: -_per_head(given["delta"]))])),
        "the gradient of a sink is −Σ exp(s − lse) δ: each query counts by the sink's share in it",
        "flash-linear-attention#831",
        touches="gradients sinks",
    ),
    row(
        "sink's gradient with the wrong sign",
        edited(("", [_sinks(lambda given: _per_head(_sink_share(given) * given["delta"]))])),
        "a larger sink takes weight from the keys: its gradient is −Σ exp(s − lse) δ",
        "flash-linear-attention#831",
        touches="gradients sinks",
    ),
    row(
        "sink's gradient in base 2",
        edited(
            ("log₂ e times too large", [times(D_SINKS, 1 / math.log(2))]),
            ("ln 2 times", [times(D_SINKS, math.log(2))]),
        ),
        "the factor of exp2 stays in the gradient of the sink",
        "aiter#1576",
        touches="gradients sinks",
    ),
    row(
        "sink's gradient not summed over the batch",
        edited(
            *(
                (f"the {how} batch item", [_sinks(_sinks_of(how))], (0,))
                for how in ("last", "first", "mean")
            )
        ),
        "every batch item adds to the gradient of a sink",
        "aiter#1576",
        touches="gradients sinks",
    ),
)


BIAS: tuple[Bug, ...] = (
    row(
        "gradient of the mask taken after the scale",
        edited(("", [_bias_from(D_SCORES)])),
        "numbers of the mask are added after the scale, so their gradient has none",
        "ffpa-attn#301",
    ),
    row(
        "gradient of the mask not summed over what it was broadcast over",
        edited(
            *(
                (f"the {how} {words}", [_sum_lost(axis, how)], (0, 1))
                for axis, words in ((0, "batch item"), (1, "head"))
                for how in ("last", "first", "mean")
            ),
        ),
        "every batch item and head that a number was added to adds to its gradient",
        "ffpa-attn#301",
    ),
)
