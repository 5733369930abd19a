"""A source of bytes as whole lines, a buffer full at a time, and where their newlines are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.text.vector_sources import Source

Positions = npt.NDArray[np.intp]

BLOCK = 1 << 20
_LONGEST_LINE = 1 << 24
_NEWLINE = ord("\n")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some whole lines: the number of the first, the bytes, and where each line ends.

    The bytes are those of a buffer that is used again: they hold until the next chunk is read.
    """

    number: int
    data: memoryview
    ends: Positions
    cut: bool = False  # the file ended without the newline of its last line

    @property
    def starts(self) -> Positions:
        """Where each line begins in the bytes."""
        return np.concatenate((np.zeros(1, dtype=np.intp), self.ends[:-1] + 1))

    @property
    def last_number(self) -> int:
        """The number of the last line."""
        return self.number + len(self.ends) - 1

    def line(self, index: int) -> bytes:
        """One line, without its newline."""
        start = self.ends[index - 1] + 1 if index else 0
        return bytes(self.data[start : self.ends[index]])

    def lines(self) -> list[bytes]:
        """The lines without their newlines."""
        return bytes(self.data[: self.ends[-1]]).split(b"\n")


class Chunks:
    """The lines of a source, numbered from 1, and `start`: its first bytes.

    One buffer is used again and again: a new one for each block would have the system hand out
    and clear its pages each time, which takes longer than all the rest.

    Iterating raises InputError for a line past 16 MB. Where the source ends without a newline,
    the last line is marked as cut; it is left out where the source broke off, for then its last
    number may be half of one.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._buffer = memoryview(bytearray(BLOCK))
        self._filled = source.read_into(self._buffer)
        self._finder = NewlineFinder()
        self.start = bytes(self._buffer[: self._filled])
        self.last_number = 0

    def __iter__(self) -> Iterator[Chunk]:
        begin = len(_BOM) if self.start.startswith(_BOM) else 0
        while True:
            data = self._buffer[begin : self._filled]
            ends = self._finder.newlines(data)
            rest = begin
            if len(ends):
                yield Chunk(self.last_number + 1, data, ends)
                self.last_number += len(ends)
                rest += int(ends[-1]) + 1
            if not self._read_on(rest):
                break
            begin = 0
        if self._filled and not self._source.damage:
            line = memoryview(bytes(self._buffer[: self._filled]) + b"\n")
            yield Chunk(self.last_number + 1, line, np.array([self._filled]), cut=True)
            self.last_number += 1

    def _read_on(self, rest: int) -> int:
        """Move what follows `rest` to the front and fill the buffer after it."""
        left = self._filled - rest
        if left > _LONGEST_LINE:
            raise InputError(
                f"{self._source.origin}: line {self.last_number + 1} is longer than 16 MB",
                "a line should be a word and its numbers",
            )
        buffer = self._buffer
        if left > len(buffer) // 2:
            buffer = memoryview(bytearray(2 * len(buffer)))
        buffer[:left] = bytes(self._buffer[rest : self._filled])
        count = self._source.read_into(buffer[left:])
        self._buffer, self._filled = buffer, left + count
        return count


class NewlineFinder:
    """Finds newlines; what it needs for that is kept from call to call.

    >>> NewlineFinder().newlines(memoryview(b"king 1\\nqueen 2\\n")).tolist()
    [6, 14]
    """

    def __init__(self) -> None:
        self._scratch = np.empty(BLOCK, dtype=np.bool_)

    def newlines(self, data: memoryview) -> Positions:
        """Where the newlines are.

        Lines are hundreds of bytes long, so eight bytes at a time are looked at first: that
        takes two thirds of the time of np.flatnonzero over single bytes.
        """
        if len(data) > len(self._scratch):
            self._scratch = np.empty(len(data), dtype=np.bool_)
        codes = np.frombuffer(data, dtype=np.uint8)
        found = np.equal(codes, _NEWLINE, out=self._scratch[: len(data)])
        whole = len(found) & ~7
        groups = np.flatnonzero(found[:whole].view(np.uint64) != 0)
        inside = np.flatnonzero(found[:whole].reshape(-1, 8)[groups])
        tail = np.flatnonzero(found[whole:]) + whole
        return np.concatenate(((groups[inside >> 3] << 3) + (inside & 7), tail))
