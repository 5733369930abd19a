"""Every LayerNormalization case of the ONNX standard through the public function.

The adapter only lays the axes that are normalised flat, as the standard itself describes it. Cases
that write the operator out in smaller ones are left aside.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import pytest

from attncli.attention.layers import layer_norm
from attncli.convention import Convention

from .onnx_cases import cases

CASES = [
    case
    for case in cases("test_layer_normalization")
    if [node.op_type for node in case.model.graph.node] == ["LayerNormalization"]
]


def run(attributes: dict[str, Any], x: Any, gain: Any, bias: Any) -> tuple[Any, ...]:
    """Y, Mean and InvStdDev."""
    axis, epsilon = attributes.get("axis", -1) % x.ndim, attributes.get("epsilon", 1e-5)
    lead = x.shape[:axis]
    trace = layer_norm(
        x.reshape(math.prod(lead), -1),
        gain.ravel(),
        bias.ravel(),
        epsilon=epsilon,
        convention=Convention(dtype=x.dtype.name),
    )
    mean, deviation, norm = (stage.value for _, stage in trace.stages())
    inverse = 1 / np.sqrt(deviation**2 + np.float32(epsilon))
    column = (*lead, *[1] * (x.ndim - axis))
    return norm.reshape(x.shape), mean.reshape(column), inverse.reshape(column)


def test_the_package_has_the_cases_we_claim() -> None:
    assert len(CASES) == 19


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Any) -> None:
    node = case.model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for given, expected in case.data_sets:
        for ours, wanted in zip(run(attributes, *given), expected, strict=True):
            assert (ours.shape, ours.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(ours, wanted, rtol=case.rtol, atol=case.atol)
