"""Alternatives of one step: what is before it is computed once, what follows from it at once.

    plan ── once ──> values ── the step of each alternative ── side by side ── the rest ──> stages

The alternatives lie side by side along the batch axis, of which the rows that are compared have one
item. What fits is for `fit` to say: here is said only which alternatives cannot.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.run import Step, run
from attncli.formula.parser import parse
from attncli.formula.together import Together
from attncli.stages import spec_of
from attncli.tolerance.comparison import CLOSER, Comparison, are_closer
from attncli.tolerance.run import Block, axes_in, blocks_of_rows, inputs_of_block, steps_of
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import OF_ALL_HEADS, ROWS, in_four, source_of

AT_ONCE = 2**18
"""How many scores all alternatives together have at most: 2 MB of float64 a stage."""

NEARLY = CLOSER * (1 + 1e-6)
"""Sums in another order may differ by rounding: what is so near to the limit is left to `fit`."""


class Fork(NamedTuple):
    """The plan of a comparison of a few rows, and everything that it computes of these.

    comparison  of one batch item
    block       what is computed, and which part of it is compared
    values      of the inputs and of every step
    """

    comparison: Comparison
    block: Block
    plan: list[Step]
    values: dict[str, Array]

    @property
    def most(self) -> int:
        """How many alternatives are computed at once."""
        sizes = self.block.computed.sizes
        return AT_ONCE // (math.prod(sizes) * self.comparison.setup.shape[3])

    def refused(self, step: Step, alternatives: Sequence[Sequence[Step]]) -> list[bool]:
        """Whether each alternative of a step is no explanation: False where that is not known.

        alternatives  the steps in the place of this one
        """
        place, refused = step.name, [False] * len(alternatives)
        axes = spec_of(step.kind or place).axes.split()
        if axes[:1] != ["batch"]:
            return refused
        before = {name: x for name, x in self.values.items() if name != place}
        single = {n: steps[0] for n, steps in enumerate(alternatives) if len(steps) == 1}
        formulas = {n: parse(step.expression) for n, step in single.items() if step.text}
        together = Together([*formulas.values()])
        by_shape = defaultdict[tuple[int, ...], dict[int, Array]](dict)
        for number, steps in enumerate(alternatives):
            if not steps:  # which have no place here
                continue
            try:
                if number in formulas:
                    arrays = {name: before[x] for name, x in steps[0].reads.items()}
                    values = {**steps[0].params, **arrays}
                    with np.errstate(all="ignore"):
                        x = together.compute(formulas[number], values, steps[0].sizes)
                else:
                    x = run(steps, before, [place])[place]
            except ValueError:  # an error of the call is one, too: `fit` finds it again
                continue
            x = x.reshape(*[1] * (len(axes) - x.ndim), *x.shape)
            if len(x) == 1:
                by_shape[x.shape][number] = x
        for group in by_shape.values():
            try:
                results = self._refused(place, [*group.values()])
            except ValueError:  # of a shape that has no place beside the others
                continue
            for number, is_refused in zip(group, results, strict=True):
                refused[number] = is_refused
        return refused

    def _refused(self, place: str, stages: Sequence[Array]) -> list[bool]:
        """Whether a comparison refuses each of these arrays of one stage."""
        comparison, n = self.comparison, len(stages)
        setup = comparison.setup
        after = {place}
        for step in self.plan:
            after |= {step.name} if after & {*step.reads.values()} else set()
        inputs = {name: x for name, x in self.values.items() if name not in after}
        inputs[place] = np.concatenate(stages)
        planned = dict.fromkeys(step.name for step in self.plan)
        sources = {name: source_of(name, planned) for name in comparison.errors}
        values = run(self.plan, inputs, {*sources.values()})
        block = self.block._replace(at={**self.block.at, "batch": np.arange(n)})
        sizes = dict(zip(ROWS, (n, *comparison.subset.sizes[1:]), strict=True))
        expected = dict[str, Array]()
        for name, source in sources.items():
            x = in_four(source, values[source], setup.convention.softmax_over)
            x = np.broadcast_to(x, (n, *x.shape[1:]))
            block.put(expected, name, x, axes_in(setup, source), sizes)
        is_refused = np.zeros(n, dtype=np.bool_)
        for name, stage in comparison.errors.items():
            if stage.rule.kind == "noise":
                is_refused |= ~are_closer(setup, name, expected[name], comparison, NEARLY)
        return is_refused.tolist()


def fork_of(comparison: Comparison, setup: Setup, whole: frozenset[int]) -> Fork | None:
    """The fork of a comparison for steps that need these axes whole.

    setup  that of the comparison, or one that computes the same in more steps

    None where alternatives have no place side by side: where several batch items are computed, or
    stages are sums over queries, or something is done to them after the plan.
    """
    names, is_edited = comparison.errors.keys(), bool(comparison.setup.edits)
    is_later = setup.relabel or setup.relayout or setup.instead or setup.written or setup.tiles
    has_turned = setup.positions is not None and names & {"d_q", "d_k"}
    if is_later or has_turned or is_edited or names & {*OF_ALL_HEADS} or comparison.is_whole:
        return None
    blocks = [*blocks_of_rows(setup, comparison.subset, setup.whole_axes | whole)]
    if len(blocks) > 1 or len(blocks[0].computed.batch) > 1:
        return None
    plan = steps_of(setup, shape=(*blocks[0].computed.sizes[:2], *setup.shape[2:]))
    fork = Fork(comparison, blocks[0], plan, {})
    if fork.most < SEVERAL:
        return None
    inputs = inputs_of_block(setup, blocks[0], plan, "float64")
    return fork._replace(values=run(plan, inputs, [step.name for step in plan]))


SEVERAL = 4
"""Fewer alternatives at once save nothing."""
