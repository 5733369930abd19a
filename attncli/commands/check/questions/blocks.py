"""Blocks: pages of keys read from another place, and masks read with another stride or by blocks.

page 2 of k and v is page 1     keys 9 to 16 are those of key head 1     K and V in one array
row i of the mask from i · 1    a block that is partly hidden is taken for visible
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from attncli.arrays import Array
from attncli.commands.check.questions.answer import Answer, places_text
from attncli.commands.check.questions.screen import Index, Row, Screen, screen_of
from attncli.commands.check.search import Search
from attncli.tolerance.run import Indices
from attncli.tolerance.setup import Setup

MOST_PAGES = 16
"""Of keys in more pages none is looked at alone."""

MOST_PERMUTED = 5
"""Of so many pages every order is tried: 120."""

MOST_KEYS = 64
"""Of more keys only some sizes of pages and strides are tried, such as powers of two."""

MOST_ANSWERS = 8
"""So many of what the wrong rows allow are judged exactly."""


def blocks_read(search: Search) -> Iterator[Answer]:
    """Pages, or the mask, read otherwise, by what every wrong row allows."""
    screen = screen_of(search)
    if screen is None or not screen.rows:
        return
    setup = search.comparison.setup
    for pool, reads in pools_of(screen):
        for read in allowed_by_rows(screen, pool, reads):
            yield Answer(read.sentence, [*pool.setups(setup, read)], read.formula)
    if "given_mask" in setup.inputs:
        yield from masks_read(screen, setup)


# ---- pages: k and v from a pool of what is stored


class Read(NamedTuple):
    """Where k and v are read: at which places of a pool."""

    sentence: str
    k: Indices
    v: Indices
    formula: str = ""


class Pool(NamedTuple):
    """What is stored: k and v, and beside them those of other heads or batch items, or each other.

    rows     the scores and the values of the pool for a wrong row
    stored   k and v of the pool, [batch, kv_head, place, d], from those of a setup
    """

    rows: Callable[[Row], tuple[Array, Array]]
    stored: Callable[[Array, Array], tuple[Array, Array]]

    def setups(self, setup: Setup, read: Read) -> Iterator[Setup]:
        """The setups that read k and v so: before positions are put in, and after."""
        for variant in [setup, setup.placed()][: 1 + (setup.positions is not None)]:
            k, v = self.stored(variant.inputs["k"], variant.inputs["v"])
            yield variant.with_inputs(k=k[:, :, read.k], v=v[:, :, read.v])


def pools_of(screen: Screen) -> Iterator[tuple[Pool, list[Read]]]:
    """What may be read, with the places at which it may be."""
    _, _, _, n = screen.setup.shape
    n_batch, n_groups = screen.setup.inputs["k"].shape[:2]
    inputs = screen.setup.inputs
    yield Pool(lambda row: (row.scores, row.values), lambda k, v: (k, v)), [*pages_read(n)]
    if inputs["k"].shape[-1] == inputs["v"].shape[-1]:
        yield _of_both(screen), [*interleaved(n)]
    for axis, count, kind in ((1, n_groups, "key head"), (0, n_batch, "batch item")):
        if 1 < count <= MOST_PAGES:
            yield _of_others(screen, axis), [*parts_elsewhere(n, count, kind)]


def _of_both(screen: Screen) -> Pool:
    """k and v, one behind the other."""

    def rows(row: Row) -> tuple[Array, Array]:
        b, h, i = row.at
        g, inputs = int(screen.setup.key_heads[h]), screen.setup.inputs
        of_values = screen.scores_of(inputs["q"][[b], h, i], inputs["v"][[b], g])[0]
        keys = inputs["k"][b, g][:, row.channels] if row.values.shape[-1] > 1 else row.values
        return np.concatenate([row.scores, of_values]), np.concatenate([keys, row.values])

    def stored(k: Array, v: Array) -> tuple[Array, Array]:
        both = np.concatenate([k, v], axis=2)
        return both, both

    return Pool(rows, stored)


def _of_others(screen: Screen, axis: int) -> Pool:
    """k and v, and behind them those of each key head or batch item."""

    def rows(row: Row) -> tuple[Array, Array]:
        b, h, i = row.at
        g = int(screen.setup.key_heads[h])
        at: tuple[Index, Index] = (b, slice(None)) if axis == 1 else (slice(None), g)
        q, k = screen.setup.inputs["q"][[b], h, i], screen.setup.inputs["k"]
        scores, values = screen.scores_of(q, k[at]), screen.values(at, row.channels)
        width = values.shape[-1]
        return (
            np.concatenate([row.scores, scores.ravel()]),
            np.concatenate([row.values, values.reshape(-1, width)]),
        )

    def stored(k: Array, v: Array) -> tuple[Array, Array]:
        return _with_others(k, axis), _with_others(v, axis)

    return Pool(rows, stored)


def _with_others(x: Array, axis: int) -> Array:
    """[batch, kv_head, place, d]: of each its own keys, then those of every one along the axis."""
    others = [np.broadcast_to(x.take([at], axis=axis), x.shape) for at in range(x.shape[axis])]
    return np.concatenate([x, *others], axis=2)


def page_sizes(n: int) -> list[int]:
    """The sizes of pages that are tried."""
    sizes = range(2, n // 2 + 1) if n <= MOST_KEYS else (2**x for x in range(1, n.bit_length()))
    return [size for size in sizes if 2 <= -(-n // size) <= MOST_PAGES]


def pages_read(n: int) -> Iterator[Read]:
    """A page that is another one, two that are exchanged, and all in another order."""
    at, before = np.arange(n), set[bytes]()

    def read(sentence: str, places: Indices) -> Iterator[Read]:
        if places.tobytes() not in before:
            before.add(places.tobytes())
            yield Read(sentence, places, places)

    for size in page_sizes(n):
        pages = -(-n // size)
        whole = [p for p in range(pages) if (p + 1) * size <= n]
        for p, other in permutations(range(pages), 2):
            source = np.where(at // size == p, at + (other - p) * size, at)
            if source.max() < n:
                keys = places_text("key", range(p * size, min((p + 1) * size, n)))
                sources = places_text("key", range(other * size, min((other + 1) * size, n)))
                pages_text = f"page {p + 1} is page {other + 1}, pages of {size}"
                yield from read(f"k and v of {keys} are those of {sources} ({pages_text})", source)
        for p, other in ((p, x) for p in whole for x in whole if p < x):
            order = [*range(pages)]
            order[p], order[other] = other, p
            words = f"pages {p + 1} and {other + 1} of k and v are exchanged (pages of {size})"
            yield from read(words, np.array(order)[at // size] * size + at % size)
        if 2 < len(whole) <= MOST_PERMUTED:
            for some in permutations(whole):
                order = [*some, *range(len(whole), pages)]
                numbers = ", ".join(str(x + 1) for x in order)
                words = f"the pages of k and v (pages of {size}) are read in another order"
                yield from read(
                    f"{words}: {numbers}", np.array(order)[at // size] * size + at % size
                )


def interleaved(n: int) -> Iterator[Read]:
    """K and V page by page in one array, of which the next page is taken for the next of K."""
    at = np.arange(n)
    for size in range(1, n):
        if n % size:
            continue
        page, offset = at // size, at % size

        def place(number: Indices, offset: Indices = offset, size: int = size) -> Indices:
            return number % 2 * n + number // 2 * size + offset

        words = f"K and V stand page by page in one array (pages of {size}), which is read"
        formula = "page p of K is page p of K₁ V₁ K₂ V₂ …, and page p of V is page p + 1 of it"
        yield Read(f"{words} with half the stride", place(page), place(page + 1), formula)


def parts_elsewhere(n: int, count: int, kind: str) -> Iterator[Read]:
    """Some keys of another key head or batch item: from one on, up to one, or a page."""
    at = np.arange(n)
    ranges = [(cut, n) for cut in range(1, n)] + [(0, cut) for cut in range(1, n)]
    if n > MOST_KEYS:
        ranges = [(a, b) for a, b in ranges if (b if a == 0 else a) % (n // MOST_PAGES) == 0]
    for size in page_sizes(n):
        ranges += [(start, min(start + size, n)) for start in range(size, n - size, size)]
    for first, end in dict.fromkeys(ranges):
        for source in range(count):
            places = np.where((at >= first) & (at < end), (source + 1) * n + at, at)
            keys = places_text("key", range(first, end))
            yield Read(f"k and v of {keys} are those of {kind} {source + 1}", places, places)


def allowed_by_rows(screen: Screen, pool: Pool, reads: Sequence[Read]) -> list[Read]:
    """The first of those by which every wrong row is what it is."""
    if not reads:
        return []
    of_k, of_v = (np.stack(x) for x in zip(*((read.k, read.v) for read in reads), strict=True))
    allowed = np.arange(len(reads))
    for row in screen.rows:
        scores, values = pool.rows(row)
        step = max(1, MOST_CELLS // (of_k.shape[1] * (1 + values.shape[-1])))
        parts = (allowed[start : start + step] for start in range(0, len(allowed), step))
        near = [
            screen.near(
                row._replace(scores=scores[of_k[part]], values=values[of_v[part]]), len(part)
            )
            for part in parts
        ]
        allowed = allowed[np.concatenate(near)]
        if not len(allowed):
            return []
    return [reads[x] for x in allowed[:MOST_ANSWERS]]


MOST_CELLS = 2**22
"""So many numbers are computed at once: 32 MB."""


# ---- the given mask with another stride, or by blocks


class MaskRead(NamedTuple):
    """How a mask is read: the rows that it gives, [query, key] of one of a batch item and head."""

    sentence: str
    formula: str
    rows: Callable[[Array, Indices], Array]


def masks_read(screen: Screen, setup: Setup) -> Iterator[Answer]:
    """The given mask read with another stride, or by blocks that are partly hidden."""
    assert screen.given_mask is not None  # noqa: S101 - there is one
    _, _, n_q, n_k = setup.shape
    has_rows = screen.given_mask.shape[2] > 1
    reads = [*with_strides(n_q, n_k, has_rows), *(by_blocks(n_q, n_k) if has_rows else ())]
    for row in screen.rows:
        b, h, i = row.at
        at = min(b, len(screen.given_mask) - 1), min(h, screen.given_mask.shape[1] - 1)
        plane = np.broadcast_to(screen.given_mask[at], (screen.given_mask.shape[2], n_k))
        candidates = np.stack([read.rows(plane, np.array([i]))[0] for read in reads])
        near = screen.near(row._replace(added=candidates), len(reads))
        reads = [read for read, is_near in zip(reads, near, strict=True) if is_near]
        if not reads:
            return
    for read in reads[:MOST_ANSWERS]:
        yield Answer(read.sentence, [with_rows(setup, screen, read)], read.formula)


def with_rows(setup: Setup, screen: Screen, read: MaskRead) -> Setup:
    """The setup whose mask is read so; its numbers are added, −inf where it hides."""
    assert screen.given_mask is not None  # noqa: S101 - there is one
    mask, (_, _, n_q, n_k) = setup.inputs["given_mask"], setup.shape
    lead = screen.given_mask.shape[:2]
    planes = np.broadcast_to(screen.given_mask, (*lead, screen.given_mask.shape[2], n_k))
    rows = [read.rows(plane, np.arange(n_q)) for plane in planes.reshape(-1, *planes.shape[2:])]
    new = np.stack(rows).reshape(*lead, n_q, n_k)
    first = next((axis for axis in range(2) if lead[axis] > 1), 2)
    new = new[(0,) * min(first, 4 - mask.ndim)]
    if mask.dtype == np.bool_ or setup.convention.mask_numbers == "truth":
        is_seen = new != -np.inf
        keeps = setup.convention.mask_means == "keep"
        return setup.with_inputs(given_mask=is_seen if keeps else ~is_seen)
    return setup.with_inputs(given_mask=new)


PADDED = 8, 16, 32, 64, 128
"""Rows are often stored at multiples of so many numbers."""


def with_strides(n_q: int, n_k: int, has_rows: bool) -> Iterator[MaskRead]:
    """Rows that begin at another multiple of their number."""
    some = {1, 2, n_q, n_k - 1, n_k + 1, n_k // 2, 2 * n_k, *(-(-n_k // x) * x for x in PADDED)}
    if n_k <= MOST_KEYS:
        some |= {*range(1, 2 * n_k + 1)}
    for stride in sorted(some - {n_k if has_rows else 0, 0}):
        for past_end, words in PAST_END.items():

            def rows(plane: Array, at: Indices, s: int = stride, end: str = past_end) -> Array:
                return _flat(plane, at[:, None] * s + np.arange(n_k), end)

            sentence = f"row i of the given mask is read from place {stride} · i on" + words
            right = f"where its rows are {n_k} apart" if has_rows else "where all share one row"
            formula = f"mask[i,j] = right.flat[i * {stride} + j]"
            yield MaskRead(f"{sentence}, {right}", formula, rows)


PAST_END = {
    "0": " (past its end nothing is added or hidden)",
    "hidden": " (past its end everything is hidden)",
    "again": " (past its end from its beginning)",
    "last": " (past its end its last number)",
}
"""What is read past the end of a mask."""


def _flat(plane: Array, places: Indices, past_end: str) -> Array:
    """The numbers at places of an array, one row behind the other, and past its end."""
    flat = plane.ravel()
    inside = flat[places % flat.size if past_end == "again" else np.minimum(places, flat.size - 1)]
    if past_end in ("again", "last"):
        return inside
    return np.where(places < flat.size, inside, 0.0 if past_end == "0" else -np.inf)


def by_blocks(n_q: int, n_k: int) -> Iterator[MaskRead]:
    """Blocks that are partly hidden taken for visible, or for hidden."""
    is_small = max(n_q, n_k) <= MOST_KEYS

    def sizes(n: int) -> Iterable[int]:
        return range(1, n + 1) if is_small else (2**x for x in range(n.bit_length()))

    for size_q, size_k in ((a, b) for a in sizes(n_q) for b in sizes(n_k) if a * b > 1):
        for taken_for in ("visible", "hidden"):

            def rows(
                plane: Array,
                at: Indices,
                a: int = size_q,
                b: int = size_k,
                is_visible: bool = taken_for == "visible",
            ) -> Array:
                return _by_block(plane, at, (a, b), is_visible)

            block = f"{size_q} queries by {size_k} keys"
            words = f"blocks of the given mask ({block}) that are partly hidden are taken for"
            yield MaskRead(f"{words} {taken_for}", "", rows)


def _by_block(plane: Array, at: Indices, block: tuple[int, int], is_visible: bool) -> Array:
    """Rows of a mask of which blocks of queries and keys are visible as a whole."""
    size_q, size_k = block
    n_k = plane.shape[1]
    numbers = at // size_q
    result = np.empty((len(at), n_k))
    for number in np.unique(numbers):
        cells = plane[number * size_q : (number + 1) * size_q] != -np.inf
        is_seen = cells.any(axis=0) if is_visible else cells.all(axis=0)
        starts = np.arange(0, n_k, size_k)
        reduce = np.logical_or if is_visible else np.logical_and
        of_block = reduce.reduceat(is_seen, starts).repeat(size_k)[:n_k]
        some = numbers == number
        added = plane[at[some]]
        result[some] = np.where(of_block, np.where(added == -np.inf, 0.0, added), -np.inf)
    return result
