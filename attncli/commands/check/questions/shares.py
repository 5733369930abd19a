"""By what shares parts of the keys are merged: as they may be, and as the output shows them.

A part has an output O_p and a log-sum-exp lse_p of its own; O = Σ_p w_p O_p, where the right w is
the softmax of the log-sum-exps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.commands.check.bugs.kernels import Parts
from attncli.commands.check.questions.answer import MOST_MAPS, PlaceMap, place_maps
from attncli.commands.check.questions.unwritten import KINDS
from attncli.formula.kernels import softmax
from attncli.tolerance.run import Indices


class Merged(NamedTuple):
    """What a merge may look at.

    parts  of the scores that softmax reads
    means  [batch, head, query, part]: of the scores of a part, before any mask
    scale  of the scores; 0 where they are not scaled
    """

    parts: Parts
    means: Array
    scale: float


class Merge(NamedTuple):
    """A way to merge parts.

    words      behind "are merged"
    formula    of the share of a part
    logarithms  [batch, head, query, part]: of the shares, up to what they have in common
    whole      the axes (0 batch, 1 head, 2 query) of which all must be there
    is_divided  whether the shares are divided by their sum
    lse         of all parts, where it is not the log-sum-exp of these logarithms
    """

    words: str
    formula: str
    logarithms: Callable[[Merged], Array]
    whole: tuple[int, ...] = ()
    is_divided: bool = True
    lse: Callable[[Merged], Array] | None = None

    def shares(self, merged: Merged) -> Array:
        """[batch, head, query, part]: by which the outputs are multiplied."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            logarithms = self.logarithms(merged)
            if not self.is_divided:
                return np.asarray(np.exp(logarithms))
            return np.asarray(np.nan_to_num(softmax(logarithms), posinf=0.0))


def _times(factor: float) -> Callable[[Merged], Array]:
    return lambda merged: merged.parts.lse * merged.parts.lse.dtype.type(factor)


def _logarithm_of_sums(merged: Merged) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(merged.parts.sums))


def _lengths(merged: Merged) -> Array:
    lse = merged.parts.lse
    return np.asarray(np.log(np.broadcast_to(merged.parts.counts, lse.shape)).astype(lse.dtype))


def _unshifted(merged: Merged) -> Array:
    lse = merged.parts.lse
    return np.where(np.isneginf(lse), lse, lse - lse.max(axis=-1, keepdims=True))


def _sum_of_all(merged: Merged) -> Array:
    return np.asarray(merged.parts.lse.sum(axis=-1))


def _scaled_again(merged: Merged, *, by: float) -> Array:
    """The maximum times the scale, or over it, beside a sum of powers that is right."""
    factor = merged.scale**by if merged.scale else 1.0
    return np.asarray(merged.parts.tops * factor + _logarithm_of_sums(merged))


SIMPLE = (
    Merge("in the wrong base: 2 to the power of a natural logarithm", "2^lse", _times(math.log(2))),
    Merge(
        "in the wrong base: e to the power of a logarithm of 2",
        "e^(lse / ln 2)",
        _times(1 / math.log(2)),
    ),
    Merge("by their maxima alone", "exp(max)", lambda merged: merged.parts.tops),
    Merge("by their sums of powers, without the maxima", "Σ exp(x − max)", _logarithm_of_sums),
    Merge("as their mean", "1", lambda merged: np.zeros_like(merged.parts.lse)),
    Merge("by their lengths", "the number of its keys", _lengths),
    Merge(
        "by log-sum-exps of smoothed keys: K of each part less its own mean",
        "exp(lse − the mean of the part's scores)",
        lambda merged: merged.parts.lse - merged.means,
    ),
    Merge(
        "by log-sum-exps whose maximum is scaled again",
        "exp(scale · max + ln Σ exp(x − max))",
        partial(_scaled_again, by=1),
    ),
    Merge(
        "by log-sum-exps whose maximum is not scaled",
        "exp(max / scale + ln Σ exp(x − max))",
        partial(_scaled_again, by=-1),
    ),
    Merge(
        "by log-sum-exps that are scaled again",
        "exp(scale · lse)",
        lambda merged: merged.parts.lse * merged.scale,
    ),
    Merge(
        "by log-sum-exps that are exchanged among the parts",
        "exp(lse of the part before)",
        lambda merged: np.roll(merged.parts.lse, 1, axis=-1),
    ),
    Merge(
        "without a division by the sum of the shares",
        "exp(lse − max lse)",
        _unshifted,
        is_divided=False,
    ),
    Merge(
        "by exp(lse of the part − the sum of all lse), not − log Σ exp of them",
        "exp(lse − Σ lse)",
        lambda merged: merged.parts.lse - _sum_of_all(merged)[..., None],
        is_divided=False,
        lse=_sum_of_all,
    ),
    Merge(
        "by adding them",
        "1",
        lambda merged: np.zeros_like(merged.parts.lse),
        is_divided=False,
    ),
)
"""The merges that look at a row alone."""


def _moved(x: Array, axis: int, indices: Array, part: int | None) -> Array:
    """Log-sum-exps read at other places of an axis: those of all parts, or of one."""
    other = np.take(x, indices, axis=axis)
    if part is None:
        return other
    result = x.copy()
    result[..., part] = other[..., part]
    return result


HEADS_AND_QUERIES = "whose heads and queries are exchanged"
ITEMS_AND_HEADS = "whose batch items and heads are exchanged"
STRIDES = "that are read with the strides of another order"

VIEWS: tuple[tuple[str, tuple[int, int, int, int], tuple[int, ...]], ...] = (
    (HEADS_AND_QUERIES, (0, 2, 1, 3), (1, 2)),
    (ITEMS_AND_HEADS, (1, 0, 2, 3), (0, 1)),
    (f"{STRIDES}, in which the parts come first", (3, 0, 1, 2), (0, 1, 2)),
    (f"{STRIDES}, in which the parts come before the queries", (0, 1, 3, 2), (1, 2)),
    (f"{STRIDES}, in which the parts come before the heads", (0, 3, 1, 2), (1, 2)),
)
"""Another order of the axes of log-sum-exps, in words; and the axes that must be whole for it."""


def _viewed(merged: Merged, order: tuple[int, ...], view: Callable[..., Array]) -> Array:
    return np.asarray(view(merged.parts.lse, order))


def _as_stored(x: Array, order: tuple[int, ...]) -> Array:
    """What is read by [batch, head, query, part] where they are stored in another order."""
    return np.ascontiguousarray(x.transpose(order)).reshape(x.shape)


def _as_read(x: Array, order: tuple[int, ...]) -> Array:
    """What is read by another order where they are stored by [batch, head, query, part]."""
    there = x.reshape([x.shape[axis] for axis in order])
    return there.transpose(np.argsort(order))


def of_views() -> Iterator[Merge]:
    """The merges by log-sum-exps of a view in another order than they are stored in."""
    for (words, order, whole), view in product(VIEWS, (_as_stored, _as_read)):
        yield Merge(
            f"by log-sum-exps {words}",
            "exp(lse at another place)",
            partial(_viewed, order=order, view=view),
            whole,
        )


def of_other_places(merged: Merged, rows: Indices, shares: Array, within: float) -> Iterator[Merge]:
    """The merges by log-sum-exps of another batch item, head or query that give some rows.

    rows    [row, 3]: the batch item, head and query of each
    shares  [row, part]: theirs
    within  how near to them those of a merge are, but for a few
    """
    lse = merged.parts.lse
    for axis, n in enumerate(lse.shape[:3]):
        maps = [*place_maps(n)] if n > 1 else []
        indices = np.stack([x.indices for x in maps]) if maps else np.zeros((0, n), np.intp)
        for part in (None, *range(min(lse.shape[3], MOST_PARTS))):
            allowed, n_far = np.arange(len(maps)), np.zeros(len(maps), np.intp)
            for place, share in zip(rows, shares, strict=True):
                others = _of_other_place(lse, place, axis, indices[allowed, place[axis]], part)
                apart = np.abs(np.nan_to_num(softmax(others)) - share).max(axis=-1, initial=0.0)
                n_far[allowed[apart > within]] += 1
                allowed = allowed[n_far[allowed] <= FAR * len(rows)]
            for x in allowed[:MOST_MAPS]:
                yield _at(maps[x], axis, part)


def _of_other_place(
    lse: Array, place: Indices, axis: int, sources: Indices, part: int | None
) -> Array:
    """[source, part]: the log-sum-exps of a row, those of all parts or of one read elsewhere."""
    at: list[Any] = [*place]
    at[axis] = sources
    others: Array = lse[tuple(at)]
    if part is None:
        return others
    result = np.tile(lse[tuple(place)], (len(sources), 1))
    result[:, part] = others[:, part]
    return result


FAR = 0.25
"""So many of the rows may be off by more: shares that are solved from 16 bits may be."""

MOST_PARTS = 3
"""Of so many parts each may be that whose log-sum-exp is read at another place."""


def _at(place_map: PlaceMap, axis: int, part: int | None) -> Merge:
    kind, letter = KINDS[axis], "bhi"[axis]
    index = ",".join(place_map.text(x) if x == letter else x for x in "bhi")
    of_part = "" if part is None else f" of part {part + 1}"
    return Merge(
        f"by log-sum-exps{of_part} of another {kind}: {place_map.words}",
        f"exp(lse[{index}])" + (f" for part {part + 1}" if part is not None else ""),
        lambda merged: _moved(merged.parts.lse, axis, place_map.indices, part),
        (axis,),
    )


# ---- as the output shows them


class Solved(NamedTuple):
    """Shares that were solved from rows.

    shares    […, part]: of what the parts add, 1 where it is right
    residual  […, e]: what is left of the observed numbers
    norms     […, part]: of what the parts add
    products  […, part, part]: of the directions that the parts point to
    """

    shares: Array
    residual: Array
    norms: Array
    products: Array

    @property
    def is_known(self) -> BoolArray:
        """[…]: whether the parts point to different directions in that row."""
        least = np.linalg.eigvalsh(self.products)[..., 0]
        return np.asarray((self.norms > 0).all(axis=-1) & (least > APART))


def solved_shares(parts: Array, observed: Array) -> Solved:
    """The shares by which parts add to what was observed: […, part, e], […, e]."""
    norms = np.linalg.norm(parts, axis=-1)
    sizes = np.where(norms == 0, 1, norms)
    units = parts / sizes[..., None]
    products = units @ units.swapaxes(-1, -2)
    inverse = np.linalg.inv(products + RIDGE * np.eye(parts.shape[-2]))
    factors, residual = np.zeros(units.shape[:-1]), observed
    for _ in range(2):  # the second time what the ridge has left
        factors = factors + (inverse @ (units @ residual[..., None]))[..., 0]
        residual = observed - (factors[..., None, :] @ units)[..., 0, :]
    return Solved(factors / sizes, residual, norms, products)


RIDGE = 1e-13
"""What is added to products of unit vectors, so that equal ones can be solved for too."""

APART = 1e-3
"""Outputs of parts that are nearer to parallel leave open which of them has which share."""
