"""The test cases of the ONNX standard, which the onnx package makes in-process."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from tests.conformance.rows import Row

MODES = ("scaled", "capped", "masked", "weights")
"""qk_matmul_output_mode 0 to 3; a stage that does nothing is left out of a trace."""

TYPES = {"float32": "float32", "float16": "float32", "bfloat16": "bfloat16"}
"""What is computed in: 1e-3, the standard's tolerance for float16, is one unit of its last place,
which two roundings in different places already miss."""


@cache
def of_onnx() -> list[Row]:
    """Every case of the operator Attention, opsets 23 to 25; not its expansions into smaller ones."""
    pytest.importorskip("onnx", reason="needs the package onnx")
    from onnx.backend.test.case import node

    with warnings.catch_warnings():  # its generators overflow on purpose
        warnings.simplefilter("ignore")
        import_module(f"{node.__name__}.attention")  # which makes them, and no others
    cases = [case for case in node._NodeTestCases if case.name.startswith("test_attention")]
    return [
        _row(case) for case in cases if [n.op_type for n in case.model.graph.node] == ["Attention"]
    ]


def _row(case: Any) -> Row:
    from onnx.helper import get_attribute_value

    (node,), ((given, outputs),) = case.model.graph.node, case.data_sets
    own = {x.name: get_attribute_value(x) for x in node.attribute}
    arrays = _named(node.input, given)
    names = {"attn_mask": "mask", "past_key": "past_k", "past_value": "past_v"}
    names |= {"nonpad_kv_seqlen": "kv_len"}
    inputs = {names.get(name, name.lower()): x for name, x in arrays.items()}
    if "mask" in inputs:
        inputs["mask"] = _padded(inputs)
    window = own.get("left_window_size", -1), own.get("right_window_size", -1)
    how = {
        "scale": own.get("scale", "1/sqrt(d_k)"),
        "softcap": own.get("softcap") or None,
        "causal": bool(own.get("is_causal", 0)),
        "causal_align": "bottom-right" if "kv_len" in inputs else "top-left",
        "window": None if window == (-1, -1) else window,
        "dtype": TYPES[inputs["q"].dtype.name],
    }
    asked = "|".join(MODES[: own.get("qk_matmul_output_mode", 0) + 1])
    stages = {"Y": "output|concat", "present_key": "k", "present_value": "v"}
    expected = {stages.get(name, asked): x for name, x in _named(node.output, outputs).items()}
    # Two units in the last place of bfloat16; else the tolerances are the standard's own.
    rtol = max(case.rtol, 2**-6) if how["dtype"] == "bfloat16" else case.rtol
    heads = (own["q_num_heads"], own["kv_num_heads"]) if inputs["q"].ndim == 3 else None
    return Row(case.name, inputs, how, expected, rtol, case.atol, heads)


def _named(names: Iterable[str], arrays: Any) -> dict[str, Array]:
    return dict(zip(filter(None, names), map(np.asarray, arrays), strict=True))


def _padded(inputs: dict[str, Array]) -> Array:
    """The mask; the standard fills one that is too short for the keys with "may not attend"."""
    mask = inputs["mask"]
    past = inputs["past_k"].shape[2] if "past_k" in inputs else 0
    missing = inputs["k"].shape[-2] + past - mask.shape[-1]
    filler: Any = False if mask.dtype == np.bool_ else -np.inf
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=filler)
