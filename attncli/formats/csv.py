"""Comma-separated values: every chosen number, for spreadsheets and scripts.

Each matrix has a header row of its name and column labels, then a row for each label and its
numbers; a blank line separates matrices. Nothing is left out or added, and nothing is rounded
unless decimals are asked for.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from attncli.files.numbers import nan_to_text
from attncli.files.table import guarded
from attncli.page.matrix import NUMERIC
from attncli.page.numbers import style_of
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.places import Place, places_of
from attncli.page.select import Block, blocks_of, check_written, select
from attncli.trace import Trace

AT_ONCE = 1 << 16
"""Fields of a row that are made at once: a few megabytes, however long it is."""


def text(
    trace: Trace, options: DisplayOptions, page: Page = parts, delimiter: str = ","
) -> Iterator[str]:
    """The chosen stages as delimited text, some fields of a row at a time."""
    cut = select(trace, options)
    check_written(sum(stage.value.size for _, stage in cut.stages()))
    places = (
        (block, place)
        for block in blocks_of(cut)
        for stage in block.stages.values()
        for place in places_of(block, [stage], DisplayOptions(full=True))[0]
    )
    written = io.StringIO()
    writer = csv.writer(written, delimiter=delimiter, lineterminator="\n")
    for at, (block, place) in enumerate(places):
        for row in chain([[]] if at else [], _rows(block, place, options)):
            fields, before = iter(row), ""
            while some := [*islice(fields, AT_ONCE)]:
                writer.writerow(some)
                yield before + written.getvalue().removesuffix("\n")
                before = delimiter
                written.seek(0)
                written.truncate()
            yield "\n"


def _rows(block: Block, place: Place, options: DisplayOptions) -> Iterator[Iterable[str]]:
    stage, title = place.stage, " ".join([f"{block.prefix}{place.stage.name}", *place.names])
    if stage.value.ndim >= 2:
        labels, columns = (stage.names(axis) for axis in stage.axes[-2:])
    else:
        labels, columns = (stage.symbol,), stage.names(stage.axes[0]) if stage.axes else ("",)
    yield chain([guarded(title)], map(guarded, columns))
    matrix = block.matrix(stage, place.where)
    is_rounded = options.rounded and matrix.dtype.kind in NUMERIC
    rounded = style_of(matrix, options.precision).write if is_rounded else repr
    for label, values in zip(labels, matrix, strict=True):
        is_plain = values.dtype.kind == "f" and np.isfinite(values).all()
        write = rounded if is_plain else partial(_value, write=rounded)
        parts = (values[at : at + AT_ONCE].tolist() for at in range(0, len(values), AT_ONCE))
        yield chain([guarded(label)], map(write, chain.from_iterable(parts)))


def _value(x: Any, write: Callable[[Any], str]) -> str:
    """A number as it is written; NaN and infinity by name, truth as true and false."""
    if isinstance(x, str):
        return guarded(x)
    number = nan_to_text(x)
    if isinstance(number, str):
        return number
    return repr(x) if isinstance(x, bool) else write(number)
