"""The stages of a case, computed piece by piece: `attend`'s own plan, with the case's changes.

    Case, Cut ── cut q, k, v, mask ── positions ── scores ── plan(how) with edits ── output

A Cut picks batch items, heads and query rows, so that a few rows can stand for all, and all can
be computed in bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from attncli.attention import functional
from attncli.attention.dot_product import Step, plan, unseen
from attncli.attention.heads import key_head_of
from attncli.attention.precision import round_to, widen
from attncli.check.case import Array, Case, four_axes, total_mask
from attncli.convention import DType

Indices = npt.NDArray[np.intp]
BEFORE_OUTPUT = ("scores", "scaled", "capped", "masked", "weights", "dropped")
STAGES = (*BEFORE_OUTPUT, "output")
CELLS = 2**21
"""How many scores are computed at once: 16 MB of float64 a stage."""


@dataclass(frozen=True, eq=False)
class Cut:
    """Which batch items, heads and query rows."""

    batch: Indices
    head: Indices
    row: Indices

    @property
    def sizes(self) -> tuple[int, int, int]:
        return len(self.batch), len(self.head), len(self.row)

    def take(self, positions: Sequence[Indices]) -> Cut:
        """The cut that holds only these positions of each axis."""
        axes = (self.batch, self.head, self.row)
        return Cut(*(axis[at] for axis, at in zip(axes, positions, strict=True)))


def whole(case: Case) -> Cut:
    """The cut that leaves nothing out."""
    n_batch, n_heads, n_q, _ = case.shape
    return Cut(np.arange(n_batch), np.arange(n_heads), np.arange(n_q))


def stages(
    case: Case, cut: Cut, wanted: Sequence[str], dtype: DType = "float64"
) -> dict[str, Array]:
    """The wanted stages over the cut, as float64 arrays [batch, head, row, …].

    >>> from attncli.check.case import case_of
    >>> case = case_of([[2.0]], [[1.0], [1.0]], [[3.0], [5.0]])
    >>> stages(case, whole(case), ["output"])["output"].tolist()
    [[[[4.0]]]]
    """
    found: dict[str, Array] = {}
    for positions in _pieces(case, cut):
        part = _piece(case, cut.take(positions), dtype)
        for name in wanted:
            value = part[case.instead.get(name, name)]
            if name not in found:
                found[name] = np.empty((*cut.sizes, value.shape[-1]))
            found[name][np.ix_(*positions)] = value
    return found


def _piece(case: Case, cut: Cut, dtype: DType) -> dict[str, Array]:
    """Every stage of one piece, computed with the axis that softmax needs complete."""
    axis = case.whole_axis
    if axis is None:
        return run(case, cut, dtype)
    name = ("batch", "head", "row")[axis]
    part = run(case, replace(cut, **{name: getattr(whole(case), name)}), dtype)
    picked = getattr(cut, name)
    return {stage: np.take(value, picked, axis=axis) for stage, value in part.items()}


def run(
    case: Case,
    cut: Cut,
    dtype: DType,
    multiply: Callable[[Array, Array], Array] | None = None,
) -> dict[str, Array]:
    """Every stage over the cut, each rounded to dtype; a stage that does nothing is a copy.

    multiply takes the place of the matrix product, for sums in another precision.
    """
    how = replace(case.how, dtype=dtype, dropout=0.0)
    q, k, v = (widen(x, dtype) for x in _inputs(case, cut, dtype))
    mask = _cut_mask(total_mask(case, cut.row), cut)
    steps = plan(how, case.q.shape[-1], mask)
    for edit in case.edits:
        steps = edit(steps, mask, how)
    steps += _dropout(case, cut)
    s = functional.scores(q, k) if multiply is None else multiply(q, np.swapaxes(k, -1, -2))
    found = {"scores": round_to(s, dtype)}
    x = found["scores"]
    for step in steps:
        x = round_to(step.compute(widen(x, dtype)), dtype)
        found[step.name] = x
    last = widen(x, dtype)
    hidden = None if case.leaky else unseen(how, mask)
    output = multiply(last, v) if multiply else functional.weighted_sum(last, v, hidden)
    return {**_filled(found), "output": round_to(output, dtype)}


def _filled(found: dict[str, Array]) -> dict[str, Array]:
    """Stages that do nothing hold what the stage before them holds."""
    filled = {}
    last = found["scores"]
    for name in BEFORE_OUTPUT:
        last = found.get(name, last)
        filled[name] = last
    return filled


def _inputs(case: Case, cut: Cut, dtype: DType) -> tuple[Array, Array, Array]:
    """q, k and v over the cut, rounded to dtype, with their positions where there are any."""
    q, k, v = (round_to(widen(x, dtype), dtype) for x in _cut_inputs(case, cut))
    if case.placement is None:
        return q, k, v
    q, k, v = case.placement.put_in(q, k, v, cut.row, dtype)
    return round_to(q, dtype), round_to(k, dtype), round_to(v, dtype)


def _cut_inputs(case: Case, cut: Cut) -> tuple[Array, Array, Array]:
    order = key_head_of(case.q.shape[1], case.k.shape[1], case.how.head_order)[cut.head]
    k, v = (x[np.ix_(cut.batch, order)] for x in (case.k, case.v))
    return case.q[np.ix_(cut.batch, cut.head, cut.row)], k, v


def _cut_mask(mask: Array | None, cut: Cut) -> Array | None:
    """The batch items and heads of the cut; its rows are picked already."""
    if mask is None:
        return None
    wide = four_axes(mask)
    batch, head = (
        np.arange(1) if size == 1 else picked
        for size, picked in zip(wide.shape, (cut.batch, cut.head), strict=False)
    )
    return wide[np.ix_(batch, head)]


def at_once(case: Case) -> int:
    """How many scores a case needs at once, at the least: those of the axis softmax runs over."""
    axis = case.whole_axis
    return case.shape[3] * (1 if axis is None else case.shape[axis])


def _dropout(case: Case, cut: Cut) -> list[Step]:
    if case.kept is None:
        return []
    kept, share = case.kept[np.ix_(cut.batch, cut.head, cut.row)], case.how.dropout
    return [Step("dropped", "D", "", lambda x: np.where(kept, x / x.dtype.type(1 - share), 0))]


def _pieces(case: Case, cut: Cut) -> Iterator[tuple[Indices, Indices, Indices]]:
    """Positions of the cut, piece by piece, so that no piece has more than CELLS scores."""
    step = list(cut.sizes)
    full, n_k = case.shape[:3], case.shape[3]
    fixed = case.whole_axis
    for axis in range(3):
        if axis == fixed:
            continue
        others = [full[i] if i == fixed else step[i] for i in range(3) if i != axis]
        step[axis] = min(step[axis], max(1, CELLS // (n_k * others[0] * others[1])))
    if fixed is not None:
        step[fixed] = cut.sizes[fixed]
    starts = (range(0, size, width) for size, width in zip(cut.sizes, step, strict=True))
    for corner in product(*starts):
        ends = (np.arange(size) for size in cut.sizes)
        batch, head, row = (
            at[start : start + width] for at, start, width in zip(ends, corner, step, strict=True)
        )
        yield batch, head, row
