"""An answer: a cause that was solved from the observed numbers, and the words for a map of places.

It becomes a row of its own beside those of the catalogue, and is judged as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import NamedTuple

import numpy as np

from attncli.commands.check.bugs.bug import Bug, Evidence
from attncli.commands.check.search import Match
from attncli.errors import joined
from attncli.tolerance.comparison import Comparison
from attncli.tolerance.run import Indices
from attncli.tolerance.setup import Setup


class Answer(NamedTuple):
    """What the numbers say, and the setups that it can be.

    sentence  in words, as the name of the cause
    setups    in the order in which they are judged: of those that fit the first is taken
    formula   what is computed so, or ""
    is_fitted whether numbers of it are fitted to what was observed
    """

    sentence: str
    setups: Iterable[Setup]
    formula: str = ""
    is_fitted: bool = False


@dataclass(frozen=True, eq=False)
class SolvedBug(Bug):
    """A bug that has no row in the catalogue: its name is the sentence of an answer."""

    @property
    def id(self) -> str:
        """No command knows it."""
        return ""


class Solution(NamedTuple):
    """What the questions found.

    matches     each explains what is compared
    comparison  which that is: everything, or the part that is wrong
    part        the part in words, such as "batch item 4"; "" for everything
    """

    matches: list[Match]
    comparison: Comparison
    part: str = ""


def bug_of(sentence: str, formula: str = "", *, is_fitted: bool = False) -> SolvedBug:
    """An answer as a row beside those of the catalogue; its setups are known already."""
    return SolvedBug(sentence, formula, (), frozenset(), _nothing, is_fitted=is_fitted)


def _nothing(_: Setup, __: Evidence) -> tuple[Setup, ...]:
    return ()


# ---- maps: at which place each place is read


class PlaceMap(NamedTuple):
    """At which place of an axis each place is read.

    words    such as "the first of each 4"
    formula  such as "j // 4 * 4", with {x} for the letter, {n} for the size of the axis and
             {last} for its last place
    """

    words: str
    formula: str
    indices: Indices

    def text(self, letter: str) -> str:
        """The formula of the index of this letter."""
        n = len(self.indices)
        return self.formula.format(x=letter, n=n, last=n - 1)


def place_maps(n: int, *, every_shift: bool = False) -> Iterator[PlaceMap]:
    """The maps of an axis of n places, but for that of each place to itself: each once.

    Of more than MOST_PLACES, those alone whose blocks, shifts and ends are of some sizes.

    every_shift  whether places are shifted by every number, not only by those that divide n
    """
    places, small = np.arange(n), np.min_scalar_type(max(0, n - 1))
    seen_maps = {places.astype(small).tobytes()}
    shifts = ((_after(by), (places + by) % n) for by in (1, *block_sizes(n)) if every_shift)
    more = ((words, formula, indices) for (words, formula), indices in shifts)
    for words, formula, indices in chain(_each_map(n, places), more):
        key = indices.astype(small).tobytes()
        if key not in seen_maps:
            seen_maps.add(key)
            yield PlaceMap(words, formula, indices)


def _after(by: int) -> tuple[str, str]:
    """The place so many after another, in words and as a formula."""
    return f"the one {by} after", f"({{x}} + {by}) % {{n}}"


def _each_map(n: int, x: Indices) -> Iterator[tuple[str, str, Indices]]:
    yield "the first", "0", x * 0
    yield "the last", "{last}", x * 0 + n - 1
    yield "in reverse order", "{last} - {x}", n - 1 - x
    yield "the one before", "({x} - 1) % {n}", (x - 1) % n
    yield "the one after", "({x} + 1) % {n}", (x + 1) % n
    sizes = block_sizes(n)
    for b in sizes:
        yield f"its number modulo {b}", f"{{x}} % {b}", x % b
    for b in (b for b in sizes if b <= n // 2):
        block = x // b
        first = block * b
        yield f"the first of its block of {b}", f"{{x}} // {b} * {b}", first
        last = np.minimum(first + (b - 1), n - 1)
        yield f"the last of its block of {b}", f"min({{x}} // {b} * {b} + {b - 1}, {{last}})", last
        if n % b == 0:
            yield *_after(b), (x + b) % n
            for rows in (b, n // b):
                columns = n // rows
                yield (
                    f"a view of [{rows}, {columns}] in place of [{columns}, {rows}]",
                    f"{{x}} % {rows} * {columns} + {{x}} // {rows}",
                    x % rows * columns + x // rows,
                )
        within = np.minimum(2 * first + (b - 1) - x, n - 1)
        formula = f"min({{x}} // {b} * {b} + {b - 1} - {{x}} % {b}, {{last}})"
        yield f"in reverse order within each block of {b}", formula, within
        yield f"its number divided by {b}", f"{{x}} // {b}", block
    some = sorted({at for size in sizes for at in (size, n - size)})
    for at in some if n > MOST_PLACES else range(1, n):
        yield f"at most number {at + 1}", f"min({{x}}, {at})", np.minimum(x, at)


def block_sizes(n: int) -> Sequence[int]:
    """How long a block of an axis of n places may be: every size from 2 on, or some.

    >>> block_sizes(7), block_sizes(2**20)
    (range(2, 7), [2, 4, 8, 16, 32, 64, 128, 256])
    """
    if n <= MOST_PLACES:
        return range(2, n)
    powers = [2**x for x in range(1, (n - 1).bit_length())]
    parts = [-(-n // number) for number in range(2, 9)]
    most = max(LEAST_SIZES, MOST_NUMBERS // (MAPS_OF_SIZE * n))
    return sorted([*dict.fromkeys([*powers, *parts, *range(2, min(n, 2 + most))])][:most])


MOST_MAPS = 12
"""So many maps of an axis are judged exactly: more cannot be told apart by what is wrong."""

MOST_PLACES, LEAST_SIZES = 2**10, 8
"""Of an axis of so many places every map of the family is tried; of a longer one those of so many
sizes at least."""

MOST_NUMBERS, MAPS_OF_SIZE = 2**22, 7
"""All maps of an axis are about so many numbers, 32 MB; there are so many maps of each size."""


MOST_SOURCES = 3
"""Of a map that is listed there are so many places from which others are read."""


def places_text(kind: str, places: Sequence[int]) -> str:
    """Places, counted from 1, in words.

    >>> places_text("head", [1, 2]), places_text("query", [4, 5, 6, 7]), places_text("key", [0])
    ('heads 2 and 3', 'queries 5 to 8', 'key 1')
    """
    kinds = {"query": "queries"}.get(kind, f"{kind}s")
    if len(places) == 1:
        return f"{kind} {places[0] + 1}"
    return f"{kinds} {numbers_text(places)}"


def numbers_text(places: Sequence[int]) -> str:
    """The numbers of places, counted from 1, those in a row as one.

    >>> numbers_text([0, 1, 2, 3, 6]), numbers_text([0, 1]), numbers_text(range(4, 8))
    ('1 to 4 and 7', '1 and 2', '5 to 8')
    """
    if isinstance(places, range) and len(places) > 2 and places.step == 1:
        return f"{places[0] + 1} to {places[-1] + 1}"
    parts = list[str]()
    for _, run in groupby(enumerate(sorted(places)), key=lambda pair: pair[1] - pair[0]):
        numbers = [place + 1 for _, place in run]
        is_long = len(numbers) > 2
        parts += [f"{numbers[0]} to {numbers[-1]}"] if is_long else [*map(str, numbers)]
    if len(parts) > MOST_LISTED:
        parts = [*parts[:MOST_LISTED], f"{len(parts) - MOST_LISTED} more"]
    return joined(parts)


MOST_LISTED = 6
"""Of more numbers only the first are said."""


def sources_in(indices: Indices) -> dict[int, list[int]]:
    """The places that are read at another one, by that one."""
    sources: dict[int, list[int]] = {}
    for place, source in enumerate(indices.tolist()):
        if place != source:
            sources.setdefault(source, []).append(place)
    return sources


def map_text(kind: str, indices: Indices, words: str = "") -> str:
    """Which places have the numbers of which, in words.

    words  of the map as a whole, which are said where a list would be long

    >>> map_text("head", np.array([0, 0, 0, 3, 3, 3]))
    'heads 2 and 3 have the numbers of head 1, heads 5 and 6 those of head 4'
    """
    sources = sources_in(indices)
    if words and len(sources) > MOST_SOURCES:
        kinds = places_text(kind, [0, 1]).split()[0]
        return f"{kinds} have the numbers of others: {words}"
    sentences = list[str]()
    for source, places in [*sources.items()][:MOST_LISTED]:
        have = "has" if len(places) == 1 else "have"
        of_source = (
            f"the numbers of {kind} {source + 1}"
            if not sentences
            else f"those of {kind} {source + 1}"
        )
        verb = f" {have}" if not sentences else ""
        sentences.append(f"{places_text(kind, places)}{verb} {of_source}")
    more = len(sources) - MOST_LISTED
    return ", ".join(sentences) + f" and {more} more" * (more > 0)
