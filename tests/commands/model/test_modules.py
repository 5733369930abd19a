"""Attention in modules of one's own, PyTorch's layers, and what the backward pass gives of it."""

import warnings
import weakref
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.commands.check.diagnose import check
from tests.commands.model.families import FAMILIES, compared, inputs, made, module_of
from tests.turns import in_turn

NEEDS = ("torch", "transformers")
torch: Any = None
Shapes = tuple[tuple[int, ...], ...]


def given(*shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
    """Random tensors, wide enough apart that the weights are not uniform."""
    torch.manual_seed(23)
    return [(2 * torch.randn(shape)).to(getattr(torch, dtype)) for shape in shapes]


def attention(text: str) -> Any:
    """A module of an attention, written as an expression of q, k and v."""
    names = {"torch": torch, "inf": torch.inf, "softmax": partial(torch.softmax, dim=-1)}
    names |= {"sdpa": torch.nn.functional.scaled_dot_product_attention, "einsum": torch.einsum}
    names |= {"keep": torch.ones(5, 5, dtype=torch.bool).tril()}
    heads = torch.arange(7.0)[:, None, None]
    names |= {"bias": heads * torch.arange(5.0), "column": heads.expand(2, 7, 5, 1)}
    return module_of(eval(f"lambda q, k, v: {text}", names))  # noqa: S307 - it is ours


NUMBERS = ("float64", "float32", "bfloat16", "float16")
PLAIN: Shapes = (3, 5, 7), (3, 11, 7), (3, 11, 2)
BATCH: Shapes = (2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13)
DEEP: Shapes = (2, 17, 3, 5, 7), (2, 17, 3, 11, 7), (2, 17, 3, 11, 13)
TOKENS_FIRST: Shapes = (2, 5, 3, 7), (2, 11, 3, 7), (2, 11, 3, 13)
HEADS: Shapes = ((2, 7, 5, 3),) * 3
CAUSAL = {"scale": "none", "causal": True}
# name: (shapes of q, k and v, the attention, what it changes of a convention, its operations)
# fmt: off
CASES: dict[str, tuple[Shapes, str, dict[str, Any], tuple[str, ...]]] = {
    "tokens": (((5, 7), (11, 7), (11, 3)), "sdpa(q, k, v)", {}, ()),
    "two batch axes": (DEEP, "sdpa(q, k, v)", {}, ()),
    "two batch axes, mask": (DEEP, "sdpa(q, k, v, torch.arange(110).view(2, 1, 1, 5, 11) % 2 == 1)", {}, ()),
    "one key for a batch": (((2, 3, 5, 7), (1, 3, 11, 7), (1, 3, 11, 13)), "sdpa(q, k, v)", {}, ()),
    "one key for all heads": (((2, 3, 5, 7), (2, 1, 11, 7), (2, 1, 11, 13)), "sdpa(q, k, v)", {}, ()),
    "by name": (PLAIN, "sdpa(value=v, query=q, key=k)", {}, ()),
    # from the first key on, as PyTorch documents it
    "causal": (PLAIN, "sdpa(q, k, v, None, 0.0, True)", {"causal": True}, ()),
    "causal, more queries": (((3, 11, 7), (3, 5, 7), (3, 5, 2)), "sdpa(q, k, v, is_causal=True)", {"causal": True}, ()),
    "mask of booleans": (PLAIN, "sdpa(q, k, v, torch.arange(55).view(5, 11) % 2 == 1)", {}, ()),
    "mask of keys": (PLAIN, "sdpa(q, k, v, torch.arange(33).view(3, 1, 11) % 2 == 1)", {}, ()),
    "mask of numbers": (PLAIN, "sdpa(q, k, v, torch.linspace(-3, 3, 55).reshape(5, 11))", {"mask_means": "add"}, ()),
    "a row without keys": (PLAIN, "sdpa(q, k, v, torch.arange(5)[:, None].expand(5, 11) != 2)", {}, ()),
    "a row of −∞": (PLAIN, "sdpa(q, k, v, torch.zeros(5, 11).index_fill(0, torch.tensor(2), -inf))", {}, ()),
    "scale": (PLAIN, "sdpa(q, k, v, scale=0.75)", {"scale": 0.75}, ()),
    "shared heads": (((2, 6, 5, 7), (2, 3, 11, 7), (2, 3, 11, 13)), "sdpa(q, k, v, enable_gqa=True)", {}, ()),
    "written out": (BATCH, "softmax(q @ k.mT * 0.75) @ v", {"scale": 0.75}, ("mul(0.75)",)),
    "written out for tokens": (((5, 7), (11, 7), (11, 13)), "(q @ k.T).softmax(-1) @ v", {"scale": "none"}, ()),
    "einsum, heads after tokens": (TOKENS_FIRST, 'einsum("bhqk,bkhd->bqhd", softmax(einsum("bqhd,bkhd->bhqk", q, k) / 4), v)', {"scale": 0.25}, ("div(4)",)),
    "two factors": (HEADS, "softmax((q @ k.mT).mul_(0.25) / 2) @ v", {"scale": 0.125}, ("mul(0.25)", "div(2)")),
    "negative, subtracted": (HEADS, "softmax(bias - q @ k.mT) @ v", {"scale": -1.0, "mask_means": "add"}, ("sub",)),
    "a bias, then a factor": (HEADS, "softmax((q @ k.mT + bias) * 0.5) @ v", {"scale": 0.5, "mask_means": "add"}, ("add", "mul(0.5)")),
    "a minus, a product, a part of the way": (HEADS, "softmax(torch.addcmul(-(q @ k.mT), bias, bias, value=0.5).lerp(bias, 0.25)) @ v", {"scale": -0.75, "mask_means": "add"}, ("neg", "addcmul", "lerp(0.25)")),
    "scattered": (HEADS, "softmax((q @ k.mT).masked_scatter(~keep, torch.full((700,), -inf))) @ v", CAUSAL, ("masked_scatter",)),
    "a lower triangle": (HEADS, "softmax((q @ k.mT).tril()) @ v", {**CAUSAL, "mask_value": 0.0}, ("tril",)),
    "twice the least": (HEADS, "softmax(torch.where(keep, q.half() @ k.half().mT, torch.finfo(torch.float16).min) + torch.finfo(torch.float16).min * (~keep).half()) @ v.half()", CAUSAL, ("where", "add")),
    "baddbmm": (HEADS, "softmax(torch.baddbmm(bias.repeat(2, 5, 1), q.flatten(0, 1), k.mT.flatten(0, 1), beta=0.5, alpha=0.25).view(2, 7, 5, 5)) @ v", {"scale": 0.25, "mask_means": "add"}, ("baddbmm",)),
    "masked_fill": (HEADS, "softmax((q @ k.mT).masked_fill(~keep, -inf)) @ v", CAUSAL, ("masked_fill(-inf)",)),
    "where": (HEADS, "softmax(torch.where(keep, q @ k.mT, torch.finfo(torch.float32).min)) @ v", CAUSAL, ("where",)),
    "where, the other way round": (HEADS, "softmax(torch.where(~keep, -inf, q @ k.mT)) @ v", CAUSAL, ("where",)),
    "by index": (HEADS, "softmax((s := q @ k.mT, s.__setitem__((..., ~keep), -inf))[0]) @ v", CAUSAL, ("index_put",)),
    "a finite number": (HEADS, "softmax((q @ k.mT).masked_fill(~keep, -3.0) * 2) @ v", {"scale": 2.0, "causal": True, "mask_value": -6.0}, ("masked_fill(-3)", "mul(2)")),
    "times a mask of 0 and 1": (HEADS, "softmax(q @ k.mT / 2 * keep.float() - 1e4 * (1 - keep.float())) @ v", {"scale": 0.5, "causal": True, "mask_value": -1e4}, ("div(2)", "mul", "sub")),
    "over queries": (HEADS, "torch.softmax(q @ k.mT, -2) @ v", {"scale": "none", "softmax_over": "queries"}, ()),
    "a cap": (HEADS, "softmax(torch.where(keep, 5 * torch.tanh(q @ k.mT / 2 / 5), -inf)) @ v", {"scale": 0.5, "softcap": 5.0, "causal": True}, ("div(2)", "div(5)", "tanh", "mul(5)", "where")),
    "sinks": (HEADS, "softmax((s := torch.cat([q @ k.mT, column], -1)) - s.max(-1, keepdim=True).values)[..., :-1] @ v", {"scale": "none"}, ("cat(-1)", "sub")),
    "a factor for each head": (HEADS, "softmax(q @ k.mT * torch.arange(1.0, 8)[:, None, None]) @ v", {"scale": "none"}, ("mul",)),
    "less the largest": (HEADS, "softmax((s := q @ k.mT) - s.amax(-1, keepdim=True)) @ v", {"scale": "none"}, ("sub",)),
    "keys times queries": (HEADS, "softmax((k @ q.mT).mT * 0.5) @ v", {"scale": 0.5}, ("mul(0.5)",)),
    "values first": (HEADS, "(v.mT @ softmax(q @ k.mT).mT).mT", {"scale": "none"}, ()),
    "a clamp that changes nothing": (HEADS, "softmax((q @ k.mT).clamp(-1e9, 1e9)) @ v", {"scale": "none"}, ()),
    "shared keys": (HEADS, "softmax(q @ k[:, :1].mT) @ v[:, :1]", {"scale": "none"}, ()),
}
REFUSED = [
    ("softmax((q @ k.mT).cumsum(-1)) @ v", "cumsum of the scores"),
    ("softmax((s := q @ k.mT, s[..., 0].zero_())[0]) @ v", "writing to a part"),
    ("softmax(q @ k.mT * torch.arange(1.0, 6)) @ v", "a factor of its own"),
    ("softmax(torch.tanh((q @ k.mT).masked_fill(~keep, -1e9))) @ v", "tanh of scores that are masked"),
    ("softmax((q @ k.mT).masked_fill(~keep, -3.0) + bias) @ v", "replaced by a number, and added"),
    ("torch.softmax(k @ q.mT, -2).mT @ v", "weights are moved before"),
    ("softmax(q @ k.mT * keep.float() + bias) @ v", "times a mask, plus numbers"),
    ("softmax(1 / (q @ k.mT)) @ v", "reciprocal of the scores"),
    ("softmax((q @ k.mT).flip(-1)) @ v", "flip of the scores"),
    ("softmax((q @ k.mT).clamp(min=-1)) @ v", "clamp of the scores"),
    ("softmax((q @ k.mT).abs()) @ v", "abs of the scores"),
    ("softmax(((s := q @ k.mT) - s.amax(-1, keepdim=True)).masked_fill(~keep, -3.0)) @ v", "replaced by a number, and added"),
]
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_it_is_recorded_and_matches(name: str) -> None:
    shapes, text, fields, operations = CASES[name]
    calls, _ = compared(attention(text), *given(*shapes))
    (call,) = calls
    assert (call.operations, calls.unseen) == (operations, ())
    assert call.convention.changes() == pytest.approx(fields)
    assert call.check().matches
    assert any(" → ".join(operations) in note for note in call.trace().notes) or not operations


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_is_not_understood_is_said(text: str, why: str) -> None:
    calls, _ = compared(attention(text), *given(*HEADS))
    (reason,) = calls.unseen
    assert (len(calls), why in reason) == (0, True), reason


def test_what_goes_in_and_comes_out_is_recorded() -> None:
    for dtype in NUMBERS:
        q, k, v = given(*PLAIN, dtype=dtype)
        (call,), output = compared(attention("sdpa(q, k, v)"), q, k, v)
        assert (call.dtype, call.check().matches) == (dtype, True)
        before = [x.double().numpy().copy() for x in (q, k, v, output)]
        q.zero_()  # what is recorded does not change with the tensors
        for name, x in zip(("q", "k", "v", "output"), before, strict=True):
            assert np.array_equal(call.arrays[name], x), name
    (call,), _ = compared(attention("sdpa(q, k, v, None, 0.3)"), *given(*PLAIN))
    verdict = call.check()
    assert (verdict.matches, any("dropout 0.3" in note for note in verdict.notes)) == (False, True)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("mode", ["fused", "with gradients", "training"])
def test_multihead_attention(masked: bool, need_weights: bool, mode: str) -> None:
    torch.manual_seed(31)
    layer = torch.nn.MultiheadAttention(21, 3, batch_first=True).train(mode == "training")
    with torch.no_grad():
        layer.in_proj_weight.mul_(4)  # so that the weights vary
    padding = torch.arange(5) >= torch.tensor([5, 3])[:, None]
    later = torch.ones(5, 5, dtype=torch.bool).triu(2)  # no row is left without any key
    hidden = {"key_padding_mask": padding, "attn_mask": later} if masked else {}
    (x,) = given((2, 5, 21))
    model = module_of(lambda x: layer(x, x, x, need_weights=need_weights, **hidden)[0], inner=layer)
    with torch.set_grad_enabled(mode != "fused"), attncli.capture(model) as calls:
        output = model(x)
    assert [(call.name, call.check().matches) for call in calls] == [("inner", True)]
    weights = calls[0].trace()["weights"].value.reshape(2, 3, 5, 5)
    _, expected = layer(x, x, x, average_attn_weights=False, **hidden)
    assert output.requires_grad == (mode != "fused")
    assert np.allclose(weights, expected.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_layers_of_pytorch_run_without_their_fused_path() -> None:
    torch.manual_seed(37)
    layer = torch.nn.TransformerEncoderLayer(26, 2, 29, batch_first=True).eval()
    model = torch.nn.Transformer(26, 2, 1, 1, 29, batch_first=True).eval()
    x, target = given((2, 5, 26), (2, 7, 26))
    with torch.no_grad():
        before = layer(x)
        with attncli.capture(layer) as calls:
            output = layer(x)
        with attncli.capture(model) as others:
            model(x, target)
    # Fused, it sums in another order: layer norms have numbers about 1, and 26 of them.
    assert torch.allclose(before, output, rtol=0, atol=26 * 2**-23)
    names = "encoder.layers.0.self_attn decoder.layers.0.self_attn decoder.layers.0.multihead_attn"
    assert [call.name for call in (*calls, *others)] == ["self_attn", *names.split()]
    assert all(call.check().matches for call in (*calls, *others))
    assert others[2].shape == (2, 2, 7, 5)


def test_a_softmax_of_ones_own_arithmetic_is_said_not_to_be_seen() -> None:
    mine = attention("(p := torch.exp(q @ k.mT)) / p.sum(-1, keepdim=True) @ v")
    other = attention("sdpa(q, k, v)")
    with pytest.warns(UserWarning, match="no attention was seen"), attncli.capture(mine) as calls:
        mine(*given(*PLAIN))
    assert not calls
    type(mine).__name__ = "MyAttention"  # what is called attention is named
    model = module_of(lambda *qkv: mine(*qkv) + other(*qkv), mine=mine, other=other)
    with pytest.warns(UserWarning, match="seen in mine"), attncli.capture(model) as calls:
        model(*given(*PLAIN))
    assert (calls.unseen, [call.name for call in calls]) == (("mine",), ["other"])


def test_what_is_no_attention() -> None:
    """The softmax of a router, and a chain of products, which does not hold its tensors in memory."""
    router, held = torch.nn.Linear(3, 2), []

    def routed(q: Any, k: Any, v: Any) -> Any:
        experts = torch.stack([v, k], -2)  # [batch, head, token, expert, d]
        return torch.einsum("bhne,bhned->bhnd", router(q).softmax(-1), experts)

    calls, _ = compared(module_of(routed, router=router), *given(*HEADS))
    assert (len(calls), calls.unseen) == (0, ())

    def chain(x: Any) -> Any:
        for _ in range(3):
            held.append(weakref.ref(x))
            x = (x @ x.mT @ x).relu()
        return x.sum()

    with warnings.catch_warnings(), torch.no_grad(), attncli.capture(model := module_of(chain)):
        warnings.simplefilter("ignore", UserWarning)
        model(torch.randn(5, 5))
        assert [ref() for ref in held] == [None, None, None]


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
    gradients = []
    for convention in (None, False, True):
        model = made(FAMILIES[title], way)
        watch: Any = (
            nullcontext([]) if convention is None else attncli.capture(model, gradients=convention)
        )
        with watch as calls:
            output = model(**inputs(FAMILIES[title]))[0]
        output.square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    with_and_without = [*zip(*gradients, strict=True)]
    assert with_and_without
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in with_and_without)
    assert len(calls) == FAMILIES[title].calls
    for call in calls:
        assert_right(call)
        verdict = call.check()
        assert verdict.matches, verdict
        assert {stage.name for stage in verdict.stages} >= {*NAMES}


OWN = (
    "sdpa(q, k, v, is_causal=True)",
    'einsum("bhqk,bhkd->bqhd", softmax(einsum("bhqd,bhkd->bhqk", q, k) / 2), v)',
    "softmax(q @ k.mT / 2) @ v",
)


def own(text: str) -> Any:
    """An attention whose queries, keys and values are one tensor."""
    inner, linear = attention(text), torch.nn.Linear(12, 12)

    def three(x: Any) -> Any:
        return inner(*[linear(x).unflatten(-1, (3, 4)).transpose(1, 2)] * 3)

    return module_of(three, linear=linear, inner=inner)


@pytest.mark.parametrize("text", OWN)
def test_the_last_backward_pass_counts_within_the_block_or_after_it(text: str) -> None:
    (x,) = given((2, 5, 12))
    with attncli.capture(model := own(text), gradients=True) as calls:
        loss = (model(x) * torch.randn(4)).sum()
        loss.backward(retain_graph=True)
        assert_right(calls[0])
    first = calls[0].arrays["d_v"]
    (3 * loss).backward()
    np.testing.assert_allclose(calls[0].arrays["d_v"], 3 * first, rtol=1e-6)
    assert_right(calls[0])


def test_gradients_of_a_layer_of_pytorch_under_autocast_or_of_none() -> None:
    layer, (x,) = torch.nn.MultiheadAttention(12, 3, batch_first=True), given((2, 5, 12))
    with attncli.capture(layer, gradients=True) as calls:
        layer(x, x, x)[0].square().sum().backward()
    assert_right(calls[0])
    model = own(OWN[0])
    with attncli.capture(model, gradients=True) as calls, torch.autocast("cpu", torch.bfloat16):
        output = model(x / 2)
    output.float().square().sum().backward()
    assert_right(calls[0], within=0.03)
    for gradients in (True, False):  # without a backward pass there are none, and check says so
        with torch.no_grad(), attncli.capture(model, gradients=gradients) as calls:
            model(x)
        verdict = calls[0].check()
        assert not {*calls[0].arrays} & {"d_output", *NAMES}
        assert verdict.matches
        assert any("backward" in note for note in verdict.notes) == gradients


def test_gradients_of_some_heads_in_a_folder(tmp_path: Path) -> None:
    (x,), model, both = given((2, 5, 12)), own(OWN[2]), []
    hows: tuple[dict[str, Any], ...] = ({}, {"heads": [0, 2], "to": tmp_path / "calls"})
    for convention in hows:
        with attncli.capture(model, gradients=True, **convention) as calls:
            model(x).square().sum().backward()
        both.append(calls[0])
    np.testing.assert_array_equal(both[1].arrays["d_k"], both[0].arrays["d_k"][:, [0, 2]])
    assert_right(both[1])
    with np.load(next((tmp_path / "calls").iterdir())) as file:
        assert {"d_output", *NAMES} <= {*file}


KERNELS = product(("written out", "MATH", "FLASH_ATTENTION"), NUMBERS)


@pytest.mark.parametrize(("case", "is_causal", "size"), in_turn(KERNELS, [False, True], [1.0, 4.0]))
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
        scores = (leaves[0] @ leaves[1].mT / 4).masked_fill(later, -torch.inf)
        (scores.softmax(-1) @ leaves[2]).backward(d)
    else:
        with sdpa_kernel(getattr(SDPBackend, kernel)):
            attention(f"sdpa(q, k, v, is_causal={is_causal})")(*leaves).backward(d)
    gradients = {f"d_{of}": leaf.grad for of, leaf in zip("qkv", leaves, strict=True)}
    verdict = check(gradients, q * size, k, v, d_output=d, causal=is_causal, pairs=False)
    assert verdict.matches, verdict
