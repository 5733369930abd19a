"""read_source: from a SOURCE of any format to FileContents.

SOURCE ── open_source ── Source ── json, npy, table, safetensors ── collected ── FileContents
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import BinaryIO

import numpy as np

from attncli.arrays import Array
from attncli.errors import InputError
from attncli.files.contents import FileContents
from attncli.files.messages import entry_at, location, safe
from attncli.files.roles import is_attended, role_of
from attncli.files.source import KINDS, open_source

# kind of a source → module with `read(source, selector) -> FileContents`, and its libraries
_READERS = {
    "json": "attncli.files.json",
    "npy": "attncli.files.npy",
    "npz": "attncli.files.npy",
    "zip": "attncli.files.npy",
    "table": "attncli.files.table",
    "safetensors": "attncli.files.safetensors",
}


def read_source(
    source: str,
    *,
    stdin: BinaryIO | None = None,
    role: str | None = None,
    selector: Callable[[str], object] = is_attended,
    origin: str = "",
) -> FileContents:
    """Read what a SOURCE holds: the arrays whose names the `selector` takes, or the only one.

    Of a SOURCE (see source.py) `path::name` is one array of several, one part of a saved trace, or
    all arrays called `name.…`. `role` is the role of an array whose name has none; it only
    suppresses the warning about −∞ in a mask. A name of "" asks for one matrix without a name:
    {word: vector} as well. `origin` is what messages call it, where that is not its path.

    Raises InputError where the source cannot be read as arrays, MissingExtraError where that
    needs a package, SizeError where it does not fit into memory.

    >>> read_source("[[1, 0], [0.5, 2]]").arrays[""].tolist()
    [[1.0, 0.0], [0.5, 2.0]]
    """
    with open_source(source, stdin, origin=origin) as opened:
        kind, origin = opened.kind, opened.origin
        if not opened.head:
            raise InputError(f"{origin} is empty", "it should hold arrays")
        if not kind:
            other = f", not {safe(opened.ending)}" if opened.ending else ""
            message = f"{origin} is of no format that attncli reads"
            raise InputError(message, f"it reads {', '.join(KINDS)}{other}")
        loaded: FileContents = import_module(_READERS[kind]).read(opened, selector)
    if loaded.trace is not None:  # its −∞ and NaN are results, shown as such
        return loaded
    remarks = []
    for name, array in loaded.arrays.items():
        with np.errstate(all="ignore"):  # a sum carries NaN and infinity, and needs no second array
            is_doubtful = array.dtype.kind == "f" and not np.isfinite(array.sum())
        if is_doubtful:
            is_mask = (role_of(name) or role) == "mask"
            remarks.append(nonfinite_remark(location(loaded.origin, name), array, is_mask))
    return replace(loaded, warnings=(*loaded.warnings, *filter(None, remarks)))


def nonfinite_remark(place: str, array: Array, is_mask: bool) -> str:
    """A line that counts the NaN and infinities of an array, but for a mask's −∞; "" for none."""
    nan, infinite = np.isnan(array), np.isinf(array)
    if is_mask or (not nan.any() and bool(np.all((array == 0) | (array == -np.inf)))):
        infinite &= array > 0
    counts = [(int(nan.sum()), "NaN"), (int(infinite.sum()), "infinite")]
    text = " and ".join(f"{number} {word}" for number, word in counts if number)
    if not text:
        return ""
    first = np.unravel_index(int(np.argmax(nan | infinite)), array.shape)
    entry = entry_at([int(i) for i in first], array.ndim) if array.ndim else "its only entry"
    return f"{place} holds {text} of {array.size} numbers, the first at {entry}"
