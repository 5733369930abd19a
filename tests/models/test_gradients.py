"""capture(gradients=True): what PyTorch's backward pass gives q, k, v and the output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from tests.models.families import FAMILIES, Family, inputs, made

torch = pytest.importorskip("torch", reason="needs the extra models")
transformers = pytest.importorskip("transformers", reason="needs the extra models")

NAMES = ("d_q", "d_k", "d_v")
WAYS = [
    (family, way)
    for title in ("Llama", "BERT", "GPT-2", "BLOOM", "Gemma 2", "GPT-OSS", "T5")
    for family in (FAMILIES[title],)
    for way in ("sdpa", "eager")
    if way == "eager" or title not in ("BLOOM", "Gemma 2", "GPT-OSS")
]
"""By the interface, with softcap, sinks, windows, a bias and shared heads, and written out."""


def title_of(x: Any) -> str:
    return x.title if isinstance(x, Family) else str(x)


def agree(call: Any, *names: str) -> bool:
    """Whether the gradients are those computed in float64 from what was captured."""
    trace = call.trace()
    for name in names or NAMES:
        wanted, found = trace[name].value, np.asarray(call.arrays[name])
        found = found[0] if found.ndim == wanted.ndim + 1 else found
        np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max(), err_msg=name)
    return True


@pytest.mark.parametrize(("family", "implementation"), WAYS, ids=title_of)
def test_gradients_of_models(family: Family, implementation: str) -> None:
    model = made(family, implementation)
    with attncli.capture(model, gradients=True) as calls:
        output = model(**inputs(family))[0]
    assert not any(set(call.arrays) & {"d_output", *NAMES} for call in calls)
    output.square().sum().backward()
    assert len(calls) > 0
    assert all(agree(call) for call in calls)
    for call in calls:
        verdict = call.check()
        assert verdict.matches, verdict
        assert {stage.name for stage in verdict.stages} >= set(NAMES)


def test_the_model_gets_the_gradients_that_it_gets_without() -> None:
    found = []
    for is_captured in (False, True):
        model = made(FAMILIES["Llama"], "sdpa")
        if is_captured:
            with attncli.capture(model, gradients=True):
                output = model(**inputs(FAMILIES["Llama"]))[0]
        else:
            output = model(**inputs(FAMILIES["Llama"]))[0]
        output.square().sum().backward()
        found.append([p.grad for p in model.parameters() if p.grad is not None])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


class Own(torch.nn.Module):  # type: ignore[misc, name-defined]
    """An attention whose queries, keys and values are one tensor, in one of three ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.linear = way, torch.nn.Linear(12, 12)

    def forward(self, x: Any) -> Any:
        h = self.linear(x).unflatten(-1, (3, 4)).transpose(1, 2)
        if self.way == "sdpa":
            return torch.nn.functional.scaled_dot_product_attention(h, h, h, is_causal=True)
        if self.way == "einsum":
            weights = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", h, h) / 2, -1)
            return torch.einsum("bhqk,bhkd->bqhd", weights, h)
        return torch.softmax(h @ h.transpose(-1, -2) / 2, -1) @ h


@pytest.mark.parametrize("way", ["sdpa", "einsum", "written out"])
@pytest.mark.parametrize("is_within", [True, False])
def test_one_tensor_as_query_key_and_value(way: str, is_within: bool) -> None:
    torch.manual_seed(3)
    model, x = Own(way), torch.randn(2, 5, 12)
    with attncli.capture(model, gradients=True) as calls:
        loss = (model(x) * torch.randn(4)).sum()
        if is_within:
            loss.backward()
    if not is_within:
        loss.backward()
    assert agree(calls[0])


def test_the_last_backward_pass_counts() -> None:
    model, x = Own("sdpa"), torch.randn(2, 5, 12)
    with attncli.capture(model, gradients=True) as calls:
        output = model(x)
    output.sum().backward(retain_graph=True)
    first = calls[0].arrays["d_v"]
    (3 * output.sum()).backward()
    np.testing.assert_allclose(calls[0].arrays["d_v"], 3 * first, rtol=1e-6)


def test_torch_multi_head_attention_and_autocast() -> None:
    torch.manual_seed(5)
    model = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    x = torch.randn(2, 5, 12)
    with attncli.capture(model, gradients=True) as calls:
        model(x, x, x)[0].square().sum().backward()
    assert agree(calls[0])
    own = Own("sdpa")
    with attncli.capture(own, gradients=True) as calls, torch.autocast("cpu", torch.bfloat16):
        output = own(x)
    output.float().square().sum().backward()
    trace = calls[0].trace()
    for name in NAMES:
        wanted = trace[name].value
        np.testing.assert_allclose(calls[0].arrays[name], wanted, atol=0.03 * np.abs(wanted).max())


def test_without_a_backward_pass_there_are_none_and_check_says_so() -> None:
    model, x = Own("sdpa"), torch.randn(2, 5, 12)
    with torch.no_grad(), attncli.capture(model, gradients=True) as calls:
        model(x)
    verdict = calls[0].check()
    assert verdict.matches
    assert any("no gradients have come: run loss.backward()" in note for note in verdict.notes)
    with attncli.capture(model) as calls:
        model(x)
    assert not any("gradients" in note for note in calls[0].check().notes)


def test_some_heads_and_a_folder(tmp_path: Path) -> None:
    torch.manual_seed(7)
    model, x = Own("sdpa"), torch.randn(2, 5, 12)
    with attncli.capture(model, gradients=True) as whole:
        model(x).square().sum().backward()
    folder = tmp_path / "calls"
    with attncli.capture(model, gradients=True, heads=[0, 2], to=folder) as calls:
        model(x).square().sum().backward()
    assert calls[0].arrays["d_k"].shape == (2, 2, 5, 4)
    np.testing.assert_array_equal(calls[0].arrays["d_k"], whole[0].arrays["d_k"][:, [0, 2]])
    assert agree(calls[0])
    with np.load(next(folder.iterdir())) as file:
        assert {"d_output", *NAMES} <= {*file}


def test_a_dump_holds_the_gradient_of_the_output_and_compute_goes_on(tmp_path: Path) -> None:
    from attncli.cli.main import run

    model, x = Own("written out"), torch.randn(2, 5, 12)
    with attncli.capture(model, gradients=True) as calls:
        model(x).square().sum().backward()
    calls.save(str(tmp_path / "dump.npz"))
    out = tmp_path / "d_k.npy"
    source = f"{tmp_path / 'dump.npz'}::{calls[0].key}"
    assert run(["compute", source, "--stage", "d_k", "--output", str(out)]) == 0
    np.testing.assert_allclose(np.load(out), calls[0].arrays["d_k"], atol=1e-5)
