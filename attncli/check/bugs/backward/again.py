"""Weights that are computed again on the way back: from q, k and a saved log Σ exp.

forward    A = softmax(L), lse = log Σ exp(L)          right
way back   A = exp(L − lse), with an L or an lse that is not that of the forward pass
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention import gradients as g
from attncli.attention.run import Step
from attncli.check.bugs.backward.edits import (
    D_SINKS,
    Given,
    apply,
    inserted,
    instead,
    named,
    of_gradients,
    products_of,
    reading,
    way_back,
)
from attncli.check.bugs.bug import Evidence
from attncli.check.setup import Edit, Setup
from attncli.stages import DELTA, DROPPED, MAPS, WEIGHTS

AGAIN = "_again"
"""The end of the name of a stage that a kernel computes again on the way back."""

Chain = Callable[[list[Step]], list[Step]]
"""Changes the steps from the scores to what softmax reads."""


def log_sum_exp(x: Array, sinks: Array | None = None) -> Array:
    """log Σ exp of each row, [..., n_q, n_k] -> [..., n_q, 1]; −inf where there is nothing."""
    return np.asarray(f.log_sum_exp(x, sinks=sinks)[..., None])


def top_of(x: Array, sinks: Array | None = None) -> Array:
    """The largest score of each row, or its sink, [..., n_q, n_k] -> [..., n_q, 1]."""
    top = x.max(axis=-1, keepdims=True)
    return np.asarray(top if sinks is None else np.maximum(top, sinks.reshape(-1, 1, 1)))


def powers(x: Array, lse: Array) -> Array:
    """exp(x − lse), 0 in a row with nothing to attend to."""
    lse = np.where(np.isneginf(lse), np.inf, lse)
    return np.asarray(np.nan_to_num(np.exp(x - lse), nan=0.0, posinf=np.inf))


def _by_weights(given: Given) -> Array:
    """The gradient of sinks, where log Σ exp is the one of these weights: x − ln A."""
    x, a = given["x_again"], given["a"]
    best = x.argmax(axis=-1)[..., None]
    top = np.take_along_axis(x, best, axis=-1)
    lse = top - np.log(np.take_along_axis(np.broadcast_to(a, x.shape), best, axis=-1))
    share = np.exp(given["sinks"].reshape(-1, 1, 1) - lse)[..., 0]
    found = -(np.where(np.isfinite(share), share, 0) * given["delta"])
    return np.asarray(found.reshape(-1, *found.shape[-2:]).sum(axis=(0, 2)))


Recompute = Callable[..., Array]
"""What computes the weights again: x, that of the forward pass, x_again, and sinks, if any."""


def by_lse(change: Callable[[Array], Array] = np.asarray) -> Recompute:
    """exp(x − change(log Σ exp)), the log-sum-exp of the forward pass."""

    def compute(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
        return powers(x_again, change(log_sum_exp(x, sinks)))

    return compute


def weights_again(
    compute: Recompute,
    chain: Callable[[list[Step]], list[Step]] | None = None,
    *,
    own_delta: bool = False,
    own_sinks: bool = False,
    only: str = "",
) -> Edit:
    """The gradients read weights that are computed again.

    chain      changes the steps from the scores to what softmax reads
    own_delta  whether δ is the sum of these weights, not that of the forward pass
    own_sinks  whether the share of a sink is by their log Σ exp as well
    only       the gradient whose products alone read them, d_k or d_v; all where left out
    """

    def edit(plan: list[Step]) -> list[Step]:
        softmax = named(plan, WEIGHTS)
        if softmax is None or softmax.params.get("axis", -1) != -1:
            return plan
        x = x_again = softmax.reads["x"]
        new, of = list[Step](), dict[str, str]()
        if chain is not None:
            steps = [s for s in plan[: way_back(plan)] if s.name in _BEFORE]
            changed = chain(steps)
            if changed == steps:
                return plan
            of = {step.name: f"{step.name}{AGAIN}" for step in changed}
            new = [
                s._replace(name=of[s.name], reads={p: of.get(n, n) for p, n in s.reads.items()})
                for s in changed
            ]
            x_again = of[changed[-1].name]
        reads = {"x": x, "x_again": x_again}
        reads |= {name: read for name, read in softmax.reads.items() if name == "sinks"}
        again = f"{WEIGHTS}{AGAIN}"
        new.append(softmax._replace(name=again, compute=compute, reads=reads, params={}))
        of = {WEIGHTS: again} | {name: new for name, new in of.items() if name == "mask"}
        if (dropped := named(plan, DROPPED)) is not None:
            of[DROPPED] = f"{DROPPED}{AGAIN}"
            new.append(dropped._replace(name=of[DROPPED], reads={**dropped.reads, "x": again}))
        left = [] if own_delta else [DELTA]
        if only:
            own = products_of(plan, only)
            left = [step.name for step in plan if step.name != own]
        plan = reading(of, but=left, without=("allowed",))(inserted(plan, new))
        if not own_sinks:
            return plan
        return instead(g.d_of_sinks, _by_weights, a=again, x_again=x_again)(plan)

    return edit


_BEFORE = {"mask", *(name for name in MAPS if name not in (WEIGHTS, DROPPED))}
"""The steps between q and k and softmax."""


def without_step(compute: Callable[..., Array]) -> Callable[[list[Step]], list[Step]]:
    """A chain without the step of this function: what read it reads what it read."""

    def change(steps: list[Step]) -> list[Step]:
        own = next((step for step in steps if step.compute is compute), None)
        if own is None:
            return steps
        x = own.reads["x"]
        rest = [step for step in steps if step is not own]
        return [
            s._replace(reads={p: x if n == own.name else n for p, n in s.reads.items()})
            for s in rest
        ]

    return change


Again = tuple[str, Recompute, Chain | None]
"""One way to compute the weights again: a detail, what computes them, a change of the scores."""


def again(*made: Again, whole: tuple[int, ...] = ()) -> Any:
    """Weights computed again in each of these ways; δ from them, or from the forward pass."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if not of_gradients(setup, evidence):
            return
        with_sinks = D_SINKS in evidence.expected and "sinks" in setup.inputs
        for words, compute, chain in made:
            for own, more in ((False, ""), (True, "δ from the same weights")):
                for sinks in (True, False) if with_sinks else (False,):
                    edit = weights_again(compute, chain, own_delta=own, own_sinks=sinks)
                    if (found := apply(setup, [edit], whole)) is not None:
                        also = "the sink's share by the same log-sum-exp" if sinks else ""
                        detail = "; ".join(filter(None, (words, more, also)))
                        yield found.with_detail(detail) if detail else found

    return change
