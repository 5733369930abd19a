"""Bugs of gradients in blocks of queries and keys: one lost, or all but one overwritten."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention import functional as f
from attncli.attention import gradients as g
from attncli.check.bugs.backward.edits import (
    D_K,
    D_Q,
    D_V,
    KEY,
    ROW,
    after,
    apply,
    of_gradients,
    products,
    replaced,
    row,
)
from attncli.check.bugs.bug import Bug, Change, Evidence
from attncli.check.bugs.kernels import BLOCKS, last_blocks, paddings
from attncli.check.setup import Setup


def _lasts(n: int) -> Iterator[tuple[int, str]]:
    """Where the last block begins, for each size of block, and in words."""
    for start, blocks in last_blocks(n, (1, 2, 4, 8, *BLOCKS)):
        yield start, f"{start + 1} to {n}, the last of {blocks}"


def _some(x: Array, kept: slice, axis: int) -> Array:
    where = np.zeros(x.shape[axis], dtype=np.bool_)
    where[kept] = True
    where = where[:, None] if axis == -2 else where
    return np.where(where, x, x.dtype.type(0))


def _firsts(n: int) -> Iterator[tuple[int, str]]:
    """Where the first block ends, for each size of block, and in words."""
    for block in BLOCKS:
        if 2 * block < n:
            yield block, f"1 to {block}"


def _queries_lost(make: Any, cuts: Any = _lasts) -> Any:
    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if not of_gradients(setup, evidence):
            return
        for start, words in cuts(setup.shape[ROW]):
            kept = make(start)

            def product(a: Array, b: Array, kept: slice = kept) -> Array:
                return g.column_products(_some(a, kept, -2), b)

            for names, where in (((D_K, D_V), ""), ((D_K,), " in dK"), ((D_V,), " in dV")):
                found = apply(setup, [products(name, product) for name in names])
                if found is not None:
                    yield found.with_detail(f"queries {words}{where}")

    return change


def _keys_lost(make: Any, cuts: Any = _lasts) -> Any:
    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if not of_gradients(setup, evidence):
            return
        for start, words in cuts(setup.shape[KEY]):
            kept = make(start)

            def compute(kept: slice = kept, **given: Any) -> Array:
                return f.weighted_sum(**{**given, "a": _some(given["a"], kept, -1)})

            new = replaced(D_Q, lambda step, _, new=compute: step._replace(compute=new))  # type: ignore[misc]
            if (found := apply(setup, [new])) is not None:
                yield found.with_detail(f"keys {words}")

    return change


def _padded(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
    """The last query counted once more for every row that fills up the last block of queries."""
    if not of_gradients(setup, evidence):
        return
    n_q = setup.shape[ROW]
    for more, blocks in paddings(n_q, (4, 8, *BLOCKS)):
        times = np.ones((n_q, 1))
        times[-1] += more

        def product(a: Array, b: Array, times: Array = times) -> Array:
            return g.column_products(a * times.astype(a.dtype), b)

        if (found := apply(setup, [products(name, product) for name in (D_K, D_V)])) is not None:
            words = f"{more} more row{'s' * (more > 1)}, to a multiple of {blocks}"
            yield found.with_detail(words)


def _unwritten(what: str, axis: int, *names: str) -> Change:
    """The rows of these gradients stay 0 that belong to the last block of queries or keys."""
    whole = (ROW,) if axis == ROW else ()

    def change(setup: Setup, evidence: Evidence) -> Iterator[Setup]:
        if not of_gradients(setup, evidence):
            return
        for start, words in _lasts(setup.shape[axis]):
            edits = [after(x, lambda y, _, n=start: _some(y, slice(n), -2)) for x in names]  # type: ignore[misc]
            if (found := apply(setup, edits, whole)) is not None:
                yield found.with_detail(f"{what} {words}")

    return change


BLOCKS_LOST: tuple[Bug, ...] = (
    row(
        "last block of queries lost in dK, dV",
        _queries_lost(slice),
        "the loop over blocks of queries ends one too early",
        "FlagGems#898",
    ),
    row(
        "first block of queries lost in dK, dV",
        _queries_lost(lambda start: slice(start, None), _firsts),
        "the loop over blocks of queries begins one too late",
        "FlagGems#898",
    ),
    row(
        "only the last block of queries in dK, dV",
        _queries_lost(lambda start: slice(start, None)),
        "each block of queries overwrites dK and dV where it should add to them",
        "tilelang#930",
    ),
    row(
        "last block of keys lost in dQ",
        _keys_lost(slice),
        "the loop over blocks of keys ends one too early",
        "FlagGems#898",
    ),
    row(
        "first block of keys lost in dQ",
        _keys_lost(lambda start: slice(start, None), _firsts),
        "the loop over blocks of keys begins one too late",
        "triton#5660",
    ),
    row(
        "only the last block of keys in dQ",
        _keys_lost(lambda start: slice(start, None)),
        "each block of keys overwrites dQ where it should add to it",
        "tilelang#930",
    ),
    row(
        "dK, dV of the last block of keys not written",
        _unwritten("keys", KEY, D_K, D_V),
        "the last rows of dK and dV stay 0",
        "FlagGems#898, flash-attention#1990",
    ),
    row(
        "dQ of the last block of queries not written",
        _unwritten("queries", ROW, D_Q),
        "the last rows of dQ stay 0",
        "pytorch#196678",
    ),
    row(
        "padding of the last block of queries counted in dK, dV",
        _padded,
        "the rows past the last query are read as copies of it, and are not masked",
        "FastVideo#1180",
    ),
)
