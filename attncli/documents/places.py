"""Places in a stage: which of its numbers a claim is about, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.documents.example import At, Entries, Take
from attncli.errors import InputError
from attncli.files.messages import listing, quote
from attncli.trace import Stage

Array = npt.NDArray[np.float64]

_ALONG: dict[str, Any] = {"sum": np.sum, "mean": np.mean, "deviation": np.std}


@dataclass(frozen=True, eq=False)
class Piece:
    """Some numbers of a stage, with the axes and names that are left.

    magnitude is the greatest number that went into them.
    """

    value: Array
    axes: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    magnitude: float


def piece(stage: Stage, at: At, take: Take | None = None) -> Piece:
    """The numbers of a stage at a place, and what is made of them.

    An axis named in `at` by one number or label goes away; one named by several stays.
    Raises InputError for an axis, number or label that the stage does not have.

    >>> table = Stage("weights", "A", "", np.array([[0.4, 0.6], [0.3, 0.7]]), ("query", "key"))
    >>> piece(table, {"query": "q2"}).value.tolist(), piece(table, {"query": 1, "key": 2}).value
    ([0.3, 0.7], array(0.6))
    """
    index = cells(stage, at)
    value = np.asarray(stage.value, dtype=np.float64)[np.ix_(*index)]
    whole = [axis for axis in stage.axes if not isinstance(at.get(axis), int | str)]
    names = {
        axis: tuple(stage.label(axis, int(i)) for i in rows)
        for axis, rows in zip(stage.axes, index, strict=True)
        if axis in whole
    }
    kept = value.reshape([len(names[axis]) for axis in whole])
    found = Piece(kept, tuple(whole), names, _magnitude(kept))
    return found if take is None else _taken(stage, found, take)


def cells(stage: Stage, at: At) -> list[list[int]]:
    """For every axis of a stage, the indices from 0 that a place means."""
    if unknown := [axis for axis in at if axis not in stage.axes]:
        raise InputError(
            f"stage {stage.name} has no axis {quote(unknown[0])}", f"it has {listing(stage.axes)}"
        )
    return [_indices(stage, axis, at.get(axis)) for axis in stage.axes]


def _indices(stage: Stage, axis: str, wanted: Entries | None) -> list[int]:
    size = stage.value.shape[stage.axes.index(axis)]
    if wanted is None:
        return list(range(size))
    several = wanted if isinstance(wanted, tuple) else (wanted,)
    return [_index(stage, axis, one, size) for one in several]


def _index(stage: Stage, axis: str, wanted: int | str, size: int) -> int:
    if isinstance(wanted, int):
        if not 1 <= wanted <= size:
            raise InputError(
                f"stage {stage.name} has {size} entries along {axis}, not a number {wanted}",
                "entries are counted from 1",
            )
        return wanted - 1
    names = stage.names(axis)
    if names.count(wanted) != 1:
        many = "several entries" if wanted in names else "no entry"
        raise InputError(
            f"stage {stage.name} has {many} {quote(wanted)} along {axis}",
            f"name it by its number, 1 to {size}"
            if wanted in names
            else f"it has {listing(names)}",
        )
    return names.index(wanted)


def _magnitude(values: Array) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max(initial=0.0))


def _taken(stage: Stage, found: Piece, take: Take) -> Piece:
    value, axes = found.value, found.axes
    if take.what == "shape":
        sizes = np.array(value.shape, dtype=np.float64)
        return Piece(sizes, ("axis",), {"axis": axes}, _magnitude(sizes))
    if take.what == "minus":
        other = piece(stage, take.of)
        if other.value.shape != value.shape:
            raise InputError(f"the two places in stage {stage.name} differ in shape")
        with np.errstate(all="ignore"):
            return Piece(value - other.value, axes, found.names, found.magnitude)
    if take.what == "future":
        return _future(stage, found)
    if take.of not in axes:
        raise InputError(
            f"there is no axis {quote(str(take.of))} left in stage {stage.name}",
            f"there is {listing(axes) or 'none'}",
        )
    with np.errstate(all="ignore"):
        made = np.asarray(_ALONG[take.what](value, axis=axes.index(take.of)))
    left = tuple(axis for axis in axes if axis != take.of)
    return Piece(made, left, {axis: found.names[axis] for axis in left}, found.magnitude)


def _future(stage: Stage, found: Piece) -> Piece:
    if found.axes[-2:] != ("query", "key") or found.value.size != stage.value.size:
        raise InputError(
            f"stage {stage.name} there is not a table of queries and keys",
            'take "future" of the whole of scores, masked or weights',
        )
    later = np.triu(np.ones(found.value.shape[-2:], dtype=bool), k=1)
    values = found.value[..., later].ravel()
    pairs = [(found.names["query"][i], found.names["key"][j]) for i, j in np.argwhere(later)]
    names = tuple(f"{query} → {key}" for query, key in pairs)
    repeated = names * (values.size // max(len(names), 1))
    return Piece(values, ("cell",), {"cell": repeated}, found.magnitude)
