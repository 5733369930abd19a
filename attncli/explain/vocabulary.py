"""A vector for every word: made up, or read from a file, with a rule for those not in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from attncli.errors import ConventionError, InputError
from attncli.text.random_vectors import random_vectors

Array = npt.NDArray[Any]
Unknown = Literal["random", "zero", "error"]

_NAMED = 8  # words a note lists
_FATE = {"random": "got a made-up vector each", "zero": "are vectors of zeros"}


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The vectors of all words that are needed.

    vectors   word → [dim]
    note      where they come from, in plain words
    remarks   what became of words that the file does not hold as they were asked for
    warnings  what was wrong with the file
    """

    vectors: Mapping[str, Array]
    dim: int
    note: str
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def rows(self, tokens: Sequence[str], n_real: int) -> Array:
        """The vector of each token [n, dim]; zeros for the padding after the first n_real."""
        matrix = np.zeros((len(tokens), self.dim))
        for row, token in enumerate(tokens[:n_real]):
            matrix[row] = self.vectors[token]
        return matrix


def made_up(words: Sequence[str], dim: int, seed: int = 0) -> Vocabulary:
    """A random vector for each word, the same in every sentence and on every machine.

    Raises ConventionError for a dim below 1 or a seed below 0.

    >>> made_up(("bank", "bank"), 3).vectors["bank"].shape
    (3,)
    """
    known = tuple(dict.fromkeys(words))
    vectors = dict(zip(known, random_vectors(known, dim, seed), strict=True))
    note = f"made up: random numbers (seed {seed}), but always the same for the same word"
    return Vocabulary(vectors, dim, note)


def from_file(
    source: str, words: Sequence[str], *, unknown: Unknown = "random", seed: int = 0
) -> Vocabulary:
    """The vectors of a GloVe file (or any that `read_vectors` reads).

    `unknown` says what a word gets that is not in it: a made-up vector, one drawn from the range
    that a random one has; zeros; or an error.

    Raises InputError for a source that is no vectors, or where it lacks a word and may not.

    >>> found = from_file("king=0.9,0.5 queen=0.2,0.5", ("king", "quoon"), unknown="zero")
    >>> found.vectors["quoon"].tolist(), found.remarks
    ([0.0, 0.0], ("1 word is not in the vectors given: 'quoon' is a vector of zeros",))
    """
    from attncli.text.glove import read_vectors

    asked = tuple(dict.fromkeys(words))
    found = read_vectors(source, asked)
    dim = found.matrix.shape[1]
    vectors: dict[str, Array] = dict(zip(found.words, found.matrix, strict=True))
    origin = found.origin or "the vectors given"
    lost = [word for word in asked if word not in vectors]
    if lost and unknown == "error":
        raise InputError(f"{origin} has no vector for {_listed(lost)}", _hint(lost, found.missing))
    fill = random_vectors(lost, dim, seed) if unknown == "random" else np.zeros((len(lost), dim))
    vectors |= dict(zip(lost, fill, strict=True))
    remarks = [_unknown_remark(lost, origin, unknown)] if lost else []
    if found.folded:
        pairs = ", ".join(f"{a!r} as {b!r}" for a, b in list(found.folded.items())[:_NAMED])
        remarks.append(f"found in another case: {pairs}{_more(len(found.folded))}")
    note = f"read from {origin}, whatever the sentence: a static vector"
    return Vocabulary(vectors, dim, note, tuple(remarks), found.warnings)


def check_dim(vocabulary: Vocabulary, dim: int | None) -> None:
    """ConventionError where another width was asked for than the file has."""
    if dim is not None and dim != vocabulary.dim:
        raise ConventionError(
            f"--dim is {dim}, but the vectors have {vocabulary.dim} numbers", "leave out --dim"
        )


def _unknown_remark(lost: Sequence[str], origin: str, unknown: Unknown) -> str:
    one = len(lost) == 1
    words = "1 word is" if one else f"{len(lost)} words are"
    fate = _FATE[unknown]
    if one:
        fate = fate.replace(" each", "").replace("are vectors", "is a vector")
    return f"{words} not in {origin}: {_listed(lost)} {fate}"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(map(repr, words[:_NAMED])) + _more(len(words))


def _more(count: int) -> str:
    return f" and {count - _NAMED} more" if count > _NAMED else ""


def _hint(lost: Sequence[str], missing: Mapping[str, tuple[str, ...]]) -> str:
    close = missing.get(lost[0], ())[:3]
    other = f"did you mean {', '.join(map(repr, close))}? Else " if close else ""
    return f"{other}use --unknown random or zero"
