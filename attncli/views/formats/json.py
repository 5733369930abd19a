"""JSON: the chosen stages with every number, and the inputs where no stage is named."""

from __future__ import annotations

from collections.abc import Iterator

from attncli.errors import SizeError
from attncli.files.write import trace_json
from attncli.trace import Trace
from attncli.views.page import Page, parts
from attncli.views.select import Showing, select

MOST_NUMBERS = 50_000_000  # 20 bytes each: 1 GB of text


def text(trace: Trace, showing: Showing, page: Page = parts) -> Iterator[str]:
    """The trace as a document, piece by piece. Raises SizeError too."""
    cut = select(trace, showing, inputs=not showing.stages)
    check_size(sum(stage.value.size for _, stage in cut.stages()))
    yield from trace_json(cut)


def check_size(count: int) -> None:
    """SizeError for a document of so many numbers."""
    if count > MOST_NUMBERS:
        raise SizeError(
            f"JSON of {count / 1e6:.0f} million numbers is slow to write and to read",
            "use --format npz, or choose some with --stage, --head or --rows",
        )
