"""Bugs of weights that are computed again from other scores: masks, softcap, scale left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention import gradients as g
from attncli.attention.run import Step
from attncli.check.bugs.backward.again import (
    Again,
    Chain,
    Recompute,
    again,
    by_lse,
    log_sum_exp,
    powers,
    weights_again,
    without_step,
)
from attncli.check.bugs.backward.edits import (
    ROW,
    Plan,
    apply,
    gradient_by,
    instead,
    named,
    of_gradients,
    reading,
    replaced,
    row,
)
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.setup import Setup


def _mask_left_out(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """All of it, or one part of it alone."""
    parts: list[Again] = [
        ("", by_lse(), _unmasked()),
        ("causal alone", by_lse(), _unmasked(causal=False)),
        ("the window alone", by_lse(), _unmasked(window_size=None)),
    ]
    if _hides(setup):
        parts.append(("the given mask alone", by_lse(), replaced("mask", _without_given)))
    yield from again(*parts)(setup, evidence)


def _hides(setup: Setup) -> bool:
    """Whether the given mask hides keys, and does not only add numbers."""
    mask = setup.inputs.get("given_mask")
    return mask is not None and (mask.dtype == np.bool_ or bool((mask <= HIDES).any()))


def _unmasked(**changes: Any) -> Chain:
    """The chain with other parameters for its mask, or with numbers alone added."""

    def new(step: Step, _: Plan) -> Step | None:
        if not changes:
            return step._replace(compute=lambda **given: _shown(step.compute(**given)))
        is_same = all(step.params.get(name) == value for name, value in changes.items())
        return None if is_same else step._replace(params={**step.params, **changes})

    return replaced("mask", new)


def _shown(mask: Array) -> Array:
    return np.where(mask <= HIDES, 0.0, mask)


HIDES = -1e3
"""Numbers of a mask that are no larger stand for −∞."""


def _without_numbers(step: Step, _: Plan) -> Step | None:
    """The mask that hides, and adds no numbers."""

    def compute(**given: Any) -> Array:
        return np.where(np.isneginf(mask := step.compute(**given)), mask, 0.0)

    return step._replace(compute=compute) if "given_mask" in step.reads.values() else None


def _without_given(step: Step, _: Plan) -> Step | None:
    """The mask without the given one."""
    reads = {name: x for name, x in step.reads.items() if name != "given_mask"}
    return None if reads == step.reads else step._replace(reads=reads)


def _masked_otherwise(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Another mask on the way back: causal where none is asked for, aligned otherwise, shifted."""
    if not of_gradients(setup, evidence):
        return
    for own in (False, True):
        for words, compute, chain in (*_never_asked(setup), *_shifted(setup), _INVERTED):
            edit = weights_again(compute, chain, own_delta=own)
            whole = (ROW,) if chain is None else ()
            if (found := apply(setup, [edit], whole)) is not None:
                yield found.with_detail(words + "; δ from the same weights" * own)


def _inverted(step: Step, _: Plan) -> Step:
    """The mask that hides what is shown, and shows what is hidden."""

    def compute(**given: Any) -> Array:
        return np.where(step.compute(**given) <= HIDES, 0.0, -np.inf)

    return step._replace(compute=compute)


_INVERTED: Again = (
    "inverted: what is to be hidden is shown, and the reverse",
    by_lse(),
    replaced("mask", _inverted),
)


def _never_asked(setup: Setup) -> Iterator[tuple[str, Recompute, Chain | None]]:
    """Causal masks where none is asked for."""
    n_q, n_k = setup.shape[2:]
    ahead = np.arange(n_k) - np.arange(n_q)[:, None]
    for at, words in ((setup.n_past, ""), (n_k - n_q, ", aligned bottom-right")):
        hidden = np.where(ahead > at, -np.inf, 0.0)

        def hide(
            x: Array, x_again: Array, sinks: Array | None = None, hidden: Array = hidden
        ) -> Array:
            return powers(x_again + hidden, log_sum_exp(x, sinks))

        if not setup.how.causal and (not words or n_q != n_k):
            yield f"causal, which is not asked for{words}", hide, None


def _shifted(setup: Setup) -> Iterator[tuple[str, Recompute, Chain]]:
    """A causal mask or a window by one key, or aligned otherwise."""
    how, by_forward = setup.how, by_lse()
    if how.causal:
        for step, words in ((1, "one key more"), (-1, "one key fewer")):
            yield f"causal, {words}", by_forward, _unmasked(n_past=setup.n_past + step)
        other = "bottom-right" if how.causal_align == "top-left" else "top-left"
        if setup.shape[2] != setup.shape[3]:
            yield f"aligned {other}", by_forward, _unmasked(align=other)
    window = how.reach or (-1, -1)
    for side, name in enumerate(("before", "after")):
        for step in (1, -1):
            size = [*window]
            size[side] += step
            if window[side] >= 0 and size[side] >= 0:
                words = f"the window {size[side]} keys {name} the query, not {window[side]}"
                yield words, by_forward, _unmasked(window_size=tuple(size))


def _softcap_left_out(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The derivative that of the capped score, of the score that is not capped, or left out too."""
    yield from again(("", by_lse(), without_step(f.softcap)))(setup, evidence)
    if not of_gradients(setup, evidence) or setup.how.softmax_over == "queries":
        return
    for own in (False, True):
        edit = weights_again(by_lse(), without_step(f.softcap), own_delta=own)
        if (found := apply(setup, [edit, _slope_again])) is not None:
            words = "its derivative of the score that is not capped"
            yield found.with_detail(words + "; δ from the same weights" * own)
        no_slope = instead(g.d_softcap, lambda given: given["d"])
        if (found := apply(setup, [edit, no_slope])) is not None:
            words = "and its derivative"
            yield found.with_detail(words + "; δ from the same weights" * own)


def _slope_again(plan: list[Step]) -> list[Step]:
    own = gradient_by(plan, g.d_softcap)
    capped = own and named(plan, own.reads["b"])
    if not own or not capped:
        return plan
    of = {capped.name: f"{capped.reads['x']}_again"}
    return reading(of)(plan)


RECOMPUTED: tuple[Bug, ...] = (
    row(
        "mask left out of the recomputed weights",
        _mask_left_out,
        "hidden keys have weights, and gradients, on the way back",
        "triton#7216",
        touches="gradients mask",
    ),
    row(
        "another mask on the recomputed weights",
        _masked_otherwise,
        "the way back hides other keys than the forward pass",
        "triton#5660, triton#4174, flash-attention#1915",
    ),
    row(
        "numbers of the mask left out of the recomputed weights",
        again(("", by_lse(), replaced("mask", _without_numbers))),
        "a bias is added to the scores in the forward pass alone",
        "ffpa-attn#301",
    ),
    row(
        "softcap left out of the recomputed weights",
        _softcap_left_out,
        "the scores are capped in the forward pass alone",
        "flash-attention#1033",
        touches="gradients softcap",
    ),
    row(
        "scale left out of the recomputed weights",
        again(("", by_lse(), without_step(f.scale))),
        "the scores are scaled in the forward pass alone",
        "triton#2059",
    ),
)
