"""Reads safetensors by the package of that name; bfloat16 is widened to float32, exactly.

The package checks the header against the size of the file. Its NumPy side knows no bfloat16, so
the bytes of a tensor are found here by that header; of a file on disk, only those asked for are
read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.budget import check_bytes
from attncli.errors import InputError, MissingExtraError
from attncli.files.fields import NESTED, is_field
from attncli.files.json import parse
from attncli.files.load import Loaded, check_once, collected, part_of, popped_fields, within_name
from attncli.files.messages import explained, location, quote
from attncli.files.npy import native, refuse_shape
from attncli.files.source import Source

try:
    import safetensors
except ImportError:  # the extra is not installed: an error when a file needs it
    safetensors = None  # type: ignore[assignment]

DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1",
}  # fmt: skip

_HEADER = 20  # bytes of memory for each byte of the header, parsed twice


def read(source: Source, wanted: Callable[[str], object]) -> Loaded:
    """The tensors of a safetensors file that are wanted, or the one that `::name` asked for.

    Raises MissingExtraError without the package, InputError where the file is damaged or a tensor
    that is needed has a type attncli does not read.
    """
    origin, n_header = source.origin, int.from_bytes(source.head[:8], "little")
    if safetensors is None:
        raise MissingExtraError(
            f"{origin} needs the package safetensors", "pip install 'attncli[safetensors]'"
        )
    content = b"" if source.path else source.read(2)  # itself, and the copies that the check makes
    n_header = min(n_header, source.size or len(content))
    check_bytes(_HEADER * n_header, f"the header of {origin} takes")
    with explained(f"{origin} is not a valid safetensors file", "copy it again"):
        if source.path:
            safetensors.safe_open(source.path, "np")
        else:
            safetensors.deserialize(content)  # type: ignore[no-untyped-call]
    data: Array = np.frombuffer(content, np.uint8)
    if source.path:
        data = np.memmap(source.path, np.uint8, "r")
    tensors = parse(data[8 : 8 + n_header].tobytes(), origin)  # refuses a name that is there twice
    metadata = tensors.pop("__metadata__", None) or {}
    source = within_name(tensors, source)
    tensors, own = part_of(tensors, source)
    if own is not source:
        (metadata, _), source = part_of(metadata, source), own
    check_once([*tensors, *(name for name in metadata if is_field(name))], origin)
    fields = popped_fields(metadata, wanted, source.name)
    if "scale" in metadata and wanted(NESTED):
        fields["scale"] = metadata["scale"]
    read_one = partial(_array, data[8 + n_header :])
    for name, tensor in popped_fields(tensors, wanted, source.name).items():
        fields[name] = read_one(tensor, location(origin, name)).tolist()
    readers = {
        name: partial(read_one, tensors[name], location(origin, name)) for name in sorted(tensors)
    }
    return collected(source, wanted, readers, fields=fields)


def _array(data: Array, tensor: dict[str, Any], where: str) -> Array:
    code, shape = tensor["dtype"], tensor["shape"]
    if code not in DTYPES:
        raise InputError(
            f"{where} has the type {quote(code)}", "save it as F32 (in PyTorch: t.float())"
        )
    refuse_shape(shape, where)
    start, end = tensor["data_offsets"]
    array = native(data[start:end].view(DTYPES[code]).reshape(shape))
    if code != "BF16":
        return array
    # bfloat16 is the upper half of a float32
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
