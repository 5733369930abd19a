"""Where word vectors are read from: GloVe text, word2vec text, JSON {word: [numbers]}, or inline.

    king 0.50451 0.68607 -0.59517 …      a token may hold spaces (". . ." in glove.840B)
    400000 100                           a first line of two counts: word2vec's text format
    king=0.9,0.5,0.1 queen=0.2,0.5,0.1   inline, separated by spaces or semicolons

Each yields entries: a word and its vector. Text is read line by line.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.json import parse
from attncli.files.messages import LITERAL, count, quote, safe
from attncli.files.numbers import Beyond
from attncli.files.source import Source, open_source

Array = npt.NDArray[np.float64]

_SAMPLE = 50  # lines that tell how many numbers a line holds: enough that most of them are right
_LONGEST = 1 << 24  # bytes of a line: a million numbers

_INLINE = re.compile(r"\s*[^\s=][^=]*=\s*[-+.\d]")
_JSON = re.compile(rb'\s*(\{\s*("|\}\s*$)|\[\s*["\[{])')
_TOKEN = re.compile(rb'\s*[\[{]+"*[ \t]+[-.\d]')  # a GloVe file may begin with the token "{"
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_BOM = b"\xef\xbb\xbf"


class Entry(NamedTuple):
    """A word and its vector.

    number   of the line, or of the entry of a table, from 1
    word     its text
    is_utf8  whether it was written so; else it was read as Latin-1
    row      [d], or what is wrong with it
    """

    number: int
    word: str
    is_utf8: bool
    row: Array | str


@contextmanager
def open_entries(source: str) -> Iterator[Text | Table]:
    """The words and vectors of a SOURCE, or of what is written inline, open for reading.

    Raises InputError where it holds no vectors.
    """
    if _INLINE.match(source) and not os.path.exists(source):
        yield Table(_inline(source), "the vectors given")
        return
    with open_source(source) as file:
        origin, head = file.origin, file.head.removeprefix(_BOM)
        if file.name:
            raise InputError(f"{origin} holds no {quote(file.name)}", "leave out ::name")
        _refuse(head, origin)
        if origin != LITERAL and (not _JSON.match(head) or _TOKEN.match(head)):
            yield Text(file)
            return
        pairs = parse(file.read(), origin, tuple)
        if not isinstance(pairs, tuple):
            raise InputError(f"{origin} is JSON but no object", 'write {"word": [numbers]}')
        yield Table(pairs, origin)


def _refuse(head: bytes, origin: str) -> None:
    """Raise InputError where the first bytes show that these are no vectors in text."""
    if not head.strip():
        raise InputError(f"{origin} is empty", "it should hold a word and its numbers on each line")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"{origin} is UTF-16", "save it as UTF-8")
    if b"\0" not in head and len(_CONTROL.findall(head)) <= len(head) / 100:
        return
    if re.match(rb"\d+ \d+\r?\n", head):
        raise InputError(
            f"{origin} is word2vec's binary format",
            "convert it with gensim: KeyedVectors.load_word2vec_format(path, binary=True)"
            ".save_word2vec_format('vectors.txt')",
        )
    raise InputError(f"{origin} is binary, not text", "give a word and its numbers on each line")


def _inline(text: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for part in re.split(r"[;\s]+", re.sub(r"\s*([,=])\s*", r"\1", text.strip(" ;\t\n"))):
        word, _, numbers = part.rpartition("=")
        values = [_number(number) for number in numbers.encode("utf-8", "replace").split(b",")]
        if not word or not all(value is not None and math.isfinite(value) for value in values):
            raise InputError(f"{part!r} is no word with its numbers", "write king=0.9,0.5,0.1")
        pairs.append((word, values))
    return pairs


class Table:
    """Words and vectors that are in memory: from JSON, or written inline."""

    unit = "entry"

    def __init__(self, pairs: Sequence[tuple[str, Any]], origin: str) -> None:
        self.pairs, self.origin, self.warnings = pairs, origin, list[str]()
        sizes = Counter(len(values) for _, values in pairs if _are_numbers(values) and values)
        if not sizes:
            raise InputError(f"{origin} holds no vectors", 'write {"word": [numbers]}')
        self.dim = sizes.most_common(1)[0][0]

    def entries(self, _: object) -> Iterator[Entry]:
        """All of them."""
        for number, (word, values) in enumerate(self.pairs, start=1):
            yield Entry(number, word, True, self._row(values))

    def _row(self, values: Any) -> Array | str:
        if not _are_numbers(values):
            return "holds something that is no list of numbers"
        if len(values) != self.dim:
            return f"holds {count(len(values), 'number')}, not {self.dim}"
        try:
            row = np.array([math.inf if isinstance(x, Beyond) else float(x) for x in values])
        except OverflowError:  # a whole number beyond float64
            row = np.array([math.inf])
        return row if np.isfinite(row).all() else "holds a number that is not finite"

    def vocabulary(self) -> list[str]:
        """All words."""
        return [word for word, _ in self.pairs]


def _are_numbers(values: object) -> bool:
    return isinstance(values, list) and {*map(type, values)} <= {int, float, Beyond}


class Text:
    """A text of vectors, open for reading: a word and its numbers on each line."""

    unit = "line"

    def __init__(self, file: Source) -> None:
        self.file, self.origin, self.warnings = file.file, file.origin, list[str]()
        self.seen: list[bytes] = []
        lines = self._lines()
        first = list(itertools.islice(lines, _SAMPLE + 1))
        if not first:
            raise InputError(f"{self.origin} holds no whole line", "download it again")
        promised = _header([line for _, line in first])
        start = 1 if promised else 0
        counts = Counter(_count(line.split()) for _, line in first[start:] if line.strip())
        counts.pop(0, None)
        if not counts:
            begin = _decoded(first[0][1][:40].rstrip())[0]
            raise InputError(
                f"{self.origin} holds no vectors: it begins {quote(begin)}",
                "a line should be a word and its numbers",
            )
        self.dim = counts.most_common(1)[0][0]
        self.promised, dim = promised or (0, self.dim)
        if dim != self.dim:
            self.warnings.append(f"line 1 promises {dim} numbers a word, the lines hold {self.dim}")
        self.lines = itertools.chain(first[start:], lines)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines and their numbers; a damaged file ends, with a warning, where it is damaged."""
        for number in itertools.count(1):
            try:
                line: bytes = self.file.readline(_LONGEST)
            except InputError as problem:
                text = f"{problem.message} after line {number - 1}; what comes before was read"
                self.warnings.append(text)
                return
            if not line:
                return
            if len(line) == _LONGEST:
                raise InputError(
                    f"{self.origin}: line {number} is longer than 16 MB",
                    "a line should be a word and its numbers",
                )
            yield number, line.removeprefix(_BOM) if number == 1 else line

    def entries(self, left: set[str] | None) -> Iterator[Entry]:
        """All lines; or those that may begin with these words, in any case, until none is left."""
        tokens = {token for word in left or () for token in _spellings(word) if token.split()}
        firsts = {token.split()[0].lower() for token in tokens}
        initials = {case for first in firsts for case in (first[:1], first[:1].upper())}
        number, line = 0, b""
        for number, line in self.lines:
            if left is not None and not left:
                return
            first = line.split(None, 1)[:1]
            if not first:
                continue
            if left is None or first[0].lower() in firsts:
                token, row = _parsed(line, self.dim, tokens)
                is_cut = isinstance(row, str) and not line.endswith(b"\n")
                if left is None or not is_cut:
                    yield Entry(number, *_decoded(token), row)
            if first[0][:1] in initials:
                self.seen.append(first[0])
        if left and number - 1 < self.promised:
            text = f"line 1 promises {self.promised} words, there are {number - 1}"
            self.warnings.append(text)
        token, row = _parsed(line, self.dim, tokens)
        if left and isinstance(row, str) and not line.endswith(b"\n"):
            word = _decoded(token)[0]
            self.warnings.append(f"line {number} is cut off: {safe(word)} {row}")

    def vocabulary(self) -> list[str]:
        """The words read that begin with the same letter as one that was asked for."""
        return [_decoded(word)[0] for word in self.seen]


def _header(lines: Sequence[bytes]) -> tuple[int, int] | None:
    """The words and numbers per word that word2vec's first line promises, if this is one."""
    found = re.fullmatch(rb"(\d{1,18})\s+(\d{1,18})\s*", lines[0])
    if not found or any(len(line.split()) == 2 for line in lines[1:]):
        return None  # where others have two fields too: vectors of one number each
    words, dim = int(found[1]), int(found[2])
    return (words, dim) if words and dim else None


def _parsed(line: bytes, dim: int, tokens: Container[bytes]) -> tuple[bytes, Array | str]:
    """A line's token and its numbers, or what is wrong with them.

    The token is all before the last `dim` numbers. Where more numbers follow a word, it is one of
    the `tokens` (which may hold numbers), or the line has too many.

    >>> _parsed(b". . . 0.5 1", 2, ())
    (b'. . .', array([0.5, 1. ]))
    >>> _parsed(b"king 0.5", 2, ())
    (b'king', 'holds 1 number, not 2')
    """
    fields = line.split()
    extra = len(fields) - dim
    token = b" ".join(fields[: max(extra, 0)])
    if extra != 1:
        found = _count(fields)
        if extra < 1 or (found != dim and token not in tokens):
            wrong = f"holds {count(found, 'number')}, not {dim}"
            return b" ".join(fields[: len(fields) - found]), wrong
    try:
        row = np.array([float(field) for field in fields[extra:]])
    except ValueError:
        return token, "holds something that is no number"
    if b"_" in line and any(b"_" in field for field in fields[extra:]):  # a number to Python alone
        return token, "holds something that is no number"
    return token, row if np.isfinite(row).all() else "holds a number that is not finite"


def _count(fields: list[bytes]) -> int:
    """How many numbers end a line, its first field being a word whatever it looks like."""
    numbers = itertools.takewhile(lambda field: _number(field) is not None, fields[:0:-1])
    return sum(1 for _ in numbers)


def _number(field: bytes) -> float | None:
    try:
        return float(field) if b"_" not in field else None
    except ValueError:
        return None


def _decoded(token: bytes) -> tuple[str, bool]:
    """A token as text, and whether it was UTF-8; else it is read as Latin-1.

    >>> _decoded(b"caf\\xe9")
    ('café', False)
    """
    try:
        return token.decode("utf-8"), True
    except UnicodeDecodeError:
        return token.decode("latin-1"), False


def _spellings(word: str) -> Iterator[bytes]:
    """The bytes by which a word may be in a file: its cases, in UTF-8 and in Latin-1."""
    for case in (word, word.lower(), word.upper(), word.title(), word.casefold()):
        for encoding in ("utf-8", "latin-1"):
            with suppress(UnicodeEncodeError):
                yield case.encode(encoding, "surrogateescape")
