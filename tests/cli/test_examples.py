"""attncli examples: the list, one example, all of them, and somebody else's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import SAMPLES, Call

MINE = SAMPLES / "my-examples.json"
WORDS = SAMPLES / "words.txt"


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("", [*(f"(document 00{number})" for number in range(5)), "004-first-example"]),
        ("004-first-example", ["query 1: differs", "the scale was left out", "[0.4223, 0.4223, 0.1554]"]),
        ("004-first-example --stage weights", ["q1  0.4011  0.4011  0.1978  1"]),
        ("why-scale", ["printed  [1, 2, 4, 8, 16]", "claimed  below 0.4", "--sweep d_k"]),
        ("003-yogurt --query Yogurt", ["Mango", "69.59", "share·V1"]),
        ("004-second-example --format markdown", ["| claim | printed |", "differs"]),
        ("--verify", ["ok ", "needs ", "each as recorded"]),
        ("004 --verify", ["12 examples, each as recorded: 17 reproduced, 3 agree as rounded, 7 differ"]),
        (f"--verify --file {MINE}", ["ok "]),
        (f"exercise-2 --file {MINE} --glove {WORDS}", ["cosine: agrees as rounded"]),
    ],
)  # fmt: skip
def test_what_is_shown(call: Call, line: str, texts: list[str]) -> None:
    done = call("examples", *line.split())
    assert (done.code, done.err) == (0, "")
    assert [text for text in texts if text not in done.out] == []


def test_json_is_for_scripts(call: Call) -> None:
    document = call("examples", "--verify", "--format", "json").json
    assert document["ok"] is True
    verdicts = {claim["verdict"] for own in document["examples"] for claim in own["claims"]}
    known = {"reproduced", "agrees as rounded", "differs", "not printed", "needs --glove FILE"}
    assert verdicts == known


def test_the_begin_of_names_lists_those(call: Call) -> None:
    whole, part = (call("examples", *name).out.splitlines() for name in ([], ["004"]))
    names = [line.split()[0] for line in whole if line.startswith("  004")]
    assert [line.split()[0] for line in part[1:]] == names
    assert len(names) == 12


def test_vectors_that_no_example_needs_are_noted(call: Call) -> None:
    done = call("examples", "003-cosines", "--glove", WORDS)
    assert (done.code, "--glove" in done.err, done.err.count("\n")) == (0, True, 1)


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
    for flags in (
        ["red[31m"],
        ["exercise-1", "--stage", "dots"],
        ["exercise-1", "--glove", "words.txt"],
    ):
        done = call("examples", *flags, "--file", "mine.json")
        assert (done.code, "\\x1b[31m'" in done.err) == (2, True)
        assert done.err.strip().isprintable()
