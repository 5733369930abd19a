"""The calls by which libraries are told apart: each is named after what it is about.

Sizes are distinct primes where the call allows it: 2 batch items, 13 heads, 3 queries, 5 keys,
d 7, d_v 11. The numbers are multiples of 1/16, which every number type keeps, and float32.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from attncli.arrays import Array

BATCH, HEADS, D, D_V = 2, 13, 7, 11
KEEP = np.array([[1, 0, 1, 1, 0], [0, 1, 1, 0, 1], [1, 1, 0, 0, 1]], dtype=bool)
EMPTY = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 0, 0, 1]], dtype=bool)
SQUARE = np.array([[1, 1, 0, 1], [1, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]], dtype=bool)


class Call(NamedTuple):
    """q [batch, head, n_q, d], k [batch, kv_head, n_k, d], v [batch, kv_head, n_k, d_v], float32.

    mask  [n_q, n_k], true and false or float32, as it is given to the library
    """

    q: Array
    k: Array
    v: Array
    mask: Array | None = None
    causal: bool = False


def call(
    n_q: int = 3,
    n_k: int = 5,
    heads: tuple[int, int] = (HEADS, HEADS),
    d_v: int = D,
    **convention: Any,
) -> Call:
    """A call with numbers that depend on its sizes alone."""
    draw = np.random.default_rng(17)
    shapes = (heads[0], n_q, D), (heads[1], n_k, D), (heads[1], n_k, d_v)
    q, k, v = (
        (draw.standard_normal((BATCH, *shape)) * 16).round().astype(np.float32) / 16
        for shape in shapes
    )
    return Call(q, k, v, **convention)


def lowered(keep: Array) -> Array:
    """0 where a query may attend to a key, −inf where it may not."""
    return np.where(keep, 0, -math.inf).astype(np.float32)


CALLS = {
    "plain": call(),
    "boolean mask": call(mask=KEEP),
    "0/1 mask": call(mask=KEEP.astype(np.float32)),
    "causal 3x5": call(causal=True),
    "causal 5x3": call(5, 3, causal=True),
    "boolean mask, empty row": call(mask=EMPTY),
    "inverted mask, empty row": call(mask=~EMPTY),
    "0/-inf mask": call(mask=lowered(KEEP)),
    "0/-inf mask, empty row": call(mask=lowered(EMPTY)),
    "mask and causal": call(4, 4, mask=SQUARE, causal=True),
    "6 heads on 3": call(5, 11, heads=(6, 3)),
    "d_v 11": call(d_v=D_V),
}
