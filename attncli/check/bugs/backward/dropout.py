"""Bugs of gradients in dropout: what was dropped, 1/(1−p), and which numbers are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention import gradients as g
from attncli.attention.functional import draw_kept
from attncli.attention.run import Step
from attncli.check.bugs.backward.edits import (
    D_V,
    OF_OUTPUT,
    Plan,
    apply,
    edited,
    gradient_by,
    inserted,
    named,
    of_gradients,
    products_of,
    reading,
    replaced,
    row,
    with_either_delta,
)
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.setup import Edit, Setup
from attncli.stages import DROPPED


def _dropout(change: Any) -> Edit:
    return replaced(f.dropout, lambda step, _: step._replace(compute=change))


def _not_dropped(x: Array, kept: Array, p: float) -> Array:
    return x


def _not_grown(x: Array, kept: Array, p: float) -> Array:
    return np.where(kept, x, x.dtype.type(0))


def _not_masked(x: Array, kept: Array, p: float) -> Array:
    return np.asarray(x / x.dtype.type(1 - p))


def _grown_twice(x: Array, kept: Array, p: float) -> Array:
    return np.asarray(np.where(kept, x / x.dtype.type((1 - p) ** 2), x.dtype.type(0)))


def _values_of(change: Any) -> Edit:
    """Other weights in dV, where there is dropout: made of A and of those that were kept."""

    def edit(plan: list[Step]) -> list[Step]:
        dropped = named(plan, DROPPED)
        if dropped is None:
            return plan
        own = dropped._replace(name=f"{DROPPED}_of_values", compute=change)

        def new(step: Step, _: Plan) -> Step:
            return step._replace(reads={**step.reads, "a": own.name})

        return replaced(products_of(plan, D_V), new)(inserted(plan, [own]))

    return edit


def _dropped_for_weights(step: Step, plan: Plan) -> Step | None:
    return step._replace(reads={**step.reads, "a": DROPPED}) if named(plan, DROPPED) else None


def _before_dropout(step: Step, plan: Plan) -> Step | None:
    dropped = gradient_by(plan, f.dropout)
    return dropped and step._replace(reads={**step.reads, "d": dropped.reads["x"]})


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


DROPOUT: tuple[Bug, ...] = (
    row(
        "δ before dropout",
        edited(("", [replaced(g.delta, _before_dropout)])),
        "δ is Σ A ∘ dD: it must be taken with the dropped weights on both sides",
        "flash-attention#1251",
        touches="gradients dropout",
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
            ("", [_values_of(_not_dropped)]),
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
        "dropout's 1/(1−p) applied twice",
        edited(
            *(
                (f"to {names}{'; ' * bool(words)}{words}", edits)
                for names, own in (
                    ("dA", [_dropout(_grown_twice)]),
                    ("dV", [_values_of(_grown_twice)]),
                    ("dA and dV", [_dropout(_grown_twice), _values_of(_grown_twice)]),
                )
                for words, edits in with_either_delta(*own)
            ),
        ),
        "what dropout kept is divided by 1 − p once",
        "flash-attention#1251",
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
        edited(("", [replaced(g.d_softmax, _dropped_for_weights)])),
        "the gradient of softmax is made of its own weights A, from before dropout",
        "flash-attention#1251",
        touches="gradients dropout",
    ),
)
