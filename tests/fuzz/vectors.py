"""A second reading of word vectors: GloVe and word2vec text, JSON, or written inline."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from attncli.arrays import Array

from .case import Case
from .reading import NoOpinionError, RefusalError
from .second import opened

Rows = list[tuple[str, list[float] | None]]


def vectors_of(source: str, words: Iterable[str], case: Case) -> dict[str, Array]:
    """The vector of each of these words that is there, else of the word in another case."""
    rows = _rows(source, case)
    found: dict[str, Array] = {}
    for word in words:
        exact = [x for w, x in rows if w == word and x is not None]
        folded = [x for w, x in rows if w.casefold() == word.casefold() and x is not None]
        if exact or folded:
            found[word] = np.array((exact or folded)[0])
    return found


def nearest(source: str, word: str, vector: Array, n: int, case: Case) -> Array:
    """The n largest cosines of other words with this vector, the largest first."""
    rows = [(w, x) for w, x in _rows(source, case) if x is not None and any(x)]
    if len({w.casefold() for w, _ in rows}) < len(rows):
        raise NoOpinionError("which of two equal words is left out")
    others = np.array([x for w, x in rows if w.casefold() != word.casefold()])
    if not len(others) or not any(vector) or max(np.abs(others).max(), *np.abs(vector)) > 1e100:
        raise NoOpinionError("no other word, or no direction that float64 can square")
    cosines = others @ vector / np.linalg.norm(others, axis=1) / np.linalg.norm(vector)
    return np.sort(cosines)[::-1][:n, None]


def _rows(source: str, case: Case) -> Rows:
    """Every word and its numbers, None where they are no vector."""
    if re.match(r"\s*[^\s=][^=]*=\s*[-+.\d]", source) and source not in case.files:
        parts = [part.rpartition("=") for part in re.split(r"[;\s]+", source.strip(" ;"))]
        return _even([(w, _finite([_number(x) for x in n.split(",")])) for w, _, n in parts])
    if source[:1] in ("[", "{"):
        return _of_json(source.encode())
    try:
        data, _, rest = opened(source, case.files, case.stdin)
    except (EOFError, OSError) as problem:  # a damaged gz is read as far as it is whole
        raise NoOpinionError("how far a damaged file is whole") from problem
    if rest:
        raise RefusalError("no such name")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if re.match(rb'\s*(\{\s*("|\}\s*$)|\[\s*["\[{])', data) and not re.match(
        rb'\s*[\[{]+"*[ \t]+[-.\d]', data
    ):
        return _of_json(data)
    return _of_text(data)


def _of_json(data: bytes) -> Rows:
    rows: Rows = []
    for word, values in json.loads(data, object_pairs_hook=list):  # of equal words the first counts
        numbers = isinstance(values, list) and all(type(x) in (int, float) for x in values)
        rows.append((word, _finite(values) if numbers else None))
    return _even(rows)


def _even(rows: Rows) -> Rows:
    """Those vectors that are as long as most."""
    sizes = Counter(len(x) for _, x in rows if x)
    most = [size for size, n in sizes.items() if n == max(sizes.values())]
    if len(most) > 1:
        raise NoOpinionError("which of two lengths is meant")
    return [(w, x if x and len(x) == most[0] else None) for w, x in rows]


def _finite(values: Iterable[float | None]) -> list[float] | None:
    try:
        numbers = [math.nan if x is None else float(x) for x in values]
    except OverflowError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _of_text(data: bytes) -> Rows:
    """A word and its numbers on each line; a first line of two counts is word2vec's header."""
    if b"\0" in data:
        raise NoOpinionError("where binary data begin")
    lines = [line.split() for line in data.split(b"\n")]
    lines = [line for line in lines if line]
    is_header = len(lines) > 1 and len(lines[0]) == 2 and all(x.isdigit() for x in lines[0])
    if is_header and not any(len(line) == 2 for line in lines[1:51]):
        lines = lines[1:]
    counts = [_count(line) for line in lines]
    sizes = Counter(count for count in counts[:50] if count)
    if not sizes:
        raise RefusalError("no vectors")
    most = [size for size, n in sizes.items() if n == max(sizes.values())]
    if len(most) > 1:
        raise NoOpinionError("which of two lengths is meant")
    dim, rows = most[0], []
    for line, count in zip(lines, counts, strict=True):
        word = b" ".join(line[:-dim])
        if count >= dim and len(line) > dim:
            if count > dim:
                raise NoOpinionError("whether a number is of the word or of the vector")
            rows.append((_text(word), _finite([_number(x) for x in line[-dim:]])))
    return rows


def _text(word: bytes) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError:
        return word.decode("latin-1")


def _count(fields: list[bytes]) -> int:
    """How many numbers end a line, whose first field is a word."""
    for at, cell in enumerate(reversed(fields[1:])):
        if _number(cell) is None:
            return at
    return len(fields) - 1


def _number(cell: bytes | str) -> float | None:
    try:
        return None if "_" in str(cell) else float(cell)
    except ValueError:
        return None
