"""Blob: where the bytes of a SOURCE are and which format they have, before any of it is parsed.

A regular file stays on disk, for its reader to open or map. What cannot be reopened (standard
input, a pipe, process substitution) is read into memory, after its first bytes were recognised.
"""

from __future__ import annotations

import difflib
import io
import os
import stat
import sys
from dataclasses import dataclass
from typing import BinaryIO

from attncli.errors import InputError
from attncli.files.messages import STANDARD_INPUT, safe
from attncli.files.sniff import HEAD, ending_of, kind_of, refuse_ending

STREAM_LIMIT = 4 << 30
"""Most bytes read from a pipe; a file on disk has no limit."""


@dataclass(frozen=True)
class Blob:
    """The bytes of a source.

    origin   how messages call it
    ending   of its path, lower case with the dot, or ""
    kind     its format: "json", "npy", "npz", "table" or "safetensors"
    size     in bytes
    path     of a regular file, or None where `data` holds everything
    """

    origin: str
    ending: str
    kind: str
    size: int
    path: str | None = None
    data: bytes = b""

    def open(self) -> BinaryIO:
        """A file object at the first byte."""
        return open(self.path, "rb") if self.path is not None else io.BytesIO(self.data)

    def read(self) -> bytes:
        """All bytes."""
        with self.open() as file:
            return file.read()


def find(source: str, stdin: BinaryIO | None = None) -> tuple[Blob, str | None]:
    """The bytes a SOURCE means, and the name after `::` or None.

    A path that exists is taken whole, even with `::` in it. Raises InputError where there is
    nothing to read, or nothing attncli can read.
    """
    if source.lstrip().startswith("["):
        literal = source.encode("utf-8", "backslashreplace")
        return Blob("the inline literal", "", "json", len(literal), data=literal), None
    path, separator, member = source.partition("::")
    if separator and _exists(source):
        path, separator, member = source, "", ""
    if separator and not member:
        raise InputError(f"{safe(source)} names no array after ::", "write path::name")
    if not path:
        raise InputError("a path is expected, found nothing")
    blob = _standard_input(stdin) if path == "-" else _file(path)
    return blob, member or None


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:  # a null character
        return False


def _standard_input(stdin: BinaryIO | None) -> Blob:
    if stdin is None and sys.stdin is None:
        raise InputError("standard input is closed", "name a file")
    return _stream(stdin or sys.stdin.buffer, STANDARD_INPUT, "")


def _file(path: str) -> Blob:
    origin = safe(path)
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{origin} is a directory", "name a file in it")
        refuse_ending(origin, ending_of(path))
        with open(path, "rb") as file:
            if not stat.S_ISREG(status.st_mode):
                return _stream(file, origin, ending_of(path))
            head = file.read(HEAD)
    except FileNotFoundError as problem:
        raise InputError(f"{origin} does not exist", _near(path)) from problem
    except (OSError, ValueError) as problem:  # ValueError: a null character in the path
        said = problem.strerror if isinstance(problem, OSError) else "not a path"
        raise InputError(f"{origin} cannot be read: {said}") from problem
    kind = kind_of(origin, ending_of(path), head, status.st_size)
    return Blob(origin, ending_of(path), kind, status.st_size, path=path)


def _near(path: str) -> str:
    """A hint with the names in the same folder that look alike."""
    folder, name = os.path.split(path)
    try:
        near = difflib.get_close_matches(name, os.listdir(folder or "."), n=3)
    except OSError:
        return f"there is no folder {safe(folder)}" if folder else "check the path"
    if not near:
        return "check the path"
    return "did you mean " + " or ".join(safe(os.path.join(folder, other)) for other in near) + "?"


def _stream(file: BinaryIO, origin: str, ending: str) -> Blob:
    try:
        head = file.read(HEAD)
        kind = kind_of(origin, ending, head, None)
        data = head + file.read(STREAM_LIMIT - len(head) + 1)
    except OSError as problem:
        raise InputError(f"{origin} cannot be read: {problem.strerror}") from problem
    if len(data) > STREAM_LIMIT:
        raise InputError(f"{origin} holds more than 4 GiB", "save it to a file and name that")
    return Blob(origin, ending, kind, len(data), data=data)
