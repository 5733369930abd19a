"""Memo: what the steps of a setup gave, for the other setups that edits make of it.

An edit of one formula changes nothing before it: the same step of the same arrays is not computed
again. So the setups of a search start at the first step that each of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.run import Step, computed

MOST, LARGEST = 2**20, 2**17
"""How many numbers are kept at most, 8 MB of float64, and how many of one array."""

LATEST = 2**20
"""Of larger arrays, of so many numbers, the latest of each step is kept."""

Key = tuple[Any, ...]
Result = TypeVar("Result")


class Memo:
    """Arrays by what they were made of: picked of an input, or computed by a step.

    An array is known by its id. It is kept beside what was computed of it, so that no other has the
    id; of what was picked it is known whether the array is still there.

    latest  step → by what the latest of its large stages is kept
    inputs  those of the setup that was computed first, which most others share
    """

    def __init__(self) -> None:
        self.made_of: dict[Key, tuple[Sequence[ref[Array]], ref[Array]]] = {}
        self.picked: dict[Key, tuple[Callable[[], Array | None], Array]] = {}
        self.stages: dict[Key, list[tuple[Step, Sequence[Array], Array]]] = {}
        self.once: dict[Key, tuple[Sequence[Any], Any]] = {}
        self.latest: dict[str, Key] = {}
        self.inputs: Mapping[str, Array] | None = None
        self.size = 0

    def made(self, key: Key, arrays: Sequence[Array], make: Callable[[], Array]) -> Array:
        """What is made of some arrays: once, while a setup holds it; none is held by this."""
        key = (*key, *map(id, arrays))
        before, of_result = self.made_of.get(key, ((), lambda: None))
        result = of_result()
        if result is None or any(x() is not y for x, y in zip(before, arrays, strict=True)):
            result = make()
            self.made_of[key] = [*map(ref, arrays)], ref(result)
        return result

    def picks(self, x: Array, axes: Sequence[tuple[int, npt.NDArray[np.intp]]]) -> Array:
        """Some entries of an array: of each of these axes those at some places.

        Only the inputs are held by what is picked of them: there may be many other arrays as large.
        """
        key = (id(x), *((axis, at.tobytes()) for axis, at in axes))
        of_array, result = self.picked.get(key, (lambda: None, x))
        if of_array() is x:
            return result
        is_input = any(x is other for other in (self.inputs or {}).values())
        result = x
        for axis, at in sorted(axes, key=lambda pick: len(pick[1]) / max(1, x.shape[pick[0]])):
            is_view = is_input and _is_even(at)
            result = _view(result, at, axis) if is_view else taken(result, at, axis)
        if np.may_share_memory(x, result) or self._has_room(result):
            self.picked[key] = ref(x), result
        return result

    def made_once(
        self,
        key: Key,
        sources: Sequence[Any],
        make: Callable[[], Result],
        size_of: Callable[[Result], int] = lambda _: 0,
    ) -> Result:
        """What is made of some objects, which are held by this: once, while there is room.

        size_of  how many numbers it holds that were not there before
        """
        key = (*key, *map(id, sources))
        if key in self.once:
            result: Result = self.once[key][1]
            return result
        result = make()
        if (size := size_of(result)) <= LARGEST:
            self._take(size)
            self.once[key] = sources, result
        return result

    def rows(self, at: npt.NDArray[np.intp]) -> Array:
        """Indices of rows: the same array for the same indices."""
        key = (at.tobytes(),)
        if key not in self.picked and self._has_room(at):
            self.picked[key] = ref(at), at
        return self.picked[key][1] if key in self.picked else at

    def computed(self, step: Step, values: Mapping[str, Array]) -> Array:
        """The stage of a step, which may have been computed before."""
        arrays = [values[name] for name in step.reads.values()]
        numbers = (x for x in step.params.values() if isinstance(x, int | float | tuple))
        key = (step.name, step.text, *map(id, arrays), *numbers)
        for other, _, stage in self.stages.get(key, ()):
            if _is_same(step, other):
                return stage
        result = computed(step, values)
        if self._has_room(result, *arrays):
            self.stages.setdefault(key, []).append((step, arrays, result))
        elif all(x is not None and x.size <= LATEST for x in (result, *arrays)):
            self.stages.pop(self.latest.get(step.name, ()), None)
            self.stages[key], self.latest[step.name] = [(step, arrays, result)], key
        return result

    def _has_room(self, result: Array, *arrays: Array) -> bool:
        """Whether an array is kept, with what it was made of; what there is too much of goes."""
        if any(x is None or x.size > LARGEST for x in (result, *arrays)):
            return False
        self._take(result.size)
        return True

    def _take(self, size: int) -> None:
        """Makes room for so many numbers, if need be by letting go of all others."""
        if self.size + size > MOST:
            for arrays in (self.picked, self.stages, self.once):
                arrays.clear()
            self.size = 0
        self.size += size + SMALL


SMALL = 2**6
"""An array of few numbers takes as much memory as so many more."""


def taken(x: Array, at: npt.NDArray[np.intp], axis: int) -> Array:
    """The entries of an array at these places of an axis; `np.take` would copy all of an array that
    is stored in another order."""
    if x.flags.c_contiguous:
        return np.take(x, at, axis=axis)
    return np.ascontiguousarray(x[(slice(None),) * axis + (at,)])


def _is_even(at: npt.NDArray[np.intp]) -> bool:
    """Whether places are one, or so many of the same distance in their order."""
    return len(at) == 1 or bool(len(at) > 1 and at[1] > at[0] and not np.diff(at, 2).any())


def _view(x: Array, at: npt.NDArray[np.intp], axis: int) -> Array:
    """The entries of an array at such places of an axis, which are not copied."""
    first, last = int(at[0]), int(at[-1])
    step = int(at[1]) - first if len(at) > 1 else 1
    return x[(slice(None),) * axis + (slice(first, last + 1, step),)]


def _is_same(step: Step, other: Step) -> bool:
    """Whether two steps give the same of the same arrays."""
    try:
        return step is other or step == other
    except ValueError:  # numbers that are arrays have no one answer
        return False
