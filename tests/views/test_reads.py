"""What a cell is said to be computed from is what its printed arithmetic changes with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.attention.positions import alibi, position_dots, sinusoidal
from attncli.attention.rotary import rotary
from attncli.convention import Convention
from attncli.trace import Stage, Trace
from attncli.views.arithmetic import equation
from attncli.views.cell import Entry
from attncli.views.page import places_of
from attncli.views.reads import reads_of
from attncli.views.select import Block, DisplayOptions, as_matrix, blocks_of

from .traces import CAUSAL, attention

PRECISION, TERMS = 15, 10**6  # every number is written, whole
DIGITS = 12  # of a number that is changed: so many of them are

RNG = np.random.default_rng(11)


def grouped() -> Trace:
    q, k, v = RNG.normal(size=(4, 3, 5)), RNG.normal(size=(2, 7, 5)), RNG.normal(size=(2, 7, 2))
    how = Convention(head_order="tiled", causal=True, causal_align="bottom-right")
    return attncli.attend(q, k, v, convention=how, sinks=RNG.normal(size=4))


def projected() -> Trace:
    weights = {name: RNG.normal(size=(5, 6)) for name in ("w_q", "w_k", "w_v")}
    biases = {name: RNG.normal(size=6) for name in ("b_q", "b_k", "b_v")}
    given = weights | biases | {"w_o": RNG.normal(size=(6, 5)), "b_o": RNG.normal(size=5)}
    return attncli.multi_head_attention(RNG.normal(size=(3, 5)), given, n_heads=2)


def way_back(**how: Any) -> Trace:
    q, d = RNG.normal(size=(2, 4, 3, 5)), RNG.normal(size=(2, 4, 3, 7))
    k, v = RNG.normal(size=(2, 2, 3, 5)), RNG.normal(size=(2, 2, 3, 7))
    return attncli.attend(q, k, v, d_output=d, **how)


def way_back_of_weights(n_heads: int, **more: Any) -> Trace:
    wide = {f"w_{name}": RNG.normal(size=(5, 2 * n_heads)) for name in "qkv"}
    biases = {f"b_{name}": RNG.normal(size=2 * n_heads) for name in "qkv"}
    given = wide | biases | more
    x = RNG.normal(size=(2, 3, 5))
    return attncli.multi_head_attention(x, given, n_heads=n_heads, d_output="random", causal=True)


TRACES: dict[str, Callable[[], Trace]] = {
    "gradients": lambda: way_back(mask=RNG.normal(size=(4, 1, 3)), softcap=3.0),
    "gradients, tiled": lambda: way_back(head_order="tiled", causal=True, dropout=0.3),
    "gradients over queries": lambda: way_back(softmax_over="queries", causal=True),
    "gradients of a finite mask": lambda: way_back(causal=True, mask_value=-2.0),
    "gradients of sinks": lambda: attncli.attend(
        *RNG.normal(size=(3, 3, 5)), sinks=[0.5], d_output="random"
    ),
    "gradients of weights": lambda: way_back_of_weights(2, w_o=RNG.normal(size=(4, 7))),
    "gradients of x": lambda: way_back_of_weights(1),
    "masked": lambda: attention(mask=CAUSAL),
    "over queries": lambda: attncli.attend(
        *RNG.normal(size=(3, 5, 3)), convention=Convention(softmax_over="queries")
    ),
    "softcap, dropout, batch": lambda: attncli.attend(
        *RNG.normal(size=(3, 2, 3, 5, 2)), convention=Convention(softcap=3.0, dropout=0.3)
    ),
    "grouped": grouped,
    "projected": projected,
    "encoder": lambda: attncli.explain("the river bank", heads=2, dim=6, block="encoder", layers=2),
    "decoder": lambda: attncli.explain(
        "the bank", heads=2, dim=6, block="decoder", target="la rive"
    ),
    "positions": lambda: attncli.posenc(3, 7),
    "dots": lambda: position_dots(sinusoidal(3, 4)),
    "rope": lambda: rotary(RNG.normal(size=(3, 6))),
    "rope, interleaved": lambda: rotary(RNG.normal(size=(3, 6)), layout="interleaved"),
    "rope of a part": lambda: rotary(RNG.normal(size=(3, 7)), rotary_dim=4),
    "alibi": lambda: alibi(3, 5),
    "words": lambda: attncli.similarity(
        {"king": [0.9, 0.5], "queen": [0.2, 0.5], "dad": [0.9, 0.7]}
    ),
}


def cells(trace: Trace) -> Iterator[tuple[Block, Stage, dict[str, int], int, int]]:
    """Two cells of every stage with arithmetic, at two of its places."""
    for block in blocks_of(trace):
        stages = [stage for stage in block.stages.values() if stage.work]
        for stage in stages:
            places, _ = places_of(block, [stage], DisplayOptions())
            for place in (places[0], places[-1]):
                n, m = block.matrix(stage, place.where).shape
                yield block, stage, dict(place.where), 0, m - 1
                yield block, stage, dict(place.where), n - 1, m // 2


def text_of(trace: Trace, prefix: str, name: str, where: dict[str, int], i: int, j: int) -> str:
    block = next(block for block in blocks_of(trace) if block.prefix == prefix)
    found = equation(Entry(block, block.stages[name], where, i, j, PRECISION, TERMS))
    return "" if found is None else repr((found.forms[:-1], found.remark))


def with_another_number(trace: Trace, name: str, at: tuple[int, ...]) -> Trace:
    """The trace with one number of one stage changed, and nothing else."""

    def change(block: Trace, prefix: str) -> Trace:
        steps: list[Stage | Trace] = []
        for step in block.steps:
            if isinstance(step, Trace):
                steps.append(change(step, f"{prefix}{step.name}."))
            elif prefix + step.name == name:
                value = step.value.astype(float).copy()
                value[at] = (
                    0.123456789 if not np.isfinite(value[at]) else value[at] * 1.3 + 0.0123456
                )
                steps.append(replace(step, value=value))
            else:
                steps.append(step)
        return replace(block, steps=tuple(steps))

    return change(trace, "")


@pytest.mark.parametrize("which", TRACES)
def test_arithmetic_changes_with_what_is_lit_and_with_nothing_else(which: str) -> None:
    trace = TRACES[which]()
    stages = dict(trace.stages())
    n_lit = 0
    for block, stage, where, i, j in cells(trace):
        before = text_of(trace, block.prefix, stage.name, where, i, j)
        lit: dict[str, set[tuple[int, ...]]] = {}
        for read in reads_of(block, stage, where):
            source = as_matrix(stages[read.name])
            size = block.matrix(source, read.where).shape
            first = tuple(
                (block.entry(axis, read.where) or 0) if n > 1 else 0
                for axis, n in zip(source.axes[:-2], source.value.shape, strict=False)
            )
            own = (read.rows.found(i, j), read.columns.found(i, j))
            spans = [range(n) if at is None else [at] for at, n in zip(own, size, strict=True)]
            places: set[tuple[int, ...]] = {
                (a, b) for a in spans[0] for b in spans[1] if 0 <= a < size[0] and 0 <= b < size[1]
            }
            for at in places:
                whole = zip(source.axes, (*first, *at)[-source.value.ndim :], strict=True)
                own_at = tuple(n for axis, n in whole if axis)  # as the trace holds it
                lit.setdefault(read.name, set()).add(own_at)
        names = {
            name if f"{block.prefix}{name}" not in stages else f"{block.prefix}{name}"
            for name in stage.reads.values()
        }
        for name in names & stages.keys():
            for at in list(np.ndindex(stages[name].value.shape))[
                :: max(1, stages[name].value.size // 40)
            ]:
                after = text_of(
                    with_another_number(trace, name, at), block.prefix, stage.name, where, i, j
                )
                if after != before and lit:  # of a rope of a part nothing is said
                    assert at in lit.get(name, set()), (stage.name, name, at, i, j, before, after)
        for name, places in lit.items():
            for at in sorted(places)[:3]:
                changed = with_another_number(trace, name, at)
                n_lit += text_of(changed, block.prefix, stage.name, where, i, j) != before
    assert n_lit > 1 or which == "rope of a part"
