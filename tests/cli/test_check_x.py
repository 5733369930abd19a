"""attncli check of gradients of x, and of a scale that the metadata of a file names."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.plain import attention

from .conftest import Call


def test_wrong_gradients_of_x_with_several_causes_are_explained(call: Call) -> None:
    rng = np.random.default_rng(5)
    x, d_output = rng.normal(size=(5, 3)), rng.normal(size=(5, 7))
    weights = {f"w_{name}": rng.normal(size=(3, 7)) for name in "qkv"}
    right = attention({n[-1]: x @ w for n, w in weights.items()} | {"d_output": d_output}, {})
    np.savez("x.npz", x=x, d_output=d_output, **weights)  # type: ignore[arg-type]
    d_x = sum((right[f"d_{name}"] @ weights[f"w_{name}"].T for name in "qkv"), np.zeros((5, 3)))
    np.savez("g.npz", dW_q=x.T @ right["d_q"], dx=d_x)
    start = ("check", "--x", "x.npz", "--observed", "g.npz")
    assert call(*start).code == 0
    done = call(*start, "--scale", "none", "--suggest", "more.npz")
    assert (done.code, "distinguished by: an input with" in done.out) == (1, True), done.err


@pytest.mark.parametrize("name", ["scale", "Scale", "SCALE"])
def test_a_scale_in_metadata_is_read_in_any_case(call: Call, name: str) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    numpy.save_file({"q": np.array([[2.0]])}, "q.safetensors", metadata={name: "0.5"})
    done = call("compute", "q.safetensors", "--quiet", "--stage", "scaled", "--format", "json")
    assert done.json["steps"][0]["value"] == [[2]], json.dumps(done.json)


def test_two_scales_in_metadata_are_refused(call: Call) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    both = {"Scale": "1", "scale": "2"}
    numpy.save_file({"q": np.array([[2.0]])}, "q.safetensors", metadata=both)
    done = call("compute", "q.safetensors")
    assert (done.code, done.out, "scale twice" in done.err) == (2, "", True)
