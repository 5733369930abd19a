"""Where things stand in a trace: the stages of one level, their batch entries and heads, the mask.

A stage's last two axes are its matrix; the axes before them say which matrix it is. A place names
one entry of some of those axes, such as {"batch": 0, "head": 2}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.convention import Convention
from attncli.trace import INPUTS, PARAMETERS, Stage, Trace

Array = npt.NDArray[Any]
Place = Mapping[str, int]

HEADS, KEY_HEADS = "head", "kv_head"
MARKED = ("masked", "weights", "dropped")
"""Stages in which a masked cell is marked as such."""

_SCORED = ("scores", "scaled", "capped", *MARKED)  # one number for each query and key


@dataclass(frozen=True, eq=False)
class Level:
    """The stages that stand side by side in a trace, without those of the blocks nested in it."""

    trace: Trace
    prefix: str = ""

    @cached_property
    def stages(self) -> dict[str, Stage]:
        """The stages by name, in the order of computation."""
        return {step.name: step for step in self.trace.steps if isinstance(step, Stage)}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of every stage that was computed; what went in has none."""
        computed = [name for name, stage in self.stages.items() if _is_computed(stage)]
        return {name: number for number, name in enumerate(computed, start=1)}

    @property
    def convention(self) -> Convention:
        """What the trace was computed by."""
        return self.trace.convention or Convention()

    def owner(self, axis: str) -> Stage | None:
        """The first stage that has an axis."""
        return next((stage for stage in self.stages.values() if axis in stage.axes), None)

    def size(self, axis: str) -> int:
        """How many entries an axis has; 0 where no stage has it."""
        stage = self.owner(axis)
        return stage.value.shape[stage.axes.index(axis)] if stage else 0

    def n_heads(self) -> int:
        """How many heads there are to choose from."""
        return self.size(HEADS) or self.size(KEY_HEADS)

    def key_head(self, head: int) -> int:
        """The key head that a head reads (grouped-query attention)."""
        n_heads, n_key_heads = self.size(HEADS), self.size(KEY_HEADS)
        if not n_heads or not n_key_heads:
            return head
        blocks = self.convention.head_order == "blocks"
        return head * n_key_heads // n_heads if blocks else head % n_key_heads

    def entry(self, axis: str, place: Place) -> int | None:
        """The entry of an axis that a place stands for; a head stands for its key head too."""
        if axis == KEY_HEADS and axis not in place and HEADS in place:
            return self.key_head(place[HEADS])
        return place.get(axis)

    def matrix(self, stage: Stage, place: Place) -> Array:
        """The stage's matrix at a place; a vector or a number is a matrix of one row."""
        before = (
            (self.entry(axis, place) or 0) if size > 1 else 0
            for axis, size in zip(stage.axes[:-2], stage.value.shape, strict=False)
        )
        matrix: Array = np.atleast_2d(stage.value[tuple(before)])
        return matrix

    def at(self, name: str, place: Place) -> Array | None:
        """The matrix of a stage by its name, or None where there is no such stage."""
        return self.matrix(self.stages[name], place) if name in self.stages else None

    def mask(self, place: Place) -> Array | None:
        """The additive mask of the scores at a place, or None where nothing is masked.

        Its axes are found by name: one of size 1, or one that is not there, holds for every entry.
        """
        mask, scores = self.stages.get("mask"), self._scored()
        if mask is None or scores is None:
            return None
        found, shape = self.matrix(mask, place), scores.value.shape[-2:]
        fits = all(size in (1, whole) for size, whole in zip(found.shape, shape, strict=True))
        return np.broadcast_to(found, shape) if fits else None

    def _scored(self) -> Stage | None:
        """A stage with the scores' shape, whichever of them the trace holds."""
        scored = (stage for name, stage in self.stages.items() if name in _SCORED)
        return next((stage for stage in scored if stage.value.ndim >= 2), None)

    def before(self, name: str) -> Stage | None:
        """The computed stage that the named one was computed from."""
        names = list(self.numbers)
        at = names.index(name)
        return self.stages[names[at - 1]] if at else None


def _is_computed(stage: Stage) -> bool:
    """Whether a stage is a step; a q, k or v is one where it says how it was computed."""
    if stage.name in ("q", "k", "v"):
        return bool(stage.formula)
    return stage.name not in (*INPUTS, *PARAMETERS)


def levels(trace: Trace, prefix: str = "") -> Iterator[Level]:
    """The trace's own level, then those of the blocks nested in it."""
    yield Level(trace, prefix)
    for step in trace.steps:
        if isinstance(step, Trace):
            yield from levels(step, f"{prefix}{step.name}.")
