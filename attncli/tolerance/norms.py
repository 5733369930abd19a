"""The norm of queries and keys with its gains beside rotary positions, as models have it.

The plan's steps of queries, each run by itself; x is [batch, head, token, d_k].
"""

from __future__ import annotations

from attncli.arrays import Array
from attncli.attention.formulas import D_QK_GAIN, D_QK_NORM, NORM_EPSILON, QK_NORM
from attncli.attention.run import Step, computed
from attncli.convention import DType
from attncli.formula.parser import written


def normed(x: Array, gain: Array, dtype: DType = "float64") -> Array:
    """Each vector over its root mean square, times the gains."""
    return _computed(QK_NORM["q"], dtype, x=x, gain=gain)


def through_norm(d: Array, x: Array, gain: Array) -> Array:
    """The gradient of x from that of its norm."""
    return _computed(D_QK_NORM["q"], d=d, x=x, y=normed(x, gain), gain=gain)


def through_gain(d: Array, x: Array) -> Array:
    """The gradient of the gains from that of the norm of x."""
    return _computed(D_QK_GAIN["q"], d=d, x=x)


def _computed(text: str, dtype: DType = "float64", **values: Array) -> Array:
    reads = {name: name for name in values}
    params = {"epsilon": NORM_EPSILON}
    return computed(Step("", written(text, frozenset(reads)), reads, params, dtype=dtype), values)
