"""The stages of a setup over a subset, piece by piece: `attend`'s plan with the setup's changes.

    Setup, Subset ── q, k, v, mask of the subset ── positions ── plan, changed ── run ──> stages

A subset picks batch items, heads and query rows, so that a few rows can represent all, and all can
be computed in bounded memory. Gradients that are sums over queries are computed with all of them,
by batch item and key head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli import budget
from attncli.arrays import Array
from attncli.attention.functional import round_to, widen
from attncli.attention.plan import Sizes, plan
from attncli.attention.run import Step, changed, run
from attncli.attention.split import split_steps
from attncli.attention.tiles import lse_of, running_values, tile_bounds, tile_steps
from attncli.check.noise import Arithmetic, lowers, row_noise
from attncli.check.setup import NANS, ZEROS, Edit, Setup
from attncli.check.spans import in_four, is_whole, source_of, span_of
from attncli.convention import DType
from attncli.stages import (
    BEFORE_SOFTMAX,
    GIVEN_GRADIENT,
    GRADIENTS,
    LSE,
    MAPS,
    OF_X,
    OUTPUT,
    QKV,
    SCORES,
    WEIGHTS,
    gradient_of,
    kind_of,
)

Indices = npt.NDArray[np.intp]
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
    return _either(setup, subset, wanted, dtype, list)


def altered_stages(
    setup: Setup, subset: Subset, wanted: Collection[str], alter: Edit
) -> dict[str, Array]:
    """The wanted stages of a plan whose steps are altered once it is made."""
    return _either(setup, subset, wanted, "float64", alter)


def _either(
    setup: Setup, subset: Subset, wanted: Collection[str], dtype: DType, alter: Edit
) -> dict[str, Array]:
    """The wanted stages: of some rows, or, where one depends on all queries, with all."""
    over = setup.how.softmax_over
    if of_x := [name for name in wanted if name in OF_X]:
        inner = [name for name in wanted if name not in of_x]
        found = _either(setup, subset, inner, dtype, alter) if inner else {}
        found |= _of_x(setup, of_x, dtype, alter)
        return {name: found[name] for name in wanted}
    if is_whole(wanted, over):
        return _whole_stages(setup, subset, wanted, dtype, alter)
    if not is_whole([setup.relabel.get(name, name) for name in wanted], over):
        return _stages(setup, subset, wanted, dtype, None, alter)[0]
    every = all_of(setup.shape)._replace(batch=subset.batch)
    found = _whole_stages(setup, every, wanted, dtype, alter)
    return {name: x[:, subset.head][:, :, subset.row] for name, x in found.items()}


def _of_x(setup: Setup, wanted: Collection[str], dtype: DType, alter: Edit) -> dict[str, Array]:
    """The gradients of x, its weights and biases: from those of q, k, v of all heads and items."""
    assert setup.projected is not None  # noqa: S101 - `observe` looked for it
    names = [*(gradient_of(name) for name in QKV), OUTPUT]
    found = _either(setup, all_of(setup.shape), names, dtype, alter)
    missing = 4 - setup.projected.values["q"].ndim
    known = {name: x.reshape(x.shape[missing:]) for name, x in found.items()}
    made = setup.projected.gradients(wanted, known)
    return {name: in_four(name, x) for name, x in _rounded(made, dtype).items()}


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
    alter: Edit = list,
) -> tuple[dict[str, Array], dict[str, Array]]:
    found: dict[str, Array] = {}
    steps = alter(steps_of(setup, dtype))
    sources = _sources_of(setup, steps, wanted)
    noise = {name: np.zeros(subset.sizes) for name in (wanted if arithmetic else ())}
    logits = next((step.reads["x"] for step in steps if step.name == WEIGHTS), SCORES)
    computed = {*sources.values()} | ({SCORES, logits, WEIGHTS} if arithmetic else set())
    if arithmetic and lowers(setup.how) and setup.may_mask():
        computed.add("mask")
    for at in _pieces(setup, all_of(subset.sizes)):
        values, pick = _computed(setup, steps, subset.take(at), computed, dtype)
        for name, source in sources.items():
            value = in_four(source, pick(values[source]), setup.how.softmax_over)
            if source == OUTPUT or source in GRADIENTS:
                value = _unwritten(setup, subset.take(at), value)
            if name not in found:
                found[name] = np.empty((*subset.sizes, value.shape[-1]))
            found[name][np.ix_(*at)] = value
        if arithmetic:
            rows = row_noise(values, setup, {*sources.values()}, arithmetic, logits)
            for name, source in sources.items():
                noise[name][np.ix_(*at)] = pick(rows[source])
    return found, noise


def _sources_of(setup: Setup, steps: Sequence[Step], wanted: Collection[str]) -> dict[str, str]:
    """Stage → the stage of the plan that it really is."""
    planned = dict.fromkeys(step.name for step in steps)
    return {name: source_of(setup.relabel.get(name, name), planned) for name in wanted}


MAPS_AT_ONCE = 6
"""So many stages with a number for every query and key are there at once on the way back."""


def _whole_stages(
    setup: Setup,
    subset: Subset,
    wanted: Collection[str],
    dtype: DType,
    alter: Edit = list,
) -> dict[str, Array]:
    """The wanted stages, some of which are computed with all queries.

    Each key head with the query heads that share it. A stage of rows comes from the same pass,
    unless the setup has other query heads on these key heads than the subset.
    """
    over, found = setup.how.softmax_over, dict[str, Array]()
    keys = setup.key_heads_of(subset.head)
    heads = np.flatnonzero(np.isin(setup.key_heads, keys))
    spans = {name: span_of(name, over) for name in wanted}
    if not (np.array_equal(heads, subset.head) and len(subset.row) == setup.shape[2]):
        apart = [name for name, span in spans.items() if span == "rows"]
    else:
        apart = [name for name in wanted if spans[name] == "rows" and setup.instead]
    if apart:
        found = _stages(setup, subset, apart, dtype, None, alter)[0]
    together = [name for name in wanted if name not in found]
    for batch, some in _groups(setup, subset.batch, keys):
        values, heads_here = _of_group(
            setup, subset.batch[batch], keys[some], together, dtype, alter
        )
        heads_at = np.searchsorted(subset.head, heads_here)
        for name in together:
            value = in_four(name, values[name], over)
            at = {"rows": heads_at, "keys": some, "totals": heads_here}[spans[name]]
            sizes = len(subset.batch), len(subset.head if spans[name] == "rows" else keys)
            _put(found, name, value, (batch, at), sizes, setup, is_total=spans[name] == "totals")
    return {name: found[name] for name in wanted}


def _put(
    found: dict[str, Array],
    name: str,
    value: Array,
    at: tuple[Indices, Indices],
    sizes: tuple[int, int],
    setup: Setup,
    *,
    is_total: bool,
) -> None:
    """Puts one piece of a stage in its place; adds it along axes that are summed over."""
    if not is_total:
        if name not in found:
            found[name] = np.empty((*sizes, *value.shape[2:]))
        found[name][np.ix_(*at)] = value
        return
    by_batch, by_head = _extent(setup, name)
    if name not in found:
        n = (sizes[0] if by_batch else 1, setup.shape[1] if by_head else 1)
        found[name] = np.zeros((*n, *value.shape[2:]))
    one = np.zeros(1, dtype=np.intp)
    found[name][np.ix_(at[0] if by_batch else one, at[1] if by_head else one)] += value


def _extent(setup: Setup, name: str) -> tuple[bool, bool]:
    """Whether a total has batch items and heads of its own, or is a sum over them."""
    for given in ("sinks", "given_mask"):
        if name == gradient_of(given):
            shape = in_four(name, setup.inputs[given]).shape
            return shape[0] > 1, shape[1] > 1 or given == "sinks"
    return True, True  # such as δ of every key


def _groups(setup: Setup, batch: Indices, keys: Indices) -> Iterator[tuple[Indices, Indices]]:
    """Positions of batch items and key heads, so many at once that they need at most CELLS scores.

    SizeError where a single one does not fit into memory.
    """
    whole, n_heads = setup.whole_axes, setup.shape[1]
    one = setup.shape[2] * setup.shape[3] * (n_heads // setup.inputs["k"].shape[1] or 1)
    if one > CELLS:
        need = MAPS_AT_ONCE * 8 * one
        budget.check_bytes(need, "the gradients of a key head need", "compare rows of d_q alone")
    n_batch, n_keys = len(batch), len(keys)
    if 0 in whole or 1 in whole:
        yield np.arange(n_batch), np.arange(n_keys)
        return
    at_once = max(1, CELLS // one)
    for first in range(0, n_batch, max(1, at_once // n_keys)):
        items = np.arange(first, min(n_batch, first + max(1, at_once // n_keys)))
        for start in range(0, n_keys, at_once):
            yield items, np.arange(start, min(n_keys, start + at_once))


def _of_group(
    setup: Setup,
    batch: Indices,
    keys: Indices,
    wanted: Collection[str],
    dtype: DType,
    alter: Edit,
) -> tuple[dict[str, Array], Indices]:
    """The stages of these key heads and the query heads that share them, and which those are.

    Where a changed step needs all batch items or heads, they are computed with all.
    """
    whole, every = setup.whole_axes, all_of(setup.shape)
    n_keys = setup.inputs["k"].shape[1]
    heads = np.flatnonzero(np.isin(setup.key_heads, keys))
    over_batch = every.batch if 0 in whole else batch
    over_keys = np.arange(n_keys) if 1 in whole else keys
    over_heads = every.head if 1 in whole else heads
    shape = (len(over_batch), len(over_heads), *setup.shape[2:])
    steps = alter(steps_of(setup, dtype, shape, len(over_keys)))
    sources = _sources_of(setup, steps, wanted)
    inputs = _inputs_of(setup, Subset(over_batch, over_heads, every.row), steps, dtype, over_keys)
    values = run(steps, inputs, {*sources.values()})
    values = _without_positions(setup, values, every.row, dtype)
    picks = {
        "batch": (over_batch, batch),
        "head": (over_heads, heads),
        "kv_head": (over_keys, keys),
    }
    found = {}
    for name, source in sources.items():
        x = values[source]
        for axis, kind in enumerate(kind_of(source).axes_of(x.ndim)):
            over, own = picks.get(kind, (every.row, every.row))
            if not np.array_equal(over, own) and x.shape[axis] == len(over):
                x = np.take(x, np.searchsorted(over, own), axis=axis)
        found[name] = x
    return found, heads


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
    inputs = _inputs_of(setup, over, steps, dtype)
    computed = _without_positions(setup, run(steps, inputs, wanted), over.row, dtype)

    def pick(x: Array) -> Array:
        for axis in whole:
            x = np.take(x, source[axis], axis=axis)
        return x

    return computed, pick


def _inputs_of(
    setup: Setup,
    over: Subset,
    steps: Sequence[Step],
    dtype: DType,
    keys: Indices | None = None,
) -> dict[str, Array]:
    """The inputs of a subset in the number type, with their positions."""
    inputs = inputs_over(setup, over, steps, keys=keys)
    rounded = [name for name in inputs if kind_of(name).role != "aside" or name == GIVEN_GRADIENT]
    inputs |= _rounded({name: inputs[name] for name in rounded}, dtype)
    if setup.positions is not None:
        qkv = {name: inputs[name] for name in QKV}
        inputs |= _rounded(setup.positions.put_in(qkv, inputs["rows"], dtype), dtype)
    return inputs


def _without_positions(
    setup: Setup, values: dict[str, Array], rows: Indices, dtype: DType
) -> dict[str, Array]:
    """The same with the gradients of q and k as they are before positions are put in."""
    before = {f"d_{name}" for name in ("q", "k")} & values.keys()
    if setup.positions is None or not before:
        return values
    found = {name: values[name] for name in before}
    found = setup.positions.take_out(found, rows, setup.shape[3], dtype)
    return values | _rounded(found, dtype)


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


def steps_of(
    setup: Setup,
    dtype: DType = "float64",
    shape: tuple[int, ...] | None = None,
    n_kv_heads: int | None = None,
) -> list[Step]:
    """The plan of a setup, with its changes; every query head has its own key head.

    shape, n_kv_heads  of the scores, and of so many key heads that query heads share
    """
    given, shape = (*setup.inputs, "rows"), shape or setup.shape
    n_kv_heads = n_kv_heads or shape[1]
    sizes = Sizes(shape, n_kv_heads, setup.d_k, setup.n_past, given, setup.is_added)
    how = replace(setup.how, dtype=dtype)
    if setup.tiles:
        steps = tile_steps(how, sizes, tile_bounds(shape[-1], setup.tiles))
        steps += [lse_so_far(step) for step in steps if step.compute is running_values]
    else:
        steps = plan(how, sizes)
    if setup.merges:
        parts = split_steps(how, sizes, [0, *setup.split, shape[-1]])
        steps = _with_parts(steps, parts)
    for edit in setup.edits:
        steps = edit(steps)
    changes, more = setup.changes, setup.reads
    if setup.tiles:  # what is changed of the scores is changed in every tile
        own = {step.name: step.name.rpartition(".")[2] for step in steps}
        each = {x: changes[name] for x, name in own.items() if name in changes and name in MAPS}
        changes = {**changes, **each}
    steps = changed(steps, changes)
    return [s._replace(reads={**s.reads, **more[s.name]}) if s.name in more else s for s in steps]


def is_walkable(setup: Setup) -> bool:
    """Whether what a bug changes is there in a walk through tiles, too: the mask and the scores."""
    how, before = setup.how, {"mask", *BEFORE_SOFTMAX}
    is_of_scores = setup.changes.keys() <= before and not (setup.reads or setup.edits)
    return is_of_scores and how.softmax_over == "keys" and not (how.dropout or setup.relabel)


def _with_parts(steps: Sequence[Step], parts: Sequence[Step]) -> list[Step]:
    """The plan with the parts of a split, and lse and output merged from them."""
    names = [step.name for step in steps]
    own = [step for step in parts if step.name in (LSE, OUTPUT) or step.name not in names]
    at = names.index(OUTPUT)
    return [*(step for step in steps[:at] if step.name != LSE), *own, *steps[at + 1 :]]


def lse_so_far(step: Step) -> Step:
    """m + ln l of a tile, whose acc a step is: what both give, whatever the maximum is."""
    tile = step.name.removesuffix("acc")
    reads = {"m": f"{tile}m", "total": f"{tile}l"}
    return Step(f"{tile}{LSE}", lse_of, reads, dtype=step.dtype)


def inputs_over(
    setup: Setup,
    subset: Subset,
    steps: Sequence[Step],
    wanted: Collection[str] | None = None,
    keys: Indices | None = None,
) -> dict[str, Array]:
    """The rows, and every input (the wanted ones) of the subset, picked by the names of its axes.

    A step that reads the rows picks them itself from the masks that it reads. keys: the key heads;
    else each query head has its own.
    """
    key_heads = setup.key_heads[subset.head] if keys is None else keys
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


def computes(setup: Setup, wanted: Collection[str]) -> bool:
    """Whether a setup's plan has those of these that not every plan has: gradients, lse, tiles."""
    inner = [gradient_of(name) for name in QKV] if {*wanted} & {*OF_X} else []
    own = (x for x in wanted if (x in (*GRADIENTS, LSE) and x not in OF_X) or "." in x)
    gradients = [*inner, *own]
    if not gradients:
        return True
    names = {step.name for step in steps_of(setup)}
    return names >= {*_sources_of(setup, steps_of(setup), gradients).values()}


def at_once(setup: Setup) -> int:
    """How many scores a setup needs at once at least: those along the axes that must be whole."""
    return setup.shape[3] * math.prod(setup.shape[axis] for axis in setup.whole_axes)
