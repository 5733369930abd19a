"""The bytes of a vector file: plain, gzipped, or a member of a zip.

    "glove.6B.50d.txt"   "glove.6B.50d.txt.gz"   "glove.6B.zip::glove.6B.50d.txt"

What a file is, its first bytes say, not its name.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import struct
import zipfile
import zlib
from contextlib import ExitStack
from typing import IO

from attncli.errors import InputError

_GZIP = b"\x1f\x8b"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_LISTED = 20

# What Python's decompressors raise for files that are damaged or made some other way.
_DAMAGE = (
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class Source:
    """A file of vectors, opened with `with`; `damage` says where it broke, if it did.

    A gzip file that ends too soon, or whose checksum is wrong, is read as far as it goes.
    Raises InputError where there is nothing to read: no such file, a directory, a zip that is
    encrypted, broken, or holds several files of which none was named.
    """

    def __init__(self, source: str) -> None:
        self.origin = shown(source)
        self.damage = ""
        self.path, self.member = source, ""
        if "::" in source and not os.path.exists(source):
            self.path, _, self.member = source.rpartition("::")
        self._stack = ExitStack()
        self._stream: io.BufferedIOBase = io.BytesIO()

    def __enter__(self) -> Source:
        with ExitStack() as stack:
            self._stream = self._open(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def read_into(self, view: memoryview) -> int:
        """Fill half of the view or more, or what is left of the file; how many bytes that is."""
        filled = 0
        while filled <= len(view) // 2 and not self.damage:
            try:
                count = self._stream.readinto1(view[filled:])
            except _DAMAGE as error:
                self.damage = str(error) or type(error).__name__
                break
            filled += count
            if not count:
                break
        return filled

    def _open(self, stack: ExitStack) -> io.BufferedIOBase:
        stream = stack.enter_context(self._open_file())
        start = stream.peek(4)[:4]
        if start in _ZIP:
            return stack.enter_context(self._open_member(stack, stream))
        if self.member:
            raise InputError(f"{shown(self.path)} is no zip file", f"leave out ::{self.member}")
        if start.startswith(_GZIP):
            return stack.enter_context(gzip.GzipFile(fileobj=stream))
        return stream

    def _open_file(self) -> io.BufferedReader:
        if os.path.isdir(self.path):
            raise InputError(f"{shown(self.path)} is a directory", "name a file of vectors in it")
        try:
            return open(self.path, "rb")
        except FileNotFoundError:
            raise InputError(f"there is no file {shown(self.path)}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{shown(self.path)} cannot be read: {reason}") from None

    def _open_member(self, stack: ExitStack, stream: IO[bytes]) -> zipfile.ZipExtFile:
        path = shown(self.path)
        try:
            archive = stack.enter_context(zipfile.ZipFile(stream))
            info = self._choose(archive)
            if info.flag_bits & 1:
                raise InputError(f"{path} is encrypted", "unpack it and name the text file")
            opened: zipfile.ZipExtFile = archive.open(info)  # type: ignore[assignment]
            return opened
        except _DAMAGE as error:
            raise InputError(
                f"{path} is not a zip file that can be read ({error})", "download it again"
            ) from None

    def _choose(self, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
        files = [info for info in archive.infolist() if _is_content(info)]
        if not self.member and len(files) == 1:
            return files[0]
        named = [info for info in files if info.filename == self.member] or [
            info for info in files if os.path.basename(info.filename) == self.member
        ]
        if named:
            return named[0]
        names = ", ".join(shown(info.filename) for info in files[:_LISTED]) or "no file"
        more = f" and {len(files) - _LISTED} more" if len(files) > _LISTED else ""
        path = shown(self.path)
        if self.member:
            raise InputError(
                f"{path} has no member {shown(self.member)}", f"it holds {names}{more}"
            )
        raise InputError(f"{path} holds {names}{more}", f"name one: {path}::NAME")


def shown(name: str) -> str:
    """A name as it is, or quoted where it could play tricks on a terminal.

    >>> shown("glove.txt"), shown("a\\x1b[31m")
    ('glove.txt', "'a\\\\x1b[31m'")
    """
    return name if name.isprintable() else ascii(name)


def _is_content(info: zipfile.ZipInfo) -> bool:
    name = os.path.basename(info.filename)
    hidden = name.startswith(".") or info.filename.startswith("__MACOSX/")
    return not info.is_dir() and not hidden
