"""The norm of queries and keys with its gains (QK norm), as models have it before rotary positions.

y = γ ∘ x / √(mean(x²) + ε), over the width of a head
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attncli.arrays import Array
from attncli.attention.heads import shape_text
from attncli.attention.shapes import as_numbers
from attncli.convention import DType
from attncli.errors import ConventionError, ShapeError
from attncli.formula.kernels import round_to

EPSILON = 1e-6
"""That of the norm without gains, a step of the plan."""


def normed(x: Array, gain: Array, dtype: DType = "float64") -> Array:
    """Each vector over its root mean square, times the gains."""
    return round_to(round_to(x / _root(x), dtype) * gain, dtype)


def through_norm(d: Array, x: Array, gain: Array) -> Array:
    """The gradient of x from that of its norm.

    dX = (γ ∘ d − n · mean(γ ∘ d ∘ n)) / √(mean(x²) + ε), n the norm without gains
    """
    root, scaled = _root(x), d * gain
    n = x / root
    return np.asarray((scaled - n * (scaled * n).mean(axis=-1, keepdims=True)) / root)


def _root(x: Array) -> Array:
    return np.asarray(np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + EPSILON))


def gains_of(arrays: Mapping[str, Any], d_k: int, *, is_normed: bool) -> dict[str, Array]:
    """The gains of q and k, of which one may be 1: none where there are none.

    arrays  q_gain and k_gain, [d_k] each; ShapeError, ConventionError for others
    """
    gains = {name[0]: as_numbers(x, name).astype(np.float64) for name, x in arrays.items()}
    for name, gain in gains.items():
        if gain.shape != (d_k,):
            message = f"{name}_gain is {shape_text(gain) or 'one number'}, and d_k is {d_k}"
            raise ShapeError(message, "give one gain for each entry of a query or key")
    if gains and not is_normed:
        message = f"{min(gains)}_gain is given, but queries and keys are not normalised"
        raise ConventionError(message, "add qk_norm (--qk-norm)")
    return {name: gains.get(name, np.ones(d_k)) for name in "qk"} if gains else {}
