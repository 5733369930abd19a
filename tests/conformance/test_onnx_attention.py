"""Every Attention case of the ONNX standard (opsets 23, 24, 25) through the public API.

The onnx package makes the cases in-process; the adapter here only translates their attributes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest

import attncli

from .onnx_cases import cases

Array = npt.NDArray[Any]

# qk_matmul_output_mode 0, 1, 2, 3 are these stages of ours; one that does nothing is left out of
# a trace, and its value is then that of the nearest one before.
MODES = ("scaled", "capped", "masked", "weights")

# The standard's tolerance for float16, 1e-3, is a single unit in its last place, so two roundings
# that fall in different places already miss it: compute in float32, round the result once.
NUMBER_TYPES: dict[str, Any] = {
    "float32": "float32",
    "float16": "float32",
    "bfloat16": "bfloat16",
}


def single_node_cases() -> list[Any]:
    """The cases that use the operator itself, not its expansion into smaller ones."""
    return [
        case
        for case in cases("test_attention")
        if [n.op_type for n in graph(case).node] == ["Attention"]
    ]


def graph(case: Any) -> Any:
    return case.model.graph


def named(names: Any, arrays: Any) -> dict[str, Array]:
    present = [name for name in names if name]
    return dict(zip(present, (np.asarray(array) for array in arrays), strict=True))


def convention(attributes: dict[str, Any], inputs: dict[str, Array]) -> attncli.Convention:
    window = tuple(attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    lengths = "nonpad_kv_seqlen" in inputs
    return attncli.Convention(
        scale=attributes.get("scale", "1/sqrt(d_k)"),
        softcap=attributes.get("softcap") or None,
        causal=bool(attributes.get("is_causal", 0)),
        causal_align="bottom-right" if lengths else "top-left",
        window=None if window == (-1, -1) else (window[0], window[1]),
        dtype=NUMBER_TYPES[inputs["Q"].dtype.name],
    )


def mask_of(inputs: dict[str, Array]) -> Array | None:
    """attn_mask; the standard fills one that is too short for the keys with "may not attend"."""
    mask = inputs.get("attn_mask")
    if mask is None:
        return None
    past = inputs["past_key"].shape[2] if "past_key" in inputs else 0
    missing = inputs["K"].shape[-2] + past - mask.shape[-1]
    filler: Any = False if mask.dtype == np.bool_ else -np.inf
    return np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=filler)


def run(attributes: dict[str, Any], inputs: dict[str, Array]) -> attncli.Trace:
    options: dict[str, Any] = {
        "mask": mask_of(inputs),
        "past_k": inputs.get("past_key"),
        "past_v": inputs.get("past_value"),
        "kv_len": inputs.get("nonpad_kv_seqlen"),
        "convention": convention(attributes, inputs),
    }
    qkv = inputs["Q"], inputs["K"], inputs["V"]
    if inputs["Q"].ndim == 4:
        return attncli.attend(*qkv, **options)
    options |= {"n_heads": attributes["q_num_heads"], "n_kv_heads": attributes["kv_num_heads"]}
    return attncli.attend_heads(*qkv, **options)


def outputs(trace: attncli.Trace, mode: int) -> dict[str, Array]:
    asked = next(name for name in reversed(MODES[: mode + 1]) if name in trace)
    return {
        "Y": trace["concat" if "concat" in trace else "output"].value,
        "present_key": trace["k"].value,
        "present_value": trace["v"].value,
        "qk_matmul_output": trace[asked].value,
    }


def test_the_package_has_the_cases_we_claim() -> None:
    assert len(single_node_cases()) == 93


@pytest.mark.parametrize("case", single_node_cases(), ids=lambda case: case.name)
def test_case(case: Any) -> None:
    node = graph(case).node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    for given, expected in case.data_sets:
        inputs = named(node.input, given)
        trace = run(attributes, inputs)
        ours = outputs(trace, attributes.get("qk_matmul_output_mode", 0))
        low = inputs["Q"].dtype.name == "bfloat16"
        # The tolerances are the standard's own: two units in the last place for bfloat16.
        rtol = max(case.rtol, 2**-6) if low else case.rtol
        for name, wanted in named(node.output, expected).items():
            result = ours[name].astype(wanted.dtype)
            assert_close(result, wanted, rtol, case.atol, name)


def assert_close(result: Array, wanted: Array, rtol: float, atol: float, name: str) -> None:
    assert result.shape == wanted.shape
    exact, expected = result.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(exact, expected, rtol, atol, err_msg=name)
