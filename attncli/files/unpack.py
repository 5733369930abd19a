"""gz and zip: what they hold is opened, and the sizes that they claim are checked first."""

from __future__ import annotations

import gzip
import os
import zipfile
from contextlib import ExitStack

from attncli.errors import InputError, SizeError
from attncli.files.messages import ask_for, explained, listing, quote
from attncli.files.source import STREAM_LIMIT, Source, streamed

BOMB_SIZE = 100 << 20
"""What unpacks to less than this many bytes is read however small it was packed."""
_BOMB_RATIO = 1000  # deflate's own limit is 1032: only repetition is packed so small


def unpacked(source: Source, stack: ExitStack) -> Source:
    """What a gzipped file or a zip holds, open as long as the stack is.

    Of a zip it is the member that is asked for, or the only one; an npz stays as it is.
    Raises InputError where it is damaged, holds no such member, or is packed twice.
    """
    if source.kind == "zip":
        inner = _member(source.in_memory(), stack)
    else:
        file = stack.enter_context(gzip.GzipFile(fileobj=source.file))
        most = STREAM_LIMIT if source.size is None else most_from(source.size)
        inner = streamed(source.origin, file, source.ending, source.name, most)
    if inner.kind == "gzip":
        raise InputError(f"{inner.origin} is gzip inside another file", "unpack it first")
    return inner


def _member(source: Source, stack: ExitStack) -> Source:
    archive = open_zip(source, stack)
    files = [info for info in archive.infolist() if _is_content(info.filename)]
    asked, _, rest = source.name.partition("::")
    found = [info for info in files if info.filename == asked]
    found = found or [info for info in files if os.path.basename(info.filename) == asked]
    if not found and any(info.filename.endswith(".npy") for info in files):
        return source
    if not found and len(files) == 1:
        found, rest = files, source.name
    if not found:
        names = [info.filename for info in files]
        lacks = f"no {quote(asked)}; it holds " if asked else ""
        hint = f"name one: {ask_for(source.origin, names[0])}" if names else "check the file"
        raise InputError(f"{source.origin} holds {lacks}{listing(names) or 'no file'}", hint)
    info = found[0]
    origin = source.origin if len(files) == 1 else ask_for(source.origin, info.filename)
    with explained(f"{origin} is damaged", "download or copy it again"):
        file = stack.enter_context(archive.open(info))
    ending = os.path.splitext(info.filename.lower())[1]
    return streamed(origin, file, ending, rest, most_from(info.compress_size))


def open_zip(source: Source, stack: ExitStack) -> zipfile.ZipFile:
    """The zip in a source, after what its directory claims was checked.

    Raises InputError where it is damaged, encrypted, or packed otherwise than with deflate.
    """
    kind = "npz" if source.ending == ".npz" else "zip"
    with explained(f"{source.origin} is not a valid {kind} file", "copy it again"):
        archive = stack.enter_context(zipfile.ZipFile(source.file))
    infos = archive.infolist()
    if any(info.flag_bits & 1 for info in infos):
        raise InputError(f"{source.origin} is encrypted", "save it without a password")
    if {info.compress_type for info in infos} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise InputError(f"{source.origin} is not packed with deflate", "pack it again with zip")
    if sum(info.compress_size for info in infos) > (source.size or 0):
        raise InputError(f"{source.origin} claims more bytes than it has", "copy it again whole")
    return archive


def most_from(packed: int) -> float:
    """The most bytes that so many packed ones are believed to hold, and that fit into memory."""
    return min(memory(), max(BOMB_SIZE, _BOMB_RATIO * packed))


def check_unpacked(where: str, size: int, packed: int) -> None:
    """Raise InputError where so many bytes come from so few, SizeError where they do not fit."""
    if size > memory():
        raise SizeError(f"{where} takes {size} bytes, more than this machine's memory")
    if size > most_from(packed):
        message = f"{where} would unpack to {size // max(packed, 1)} times its size, {size} bytes"
        raise InputError(message, "save it with numpy.savez, uncompressed")


def memory() -> float:
    """Bytes of memory that this machine has; infinite where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _is_content(filename: str) -> bool:
    """Whether a member is a file that somebody put there, not a folder or a system's note."""
    name = os.path.basename(filename)
    return bool(name) and not name.startswith(".") and not filename.startswith("__MACOSX/")
