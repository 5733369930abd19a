"""Bugs of gradients of grouped heads: every query head of a group adds to dK and dV."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attncli.arrays import Array
from attncli.attention import gradients as g
from attncli.attention.heads import key_head_of
from attncli.attention.run import Step
from attncli.check.bugs.backward.edits import D_K, D_V, HEAD, Plan, edited, replaced, row
from attncli.check.bugs.bug import Bug, Change
from attncli.check.setup import Edit
from attncli.convention import HeadOrder

Summed = Callable[[Array, int, HeadOrder], Array]


def _summed(change: Summed) -> Callable[..., list[Edit]]:
    """Another sum over the query heads of a group, in these gradients."""

    def new(step: Step, _: Plan) -> Step | None:
        return step._replace(compute=change) if step.compute is g.summed_heads else None

    return lambda *names: [replaced(name, new) for name in names]


def _one_alone(pick: int) -> Summed:
    def compute(x: Array, n_kv_heads: int, order: HeadOrder) -> Array:
        mine = key_head_of(x.shape[-3], n_kv_heads, order)
        chosen = [np.flatnonzero(mine == head)[pick] for head in range(n_kv_heads)]
        return np.asarray(x[..., chosen, :, :])

    return compute


def _by_index(of: Callable[[Array, int], Array]) -> Summed:
    """Query heads added to the key head that this index gives; −1 is none."""

    def compute(x: Array, n_kv_heads: int, order: HeadOrder) -> Array:
        mine = of(np.arange(x.shape[-3]), n_kv_heads)
        sums = [x[..., mine == head, :, :].sum(axis=-3) for head in range(n_kv_heads)]
        return np.stack(sums, axis=-3)

    return compute


def _averaged(x: Array, n_kv_heads: int, order: HeadOrder) -> Array:
    return np.asarray(g.summed_heads(x, n_kv_heads, order) * n_kv_heads / x.shape[-3])


def _other_order(x: Array, n_kv_heads: int, order: HeadOrder) -> Array:
    return g.summed_heads(x, n_kv_heads, "tiled" if order == "blocks" else "blocks")


def _in_either(change: Summed, *whole: int) -> Change:
    """In dK and dV, or in one of the two alone."""
    make = _summed(change)
    return edited(
        ("", make(D_K, D_V), whole),
        ("in dK alone", make(D_K), whole),
        ("in dV alone", make(D_V), whole),
    )


def _as_they_are(heads: Array, n_kv_heads: int) -> Array:
    return np.where(heads < n_kv_heads, heads, -1)


HEADS: tuple[Bug, ...] = (
    row(
        "grouped heads not summed in dK, dV (the last one wins)",
        _in_either(_one_alone(-1)),
        "dK and dV hold one query head's share; every head of the group adds to them",
        "levanter#449",
        touches="gradients key-heads",
    ),
    row(
        "grouped heads not summed in dK, dV (the first one alone)",
        _in_either(_one_alone(0)),
        "dK and dV hold one query head's share; every head of the group adds to them",
        "levanter#449",
        touches="gradients key-heads",
    ),
    row(
        "grouped heads averaged in dK, dV",
        _in_either(_averaged),
        "the query heads of a group are summed in dK and dV, not averaged",
        "levanter#449",
        touches="gradients key-heads",
    ),
    row(
        "grouped heads summed in the other order",
        _in_either(_other_order, HEAD),
        "the query heads of a group are consecutive ones, and others are summed, or the reverse",
        "native-sparse-attention-triton#27",
        touches="gradients key-heads",
    ),
    row(
        "query heads divided by the number of key heads, not by the group, in dK, dV",
        _in_either(_by_index(lambda h, n: h // n), HEAD),
        "query head h belongs to key head h // (query heads / key heads), not to h // (key heads)",
        "native-sparse-attention-triton#27",
        touches="gradients key-heads",
    ),
    row(
        "dK, dV indexed with query heads",
        _in_either(_by_index(_as_they_are), HEAD),
        "what query head h gives is written to key head h; query heads past the last are lost",
        "flash-linear-attention#384",
        touches="gradients key-heads",
    ),
)
