"""Reads csv, tsv and columns of text: one matrix, its row labels and its header; or several.

    weights,the,cat      a header, where a cell of the first line is not a number
    the,0.7,0.3          a row label, where the first column holds no numbers
    cat,0.4,0.6

A header whose corner is empty or the name of a stage shows that the first column holds labels, even
if they look like numbers. Lines that begin with # are comments, unless they are as wide as the
others and numbers but for their label (## begins a word piece).

Several matrices stand below each other, as attncli writes the stages of a computation: each has a
header whose corner names its stage. Those of `weights head 1`, `weights head 2` … are one stage.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, FloatArray
from attncli.budget import check_cells
from attncli.errors import InputError
from attncli.files.contents import FileContents, collected
from attncli.files.json_text import BLANK_HINT, Beyond, decimals_of, number_of
from attncli.files.messages import count, decoded, quote, reason
from attncli.files.source import TEXT, Source, are_numbers
from attncli.formula.numerals import number as read_number
from attncli.stages import HIDDEN, SPECS

LARGE = 1 << 17
"""Bytes from which a table is tried with NumPy's parser first, which is quicker."""

_BLANKS = ""
_SAMPLE = 20  # lines by which the delimiter is chosen: those at the end, where no header is
_DELIMITERS = {".csv": (",", ";"), ".tsv": ("\t",)}
_ANY_DELIMITER = (",", "\t", ";", _BLANKS)
_APART = re.compile(r"\d[ \t]+[-+.\d]")  # two numbers with a blank between them
_FEW = 1 / 3  # of the cells are numbers: in a table with labels and a header most are
_LIKE_A_NUMBER = re.compile(r"#[-+.\d]")
# A spreadsheet may take such a cell for a formula, and so the text after a , or ; in it.
_RISKY = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_SPLITS = re.compile(f"[,;](?=[ '\"]*[{re.escape(''.join(_RISKY))}])")
_ESCAPE = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U000[0-9a-f]{5}|U0010[0-9a-f]{4})")
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}

# Stages by which the corner of a table is known, but those that any column may be called.
_ORDINARY = "x mean deviation angles lengths bias dots cos sin difference shares components"
_STAGES = {name for name, kind in SPECS.items() if kind.role not in HIDDEN} - {*_ORDINARY.split()}

_COST = 8  # cells that one takes while it is a text in a line, a text of its own, and a number


class _Row(NamedTuple):
    line: int
    cells: list[str]


def read(source: Source, selector: Callable[[str], object]) -> FileContents:
    """The matrix of a table, with its labels."""
    origin, data = source.origin, source.read(TEXT)
    delimiters = _DELIMITERS.get(source.ending, _ANY_DELIMITER)
    n_cells = _count_cells(data) if len(data) >= LARGE else 0
    too_many = partial(check_cells, subject=f"{origin} has", hint="save it as npy", unit="cells")
    too_many(n_cells)
    plain = plain_matrix(data, delimiters)
    if plain is not None:
        words = re.split(r"[,;\s]+", data[:LARGE].decode("ascii", "replace"))  # two may be cut
        decimals = {"": decimals_of([*map(number_of, words[1:-1])])}
        return collected(source, selector, {"": lambda: plain}, decimals=decimals)
    too_many(_COST * n_cells)
    text = decoded(data, _MARKS.get(data[:2], "utf-8-sig"), origin)
    if "\0" in text:
        raise InputError(f"{origin} is not text: it holds a null character", "save it as UTF-8")
    is_matlab = ";" in text and "," not in text and _APART.search(text) and are_numbers(text)
    if is_matlab and delimiters is _ANY_DELIMITER:  # 1 2 3; 4 5 6
        text = text.replace(";", "\n")
    rows = _rows(text, delimiters, origin)
    if not rows:
        raise InputError(f"{origin} is empty", "it should hold rows of numbers")
    grid = [[read_cell(cell) for cell in row.cells] for row in rows]
    if len(blocks := _blocks(rows, grid, origin)) > 1:
        readers = {name: partial(_stacked, parts, origin) for name, parts in _by_stage(blocks)}
        decimals = {name: _most_decimals(parts) for name, parts in _by_stage(blocks)}
        return collected(source, selector, readers, decimals=decimals)
    first, corner = rows[0].cells, rows[0].cells[0].strip()
    labelled = len(first) > 1 and not _any_number(values[0] for values in grid[1:] or grid)
    headed = None in grid[0][1 if labelled else 0 :]
    labelled = labelled and (headed or grid[0][0] is None)  # a number there is of the matrix
    remarks = []
    if (not corner or _names_stage(corner)) and len(first) > 1 and len(rows) > 1:
        # as attncli writes it: then labels may look like numbers
        if corner and not (labelled and headed):
            remark = "the first line and column are read as labels, for the corner is"
            remarks = [f"{origin}: {remark} {quote(corner)}"]
        labelled = headed = True
    start, top = (1 if labelled else 0), (1 if headed else 0)
    if headed and not remarks:
        remarks = _as_header(rows[0], grid[0], start, corner, origin)
    return collected(
        source,
        selector,
        {"": partial(_matrix, rows[top:], grid[top:], start, origin)},
        row_labels=tuple(unguarded(row.cells[0]) for row in rows[top:]) if labelled else None,
        column_labels=tuple(map(unguarded, first[start:])) if headed else None,
        corner=corner if headed and _names_stage(corner) else "",
        decimals={"": decimals_of([values[start:] for values in grid[top:]])},
        warnings=remarks,
    )


def _as_header(row: _Row, values: list[Any], start: int, corner: str, origin: str) -> list[str]:
    """The remark that a first line is taken as a header, if its corner does not show it."""
    if start and (not corner or _names_stage(corner)):
        return []
    if _any_number(values):
        column = next(at for at, value in enumerate(values[start:], start) if value is None)
        raise _wrong_cell(row, column, "a number", origin, "a header is text alone")
    return [f"{origin}: line {row.line} is read as a header"]


class _Block(NamedTuple):
    """One of several matrices: its stage and head, as the corner names them, and its rows."""

    corner: str
    rows: list[_Row]
    grid: list[list[Any]]

    @property
    def stage(self) -> str:
        return self.corner.partition(" ")[0]


def _blocks(rows: list[_Row], grid: list[list[Any]], origin: str) -> list[_Block]:
    """The matrices of a table, each from its header on; one where the first line names no stage."""
    blocks = list[_Block]()
    last = rows[0].line
    for row, values in zip(rows, grid, strict=True):
        corner, is_apart = row.cells[0].strip(), row.line > last + 1
        is_header = _names_stage(corner) and (is_apart or not _any_number(values[1:]))
        if not blocks or (is_header and any(row.cells[1:]) and _names_stage(blocks[0].corner)):
            blocks.append(_Block(corner, [], []))
        last = row.line
        blocks[-1].rows.append(row)
        blocks[-1].grid.append(values)
    for block in blocks:
        _check_rows(block.rows, block.grid, origin)
    return blocks


def _by_stage(blocks: list[_Block]) -> list[tuple[str, list[_Block]]]:
    """The matrices of each stage: one, or one a head."""
    stages: dict[str, list[_Block]] = {}
    for block in blocks:
        stages.setdefault(block.stage, []).append(block)
    return [*stages.items()]


def _stacked(parts: list[_Block], origin: str) -> Array:
    """The numbers of a stage: a matrix, or one a head."""
    matrices = [_matrix(x.rows[1:], x.grid[1:], 1, origin) for x in parts]
    if len(matrices) == 1:
        return matrices[0]
    _check_heads(parts, origin)
    return np.stack(matrices)


def _check_heads(parts: list[_Block], origin: str) -> None:
    """InputError where several matrices of one name are not the heads of one stage, in order."""
    first, sizes = parts[0], {(len(x.rows), len(x.rows[0].cells)) for x in parts}
    corners = [f"{first.stage} head {number}" for number in range(1, len(parts) + 1)]
    if [x.corner for x in parts] != corners or len(sizes) > 1:
        line = parts[1].rows[0].line
        message = f"{origin} holds several matrices of {first.stage}, the second from line {line}"
        raise InputError(message, "save one alone with --stage and --head, or all of them as npz")


def _most_decimals(parts: list[_Block]) -> int:
    return max(decimals_of([row[1:] for row in x.grid[1:]]) for x in parts)


def cells_of(source: Source) -> dict[str, Any]:
    """The cells of each stage of a table as they are written, blank ones too; the stage of a table
    that names none is ""."""
    text = decoded(source.read(TEXT), "utf-8-sig", source.origin)
    rows = _rows(text, _DELIMITERS.get(source.ending, _ANY_DELIMITER), source.origin)
    if not rows:
        raise InputError(f"{source.origin} is empty", "it should hold rows of numbers")
    grid = [[read_cell(cell) for cell in row.cells] for row in rows]
    blocks = _blocks(rows, grid, source.origin)
    if len(blocks) == 1 and not _names_stage(blocks[0].corner):
        top = int(not _any_number(grid[0]))
        start = int(not _any_number(values[0] for values in grid[top:]))
        start = start and len(rows[0].cells) > 1
        return {"": [row.cells[start:] for row in rows[top:]]}
    cells: dict[str, Any] = {}
    for name, parts in _by_stage(blocks):
        matrices = [[row.cells[1:] for row in part.rows[1:]] for part in parts]
        if len(parts) > 1:
            _check_heads(parts, source.origin)
        cells[name] = matrices if len(parts) > 1 else matrices[0]
    return cells


def _check_rows(rows: list[_Row], grid: list[list[Any]], origin: str) -> None:
    """Raise InputError for a ragged row."""
    width = len(rows[0].cells)
    for row, values in zip(rows[1:], grid[1:], strict=True):
        if len(values) != width:
            cells = [value for line in grid for value in line]
            if sum(value is not None for value in cells) < len(cells) * _FEW:
                begin = quote(rows[0].cells[0].strip(), 30)
                message = f"{origin} is a text, not rows of numbers: it begins {begin}"
                raise InputError(message, "give a file of numbers: json, npy, npz, csv or tsv")
            message = f"{origin}, line {row.line} has {count(len(values), 'cell')}"
            raise InputError(
                f"{message}, line {rows[0].line} has {width}", "give every row as many"
            )


def _any_number(values: Iterable[object]) -> bool:
    """Whether one of these cells is a number or boolean."""
    return any(value is not None for value in values)


def _count_cells(data: bytes) -> int:
    """How many cells a text has at most, whatever separates them; a blank line is one too."""
    characters = np.frombuffer(data, np.uint8)
    is_blank = characters <= ord(" ")
    words = int(np.count_nonzero(is_blank[:-1] & ~is_blank[1:]))
    return data.count(b"\n") + data.count(b"\r") + max(words, *map(data.count, (b",", b"\t", b";")))


def plain_matrix(data: bytes, delimiters: tuple[str, ...]) -> FloatArray | None:
    """The matrix of a large table of numbers alone, by NumPy; None where it is not plain."""
    if len(data) < LARGE or data[:2] in _MARKS:
        return None
    first = data[:65536].decode("ascii", "replace").partition("\n")[0]
    last = None if _BLANKS in delimiters else delimiters[-1]  # also where there is one column
    delimiter = next((sign for sign in delimiters if sign and sign in first), last)
    lines = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", newline=None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            matrix = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
    except (ValueError, Warning):
        return None
    # an infinity may be a number beyond float64, which is refused by name
    return matrix if matrix.size and not np.isinf(matrix).any() else None


def _names_stage(corner: str) -> bool:
    """Whether a corner is one that attncli writes: `weights`, `encoder.1.scores head 2`."""
    return corner.partition(" ")[0].rpartition(".")[2] in _STAGES


def _matrix(rows: list[_Row], grid: list[list[Any]], start: int, origin: str) -> Array:
    """The numbers from column `start` on; InputError for the first cell that is not one."""
    if not rows:
        raise InputError(f"{origin} holds no number, only a header", "add rows of numbers")
    cell_type = bool if type(grid[0][start]) is bool else float
    for row, values in zip(rows, grid, strict=True):
        for column, value in enumerate(values[start:], start):
            if isinstance(value, cell_type):
                continue
            if isinstance(value, Beyond):
                place = f"{origin}, line {row.line}, column {column + 1}"
                raise InputError(f"{place} is {value}, beyond float64", "the limit is 1.8e308")
            hint = "labels may fill a whole first column, under an empty corner, or the first line"
            expected = "a number" if cell_type is float else "true or false, as before it"
            raise _wrong_cell(row, column, expected, origin, hint)
    return np.array([values[start:] for values in grid], dtype=cell_type)


def _wrong_cell(row: _Row, column: int, expected: str, origin: str, hint: str) -> InputError:
    """The error for a text where something else is expected."""
    cell = row.cells[column]
    description = f"the text {quote(cell)}"
    if not cell.strip():
        description, hint = "an empty cell", BLANK_HINT
    elif "," in cell or ";" in cell:
        hint = "write decimal points, and one kind of separator"
    place = f"{origin}, line {row.line}, column {column + 1}"
    return InputError(f"{place} is {description}, expected {expected}", hint)


def _rows(text: str, delimiters: tuple[str, ...], origin: str) -> list[_Row]:
    """The lines that are neither blank nor a comment, split into cells."""
    lines = re.split("\r\n|\r|\n", text)  # str.splitlines would split labels too
    sample = [line for line in lines if line.strip()][-_SAMPLE:]

    def fits(delimiter: str) -> int:
        """How many lines of the sample end in a number after the delimiter; labels may hold it."""
        return sum(delimiter in line and _ends_in_number(line, delimiter) for line in sample)

    delimiter = max(delimiters, key=fits)  # the first of equals
    if delimiter == _BLANKS:
        rows = [_Row(i, line.split()) for i, line in enumerate(lines, start=1)]
    else:
        rows = _separated(text, delimiter, origin)
    rows = [row for row in rows if any(cell.strip() for cell in row.cells)]
    plain = [row for row in rows if not row.cells[0].startswith("#")] or rows
    has_labels = any(read_cell(row.cells[0]) is None for row in plain)

    def is_row(row: _Row) -> bool:
        """Whether the # of this row begins a label."""
        as_wide = len(row.cells) == len(plain[-1].cells) > 1
        return as_wide and all(read_cell(cell) is not None for cell in row.cells[1:])

    for row in rows if not has_labels else ():
        if row.cells[0].startswith("#") and is_row(row) and _LIKE_A_NUMBER.match(row.cells[0]):
            raise _wrong_cell(row, 0, "a number", origin, "a comment has a blank after its #")
    return [row for row in rows if not row.cells[0].startswith("#") or (has_labels and is_row(row))]


def _separated(text: str, delimiter: str, origin: str) -> list[_Row]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, line = [], 1
    try:
        for cells in reader:
            rows.append(_Row(line, cells))
            line = reader.line_num + 1
    except csv.Error as problem:
        message = f"{origin}, line {line} is not valid: {reason(problem)}"
        raise InputError(message, "check its quotation marks") from problem
    return rows


def _ends_in_number(line: str, delimiter: str) -> bool:
    cells = line.split() if delimiter == _BLANKS else line.rsplit(delimiter, 1)
    return bool(cells) and read_cell(cells[-1].strip('"')) is not None


def read_cell(cell: str) -> float | bool | Beyond | None:
    """The number or boolean in a cell; Beyond where float64 cannot hold it; None for text.

    >>> read_cell(" 1.5 "), read_cell("TRUE"), read_cell("-Infinity"), read_cell("1_0")
    (1.5, True, -inf, None)
    >>> read_cell("1/2")
    0.5
    """
    word = cell.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    try:
        number = number_of(word)
    except ValueError:
        return read_number(cell)
    if "_" in word:  # a number only in Python
        return None
    return float(word) if "inf" in word.lower() else number


def guarded(label: str) -> str:
    """A label as a cell that no spreadsheet runs and no terminal obeys; see `unguarded`.

    An apostrophe is put before what a spreadsheet may take for a formula, and what is not plainly
    visible is written as an escape.

    >>> guarded("=1+1"), guarded("'=1"), guarded("'tis"), guarded("a\\x1b[31m")
    ("'=1+1", "''=1", "'tis", 'a\\\\x1b[31m')
    """
    label = _ESCAPE.sub(lambda match: _escaped("\\") + match[0][1:], label)
    label = _SPLITS.sub(lambda match: _escaped(match[0]), label)
    if not label.isprintable():
        label = "".join(char if char.isprintable() else _escaped(char) for char in label)
    return f"'{label}" if _is_risky(label) else label


def unguarded(cell: str) -> str:
    """The label that `guarded` made a cell of.

    >>> unguarded("'=1+1"), unguarded("''=1"), unguarded("'tis"), unguarded(guarded("a\\x1b"))
    ('=1+1', "'=1", "'tis", 'a\\x1b')
    """
    label = cell[1:] if cell.startswith("'") and _is_risky(cell) else cell
    return _ESCAPE.sub(lambda match: chr(int(match[0][2:], 16)), label)


def _is_risky(label: str) -> bool:
    return label.lstrip("' ").startswith(_RISKY)


def _escaped(char: str) -> str:
    """\\x1b, \\u202e or \\U000e0041: in hexadecimal alone, so that C:\\new is no line break."""
    code = ord(char)
    if code < 256:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
