"""Reads npy and npz by NumPy, after checks that NumPy lacks: of types and sizes.

Pickles are never read. An array of a file on disk that is larger than what is allowed is mapped.
"""

from __future__ import annotations

import io
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attncli.arrays import Array
from attncli.budget import check_bytes, check_cells, fits, taken
from attncli.errors import InputError
from attncli.files.contents import (
    LABELS,
    FileContents,
    collected,
    part_of,
    popped_fields,
    within_name,
)
from attncli.files.messages import explained, listing, location, quote
from attncli.files.numbers import MAX_DEPTH
from attncli.files.source import Source, open_zip

if TYPE_CHECKING:
    from zipfile import ZipInfo

MAP_FROM = 1 << 24
"""Arrays of fewer bytes are read without asking: any machine has room for them."""
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
    "V": ("structured values", "save each field by itself"),
    "V2": ("2-byte values without a type, as bfloat16 is saved", _AS_FLOAT32),
}


def read(source: Source, wanted: Callable[[str], object]) -> FileContents:
    """The array of an npy file; or the arrays of an npz, of which those in LABELS are labels."""
    origin, source = source.origin, source.in_memory()
    if source.kind == "npy":
        size, path = source.size or 0, source.path
        packed = source.packed is not None
        read_it = partial(_array, source.file, size, origin, path=path, is_packed=packed)
        return collected(source, wanted, {"": read_it})
    with ExitStack() as stack:
        entries = _entries(source, stack)
        if "__trace__" in entries:
            return _trace(entries, source)
        entries, source = part_of(entries, within_name(entries, source))
        said = popped_fields(entries, source, wanted)
        texts = [name for name in entries if name.lower() in LABELS]
        labels = {name.lower(): entries.pop(name)(text=True).tolist() for name in texts}
        fields = {name: read(text=None).tolist() for name, read in said.items()}
        scales = [name for name in entries if name.lower() == "scale" != source.name]
        entries |= {name: partial(entries[name], text=None) for name in scales}
        return collected(source, wanted, entries, labels, fields=fields)


def _trace(entries: dict[str, Callable[..., Array]], source: Source) -> FileContents:
    """The trace of an npz that attncli saved."""
    from attncli.files.json_text import parse
    from attncli.files.trace import loaded_trace, trace_from
    from attncli.files.write import ENTRY

    where = location(source.origin, ENTRY)
    document = parse(str(entries.pop(ENTRY)(text=True)).encode(), where)
    if not isinstance(document, dict):
        raise InputError(f"{where} is not an object", "save the trace again")
    arrays = {name: entry() for name, entry in entries.items()}
    trace = trace_from(document, source.origin, arrays)
    return loaded_trace(trace, source.origin, source.name or None)


def _entries(source: Source, stack: ExitStack) -> dict[str, Callable[..., Array]]:
    """The arrays of an npz by name, to be read; what they take together is checked as they are."""
    archive, origin = open_zip(source, stack), source.origin
    taken = 0
    infos = archive.infolist()
    files = {info.filename: info for info in infos if info.filename.endswith(".npy")}
    if not files:
        names = listing(info.filename for info in infos) or "nothing"
        message = f"{origin} is a zip without an npy file; it holds {names}"
        raise InputError(message, "use numpy.savez")
    if len(files) < sum(info.filename.endswith(".npy") for info in infos):
        raise InputError(f"{origin} holds two arrays of one name", "save it again")

    def entry(info: ZipInfo, where: str, *, text: bool | None = False) -> Array:
        nonlocal taken
        taken += info.file_size
        check_bytes(taken, f"{where} takes" if taken == info.file_size else f"{origin} takes")
        hint, packed = "save it again with numpy.savez", bool(info.compress_type)
        with explained(f"{where} is not a valid npz file", hint), archive.open(info) as file:
            return _array(file, info.file_size, where, text=text, is_packed=packed)

    named = ((name.removesuffix(".npy"), info) for name, info in files.items())
    return {name: partial(entry, info, location(origin, name)) for name, info in named}


def _array(
    file: Any,
    size: int,
    where: str,
    *,
    text: bool | None = False,
    path: str = "",
    is_packed: bool = False,
) -> Array:
    """The array in an npy file of `size` bytes, mapped where one on disk is more than is allowed.

    text  whether it must hold text; None: text or numbers
    """
    header = io.BytesIO(file.read(_HEADER_LIMIT))
    file.seek(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what NumPy remarks on headers that Python 2 wrote
        n_bytes, n_numbers = _check_header(header, size, where, text)
        if is_packed:
            check_cells(n_numbers, f"{where} has")
        with explained(f"{where} is not a valid npy file", "copy it again"):
            if path and is_too_large(n_bytes):
                array = np.load(path, "r", allow_pickle=False)
            else:
                array = np.load(file, allow_pickle=False)
    array = native(np.asarray(array))
    if array.dtype.kind == "U" and array.dtype.itemsize:
        codes = array.reshape(-1).view(np.uint32)  # NumPy makes a character of any number
        if np.any((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))):
            raise InputError(f"{where} holds a number that is not a character", "save it again")
    return array


def is_too_large(n_bytes: int) -> bool:
    """Whether an array is to be mapped: then a file that is cut while it is read is a signal."""
    return n_bytes >= MAP_FROM and not fits(taken() + n_bytes, resident=taken())


def _check_header(file: io.BytesIO, size: int, where: str, text: bool | None) -> tuple[int, int]:
    """How many bytes the entries take, and how many they are."""
    try:
        is_first = np.lib.format.read_magic(file) == (1, 0)
        versions = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
        shape, _, dtype = versions[0 if is_first else 1](file)
    except Exception as problem:  # NumPy evaluates the header as a literal: any error may come
        message = f"{where} is not a valid npy file: its header cannot be read"
        raise InputError(message, "save it again with numpy.save") from problem
    refuse_shape(shape, where)
    if text and (dtype.kind != "U" or not dtype.itemsize):
        raise InputError(f"{where} holds no strings", "save numpy.array(['the', 'cat'])")
    is_number = dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize <= 8)
    if not is_number and (text is False or (text is None and dtype.kind != "U")):
        kind = "V2" if dtype == "V2" else dtype.kind
        what, hint = _REFUSED.get(kind, _REFUSED["V"])
        raise InputError(f"{where} holds {what}", hint)
    claimed, held = math.prod(shape) * dtype.itemsize, size - file.tell()
    if claimed != held:
        what = f"{where} declares shape {shape} of {dtype.name}, {claimed} bytes, but holds {held}"
        raise InputError(what, "copy it again whole, or save one array per file")
    return claimed, math.prod(shape)


def refuse_shape(shape: Sequence[int], where: str) -> None:
    """Raise InputError for a shape without an entry, or one no array can have."""
    if len(shape) > MAX_DEPTH or min(shape, default=1) < 0:
        raise InputError(f"{where} declares the shape {quote(str(tuple(shape)))}", "save it again")
    if 0 in shape:
        raise InputError(f"{where} is empty: its shape is {tuple(shape)}", "give it numbers")


def native(array: Array) -> Array:
    """The array in the machine's byte order; a bool of any bytes made of 0 and 1."""
    if array.dtype.kind == "b":
        return np.asarray(array.view(np.uint8) != 0)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
