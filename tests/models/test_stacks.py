"""The calls of a model as stacks of layers, and what each head does; made by hand, without torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attncli.convention import Convention
from attncli.errors import ShapeError
from attncli.models.call import Call
from attncli.models.heads import MEASURES, entropy, measures, successors
from attncli.models.stacks import Attention, layer_trace, model_trace, places
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
# fmt: on


@pytest.mark.parametrize(("modules", "names"), PLACES)
def test_what_an_attention_is_called(modules: str, names: str) -> None:
    assert [place.name for place in places(modules.split())] == names.split()


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
    with pytest.raises(ShapeError, match="1 to 2"):
        layer_trace("m", layers(0, 1), 3)
    with pytest.raises(ShapeError, match="4, 8"):
        layer_trace("m", layers(3, 7), 3)


def test_what_attends_to_something_else_is_named() -> None:
    rest = Attention(made("h.1.attn", 5, 11).call, ["a"] * 5, ["a"] * 5, None)
    trace = model_trace("m", [*layers(0), rest], kept=())
    assert trace["entropy"].names("layer") == ("L1",)
    assert [note.split()[0] for note in trace.notes] == ["layer.2"]


# ---- what each head does


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
    own = measures(causal[None], TOKENS)
    harmonic = sum(1 / n for n in range(2, 8)) / 6  # each of n keys gets 1/n, n = 2 … 7
    bits = sum(math.log2(n) for n in range(2, 8)) / 6
    assert own["entropy"] == pytest.approx([bits])
    assert own["even"] == pytest.approx(bits)
    for name in ("first", "previous", "itself"):
        assert own[name] == pytest.approx([harmonic]), name
    assert own["induction"] == pytest.approx([(1 / 4 + 1 / 5 + 1 / 6) / 3])


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
    assert {name: np.ravel(x).tolist() for name, x in own.items() if name != "even"} == {
        "entropy": [0.5],
        "first": [0.75],
    }
    assert measures(np.ones((2, 1, 1)), [7])["first"].tolist() == [1, 1]
    # half of a row goes to a sink without a value: −2 · ¼ log₂ ¼ = 1 bit of the two keys
    assert entropy(np.array([[0.25, 0.25]])).tolist() == [1.0]
    with pytest.raises(ShapeError, match="2 tokens for 5 × 5"):
        measures(np.full((3, 5, 5), 0.2), [1, 2])


def test_every_measure_has_a_row_among_the_stages() -> None:
    for own in MEASURES:
        assert (KINDS[own.name].symbol, KINDS[own.name].axes) == (own.symbol, "layer head")
