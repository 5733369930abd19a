"""Positions: which are put into q, k and v before attention, and where they count from.

    q, k, v without positions ── put_in ──> q, k, v as they go into the scores

The numbers are those of `sinusoidal` and `rotary`; only the choices that can be wrong are here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.positions import Exponent, rotary_angles, sinusoidal, waves_of
from attncli.convention import DType
from attncli.errors import ConventionError, ShapeError
from attncli.formula.kernels import round_to
from attncli.formula.matrices import plain

Ids = npt.NDArray[np.intp]
PositionKind = Literal["paper", "article", "rope-halves", "rope-interleaved"]

_ROTARY = "rope-halves", "rope-interleaved"

FORM = "KIND[:base=B,part=P,factor=F], such as rope-halves:base=500000,part=0.5,factor=8"
"""How positions are written where they are not those of the kind alone."""


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
    factor      rotary: what the positions are divided by, as linear scaling does
    frequencies  rotary: how far each pair is turned by each position, in radians; powers of the
                base where empty
    tables      rotary: in which layout cos and sin are laid out beside the entries, where it is not
                that of the pairs
    of_keys     the positions of the keys, where they are others than those of the queries

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
    factor: float = 1.0
    frequencies: tuple[float, ...] = ()
    tables: str = ""
    of_keys: Positions | None = None

    @property
    def is_rotary(self) -> bool:
        """Whether q and k are rotated, and nothing is added."""
        return self.kind in _ROTARY

    @property
    def text(self) -> str:
        """As `positions_of` reads them; "" where it has no form for them.

        >>> positions_of("rope-halves:base=500000,factor=8").text
        'rope-halves:base=500000,factor=8'
        """
        right = positions_of(self.kind, self.n_past)
        if replace(right, base=self.base, factor=self.factor, width=self.width) != self:
            return ""
        numbers = {"base": self.base, "part": self.width, "factor": self.factor}
        usual = {"base": right.base, "part": right.width, "factor": right.factor}
        options = [f"{x}={plain(y)}" for x, y in numbers.items() if y is not None and y != usual[x]]
        return f"{self.kind}:{','.join(options)}" if options else self.kind

    def turns(self, dim: int) -> Array:
        """How far each pair of vectors of this width is turned by each position, in radians."""
        width = self.width or dim
        if self.frequencies:
            return np.array(self.frequencies)
        return rotary_angles([1.0], self.of_width or width, base=self.base)[0, : width // 2]

    def key_ids(self, n_k: int) -> Ids:
        """The position of every key, the cached ones first."""
        at = np.arange(n_k)
        return np.where(at < self.n_past, self.from_past + at, self.from_new + at - self.n_past)

    def put_in(
        self, qkv: Mapping[str, Array], rows: Ids | None = None, dtype: DType = "float64"
    ) -> dict[str, Array]:
        """q (of these query rows; of all where left out), k and v with their positions."""
        rows = np.arange(qkv["q"].shape[-2]) if rows is None else rows
        of_keys, n_k = self.of_keys or self, qkv["k"].shape[-2]
        keys = self.key_ids(n_k)
        ids = {"q": rows + self.from_query, "k": of_keys.key_ids(n_k), "v": keys}
        each = {"q": self, "k": of_keys, "v": self}
        return {**qkv, **{x: each[x]._put(qkv[x], ids[x], dtype) for x in self.on}}

    def take_out(
        self, gradients: Mapping[str, Array], rows: Ids, n_k: int, dtype: DType = "float64"
    ) -> dict[str, Array]:
        """d_q (of these query rows) and d_k before the rotation: rotated back by these angles."""
        of_keys = self.of_keys or self
        ids = {"d_q": rows + self.from_query, "d_k": of_keys.key_ids(n_k)}
        each = {"d_q": self, "d_k": of_keys}
        if not self.is_rotary:  # what is added has the gradient of what it is added to
            return dict(gradients)
        on = [x for x in gradients if x in self.back_on and x.removeprefix("d_") in self.on]
        back = {
            x: each[x]._put(gradients[x], ids[x], dtype, back=x not in self.forth_on) for x in on
        }
        return {**gradients, **back}

    def _put(self, x: Array, ids: Ids, dtype: DType, *, back: bool = False) -> Array:
        if self.is_rotary:
            return self._turned(x, ids, dtype, back=back)
        n, dim = int(ids.max()) + 1, x.shape[-1]
        exponent: Exponent = "paper" if self.kind == "paper" else "article"
        angles = sinusoidal(n, dim, exponent=exponent, base=self.base)["angles"].value[ids]
        table = waves_of(_rounded(angles, dtype), dim)
        if self.in_halves:
            table = np.concatenate([table[:, 0::2], table[:, 1::2]], axis=-1)
        with np.errstate(over="ignore", invalid="ignore"):
            return x + round_to(table, dtype).astype(np.float64)

    def _turned(self, x: Array, ids: Ids, dtype: DType, *, back: bool) -> Array:
        """y = x · cos + x of the other of a pair · sin, which is −sin at the first of a pair.

        back  the gradient of x from that of y
        """
        width = self.width or x.shape[-1]
        angles = _rounded(self.times * (ids[:, None] / self.factor * self.turns(width)), dtype)
        entries, half = np.arange(width), width // 2
        pairs = {"rope-halves": entries % half, "rope-interleaved": entries // 2}
        other, is_first = entries ^ 1, entries % 2 == 0
        if self.kind == "rope-halves":
            other, is_first = (entries + half) % width, entries < half
        of_entries = pairs[self.tables or self.kind]
        cos, sin = (round_to(f(angles), dtype)[:, of_entries] for f in (np.cos, np.sin))
        sin = np.where(is_first, -sin, sin)
        vectors, result = x[..., :width], x.copy()
        across = (vectors * sin)[..., other] if back else vectors[..., other] * sin
        result[..., :width] = vectors * cos + across
        return result


def _rounded(angles: Array, dtype: DType) -> Array:
    """Angles as an implementation in this number type has them: in float32 at least."""
    return angles if dtype == "float64" else angles.astype(np.float32).astype(np.float64)


def positions_of(text: str, n_past: int = 0, d_k: int = 0) -> Positions:
    """The right positions of a kind: keys count from 0, queries from the length of the past.

    Behind a colon are numbers that are not the usual ones: the base, by rotary positions also the
    part of the width that is rotated (a share of d_k, or a number of entries) and the factor by
    which positions are divided. ConventionError for a kind or a number that does not exist.

    >>> sorted(positions_of("rope-halves").on)
    ['k', 'q']
    >>> positions_of("rope-interleaved:base=500000,part=0.5,factor=8", d_k=64).width
    32
    """
    kind, colon, options = str(text).partition(":")
    if kind not in get_args(PositionKind):
        kinds = ", ".join(get_args(PositionKind))
        raise ConventionError(f"positions are {kind!r}", f"use one of {kinds}")
    on = frozenset("qk" if kind in _ROTARY else "qkv")
    positions = Positions(
        cast(PositionKind, kind), n_past, on, from_query=n_past, from_past=0, from_new=n_past
    )
    names = ("base", "part", "factor") if positions.is_rotary else ("base",)
    numbers = dict[str, float]()
    for option in options.split(",") if colon else ():
        name, _, number = option.partition("=")
        value = math.nan
        with suppress(ValueError):
            value = float(number)
        is_known = name.strip() in names and name.strip() not in numbers
        numbers[name.strip()] = value
        if not is_known or not math.isfinite(value):
            hint = f"use {FORM}" if positions.is_rotary else "use KIND:base=B"
            raise ConventionError(f"positions {text!r} have {option!r}", hint)
    base, factor, part = (numbers.get(x, 1.0) for x in ("base", "factor", "part"))
    if base < 1 or factor <= 0 or part <= 0:
        hint = "the base is at least 1, the part and the factor are above 0"
        raise ConventionError(f"positions are {text!r}", hint)
    width = part * d_k if part <= 1 else part
    if d_k and "part" in numbers:
        entries = round(width)
        if abs(width - entries) > 1e-6 * d_k or entries % 2 or not 2 <= entries <= d_k:
            message = f"the part {part:g} of d_k {d_k} is {width:g} entries"
            raise ConventionError(message, f"rotary positions rotate an even number, at most {d_k}")
        positions = replace(positions, width=entries if entries != d_k else None)
    return replace(positions, base=numbers.get("base", positions.base), factor=factor)


def check_widths(positions: Positions, d_k: int, d_v: int) -> None:
    """Raises ShapeError where positions of this kind do not fit vectors of these widths."""
    if positions.is_rotary:
        if (positions.width or d_k) % 2:
            raise ShapeError(f"d_k is {d_k}", "rotary positions rotate pairs: it must be even")
    elif d_k != d_v:
        hint = "sinusoidal positions are added to all three as embeddings of one width"
        raise ShapeError(f"q and k are {d_k} wide but v is {d_v}", hint)
