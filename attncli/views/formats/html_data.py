"""What the script of a page needs beyond its markup, deflated and in base64.

meta     JSON: each section's rows and columns, what its cells were computed from, their arithmetic,
         and which matrix is which head's
numbers  float32, every number of the tables, section by section
maps     the weights of every head, for the overview: float32, or as they are rounded in tables

Bytes of numbers are sorted by their place in the number, which deflates better.
"""

from __future__ import annotations

import csv
import io
import json
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.files.table import guarded
from attncli.trace import Stage, Trace
from attncli.views.cell import Entry
from attncli.views.derivation import TERMS
from attncli.views.formats.colours import STEPS, css
from attncli.views.formats.latex import array
from attncli.views.formats.markdown import escape
from attncli.views.matrix import NUMERIC, OVERVIEW, Grid, Matrix
from attncli.views.numbers import style_of
from attncli.views.reads import reads_of
from attncli.views.select import BlankStage, Block, DisplayOptions, Index, blocks_of, chosen
from attncli.views.text import captions, clean
from attncli.views.words import equation
from attncli.views.work import at_length

WORKED = 4_000  # cells whose arithmetic is in the page: some 0.1 ms and 30 bytes each
WORKED_OF_ONE = 800  # where the tables are those of one head beside the weights of many
FEW = 30_000  # weights up to which the overview is exact: 5 bytes each, rounded 2
LABEL = 40  # cells of a label
MASKED = 0xFFFF  # among rounded weights


class Section(NamedTuple):
    """A matrix of the page: its element, and what of it is shown."""

    id: str
    matrix: Matrix
    grid: Grid

    @property
    def lines(self) -> tuple[list[int], list[int]]:
        """The rows and columns shown, without gaps and sums."""
        rows, columns = ([at for at in kept if at is not None] for kept in self.grid[:2])
        return rows, columns

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Row and column of every cell shown."""
        return [*product(*self.lines)]


def first_place(trace: Trace, options: DisplayOptions) -> DisplayOptions:
    """The same for the first head, batch entry and layer alone, where there are several."""
    sizes = [(block.n_heads, block.sizes["batch"]) for block in blocks_of(trace)]
    n_heads, n_entries = (max(found, default=0) for found in zip(*sizes, strict=True))
    head = 0 if options.head is None and n_heads > 1 else options.head
    batch = 0 if options.batch is None and n_entries > 1 else options.batch
    return replace(options, head=head, batch=batch, every=False)


def packed(
    trace: Trace, options: DisplayOptions, sections: Sequence[Section], *, every: bool
) -> Iterator[str]:
    """The elements that hold the data of a page with these sections, of every head or of one."""
    shown_stages = {id(section.matrix.stage) for section in sections}
    found = list(_weights(trace, options))
    if not any(id(block.weights) in shown_stages for block, _, _ in found):
        found = []  # the page is about something else
    maps, weights = _maps(found, options.precision)
    shown = [_shown(section) for section in sections]
    sizes = [len(numbers) for numbers in shown]
    starts = np.cumsum([0, *sizes]).tolist()
    ids = {_key(s.matrix.block, s.matrix.stage, s.matrix.where): s.id for s in sections}
    described = {section.id: _section(section, ids) for section in sections}
    _add_arithmetic(sections, described, WORKED if every else WORKED_OF_ONE)
    for start, size, of in zip(starts, sizes, described.values(), strict=False):
        of["start"] = start if size else None
    meta = {"sections": described, "escaped": _escaped(sections), "maps": maps}
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite
        numbers = np.concatenate([*shown, np.zeros(0)]).astype("<f4")
    text = json.dumps(meta, ensure_ascii=False, separators=(",", ":"))
    yield _element("meta", text.encode("utf-8", "surrogatepass"))
    yield _element("numbers", _planes(numbers))
    yield _element("maps", _planes(weights))


def _element(name: str, content: bytes) -> str:
    data = b64encode(zlib.compress(content, 6)).decode()
    return f'<script type="application/octet-stream" id="{name}">{data}</script>'


def _planes(numbers: Array) -> bytes:
    """The first bytes of all numbers, then their second ones, and so on."""
    return numbers.view(np.uint8).reshape(-1, numbers.itemsize).T.tobytes()


def _shown(section: Section) -> Array:
    values = section.matrix.values
    if values.dtype.kind not in NUMERIC or section.matrix.is_blank:
        return np.zeros(0)
    numbers: Array = values[np.ix_(*section.lines)].astype(np.float64).ravel()
    return numbers


# ---- sections: what their cells were computed from, and how


def _key(block: Block, stage: Stage, where: Index) -> tuple[int, ...]:
    """Which matrix it is, the same for all places that share it."""
    return id(stage), *block.place(stage, where)


def _section(section: Section, ids: dict[tuple[Any, ...], str]) -> dict[str, Any]:
    """What is known of a section beside its numbers; `ids` are those of all sections."""
    m, grid = section.matrix, section.grid
    entry = Entry(m.block, m.stage, m.where, 0, 0, m.options.precision, TERMS)
    reads = []
    for read in reads_of(entry, *section.lines):
        source = ids.get(_key(m.block, read.stage, read.where))
        reads += [[source, read.rows, read.columns]] if source else []
    rows, columns = _labels(section)
    has_cells = bool(rows and columns)
    latex = array(m, rows, columns, grid.cells, range(len(columns))) if has_cells else ()
    return {
        "name": clean(m.block.prefix + m.stage.name),
        "symbol": clean(m.stage.symbol),
        "rows": grid.rows,
        "columns": grid.columns,
        "reads": reads,
        "derived": bool(m.stage.expression),
        **({"vector": True} if m.stage.axes[-1:] == ("",) else {}),
        "latex": "\n".join(latex),  # as --format latex has it, to be copied
    }


def _labels(section: Section) -> tuple[list[str], list[str]]:
    m, grid = section.matrix, section.grid
    return m.labels(-2, grid.rows, LABEL), m.labels(-1, grid.columns, LABEL)


def _escaped(sections: Sequence[Section]) -> dict[str, tuple[str, str]]:
    """Texts of the tables that markdown or csv write in another way, as they write them."""
    texts = {text for section in sections for labels in _labels(section) for text in labels}
    for section in sections:
        if section.matrix.values.dtype.kind not in NUMERIC or section.matrix.is_blank:
            texts |= {cell.text.strip() for row in section.grid.cells for cell in row}
    found = {}
    for text in texts:
        written = io.StringIO()
        csv.writer(written, lineterminator="").writerow([guarded(text)])
        own = escape(text), written.getvalue()
        if own != (text, text):
            found[text] = own
    return found


def _add_arithmetic(
    sections: Sequence[Section], described: dict[str, dict[str, Any]], room: int
) -> None:
    """The arithmetic of the smallest matrices, as far as there is room; of equal ones the last."""
    derived = [section for section in reversed(sections) if section.matrix.stage.expression]
    for section in sorted(derived, key=lambda section: len(section.cells)):
        room -= len(section.cells)
        if room < 0:
            return
        m = section.matrix
        entry = Entry(m.block, m.stage, m.where, 0, 0, m.options.precision, TERMS, at_length=True)
        each = [equation(entry._replace(row=i, column=j)) for i, j in section.cells]
        if any(each):  # as --cell has it
            work = ["\n".join(at_length(x, None)) if x else "" for x in each]
            described[section.id]["work"] = work


# ---- the weights of every head


def _maps(
    found: Sequence[tuple[Block, Index, Array]], precision: int
) -> tuple[dict[str, Any] | None, Array]:
    """What the overview shows, and the numbers; None where there is but one head."""
    names: dict[tuple[str, ...], int] = {}
    entries: list[dict[str, Any]] = []
    values: list[Array] = []
    left = OVERVIEW
    for block, where, matrix in found:
        left -= matrix.size
        if left < 0 and values:
            break
        stage = block.weights
        assert stage is not None  # noqa: S101 - those without are not among them
        labels = [names.setdefault(stage.names(axis), len(names)) for axis in stage.axes[-2:]]
        place: dict[str, Any] = {axis: entry + 1 for axis, entry in where.items()}
        place |= {"layer": block.layer} if block.layer else {}
        own = {"block": clean(block.prefix.removesuffix(".")), "place": place, "labels": labels}
        entries.append({**own, "size": matrix.shape, "start": sum(map(len, values))})
        masked = block.masked(where, matrix.shape) & (matrix == 0)
        values.append(np.where(masked, np.nan, matrix).ravel())
    if len(found) < 2 and all(matrix.size <= FEW for _, _, matrix in found):
        return None, np.zeros(0, "<f4")
    numbers = np.concatenate(values).astype(np.float64)
    decimals, stored, unit = _stored(numbers, precision)
    steps = [step / STEPS for step in range(STEPS + 1)]
    palettes = [[css(step, "share", paper) for step in steps] for paper in (True, False)]
    labels_of = [captions(own, range(len(own)), LABEL) for own in names]
    return {
        "entries": entries,
        "labels": labels_of,
        "decimals": decimals,
        "unit": unit,
        "palettes": palettes,
        "left": len(found) - len(entries),
    }, stored


def _weights(trace: Trace, options: DisplayOptions) -> Iterator[tuple[Block, Index, Array]]:
    """The weights of each attention at each head and batch entry, the chosen ones."""
    names = chosen(trace, options)
    for block in blocks_of(trace):
        stage = block.weights
        if stage is None or isinstance(stage, BlankStage):
            continue
        if block.prefix + stage.name not in names:
            continue
        axes = [axis for axis in stage.axes[:-2] if block.sizes[axis] > 1]
        sizes = [block.sizes[axis] for axis in axes]
        for entries in np.ndindex(*sizes):
            where = dict(zip(axes, entries, strict=True))
            if all(options.index.get(axis, at) == at for axis, at in where.items()):
                yield block, where, block.matrix(stage, where)


def _stored(numbers: Array, precision: int) -> tuple[int, Array, float]:
    """Decimals, and the numbers as float32; as whole numbers of a unit where that is too much."""
    style = style_of(numbers, precision).plain
    decimals = int(style[1:-1]) if style.endswith("f") else precision
    are_shares = np.nanmin(numbers, initial=0) >= 0 and np.nanmax(numbers, initial=0) <= 1
    if len(numbers) > FEW and are_shares and decimals <= 4:
        unit = 10.0**-decimals
        rounded = np.where(np.isnan(numbers), MASKED, np.round(numbers / unit))
        return decimals, rounded.astype("<u2"), unit
    exact = numbers.astype("<f4")
    # What float32 rounds to the other side of a half would be shown with another last digit.
    wrong = np.round(exact.astype(np.float64), decimals) != np.round(numbers, decimals)
    exact[wrong] = np.nextafter(exact[wrong], np.round(numbers[wrong], decimals).astype("<f4"))
    return decimals, exact, 0.0
