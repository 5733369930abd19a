"""Every RotaryEmbedding case of the onnx package, through `rotary`.

The adapter below only moves axes and names; it holds no rotary arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attncli.attention.rotary import rotary

from .onnx_cases import cases

CASES = cases("test_rotary_")

# An "_expanded" case is the same call written as other operators: inputs and outputs are the
# same, its attributes are those of the case it expands.
NODES = {
    case.name: case.model.graph.node[0]
    for case in CASES
    if case.model.graph.node[0].op_type == "RotaryEmbedding"
}


def attributes(name: str) -> dict[str, int]:
    node = NODES[name.removesuffix("_expanded")]
    return {attribute.name: attribute.i for attribute in node.attribute}


def run(name: str, inputs: list[npt.NDArray[Any]]) -> npt.NDArray[np.float64]:
    options = attributes(name)
    x, cos, sin = inputs[:3]
    heads_apart = x.ndim == 3  # (batch, sequence, hidden) -> (batch, heads, sequence, head size)
    if heads_apart:
        x = x.reshape(*x.shape[:2], options["num_heads"], -1).swapaxes(1, 2)
    trace = rotary(
        x,
        position_ids=inputs[3] if len(inputs) > 3 else None,
        layout="interleaved" if options.get("interleaved") else "halves",
        rotary_dim=options.get("rotary_embedding_dim") or None,
        caches=(cos, sin),
    )
    rotated = trace["rotated"].value
    return rotated.swapaxes(1, 2).reshape(inputs[0].shape) if heads_apart else rotated


def test_no_case_is_missing() -> None:
    assert len(CASES) == 16
    assert len(NODES) == 8


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rotary_agrees_with_onnx(case: Any) -> None:
    for inputs, outputs in case.data_sets:
        found = run(case.name, inputs)
        np.testing.assert_allclose(found, outputs[0], rtol=case.rtol, atol=case.atol)
        assert found.shape == outputs[0].shape
