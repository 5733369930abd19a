"""Word vectors from a source: those of some words, the nearest of one, and close spellings.

Only the lines of the words asked for are parsed; word_entries.py knows the formats.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import FloatArray
from attncli.errors import InputError, ShapeError
from attncli.files.messages import quote, safe
from attncli.words.vector_files import open_entries

_BLOCK = 100_000  # numbers that are compared at once: NumPy takes as long for a few
_OFFERED = 3  # close spellings of a word
_ALIKE = 0.65  # of difflib's ratio: one letter of three may be wrong (0.667), but not of two (0.5)


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of the words that were found, and close spellings of the others."""

    words: tuple[str, ...]  # those found, as asked for and in that order
    matrix: FloatArray  # [n, d] float64, write-locked, one row per word found
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # word → close spellings
    folded: Mapping[str, str] = field(default_factory=dict)  # word → the one in another case
    warnings: tuple[str, ...] = ()  # what was wrong with the source, with line numbers
    origin: str = ""  # the source, for a message
    whole: str = ""  # how to get the larger file that the source is part of, or ""

    @property
    def in_other_case(self) -> list[str]:
        """Remarks on words that are there in another case only; small letters need none."""
        return [
            f"{self.origin} has no {word!r}, only {spelling!r}, which is used"
            for word, spelling in self.folded.items()
            if spelling != word.lower()
        ]


class Neighbours(NamedTuple):
    """Words and their cosines, the nearest first, and what was wrong with the source."""

    pairs: tuple[tuple[str, float], ...]
    warnings: tuple[str, ...] = ()


def read_vectors(source: str, words: Sequence[str]) -> Vectors:
    """The vectors of `words`, without parsing the others.     # -> [n, d] for the n found

    `source` is a SOURCE (such as a path, also gzipped or `file.zip::member`), "builtin" or vectors
    written inline, such as "king=0.9,0.5,0.1 queen=0.2,0.5,0.1". Reading stops at the last word
    asked for; where one is missing, all is read, another case of it is taken, or close spellings
    are offered. Of equal words the first counts. A line asked for with a wrong number of values, or
    one that is not finite, is skipped with a warning; a damaged file is read as far as it is whole.

    Source: the format of Pennington et al., "GloVe" (2014); word2vec's text format.

    >>> found = read_vectors("king=0.9,0.5,0.1 queen=0.2,0.5,0.1", ["queen", "King", "quene"])
    >>> found.words, found.matrix.tolist()
    (('queen', 'King'), [[0.2, 0.5, 0.1], [0.9, 0.5, 0.1]])
    >>> found.folded, found.missing
    ({'King': 'king'}, {'quene': ('queen',)})
    """
    rows: dict[str, FloatArray] = {}
    cases: dict[str, tuple[str, FloatArray]] = {}  # folded word → the first that is so in any case
    remarks: dict[tuple[str, str], str] = {}  # one of a kind for each word
    remaining, folds = set(words), {word.casefold() for word in words}
    with open_entries(source) as file:
        for number, word, is_utf8, row in file.entries(remaining):
            if word.casefold() not in folds:
                continue
            place = f"{file.unit} {number}"
            if isinstance(row, str):
                remarks.setdefault((word, "wrong"), f"{place}: {safe(word)} {row}; skipped")
                continue
            if not is_utf8:
                remarks.setdefault((word, "bytes"), f"{place} is not UTF-8; read as Latin-1")
            if word in rows:
                again = f"{place}: {safe(word)} appears again; the first is used"
                remarks.setdefault((word, "again"), again)
            elif word in remaining:
                rows[word] = row
                remaining.remove(word)  # when none is left, a text is not read further
            cases.setdefault(word.casefold(), (word, row))
        folded = {word: cases[word.casefold()][0] for word in remaining if word.casefold() in cases}
        rows |= {word: cases[word.casefold()][1] for word in folded}
        vocabulary = file.words if remaining - folded.keys() else []
        missing = {word: close_spellings(word, vocabulary) for word in words if word not in rows}
        row_words = tuple(word for word in words if word in rows)
        matrix = np.array([rows[word] for word in row_words]).reshape(len(row_words), file.dim)
        matrix.flags.writeable = False
        notes = (*file.warnings, *remarks.values())
        return Vectors(row_words, matrix, missing, folded, notes, file.origin, file.whole)


def nearest(
    source: str, vector: npt.ArrayLike, n: int = 10, exclude: Iterable[str] = ()
) -> Neighbours:
    """The n words whose vectors have the greatest cosine with `vector`, greatest first.

    cos(a, b) = a·b / (‖a‖·‖b‖)     # [d] -> n pairs (word, cosine in −1 … 1)

    Every line is parsed, a few at a time. Words in `exclude` are left out, and so are vectors of
    zeros, which have no direction. Of equal cosines the earlier word comes first.

    Source: the definition a·b = ‖a‖·‖b‖·cos θ.

    >>> nearest("king=0.9,0.1 queen=0.1,0.9 up=0,1", [0.0, 2.0], n=2, exclude=["up"]).pairs[0][0]
    'queen'
    """
    used = set(exclude)
    best: list[tuple[float, int, str]] = []  # a heap: the farthest of the nearest comes first
    skipped: list[int] = []
    with open_entries(source) as file, np.errstate(all="ignore"):
        direction = _direction(vector, file.dim)
        entries = file.entries(None)
        while block := list(islice(entries, max(1, _BLOCK // file.dim))):
            skipped += [number for number, _, _, row in block if isinstance(row, str)]
            whole = [entry for entry in block if not isinstance(entry.row, str)]
            rows = np.array([row for *_, row in whole]).reshape(-1, file.dim)
            lengths = np.sqrt((rows * rows).sum(axis=1))
            cosines = np.clip(rows @ direction / lengths, -1.0, 1.0).tolist()
            for (number, word, *_), cosine in zip(whole, cosines, strict=True):
                farthest = best[0][0] if len(best) == n else -math.inf
                if cosine > farthest and word not in used:  # not so where it is NaN
                    used.add(word)
                    heapq.heappush(best, (cosine, -number, word))
                    if len(best) > n:
                        used.remove(heapq.heappop(best)[2])
        if skipped:
            more = f" and {len(skipped) - 1} more are not vectors"
            more = more if len(skipped) > 1 else " is not a vector"
            file.warnings.append(f"{file.unit} {skipped[0]}{more}; skipped")
        pairs = tuple((word, cosine) for cosine, _, word in sorted(best, reverse=True))
        return Neighbours(pairs, tuple(file.warnings))


def _direction(vector: npt.ArrayLike, dim: int) -> FloatArray:
    try:
        values = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError("the vector to compare with does not hold numbers") from None
    if values.shape != (dim,):
        raise ShapeError(f"the vector to compare with has shape {values.shape}, not ({dim},)")
    largest = np.abs(values).max()
    if not 0 < largest < np.inf:
        raise InputError("the vector to compare with is zero or not finite: it has no direction")
    scaled = values / largest  # squares of the numbers themselves could overflow
    direction: FloatArray = scaled / np.sqrt(scaled @ scaled)
    return direction


def suggestion(missing: Mapping[str, Sequence[str]]) -> str:
    """A question with close spellings of words that were not found, or "".

    >>> suggestion({"kingg": ("king",)}), suggestion({"kingg": ("king", "kin"), "wng": ()})
    ('did you mean king?', "did you mean king or kin for 'kingg'?")
    """
    close = {word: " or ".join(map(safe, near)) for word, near in missing.items() if near}
    if len(missing) > 1:
        close = {word: f"{near} for {quote(word)}" for word, near in close.items()}
    return f"did you mean {', '.join(close.values())}?" if close else ""


def close_spellings(word: str, vocabulary: Iterable[str]) -> tuple[str, ...]:
    """Up to three words of the vocabulary that are spelled nearly as `word`, the closest first.

    Compared are words with the same first letter and up to two letters more or less; upper and
    lower case are the same. Of equally close words the earlier come first, which in GloVe are the
    more frequent.
    Source: Ratcliff and Metzener, "Pattern Matching: The Gestalt Approach" (1988), as in difflib.

    >>> close_spellings("quene", ["king", "queen", "Queen", "quit"])
    ('queen', 'Queen')
    """
    import difflib

    target = word.casefold()
    matcher = difflib.SequenceMatcher(b=target, autojunk=False)
    close: list[tuple[float, str]] = []
    for other in dict.fromkeys(vocabulary) if len(target) > 1 else ():
        folded = other.casefold()
        if folded[:1] == target[0] and abs(len(folded) - len(target)) <= 2 and other != word:
            matcher.set_seq1(folded)
            if matcher.quick_ratio() >= _ALIKE and matcher.ratio() >= _ALIKE:
                close.append((-matcher.ratio(), other))
    close.sort(key=lambda pair: pair[0])
    return tuple(other for _, other in close[:_OFFERED])
