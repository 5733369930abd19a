"""Gradients against PyTorch's autograd and jax.grad, in float64: each feature, and all together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import attend, multi_head_attention
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


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("feature", FEATURES)
def test_gradients_are_those_of_autograd(feature: str, library: str) -> None:
    pytest.importorskip(library, reason="needs the extra libraries")
    given, how = autograd.case(feature)
    expected = {"torch": autograd.by_torch, "jax": autograd.by_jax}[library](given, how)
    for name, x in gradients(given, how).items():
        np.testing.assert_allclose(x, expected[name], rtol=0, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("is_cross", [False, True])
def test_gradients_of_x_and_the_weights_are_those_of_autograd(library: str, is_cross: bool) -> None:
    pytest.importorskip(library, reason="needs the extra libraries")
    given = autograd.case_of_x(is_cross=is_cross)
    by = {"torch": autograd.by_torch, "jax": autograd.by_jax}[library]
    expected = by(given, {}, autograd.loss_of_x)
    weights = {name: x for name, x in given.items() if name[:2] in ("w_", "b_")}
    own: Any = {"context": given.get("x_kv"), "d_output": given["d_output"], "causal": True}
    trace = multi_head_attention(given["x"], weights, n_heads=6, n_kv_heads=3, **own)
    assert {*expected} == {name for name in autograd.OF_X if name in given}
    for name, wanted in expected.items():
        found = trace[gradient_of(name)].value
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-12, err_msg=name)


def right(torch: Any, way: str, dtype: Any) -> tuple[Any, Any]:
    """What PyTorch's own attention gives in one of its ways: q, k, v, dO, and the gradients."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(31)
    leaves = [torch.randn(2, 3, n, 64).to(dtype).requires_grad_() for n in (67, 131, 131)]
    d = torch.randn(2, 3, 67, 64).to(dtype)
    if way == "eager":
        q, k, v = leaves
        output = torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v
    else:
        backend = SDPBackend.MATH if way == "math" else SDPBackend.FLASH_ATTENTION
        with sdpa_kernel(backend):
            output = torch.nn.functional.scaled_dot_product_attention(*leaves)
    output.backward(d)
    return (*leaves, d), [x.grad for x in leaves]


@pytest.mark.parametrize("way", ["eager", "math", "flash"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_gradients_of_pytorch_are_near(way: str, dtype: Any) -> None:
    """By the root mean square, within what rounding every stage of ours to the type does twice."""
    torch = pytest.importorskip("torch", reason="needs the extra libraries")
    inputs, found = right(torch, way, getattr(torch, dtype))
    q, k, v, d = (x.detach().double().numpy() for x in inputs)
    exact = attend(q, k, v, d_output=d)
    rounded = attend(q, k, v, d_output=d, dtype=dtype)
    for name, x in zip(("d_q", "d_k", "d_v"), found, strict=True):
        off, plain = (
            np.sqrt(np.mean(np.square(y - exact[name].value)))
            for y in (x.double().numpy(), rounded[name].value.astype(np.float64))
        )
        room = 25 if dtype == "float32" else 2  # in float32 the order of the sums is what differs
        assert off <= room * plain, name
