"""The stages of a setup over a subset, piece by piece: `attend`'s plan with the setup's changes.

    Setup, Subset ── q, k, v, mask of the subset ── positions ── plan, changed ── run ──> stages

A subset picks batch items, heads and query rows, so that a few rows can represent all, and all can
be computed in bounded memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli.arrays import Array
from attncli.attention.functional import round_to, widen
from attncli.attention.plan import Sizes, plan
from attncli.attention.run import Step, changed, run
from attncli.check.noise import Arithmetic, lowers, row_noise
from attncli.check.setup import NANS, ZEROS, Setup
from attncli.convention import DType
from attncli.stages import MAPS, OUTPUT, QKV, SCORES, WEIGHTS, kind_of

Indices = npt.NDArray[np.intp]
STAGES = (*MAPS, OUTPUT)
CELLS = 2**21
"""How many scores are computed at once: 16 MB of float64 a stage."""


class Subset(NamedTuple):
    """Indices of batch items, heads and query rows."""

    batch: Indices
    head: Indices
    row: Indices

    @property
    def sizes(self) -> tuple[int, int, int]:
        return len(self.batch), len(self.head), len(self.row)

    def take(self, at: Subset) -> Subset:
        """The subset with only these positions of each axis."""
        return Subset(*(axis[picked] for axis, picked in zip(self, at, strict=True)))

    def with_axis(self, axis: int, indices: Indices) -> Subset:
        """The subset with other indices along an axis."""
        return Subset(*(indices if i == axis else own for i, own in enumerate(self)))


def all_of(sizes: Sequence[int]) -> Subset:
    """Every batch item, head and row of the first three sizes."""
    return Subset(*(np.arange(size) for size in sizes[:3]))


def stages(
    setup: Setup, subset: Subset, wanted: Collection[str], dtype: DType = "float64"
) -> dict[str, Array]:
    """The wanted stages over the subset, as float64 arrays [batch, head, row, …].

    One that the plan lacks, as it would do nothing, is the stage before it.

    >>> from attncli.check.setup import setup_of
    >>> setup = setup_of([[2.0]], [[1.0], [1.0]], [[3.0], [5.0]])
    >>> stages(setup, all_of(setup.shape), ["output"])["output"].tolist()
    [[[[4.0]]]]
    """
    return _stages(setup, subset, wanted, dtype, None)[0]


def stages_and_noise(
    setup: Setup, subset: Subset, wanted: Collection[str], arithmetic: Arithmetic
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The wanted stages in float64, and the noise of their rows, [batch, head, row], in one pass.

    The noise is that of `noise.row_noise`, in another arithmetic than the stages.
    """
    return _stages(setup, subset, wanted, "float64", arithmetic)


def _stages(
    setup: Setup,
    subset: Subset,
    wanted: Collection[str],
    dtype: DType,
    arithmetic: Arithmetic | None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    found: dict[str, Array] = {}
    steps = steps_of(setup, dtype)
    planned = {step.name for step in steps}
    sources = {}
    for name in wanted:
        before = STAGES[: STAGES.index(setup.relabel.get(name, name)) + 1]
        sources[name] = next(stage for stage in reversed(before) if stage in planned)
    noise = {name: np.zeros(subset.sizes) for name in (wanted if arithmetic else ())}
    computed = {*sources.values()} | ({SCORES, WEIGHTS} if arithmetic else set())
    if arithmetic and lowers(setup.how) and setup.may_mask():
        computed.add("mask")
    for at in _pieces(setup, all_of(subset.sizes)):
        values, pick = _computed(setup, steps, subset.take(at), computed, dtype)
        for name, source in sources.items():
            value = pick(values[source])
            if source == OUTPUT:
                value = _unwritten(setup, subset.take(at), value)
            if name not in found:
                found[name] = np.empty((*subset.sizes, value.shape[-1]))
            found[name][np.ix_(*at)] = value
        if arithmetic:
            rows = row_noise(values, setup, {*sources.values()}, arithmetic)
            for name, source in sources.items():
                noise[name][np.ix_(*at)] = pick(rows[source])
    return found, noise


def _pieces(setup: Setup, at: Subset) -> Iterator[Subset]:
    """The positions, cut in halves until no piece needs more than CELLS scores."""
    whole = setup.whole_axes
    sizes = [setup.shape[i] if i in whole else size for i, size in enumerate(at.sizes)]
    axis = next((i for i, size in enumerate(sizes) if i not in whole and size > 1), None)
    if axis is None or math.prod(sizes) * setup.shape[3] <= CELLS:
        yield at
        return
    for half in np.array_split(at[axis], 2):
        yield from _pieces(setup, at.with_axis(axis, half))


def _computed(
    setup: Setup, steps: Sequence[Step], subset: Subset, wanted: Collection[str], dtype: DType
) -> tuple[dict[str, Array], Callable[[Array], Array]]:
    """The wanted stages, each rounded to dtype, with q, k and v; and what picks the subset of them.

    Where softmax needs an axis whole, they are computed over all of it.
    """
    source, whole, every = _sources(setup, subset), setup.whole_axes, all_of(setup.shape)
    over = Subset(*(every[axis] if axis in whole else own for axis, own in enumerate(source)))
    inputs = inputs_over(setup, over, steps)
    numbers = {name: x for name, x in inputs.items() if kind_of(name).role != "aside"}
    inputs |= _rounded(numbers, dtype)
    if setup.positions is not None:
        qkv = {name: inputs[name] for name in QKV}
        inputs |= _rounded(setup.positions.put_in(qkv, inputs["rows"], dtype), dtype)
    computed = run(steps, inputs, wanted)

    def pick(x: Array) -> Array:
        for axis in whole:
            x = np.take(x, source[axis], axis=axis)
        return x

    return computed, pick


def _sources(setup: Setup, subset: Subset) -> Subset:
    """The batch items, heads and rows that are computed in place of those of the subset."""
    for axis, indices in setup.instead.items():
        own, other = subset[axis], indices[subset[axis]]
        subset = subset.with_axis(axis, np.where(other < 0, own, other))
    return subset


def _unwritten(setup: Setup, subset: Subset, output: Array) -> Array:
    """The output with zeros, or NaN, at the positions that a setup says are not written."""
    for axis, indices in setup.instead.items():
        at = indices[subset[axis]].reshape([-1 if i == axis else 1 for i in range(4)])
        output = np.where(at == ZEROS, 0.0, np.where(at == NANS, np.nan, output))
    return output


def _rounded(arrays: Mapping[str, Array], dtype: DType) -> dict[str, Array]:
    return {name: round_to(widen(x, dtype), dtype) for name, x in arrays.items()}


def steps_of(setup: Setup, dtype: DType = "float64") -> list[Step]:
    """The plan of a setup, with its changes; every query head has its own key head."""
    given = (*setup.inputs, "rows")
    sizes = Sizes(setup.shape, setup.shape[1], setup.d_k, setup.n_past, given, setup.is_added)
    steps = changed(plan(replace(setup.how, dtype=dtype), sizes), setup.changes)
    more = setup.reads
    return [s._replace(reads={**s.reads, **more[s.name]}) if s.name in more else s for s in steps]


def inputs_over(
    setup: Setup, subset: Subset, steps: Sequence[Step], wanted: Collection[str] | None = None
) -> dict[str, Array]:
    """The rows, and every input (the wanted ones) of the subset, picked by the names of its axes.

    A step that reads the rows picks them itself from the masks that it reads.
    """
    key_heads = setup.key_heads[subset.head]
    picked = {"batch": subset.batch, "head": subset.head, "kv_head": key_heads, "query": subset.row}
    by_row = {x for step in steps if "rows" in step.reads.values() for x in step.reads.values()}
    found: dict[str, Array] = {"rows": subset.row}
    for name in setup.inputs if wanted is None else wanted & setup.inputs.keys():
        x = setup.inputs[name]
        for axis, kind in enumerate(kind_of(name).axes_of(x.ndim)):
            at, size = picked.get(kind), x.shape[axis]
            by_itself = kind == "query" and name in by_row and kind_of(name).role == "aside"
            if at is None or size == 1 or by_itself:
                continue
            if not np.array_equal(at, np.arange(size)):
                x = np.take(x, at, axis=axis)
        found[name] = x
    return found


def mask_of(setup: Setup, rows: Indices) -> Array | None:
    """The additive mask of these query rows; it broadcasts to [batch, head, row, n_k].

    Only the rows asked for are built: the whole mask may not fit into memory.
    """
    if not setup.may_mask():
        return None
    steps = steps_of(setup)
    subset = all_of(setup.shape)._replace(row=rows)
    reads = {name for step in steps if step.name == "mask" for name in step.reads.values()}
    return run(steps, inputs_over(setup, subset, steps, reads), ["mask"])["mask"]


def at_once(setup: Setup) -> int:
    """How many scores a setup needs at once at least: those along the axes that must be whole."""
    return setup.shape[3] * math.prod(setup.shape[axis] for axis in setup.whole_axes)
