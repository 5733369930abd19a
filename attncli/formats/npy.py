"""npy: the array of one stage, the chosen one or else the last, which is the output."""

from __future__ import annotations

from typing import BinaryIO

from attncli.errors import ConventionError
from attncli.files.write import write_npy
from attncli.page.options import DisplayOptions
from attncli.page.select import select
from attncli.trace import Trace


def write(trace: Trace, options: DisplayOptions, file: BinaryIO) -> None:
    """Writes the stage. Raises ConventionError too, for several stages."""
    stages = list(select(trace, options).stages())
    if options.stages and len(stages) != 1:
        names = ", ".join(name for name, _ in stages)
        raise ConventionError(f"npy holds one stage, not {names}", "name one --stage, or use npz")
    write_npy(stages[-1][1], file)
