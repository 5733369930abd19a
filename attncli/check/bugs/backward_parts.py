"""Bugs of gradients: grouped heads, dropout, softcap, sinks, and a mask of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention import gradients as g
from attncli.attention.functional import draw_kept
from attncli.attention.heads import key_head_of
from attncli.attention.run import Step
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.bugs.edits import (
    D_BIAS,
    D_K,
    D_SCORES,
    D_SINKS,
    D_V,
    HEAD,
    OF_OUTPUT,
    Given,
    Plan,
    apply,
    edited,
    gradient_by,
    inserted,
    instead,
    key_products,
    named,
    of_gradients,
    reading,
    replaced,
    row,
    times,
    with_either_delta,
)
from attncli.check.setup import Edit, Setup
from attncli.convention import HeadOrder
from attncli.stages import DROPPED, WEIGHTS

# ---- grouped heads


def _of_group(pick: Any, *names: str) -> list[Edit]:
    """Only one head of a group in these sums."""

    def new(step: Step, plan: Plan) -> Step | None:
        if step.compute is not g.summed_heads:
            return None

        def compute(x: Array, n_kv_heads: int, order: HeadOrder) -> Array:
            mine = key_head_of(x.shape[-3], n_kv_heads, order)
            chosen = [np.flatnonzero(mine == head)[pick] for head in range(n_kv_heads)]
            return np.asarray(x[..., chosen, :, :])

        return step._replace(compute=compute)

    return [replaced(name, new) for name in names]


def _averaged(*names: str) -> list[Edit]:
    def new(step: Step, plan: Plan) -> Step | None:
        if step.compute is not g.summed_heads:
            return None

        def compute(x: Array, n_kv_heads: int, order: HeadOrder) -> Array:
            return np.asarray(g.summed_heads(x, n_kv_heads, order) * n_kv_heads / x.shape[-3])

        return step._replace(compute=compute)

    return [replaced(name, new) for name in names]


def _other_order(*names: str) -> list[Edit]:
    def new(step: Step, plan: Plan) -> Step | None:
        if step.compute is not g.summed_heads:
            return None

        def compute(x: Array, n_kv_heads: int, order: HeadOrder) -> Array:
            return g.summed_heads(x, n_kv_heads, "tiled" if order == "blocks" else "blocks")

        return step._replace(compute=compute)

    return [replaced(name, new) for name in names]


def _in_either(make: Any, *whole: int) -> Any:
    """In dK and dV, or in one of the two alone."""
    yield "", make(D_K, D_V), whole
    yield "in dK alone", make(D_K), whole
    yield "in dV alone", make(D_V), whole


# ---- dropout and softcap


def _dropout(change: Any) -> Edit:
    def edit(plan: list[Step]) -> list[Step]:
        own = gradient_by(plan, f.dropout)
        if own is None:
            return plan
        other = own._replace(compute=change)
        return [other if step is own else step for step in plan]

    return edit


def _not_dropped(x: Array, kept: Array, p: float) -> Array:
    return x


def _not_grown(x: Array, kept: Array, p: float) -> Array:
    return np.where(kept, x, x.dtype.type(0))


def _not_masked(x: Array, kept: Array, p: float) -> Array:
    return np.asarray(x / x.dtype.type(1 - p))


def _values_of(change: Any) -> Edit:
    """Other weights in dV, where there is dropout: made of A and of those that were kept."""

    def edit(plan: list[Step]) -> list[Step]:
        dropped = named(plan, DROPPED)
        if dropped is None:
            return plan
        inner = key_products(D_V)
        name = inner if named(plan, inner) else D_V
        p = dropped.params["p"]

        def new(step: Step, _: Plan) -> Step:
            reads = {"w": WEIGHTS, "kept": dropped.reads["kept"], "b": step.reads["b"]}

            def compute(w: Array, kept: Array, b: Array) -> Array:
                return g.column_products(change(w, kept, p), b)

            return step._replace(compute=compute, reads=reads)

        return replaced(name, new)(plan)

    return edit


def _softcap(change: Any) -> Edit:
    return instead(g.d_softcap, change)


def _cap_of_x(given: Given) -> Array:
    return np.asarray(given["d"] * (1 - np.square(given["b"])))


def _cap_once(given: Given) -> Array:
    return np.asarray(given["d"] * (1 - np.abs(given["b"]) / given["cap"]))


def _cap_signed(given: Given) -> Array:
    return np.asarray(given["d"] * (1 - given["b"] / given["cap"]))


def _cap_twice(given: Given) -> Array:
    return np.asarray(given["d"] * np.square(1 - np.square(given["b"] / given["cap"])))


def _cap_of_scores(plan: list[Step]) -> list[Step]:
    own = gradient_by(plan, g.d_softcap)
    capped = own and named(plan, own.reads["b"])
    if not own or not capped:
        return plan

    def compute(d: Array, b: Array, cap: float) -> Array:
        return np.asarray(d * (1 - np.square(np.tanh(b))))

    other = own._replace(compute=compute, reads={**own.reads, "b": capped.reads["x"]})
    return [other if step is own else step for step in plan]


def _dropped_in_softmax(plan: list[Step]) -> list[Step]:
    own = gradient_by(plan, g.d_softmax)
    if own is None or named(plan, DROPPED) is None:
        return plan
    other = own._replace(reads={**own.reads, "a": DROPPED})
    return [other if step is own else step for step in plan]


def _before_dropout(plan: list[Step]) -> list[Step]:
    own = gradient_by(plan, g.delta)
    dropped = gradient_by(plan, f.dropout)
    if own is None or dropped is None:
        return plan
    other = own._replace(reads={**own.reads, "d": dropped.reads["x"]})
    return [other if step is own else step for step in plan]


def _drawn_again(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """With the numbers of another seed: the next ones, and the first few."""
    if not setup.how.dropout or not of_gradients(setup, evidence):
        return
    seeds = dict.fromkeys((setup.how.seed + 1, *range(4)))
    for seed in seeds:
        if seed == setup.how.seed:
            continue
        kept = f"again.{KEPT}"
        drawn = setup.with_inputs(**{kept: draw_kept(setup.shape, setup.how.dropout, seed)})
        for words, more in (("", []), ("; δ from O and dO", [OF_OUTPUT])):
            found = apply(drawn, [_kept_again(kept), *more])
            if found is not None:
                yield found.with_detail(f"seed {seed}{words}")


KEPT = "kept"


def _kept_again(kept: str) -> Edit:
    def edit(plan: list[Step]) -> list[Step]:
        dropped = named(plan, DROPPED)
        if dropped is None:
            return plan
        again = dropped._replace(name=f"{DROPPED}_again", reads={**dropped.reads, KEPT: kept})
        of = {DROPPED: again.name, dropped.reads[KEPT]: kept}
        return reading(of)(inserted(plan, [again]))

    return edit


# ---- sinks and bias


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


BACKWARD_PARTS: tuple[Bug, ...] = (
    row(
        "δ before dropout",
        edited(("", [_before_dropout])),
        "δ is Σ A ∘ dD: it must be taken with the dropped weights on both sides",
        "flash-attention#1251",
        touches="gradients dropout",
    ),
    row(
        "grouped heads not summed in dK, dV (the last one wins)",
        edited(*_in_either(lambda *names: _of_group(-1, *names))),
        "dK and dV hold one query head's share; every head of the group adds to them",
        "levanter#449",
        touches="gradients key-heads",
    ),
    row(
        "grouped heads not summed in dK, dV (the first one alone)",
        edited(*_in_either(lambda *names: _of_group(0, *names))),
        "dK and dV hold one query head's share; every head of the group adds to them",
        "levanter#449",
        touches="gradients key-heads",
    ),
    row(
        "grouped heads averaged in dK, dV",
        edited(*_in_either(_averaged)),
        "the query heads of a group are summed in dK and dV, not averaged",
        "levanter#449",
        touches="gradients key-heads",
    ),
    row(
        "grouped heads summed in the other order",
        edited(*_in_either(_other_order, HEAD)),
        "the query heads of a group are consecutive ones, and others are summed, or the reverse",
        "native-sparse-attention-triton#27",
        touches="gradients key-heads",
    ),
    row(
        "dropout mask not applied again to dA",
        edited(*with_either_delta(_dropout(_not_dropped))),
        "what was dropped in the forward pass has no gradient, and the rest is divided by 1 − p",
        "flash-attention#1251",
        touches="gradients dropout",
    ),
    row(
        "dropout mask not applied again in dV",
        edited(
            ("", [_values_of(lambda w, kept, p: w)]),
            ("divided by 1 − p all the same", [_values_of(_not_masked)]),
        ),
        "dV is made of the dropped weights D, not of A",
        "flash-attention#612",
        touches="gradients dropout",
    ),
    row(
        "dropout's 1/(1−p) left out of dA",
        edited(*with_either_delta(_dropout(_not_grown))),
        "what dropout kept was divided by 1 − p, so its gradient is too",
        "flash-attention#1251",
        touches="gradients dropout",
    ),
    row(
        "dropout's 1/(1−p) left out of dV",
        edited(("", [_values_of(_not_grown)])),
        "what dropout kept was divided by 1 − p, also where dV is made of it",
        "flash-attention#612",
        touches="gradients dropout",
    ),
    row(
        "dropout's mask left out of dA, 1/(1−p) kept",
        edited(*with_either_delta(_dropout(_not_masked))),
        "what was dropped in the forward pass has no gradient",
        "flash-attention#2439",
        touches="gradients dropout",
    ),
    row(
        "dropout drawn again on the way back",
        _drawn_again,
        "the way back drops other weights than the forward pass: the same random numbers are due",
        "pytorch#190717, flash-attention#2439",
        touches="gradients dropout",
    ),
    row(
        "dropped weights used for A in dS",
        edited(("", [_dropped_in_softmax])),
        "the gradient of softmax is made of its own weights A, from before dropout",
        "flash-attention#1251",
        touches="gradients dropout",
    ),
    row(
        "softcap's derivative left out",
        edited(("", [_softcap(lambda given: given["d"])])),
        "the gradient of c · tanh(x / c) is 1 − tanh²(x / c), not 1",
        "flash-attention#1033, tokamax#1121",
        touches="gradients softcap",
    ),
    row(
        "softcap's derivative of C, not C/c",
        edited(("", [_softcap(_cap_of_x)])),
        "the gradient is 1 − (C / c)², with the capped score over the cap",
        "flash-attention#1033",
        touches="gradients softcap",
    ),
    row(
        "softcap's derivative of the score before it",
        edited(("", [_cap_of_scores])),
        "tanh is taken of the score without the cap beneath it",
        "meganeura#60",
        touches="gradients softcap",
    ),
    row(
        "softcap's derivative without its square",
        edited(("", [_softcap(_cap_signed)]), ("of its size", [_softcap(_cap_once)])),
        "the gradient is 1 − (C / c)², not 1 − C / c",
        "TorchCode#10",
        touches="gradients softcap",
    ),
    row(
        "softcap's derivative applied twice",
        edited(("", [_softcap(_cap_twice)])),
        "the gradient has the factor 1 − (C / c)² twice",
        "tokamax#1121",
        touches="gradients softcap",
    ),
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
