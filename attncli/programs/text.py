"""A program as text: its statements, and where in it something is wrong.

    scores: S[b,h,i,j] = sum[d](q[b,h,i,d] * k[b,h,j,d])   # a note
    temperature = 0.5                                      a parameter
    size[h] = 2                                            how long an axis is

A line that begins with a space continues the one before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from attncli.errors import InputError
from attncli.formula.parser import FormulaError

MOST_TEXT = 100_000
WIDTH = 100  # characters of a line that are shown with an error


class ProgramError(InputError):
    """What is wrong with a program: its message names the line; `excerpt` is that, and a caret."""

    excerpt: tuple[str, str] = ("", "")


class Statement(NamedTuple):
    """A line with those that continue it: comments and line ends are spaces, so places stay."""

    code: str
    start: int  # in the text of the program
    note: str
    text: str
    origin: str  # what messages call the text

    def find(self, part: str) -> tuple[int, int]:
        """Where in it a part is, after the "=" if it is there; "": all of it."""
        pieces = re.findall(r"\w+|[^\w\s]", part)
        whole = (rf"\b{x}\b" if re.match(r"\w", x) else re.escape(x) for x in pieces)
        pattern = re.compile(r"\s*".join(whole))
        equals = self.code.find("=") + 1
        place = pattern.search(self.code, equals) or pattern.search(self.code)
        return place.span() if place and part else (0, len(self.code.rstrip()))

    @contextmanager
    def within(self) -> Iterator[None]:
        """Gives an error on the way its line in the text of the program."""
        try:
            yield
        except FormulaError as error:
            raise self.error(error) from None

    @property
    def number(self) -> int:
        """That of its line, from 1."""
        return self.text.count("\n", 0, self.start) + 1

    def error(self, error: FormulaError) -> ProgramError:
        """The error with its line of the program, and a caret below what it is about."""
        places = self.find(error.part) if error.end == 0 else (error.start, error.end)
        start, end = (self.start + at for at in places)
        first = self.text.rfind("\n", 0, start) + 1
        row, at = self.text[first:].partition("\n")[0], start - first
        begin = max(0, at - WIDTH // 2)
        below = " " * (at - begin) + "^" * max(1, min(end - start, len(row) - at, WIDTH // 2))
        number = self.text.count("\n", 0, start) + 1  # not self.number: it may be continued
        result = ProgramError(f"{self.origin}, line {number}: {error.message[:300]}")
        result.excerpt = row[begin : begin + WIDTH].replace("\t", " "), below
        return result


def statements(text: str, origin: str) -> Iterator[Statement]:
    """The statements of a text, without empty ones. Raises ProgramError where it is too long."""
    if len(text) > MOST_TEXT:
        raise ProgramError(f"{origin}: {len(text)} characters are more than {MOST_TEXT}")
    code, start, note = "", 0, ""
    at = 0
    for row in text.split("\n"):
        content, _, comment = row.partition("#")
        if code.strip() and content.strip() and not content[0].isspace():
            yield Statement(code, start, note, text, origin)
            code, note = "", ""
        if not code.strip():
            code, start, note = "", at, ""
        code += content + " " * (len(row) - len(content) + 1)
        note = comment.strip() if content.strip() and comment.strip() else note
        at += len(row) + 1
    if code.strip():
        yield Statement(code, start, note, text, origin)
