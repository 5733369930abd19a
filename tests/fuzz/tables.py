"""A second reading of csv, tsv and columns of text."""

from __future__ import annotations

import csv
import io
import math
import re

import numpy as np

from .reading import STAGE_NAMES, Reading, RefusalError


def table_readings(data: bytes, ending: str) -> list[Reading]:
    """The matrix, with each separator that can be meant."""
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    found, reason = [], Exception("no separator fits")
    for delimiter in {".csv": ",;", ".tsv": "\t"}.get(ending, ",\t; "):
        try:
            found.append(_table(text, delimiter))
        except Exception as problem:
            reason = problem
    if not found:
        raise reason
    return found


def _table(text: str, delimiter: str) -> Reading:
    if delimiter == " ":
        rows = [line.split() for line in re.split("\r\n|\r|\n", text)]
    else:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    plain = [row for row in rows if not row[0].startswith("#")] or rows
    has_labels = any(_cell(row[0]) is None for row in plain)  # then ##ing may be one too
    width = len(plain[-1])
    rows = [r for r in rows if not r[0].startswith("#") or (has_labels and _is_label(r, width))]
    if len({len(row) for row in rows}) != 1:
        raise RefusalError("rows differ in length")
    corner = rows[0][0].strip()
    is_written = not corner or corner.partition(" ")[0].rpartition(".")[2] in STAGE_NAMES
    for top in (1, 0):
        for left in (1, 0):
            body = [[_cell(cell) for cell in row[left:]] for row in rows[top:]]
            kinds = {type(cell) for row in body for cell in row}
            texts = [row[0] for row in rows[top:]] * left + rows[0] * top
            if kinds not in ({float}, {bool}) or not body[0]:
                continue
            if (is_written and top and left) or not any(_cell(text) is not None for text in texts):
                labels = {"rows": [_unguarded(row[0]) for row in rows[top:]]} if left else {}
                return Reading({"": np.array(body)}, labels=labels)
    raise RefusalError("a text among numbers")


def _is_label(row: list[str], width: int) -> bool:
    """Whether a row that begins with # is as wide as the others, and numbers but for that."""
    return len(row) == width > 1 and all(_cell(cell) is not None for cell in row[1:])


def _cell(cell: str) -> float | bool | None:
    """The number, true or false in a cell; None for a text, RefusalError beyond float64."""
    word = cell.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    try:
        number = float(word)
    except ValueError:
        return None
    if math.isinf(number) and "inf" not in word:
        raise RefusalError("beyond float64")
    return None if "_" in word else number


def _unguarded(label: str) -> str:
    """A label without the apostrophe that keeps a spreadsheet from taking it for a formula."""
    return re.sub(r"^'(?='*[-=+@\t\r])", "", label)
