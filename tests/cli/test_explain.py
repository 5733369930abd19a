"""attncli explain: every flag does what it says."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from attncli.attention.weights import Dimensions, random_weights
from tests.plain import attention

from .conftest import Call, Result

BANKS = "'She visited the money bank, near the river bank'"
LIFE = "'The bank can be a lifesaver.'"


def stages(document: Any, prefix: str = "") -> dict[str, Any]:
    """Every stage of a trace's JSON by its dotted name."""
    named: dict[str, Any] = {}
    for step in document["steps"]:
        name = f"{prefix}{step['name']}"
        named |= {name: step} if step["kind"] == "stage" else stages(step, f"{name}.")
    return named


def explain(call: Call, line: str) -> Result:
    result = call("explain", *shlex.split(line))
    assert result.code == 0, result.err
    return result


def values(call: Call, line: str) -> dict[str, Any]:
    steps = stages(explain(call, f"{line} --format json").json)
    return {name: np.array(step["value"], dtype=float) for name, step in steps.items()}


def tokens(call: Call, line: str) -> str:
    return " ".join(
        stages(explain(call, f"{line} --format json").json)["tokens"]["labels"]["token"]
    )


def save(path: Path, arrays: Any) -> None:
    np.savez(path, **arrays)


STACK = f"{LIFE} --block encoder --layers 3 --heads 2"
ENCODER = "'I love AI' --dim 4 --block encoder --d-ff 4"
# fmt: off
SHOWN = {  # a call: what it shows, and what not
    "'a b' --pad-to 5": ("3 <pad> keys|every weight is 0", ""),
    "'a b' --pad-to 3 --mask-value -1": ("<pad> key|the largest weight is", ""),
    f"{BANKS}": ("cosine 1 before, 0.9977 after", "without positions"),
    f"{BANKS} --positions none": ("cosine 1 before and 1 after|without positions", ""),
    f"{LIFE}": ("not meaning", ""),
    f"{LIFE} --projection identity": ("S = Q Kᵀ", "Glorot"),
    f"{STACK} --stage encoder.2.attention.weights --head 2":
        ("encoder.2.attention|6  weights", "encoder.1|embeddings"),
    STACK: ("2 to 3  like layer 1|layer 1 of 3 and head 1 of 2|(encoder.1.attention)",
            "(encoder.2.attention)|head 2 of 2"),
    f"{STACK} --full": ("(encoder.3.attention)|head 2 of 2", ""),
    f"{STACK} --head 2": ("head 2 of 2", "head 1 of 2"),
    f"{LIFE} --outline": ("S = Q Kᵀ", "q2|0.1"),
    f"{LIFE} --outline --format markdown": ("S = Q Kᵀ", "q2|0.1"),
    ENCODER: ("ε = 1e-5", ""),
    f"{ENCODER} --eps 0.5": ("ε = 0.5", "ε = 1e-5"),
    f"{ENCODER} --work --head 1": (
        "  X[I,1] = E[I,1] + PE[pos 0,1] =|  Q[I,1] =|  K[I,1] =|  V[I,1] =|  Y[I,1] =|"
        "  R₁[I,1] = X[I,1] + Y[I,1] =|  μ[I] = (|  σ[I] = √((|  G[I,1] = max(0, |"
        "  R₂[I,1] = N₁[I,1] + F[I,1] =|  cos(I, love) = (", ""),
    "'a b' --block decoder --target c --outline": (
        "X = E + PE|X_t = E_t + PE|Q = X_t W_q|K = C W_k|R₃ = X_t + Y|is N₂, the encoder's", ""),
}
# fmt: on


@pytest.mark.parametrize("line", SHOWN)
def test_what_is_shown(call: Call, line: str) -> None:
    result = explain(call, line)
    assert result.err == ""
    there, absent = (words.split("|") if words else [] for words in SHOWN[line])
    assert [words for words in there if words not in result.out] == []
    assert [words for words in absent if words in result.out] == []


def test_no_line_is_wider_than_asked_for(call: Call) -> None:
    for line in (BANKS, "'c d' --target 'e f' --block decoder --pad-to 5", f"{STACK} --work"):
        for width in (80, 120):
            result = explain(call, f"{line} --width {width}")
            assert 0.75 * width < max(map(cell_len, result.out.splitlines())) <= width


def test_one_weight_and_one_norm_are_derived(call: Call) -> None:
    one = explain(call, f"{BANKS} --cell 5,river --block encoder --layers 2")
    assert one.out.count('"bank" attends to "river"') == 1
    norm = explain(call, f"{ENCODER} --stage attention.norm --cell love,2")
    rows = re.findall(r"^\d+ +(\w+) +[μσN]", norm.out, re.MULTILINE)
    assert rows == ["mean", "deviation", "norm"]
    assert "N₁[love,2] = γ[2]·(R₁[love,2] - μ[love]) / √(σ[love]² + ε) + β[2]" in norm.out


def test_two_thousand_words_are_elided_and_quick(call: Call) -> None:
    sentence = " ".join(f"word{i % 700}" for i in range(2000))
    start = time.process_time()
    result = explain(call, f"'{sentence}' --heads 2 --block decoder --target 'le mot'")
    assert time.process_time() - start < 20
    assert result.code == 0, result.err
    assert "1984 rows" in result.out
    assert result.out.count("\n") < 1200


# ---- tokens, vectors and positions


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("'The BANK' --lowercase", "the bank"),
        ("--tokens 'New York, is ,BIG'", "New York is BIG"),
        ("--tokens A,b --lowercase", "a b"),
        ("""--tokens '["a", ",", "b c"]'""", "a , b c"),
        ("'naïve 銀行 😀'", "naïve 銀 行 😀"),
    ],
)
def test_tokens(call: Call, line: str, expected: str) -> None:
    assert tokens(call, line) == expected


def test_unknown_words_are_always_named(call: Call) -> None:
    for flags, words in {"": "not in", "--unknown zero": "zeros"}.items():
        line = f"'Terry eat mango' --glove 'eat=1,2,3,4 mango=4,3,2,1' {flags}"
        notes = [explain(call, line).out, explain(call, f"{line} --format csv").err]
        notes += [" ".join(explain(call, f"{line} --format json").json["notes"])]
        assert [words in text and "Terry" in text for text in notes] == [True] * 3


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("'The man <PADDING>'", [2]),
        ("'<pad> The [PAD] man'", [0, 2]),
        ("--tokens 'The,man,<pad>' --pad-to 5", [2, 3, 4]),
        ("'a b <pad>' --target 'c d <pad> e' --block decoder", [2]),
    ],
)
def test_padding_is_a_token_that_is_masked(call: Call, line: str, at: list[int]) -> None:
    computed = values(call, line)
    maps = [value for name, value in computed.items() if name.endswith("attention.weights")]
    assert len(maps) == (3 if "--block" in line else 1)
    for weights in maps:
        assert (weights[..., at] == 0).all()
        np.testing.assert_allclose(weights.sum(-1), 1)
    assert (computed["embeddings"][at] == 0).all()


# ---- attention and blocks


def test_widths_and_heads(call: Call) -> None:
    computed = values(call, f"{LIFE} --heads 4 --kv-heads 2 --d-k 3 --d-v 5")
    shapes = [computed[f"attention.{n}"].shape for n in ("q", "k", "v", "concat", "projected")]
    assert shapes == [(4, 7, 3), (2, 7, 3), (2, 7, 5), (7, 20), (7, 8)]


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


def test_dropout_in_a_block_is_drawn_from_the_seed(call: Call) -> None:
    line = f"{LIFE} --block encoder --dropout 0.5 --seed"
    one, two, other = (
        values(call, f"{line} {seed}")["encoder.1.attention.sublayer_dropped"] for seed in "112"
    )
    np.testing.assert_array_equal(one, two)
    assert ((one == 0) != (other == 0)).any()


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
    own = next(s for name, s in stages(first.json).items() if name.endswith("attention.weights"))
    assert again.json["steps"][0]["value"] == own["value"]
    assert again.json["steps"][0]["labels"] == own["labels"]


def test_a_layer_of_a_trace_feeds_compute(call: Call) -> None:
    explain(call, f"{BANKS} --block encoder --layers 2 -o trace.npz")
    result = call("compute", "--q", "trace.npz::encoder.2.attention", "--stage", "weights")
    assert (result.code, '"bank" (5) attends to' in result.out) == (0, True)


# ---- weights and embeddings of files

X, W = np.arange(1.0, 16).reshape(3, 5) / 7, {n: np.eye(5, 7, i) for i, n in enumerate("qkv")}


def test_weights_of_a_file(call: Call, tmp_path: Path) -> None:
    weights = random_weights("encoder", Dimensions(d_model=8, n_heads=2), seed=9, n_layers=2)
    save(tmp_path / "w.npz", weights)
    line, name = f"{LIFE} --weights w.npz --heads 2", "encoder.2.attention.w_q"
    read = values(call, f"{line} --block encoder")
    made = values(call, f"{LIFE} --block encoder --heads 2 --layers 2 --seed 9")
    np.testing.assert_array_equal(read[name], made[name])
    notes = explain(call, f"{line} --block encoder --format json").json["notes"]
    assert "w.npz: encoder.1.attention.w_q" in notes[0]
    assert "not used" in explain(call, line).out


@pytest.mark.parametrize(
    ("names", "turn"),
    [
        ("W{}", lambda w: w),
        ("{}_proj.weight", lambda w: w.T),
        ("h.0.attn.{}_proj.weight", lambda w: w.T),
        ("block.mha.{}.kernel", lambda w: w),
    ],
)
@pytest.mark.parametrize("flags", ["--embeddings a.npz", "--embeddings x.npy --weights a.npz"])
def test_embeddings_and_weights_as_they_are_published(
    call: Call, tmp_path: Path, names: str, turn: Any, flags: str
) -> None:
    save(tmp_path / "a.npz", {"x": X} | {names.format(n): turn(w) for n, w in W.items()})
    np.save(tmp_path / "x.npy", X)
    computed = values(call, flags)
    np.testing.assert_array_equal(computed["embeddings"], X)
    assert "positions" not in computed
    q, k, v = (X @ W[n] for n in "qkv")
    np.testing.assert_allclose(computed["attention.q"][0], q)
    output = attention({"q": q, "k": k, "v": v}, {})["output"]
    np.testing.assert_allclose(computed["attention.output"][0], output)
    assert "input" in values(call, f"{flags} --positions paper")


def test_embeddings_bring_their_labels_or_those_of_the_sentence(call: Call, tmp_path: Path) -> None:
    x = X.tolist()
    for document, flags, labels in (
        (x, "", "x1 x2 x3"),
        ({"x": x, "tokens": ["I", "love", "AI"]}, "", "I love AI"),
        (dict(zip("abc", x, strict=True)), "", "a b c"),
        (x, "'a b a'", "a b a"),
        ({"inputs": x}, "--tokens A,B,C", "A B C"),
    ):
        (tmp_path / "x.json").write_text(json.dumps(document))
        assert tokens(call, f"{flags} --embeddings x.json") == labels


def test_heads_and_layers_of_the_weights_are_those_of_the_block(call: Call, tmp_path: Path) -> None:
    heads = {f"w_{n}": np.stack([W[n], -W[n], 2 * W[n]]) for n in "qkv"}
    save(tmp_path / "a.npz", {"x": X} | heads)
    computed = values(call, "--embeddings a.npz")
    np.testing.assert_allclose(computed["attention.v"], [X @ W["v"], -X @ W["v"], 2 * X @ W["v"]])
    weights = random_weights("encoder", Dimensions(d_model=5, d_ff=7), seed=9)
    save(tmp_path / "b.npz", {"x": X} | weights)
    name = "encoder.1.feed_forward.w_1"
    layer = values(call, "--embeddings b.npz --block encoder")
    np.testing.assert_array_equal(layer[name], weights[name])
    padded = values(call, "--embeddings b.npz --pad-to 5")
    np.testing.assert_array_equal(padded["embeddings"], np.vstack([X, np.zeros((2, 5))]))


@pytest.mark.parametrize(
    ("line", "unused"),
    [
        ("--embeddings a.json", "maks"),
        ("--embeddings a.json --projection identity", "w_q, w_k, w_v, maks"),
        ("abc --pad-to 3 --mask m.json", "masks_of_others"),
        ("ab --weights w.json --dim 5", "x, mask"),
    ],
)
def test_what_a_file_holds_besides_is_named(
    call: Call, tmp_path: Path, line: str, unused: str
) -> None:
    weights = {f"w_{n}": w.tolist() for n, w in W.items()}
    files = {
        "a": {"x": X.tolist(), "maks": [[1]], **weights},
        "m": {"mask": [[True, True, False]], "masks_of_others": [[1]]},
        "w": {"x": X.tolist(), "mask": [[1]], **weights},
    }
    for name, document in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    result = explain(call, line)
    assert (result.err + result.out).count(f"not used: {unused}") == 1
