"""Bugs of gradients in the softmax: δ, and its derivative A ∘ (dA − δ)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import gradients as g
from attncli.attention.parts import finite
from attncli.attention.run import Step
from attncli.check.bugs.backward.again import log_sum_exp, top_of
from attncli.check.bugs.backward.edits import (
    D_OUTPUT,
    HEAD,
    ROW,
    Given,
    Variant,
    apply,
    edited,
    instead,
    named,
    of_gradients,
    of_output,
    replaced,
    row,
)
from attncli.check.bugs.bug import Bug, Evidence
from attncli.check.bugs.kernels import BLOCKS
from attncli.check.setup import Edit, Setup
from attncli.stages import OUTPUT, WEIGHTS


def _other_query() -> Iterator[Variant]:
    for step, words in ((1, "the row before"), (-1, "the row after")):

        def shifted(given: Given, step: int = step) -> Array:
            return of_output({**given, "d_o": np.roll(given["d_o"], step, axis=-2)})

        yield words, [instead(g.delta, shifted, o=OUTPUT, d_o=D_OUTPUT)], (ROW,)


def _own(given: Given) -> Array:
    """δ as it should be, before it is read."""
    return np.asarray(np.nan_to_num(given["a"] * given["d"]).sum(axis=-1))


def _of_query(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """δ of the row before or after, or of the same row of the first block."""
    if not of_gradients(setup, evidence):
        return
    rows = np.arange(n_q := setup.shape[ROW])
    reads = {"the row before": np.roll(rows, 1), "the row after": np.roll(rows, -1)}
    for block in BLOCKS:
        if block < n_q:
            reads[f"that of the first {block} queries for every block of {block}"] = rows % block
    for words, index in reads.items():

        def compute(given: Given, index: Any = index) -> Array:
            return np.asarray(_own(given)[..., index])

        if (found := apply(setup, [instead(g.delta, compute)], (ROW,))) is not None:
            yield found.with_detail(words)


def _averaged(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """δ divided by the number of keys, or of the dimensions of v."""
    if not of_gradients(setup, evidence):
        return
    d_v = setup.inputs["v"].shape[-1]
    for n, words in ((setup.shape[3], "keys"), (d_v, "dimensions of v")):

        def compute(given: Given, n: int = n) -> Array:
            return np.asarray(_own(given) / n)

        if n > 1 and (found := apply(setup, [instead(g.delta, compute)])) is not None:
            yield found.with_detail(f"over {n} {words}")


def _by_column(a: Array, d: Array, **_: Any) -> Array:
    return np.asarray(a * (d - (a * d).sum(axis=-2, keepdims=True)))


def _softmax(new: Any) -> Edit:
    """Another derivative of softmax."""
    return replaced(g.d_softmax, lambda step, _: step._replace(compute=new))


def _element(a: Array, d: Array, **_: Any) -> Array:
    return np.asarray(a * (1 - a) * d)


def _added(a: Array, d: Array, delta: Array, axis: int = -1, **_: Any) -> Array:
    return np.asarray(a * (d + np.expand_dims(delta, axis)))


def _without_weights(a: Array, d: Array, delta: Array, axis: int = -1, **_: Any) -> Array:
    return np.where(a == 0, a, d - np.expand_dims(delta, axis))


def _unnormalised(given: Given) -> Array:
    x, sinks = given["x"], given.get("sinks")
    total = np.exp(log_sum_exp(x, sinks) - finite(top_of(x, sinks)))
    return np.asarray(of_output(given) * total[..., 0])


def _delta_unnormalised(plan: list[Step]) -> list[Step]:
    softmax = named(plan, WEIGHTS)
    if softmax is None:
        return plan
    reads = {"o": OUTPUT, "d_o": D_OUTPUT, **softmax.reads}
    return instead(g.delta, _unnormalised, **reads)(plan)


def _delta_of_head(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if setup.shape[HEAD] == 1 or not of_gradients(setup, evidence):
        return
    for words, index in (
        ("the head before", lambda n: np.roll(np.arange(n), 1)),
        ("the first head", lambda n: np.zeros(n, dtype=np.intp)),
    ):

        def compute(given: Given, index: Any = index) -> Array:
            own = _own(given)
            return np.asarray(own[..., index(own.shape[-2]), :])

        if (found := apply(setup, [instead(g.delta, compute)], (HEAD,))) is not None:
            yield found.with_detail(words)


SOFTMAX: tuple[Bug, ...] = (
    row(
        "δ left out (dS = A ∘ dA)",
        edited(("", [instead(g.delta, lambda given: np.zeros_like(given["a"][..., 0]))])),
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
        "δ of another query",
        _of_query,
        "δ is read with the row of another query",
        "flash-attention#2555, triton#5660",
    ),
    row(
        "δ of another head",
        _delta_of_head,
        "δ is read with the head of another query head",
        "native-sparse-attention-triton#27",
    ),
    row(
        "δ is a mean, not a sum",
        _averaged,
        "δ is the sum of A ∘ dA over the keys, or that of O ∘ dO over the dimensions",
        "TorchCode#10",
    ),
    row(
        "δ added, not subtracted",
        edited(("", [_softmax(_added)])),
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
        edited(("", [_softmax(_element)])),
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
        edited(("", [_softmax(_without_weights)])),
        "the gradient of softmax is A ∘ (dA − δ), not dA − δ",
    ),
)
