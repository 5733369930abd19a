"""The wrong ways of computing that an example records, recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attncli.errors import InputError
from attncli.examples.computations import run
from attncli.examples.example import Claim, Example, Way
from attncli.examples.held import cells_of, ours_of
from attncli.examples.own_numbers import from_own_numbers
from attncli.examples.places import Piece
from attncli.examples.results import Recomputed
from attncli.trace import Trace


def recompute(
    example: Example, claim: Claim, place: Piece, earlier: Sequence[Claim], number: int
) -> Recomputed:
    """Way `number` (from 1) of a claim, held against what it should give.

    `place` is our piece at the claim's place, `earlier` the claims before it.
    Raises InputError where the way leads nowhere.
    """
    way, spot = claim.ways[number - 1], f"{claim.spot}, way {number}"
    inputs = _changed(example, way)
    trace = run(example.compute, inputs, spot)
    if way.start:
        trace = _from_start(example.compute, inputs, trace, claim, earlier, way, spot)
    at = claim.at if way.at is None else way.at
    ours = ours_of(trace, replace(claim, at=at), spot)
    if way.at is not None and ours.value.size == place.value.size:
        ours = replace(place, value=ours.value.reshape(place.value.shape))
    start = (way.start,) if way.start else ()
    return Recomputed(ours, cells_of(ours, claim, spot, way.gives), way.how, start)


def _changed(example: Example, way: Way) -> Mapping[str, Any]:
    """The example's inputs with those of the way, whose convention is added to the example's."""
    inputs = {**example.inputs, **way.inputs}
    if "convention" in way.inputs:
        before = example.inputs.get("convention", {})
        inputs["convention"] = {**before, **way.inputs["convention"]}
    return inputs


def _from_start(
    compute: str,
    inputs: Mapping[str, Any],
    trace: Trace,
    claim: Claim,
    earlier: Sequence[Claim],
    way: Way,
    spot: str,
) -> Trace:
    """A trace of the claim's stage alone, computed from printed numbers of the way's."""
    printed = [c for c in earlier if c.stage == way.start]
    made = next(from_own_numbers(compute, inputs, trace, claim, printed), None)
    if made is None:
        raise InputError(
            f"{spot}: the claim does not follow from printed numbers of {way.start!r}",
            "print them in a claim before it",
        )
    return Trace(trace.title, (made.stage,))
