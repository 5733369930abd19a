"""Attention in modules of one's own: by scaled_dot_product_attention, written out, PyTorch's layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attncli

torch = pytest.importorskip("torch", reason="needs the extra models")
INFINITE = float("-inf")


def given(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    """Random tensors, wide enough apart that the weights are not uniform."""
    torch.manual_seed(23)
    return [(2 * torch.randn(shape)).to(getattr(torch, dtype)) for shape in shapes]


def module_of(function: Callable[..., Any]) -> Any:
    """A module that computes a function."""

    class Module(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Module()


def captured(model: Any, *args: Any) -> tuple[Any, Any]:
    """The calls, and the output; which is the same without capture."""
    torch.manual_seed(29)
    before = model(*args)
    torch.manual_seed(29)
    with attncli.capture(model) as calls:
        output = model(*args)
    assert torch.equal(before, output)
    assert calls.unseen == ()
    return calls, output


def sdpa(*args: Any, **kwargs: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*args, **kwargs)


def odd(*shape: int) -> Any:
    """A mask that allows every key whose place in it is odd."""
    return torch.arange(int(np.prod(shape))).reshape(shape) % 2 == 1


PLAIN = ((3, 5, 7), (3, 11, 7), (3, 11, 2))
CASES: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Any], dict[str, Any]]] = {
    "tokens": (((5, 7), (11, 7), (11, 3)), sdpa, {}),
    "heads": (PLAIN, sdpa, {}),
    "batch": (((2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13)), sdpa, {}),
    "two batch axes": (((2, 17, 3, 5, 7), (2, 17, 3, 11, 7), (2, 17, 3, 11, 13)), sdpa, {}),
    "two batch axes, mask": (
        ((2, 17, 3, 5, 7), (2, 17, 3, 11, 7), (2, 17, 3, 11, 13)),
        lambda q, k, v: sdpa(q, k, v, odd(2, 1, 1, 5, 11)),
        {},
    ),
    "one key for a batch": (((2, 3, 5, 7), (1, 3, 11, 7), (1, 3, 11, 13)), sdpa, {}),
    "one key for all heads": (((2, 3, 5, 7), (2, 1, 11, 7), (2, 1, 11, 13)), sdpa, {}),
    "by name": (PLAIN, lambda q, k, v: sdpa(value=v, query=q, key=k), {}),
    "causal, fewer queries": (
        PLAIN,
        lambda q, k, v: sdpa(q, k, v, None, 0.0, True),
        {"causal": True},  # from the first key on, as PyTorch documents it
    ),
    "causal, more queries": (
        ((3, 11, 7), (3, 5, 7), (3, 5, 2)),
        lambda q, k, v: sdpa(q, k, v, is_causal=True),
        {"causal": True},
    ),
    "mask of booleans": (PLAIN, lambda q, k, v: sdpa(q, k, v, odd(5, 11)), {}),
    "mask of keys": (PLAIN, lambda q, k, v: sdpa(q, k, v, odd(3, 1, 11)), {}),
    "mask of numbers": (
        PLAIN,
        lambda q, k, v: sdpa(q, k, v, torch.linspace(-3, 3, 55).reshape(5, 11)),
        {"mask_means": "add"},
    ),
    "a row without keys": (
        PLAIN,
        lambda q, k, v: sdpa(q, k, v, torch.arange(5)[:, None].expand(5, 11) != 2),
        {},
    ),
    "a row of −∞": (
        PLAIN,
        lambda q, k, v: sdpa(q, k, v, torch.zeros(5, 11).index_fill(0, torch.tensor(2), INFINITE)),
        {},
    ),
    "scale": (PLAIN, lambda q, k, v: sdpa(q, k, v, scale=0.75), {"scale": 0.75}),
    "shared heads": (
        ((2, 6, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13)),
        lambda q, k, v: sdpa(q, k, v, enable_gqa=True),
        {},
    ),
    "written out": (
        ((2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13)),
        lambda q, k, v: torch.softmax(q @ k.mT * 0.75, -1) @ v,
        {"scale": 0.75},
    ),
    "written out for tokens": (
        ((5, 7), (11, 7), (11, 13)),
        lambda q, k, v: (q @ k.T).softmax(-1) @ v,
        {"scale": "none"},
    ),
    "einsum, heads after tokens": (
        ((2, 5, 3, 7), (2, 11, 3, 7), (2, 11, 3, 13)),
        lambda q, k, v: torch.einsum(
            "bhqk,bkhd->bqhd", (torch.einsum("bqhd,bkhd->bhqk", q, k) / 4).softmax(-1), v
        ),
        {"scale": 0.25},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_recorded_and_matches(name: str) -> None:
    shapes, function, fields = CASES[name]
    calls, _ = captured(module_of(function), *given(*shapes))
    (call,) = calls
    assert call.convention.changes() == fields
    verdict = call.check()
    assert verdict.matches, str(verdict)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_number_types(dtype: str) -> None:
    calls, output = captured(module_of(sdpa), *given(*PLAIN, dtype=dtype))
    (call,) = calls
    assert call.dtype == dtype
    assert np.array_equal(call.arrays["output"], output.double().numpy())
    assert call.check().matches


def test_what_went_in_is_what_is_recorded() -> None:
    q, k, v = given(*PLAIN)
    calls, output = captured(module_of(sdpa), q, k, v)
    for name, x in {"q": q, "k": k, "v": v, "output": output}.items():
        assert np.array_equal(calls[0].arrays[name], x.numpy())


def test_what_is_recorded_does_not_change_with_the_tensors() -> None:
    q, k, v = given(*PLAIN)
    before = q.numpy().copy()
    with attncli.capture(module := module_of(sdpa)) as calls:
        module(q, k, v)
        q.zero_()
    assert np.array_equal(calls[0].arrays["q"], before)


def test_dropout_is_noted_and_no_match() -> None:
    model = module_of(lambda q, k, v: sdpa(q, k, v, None, 0.3))
    calls, _ = captured(model, *given((3, 5, 7), (3, 11, 7), (3, 11, 13)))
    verdict = calls[0].check()
    assert not verdict.matches
    assert "dropout 0.3 was on" in verdict.notes


# ---- PyTorch's layers


def hidden_keys() -> dict[str, Any]:
    """Padding, and the keys after the next; no row is left without any."""
    padding = torch.arange(5) >= torch.tensor([5, 3])[:, None]
    return {"key_padding_mask": padding, "attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(2)}


def attending(need_weights: bool, masked: bool) -> Any:
    """nn.MultiheadAttention of 3 heads of 7 to itself, with weights that vary."""
    attention = torch.nn.MultiheadAttention(21, 3, batch_first=True)
    with torch.no_grad():
        attention.in_proj_weight.mul_(4)

    class Module(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Any) -> Any:
            hidden = hidden_keys() if masked else {}
            return self.attention(x, x, x, need_weights=need_weights, **hidden)[0]

    return Module()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("gradient", [False, True])
def test_multihead_attention(
    need_weights: bool, masked: bool, training: bool, gradient: bool
) -> None:
    torch.manual_seed(31)
    model = attending(need_weights, masked).train(training)
    (x,) = given((2, 5, 21))
    with torch.set_grad_enabled(gradient), attncli.capture(model) as calls:
        output = model(x)
    (call,) = calls
    assert call.name == "attention"
    assert call.check().matches
    weights = call.trace()["weights"].value.reshape(2, 3, 5, 5)
    hidden = hidden_keys() if masked else {}
    _, expected = model.attention(x, x, x, average_attn_weights=False, **hidden)
    assert output.requires_grad == gradient
    assert np.allclose(weights, expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_an_encoder_layer_in_evaluation_runs_without_its_fused_path() -> None:
    torch.manual_seed(37)
    layer = torch.nn.TransformerEncoderLayer(26, 2, 29, batch_first=True).eval()
    (x,) = given((2, 5, 26))
    with torch.no_grad():
        before = layer(x)
        with attncli.capture(layer) as calls:
            output = layer(x)
    (call,) = calls
    assert call.name == "self_attn"
    assert call.check().matches
    # Fused, it sums in another order: layer norms have numbers about 1, and 26 of them.
    assert torch.allclose(before, output, rtol=0, atol=26 * 2**-23)


def test_an_encoder_and_decoder() -> None:
    torch.manual_seed(41)
    model = torch.nn.Transformer(26, 2, 1, 1, 29, batch_first=True).eval()
    with torch.no_grad(), attncli.capture(model) as calls:
        model(*given((2, 5, 26), (2, 7, 26)))
    names = ["encoder.layers.0.self_attn", "decoder.layers.0.self_attn"]
    assert [call.name for call in calls] == [*names, "decoder.layers.0.multihead_attn"]
    assert calls[2].shape == (2, 2, 7, 5)
    assert all(call.check().matches for call in calls)


# ---- what is not seen


def test_a_softmax_of_ones_own_arithmetic_is_said_not_to_be_seen() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        powers = torch.exp(q @ k.mT)
        return powers / powers.sum(-1, keepdim=True) @ v

    model = module_of(attention)
    with pytest.warns(UserWarning, match="no attention was seen"), attncli.capture(model) as calls:
        model(*given(*PLAIN))
    assert not calls


def test_one_that_is_called_attention_is_named() -> None:
    class MyAttention(torch.nn.Module):  # type: ignore[name-defined, misc]
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            powers = torch.exp(q @ k.mT)
            return powers / powers.sum(-1, keepdim=True) @ v

    class Both(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.mine, self.other = MyAttention(), module_of(sdpa)

        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return self.mine(q, k, v) + self.other(q, k, v)

    model, inputs = Both(), given(*PLAIN)
    with pytest.warns(UserWarning, match="seen in mine"), attncli.capture(model) as calls:
        model(*inputs)
    assert calls.unseen == ("mine",)
    assert [call.name for call in calls] == ["other"]
