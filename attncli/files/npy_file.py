"""npy in: the header is read and held against the size of the file before anything is allocated.

Pickles are never read. A large array of a file on disk is mapped, not copied.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.blob import Blob
from attncli.files.gather import lone
from attncli.files.loaded import Loaded
from attncli.files.messages import quote
from attncli.files.numbers import MAX_DEPTH

HEADER_LIMIT = 16384
"""Most bytes in which a header must end; that of a plain array takes 128."""

_MAP_FROM = 1 << 24  # bytes; below, reading is quicker than mapping

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


@dataclass(frozen=True)
class Header:
    """What an npy header says, and where the numbers begin."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes the numbers take."""
        return math.prod(self.shape) * self.dtype.itemsize


def read(blob: Blob, member: str | None) -> Loaded:
    """The array of an npy file."""
    return lone(blob.origin, member, partial(_array, blob))


def _array(blob: Blob) -> npt.NDArray[Any]:
    with blob.open() as file:
        header = read_header(file.read(HEADER_LIMIT), blob.size, blob.origin)
        refuse_type(header.dtype, blob.origin)
        if blob.path is None or header.nbytes < _MAP_FROM:
            file.seek(header.offset)
            return from_bytes(bytearray(file.read(header.nbytes)), header, blob.origin)
    order: Any = "F" if header.fortran else "C"
    mapped = np.memmap(blob.path, header.dtype, "r", header.offset, header.shape, order)
    return native(np.asarray(mapped))


def read_header(head: bytes, size: int, spot: str) -> Header:
    """The header at the start of `head`, held against the whole `size` in bytes.

    Raises InputError where it is malformed or says another number of bytes than there are.
    """
    file = io.BytesIO(head)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = np.lib.format.read_magic(file)
            parse = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = parse(file)
    except Exception as problem:  # NumPy evaluates the header as a literal: any error may come
        raise InputError(
            f"{spot} is not a sound npy file: its header cannot be read",
            "save it again with numpy.save",
        ) from problem
    header = Header(dtype, tuple(map(int, shape)), bool(fortran), file.tell())
    refuse_shape(header.shape, spot)
    if dtype.kind != "O" and header.nbytes != size - header.offset:
        raise InputError(
            f"{spot} says shape {header.shape} of {dtype.name}, {header.nbytes} bytes, "
            f"and holds {size - header.offset}",
            "copy it again whole, or save one array per file",
        )
    return header


def refuse_shape(shape: Sequence[int], spot: str) -> None:
    """Raise InputError for a shape without an entry, or one no array can have."""
    if len(shape) > MAX_DEPTH or min(shape, default=1) < 0:
        raise InputError(f"{spot} says its shape is {quote(str(tuple(shape)))}", "save it again")
    if 0 in shape:
        raise InputError(f"{spot} is empty: its shape is {tuple(shape)}", "give it numbers")


def refuse_type(dtype: np.dtype[Any], spot: str) -> None:
    """Raise InputError where the type is neither a number up to 64 bits nor bool."""
    if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize <= 8):
        return
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.fields is None:
        what, hint = "2-byte values without a type, as bfloat16 is saved", _AS_FLOAT32
    else:
        what, hint = _REFUSED.get(dtype.kind, ("structured values", "save each field by itself"))
    raise InputError(f"{spot} holds {what}", hint)


def from_bytes(data: bytearray, header: Header, spot: str) -> npt.NDArray[Any]:
    """The array in the bytes after a header, without a copy where the byte order is native."""
    if len(data) != header.nbytes:  # the file changed since its size was taken
        raise InputError(f"{spot} ends after {len(data)} of {header.nbytes} bytes", "copy it again")
    flat = np.frombuffer(data, header.dtype)
    return native(flat.reshape(header.shape, order="F" if header.fortran else "C"))


def native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array in the machine's byte order; a bool made of 0 and 1 whatever its bytes were."""
    if array.dtype.kind == "b":
        return np.asarray(array.view(np.uint8) != 0)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
