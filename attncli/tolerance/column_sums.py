"""Softmax over the queries: the sum of all outputs follows from the values alone.

    Σ_i A_ij = 1 for each key that a query sees ──> Σ_i O_i = Σ_j v_j over these keys

A setup whose weights are normalised so is refused by it before the scores of a whole head, which it
needs for a few rows already, are computed.
"""

from __future__ import annotations

import numpy as np

from attncli.arrays import Array
from attncli.attention.run import Step, run
from attncli.formula.expression import Over
from attncli.formula.parser import parse, parsed
from attncli.stages import OUTPUT, WEIGHTS
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.run import blocks_of_rows, inputs_of_block, steps_of
from attncli.tolerance.setup import Setup

IS_ALLOWED = parsed("mask[b,h,i,j] != -inf")
"""The condition by which softmax leaves out the scores that a mask hides."""

SURELY = 64.0
"""Sums must differ by so many times what rounding adds to them."""


def has_other_sum(setup: Setup, comparison: Comparison, sample: Comparison) -> bool:
    """Whether the observed outputs of a head have another sum than those of a setup.

    False where that is not known: see `summed_values`, and where not all queries were observed.

    comparison  of everything
    sample      of it, of a few rows of one head
    """
    stage, (batch, head, _) = comparison.errors.get(OUTPUT), sample.at
    is_one_head = setup.whole_axes == {2} and sample.subset.sizes[:2] == (1, 1)
    if not is_one_head or stage is None or stage.rule.kind != "noise":
        return False
    if comparison.slack != 1 or len(comparison.subset.row) < setup.shape[2]:
        return False
    observed = stage.observed[batch[0], head[0]]
    values = summed_values(setup, sample) if np.isfinite(observed).all() else None
    if values is None:
        return False
    allowed: Array = np.broadcast_to(stage.allowed, stage.expected.shape)[batch[0], head[0]]
    noise = allowed.sum(axis=0) + max(stage.rule.arithmetic()) * np.abs(values).sum(axis=0)
    apart = np.abs(observed.sum(axis=0) - values.sum(axis=0))
    return bool((apart > SURELY * noise).any())


def summed_values(setup: Setup, sample: Comparison) -> Array | None:
    """[key, e]: the values of a head that the outputs of all queries have the sum of.

    None where that is not known: where no softmax of the setup is over the queries, a sink joins
    it, or something is done to the weights or to what they give.
    """
    if setup.relayout or setup.relabel or setup.instead or setup.written or setup.tiles:
        return None
    steps = {step.name: step for step in steps_of(setup, shape=(1, 1, *setup.shape[2:]))}
    right = {step.name: step for step in steps_of(sample.setup)}
    softmax, weighted = steps.get(WEIGHTS), steps.get(OUTPUT)
    if softmax is None or weighted is None:
        return None
    if softmax.function is not None or not _is_same_formula(weighted, right[OUTPUT]):
        return None
    over = parse(softmax.expression).body
    if not isinstance(over, Over) or over.kind != "softmax" or over.letters != ("i",) or over.sink:
        return None
    if over.where != (IS_ALLOWED if "mask" in steps else None):
        return None
    (block,) = blocks_of_rows(setup, sample.subset, setup.whole_axes)
    inputs = inputs_of_block(setup, block, [*steps.values()], "float64")
    values: Array = inputs["v"][0, 0]
    if over.where is None or over.empty == "uniform":
        return values
    mask = softmax.reads["mask"]
    x = run([*steps.values()], inputs, [mask], setup.memo.computed)[mask]
    is_seen = np.broadcast_to(x != -np.inf, (1, 1, *setup.shape[2:]))[0, 0].any(axis=0)
    return None if over.empty == "nan" and not is_seen.all() else values[is_seen]


def _is_same_formula(step: Step, other: Step) -> bool:
    """Whether two steps compute the same of the same stages, by a mask or without one."""
    reads, others = ({**x.reads, "mask": ""} for x in (step, other))
    return (step.text, reads, step.function) == (other.text, others, other.function)
