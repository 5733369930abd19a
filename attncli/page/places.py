"""The matrices of a block's stages: at which heads and batch entries, and what those are called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from attncli.page.options import HEADS, KEY_HEADS, DisplayOptions, Index
from attncli.page.select import Block
from attncli.page.text import shorten
from attncli.trace import Stage

MOST = 8  # heads and batch entries shown of many


_FLAGS = {
    "batch": ("batch entries", "--batch N"),
    HEADS: ("heads", "--head N"),
    KEY_HEADS: ("key heads", "--head N"),
}


class Place(NamedTuple):
    """A matrix of a stage.

    where    at which heads and batch entries
    heading  in words, such as "head 2 of 3"; "" where there is but one
    names    the same without the counts: ("batch 1", "head 2")
    """

    stage: Stage
    where: Index
    heading: str
    names: tuple[str, ...]


def places_of(
    block: Block, stages: Sequence[Stage], options: DisplayOptions
) -> tuple[list[Place], str]:
    """The matrices of these stages in order, of many heads the first, and a line on the others."""
    pairs = list(_indices(block, stages, options, {}))
    indices = (tuple(index.items()) for index, _ in pairs if block.several & {*index})
    distinct = list(dict.fromkeys(indices))
    hidden = set() if options.full or options.every else set(distinct[MOST:])
    places = []
    shown_before: set[str] = set()
    for index, stage in pairs:
        if tuple(index.items()) in hidden:
            continue
        names = names_of(block, index) if index else {}
        words = [
            f"{name} of {block.sizes[axis]}" if block.sizes[axis] > 1 else name
            for axis, name in names.items()
        ]
        for axis, same in (("batch", "batch"), (HEADS, KEY_HEADS)):
            is_of_all = axis in shown_before and not {axis, same} & {*index}
            if is_of_all and block.sizes[axis] > 1:
                words.append(f"all {_FLAGS[axis][0]}")
        shown_before |= {*index}
        own_names = tuple(name for axis, name in names.items() if axis in index)
        places.append(Place(stage, index, " · ".join(words), own_names))
    if not hidden:
        return places, ""
    axes = {axis for index in hidden for axis, _ in index if block.sizes[axis] > 1}
    plurals, flags = zip(*(_FLAGS[axis] for axis in _FLAGS if axis in axes), strict=True)
    left_out = f"{len(hidden)} of {len(distinct)} {' and '.join(plurals)}"
    return places, f"left out: {left_out} ({', '.join(dict.fromkeys(flags))} or --full)"


def _indices(
    block: Block, stages: Sequence[Stage], options: DisplayOptions, index: Index
) -> Iterator[tuple[Index, Stage]]:
    """Every stage at every index, the outermost axis first; key heads not shared are heads."""
    # of each stage: but for axes along which one number holds for all of the block's
    remaining = []
    for stage in stages:
        axes = zip(stage.axes[:-2], stage.value.shape, strict=False)
        several = (axis for axis, size in axes if size > 1 or block.sizes[axis] <= 1)
        remaining.append([axis for axis in several if block.entry(axis, index) is None])
    shared = block.sizes[KEY_HEADS] != block.sizes[HEADS]
    outermost = [
        HEADS if a[:1] == [KEY_HEADS] and not shared else a[0] if a else "" for a in remaining
    ]
    for axis, group in groupby(zip(outermost, stages, strict=True), key=itemgetter(0)):
        here = [stage for _, stage in group]
        if not axis:
            yield from ((index, stage) for stage in here)
            continue
        chosen_entry = block.entry(axis, options.index)
        for entry in range(block.sizes[axis]) if chosen_entry is None else (chosen_entry,):
            yield from _indices(block, here, options, {**index, axis: entry})


def names_of(block: Block, index: Index) -> dict[str, str]:
    """What the entries of an index are called, and the key head that a head reads.

    Where there is but one, and it has no label, it has no name.
    """
    entries = dict(index)
    if HEADS in index and 1 < block.sizes[KEY_HEADS] != block.sizes[HEADS]:
        entries[KEY_HEADS] = block.key_head(index[HEADS])
    return {
        axis: shorten(block.owners[axis].label(axis, entry))
        for axis, entry in entries.items()
        if axis in block.several
    }
