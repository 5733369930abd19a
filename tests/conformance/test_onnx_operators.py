"""The cases of the ONNX operators LayerNormalization and RotaryEmbedding, by `layer_norm` and `rotary`.

The adapters move axes and names alone, as the standard describes them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attncli.attention.layers import layer_norm
from attncli.attention.rotary import rotary
from attncli.convention import Convention
from tests.conformance.onnx_cases import attributes, cases, is_one


def layer_norm_of(own: dict[str, Any], x: Any, gain: Any, bias: Any) -> list[Any]:
    """Y, Mean and InvStdDev."""
    axis, epsilon = own.get("axis", -1) % x.ndim, own.get("epsilon", 1e-5)
    lead, how = x.shape[:axis], Convention(dtype=x.dtype.name)
    flat = x.reshape(math.prod(lead), -1), gain.ravel(), bias.ravel()
    trace = layer_norm(*flat, epsilon=epsilon, convention=how)
    mean, deviation, norm = (stage.value for _, stage in trace.stages())
    inverse = 1 / np.sqrt(deviation**2 + np.float32(epsilon))
    column = (*lead, *[1] * (x.ndim - axis))
    return [norm.reshape(x.shape), mean.reshape(column), inverse.reshape(column)]


def rotary_of(own: dict[str, Any], x: Any, cos: Any, sin: Any, ids: Any = None) -> list[Any]:
    if x.ndim == 3:  # (batch, sequence, hidden) -> (batch, heads, sequence, head size)
        heads = x.reshape(*x.shape[:2], own["num_heads"], -1).swapaxes(1, 2)
        return [rotary_of(own, heads, cos, sin, ids)[0].swapaxes(1, 2).reshape(x.shape)]
    layout: Any = "interleaved" if own.get("interleaved") else "halves"
    size = own.get("rotary_embedding_dim") or None
    trace = rotary(x, position_ids=ids, layout=layout, rotary_dim=size, caches=(cos, sin))
    return [trace["rotated"].value.astype(x.dtype)]


@pytest.mark.parametrize(
    ("operator", "by", "n"),
    [("LayerNormalization", layer_norm_of, 19), ("RotaryEmbedding", rotary_of, 8)],
)
def test_operators(operator: str, by: Any, n: int) -> None:
    own = [case for case in cases(operator) if is_one(case, operator)]
    assert len(own) == n
    for case in own:
        ((inputs, outputs),) = case.data_sets
        results = by(attributes(case.model.graph.node[0]), *inputs)
        for ours, wanted in zip(results, outputs, strict=True):
            assert (ours.shape, ours.dtype) == (wanted.shape, wanted.dtype), case.name
            np.testing.assert_allclose(ours, wanted, case.rtol, case.atol, err_msg=case.name)
