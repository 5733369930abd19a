"""Selections: which numbers of a stage a claim is about, and what is made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from attncli.errors import InputError
from attncli.examples.schema import At, Take
from attncli.files.messages import listing, quote
from attncli.trace import Stage

Array = npt.NDArray[np.float64]

_ALONG: dict[str, Any] = {"sum": np.sum, "mean": np.mean, "deviation": np.std}


@dataclass(frozen=True, eq=False)
class Selection:
    """Some numbers of a stage, with the axes that are left.

    magnitude is the greatest number that went into them.
    """

    value: Array
    axes: tuple[str, ...]
    magnitude: float


def select(stage: Stage, at: At, take: Take | None = None) -> Selection:
    """The numbers of a stage at a place, and what is made of them.

    An axis named in `at` by one number or label goes away; one named by several stays.
    Raises InputError for an axis, number or label that the stage does not have.

    >>> table = Stage("weights", "A", "", np.array([[0.4, 0.6], [0.3, 0.7]]), ("query", "key"))
    >>> select(table, {"query": "q2"}).value.tolist(), select(table, {"query": 1, "key": 2}).value
    ([0.3, 0.7], array(0.6))
    """
    index = indices(stage, at)
    value = np.asarray(stage.value, dtype=np.float64)[np.ix_(*index)]
    kept = [axis for axis in stage.axes if not isinstance(at.get(axis), int | str)]
    value = value.reshape([len(index[stage.axes.index(axis)]) for axis in kept])
    found = Selection(value, tuple(kept), _magnitude(value))
    return found if take is None else _taken(stage, found, take)


def indices(stage: Stage, at: At) -> list[list[int]]:
    """For every axis of a stage, the indices from 0 that a place means. Raises InputError."""
    if unknown := [axis for axis in at if axis not in stage.axes]:
        raise InputError(
            f"stage {stage.name} has no axis {quote(unknown[0])}", f"it has {listing(stage.axes)}"
        )
    found = []
    for axis, size in zip(stage.axes, stage.value.shape, strict=True):
        if axis not in at:
            found.append(list(range(size)))
            continue
        wanted = at[axis]
        several = wanted if isinstance(wanted, list) else [wanted]
        found.append([_index(stage, axis, entry, size) for entry in several])
    return found


def _index(stage: Stage, axis: str, wanted: int | str, size: int) -> int:
    if isinstance(wanted, int):
        if not 1 <= wanted <= size:
            raise InputError(
                f"stage {stage.name} has {size} entries along {axis}, not a number {wanted}",
                "entries are counted from 1",
            )
        return wanted - 1
    names = stage.names(axis)
    if (count := names.count(wanted)) != 1:
        raise InputError(
            f"stage {stage.name} has {'several entries' if count else 'no entry'} {quote(wanted)} "
            f"along {axis}",
            f"name it by its number, 1 to {size}" if count else f"it has {listing(names)}",
        )
    return names.index(wanted)


def _magnitude(values: Array) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max(initial=0.0))


def _taken(stage: Stage, found: Selection, take: Take) -> Selection:
    """What `take` makes of the numbers."""
    value, axes = found.value, found.axes
    if take.minus is not None:
        other = select(stage, take.minus)
        if other.value.shape != value.shape:
            raise InputError(f"the two places in stage {stage.name} differ in shape")
        with np.errstate(all="ignore"):
            return replace(found, value=value - other.value)
    if take.shape:
        sizes = np.array(value.shape, dtype=np.float64)
        return Selection(sizes, ("axis",), _magnitude(sizes))
    if take.future:
        return _future(stage, found)
    what, axis = take.key, str(take.value)
    if axis not in axes:
        raise InputError(
            f"there is no axis {quote(axis)} left in stage {stage.name}",
            f"there is {listing(axes) or 'none'}",
        )
    with np.errstate(all="ignore"):
        made = np.asarray(_ALONG[what](value, axis=axes.index(axis)))
    return Selection(made, tuple(left for left in axes if left != axis), found.magnitude)


def _future(stage: Stage, found: Selection) -> Selection:
    """The cells whose key comes after their query."""
    if found.axes[-2:] != ("query", "key") or found.value.size != stage.value.size:
        raise InputError(
            f"stage {stage.name} there is not a table of queries and keys",
            'take "future" of the whole of scores, masked or weights',
        )
    later = np.triu(np.ones(found.value.shape[-2:], dtype=bool), k=1)
    return Selection(found.value[..., later].ravel(), ("cell",), found.magnitude)
