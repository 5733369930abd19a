"""The calls of a model as stacks of layers, made by hand: no torch."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.attention.attend import attend
from attncli.convention import Convention
from attncli.errors import ShapeError
from attncli.models.call import Call
from attncli.models.stacks import Attention, layer_trace, model_trace, places

NAMES = {
    "one stack": (["h.0.attn", "h.1.attn"], ["layer.1", "layer.2"]),
    "no number": (["attn"], ["layer.1"]),
    "layers without attention": (["layers.3.attn", "layers.7.attn"], ["layer.4", "layer.8"]),
    "shared layers": (["groups.0.layers.0.attn"] * 3, ["layer.1", "layer.2", "layer.3"]),
    "either of two kinds": (["layers.0.attn", "layers.1.cross"], ["layer.1", "layer.2"]),
    "encoder and decoder": (
        [
            "encoder.layers.0.self_attn",
            "decoder.layers.0.self_attn",
            "decoder.layers.0.encoder_attn",
        ],
        ["encoder.1", "decoder.1.self_attn", "decoder.1.encoder_attn"],
    ),
    "numbered within a layer": (
        [
            "encoder.block.0.layer.0.SelfAttention",
            "decoder.block.0.layer.0.SelfAttention",
            "decoder.block.0.layer.1.EncDecAttention",
        ],
        ["encoder.1", "decoder.1.self_attention", "decoder.1.enc_dec_attention"],
    ),
    "one within another": (["layers.0.attn", "mtp.layers.0.attn"], ["layer.1", "mtp.1"]),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_an_attention_is_called(name: str) -> None:
    modules, expected = NAMES[name]
    assert [place.name for place in places(modules)] == expected


def made(name: str, n_q: int, n_k: int, heads: int = 2, *, tokens: bool = True) -> Attention:
    rng = np.random.default_rng(len(name) + n_q)
    arrays = {"q": rng.normal(size=(1, heads, n_q, 3))}
    arrays |= {x: rng.normal(size=(1, heads, n_k, 3)) for x in "kv"}
    queries, keys = ([f"{x}{i}" for i in range(n)] for x, n in (("a", n_q), ("b", n_k)))
    call = Call(name, arrays, Convention())
    return Attention(call, queries, keys, [*range(n_q)] if tokens else None)


def test_a_summary_of_layers_with_other_numbers_of_heads() -> None:
    first, second = made("h.0.attn", 5, 5, heads=2), made("h.1.attn", 5, 5, heads=3)
    trace = model_trace("m", [first, second], kept=())
    assert [*trace] == ["entropy", "first", "previous", "itself", "even"]
    table = trace["previous"].value
    assert table.shape == (2, 3)
    assert np.isnan(table[0, 2])
    weights = attend(*(second.call.arrays[x][0] for x in "qkv"))["weights"].value
    by_hand = sum(weights[:, i, i - 1] for i in range(1, 5)) / 4
    assert table[1] == pytest.approx(by_hand)
    assert trace["previous"].names("layer") == ("L1", "L2")


def test_the_layers_that_are_kept() -> None:
    trace = model_trace("m", [made("h.0.attn", 5, 5), made("h.1.attn", 5, 5)], kept={"weights"})
    assert [name for name in trace if "." in name] == ["layer.1.weights", "layer.2.weights"]
    whole = model_trace("m", [made("h.0.attn", 5, 5)])
    assert {"layer.1.q", "layer.1.scores", "layer.1.output"} <= {*whole}
    assert whole["layer.1.weights"].names("query") == ("a0", "a1", "a2", "a3", "a4")


def stacks() -> list[Attention]:
    return [
        made("encoder.layers.0.self_attn", 5, 5),
        made("decoder.layers.0.self_attn", 3, 3),
        made("decoder.layers.0.encoder_attn", 3, 5, tokens=False),
    ]


def test_two_stacks() -> None:
    trace = model_trace("m", stacks(), kept={"weights"})
    assert {"encoder.previous", "encoder.1.weights", "decoder.self_attn.previous"} <= {*trace}
    assert {"decoder.encoder_attn.first", "decoder.1.encoder_attn.weights"} <= {*trace}
    assert "decoder.encoder_attn.previous" not in trace


def test_one_layer_of_one_stack_is_called_as_any_attention() -> None:
    trace = layer_trace("m", [made("h.0.attn", 5, 5), made("h.1.attn", 5, 5)], 2, ["said"])
    assert {"q", "scores", "weights", "output"} <= {*trace}
    assert (trace.title, trace.notes) == ("Attention of layer 2: h.1.attn", ("said",))


def test_one_layer_of_two_stacks() -> None:
    trace = layer_trace("m", stacks(), 1)
    wanted = {"encoder.weights", "decoder.self_attn.weights", "decoder.encoder_attn.weights"}
    assert wanted <= {*trace}


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(ShapeError, match="there is no layer 3; choose from 1 to 2"):
        layer_trace("m", [made("h.0.attn", 5, 5), made("h.1.attn", 5, 5)], 3)
    with pytest.raises(ShapeError, match="choose from 4, 8"):
        layer_trace("m", [made("h.3.attn", 5, 5), made("h.7.attn", 5, 5)], 3)


def test_what_attends_to_something_else_is_named() -> None:
    rest = Attention(made("h.1.attn", 5, 11).call, ["a"] * 5, ["a"] * 5, None)
    trace = model_trace("m", [made("h.0.attn", 5, 5), rest], kept=())
    assert trace["entropy"].names("layer") == ("L1",)
    assert trace.notes == ("layer.2 attends to something else than the tokens: not measured",)
