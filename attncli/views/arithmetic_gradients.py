"""The arithmetic of a cell of a gradient; see arithmetic.py.

Where weights hold all heads side by side, their rows or columns go on through the heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from attncli.arrays import Array, BoolArray
from attncli.trace import Stage
from attncli.views.cell import Entry, Words, between
from attncli.views.matrix import OF_SOFTMAX
from attncli.views.parts import Equation
from attncli.views.select import HEADS, KEY_HEADS, Block, Index
from attncli.views.text import shorten


def matrices(block: Block, stage: Stage, where: Index) -> Iterator[Index]:
    """Where the matrices of a stage are, along all axes that `where` does not name."""
    axes = [axis for axis in stage.axes[:-2] if block.entry(axis, where) is None]
    sizes = [stage.value.shape[stage.axes.index(axis)] for axis in axes]
    for entries in np.ndindex(*sizes):
        yield {**where, **dict(zip(axes, entries, strict=True))}


def heads_of(block: Block, where: Index) -> list[int]:
    """The heads that share the key head which `where` names."""
    own = where.get(KEY_HEADS, 0)
    return [head for head in range(block.sizes[HEADS]) if block.key_head(head) == own]


def head_axis(stage: Stage) -> str:
    """The axis of a stage's heads, "" where it has none."""
    return next((axis for axis in stage.axes[:-2] if axis in (HEADS, KEY_HEADS)), "")


def summed_over(stage: Stage, d: Stage) -> list[str]:
    """The axes of the gradient d that a stage, of what was broadcast over them, does not have."""
    own = dict(zip(stage.axes, stage.value.shape, strict=True))
    sizes = zip(d.axes, d.value.shape, strict=True)
    return [axis for axis, size in sizes if own.get(axis, 1) < size]


# ---- sums of products


def _column_products(entry: Entry) -> Equation:
    """A column times a column: Σ_i a_ir b_ic."""
    a, b = (entry.of(name).matrix for name in ("a", "b"))
    return entry.equals(entry.product(a[:, entry.row], b[:, entry.column]))


def _summed_products(entry: Entry) -> Equation:
    """The same of every head that shares a key head, and the sum of them."""
    heads = heads_of(entry.block, entry.where)
    places = [entry._replace(where={**entry.where, HEADS: head}) for head in heads]
    a = [place.of("a").matrix[:, entry.row] for place in places]
    b = [place.of("b").matrix[:, entry.column] for place in places]
    names = (shorten(entry.block.owners[HEADS].label(HEADS, head)) for head in heads)
    return _in_parts(entry, a, b, remark=" + ".join(names))


def _in_parts(entry: Entry, a: Sequence[Array], b: Sequence[Array], remark: str = "") -> Equation:
    """Several sums of products, in full and then as a number each."""
    forms = [entry.product(np.concatenate(a), np.concatenate(b))]
    if len(a) > 1:
        with np.errstate(all="ignore"):
            sums = np.array([(x * y).sum() for x, y in zip(a, b, strict=True)])
        forms.append(_sum(entry, sums))
    return entry.equals(*forms, remark=remark)


def _sum(entry: Entry, numbers: Array) -> Words:
    """Numbers added."""
    return entry.sum(numbers, lambda i: [entry.write, entry.factor][i > 0](numbers[i]))


# ---- softmax


def _allowed(entry: Entry) -> BoolArray:
    """True where a score takes part in the softmax that gave the weights read as a."""
    a = entry.of("a")
    x = entry.block.read(a.stage, "x")
    if x is None:
        return np.ones(a.matrix.shape, bool)
    return ~np.isneginf(entry.block.matrix(x, entry.where).astype(np.float64))


def _delta(entry: Entry) -> Equation:
    """A row times a row (of keys a column times a column), without what is masked."""
    a, d, allowed = entry.of("a").matrix, entry.of("d").matrix, _allowed(entry)
    if entry.stage.params.get("axis") == -2:
        a, d, allowed, at, other = a.T, d.T, allowed.T, entry.column, "query"
    else:
        at, other = entry.row, "key"
    kept = allowed[at]
    if not kept.any():
        return entry.equals(remark=f"every {other} is masked")
    n_masked = len(kept) - int(kept.sum())
    remark = f"without {n_masked} masked" if n_masked else ""
    return entry.equals(entry.product(a[at][kept], d[at][kept]), remark=remark)


def _softmax(entry: Entry) -> Equation:
    """A (dA − δ); a weight of what is masked does not depend on its score."""
    if not _allowed(entry)[entry.row, entry.column]:
        return entry.equals(remark="masked: its weight does not depend on its score")
    a, d, mean = entry.of("a"), entry.of("d"), entry.of("delta")
    over_queries = entry.stage.params.get("axis") == -2
    mean = mean._replace(row=0) if over_queries else mean._replace(column=0)
    forms = [f"{a.name} · ({d.name} - {mean.name})"] if entry.at_length else []
    numbers = f"{entry.write(d.value)} - {entry.factor(mean.value)}"
    return entry.equals(*forms, f"{entry.write(a.value)} · ({numbers})")


def _of_sinks(entry: Entry) -> Equation:
    """−Σ δ · what the sink takes of each row, of all batch entries."""
    own = {HEADS: entry.column}
    deltas, shares = [], []
    for where in matrices(entry.block, entry.of("x").stage, own):
        place = entry._replace(where=where)
        x = place.of("x").matrix.astype(np.float64)
        sink = float(entry.of("sinks").value)
        top = np.maximum(x.max(axis=-1), sink)
        with np.errstate(all="ignore"):
            power = np.exp(sink - top)
            shares.append(power / (np.exp(x - top[:, None]).sum(axis=-1) + power))
        deltas.append(place.of("delta").matrix[:, 0])
    products = entry.product(np.concatenate(deltas), np.concatenate(shares))
    return entry.equals(between("-(", products, ")"), remark="δ times what the sink takes")


# ---- masks


def _hidden(entry: Entry) -> Equation:
    """The gradient as it is, 0 where a number stands in the place of the score."""
    if np.isneginf(entry.of("mask").value):
        return entry.equals(remark="masked: it does not depend on its score")
    return entry.equals(entry.of("d").name)


def _of_mask(entry: Entry) -> Equation:
    """The sum of the gradients of all cells that a number of the mask was added to."""
    d, mask = entry.of("d"), entry.of("mask")
    summed = summed_over(entry.stage, d.stage)
    own = {axis: at for axis, at in entry.where.items() if axis not in summed}
    numbers, masked = [], []
    rows, columns = (
        slice(None) if axis in summed else slice(at, at + 1)
        for axis, at in zip(d.stage.axes[-2:], (entry.row, entry.column), strict=True)
    )
    for where in matrices(entry.block, d.stage, own):
        cells = (x._replace(where=where).matrix[rows, columns].ravel() for x in (d, mask))
        gradient, added = cells
        numbers.append(gradient)
        masked.append(np.isneginf(added))
    kept = np.concatenate(numbers)[~np.concatenate(masked)]
    n_masked = sum(int(x.sum()) for x in masked)
    if not len(kept):
        return entry.equals(remark="masked: may not attend")
    remark = f"without {n_masked} masked" if n_masked else ""
    return entry.equals(d.name if not summed else _sum(entry, kept), remark=remark)


# ---- x and the weights


def _column(entry: Entry, parameter: str, column: int, n_rows: int = 0) -> Array:
    """A column of what was read, its heads side by side: the (last) rows of all batch entries."""
    stage, own = entry.of(parameter).stage, {}
    if axis := head_axis(stage):
        own[axis], column = divmod(column, stage.value.shape[-1])
    places = matrices(entry.block, stage, own)
    return np.concatenate([entry.block.matrix(stage, where)[-n_rows:, column] for where in places])


def _of_weights(entry: Entry) -> Equation:
    """A column of x times a column of dY: Σ over all tokens of all batch entries."""
    n_rows = entry.of("x").stage.value.shape[-2]
    x = _column(entry, "x", entry.row)
    return entry.equals(entry.product(x, _column(entry, "d", entry.column, n_rows)))


def _of_bias(entry: Entry) -> Equation:
    """The sum of a column of dY over all tokens of all batch entries."""
    n_rows = entry.of("d").stage.value.shape[-2] - int(entry.stage.params.get("n_cached", 0))
    return entry.equals(_sum(entry, _column(entry, "d", entry.column, n_rows)))


def _of_rows(entry: Entry) -> Equation:
    """A row of dQ times a row of W_q, and so on for all that the token is part of."""
    left: list[Array] = []
    right: list[Array] = []
    for name in ("q", "k", "v"):
        if f"d_{name}" not in entry.stage.reads:
            continue
        d = entry.of(f"d_{name}")
        row = entry.row + d.stage.value.shape[-2] - entry.stage.value.shape[-2]  # past the cache
        places = matrices(entry.block, d.stage, {"batch": entry.where.get("batch", 0)})
        wide = np.concatenate([entry.block.matrix(d.stage, where)[row] for where in places])
        if f"w_{name}" in entry.stage.reads:
            left.append(wide)
            right.append(entry.of(f"w_{name}").matrix[entry.column])
        else:
            left.append(wide[entry.column, None])
            right.append(np.ones(1))
    return _in_parts(entry, left, right)


GRADIENT_RULES: dict[str, Callable[[Entry], Equation | None]] = {
    "column products": _column_products,
    "summed column products": _summed_products,
    "delta": _delta,
    OF_SOFTMAX: _softmax,
    "d_of_sinks": _of_sinks,
    "d_hidden": _hidden,
    "d_of_mask": _of_mask,
    "d_of_weights": _of_weights,
    "d_of_bias": _of_bias,
    "d_of_rows": _of_rows,
}
