"""Buggy attentions: positions of another form, counted from elsewhere, left out, put in too far.

Sinusoids and rotations are written entry by entry from their descriptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.check.buggy.parts import (
    Array,
    Computed,
    Inputs,
    scale,
    scores,
    softmax,
    weighted_sum,
    wide,
)

Put = Callable[[Array, Sequence[int]], Array]
SINUSOIDAL = ("paper", "article")
N_PAST = 2


def sinusoid(inputs: Inputs, *, exponent: int = 2, in_halves: bool = False) -> Put:
    """x plus sines and cosines of pos / 10000^(exponent · i / d)."""

    def put(x: Array, at: Sequence[int]) -> Array:
        d = x.shape[-1]
        table = np.zeros((len(at), d))
        for row, pos in enumerate(at):
            for i in range((d + 1) // 2):
                angle = pos / 10000 ** (exponent * i / d)
                table[row, i if in_halves else 2 * i] = math.sin(angle)
                if 2 * i + 1 < d:
                    table[row, (d + 1) // 2 + i if in_halves else 2 * i + 1] = math.cos(angle)
        return inputs.round(wide(x) + wide(inputs.round(table)))

    return put


def rotate(inputs: Inputs, *, interleaved: bool = False) -> Put:
    """Each pair of entries of x rotated by pos · 10000^(−2i/d)."""

    def put(x: Array, at: Sequence[int]) -> Array:
        d = x.shape[-1]
        y = np.zeros(x.shape)
        for row, pos in enumerate(at):
            for i in range(d // 2):
                one, two = (2 * i, 2 * i + 1) if interleaved else (i, i + d // 2)
                angle = pos * 10000 ** (-2 * i / d)
                c, s = math.cos(angle), math.sin(angle)
                a, b = (x[:, row, at].astype(np.float64) for at in (one, two))
                y[:, row, one], y[:, row, two] = a * c - b * s, a * s + b * c
        return inputs.round(y)

    return put


def as_given(x: Array, _: Sequence[int]) -> Array:
    return x


POSITIONS: dict[str, Callable[[Inputs], Put]] = {
    "paper": sinusoid,
    "article": lambda inputs: sinusoid(inputs, exponent=4),
    "rope-halves": rotate,
    "rope-interleaved": lambda inputs: rotate(inputs, interleaved=True),
    "in halves": lambda inputs: sinusoid(inputs, in_halves=True),
    "none": lambda _: as_given,
}


def with_positions(
    asked: str,
    done: str,
    *,
    on: str = "",
    starts: tuple[int, int, int] | None = None,
    past: bool = False,
    factor: float = 1.0,
    sizes: dict[str, int] | None = None,
) -> Callable[[Inputs], Computed]:
    """An attention that should have put in `asked` and put in `done`.

    on      which of q, k, v got them
    starts  the positions of the first query, the first cached key and the first new one
    """

    def make(inputs: Inputs) -> Computed:
        width = 2 * inputs.d_k if asked.startswith("rope") else inputs.d_k
        q, k, v = inputs.qkv(**{"d_k": width, "d_v": width, **(sizes or {})})
        n_past = N_PAST if past else 0
        query, cached, new = starts or (n_past, 0, n_past)
        keys = [*range(cached, cached + n_past), *range(new, new + k.shape[1] - n_past)]
        put, names = POSITIONS[done](inputs), on or ("qkv" if asked in SINUSOIDAL else "qk")
        q_in = put(q, range(query, query + q.shape[1])) if "q" in names else q
        k_in = put(k, keys) if "k" in names else k
        v_in = put(v, keys) if "v" in names else v
        observed = weighted_sum(softmax(scores(q_in, k_in) * scale(q) * factor), v_in)
        given: dict[str, Any] = {"positions": asked}
        if past:
            given |= {"past_k": k[:, :n_past], "past_v": v[:, :n_past]}
        return Computed(inputs.round(observed), q, k[:, n_past:], v[:, n_past:], given=given)

    return make
