"""npz: an array for each chosen stage, and the inputs where no stage is named."""

from __future__ import annotations

from typing import BinaryIO

from attncli.files.write import write_npz
from attncli.trace import Trace
from attncli.views.select import Showing, select


def write(trace: Trace, showing: Showing, file: BinaryIO) -> None:
    """Writes the trace."""
    write_npz(select(trace, showing, inputs=not showing.stages), file)
