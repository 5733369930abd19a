"""load: from a SOURCE to Loaded, whatever the format."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import BinaryIO

from attncli.errors import AttncliError, InputError, SizeError
from attncli.files.blob import find
from attncli.files.loaded import Loaded, nonfinite_remark
from attncli.files.messages import location, reason
from attncli.files.roles import Role, role_of


def load(source: str, *, stdin: BinaryIO | None = None, role: Role | None = None) -> Loaded:
    """Read what a SOURCE holds.

    A SOURCE is a path, `path::name` for one array in a file that holds several (or one part of a
    saved trace), `-` or `-::name` for standard input, or an inline JSON literal: it begins with [.
    `role` says what an array without a telling name is for; it only silences the remark on −∞
    in a mask.

    Raises InputError where the source cannot be read as arrays, MissingExtraError where that
    needs a package, SizeError where it does not fit into memory.

    >>> load("[[1, 0], [0.5, 2]]").arrays[""].tolist()
    [[1.0, 0.0], [0.5, 2.0]]
    """
    blob, member = find(source, stdin)
    # imported here, by name: each format brings its own libraries, and start-up time is counted
    reader = import_module(f"attncli.files.{blob.kind}_file")
    try:
        found: Loaded = reader.read(blob, member)
    except AttncliError:
        raise
    except MemoryError as problem:
        raise SizeError(f"{blob.origin} does not fit into memory") from problem
    except OSError as problem:
        raise InputError(
            f"{blob.origin} cannot be read: {problem.strerror or reason(problem)}"
        ) from problem
    return replace(found, warnings=found.warnings + _remarks(found, role))


def _remarks(loaded: Loaded, role: Role | None) -> tuple[str, ...]:
    if loaded.trace is not None:  # its −∞ and NaN are results, shown as such
        return ()
    remarks = (
        nonfinite_remark(
            location(loaded.origin, name), array, is_mask=(role_of(name) or role) == "mask"
        )
        for name, array in loaded.arrays.items()
    )
    return tuple(remark for remark in remarks if remark)
