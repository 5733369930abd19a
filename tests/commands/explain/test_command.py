"""explain and posenc: every flag does what it says, and the same mathematics written out in NumPy."""

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.arrays import Array
from attncli.convention import Convention
from attncli.files.trace import trace_from
from attncli.trace import Stage
from attncli.transformer.weights import Architecture, random_weights
from tests.calls import Call, Result
from tests.plain import attention

BANKS = "'She visited the money bank, near the river bank'"
LIFE = "'The bank can be a lifesaver.'"


def stages(result: Result) -> dict[str, Stage]:
    """Every stage of a trace's JSON by its dotted name."""
    return dict(trace_from(result.json, "the output").stages())


def explain(call: Call, line: str) -> Result:
    result = call("explain", *shlex.split(line))
    assert result.code == 0, result.err
    return result


def values(call: Call, line: str) -> dict[str, Any]:
    steps = stages(explain(call, f"{line} --format json"))
    return {name: np.array(step.value, dtype=float) for name, step in steps.items()}


def save(path: Path, arrays: Any) -> None:
    np.savez(path, **arrays)


STACK = f"{LIFE} --block encoder --layers 3 --heads 2"
ENCODER = "'I love AI' --dim 4 --block encoder --d-ff 4"
# fmt: off
SHOWN = {  # a call: what it shows, and what not
    "'a b' --pad-to 5": ("3 <pad> keys|every weight is 0", ""),
    "'a b' --pad-to 3 --mask-value -1": ("<pad> key|the largest weight is", ""),
    BANKS: ("cosine 1 before, 0.9977 after", "without positions"),
    f"{LIFE} --projection identity": ("S = Q Kᵀ", "Glorot"),
    f"{STACK} --stage encoder.2.attention.weights --head 2":
        ("encoder.2.attention|6  weights", "encoder.1|embeddings"),
    STACK: ("2 to 3  like layer 1|layer 1 of 3 and head 1 of 2|(encoder.1.attention)",
            "(encoder.2.attention)|head 2 of 2"),
    f"{STACK} --full": ("(encoder.3.attention)|head 2 of 2", ""),
    f"{STACK} --head 2": ("head 2 of 2", "head 1 of 2"),
    f"{LIFE} --outline": ("S = Q Kᵀ", "q2|0.1"),
    f"{LIFE} --outline --format markdown": ("S = Q Kᵀ", "q2|0.1"),
    f"{ENCODER} --eps 0.5": ("ε = 0.5", "ε = 1e-5"),
    f"{ENCODER} --work --head 1": (
        "  X[I,1] = E[I,1] + PE[pos 0,1] =|  Q[I,1] =|  K[I,1] =|  V[I,1] =|  Y[I,1] =|"
        "  R₁[I,1] = X[I,1] + Y[I,1] =|  μ[I] = (|  σ[I] = √((|  G[I,1] = max(0, |"
        "  R₂[I,1] = N₁[I,1] + F[I,1] =|  cos(I, love) = (", ""),
    f"{LIFE} --block encoder --d-ff 0": ("residual", "feed_forward"),
}
# fmt: on


@pytest.mark.parametrize("line", SHOWN)
def test_what_is_shown(call: Call, line: str) -> None:
    result = explain(call, line)
    assert result.err == ""
    there, absent = (words.split("|") if words else [] for words in SHOWN[line])
    assert [words for words in there if words not in result.out] == []
    assert [words for words in absent if words in result.out] == []


def test_one_weight_and_one_norm_are_derived(call: Call) -> None:
    one = explain(call, f"{BANKS} --cell 5,river --block encoder --layers 2")
    assert one.out.count('How "bank" (5) attends to "river"') == 1
    norm = explain(call, f"{ENCODER} --stage attention.norm --cell love,2")
    rows = re.findall(r"^\d+ +(\w+) +[μσN]", norm.out, re.MULTILINE)
    assert rows == ["mean", "deviation", "norm"]
    assert "N₁[love,2] = γ[2]·(R₁[love,2] - μ[love]) / √(σ[love]² + ε) + β[2]" in norm.out


def test_two_thousand_words_are_elided_and_quick(call: Call) -> None:
    sentence = " ".join(f"word{i % 700}" for i in range(2000))
    start = time.process_time()
    result = explain(call, f"'{sentence}' --heads 2 --block decoder --target 'le mot'")
    assert time.process_time() - start < 20
    assert "1984 rows" in result.out
    assert result.out.count("\n") < 1200


# ---- tokens, vectors and positions


def test_unknown_words_are_always_named(call: Call) -> None:
    for flags, words in {"": "not in", "--unknown zero": "zeros"}.items():
        line = f"'Terry eat mango' --vectors 'eat=1,2,3,4 mango=4,3,2,1' {flags}"
        notes = [explain(call, line).out, explain(call, f"{line} --format csv").err]
        notes += [" ".join(explain(call, f"{line} --format json").json["notes"])]
        assert [words in text and "Terry" in text for text in notes] == [True] * 3


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("'The man <PADDING>'", [2]), ("'<pad> The [PAD] man'", [0, 2]),
        ("--tokens 'The,man,<pad>' --pad-to 5", [2, 3, 4]),
        ("'a b <pad>' --target 'c d <pad> e' --block decoder", [2]),
        ("'a b c' --pad-to 5 --mask '[[true,false,true,true,true]]'", [3, 4]),
    ],
)  # fmt: skip
def test_padding_is_a_token_that_is_masked(call: Call, line: str, at: list[int]) -> None:
    computed = values(call, line)
    maps = [value for name, value in computed.items() if name.endswith("attention.weights")]
    assert len(maps) == (3 if "--block" in line else 1)
    for weights in maps:
        assert (weights[..., at] == 0).all()
        np.testing.assert_allclose(weights.sum(-1), 1)
        assert "--mask" not in line or (weights[..., 1] == 0).all()
    assert (computed["embeddings"][at] == 0).all()
    n_words = len(computed["embeddings"]) - len(at)
    assert "--block" in line or len(computed["meaning.contextual"]) == n_words


# ---- attention and blocks


def test_the_identity_shows_the_bare_dot_products(call: Call) -> None:
    computed = values(call, f"{LIFE} --projection identity --positions none --scale none")
    x = computed["embeddings"]
    np.testing.assert_allclose(computed["attention.scores"][0], x @ x.T, rtol=1e-12)
    encoder = values(call, f"{LIFE} --projection identity --block encoder --heads 2")
    assert encoder["encoder.1.attention.residual"].shape == (7, 8)


def test_a_mask(call: Call) -> None:
    for flags, row in (("[[true,false]]", [1, 0]), ("[[true,false]] --mask-means ignore", [0, 1]), ("[[0.0,700.5]]", [0, 1])):  # fmt: skip
        weights = values(call, f"'a b' --mask {flags}")["attention.weights"]
        np.testing.assert_allclose(weights, [[row, row]], atol=1e-15)
    assert "attention.mask" not in values(call, "'a b' --pad-to 2")  # which is full


TRACED = (
    "--causal|--window 1,1|--scale 0.5|--softcap 2|--softmax-over queries|--dropout 0.4 --seed 5|"
    "--dtype bfloat16|--pad-to 13|--heads 2|--target le|--block encoder --dropout 0.4 --causal"
)


@pytest.mark.parametrize("flags", TRACED.split("|"))
def test_a_trace_feeds_compute(call: Call, flags: str) -> None:
    first = explain(call, f"{BANKS} {flags} --format json")
    arguments = ("compute", "--q", "-", "--stage", "weights", "--format", "json")
    again = call(*arguments, stdin=first.out.encode())
    assert again.code == 0, again.err
    own = next(s for name, s in stages(first).items() if name.endswith("attention.weights"))
    np.testing.assert_array_equal(stages(again)["weights"].value, own.value)
    assert stages(again)["weights"].labels == own.labels


def test_a_layer_of_a_trace_feeds_compute(call: Call) -> None:
    explain(call, f"{BANKS} --block encoder --layers 2 -o trace.npz")
    result = call("compute", "--q", "trace.npz::encoder.2.attention", "--stage", "weights")
    assert (result.code, '"bank" (5) attends to' in result.out) == (0, True)


# ---- weights and embeddings of files

X, W = np.arange(1.0, 16).reshape(3, 5) / 7, {n: np.eye(5, 7, i) for i, n in enumerate("qkv")}


def test_weights_of_a_file(call: Call, tmp_path: Path) -> None:
    weights = random_weights(
        Architecture(
            kind="encoder", d_model=8, n_heads=2, n_layers=2, convention=Convention(seed=9)
        )
    )
    save(tmp_path / "w.npz", weights)
    line, name = f"{LIFE} --weights w.npz --heads 2", "encoder.2.attention.w_q"
    read = values(call, f"{line} --block encoder")
    made = values(call, f"{LIFE} --block encoder --heads 2 --layers 2 --seed 9")
    np.testing.assert_array_equal(read[name], made[name])
    notes = explain(call, f"{line} --block encoder --format json").json["notes"]
    assert "w.npz: encoder.1.attention.w_q" in notes[0]
    assert "not used" in explain(call, line).out


@pytest.mark.parametrize("flags", ["--embeddings a.npz", "--embeddings x.npy --weights a.npz"])
def test_embeddings_and_weights_of_files(call: Call, tmp_path: Path, flags: str) -> None:
    save(tmp_path / "a.npz", {"x": X} | {f"h.0.attn.{n}_proj.weight": w.T for n, w in W.items()})
    np.save(tmp_path / "x.npy", X)
    computed = values(call, flags)
    np.testing.assert_array_equal(computed["embeddings"], X)
    assert "positions" not in computed
    q, k, v = (X @ W[n] for n in "qkv")
    np.testing.assert_allclose(computed["attention.q"][0], q)
    output = attention({"q": q, "k": k, "v": v}, {})["output"]
    np.testing.assert_allclose(computed["attention.output"][0], output)
    assert "input" in values(call, f"{flags} --positions paper")


def test_tokens_are_those_of_the_flags_or_of_the_embeddings(call: Call) -> None:
    x = X.tolist()
    loving, named = {"x": x, "tokens": ["I", "love", "AI"]}, dict(zip("abc", x, strict=True))
    for flags, document, labels in (
        ("'The BANK' --lowercase", None, "the bank"),
        ("--tokens 'New York, is ,BIG'", None, "New York is BIG"),
        ("--tokens A,b --lowercase", None, "a b"),
        ("""--tokens '["a", ",", "b c"]'""", None, "a , b c"),
        ("", x, "x1 x2 x3"), ("", loving, "I love AI"), ("", named, "a b c"),
        ("'a b a'", x, "a b a"), ("--tokens A,B,C", {"inputs": x}, "A B C"),
    ):  # fmt: skip
        more = f"--embeddings {shlex.quote(json.dumps(document))}" if document else ""
        steps = stages(explain(call, f"{flags} {more} --format json"))
        assert " ".join(steps["tokens"].labels["token"]) == labels


def test_heads_and_layers_of_weights(call: Call, tmp_path: Path) -> None:
    heads = {f"w_{n}": np.stack([W[n], -W[n], 2 * W[n]]) for n in "qkv"}
    save(tmp_path / "a.npz", {"x": X} | heads)
    computed = values(call, "--embeddings a.npz")
    np.testing.assert_allclose(computed["attention.v"], [X @ W["v"], -X @ W["v"], 2 * X @ W["v"]])
    weights = random_weights(
        Architecture(kind="encoder", d_model=5, d_ff=7, convention=Convention(seed=9))
    )
    save(tmp_path / "b.npz", {"x": X} | weights)
    layer, name = values(call, "--embeddings b.npz --block encoder"), "encoder.1.feed_forward.w_1"
    np.testing.assert_array_equal(layer[name], weights[name])
    padded = values(call, "--embeddings b.npz --pad-to 5")
    np.testing.assert_array_equal(padded["embeddings"], np.vstack([X, np.zeros((2, 5))]))


def test_what_else_a_file_holds(call: Call, tmp_path: Path) -> None:
    weights = {f"w_{n}": w.tolist() for n, w in W.items()}
    holding_more = {"x": X.tolist(), "mask": [[1]], **weights}
    masks = {"mask": [[True, True, False]], "masks_of_others": [[1]]}
    (tmp_path / "w.json").write_text(json.dumps(holding_more))
    (tmp_path / "m.json").write_text(json.dumps(masks))
    for line, unused in {
        "--embeddings w.json": "mask",
        "--embeddings w.json --projection identity": "w_q, w_k, w_v, mask",
        "abc --pad-to 3 --mask m.json": "masks_of_others",
        "ab --weights w.json --dim 5": "x, mask",
    }.items():
        result = explain(call, line)
        assert (result.err + result.out).count(f"not used: {unused}") == 1


# ---- the same mathematics in NumPy

WORDS = ("She", "visited", "the", "bank", "near", "the", "bank")
TARGET = ("la", "banque", "du", "fleuve", "vert")
VECTORS = "the=1,2,3 bank=4,5,6 She=7,8,9"


def normed(x: Array) -> Any:
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)


def mixed(trace: attncli.Trace, name: str, x: Array, c: Array, heads: int, mask: Any = None) -> Any:
    """Attention of x to c with the weights that the trace shows, head by head."""
    w = {letter: trace[f"{name}.w_{letter}"].value for letter in "qkvo"}
    q, k, v = (np.stack(np.split(a @ w[n], heads, axis=1)) for a, n in ((x, "q"), (c, "k"), (c, "v")))  # fmt: skip
    more = {} if mask is None else {"mask": np.broadcast_to(mask, (heads, len(x), len(c)))}
    return np.concatenate(attention({"q": q, "k": k, "v": v, **more}, {})["output"], axis=1) @ w["o"]  # fmt: skip


def fed(trace: attncli.Trace, name: str, x: Array) -> Array:
    own = f"{name}.feed_forward"
    hidden: Array = np.maximum(x @ trace[f"{own}.w_1"].value, 0) @ trace[f"{own}.w_2"].value
    return hidden


@pytest.mark.parametrize(("heads", "d_k", "d_v"), [(1, 5, 4), (2, 3, 3), (3, 5, 4)])
def test_attention_alone(heads: int, d_k: int, d_v: int) -> None:
    for target, name, asking in ((None, "attention", ""), (TARGET, "cross_attention", "target.")):
        trace = attncli.explain(WORDS, target=target, dim=6, heads=heads, d_k=d_k, d_v=d_v)
        y, x = trace[f"{asking}input"].value, trace["input"].value
        expected = mixed(trace, name, y, x, heads)
        np.testing.assert_allclose(trace[f"{name}.projected"].value, expected, rtol=1e-12)
        stage = trace[f"{name}.weights"]
        assert (stage.names("query"), stage.names("key")) == (target or WORDS, WORDS)
        assert trace["meaning.static"].names("token") == (target or WORDS)
        assert (f"{name}.concat" in trace) == (heads > 1)
    alone = attncli.explain(WORDS, dim=6, heads=heads, d_k=d_k, d_v=d_v)["attention.w_q"].value
    np.testing.assert_array_equal(trace["cross_attention.w_q"].value, alone)


def test_a_decoder_reads_the_encoder() -> None:
    trace = attncli.explain(WORDS, target=TARGET, dim=6, block="decoder", pad_to=9)
    real = np.arange(9) < 7
    x, y = trace["input"].value, trace["target.input"].value
    x = normed(x + mixed(trace, "encoder.1.attention", x, x, 1, real))
    memory = normed(x + fed(trace, "encoder.1", x))
    y = normed(y + mixed(trace, "decoder.1.attention", y, y, 1, np.tri(5, dtype=bool)))
    y = normed(y + mixed(trace, "decoder.1.cross_attention", y, memory, 1, real))
    y = normed(y + fed(trace, "decoder.1", y))
    np.testing.assert_allclose(trace["decoder.1.feed_forward.norm"].value, y, rtol=1e-10)
    assert (trace["decoder.1.cross_attention.weights"].value[..., 7:] == 0).all()


def test_every_stage_says_in_words_what_it_is() -> None:
    trace = attncli.explain(WORDS, target=TARGET, dim=6, heads=2, block="decoder", softcap=3.0)
    silent = {"mask", *(f"{w}_{x}" for w in "wb" for x in "qkvo12"), "gamma", "beta"}
    assert not [n for n, s in trace.stages() if not s.note and n.rpartition(".")[2] not in silent]


# ---- words, vectors, positions, padding


def test_the_input_is_the_sum_of_vectors_and_positions() -> None:
    trace = attncli.explain(WORDS, dim=5, positions="article")
    places = trace["positions"].value
    np.testing.assert_array_equal(trace["input"].value, trace["embeddings"].value + places)
    np.testing.assert_allclose(places[3, :3], [np.sin(3), np.cos(3), np.sin(3 / 10000 ** (4 / 5))])
    own = attncli.explain("king queen", vectors={"king": [1, 0], "queen": [0, 1]}, positions=[[1, 2], [3, 4]])  # fmt: skip
    np.testing.assert_array_equal(own["input"].value, [[2, 2], [3, 5]])


def test_a_file_gives_the_vectors_it_has_and_what_it_has_not_is_named() -> None:
    trace = attncli.explain("THE bank near", vectors=VECTORS, seed=5)
    the, bank, near = trace["embeddings"].value.tolist()
    assert (the, bank) == ([1, 2, 3], [4, 5, 6])
    assert near == attncli.explain("near", dim=3, seed=5)["embeddings"].value[0].tolist()
    notes = " ".join(trace.notes)
    assert "'near' got a random vector" in notes
    assert "THE" not in f"{notes}{trace['embeddings'].note}"  # small letters need no note
    note = attncli.explain("Bank", vectors="BANK=1,2")["embeddings"].note
    assert "'Bank', only 'BANK'" in note  # beside the vectors
    zeros = attncli.explain("bank rook", vectors=VECTORS, unknown="zero", dim=3)
    assert zeros["embeddings"].value.tolist() == [[4, 5, 6], [0, 0, 0]]
    many = attncli.explain([f"w{i}" for i in range(11)], vectors=VECTORS)
    assert any("'w7' and 3 more" in note for note in many.notes)


# ---- what it means


def notes_on(trace: attncli.Trace) -> tuple[str, ...]:
    """The sentences on the meaning of the words."""
    last: Any = trace.steps[-1]
    notes: tuple[str, ...] = last.notes
    return notes


def test_cosines_before_and_after() -> None:
    # weights of a mask mix: "bank" is 3/7 money + 4/7 bank, then 4/7 bank + 3/7 river
    mixing = [[1.0, 0, 0, 0], [3, 4, 0, 0], [0, 0, 1, 0], [0, 4, 3, 0]]
    banks = [[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]
    turning = [[1.0, 0], [-1, 1]]
    cases: Any = (
        ("money bank river bank", banks, mixing, np.eye(3), [0.6, 1, 0, 0.64],
         '(2) (4): 1 0.6400 other "money" 0 0.6000 closer'),
        ("a b", [[1.0, 0], [1, 1]], np.eye(2), turning, [0, 1], '"a" "b": 0.7071 0 further'),
    )  # fmt: skip
    for sentence, vectors, mask, w_v, cosines, words in cases:
        eye = np.eye(len(vectors[0]))
        weights: Any = {"w_q": 0 * eye, "w_k": eye, "w_v": w_v, "w_o": eye}
        with np.errstate(divide="ignore"):
            own: Any = {"mask": np.log(mask), "vectors": vectors, "positions": "none"}
        trace = attncli.explain(sentence, weights=weights, **own)
        np.testing.assert_allclose(trace["meaning.contextual"].value[1], cosines, atol=1e-15)
        assert {*words.split()} <= {*" ".join(notes_on(trace)).replace(",", " ").split()}


def test_equal_words_end_equal_without_positions() -> None:
    for options, is_equal, word in (
        ({"positions": "none"}, True, "without positions"),
        ({"positions": "paper"}, False, "two contexts"),
        ({"positions": "none", "causal": True}, False, "the mask makes"),
    ):
        trace = attncli.explain(WORDS, dim=6, seed=1, **options)
        assert trace["tokens"].value.tolist() == [[1, 2, 3, 4, 5, 6, 7], [1, 2, 3, 4, 5, 3, 4]]
        assert trace["meaning.static"].value[3, 6] == pytest.approx(1, abs=1e-15)
        assert (abs(trace["meaning.contextual"].value[3, 6] - 1) < 1e-12) == is_equal
        assert any(word in note for note in notes_on(trace))


def test_of_many_repeated_words_a_few_have_a_sentence() -> None:
    notes = notes_on(attncli.explain([*"abcdefg" * 2], dim=5))
    assert [note[:7] for note in notes[1:5]] == [f'"{w}" ({i})' for i, w in enumerate("abcd", 1)]
    assert len(notes) == 5  # the first again with the input added
    rng = np.random.default_rng(5)
    vectors = {letter: rng.normal(size=5) for letter in "abcdefg"}
    of_vectors = notes_on(attncli.explain([*"abcdefg" * 2], vectors=vectors))
    assert len(of_vectors) == 7  # the two words that moved most, too: the vectors are not random
    assert "meaning.static" not in attncli.explain("a", dim=4)
    assert "meaning.static" not in attncli.explain("a b", vectors=[[np.nan], [1.0]])
    assert "meaning.static" not in attncli.explain("a b", vectors=[[np.nan], [1.0]])


def test_weights_of_one_layer_under_a_name_of_its_own(call: Call) -> None:
    eye = [[1, 0], [0, 1]]
    weights = json.dumps({"blk.0.attn": {"wq": eye, "wk": eye, "wv": eye}})
    done = call("explain", "a b", "--dim", "2", "--weights", weights)
    assert (done.code, done.err) == (0, "")
    assert "W_q 2 × 2 · W_k 2 × 2 · W_v 2 × 2" in done.out
