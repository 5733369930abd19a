"""Formats of word vectors: GloVe text, word2vec text, JSON {word: [numbers]}, inline, or builtin.

    king 0.50451 0.68607 -0.59517 …      a token may hold spaces (". . ." in glove.840B)
    400000 100                           a first line of two counts: word2vec's text format
    king=0.9,0.5,0.1 queen=0.2,0.5,0.1   inline, separated by spaces or semicolons
    builtin                              those of this package: glove.npz, described in glove.md

Each yields entries: a word and its vector. Text is read line by line.
"""

from __future__ import annotations

import io
import itertools
import math
import os
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import FloatArray
from attncli.errors import InputError
from attncli.files.json_text import Beyond, parse
from attncli.files.messages import LITERAL, count, quote, safe
from attncli.files.source import TEXT, Source, open_source
from attncli.formula.numerals import number as read_number

BUILTIN = "builtin"
"""The SOURCE that names the word vectors in this package; a file of this name is ./builtin."""
GLOVE_SITE = "https://nlp.stanford.edu/projects/glove"

_SAMPLE = 50  # lines that tell how many numbers a line holds: enough that most of them are right
_SAMPLE_BYTES = 1 << 20  # of those lines, at most
_PACKED = {"ratio": 10, "part": 200}  # see check_unpacked; a line takes long, if it is parsed
_LONGEST = 1 << 20  # bytes of a line: a hundred thousand numbers

_INLINE = re.compile(r"\s*[^\s=][^=]*=\s*[-+.\d[(]")
_JSON = re.compile(rb'\s*(\{\s*("|\}\s*$)|\[\s*["\[{])')
_TOKEN = re.compile(rb'\s*[\[{]+"*[ \t]+[-.\d]')  # a GloVe file may begin with the token "{"
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
_BOM = b"\xef\xbb\xbf"


class Entry(NamedTuple):
    """A word and its vector."""

    number: int  # of the line, or of the entry of a table, from 1
    word: str  # its text
    is_utf8: bool  # whether it was written so; else it was read as Latin-1
    row: FloatArray | str  # [d], or what is wrong with it


@contextmanager
def open_entries(source: str) -> Iterator[Text | Table]:
    """The words and vectors of a SOURCE, or of what is written inline, open for reading."""
    if _INLINE.match(source) and not os.path.exists(source):
        yield Table(_inline(source), LITERAL)
        return
    if source == BUILTIN:
        yield _builtin()
        return
    absent = f"GloVe's files are at {GLOVE_SITE}; --vectors {BUILTIN} needs no file"
    with open_source(source, absent=absent) as file:
        origin, head = file.origin, file.head.removeprefix(_BOM)
        if file.name:
            raise InputError(f"{origin} holds no {quote(file.name)}", "leave out ::name")
        _refuse(head, origin)
        if origin != LITERAL and (not _JSON.match(head) or _TOKEN.match(head)):
            yield Text(file)
            return
        pairs = parse(file.read(TEXT), origin, tuple)
        if not isinstance(pairs, tuple):
            raise InputError(f"{origin} is JSON but not an object", 'write {"word": [numbers]}')
        yield Table(pairs, origin)


def _refuse(head: bytes, origin: str) -> None:
    """Raise InputError where the first bytes are not those of vectors as text."""
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
        if numbers[:1] + numbers[-1:] in ("[]", "()"):
            numbers = numbers[1:-1]
        values = [read_number(text) for text in numbers.split(",")]
        if not word or not all(value is not None and math.isfinite(value) for value in values):
            raise InputError(f"{part!r} is not a word and its numbers", "write king=0.9,0.5,0.1")
        pairs.append((word, values))
    first, width = pairs[0][0], len(pairs[0][1])
    for word, values in pairs:
        if len(values) != width:
            message = f"{safe(word)} has {count(len(values), 'number')}, {safe(first)} has {width}"
            raise InputError(message, "give every word as many")
    return pairs


def _builtin() -> Table:
    with np.load(Path(__file__).with_name("glove.npz"), allow_pickle=False) as arrays:
        words, vectors = arrays["words"].tolist(), arrays["vectors"].tolist()
    table = Table(list(zip(words, vectors, strict=True)), f"{BUILTIN} (GloVe 6B 100d)")
    message = f"the {len(words):,} most frequent words of GloVe 6B 100d (Pennington et al., 2014)"
    table.warnings.append(f"the vectors are {BUILTIN}: {message}, rounded to float16")
    table.whole = (
        f"download glove.6B.zip (400,000 words) from {GLOVE_SITE} and use "
        "--vectors glove.6B.zip::glove.6B.100d.txt"
    )
    return table


class Table:
    """Words and vectors that are in memory: from JSON, written inline, or built in."""

    unit, whole = "entry", ""  # whole: how to get the larger file that they are part of

    def __init__(self, pairs: Sequence[tuple[str, Any]], origin: str) -> None:
        self.pairs, self.origin, self.warnings = pairs, origin, list[str]()
        first = itertools.islice((x for _, x in pairs if x and _are_numbers(x)), _SAMPLE)
        sizes = Counter(map(len, first))
        if not sizes:
            raise InputError(f"{origin} holds no vectors", 'write {"word": [numbers]}')
        self.dim = sizes.most_common(1)[0][0]

    @property
    def words(self) -> list[str]:
        """All of them."""
        return [word for word, _ in self.pairs]

    def entries(self, remaining: set[str] | None) -> Iterator[Entry]:
        """All of them; or those of these words, in any case, until none is left."""
        words = {word.casefold() for word in remaining or ()}
        for number, (word, values) in enumerate(self.pairs, start=1):
            if remaining is not None and not remaining:
                return
            if remaining is None or word.casefold() in words:
                yield Entry(number, word, True, self._row(values))

    def _row(self, values: Any) -> FloatArray | str:
        if not _are_numbers(values):
            return "holds something that is not a list of numbers"
        if len(values) != self.dim:
            return f"holds {count(len(values), 'number')}, not {self.dim}"
        with suppress(TypeError, OverflowError):  # of a number beyond float64
            if math.isfinite(sum(values)) or all(map(math.isfinite, values)):
                return np.array(values, dtype=np.float64)
        return "holds a number that is not finite"


def _are_numbers(values: object) -> bool:
    return isinstance(values, list) and {*map(type, values)} <= {int, float, Beyond}


class Text:
    """A text of vectors, open for reading: a word and its numbers on each line."""

    unit, whole = "line", ""

    def __init__(self, file: Source) -> None:
        # a file on disk has no buffer; a megabyte at a time is read as quickly as more
        self.source = file
        self.file = file.file if file.size is None else io.BufferedReader(file.file, 1 << 20)
        self.origin, self.warnings = file.origin, list[str]()
        self.words = list[str]()  # read, with the first letter of one that was asked for
        lines = self._lines()
        first, n_bytes = [], 0
        for line in itertools.islice(lines, _SAMPLE + 1):
            first.append(line)
            n_bytes += len(line[1])
            if n_bytes > _SAMPLE_BYTES:
                break
        if not first:
            raise InputError(f"{self.origin} holds no complete line", "download it again")
        announced = _header([line for _, line in first])
        start = 1 if announced else 0
        counts = Counter(_count(line.split()) for _, line in first[start:] if line.strip())
        counts.pop(0, None)
        if not counts:
            begin = _decoded(first[0][1][:40].rstrip())[0]
            message = f"{self.origin} holds no vectors: it begins {quote(begin)}"
            raise InputError(message, "a line should be a word and its numbers")
        self.dim = counts.most_common(1)[0][0]
        self.announced, dim = announced or (0, self.dim)
        if dim != self.dim:
            self.warnings.append(f"line 1 gives {dim} numbers per word, the lines hold {self.dim}")
        self.lines = itertools.chain(first[start:], lines)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines and their numbers; a damaged file ends, with a warning, where it is damaged."""
        n_bytes = 0
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
                message = f"{self.origin}: line {number} is longer than 1 MB"
                raise InputError(message, "a line should be a word and its numbers")
            n_bytes += len(line)
            if number % _SAMPLE == 0:
                self.source.check_unpacked(n_bytes, **_PACKED)
            yield number, line.removeprefix(_BOM) if number == 1 else line

    def entries(self, remaining: set[str] | None) -> Iterator[Entry]:
        """All lines; or those that may begin with these words, in any case, until none is left."""
        words = {word.casefold() for word in remaining or ()}
        firsts = {word.split(" ")[0] for word in words}
        initials = {word[:1] for word in words if word}
        number, line = 0, b""
        for number, line in self.lines:
            if remaining is not None and not remaining:
                return
            if line.isspace():
                continue
            if remaining is None:
                yield _entry(number, line, self.dim, words)
                continue
            text = _decoded(line.split(None, 1)[0])[0]
            folded = text.casefold()
            if folded in firsts:
                entry = _entry(number, line, self.dim, words)
                if not isinstance(entry.row, str) or line.endswith(b"\n"):
                    yield entry
            if folded[:1] in initials:
                self.words.append(text)
        if remaining and number - 1 < self.announced:
            text = f"line 1 gives {self.announced} words, the file holds {number - 1}"
            self.warnings.append(text)
        last = _entry(number, line, self.dim, words)
        if remaining and isinstance(last.row, str) and not line.endswith(b"\n"):
            self.warnings.append(f"line {number} is cut off: {safe(last.word)} {last.row}")


def _header(lines: Sequence[bytes]) -> tuple[int, int] | None:
    """The words and numbers per word in the first line of word2vec's format, if this is one."""
    counts = re.fullmatch(rb"(\d{1,18})\s+(\d{1,18})\s*", lines[0])
    if not counts or any(len(line.split()) == 2 for line in lines[1:]):
        return None  # where others have two fields too: vectors of one number each
    words, dim = int(counts[1]), int(counts[2])
    return (words, dim) if words and dim else None


def _entry(number: int, line: bytes, dim: int, words: Container[str] = ()) -> Entry:
    """The word and the vector on a line, or what is wrong with it.

    The word is all before the last `dim` numbers. Where more numbers follow, it is one of the
    `words`, case folded (they may hold numbers), or the line has too many.

    >>> _entry(1, b". . . 0.5 1", 2)
    Entry(number=1, word='. . .', is_utf8=True, row=array([0.5, 1. ]))
    >>> _entry(2, b"king 0.5", 2)
    Entry(number=2, word='king', is_utf8=True, row='holds 1 number, not 2')
    """
    fields = line.split()
    start = len(fields) - dim
    word, is_utf8 = _decoded(fields[0] if start == 1 else b" ".join(fields[: max(start, 0)]))
    if start != 1:
        n = _count(fields)
        if start < 1 or (n != dim and word.casefold() not in words):
            word, is_utf8 = _decoded(b" ".join(fields[: len(fields) - n]))
            return Entry(number, word, is_utf8, f"holds {count(n, 'number')}, not {dim}")
    wrong = "holds something that is not a number"
    with suppress(ValueError):
        numbers = list(map(float, fields[start:]))
        if b"_" not in line or not any(b"_" in field for field in fields[start:]):  # only Python's
            if math.isfinite(sum(numbers)) or all(map(math.isfinite, numbers)):
                return Entry(number, word, is_utf8, np.array(numbers))
            wrong = "holds a number that is not finite"
    return Entry(number, word, is_utf8, wrong)


def _count(fields: list[bytes]) -> int:
    """How many numbers end a line, its first field being a word even if it looks like one."""
    return sum(1 for _ in itertools.takewhile(_is_number, fields[:0:-1]))


def _is_number(field: bytes) -> bool:
    with suppress(ValueError):
        float(field)
        return b"_" not in field
    return False


def _decoded(token: bytes) -> tuple[str, bool]:
    """A token as text, and whether it was UTF-8; else it is read as Latin-1.

    >>> _decoded(b"caf\\xe9")
    ('café', False)
    """
    try:
        return token.decode("utf-8"), True
    except UnicodeDecodeError:
        return token.decode("latin-1"), False
