r"""What reaches a terminal: every text that a call writes passes here, and no terminal acts on it.

A token, an array's name, a path or another library's message may hold escape sequences. For the
time of a call standard output and standard error are `Shielded`: what is written to them, by
whatever code, has `\x1b` and the like as visible text. Two kinds of output pass beside it:

console        styles and cursor movements are Rich's; the text between them is made visible
is_data, help  formats that have escapes of their own (JSON, csv, html), and Typer's pages of help
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from attncli.files.characters import printed_on
from attncli.files.messages import printable, visible

if TYPE_CHECKING:
    from rich.console import Console

HANG = 2  # blanks before what goes on of a message


@dataclass(frozen=True, eq=False)
class Shielded:
    """A stream of text on which nothing acts that is written to it; else it is the stream below."""

    below: TextIO

    def write(self, text: str) -> int:
        self.below.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)


@contextmanager
def shielded() -> Iterator[None]:
    """Shields standard output and standard error."""
    out: Any = Shielded(direct(sys.stdout))
    err: Any = Shielded(direct(sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


def direct(stream: Any) -> TextIO:
    """The stream without its shield, for what is data, or visible already."""
    below: TextIO = stream.below if isinstance(stream, Shielded) else stream
    return below


@contextmanager
def unshielded() -> Iterator[None]:
    """Standard output as it is: for a library that styles text of the package itself."""
    with redirect_stdout(direct(sys.stdout)):
        yield


def console(stream: TextIO, **options: Any) -> Console:
    """A console of Rich on this stream: the text that it styles is made visible first."""
    from rich.console import Console
    from rich.segment import Segment

    class VisibleConsole(Console):
        def render(self, *args: Any, **kwargs: Any) -> list[Segment]:
            segments = [*super().render(*args, **kwargs)]
            text = "".join(segment.text for segment in segments if not segment.control)
            if visible(text) == text:
                return segments
            return [x if x.control else Segment(visible(x.text), x.style) for x in segments]

    plain = {"highlight": False, "markup": False, "emoji": False}
    return VisibleConsole(file=direct(stream), **{**plain, **options})


def columns(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream writes to, or as COLUMNS has them; None in a pipe."""
    if not stream.isatty():
        return None
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated):
        return int(stated)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None


def tell(message: str) -> None:
    """A message on standard error: broken between words on a terminal, one line in a pipe."""
    lines, width = [printable(f"attncli: {message}")], columns(sys.stderr)
    if width is not None:
        from attncli.page.text import fold

        with printed_on(sys.stderr):
            lines = fold(lines[0], width, HANG, 0)
    for line in lines:
        print(line, file=sys.stderr)
