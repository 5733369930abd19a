"""Comma- or tab-separated values: every chosen number in full, for spreadsheets and scripts.

Each matrix has a header row of its name and column labels, then a row for each label and its
numbers; a blank line separates matrices. Nothing is rounded, left out or added.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from attncli.files.numbers import nan_to_text
from attncli.files.table import guarded
from attncli.trace import Stage, Trace
from attncli.views.places import Level, Place, levels
from attncli.views.safe import clean
from attncli.views.showing import Showing, select
from attncli.views.tour import tour


def delimited(trace: Trace, showing: Showing, delimiter: str = ",") -> Iterator[str]:
    """The chosen stages as delimited text, line by line.

    Raises StageError or ShapeError for what is asked for and not there.
    """
    blank = False
    for level in levels(select(trace, showing)):
        for stage in level.stages.values():
            for stop in tour(level, [stage], Showing(full=True)).stops:
                if blank:
                    yield ""
                blank = True
                title = " ".join([f"{level.prefix}{stage.name}", *stop.names])
                for row in _rows(level, stage, stop.place, title):
                    yield _line(row, delimiter)


def _rows(level: Level, stage: Stage, place: Place, title: str) -> Iterator[list[str]]:
    matrix = level.matrix(stage, place)
    if stage.value.ndim >= 2:
        labels, columns = (stage.names(axis) for axis in stage.axes[-2:])
    else:
        labels, columns = (stage.symbol,), stage.names(stage.axes[0]) if stage.axes else ("",)
    yield [cell(title), *map(cell, columns)]
    for label, values in zip(labels, matrix, strict=True):
        yield [cell(label), *map(_value, values.tolist())]


def _line(row: list[str], delimiter: str) -> str:
    line = io.StringIO()
    csv.writer(line, delimiter=delimiter, lineterminator="").writerow(row)
    return line.getvalue()


def _value(x: Any) -> str:
    """A number that reads back as itself; NaN and infinity by name."""
    if isinstance(x, str):
        return cell(x)
    number = nan_to_text(x)
    return number if isinstance(number, str) else repr(number)


def cell(label: str) -> str:
    """A label that no spreadsheet runs and no terminal obeys.

    >>> cell("=1+1"), cell("the")
    ("'=1+1", 'the')
    """
    return clean(guarded(label))
