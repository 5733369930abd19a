"""capture(gradients=True) and check of gradients: what PyTorch's backward pass gives."""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.check import check
from attncli.cli.main import run
from tests.models.families import FAMILIES, inputs, made, module_of
from tests.turns import in_turn

NEEDS = ("torch", "transformers")
torch: Any = None
NAMES = ("d_q", "d_k", "d_v")
# By the interface, with softcap, sinks, windows, a bias and shared heads, and written out.
TITLES = ("Llama", "BERT", "GPT-2", "BLOOM", "Gemma 2", "GPT-OSS", "T5")
WAYS = [(title, way) for title in TITLES for way in FAMILIES[title].loaded]


def agree(call: Any) -> bool:
    """Whether the gradients are those computed in float64 from what was captured."""
    trace = call.trace()
    for name in NAMES:
        wanted = trace[name].value
        own = np.asarray(call.arrays[name]).reshape(wanted.shape)
        np.testing.assert_allclose(own, wanted, atol=1e-5 * np.abs(wanted).max(), err_msg=name)
    return True


@pytest.mark.parametrize(("title", "way"), WAYS)
def test_gradients_of_models(title: str, way: str) -> None:
    given, gradients = inputs(FAMILIES[title]), []
    for how in (None, False, True):
        model = made(FAMILIES[title], way)
        watch: Any = nullcontext([]) if how is None else attncli.capture(model, gradients=how)
        with watch as calls:
            output = model(**given)[0]
        assert not any({*call.arrays} & {"d_output", *NAMES} for call in calls)
        output.square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert gradients[0]
    assert all(
        torch.equal(a, b) for one in gradients[1:] for a, b in zip(gradients[0], one, strict=True)
    )
    assert [agree(call) for call in calls] == [True] * FAMILIES[title].calls
    for call in calls:
        verdict = call.check()
        assert verdict.matches, verdict
        assert {stage.name for stage in verdict.stages} >= {*NAMES}


def own(way: str) -> Any:
    """An attention whose queries, keys and values are one tensor, in one of three ways."""
    linear = torch.nn.Linear(12, 12)

    def attention(x: Any) -> Any:
        h = linear(x).unflatten(-1, (3, 4)).transpose(1, 2)
        if way == "sdpa":
            return torch.nn.functional.scaled_dot_product_attention(h, h, h, is_causal=True)
        if way == "einsum":
            weights = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", h, h) / 2, -1)
            return torch.einsum("bhqk,bhkd->bqhd", weights, h)
        return torch.softmax(h @ h.transpose(-1, -2) / 2, -1) @ h

    return module_of(attention, linear=linear)


@pytest.fixture
def x() -> Any:
    torch.manual_seed(3)
    return torch.randn(2, 5, 12)


@pytest.mark.parametrize("way", ["sdpa", "einsum", "written out"])
@pytest.mark.parametrize("is_within", [True, False])
def test_one_tensor_as_query_key_and_value(way: str, is_within: bool, x: Any) -> None:
    model = own(way)
    with attncli.capture(model, gradients=True) as calls:
        loss = (model(x) * torch.randn(4)).sum()
        if is_within:
            loss.backward()
    if not is_within:
        loss.backward()
    assert agree(calls[0])


def test_the_last_backward_pass_counts(x: Any) -> None:
    model = own("sdpa")
    with attncli.capture(model, gradients=True) as calls:
        output = model(x)
    output.sum().backward(retain_graph=True)
    first = calls[0].arrays["d_v"]
    (3 * output.sum()).backward()
    np.testing.assert_allclose(calls[0].arrays["d_v"], 3 * first, rtol=1e-6)


def test_torch_multi_head_attention_and_autocast(x: Any) -> None:
    layer = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    with attncli.capture(layer, gradients=True) as calls:
        layer(x, x, x)[0].square().sum().backward()
    assert agree(calls[0])
    model = own("sdpa")
    with attncli.capture(model, gradients=True) as calls, torch.autocast("cpu", torch.bfloat16):
        output = model(x)
    output.float().square().sum().backward()
    trace = calls[0].trace()
    for name in NAMES:
        wanted = trace[name].value
        np.testing.assert_allclose(calls[0].arrays[name], wanted, atol=0.03 * np.abs(wanted).max())


@pytest.mark.parametrize("gradients", [True, False])
def test_without_a_backward_pass_there_are_none_and_check_says_so(gradients: bool, x: Any) -> None:
    model = own("sdpa")
    with torch.no_grad(), attncli.capture(model, gradients=gradients) as calls:
        model(x)
    verdict = calls[0].check()
    assert verdict.matches
    assert any("backward" in note for note in verdict.notes) == gradients


def test_some_heads_a_folder_and_a_dump(tmp_path: Path, x: Any) -> None:
    model = own("written out")
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
    whole.save(str(tmp_path / "dump.npz"))
    out, source = tmp_path / "d_k.npy", f"{tmp_path / 'dump.npz'}::{whole[0].key}"
    assert run(["compute", source, "--stage", "d_k", "--output", str(out)]) == 0
    np.testing.assert_allclose(np.load(out), whole[0].arrays["d_k"], atol=1e-5)


KERNELS = ("written out", "MATH", "FLASH_ATTENTION")
TYPES = ("float64", "float32", "bfloat16", "float16")


CASES = list(product(KERNELS, TYPES))


@pytest.mark.parametrize(("case", "is_causal", "size"), in_turn(CASES, [False, True], [1.0, 4.0]))
def test_the_backward_pass_of_pytorch_matches(
    case: tuple[str, str], is_causal: bool, size: float
) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernel, dtype = case
    draws = np.random.default_rng(5).normal(size=(4, 2, 3, 37, 16))
    q, k, v, d = (torch.tensor(draw).to(getattr(torch, dtype)) for draw in draws)
    q = q * size
    leaves = [one.clone().requires_grad_() for one in (q, k, v)]
    if kernel == "written out":
        scores = leaves[0] @ leaves[1].mT / math.sqrt(16)
        later = torch.ones(37, 37, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -math.inf) if is_causal else scores
        (torch.softmax(scores, dim=-1) @ leaves[2]).backward(d)
    else:
        with sdpa_kernel(getattr(SDPBackend, kernel)):
            attention = torch.nn.functional.scaled_dot_product_attention
            attention(*leaves, is_causal=is_causal).backward(d)
    gradients = {f"d_{of}": leaf.grad for of, leaf in zip("qkv", leaves, strict=True)}
    verdict = check(gradients, q, k, v, d_output=d, causal=is_causal, pairs=False)
    assert verdict.matches, verdict
