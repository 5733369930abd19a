"""Wrong attentions: positions of another form, counted from elsewhere, left out, put in too far.

Sinusoids and turns are written entry by entry from their descriptions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.check.zoo_room import Array, Room, Specimen, dots, mix, root, softmax, wide

Put = Callable[[Array, Sequence[int]], Array]
SINUSOIDAL = ("paper", "article")
N_PAST = 2


def sinusoid(room: Room, *, exponent: int = 2, in_halves: bool = False) -> Put:
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
        return room.round(wide(x) + wide(room.round(table)))

    return put


def turn(room: Room, *, interleaved: bool = False) -> Put:
    """Each pair of entries of x turned by pos · 10000^(−2i/d)."""

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
        return room.round(y)

    return put


def as_given(x: Array, _: Sequence[int]) -> Array:
    return x


PUTS: dict[str, Callable[[Room], Put]] = {
    "paper": sinusoid,
    "article": lambda room: sinusoid(room, exponent=4),
    "rope-halves": turn,
    "rope-interleaved": lambda room: turn(room, interleaved=True),
    "in halves": lambda room: sinusoid(room, in_halves=True),
    "none": lambda _: as_given,
}


def placed(
    asked: str,
    done: str,
    *,
    on: str = "",
    starts: tuple[int, int, int] | None = None,
    past: bool = False,
    factor: float = 1.0,
    sizes: dict[str, int] | None = None,
) -> Callable[[Room], Specimen]:
    """An attention that should have put in `asked` and put in `done`.

    on      which of q, k, v got them
    starts  the positions of the first query, the first cached key and the first new one
    """

    def make(room: Room) -> Specimen:
        width = 2 * room.d_k if asked.startswith("rope") else room.d_k
        q, k, v = room.qkv(**{"d_k": width, "d_v": width, **(sizes or {})})
        n_past = N_PAST if past else 0
        query, cached, new = starts or (n_past, 0, n_past)
        keys = [*range(cached, cached + n_past), *range(new, new + k.shape[1] - n_past)]
        put, names = PUTS[done](room), on or ("qkv" if asked in SINUSOIDAL else "qk")
        q_in = put(q, range(query, query + q.shape[1])) if "q" in names else q
        k_in = put(k, keys) if "k" in names else k
        v_in = put(v, keys) if "v" in names else v
        observed = mix(softmax(dots(q_in, k_in) * root(q) * factor), v_in)
        given: dict[str, Any] = {"positions": asked}
        if past:
            given |= {"past_k": k[:, :n_past], "past_v": v[:, :n_past]}
        return Specimen(room.round(observed), q, k[:, n_past:], v[:, n_past:], given=given)

    return make
