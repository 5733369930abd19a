"""npy and npz in: NumPy reads them, after checks of its own are added: sizes, types, shapes.

Pickles are never read. A large array of a file on disk is mapped, not copied.
"""

from __future__ import annotations

import io
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attncli.errors import InputError
from attncli.files.load import LABELS, Loaded, LoadedBuilder, one_array
from attncli.files.messages import explained, listing, location, quote
from attncli.files.numbers import MAX_DEPTH, Array
from attncli.files.source import Source

if TYPE_CHECKING:
    from zipfile import ZipFile, ZipInfo

MAP_FROM = 1 << 24
"""Arrays of at least this many bytes are mapped; smaller ones are read more quickly."""
_HEADER_LIMIT = 16384  # bytes in which a header must end; that of a plain array takes 128

_AS_FLOAT32 = "save it as float32: numpy.save(path, x.astype('float32'))"
_REFUSED = {
    "O": ("Python objects, which would need a pickle", _AS_FLOAT32),
    "c": ("complex numbers", "save the real part, or both as arrays of their own"),
    "M": ("dates", _AS_FLOAT32),
    "m": ("time spans", _AS_FLOAT32),
    "S": ("strings", _AS_FLOAT32),
    "U": ("strings", _AS_FLOAT32),
    "f": ("numbers longer than float64", "save it as float64"),
}

RefuseType = Callable[[np.dtype[Any], str], None]


def read(source: Source) -> Loaded:
    """The array of an npy file; or the arrays of an npz, of which those in LABELS are labels.

    Raises InputError where it is damaged, encrypted, holds no array, or unpacks to far more than
    its size; SizeError where it would not fit into memory.
    """
    if source.kind == "npy":
        return one_array(source.origin, source.name, partial(_npy, source))
    with ExitStack() as stack:
        return _npz(source.in_memory(), stack)


def _npy(source: Source) -> Array:
    source = source.in_memory()
    with explained(f"{source.origin} is not a valid npy file", "copy it again"):
        size = _check(source.file, source.size or 0, source.origin, _refuse_type)
        if source.path and size >= MAP_FROM:
            return native(np.asarray(_load(source.path, "r")))
        source.file.seek(0)
        return native(_load(source.file))


def _npz(source: Source, stack: ExitStack) -> Loaded:
    from attncli.files.json import parse
    from attncli.files.trace import ENTRY, loaded_trace, trace_from
    from attncli.files.unpack import open_zip

    archive = open_zip(source, stack)
    entries = _entries(archive, source.origin)
    if ENTRY in entries:
        where = location(source.origin, ENTRY)
        document = parse(str(_strings(archive, entries.pop(ENTRY), where)).encode(), where)
        if not isinstance(document, dict):
            raise InputError(f"{where} is no object", "save the trace again")
        arrays = {
            name: _numbers(archive, entry, location(source.origin, name))
            for name, entry in entries.items()
        }
        trace = trace_from(document, source.origin, arrays)
        return loaded_trace(trace, source.origin, source.name or None)
    builder = LoadedBuilder(source.origin, source.name)
    for name, entry in entries.items():
        where = location(source.origin, name)
        if name.lower() in LABELS:
            builder.set_labels(name.lower(), _strings(archive, entry, where).tolist())
        else:
            builder.add(name, partial(_numbers, archive, entry, where))
    return builder.done()


def _entries(archive: ZipFile, origin: str) -> dict[str, ZipInfo]:
    """The npy files of the archive by name, after the sizes that it claims were checked."""
    from attncli.files.unpack import check_unpacked

    infos = archive.infolist()
    arrays = [info for info in infos if info.filename.endswith(".npy")]
    entries = {info.filename[:-4]: info for info in arrays}
    if not entries:
        files = listing(info.filename for info in infos) or "nothing"
        raise InputError(
            f"{origin} is a zip without an npy file; it holds {files}", "use numpy.savez"
        )
    if len(entries) < len(arrays):
        raise InputError(f"{origin} holds two arrays of one name", "save it again")
    for name, info in entries.items():
        check_unpacked(location(origin, name), info.file_size, info.compress_size)
    return entries


def _numbers(archive: ZipFile, entry: ZipInfo, where: str) -> Array:
    return _unpacked(archive, entry, where, _refuse_type)


def _strings(archive: ZipFile, entry: ZipInfo, where: str) -> Array:
    def refuse(dtype: np.dtype[Any], where: str) -> None:
        if dtype.kind != "U" or not dtype.itemsize:
            raise InputError(f"{where} holds no strings", "save numpy.array(['the', 'cat'])")

    strings = _unpacked(archive, entry, where, refuse)
    # NumPy makes a character of any number
    codes = strings.reshape(-1).view(np.uint32)
    if np.any((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))):
        raise InputError(f"{where} holds a number that is no character", "save it again")
    return strings


def _unpacked(archive: ZipFile, entry: ZipInfo, where: str, refuse: RefuseType) -> Array:
    hint = "save it again with numpy.savez"
    with explained(f"{where} is not a valid npz file", hint), archive.open(entry) as file:
        _check(file, entry.file_size, where, refuse)
        file.seek(0)
        return native(_load(file))


def _load(file: Any, mmap_mode: Literal["r"] | None = None) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what NumPy says of headers that Python 2 wrote
        array: Array = np.load(file, mmap_mode, allow_pickle=False)
    return array


def _check(file: Any, size: int, where: str, refuse: RefuseType) -> int:
    """How many bytes the numbers take, after the header was checked against `size` and the type.

    Raises InputError where the header is malformed, or claims another number of bytes than there
    are.
    """
    head = io.BytesIO(file.read(_HEADER_LIMIT))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            header = np.lib.format
            version = header.read_magic(head)
            parse_header = header.read_array_header_2_0
            if version == (1, 0):
                parse_header = header.read_array_header_1_0
            shape, _, dtype = parse_header(head)
    except Exception as problem:  # NumPy evaluates the header as a literal: any error may come
        raise InputError(
            f"{where} is not a valid npy file: its header cannot be read",
            "save it again with numpy.save",
        ) from problem
    refuse_shape(shape, where)
    refuse(dtype, where)
    claimed, found = math.prod(shape) * dtype.itemsize, size - head.tell()
    if claimed != found:
        raise InputError(
            f"{where} says shape {shape} of {dtype.name}, {claimed} bytes, and holds {found}",
            "copy it again whole, or save one array per file",
        )
    return claimed


def refuse_shape(shape: Sequence[int], where: str) -> None:
    """Raise InputError for a shape without an entry, or one no array can have."""
    if len(shape) > MAX_DEPTH or min(shape, default=1) < 0:
        raise InputError(f"{where} says its shape is {quote(str(tuple(shape)))}", "save it again")
    if 0 in shape:
        raise InputError(f"{where} is empty: its shape is {tuple(shape)}", "give it numbers")


def _refuse_type(dtype: np.dtype[Any], where: str) -> None:
    """Raise InputError where the type is neither a number up to 64 bits nor bool."""
    if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize <= 8):
        return
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.fields is None:
        what, hint = "2-byte values without a type, as bfloat16 is saved", _AS_FLOAT32
    else:
        what, hint = _REFUSED.get(dtype.kind, ("structured values", "save each field by itself"))
    raise InputError(f"{where} holds {what}", hint)


def native(array: Array) -> Array:
    """The array in the machine's byte order; a bool made of 0 and 1 whatever its bytes were."""
    if array.dtype.kind == "b":
        return np.asarray(array.view(np.uint8) != 0)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
