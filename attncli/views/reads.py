"""Which cells of which matrices a cell was computed from: what a page lights up.

    of O[q1,2], which is the sum of A[q1,k]·V[k,2]: row q1 of the weights, column 2 of the values

Rows and columns follow from those of the cell by a rule for each kind of arithmetic (see
arithmetic.py), so that one line says it for all cells of a matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from attncli.stages import kind_of
from attncli.trace import Stage
from attncli.views.arithmetic import packed_axis
from attncli.views.arithmetic_gradients import head_axis, heads_of, matrices, summed_over
from attncli.views.matrix import OF_SOFTMAX
from attncli.views.select import HEADS, Block, Index


class At(NamedTuple):
    """The index along an axis of what is read, from the row i or the column j of the cell.

    (n // each) % mod · times + plus, where n is i or j, or 0; "all" is every index; mod 0 is none.

    >>> [At("j", each=2).found(0, j) for j in range(4)]  # the pair of a dimension
    [0, 0, 1, 1]
    """

    of: Literal["i", "j", "0", "all"]
    each: int = 1
    mod: int = 0
    times: int = 1
    plus: int = 0

    def found(self, i: int, j: int) -> int | None:
        """The index, None for all."""
        if self.of == "all":
            return None
        n = {"i": i, "j": j, "0": 0}[self.of] // self.each
        return (n % self.mod if self.mod else n) * self.times + self.plus


ROW, COLUMN, FIRST, ALL = At("i"), At("j"), At("0"), At("all")
Cells = tuple[At, At]


class Read(NamedTuple):
    """Cells of one matrix: of which stage, its dotted name, at which heads and batch entries."""

    stage: Stage
    name: str
    where: Index
    rows: At
    columns: At


class _Reader(NamedTuple):
    block: Block
    stage: Stage
    where: Index

    @property
    def head(self) -> int:
        return self.where.get(HEADS, 0)

    @property
    def width(self) -> int:
        return int(self.stage.value.shape[-1])

    def read(self, parameter: str) -> Stage:
        """What was read as this parameter: `reads_of` looked for all that are of several."""
        stage = self.block.read(self.stage, parameter)
        assert stage is not None  # noqa: S101
        return stage


Found = Iterator[tuple[str, At, At]]
Several = Iterator[tuple[str, Index, At, At]]


def reads_of(block: Block, stage: Stage, where: Index) -> list[Read]:
    """What the cells of a matrix of a stage were computed from, as far as the trace holds it."""
    reader = _Reader(block, stage, where)
    reads = []
    if several := OF_SEVERAL.get(stage.work):
        if any(block.read(stage, name) is None for name in stage.reads):
            return []
        return [
            Read(source, _dotted(block, stage, parameter), place, rows, columns)
            for parameter, place, rows, columns in several(reader)
            if (source := block.read(stage, parameter))
        ]
    for parameter, rows, columns in RULES.get(stage.work, _same_cell)(reader) if stage.work else ():
        source = block.read(stage, parameter)
        if source is not None:
            one_row = len(block.matrix(source, where)) == 1
            own = FIRST if one_row and rows.of == "i" else rows
            name = _dotted(block, stage, parameter)
            reads.append(Read(source, name, where, own, columns))
    return reads


def _dotted(block: Block, stage: Stage, parameter: str) -> str:
    name = stage.reads[parameter]
    return block.prefix + name if name in block.stages else name


def _heads(reader: _Reader) -> Several:
    """The heads side by side: of each its own columns."""
    width, n_heads = reader.read("x").value.shape[-1], max(reader.block.sizes[HEADS], 1)
    for head in range(n_heads):
        yield "x", {**reader.where, HEADS: head}, ROW, At("j", plus=-head * width)


def _of_group(reader: _Reader) -> Several:
    """Columns of every head that shares a key head."""
    for head in heads_of(reader.block, reader.where):
        where = {**reader.where, HEADS: head}
        yield from (("a", where, ALL, At("i")), ("b", where, ALL, COLUMN))


def _of_mask(reader: _Reader) -> Several:
    """All cells that a number of the mask was added to."""
    d = reader.read("d")
    summed = summed_over(reader.stage, d)
    rows, columns = (
        ALL if axis in summed else own for axis, own in zip(d.axes[-2:], (ROW, COLUMN), strict=True)
    )
    own = {axis: at for axis, at in reader.where.items() if axis not in summed}
    for where in matrices(reader.block, d, own):
        yield from (("d", where, rows, columns), ("mask", where, rows, columns))


def _side_by_side(reader: _Reader, parameter: str, of: Literal["i", "j"]) -> Several:
    """A column of heads side by side, at all batch entries: of each head its own columns."""
    stage = reader.read(parameter)
    axis, width = head_axis(stage), int(stage.value.shape[-1])
    for where in matrices(reader.block, stage, {}):
        yield parameter, where, ALL, At(of, plus=-where.get(axis, 0) * width)


def _of_weights(reader: _Reader) -> Several:
    yield from _side_by_side(reader, "x", "i")
    yield from _side_by_side(reader, "d", "j")


def _of_bias(reader: _Reader) -> Several:
    yield from _side_by_side(reader, "d", "j")


def _of_rows(reader: _Reader) -> Several:
    """A row of all heads of dQ, dK and dV, and a row of each of their weights."""
    batch = {axis: at for axis, at in reader.where.items() if axis == "batch"}
    for parameter in reader.stage.reads:
        stage = reader.read(parameter)
        if parameter.startswith("w_"):
            yield parameter, {}, COLUMN, ALL
            continue
        is_whole = parameter.replace("d_", "w_", 1) in reader.stage.reads
        row = At("i", plus=stage.value.shape[-2] - reader.stage.value.shape[-2])
        for where in matrices(reader.block, stage, batch):
            yield parameter, where, row, ALL if is_whole else COLUMN


def _same_cell(reader: _Reader) -> Found:
    yield from ((name, ROW, COLUMN) for name in reader.stage.reads)


def _products(reader: _Reader) -> Found:
    a, b, *bias = reader.stage.reads
    column = COLUMN
    right = reader.block.read(reader.stage, b)
    if right is not None and (axis := packed_axis(right)):
        head = reader.block.entry(axis, reader.where) or 0
        column = At("j", plus=head * reader.width)
    yield a, At("i", plus=-int(reader.stage.params.get("n_cached", 0))), ALL
    yield b, ALL, column
    yield from ((name, FIRST, column) for name in bias)


def _row_products(reader: _Reader) -> Found:
    a, b = reader.stage.reads
    right, row = reader.block.read(reader.stage, b), COLUMN
    if right is not None and packed_axis(right, -2):
        head = next((reader.where[axis] for axis in (HEADS,) if axis in reader.stage.axes), 0)
        row = At("j", plus=head * reader.width)
    yield from ((a, ROW, ALL), (b, row, ALL))


def _column_products(reader: _Reader) -> Found:
    yield from (("a", ALL, At("i")), ("b", ALL, COLUMN))


def _delta(reader: _Reader) -> Found:
    over_queries = reader.stage.params.get("axis") == -2
    yield from ((name, *((ALL, COLUMN) if over_queries else (ROW, ALL))) for name in ("a", "d"))


def _d_softmax(reader: _Reader) -> Found:
    over_queries = reader.stage.params.get("axis") == -2
    yield from (("a", ROW, COLUMN), ("d", ROW, COLUMN))
    yield "delta", *((FIRST, COLUMN) if over_queries else (ROW, FIRST))


def _d_of_sinks(reader: _Reader) -> Found:
    """All rows of one head; which head, a rule for all cells cannot say."""
    if reader.width == 1:
        yield from (("x", ALL, ALL), ("sinks", FIRST, FIRST), ("delta", ALL, FIRST))


def _copy(reader: _Reader) -> Found:
    axes = [axis for axis in reader.stage.axes[:-2] if axis != "batch"]
    head = (reader.block.entry(axes[0], reader.where) or 0) if axes else 0
    yield "x", ROW, At("j", plus=head * reader.width)


def _softmax(reader: _Reader) -> Found:
    over_queries = reader.stage.params.get("axis") == -2
    yield "x", *((ALL, COLUMN) if over_queries else (ROW, ALL))
    if "sinks" in reader.stage.reads:
        yield "sinks", FIRST, At("0", plus=reader.head)


def _mean(reader: _Reader) -> Found:
    x = reader.block.read(reader.stage, "x")
    if reader.stage.value.ndim == 1 and x is not None:
        yield "x", *((ALL, COLUMN) if reader.stage.axes[-1] == x.axes[-1] else (COLUMN, ALL))


def _deviation(reader: _Reader) -> Found:
    if reader.stage.value.ndim == 1:
        yield from (("x", COLUMN, ALL), ("mean", FIRST, COLUMN))


def _norm(reader: _Reader) -> Found:
    yield "x", ROW, COLUMN
    yield from ((name, FIRST, ROW) for name in ("mean", "deviation"))
    yield from ((name, FIRST, COLUMN) for name in ("gamma", "beta") if name in reader.stage.reads)


def _turned(reader: _Reader) -> Found:
    """A pair of dimensions turned by its angle; nothing where some are no part of a pair."""
    halves, half = reader.stage.params["layout"] == "halves", int(reader.stage.params["r"]) // 2
    if 2 * half < reader.width:
        return
    for second in range(2):
        pair = At("j", mod=half, plus=second * half)
        yield "x", ROW, pair if halves else At("j", each=2, times=2, plus=second)
    angle = At("j", mod=half) if halves else At("j", each=2)
    yield from ((name, ROW, angle) for name in ("cos", "sin"))


def _beside_rows(reader: _Reader) -> Found:
    """The same cell of a matrix, and the row's number of a vector; of a vector the whole row."""
    is_vector = kind_of(reader.stage.name).vector
    for name in reader.stage.reads:
        source = reader.block.read(reader.stage, name)
        if source is not None and source.axes[-1:] != ("head",):
            of_vector = kind_of(source.name).vector
            yield name, ROW, FIRST if of_vector else ALL if is_vector else COLUMN


def _running_values(reader: _Reader) -> Found:
    yield from (("p", ROW, ALL), ("v", ALL, COLUMN))
    yield from (found for found in _beside_rows(reader) if found[0] in ("before", "alpha"))


def _merged(reader: _Reader) -> Found:
    yield "w", ROW, ALL
    yield from ((name, ROW, COLUMN) for name in reader.stage.reads if name != "w")


def _pairs(reader: _Reader) -> Found:
    yield from (("x", ROW, ALL), ("x", COLUMN, ALL))


RULES: dict[str, Callable[[_Reader], Found]] = {
    "products": _products,
    "cached products": _products,
    "relu": _products,
    "row products": _row_products,
    "copy": _copy,
    "softmax": _softmax,
    "column products": _column_products,
    "delta": _delta,
    OF_SOFTMAX: _d_softmax,
    "d_of_sinks": _d_of_sinks,
    "mean": _mean,
    "deviation": _deviation,
    "norm": _norm,
    "turned": _turned,
    **dict.fromkeys(("lse", "running max", "running sum", "rescale"), _beside_rows),
    **dict.fromkeys(("lse of parts", "merged lse", "power", "by sum"), _beside_rows),
    "running values": _running_values,
    "merge weight": lambda reader: iter(()),
    "merged": _merged,
    "pairs": _pairs,
    "row cosine": _pairs,
    "dropout": lambda reader: iter([("x", ROW, COLUMN)]),
    "angle": lambda reader: iter([("w", FIRST, COLUMN)]),
    "wave": lambda reader: iter([("angles", ROW, At("j", each=2))] * bool(reader.stage.reads)),
    "distance": lambda reader: iter([("m", FIRST, At("0", plus=reader.head))]),
    "length": lambda reader: iter([("x", COLUMN, ALL)]),
    "cosine": lambda reader: iter(
        [("dots", ROW, COLUMN), ("lengths", FIRST, ROW), ("lengths", FIRST, COLUMN)]
    ),
    "difference": lambda reader: iter([("x", FIRST, COLUMN), ("x", At("0", plus=1), COLUMN)]),
    "analogy": lambda reader: iter([("difference", FIRST, COLUMN), ("x", At("0", plus=2), COLUMN)]),
}
"""By the name that a stage's `work` has; the arithmetic of a template is of the same cell."""

OF_SEVERAL: dict[str, Callable[[_Reader], Several]] = {
    "merge": _heads,
    "summed column products": _of_group,
    "d_of_mask": _of_mask,
    "d_of_weights": _of_weights,
    "d_of_bias": _of_bias,
    "d_of_rows": _of_rows,
}
"""The same where the matrices that are read are those of several heads or batch entries."""
