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
from tests.models.families import FAMILIES, inputs, made, module_of
from tests.turns import in_turn

NEEDS = ("torch", "transformers")
torch: Any = None
NAMES = ("d_q", "d_k", "d_v")
# By the interface, with softcap, sinks, windows, a bias and shared heads, and written out.
TITLES = ("Llama", "BERT", "GPT-2", "BLOOM", "Gemma 2", "GPT-OSS", "T5")
WAYS = [(title, way) for title in TITLES for way in FAMILIES[title].loaded]


def assert_right(call: Any, within: float = 1e-5) -> None:
    """The gradients are those computed in float64 from what was captured."""
    trace = call.trace()
    for name in NAMES:
        wanted = trace[name].value
        own = np.asarray(call.arrays[name]).reshape(wanted.shape)
        np.testing.assert_allclose(own, wanted, atol=within * np.abs(wanted).max(), err_msg=name)


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
    pairs = [*zip(*gradients, strict=True)]  # with capture and without
    assert pairs
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in pairs)
    assert len(calls) == FAMILIES[title].calls
    for call in calls:
        assert_right(call)
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
def test_the_last_backward_pass_counts_within_the_block_or_after_it(way: str, x: Any) -> None:
    with attncli.capture(model := own(way), gradients=True) as calls:
        loss = (model(x) * torch.randn(4)).sum()
        loss.backward(retain_graph=True)
        assert_right(calls[0])
    first = calls[0].arrays["d_v"]
    (3 * loss).backward()
    np.testing.assert_allclose(calls[0].arrays["d_v"], 3 * first, rtol=1e-6)
    assert_right(calls[0])


def test_torch_multi_head_attention_and_autocast(x: Any) -> None:
    layer = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    with attncli.capture(layer, gradients=True) as calls:
        layer(x, x, x)[0].square().sum().backward()
    assert_right(calls[0])
    model = own("sdpa")
    with attncli.capture(model, gradients=True) as calls, torch.autocast("cpu", torch.bfloat16):
        output = model(x)
    output.float().square().sum().backward()
    assert_right(calls[0], within=0.03)


def test_without_a_backward_pass_there_are_none_and_check_says_so(x: Any) -> None:
    for gradients in (True, False):
        model = own("sdpa")
        with torch.no_grad(), attncli.capture(model, gradients=gradients) as calls:
            model(x)
        verdict = calls[0].check()
        assert verdict.matches
        assert any("backward" in note for note in verdict.notes) == gradients


def test_some_heads_and_a_folder(tmp_path: Path, x: Any) -> None:
    model, both = own("written out"), []
    for how in ({}, {"heads": [0, 2], "to": tmp_path / "calls"}):
        with attncli.capture(model, gradients=True, **how) as calls:
            model(x).square().sum().backward()
        both.append(calls[0])
    np.testing.assert_array_equal(both[1].arrays["d_k"], both[0].arrays["d_k"][:, [0, 2]])
    assert_right(both[1])
    with np.load(next((tmp_path / "calls").iterdir())) as file:
        assert {"d_output", *NAMES} <= {*file}


CASES = product(
    ("written out", "MATH", "FLASH_ATTENTION"), ("float64", "float32", "bfloat16", "float16")
)


@pytest.mark.parametrize(("case", "is_causal", "size"), in_turn(CASES, [False, True], [1.0, 4.0]))
def test_the_backward_pass_of_pytorch_matches(
    case: tuple[str, str], is_causal: bool, size: float
) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernel, dtype = case
    draws = np.random.default_rng(5).normal(size=(4, 2, 3, 37, 16))
    q, k, v, d = (torch.tensor(draw).to(getattr(torch, dtype)) for draw in draws)
    leaves = [one.clone().requires_grad_() for one in (q * size, k, v)]
    if kernel == "written out":
        later = torch.ones(37, 37, dtype=torch.bool).triu(1) & is_causal
        scores = (leaves[0] @ leaves[1].mT / math.sqrt(16)).masked_fill(later, -math.inf)
        (torch.softmax(scores, dim=-1) @ leaves[2]).backward(d)
    else:
        with sdpa_kernel(getattr(SDPBackend, kernel)):
            attention = torch.nn.functional.scaled_dot_product_attention
            attention(*leaves, is_causal=is_causal).backward(d)
    gradients = {f"d_{of}": leaf.grad for of, leaf in zip("qkv", leaves, strict=True)}
    verdict = check(gradients, q * size, k, v, d_output=d, causal=is_causal, pairs=False)
    assert verdict.matches, verdict
