"""Bugs of gradients in one step: δ, softmax, softcap, dropout, scale, sinks, a mask of numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from attncli.arrays import Array
from attncli.attention.kernels import draw_kept, log_sum_exp
from attncli.attention.parts import finite
from attncli.check.bugs.backward.shared import (
    ALL,
    BATCH,
    D_BIAS,
    D_K,
    D_Q,
    D_SCORES,
    D_SINKS,
    D_V,
    HEAD,
    OF_V,
    ROW,
    either_delta,
    of_output,
    rolled,
    times,
)
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.kernels import BLOCKS
from attncli.check.bugs.patch import OF_DROPOUT, OF_SOFTCAP, OF_SOFTMAX, Function, Patch
from attncli.check.bugs.words import Variants, only_if
from attncli.check.fitting import roots
from attncli.check.setup import Setup
from attncli.stages import DELTA, DROPPED, GIVEN_GRADIENT

LN2 = math.log(2)
SETS = (D_Q,), (D_K,), (D_Q, D_K), (D_V,), ALL

# ---- δ and softmax


def _of_shifted(by: int) -> Function:
    return lambda output, d_output: of_output(output, np.roll(d_output, by, axis=-2))


def _of_first_block(setup: Setup, _: Evidence) -> Iterator[Patch]:
    rows = np.arange(setup.shape[ROW])
    for n in (n for n in BLOCKS if n < len(rows)):
        words = f"that of the first {n} queries for every block of {n}"
        yield Patch({DELTA: lambda right, n=n: right()[..., rows % n]}, words, (ROW,))


def _mean(setup: Setup, _: Evidence) -> Iterator[Patch]:
    for n, words in ((setup.shape[3], "keys"), (setup.inputs["v"].shape[-1], "dimensions of v")):
        if n > 1:
            yield Patch({DELTA: lambda right, n=n: right() / n}, f"over {n} {words}")


def total(logits: Array, sinks: Array | None = None, *, sink_in_top: bool = True) -> Array:
    """Σ exp(score − largest score) of each row: what a kernel divides its output by."""
    top = logits.max(axis=-1)
    if sinks is not None and sink_in_top:
        top = np.maximum(top, sinks.reshape(-1, 1))
    sink = None if sinks is None else sinks.reshape(-1, 1)
    return np.asarray(np.exp(log_sum_exp(logits, sink) - finite(top)))


def first_head(right: Function) -> Array:
    """The numbers of the first head for all."""
    return np.broadcast_to(right()[..., :1, :], right().shape)


SOFTMAX: dict[str, Variants] = {
    "δ left out (dS = A ∘ dA)": {DELTA: lambda right: np.zeros_like(right())},
    "δ from the gradient of another query (dO shifted by a row)": (
        Patch({DELTA: _of_shifted(1)}, "the row before", (ROW,)),
        Patch({DELTA: _of_shifted(-1)}, "the row after", (ROW,)),
    ),
    "δ of another query": (
        Patch({DELTA: rolled(1, -1)}, "the row before", (ROW,)),
        Patch({DELTA: rolled(-1, -1)}, "the row after", (ROW,)),
        _of_first_block,
    ),
    "δ of another head": (
        Patch({DELTA: rolled(1, -2)}, "the head before", (HEAD,)),
        Patch({DELTA: first_head}, "the first head", (HEAD,)),
    ),
    "δ is a mean, not a sum": _mean,
    "δ added, not subtracted": {OF_SOFTMAX: lambda right, delta, axis: right(delta=-delta)},
    "δ from an unnormalised O": {
        DELTA: lambda output, d_output, logits, sinks=None: (
            of_output(output, d_output) * total(logits, sinks)
        )
    },
    "softmax taken element by element (dS = A(1−A) ∘ dA)": {
        OF_SOFTMAX: lambda y, d, axis: y * (1 - y) * d
    },
    "softmax's gradient summed over the queries": Patch(
        {OF_SOFTMAX: lambda y, d: y * (d - (y * d).sum(axis=-2, keepdims=True))}, whole=(ROW,)
    ),
    "A left out of the gradient of softmax": {
        OF_SOFTMAX: lambda y, d, delta, axis: np.where(y == 0, y, d - np.expand_dims(delta, axis))
    },
}

# ---- softcap: y is the capped score

SOFTCAP: dict[str, Variants] = {
    "softcap's derivative left out": {OF_SOFTCAP: lambda d: d},
    "softcap's derivative of C, not C/c": {OF_SOFTCAP: lambda d, y: d * (1 - y * y)},
    "softcap's derivative of the score before it": {
        OF_SOFTCAP: lambda d, uncapped: d * (1 - np.tanh(uncapped) ** 2)
    },
    "softcap's derivative without its square": (
        {OF_SOFTCAP: lambda d, y, cap: d * (1 - y / cap)},
        Patch({OF_SOFTCAP: lambda d, y, cap: d * (1 - np.abs(y) / cap)}, "of its size"),
    ),
    "softcap's derivative with tanh taken twice": {
        OF_SOFTCAP: lambda d, y, cap: d * (1 - np.tanh(y / cap) ** 2)
    },
    "softcap's derivative applied twice": {OF_SOFTCAP: lambda right: right(d=right())},
}

# ---- dropout


def _divided_twice(setup: Setup, _: Evidence) -> Iterator[Variants]:
    q = 1 - setup.how.dropout
    of_a = {OF_DROPOUT: lambda right: right() / q}
    of_v = {OF_V: lambda right, kept: right() / q}
    yield either_delta(Patch(of_a, "to dA"))
    yield Patch(of_v, "to dV")
    yield either_delta(Patch({**of_a, **of_v}, "to dA and dV"))


def _redrawn(setup: Setup, _: Evidence) -> Iterator[Variants]:
    """With the numbers of another seed: the next ones, and the first few."""
    how, again = setup.how, {DROPPED: lambda right, again_kept: right(kept=again_kept)}
    steps: dict[str, Function] = {OF_DROPOUT: again[DROPPED]}
    for seed in dict.fromkeys((how.seed + 1, *range(4))) if how.dropout else ():
        if seed != how.seed:
            drawn = {"again.kept": draw_kept(setup.shape, how.dropout, seed)}
            yield either_delta(Patch(steps, f"seed {seed}", again=again, inputs=drawn))


DROPOUT: dict[str, Variants] = {
    "δ before dropout": {DELTA: lambda right, d_dropped: right(d=d_dropped)},
    "dropout mask not applied again to dA": either_delta({OF_DROPOUT: lambda d: d}),
    "dropout mask not applied again in dV": (
        {OF_V: lambda right, weights: right(a=weights)},
        lambda setup, _: Patch(
            {OF_V: lambda right, weights, kept: right(a=weights / (1 - setup.how.dropout))},
            "divided by 1 − p all the same",
        ),
    ),
    "dropout's 1/(1−p) left out of dA": either_delta(
        {OF_DROPOUT: lambda d, kept: np.where(kept, d, 0)}
    ),
    "dropout's 1/(1−p) left out of dV": {
        OF_V: lambda right, weights, kept: right(a=np.where(kept, weights, 0))
    },
    "dropout's 1/(1−p) applied twice": _divided_twice,
    "dropout's mask left out of dA, 1/(1−p) kept": either_delta(
        {OF_DROPOUT: lambda d, p: d / (1 - p)}
    ),
    "dropout drawn again in the backward pass": _redrawn,
    "dropped weights used for A in dS": {OF_SOFTMAX: lambda right, dropped, axis: right(y=dropped)},
}

# ---- sinks, and a mask of numbers


def _of_items(at: slice) -> Function:
    return lambda right, x, delta: right(x=x[at], delta=delta[at])


def _of_one(
    right: Function, d: Array, mask: Array, given_mask: Array, *, axis: int, at: int | None
) -> Array:
    """The gradient of one batch item or head, or the mean, where they all had the same mask."""
    if d.ndim < 4 or d.shape[axis] == 1 or (given_mask.ndim == 4 and given_mask.shape[axis] > 1):
        return np.asarray(right())
    if at is None:
        return np.asarray(right() / d.shape[axis])
    mask = np.take(np.broadcast_to(mask, d.shape), [0], axis=axis)
    return np.asarray(right(d=np.take(d, [at], axis=axis), mask=mask))


SINKS: dict[str, Variants] = {
    "sink's gradient without its share": {
        D_SINKS: lambda delta: -delta.reshape(-1, *delta.shape[-2:]).sum(axis=(0, 2))
    },
    "sink's gradient with the wrong sign": {D_SINKS: lambda right: -right()},
    "sink's gradient in base 2": (
        Patch({D_SINKS: lambda right: right() / LN2}, "log₂ e times too large"),
        Patch({D_SINKS: lambda right: right() * LN2}, "ln 2 times"),
    ),
    "sink's gradient not summed over the batch": (
        Patch({D_SINKS: _of_items(slice(-1, None))}, "the last batch item", (BATCH,)),
        Patch({D_SINKS: _of_items(slice(1))}, "the first batch item", (BATCH,)),
        Patch({D_SINKS: lambda right, x: right() / len(x)}, "the mean batch item", (BATCH,)),
    ),
    "gradient of the mask taken after the scale": {
        D_BIAS: lambda right, d_scores: right(d=d_scores)
    },
    "gradient of the mask not summed over what it was broadcast over": [
        Patch({D_BIAS: partial(_of_one, axis=axis, at=at)}, f"the {which} {words}", (BATCH, HEAD))
        for axis, words in ((BATCH, "batch item"), (HEAD, "head"))
        for at, which in ((-1, "last"), (0, "first"), (None, "mean"))
    ],
}

# ---- one factor


def _factor_of(setup: Setup) -> float | None:
    """What the scores are multiplied by; None where that is nothing, or 0."""
    return (setup.how.scale != "none" and setup.how.scale_factor(setup.d_k)) or None


def _scale(name: str, setup: Setup, _: Evidence, *, divided: bool = False) -> Iterator[Variants]:
    """A gradient multiplied, or divided, by the scale; where scores are scaled, and not by 0."""
    if scale := _factor_of(setup):
        factor = 1 / scale if divided else scale
        yield {name: lambda right: right() * factor}


def _base_2(setup: Setup, _: Evidence) -> Iterator[Patch]:
    for factor, words in ((1 / LN2, "log₂ e times too large"), (LN2, "ln 2 times")):
        yield from (times(factor, *names, words=words) for names in SETS)
    if scale := _factor_of(setup):
        words = "scale · log₂ e times too large"
        yield from (times(scale / LN2, *names, words=words) for names in SETS[:3])


FORM = 0.01
"""A fitted factor is that of a width where it is as near."""


def _other_scale(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    """That of another width, or the one that fits."""
    (_, n_heads, _, n_k), d_k = setup.shape, setup.d_k
    given, d_v = _factor_of(setup), setup.inputs["v"].shape[-1]
    known = {"1/√d_v": d_v**-0.5, "1/d_k": 1 / d_k, "1/√(heads · d_k)": (d_k * n_heads) ** -0.5}
    known |= {"1/√(number of keys)": n_k**-0.5, "√d_k": d_k**0.5}
    if given is None:
        return
    for words, factor in known.items():
        if not any(math.isclose(factor, x, rel_tol=1e-6) for x in (given, given * given)):
            yield Patch(times(factor / given, D_SCORES).steps, words)
    stages = {} if evidence.sample is None else evidence.sample.errors
    for stage in (stages[name] for name in (D_Q, D_K) if name in stages):
        fine = np.isfinite(stage.observed) & np.isfinite(stage.expected)
        size = float(np.square(stage.expected[fine]).sum())
        if size and (ratio := float((stage.observed * stage.expected)[fine].sum()) / size):
            x = ratio * given
            forms = [f" = {words}" for form, words, _ in roots(x) if abs(form / x - 1) < FORM]
            yield Patch(times(ratio, D_SCORES).steps, f"{x:.6g}{forms[0] if forms else ''}")


def _mean_loss(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    (n_batch, n_heads, n_q, _k), d = setup.shape, setup.inputs[GIVEN_GRADIENT]
    sizes = {n_batch: "batch items", n_q: "queries", n_batch * n_q: "tokens", d.size: "numbers"}
    for n, words in (sizes | {n_heads: "heads"}).items():
        if n > 1:
            yield Patch(inputs={GIVEN_GRADIENT: d / n}, detail=f"over {n} {words}")
            if evidence.expected.keys() - {*ALL}:  # d_sinks, say, may be summed as it is
                yield Patch(times(1 / n, *ALL).steps, f"dQ, dK and dV alone, over {n} {words}")


FACTORS: dict[str, Variants] = {
    "scale left out of dQ": partial(_scale, D_Q, divided=True),
    "scale left out of dK": partial(_scale, D_K, divided=True),
    "scale left out of dS (dQ and dK)": partial(_scale, D_SCORES, divided=True),
    "scale applied twice in dS": partial(_scale, D_SCORES),
    "scale applied twice in dQ": partial(_scale, D_Q),
    "scale applied twice in dK": partial(_scale, D_K),
    "base 2 of the exponent left in the gradient": _base_2,
    "another scale in dS": _other_scale,
    "scale applied to dV": partial(_scale, D_V),
    "ones in place of dO": only_if(
        lambda setup: (setup.inputs[GIVEN_GRADIENT] != 1).any(),
        Patch(inputs={GIVEN_GRADIENT: lambda inputs: np.ones_like(inputs[GIVEN_GRADIENT])}),
    ),
    "mean, not sum, of the loss": _mean_loss,
    "a gradient with the wrong sign": [times(-1, *names) for names in (*SETS, (D_K, D_V))],
    "a gradient is 0": [times(0, *names) for names in (*SETS[:4], (D_K, D_V))],
}

STEPS = {**SOFTMAX, **SOFTCAP, **DROPOUT, **SINKS, **FACTORS}
