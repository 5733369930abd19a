"""ALiBi: instead of encoding positions, take off the scores what grows with the distance.

slopes [heads] → bias [heads, n_q, n_k], added to the scores like a mask
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attncli.errors import ConventionError
from attncli.trace import Stage, Trace


def alibi_slopes(n_heads: int) -> npt.NDArray[np.float64]:
    """One slope per head: how fast its scores fall with the distance.

    m = 2^(−8/n), 2^(−16/n), …, 2^(−8)     # -> [heads]

    for n heads, n a power of two. Otherwise, with p the power of two below n: the p slopes of p
    heads, then every other slope of 2p heads, from the first, until there are n.

    Raises ConventionError for fewer than one head.
    Source: Press et al., "Train Short, Test Long" (2022), section 3; other counts: its code.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    >>> alibi_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    if n_heads < 1:
        raise ConventionError(f"there are {n_heads} heads", "use a whole number from 1")
    below = 1 << (n_heads.bit_length() - 1)
    between = _geometric(2 * below)[::2]
    return np.concatenate([_geometric(below), between])[:n_heads]


def alibi(
    n_heads: int,
    n_q: int,
    n_k: int | None = None,
    *,
    causal: bool = True,
    first_query: int = 0,
) -> Trace:
    """The bias that ALiBi adds to the scores, usable as an additive mask.

    causal:     B[h, i, j] = −m_h · (i − j), and −∞ for a key after its query
    symmetric:  B[h, i, j] = −m_h · |i − j|

    i and j are positions; the first query stands at position `first_query` (the length of the
    past where there is one; n_k − n_q puts the last query at the last key). n_k is n_q by default.

    Stages: slopes [heads], bias [heads, n_q, n_k]. Raises ConventionError for sizes below 1.
    Source: Press et al., "Train Short, Test Long" (2022), section 3 and figure 3; the symmetric
    form is the one its authors give for encoders.

    >>> alibi(1, 3)["bias"].value[0, 2].tolist()
    [-0.0078125, -0.00390625, 0.0]
    >>> alibi(2, 1, 3, causal=False)["bias"].value[0].tolist()
    [[0.0, -0.0625, -0.125]]
    """
    n_k = n_q if n_k is None else n_k
    for name, size in {"queries": n_q, "keys": n_k}.items():
        if size < 1:
            raise ConventionError(f"there are {size} {name}", "use a whole number from 1")
    slopes = alibi_slopes(n_heads)
    distance = (np.arange(n_q) + first_query)[:, None] - np.arange(n_k)
    fall = 0.0 - slopes[:, None, None] * np.abs(distance)  # 0 − x, as −x would give −0
    bias = np.where(distance < 0, -np.inf, fall) if causal else fall
    rule = "−m·(i − j), −∞ where the key comes after its query" if causal else "−m·|i − j|"
    steps = (
        Stage("slopes", "m", f"m = {_rule(n_heads)}", slopes, ("head",)),
        Stage("bias", "B", f"B = {rule}", bias, ("head", "query", "key")),
    )
    return Trace("ALiBi", steps)


def _geometric(n_heads: int) -> npt.NDArray[np.float64]:
    slopes: npt.NDArray[np.float64] = np.exp2(-8.0 / n_heads * np.arange(1, n_heads + 1))
    return slopes


def _rule(n_heads: int) -> str:
    below = 1 << (n_heads.bit_length() - 1)
    if below == n_heads:
        return f"2^(−8h/{n_heads}) for head h"
    return f"2^(−8h/{below}) for head h to {below}, then every other of {2 * below} heads"
