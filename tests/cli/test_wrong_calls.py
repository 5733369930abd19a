"""Calls as they are written by those who do not know the tool yet: each gets the line that helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attncli.cli.commands import COMMANDS
from attncli.views.formats import FORMATS

from .conftest import SAMPLES, Call

SPLIT = "the matrix is split at its blanks; put it in quotes: attncli "
QUOTED = 'put the sentence in quotes: attncli explain "{}"'
MASKED = "there is no stage 'masked'; nothing is masked here; add --causal or a mask"
TEMPERATURE = "use --scale: a temperature T multiplies the factor on the scores by 1/T"

WRONG = {
    "compue --q x": "No such command 'compue'; did you mean compute?",
    "help compue": "No such command 'compue'; did you mean compute?",
    "nothing": "No such command 'nothing'; see attncli --help",
    "q.csv": "No such command 'q.csv'; did you mean attncli compute q.csv?",
    "explain The bank": f"Got unexpected extra argument(s) (bank); {QUOTED.format('The bank')}",
    "explain --causal The river bank": "Got unexpected extra argument(s) (river bank); "
    + QUOTED.format("The river bank"),
    "compute --q [[1, 0], [0, 1]]": f'{SPLIT}compute --q "[[1, 0], [0, 1]]"',
    "compute --q [[1, 0]]": f'{SPLIT}compute --q "[[1, 0]]"',
    "compute [[1, 0]] --causal": f'{SPLIT}compute "[[1, 0]]" --causal',
    "compute --q '[[1, 0], [0, 1]]'": f'{SPLIT}compute --q "[[1, 0], [0, 1]]"',
    "compute q.csv k.csv": "Got unexpected extra argument(s) (k.csv); name the others with --k, --v "
    "or --mask",
    "compute k.csv --q q.csv": "both 'k.csv' and --q are given; leave one of the two out",
    "compute --q q.csv --causal true": "--causal takes no value; write it alone",
    "compute q.csv --work False": "--work takes no value; leave --work out",
    "explain --x q.csv": "No such option: --x; use --embeddings",
    "compute --embeddings q.csv": "No such option: --embeddings; use --x",
    "compute q.csv --temperature 2": f"No such option: --temperature; {TEMPERATURE}",
    "compute --query q.csv": "No such option: --query; use --q",
    "compute q.csv --casual": "No such option: --casual; did you mean --causal?",
    "similarity a --glove q.csv": "No such option: --glove; use --vectors",
    "compute q.csv --rows 1 --rows 2": "--rows is given twice; see attncli compute --help",
    "compute q.csv --cell 1,1 --cell 2,2": "--cell is given twice; see attncli compute --help",
    "compute --q q.csv --q q.csv": "--q is given twice; see attncli compute --help",
    "compute q.csv --output a -o b": "--output/-o is given twice; see attncli compute --help",
    "compute q.csv --heatmap --no-heatmap": "--heatmap/--no-heatmap is given twice; see attncli "
    "compute --help",
    "compute q.csv --stage masked": MASKED,
    "compute q.csv --stage capped": "there is no stage 'capped'; add --softcap",
    "compute q.csv --stage weigths": "there is no stage 'weigths'; did you mean weights?",
    "compute q.csv --format JSON": f"--format: 'JSON' is not one of {', '.join(map(repr, FORMATS))}; "
    "did you mean json?; see attncli compute --help",
    "posenc --kind rotary": "--kind: 'rotary' is not one of 'sinusoidal', 'rope', 'alibi'; did you "
    "mean rope?; see attncli posenc --help",
    "explain (1 --tokens 2)": "there are both a sentence and --tokens; give one of the two",
    "compute q.csv --tokens a": "--tokens has 1 token for 2 queries; give one name each, or "
    '{"queries": […], "keys": […]}',
    "compute q.csv --tokens a,": "--tokens holds an empty token; write --tokens a,b,c",
    "compute [1,0]": "the inline literal has 1 dimension, q needs 2 to 4; write [[1, 2]] for one "
    "row",
    "explain a --heads 3": "a d_model of 8 does not divide into 3 heads; use a number of heads "
    "that divides 8, or give d_k (--d-k)",
    "explain a --pad-to 0": "--pad-to: Input should be greater than or equal to 1; see attncli "
    "explain --help",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_call_gets_the_line_that_helps(call: Call, tmp_path: Path, line: str) -> None:
    (tmp_path / "q.csv").write_text("1,0\n0,1\n")
    result = call(*line.split(" "))
    assert (result.code, result.out) == (2, "")
    said = result.err.splitlines()[-1].removeprefix("attncli: ")
    assert said == WRONG[line]


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("explain a --block encoder --layers 4 --stage encoder.3.wieghts", "weights"),
        ("explain a --block encoder --layers 4 --stage nothing", "tokens, embeddings"),
        ("explain a --block encoder --layers 4 --stage tokens --cell 1,1", "tokens"),
        ("check --q q.csv --observed [[1]] --stage d_wq", "d_w_q"),
        ("check --q q.csv --observed [[1]] --stage nothing", "scores, scaled"),
        ("diff m.json m.json --stage encoder.3.wieghts", "weights"),
    ],
)
def test_a_stage_that_is_none_of_many_is_refused_shortly(
    call: Call, tmp_path: Path, line: str, near: str
) -> None:
    (tmp_path / "q.csv").write_text("1,0\n0,1\n")
    assert (
        call("explain", "a", "--block", "encoder", "--layers", "4", "--output", "m.json").code == 0
    )
    result = call(*line.split(" "))
    assert (result.code, result.out) == (2, "")
    assert near in result.err
    assert len(result.err) < 350


def test_a_file_is_computed_without_a_flag(call: Call, three: Path) -> None:
    assert call("compute", three) == call("compute", "--q", three)
    assert call("compute", "[[1,0]]", "--k", three, "--quiet", "--format", "csv").code == 0


def test_tokens_name_queries_and_keys(call: Call, tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("weights,x,y\nx,1,0\ny,0,1\n")
    for tokens in ("I, love", '["I", "love"]'):
        weights = call("compute", "q.csv", "--tokens", tokens, "--stage", "weights").out
        assert "\n  love  0.3302  0.6698  1\n" in weights
    cell = call("compute", "q.csv", "--tokens", "I,love", "--cell", "love,I").out
    assert cell == call("compute", "q.csv", "--tokens", "I,love", "--cell", "2,1").out
    assert "love" in cell
    one = call("compute", "[[1,0]]", "--k", "q.csv", "--tokens", "I,love", "--format", "json").json
    labels = {step["name"]: step["labels"] for step in one["steps"]}
    assert labels["weights"] == {"key": ["I", "love"]}


def test_a_stage_is_found_in_any_case(call: Call, three: Path) -> None:
    result = call("compute", three, "--stage", "Weights", "--format", "csv")
    assert result == call("compute", three, "--stage", "weights", "--format", "csv")
    assert result.code == 0
    observed = ("--observed", "[[1,1,0],[1,0,1],[2,1,1]]", "--stage", "SCORES")
    assert call("check", "--q", three, *observed).out.startswith("it matches")


def test_one_vector_of_embeddings_is_one_row(call: Call) -> None:
    rows = call("posenc", "--add", "[0.5,0.2,0.3,0.1]", "--format", "json").json
    assert rows["steps"][-1]["value"] == [[0.5, 1.2, 0.3, 1.1]]


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_a_command_too(call: Call, name: str) -> None:
    named = [name] if name else []
    assert call("help", *named) == call(*named, "--help")


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_written_as_people_write_calls(call: Call, name: str) -> None:
    out = call(*([name] if name else []), "--help").out
    assert "<bool>" not in out
    assert "<int" not in out
    assert "<str>" not in out
    assert "[x>=" not in out
    assert "such as weights" not in out or name in ("compute", "explain", "examples")


def test_help_shows_brackets(call: Call) -> None:
    assert "{word: [numbers]}" in " ".join(call("similarity", "--help").out.split())


def test_one_of_a_thing_is_not_several(call: Call, tmp_path: Path) -> None:
    window = call("compute", str(SAMPLES / "three-tokens.json"), "--window", "1,0").out
    assert "window of 1 key before and 0 after" in window
    (tmp_path / "k.json").write_text(json.dumps({"q": [[1, 0]]}))
    assert "note: k.json has no k, so K = Q\n" in call("compute", "k.json").err
