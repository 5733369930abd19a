"""The lines beneath a matrix: what its marks mean, which rows are empty, what is left out."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from attncli.convention import Convention
from attncli.views.heatmap import MARKS, Ramp
from attncli.views.numbers import short
from attncli.views.places import Level, Place
from attncli.views.safe import shorten

MASKED = "///"
NAMED = 3  # empty rows called by name


def masked(name: str, how: Convention) -> str:
    """What the mark of a masked cell means in a stage."""
    score = "-inf" if math.isinf(how.mask_value) else short(how.mask_value, 4)
    result = f"its score is {score}" if name == "masked" else "its weight is 0"
    return f"{MASKED} masked: may not attend, {result}"


def empty(level: Level, place: Place) -> Iterator[str]:
    """The queries (or keys, with softmax over queries) to which nothing is left."""
    mask, weights = level.mask(place), level.at("weights", place)
    if mask is None or weights is None or not weights.size:
        return
    by_keys = level.convention.softmax_over == "queries"
    axis = level.stages["weights"].axes[-1 if by_keys else -2]
    lost = np.flatnonzero(np.isneginf(mask).all(axis=-2 if by_keys else -1)).tolist()
    left = (weights.T if by_keys else weights)[lost]
    if not lost or not (np.isnan(left).all() or (left == left.flat[0]).all()):
        return
    names = [shorten(level.stages["weights"].label(axis, i)) for i in lost[:NAMED]]
    names += [f"{len(lost) - NAMED} more"] if len(lost) > NAMED else []
    other = "query" if by_keys else "key"
    each = short(float(left.flat[0]), 4)
    yield f"{', '.join(names)}: every {other} is masked; each weight is {each} by convention"


def left_out(rows: int, columns: int) -> Iterator[str]:
    """How many rows and columns are left out, and what shows them."""
    missing = [
        (f"{count} {what if count > 1 else what[:-1]}", flag)
        for count, what, flag in ((rows, "rows", "--rows"), (columns, "columns", "--cols"))
        if count
    ]
    if missing:
        flags = ", ".join(f"{flag} A:B" for _, flag in missing)
        yield f"left out: {' and '.join(said for said, _ in missing)} ({flags} or --full)"


def shading(ramp: Ramp, top: float, colour: bool) -> str:
    """What the shades of a matrix mean."""
    end = short(top, 4)
    if not colour:
        size = "number" if ramp == "share" else "size of the number"
        return f"{MARKS[1:]} the {size}, from {short(top / 5, 4)} to {end}"
    return (
        f"shaded from 0 to {end}"
        if ramp == "share"
        else f"shaded from -{end} (blue) to {end} (orange)"
    )
