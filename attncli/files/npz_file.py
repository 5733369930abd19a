"""npz in: a zip of npy files, from strangers: every size is checked before it is believed."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import AttncliError, InputError, SizeError
from attncli.files.blob import Blob
from attncli.files.gather import LABELS, Gathering
from attncli.files.json_file import parse
from attncli.files.loaded import Loaded
from attncli.files.messages import listing, location, reason
from attncli.files.npy_file import (
    HEADER_LIMIT,
    Header,
    from_bytes,
    read_header,
    refuse_type,
)
from attncli.files.trace_file import ENTRY, loaded_trace, trace_from_dict

_BOMB_SIZE = 100 << 20  # bytes; what unpacks to less is let through however small it was packed
_BOMB_RATIO = 1000
_STEP = 1 << 20


def read(blob: Blob, member: str | None) -> Loaded:
    """The arrays of an npz; those called tokens, query_tokens, key_tokens are labels.

    Raises InputError where it is damaged, encrypted, holds no array, or unpacks to far more than
    its size; SizeError where it would not fit into memory.
    """
    with blob.open() as file, _blaming(blob.origin), zipfile.ZipFile(file) as archive:
        entries = _entries(archive, blob)
        texts = (*LABELS, ENTRY)
        if ENTRY in entries:
            return _trace(archive, entries, blob.origin, member)
        gathering = Gathering(blob.origin, member)
        for name, entry in entries.items():
            spot = location(blob.origin, name)
            if name.lower() in texts:
                gathering.set_labels(name.lower(), _strings(archive, entry, spot).tolist())
            else:
                gathering.add(name, partial(_numbers, archive, entry, spot))
        return gathering.done()


def _trace(
    archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], origin: str, member: str | None
) -> Loaded:
    spot = location(origin, ENTRY)
    document = parse(str(_strings(archive, entries.pop(ENTRY), spot)).encode(), spot)
    if not isinstance(document, dict):
        raise InputError(f"{spot} is no object", "save the trace again")
    arrays = {
        name: _numbers(archive, entry, location(origin, name)) for name, entry in entries.items()
    }
    return loaded_trace(trace_from_dict(document, origin, arrays), origin, member)


@contextmanager
def _blaming(spot: str) -> Iterator[None]:
    """Say of whatever zipfile and its unpackers raise that the file is damaged."""
    try:
        yield
    except (AttncliError, MemoryError):
        raise
    except Exception as problem:  # BadZipFile, zlib.error, EOFError, struct.error, ValueError, …
        raise InputError(
            f"{spot} is not a sound npz file: {reason(problem)}", "save it again with numpy.savez"
        ) from problem


def _entries(archive: zipfile.ZipFile, blob: Blob) -> dict[str, zipfile.ZipInfo]:
    """The npy files of the archive by name, after what the archive says of sizes was checked."""
    infos = archive.infolist()
    entries = {info.filename[:-4]: info for info in infos if info.filename.endswith(".npy")}
    if not entries:
        held = listing(info.filename for info in infos) or "nothing"
        raise InputError(
            f"{blob.origin} is a zip without an npy file; it holds {held}", "use numpy.savez"
        )
    if len(entries) < sum(info.filename.endswith(".npy") for info in infos):
        raise InputError(f"{blob.origin} holds two arrays of one name", "save it again")
    if any(info.flag_bits & 1 for info in infos):
        raise InputError(f"{blob.origin} is encrypted", "save it without a password")
    if sum(info.compress_size for info in infos) > blob.size:
        raise InputError(f"{blob.origin} claims more bytes than it has", "copy it again whole")
    for name, info in entries.items():
        _refuse_bomb(info, location(blob.origin, name))
    return entries


def _refuse_bomb(info: zipfile.ZipInfo, spot: str) -> None:
    ratio = info.file_size / max(info.compress_size, 1)
    if info.file_size > _BOMB_SIZE and ratio > _BOMB_RATIO:
        raise InputError(
            f"{spot} would unpack to {ratio:.0f} times its size, {info.file_size} bytes",
            "save it with numpy.savez, uncompressed",
        )
    if info.file_size > _memory():
        raise SizeError(f"{spot} takes {info.file_size} bytes, more than this machine's memory")


def _memory() -> float:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return float("inf")


def _numbers(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, spot: str) -> npt.NDArray[Any]:
    header, data = _unpack(archive, entry, spot, refuse_type)
    return from_bytes(data, header, spot)


def _strings(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, spot: str) -> npt.NDArray[Any]:
    def refuse(dtype: np.dtype[Any], spot: str) -> None:
        if dtype.kind != "U" or not dtype.itemsize:
            raise InputError(f"{spot} holds no strings", "save numpy.array(['the', 'cat'])")

    header, data = _unpack(archive, entry, spot, refuse)
    # NumPy makes a string of any number
    codes = np.frombuffer(data, np.dtype("u4").newbyteorder(header.dtype.byteorder))
    if np.any((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))):
        raise InputError(f"{spot} holds a number that is no character", "save it again")
    return from_bytes(data, header, spot)


def _unpack(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, spot: str, refuse: Any
) -> tuple[Header, bytearray]:
    """The header and the bytes after it: never more than the header says."""
    with _blaming(spot), archive.open(entry) as file:
        head = file.read(HEADER_LIMIT)
        header = read_header(head, entry.file_size, spot)
        refuse(header.dtype, spot)
        data = bytearray(header.nbytes)
        filled = len(head) - header.offset
        data[:filled] = head[header.offset :]
        while step := file.read(_STEP):
            data[filled : filled + len(step)] = step
            filled += len(step)
    del data[filled:]
    return header, data
