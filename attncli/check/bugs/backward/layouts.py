"""Bugs of gradients with numbers of another place or layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.check.bugs.backward.edits import (
    D_K,
    D_Q,
    D_V,
    HEAD,
    KEY,
    ROW,
    after,
    apply,
    edited,
    last,
    of_gradients,
    products,
    replaced,
    row,
    times,
)
from attncli.check.bugs.bug import Bug, Change, Evidence
from attncli.check.setup import Edit, Setup
from attncli.stages import GIVEN_GRADIENT


def _zero(names: Sequence[str]) -> list[Edit]:
    return [after(name, lambda x, _: np.zeros_like(x)) for name in names]


def _swapped(one: str, other: str) -> Any:
    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        arrays = [setup.inputs[name.removeprefix("d_")] for name in (one, other)]
        is_there = of_gradients(setup, evidence) and evidence.expected.keys() & {one, other}
        if is_there and arrays[0].shape == arrays[1].shape:
            yield replace(setup, relabel={**setup.relabel, one: other, other: one})

    return change


def _heads_as_tokens(x: Array) -> Array:
    return np.swapaxes(x, 1, 2).reshape(x.shape)


def _tokens_as_heads(x: Array) -> Array:
    n_batch, n_heads, n, d = x.shape
    return np.swapaxes(x.reshape(n_batch, n, n_heads, d), 1, 2)


LAYOUTS = (
    (_heads_as_tokens, "(tokens, heads, d) read as (heads, tokens, d)"),
    (_tokens_as_heads, "(heads, tokens, d) read as (tokens, heads, d)"),
)


def _written_otherwise(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Observed gradients in another layout of the same shape."""
    if not of_gradients(setup, evidence):
        return
    names = [name for name in (D_Q, D_K, D_V) if name in evidence.expected]
    groups = [names, *([[name] for name in names] if len(names) > 1 else [])]
    for some in groups:
        for correct, words in LAYOUTS:
            if setup.shape[HEAD] > 1:
                yield setup.with_relayout(correct, *some).with_detail(f"{', '.join(some)}: {words}")


def _other_output(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """dO in another layout, of another head or of another batch item."""
    d = setup.inputs.get(GIVEN_GRADIENT)
    if d is None or not of_gradients(setup, evidence):
        return
    for axis, words in ((0, "batch item"), (HEAD, "head"), (ROW, "query")):
        if d.shape[axis] > 1:
            for step, which in ((1, "before"), (-1, "after")):
                rolled = np.roll(d, step, axis=axis)
                yield setup.with_inputs(**{GIVEN_GRADIENT: rolled}).with_detail(
                    f"that of the {words} {which}"
                )
    if setup.shape[HEAD] > 1:
        for read, words in LAYOUTS:
            yield setup.with_inputs(**{GIVEN_GRADIENT: read(d)}).with_detail(words)
    if setup.shape[0] > 1:
        first = np.broadcast_to(d[:1], d.shape)
        yield setup.with_inputs(**{GIVEN_GRADIENT: first}).with_detail("of the first batch item")


def _ones(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    d = setup.inputs.get(GIVEN_GRADIENT)
    if d is not None and of_gradients(setup, evidence) and not (d == 1).all():
        yield setup.with_inputs(**{GIVEN_GRADIENT: np.ones_like(d)})


def _mean(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    d = setup.inputs.get(GIVEN_GRADIENT)
    if d is None or not of_gradients(setup, evidence):
        return
    n_batch, n_heads, n_q, _ = setup.shape
    sizes = {n_batch: "batch items", n_q: "queries", n_batch * n_q: "tokens", d.size: "numbers"}
    sizes |= {n_heads: "heads"}
    for n, words in sizes.items():
        if n > 1:
            yield setup.with_inputs(**{GIVEN_GRADIENT: d / n}).with_detail(f"over {n} {words}")
            if evidence.expected.keys() - {D_Q, D_K, D_V}:  # d_sinks, say, may be summed as it is
                edits = [times(name, 1 / n) for name in (D_Q, D_K, D_V)]
                if (found := apply(setup, edits)) is not None:
                    yield found.with_detail(f"dQ, dK and dV alone, over {n} {words}")


def _turned(wrong: Callable[[frozenset[str]], Mapping[str, frozenset[str]]]) -> Change:
    """Rotary positions by which the gradients of both, of q or of k are turned otherwise."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        is_rotary = setup.positions is not None and setup.positions.is_rotary
        if not is_rotary or not of_gradients(setup, evidence):
            return
        for names, words in (((D_Q, D_K), "dQ and dK"), ((D_Q,), "dQ"), ((D_K,), "dK")):
            yield setup.with_positions(**wrong(frozenset(names))).with_detail(words)

    return change


def _if_square(edit: Edit, *whole: int) -> Change:
    """An edit by which queries and keys are exchanged: there must be as many of both."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        is_square = setup.shape[ROW] == setup.shape[KEY] > 1
        if not is_square or not of_gradients(setup, evidence):
            return
        if (found := apply(setup, [edit], whole)) is not None:
            yield found

    return change


def _plain(a: Array, b: Array) -> Array:
    return np.asarray(a @ b)


def _transposed(a: Array, v: Array, allowed: Array | None = None) -> Array:
    return np.asarray(np.swapaxes(a, -1, -2) @ v)


PLACES: tuple[Bug, ...] = (
    row(
        "dK and dV swapped",
        _swapped(D_K, D_V),
        "what is called dK is the gradient of V, and the reverse",
    ),
    row(
        "dQ and dK swapped",
        _swapped(D_Q, D_K),
        "what is called dQ is the gradient of K, and the reverse",
    ),
    row(
        "A instead of Aᵀ in dV",
        _if_square(products(D_V, _plain)),
        "dV is Aᵀ dO: each value sums over the queries that attend to it",
    ),
    row(
        "dS instead of dSᵀ in dK",
        _if_square(products(D_K, _plain)),
        "dK is dSᵀ Q: each key sums over the queries that attend to it",
    ),
    row(
        "dSᵀ instead of dS in dQ",
        _if_square(replaced(D_Q, lambda step, _: step._replace(compute=_transposed)), ROW),
        "dQ is dS K: each query sums over the keys that it attends to",
    ),
    row(
        "gradients in another layout",
        _written_otherwise,
        "heads and tokens of a gradient are exchanged by a reshape",
        "diffusers#14338, diffusers#14341",
    ),
    row(
        "dO of another place, or in another layout",
        _other_output,
        "the gradient of the output is read where another one is",
        "flash-linear-attention#632, diffusers#14338",
    ),
    row(
        "gradient left in the rotated frame",
        _turned(lambda names: {"back_on": frozenset((D_Q, D_K)) - names}),
        "dQ and dK are those of the rotated queries and keys: rotate them back by the same angles",
    ),
    row(
        "gradient rotated once more, not back",
        _turned(lambda names: {"forth_on": names}),
        "the gradients of rotated queries and keys are turned back by their angles, not on",
    ),
)


OTHER_LOSSES: tuple[Bug, ...] = (
    last(
        "ones in place of dO",
        _ones,
        "the gradients are those of the sum of the output",
        "RL-Kernel#188",
    ),
    last(
        "mean, not sum, of the loss",
        _mean,
        "every gradient is smaller by one factor: that of a mean over the batch, or over tokens",
    ),
    last(
        "a gradient with the wrong sign",
        edited(
            *(
                (" and ".join(names), [times(name, -1.0) for name in names])
                for names in ((D_Q,), (D_K,), (D_V,), (D_Q, D_K), (D_K, D_V), (D_Q, D_K, D_V))
            ),
        ),
        "it is how fast the loss grows, not how fast it falls",
        "leetgpu-challenges#302",
    ),
    last(
        "a gradient is 0",
        edited(
            *(
                (" and ".join(names), _zero(names))
                for names in ((D_Q,), (D_K,), (D_V,), (D_Q, D_K), (D_K, D_V))
            ),
        ),
        "the input is cut from the graph, or its gradient was not written",
        "aprender#2203",
    ),
)
"""Tried where no other bug fits: a factor alone may have many causes."""
