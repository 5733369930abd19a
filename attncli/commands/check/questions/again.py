"""Operands that the backward pass alone reads elsewhere, when it computes the weights again.

The forward pass is right, and its log-sum-exp is saved. All maps of an operand are tried on a few
key heads at once, as if each were a batch item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.commands.check.bugs.edits import changed
from attncli.commands.check.questions.answer import MOST_MAPS, Answer, PlaceMap, place_maps
from attncli.commands.check.questions.backward import (
    MOST_CELLS,
    KeyHead,
    has_items,
    wrong_heads,
)
from attncli.commands.check.questions.maps import maps_allowed, text_of_map
from attncli.commands.check.questions.screen import is_plain
from attncli.commands.check.search import Search
from attncli.stages import LSE, QKV, gradient_of
from attncli.tolerance.norms import normed
from attncli.tolerance.rule import distance
from attncli.tolerance.run import Subset, all_of, inputs_over, stages
from attncli.tolerance.setup import Heads, Setup


class Again(NamedTuple):
    """What the backward pass reads to compute the weights again.

    letters  along which axes it may be read at another place; g where key heads are shared
    names    of the arrays
    """

    words: str
    letters: str
    names: tuple[str, ...]


AGAIN = (
    Again("k", "bgj", ("k",)),
    Again("v", "bgj", ("v",)),
    Again("k and v", "bgj", ("k", "v")),
    Again("q", "bhi", ("q",)),
    Again("the log-sum-exp", "bhi", (LSE,)),
)

LINES = {
    "q": "again.q: => {x}[{b},{h},{i},d]",
    "k": "again.k: => {x}[{b},{h},{j},d]",
    "v": "again.v: => {x}[{b},{h},{j},e]",
    LSE: "again.lse: => {x}[{b},{h},{i}]",
}
"""The edit by which each is read at other places, or from another array x."""


class Map(NamedTuple):
    """A map of one axis."""

    letter: str
    places: PlaceMap


def read_again_elsewhere(search: Search) -> Iterator[Answer]:
    """One operand that the backward pass alone reads at another place along one axis."""
    comparison, setup = search.comparison, search.comparison.setup
    names = [name for name in map(gradient_of, QKV) if name in comparison.errors]
    wrong = {name for name, stage in comparison.errors.items() if not stage.matches}
    is_small = math.prod(setup.shape) <= 4 * MOST_CELLS
    if not wrong <= {*names} or not is_plain(setup) or not is_small:
        return
    if comparison.subset.sizes != setup.shape[:3] or setup.convention.softmax_over != "keys":
        return
    heads = wrong_heads(comparison, names)
    arrays = _operands(setup)
    for operand in AGAIN:
        for letter, place_map in _maps(search, heads, arrays, operand):
            index = dict(zip("bhij", "bhij", strict=True))
            index["h" if letter == "g" else letter] = _index(setup, letter, place_map)
            lines = [
                LINES[x].format(x="right" if x == LSE else "x", **index) for x in operand.names
            ]
            letters = operand.letters.replace("g", "h")
            read = ",".join(index[x] for x in letters)
            is_shared = setup.shape[1] != setup.inputs["k"].shape[1]
            kind = "h" if letter == "g" and not is_shared else letter
            yield Answer(
                f"the backward pass alone: {text_of_map(operand.words, kind, place_map)}",
                changed([_line(lines)], setup, search.evidence),
                f"{', '.join(operand.names)}[{','.join(letters)}] = right[{read}]",
            )


def _line(edits: list[str]) -> str:
    """One line of edits, with every way that kernels take δ, and the slope of a softcap at what is
    computed again."""
    slope = "capped.x?: y[b,h,i,j] => capped_again[b,h,i,j]"
    return "; ".join(["either delta", "own delta", *edits, slope])


def _index(setup: Setup, letter: str, place_map: PlaceMap) -> str:
    """The formula of the place that is read; that of a key head is one of its query heads."""
    n_heads, n_groups = setup.shape[1], setup.inputs["k"].shape[1]
    if letter != "g":
        return _text(place_map, letter)
    if n_heads == n_groups:
        return _text(place_map, "h")
    if setup.convention.head_order == "tiled":
        return _text(place_map, f"(h % {n_groups})")
    size = n_heads // n_groups
    return f"({_text(place_map, f'(h // {size})')}) * {size}"


def _text(place_map: PlaceMap, place: str) -> str:
    """The formula of a map: of one that is listed a condition for each place."""
    if place_map.formula:
        return place_map.text(place)
    sources = enumerate(place_map.indices.tolist())
    listed = "".join(f"{source} if {place} == {at} else " for at, source in sources if at != source)
    return f"({listed}{place})"


def _operands(setup: Setup) -> dict[str, Array]:
    """q, k and v as the scores and the output read them, and the saved log-sum-exp."""
    placed = setup.placed()
    arrays = {name: placed.inputs[name] for name in QKV}
    if placed.convention.qk_norm:
        ones = dict.fromkeys("qk", np.ones(setup.d_k))
        for name, gain in (placed.gains or ones).items():
            arrays[name] = normed(arrays[name], gain, "float64")
    lse = stages(setup, all_of(setup.shape), [LSE])[LSE].reshape(setup.shape[:3])
    return arrays | {LSE: lse * (math.log(2) if setup.convention.lse_base == "2" else 1.0)}


def _maps(
    search: Search, heads: list[KeyHead], arrays: Mapping[str, Array], operand: Again
) -> list[Map]:
    """The maps of an operand by which the backward pass gives the gradients of every key head."""
    setup, candidates = search.comparison.setup, list[Map]()
    n_cells = len(heads[0].heads) * setup.shape[2] * setup.shape[3] if heads else 0
    sizes = dict(zip(operand.letters, arrays[operand.names[0]].shape, strict=False))
    is_shared = setup.shape[1] != setup.inputs["k"].shape[1]
    by_map = "ijh" if is_shared else "ij"  # of other axes each place is read by itself
    for letter, n in sizes.items():
        places = (PlaceMap("", "", np.full(n, at)) for at in range(n))
        maps = [Map(letter, x) for x in (place_maps(n) if letter in by_map else places)]
        candidates += maps if n > 1 and len(maps) * n_cells <= MOST_CELLS else []
    sources: dict[str, dict[int, BoolArray]] = {}
    for head in heads:
        if not candidates:
            return []
        near = _near(search, head, arrays, operand, candidates)
        at = {"b": head.batch, "g": head.number, "h": int(head.heads[0])}
        for letter in {x.letter for x in candidates} - {*by_map}:
            of_letter = near[[x.letter == letter for x in candidates]]
            of_axis = sources.setdefault(letter, {})
            of_axis[at[letter]] = of_letter & of_axis.get(at[letter], np.ones_like(of_letter))
        impossible = {x for x, y in sources.items() if not all(z.any() for z in y.values())}
        candidates = [
            x
            for x, is_near in zip(candidates, near, strict=True)
            if (is_near if x.letter in by_map else x.letter not in impossible)
        ]
    result = list[Map]()
    for letter, n in sizes.items():
        maps = [x for x in candidates if x.letter == letter]
        if maps and letter not in by_map:
            allowed = maps_allowed(place_maps(n), n, sources[letter], is_listed=True)
            maps = [Map(letter, x) for x in allowed]
        result += maps
    return result[:MOST_MAPS]


def _near(
    search: Search, head: KeyHead, arrays: Mapping[str, Array], operand: Again, family: list[Map]
) -> BoolArray:
    """Which of the maps give the gradients of a key head, in any way that δ is taken."""
    setup, count, near = search.comparison.setup, len(family), np.zeros(len(family), np.bool_)
    n_heads = len(head.heads)
    over = Subset(np.array([head.batch]), head.heads, np.arange(setup.shape[2]))
    keys = np.array([head.number])
    inputs = inputs_over(setup, over, (), keys=keys)
    del inputs["rows"]
    inputs |= {name: inputs[name].repeat(n_heads, axis=1) for name in "kv"}  # of each query head
    inputs = {
        name: np.broadcast_to(x, (count, *x.shape[1:])) if has_items(name, x) else x
        for name, x in inputs.items()
    }
    for name in operand.names:
        inputs[f"other.{name}"] = np.stack(
            [_elsewhere(arrays[name], name, head, x) for x in family]
        )
    convention = replace(setup.convention, head_order="blocks")
    at = Heads(over.batch.repeat(count), over.head, keys.repeat(n_heads))
    other = setup.with_other_arrays(inputs, at, convention=convention, grouping="blocks")
    lines = [LINES[x].format(x=f"other_{x}", b="b", h="h", i="i", j="j") for x in operand.names]
    for variant in changed([_line(lines)], other, search.evidence):
        results = stages(variant, all_of(variant.shape), head.observed)
        is_it = np.ones(count, np.bool_)
        for name, x in results.items():
            summed = x if name == "d_q" else x.sum(axis=1, keepdims=True)
            errors = distance(summed, head.observed[name][None]).reshape(count, -1).max(axis=-1)
            is_it &= errors <= head.allowed[name]
        near |= is_it
    return near


def _elsewhere(x: Array, name: str, head: KeyHead, place: Map) -> Array:
    """[head, row, …]: an operand of the query heads of a key head, read by a map."""
    letter, places = place.letter, place.places.indices
    heads = np.full(len(head.heads), head.number) if name in "kv" else head.heads
    b = places[head.batch] if letter == "b" else head.batch
    rows = x[b][places[heads] if letter in "gh" else heads]
    return np.asarray(rows[:, places] if letter in "ij" else rows)
