"""The lines of a text file of vectors: where they begin, how long they are, what one says.

king 0.50451 0.68607 -0.59517 …      GloVe; a token may hold spaces (". . ." in 840B)
400000 100                           a first line of two counts: word2vec's text format
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.text.vector_chunks import Chunk

Array = npt.NDArray[np.float64]

_SAMPLE = 50


@dataclass(frozen=True)
class Layout:
    """What the first lines say about all: how many numbers a line holds, and the header."""

    dim: int
    delimiter: bytes
    header: tuple[int, int] | None
    warnings: tuple[str, ...] = ()


def layout_of(chunk: Chunk, origin: str) -> Layout:
    """How the first lines are built; InputError where they hold no vectors."""
    lines = [line.split() for line in chunk.lines()[: _SAMPLE + 1]]
    header = _header(lines)
    counts = Counter(_count(fields) for fields in lines[bool(header) :] if fields)
    counts.pop(0, None)
    if not counts:
        start = chunk.line(0)[:40].decode("utf-8", "replace")
        raise InputError(
            f"{origin} holds no vectors: it begins {start!a}",
            "a line should be a word and its numbers",
        )
    dim = counts.most_common(1)[0][0]
    warnings: tuple[str, ...] = ()
    if header and header[1] != dim:
        warnings = (f"line 1 promises {header[1]} numbers a word, the lines hold {dim}",)
    tabs = any(b"\t" in line for line in chunk.lines()[: _SAMPLE + 1])
    return Layout(dim, b"\t" if tabs else b" ", header, warnings)


def parse(line: bytes, dim: int, tokens: Iterable[bytes] = ()) -> tuple[bytes, Array | str]:
    """A line's token and its numbers, or what is wrong with them.

    The token is all that stands before the last `dim` numbers. Where more numbers follow a
    word, it is one of the `tokens` (which may hold numbers), or the line has too many.

    >>> parse(b". . . 0.5 1", 2)
    (b'. . .', array([0.5, 1. ]))
    >>> parse(b"king 0.5", 2)
    (b'king', 'holds 1 number, not 2')
    """
    fields = line.split()
    extra = len(fields) - dim
    token = b" ".join(fields[:extra]) if extra > 0 else b""
    count = _count(fields)
    if extra < 1 or (extra > 1 and count != dim and token not in tokens):
        numbers = "number" if count == 1 else "numbers"
        return b" ".join(fields[: len(fields) - count]), f"holds {count} {numbers}, not {dim}"
    values = [_number(field) for field in fields[extra:]]
    if any(value is None for value in values):
        return token, "holds something that is no number"
    row = np.array(values, dtype=np.float64)
    return token, row if np.isfinite(row).all() else "holds a number that is not finite"


def decoded(token: bytes) -> tuple[str, bool]:
    """A token as text, and whether it was UTF-8; else it is read as Latin-1.

    >>> decoded(b"caf\\xe9")
    ('café', False)
    """
    try:
        return token.decode("utf-8"), True
    except UnicodeDecodeError:
        return token.decode("latin-1"), False


def _number(field: bytes) -> float | None:
    try:
        return float(field) if b"_" not in field else None
    except ValueError:
        return None


def _count(fields: list[bytes]) -> int:
    """How many numbers end a line, its first field being a word whatever it looks like."""
    for count, field in enumerate(reversed(fields[1:])):
        if _number(field) is None:
            return count
    return max(len(fields) - 1, 0)


def _header(lines: list[list[bytes]]) -> tuple[int, int] | None:
    first, others = lines[0], lines[1:]
    if len(first) != 2 or not all(field.isdigit() and len(field) < 19 for field in first):
        return None
    if any(len(fields) == 2 for fields in others):
        return None  # vectors of one number each
    words, dim = (int(field) for field in first)
    return (words, dim) if math.prod((words, dim)) else None
