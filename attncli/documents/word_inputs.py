"""Inputs that are words with their vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attncli.documents.nodes import MOST_SIDE, matrix, node, row, words
from attncli.errors import InputError
from attncli.files.messages import listing, quote
from attncli.files.word_vectors import read_vectors


@dataclass(frozen=True, eq=False)
class WordVectors:
    """Words, and a vector for each: [n, d]."""

    words: tuple[str, ...]
    matrix: npt.NDArray[np.float64]


@dataclass(frozen=True)
class GloveWords:
    """Words whose vectors stand in a file that does not come with the example."""

    words: tuple[str, ...]
    file: str

    def read(self, path: str) -> WordVectors:
        """Their vectors from the file; InputError where a word is not in it."""
        found = read_vectors(path, self.words)
        if found.missing:
            raise InputError(
                f"{found.origin} has no vector for {listing(found.missing)}",
                f"the example was made with {self.file}",
            )
        return WordVectors(self.words, found.matrix)


def word_vectors(found: object, spot: str) -> WordVectors:
    """{"king": [0.9, 0.5], …}, every vector of the same length."""
    given = node(found, spot)
    if not 0 < len(given.fields) <= MOST_SIDE:
        raise InputError(f"{spot} has {len(given.fields)} words", f"give 1 to {MOST_SIDE}")
    rows = {word: row(numbers, f"{spot}, {quote(word)}") for word, numbers in given.fields.items()}
    if len({vector.size for vector in rows.values()}) > 1:
        lengths = [f"{quote(word)} {vector.size}" for word, vector in rows.items()]
        raise InputError(f"{spot}: vectors differ in length: {', '.join(lengths[:8])}")
    return WordVectors(tuple(rows), np.array(list(rows.values())))


def glove_words(found: object, spot: str) -> GloveWords:
    """{"words": […], "file": "glove.6B.100d.txt"}."""
    given = node(found, spot)
    given.keys(["words", "file"], [])
    return GloveWords(words(given.fields["words"], f"{spot}, words"), given.text("file"))


def token_rows(found: object, spot: str) -> WordVectors:
    """A matrix, or {"tokens": […], "vectors": {word: […]}}: a row for each token."""
    if not isinstance(found, dict) or "tokens" not in found:
        return WordVectors((), matrix(found, spot))
    given = node(found, spot)
    given.keys(["tokens", "vectors"], [])
    tokens = words(given.fields["tokens"], f"{spot}, tokens")
    known = word_vectors(given.fields["vectors"], f"{spot}, vectors")
    if missing := [token for token in tokens if token not in known.words]:
        raise InputError(f"{spot} has no vector for {quote(missing[0])}")
    rows = [known.matrix[known.words.index(token)] for token in tokens]
    return WordVectors(tokens, np.array(rows))
