"""attncli posenc, similarity, examples and semantics: what they show, their data and their notes."""

import json
from math import cos, sin
from pathlib import Path

import numpy as np
import pytest

from attncli import attend
from attncli.presets import PRESETS

from .conftest import SAMPLES, Call, stages
from .test_wrong_calls import arguments_of

THREE = f"--q {SAMPLES / 'three-tokens.json'}"
MINE, WORDS = SAMPLES / "my-examples.json", SAMPLES / "words.txt"
FAMILY = "king=0.9,0.5,0.1 queen=0.2,0.5,0.1 dad=0.9,0.7,0.9 mom=0.2,0.7,0.9"


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("posenc --len 5 --dim 4 --cell 2,3", ["w[λ628] = 10000^(2/4)", "= cos(0.02)", "= 0.9998"]),
        ("posenc --len 5 --dim 4 --cell 'pos 2,cos λ628'", ["= cos(0.02)"]),
        ("posenc --len 2 --dim 5", ["5 is odd"]),
        ("posenc --len 2 --dim 4 --exponent article", ["4i/d"]),
        ("similarity dad=0.9,0.7,0.9 mom=0.2,0.7,0.9", [
            "dad · mom = 0.9·0.2 + 0.7·0.7 + 0.9·0.9 = 1.48", "‖dad‖ = √(0.9² + 0.7² + 0.9²) = 1.4526",
            "= 1.48 / (1.4526·1.1576) = 0.8802", "arccos(0.8802) = 28.3367°"]),
        ("similarity a=1,2 b=2,4 c=-2,1 --stage angles",
         ["  a       0       0      90", "  c      90      90       0"]),
        (f"similarity --analogy king queen dad --vectors {WORDS}", ["  mom"]),
        (f"similarity {FAMILY} --analogy king queen dad --stage analogy --format csv --precision 1", ["0.2,0.7,0.9"]),
        (f"similarity bank --nearest 2 --vectors {WORDS} --stage nearest --format csv", ["river"]),
        ("similarity a=3,0 b=-3,0 c=0,1 d=0,-1 --pca --stage shares --format csv --precision 1", ["0.9,0.1"]),
        ("similarity a=1,2 b=2,1 --stage lengths --format csv --precision 2", ["‖a‖,2.24,2.24"]),
        (  # weights of one layer under a name of its own
            "explain 'a b' --dim 2 --weights '{\"blk.0.attn\": {\"wq\": [[1,0],[0,1]], \"wk\": [[1,0],[0,1]], \"wv\": [[1,0],[0,1]]}}'",
            ["W_q 2 × 2 · W_k 2 × 2 · W_v 2 × 2"],
        ),
        ("examples", [*(f"(document 00{number})" for number in range(5)), "004-first-example"]),
        ("examples 004-first-example --stage weights", ["q1  0.4011  0.4011  0.1978  1"]),
        ("examples 004-second-example --format markdown", ["| claim | basis | expected |", "differs"]),
        ("examples why", ["claimed     [1, 2, 4, 8, 16]", "shown here  below 0.4", "--sweep d_k"]),
        ("examples 003-yogurt --query Yogurt", ["Mango", "69.59", "share·V1"]),
        ("examples --verify", ["ok ", "needs ", "each as recorded"]),
        ("examples 004 --verify", ["12 examples, each as recorded", "  printed     6 reproduced, 3 agree as rounded, 7 differ"]),
        (f"examples --verify --file {MINE}", ["ok "]),
        (f"examples exercise-2 --file {MINE} --glove {WORDS}", ["cosine: agrees as rounded"]),
        ("semantics", [f"\n  {name} " for name in PRESETS]),
        ("semantics torch-mha", ["torch.nn.MultiheadAttention", "run: torch 2.13.0", "--mask-means ignore"]),
        (f"semantics {THREE} --mask MASK", ["no key: mean of V\n  jax", "in q2", "Not shown", "3 queries"]),
        (f"semantics {THREE} --mask MASK --format svg", ["apart"]),
        (f"semantics {THREE} --mask [[0,1,1]]", ["numbers 0, 1: 1 may attend"]),
        (f"semantics --x {SAMPLES / 'homework.json'} --causal", ["scale: 1/√d_k"]),
        (f"compute {THREE} --mask MASK --semantics jax --empty-rows zero",
         ["as jax has it but for --empty-rows zero", "q2: every key is masked; each weight is 0"]),
        ("explain 'a b' --mask '[[true,false],[false,false]]' --semantics mlx --stage weights",
         ["as mlx has it", "50.0 % each"]),
    ],
)  # fmt: skip
def test_what_is_shown(call: Call, line: str, texts: list[str]) -> None:
    done = call(*arguments_of(line))
    assert (done.code, done.err) == (0, "")
    assert [text for text in texts if text not in done.out] == []
    assert "similarity" not in line or "e-" not in done.out


# ---- posenc, similarity, examples


@pytest.mark.parametrize(
    ("line", "stage", "row"),
    [
        ("--add [[0,0,0,0],[0.5,0.2,0.3,0.1]]", "input",
         [sin(1) + 0.5, cos(1) + 0.2, sin(0.01) + 0.3, cos(0.01) + 0.1]),
        ("--kind rope --apply [[0,0,0,0],[1,2,3,4]] --layout halves", "rotated", [
            cos(1) - 3 * sin(1), 2 * cos(0.01) - 4 * sin(0.01),
            sin(1) + 3 * cos(1), 2 * sin(0.01) + 4 * cos(0.01)]),
        ("--kind rope --apply [[0,0,0,0],[1,2,3,4]] --layout interleaved", "rotated", [
            cos(1) - 2 * sin(1), sin(1) + 2 * cos(1),
            3 * cos(0.01) - 4 * sin(0.01), 3 * sin(0.01) + 4 * cos(0.01)]),
    ],
)  # fmt: skip
def test_positions_and_turned_vectors(call: Call, line: str, stage: str, row: list[float]) -> None:
    table = stages(call("posenc", *line.split(), "--format", "json").json)[stage]
    np.testing.assert_allclose(table[1], row, atol=1e-15)


def test_tables_feed_compute(call: Call) -> None:
    turned = ("--kind", "rope", "--apply", SAMPLES / "heads.json", "--output", "turned.npz")
    assert call("posenc", *turned).code == 0
    flags = ("--q", "turned.npz::queries.rotated", "--k", "turned.npz::keys.rotated")
    assert call("compute", *flags, "--quiet", "--format", "csv").code == 0
    alibi = ("--kind", "alibi", "--heads", "4", "--len", "3", "--output", "bias.npy")
    assert call("posenc", *alibi).code == 0
    bias = np.load("bias.npy")
    assert bias[0, 2].tolist() == [-0.5, -0.25, 0.0]  # slope 2^(−8/4) = 1/4, ALiBi section 3
    q = np.random.default_rng(3).normal(size=(4, 3, 2))
    np.save("q.npy", q)
    done = call("compute", "--q", "q.npy", "--mask", "bias.npy", "--quiet", "--format", "json")
    expected = attend(q, q, q, mask=bias)["output"].value
    np.testing.assert_array_equal(stages(done.json)["output"], expected)


def test_forms_of_vectors(call: Call) -> None:
    plain = call("similarity", "king=0.5,2", "dad=1,-0.25")
    assert plain.code == 0
    assert call("similarity", "king=[1/2, 2]", "dad=(1,-.25)") == plain


def test_notes_on_words(call: Call) -> None:
    folded = call("similarity", "King", "dad", "--vectors", WORDS)
    assert (folded.code, "'King', only 'king'" in folded.err) == (0, True)
    unused = call("examples", "003-cosines", "--glove", WORDS)
    assert (unused.code, "--glove" in unused.err, unused.err.count("\n")) == (0, True, 1)
    wide = [f"{word}={','.join(['1', *['0'] * 19, str(at)])}" for at, word in enumerate("abc")]
    short = call("similarity", *wide)
    assert ("too wide: 1 vectors" in short.err, "1  vectors" in short.out) == (True, False)
    assert "1  vectors" in call("similarity", *wide, "--full").out
    assert call("similarity", *wide, "--format", "json").json["steps"][0]["name"] == "vectors"


def test_verified_examples_are_json_for_scripts(call: Call) -> None:
    document = call("examples", "--verify", "--format", "json").json
    assert document["ok"] is True
    verdicts = {claim["verdict"] for own in document["examples"] for claim in own["claims"]}
    known = {
        "agrees",
        "reproduced",
        "agrees as rounded",
        "differs",
        "not printed",
        "needs --glove FILE",
    }
    assert verdicts == known


def test_examples_of_a_file(call: Call) -> None:
    document = json.loads(MINE.read_text())
    weights, output = document["examples"][0]["claims"]
    weights["printed"] = ["0.76", "0.33"]
    Path("changed.json").write_text(json.dumps(document))
    done = call("examples", "--verify", "--file", "changed.json")
    assert (done.code, done.err, "FAILED" in done.out) == (1, "", True)
    weights["printed"] = ["0.7", "0.3"]
    del output["ways"], output["verdict"]
    Path("mine.json").write_text(json.dumps(document))
    out = call("examples", "exercise-1", "--file", "mine.json").out
    assert "from the printed weights: [7, 3]" in out  # v is [[10, 0], [0, 10]]


def test_names_of_a_file_do_nothing_on_the_screen(call: Call) -> None:
    document = json.loads(MINE.read_text())
    document["examples"][1]["name"] = "red\x1b[31m"
    inputs = {"glove": {"words": ["nowhere"], "file": "\x1b[31m"}}
    claims = [{"claim": "", "stage": "dots"}]
    document["examples"][0] |= {"compute": "similarity", "inputs": inputs, "claims": claims}
    Path("mine.json").write_text(json.dumps(document))
    Path("words.txt").write_text("other 1 2\n")
    for flags in ("red[31m", "exercise-1 --stage dots", "exercise-1 --glove words.txt"):
        done = call("examples", *flags.split(), "--file", "mine.json")
        assert (done.code, "\\x1b[31m'" in done.err) == (2, True)
        assert done.err.strip().isprintable()


# ---- semantics


def test_every_format_holds_what_libraries_mean(call: Call) -> None:
    for form in ("json", "csv", "tsv", "markdown", "html", "latex", "npz"):
        for words in ([], ["jax"], ["torch-mha", "torch-sdpa"]):
            flags = ("--format", form, "--output", f"out.{form}", "--force")
            done = call("semantics", *words, *flags)
            assert (done.code, done.err) == (0, "")
            assert Path(f"out.{form}").stat().st_size > 100


def test_data_of_libraries(call: Call) -> None:
    lines = [line.split(",") for line in call("semantics", "--format", "csv").out.splitlines()]
    assert (lines[0][1], len(lines)) == ("true", len(PRESETS) + 1)
    (step,) = call("semantics", "jax", "--format", "json").json["steps"]
    cells = dict(zip(step["labels"]["case"], step["value"], strict=True))
    assert (step["name"], step["dtype"]) == ("library", "str")
    assert cells["no key by −∞"] == ["NaN", "zeros"]
    groups = call(*arguments_of(f"semantics {THREE} --mask MASK --format json")).json
    assert [step["name"] for step in groups["steps"]] == ["outcomes", "apart"]


def test_a_trace_records_the_values_not_the_name(call: Call) -> None:
    line = f"compute {THREE} --mask MASK --semantics torch-mha --format json"
    convention = call(*arguments_of(line)).json["convention"]
    names = ("mask_means", "empty_rows", "mask_and_causal")
    assert [str(convention[name]).lower() for name in names] == ["ignore", "nan", "mask"]
    assert "semantics" not in convention
    file = '{"q": [[1,0],[0,1]], "scale": 0.5, "mask": [[true,false],[false,false]]}'
    convention = call("compute", file, "--semantics", "jax", "--format", "json").json["convention"]
    assert (convention["scale"], convention["empty_rows"]) == (
        0.5,
        "uniform",
    )  # what a file says is kept
