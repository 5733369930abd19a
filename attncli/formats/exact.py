"""The exact numbers of a trace: as json, csv, tsv, npz and npy.

Every chosen number is there, none is added, and none is rounded unless decimals of csv or tsv are
asked for. json and npz hold the inputs too where no stage is named. A worksheet holds the inputs,
and null or an empty cell where a number is to be written.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO

import numpy as np

from attncli.errors import ConventionError
from attncli.files.numbers import nan_to_text
from attncli.files.write import document_json, trace_json, write_npy, write_npz
from attncli.page.matrix import NUMERIC
from attncli.page.numbers import style_of
from attncli.page.options import DisplayOptions
from attncli.page.page import Page, parts
from attncli.page.places import Place, places_of
from attncli.page.select import BlankStage, Block, blocks_of, check_written, has_blanks, select
from attncli.page.walk import ENDS, QueryTable
from attncli.trace import Trace

AT_ONCE = 1 << 16
"""Fields of a row that are made at once: a few megabytes, however long it is."""


def json_text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The trace as a document, piece by piece; a worksheet as one to be filled in. Raises SizeError
    too."""
    if has_blanks(trace):
        from attncli.formats.answers import answer_sheet

        yield from document_json(answer_sheet(trace, options))
        return
    cut = select(trace, options, inputs=not options.stages)
    check_written(sum(stage.value.size for _, stage in cut.stages()))
    yield from trace_json(cut)


def npz_file(trace: Trace, options: DisplayOptions, file: BinaryIO) -> None:
    """Writes an array for each stage."""
    write_npz(select(trace, options, inputs=not options.stages), file)


def npy_file(trace: Trace, options: DisplayOptions, file: BinaryIO) -> None:
    """Writes the array of one stage, the chosen one or else the last, which is the output.

    Raises ConventionError too, for several stages.
    """
    stages = list(select(trace, options).stages())
    if options.stages and len(stages) != 1:
        names = ", ".join(name for name, _ in stages)
        raise ConventionError(f"npy holds one stage, not {names}", "name one --stage, or use npz")
    write_npy(stages[-1][1], file)


def tsv_text(trace: Trace, options: DisplayOptions, page: Page = parts) -> Iterator[str]:
    """The same as csv, separated by tabs."""
    yield from csv_text(trace, options, page, delimiter="\t")


def csv_text(
    trace: Trace, options: DisplayOptions, page: Page = parts, delimiter: str = ","
) -> Iterator[str]:
    """The chosen stages as delimited text, some fields of a row at a time.

    Each matrix has a header row of its name and column labels, then a row for each label and its
    numbers; a blank line separates matrices.
    """
    import csv

    if has_blanks(trace):
        from attncli.formats.answers import answer_tables

        trace = answer_tables(trace)
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
    from attncli.files.table import guarded

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
        write: Callable[[Any], str] = rounded if is_plain else partial(_value, write=rounded)
        is_end = isinstance(stage, QueryTable) and label in ENDS
        write = _blank if is_end or isinstance(stage, BlankStage) else write
        write = guarded if values.dtype.kind == "U" else write
        parts = (values[at : at + AT_ONCE].tolist() for at in range(0, len(values), AT_ONCE))
        yield chain([guarded(label)], map(write, chain.from_iterable(parts)))


def _blank(x: float) -> str:
    """An empty cell to be filled in, or the −∞ of a mask."""
    return "" if np.isnan(x) else str(nan_to_text(x))


def _value(x: Any, write: Callable[[Any], str]) -> str:
    """A number as it is written; NaN and infinity by name, truth as true and false."""
    number = nan_to_text(x)
    if isinstance(number, str):
        return number
    return repr(x) if isinstance(x, bool) else write(number)
