"""Calls of a model as numbers and as stacks, what each head does, what tokens are called; no torch."""

import json
import math
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.model.call import Call, Calls, layer_of
from attncli.commands.model.heads import MEASURES, SPECS, entropy, measures, successors
from attncli.commands.model.inferred_convention import convention_of_mask, fields_of_flags
from attncli.commands.model.stacks import Attention, layer_trace, model_trace, places
from attncli.commands.model.tokens import Tokens, labels_of
from attncli.convention import Convention
from attncli.errors import OutputError, ShapeError
from tests import calls as cli
from tests import plain

run = cli.call  # the command line in a folder of its own
SIZES = {"q": (6, 5, 11), "k": (3, 7, 11), "v": (3, 7, 13)}
BOTTOM = {"causal_align": "bottom-right"}
HOW: dict[str, Any] = {"causal": True, **BOTTOM, "scale": 0.25}


def a_call(name: str = "model.layers.3.self_attn", seed: int = 0, **more: Any) -> Call:
    """A right call, or one as scaled by `scale`; its convention says what is meant."""
    rng = np.random.default_rng(seed)
    arrays = {n: rng.normal(size=size).astype(np.float32) for n, size in SIZES.items()}
    stages = plain.attention(arrays, HOW | {"scale": more.pop("scale", 0.25)})
    arrays |= {name: stages[name].astype(np.float32) for name in ("weights", "output")}
    return Call(name, {n: x[None] for n, x in arrays.items()}, Convention(**HOW), **more)


def test_a_call_gives_a_trace_and_a_verdict() -> None:
    call = a_call()
    trace = call.trace(tokens=[*"abcdefg"])
    assert trace["weights"].axes == ("head", "query", "key")
    assert trace["weights"].names("query") == ("c", "d", "e", "f", "g")
    np.testing.assert_allclose(trace["output"].value, call.arrays["output"][0], atol=1e-6)
    assert "model.layers.3.self_attn" in trace.title
    assert (call.check().matches, a_call(scale=2.0).check().matches) == (True, False)
    for tokens in ("ab", "abcdefgh"):
        with pytest.raises(ShapeError, match=f"{len(tokens)} tokens for 7 keys"):
            call.trace(tokens=[*tokens])
    two = Call("", {n: np.concatenate([x, x]) for n, x in call.arrays.items()}, call.convention)
    assert two.trace()["weights"].axes == ("batch", "head", "query", "key")
    assert (two.check().matches, two.key) == (True, "attention")
    assert (call.layer, a_call(step=2).key) == (3, "steps.2.model.layers.3.self_attn")
    assert layer_of("encoder.block.11.layer.0.SelfAttention") == 11
    assert "6 × 5 × 7" in repr(a_call(seen="softmax"))


@pytest.mark.parametrize("dump", ["dump.npz", "dump.safetensors"])
def test_what_is_saved_is_checked(dump: str, run: cli.Call) -> None:
    calls = Calls([a_call(f"model.layers.{n}.self_attn", seed=n) for n in (2, 11)])
    calls.append(a_call("model.layers.13.self_attn", seed=13, scale=1.0))
    calls.save(dump)
    one = run("check", "--q", f"{dump}::layers.2")
    assert (one.code, one.out[:10]) == (0, "it matches")
    assert "--causal, --causal-align bottom-right, --scale 0.25" in one.err
    assert run("check", f"{dump}::model.layers.13.self_attn").code == 1
    weights = run("compute", f"{dump}::layers.2", "--stage", "weights", "--format", "json").json
    ours, recorded = weights["steps"][-1]["value"], calls[0].arrays["weights"][0]
    np.testing.assert_allclose(ours, recorded, atol=1e-7)
    assert run("diff", f"{dump}::layers.2", f"{dump}::layers.11").code == 1
    assert run("diff", dump, dump).code == 0
    for source, words in (("", "3 attentions"), ("::layers", "3 attentions"), ("::layers.7", "no")):
        several = run("compute", dump + source)
        assert (several.code, words in several.err, dump in several.err) == (2, True, True)
    every = run("check", dump, "--format", "json")
    matches = {name: one["matches"] for name, one in every.json["attentions"].items()}
    assert matches == dict(zip((call.key for call in calls), (True, True, False), strict=True))
    assert (every.code, every.json["matches"]) == (1, False)
    first, *lines = run("check", dump).out.splitlines()
    (wrong,) = (line for line in lines[:3] if "differs" in line)
    is_named = ("layers.13" in wrong, "scale left out" in wrong)
    assert (first, is_named) == ("2 of 3 match", (True, True))
    with pytest.raises(OutputError, match="force"):
        calls.save(dump)
    calls.save(dump, force=True)


def test_every_attention_of_a_part_is_checked(run: cli.Call) -> None:
    Calls([a_call(f"h.{n}.attn", seed=n) for n in (2, 3)]).save("dump.npz")
    assert run("check", "dump.npz").err.count("dump.npz sets") == 1  # as all of them set it
    with zipfile.ZipFile("both.zip", "w") as archive:
        archive.write("dump.npz")
        archive.write("dump.npz", "other.npz")
    run("explain", "the bank", "--block", "encoder", "--layers", "2", "-o", "e.json")
    parts = ["dump.npz::h", "both.zip::other.npz", "both.zip::dump.npz::h", "e.json::encoder"]
    for source in parts:
        both = run("check", source)
        assert (both.code, both.out.splitlines()[0]) == (0, "2 of 2 match"), source
    several = run("compute", "e.json::encoder")
    assert (several.code, "encoder.1.attention, encoder.2.attention" in several.err) == (2, True)
    qkv = {"q": [[1, 0], [0, 1]], "k": [[1, 1], [0, 1]], "v": [[10, 0], [0, 10]]}
    layers = [{**qkv, "causal": True}, {**qkv, "scale": 1.0, "tokens": ["a", "b"]}]
    Path("x.json").write_text(json.dumps({"layers": layers}))
    out = run("compute", "x.json::layers.1", "--stage", "output", "--precision", "4").out
    assert "  a  7.3106  2.6894" in out  # q1·k1 = 1, q1·k2 = 0: e / (e + 1) = 0.73106
    with np.load("dump.npz") as file:
        np.savez("odd.npz", **{**file, "h.3.attn.convention": np.array("{causal")})
    odd = run("check", "odd.npz")
    assert (odd.code, "h.3.attn" in odd.err.splitlines()[-1]) == (2, True)


def test_a_folder_takes_calls_as_they_come(tmp_path: Path, run: cli.Call) -> None:
    calls, first = Calls(folder=str(tmp_path)), a_call()
    calls.append(first)
    calls.append(a_call(step=1, seed=3))
    keys = ["model.layers.3.self_attn", "steps.1.model.layers.3.self_attn"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{key}.npz" for key in keys]
    assert (len(calls), calls[0].arrays.keys()) == (2, first.arrays.keys())
    np.testing.assert_array_equal(calls[0].arrays["output"][0], first.arrays["output"][0])
    assert [(call.step, call.check().status) for call in calls[:]] == [(0, "match"), (1, "match")]
    calls.save("all.npz")
    for source in (f"{keys[0]}.npz", f"all.npz::{keys[1]}"):
        assert run("check", source, "--quiet").code == 0
    for none, name, words in ((Calls(), "no.npz", "no calls"), (Calls([first]), "x.txt", "npz")):
        with pytest.raises(OutputError, match=words):
            none.save(name)


def test_what_masks_and_flags_ask_for() -> None:
    least = float(np.finfo(np.float32).min)
    window = {"window": (2, -1)}
    for n_k, left, fields in ((3, None, {}), (7, None, BOTTOM), (7, 2, BOTTOM | window)):
        hidden = 0 if left is None else np.tri(3, n_k, n_k - 4 - left)
        allowed = np.tri(3, n_k, n_k - 3) - hidden > 0  # the last query is at the last key
        for mask in (allowed, np.where(allowed, 0, least), np.where(allowed, 0, -np.inf)):
            asked = convention_of_mask(mask[None, None], (2, 3, 3, n_k), left, "zero")
            assert (asked.mask, asked.fields) == (None, {"causal": True, **fields})
    padded = np.tri(5) * np.arange(5) > 0
    biased = np.where(padded, 0.5, -np.inf)
    others: list[tuple[Array, str, Array | None, dict[str, str]]] = [
        (padded, "zero", padded, {}),
        (np.where(padded, 0, least), "nan", padded, {"empty_rows": "uniform"}),
        (np.where(padded, 0, -np.inf), "nan", padded, {"empty_rows": "nan"}),
        (biased, "zero", biased, {"mask_means": "add"}),
        (np.zeros((5, 5)), "nan", None, {}),
        (np.ones((5, 5), bool), "nan", None, {}),
    ]
    for mask, empty, wanted, changes in others:
        asked = convention_of_mask(mask, (1, 3, 5, 5), None, empty)
        assert asked.fields == changes
        assert np.array_equal(np.asarray(asked.mask), np.asarray(wanted))  # None is equal to None
    # flags put the last query at the last key
    assert fields_of_flags(False, 3, 5, 5) == fields_of_flags(True, None, 1, 7) == {}
    assert fields_of_flags(True, 3, 1, 7) == {"causal": True, **BOTTOM, "window": (3, -1)}
    assert fields_of_flags(True, None, 5, 5) == {"causal": True}


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


def test_what_attentions_and_tokens_are_called() -> None:
    for modules, names in PLACES:
        assert [place.name for place in places(modules.split())] == names.split()
    for sentence, names, spans, labels in PARTS:
        assert labels_of(sentence, names.split(), spans, [False] * len(spans)) == labels
    special = labels_of("hi", ["[CLS]", "hi"], [(0, 0), (0, 2)], [True, False])
    assert special == ("[CLS]", "hi")  # keep their names
    without_start: Any = SimpleNamespace(eos_token_id=None, sep_token_id=None)
    assert Tokens(("a",), {"input_ids": [5]}).shifted(without_start, None).ids == [5]


def made(name: str, n_q: int, n_k: int, heads: int = 2, *, tokens: bool = True) -> Attention:
    rng = np.random.default_rng(len(name) + n_q)
    arrays = {"q": rng.normal(size=(1, heads, n_q, 3))}
    arrays |= {x: rng.normal(size=(1, heads, n_k, 3)) for x in "kv"}
    queries, keys = ([f"{x}{i}" for i in range(n)] for x, n in (("a", n_q), ("b", n_k)))
    call = Call(name, arrays, Convention())
    return Attention(call, queries, keys, [*range(n_q)] if tokens else None)


def layers(*numbers: int) -> list[Attention]:
    return [made(f"h.{n}.attn", 5, 5) for n in numbers]


STACKS = [made("encoder.layers.0.self_attn", 5, 5), made("decoder.layers.0.self_attn", 3, 3)]
STACKS.append(made("decoder.layers.0.encoder_attn", 3, 5, tokens=False))


def test_a_summary_of_layers_with_other_numbers_of_heads() -> None:
    second = made("h.1.attn", 5, 5, heads=3)
    trace = model_trace("m", [*layers(0), second], stage_names=())
    assert [*trace] == ["entropy", "first", "previous", "itself", "even"]
    table = trace["previous"].value
    assert (table.shape, np.isnan(table[0, 2])) == ((2, 3), True)
    weights = plain.attention({x: second.call.arrays[x][0] for x in "qkv"}, {})["weights"]
    assert table[1] == pytest.approx(sum(weights[:, i, i - 1] for i in range(1, 5)) / 4)
    assert trace["previous"].names("layer") == ("L1", "L2")
    # what attends to something else is named
    rest = Attention(made("h.1.attn", 5, 11).call, ["a"] * 5, ["a"] * 5, None)
    trace = model_trace("m", [*layers(0), rest], stage_names=())
    assert trace["entropy"].names("layer") == ("L1",)
    assert [note.split()[0] for note in trace.notes] == ["layer.2"]


def test_the_layers_that_are_kept() -> None:
    trace = model_trace("m", layers(0, 1), stage_names={"weights"})
    assert [name for name in trace if "." in name] == ["layer.1.weights", "layer.2.weights"]
    whole = model_trace("m", layers(0, 1))
    assert {"layer.1.q", "layer.1.scores", "layer.1.output"} <= {*whole}
    assert whole["layer.1.weights"].names("query") == ("a0", "a1", "a2", "a3", "a4")
    both = model_trace("m", STACKS, stage_names={"weights"})
    assert {"encoder.previous", "encoder.1.weights", "decoder.self_attn.previous"} <= {*both}
    assert {"decoder.encoder_attn.first", "decoder.1.encoder_attn.weights"} <= {*both}
    assert "decoder.encoder_attn.previous" not in both


def test_one_layer() -> None:
    trace = layer_trace("m", layers(0, 1), 2, ["a note"])
    assert {"q", "scores", "weights", "output"} <= {*trace}  # called as any attention
    assert ("h.1.attn" in trace.title, trace.notes) == (True, ("a note",))
    wanted = {"encoder.weights", "decoder.self_attn.weights", "decoder.encoder_attn.weights"}
    assert wanted <= {*layer_trace("m", STACKS, 1)}
    for numbers, there in (((0, 1), "1 to 2"), ((3, 7), "4, 8")):
        with pytest.raises(ShapeError, match=there):
            layer_trace("m", layers(*numbers), 3)


#         1  2  3  4  5  6  7      tokens 1 2 3 are said again as 4 5 6
TOKENS = [3, 5, 8, 3, 5, 8, 9]
SINK, BEFORE, ITSELF = [0] * 7, [0, 0, 1, 2, 3, 4, 5], [*range(7)]
INDUCTION = [0, 0, 0, 1, 2, 3, 0]  # 4 sees what followed 1, and so on; the rest sees token 1


def test_what_heads_do() -> None:
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
    assert ({*own}, *own["entropy"], *own["first"]) == ({"even", "entropy", "first"}, 0.5, 0.75)
    assert measures(np.ones((2, 1, 1)), [7])["first"].tolist() == [1, 1]
    # half of a row goes to a sink without a value: −2 · ¼ log₂ ¼ = 1 bit of the two keys
    assert entropy(np.array([[0.25, 0.25]])).tolist() == [1.0]
    with pytest.raises(ShapeError, match="2 tokens"):
        measures(np.full((3, 5, 5), 0.2), [1, 2])
    rows = [(SPECS[one.name].symbol, SPECS[one.name].axes) for one in MEASURES]
    assert rows == [(one.symbol, "layer head") for one in MEASURES]
