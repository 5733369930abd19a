"""Random vectors for words, the same for the same word everywhere."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence

import numpy as np

from attncli.arrays import FloatArray
from attncli.errors import ConventionError


def random_vectors(words: Sequence[str], dim: int, seed: int = 0) -> FloatArray:
    """A vector for each word, drawn evenly from [−1, 1): [n, dim].

    Each is drawn by NumPy's PCG64, seeded with BLAKE2b of the seed and the word (composed, NFC, in
    UTF-8), so a word has the same vector in every sentence and on every machine, and its first
    numbers do not depend on `dim`.

    Raises ConventionError for a dim below 1 or a seed below 0.
    Source: RFC 7693 (BLAKE2), O'Neill (2014) (PCG).

    >>> vectors = random_vectors(["bank", "river", "bank"], 3)
    >>> vectors.shape, bool((vectors[0] == vectors[2]).all())
    ((3, 3), True)
    """
    if dim < 1:
        raise ConventionError(f"dim is {dim}", "use a whole number from 1")
    if seed < 0:
        raise ConventionError(f"seed is {seed}", "use a whole number from 0")
    vectors = {word: _vector(word, dim, seed) for word in dict.fromkeys(words)}
    return np.array([vectors[word] for word in words]).reshape(len(words), dim)


def _vector(word: str, dim: int, seed: int) -> FloatArray:
    # Arguments may hold bytes that are not UTF-8, which Python keeps as single surrogates.
    text = f"{seed}:{unicodedata.normalize('NFC', word)}".encode("utf-8", "surrogatepass")
    key = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
    generator = np.random.Generator(np.random.PCG64(key))
    return 2.0 * generator.random(dim) - 1.0
