"""Positions: which are put into q, k and v before attention, and where they count from.

    q, k, v without positions ── put_in ──> q, k, v as they go into the scores

The numbers are those of `sinusoidal` and `rotary`; only the choices that can be wrong are here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.positions import (
    Exponent,
    Layout,
    rotary,
    rotary_angles,
    sinusoidal,
    waves_of,
)
from attncli.convention import DType
from attncli.errors import ConventionError, ShapeError
from attncli.formula.kernels import round_to

Ids = npt.NDArray[np.intp]
PositionKind = Literal["paper", "article", "rope-halves", "rope-interleaved"]

_LAYOUTS: dict[str, Layout] = {"rope-halves": "halves", "rope-interleaved": "interleaved"}


@dataclass(frozen=True)
class Positions:
    """The positions of one attention.

    kind        sinusoidal in the paper's or the article's form, or rotary in one of two layouts
    n_past      number of cached keys
    on          which of q, k, v get positions
    from_query  position of the first query
    from_past   position of the first cached key
    from_new    position of the first key that is not cached
    in_halves   sinusoidal: all sines come before all cosines
    base        of the powers that the angles are
    width       rotary: how many entries are rotated, the first ones; all where None
    of_width    rotary: the width that the frequencies are those of; `width` where None
    back_on     rotary: which of their gradients are rotated back
    forth_on    rotary: which of their gradients are rotated once more in the place of back
    times       rotary: how many times the angles are taken; −1 rotates the other way

    >>> positions_of("paper", n_past=2).key_ids(5).tolist()
    [0, 1, 2, 3, 4]
    """

    kind: PositionKind
    n_past: int
    on: frozenset[str]
    from_query: int
    from_past: int
    from_new: int
    in_halves: bool = False
    base: float = 10000.0
    width: int | None = None
    of_width: int | None = None
    back_on: frozenset[str] = frozenset(("d_q", "d_k"))
    forth_on: frozenset[str] = frozenset()
    times: int = 1

    @property
    def is_rotary(self) -> bool:
        """Whether q and k are rotated, and nothing is added."""
        return self.kind in _LAYOUTS

    def key_ids(self, n_k: int) -> Ids:
        """The position of every key, the cached ones first."""
        at = np.arange(n_k)
        return np.where(at < self.n_past, self.from_past + at, self.from_new + at - self.n_past)

    def put_in(
        self, qkv: Mapping[str, Array], rows: Ids | None = None, dtype: DType = "float64"
    ) -> dict[str, Array]:
        """q (of these query rows; of all where left out), k and v with their positions."""
        rows = np.arange(qkv["q"].shape[-2]) if rows is None else rows
        keys = self.key_ids(qkv["k"].shape[-2])
        ids = {"q": rows + self.from_query, "k": keys, "v": keys}
        return {**qkv, **{name: self._put(qkv[name], ids[name], dtype) for name in self.on}}

    def take_out(
        self, gradients: Mapping[str, Array], rows: Ids, n_k: int, dtype: DType = "float64"
    ) -> dict[str, Array]:
        """d_q (of these query rows) and d_k before the rotation: rotated back by these angles."""
        ids = {"d_q": rows + self.from_query, "d_k": self.key_ids(n_k)}
        if not self.is_rotary:  # what is added has the gradient of what it is added to
            return dict(gradients)
        on = [x for x in gradients if x in self.back_on and x.removeprefix("d_") in self.on]
        back = {x: self._put(gradients[x], ids[x], dtype, back=x not in self.forth_on) for x in on}
        return {**gradients, **back}

    def _put(self, x: Array, ids: Ids, dtype: DType, *, back: bool = False) -> Array:
        if self.is_rotary:
            width = self.width or x.shape[-1]
            angles = rotary_angles(ids, self.of_width or width, base=self.base)[:, : width // 2]
            angles = _rounded(self.times * (-angles if back else angles), dtype)
            caches = round_to(np.cos(angles), dtype), round_to(np.sin(angles), dtype)
            layout = _LAYOUTS[self.kind]
            return rotary(x, caches=caches, layout=layout, rotary_dim=width)["rotated"].value
        n, dim = int(ids.max()) + 1, x.shape[-1]
        exponent: Exponent = "paper" if self.kind == "paper" else "article"
        angles = sinusoidal(n, dim, exponent=exponent, base=self.base)["angles"].value[ids]
        table = waves_of(_rounded(angles, dtype), dim)
        if self.in_halves:
            table = np.concatenate([table[:, 0::2], table[:, 1::2]], axis=-1)
        with np.errstate(over="ignore", invalid="ignore"):
            return x + round_to(table, dtype).astype(np.float64)


def _rounded(angles: Array, dtype: DType) -> Array:
    """Angles as an implementation in this number type has them: in float32 at least."""
    return angles if dtype == "float64" else angles.astype(np.float32).astype(np.float64)


def positions_of(kind: PositionKind, n_past: int = 0) -> Positions:
    """The right positions of a kind: keys count from 0, queries from the length of the past.

    Raises ConventionError for a kind that does not exist.

    >>> sorted(positions_of("rope-halves").on)
    ['k', 'q']
    """
    if kind not in get_args(PositionKind):
        kinds = ", ".join(get_args(PositionKind))
        raise ConventionError(f"positions are {kind!r}", f"use one of {kinds}")
    on = frozenset("qk" if kind in _LAYOUTS else "qkv")
    return Positions(kind, n_past, on, from_query=n_past, from_past=0, from_new=n_past)


def check_widths(kind: PositionKind, d_k: int, d_v: int) -> None:
    """Raises ShapeError where positions of this kind do not fit vectors of these widths."""
    if kind in _LAYOUTS:
        if d_k % 2:
            raise ShapeError(f"d_k is {d_k}", "rotary positions rotate pairs: it must be even")
    elif d_k != d_v:
        hint = "sinusoidal positions are added to all three as embeddings of one width"
        raise ShapeError(f"q and k are {d_k} wide but v is {d_v}", hint)
