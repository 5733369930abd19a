"""Reads safetensors by the package of that name; bfloat16 is widened to float32, exactly.

The package checks the header against the size of the file. Its NumPy side knows no bfloat16, so
the bytes of each tensor are taken from it and read here; the whole file is read into memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.errors import InputError, MissingExtraError
from attncli.files.load import Loaded, check_once, collected
from attncli.files.messages import explained, location, quote
from attncli.files.npy import native, refuse_shape
from attncli.files.source import Source

try:
    import safetensors
except ImportError:  # the extra is not installed: an error when a file needs it
    safetensors = None  # type: ignore[assignment]

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "<i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "<u1",
}  # fmt: skip


def read(source: Source, wanted: Callable[[str], object]) -> Loaded:
    """The tensors of a safetensors file, or the one that `::name` asked for.

    Raises MissingExtraError without the package, InputError where the file is damaged or a tensor
    that is needed has a type attncli does not read.
    """
    if safetensors is None:
        raise MissingExtraError(
            f"{source.origin} needs the package safetensors", "pip install 'attncli[safetensors]'"
        )
    with explained(f"{source.origin} is not a valid safetensors file", "copy it again"):
        data = source.read(2)  # itself, and its tensors
        tensors = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    named = sorted(tensors, key=lambda item: str(item[0]))
    origin = source.origin
    check_once((name for name, _ in named), origin)
    return collected(
        source,
        wanted,
        {name: partial(_array, tensor, location(origin, name)) for name, tensor in named},
    )


def _array(tensor: dict[str, Any], where: str) -> Array:
    code = tensor["dtype"]
    if code not in _DTYPES:
        raise InputError(
            f"{where} has the type {quote(code)}", "save it as F32 (in PyTorch: t.float())"
        )
    refuse_shape(tensor["shape"], where)
    array = native(np.frombuffer(tensor["data"], _DTYPES[code]).reshape(tensor["shape"]))
    if code != "BF16":
        return array
    # bfloat16 is the upper half of a float32
    return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
