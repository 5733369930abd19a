"""Arrays as they are given: lists, NumPy arrays and other libraries' tensors, as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.errors import ShapeError


def type_name(x: object) -> str:
    """The name of an array's or a tensor's number type, "" where it has none.

    >>> type_name(np.zeros(2, np.float16)), type_name([0.5])
    ('float16', '')
    """
    dtype = getattr(x, "dtype", "")
    return str(getattr(dtype, "name", dtype)).rpartition(".")[2]


def is_small(dtype: str) -> bool:
    """Whether it is a number type that NumPy lacks: bfloat16, or a float of 8 bits or fewer."""
    return dtype.startswith(("bfloat16", "float8_", "float6_", "float4_"))


def on_host(x: Any) -> Any:
    """A tensor as NumPy can read it; anything else as it is.

    One that tracks gradients is detached, one on a device copied to the host, one of a number type
    that NumPy lacks widened, all by its own methods: no other library is imported.
    """
    if isinstance(x, list | tuple):
        return x
    for method in ("detach", "cpu", "resolve_neg"):
        x = getattr(x, method)() if callable(getattr(x, method, None)) else x
    if is_small(type_name(x)) and callable(getattr(x, "float", None)):
        x = x.float()
    if not hasattr(x, "__array__") and hasattr(x, "__dlpack__"):
        x = np.from_dlpack(x)
    return x


def as_numbers(x: npt.ArrayLike, name: str) -> Array:
    """x as an array of numbers: whatever NumPy or DLPack takes, tensors on a device included.

    Raises ShapeError where it is ragged, holds something else than real numbers, or nothing that
    can be read, as a tensor on the meta device does.
    """
    try:
        array = np.asarray(x if isinstance(x, np.ndarray) else on_host(x))
    except ValueError:
        raise ShapeError(f"{name} is ragged", "every row needs the same length") from None
    except (RuntimeError, TypeError) as problem:  # the other library's
        message = f"{name} cannot be read: {str(problem).partition(chr(10))[0]}"
        raise ShapeError(message, "give a dense array with its numbers in memory") from problem
    if array.dtype.kind in "fiub" and array.dtype.isbuiltin < 2:  # 2: of another library
        return array
    if is_small(array.dtype.name):
        return array.astype(np.float32)
    raise ShapeError(f"{name} holds {array.dtype} entries", "it must hold real numbers")
