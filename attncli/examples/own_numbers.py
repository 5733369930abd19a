"""What comes out if one goes on from the author's own numbers instead of ours.

A number can differ because the author rounded between two steps, or because an earlier number is
wrong. Put the printed numbers of an earlier stage in place of ours and compute on:

| the printed number comes out, and the earlier ones | cause |
|---|---|
| all were right, as rounded | rounding only |
| were wrong themselves | carried over |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.examples.computations import COMPUTATIONS
from attncli.examples.example import Claim
from attncli.examples.places import cells
from attncli.trace import Stage, Trace

Array = npt.NDArray[Any]

MOST_STAGES = 3
"""How many of the author's stages are put in at once, nearest first."""


@dataclass(frozen=True, eq=False)
class OwnNumbers:
    """A stage computed from printed numbers of the stages named in `start`."""

    start: tuple[str, ...]
    stage: Stage


def from_own_numbers(
    compute: str, inputs: Mapping[str, Any], trace: Trace, claim: Claim, earlier: Sequence[Claim]
) -> Iterator[OwnNumbers]:
    """The claim's stage from the author's numbers: one stage's, the nearest first, then several's.

    `earlier` are claims whose printed numbers may be used; those of stages that come before the
    claim's are. Yields nothing where the computation cannot go on from them.
    """
    resume = COMPUTATIONS[compute].resume
    if resume is None:
        return
    order = list(trace)
    given = _replaced(trace, [c for c in earlier if c.stage in order and c.printed is not None])
    near = [name for name in reversed(order[: order.index(claim.stage)]) if name in given]
    for size in range(1, min(len(near), MOST_STAGES) + 1):
        for start in combinations(near[:MOST_STAGES], size):
            chosen = {name: given[name] for name in start}
            with np.errstate(all="ignore"):
                value = resume(inputs, trace, chosen, claim.stage)
            if value is not None:
                yield OwnNumbers(start, _with(trace[claim.stage], value))


def _replaced(trace: Trace, claims: Sequence[Claim]) -> dict[str, Array]:
    """Our stages with the printed numbers in their places."""
    given: dict[str, Array] = {}
    for claim in claims:
        if claim.take or claim.free_sign or claim.printed is None:
            continue
        stage = trace[claim.stage]
        value = given.setdefault(claim.stage, np.array(stage.value, dtype=np.float64))
        index = np.ix_(*cells(stage, claim.at))
        if value[index].size == claim.printed.value.size:
            value[index] = claim.printed.value.reshape(value[index].shape)
    return given


def _with(stage: Stage, value: Array) -> Stage:
    return Stage(stage.name, stage.symbol, stage.formula, value, stage.axes, stage.labels)
