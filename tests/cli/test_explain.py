"""attncli explain: every flag does what it says, and wrong calls end in one line."""

from __future__ import annotations

import json
import os
import re
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.cells import cell_len

from attncli.attention.weights import Dimensions, random_weights
from attncli.words.vectors import random_vectors

from .conftest import SAMPLES, Call

BANKS = "She visited the money bank, near the river bank"
LIFE = "The bank can be a lifesaver."
YOGURT = "Terry loves to eat Mango Greek Yogurt"
GOLDEN = Path(__file__).parents[1] / "pipeline" / "golden"


def stages(document: Any, prefix: str = "") -> dict[str, Any]:
    """Every stage of a trace's JSON by its dotted name."""
    found: dict[str, Any] = {}
    for step in document["steps"]:
        name = f"{prefix}{step['name']}"
        found |= {name: step} if step["kind"] == "stage" else stages(step, f"{name}.")
    return found


def values(call: Call, *arguments: str | Path) -> dict[str, Any]:
    result = call("explain", *arguments, "--format", "json")
    assert result.code == 0, result.err
    return {
        name: np.array(step["value"], dtype=float) for name, step in stages(result.json).items()
    }


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("banks", [BANKS]),
        ("lifesaver", [LIFE, "--block", "encoder", "--heads", "2", "--layers", "2"]),
        (
            "yogurt",
            [YOGURT, "--target", "Terry aime le yaourt", "--block", "decoder", "--pad-to", "9"],
        ),
    ],
)
def test_the_whole_page(call: Call, name: str, arguments: list[str], width: int) -> None:
    result = call("explain", *arguments, "--width", str(width))
    assert (result.code, result.err) == (0, "")
    assert max(map(cell_len, result.out.splitlines())) <= width
    path = GOLDEN / f"{name}_{width}.txt"
    if os.environ.get("ATTNCLI_UPDATE_GOLDEN"):
        path.write_text(result.out, encoding="utf-8")
    assert result.out == path.read_text(encoding="utf-8")


def test_tokens_vectors_and_seed(call: Call) -> None:
    found = values(call, BANKS, "--dim", "5", "--seed", "3")
    words = [*BANKS.replace(",", " ,").split()]
    vectors = random_vectors(words, 5, 3)
    np.testing.assert_array_equal(found["embeddings"], [vectors[word] for word in words])
    assert not np.array_equal(
        found["attention.w_q"], values(call, BANKS, "--dim", "5")["attention.w_q"]
    )


def test_lowercase_and_given_tokens(call: Call) -> None:
    def names(*arguments: str) -> list[str]:
        document = call("explain", *arguments, "--format", "json").json
        tokens: list[str] = stages(document)["tokens"]["labels"]["token"]
        return tokens

    assert names("The BANK", "--lowercase") == ["the", "bank"]
    assert names("--tokens", "New York, is ,BIG") == ["New York", "is", "BIG"]
    assert names("--tokens", "A,b", "--lowercase") == ["a", "b"]
    assert names("--tokens", '["a", ",", "b c"]') == ["a", ",", "b c"]
    assert names("naïve 銀行 😀") == ["naïve", "銀", "行", "😀"]


def test_padding(call: Call) -> None:
    result = call("explain", "a b", "--pad-to", "5")
    assert "3 <pad> keys are masked: every weight is 0" in result.out
    assert (values(call, "a b", "--pad-to", "5")["attention.weights"][..., 2:] == 0).all()


def test_a_leaking_mask_value_is_noted(call: Call) -> None:
    result = call("explain", "a b", "--pad-to", "3", "--mask-value", "-1")
    assert "the <pad> key is masked: the largest weight is" in result.out


@pytest.mark.parametrize(
    ("flags", "remark"),
    [
        ([], "1 word is not in"),
        (["--unknown", "zero"], "'Terry' is a vector of zeros"),
        (["--unknown", "random"], "'Terry' got a random vector"),
    ],
)
def test_unknown_words_are_always_named(call: Call, flags: list[str], remark: str) -> None:
    source = "eat=1,2,3,4 mango=4,3,2,1"
    table = call("explain", "Terry eat mango", "--glove", source, *flags)
    assert remark in table.out
    assert "read from" in table.out
    exact = call("explain", "Terry eat mango", "--glove", source, *flags, "--format", "csv")
    assert remark in exact.err
    document = call(
        "explain", "Terry eat mango", "--glove", source, *flags, "--format", "json"
    ).json
    assert any(remark in note for note in document["notes"])


def test_positions(call: Call) -> None:
    paper, article = (
        values(call, LIFE, "--positions", p)["positions"] for p in ("paper", "article")
    )
    np.testing.assert_allclose(paper[1, 2], np.sin(1 / 10000 ** (2 / 8)))
    np.testing.assert_allclose(article[1, 2], np.sin(1 / 10000 ** (4 / 8)))
    assert "positions" not in values(call, LIFE, "--positions", "none")


def test_the_two_banks(call: Call) -> None:
    found = values(call, BANKS)
    assert found["meaning.static"][4, 9] == pytest.approx(1, abs=1e-15)
    assert found["meaning.contextual"][4, 9] < 0.9999
    printed = call("explain", BANKS).out
    assert (
        '"bank" (5) and "bank" (10): cosine 1 before, 0.9977 after: one word in two contexts'
        in printed
    )
    alone = call("explain", BANKS, "--positions", "none").out
    assert '"bank" (5) and "bank" (10): cosine 1 before and 1 after: without positions' in alone


def test_widths_and_heads(call: Call) -> None:
    flags = ["--heads", "4", "--kv-heads", "2", "--d-k", "3", "--d-v", "5"]
    found = values(call, LIFE, *flags)
    assert found["attention.q"].shape == (4, 7, 3)
    assert found["attention.k"].shape == (2, 7, 3)
    assert found["attention.v"].shape == (2, 7, 5)
    assert found["attention.concat"].shape == (7, 20)
    assert found["attention.projected"].shape == (7, 8)


def test_weights_of_a_file(call: Call, tmp_path: Path) -> None:
    weights = random_weights("encoder", Dimensions(d_model=8, n_heads=2), seed=9, n_layers=2)
    np.savez(tmp_path / "w.npz", **weights)  # type: ignore[arg-type]
    flags = ["--weights", "w.npz", "--block", "encoder", "--heads", "2"]
    given = values(call, LIFE, *flags)
    made = values(call, LIFE, "--block", "encoder", "--heads", "2", "--layers", "2", "--seed", "9")
    np.testing.assert_array_equal(given["encoder.2.attention.w_q"], made["encoder.2.attention.w_q"])
    document = call("explain", LIFE, *flags, "--format", "json").json
    assert document["notes"][0].startswith(
        "The weights are those of w.npz: encoder.1.attention.w_q"
    )
    alone = call("explain", LIFE, "--weights", "w.npz", "--heads", "2")
    assert "numbers are for other blocks and not used" in alone.out


X, W = np.arange(1.0, 16).reshape(3, 5) / 7, {n: np.eye(5, 7, i) for i, n in enumerate("qkv")}


@pytest.mark.parametrize(
    ("names", "turn"),
    [
        ("W{}", lambda w: w),
        ("{}_proj.weight", lambda w: w.T),
        ("h.0.attn.{}_proj.weight", lambda w: w.T),
        ("block.mha.{}.kernel", lambda w: w),
    ],
)
@pytest.mark.parametrize("own", [True, False])
def test_embeddings_and_weights_as_they_are_published(
    call: Call, tmp_path: Path, names: str, turn: Any, own: bool
) -> None:
    weights = {names.format(n): turn(w) for n, w in W.items()}
    np.savez(tmp_path / "a.npz", **{"x": X} | weights)
    np.save(tmp_path / "x.npy", X)
    flags = ["--embeddings", "a.npz"] if own else ["--embeddings", "x.npy", "--weights", "a.npz"]
    found = values(call, *flags)
    np.testing.assert_array_equal(found["embeddings"], X)
    assert "positions" not in found
    q, k, v = (X @ W[n] for n in "qkv")
    np.testing.assert_allclose(found["attention.q"][0], q)
    z = np.exp(q @ k.T / np.sqrt(7))
    np.testing.assert_allclose(found["attention.output"][0], z / z.sum(1, keepdims=True) @ v)
    assert "input" in values(call, *flags, "--positions", "paper")


def test_embeddings_bring_their_labels_or_those_of_the_sentence(call: Call, tmp_path: Path) -> None:
    def names(document: Any, *arguments: str) -> Any:
        (tmp_path / "x.json").write_text(json.dumps(document))
        found = call("explain", *arguments, "--embeddings", "x.json", "--format", "json")
        assert found.code == 0, found.err
        return stages(found.json)["tokens"]["labels"]["token"]

    x = X.tolist()
    assert names(x) == ["x1", "x2", "x3"]
    assert names({"x": x, "tokens": ["I", "love", "AI"]}) == ["I", "love", "AI"]
    assert names({"I": x[0], "love": x[1], "it": x[2]}) == ["I", "love", "it"]
    assert names(x, "a b a") == ["a", "b", "a"]
    assert names({"inputs": x}, "--tokens", "A,B,C") == ["A", "B", "C"]


def test_heads_of_the_weights_are_those_of_the_block(call: Call, tmp_path: Path) -> None:
    w = {f"w_{n}": np.stack([W[n], -W[n], 2 * W[n]]) for n in "qkv"}
    np.savez(tmp_path / "a.npz", **{"x": X} | w)  # type: ignore[arg-type]
    found = values(call, "--embeddings", "a.npz")
    np.testing.assert_allclose(found["attention.v"], [X @ W["v"], -X @ W["v"], 2 * X @ W["v"]])
    assert "3 heads." in call("explain", "--embeddings", "a.npz").out


@pytest.mark.parametrize("form", ["hugging", "packed"])
def test_a_layer_by_names_of_others(call: Call, tmp_path: Path, form: str) -> None:
    ours = random_weights("encoder", Dimensions(d_model=8, n_heads=2), seed=9)
    np.savez(tmp_path / "ours.npz", **ours)  # type: ignore[arg-type]
    at = "encoder.1.attention."
    theirs = {name: x for name, x in ours.items() if ".attention.w_" not in name}
    if form == "hugging":
        theirs |= {f"layers.0.self_attn.{n}_proj.weight": ours[f"{at}w_{n}"].T for n in "qkv"}
        theirs["layers.0.self_attn.out_proj.weight"] = ours[f"{at}w_o"].T
    else:
        theirs["h.0.attn.c_attn.weight"] = np.hstack([ours[f"{at}w_{n}"] for n in "qkv"])
        theirs["h.0.attn.c_proj.weight"] = ours[f"{at}w_o"]
    np.savez(tmp_path / "theirs.npz", **theirs)  # type: ignore[arg-type]
    flags = (LIFE, "--block", "encoder", "--heads", "2", "--weights")
    expected, found = values(call, *flags, "ours.npz"), values(call, *flags, "theirs.npz")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_what_a_file_of_embeddings_holds_besides_is_named(call: Call, tmp_path: Path) -> None:
    weights = {f"w_{n}": w.tolist() for n, w in W.items()}
    (tmp_path / "a.json").write_text(json.dumps({"x": X.tolist(), "maks": [[1]], **weights}))
    assert "a.json: not used: maks" in call("explain", "--embeddings", "a.json").err
    alone = call("explain", "--embeddings", "a.json", "--projection", "identity")
    assert "a.json: not used: w_q, w_k, w_v, maks" in alone.err
    (tmp_path / "m.json").write_text('{"mask": [[true, true, false]], "masks_of_others": [[1]]}')
    masked = call("explain", "a b c", "--mask", "m.json")
    assert (masked.code, "m.json: not used: masks_of_others" in masked.err) == (0, True)
    (tmp_path / "w.json").write_text(json.dumps({"x": X.tolist(), "mask": [[1]], **weights}))
    result = call("explain", "a b", "--weights", "w.json", "--dim", "5")
    assert result.out.count("w.json: not used: x, mask") == 1


def test_a_layer_and_its_input_in_one_file(call: Call, tmp_path: Path) -> None:
    weights = random_weights("encoder", Dimensions(d_model=5, d_ff=7), seed=9)
    np.savez(tmp_path / "a.npz", **{"x": X} | weights)  # type: ignore[arg-type]
    found = values(call, "--embeddings", "a.npz", "--block", "encoder")
    np.testing.assert_array_equal(
        found["encoder.1.feed_forward.w_1"], weights["encoder.1.feed_forward.w_1"]
    )
    padded = values(call, "--embeddings", "a.npz", "--pad-to", "5")
    np.testing.assert_array_equal(padded["embeddings"], np.vstack([X, np.zeros((2, 5))]))


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        ({"w_q": [[1]] * 5, "wq": [[1]] * 5}, "a.json: w_q and wq both mean w_q"),
        ({"w_q": [[1]] * 3}, "a.json: w_q is 3 × 1, expected 5 × any"),
        ({"w_q": 3}, "a.json, w_q is 3, not an array"),
        ({"w_q": [1]}, "a.json: w_q is 1, expected 5 × any"),
        ({"qkv": [[1, 2]] * 5}, "a.json: qkv (5 × 2) cannot be cut in three"),
    ],
)
def test_weights_that_do_not_fit_embeddings(
    call: Call, tmp_path: Path, weights: Any, says: str
) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"x": X.tolist()} | weights))
    result = call("explain", "--embeddings", "a.json")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert says in result.err


def test_made_up_weights_are_called_so(call: Call) -> None:
    assert "they show the arithmetic, not meaning" in call("explain", LIFE).out
    assert "made up (Glorot" not in call("explain", LIFE, "--projection", "identity").out


def test_the_identity_shows_the_bare_dot_products(call: Call) -> None:
    found = values(call, LIFE, "--projection", "identity", "--positions", "none", "--scale", "none")
    vectors = found["embeddings"]
    np.testing.assert_allclose(found["attention.scores"][0], vectors @ vectors.T, rtol=1e-12)
    encoder = values(call, LIFE, "--projection", "identity", "--block", "encoder", "--heads", "2")
    assert encoder["encoder.1.attention.residual"].shape == (7, 8)


@pytest.mark.parametrize(
    "flags",
    [
        ["--causal"],
        ["--window", "1,1"],
        ["--scale", "0.5"],
        ["--softcap", "2"],
        ["--softmax-over", "queries"],
        ["--dropout", "0.4", "--seed", "5"],
        ["--dtype", "bfloat16"],
        ["--pad-to", "13"],
        ["--heads", "2"],
        ["--target", "le fleuve"],
        ["--block", "encoder", "--dropout", "0.4", "--causal"],
    ],
)
def test_a_trace_feeds_compute(call: Call, flags: list[str]) -> None:
    first = call("explain", BANKS, *flags, "--format", "json")
    assert first.code == 0, first.err
    arguments = ("compute", "--q", "-", "--stage", "weights", "--format", "json")
    again = call(*arguments, stdin=first.out.encode())
    assert again.code == 0, again.err
    own = next(s for name, s in stages(first.json).items() if name.endswith("attention.weights"))
    assert again.json["steps"][0]["value"] == own["value"]
    assert again.json["steps"][0]["labels"] == own["labels"]


def test_a_layer_of_a_trace_feeds_compute(call: Call) -> None:
    flags = ("--block", "encoder", "--layers", "2", "--output", "trace.npz")
    assert call("explain", BANKS, *flags).code == 0
    result = call("compute", "--q", "trace.npz::encoder.2.attention", "--stage", "weights")
    assert result.code == 0, result.err
    assert '"bank" (5) attends to' in result.out


def test_a_mask(call: Call) -> None:
    keep = "[[true,false]]"
    assert values(call, "a b", "--mask", keep)["attention.weights"].tolist() == [[[1, 0], [1, 0]]]
    ignored = values(call, "a b", "--mask", keep, "--mask-means", "ignore")["attention.weights"]
    assert ignored.tolist() == [[[0, 1], [0, 1]]]
    added = values(call, "a b", "--mask", "[[0.0, 700.5]]")["attention.weights"]
    assert added[0, 0, 1] == pytest.approx(1)


def test_dropout_in_a_block_is_drawn_from_the_seed(call: Call) -> None:
    flags = (LIFE, "--block", "encoder", "--dropout", "0.5")
    one, two, other = (values(call, *flags, "--seed", s) for s in ("1", "1", "2"))
    name = "encoder.1.attention.sublayer_dropped"
    np.testing.assert_array_equal(one[name], two[name])
    assert ((one[name] == 0) != (other[name] == 0)).any()


@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_norms(call: Call, norm: str) -> None:
    found = values(call, LIFE, "--block", "encoder", "--norm", norm)
    names = [name.rpartition(".")[2] for name in found if name.startswith("encoder.1.attention.")]
    place = {"pre": names[2:9].count("norm"), "post": int(names[-1] == "norm"), "none": 1}
    assert place[norm] == 1
    assert ("norm" in names) == (norm != "none")
    assert ("encoder.norm" in found) == (norm == "pre")


def test_only_what_is_asked_for(call: Call) -> None:
    flags = ("--block", "encoder", "--layers", "3", "--heads", "2")
    result = call("explain", LIFE, *flags, "--stage", "encoder.2.attention.weights", "--head", "2")
    assert "encoder.2.attention" in result.out
    assert "6  weights" in result.out
    assert "encoder.1" not in result.out
    assert "tokens" not in result.out.split("\n", 3)[3]


def test_many_layers_and_heads_show_the_first_and_say_how_to_see_the_rest(call: Call) -> None:
    flags = ("--block", "encoder", "--layers", "3", "--heads", "2")
    short, full = call("explain", LIFE, *flags).out, call("explain", LIFE, *flags, "--full").out
    assert "2 to 3  like layer 1, each with weights of its own" in short
    assert "shown: layer 1 of 3 and head 1 of 2; the rest: --stage" in short
    assert "(encoder.1.attention)" in short
    assert "(encoder.2.attention)" not in short
    assert "(encoder.3.attention)" in full
    assert "head 2 of 2" in full
    second = call("explain", LIFE, *flags, "--head", "2").out
    assert "head 2 of 2" in second
    assert "head 1 of 2" not in second


def test_one_weight_is_derived(call: Call) -> None:
    result = call("explain", BANKS, "--cell", "5,river", "--block", "encoder", "--layers", "2")
    assert result.out.count('How "bank" attends to "river"') == 1


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_the_outline_has_no_numbers(call: Call, form: str) -> None:
    result = call("explain", LIFE, "--outline", "--format", form)
    assert result.code == 0
    assert "S = Q Kᵀ" in result.out
    assert "q2" not in result.out
    assert "0.1" not in result.out


FORMS = ["json", "csv", "tsv", "markdown", "mermaid", "npz", "npy", "table"]


@pytest.mark.parametrize("form", FORMS)
def test_every_format(call: Call, form: str, tmp_path: Path) -> None:
    result = call("explain", LIFE, "--format", form, "--output", "out")
    assert (result.code, result.out) == (0, "")
    assert (tmp_path / "out").stat().st_size > 100


@pytest.mark.parametrize("block", ["attention", "encoder", "decoder"])
@pytest.mark.parametrize("heads", ["1", "2"])
def test_two_thousand_words_are_elided_and_quick(call: Call, block: str, heads: str) -> None:
    sentence = " ".join(f"word{i % 700}" for i in range(2000))
    target = ["--target", "le mot"] if block == "decoder" else []
    start = time.process_time()
    result = call("explain", sentence, "--block", block, "--heads", heads, *target)
    assert time.process_time() - start < 20
    assert result.code == 0, result.err
    assert "left out: 1984 rows" in result.out
    assert result.out.count("\n") < 1200


WRONG = [
    ([], "there is no sentence"),
    ([""], "the sentence is empty"),
    (["  "], "the sentence is empty"),
    (["a", "--target", ""], "--target: the sentence is empty"),
    (["a", "--tokens", "b"], "both a sentence and --tokens"),
    (["--tokens", "a,,b"], "--tokens holds an empty token"),
    (["--tokens", "[1, 2]"], "no JSON list of strings"),
    (["--tokens", "[]"], "no JSON list of strings"),
    (["a b c", "--pad-to", "2"], "3 tokens cannot be padded to 2"),
    (["a", "--pad-to", "10000000"], "are free"),
    (["a", "--dim", "1000000"], "the weights of these widths need"),
    (["a", "--layers", "100000000", "--block", "encoder"], "scores in 100000000 layers need"),
    (["a", "--heads", "3"], "does not divide into 3 heads"),
    (["a", "--kv-heads", "3", "--heads", "2"], "share 3 key heads"),
    (["a", "--layers", "2"], "--layers has no effect without --block encoder or decoder"),
    (["a", "--d-ff", "2"], "--d-ff has no effect without --block encoder or decoder"),
    (["a", "--d-ff", "0"], "--d-ff has no effect without --block encoder or decoder"),
    (["a", "--norm", "pre"], "--norm has no effect without --block encoder or decoder"),
    (["a", "--block", "decoder"], "--block decoder needs what it decodes"),
    (["a", "--block", "encoder", "--target", "b"], "--target cannot be used with --block encoder"),
    (
        ["a", "--block", "decoder", "--target", "b", "--causal"],
        "--causal cannot be used with --block decoder",
    ),
    (["a", "--block", "decoder", "--target", "b", "--mask", "[[true]]"], "a decoder's three"),
    (["a", "--mask-means", "keep"], "without --mask"),
    (["a b", "--mask", "[[1, 0]]"], "say what 1 means"),
    (["a b", "--mask", "[[true, true, false]]"], "the mask (1 × 3)"),
    (["a", "--unknown", "zero"], "--unknown has no effect without --glove"),
    (["a", "--glove", "none.txt"], "none.txt does not exist"),
    (["a b", "--embeddings", "[[1, 2]]"], "the inline literal has 1 row for 2 tokens"),
    (["--embeddings", "[[[1, 2]]]"], "x is 1 × 1 × 2; explain takes one sentence"),
    (["--embeddings", "[[1, 2]]", "--glove", "a=1"], "--embeddings cannot be used with --glove"),
    (["--embeddings", "[[1, 2]]", "--dim", "2"], "--embeddings cannot be used with --dim"),
    (["--embeddings", "[[1, 2]]", "--target", "b"], "--embeddings cannot be used with --target"),
    (["--embeddings", "[[1, 2], [3]]"], "row 2 has 1 entry"),
    (["--embeddings", '{"x": [[1, 2]], "w_q": [[1], [2]]}'], "the weights hold no attention.w_k"),
    (["a", "--glove", "a=1,2", "--dim", "3"], "--dim is 3, but the vectors have 2"),
    (["b", "--glove", "a=1,2", "--unknown", "error"], "has no vector for 'b'"),
    (["a", "--weights", "none.npz"], "none.npz"),
    (["a", "--weights", "[[1.0]]"], "one matrix without a name"),
    (["a", "--weights", str(SAMPLES / "heads.json")], "no weights called 'q'"),
    (["a", "--weights", str(SAMPLES / "weights.json")], "w_q is 4 × 2, expected 8"),
    (
        ["a", "--projection", "identity", "--weights", "w.npz"],
        "--weights cannot be used with --projection",
    ),
    (["a", "--projection", "identity", "--d-k", "2"], "--d-k cannot be used with --projection"),
    (["a", "--stage", "nothing"], "there is no stage 'nothing'"),
    (["a", "--head", "2"], "there is no head 2"),
    (["a", "--cell", "a,b"], "there is no key 'b'"),
    (["bank bank", "--cell", "bank,1"], "more than one query is called 'bank'"),
    (["a", "--outline", "--format", "json"], "--outline has no effect on json"),
    (["a", "--outline", "--format", "mermaid"], "--outline has no effect on mermaid"),
    (["a", "--outline", "--work"], "--outline cannot be used with --work"),
    (["a", "--format", "mermaid", "--work"], "--work has no effect on mermaid"),
    (["a", "--causal-align", "bottom-right"], "--causal-align has no effect without"),
    (["a", "--dropout", "1"], "dropout is 1.0"),
    (["a", "--dim", "0"], "greater than or equal to 1"),
    (["a", "b"], "unexpected extra argument"),
]


@pytest.mark.parametrize(("arguments", "says"), WRONG)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    call: Call, arguments: list[str], says: str
) -> None:
    result = call("explain", *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.count("\n") == 1
    assert result.err.startswith("attncli: ")
    assert says in result.err


@pytest.mark.parametrize("token", ["[red]x[/]", "\x1b[31mx", "a\nb", '"]; click', "<script>"])
@pytest.mark.parametrize("form", ["table", "markdown", "mermaid", "csv"])
def test_no_token_acts(call: Call, token: str, form: str) -> None:
    result = call("explain", "--tokens", json.dumps([token, "b"]), "--format", form)
    assert result.code == 0, result.err
    assert "\x1b" not in result.out
    if form in {"markdown", "mermaid"}:
        assert "<script>" not in result.out
    if form == "mermaid":
        assert all(line.count('"') in {0, 2} for line in result.out.splitlines())


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("w_o", [[1, 2], [3]], "w.json, w_o: row 2 has 1 entry, row 1 has 2"),
        ("w_o", "oops", "w.json, w_o is the text 'oops', not an array"),
        ("b_q", "x", "w.json, b_q is the text 'x', not an array"),
        ("self_attn.out_proj.weight", {}, "w.json, self_attn.out_proj.weight is an object"),
    ],
)
def test_weights_that_cannot_be_read_are_refused(
    call: Call, tmp_path: Path, name: str, value: Any, error: str
) -> None:
    eye = [[1, 0], [0, 1]]
    weights = {"w_q": eye, "w_k": eye, "w_v": eye, name: value, "title": "mine"}
    (tmp_path / "w.json").write_text(json.dumps(weights))
    result = call("explain", "a b", "--dim", "2", "--weights", "w.json")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"attncli: {error}")


@pytest.mark.parametrize("dim", ["30000000", "1000000000", "9223372036854775807", "1" + "0" * 30])
def test_vectors_that_do_not_fit_are_refused_before_they_are_drawn(call: Call, dim: str) -> None:
    tracemalloc.start()
    result = call("explain", "a b", "--dim", dim)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("attncli: the weights of these widths need ")
    assert peak < 30e6


ENCODER = ("I love AI", "--dim", "4", "--block", "encoder", "--d-ff", "4")


def test_the_cell_of_a_norm_is_derived_from_mean_and_deviation(call: Call) -> None:
    out = call("explain", *ENCODER, "--stage", "attention.norm", "--cell", "love,2").out
    assert "How N₁[love,2] is computed" in out
    assert re.findall(r"^\d+ +(\w+) +[μσN]", out, re.MULTILINE) == ["mean", "deviation", "norm"]
    assert "N₁[love,2] = γ[2]·(R₁[love,2] - μ[love]) / √(σ[love]² + ε) + β[2]" in out


def test_the_arithmetic_of_a_layer(call: Call) -> None:
    out = call("explain", *ENCODER, "--work", "--head", "1").out
    for left in ("X[I,1] = E[I,1] + PE[pos 0,1] =", "Q[I,1] =", "K[I,1] =", "V[I,1] =", "Y[I,1] ="):
        assert f"  {left}" in out
    for left in ("R₁[I,1] = X[I,1] + Y[I,1] =", "μ[I] = (", "σ[I] = √((", "G[I,1] = max(0, "):
        assert f"  {left}" in out
    assert "  R₂[I,1] = N₁[I,1] + F[I,1] =" in out
    assert out.count("  cos(I, love) = (") == 2
    assert out.count('softmax of "I": the largest score, ') == 1


def test_epsilon(call: Call) -> None:
    norm = ("--stage", "attention.norm", "--precision", "17", "--format", "csv")
    assert "ε = 1e-5" in call("explain", *ENCODER).out
    assert "ε = 0.5" in call("explain", *ENCODER, "--eps", "0.5").out
    lines = call("explain", *ENCODER, *norm, "--eps", "0").out.splitlines()
    plain = np.array([line.split(",")[1:] for line in lines[1:]], dtype=float)
    assert plain.shape == (3, 4)
    np.testing.assert_allclose(plain.mean(axis=-1), 0, atol=1e-12)
    np.testing.assert_allclose(plain.std(axis=-1), 1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--eps", "1"), "--eps has no effect without --block encoder or decoder"),
        (
            ("--block", "encoder", "--norm", "none", "--eps", "1"),
            "--eps cannot be used with --norm none",
        ),
        (("--block", "encoder", "--eps", "-1"), "--eps is -1; use a number from 0"),
        (("--block", "encoder", "--eps", "nan"), "--eps is nan; use a number from 0"),
    ],
)
def test_an_epsilon_that_cannot_be(call: Call, flags: tuple[str, ...], message: str) -> None:
    result = call("explain", "a b", *flags)
    assert result.code == 2
    assert message in result.err


def test_a_target_has_letters_of_its_own(call: Call) -> None:
    out = call("explain", "a b", "--block", "decoder", "--target", "c", "--outline").out
    for formula in ("X = E + PE", "X_t = E_t + PE", "Q = X_t W_q", "K = C W_k", "R₃ = X_t + Y"):
        assert formula in out
    assert "C, from which keys and values are computed, is N₂, the encoder's output" in out


@pytest.mark.parametrize(
    ("call_of", "at"),
    [
        (["The man <PADDING>"], [2]),
        (["<pad> The [PAD] man"], [0, 2]),
        (["--tokens", "The,man,<pad>", "--pad-to", "5"], [2, 3, 4]),
    ],
)
def test_padding_in_a_sentence_is_a_token_that_is_masked(
    call: Call, call_of: list[str], at: list[int]
) -> None:
    weights = values(call, *call_of)["attention.weights"]
    assert (weights[..., at] == 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1)
    embeddings = values(call, *call_of)["embeddings"]
    assert (embeddings[at] == 0).all()
    assert " masked: every weight is 0" in call("explain", *call_of).out


def test_padding_of_a_target_is_masked_in_its_own_attention(call: Call) -> None:
    flags = ["a b <pad>", "--target", "c d <pad> e", "--block", "decoder", "--dim", "4"]
    found = values(call, *flags)
    assert (found["encoder.1.attention.weights"][..., 2] == 0).all()
    assert (found["decoder.1.attention.weights"][..., 2] == 0).all()
    assert (found["decoder.1.cross_attention.weights"][..., 2] == 0).all()


def test_positions_may_be_learned(call: Call) -> None:
    found = values(call, "a b", "--dim", "3", "--positions", "[[1,2,3],[4,5,6],[7,8,9]]")
    np.testing.assert_array_equal(found["positions"], [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_allclose(found["input"], found["embeddings"] + found["positions"])
    for flags, says in (
        (["--dim", "2", "--positions", "[[1,2,3],[4,5,6]]"], "the positions are 2 × 3, but there"),
        (["--dim", "2", "--positions", "[[1,2]]"], "give a row for each position: 2 × 2"),
        (["--positions", "learned"], "--positions is 'learned'; use paper, article, none, or"),
        (["--positions", "[[[1]]]"], "has 3 dimensions"),
    ):
        result = call("explain", "a b", *flags)
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert says in result.err
