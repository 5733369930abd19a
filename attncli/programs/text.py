"""A program as text: its statements, what each defines, and where in it something is wrong.

    scores: S[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d])   # a note
    temperature = 0.5                                      a parameter
    size[h] = 2                                            how long an axis is

A line that begins with a space continues the one before.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from attncli.errors import InputError, nearest
from attncli.parser import FormulaError

MOST_TEXT = 100_000
WIDTH = 100  # characters of a line that are shown with an error
LEFT = re.compile(
    r"\s*(?:(?P<name>\w+)\s*:)?\s*(?P<symbol>[^\W\d]\w*)\s*(?:\[(?P<axes>[^\]=]*)\])?\s*=(?!=)"
)
"""The left side of a line; that of a parameter has no axes."""


class ProgramError(InputError):
    """What is wrong with a program: its message names the line; `excerpt` is that, and a caret."""

    excerpt: tuple[str, str] = ("", "")


class Statement(NamedTuple):
    """A line with those that continue it: comments and line ends are spaces, so places stay."""

    code: str
    start: int  # in the text of the program
    note: str

    def find(self, part: str) -> tuple[int, int]:
        """Where in it a part is, after the "=" if it is there; "": all of it."""
        pattern = re.compile(r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", part))))
        equals = self.code.find("=") + 1
        place = pattern.search(self.code, equals) or pattern.search(self.code)
        return place.span() if place and part else (0, len(self.code.rstrip()))

    @contextmanager
    def within(self, text: str, origin: str) -> Iterator[None]:
        """Gives an error on the way its line in the text of the program."""
        try:
            yield
        except FormulaError as error:
            raise self.error(error, text, origin) from None

    def error(self, error: FormulaError, text: str, origin: str) -> ProgramError:
        """The error with its line of the program, and a caret below what it is about."""
        places = self.find(error.part) if error.end == 0 else (error.start, error.end)
        start, end = (self.start + at for at in places)
        first = text.rfind("\n", 0, start) + 1
        row, at = text[first:].partition("\n")[0], start - first
        left = max(0, at - WIDTH // 2)
        below = " " * (at - left) + "^" * max(1, min(end - start, len(row) - at, WIDTH // 2))
        number = text.count("\n", 0, start) + 1
        result = ProgramError(f"{origin}, line {number}: {error.message[:300]}")
        result.excerpt = row[left : left + WIDTH].replace("\t", " "), below
        return result


def statements(text: str) -> Iterator[Statement]:
    """The statements of a text, without empty ones."""
    code, start, note = "", 0, ""
    at = 0
    for row in text.split("\n"):
        own, _, comment = row.partition("#")
        if code.strip() and own.strip() and not own[0].isspace():
            yield Statement(code, start, note)
            code, note = "", ""
        if not code.strip():
            code, start, note = "", at, ""
        code += own + " " * (len(row) - len(own) + 1)
        note = comment.strip() if own.strip() and comment.strip() else note
        at += len(row) + 1
    if code.strip():
        yield Statement(code, start, note)


def normal(name: str) -> str:
    """A name as Python's parser has it."""
    return unicodedata.normalize("NFKC", name)


def needs(text: str) -> set[str]:
    """The names in brackets that a text has: those of all arrays that it may read, and more."""
    code = re.sub("#.*", "", text)
    return {normal(x) for x in re.findall(r"([^\W\d]\w*)\s*\[", code)}


def defined(code: str) -> set[str]:
    """The names that a line defines: of a stage two, if it has a letter beside its name."""
    left = LEFT.match(code)
    names = left.group("name", "symbol") if left else ()
    if left and left["symbol"] == "size" and left["axes"]:
        names = (f"size[{left['axes']}]",)
    return {normal(x) for x in names if x}


def replaced(text: str, lines: Sequence[str]) -> str:
    """The text with other lines for some of its stages and parameters; a new parameter comes first.

    Raises InputError for a line that is no line, or of a stage that is not there.
    """
    for line in lines:
        own = [*statements(line.lstrip())]
        names = defined(own[0].code) if len(own) == 1 else set()
        if not names:
            hint = "write --set 'scores[i,j] = …', or a parameter: 'temperature = 2'"
            raise InputError(f"{line[:60]!r} is not one line of a program", hint)
        code = own[0].code.strip()
        before = [x for x in statements(text) if defined(x.code) & names]
        left = LEFT.match(code)
        is_stage = left is not None and left["axes"] is not None and left["symbol"] != "size"
        if not before and is_stage:
            known = sorted({x for one in statements(text) for x in defined(one.code)})
            raise InputError(f"there is no stage {min(names)!r} to set", nearest(min(names), known))
        if not before:
            text = f"{code}\n{text}"
            continue
        at, old = before[0].start, LEFT.match(before[0].code)
        if is_stage and left and old:  # under the names that other lines have for it
            named = f"{old['name']}: " if old["name"] else ""
            code = f"{named}{old['symbol']}{code[left.end('symbol') :]}"
        text = f"{text[:at]}{code}\n{text[at + len(before[0].code) :]}"
    return text


def stage_names(text: str) -> list[str]:
    """The names of the stages of a program, of which no formula is read.

    >>> stage_names("scale = 2\\nscores: S[i,j] = q[i,0] * k[j,0]\\nA[i,j] = softmax[j](S[i,j])")
    ['scores', 'A']
    """
    lefts = filter(None, (LEFT.match(statement.code) for statement in statements(text)))
    stages = (x for x in lefts if x["axes"] is not None and (x["name"] or x["symbol"] != "size"))
    return [normal(x["name"] or x["symbol"]) for x in stages]
