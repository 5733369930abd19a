"""The words nearest to a vector, kept while their file streams by."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError, ShapeError
from attncli.text.vector_chunks import Chunk
from attncli.text.vector_lines import Layout, decoded, parse
from attncli.text.vector_tables import Table

Array = npt.NDArray[np.float64]


class Nearest:
    """The n words with the greatest cosine so far."""

    def __init__(self, vector: npt.ArrayLike, dim: int, n: int, exclude: Iterable[str]) -> None:
        self._vector = _direction(vector, dim)
        self._n = n
        self._exclude = frozenset(exclude)
        self._best: list[tuple[float, int, str]] = []
        self._skipped: list[int] = []
        self._unit = "line"

    def add_table(self, table: Table) -> None:
        """Compare with every vector of a table."""
        self._unit = "entry"
        words, rows = [], []
        for number, word in enumerate(table.rows, start=1):
            row = table.row(word)
            if isinstance(row, str):
                self._skipped.append(number)
                continue
            words.append(word.encode("utf-8", "replace"))
            rows.append(row)
        self._compare(words, np.array(rows).reshape(len(rows), table.dim), range(len(words)))

    def add_chunk(self, chunk: Chunk, layout: Layout) -> None:
        """Compare with the vector of every line."""
        lines = [line.rstrip() for line in chunk.lines()]
        numbers = range(chunk.number, chunk.number + len(lines))
        if chunk.number == 1 and layout.header:
            lines, numbers = lines[1:], numbers[1:]
        pieces = [line.partition(layout.delimiter) for line in lines]
        matrix = _matrix([tail for _, _, tail in pieces], layout)
        if matrix is not None:
            self._compare([token for token, _, _ in pieces], matrix, numbers)
        else:
            self._add_lines(lines, numbers, layout)

    def pairs(self) -> tuple[tuple[str, float], ...]:
        """The nearest words and their cosines, nearest first."""
        return tuple((word, -negative) for negative, _, word in self._best)

    def warnings(self) -> tuple[str, ...]:
        """What was left out because it is no vector."""
        if not self._skipped:
            return ()
        first, count = self._skipped[0], len(self._skipped)
        if count == 1:
            return (f"{self._unit} {first} is no vector; skipped",)
        many = {"line": "lines", "entry": "entries"}[self._unit]
        return (f"{count} {many} are no vectors, the first is {self._unit} {first}; skipped",)

    def _add_lines(self, lines: Sequence[bytes], numbers: range, layout: Layout) -> None:
        tokens, rows, whole = [], [], []
        for number, line in zip(numbers, lines, strict=True):
            token, row = parse(line, layout.dim)
            if isinstance(row, str):
                self._skipped += [number] if line else []
                continue
            tokens.append(token)
            rows.append(row)
            whole.append(number)
        self._compare(tokens, np.array(rows).reshape(len(rows), layout.dim), whole)

    def _compare(self, tokens: Sequence[bytes], matrix: Array, numbers: Sequence[int]) -> None:
        with np.errstate(all="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
            cosines = (matrix @ self._vector) / lengths
        cosines = np.where(np.isfinite(cosines), np.clip(cosines, -1, 1), -np.inf)
        wanted = self._n + len(self._exclude) + len(self._best)
        order = np.argsort(-cosines, kind="stable")[:wanted]
        known = {word for _, _, word in self._best} | self._exclude
        for index in order.tolist():
            word, _ = decoded(tokens[index])
            if np.isfinite(cosines[index]) and word not in known:
                known.add(word)
                self._best.append((-float(cosines[index]), numbers[index], word))
        self._best = heapq.nsmallest(self._n, self._best)


def _direction(vector: npt.ArrayLike, dim: int) -> Array:
    try:
        values = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError):
        raise ShapeError("the vector to compare with does not hold numbers") from None
    if values.shape != (dim,):
        raise ShapeError(f"the vector to compare with has shape {values.shape}, not ({dim},)")
    largest = np.abs(values).max()
    if not 0 < largest < np.inf:
        raise InputError("the vector to compare with is zero or not finite: it has no direction")
    scaled = values / largest
    direction: Array = scaled / np.sqrt(scaled @ scaled)
    return direction


def _matrix(tails: list[bytes], layout: Layout) -> Array | None:
    """The numbers of many lines at once; None where a line is not just `dim` finite numbers."""
    gaps = layout.dim - 1
    if any(tail.count(b" ") + tail.count(b"\t") != gaps or b"_" in tail for tail in tails):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # what NumPy says of a word in between
        try:
            values = np.fromstring(b" ".join(tails), dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None
    if values.size != len(tails) * layout.dim or not np.isfinite(values).all():
        return None
    return values.reshape(len(tails), layout.dim)
