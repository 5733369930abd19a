"""npz: an array for each chosen stage, and the inputs where no stage is named."""

from __future__ import annotations

from typing import BinaryIO

from attncli.files.write import write_npz
from attncli.page.options import DisplayOptions
from attncli.page.select import select
from attncli.trace import Trace


def write(trace: Trace, options: DisplayOptions, file: BinaryIO) -> None:
    """Writes the trace."""
    write_npz(select(trace, options, inputs=not options.stages), file)
