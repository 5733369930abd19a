"""Bugs of gradients with numbers of another place: heads, blocks, layouts, another dO, K or V."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import key_head_of
from attncli.check.bugs.backward.shared import (
    ALL,
    BATCH,
    D_K,
    D_Q,
    D_V,
    HEAD,
    KEY,
    OF_K,
    OF_Q,
    OF_V,
    ROW,
    either_delta,
    in_either,
    written,
)
from attncli.check.bugs.bug import Evidence
from attncli.check.bugs.inputs import with_transpose, without_transpose
from attncli.check.bugs.kernels import BLOCKS, last_blocks, paddings
from attncli.check.bugs.patch import Function, Patch
from attncli.check.bugs.words import Variants, only_if
from attncli.check.setup import Setup
from attncli.convention import HeadOrder
from attncli.stages import GIVEN_GRADIENT

# ---- grouped heads: in the place of the sum over the query heads of a key head


def _one_head(d: Array, n_kv_heads: int, order: HeadOrder, *, pick: int) -> Array:
    """The first (0) or the last (−1) query head of each group alone."""
    key_heads = key_head_of(d.shape[-3], n_kv_heads, order)
    return d[..., [np.flatnonzero(key_heads == head)[pick] for head in range(n_kv_heads)], :, :]


def _by_index(d: Array, n_kv_heads: int, *, of: Callable[[Array, int], Array]) -> Array:
    """Query heads added to the key head that this index gives."""
    key_heads = of(np.arange(d.shape[-3]), n_kv_heads)
    sums = [d[..., key_heads == head, :, :].sum(axis=-3) for head in range(n_kv_heads)]
    return np.stack(sums, axis=-3)


def _other_order(d: Array, n_kv_heads: int, order: HeadOrder) -> Array:
    """Query heads added to the key heads of the other order."""
    other: HeadOrder = "tiled" if order == "blocks" else "blocks"
    return _by_index(d, n_kv_heads, of=lambda heads, n: key_head_of(len(heads), n, other))


_of_groups = partial(in_either, D_K, D_V)

HEADS: dict[str, Variants] = {
    "grouped heads not summed in dK, dV (the last one wins)": [
        *_of_groups(partial(_one_head, pick=-1))
    ],
    "grouped heads not summed in dK, dV (the first one alone)": [
        *_of_groups(partial(_one_head, pick=0))
    ],
    "grouped heads averaged in dK, dV": [
        *_of_groups(lambda right, d, n_kv_heads: right() * n_kv_heads / d.shape[-3])
    ],
    "grouped heads summed in the other order": [*_of_groups(_other_order, HEAD)],
    "query heads divided by the number of key heads, not by the group, in dK, dV": [
        *_of_groups(partial(_by_index, of=lambda heads, n: heads // n), HEAD)
    ],
    "dK, dV indexed with query heads": [
        *_of_groups(partial(_by_index, of=lambda heads, n: heads), HEAD)
    ],
}

# ---- blocks of queries and keys


def part_of(x: Array, some: slice, axis: int) -> Array:
    """x in the rows (axis −2) or columns of a slice; 0 elsewhere."""
    where = np.zeros(x.shape[axis], dtype=np.bool_)
    where[some] = True
    return np.where(where[:, None] if axis == -2 else where, x, x.dtype.type(0))


def _firsts(n: int) -> Iterator[tuple[int, str]]:
    yield from ((block, f"1 to {block}") for block in BLOCKS if 2 * block < n)


def _lasts(n: int) -> Iterator[tuple[int, str]]:
    for start, blocks in last_blocks(n, (1, 2, 4, 8, *BLOCKS)):
        yield start, f"{start + 1} to {n}, the last of {blocks}"


WHAT = {ROW: "queries", KEY: "keys"}


def _lost(axis: int, cuts: Function, setup: Setup, _: Evidence, *, to_end: bool) -> Iterator[Patch]:
    """Sums over queries or keys of those from the cut on, or of those before it."""
    for start, words in cuts(setup.shape[axis]):
        some = slice(start, None) if to_end else slice(start)
        sums = lambda right, d, some=some: right(d=part_of(d, some, -2 if axis == ROW else -1))  # noqa: E731
        for patch in in_either(OF_K, OF_V, sums) if axis == ROW else [Patch({OF_Q: sums})]:
            yield replace(patch, detail=f"{WHAT[axis]} {words} {patch.detail}".rstrip())


def _unwritten(axis: int, names: tuple[str, ...], setup: Setup, _: Evidence) -> Iterator[Patch]:
    """The rows of the last block stay 0."""
    for start, words in _lasts(setup.shape[axis]):
        zero = lambda right, n=start: part_of(right(), slice(n), -2)  # noqa: E731
        whole = (ROW,) if axis == ROW else ()
        yield Patch(dict.fromkeys(names, zero), f"{WHAT[axis]} {words}", whole)


def _padded(setup: Setup, _: Evidence) -> Iterator[Patch]:
    """The last query counted once more for every row that fills up the last block of queries."""
    n_q = setup.shape[ROW]
    for n, blocks in paddings(n_q, (4, 8, *BLOCKS)):
        times = np.where(np.arange(n_q)[:, None] < n_q - 1, 1.0, 1 + n)
        counted = lambda right, d, times=times: right(d=d * times.astype(d.dtype))  # noqa: E731
        words = f"{n} more row{'s' * (n > 1)}, to a multiple of {blocks}"
        yield Patch({OF_K: counted, OF_V: counted}, words)


BLOCKS_LOST: dict[str, Variants] = {
    "last block of queries lost in dK, dV": partial(_lost, ROW, _lasts, to_end=False),
    "first block of queries lost in dK, dV": partial(_lost, ROW, _firsts, to_end=True),
    "only the last block of queries in dK, dV": partial(_lost, ROW, _lasts, to_end=True),
    "last block of keys lost in dQ": partial(_lost, KEY, _lasts, to_end=False),
    "first block of keys lost in dQ": partial(_lost, KEY, _firsts, to_end=True),
    "only the last block of keys in dQ": partial(_lost, KEY, _lasts, to_end=True),
    "dK, dV of the last block of keys not written": partial(_unwritten, KEY, (D_K, D_V)),
    "dQ of the last block of queries not written": partial(_unwritten, ROW, (D_Q,)),
    "padding of the last block of queries counted in dK, dV": _padded,
}

# ---- layouts, and numbers of another place

READ_AS: dict[str, Function] = {
    "(tokens, heads, d) read as (heads, tokens, d)": without_transpose,
    "(heads, tokens, d) read as (tokens, heads, d)": with_transpose,
}


def _swapped(one: str, other: str, setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    shapes = {setup.inputs[name.removeprefix("d_")].shape for name in (one, other)}
    if len(shapes) == 1 and evidence.expected.keys() & {one, other}:
        yield Patch(relabel={one: other, other: one})


def _is_square(setup: Setup) -> bool:
    """Whether a product can have a factor transposed: there are as many queries as keys."""
    return setup.shape[ROW] == setup.shape[KEY] > 1


def _written_otherwise(setup: Setup, evidence: Evidence) -> Iterator[Patch]:
    names = [name for name in ALL if name in evidence.expected]
    groups = [names, *([[name] for name in names] if len(names) > 1 else [])]
    for some in groups if setup.shape[HEAD] > 1 else ():
        for words, correct in READ_AS.items():
            yield Patch(relayout=dict.fromkeys(some, correct), detail=f"{', '.join(some)}: {words}")


def _other_output(setup: Setup, _: Evidence) -> Iterator[Patch]:
    """dO in another layout, of another head or of another batch item."""
    d = setup.inputs[GIVEN_GRADIENT]
    others: dict[str, Array] = {}
    for axis, words in ((BATCH, "batch item"), (HEAD, "head"), (ROW, "query")):
        for by, where in ((1, "before"), (-1, "after")) if d.shape[axis] > 1 else ():
            others[f"that of the {words} {where}"] = np.roll(d, by, axis=axis)
    if d.shape[HEAD] > 1:
        others |= {words: read(d) for words, read in READ_AS.items()}
    if d.shape[BATCH] > 1:
        others["of the first batch item"] = np.broadcast_to(d[:1], d.shape)
    yield from (Patch(inputs={GIVEN_GRADIENT: x}, detail=words) for words, x in others.items())


def _turned(
    field: str, wrong: Callable[[set[str]], set[str]], setup: Setup, _: Evidence
) -> Iterator[Patch]:
    """Rotary positions by which the gradients of both, of q or of k are turned otherwise."""
    for names in ((D_Q, D_K), (D_Q,), (D_K,)):
        if setup.positions is not None and setup.positions.is_rotary:
            words = " and ".join(map(written, names))
            yield Patch(positions={field: frozenset(wrong({*names}))}, detail=words)


def _other_keys(setup: Setup, _: Evidence) -> Iterator[Variants]:
    """K, V or both, in another layout, of another head, or of one batch item or chunk for all."""
    (n_batch, n_heads, _q, n_k), n_keys = setup.shape, setup.inputs["k"].shape[1]
    reads: dict[str, tuple[Function, tuple[int, ...]]] = {}
    if n_heads == n_keys > 1:
        reads |= {words: (read, (HEAD,)) for words, read in READ_AS.items()}
    if n_batch > 1:
        reads["of the first batch item"] = lambda x: np.broadcast_to(x[:1], x.shape), (BATCH,)
    if n_keys > 1:
        reads["of the head before"] = lambda x: np.roll(x, 1, axis=HEAD), (HEAD,)
    for parts in (parts for parts in (2, 4, 8) if parts < n_k):
        at, size = np.arange(n_k), n_k // parts
        first = np.where(at < parts * size, at % size, at)
        read = lambda x, first=first: x[..., first, :]  # noqa: E731
        reads[f"the first of {parts} chunks for all"] = read, ()
    for words, (read, whole) in reads.items():
        saved = {OF_Q: lambda right, k, read=read: right(k=read(k))}
        k, v = {"k": read}, {"v": read}
        for what, steps, again in (
            ("K and V", {}, k | v),
            ("K and V", saved, v),
            ("K", {}, k),
            ("K", saved, {}),
            ("V", {}, v),
        ):
            detail = f"{what}: {words}{'; the saved weights' * bool(steps)}"
            yield either_delta(Patch(steps, detail, whole, again))


LAYOUTS: dict[str, Variants] = {
    "dK and dV swapped": partial(_swapped, D_K, D_V),
    "dQ and dK swapped": partial(_swapped, D_Q, D_K),
    "A instead of Aᵀ in dV": only_if(_is_square, {OF_V: lambda a, d: a @ d}),
    "dS instead of dSᵀ in dK": only_if(_is_square, {OF_K: lambda d, q: d @ q}),
    "dSᵀ instead of dS in dQ": only_if(
        _is_square, Patch({OF_Q: lambda d, k: np.swapaxes(d, -1, -2) @ k}, whole=(ROW,))
    ),
    "gradients in another layout": _written_otherwise,
    "dO of another place, or in another layout": _other_output,
    "gradient left in the rotated frame": partial(
        _turned, "back_on", lambda names: {D_Q, D_K} - names
    ),
    "gradient rotated once more, not back": partial(_turned, "forth_on", lambda names: names),
    "K, V read otherwise in the backward pass": _other_keys,
}

PLACES = {**HEADS, **BLOCKS_LOST, **LAYOUTS}
