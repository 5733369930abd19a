"""Look-up: is each observed row the right row of another place, and which map of places is that?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations
from math import prod
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.questions.answer import (
    Answer,
    PlaceMap,
    map_text,
    place_maps,
    places_text,
)
from attncli.commands.check.questions.unwritten import KINDS_OF
from attncli.commands.check.search import Search
from attncli.errors import joined
from attncli.stages import LSE, OUTPUT, spec_of
from attncli.tolerance.comparison import CLOSER
from attncli.tolerance.rule import StageErrors
from attncli.tolerance.run import Indices, stages
from attncli.tolerance.setup import Setup
from attncli.tolerance.spans import OF_ALL_HEADS, span_of

MOST_ROWS = 64
"""So many wrong rows are looked up at first; more only where each of these is a right row."""

MOST_PRODUCTS = 2**20
"""So many differences are computed at once: 8 MB."""


class _Rows(NamedTuple):
    """The rows of a stage.

    name   of the stage
    setup  that computes it
    kinds  its first three axes in words, such as batch item, head and query
    shape  how long these are
    """

    name: str
    setup: Setup
    kinds: tuple[str, ...]
    shape: tuple[int, ...]

    @property
    def letters(self) -> str:
        """The letters of these axes in formulas."""
        return "bgj" if "key" in self.kinds else "bhi"

    def along(self, axis: int, indices: Indices) -> Setup:
        """The setup whose rows are read at other places of an axis."""
        if self.name == OUTPUT:
            return self.setup.computing({axis: indices})
        flat = np.arange(prod(self.shape)).reshape(self.shape)
        return self.gathered(np.take(flat, indices, axis=axis).ravel())

    def gathered(self, flat: Indices) -> Setup:
        """The setup whose stage has at each place the row of another one."""
        picked = partial(_picked, flat=flat, shape=self.shape)
        return self.setup.with_whole(0, 1, 2).with_result(self.name, picked)


def look_up(search: Search) -> Iterator[Answer]:
    """The right rows at other places, by one axis or by several: of the stage that is wrong.

    Of several stages that are wrong it is the output; of gradients each is asked by itself.
    """
    comparison, setup = search.comparison, search.comparison.setup
    wrong = [name for name, stage in comparison.errors.items() if not stage.matches]
    name = OUTPUT if OUTPUT in wrong else wrong[0]
    stage, span = comparison.errors[name], span_of(name, setup.convention.softmax_over)
    groups = setup.inputs["k"].shape[1]
    shapes = {"rows": setup.shape[:3], "keys": (setup.shape[0], groups, setup.shape[3])}
    is_whole = comparison.subset.sizes == setup.shape[:3]
    if not is_whole or stage.expected.shape[:3] != shapes.get(span) or name in OF_ALL_HEADS:
        return
    if name == OUTPUT or len(wrong) == 1:
        right = stage.expected
        if name in setup.written:  # what was not written may stand at another place
            whole = replace(setup, written={})
            right = stages(whole, comparison.subset, [name])[name]
        yield from _answers(_Rows(name, setup, KINDS_OF[span], shapes[span]), stage, right)


def _answers(rows: _Rows, stage: StageErrors, right: Array) -> Iterator[Answer]:
    is_wrong = stage.wrong.any(axis=-1)
    wrong = np.flatnonzero(is_wrong.ravel())
    some = wrong[:: max(1, -(-len(wrong) // MOST_ROWS))]
    if (sources := sources_of(stage, right, some)) is None:
        return
    homes, others = (np.array(np.unravel_index(x, rows.shape)) for x in (some, sources))
    moved = np.flatnonzero((homes != others).any(axis=1))
    if len(moved) == 1:
        yield from _along(int(moved[0]), homes, others, rows)
    every = sources if len(some) == len(wrong) else sources_of(stage, right, wrong)
    if every is None:
        return
    flat = np.arange(is_wrong.size)
    flat[wrong] = every
    yield from _views(flat, wrong, rows)
    if not stage.observed[is_wrong].any(axis=-1).all():  # rows of 0 are said by themselves
        return
    places, of_source = (
        ", ".join(
            f"{kind} {x + 1}"
            for kind, x in zip(rows.kinds, np.unravel_index(at, rows.shape), strict=True)
        )
        for at in (wrong[0], every[0])
    )
    example = f"{places} has that of {of_source}"
    sentence = f"{len(wrong)} of {flat.size} rows are the right rows of another place: {example}"
    yield Answer(sentence, [rows.gathered(flat)])


def sources_of(stage: StageErrors, right: Array, rows: Indices) -> Indices | None:
    """The right row that each of these observed rows is, by flat index; None where one is none.

    right  the stage as it is where every row was written
    """
    width = right.shape[-1]
    right, observed = right.reshape(-1, width), stage.observed.reshape(-1, width)[rows]
    if not np.isfinite(right).all():
        right = np.where(np.isfinite(right), right, np.finfo(np.float64).max / 4)
    limits = CLOSER * np.abs(observed - right[rows]).max(axis=-1)
    sources, step = list[int](), max(1, MOST_PRODUCTS // right.size)
    for start in range(0, len(rows), step):
        part = observed[start : start + step]
        differences = part[:, None] - right[None]
        apart = np.abs(differences, out=differences).max(axis=-1)
        nearest = apart.argmin(axis=-1)
        least = np.take_along_axis(apart, nearest[:, None], axis=-1)[:, 0]
        if not (least <= limits[start : start + step]).all():
            return None
        sources += nearest.tolist()
    return np.array(sources, dtype=np.intp)


def _along(axis: int, homes: Array, others: Array, rows: _Rows) -> Iterator[Answer]:
    """The maps of one axis by which these rows are read."""
    n, kind = rows.shape[axis], rows.kinds[axis]
    at, source = homes[axis].astype(np.intp), others[axis].astype(np.intp)
    listed = np.arange(n)
    listed[at] = source
    is_function = bool((listed[at] == source).all())
    maps = [x for x in place_maps(n) if (x.indices[at] == source).all()]
    if is_function and not any(np.array_equal(x.indices, listed) for x in maps):
        maps.append(PlaceMap("", "", listed))
    letter, symbol = rows.letters[axis], spec_of(rows.name).symbol
    for place_map in maps:
        sentence = (
            f"right rows at another place: {map_text(kind, place_map.indices, place_map.words)}"
        )
        last = "" if rows.name == LSE else ",d"
        index = ",".join(place_map.text(x) if x == letter else x for x in rows.letters)
        cell = f"{symbol}[{','.join(rows.letters)}{last}]"
        formula = f"{cell} = right[{index}{last}]" if place_map.formula else ""
        yield Answer(sentence, [rows.along(axis, place_map.indices)], formula)


def _views(flat: Indices, wrong: Indices, rows: _Rows) -> Iterator[Answer]:
    """Axes that a view takes in another order than they are stored in."""
    places = np.arange(flat.size)
    for order in permutations(range(3)):
        if order == (0, 1, 2):
            continue
        there = places.reshape([rows.shape[axis] for axis in order]).transpose(np.argsort(order))
        for view in (there.ravel(), np.argsort(there.ravel())):
            if not np.array_equal(view[wrong], flat[wrong]):
                continue
            names = [places_text(kind, [0, 1]).split(" 1")[0] for kind in rows.kinds]
            axes = joined([names[axis] for axis in range(3) if order[axis] != axis])
            sentence = f"{axes} are exchanged by a view: right rows at another place"
            yield Answer(sentence, [rows.gathered(view)])


def _picked(x: Array, flat: Indices, shape: tuple[int, ...]) -> Array:
    return x.reshape(prod(shape), -1)[flat].reshape(x.shape)
