"""Bugs of memory: arrays read with wrong strides, in place of each other, exchanged or shifted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional
from attncli.attention.heads import key_head_of
from attncli.attention.masks import window
from attncli.check.bugs.bug import Bug, Change, Evidence, bug
from attncli.check.bugs.heads import either_order, with_transpose, without_transpose
from attncli.check.run import Indices
from attncli.check.setup import Setup
from attncli.stages import OUTPUT

BATCH, HEAD, ROW = 0, 1, 2
KINDS = {BATCH: "batch items", HEAD: "heads"}


def _axes_exchanged(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """Attention over the heads of one token, as (tokens, heads, d) taken for (heads, tokens, d)."""
    n_kv_heads = setup.inputs["k"].shape[1]
    known = setup.inputs.keys() <= {"q", "k", "v"} and setup.how.window is None
    if not known or setup.shape[2] != setup.shape[3] or OUTPUT not in evidence.observed:
        return
    if setup.how.causal and n_kv_heads != setup.shape[1]:
        return
    how = setup.how
    factor = how.scale_factor(setup.d_k) if how.scale != "none" else 1.0
    cap = math.inf if how.softcap is None else how.softcap
    output = partial(output_over_heads, factor=factor, cap=cap, causal=how.causal)
    yield (
        setup.with_whole(HEAD)
        .with_steps(output=output)
        .with_reads(OUTPUT, q="q", k="k", rows="rows")
    )


def output_over_heads(
    a: Array,
    v: Array,
    allowed: Array | None = None,
    *,
    q: Array,
    k: Array,
    rows: Indices,
    factor: float,
    cap: float,
    causal: bool,
) -> Array:
    """Attention of the heads of one token to each other: heads and tokens are exchanged."""
    q, k, v = (np.swapaxes(x, 1, 2) for x in (q, k[..., rows, :], v[..., rows, :]))
    x = functional.scale(functional.scores(q, k), factor)
    x = x if math.isinf(cap) else functional.softcap(x, cap)
    may = window(x.shape[-2], x.shape[-1], -1, 0 if causal else -1)
    weights = functional.softmax(np.where(may, x, -np.inf))
    return np.swapaxes(functional.weighted_sum(weights, v), 1, 2)


def columns_first(x: Array) -> Array:
    """What was stored as (d, tokens), read as (tokens, d).

    >>> columns_first(np.arange(6).reshape(1, 1, 3, 2)).ravel().tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return np.swapaxes(x, -1, -2).reshape(x.shape)


_READINGS: dict[str, Callable[[Array], Array]] = {
    "stored as (tokens, heads, d), read as (heads, tokens, d)": without_transpose,
    "stored as (heads, tokens, d), read as (tokens, heads, d)": with_transpose,
    "stored as (d, tokens), read as (tokens, d)": columns_first,
}


def _misread(name: str) -> Change:
    """One input read with the strides of another layout."""

    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        if setup.n_past:
            return
        for base in either_order(setup):
            x = base.inputs[name]
            for words, reading in _READINGS.items():
                applies = x.shape[1] > 1
                if reading is columns_first:  # of a square it is "K not transposed"
                    applies = x.shape[-1] != x.shape[-2]
                if applies:
                    yield base.with_inputs(**{name: reading(x)}).with_detail(words)

    return change


def _used_as(source: str, target: str) -> Change:
    """One input in the place of another one."""

    def change(setup: Setup, _: Evidence) -> Iterator[Setup]:
        for base in either_order(setup):
            x, replaced = base.inputs[source], base.inputs[target]
            if target == "q" and x.shape[1] != replaced.shape[1]:
                order = setup.how.head_order
                x = x[:, key_head_of(replaced.shape[1], x.shape[1], order)]
            if x.shape == replaced.shape:
                yield base.with_inputs(**{target: x})

    return change


def errors_along(axis: int, evidence: Evidence) -> Array:
    """The mean squared error of each batch item or head, relative to its numbers."""
    total: Array = np.zeros(1)
    others = tuple(i for i in range(4) if i != axis)
    for name in evidence.observed:
        observed, expected, _ = evidence.few(name)
        known = np.isfinite(observed) & np.isfinite(expected)
        apart = np.where(known, observed - expected, 0.0)
        size = np.mean(np.square(np.where(known, expected, 0.0)), axis=others) + 1e-300
        total = total + np.mean(apart * apart, axis=others) / size
    return np.asarray(total)


def _two_exchanged(axis: int) -> Change:
    """The two batch items or heads with the largest errors, or all neighbours, exchanged."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        over = next((evidence.over(setup, stage) for stage in evidence.observed), None)
        if over is None:
            return
        worst = over[axis][np.argsort(-errors_along(axis, evidence), kind="stable")]
        for words, swap in _swaps(axis, setup.shape[axis], worst):
            yield setup.with_instead(axis, swap).with_detail(f"the outputs of {words}")
        n, by_key = setup.inputs["k"].shape[axis], worst
        if axis == HEAD:
            by_key = setup.key_heads[worst]
        for words, swap in _swaps(axis, n, by_key):
            taken = {name: np.take(setup.inputs[name], swap, axis) for name in ("k", "v")}
            yield setup.with_inputs(**taken).with_detail(f"K and V of {words}")
            for name, x in taken.items():
                yield setup.with_inputs(**{name: x}).with_detail(f"{name.upper()} of {words}")

    return change


def _swaps(axis: int, n: int, worst: Indices) -> Iterator[tuple[str, Indices]]:
    """The indices 0 to n − 1 with the first two of `worst` exchanged, or each two neighbours."""
    first = list(dict.fromkeys(worst.tolist()))[:2]
    if len(first) == 2:
        swap = np.arange(n)
        swap[first] = swap[first[::-1]]
        one, other = sorted(first)
        yield f"{KINDS[axis]} {one + 1} and {other + 1}", swap
    if n > 2:
        neighbours = np.arange(n) ^ 1
        yield "all neighbours", np.where(neighbours < n, neighbours, np.arange(n))


def _one_for_all(axis: int) -> Change:
    """The keys, the values, both or the outputs of the first batch item or head, for all."""

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if setup.shape[axis] == 1:
            return
        first = {}
        for name in ("k", "v"):
            x = setup.inputs[name]
            first[name] = np.broadcast_to(np.take(x, [0], axis), x.shape)
        if setup.inputs["k"].shape[axis] > 1:
            yield setup.with_inputs(**first).with_detail("of K and V")
            for name, x in first.items():
                yield setup.with_inputs(**{name: x}).with_detail(f"of {name.upper()}")
        every = np.zeros(setup.shape[axis], dtype=np.intp)
        yield setup.with_instead(axis, every).with_detail("of the output")

    return change


def _rows_shifted(setup: Setup, _: Evidence) -> Iterator[Setup]:
    n = setup.shape[ROW]
    if n < 2:
        return
    at = np.arange(n)
    for step, words in ((-1, "the row before"), (1, "the row after")):
        rolled = (at + step) % n
        yield setup.with_instead(ROW, rolled).with_detail(f"{words}, around the end")
        edge = np.where((at + step < 0) | (at + step >= n), -1, at + step)
        yield setup.with_instead(ROW, edge).with_detail(f"{words}, and 0 at the end")


def _weights_transposed(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    if setup.shape[2] == setup.shape[3] > 1 and OUTPUT in evidence.observed:
        yield setup.with_whole(ROW).with_steps(output=transposed_weighted_sum)


def transposed_weighted_sum(a: Array, v: Array, allowed: Array | None = None) -> Array:
    """Aᵀ V."""
    if allowed is not None:
        allowed = np.swapaxes(np.broadcast_to(allowed, a.shape), -1, -2)
    return functional.weighted_sum(np.swapaxes(a, -1, -2), v, allowed)


_STRIDES = "pytorch#112577, pytorch#163597"

LAYOUTS: tuple[Bug, ...] = (
    bug(
        "heads and tokens exchanged in the inputs",
        _axes_exchanged,
        "inputs outputs",
        "(batch, tokens, heads, d) is taken for (batch, heads, tokens, d): the heads of a token "
        "attend to each other",
        "flash-attention#1391",
        pairs=False,
    ),
    *(
        bug(
            f"{name.upper()} read with wrong strides",
            _misread(name),
            "inputs",
            f"{name.upper()} alone is read as if it were stored in another order",
            _STRIDES,
            pairs=False,
        )
        for name in "qkv"
    ),
    bug(
        "two heads exchanged",
        _two_exchanged(HEAD),
        "inputs",
        "two heads have each other's output, or each other's keys and values",
        pairs=False,
    ),
    bug(
        "two batch items exchanged",
        _two_exchanged(BATCH),
        "inputs",
        "two batch items have each other's output, or each other's keys and values",
        pairs=False,
    ),
    bug(
        "one head for all",
        _one_for_all(HEAD),
        "inputs",
        "every head has the keys, the values or the output of the first one",
        pairs=False,
    ),
    bug(
        "one batch item for all",
        _one_for_all(BATCH),
        "inputs",
        "every batch item has the keys, the values or the output of the first one",
        pairs=False,
    ),
    bug("K used as V", _used_as("k", "v"), "inputs", "the keys are summed, not the values"),
    bug("V used as K", _used_as("v", "k"), "inputs", "the queries are compared with the values"),
    bug("Q used as K", _used_as("q", "k"), "inputs", "the scores are Q Qᵀ"),
    bug("K used as Q", _used_as("k", "q"), "inputs", "the scores are K Kᵀ"),
    bug(
        "rows shifted by one",
        _rows_shifted,
        "outputs",
        "each row of the output is that of the query before or after it",
        pairs=False,
    ),
    bug(
        "weights transposed before the sum",
        _weights_transposed,
        "outputs",
        "the output is Aᵀ V, which works only with as many queries as keys",
        pairs=False,
    ),
)
