"""Everything attncli raises on purpose.

AttncliError
├── InputError         a file or literal cannot be read as what was asked for (also a ValueError)
│   └── MissingExtraError  reading or writing it needs a package that is not installed
├── ShapeError         arrays that do not fit together (also a ValueError)
├── ConventionError    a choice that does not exist, or two that contradict (also a ValueError)
├── StageError         a trace holds no stage of that name (also a KeyError)
├── SizeError          the result would not fit into memory (also a MemoryError)
└── OutputError        the result cannot be written where it should go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_LISTED = 12  # names in a hint


class AttncliError(Exception):
    """A problem the user can mend: what is wrong in one line, then how to mend it.

    >>> str(AttncliError("q.npy is empty", "save it again"))
    'q.npy is empty; save it again'
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InputError(AttncliError, ValueError):
    """A file, stream or literal cannot be read as what was asked for."""


class SeveralError(InputError):
    """A file holds several attentions, of which one has to be named."""

    selection: str = ""  # what was asked for of the file, "" for all of it
    parts: tuple[str, ...] = ()  # the names of its attentions; none where it cannot be read again


class MissingExtraError(InputError):
    """A format needs a package that only an extra installs."""


class ShapeError(AttncliError, ValueError):
    """Arrays whose shapes do not fit together."""


class ConventionError(AttncliError, ValueError):
    """A choice that does not exist, or two choices that contradict each other."""


class StageError(AttncliError, KeyError):
    """A trace holds no stage of that name."""

    __str__ = AttncliError.__str__


class SizeError(AttncliError, MemoryError):
    """A result that would not fit into memory."""


class OutputError(AttncliError):
    """A result that cannot be written where it should go."""


def nearest(wrong: str, names: Iterable[str], otherwise: str = "") -> str:
    """A hint for a name that is none of these: those like it, or else the first of them.

    otherwise  what it is where none is like it, of names that are too many to list

    A dotted name is known by its last part, too.

    >>> nearest("wieghts", ["layer.1.scores", "layer.1.weights"]), nearest("x", ["q", "k"])
    ('did you mean weights?', 'there are q, k')
    """
    from difflib import get_close_matches

    names = list(names)
    leaves = [name.rpartition(".")[2] for name in names]
    if close := get_close_matches(wrong, dict.fromkeys([*leaves, *names]), n=3):
        return f"did you mean {' or '.join(close)}?"
    return otherwise or f"there {'are' if len(names) > 1 else 'is only'} {listed(names, _LISTED)}"


def listed(names: Iterable[str], most: int = 4) -> str:
    """Names for a message: the first few, and how many more there are."""
    items = list(names)
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


def joined(names: Sequence[str], word: str = "and") -> str:
    """Names in a sentence.

    >>> joined(["jax", "mlx", "onnx"]), joined(["jax", "mlx"], "or"), joined(["jax"])
    ('jax, mlx and onnx', 'jax or mlx', 'jax')
    """
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
