"""What attncli writes, as bytes."""

from __future__ import annotations

import io

from attncli.files.write import write_npy, write_npz
from attncli.trace import Stage, Trace


def trace_npz(trace: Trace) -> bytes:
    file = io.BytesIO()
    write_npz(trace, file)
    return file.getvalue()


def stage_npy(stage: Stage) -> bytes:
    file = io.BytesIO()
    write_npy(stage, file)
    return file.getvalue()
