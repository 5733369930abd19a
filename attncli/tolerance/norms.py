"""The norm of queries and keys with its gains before rotary positions, as models have it.

It is the plan's step, run by itself.
"""

from __future__ import annotations

from attncli.arrays import Array
from attncli.attention.plan import Sizes, plan
from attncli.attention.run import run
from attncli.convention import Convention, DType


def normed(x: Array, gain: Array, dtype: DType = "float64") -> Array:
    """Each vector over its root mean square, times the gains; x is [batch, head, token, d_k]."""
    return _computed("q_norm", {"q": x, "q_gain": gain}, dtype)


def through_norm(d: Array, x: Array, gain: Array) -> Array:
    """The gradient of x from that of its norm."""
    return _computed("d_q", {"q": x, "q_gain": gain, "d_q_norm": d})


def _computed(stage: str, inputs: dict[str, Array], dtype: DType = "float64") -> Array:
    x = inputs["q"]
    names = frozenset({"q", "k", "v", "q_gain", "given_gradient"})
    sizes = Sizes((*x.shape[:-1], x.shape[-2]), x.shape[1], x.shape[-1], inputs=names)
    steps = plan(Convention(qk_norm=True, dtype=dtype), sizes)
    return run(steps, inputs, [stage])[stage]
