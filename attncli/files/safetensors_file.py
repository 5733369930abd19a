"""safetensors in, by the package of that name; bfloat16 is widened to float32, exactly.

The package checks the header against the size of the file. Its NumPy side knows no bfloat16, so
the bytes of each tensor are taken from it and read here; the whole file is read into memory.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError, MissingExtraError
from attncli.files.blob import Blob
from attncli.files.gather import Gathering
from attncli.files.loaded import Loaded
from attncli.files.messages import location, quote, reason
from attncli.files.npy_file import native, refuse_shape

try:
    import safetensors
except ImportError:  # the extra is not installed; said when a file needs it
    safetensors = None  # type: ignore[assignment]

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "<i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "<u1",
    "BOOL": "?",
}


def read(blob: Blob, member: str | None) -> Loaded:
    """The tensors of a safetensors file, or the one that `::name` asked for.

    Raises MissingExtraError without the package, InputError where the file is damaged or a tensor
    that is needed has a type attncli does not read.
    """
    if safetensors is None:
        raise MissingExtraError(
            f"{blob.origin} needs the package safetensors", "pip install 'attncli[safetensors]'"
        )
    try:
        tensors = safetensors.deserialize(blob.read())  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as problem:
        raise InputError(
            f"{blob.origin} is not a sound safetensors file: {reason(problem)}", "copy it again"
        ) from problem
    gathering = Gathering(blob.origin, member)
    for name, tensor in sorted(tensors, key=lambda named: str(named[0])):
        gathering.add(name, partial(_array, tensor, location(blob.origin, name)))
    return gathering.done()


def _array(tensor: dict[str, Any], spot: str) -> npt.NDArray[Any]:
    code = tensor["dtype"]
    if code not in _DTYPES:
        raise InputError(
            f"{spot} has the type {quote(code)}", "save it as F32 (in PyTorch: t.float())"
        )
    refuse_shape(tensor["shape"], spot)
    array = native(np.frombuffer(tensor["data"], _DTYPES[code]).reshape(tensor["shape"]))
    return _widened(array) if code == "BF16" else array


def _widened(halves: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """bfloat16 is the upper half of a float32."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)
