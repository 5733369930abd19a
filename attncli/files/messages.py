"""Parts of messages about files: locations in them, lists of names, text that is safe to print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from attncli.errors import AttncliError, InputError, SeveralError

STANDARD_INPUT, LITERAL = "standard input", "what you typed"
_LONGEST_WORD = 300  # characters of a message, however long a name in it is
_LONGEST_PATH = 4096  # characters, on Linux: a path that exists is never cut
_AXES = ("batch", "head", "row", "column")

# Printable as Python sees it, and yet nothing to see.
INVISIBLE = frozenset(
    chr(code)
    for code in (
        *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0),
        *range(0x180B, 0x1810),
        *range(0xFE00, 0xFE0E),
        *range(0xE0100, 0xE01F0),
    )
)


def quote(text: str, limit: int = 60) -> str:
    r"""Text from a file, in quotes, with control characters escaped and cut to about `limit`.

    >>> quote("a\x1b[31m")
    "'a\\x1b[31m'"
    >>> quote("abcdef", limit=4)
    "'abc…'"
    """
    escaped = repr(text[: limit + 1])
    return escaped if len(escaped) <= limit + 2 else f"{escaped[:limit]}…{escaped[0]}"


def safe(text: str, limit: int = _LONGEST_PATH) -> str:
    r"""A path or name as it is, or quoted: not printable, too long, or with blanks at its ends.

    >>> safe("q.npy"), safe("q\n.npy"), safe(" ")
    ('q.npy', "'q\\n.npy'", "' '")
    """
    is_plain = text.isprintable() and text == text.strip() and 0 < len(text) <= limit
    return text if is_plain else quote(text, limit)


def printable(text: str) -> str:
    r"""A message as one line on which no terminal acts; what is too long for a name is cut.

    >>> printable("no file a\x1b[31m"), len(printable("x" * 5000))
    ('no file a\\x1b[31m', 261)
    """
    words = (
        word if len(word) <= _LONGEST_WORD else f"{word[:200]}…{word[-60:]}"
        for word in text.split(" ")
    )
    return visible(" ".join(words)).replace("\n", "\\n")


def visible(text: str) -> str:
    r"""Text in which all but line breaks is plainly visible: what is not is written as an escape.

    >>> visible("a\x1b[31mb\u202e\u200b\nc")
    'a\\x1b[31mb\\u202e\\u200b\nc'
    """
    if text.replace("\n", "").isprintable() and (text.isascii() or INVISIBLE.isdisjoint(text)):
        return text
    return "".join(c if c == "\n" or is_visible(c) else escaped(c) for c in text)


def is_visible(char: str) -> bool:
    """Whether there is something to see of a character, which no terminal acts on."""
    return char.isprintable() and char not in INVISIBLE


def escaped(char: str) -> str:
    """The escape of a character."""
    return char.encode("unicode_escape").decode()


def reason(problem: BaseException | str) -> str:
    """The message of another library's error, as one short printable line."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    return quote(text, 120)[1:-1]


def listing(names: Iterable[str], limit: int = 12) -> str:
    """Names for a message: the first few, and how many more there are."""
    texts = list(names)
    text = ", ".join(safe(name, 60) for name in texts[:limit])
    return text if len(texts) <= limit else f"{text} and {len(texts) - limit} more"


def location(origin: str, name: str) -> str:
    """An array of a file, or the file alone where the array has no name."""
    return f"{origin}, {safe(name, 60)}" if name else origin


def attentions(names: Iterable[str]) -> list[str]:
    """The dotted names of the parts of a file that hold a q, where there is nothing beside them."""
    names = list(names)
    parts = tuple(name.removesuffix("q") for name in names if name.endswith(".q"))
    is_all = all(name.startswith(parts) for name in names)
    return [part[:-1] for part in parts if is_all]


def several(origin: str, parts: Sequence[str], part: str = "") -> SeveralError:
    """The error where a file, or what is asked for of it, holds these attentions, not one."""
    place = f"{origin}, {safe(part)}," if part else origin
    message = f"{place} holds {count(len(parts), 'attention')}: {listing(parts)}"
    is_named = origin != LITERAL
    mend = f"say which: {ask_for(origin, parts[0])}" if is_named else "give one, or name a file"
    error = SeveralError(message, mend)
    error.selection = part
    error.parts = () if origin in (STANDARD_INPUT, LITERAL) else tuple(parts)
    return error


def lacking(origin: str, subject: str, names: Sequence[str]) -> InputError:
    """The error where a file does not hold what is asked for, but these."""
    message = f"{origin} holds no {subject}; it holds {listing(names)}"
    return InputError(message, f"name one: {ask_for(origin, names[0])}")


def ask_for(origin: str, name: str) -> str:
    """The SOURCE that names one array of a file, for a hint."""
    return f"{'-' if origin == STANDARD_INPUT else origin}::{safe(name)}"


def entry_at(index: Sequence[int], ndim: int) -> str:
    """An entry, row or block of an array of `ndim` dimensions, counted from 1."""
    if ndim < 2 or ndim > len(_AXES):
        return "entry " + ".".join(str(i + 1) for i in index)
    places = [f"{axis} {i + 1}" for axis, i in zip(_AXES[-ndim:], index, strict=False)]
    inner, outer = places[ndim - 2 :], places[: ndim - 2]
    return " of ".join(([", ".join(inner)] if inner else []) + outer[::-1])


def count(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def decoded(data: bytes, encoding: str, origin: str) -> str:
    """Bytes as text; InputError for the first byte that is none in this encoding."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as problem:
        message = f"{origin} is not text: byte {problem.start + 1} is not {problem.encoding}"
        raise InputError(message, "save it as UTF-8") from problem


@contextmanager
def explained(message: str, hint: str) -> Iterator[None]:
    """Turns an error of another library into an InputError: this message, and that library's."""
    try:
        yield
    except (AttncliError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as problem:  # such libraries document few of their errors
        if isinstance(problem, OSError) and problem.strerror:  # the system's, not the file's
            raise
        raise InputError(f"{message}: {reason(problem)}", hint) from problem


@contextmanager
def named(name: str) -> Iterator[None]:
    """Errors name the file, or the part of one, that they are about."""
    try:
        yield
    except AttncliError as error:
        raise type(error)(f"{name}: {error.message}", error.hint) from None
