"""Random vectors for words, the same for the same word everywhere."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np

from attncli.arrays import FloatArray
from attncli.attention.weights import named_seed
from attncli.errors import ConventionError


def random_vectors(words: Iterable[str], dim: int, seed: int = 0) -> dict[str, FloatArray]:
    """A vector for each word, drawn evenly from [−1, 1): word → [dim].

    NumPy's PCG64 is seeded with BLAKE2b of the seed and the word (NFC, UTF-8), so a word has the
    same vector in every sentence and on every machine; its first numbers do not depend on `dim`.

    Source: RFC 7693 (BLAKE2), O'Neill (2014) (PCG).

    >>> random_vectors(["bank", "river"], 3)["bank"].round(4).tolist()
    [-0.2206, -0.8264, -0.5396]
    """
    if dim < 1:
        raise ConventionError(f"dim is {dim}", "use a whole number from 1")
    if seed < 0:
        raise ConventionError(f"seed is {seed}", "use a whole number from 0")
    vectors: dict[str, FloatArray] = {}
    for word in dict.fromkeys(words):
        key = named_seed(seed, unicodedata.normalize("NFC", word), n_bytes=16)
        vectors[word] = 2.0 * np.random.default_rng(key).random(dim) - 1.0
    return vectors
