"""Every LayerNormalization case of the ONNX standard through the public function.

The adapter only lays the axes that are normalised flat, as the standard itself describes it.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx.backend.test.case import node as node_cases

from attncli.attention.blocks import layer_norm
from attncli.attention.weights import NormWeights
from attncli.convention import Convention


def made_cases() -> list[Any]:
    """The cases that use the operator itself, not its expansion into smaller ones.

    The package makes cases as its modules are imported, once a process and for one operator, so
    that a second `collect_testcases` finds none: the module's own functions are called instead.
    """
    with warnings.catch_warnings(), state():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node.layernormalization import LayerNormalization
    makers = [f for name, f in inspect.getmembers(LayerNormalization) if name.startswith("export")]
    with state() as made:
        for make in makers:
            make()
    return [case for case in made if [n.op_type for n in graph(case).node] == [OPERATOR]]


@contextmanager
def state() -> Iterator[list[Any]]:
    """The package's list of cases, empty, and what it had before given back afterwards."""
    made: list[Any] = []
    own: dict[str, Any] = {"_NodeTestCases": made, "_TargetOpType": OPERATOR, "_existing_names": {}}
    with mock.patch.multiple(node_cases, **own):
        yield made


def graph(case: Any) -> Any:
    return case.model.graph


OPERATOR = "LayerNormalization"
CASES = made_cases()


def run(attributes: dict[str, Any], x: Any, gain: Any, bias: Any) -> tuple[Any, ...]:
    """Y, Mean and InvStdDev."""
    axis, epsilon = attributes.get("axis", -1) % x.ndim, attributes.get("epsilon", 1e-5)
    lead = x.shape[:axis]
    trace = layer_norm(
        x.reshape(math.prod(lead), -1),
        NormWeights(gain.ravel(), bias.ravel()),
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
    node = graph(case).node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for given, expected in case.data_sets:
        for ours, wanted in zip(run(attributes, *given), expected, strict=True):
            assert (ours.shape, ours.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(ours, wanted, rtol=case.rtol, atol=case.atol)
