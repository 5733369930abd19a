"""Look-up: is each observed row the right row of another place, and which map of places is that?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import permutations

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.questions.answer import Answer, PlaceMap, map_text, place_maps
from attncli.commands.check.questions.unwritten import KINDS
from attncli.commands.check.search import Search
from attncli.stages import OUTPUT
from attncli.tolerance.comparison import CLOSER
from attncli.tolerance.rule import StageErrors
from attncli.tolerance.run import Indices
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import span_of

MOST_ROWS = 64
"""So many wrong rows are looked up at first; more only where each of these is a right row."""

MOST_PRODUCTS = 2**24
"""So many differences are computed at once: 128 MB."""


def look_up(search: Search) -> Iterator[Answer]:
    """The right rows at other places, by one axis or by several."""
    comparison = search.comparison
    stage, setup = comparison.errors.get(OUTPUT), comparison.setup
    is_of_rows = span_of(OUTPUT, setup.convention.softmax_over) == "rows"
    if stage is None or not is_of_rows or stage.expected.shape[:3] != setup.shape[:3]:
        return
    is_wrong = stage.wrong.any(axis=-1)
    if not is_wrong.any():
        return
    wrong = np.flatnonzero(is_wrong.ravel())
    some = wrong[:: max(1, -(-len(wrong) // MOST_ROWS))]
    if (sources := sources_of(stage, some)) is None:
        return
    shape = is_wrong.shape
    homes, others = (np.array(np.unravel_index(x, shape)) for x in (some, sources))
    moved = np.flatnonzero((homes != others).any(axis=1))
    if len(moved) == 1:
        yield from _along(int(moved[0]), homes, others, stage, setup)
    every = sources if len(some) == len(wrong) else sources_of(stage, wrong)
    if every is None:
        return
    flat = np.arange(is_wrong.size)
    flat[wrong] = every
    yield from _views(flat, wrong, shape, setup)
    count, first = len(wrong), [x + 1 for x in np.unravel_index(wrong[0], shape)]
    source = [x + 1 for x in np.unravel_index(every[0], shape)]
    pairs = (
        ", ".join(f"{kind} {x}" for kind, x in zip(KINDS, at, strict=True))
        for at in (first, source)
    )
    places, of_source = pairs
    example = f"{places} has that of {of_source}"
    sentence = f"{count} of {is_wrong.size} rows are the right rows of another place: {example}"
    yield Answer(sentence, [_gathered(setup, flat, shape)])


def sources_of(stage: StageErrors, rows: Indices) -> Indices | None:
    """The right row that each of these observed rows is, by flat index; None where one is none."""
    width = stage.expected.shape[-1]
    right, observed = stage.expected.reshape(-1, width), stage.observed.reshape(-1, width)[rows]
    if not np.isfinite(right).all():
        right = np.where(np.isfinite(right), right, np.finfo(np.float64).max / 4)
    limits = CLOSER * np.abs(observed - right[rows]).max(axis=-1)
    sources, step = list[int](), max(1, MOST_PRODUCTS // right.size)
    for start in range(0, len(rows), step):
        part = observed[start : start + step]
        apart = np.abs(part[:, None] - right[None]).max(axis=-1)
        nearest = apart.argmin(axis=-1)
        least = np.take_along_axis(apart, nearest[:, None], axis=-1)[:, 0]
        if not (least <= limits[start : start + step]).all():
            return None
        sources += nearest.tolist()
    return np.array(sources, dtype=np.intp)


def _along(
    axis: int, homes: Array, others: Array, stage: StageErrors, setup: Setup
) -> Iterator[Answer]:
    """The maps of one axis by which these rows are read."""
    n = stage.expected.shape[axis]
    kind = KINDS[axis]
    at, source = homes[axis].astype(np.intp), others[axis].astype(np.intp)
    listed = np.arange(n)
    listed[at] = source
    is_function = bool((listed[at] == source).all())
    maps = [x for x in place_maps(n) if (x.indices[at] == source).all()]
    if is_function and not any(np.array_equal(x.indices, listed) for x in maps):
        maps.append(PlaceMap("", "", listed))
    for place_map in maps:
        sentence = (
            f"right rows at another place: {map_text(kind, place_map.indices, place_map.words)}"
        )
        letter = "bhi"[axis]
        index = ",".join(place_map.text(x) if x == letter else x for x in "bhi")
        formula = f"O[b,h,i,d] = right[{index},d]" if place_map.formula else ""
        yield Answer(sentence, [setup.computing({axis: place_map.indices})], formula)


def _views(flat: Indices, wrong: Indices, shape: tuple[int, ...], setup: Setup) -> Iterator[Answer]:
    """Axes that a view takes in another order than they are stored in."""
    places = np.arange(flat.size)
    for order in permutations(range(3)):
        if order == (0, 1, 2):
            continue
        there = places.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
        for view in (there.ravel(), np.argsort(there.ravel())):
            if not np.array_equal(view[wrong], flat[wrong]):
                continue
            names = [f"{kind}s" if kind != "query" else "queries" for kind in KINDS]
            first, *rest = (names[axis] for axis in range(3) if order[axis] != axis)
            axes = f"{', '.join([first, *rest[:-1]])} and {rest[-1]}"
            sentence = f"{axes} are exchanged by a view: right rows at another place"
            yield Answer(sentence, [_gathered(setup, view, shape)])


def _gathered(setup: Setup, flat: Indices, shape: tuple[int, ...]) -> Setup:
    """The setup whose output has at each place the row of another one."""
    return setup.with_whole(0, 1, 2).with_result(OUTPUT, partial(_picked, flat=flat, shape=shape))


def _picked(x: Array, flat: Indices, shape: tuple[int, ...]) -> Array:
    return x.reshape(-1, x.shape[-1])[flat].reshape(*shape, -1)
