"""Array files in and out: JSON, npy, npz, csv/tsv, safetensors, and saved traces.

    SOURCE ── blob (where, which format) ── *_file (how to read it) ── Loaded ── pick / only (role)
    Trace, Stage ── trace_file / save ── write_atomically ── a file

Nothing here prints: problems are raised, remarks are `Loaded.warnings`. The modules that read and
write one format are imported when one is met, so that a small JSON costs no zipfile and no csv.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attncli.files.load import load
from attncli.files.loaded import Loaded
from attncli.files.roles import Role, only, pick

if TYPE_CHECKING:
    from attncli.files.save import (
        stage_npy,
        trace_json,
        trace_npz,
        write_atomically,
        write_bytes_atomically,
        write_npy,
        write_npz,
    )
    from attncli.files.trace_file import trace_from_dict, trace_to_dict

__all__ = [
    "Loaded",
    "Role",
    "load",
    "only",
    "pick",
    "stage_npy",
    "trace_from_dict",
    "trace_json",
    "trace_npz",
    "trace_to_dict",
    "write_atomically",
    "write_bytes_atomically",
    "write_npy",
    "write_npz",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "trace_file" if name in ("trace_from_dict", "trace_to_dict") else "save"
    return getattr(import_module(f"attncli.files.{module}"), name)
