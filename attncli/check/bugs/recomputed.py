"""Bugs of weights that are computed again on the way back: from q, k and a saved log Σ exp.

forward    A = softmax(L), lse = log Σ exp(L)          right
way back   A = exp(L − lse), with an L or an lse that is not that of the forward pass
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention import gradients as g
from attncli.attention.run import Step
from attncli.check.bugs.backward_data import LAYOUTS
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.bugs.edits import (
    D_SINKS,
    HEAD,
    OF_OUTPUT,
    ROW,
    Recompute,
    apply,
    by_lse,
    gradient_by,
    inserted,
    log_sum_exp,
    named,
    names_of,
    of_gradients,
    powers,
    reading,
    row,
    weights_again,
    without_step,
)
from attncli.check.setup import Edit, Setup
from attncli.stages import SCORES

Chain = Callable[[list[Step]], list[Step]]


def _again(*made: tuple[str, Recompute, Chain | None], whole: tuple[int, ...] = ()) -> Any:
    """Weights computed again in each of these ways; δ from them, or from the forward pass."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if not of_gradients(setup, evidence):
            return
        with_sinks = D_SINKS in evidence.expected and "sinks" in setup.inputs
        for words, compute, chain in made:
            if chain is _without_given and not _hides(setup):
                continue
            for own, more in ((False, ""), (True, "δ from the same weights")):
                for sinks in (True, False) if with_sinks else (False,):
                    edit = weights_again(compute, chain, own_delta=own, own_sinks=sinks)
                    if (found := apply(setup, [edit], whole)) is not None:
                        also = "the sink's share by the same log-sum-exp" if sinks else ""
                        detail = "; ".join(filter(None, (words, more, also)))
                        yield found.with_detail(detail) if detail else found

    return change


def _hides(setup: Setup) -> bool:
    """Whether the given mask hides keys, and does not only add numbers."""
    mask = setup.inputs.get("given_mask")
    return mask is not None and (mask.dtype == np.bool_ or bool((mask <= HIDES).any()))


def _unmasked(**changes: Any) -> Chain:
    """The chain with other parameters for its mask, or with numbers alone added."""

    def change(steps: list[Step]) -> list[Step]:
        own = named(steps, "mask")
        if own is None:
            return steps
        if changes:
            if all(own.params.get(name) == value for name, value in changes.items()):
                return steps
            other = own._replace(params={**own.params, **changes})
        else:
            other = own._replace(compute=lambda **given: _shown(own.compute(**given)))
        return [other if step is own else step for step in steps]

    return change


def _shown(mask: Array) -> Array:
    return np.where(mask <= HIDES, 0.0, mask)


HIDES = -1e3
"""Numbers of a mask that are no larger stand for −∞."""


def _without_numbers(steps: list[Step]) -> list[Step]:
    """The chain whose mask hides, and adds no numbers."""
    own = named(steps, "mask")
    if own is None or "given_mask" not in own.reads.values():
        return steps
    other = own._replace(
        compute=lambda **given: np.where(np.isneginf(x := own.compute(**given)), x, 0.0)
    )
    return [other if step is own else step for step in steps]


def _without_given(steps: list[Step]) -> list[Step]:
    """The chain without the given mask."""
    own = named(steps, "mask")
    if own is None or "given_mask" not in own.reads:
        return steps
    reads = {name: x for name, x in own.reads.items() if name != "given_mask"}
    return [step._replace(reads=reads) if step is own else step for step in steps]


def _top(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
    return powers(x_again, x.max(axis=-1, keepdims=True))


def _top_with_sinks(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
    top = x.max(axis=-1, keepdims=True)
    return powers(x_again, top if sinks is None else np.maximum(top, sinks.reshape(-1, 1, 1)))


def _without_sink(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
    return powers(x_again, log_sum_exp(x))


def _with_nan(x: Array, x_again: Array, sinks: Array | None = None) -> Array:
    return np.asarray(np.exp(x_again - log_sum_exp(x, sinks)))


def _needs_sinks(change: Any) -> Any:
    def needing(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if "sinks" in setup.inputs:
            yield from change(setup, evidence)

    return needing


def _masked_otherwise(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Another mask on the way back: causal where none is asked for, aligned otherwise, shifted."""
    if not of_gradients(setup, evidence):
        return
    for own in (False, True):
        for words, compute, chain in (*_never_asked(setup), *_shifted(setup)):
            edit = weights_again(compute, chain, own_delta=own)
            whole = (ROW,) if chain is None else ()
            if (found := apply(setup, [edit], whole)) is not None:
                yield found.with_detail(words + "; δ from the same weights" * own)


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


def _other_keys(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """K, V or both as they are read again: in another layout, or of one chunk everywhere."""
    (_, n_heads, _, n_k), n_keys = setup.shape, setup.inputs["k"].shape[1]
    if not of_gradients(setup, evidence):
        return
    reads: list[tuple[str, Callable[[Array], Array], tuple[int, ...]]] = []
    if n_heads == n_keys > 1:
        reads += [(words, read, (HEAD,)) for read, words in LAYOUTS]
    for parts in (2, 4, 8):
        if n_k > parts:
            at, size = np.arange(n_k), n_k // parts
            first = np.where(at < parts * size, at % size, at)
            words = f"the first of {parts} chunks for all"
            reads.append((words, lambda x, first=first: x[..., first, :], ()))  # type: ignore[misc]
    for words, read, whole in reads:
        for names in (("k", "v"), ("k",), ("v",)):
            for again in (True, False) if "k" in names else (False,):
                edit = _reading_again(names, read, recompute=again)
                which = " and ".join(name.upper() for name in names)
                more = "" if again or "k" not in names else "; the saved weights"
                for edits, delta in (([edit], ""), ([edit, OF_OUTPUT], "; δ from O and dO")):
                    if (found := apply(setup, edits, whole)) is not None:
                        yield found.with_detail(f"{which}: {words}{more}{delta}")


def _reading_again(
    names: tuple[str, ...], read: Callable[[Array], Array], *, recompute: bool
) -> Edit:
    """The gradients read these of k and v otherwise; recompute: so do the weights."""

    def edit(plan: list[Step]) -> list[Step]:
        present = names_of(plan)
        own = [f"{name}_shared" if f"{name}_shared" in present else name for name in names]
        of = {name: f"{name}_again" for name in own}
        dtype = next(step.dtype for step in plan if step.name == SCORES)
        new = [Step(of[name], read, {"x": name}, dtype=dtype) for name in own]
        plan = reading(of)(inserted(plan, new))
        if not recompute:
            return plan

        def chain(steps: list[Step]) -> list[Step]:
            return [
                s._replace(reads={p: of.get(n, n) for p, n in s.reads.items()})
                if s.compute is f.scores
                else s
                for s in steps
            ]

        return weights_again(by_lse(), chain)(plan)

    return edit


def _softcap_left_out(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The derivative that of the capped score, or of the score that is not capped."""
    yield from _again(("", by_lse(), without_step(f.softcap)))(setup, evidence)
    if not of_gradients(setup, evidence):
        return
    for own in (False, True):
        again = weights_again(by_lse(), without_step(f.softcap), own_delta=own)
        if (found := apply(setup, [again, _slope_again])) is not None:
            words = "its derivative of the score that is not capped"
            yield found.with_detail(words + "; δ from the same weights" * own)


def _slope_again(plan: list[Step]) -> list[Step]:
    own = gradient_by(plan, g.d_softcap)
    capped = own and named(plan, own.reads["b"])
    if not own or not capped:
        return plan
    of = {capped.name: f"{capped.reads['x']}_again"}
    return reading(of)(plan)


_LN2 = math.log(2)

RECOMPUTED: tuple[Bug, ...] = (
    row(
        "mask left out of the recomputed weights",
        _again(
            ("", by_lse(), _unmasked()),
            ("causal alone", by_lse(), _unmasked(causal=False)),
            ("the window alone", by_lse(), _unmasked(window_size=None)),
            ("the given mask alone", by_lse(), _without_given),
        ),
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
        _again(("", by_lse(), _without_numbers)),
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
        _again(("", by_lse(), without_step(f.scale))),
        "the scores are scaled in the forward pass alone",
        "triton#2059",
    ),
    row(
        "log-sum-exp in base 2 read as natural",
        _again(("", by_lse(lambda lse: lse / _LN2), None)),
        "the forward pass saves log₂ Σ exp, and the way back takes exp(score − it)",
        "attention-gym#200",
    ),
    row(
        "log-sum-exp natural read as base 2",
        _again(("", by_lse(lambda lse: lse * _LN2), None)),
        "the forward pass saves ln Σ exp, and the way back takes 2^(score · log₂ e − it)",
        "attention-gym#200",
    ),
    row(
        "row maximum used for the log-sum-exp (weights not normalised)",
        _again(("", _top, None), ("with the sink", _top_with_sinks, None)),
        "the weights on the way back are exp(score − largest score), not divided by their sum",
        "flash-attention#404",
    ),
    row(
        "log-sum-exp of another query",
        _again(
            ("the row before", by_lse(lambda lse: np.roll(lse, 1, axis=-2)), None),
            ("the row after", by_lse(lambda lse: np.roll(lse, -1, axis=-2)), None),
            whole=(ROW,),
        ),
        "the saved log Σ exp is read with the row of another query",
        "flash-attention#404",
    ),
    row(
        "log-sum-exp of another head",
        _again(
            ("the head before", by_lse(lambda lse: np.roll(lse, 1, axis=-3)), None),
            (
                "the first head",
                by_lse(lambda lse: np.broadcast_to(lse[..., :1, :, :], lse.shape)),
                None,
            ),
            whole=(HEAD,),
        ),
        "the saved log Σ exp is read with another head",
        "native-sparse-attention-triton#27",
    ),
    row(
        "sink left out of the recomputed weights",
        _needs_sinks(_again(("", _without_sink, None))),
        "the log Σ exp on the way back lacks the sink",
        "aiter#1576",
        touches="gradients sinks",
    ),
    row(
        "K, V read otherwise on the way back",
        _other_keys,
        "the way back reads K and V in another layout, or those of another chunk",
        "diffusers#14338, diffusers#14265, long-context-attention#121",
    ),
    row(
        "0 · NaN from an empty row",
        _again(("", _with_nan, None)),
        "exp(−∞ − −∞) of a query with nothing to attend to makes the gradients of its keys NaN",
        "pytorch#41508",
        touches="gradients mask NaN",
    ),
)
