"""Calls of a model as stacks of layers, what each head does, what tokens are called; without torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from attncli.convention import Convention
from attncli.errors import ShapeError
from attncli.models.call import Call
from attncli.models.heads import MEASURES, entropy, measures, successors
from attncli.models.stacks import Attention, layer_trace, model_trace, places
from attncli.models.tokens import Tokens, labels_of
from attncli.stages import KINDS
from tests import plain

# fmt: off
PLACES = [
    ("h.0.attn h.1.attn", "layer.1 layer.2"),
    ("attn", "layer.1"),
    ("layers.3.attn layers.7.attn", "layer.4 layer.8"),  # layers without attention
    ("groups.0.layers.0.attn groups.0.layers.0.attn", "layer.1 layer.2"),  # shared layers
    ("layers.0.attn layers.1.cross", "layer.1 layer.2"),  # either of two kinds
    ("encoder.layers.0.self_attn decoder.layers.0.self_attn decoder.layers.0.encoder_attn",
     "encoder.1 decoder.1.self_attn decoder.1.encoder_attn"),
    ("encoder.block.0.layer.0.SelfAttention decoder.block.0.layer.0.SelfAttention decoder.block.0.layer.1.EncDecAttention",
     "encoder.1 decoder.1.self_attention decoder.1.enc_dec_attention"),  # numbered within a layer
    ("layers.0.attn mtp.layers.0.attn", "layer.1 mtp.1"),  # one within another
]
PARTS: list[tuple[str, str, list[tuple[int, int]], tuple[str, ...]]] = [
    ("a bank", "? ?", [(0, 1), (1, 6)], ("a", "bank")),
    ("a b", "? ? ?", [(0, 1), (1, 2), (2, 3)], ("a", " ", "b")),
    ("שa", "? ? ?", [(0, 1), (0, 1), (1, 2)], ("ש 1/2", "ש 2/2", "a")),  # bytes of one letter
    ("🙂🙂", "? ? ? ?", [(0, 1), (0, 1), (1, 2), (1, 2)], ("🙂 1/2", "🙂 2/2") * 2),
    ("a 🙂", "? ? ?", [(0, 1), (1, 3), (2, 3)], ("a", "🙂 1/2", "🙂 2/2")),
    # a space before the first word is a token of its own
    ("river", "▁ ri ver", [(0, 1), (0, 2), (2, 5)], ("▁", "ri", "ver")),
    ("a b", "▁a ▁ b", [(0, 1), (1, 2), (2, 3)], ("a", " ", "b")),
    ("🙂", "▁ <0xF0> <0x9F>", [(0, 1), (0, 1), (0, 1)], ("▁", "🙂 1/2", "🙂 2/2")),
]
# fmt: on


def test_what_an_attention_is_called() -> None:
    for modules, names in PLACES:
        assert [place.name for place in places(modules.split())] == names.split()


def test_what_tokens_are_called() -> None:
    for sentence, names, spans, labels in PARTS:
        assert labels_of(sentence, names.split(), spans, [False] * len(spans)) == labels
    special = labels_of("hi", ["[CLS]", "hi"], [(0, 0), (0, 2)], [True, False])
    assert special == ("[CLS]", "hi")  # keep their names


def test_a_decoder_without_a_start() -> None:
    class NoTokenizer:
        eos_token_id = sep_token_id = None

    own: Any = NoTokenizer()
    assert Tokens(("a",), {"input_ids": [5]}).shifted(own, None).ids == [5]


def made(name: str, n_q: int, n_k: int, heads: int = 2, *, tokens: bool = True) -> Attention:
    rng = np.random.default_rng(len(name) + n_q)
    arrays = {"q": rng.normal(size=(1, heads, n_q, 3))}
    arrays |= {x: rng.normal(size=(1, heads, n_k, 3)) for x in "kv"}
    queries, keys = ([f"{x}{i}" for i in range(n)] for x, n in (("a", n_q), ("b", n_k)))
    call = Call(name, arrays, Convention())
    return Attention(call, queries, keys, [*range(n_q)] if tokens else None)


def layers(*numbers: int) -> list[Attention]:
    return [made(f"h.{n}.attn", 5, 5) for n in numbers]


def stacks() -> list[Attention]:
    cross = made("decoder.layers.0.encoder_attn", 3, 5, tokens=False)
    own = made("encoder.layers.0.self_attn", 5, 5), made("decoder.layers.0.self_attn", 3, 3)
    return [*own, cross]


def test_a_summary_of_layers_with_other_numbers_of_heads() -> None:
    second = made("h.1.attn", 5, 5, heads=3)
    trace = model_trace("m", [*layers(0), second], kept=())
    assert [*trace] == ["entropy", "first", "previous", "itself", "even"]
    table = trace["previous"].value
    assert (table.shape, np.isnan(table[0, 2])) == ((2, 3), True)
    weights = plain.attention({x: second.call.arrays[x][0] for x in "qkv"}, {})["weights"]
    assert table[1] == pytest.approx(sum(weights[:, i, i - 1] for i in range(1, 5)) / 4)
    assert trace["previous"].names("layer") == ("L1", "L2")


def test_the_layers_that_are_kept() -> None:
    trace = model_trace("m", layers(0, 1), kept={"weights"})
    assert [name for name in trace if "." in name] == ["layer.1.weights", "layer.2.weights"]
    whole = model_trace("m", layers(0, 1))
    assert {"layer.1.q", "layer.1.scores", "layer.1.output"} <= {*whole}
    assert whole["layer.1.weights"].names("query") == ("a0", "a1", "a2", "a3", "a4")
    both = model_trace("m", stacks(), kept={"weights"})
    assert {"encoder.previous", "encoder.1.weights", "decoder.self_attn.previous"} <= {*both}
    assert {"decoder.encoder_attn.first", "decoder.1.encoder_attn.weights"} <= {*both}
    assert "decoder.encoder_attn.previous" not in both


def test_one_layer() -> None:
    trace = layer_trace("m", layers(0, 1), 2, ["said"])
    assert {"q", "scores", "weights", "output"} <= {*trace}  # called as any attention
    assert ("h.1.attn" in trace.title, trace.notes) == (True, ("said",))
    wanted = {"encoder.weights", "decoder.self_attn.weights", "decoder.encoder_attn.weights"}
    assert wanted <= {*layer_trace("m", stacks(), 1)}
    for numbers, there in (((0, 1), "1 to 2"), ((3, 7), "4, 8")):
        with pytest.raises(ShapeError, match=there):
            layer_trace("m", layers(*numbers), 3)


def test_what_attends_to_something_else_is_named() -> None:
    rest = Attention(made("h.1.attn", 5, 11).call, ["a"] * 5, ["a"] * 5, None)
    trace = model_trace("m", [*layers(0), rest], kept=())
    assert trace["entropy"].names("layer") == ("L1",)
    assert [note.split()[0] for note in trace.notes] == ["layer.2"]


#         1  2  3  4  5  6  7      tokens 1 2 3 are said again as 4 5 6
TOKENS = [3, 5, 8, 3, 5, 8, 9]
SINK, BEFORE, ITSELF = [0] * 7, [0, 0, 1, 2, 3, 4, 5], [*range(7)]
INDUCTION = [0, 0, 0, 1, 2, 3, 0]  # 4 sees what followed 1, and so on; the rest sees token 1


def test_heads_that_do_one_thing() -> None:
    """Each query of a head sees one key alone."""
    heads = np.eye(7)[np.array([SINK, BEFORE, ITSELF, INDUCTION])]
    assert {name: x.tolist() for name, x in measures(heads, TOKENS).items()} == {
        "even": 0.0,
        "entropy": [0, 0, 0, 0],
        # of 6 queries: the one before token 2 is token 1 too; induction sees it in 2, 3 and 7
        "first": [1, pytest.approx(1 / 6), 0, pytest.approx(3 / 6)],
        "previous": [pytest.approx(1 / 6), 1, 0, pytest.approx(1 / 6)],
        "itself": [0, 0, 1, 0],
        "induction": [0, 0, 0, 1],  # of the queries 4, 5 and 6
    }


def test_equal_weights_of_a_causal_head() -> None:
    causal = np.tri(7) / np.arange(1, 8)[:, None]
    harmonic = sum(1 / n for n in range(2, 8)) / 6  # each of n keys gets 1/n, n = 2 … 7
    bits = sum(math.log2(n) for n in range(2, 8)) / 6
    wanted = dict.fromkeys(("first", "previous", "itself"), harmonic)
    wanted |= {"entropy": bits, "even": bits, "induction": (1 / 4 + 1 / 5 + 1 / 6) / 3}
    assert {n: x.item() for n, x in measures(causal[None], TOKENS).items()} == pytest.approx(wanted)


def test_what_followed_every_earlier_occurrence_counts() -> None:
    # the token of query 5 was 1 and 3; that of query 6 was the one just before, and 1 and 3
    assert successors([2, 4, 2, 6, 2, 2]) == [(2, 1), (4, 1), (4, 3), (5, 1), (5, 3)]
    weights = np.random.default_rng(3).dirichlet(np.ones(6), size=(2, 6))
    by_hand = weights[:, 2, 1] + weights[:, 4, 1] + weights[:, 4, 3]
    by_hand = (by_hand + weights[:, 5, 1] + weights[:, 5, 3]) / 3
    assert measures(weights, [2, 4, 2, 6, 2, 2])["induction"] == pytest.approx(by_hand)
    for tokens in ([1, 2, 3, 4, 5], [1, 1, 2, 3, 4]):  # no repetition; what followed it is itself
        assert "induction" not in measures(np.full((3, 5, 5), 0.2), tokens)


def test_two_sentences_one_token_and_a_sink() -> None:
    own = measures(np.array([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]]))  # queries and keys of two
    assert ({*own}, own["entropy"], own["first"]) == ({"even", "entropy", "first"}, [0.5], [0.75])
    assert measures(np.ones((2, 1, 1)), [7])["first"].tolist() == [1, 1]
    # half of a row goes to a sink without a value: −2 · ¼ log₂ ¼ = 1 bit of the two keys
    assert entropy(np.array([[0.25, 0.25]])).tolist() == [1.0]
    with pytest.raises(ShapeError, match="2 tokens"):
        measures(np.full((3, 5, 5), 0.2), [1, 2])
    for measure in MEASURES:
        assert (KINDS[measure.name].symbol, KINDS[measure.name].axes) == (
            measure.symbol,
            "layer head",
        )
