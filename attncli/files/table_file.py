"""csv, tsv and columns of text in: one matrix, its row labels and its header.

    weights,the,cat      a header, where a cell of the first line is no number
    the,0.7,0.3          a row label, where the first column holds no numbers
    cat,0.4,0.6

A header whose corner is empty or the name of a stage says that the first column holds labels, even
if they look like numbers. Lines that begin with # are comments, unless they are as wide as the
others and numbers but for their label (## begins a word piece).
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.files.blob import Blob
from attncli.files.gather import lone
from attncli.files.loaded import Loaded
from attncli.files.messages import count, quote, reason
from attncli.files.numbers import Beyond
from attncli.files.plain_table import plain_matrix
from attncli.files.table_cells import read_cell, unguarded

_BLANKS = ""
_SAMPLE = 20  # lines that the delimiter is told from
_DELIMITERS = {".csv": (",", ";"), ".tsv": ("\t",)}
_ANY_DELIMITER = (",", "\t", ";", _BLANKS)
_STAGES = (
    *("q", "k", "v", "mask", "scores", "scaled", "capped", "masked", "weights", "dropped"),
    *("output", "tokens", "embeddings", "positions", "input", "heads", "concat", "projected"),
    *("residual", "norm", "hidden", "feed_forward"),
)
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True)
class _Row:
    line: int
    cells: list[str]


def read(blob: Blob, member: str | None) -> Loaded:
    """The matrix of a table, with its labels.

    Raises InputError, with line and column, where rows differ in length or a cell is no number.
    """
    data = blob.read()
    plain = plain_matrix(data, _DELIMITERS.get(blob.ending, _ANY_DELIMITER))
    if plain is not None:
        return lone(blob.origin, member, lambda: plain)
    rows = _rows(_decode(data, blob.origin), blob)
    if not rows:
        raise InputError(f"{blob.origin} is empty", "it should hold rows of numbers")
    _refuse_several(rows, blob.origin)
    first, width = rows[0].cells, len(rows[0].cells)
    uneven = next((row for row in rows if len(row.cells) != width), None)
    if uneven:
        raise InputError(
            f"{blob.origin}, line {uneven.line} has {count(len(uneven.cells), 'cell')}, "
            f"line {rows[0].line} has {width}",
            "give every row as many",
        )
    layout = _layout(rows)
    start = 1 if layout.labelled else 0
    body = rows[1:] if layout.headed else rows
    return lone(
        blob.origin,
        member,
        partial(_matrix, body, start, blob.origin),
        row_labels=tuple(unguarded(row.cells[0]) for row in body) if start else None,
        column_labels=tuple(map(unguarded, first[start:])) if layout.headed else None,
        warnings=(f"{blob.origin}: {layout.remark}",) if layout.remark else (),
    )


@dataclass(frozen=True)
class _Layout:
    """Whether the first line is a header, and the first column labels."""

    headed: bool
    labelled: bool
    remark: str = ""


def _layout(rows: list[_Row]) -> _Layout:
    first = rows[0].cells
    corner, below = first[0].strip(), rows[1:] or rows
    texts_below = [read_cell(row.cells[0]) is None for row in below]
    labelled = len(first) > 1 and all(texts_below)
    texts_beside = [read_cell(cell) is None for cell in first[1 if labelled else 0 :]]
    # as attncli writes it: then labels may look like numbers
    is_corner = not corner or _names_stage(corner)
    if is_corner and len(first) > 1 and len(rows) > 1:
        remark = f"the first line and column are read as labels, for the corner is {quote(corner)}"
        is_clear = not corner or (labelled and any(texts_beside))
        return _Layout(headed=True, labelled=True, remark="" if is_clear else remark)
    return _Layout(headed=any(texts_beside), labelled=labelled)


def _names_stage(corner: str) -> bool:
    """Whether a corner is one that attncli writes: `weights`, `encoder.1.scores head 2`."""
    return corner.partition(" ")[0].rpartition(".")[2] in _STAGES


def _refuse_several(rows: list[_Row], origin: str) -> None:
    """Raise InputError where a second header stands further down, as attncli writes more stages."""
    for row in rows[1:] if _names_stage(rows[0].cells[0]) else ():
        if _names_stage(row.cells[0]) and all(read_cell(cell) is None for cell in row.cells[1:]):
            raise InputError(
                f"{origin} holds several matrices, the second from line {row.line}",
                "save one alone with --stage and --head, or all of them as npz",
            )


def _matrix(rows: list[_Row], start: int, origin: str) -> npt.NDArray[Any]:
    if not rows:
        raise InputError(f"{origin} holds no number, only a header", "add rows of numbers")
    values = [[read_cell(cell) for cell in row.cells[start:]] for row in rows]
    wanted = bool if type(values[0][0]) is bool else float
    for row, numbers in zip(rows, values, strict=True):
        if set(map(type, numbers)) != {wanted}:
            column = next(i for i, cell in enumerate(numbers) if type(cell) is not wanted)
            at = f"{origin}, line {row.line}, column {start + column + 1}"
            raise _odd_cell(row.cells[start + column], numbers[column], wanted, at)
    return np.array(values, dtype=wanted)


def _odd_cell(cell: str, value: object, wanted: type, at: str) -> InputError:
    if isinstance(value, Beyond):
        return InputError(f"{at} is {value}, beyond float64", "the limit is 1.8e308")
    hint = "labels may fill a whole first column, under an empty corner, or the first line"
    if "," in cell or ";" in cell:
        hint = "write decimal points, and one kind of separator"
    found = f"the text {quote(cell)}" if cell.strip() else "an empty cell"
    expected = "a number" if wanted is float else "true or false, as before it"
    return InputError(f"{at} is {found}, expected {expected}", hint)


def _decode(data: bytes, origin: str) -> str:
    encoding = _MARKS.get(data[:2], "utf-8-sig")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as problem:
        raise InputError(
            f"{origin} is not text: byte {problem.start + 1} is not {problem.encoding}",
            "save it as UTF-8",
        ) from problem
    if "\0" in text:
        raise InputError(f"{origin} is not text: it holds a null character", "save it as UTF-8")
    return text


def _rows(text: str, blob: Blob) -> list[_Row]:
    """The lines that are neither blank nor a comment, cut into cells."""
    lines = re.split("\r\n|\r|\n", text)  # str.splitlines would cut labels too
    delimiter = _delimiter(lines, _DELIMITERS.get(blob.ending, _ANY_DELIMITER))
    if delimiter == _BLANKS:
        rows = [_Row(i, line.split()) for i, line in enumerate(lines, start=1)]
    else:
        rows = _separated(text, delimiter, blob.origin)
    rows = [row for row in rows if any(cell.strip() for cell in row.cells)]
    return _without_comments(rows)


def _without_comments(rows: list[_Row]) -> list[_Row]:
    """The rows but those that begin with #, save where that # begins a label."""
    plain = [row for row in rows if not row.cells[0].startswith("#")] or rows
    has_labels = any(read_cell(row.cells[0]) is None for row in plain)

    def is_row(row: _Row) -> bool:
        as_wide = len(row.cells) == len(plain[-1].cells) > 1
        return as_wide and all(read_cell(cell) is not None for cell in row.cells[1:])

    return [row for row in rows if not row.cells[0].startswith("#") or (has_labels and is_row(row))]


def _separated(text: str, delimiter: str, origin: str) -> list[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, line = [], 1
    try:
        for cells in reader:
            rows.append(_Row(line, cells))
            line = reader.line_num + 1
    except csv.Error as problem:
        raise InputError(
            f"{origin}, line {line} is not sound: {reason(problem)}",
            "check its quotation marks",
        ) from problem
    return rows


def _delimiter(lines: list[str], candidates: tuple[str, ...]) -> str:
    """What separates the cells: the candidate that leaves a number at the end of most lines.

    Labels may hold any of them, and stand in the header and at the start of lines.
    """
    sample = [line for line in lines if line.strip()][-_SAMPLE:]

    def fits(delimiter: str) -> int:
        return sum(delimiter in line and _ends_in_number(line, delimiter) for line in sample)

    return max(candidates, key=fits)  # the first of equals


def _ends_in_number(line: str, delimiter: str) -> bool:
    cells = line.split() if delimiter == _BLANKS else line.rsplit(delimiter, 1)
    return bool(cells) and read_cell(cells[-1].strip('"')) is not None
