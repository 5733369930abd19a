"""Writes arrays and texts by dotted names to one npz or safetensors file."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import BinaryIO

import numpy as np

from attncli.arrays import Array
from attncli.errors import MissingExtraError, OutputError
from attncli.files.messages import safe
from attncli.files.write import REPLACE, check_target, write_arrays, write_atomically

Entries = Iterable[tuple[str, Array | str]]


def write_dump(path: str, entries: Entries, *, force: bool, hint: str = REPLACE) -> None:
    """Writes arrays, and texts beside them, to a file whose ending says its format."""
    check_dump(path, force=force, hint=hint)
    is_npz = path.lower().endswith(".npz")
    arrays = ((name, np.asarray(entry)) for name, entry in entries)
    write = partial(write_arrays, arrays) if is_npz else partial(_write_safetensors, entries)
    write_atomically(path, write, force=force, hint=hint)


def check_dump(path: str, *, force: bool, hint: str = REPLACE) -> None:
    """OutputError where nothing can be written to this path, before it is known what."""
    if not path.lower().endswith((".npz", ".safetensors")):
        raise OutputError(f"{safe(path)} is neither npz nor safetensors", "end it in .npz")
    check_target(path, force=force, hint=hint)


def _write_safetensors(entries: Entries, file: BinaryIO) -> None:
    try:
        from safetensors.numpy import save
    except ImportError:
        needs = "writing safetensors needs the package safetensors"
        raise MissingExtraError(needs, "pip install 'attncli[safetensors]'") from None
    named = dict(entries)
    texts = {name: x for name, x in named.items() if isinstance(x, str)}
    arrays = {n: np.ascontiguousarray(x) for n, x in named.items() if n not in texts}
    file.write(save(arrays, texts))
