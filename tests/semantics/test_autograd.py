"""Gradients against PyTorch's autograd and jax.grad, in float64: each feature, and all together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import multi_head_attention
from attncli.attention.attend import prepared
from attncli.attention.plan import plan
from attncli.attention.run import run
from attncli.convention import Convention
from attncli.stages import gradient_of
from tests.attention import autograd

FEATURES = (
    "plain", "scale", "causal", "mask", "bias", "broadcast", "softcap", "sinks", "grouped", "tiled",
    "dropout", "queries", "all",
)  # fmt: skip
BY = {"torch": autograd.by_torch, "jax": autograd.by_jax}
WHERE = {"bias": "given_mask"}


def gradients(given: Any, how: Any) -> dict[str, Any]:
    """Ours, by the names of the case; which weights dropout keeps is given, too."""
    own, fields = autograd.named(given, how)
    convention = Convention(**fields)
    inputs, sizes = prepared(how=convention, **own)
    if "kept" in given:
        inputs["kept"] = given["kept"]
    names = [name for name in autograd.DIFFERENTIATED if name in given]
    wanted = {name: gradient_of(WHERE.get(name, name)) for name in names}
    found = run(plan(convention, sizes), inputs, wanted.values())
    return {name: found[stage] for name, stage in wanted.items()}


@pytest.mark.parametrize("library", BY)
def test_gradients_are_those_of_autograd(library: str) -> None:
    pytest.importorskip(library, reason="needs the extra libraries")
    for feature in FEATURES:
        given, how = autograd.case(feature)
        expected = BY[library](given, how)
        for name, x in gradients(given, how).items():
            message = f"{feature}, {name}"
            np.testing.assert_allclose(x, expected[name], rtol=0, atol=1e-12, err_msg=message)


@pytest.mark.parametrize("library", BY)
@pytest.mark.parametrize("is_cross", [False, True])
def test_gradients_of_x_and_the_weights_are_those_of_autograd(library: str, is_cross: bool) -> None:
    pytest.importorskip(library, reason="needs the extra libraries")
    given = autograd.case_of_x(is_cross=is_cross)
    expected = BY[library](given, {}, autograd.loss_of_x)
    weights = {name: x for name, x in given.items() if name[:2] in ("w_", "b_")}
    own: Any = {"context": given.get("x_kv"), "d_output": given["d_output"], "causal": True}
    trace = multi_head_attention(given["x"], weights, n_heads=6, n_kv_heads=3, **own)
    assert {*expected} == {name for name in autograd.OF_X if name in given}
    for name, wanted in expected.items():
        found = trace[gradient_of(name)].value
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-12, err_msg=name)
