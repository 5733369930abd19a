"""What a figure shows: the matrices of each stage at several heads, on a common scale.

Without --stage it is the weights of an attention, else the last stage that is shaded by itself
(positions, cosines), else the last one and those of the same axes (the angles, cos and sin of
rotary positions). Nothing here needs Matplotlib.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.cells import cell_len

from attncli.arrays import Array, BoolArray, FloatArray
from attncli.errors import ConventionError
from attncli.page.headline import entries_of
from attncli.page.matrix import LARGE, NUMERIC, SMALL, Matrix, Ramp
from attncli.page.numbers import FINER, round_top, short
from attncli.page.options import DisplayOptions
from attncli.page.outline import is_first_layer
from attncli.page.page import parts
from attncli.page.parts import Closing, Remark
from attncli.page.places import names_of
from attncli.page.select import is_computed
from attncli.page.text import clean
from attncli.stages import spec_of
from attncli.trace import Trace

MANY, ACROSS = 2500, 4  # cells, of which a picture is drawn; panels that stand side by side
_LEAST = 0.1  # the share of the scale below which a weight has no line: it would hardly be seen
_WIDTH, _TALLEST = 540.0, 500.0  # points of a row of panels, of a panel
_TEXTS = 40  # rows or columns whose cells have their numbers
_DECIMALS = 2  # in the cells, where none are asked for
_MOST = 0.99  # of many weights, that the scale shows: a few near 1 would leave the others pale
_FURTHEST = 1e100  # from 1, that an end of a scale may be: Matplotlib computes with its square
_VALUE = 30  # letters of the name of a row that is a value of a line
_MOST_WORDS = 200  # sentences of the description of a figure


class Pictured:
    """One stage: its matrices at several heads or batch entries.

    titles  which head and batch entry each of them is
    hidden  of each, where it is masked; values: its numbers, NaN there
    texts   of the cells of each; [] where these are too many
    ramp    how cells are shaded, up to `top`; None where they are not
    form    what is drawn: nothing, arcs from queries to keys, points, lines or cells
    axes    what the rows and columns are, such as queries and keys
    """

    def __init__(self, name: str, matrices: Sequence[Matrix], left_out: Sequence[str] = ()) -> None:
        first = self.first = matrices[0]
        rows, columns = tuple(first.rows), tuple(first.columns)
        n, m = self.shape = len(rows), len(columns)
        self.rows, self.columns = first.labels(-2, rows)[:n], first.labels(-1, columns)[:m]
        self.name, self.left_out = name, left_out
        self.is_picture = n * m * len(matrices) > MANY
        places = [(x.where, names_of(x.block, x.where)) for x in matrices]
        self.titles = [" · ".join(names[x] for x in place if x in names) for place, names in places]
        part = np.s_[first.rows.start : first.rows.stop, first.columns.start : first.columns.stop]
        self.hidden: BoolArray = np.array([x.marked[part] for x in matrices])
        values: Array = np.array([x.values[part] for x in matrices])
        self.is_numeric = values.dtype.kind in NUMERIC
        numbers = values.astype(float, copy=False) if self.is_numeric else np.nan
        self.values: FloatArray = np.where(self.hidden, np.nan, numbers)
        form = "arcs" if first.options.arcs else "cells"
        if not first.options.arcs and first.options.heatmap is None:
            is_swept = first.stage.axes[-2:] == ("value", "measure")
            form = "points" if first.stage.kind.plotted else "lines" if is_swept else form
        self.form = form if n and m else "nothing"
        if form == "lines":  # temperature 0.001
            self.rows = first.labels(-2, rows, _VALUE)[:n]
        entries = entries_of(first.stage, first.block)
        self.axes = (entries[0], entries[1]) if len(entries) == 2 else ("", "")
        self.texts: list[list[list[str]]] = []
        if 0 < n <= _TEXTS and 0 < m <= _TEXTS:
            grids = (x.grid(rows, columns, colour=True).cells[:n] for x in matrices)
            self.texts = [[[x.text.strip() for x in row[:m]] for row in grid] for grid in grids]
        texts = [text for each in self.texts for row in each for text in row]
        self.widest = max(map(cell_len, texts), default=0)
        words = [name, first.formula, *self.titles, *self.rows, *self.columns, *texts]
        self.letters = {letter for text in words for letter in text}
        is_shaded = self.is_numeric and first.options.heatmap is not False
        self.ramp: Ramp | None = (first.stage.kind.shade or "signed") if is_shaded else None
        sizes = [np.abs(x[np.isfinite(x)]) for x in self.values]
        self.largest = top = max(float(x.max(initial=0)) for x in sizes)
        if self.ramp == "share" and n * m > MANY and not first.options.arcs:
            most = max((float(np.quantile(x, _MOST)) for x in sizes if x.size), default=0.0)
            top = most if 0 < most < top / 2 else top
        # Weights have the same scale in every figure, so that two of them compare.
        top = 1.0 if self.ramp == "share" and n * m <= MANY and top <= 1 else round_top(top, FINER)
        self.top = min(max(top, 1 / _FURTHEST), _FURTHEST)

    def size(self, em: float) -> tuple[float, float, int]:
        """Width and height of a panel, and how many stand side by side; em: of the letters.

        Cells have room for their numbers where that takes no more than two rows of panels.
        """
        (n, m), count = np.maximum(self.shape, 1).tolist(), len(self.values)
        if self.form == "arcs":
            return 140.0, 1.5 * em * max(n, m), min(count, 2)
        if self.form == "lines":
            return 300.0, 200.0, 1
        if self.form == "points":
            return (side := 320 * max(1.0, (n / 30) ** 0.5)), side, 1
        cell, most = em * max(SMALL * self.widest + 1, 2), min(count, ACROSS)
        across = min(int(_WIDTH / (m * cell)), most)
        is_short = across >= min(count, 2) and count <= 2 * across
        if self.texts and (is_short or self.ramp is None):
            return m * cell, 2 * em * n, max(across, 1)
        across = min(int(_WIDTH / (SMALL * em * m)) or most, most)
        side = min(_WIDTH / (across * m), _TALLEST / max(n, m), 2 * em)
        return side * max(m, n / 3), side * max(n, m / 3), across

    def has_room(self, width: float, height: float, em: float) -> bool:
        """Whether cells of this size have room for their texts; if not, they must have shades."""
        if self.texts and width >= SMALL * em * self.widest and height >= 1.2 * em:
            return True
        if self.ramp is None:
            size = f"{self.shape[0]} × {self.shape[1]}"
            message = f"{self.name} without shades shows nothing: {size} numbers have no room"
            hint = "choose some with --rows and --cols, or leave out --no-heatmap"
            raise ConventionError(message, hint)
        return False

    @property
    def shares(self) -> FloatArray:
        """Of the widest line, that of each weight; 0 of what has no line."""
        shares = np.nan_to_num(np.clip(self.values / self.top, 0, 1))
        return np.where(shares < _LEAST, 0, shares)

    @property
    def notes(self) -> list[str]:
        """What marks, greys and measures mean, and what has no line."""
        if self.form == "arcs":
            n_weights = self.values.size
            n_left_out = n_weights - np.count_nonzero(self.shares)
            omitted = f"{n_left_out} of {n_weights} weights are below {short(_LEAST * self.top, 4)}"
            widest = f"the widest line is {short(self.top, 4)}; {omitted} and left out"
            return [widest, *self.left_out]
        if self.form != "cells":
            words = {"lines": clean(self.first.stage.note), "nothing": "nothing to show"}
            return [*filter(None, [words.get(self.form, "")]), *self.left_out]
        mark = self.first.mark
        mark = mark.replace(self.first.sign, "grey is", 1) if self.is_picture else mark
        notes = [mark] if self.hidden.any() else []
        if self.is_numeric and (np.isnan(self.values) & ~self.hidden).any():
            notes.append("grey is not a number (NaN)")
        return [*notes, *filter(None, [self.first.legend]), *self.left_out]


def pictured(trace: Trace, options: DisplayOptions) -> tuple[list[Pictured], str]:
    """The stages of a figure, and what it shows in words for who cannot see it.

    Raises ConventionError for arcs of what are no weights, or too many.
    """
    stages = {name: stage for name, stage in trace.stages() if is_computed(stage)}
    names = [name for name in stages if options.full or is_first_layer(name)] or [*stages]
    weights = [name for name in names if spec_of(name).summarized]
    rows = {name: (spec_of(name), stages[name].kind) for name in names}
    shaded = [name for name in names if any(row.plotted or row.shade for row in rows[name])]
    alike = (name for name in names if stages[name].axes == stages[names[-1]].axes)
    selection = options.stages or weights or shaded[-1:] or alike
    if options.arcs and not (options.stages or weights):
        raise ConventionError("--arcs draws weights, and there are none", "leave it out")
    precision = options.precision if options.rounded else _DECIMALS
    page_parts = [*parts(trace, replace(options, stages=tuple(selection), precision=precision))]
    matrices: dict[str, list[Matrix]] = {}
    for part in page_parts:
        if isinstance(part, Matrix):
            matrices.setdefault(part.block.prefix + part.stage.name, []).append(part)
    several = len({name.rpartition(".")[0] for name in matrices}) > 1
    each = [(clean(name) if several else some[0].name, some) for name, some in matrices.items()]
    for _, (matrix, *_) in each if options.arcs else ():
        size = f"{len(matrix.rows)} × {len(matrix.columns)}"
        if not matrix.stage.kind.masks or not matrix.stage.kind.sums:
            message = f"--arcs draws weights, which {matrix.name} are not"
            raise ConventionError(message, "leave it out, or --stage weights")
        if max(len(matrix.rows), len(matrix.columns)) > LARGE and not options.full:
            message = f"--arcs draws up to {LARGE} queries and keys, these are {size}"
            raise ConventionError(message, "choose some with --rows and --cols, or add --full")
    words = [f"{name}: {' · '.join(some[0].facts)}" for name, some in each]
    closing = [head for part in page_parts if isinstance(part, Closing) for head in part.heads]
    words += [f"{head}: {line}" if head else line for head, lines in closing for line in lines]
    left_out = [part.text for part in page_parts if isinstance(part, Remark)]
    pictures = [Pictured(*pair, left_out if pair is each[-1] else ()) for pair in each]
    return pictures, ". ".join(words[:_MOST_WORDS])
