"""Maps: is an operand read at another place? Which map of places is that?

A few wrong rows decide: each says from which place of an axis an operand gives what was observed of
it. Of the keys, all maps of the family are computed for a row at once.

    k[b,g,j // 4 * 4,d]   mask[i // 3 * 3,j]   causal by blocks of 4   scores of batch item b % 3
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from attncli.arrays import BoolArray
from attncli.commands.check.questions.answer import (
    MOST_MAPS,
    Answer,
    PlaceMap,
    block_sizes,
    place_maps,
    places_text,
    sources_in,
)
from attncli.commands.check.questions.operands import (
    LENGTHS,
    LIMITS,
    SINKS,
    START,
    Operand,
    at_each_place,
    operands_of,
    setups_of,
)
from attncli.commands.check.questions.screen import MOST_ROWS, Row, Screen, screen_of
from attncli.commands.check.search import Search
from attncli.tolerance.run import Indices
from attncli.tolerance.setup import Setup

WORDS = dict(
    zip("bhgijd", ("batch item", "head", "key head", "query", "key", "channel"), strict=True)
)
"""The place of a letter in words."""

MOST_SOURCES = 3
"""Of a map that reads so few places these are said, and otherwise its words."""


def read_elsewhere(search: Search) -> Iterator[Answer]:
    """One operand, read at another place along one axis."""
    yield from answers_of(search, operands_of(search.comparison.setup))


def other_sinks(search: Search) -> Iterator[Answer]:
    """The sinks of other heads."""
    if SINKS in operands_of(search.comparison.setup):
        yield from answers_of(search, [SINKS])


def answers_of(search: Search, operands: Iterable[Operand]) -> Iterator[Answer]:
    """These operands, each read at another place along one axis."""
    screen = screen_of(search)
    if screen is None or not screen.rows:
        return
    n_heads, n_groups = screen.setup.shape[1], screen.setup.inputs["k"].shape[1]
    is_part = len(screen.subset.head) < n_heads and n_groups < n_heads
    for operand in operands:
        for letter in operand.letters:
            if letter == "g" and is_part:  # some heads of a group may be right: it is no map of it
                continue
            find = maps_of_keys if letter == "j" else maps_of_rows
            for place_map in find(screen, operand, letter):
                setups, formula = setups_of(search, operand, letter, place_map)
                yield Answer(sentence_of(screen.setup, operand, letter, place_map), setups, formula)


# ---- which maps a few wrong rows allow


def maps_of_rows(screen: Screen, operand: Operand, letter: str) -> list[PlaceMap]:
    """The maps of batch items, heads or queries by which every wrong row is what it is."""
    sources: dict[int, BoolArray] = {}
    for row in screen.rows:
        place = place_of(screen, row, letter)
        candidates = at_each_place(screen, operand, letter, row)
        near = screen.near(candidates)
        sources[place] = near & sources.get(place, np.ones_like(near))
        if len(near) == 1 or not sources[place].any():
            return []
    n = screen.setup.shape[2] if operand.fields == LIMITS else len(near)
    family = [*(past_the_end(n) if operand.fields == LIMITS else ()), *place_maps(n)]
    window = screen.setup.convention.window
    if operand == START and window is not None:
        family = [*chunks(n, window[0]), *family]
    is_listed = operand.fields != LIMITS and (letter != "i" or len(screen.rows) < MOST_ROWS)
    return maps_allowed(family, n, sources, is_listed)


def maps_allowed(
    family: Iterable[PlaceMap], n: int, sources: Mapping[int, BoolArray], is_listed: bool
) -> list[PlaceMap]:
    """The maps that read each place at one of its sources; the first of each where not of a family.

    sources  place → at which places it may be read
    """
    maps = [x for x in family if all(sources[at][x.indices[at]] for at in sources)][:MOST_MAPS]
    indices = np.arange(n)
    for at, near in sources.items():
        indices[at] = int(near.argmax())
    if is_listed and not any(np.array_equal(x.indices, indices) for x in maps):
        maps.append(PlaceMap("", "", indices))
    return maps


def past_the_end(n: int) -> Iterator[PlaceMap]:
    """The last of each block, which of the last one may be past the last place."""
    x = np.arange(n)
    for size in (size for size in block_sizes(2 * n) if n % size):
        formula = f"{{x}} // {size} * {size} + {size - 1}"
        yield PlaceMap(f"the last of its block of {size}", formula, x // size * size + size - 1)


def chunks(n: int, before: int) -> Iterator[PlaceMap]:
    """The queries whose windows of so many keys before them start where a chunk of queries does."""
    x = np.arange(n)
    for size in block_sizes(n) if before < n else ():
        formula = f"{{x}} // {size} * {size} + {before}"
        yield PlaceMap(f"chunks of {size}", formula, x // size * size + before)


def place_of(screen: Screen, row: Row, letter: str) -> int:
    """Where a row is along an axis."""
    b, h, i = row.at
    return {"b": b, "h": h, "g": int(screen.setup.key_heads[h]), "i": i}[letter]


def maps_of_keys(screen: Screen, operand: Operand, letter: str) -> list[PlaceMap]:
    """The maps of keys by which every wrong row is what it is."""
    maps = screen.maps_of_keys
    indices = screen.indices_of_keys
    is_mask = operand.arrays == ("given_mask",)
    if not maps or (is_mask and screen.setup.inputs["given_mask"].shape[-1] == 1):
        return []
    return allowed_by_rows(
        screen, maps, lambda row, some: screen.near_maps(row, indices[some], operand.fields)
    )


def allowed_by_rows(
    screen: Screen, maps: Sequence[PlaceMap], near: Callable[[Row, Indices], BoolArray]
) -> list[PlaceMap]:
    """The maps by which every wrong row is what it is.

    near  whether these of the maps give a row
    """
    allowed = np.arange(len(maps))
    for row in screen.rows_by_keys:
        allowed = allowed[near(row, allowed)]
        if not len(allowed):
            return []
    return [maps[x] for x in allowed[:MOST_MAPS]]


# ---- in words


def sentence_of(setup: Setup, operand: Operand, letter: str, place_map: PlaceMap) -> str:
    """Where an operand is read, such as "the scores of batch item 4 are those of batch item 1"."""
    kind, words = WORDS[letter], place_map.words
    if operand.words in LENGTHS:
        return _of_lengths(setup, operand, place_map)
    if operand == START and words.startswith("chunks"):
        return f"attention in {words}, not in a sliding window: {CHUNKS}"
    if operand.fields == LIMITS and (blocks := _blocks(operand, letter, words)):
        return blocks
    if letter == "j" and operand.words in KEYS and words:
        subject, others = KEYS[operand.words]
        return f"{subject} {source_text(kind, words)} ({others} are right)".replace(" ()", "")
    return text_of_map(operand.words, letter, place_map)


def text_of_map(operand: str, letter: str, place_map: PlaceMap) -> str:
    """Such as "the scores of batch item 4 are those of batch item 1"."""
    kind, words = WORDS[letter], place_map.words
    is_many = operand.endswith("scores") or " and " in operand
    are, those = ("are", "those") if is_many else ("is", "that")
    sources = sources_in(place_map.indices)
    is_short = len(sources) <= MOST_SOURCES and letter in "bhg"
    if not words or is_short:
        texts = [
            f"of {places_text(kind, places)} {are} {those} of {kind} {source + 1}"
            for source, places in [*sources.items()][: 2 * MOST_SOURCES]
        ]
        more = len(sources) - len(texts)
        texts += [f"of {more} more of another"] if more > 0 else []
        return f"{operand} {', '.join(texts)}" + f" ({words})" * bool(words)
    return f"{operand} of each {kind} {are} {those} of {source_text(kind, words)}"


CHUNKS = "a query sees the keys of its own chunk alone"

KEYS = {
    "k": ("each key is read as", "the values"),
    "v": ("the value of each key is read as that of", "the keys"),
    "k and v": ("each key is read with its value as", "the mask and the queries"),
}
"""How another key is read in words, and what is right."""


def source_text(kind: str, words: str) -> str:
    """The place that is read in words."""
    if words.startswith("in reverse"):
        return f"the one at its place {words}"
    if words.startswith("a view"):
        return f"the one at its place in {words}"
    if words.startswith("at most"):
        return f"itself, but {words}"
    return f"the {words} {kind}".replace("the the", "the") if words in ENDS else words


ENDS = "the first", "the last"


def _blocks(operand: Operand, letter: str, words: str) -> str:
    """Limits that count by blocks; "" for others."""
    size = words.rpartition(" ")[-1]
    is_causal = operand.words == "the causal limit"
    if is_causal and (letter, words) == ("i", f"the last of its block of {size}"):
        return f"causal by blocks of {size}: a query sees keys to the end of its block"
    if is_causal and (letter, words) == ("i", f"the first of its block of {size}"):
        return f"causal by blocks of {size}: a query sees keys to the first query of its block"
    if is_causal and (letter, words) == ("j", f"the first of its block of {size}"):
        return f"causal by blocks of {size} keys: a query that sees the first sees all of a block"
    return ""


def _of_lengths(setup: Setup, operand: Operand, place_map: PlaceMap) -> str:
    """Whose key length each batch item has."""
    lengths = setup.inputs["kv_len"]
    read = lengths[place_map.indices]
    is_changed = read != lengths
    subject = {
        LENGTHS[0]: "the keys of {items} end at",
        LENGTHS[1]: "{limits} of {items} start from",
        LENGTHS[2]: "the keys and {limits} of {items} are by",
    }[operand.words]
    convention = setup.convention
    limits = ["the window"] * bool(convention.window) + ["the causal limit"] * convention.causal
    ends = {int(lengths.max()): "longest", int(lengths.min()): "shortest"}
    everywhere = len({*read.tolist()}) == 1
    items = (
        "every batch item"
        if everywhere
        else places_text("batch item", np.flatnonzero(is_changed).tolist())
    )
    source = (
        f"the {ends[int(read[0])]} item's length ({read[0]})"
        if everywhere and int(read[0]) in ends
        else f"another item's length ({', '.join(map(str, read[is_changed].tolist()))})"
    )
    return f"{subject.format(items=items, limits=' and '.join(limits))} {source}"
