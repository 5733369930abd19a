"""Our numbers at a claim's place, held against what it prints or states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from attncli.errors import AttncliError, InputError
from attncli.examples.example import Claim
from attncli.examples.places import Piece, piece
from attncli.examples.printed import Printed
from attncli.examples.verdicts import Cells, compare, holds
from attncli.trace import Trace


def ours_of(trace: Trace, claim: Claim, spot: str) -> Piece:
    """Our numbers, their free signs turned to those printed.

    Raises InputError, naming the claim, where the trace has no such stage or place.
    """
    try:
        found = piece(trace[claim.stage], claim.at, claim.take)
    except AttncliError as problem:
        raise InputError(f"{spot}: {problem.message}", problem.hint) from problem
    return _turned(found, claim, spot) if claim.free_sign else found


def cells_of(ours: Piece, claim: Claim, spot: str, expected: Printed | None = None) -> Cells:
    """The verdict of each cell against `expected`, or what the claim prints or states.

    Empty where it does neither. Raises InputError where the shapes differ.
    """
    expected = expected or claim.printed
    if expected is None:
        stated = claim.states
        return np.array([], "U1") if not stated else holds(ours.value, stated, ours.magnitude)
    if ours.value.shape != expected.value.shape:
        shapes = [" × ".join(map(str, x.shape)) or "one" for x in (expected.value, ours.value)]
        raise InputError(
            f"{spot}: printed numbers are {shapes[0]}, computed are {shapes[1]}",
            "name their place in the stage with at",
        )
    return compare(ours.value, expected)


def _turned(ours: Piece, claim: Claim, spot: str) -> Piece:
    """Ours with the sign of each entry of an axis as printed."""
    printed, axis = claim.printed, claim.free_sign
    if axis not in ours.axes or printed is None or printed.value.shape != ours.value.shape:
        raise InputError(f"{spot}: free_sign names no axis of the printed numbers")
    others = tuple(i for i, name in enumerate(ours.axes) if name != axis)
    with np.errstate(all="ignore"):
        alike = (ours.value * printed.value).sum(axis=others, keepdims=True)
    return replace(ours, value=ours.value * np.where(alike < 0, -1.0, 1.0))
