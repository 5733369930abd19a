"""The stages of a setup, computed piece by piece: `attend`'s own plan, with the setup's changes.

    Setup, Subset ── q, k, v, mask of the subset ── positions ── plan, changed ── run ──> stages

A Subset picks batch items, heads and query rows, so that a few rows can stand for all, and all can
be computed in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from attncli.attention.functional import round_to, widen
from attncli.attention.heads import four_axes, key_head_of
from attncli.attention.run import Change, Sizes, changed, plan, run
from attncli.check.setup import Array, Setup
from attncli.convention import DType
from attncli.stages import MAPS, OUTPUT, SCORES

Indices = npt.NDArray[np.intp]
STAGES = (*MAPS, OUTPUT)
CELLS = 2**21
"""How many scores are computed at once: 16 MB of float64 a stage."""


@dataclass(frozen=True, eq=False)
class Subset:
    """Which batch items, heads and query rows."""

    batch: Indices
    head: Indices
    row: Indices

    @property
    def sizes(self) -> tuple[int, int, int]:
        return len(self.batch), len(self.head), len(self.row)

    def take(self, at: Sequence[Indices]) -> Subset:
        """The subset that holds only these positions of each axis."""
        axes = (self.batch, self.head, self.row)
        return Subset(*(axis[picked] for axis, picked in zip(axes, at, strict=True)))


def everything(setup: Setup) -> Subset:
    """The subset that leaves nothing out."""
    n_batch, n_heads, n_q, _ = setup.shape
    return Subset(np.arange(n_batch), np.arange(n_heads), np.arange(n_q))


def stages(
    setup: Setup, subset: Subset, wanted: Sequence[str], dtype: DType = "float64"
) -> dict[str, Array]:
    """The wanted stages over the subset, as float64 arrays [batch, head, row, …].

    >>> from attncli.check.setup import setup_of
    >>> setup = setup_of([[2.0]], [[1.0], [1.0]], [[3.0], [5.0]])
    >>> stages(setup, everything(setup), ["output"])["output"].tolist()
    [[[[4.0]]]]
    """
    found: dict[str, Array] = {}
    for at in _pieces(setup, subset):
        part = _piece(setup, subset.take(at), dtype)
        for name in wanted:
            value = part[setup.relabel.get(name, name)]
            if name not in found:
                found[name] = np.empty((*subset.sizes, value.shape[-1]))
            found[name][np.ix_(*at)] = value
    return found


def _piece(setup: Setup, subset: Subset, dtype: DType) -> dict[str, Array]:
    """Every stage of one piece, computed with the axis that softmax needs complete."""
    axis = setup.whole_axis
    if axis is None:
        return every_stage(setup, subset, dtype)
    name = ("batch", "head", "row")[axis]
    whole = replace(subset, **{name: getattr(everything(setup), name)})
    part, picked = every_stage(setup, whole, dtype), getattr(subset, name)
    return {stage: np.take(value, picked, axis=axis) for stage, value in part.items()}


def every_stage(
    setup: Setup, subset: Subset, dtype: DType, changes: Mapping[str, Change] | None = None
) -> dict[str, Array]:
    """Every stage over the subset, each rounded to dtype; one that does nothing is a copy."""
    inputs = _inputs(setup, subset, dtype)
    n_q, n_k = setup.shape[2:]
    scores = (*subset.sizes[:2], n_q, n_k)
    sizes = Sizes(scores, scores[1], setup.q.shape[-1], setup.n_past, frozenset(inputs))
    steps = plan(replace(setup.how, dtype=dtype), sizes)
    found = run(changed(steps, {**setup.changes, **(changes or {})}), inputs)
    filled, last = {}, found[SCORES]
    for name in MAPS:
        last = found.get(name, last)
        filled[name] = last
    return {**filled, OUTPUT: found[OUTPUT]}


def mask_of(setup: Setup, rows: Indices) -> Array | None:
    """Everything that restricts these query rows, additive; broadcasts to [batch, head, row, n_k].

    Only the rows asked for are built: the whole mask may not fit into memory.
    """
    subset = replace(everything(setup), row=rows)
    inputs = _masks(setup, subset)
    sizes = Sizes(setup.shape, setup.shape[1], 1, setup.n_past, frozenset(inputs))
    steps = [step for step in plan(setup.how, sizes) if step.name == "mask"]
    return run(changed(steps, setup.changes), inputs)["mask"] if steps else None


def _inputs(setup: Setup, subset: Subset, dtype: DType) -> dict[str, Array]:
    """q, k and v over the subset, rounded to dtype, with their positions, and what restricts."""
    order = key_head_of(setup.q.shape[1], setup.k.shape[1], setup.how.head_order)[subset.head]
    q = setup.q[np.ix_(subset.batch, subset.head, subset.row)]
    k, v = (x[np.ix_(subset.batch, order)] for x in (setup.k, setup.v))
    q, k, v = (round_to(widen(x, dtype), dtype) for x in (q, k, v))
    if setup.positions is not None:
        q, k, v = setup.positions.put_in(q, k, v, subset.row, dtype)
        q, k, v = (round_to(x, dtype) for x in (q, k, v))
    inputs = {"q": q, "k": k, "v": v, **_masks(setup, subset)}
    if setup.kept is not None:
        inputs["kept"] = setup.kept[np.ix_(subset.batch, subset.head, subset.row)]
    return inputs


def _masks(setup: Setup, subset: Subset) -> dict[str, Array]:
    """The mask and the key lengths of the subset."""
    found: dict[str, Array] = {"rows": subset.row}
    if setup.mask is not None:
        wide = four_axes(setup.mask)
        axes = zip(wide.shape, (subset.batch, subset.head, subset.row), strict=False)
        picked = (np.arange(1) if size == 1 else own for size, own in axes)
        found["given_mask"] = wide[np.ix_(*picked)]
    if setup.kv_len is not None:
        found["kv_len"] = setup.kv_len[subset.batch]
    return found


def at_once(setup: Setup) -> int:
    """How many scores a setup needs at once, at the least: those of the axis softmax runs over."""
    axis = setup.whole_axis
    return setup.shape[3] * (1 if axis is None else setup.shape[axis])


def _pieces(setup: Setup, subset: Subset) -> Iterator[tuple[Indices, Indices, Indices]]:
    """Positions of the subset, piece by piece, so that no piece has more than CELLS scores."""
    step = list(subset.sizes)
    full, n_k = setup.shape[:3], setup.shape[3]
    fixed = setup.whole_axis
    for axis in range(3):
        if axis == fixed:
            continue
        others = [full[i] if i == fixed else step[i] for i in range(3) if i != axis]
        step[axis] = min(step[axis], max(1, CELLS // (n_k * others[0] * others[1])))
    if fixed is not None:
        step[fixed] = subset.sizes[fixed]
    starts = (range(0, size, width) for size, width in zip(subset.sizes, step, strict=True))
    for corner in product(*starts):
        ends = (np.arange(size) for size in subset.sizes)
        batch, head, row = (
            at[start : start + width] for at, start, width in zip(ends, corner, step, strict=True)
        )
        yield batch, head, row
