"""Bugs of gradients: the forward pass is right, the way back is not. Softmax and the scale.

Each is an edit of the plan's gradient steps; those of recomputed weights are in recomputed.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import gradients as g
from attncli.attention.run import Step
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.bugs.edits import (
    D_K,
    D_OUTPUT,
    D_Q,
    D_SCORES,
    D_V,
    HEAD,
    ROW,
    Given,
    Plan,
    apply,
    edited,
    gradient_by,
    instead,
    last,
    named,
    of_gradients,
    row,
    times,
    times_scale,
)
from attncli.check.fitting import roots
from attncli.check.setup import Edit, Setup
from attncli.stages import OUTPUT, WEIGHTS

# ---- the softmax


def _delta(new: Any, *whole: int, **reads: str) -> Any:
    return ("", [instead(g.delta, new, **reads)], whole)


def _shifted(step: int) -> Any:
    def compute(given: Given) -> Array:
        other = np.roll(given["d_o"], step, axis=-2)
        return np.asarray((given["o"] * other).sum(axis=-1))

    return compute


def _other_query() -> Any:
    reads = {"o": OUTPUT, "d_o": D_OUTPUT}
    return tuple(
        (words, [instead(g.delta, _shifted(step), **reads)], (ROW,))
        for step, words in ((1, "the row before"), (-1, "the row after"))
    )


def _by_column(step: Step, _: Plan) -> Step:
    def compute(a: Array, d: Array, **_: Any) -> Array:
        return np.asarray((a * d).sum(axis=-2, keepdims=True) + 0 * a[..., :, :])

    def d_softmax(a: Array, d: Array, **_: Any) -> Array:
        return np.asarray(a * (d - compute(a, d)))

    return step._replace(compute=d_softmax)


def _softmax(change: Any) -> Edit:
    """Another derivative of softmax."""

    def edit(plan: list[Step]) -> list[Step]:
        own = gradient_by(plan, g.d_softmax)
        if own is None:
            return plan
        other = change(own, plan)
        return [other if step is own else step for step in plan]

    return edit


def _by(new: Any) -> Edit:
    return _softmax(lambda step, _: step._replace(compute=new))


def _element(a: Array, d: Array, **_: Any) -> Array:
    return np.asarray(a * (1 - a) * d)


def _added(a: Array, d: Array, delta: Array, axis: int = -1, **_: Any) -> Array:
    return np.asarray(a * (d + np.expand_dims(delta, axis)))


def _without_weights(a: Array, d: Array, delta: Array, axis: int = -1, **_: Any) -> Array:
    return np.where(a == 0, a, d - np.expand_dims(delta, axis))


def _unnormalised(given: Given) -> Array:
    x = given["x"]
    top = x.max(axis=-1, keepdims=True)
    total = np.exp(x - np.where(np.isfinite(top), top, 0)).sum(axis=-1)
    return np.asarray((given["o"] * given["d_o"]).sum(axis=-1) * total)


def _delta_unnormalised(plan: list[Step]) -> list[Step]:
    softmax = named(plan, WEIGHTS)
    if softmax is None:
        return plan
    reads = {"o": OUTPUT, "d_o": D_OUTPUT, "x": softmax.reads["x"]}
    return instead(g.delta, _unnormalised, **reads)(plan)


def _delta_of_head(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if setup.shape[HEAD] == 1 or not of_gradients(setup, evidence):
        return
    for words, index in (
        ("the head before", lambda n: np.roll(np.arange(n), 1)),
        ("the first head", lambda n: np.zeros(n, dtype=np.intp)),
    ):

        def compute(given: Given, index: Any = index) -> Array:
            own = np.nan_to_num(given["a"] * given["d"]).sum(axis=-1)
            return np.asarray(own[..., index(own.shape[-2]), :])

        if (found := apply(setup, [instead(g.delta, compute)], (HEAD,))) is not None:
            yield found.with_detail(words)


# ---- the scale


def _scale_again(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Another factor in dS: one of another width, or of base 2."""
    if not of_gradients(setup, evidence):
        return
    (_, n_heads, _, n_k), d_v = setup.shape, setup.inputs["v"].shape[-1]
    d_k = setup.d_k
    given = setup.how.scale_factor(d_k)
    for factor, words in (
        (d_v**-0.5, "1/√d_v"),
        (1 / d_k, "1/d_k"),
        ((d_k * n_heads) ** -0.5, "1/√(heads · d_k)"),
        (n_k**-0.5, "1/√(number of keys)"),
        (d_k**0.5, "√d_k"),
    ):
        if setup.how.scale != "none" and min(abs(factor / x - 1) for x in (given, given**2)) > 1e-6:
            own = apply(setup, [times(D_SCORES, factor / given)])
            if own is not None:
                yield own.with_detail(words)
    if setup.how.scale == "none" or (sample := evidence.sample) is None:
        return
    for name in (D_Q, D_K):
        if (stage := sample.errors.get(name)) is None:
            continue
        known = np.isfinite(stage.observed) & np.isfinite(stage.expected)
        observed, expected = stage.observed[known], stage.expected[known]
        size = float(np.square(expected).sum())
        times_it = float((observed * expected).sum()) / size if size else 0.0
        if times_it and (own := apply(setup, [times(D_SCORES, times_it)])) is not None:
            factor = times_it * given
            forms = [words for x, words, _ in roots(factor) if abs(x / factor - 1) < FORM]
            yield own.with_detail(f"{factor:.6g}" + (f" = {forms[0]}" if forms else ""))


FORM = 0.01
"""A fitted factor is that of a width where it is as near."""

_BASE_2 = 1 / math.log(2)


def _base_2() -> Any:
    for factor, words in ((_BASE_2, "log₂ e times too large"), (1 / _BASE_2, "ln 2 times")):
        for names in ((D_Q,), (D_K,), (D_Q, D_K), (D_V,), (D_Q, D_K, D_V)):
            yield f"{' and '.join(names)}, {words}", [times(name, factor) for name in names]


BACKWARD: tuple[Bug, ...] = (
    row(
        "δ left out (dS = A ∘ dA)",
        edited(_delta(lambda given: np.zeros(given["a"].shape[:-1], given["a"].dtype))),
        "the gradient of softmax is A ∘ (dA − δ): what all keys have in common must be taken off",
        "triton#919",
    ),
    row(
        "δ from the gradient of another query (dO shifted by a row)",
        edited(*_other_query()),
        "δ of a query is the sum of O ∘ dO over its own row",
        "flash-attention#2555",
    ),
    row(
        "δ of another head",
        _delta_of_head,
        "δ is read with the head of another query head",
        "native-sparse-attention-triton#27",
    ),
    row(
        "δ added, not subtracted",
        edited(("", [_by(_added)])),
        "the gradient of softmax is A ∘ (dA − δ), not A ∘ (dA + δ)",
    ),
    row(
        "δ from an unnormalised O",
        edited(("", [_delta_unnormalised])),
        "δ is taken of the output before it is divided by the sum of its powers",
        "flash-attention#2555",
    ),
    row(
        "softmax taken element by element (dS = A(1−A) ∘ dA)",
        edited(("", [_by(_element)])),
        "a score changes the weights of all keys of its row, not its own alone",
        "cs231n#10",
    ),
    row(
        "softmax's gradient summed over the queries",
        edited(("", [_softmax(_by_column)], (ROW,))),
        "δ is summed over each column of the weights, not over each row",
    ),
    row(
        "A left out of the gradient of softmax",
        edited(("", [_by(_without_weights)])),
        "the gradient of softmax is A ∘ (dA − δ), not dA − δ",
    ),
    row(
        "scale left out of dQ",
        edited(("", [times_scale(D_Q, -1)])),
        "dQ is dS K times the scale of the scores",
        "triton#2059",
    ),
    row(
        "scale left out of dK",
        edited(("", [times_scale(D_K, -1)])),
        "dK is dSᵀ Q times the scale of the scores",
        "flash-attention#2657",
    ),
    row(
        "scale left out of dS (dQ and dK)",
        edited(("", [times_scale(D_SCORES, -1)])),
        "the scores were scaled, so their gradient is scaled as well",
        "triton#2059",
    ),
    row(
        "scale applied twice in dS",
        edited(("", [times_scale(D_SCORES, 1)])),
        "dQ and dK are multiplied by the scale twice",
        "triton#2059, FastVideo#1730",
    ),
    row(
        "scale applied twice in dQ",
        edited(("", [times_scale(D_Q, 1)])),
        "the keys that dQ is made of are scaled already",
        "FastVideo#1730",
    ),
    row(
        "scale applied twice in dK",
        edited(("", [times_scale(D_K, 1)])),
        "the queries that dK is made of are scaled already",
        "FastVideo#1730",
    ),
    row(
        "base 2 of the exponent left in the gradient",
        edited(*_base_2()),
        "scores times log₂ e for exp2 must not stay in the gradient, or ln 2 was not put in",
        "attention-gym#200, triton_docs_tutorials#6",
    ),
)

FACTORS: tuple[Bug, ...] = (
    last(
        "another scale in dS",
        _scale_again,
        "the scale on the way back is not that of the scores",
        "TransformerEngine#3216",
    ),
    last(
        "scale applied to dV",
        edited(("", [times_scale(D_V, 1)])),
        "dV has no scale: it is Aᵀ dO",
    ),
)
"""Tried where no other bug fits: a factor alone may have many causes."""
