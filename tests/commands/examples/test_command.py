"""attncli examples: what they show, verified, and those of a file."""

import json
import re
from pathlib import Path

import pytest

from tests.calls import ROOT, SAMPLES, Call, arguments_of

THREE = f"--q {SAMPLES / 'three-tokens.json'}"
MINE, WORDS = SAMPLES / "my-examples.json", SAMPLES / "words.txt"
FAMILY = "king=0.9,0.5,0.1 queen=0.2,0.5,0.1 dad=0.9,0.7,0.9 mom=0.2,0.7,0.9"


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("examples", [*(f"(document 00{number})" for number in range(5)), "004-first-example"]),
        ("examples 004-first-example --stage weights", ["q1  0.4011  0.4011  0.1978  1"]),
        ("examples 004-second-example --format markdown", ["| claim | basis | expected |", "differs"]),
        ("examples why", ["claimed     [1, 2, 4, 8, 16]", "shown here  below 0.4", "--sweep d_k"]),
        ("examples 003-yogurt --query Yogurt", ["Mango", "69.59", "share·V1"]),
        ("examples --verify", ["ok ", "needs ", "each as recorded"]),
        ("examples 004 --verify", ["12 examples, each as recorded", "  printed     6 reproduced, 3 agree as rounded, 7 differ"]),
        (f"examples --verify --file {MINE}", ["ok "]),
        (f"examples exercise-2 --file {MINE} --glove {WORDS}", ["cosine: agrees as rounded"]),
    ],
)  # fmt: skip
def test_what_is_shown(call: Call, line: str, texts: list[str]) -> None:
    done = call(*arguments_of(line))
    assert (done.code, done.err) == (0, "")
    assert [text for text in texts if text not in done.out] == []


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
    claims = [{"claim": "", "stage": "dots"}]
    changes = {"run": "similarity nowhere --glove \x1b[31m", "needs": "\x1b[31m", "claims": claims}
    document["examples"][0] |= changes
    Path("mine.json").write_text(json.dumps(document))
    Path("words.txt").write_text("other 1 2\n")
    for flags in ("red[31m", "exercise-1 --stage dots", "exercise-1 --glove words.txt"):
        done = call("examples", *flags.split(), "--file", "mine.json")
        assert (done.code, "\\x1b[31m'" in done.err) == (2, True)
        assert done.err.strip().isprintable()


def test_the_file_of_the_manual(call: Call) -> None:
    """σ(1/√2) is 0.67, σ(1) is 0.73: weights and outputs of two values 10 apart."""
    manual = (ROOT / "attncli" / "help" / "learning.md").read_text("utf-8")
    (text,) = re.findall(r"```json\n(.*?)```", manual, re.DOTALL)
    Path("sheet.json").write_text(text)
    done = call("examples", "causal", "--file", "sheet.json", "--verify")
    assert (done.code, done.err) == (0, "")
    assert "weights of token 2: agrees as rounded" in done.out
    assert "without the scale: [2.6894, 7.3106]" in done.out
