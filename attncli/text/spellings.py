"""Close spellings of a word that is not in a vocabulary of hundreds of thousands.

The words stand as rows of bytes, and one edit distance is computed for all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.uint8]

WIDTH = 24  # of a row: the first bytes of a line; longer words are not compared
_OFFERED = 3
_AT_ONCE = 1 << 16
_UPPER = slice(ord("A"), ord("Z") + 1)

_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[_UPPER] += 32


def rows_of(words: Sequence[bytes], delimiter: bytes = b" ") -> Rows:
    """Words as rows of WIDTH bytes, each followed by the delimiter.

    >>> rows_of([b"king"]).shape
    (1, 24)
    """
    padded = b"".join((word + delimiter * WIDTH)[:WIDTH] for word in words)
    return np.frombuffer(padded, dtype=np.uint8).reshape(-1, WIDTH)


def close_spellings(word: str, rows: Rows, delimiter: bytes = b" ") -> tuple[str, ...]:
    """Up to three words of the rows that one or two edits make of `word`, the closest first.

    An edit is a letter more, less, another, or two neighbours swapped (optimal string
    alignment, in bytes; upper and lower case are the same); words of up to four letters allow
    one. Of equally close words those with the same first letter come first, then those earlier in
    the rows, which in GloVe are the more frequent.

    rows: [words, WIDTH], each word ended by the delimiter.
    Source: Damerau (1964); Boytsov, "Indexing Methods for Approximate Dictionary Searching"
    (2011), section 2.

    >>> close_spellings("quene", rows_of([b"king", b"queen", b"queue"]))
    ('queen', 'queue')
    """
    asked = _LOWER[np.frombuffer(word.encode("utf-8", "replace"), dtype=np.uint8)]
    allowed = 1 if len(asked) <= 4 else 2
    if not 1 < len(asked) < WIDTH - allowed:
        return ()
    best: list[tuple[int, bool, int]] = []
    for start in range(0, len(rows), _AT_ONCE):
        part = rows[start : start + _AT_ONCE]
        lengths = (part == ord(delimiter)).argmax(axis=1)
        near = np.flatnonzero(np.abs(lengths - len(asked)) <= allowed)
        near = near[lengths[near] > 0]
        letters = _LOWER[part[near]]
        distances = _distances(asked, letters, lengths[near])
        best += [
            (int(distances[i]), bool(letters[i, 0] != asked[0]), start + int(near[i]))
            for i in np.flatnonzero(distances <= allowed)
        ]
    return _first_words(sorted(best), rows, word, delimiter)


def _distances(asked: Rows, rows: Rows, lengths: npt.NDArray[np.intp]) -> npt.NDArray[np.uint8]:
    # [m], [n, WIDTH], [n] -> [n]: the edit distance of `asked` to each row
    columns = int(lengths.max(initial=0)) + 1
    letters = np.ascontiguousarray(rows.T)
    table = [np.arange(columns, dtype=np.uint8)[:, None].repeat(len(rows), axis=1)]
    for i, letter in enumerate(asked, start=1):
        above = table[-1]
        row = np.empty_like(above)
        row[0] = i
        for j in range(1, columns):
            other = letters[j - 1] != letter
            row[j] = np.minimum(np.minimum(above[j], row[j - 1]) + 1, above[j - 1] + other)
            if i > 1 and j > 1:
                swapped = (letters[j - 2] == letter) & (letters[j - 1] == asked[i - 2])
                row[j] = np.where(swapped, np.minimum(row[j], table[-2][j - 2] + 1), row[j])
        table = [above, row]
    found: npt.NDArray[np.uint8] = table[-1][lengths, np.arange(len(rows))]
    return found


def _first_words(
    best: list[tuple[int, bool, int]], rows: Rows, word: str, delimiter: bytes
) -> tuple[str, ...]:
    words: list[str] = []
    for _, _, index in best:
        found = rows[index].tobytes().split(delimiter)[0].decode("utf-8", "replace")
        if found not in words and found != word:
            words.append(found)
        if len(words) == _OFFERED:
            break
    return tuple(words)
