"""What the right kernels have in common: whole inputs, a row for each query head."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.check.planted.parts import Array, Inputs, head_of, hidden, placed


@dataclass(frozen=True, eq=False)
class Parts:
    """q, k, v with their positions, and the cells that are masked, [b, h, n_q, n_k]."""

    q: Array
    k: Array
    v: Array
    hide: Array


def parts(x: Inputs) -> Parts:
    q, k, v = placed(x, "q"), head_of(x, placed(x, "k")), head_of(x, placed(x, "v"))
    return Parts(q, k, v, np.broadcast_to(hidden(x), (x.b, x.h, x.n_q, x.n_k)))
