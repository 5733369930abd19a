"""Channels: are q, k or the values read at other channels?

    k[b,g,j,(d - 1) % 64]   q[b,h,i,63 - d]   O[b,h,i,d % 32 * 2 + d // 32]

Scores with another order of the channels of one operand are those of other queries: a few wrong
rows are computed for every map of the family at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.commands.check.questions.answer import Answer, PlaceMap, place_maps
from attncli.commands.check.questions.maps import (
    allowed_by_rows,
    maps_allowed,
    source_text,
    text_of_map,
)
from attncli.commands.check.questions.screen import NEARER, Row, Screen, screen_of
from attncli.commands.check.search import Search
from attncli.stages import OUTPUT
from attncli.tolerance.rule import distance
from attncli.tolerance.run import Indices
from attncli.tolerance.setup import Setup

FACTORS = {"k": ("keys", "queries", "k[b,g,j,{}]"), "q": ("queries", "keys", "q[b,h,i,{}]")}
"""Of each factor of the scores what it is called, what the other is, and how it is read."""


def channels_elsewhere(search: Search) -> Iterator[Answer]:
    """The keys, the queries or the output, each channel read as another one."""
    screen = screen_of(search)
    if screen is None or not screen.rows:
        return
    for name, (kind, other, read) in FACTORS.items():
        for place_map in maps_of_factor(screen, name):
            setups = with_channels(search.comparison.setup, name, place_map.indices)
            source = source_text("channel", place_map.words)
            sentence = f"each channel of the {kind} is read as {source} (the {other} are right)"
            letters, index = read.format("d"), read.format(place_map.text("d"))
            yield Answer(sentence, setups, f"{letters} = right{index[1:]}")
    for place_map in maps_of_output(screen):
        setups = with_channels(search.comparison.setup, "v", place_map.indices)
        text = place_map.text("d") if place_map.formula else ""
        formula = f"O[b,h,i,d] = right[b,h,i,{text}]" if text else ""
        source = source_text("channel", place_map.words)
        sentence = f"each channel of the output (or of the values) is read as {source}"
        if not text:
            sentence = text_of_map("the output", "d", place_map)
        yield Answer(sentence, setups, formula)


def with_channels(setup: Setup, name: str, indices: Indices) -> list[Setup]:
    """The setups in which each channel of an input is another one, before positions or after."""
    setups = [setup, setup.placed()] if setup.positions is not None else [setup]
    return [x.with_inputs(**{name: np.take(x.inputs[name], indices, axis=-1)}) for x in setups]


def maps_of_factor(screen: Screen, name: str) -> list[PlaceMap]:
    """The maps of the channels of q or k by which every wrong row is what it is."""
    maps = [*place_maps(screen.setup.d_k, every_shift=True)]
    if not maps:
        return []
    indices = np.stack([x.indices for x in maps])
    return allowed_by_rows(screen, maps, lambda row, some: _near(screen, row, name, indices[some]))


def _near(screen: Screen, row: Row, name: str, indices: Indices) -> BoolArray:
    """Which maps [map, channel] of the channels of q or k give what was observed of a row."""
    b, h, i = row.at
    inputs, g = screen.setup.inputs, int(screen.setup.key_heads[h])
    query, n = inputs["q"][b, h, i], len(indices)
    queries = query[indices]
    if name == "k":  # the sum over d of q[d] k[σ(d)] is that over c of k[c] times Σ q[d], σ(d) = c
        queries = np.zeros(indices.shape)
        np.add.at(queries, (np.arange(n)[:, None], indices), query)
    scores = screen.scores_of(queries, inputs["k"][[b], g])
    return screen.near(row._replace(scores=scores), n)


def maps_of_output(screen: Screen) -> Sequence[PlaceMap]:
    """The maps of the channels of the output, which are those of the values."""
    errors = screen.errors
    n = errors.expected.shape[-1]
    if screen.stage != OUTPUT or n < 2:
        return []
    near = np.ones((n, n), np.bool_)
    for at in map(tuple, screen.places.tolist()):
        observed, expected = errors.observed[at], errors.expected[at]
        allowed = NEARER * min(float(distance(observed, expected).max()), screen.largest)
        apart: Array = distance(observed[:, None], expected)
        near &= apart <= allowed
        if not near.any(axis=-1).all():
            return []
    maps = place_maps(n, every_shift=True)
    return maps_allowed(maps, n, dict(enumerate(near)), is_listed=True)
