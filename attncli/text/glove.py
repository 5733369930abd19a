"""Word vectors from a file, quickly: only the words asked for are parsed.

    source → blocks → whole lines → the few that may begin with a word asked for → vectors
             vector_sources.py   vector_lines.py              here and in vector_search.py

Reads GloVe text, word2vec text with its header line, JSON {word: [numbers]}, and vectors
written inline; `.gz` and `.zip` as they were downloaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.text.nearest_words import Nearest
from attncli.text.spellings import close_spellings, rows_of
from attncli.text.vector_chunks import BLOCK, Chunk, Chunks
from attncli.text.vector_lines import Layout, layout_of
from attncli.text.vector_refusals import is_json, refuse
from attncli.text.vector_search import Search
from attncli.text.vector_sources import Source, shown
from attncli.text.vector_tables import MOST_JSON, Table, inline_table, json_table

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of the words that were found, and what became of the others.

    words     those found, as asked for and in that order
    matrix    [n, d] float64, write-locked, one row per word found
    missing   each word that is not there → close spellings that are
    folded    word asked for → the word found in another case, where the exact one is missing
    warnings  what was wrong with the source, with line numbers
    origin    the source, for a message
    """

    words: tuple[str, ...]
    matrix: Array
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    folded: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class Neighbours:
    """Words and their cosines, the nearest first, and what was wrong with the source."""

    pairs: tuple[tuple[str, float], ...]
    warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


def read_vectors(source: str, words: Sequence[str]) -> Vectors:
    """The vectors of `words`, without parsing the others.     # -> [n, d] for the n found

    `source` is a file (also `.gz`, `.zip`, or `zip::member`) or vectors written inline, such as
    "king=0.9,0.5,0.1 queen=0.2,0.5,0.1". Reading stops at the last word asked for; where one is
    missing, all is read, another case of it is taken, or close spellings are offered. Of equal
    words the first counts. A line asked for with a wrong number of values, or one that is not
    finite, is skipped with a warning; a file cut short is read as far as it is whole.

    Raises InputError for a source that is no vectors: HTML, a Git LFS pointer, binary, empty, ….
    Source: the format of Pennington et al., "GloVe" (2014); word2vec's text format.

    >>> found = read_vectors("king=0.9,0.5,0.1 queen=0.2,0.5,0.1", ["queen", "King", "quene"])
    >>> found.words, found.matrix.tolist()
    (('queen', 'King'), [[0.2, 0.5, 0.1], [0.9, 0.5, 0.1]])
    >>> found.folded, found.missing
    ({'King': 'king'}, {'quene': ('queen',)})
    """
    with _opened(source) as content:
        if isinstance(content, Table):
            return _from_table(content, words)
        return _from_text(content, words)


def nearest(
    source: str, vector: npt.ArrayLike, n: int = 10, exclude: Iterable[str] = ()
) -> Neighbours:
    """The n words whose vectors have the greatest cosine with `vector`, greatest first.

    cos(a, b) = a·b / (‖a‖·‖b‖)     # [d] -> n pairs (word, cosine in −1 … 1)

    Every line is parsed, but only a block of them is held at a time. Words in `exclude` are left
    out, and so are vectors of zeros, which have no direction. Of equal cosines the earlier word
    comes first.

    Raises InputError as `read_vectors` does, ShapeError where `vector` does not fit.
    Source: the definition a·b = ‖a‖·‖b‖·cos θ.

    >>> nearest("king=0.9,0.1 queen=0.1,0.9 up=0,1", [0.0, 2.0], n=2, exclude=["up"]).pairs[0][0]
    'queen'
    """
    with _opened(source) as content:
        if isinstance(content, Table):
            search = Nearest(vector, content.dim, n, exclude)
            search.add_table(content)
            return Neighbours(search.pairs(), search.warnings())
        search = Nearest(vector, content.layout.dim, n, exclude)
        for chunk in content:
            search.add_chunk(chunk, content.layout)
        return Neighbours(search.pairs(), (*content.warnings(), *search.warnings()))


@dataclass
class _Text:
    """A text file of vectors, open for reading."""

    source: Source
    layout: Layout
    chunks: Chunks
    ahead: Iterator[Chunk]

    def __iter__(self) -> Iterator[Chunk]:
        return self.ahead

    def warnings(self) -> tuple[str, ...]:
        """What the header and the way the file ended have to say."""
        if not self.source.damage:
            return self.layout.warnings
        after = f"the file is damaged after line {self.chunks.last_number} ({self.source.damage})"
        return (*self.layout.warnings, f"{after}; what comes before was read")


@contextmanager
def _opened(source: str) -> Iterator[Table | _Text]:
    if (table := inline_table(source)) is not None:
        yield table
        return
    with Source(source) as file:
        chunks = Chunks(file)
        refuse(chunks.start, file.origin, file.damage)
        if is_json(chunks.start):
            yield json_table(_whole(chunks.start, file), file.origin)
            return
        ahead = iter(chunks)
        first = next(ahead, None)
        if first is None:
            raise InputError(f"{file.origin} holds no whole line", "download it again")
        yield _Text(file, layout_of(first, file.origin), chunks, chain([first], ahead))


def _whole(start: bytes, file: Source) -> bytes:
    parts, size = [start], len(start)
    buffer = memoryview(bytearray(BLOCK))
    while count := file.read_into(buffer):
        parts.append(bytes(buffer[:count]))
        size += count
        if size > MOST_JSON:
            raise InputError(
                f"{file.origin} is more than {MOST_JSON >> 20} MB of JSON, which is read whole",
                "save it as text: a word and its numbers on each line",
            )
    if file.damage:
        raise InputError(f"{file.origin} is damaged ({file.damage})", "download it again")
    return b"".join(parts)


def _from_text(text: _Text, words: Sequence[str]) -> Vectors:
    search = Search(words, text.layout)
    for chunk in text:
        search.add(chunk)
        if search.done:
            break
    delimiter = text.layout.delimiter
    found, folded = search.found, search.folded()
    vocabulary = search.vocabulary() if len(found) < len(set(words)) else rows_of([])
    spellings = {
        word: close_spellings(word, vocabulary, delimiter)
        for word in words
        if word not in found and word not in folded
    }
    warnings = (*text.warnings(), *search.warnings())
    rows = found | {word: row for word, (_, row) in folded.items()}
    names = {word: name for word, (name, _) in folded.items()}
    return _vectors(words, rows, text.layout.dim, spellings, names, warnings, text.source.origin)


def _from_table(table: Table, words: Sequence[str]) -> Vectors:
    cases: dict[str, str] = {}
    for word in table.rows:
        cases.setdefault(word.casefold(), word)
    rows: dict[str, Array] = {}
    names: dict[str, str] = {}
    warnings: dict[str, None] = {}
    for word in words:
        name = word if word in table.rows else cases.get(word.casefold())
        if name is None:
            continue
        row = table.row(name)
        if isinstance(row, str):
            warnings[f"{shown(name)} {row}; skipped"] = None
            continue
        rows[word] = row
        if name != word:
            names[word] = name
        if name in table.repeated:
            warnings[f"{shown(name)} is there again; the first is used"] = None
    vocabulary = rows_of([word.encode("utf-8", "replace") for word in table.rows])
    spellings = {word: close_spellings(word, vocabulary) for word in words if word not in rows}
    return _vectors(words, rows, table.dim, spellings, names, tuple(warnings), table.origin)


def _vectors(
    words: Sequence[str],
    rows: Mapping[str, Array],
    dim: int,
    missing: Mapping[str, tuple[str, ...]],
    folded: Mapping[str, str],
    warnings: tuple[str, ...],
    origin: str,
) -> Vectors:
    found = tuple(word for word in words if word in rows)
    matrix = np.array([rows[word] for word in found]).reshape(len(found), dim)
    matrix.flags.writeable = False
    return Vectors(found, matrix, missing, folded, warnings, origin)
