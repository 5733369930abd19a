"""Reads safetensors; bfloat16 is widened to float32, exactly.

A file is opened once: its header is checked against its size, and of its tensors those asked for
are read, or mapped where they are more than is allowed. What is cut meanwhile is an error.

Source: https://github.com/huggingface/safetensors, "Format".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from pydantic import BaseModel, StrictInt, StrictStr, TypeAdapter, ValidationError

from attncli.arrays import Array
from attncli.budget import check_bytes
from attncli.errors import InputError
from attncli.files.contents import FileContents, collected, part_of, popped_fields, within_name
from attncli.files.json_text import parse
from attncli.files.messages import location, quote
from attncli.files.npy import is_too_large, native, refuse_shape
from attncli.files.roles import NESTED, is_field
from attncli.files.source import Source

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1",
}  # fmt: skip

_HEADER = 20  # bytes of memory for each byte of the header, parsed twice


def read(source: Source, wanted: Callable[[str], object]) -> FileContents:
    """The tensors of a safetensors file that are wanted, or the one that `::name` asked for."""
    source, origin = source.in_memory(), source.origin
    size, n_header = source.size or 0, int.from_bytes(source.head[:8], "little")
    damaged = InputError(f"{origin} is not a valid safetensors file", "copy it again")
    if not len(b"{}") <= n_header <= size - 8:
        raise damaged
    check_bytes(_HEADER * n_header, f"the header of {origin} takes")
    header = _bytes(source, 8, n_header, origin).tobytes()
    tensors = parse(header, origin)  # refuses a name that is there twice
    metadata = (tensors.pop("__metadata__", None) or {}) if isinstance(tensors, dict) else None
    if not isinstance(metadata, dict) or not _are_whole(tensors, size - 8 - n_header):
        raise damaged
    read_one = partial(_array, source, 8 + n_header)
    source = within_name(tensors, source)
    tensors, own = part_of(tensors, source)
    if own is not source:
        (metadata, _), source = part_of(metadata, source), own
    texts = {name: text for name, text in metadata.items() if is_field(name)}
    fields = popped_fields(texts, source, wanted, beside=tensors)
    scales = {name: text for name, text in metadata.items() if name.lower() == "scale"}
    popped_fields(scales, source, wanted)  # refuses two
    if scales and wanted(NESTED):
        fields["scale"] = next(iter(scales.values()))
    for name, tensor in popped_fields(tensors, source, wanted).items():
        fields[name] = read_one(tensor, location(origin, name)).tolist()
    readers = {
        name: partial(read_one, tensors[name], location(origin, name)) for name in sorted(tensors)
    }
    return collected(source, wanted, readers, fields=fields)


class _Tensor(BaseModel):
    dtype: StrictStr
    shape: list[StrictInt]
    data_offsets: tuple[StrictInt, StrictInt]

    @property
    def is_whole(self) -> bool:
        """Whether it has as many bytes as its numbers take, as far as their type is known."""
        (start, end), code = self.data_offsets, DTYPES.get(self.dtype)
        return code is None or end - start == math.prod(self.shape) * np.dtype(code).itemsize


def _are_whole(document: object, n_bytes: int) -> bool:
    """Whether tensors of the sizes that they declare follow one another, and are all there is."""
    try:
        tensors = TypeAdapter(dict[str, _Tensor]).validate_python(document).values()
    except ValidationError:
        return False
    ends = [0, *chain(*sorted(tensor.data_offsets for tensor in tensors)), n_bytes]
    return ends[::2] == ends[1::2] and all(tensor.is_whole for tensor in tensors)


def _bytes(source: Source, start: int, count: int, where: str) -> Array:
    """These bytes of a file: in memory, or mapped where that is not allowed."""
    if source.path and is_too_large(count):
        return np.memmap(source.file, np.uint8, "r", start, (count,))
    data = np.empty(count, np.uint8)
    source.file.seek(start)
    at = 0
    while at < count and (n_read := source.file.readinto(data[at:])):
        at += n_read
    if at < count:
        raise InputError(f"{where} was cut while it was read", "copy it again")
    return data


def _array(source: Source, begin: int, tensor: dict[str, Any], where: str) -> Array:
    code, shape = tensor["dtype"], tensor["shape"]
    if code not in DTYPES:
        hint = "save it as F32 (in PyTorch: t.float())"
        raise InputError(f"{where} has the type {quote(code)}", hint)
    refuse_shape(shape, where)
    start, end = tensor["data_offsets"]
    data = _bytes(source, begin + start, end - start, where)
    array = native(data.view(DTYPES[code]).reshape(shape))
    if code != "BF16":
        return array
    # bfloat16 is the upper half of a float32
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
