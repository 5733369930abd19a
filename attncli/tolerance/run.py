"""The stages of a setup over a subset, block by block: `attend`'s plan with the setup's edits.

    Setup, Subset ── blocks ── q, k, v, mask of each ── positions ── plan, edited ── run ──> stages

A subset picks batch items, heads and query rows, so that a few rows can represent all. A block is
what is computed at once, in bounded memory. Stages of rows need their own rows alone; what is a sum
over queries is computed with all of them, by batch item and key head.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attncli import budget
from attncli.arrays import Array
from attncli.attention.formulas import PROJECTED_HEADS
from attncli.attention.inputs import GAINS
from attncli.attention.plan import Sizes, plan
from attncli.attention.run import Step, computed, run
from attncli.attention.tiles import LSE_OF_PARTS, split_steps, tile_bounds, tile_steps
from attncli.convention import Convention, DType
from attncli.formula.kernels import round_to, widen
from attncli.stages import (
    GIVEN_GRADIENT,
    GRADIENTS,
    LSE,
    MEAN_WEIGHTS,
    OF_X,
    OUTPUT,
    QKV,
    WEIGHTS,
    gradient_of,
    spec_of,
)
from attncli.tolerance.memo import taken
from attncli.tolerance.setup import NANS, ZEROS, Edit, Setup
from attncli.tolerance.spans import (
    D_BIAS,
    OF_ALL_HEADS,
    ROWS,
    axes_of,
    in_four,
    is_whole,
    source_of,
    span_of,
)

Indices = npt.NDArray[np.intp]
CELLS = 2**21
"""How many scores may be there at once: 16 MB of float64 a stage."""

OF_ROWS = 2**18
"""So many scores of rows are computed at once: 2 MB of float64 a stage, which a cache holds."""

MAPS_AT_ONCE = 6
"""So many stages with a number for every query and key are there at once in a backward pass."""


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
        return Subset(*(indices if i == axis else old for i, old in enumerate(self)))


@lru_cache(256)
def all_of(sizes: tuple[int, ...]) -> Subset:
    """Every batch item, head and row of the first three sizes."""
    return Subset(*(np.arange(size) for size in sizes[:3]))


class Block(NamedTuple):
    """What is computed at once.

    computed   which batch items, heads and rows
    keys       the key heads that the heads share; None: each query head has its own
    selection  axis → which of the computed indices are wanted
    at         axis → where they belong in the result
    is_shared  whether other setups of the memo have the same block
    """

    computed: Subset
    keys: Indices | None
    selection: Mapping[str, Indices]
    at: Mapping[str, Indices]
    is_shared: bool = False

    def put(
        self,
        result: dict[str, Array],
        name: str,
        x: Array,
        axes: Sequence[str],
        sizes: Mapping[str, int],
    ) -> None:
        """Puts a stage in its place; adds it where it is a sum over batch items or heads."""
        computed = dict(zip(ROWS, self.computed, strict=True)) | {"kv_head": self.keys}
        for axis, kind in enumerate(axes):
            indices = computed.get(kind)
            if indices is None or indices is self.selection[kind] or x.shape[axis] != len(indices):
                continue
            order = np.argsort(indices)
            at_taken = order[np.searchsorted(indices, self.selection[kind], sorter=order)]
            x = taken(x, at_taken, axis)
        if name not in result:
            shape = tuple(sizes.get(kind, n) for kind, n in zip(axes, x.shape, strict=True))
            if shape == x.shape:  # of a block that is all there is
                result[name] = np.array(x, np.float64)
                return
            result[name] = np.zeros(shape)
        at = [self.at.get(kind, np.arange(n)) for kind, n in zip(axes, x.shape, strict=True)]
        is_sum = "batch" not in axes or not {"head", "kv_head"} & {*axes}
        result[name][np.ix_(*at)] = result[name][np.ix_(*at)] + x if is_sum else x


def stages(
    setup: Setup,
    subset: Subset,
    names: Collection[str],
    dtype: DType = "float64",
    alter: Edit = list,
) -> dict[str, Array]:
    """The wanted stages over the subset, as float64 arrays [batch, head, row, …].

    alter  what is done to the steps once they are made

    >>> from attncli.tolerance.setup import setup_of
    >>> setup = setup_of([[2.0]], [[1.0], [1.0]], [[3.0], [5.0]])
    >>> stages(setup, all_of(setup.shape), ["output"])["output"].tolist()
    [[[[4.0]]]]
    """
    of_x = [name for name in names if name in OF_X]
    inner = [name for name in names if name not in of_x]
    result = _stages(setup, subset, inner, dtype, alter) if inner else {}
    result |= _of_x(setup, of_x, dtype, alter) if of_x else {}
    return {name: result[name] for name in names}


def _of_x(setup: Setup, gradients: Collection[str], dtype: DType, alter: Edit) -> dict[str, Array]:
    """The gradients of x, its weights and biases: from those of q, k, v of all heads and items."""
    assert setup.projected is not None  # noqa: S101 - `observe` looked for it
    names = [*map(gradient_of, QKV), OUTPUT]
    missing = 4 - setup.projected.values["q"].ndim
    all_heads = stages(setup, all_of(setup.shape), names, dtype, alter)
    qkv = {name: x.reshape(x.shape[missing:]) for name, x in all_heads.items()}
    results = setup.projected.run(gradients, **qkv)
    return {name: in_four(name, x) for name, x in _rounded(results, dtype).items()}


def _stages(
    setup: Setup, subset: Subset, names: Collection[str], dtype: DType, alter: Edit
) -> dict[str, Array]:
    over = setup.convention.softmax_over
    real = {name: setup.relabel.get(name, name) for name in names}
    result = _other_span(setup, subset, real, dtype, alter)
    todo = {name: source for name, source in real.items() if name not in result}
    if {*names} <= {*OF_ALL_HEADS}:
        subset = subset.with_axis(1, np.arange(setup.shape[1]))
    by_keys = is_whole(todo.values(), over)
    if by_keys and setup.instead:  # what is computed in place of a row is another row's
        rows = [name for name, source in todo.items() if span_of(source, over) == "rows"]
        result |= _stages(setup, subset, rows, dtype, alter) if rows else {}
        todo = {name: source for name, source in todo.items() if name not in result}
    keys = setup.key_heads_of(subset.head)
    sizes = dict(zip((*ROWS, "kv_head"), (*subset.sizes, len(keys)), strict=True))
    whole = setup.whole_axes | ({1} if {*names} & {*OF_ALL_HEADS} else set())
    by_rows = blocks_of_rows(setup, subset, whole)
    blocks = _blocks_of_keys(setup, subset, keys) if by_keys else by_rows
    for every_row in blocks:
        shape = (*every_row.computed.sizes[:2], *setup.shape[2:])
        n_kv_heads = None if every_row.keys is None else len(every_row.keys)
        steps = alter(steps_of(setup, dtype, shape, n_kv_heads))
        planned = dict.fromkeys(step.name for step in steps)
        sources = {name: source_of(source, planned) for name, source in todo.items()}
        is_repeated = dtype == "float64" and alter is list  # errors are drawn anew
        compute_step = setup.memo.computed if is_repeated else computed
        across = setup.reads_across & planned.keys() if is_repeated and not by_keys else ()
        block, results = _of_wanted_rows(setup, every_row, steps, across)
        inputs = inputs_of_block(setup, block, steps, dtype) | results
        of_gains = setup.gradients_of_gains  # which are made of what the plan gives
        planned_names = {of_gains.get(source, source) for source in sources.values()}
        values = run(steps, inputs, planned_names, compute_step)
        values = _as_given(setup, values, block, steps, dtype)
        for name, source in sources.items():
            x = in_four(source, values[source], over)
            block.put(result, name, x, axes_in(setup, source), sizes)
    if not by_keys:
        written = [name for name, source in todo.items() if source in (OUTPUT, *GRADIENTS)]
        result |= {name: _unwritten(setup, subset, result[name]) for name in written}
    for name in result.keys() & setup.written.keys():
        at = subset if span_of(name, over) == "rows" else (subset.batch, keys)
        marks = setup.written[name]
        marks = marks[np.ix_(*at)][..., None] if marks.ndim else marks
        result[name] = np.where(marks == 1, result[name], marks)
    return {name: result[name] for name in names}


def _of_wanted_rows(
    setup: Setup, block: Block, steps: Sequence[Step], across: Collection[str]
) -> tuple[Block, dict[str, Array]]:
    """The block of the wanted rows alone, and what these steps, which need all rows, give of them.

    The block as it is where there is no such step, or where no other rows are computed.
    """
    rows = block.selection["query"]
    if not across or len(block.computed.row) <= len(rows):
        return block, {}
    inputs = inputs_of_block(setup, block, steps, "float64")
    values = run(steps, inputs, across, setup.memo.computed)
    results = dict[str, Array]()
    for name in across:
        axis = spec_of(name).axes_of(values[name].ndim).index("query")
        at = rows if values[name].shape[axis] > 1 else np.zeros(1, np.intp)
        results[name] = taken(values[name], at, axis)
    return block._replace(computed=block.computed._replace(row=rows)), results


def _other_span(
    setup: Setup, subset: Subset, real: Mapping[str, str], dtype: DType, alter: Edit
) -> dict[str, Array]:
    """The stages of some rows that really are of all keys, or the reverse: picked from all."""
    over, picked = setup.convention.softmax_over, dict[str, Array]()
    every = all_of(setup.shape)._replace(batch=subset.batch)
    other = [name for name, source in real.items() if span_of(name, over) != span_of(source, over)]
    if not other or all(map(np.array_equal, subset, every)):
        return picked
    for name, x in _stages(setup, every, other, dtype, alter).items():
        rows = subset.row if span_of(name, over) == "rows" else np.arange(x.shape[2])
        heads = subset.head if x.shape[1] == setup.shape[1] else setup.key_heads_of(subset.head)
        picked[name] = x[:, heads][:, :, rows]
    return picked


def axes_in(setup: Setup, stage: str) -> tuple[str, ...]:
    """The axes of a stage; "" where the gradient of a mask is a sum over an axis."""
    axes = tuple(axes_of(stage, setup.convention.softmax_over))
    if stage != D_BIAS:
        return axes
    sizes = in_four(stage, setup.inputs["given_mask"]).shape
    return tuple("" if n == 1 else kind for n, kind in zip(sizes, axes, strict=True))


def blocks_of_rows(setup: Setup, subset: Subset, whole: frozenset[int]) -> Iterable[Block]:
    """The subset, cut in halves until none needs more than OF_ROWS scores; whole axes are not.

    Those of few scores are made once: every setup of a search is computed of its samples.
    """
    if setup.instead or math.prod(subset.sizes) * setup.shape[3] > OF_ROWS:
        return _cut_by_rows(setup, subset, whole)

    def make() -> list[Block]:
        blocks = _cut_by_rows(setup, subset, whole)
        return [block._replace(is_shared=True) for block in blocks]

    return setup.memo.made_once(("blocks", whole, setup.shape), subset, make)


def _cut_by_rows(setup: Setup, subset: Subset, whole: frozenset[int]) -> Iterator[Block]:
    """The blocks of these rows."""
    every = all_of(setup.shape)

    def cut(at: Subset) -> Iterator[Subset]:
        sizes = [setup.shape[i] if i in whole else size for i, size in enumerate(at.sizes)]
        axis = next((i for i, size in enumerate(sizes) if i not in whole and size > 1), None)
        if axis is None or math.prod(sizes) * setup.shape[3] <= OF_ROWS:
            yield at
            return
        for half in np.array_split(at[axis], 2):
            yield from cut(at.with_axis(axis, half))

    for at in cut(all_of(subset.sizes)):
        source = subset.take(at)
        for axis, indices in setup.instead.items():
            current, other = source[axis], indices[source[axis]]
            source = source.with_axis(axis, np.where(other < 0, current, other))
        over = Subset(*(every[i] if i in whole else part for i, part in enumerate(source)))
        selection, place = (dict(zip(ROWS, x, strict=True)) for x in (source, at))
        yield Block(over, None, selection, place)


def _blocks_of_keys(setup: Setup, subset: Subset, keys: Indices) -> Iterator[Block]:
    """Batch items and key heads with all their heads and rows; SizeError where one is too large."""
    whole, every, n_keys = setup.whole_axes, all_of(setup.shape), len(keys)
    all_keys = np.arange(setup.inputs["k"].shape[1])
    n_scores = setup.shape[2] * setup.shape[3] * (setup.shape[1] // len(all_keys) or 1)
    if n_scores > CELLS:
        need = MAPS_AT_ONCE * 8 * n_scores
        budget.check_bytes(need, "the gradients of a key head need", "compare rows of d_q alone")
    at_once = max(1, CELLS // n_scores) if not {0, 1} & whole else subset.sizes[0] * n_keys
    n_items = max(1, at_once // n_keys)
    for first in range(0, subset.sizes[0], n_items):
        for start in range(0, n_keys, at_once):
            items = np.arange(subset.sizes[0])[first:][:n_items]
            some = np.arange(n_keys)[start:][:at_once]
            heads = _among(setup.key_heads, keys[some])
            head_places = _among(subset.head, heads)
            head, key_heads = (every.head, all_keys) if 1 in whole else (heads, keys[some])
            mine = subset.batch[items]
            batch = every.batch if 0 in whole else mine
            selection = mine, subset.head[head_places], subset.row, keys[some]
            at = items, head_places, np.arange(subset.sizes[2]), some
            axes = (*ROWS, "kv_head")
            picks, place = (dict(zip(axes, x, strict=True)) for x in (selection, at))
            yield Block(Subset(batch, head, every.row), key_heads, picks, place)


def _among(indices: Indices, some: Indices) -> Indices:
    """Where indices are among some."""
    is_one = np.zeros(1 + max(indices.max(), some.max(initial=0)), dtype=np.bool_)
    is_one[some] = True
    return np.flatnonzero(is_one[indices])


def inputs_of_block(
    setup: Setup, block: Block, steps: Sequence[Step], dtype: DType
) -> dict[str, Array]:
    """The inputs of a block in the number type, with their positions."""

    def make() -> dict[str, Array]:
        inputs = inputs_over(setup, block.computed, steps, keys=block.keys)
        names = [x for x in inputs if spec_of(x).role != "aside" or x == GIVEN_GRADIENT]
        inputs |= _rounded({name: inputs[name] for name in names}, dtype)
        if setup.positions is not None:
            qkv = {name: inputs[name] for name in QKV}
            inputs |= _rounded(setup.operands(qkv, inputs["rows"], dtype), dtype)
        return inputs

    memo, reads = setup.memo, [step.reads for step in steps]
    memo.inputs = memo.inputs or setup.inputs
    if not block.is_shared or setup.inputs is not memo.inputs:
        return make()
    by_row = any("rows" in names and "given_mask" in names.values() for names in reads)
    order, is_normed = setup.convention.head_order, setup.convention.qk_norm
    key = "inputs", dtype, by_row, order, is_normed, setup.norms_after
    sources = (*block.computed, setup.positions)

    def size_of(inputs: dict[str, Array]) -> int:
        whole = {*map(id, setup.inputs.values())}
        return sum(x.size for x in inputs.values() if id(x) not in whole)

    return memo.made_once(key, sources, make, size_of)


def _as_given(
    setup: Setup, values: dict[str, Array], block: Block, steps: Sequence[Step], dtype: DType
) -> dict[str, Array]:
    """The same with the gradients of q and k as they are given, before positions and their norm."""
    turned = {name: x for name, x in values.items() if name in ("d_q", "d_k")}
    if setup.positions is None or not turned:
        return values
    qkv = inputs_over(setup, block.computed, steps, {*QKV}, keys=block.keys)
    before = setup.gradients_before(turned, qkv, block.computed.row, dtype)
    return values | _rounded(before, dtype)


def _unwritten(setup: Setup, subset: Subset, x: Array) -> Array:
    """The output with zeros, or NaN, at the positions that a setup says are not written."""
    for axis, indices in setup.instead.items():
        at = indices[subset[axis]].reshape([-1 if i == axis else 1 for i in range(4)])
        x = np.where(at == ZEROS, 0.0, np.where(at == NANS, np.nan, x))
    return x


def _rounded(arrays: Mapping[str, Array], dtype: DType) -> dict[str, Array]:
    return {name: round_to(widen(x, dtype), dtype) for name, x in arrays.items()}


def steps_of(
    setup: Setup,
    dtype: DType = "float64",
    shape: tuple[int, ...] | None = None,
    n_kv_heads: int | None = None,
) -> list[Step]:
    """The changed plan for scores of this shape, and so many key heads that query heads share."""
    shape = shape or setup.shape
    n_kv_heads = n_kv_heads or shape[1]
    key = _plan_key(dtype, shape, n_kv_heads)
    if key in setup.plans:
        return setup.plans[key]
    inputs = frozenset({*setup.inputs, "rows"} - {*PROJECTION})
    mask_shape = setup.inputs["given_mask"].shape if "given_mask" in inputs else ()
    whole = shape[len(shape) - len(mask_shape) :]
    mask = tuple(1 if size == 1 else n for size, n in zip(mask_shape, whole, strict=True))
    sizes = Sizes(shape, n_kv_heads, setup.d_k, setup.n_past, inputs, setup.is_added, mask)
    convention = (
        setup.convention
        if dtype == setup.convention.dtype
        else replace(setup.convention, dtype=dtype)
    )
    if setup.gains and setup.positions is not None:  # normalised before the plan
        convention = replace(convention, qk_norm=False)
    steps = [*_plain_steps(convention, sizes, setup.tiles)]
    if setup.merges:  # the parts of a split, and lse and output merged from them
        parts = split_steps(convention, sizes, [0, *setup.split, shape[-1]])
        names = [step.name for step in steps]
        parts = [step for step in parts if step.name in (LSE, OUTPUT) or step.name not in names]
        at = names.index(OUTPUT)
        before = [step for step in steps[:at] if step.name != LSE]
        steps = [*before, *parts, *steps[at + 1 :]]
    steps += (_of_all_heads(setup, name, shape[1], dtype) for name in sorted(setup.of_all_heads))
    for edit in setup.edits:
        steps = edit(steps)
    setup.plans[key] = steps
    return setup.plans[key]


def keep_steps(setup: Setup, steps: list[Step], n_kv_heads: int) -> None:
    """Keeps the plan of a setup for all scores, so that `steps_of` need not make it."""
    setup.plans[_plan_key("float64", setup.shape, n_kv_heads)] = steps


def _plan_key(dtype: DType, shape: tuple[int, ...], n_kv_heads: int) -> tuple[object, ...]:
    """By what a setup keeps its plans."""
    return dtype, shape, n_kv_heads


PROJECTION = "w_o", "b_o"
"""The inputs by which the outputs of the heads are projected."""


def _of_all_heads(setup: Setup, name: str, n_heads: int, dtype: DType) -> Step:
    """The step of a stage that is made of all heads."""
    if name == MEAN_WEIGHTS:
        text, reads = "A[b,i,j] = sum[h](x[b,h,i,j]) / size[h]", {"x": WEIGHTS}
    else:
        by = {"w": "w_o", "b": "b_o"}
        reads = {"x": OUTPUT} | {letter: x for letter, x in by.items() if x in setup.inputs}
        text = PROJECTED_HEADS
    return Step(name, text, reads, dtype=dtype, sizes={"h": n_heads})


@lru_cache(1024)
def _plain_steps(convention: Convention, sizes: Sizes, tiles: int) -> tuple[Step, ...]:
    """The plan that bugs change, or that of a walk through tiles: most bugs start from one."""
    if not tiles:
        return plan(convention, sizes, spreads=True)
    steps = tile_steps(convention, sizes, tile_bounds(sizes.scores[-1], tiles))
    accs = [step for step in steps if step.name.endswith(".acc")]
    for tile, step in ((step.name.removesuffix("acc"), step) for step in accs):
        # m + ln l of the tile: what both give, whatever the maximum is
        reads = {"m": f"{tile}m", "total": f"{tile}l"}
        steps.append(Step(f"{tile}{LSE}", LSE_OF_PARTS["e"], reads, dtype=step.dtype))
    return tuple(steps)


def inputs_over(
    setup: Setup,
    subset: Subset,
    steps: Sequence[Step],
    names: Collection[str] | None = None,
    keys: Indices | None = None,
) -> dict[str, Array]:
    """The rows, and every input (the wanted ones) of the subset, picked by the names of its axes.

    A step that reads the rows picks them from its masks. keys: the key heads, where shared.
    """
    key_heads = setup.key_heads[subset.head] if keys is None else keys
    picked = dict(zip((*ROWS, "kv_head"), (*subset, key_heads), strict=True))
    by_row = {x for step in steps if "rows" in step.reads for x in step.reads.values()}
    inputs: dict[str, Array] = {"rows": setup.memo.rows(subset.row)}
    are_some: dict[tuple[str, int], bool] = {}  # of an axis of this size, which has more entries
    for name in setup.inputs if names is None else names & setup.inputs.keys():
        x, axes = setup.inputs[name], list[tuple[int, Indices]]()
        for axis, kind in enumerate(spec_of(name).axes_of(x.ndim)):
            at, size = picked.get(kind), x.shape[axis]
            if at is None or (kind == "query" and name == "given_mask" and name in by_row):
                continue
            if (kind, size) not in are_some:
                is_broadcast = size == 1 and bool(at.any())
                is_all = len(at) == size and bool((at == np.arange(size)).all())
                are_some[kind, size] = not (is_broadcast or is_all)
            if are_some[kind, size]:
                axes.append((axis, at))
        inputs[name] = setup.memo.picks(x, axes) if axes else x
    return inputs


def mask_of(setup: Setup, rows: Indices) -> Array | None:
    """The additive mask of these query rows alone; it broadcasts to [batch, head, row, n_k]."""
    if not setup.may_mask():
        return None
    steps = steps_of(setup)
    subset = all_of(setup.shape)._replace(row=rows)
    reads = {"mask"}
    for step in reversed(steps):
        reads |= {*step.reads.values()} if step.name in reads else set()
    return run(steps, inputs_over(setup, subset, steps, reads), ["mask"])["mask"]


def computes(setup: Setup, results: Collection[str]) -> bool:
    """Whether a setup's plan has those of these that not every plan has: gradients, lse, tiles."""
    inner = [gradient_of(name) for name in QKV] if {*results} & {*OF_X} else []
    special = (x for x in results if (x in (*GRADIENTS, LSE) and x not in OF_X) or "." in x)
    names = [setup.relabel.get(name, name) for name in (*inner, *special)]
    if not names:
        return True
    planned = dict.fromkeys(step.name for step in steps_of(setup))
    of_gains = setup.gradients_of_gains if GRADIENTS_OF_GAINS & {*names} else {}
    names = [of_gains.get(name, name) for name in names]
    return planned.keys() >= {source_of(name, planned) for name in names}


GRADIENTS_OF_GAINS = {gradient_of(gain) for gain in GAINS.values()}


def at_once(setup: Setup) -> int:
    """How many scores a setup needs at once at least: those along the axes that must be whole."""
    return setup.shape[3] * math.prod(setup.shape[axis] for axis in setup.whole_axes)
