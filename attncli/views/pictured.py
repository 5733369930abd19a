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

from attncli.arrays import BoolArray, FloatArray
from attncli.errors import ConventionError
from attncli.stages import kind_of
from attncli.trace import Trace
from attncli.views.matrix import LARGE, NUMERIC, Matrix, Ramp
from attncli.views.numbers import FINER, round_top, short
from attncli.views.outline import is_first_layer
from attncli.views.page import entries_of, names_of, parts
from attncli.views.parts import Closing, Remark
from attncli.views.select import DisplayOptions, is_computed
from attncli.views.text import clean

MANY, ACROSS = 2500, 4  # cells, of which a picture is drawn; panels that stand side by side
_LEAST = 0.1  # the share of the scale below which a weight has no line: it would hardly be seen
_WIDTH, _TALLEST = 540.0, 500.0  # points of a row of panels, of a panel
SMALL = 0.65  # the share of its size that a label may be reduced to; of it a letter is as wide
_TEXTS = 40  # rows or columns whose cells have their numbers
_DECIMALS = 2  # in the cells, where none are asked for
_MOST = 0.99  # of many weights, that the scale shows: a few near 1 would leave the others pale
_FURTHEST = 1e100  # from 1, that an end of a scale may be: Matplotlib computes with its square
_MOST_WORDS = 200  # sentences of the description of a figure


class Pictured:
    """One stage: its matrices at several heads or batch entries.

    titles  which head and batch entry each of them is
    hidden  of each, where it is masked; values: its numbers, NaN there
    texts   of the cells of each; [] where these are too many
    ramp    how cells are shaded, up to `top`; None where they are not
    is_cut  whether some numbers are beyond the top
    """

    def __init__(self, name: str, matrices: Sequence[Matrix]) -> None:
        first = self.first = matrices[0]
        rows, columns = tuple(first.rows), tuple(first.columns)
        n, m = self.shape = len(rows), len(columns)
        self.rows, self.columns = first.labels(-2, rows)[:n], first.labels(-1, columns)[:m]
        self.name, self.is_picture = name, n * m * len(matrices) > MANY
        self.left_out: list[str] = []
        self.is_numeric = first.values.dtype.kind in NUMERIC
        self.titles: list[str] = []
        self.hidden: list[BoolArray] = []
        self.values: list[FloatArray] = []
        self.texts: list[list[list[str]]] = []
        part = np.s_[first.rows.start : first.rows.stop, first.columns.start : first.columns.stop]
        for matrix in matrices:
            names = names_of(matrix.block, matrix.where)
            self.titles.append(" · ".join(names[axis] for axis in matrix.where if axis in names))
            hidden, values = matrix.marked[part], matrix.values[part]
            numbers = values.astype(float) if self.is_numeric else np.nan
            self.hidden.append(hidden)
            self.values.append(np.where(hidden, np.nan, numbers))
            if 0 < n <= _TEXTS and 0 < m <= _TEXTS:
                cells = matrix.grid(rows, columns, colour=True).cells[:n]
                self.texts.append([[cell.text.strip() for cell in row[:m]] for row in cells])
        texts = (text for each in self.texts for row in each for text in row)
        self.widest = max(map(cell_len, texts), default=0)
        is_shaded = self.is_numeric and first.options.heatmap is not False
        self.ramp: Ramp | None = (first.stage.kind.shade or "signed") if is_shaded else None
        self.top, self.is_cut = self._end()

    @property
    def form(self) -> str:
        """What is drawn: nothing, arcs from queries to keys, points or cells."""
        options = self.first.options
        is_plotted = self.first.stage.kind.plotted and options.heatmap is None
        form = "arcs" if options.arcs else "points" if is_plotted else "cells"
        return form if min(self.shape) else "nothing"

    @property
    def axes(self) -> tuple[str, str]:
        """What the rows and columns are, such as queries and keys."""
        names = entries_of(self.first.stage, self.first.block)
        return (names[0], names[1]) if len(names) == 2 else ("", "")

    def size(self, em: float) -> tuple[float, float, int]:
        """Width and height of a panel, and how many stand side by side; em: of the letters.

        Cells have room for their numbers where that takes no more than two rows of panels.
        """
        (n, m), count = np.maximum(self.shape, 1).tolist(), len(self.values)
        if self.form == "arcs":
            return 140.0, 1.5 * em * max(n, m), min(count, 2)
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
            what = f"{self.name} without shades shows nothing: {size} numbers have no room"
            hint = "choose some with --rows and --cols, or leave out --no-heatmap"
            raise ConventionError(what, hint)
        return False

    def lines(self, at: int) -> list[tuple[int, int, float]]:
        """Query, key and share of the scale of each weight that has a line, the largest last."""
        shares = np.nan_to_num(np.clip(self.values[at] / self.top, 0, 1))
        drawn = ((i, j, float(shares[i, j])) for i, j in np.argwhere(shares >= _LEAST).tolist())
        return sorted(drawn, key=lambda line: line[2])

    @property
    def notes(self) -> list[str]:
        """What marks and greys mean, and what has no line."""
        if self.form == "arcs":
            n_weights = sum(values.size for values in self.values)
            n_left_out = n_weights - sum(len(self.lines(at)) for at in range(len(self.values)))
            what = f"{n_left_out} of {n_weights} weights are below {short(_LEAST * self.top, 4)}"
            widest = f"the widest line is {short(self.top, 4)}; {what} and left out"
            return [widest, *self.left_out]
        if self.form != "cells":
            return ["nothing to show", *self.left_out][self.form == "points" :]
        mark, legend = self.first.mark, self.first.legend
        notes = [mark.replace("///", "grey is") if self.is_picture else mark]
        notes = notes if any(hidden.any() for hidden in self.hidden) else []
        both = zip(self.values, self.hidden, strict=True)
        if self.is_numeric and any((np.isnan(values) & ~hidden).any() for values, hidden in both):
            notes.append("grey is not a number (NaN)")
        return [*notes, *filter(None, [legend]), *self.left_out]

    def _end(self) -> tuple[float, bool]:
        """The end of the scale, and whether some numbers are beyond it."""
        sizes = [np.abs(values[np.isfinite(values)]) for values in self.values]
        top = largest = max(float(size.max(initial=0)) for size in sizes)
        is_large = self.values[0].size > MANY and not self.first.options.arcs
        if self.ramp == "share" and is_large:
            most = max(float(np.quantile(size, _MOST)) if size.size else 0.0 for size in sizes)
            top = most if 0 < most < largest / 2 else largest
        top = min(max(round_top(top, FINER), 1 / _FURTHEST), _FURTHEST)
        return top, top * (1 + 1e-9) < largest


def pictured(trace: Trace, options: DisplayOptions) -> tuple[list[Pictured], str]:
    """The stages of a figure, and what it shows in words for who cannot see it.

    Raises ConventionError for arcs of what are no weights, or too many.
    """
    precision = options.precision if options.rounded else _DECIMALS
    names = options.stages or _names(trace, options)
    shown = [*parts(trace, replace(options, stages=names, precision=precision))]
    matrices: dict[str, list[Matrix]] = {}
    for part in shown:
        if isinstance(part, Matrix):
            matrices.setdefault(part.block.prefix + part.stage.name, []).append(part)
            if options.arcs:
                _check_arcs(part)
    several = len({name.rpartition(".")[0] for name in matrices}) > 1
    each = [(clean(name) if several else some[0].name, some) for name, some in matrices.items()]
    words = [f"{name}: {' · '.join(some[0].facts)}" for name, some in each]
    closing = [head for part in shown if isinstance(part, Closing) for head in part.heads]
    words += [f"{head}: {line}" if head else line for head, lines in closing for line in lines]
    stages = [Pictured(*one) for one in each]
    stages[-1].left_out = [part.text for part in shown if isinstance(part, Remark)]
    return stages, ". ".join(words[:_MOST_WORDS])


def only_one(stages: Sequence[Pictured]) -> Pictured:
    """The one matrix that an Axes can hold: ConventionError where there are several."""
    names = [stage.name for stage in stages] if len(stages) > 1 else stages[0].titles
    if len(names) > 1:
        what = f"one Axes cannot hold {', '.join(names)}"
        raise ConventionError(what, "choose with stages=, head= or batch=")
    return stages[0]


def _names(trace: Trace, options: DisplayOptions) -> tuple[str, ...]:
    """The stages of a figure where none are named, by what is known of each kind."""
    stages = {name: stage for name, stage in trace.stages() if is_computed(stage)}
    names = [name for name in stages if options.full or is_first_layer(name)] or [*stages]
    weights = [name for name in names if kind_of(name).summarized]
    if options.arcs and not weights:
        raise ConventionError("--arcs draws weights, and there are none", "leave it out")
    shaded = [name for name in names if kind_of(name).plotted or kind_of(name).shade]
    alike = [name for name in names if stages[name].axes == stages[names[-1]].axes]
    return tuple(weights or shaded[-1:] or alike)


def _check_arcs(matrix: Matrix) -> None:
    """ConventionError for what cannot be drawn as arcs: no weights, or too many."""
    if not matrix.stage.kind.masks or not matrix.stage.kind.sums:
        what = f"--arcs draws weights, which {matrix.name} are not"
        raise ConventionError(what, "leave it out, or --stage weights")
    if max(len(matrix.rows), len(matrix.columns)) > LARGE and not matrix.options.full:
        size = f"{len(matrix.rows)} × {len(matrix.columns)}"
        what = f"--arcs draws up to {LARGE} queries and keys, these are {size}"
        raise ConventionError(what, "choose some with --rows and --cols, or add --full")
