"""Counting: which keys take part otherwise than once, in words and as edits of the formulas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from attncli.commands.check.bugs.bug import Evidence
from attncli.commands.check.bugs.edits import changed
from attncli.commands.check.questions.answer import Answer
from attncli.commands.check.questions.counts import (
    EXACT,
    MOST_SAID,
    WHOLE,
    Counts,
    Extra,
    columns_of,
    counts_of,
    solutions,
    times_text,
)
from attncli.commands.check.questions.rows import Rows, rows_of, stage_of
from attncli.commands.check.questions.unwritten import KINDS
from attncli.commands.check.search import Search
from attncli.errors import joined
from attncli.stages import LSE
from attncli.tolerance.setup import Setup

MOST_KEYS = 1024
"""So many keys are counted one by one: their equations are solved in a fraction of a second."""

# ---- as edits of formulas


def edited(setup: Setup, lines: Sequence[str], evidence: Evidence) -> Iterator[Setup]:
    """The setup with one edit after another; none where one of them has no place."""
    if not lines:
        yield setup
    for other in changed(lines[:1], setup, evidence):
        yield from edited(other, lines[1:], evidence)


def _lines(counts: Counts, places: str, *, is_listed: bool) -> Iterator[str]:
    """The edits of these formulas by which the keys count so, and keys of zeros.

    is_listed  whether the counts stand in an array, as no condition says which keys they are of
    """
    if is_listed and (counts.keys == 0).any():
        yield f"{places}: where => where {TIMES} != 0"
    if is_listed:
        yield f"{places}: {_X} => {_X} + ln({TIMES})"
    for value, keys in () if is_listed else counts.sets:
        if value == 0:
            yield f"{places}: where => where {keys.outside}"
        else:
            yield f"{places}: {_added(value, keys.inside)}"
    if counts.zeros > EXACT:
        yield f"{places}: sink => ln({{exp(sinks[h]) + }}{counts.zeros:.17g})"


def _added(count: float, condition: str) -> str:
    """The edit by which keys that meet a condition count so often."""
    return f"{_X} => {_X} + (ln({count:.17g}) if {condition} else 0)"


_X = "x[b,h,i,j]"
TIMES = "times_given_mask[b,h,i,j]"
"""How often each key counts: an array of its own, with the axes of a mask."""


def _places(search: Search, stage: str) -> list[str]:
    """Which formulas may count so: the weights and the log-sum-exp, or one of them alone."""
    errors = search.comparison.errors
    if stage == LSE:
        return ["lse"] if len(errors) > 1 else ["weights, lse"]
    return ["weights, lse?", "weights"] if LSE in errors else ["weights"]


def _setups(counts: Counts, search: Search, stage: str) -> Iterator[Setup]:
    """The setups that count so: the sink as another one, which has its gradient too."""
    setup, evidence = search.comparison.setup, search.evidence
    is_listed = any(not keys.inside for _, keys in counts.sets)
    if is_listed:
        setup = setup.with_inputs(**{"times.given_mask": counts.keys.reshape(1, 1, 1, -1)})
    for places in _places(search, stage):
        lines = [*_lines(counts, places, is_listed=is_listed)]
        if abs(counts.sink - 1) <= EXACT:
            yield from edited(setup, lines, evidence)
            continue
        add = f"ln({counts.sink:.17g})"
        of_input = "None" if counts.sink <= EXACT else f"right + {add}"
        yield from edited(setup, [f"input.sinks: => {of_input}", *lines], evidence)
        if counts.zeros <= EXACT:
            of_formula = "" if counts.sink <= EXACT else f"sinks[h] + {add}"
            yield from edited(setup, [f"{places}: sink => {of_formula}".rstrip(), *lines], evidence)


# ---- the question


def counted(search: Search) -> Iterator[Answer]:
    """How often the keys, keys of zeros and the sink take part: in all rows, by head, by place."""
    stage = stage_of(search)
    rows = rows_of(search, stage) if stage else None
    if rows is None:
        return
    pooled = np.zeros(rows.weights.shape[2:], dtype=np.intp)
    with_sink: list[Extra] = [] if rows.sinks is None else ["sink"]
    for extras in ([*with_sink], [*with_sink, "zeros"]):
        if extras:
            yield from _answers(counts_of(rows, extras, rows.is_usable, pooled), search, stage)
    if rows.weights.shape[-1] > MOST_KEYS:
        return
    for extras in ([*with_sink], [*with_sink, "zeros"]):
        if extras:  # without sinks it is one system: keys of zeros may count 0 times
            yield from _answers(counts_of(rows, extras, rows.is_usable), search, stage)
    if rows.over.sizes == search.comparison.subset.sizes:
        yield from _by_head(rows, with_sink, search)
        yield from _by_distance(rows, with_sink, search)


def _answers(candidates: Iterable[Counts], search: Search, stage: str) -> Iterator[Answer]:
    for counts in candidates:
        yield Answer(counts.text, _setups(counts, search, stage))


def zero_keys(search: Search) -> Iterator[Answer]:
    """How many keys of zeros take part, in whole numbers, beside keys that count once."""
    stage = stage_of(search)
    rows = rows_of(search, stage) if stage else None
    if rows is None or rows.sinks is not None:
        return
    pooled = np.zeros(rows.weights.shape[2:], dtype=np.intp)
    matrix, n_keys = columns_of(rows, ["zeros"], rows.is_usable, pooled), rows.weights.shape[-1]
    for _, _, others in solutions(rows, matrix, ["zeros"]):
        whole = round(others["zeros"])
        if whole > 0 and abs(others["zeros"] - whole) <= SURE * whole:
            counts = Counts(np.ones(n_keys), np.ones(n_keys, dtype=np.bool_), zeros=float(whole))
            yield from _answers([counts], search, stage)


SURE = 0.02
"""A number that is fitted is a whole one that is so near in proportion: of 16 bits it is off so."""

GROUPS: tuple[tuple[int, ...], ...] = ((1,), (0,), (0, 1))
"""The axes along which counts may differ: heads, batch items, both."""


def _by_head(rows: Rows, extras: Sequence[Extra], search: Search) -> Iterator[Answer]:
    """Other counts in each head, in each batch item, or in each head of each."""
    shape, setup = search.comparison.setup.shape, search.comparison.setup
    for axes in GROUPS:
        if any(rows.over.sizes[axis] < 2 for axis in axes):
            continue
        of_group = dict[tuple[int, ...], Counts]()
        for group in np.ndindex(*(rows.over.sizes[axis] for axis in axes)):
            at = np.zeros_like(rows.is_usable)
            index = dict(zip(axes, group, strict=True))
            place = tuple(index.get(axis, slice(None)) for axis in range(2))
            at[place] = rows.is_usable[place]
            counts = next(counts_of(rows, extras, at), None)
            if counts is None:
                counts = Counts(np.ones(shape[3]), np.ones(shape[3], dtype=np.bool_))
            if abs(counts.sink - 1) > EXACT:
                break
            of_group[group] = counts
        else:
            yield from _grouped(of_group, axes, rows, search, setup)


def _grouped(
    of_group: Mapping[tuple[int, ...], Counts],
    axes: tuple[int, ...],
    rows: Rows,
    search: Search,
    setup: Setup,
) -> Iterator[Answer]:
    """The answer with counts of each group."""
    if all(counts.is_right for counts in of_group.values()):
        return
    sizes = [setup.shape[axis] if axis in axes else 1 for axis in range(2)]
    times = np.ones((*sizes, 1, setup.shape[3]))
    sentences = list[str]()
    for group, counts in of_group.items():
        places = [int(rows.over[axis][x]) for axis, x in zip(axes, group, strict=True)]
        index = dict(zip(axes, places, strict=True))
        times[index.get(0, 0), index.get(1, 0), 0] = counts.keys
        words = ", ".join(f"{KINDS[axis]} {x + 1}" for axis, x in index.items())
        sentences += [f"in {words} {counts.text}"] * (not counts.is_right)
    more = f"; and in {len(sentences) - MOST_SAID} more" if len(sentences) > MOST_SAID else ""
    listed = setup.with_inputs(**{"times.given_mask": times})
    setups = (
        other
        for places in _places(search, rows.stage)
        for other in edited(
            listed,
            [f"{places}: where => where {TIMES} != 0", f"{places}: {_X} => {_X} + ln({TIMES})"],
            search.evidence,
        )
    )
    yield Answer("; ".join(sentences[:MOST_SAID]) + more, setups)


MOST_APART = 2
"""At so many distances from the query keys may count otherwise."""


def _by_distance(rows: Rows, extras: Sequence[Extra], search: Search) -> Iterator[Answer]:
    """Other counts of keys by their distance from the query's own position."""
    setup = search.comparison.setup
    first = first_position(setup)
    if first is None:
        return
    distances = np.arange(setup.shape[3]) - rows.over.row[:, None] - first
    places = distances - distances.min()
    for each, is_known, others in solutions(
        rows, columns_of(rows, extras, rows.is_usable, places), extras
    ):
        numbers = np.where(np.abs(each - each.round()) <= WHOLE, each.round() + 0.0, each)
        at = np.flatnonzero(is_known & (numbers != 1))
        if not 0 < len(at) <= MOST_APART or (numbers[at] < 0).any():
            continue
        if abs(others.get("sink", 1.0) - 1) > WHOLE:
            continue
        apart = {int(x + distances.min()): float(numbers[x]) for x in at}
        sentence = joined([f"{distance_text(d)} counts {times_text(x)}" for d, x in apart.items()])
        edits = [
            f"where => where j - rows[i] != {d + first}"
            if x == 0
            else _added(x, f"j - rows[i] == {d + first}")
            for d, x in apart.items()
        ]
        setups = (
            other
            for formulas in _places(search, rows.stage)
            for other in edited(setup, [f"{formulas}: {x}" for x in edits], search.evidence)
        )
        yield Answer(sentence, setups)


def first_position(setup: Setup) -> int | None:
    """The key at the first query's own position; None where batch items have other ones."""
    if setup.convention.causal_align != "bottom-right":
        return setup.n_past
    return None if "kv_len" in setup.inputs else setup.shape[3] - setup.shape[2]


def distance_text(distance: int) -> str:
    """Which key is so far from the query's own position.

    >>> distance_text(0), distance_text(-2)
    ("the key at the query's own position", "the key 2 before the query's own position")
    """
    if distance == 0:
        return "the key at the query's own position"
    return (
        f"the key {abs(distance)} {'after' if distance > 0 else 'before'} the query's own position"
    )
