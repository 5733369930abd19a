"""Names of places in an observed stage: by token where it has a label, else q1, k2, head 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attncli.check.case import Case
from attncli.check.engine import Cut, Indices
from attncli.trace import Stage

_KINDS = {"batch": "batch items", "head": "heads", "query": "rows", "key": "columns"}


@dataclass(frozen=True, eq=False)
class Names:
    """How the entries of one stage are called.

    stage  has the shape of the whole stage, and no numbers
    cut    which of it was observed
    ndim   how many axes the caller's arrays have; the ones before are not spoken of
    """

    stage: Stage
    cut: Cut
    ndim: int

    @property
    def axes(self) -> tuple[str, ...]:
        """batch, head, query, and key or d_v."""
        return self.stage.axes

    def index(self, axis: int) -> Indices:
        """The whole stage's positions of an axis that were observed."""
        if axis == 3:
            return np.arange(self.stage.value.shape[3])
        return (self.cut.batch, self.cut.head, self.cut.row)[axis]

    def one(self, axis: int, position: int) -> str:
        """One entry of an axis, such as q3 or d_v 2."""
        name = self.stage.label(self.axes[axis], int(self.index(axis)[position]))
        return f"d_v {name}" if self.axes[axis] == "d_v" else name

    def _bare(self, axis: int, position: int) -> str:
        """One entry, where the kind of axis has been said already."""
        return self.one(axis, position).removeprefix("head ").removeprefix("batch ")

    def place(self, position: Sequence[int]) -> str:
        """One entry, such as head 1, q3, k2."""
        spoken = range(4 - self.ndim, 4)
        return ", ".join(self.one(axis, position[axis]) for axis in spoken)

    def whole_index(self, position: Sequence[int]) -> tuple[int, ...]:
        """The 0-based index of an entry in the whole stage, as the caller's axes count."""
        spoken = range(4 - self.ndim, 4)
        return tuple(int(self.index(axis)[position[axis]]) for axis in spoken)

    def span(self, axis: int, positions: Indices) -> str:
        """Some entries of an axis: `head 2`, `heads 1, 3`, `rows q3 to q7`, `columns k1, k4`."""
        if len(positions) == 1:
            return self.one(axis, positions[0])
        kind = _KINDS.get(self.axes[axis], "columns")
        first, last = self._bare(axis, positions[0]), self._bare(axis, positions[-1])
        if len(positions) == positions[-1] - positions[0] + 1:
            return f"{kind} {first} to {last}"
        shown = ", ".join(self._bare(axis, at) for at in positions[:5])
        more = f" and {len(positions) - 5} more" if len(positions) > 5 else ""
        return f"{kind} {shown}{more}"


def names_of(
    stage: str, case: Case, cut: Cut, ndim: int, labels: Mapping[str, Sequence[str]]
) -> Names:
    """The names of one stage's entries."""
    last, width = ("d_v", case.v.shape[-1]) if stage == "output" else ("key", case.shape[3])
    shape = np.broadcast_to(np.float64(0), (*case.shape[:3], width))
    words = {axis: tuple(names) for axis, names in labels.items() if names}
    return Names(Stage(stage, "", "", shape, ("batch", "head", "query", last), words), cut, ndim)
