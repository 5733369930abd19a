"""The lines of some words, found among hundreds of thousands by the first bytes of each.

Of each line the first WIDTH bytes are gathered. A table of 2²⁴ truths says of the first three,
with the bit that tells upper from lower case set, whether a word asked for begins so. Only the
lines that pass (a few in a thousand) are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from attncli.text.spellings import WIDTH, Rows, rows_of
from attncli.text.vector_chunks import Chunk
from attncli.text.vector_lines import Layout, decoded, parse
from attncli.text.vector_sources import shown

Array = npt.NDArray[np.float64]

_CASE_BITS = np.uint64(0x202020)
_THREE_BYTES = np.uint64(0xFFFFFF)


class Search:
    """Looks for words in chunks of lines; `done` once each has been found as it is spelt."""

    def __init__(self, words: Sequence[str], layout: Layout) -> None:
        self.found: dict[str, Array] = {}
        self._layout = layout
        self._asked = set(words)
        self._cases: dict[str, list[str]] = {}
        for word in self._asked:
            self._cases.setdefault(word.casefold(), []).append(word)
        spelt = {bytes_ for word in self._asked for bytes_ in _spellings(word)}
        self._tokens = frozenset(spelt)
        self._firsts = frozenset(bytes_.split()[0].lower() for bytes_ in spelt if bytes_.split())
        self._begins = _table_of_beginnings(spelt, layout.delimiter)
        self._other_case: dict[str, tuple[str, Array]] = {}
        self._vocabulary: list[Rows] = []
        self._warnings: dict[tuple[str, str], str] = {}
        self._lines = 0

    @property
    def done(self) -> bool:
        """Whether nothing is left to look for."""
        return len(self.found) == len(self._asked)

    def add(self, chunk: Chunk) -> None:
        """Look through some more lines."""
        starts = chunk.starts
        wide = int(np.searchsorted(starts, len(chunk.data) - WIDTH, side="right"))
        if wide:
            rows = sliding_window_view(np.frombuffer(chunk.data, dtype=np.uint8), WIDTH)
            rows = rows[starts[:wide]]
            self._vocabulary.append(rows)
            keys = (rows.view("<u8")[:, 0] | _CASE_BITS) & _THREE_BYTES
            for index in np.flatnonzero(self._begins[keys]).tolist():
                self._look(chunk, index)
        for index in range(wide, len(starts)):
            self._vocabulary.append(rows_of([chunk.line(index)], self._layout.delimiter))
            self._look(chunk, index)
        self._lines = chunk.last_number
        if chunk.cut:
            self._look_at_cut(chunk)

    def folded(self) -> dict[str, tuple[str, Array]]:
        """Each word not found as spelt, but in another case: the word found, its vector."""
        return {
            asked: self._other_case[asked.casefold()]
            for asked in self._asked - self.found.keys()
            if asked.casefold() in self._other_case
        }

    def vocabulary(self) -> Rows:
        """The first bytes of every line seen but the header."""
        rows = np.concatenate(self._vocabulary) if self._vocabulary else rows_of([])
        return rows[1:] if self._layout.header else rows

    def warnings(self) -> tuple[str, ...]:
        """What was wrong with the lines looked at."""
        header, seen = self._layout.header, self._lines - 1
        short = header is not None and not self.done and seen < header[0]
        lines = (
            (f"line 1 promises {header[0]} words, there are {seen}",) if header and short else ()
        )
        return (*lines, *self._warnings.values())

    def _look(self, chunk: Chunk, index: int) -> None:
        line = chunk.line(index)
        pieces = line.split(None, 1)
        if not pieces or pieces[0].lower() not in self._firsts:
            return
        number = chunk.number + index
        if number == 1 and self._layout.header:
            return
        token, row = parse(line, self._layout.dim, self._tokens)
        word, is_utf8 = decoded(token)
        if word.casefold() not in self._cases:
            return
        if isinstance(row, str) and chunk.cut:
            return  # said by _look_at_cut, whatever was asked for
        if isinstance(row, str):
            self._warn("wrong", word, f"line {number}: {shown(word)} {row}; skipped")
            return
        if not is_utf8:
            self._warn("bytes", word, f"line {number} is not UTF-8; read as Latin-1")
        self._keep(number, word, row)

    def _keep(self, number: int, word: str, row: Array) -> None:
        self._other_case.setdefault(word.casefold(), (word, row))
        if word in self.found:
            again = f"line {number}: {shown(word)} is there again; the first is used"
            self._warn("again", word, again)
        elif word in self._asked:
            self.found[word] = row

    def _look_at_cut(self, chunk: Chunk) -> None:
        token, row = parse(chunk.line(0), self._layout.dim, self._tokens)
        if isinstance(row, str) and token:
            word = shown(decoded(token)[0])
            self._warn("cut", "", f"line {chunk.number} is cut off: {word} {row}")

    def _warn(self, kind: str, word: str, text: str) -> None:
        self._warnings.setdefault((kind, word), text)


def _spellings(word: str) -> Iterator[bytes]:
    """The bytes by which a word may stand in a file: its cases, in UTF-8 and in Latin-1."""
    for case in (word, word.lower(), word.upper(), word.title(), word.casefold()):
        for encoding in ("utf-8", "latin-1"):
            try:
                yield case.encode(encoding, "surrogateescape")
            except UnicodeEncodeError:
                continue


def _table_of_beginnings(spelt: set[bytes], delimiter: bytes) -> npt.NDArray[np.bool_]:
    # [2**24]: whether a word asked for begins with these three bytes, case aside
    table = np.zeros(1 << 24, dtype=np.bool_)
    for word in spelt:
        begins = bytes(byte | 0x20 for byte in (word + delimiter)[:3])
        key = int.from_bytes(begins, "little")
        table[key :: 1 << 8 * len(begins)] = True
    return table
