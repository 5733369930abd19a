"""attncli examples: the list, one example, all of them, and somebody else's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import SAMPLES, Call

MINE = SAMPLES / "my-examples.json"


def test_the_list_names_all_five_documents(call: Call) -> None:
    out = call("examples").out
    for number in range(5):
        assert f"(document 00{number})" in out
    assert "004-first-example" in out


def test_a_known_mistake_is_explained_and_computed_the_wrong_way_too(call: Call) -> None:
    out = call("examples", "004-first-example").out
    assert "weights of query 1: differs" in out
    assert "the scale was left out" in out
    assert "without the scale: [0.4223, 0.4223, 0.1554]" in out


def test_verify_passes_with_one_line_each(call: Call) -> None:
    result = call("examples", "--verify")
    assert result.code == 0
    lines = result.out.splitlines()
    assert all(line.startswith(("ok ", "needs ")) for line in lines[:-2])
    assert "each as recorded" in lines[-1]


def test_verify_of_a_file(call: Call) -> None:
    assert call("examples", "--verify", "--file", MINE).code == 0


def test_what_does_not_come_out_as_recorded_ends_with_1(call: Call, tmp_path: Path) -> None:
    document = json.loads(MINE.read_text())
    document["examples"][0]["claims"][0]["printed"] = ["0.76", "0.33"]
    (tmp_path / "changed.json").write_text(json.dumps(document))
    result = call("examples", "--verify", "--file", "changed.json")
    assert result.code == 1
    assert result.err == ""
    assert "FAILED" in result.out
    assert "not all as recorded" in result.out


def test_markdown_is_an_errata_table(call: Call) -> None:
    lines = call("examples", "004-second-example", "--format", "markdown").out.splitlines()
    header = lines.index("| claim | printed | recomputed | verdict | why |")
    assert all(line.count("|") >= 6 for line in lines[header:])
    assert any("differs" in line for line in lines[header:])


def test_json_is_for_scripts(call: Call) -> None:
    document = call("examples", "--verify", "--format", "json").json
    assert document["ok"] is True
    verdicts = {c["verdict"] for e in document["examples"] for c in e["claims"]}
    assert verdicts == {
        *("reproduced", "agrees as rounded", "differs", "not printed", "needs --glove FILE")
    }


def test_the_begin_of_names_lists_those(call: Call) -> None:
    whole, part = call("examples").out, call("examples", "004").out
    names = [line.split()[0] for line in whole.splitlines() if line.startswith("  004")]
    assert [line.split()[0] for line in part.splitlines()[1:]] == names
    assert len(names) == 6
    verdicts = call("examples", "004", "--verify").out
    assert [line.split()[1] for line in verdicts.splitlines()[:6]] == names
    assert "6 examples, each as recorded: 6 reproduced, 3 agree as rounded, 7 differ" in verdicts


def test_vectors_that_no_example_needs_are_noted(call: Call) -> None:
    words = str(SAMPLES / "words.txt")
    result = call("examples", "003-cosines", "--glove", words)
    what = f"attncli: note: --glove {words} is not used: 003-cosines needs no file of vectors\n"
    assert (result.code, result.err) == (0, what)
    mine = call("examples", "exercise-2", "--file", MINE, "--glove", words)
    assert (mine.code, mine.err) == (0, "")
    assert "cosine: agrees as rounded" in mine.out


def test_stages_show_the_computation(call: Call) -> None:
    out = call("examples", "004-first-example", "--stage", "weights").out
    assert "q1  0.4011  0.4011  0.1978  1" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["004-frist-example"], "no example '004-frist-example'; did you mean 004-first-example"),
        (["zzz"], "there is no example 'zzz'; attncli examples lists all"),
        (
            ["004", "--stage", "weights"],
            "--stage has no effect on the list of examples; name an ex",
        ),
        (["--work"], "--work has no effect on the list of examples"),
        (["--cell", "1,1", "--format", "json"], "--cell"),
        (["--precision", "0"], "--precision has no effect on the list"),
        (["--no-heatmap"], "heatmap has no effect on the list"),
        (["--color", "always"], "--color has no effect on the list"),
        (["--output", "list.md"], "the format markdown has no effect on the list"),
        (["--verify", "--stage", "weights"], "--verify cannot be used with --stage"),
        (["--format", "csv"], "the format csv has no effect on the list"),
        (["003-cosines", "--format", "npz"], "npz holds stages, not verdicts"),
        (["--file", "missing.json"], "missing.json"),
        (["--file", str(SAMPLES / "mask.json")], "mask.json"),
        (["--glove", "x.txt"], "--glove has no effect on the list"),
        (["000-pca", "--stage", "coordinates"], "000-pca needs glove.6B.100d.txt"),
        (["000-pca", "--glove", "missing.txt"], "missing.txt"),
    ],
)
def test_what_is_refused(call: Call, arguments: Any, says: str) -> None:
    result = call("examples", *arguments)
    assert (result.code, result.out) == (2, ""), result.err
    assert result.err.count("\n") == 1
    assert says in result.err


def test_names_of_a_file_do_nothing_on_the_screen(call: Call, tmp_path: Path) -> None:
    document = json.loads(MINE.read_text())
    document["examples"][0]["name"] = "red\x1b[31m"
    (tmp_path / "mine.json").write_text(json.dumps(document))
    result = call("examples", "red[31m", "--file", "mine.json")
    assert result.code == 2
    assert "did you mean 'red\\x1b[31m'" in result.err
    assert result.err.strip().isprintable()


def test_the_name_of_a_vector_file_does_nothing_on_the_screen(call: Call, tmp_path: Path) -> None:
    document = json.loads(MINE.read_text())
    inputs = {"glove": {"words": ["nowhere"], "file": "\x1b[31m"}}
    document["examples"][0] |= {
        "compute": "similarity",
        "inputs": inputs,
        "claims": [{"claim": "", "stage": "dots"}],
    }
    (tmp_path / "mine.json").write_text(json.dumps(document))
    (tmp_path / "words.txt").write_text("other 1 2\n")
    mine = ["exercise-1", "--file", "mine.json"]
    for more in (["--stage", "dots"], ["--glove", "words.txt"]):
        result = call("examples", *mine, *more)
        assert result.code == 2
        assert "'\\x1b[31m'" in result.err
        assert result.err.strip().isprintable()


def test_what_follows_from_the_printed_weights_is_shown(call: Call, tmp_path: Path) -> None:
    document = json.loads(MINE.read_text())
    weights, output = document["examples"][0]["claims"]
    weights["printed"] = ["0.7", "0.3"]
    del output["ways"], output["verdict"]
    (tmp_path / "mine.json").write_text(json.dumps(document))
    out = call("examples", "exercise-1", "--file", "mine.json").out
    assert "from the printed weights: [7, 3]" in out  # v is [[10, 0], [0, 10]]
