"""The order in which heads and batch entries are shown: all stages of head 1, then of head 2.

Stages without heads, such as the concatenation, come after them as they do in the trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from attncli.trace import Stage
from attncli.views.places import HEADS, KEY_HEADS, Level, Place
from attncli.views.safe import shorten
from attncli.views.showing import Showing

MOST = 8  # places shown of many

# axis → its entries in words, and the flag that chooses one
_CHOICES = {
    "batch": ("batch entries", "--batch"),
    HEADS: ("heads", "--head"),
    KEY_HEADS: ("key heads", "--head"),
}


class Stop(NamedTuple):
    """One matrix on the way.

    heading  its place in words, such as "head 2 of 3"; "" where there is but one
    names    its place without the counts: ("batch 1", "head 2")
    """

    place: Place
    heading: str
    names: tuple[str, ...]
    stage: Stage


class Tour(NamedTuple):
    """The matrices in order, and a line on the places that are left out, or ""."""

    stops: tuple[Stop, ...]
    left_out: str


def tour(level: Level, stages: Sequence[Stage], showing: Showing) -> Tour:
    """The matrices of these stages, at no more than eight places unless all are asked for."""
    stops = tuple(_stops(level, stages, showing))
    places = list(dict.fromkeys(_key(stop.place) for stop in stops if _words(level, stop.place)))
    if showing.full or len(places) <= MOST:
        return Tour(stops, "")
    hidden = set(places[MOST:])
    axes = dict.fromkeys(axis for place in hidden for axis, _ in place if level.size(axis) > 1)
    return Tour(
        tuple(stop for stop in stops if _key(stop.place) not in hidden),
        _left_out(tuple(axes), len(hidden), len(places)),
    )


def _left_out(axes: tuple[str, ...], hidden: int, places: int) -> str:
    what = " and ".join(many for axis, (many, _) in _CHOICES.items() if axis in axes)
    flags = dict.fromkeys(f"{flag} N" for axis, (_, flag) in _CHOICES.items() if axis in axes)
    return f"left out: {hidden} of {places} {what} ({', '.join(flags)} or --full)"


def _key(place: Place) -> tuple[tuple[str, int], ...]:
    return tuple(place.items())


def _stops(level: Level, stages: Sequence[Stage], showing: Showing) -> Iterator[Stop]:
    heads_shown = False
    for place, stage in _walk(level, stages, showing, {}):
        words = [f"{name}{_of(level, axis)}" for axis, name in _words(level, place).items()]
        if HEADS in place:
            heads_shown = True
        elif heads_shown and level.size(HEADS) > 1 and KEY_HEADS not in place:
            words.append("all heads")
        names = tuple(name for axis, name in _words(level, place).items() if axis in place)
        yield Stop(place, " · ".join(words), names, stage)


def _walk(
    level: Level, stages: Sequence[Stage], showing: Showing, place: Place
) -> Iterator[tuple[Place, Stage]]:
    for axis, group in groupby(stages, key=lambda stage: _next_axis(level, stage, place)):
        if axis is None:
            yield from ((place, stage) for stage in group)
            continue
        here = tuple(group)
        chosen = level.entry(axis, showing.place)
        for entry in range(level.size(axis)) if chosen is None else (chosen,):
            yield from _walk(level, here, showing, {**place, axis: entry})


def _next_axis(level: Level, stage: Stage, place: Place) -> str | None:
    """The outermost axis still to be walked; key heads that are not shared are heads."""
    for axis in stage.axes[:-2]:
        if level.entry(axis, place) is None:
            same = axis == KEY_HEADS and level.size(HEADS) == level.size(KEY_HEADS)
            return HEADS if same else axis
    return None


def _words(level: Level, place: Place) -> dict[str, str]:
    """What the entries are called, where there is more than one or somebody named it."""
    entries = dict(place)
    if HEADS in place and 1 < level.size(KEY_HEADS) != level.size(HEADS):
        entries[KEY_HEADS] = level.key_head(place[HEADS])
    owners = {axis: level.owner(axis) for axis in entries}
    return {
        axis: shorten(owner.label(axis, entries[axis]))
        for axis, owner in owners.items()
        if owner is not None and (level.size(axis) > 1 or axis in owner.labels)
    }


def _of(level: Level, axis: str) -> str:
    return f" of {level.size(axis)}" if level.size(axis) > 1 else ""
