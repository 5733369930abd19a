"""JSON: the chosen stages with every number, and the inputs where no stage is named."""

from __future__ import annotations

from collections.abc import Iterator

from attncli.files.write import trace_json
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.select import check_written, select
from attncli.trace import Trace


def text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The trace as a document, piece by piece. Raises SizeError too."""
    cut = select(trace, options, inputs=not options.stages)
    check_written(sum(stage.value.size for _, stage in cut.stages()))
    yield from trace_json(cut)
