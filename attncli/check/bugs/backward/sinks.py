"""Bugs of the gradients of sinks and of a mask of numbers: what is added beside the scores."""

from __future__ import annotations

import math
from collections.abc import Callable
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


def _without_share(given: Given) -> Array:
    delta = given["delta"]
    return np.asarray(-delta.reshape(-1, *delta.shape[-2:]).sum(axis=(0, 2)))


def _sinks_of(how: str) -> Callable[[Given], Array]:
    """The gradient of sinks of one batch item alone, or the mean of them."""

    def compute(given: Given) -> Array:
        if how == "mean":
            return np.asarray(g.d_of_sinks(**given) / len(given["x"]))
        item = slice(-1, None) if how == "last" else slice(1)
        return g.d_of_sinks(**{**given, "x": given["x"][item], "delta": given["delta"][item]})

    return compute


def _bias_from(name: str) -> Edit:
    def edit(plan: list[Step]) -> list[Step]:
        own, source = named(plan, D_BIAS), named(plan, name)
        if own is None or source is None or own.reads["d"] == name:
            return plan
        rest = [step for step in plan if step is not own]
        at = rest.index(source) + 1
        return [*rest[:at], own._replace(reads={**own.reads, "d": name}), *rest[at:]]

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
        edited(("", [_sinks(_without_share)])),
        "the gradient of a sink is −Σ exp(s − lse) δ: each query counts by the sink's share in it",
        "flash-linear-attention#831",
        touches="gradients sinks",
    ),
    row(
        "sink's gradient with the wrong sign",
        edited(("", [_sinks(lambda given: -g.d_of_sinks(**given))])),
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
