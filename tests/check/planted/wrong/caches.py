"""Keys that are kept from earlier steps."""

from __future__ import annotations

import numpy as np

from tests.check.planted.parts import Array, Inputs, at, attend
from tests.check.planted.rows import Row
from tests.check.planted.worlds import CACHED, DECODE, PREFILL


def keys(x: Inputs, at: list[int] | Array) -> Array:
    """Only the keys of these places."""
    return attend(x, k=x.k[:, :, at], v=x.v[:, :, at], hide=np.zeros((1, 1), bool))


def hiding(x: Inputs, cells: Array) -> Array:
    return attend(x, hide=cells)


SHORT = (
    "newest key not cached",
    "causal mask hides each query's own position",
    "key lengths off by one",
    "other key lengths",
    "last block of keys skipped",
    "one block of keys lost",
)
ROWS = (
    Row("history masked", ("cached decode masks its own history",), lambda x: hiding(x, at(x)[1] > at(x)[0] - x.n_past), (CACHED,), "gpt-fast#233"),
    Row("newest key not cached", SHORT, lambda x: keys(x, np.arange(x.n_k - 1)), (DECODE,), "harvard-edge/cs249r_book PR 1953"),
    Row("newest keys: the last not cached", SHORT, lambda x: keys(x, np.arange(x.n_k - 1)), (PREFILL,)),
    Row("newest overwrites the last", ("newest key overwrites the last one", "one block of keys lost"), lambda x: keys(x, [*range(x.n_past - 1), *range(x.n_past, x.n_k)]), (DECODE,)),
    Row("cache ignored", ("cache ignored", "one block of keys lost"), lambda x: keys(x, np.arange(x.n_past, x.n_k)), (PREFILL,)),
    Row("cache ignored, causal", ("cache ignored",), lambda x: hiding(x, (at(x)[1] < x.n_past) | (at(x)[1] > at(x)[0])), (CACHED,)),
    Row("no causal on a cache", ("causal mask left out",), lambda x: hiding(x, np.zeros((1, 1), bool)), (CACHED,)),
    Row("oldest key lost", ("one block of keys lost", "another window"), lambda x: keys(x, np.arange(1, x.n_k)), (DECODE,)),
    Row("new before old, causal", (), lambda x: hiding(x, (np.roll(at(x)[1], -x.n_past) > at(x)[0])), (CACHED,), kind="control"),
)  # fmt: skip
