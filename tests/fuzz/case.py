"""One call of the command line: its words, flags, files and standard input."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Case:
    """A call, and what it was made as.

    kind   of input that is fuzzed, a row of the benchmark's table
    flags  name and value, None of a switch; what is there twice counts as given last
    large  whether it is read and computed as a large one is: by NumPy's parser, mapped, in blocks
    """

    kind: str
    command: str
    words: list[str] = field(default_factory=list)
    flags: list[tuple[str, str | None]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    large: bool = False

    @property
    def arguments(self) -> list[str]:
        """What a shell would pass."""
        flags = [part for flag in self.flags for part in flag if part is not None]
        return [self.command, *self.words, *flags]

    @property
    def given(self) -> dict[str, str | None]:
        """The value of each flag; None of a switch."""
        return dict(self.flags)

    def numbers(self, flag: str) -> list[int] | None:
        """The whole numbers of a flag, separated by commas; None where it is not given."""
        text = self.given.get(flag)
        return None if text is None else [int(float(part)) for part in text.split(",")]

    def number(self, flag: str, otherwise: int = 0) -> int:
        """The whole number of a flag."""
        return (self.numbers(flag) or [otherwise])[0]

    def bounds(self, text: str, size: int) -> list[int]:
        """A:B, counted from 1 and both included, from the end where negative; as indices."""
        first, colon, last = text.partition(":")
        numbers = [int(part) if part.strip() else None for part in (first, last)]
        start, end = [n if n is None or n > 0 else size + 1 + n for n in numbers]
        end = end if colon else start
        return [i for i in range(size) if (start or 1) <= i + 1 <= (size if end is None else end)]
