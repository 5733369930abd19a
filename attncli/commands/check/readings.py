"""What the observed arrays are, where their names leave it open: each reading that fits.

    {"attn_output": …, "logits": …} ── readings ──> Reading, Reading …

The output of a module is that of the heads, or that of the output projection; weights without heads
are the mean over all heads; logits may be scaled or masked already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.attention.inputs import EMBEDDINGS, Inputs, inputs_of
from attncli.attention.inputs import WEIGHTS as WEIGHTS_OF_X
from attncli.attention.shapes import as_numbers
from attncli.commands.check.observe import GIVEN, Observation, Pick, observe
from attncli.convention import Layout
from attncli.errors import AttncliError, ShapeError, StageError
from attncli.files.messages import listing
from attncli.stages import (
    CONCAT,
    GRADIENTS,
    LETTERS,
    MEAN_WEIGHTS,
    OUTPUT,
    PROJECTED,
    SPECS,
    WEIGHTS,
    stages_called,
)
from attncli.tolerance.comparison import comparison_of
from attncli.tolerance.number_types import narrower
from attncli.tolerance.rule import Rule
from attncli.tolerance.run import PROJECTION, steps_of
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import OF_ALL_HEADS

ONLY_PLANNED = ("biased", "capped", "dropped")
"""Where a convention has no such stage, no letter means it."""


class Reading(NamedTuple):
    """One way to read the observed arrays.

    stages  stage → array, and the inputs among what was observed
    setup   what computes these stages
    decided what each array is, where it could be otherwise: "the mean over the 4 heads"
    notes   what arrays of other names are read as
    """

    stages: Mapping[str, Any]
    setup: Setup
    decided: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def words(self, verb: str) -> str:
        """What was decided: the verb is "is" where it matches, else "is taken as"."""
        return "; ".join(f"{name} {verb} {text}" for name, text in self.decided)


class Observed(NamedTuple):
    """What was observed of a setup: which rows and heads, and the layout of the output."""

    setup: Setup
    rows: Pick
    heads: Pick
    layout: Layout | None

    def seen(self, stages: Mapping[str, Any]) -> Observation:
        """The arrays as these stages; raises where they do not fit."""
        setup = reading_setup(self.setup, stages)
        return observe(stages, setup, rows=self.rows, heads=self.heads, layout=self.layout)

    def fits(self, stage: str, array: Any) -> bool:
        """Whether an array has the shape of a stage that this setup has."""
        with suppress(AttncliError):
            self.seen({stage: array})
            return True
        return False

    def matches(self, stage: str, array: Any, rule: Rule) -> bool:
        """Whether an array is this stage, by itself."""
        setup, observation = reading_setup(self.setup, [stage]), self.seen({stage: array})
        rule = replace(rule, dtype=narrower(observation.dtype, rule.dtype))
        return comparison_of(setup, observation.subset, observation.stages, rule).matches


def with_projection(setup: Setup, inputs: Inputs | None, projection: Mapping[str, Any]) -> Setup:
    """The setup with the output projection, of x's weights or given by itself; ShapeError for one
    that does not fit."""
    originals = {} if inputs is None else inputs.originals
    arrays = {name: originals[name] for name in PROJECTION if name in originals}
    arrays |= {name: as_numbers(x, name) for name, x in projection.items()}
    if "b_o" in arrays and "w_o" not in arrays:
        raise ShapeError("b_o is given without w_o", "give both")
    if "w_o" in arrays:
        width = setup.shape[1] * setup.inputs["v"].shape[-1]
        check_width(arrays["w_o"], width)
    return setup.with_inputs(**{name: x.astype("float64") for name, x in arrays.items()})


def check_width(w_o: Array, width: int) -> None:
    """ShapeError where the heads side by side are not as wide as the weights are high."""
    if w_o.ndim != 2 or len(w_o) != width:
        shape = " × ".join(map(str, w_o.shape))
        message = f"w_o is {shape}, and the heads side by side are {width} wide"
        raise ShapeError(message, f"w_o has {width} rows: Y = H W_o")


def reading_setup(setup: Setup, stages: Any) -> Setup:
    """The setup with the steps of those stages that are made of all heads."""
    joint = frozenset(name for name in stages if name in OF_ALL_HEADS)
    return replace(setup, of_all_heads=joint) if joint != setup.of_all_heads else setup


def readings(arrays: Mapping[str, Any], observed: Observed, rule: Rule) -> Iterator[Reading]:
    """The ways to read what was observed, the likeliest first: a stage that matches is decided.

    One at least, which may fit nowhere: then an error, or a wrong shape, follows.
    """
    inputs = {name: x for name, x in arrays.items() if name in GIVEN}
    observed_stages = {name: x for name, x in arrays.items() if name not in GIVEN}
    alike = _of_other_shapes(observed_stages, observed)
    ways = {
        name: _ways(name, x, observed, rule)
        for name, x in observed_stages.items()
        if name not in alike
    }
    left_out = [f"{name} is not compared: it has the shape of no {alike[name]}" for name in alike]
    every = [dict(zip(ways, stages, strict=True)) for stages in product(*ways.values())]
    distinct = [
        assignment for assignment in every if len({*assignment.values()}) == len(assignment)
    ]
    if not distinct:
        twice = next(x for x in every[0].values() if [*every[0].values()].count(x) > 1)
        names = [name for name, stage in every[0].items() if stage == twice]
        raise StageError(f"{listing(names)} could each be {twice}", "leave one of them out")
    for assignment in distinct:
        stages = {stage: arrays[name] for name, stage in assignment.items()}
        setup = reading_setup(observed.setup, stages)
        words = [(name, _words(name, stage, setup)) for name, stage in assignment.items()]
        decided = tuple((x, text) for x, text in words if text and PROJECTED not in arrays)
        aliases = [(name, stage) for name, stage in assignment.items() if name != stage]
        read = [
            f"{name} is read as {stage}" for name, stage in aliases if stage not in OF_ALL_HEADS
        ]
        note = (*([", ".join(read)] if read else []), *left_out)
        yield Reading({**inputs, **stages}, setup, decided, note)


def _of_other_shapes(arrays: Mapping[str, Any], observed: Observed) -> dict[str, str]:
    """The arrays beside others whose names may mean a stage, but whose shapes do not: y may be
    anything. And which stage that is."""
    others = {name: _candidates(name, observed.setup) for name in arrays if name not in SPECS}
    alike = {
        name: stages[0]
        for name, stages in others.items()
        if stages[0] != name and not any(observed.fits(stage, arrays[name]) for stage in stages)
    }
    return alike if len(alike) < len(arrays) else {}


def _ways(name: str, array: Any, observed: Observed, rule: Rule) -> list[str]:
    """The stages that an array of this name may be: those that it fits, or the one it matches."""
    stages = _candidates(name, observed.setup)
    fitting = [stage for stage in stages if observed.fits(stage, array)]
    if len(fitting) > 1:
        matching = (x for x in fitting if observed.matches(x, array, rule))
        if (match := next(matching, None)) is not None:
            return [match]
        # what is made of all heads is looked at through them: both are searched for a bug
        return fitting if PROJECTED in fitting else fitting[:1]
    return fitting or stages[:1]


def _candidates(name: str, setup: Setup) -> list[str]:
    """The stages that a name may mean, under this setup."""
    if name in GRADIENTS or "." in name:
        return [name]
    stages = list(stages_called(name) or (name,))
    if name in LETTERS:
        planned = {step.name for step in steps_of(setup)}
        stages = [x for x in stages if x not in ONLY_PLANNED or x in planned] or stages
    if OUTPUT in stages and "w_o" in setup.inputs:
        stages[stages.index(OUTPUT) :] = [PROJECTED, OUTPUT, CONCAT]
    if WEIGHTS in stages and setup.shape[1] > 1 and not setup.tiles:
        stages.append(MEAN_WEIGHTS)
    return stages


# ---- tokens before batch items, as PyTorch has them by default

TOKENS_FIRST = (
    "x is taken as (batch, tokens, d_model), and it differs. Batch and tokens are exchanged, as in "
    "PyTorch without batch_first=True: swap these two axes of x and of the output; then it matches"
)
"""No match, as a module whose caller forgot batch_first gives these numbers, too."""


def tokens_first(inputs: Inputs | None) -> Inputs | None:
    """The same attention where x is (tokens, batch, d_model); None where it has no batch, or where
    a mask or a cache says that it is not."""
    if inputs is None or inputs.originals["x"].ndim != 3:
        return None
    shapes = {x.shape[:2] for name, x in inputs.originals.items() if name in EMBEDDINGS}
    if len(shapes) > 1:  # of a context of another length the tokens are no batch
        return None
    if inputs.originals.keys() - {*EMBEDDINGS, *WEIGHTS_OF_X}:
        return None
    arrays = {
        name: np.swapaxes(x, 0, 1) if name in EMBEDDINGS else x
        for name, x in inputs.originals.items()
    }
    n_heads, n_kv_heads, merge = inputs.sizes.n_heads, inputs.sizes.n_kv_heads, inputs.merge
    return inputs_of(arrays, inputs.convention, n_heads=n_heads, n_kv_heads=n_kv_heads, merge=merge)


def turned_outputs(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """What was observed, with the batch before the tokens in outputs that have them reversed."""
    outputs = {OUTPUT, CONCAT, PROJECTED}
    return {
        name: np.swapaxes(as_numbers(x, name), 0, 1)
        if outputs & {name, *stages_called(name)} and np.ndim(x) == 3
        else x
        for name, x in arrays.items()
    }


def _words(name: str, stage: str, setup: Setup) -> str:
    """What was decided of an array that is made of all heads, or of none."""
    if stage == MEAN_WEIGHTS and stage not in stages_called(name):
        return f"the mean over the {setup.shape[1]} heads"
    may_be = OUTPUT in stages_called(name) and "w_o" in setup.inputs
    if may_be and stage == PROJECTED:
        return "that after the output projection W_o (projected)"
    if may_be and stage in (OUTPUT, CONCAT):
        return "that before the output projection W_o"
    return ""
