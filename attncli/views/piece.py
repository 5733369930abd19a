"""Piece: the part of one matrix that is shown, still as numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.trace import Stage
from attncli.views import window
from attncli.views.heatmap import SHADED, WEIGHTS, Ramp, round_top
from attncli.views.places import MARKED, Array, Level, Place
from attncli.views.showing import Showing

NUMERIC = "biuf"
"""Kinds of arrays that are written as numbers; of others, such as tokens, the text is shown."""


@dataclass(frozen=True, eq=False)
class Piece:
    """The rows and columns of a stage's matrix that are shown.

    values         the whole matrix at a place
    mask           the additive mask there; None = no cell of this stage is marked
    wanted         the rows and columns asked for
    rows, columns  those of them that are shown, None for a gap
    """

    stage: Stage
    values: Array
    mask: Array | None
    wanted: tuple[range, range]
    rows: window.Kept
    columns: window.Kept

    @cached_property
    def numbers(self) -> Array:
        """The numbers shown, 0 where the mark of a masked cell stands instead."""
        shown: Array = self.values[self._grid]
        return np.where(self.hidden, 0, shown) if self.hidden.any() else shown

    @cached_property
    def hidden(self) -> npt.NDArray[np.bool_]:
        """True where the mark stands: in masked cells, but not in a weight that leaked through."""
        shown = self.values[self._grid]
        if self.mask is None:
            return np.zeros(shown.shape, bool)
        marked = np.isneginf(self.mask[self._grid])
        return marked if self.stage.name == "masked" else marked & (shown == 0)

    @property
    def _grid(self) -> tuple[Array, ...]:
        return np.ix_(*(np.array(real(kept), dtype=int) for kept in (self.rows, self.columns)))

    def sums(self, axis: int) -> Array:
        """The sums of whole rows (−1) or columns (−2), those shown; exact where they round so."""
        part = np.array(real(self.rows if axis == -1 else self.columns), dtype=int)
        taken = self.values[part] if axis == -1 else self.values[:, part]
        with np.errstate(all="ignore"):
            sums = taken.astype(np.float64).sum(axis=axis)
            whole = np.round(sums)
            is_whole = np.abs(sums - whole) < 1e-12 * self.values.shape[axis]
        snapped: Array = np.where(is_whole, whole, sums)
        return snapped


class Shading(NamedTuple):
    """How the numbers of a piece are shaded: by which ramp, up to which number."""

    ramp: Ramp
    top: float

    def of(self, x: float) -> float | None:
        """The shade of a number, None for NaN; beyond the scale it is that of its end."""
        return None if math.isnan(x) else min(max(x / self.top, -1.0), 1.0)


def cut(level: Level, name: str, place: Place, showing: Showing) -> Piece:
    """The piece of a stage that fits the screen."""
    stage = level.stages[name]
    values = level.matrix(stage, place)
    n_rows, n_columns = values.shape
    wanted = range(n_rows), range(n_columns)
    if stage.value.ndim >= 2:  # rows and columns are a matrix's; a vector is shown whole
        wanted = wanted[0][slice(*showing.rows)], wanted[1][slice(*showing.cols)]
    rows = window.rows_shown(wanted[0], showing)
    columns = window.columns_worth_writing(wanted[1], showing, len(rows) + 1)
    mask = level.mask(place) if name in MARKED else None
    return Piece(stage, values, mask, wanted, rows, columns)


def shading(piece: Piece, showing: Showing) -> Shading | None:
    """How a piece is shaded; None where it is not."""
    is_weights = piece.stage.name in WEIGHTS
    by_default = showing.colour and (is_weights or piece.stage.name in SHADED)
    wanted = by_default if showing.heatmap is None else showing.heatmap
    if not wanted or piece.values.dtype.kind not in NUMERIC:
        return None
    sizes = np.abs(piece.numbers[np.isfinite(piece.numbers)].astype(np.float64))
    return Shading("share" if is_weights else "signed", round_top(float(sizes.max(initial=0.0))))


def real(kept: window.Kept) -> tuple[int, ...]:
    """The indices without the gap."""
    return tuple(index for index in kept if index is not None)
