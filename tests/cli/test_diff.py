"""attncli diff and --against: what is compared, the exit codes, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .conftest import SAMPLES, Call

DUMP = SAMPLES / "dump.json"
QKV = '"q":[[1,0],[0,1]],"k":[[1,1],[1,0]],"v":[[10,0],[0,10]]'


@pytest.fixture
def traces(call: Call, three: Path) -> tuple[str, str]:
    for name, more in (("a.json", []), ("b.npz", ["--causal"])):
        assert call("compute", three, *more, "--output", name).code == 0
    return "a.json", "b.npz"


def test_two_traces_that_differ(call: Call, traces: tuple[str, str]) -> None:
    found = call("diff", *traces)
    assert found.code == 1
    assert "the first stage that differs is masked: 3 of 9 numbers differ" in found.out
    assert "the conventions differ: without --causal in a.json, --causal in b.npz" in found.out
    assert found.err == ""


def test_the_same_file_twice_is_the_same(call: Call, traces: tuple[str, str]) -> None:
    found = call("diff", traces[0], traces[0])
    assert (found.code, found.err) == (0, "")
    assert "all 7 stages that both have are the same" in found.out


def test_inputs_are_computed_and_a_dump_is_taken_as_it_is(call: Call, three: Path) -> None:
    found = call("diff", three, DUMP)
    assert found.code == 1
    assert "the first stage that differs is output" in found.out
    assert "only in three-tokens.json: scores, scaled, weights" in found.out
    causal = json.loads(three.read_text()) | {"causal": True}
    assert call("diff", json.dumps(causal), DUMP).code == 0  # as printed, to 4 decimals


def test_an_array_beside_an_array_and_beside_a_stage(call: Call, traces: tuple[str, str]) -> None:
    assert call("diff", "[[1, 2]]", "[[1, 2]]").code == 0
    found = call("diff", "[[1, 2]]", "[[1, 3]]")
    assert found.code == 1
    assert "2 in the first and 3 in the second" in found.out
    np.save("out.npy", np.eye(3))
    assert call("diff", "out.npy", "a.json::weights").code == 1
    assert call("diff", "a.json::weights", "b.npz").code == 1
    assert call("diff", "a.json::scores", "b.npz").code == 0
    wrong = call("diff", "out.npy", "a.json")
    assert wrong.code == 2
    assert wrong.err.endswith("name one: a.json::output\n")


def test_standard_input_is_one_of_the_two(call: Call, traces: tuple[str, str]) -> None:
    text = Path("a.json").read_bytes()
    assert call("diff", "-", "a.json", stdin=text).code == 0
    assert call("diff", "b.npz", "-", stdin=text).code == 1
    found = call("diff", "-", "-", stdin=text)
    assert (found.code, found.err) == (
        2,
        "attncli: standard input can be read only once; save one of the two to a file\n",
    )


def test_names_of_a_dump_are_those_of_stages(call: Call) -> None:
    a, b = f'{{{QKV},"output":[[1,2],[3,4]]}}', f'{{{QKV},"Output":[[1,2],[3,4]]}}'
    assert call("diff", a, b).code == 0
    found = call(
        "diff", '{"layer.0.Q":[[1]],"mine":[[1,2]]}', '{"layer.0.query":[[1]],"mine":[[1,3]]}'
    )
    assert found.code == 1
    assert "the first stage that differs is mine: 1 of 2 numbers" in found.out


def test_two_names_of_one_role_are_two_arrays(call: Call) -> None:
    both = '{"Q":[[1]],"q":[[2]],"weights":[[1]]}'
    found = call("diff", both, '{"q":[[2]],"Q":[[1]],"weights":[[1]]}')
    assert found.code == 0
    assert "all 3 stages" in found.out
    assert call("diff", both, "[[1]]").code == 2
    assert call("diff", '{"weights":[[1]]}', "[[1]]").code == 0


def test_a_layout_that_a_dump_names_is_brought_into_order(call: Call) -> None:
    q = np.random.default_rng(0).normal(size=(2, 3, 5))
    np.savez("hsd.npz", q=q, output=q)
    turned = np.swapaxes(q, 0, 1)
    np.savez("shd.npz", q=turned, output=turned, layout="shd")
    assert call("diff", "hsd.npz", "shd.npz").code == 0


def test_what_is_no_array_is_named_in_a_note(call: Call) -> None:
    found = call("diff", '{"weights":[[1]],"authors":["me"]}', '{"weights":[[1]],"about":"x"}')
    assert found.code == 0
    assert "not used: authors" in found.err
    assert "not used: about" in found.err
    assert call("diff", '{"weights":[[1]],"q":"x"}', "[[1]]").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["[[1]]"], "two things are compared; write attncli diff A B"),
        (["[[1]]", "nowhere.npz"], "nowhere.npz does not exist"),
        (["[[1]]", "."], ". is a directory; name a file in it"),
        (["[[1]]", "[]"], "the inline literal is empty"),
        (["[[1]]", "[[1]]", "--format", "mermaid"], "mermaid draws the steps of one computation"),
        (
            ["[[1]]", "[[1]]", "--decimals", "2", "--rtol", "1"],
            "--decimals cannot be used with --rtol",
        ),
        (["nowhere.npz", "[[1]]", "--rtol", "-1"], "rtol is -1.0; use a number from 0"),
        (["[[1]]", "[[1]]", "--stage", "weights"], "there is no stage 'weights'; there are array"),
        (["[[1]]", "[[1]]", "--head", "2"], "there is no head to choose"),
        (
            ['{"weights":[[1]]}', '{"output":[[1]],"x":[[1]]}'],
            "no stage in common; the first holds weights",
        ),
    ],
)
def test_wrong_calls(call: Call, arguments: list[str], message: str) -> None:
    found = call("diff", *arguments)
    assert (found.code, found.out) == (2, "")
    assert message in found.err
    assert found.err.count("\n") == 1


def test_json_csv_and_npz_hold_the_differences(call: Call, traces: tuple[str, str]) -> None:
    found = call("diff", *traces, "--format", "json")
    assert found.code == 1
    assert [step["name"] for step in found.json["steps"]] == ["summary", "a", "b", "difference"]
    table = call("diff", *traces, "--format", "csv", "--stage", "difference.weights")
    assert table.out.splitlines()[0] == "difference.weights,k1,k2,k3"
    assert "the first stage that differs is masked" in table.err  # csv has no notes
    assert call("diff", *traces, "--output", "d.npz").code == 1
    with np.load("d.npz") as arrays:
        difference = arrays["b.weights"] - arrays["a.weights"]
        assert np.array_equal(arrays["difference.weights"], difference)
    assert call("diff", *traces, "--output", "d.npz").code == 2  # it is there


def test_tolerances_change_the_exit_code(call: Call) -> None:
    near = ["[[1, 2]]", "[[1, 2.001]]"]
    assert call("diff", *near).code == 1
    assert call("diff", *near, "--rtol", "0.001").code == 0
    assert call("diff", *near, "--atol", "0.0001").code == 1
    assert call("diff", *near, "--decimals", "2").code == 0


def test_a_comparison_beyond_the_budget_is_refused(call: Call) -> None:
    np.save("large.npy", np.zeros((2000, 1000)))
    found = call("diff", "large.npy", "large.npy", "--max-size", "60MB")
    assert found.code == 2
    assert "the comparison needs" in found.err


def test_help_and_a_pipe_that_is_closed(call: Call, three: Path) -> None:
    assert "attncli diff" in call("help", "diff").out
    line = (
        f"{sys.executable} -m attncli diff {three} {DUMP} --full | head -1; exit ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) in {(0, ""), (1, "")}


# ---- --against


def test_a_call_against_itself_with_another_scale(call: Call, three: Path) -> None:
    found = call("compute", three, "--against", "--scale none")
    assert found.code == 1
    assert "the first stage that differs is scaled: 7 of 9 numbers" in found.out
    assert "1.41421 in this call and 2 in --scale none" in found.out


def test_an_option_in_both_is_that_of_against(call: Call, three: Path) -> None:
    same = call("compute", three, "--scale", "2", "--against", "--scale 2")
    assert same.code == 0
    assert call("compute", three, "--scale", "2", "--against", "--scale 1/√2").code == 1


def test_a_sentence_against_itself_without_positions(call: Call) -> None:
    found = call("explain", "the river bank", "--against", "--positions none")
    assert found.code == 1
    assert "only in this call: positions, input" in found.out
    deep = call(
        "explain", "a b", "--block", "encoder", "--layers", "3", "--against", "--causal",
        "--stage", "encoder.3.attention.weights",
    )  # fmt: skip
    assert deep.code == 1
    assert "encoder.3.attention.weights, " not in deep.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--scle none", "No such option: --scle; did you mean --scale?"),
        ("--scale x", "--against '--scale x': --scale 'x' is not understood"),
        ("--scale 'x", "close the quotation mark"),
        ("", "computes nothing"),
        ("-h", "computes nothing"),
        ("--format json", "write --format outside of it"),
        ("--against --causal", "write --against outside of it"),
        ("--heads 3", "a width of 2 does not divide into 3 heads"),
    ],
)
def test_a_wrong_option_of_against_is_one_line(
    call: Call, three: Path, options: str, message: str
) -> None:
    found = call("compute", three, "--against", options)
    assert (found.code, found.out) == (2, "")
    assert message in found.err
    assert found.err.count("\n") == 1


def test_against_does_not_read_standard_input_twice(call: Call, three: Path) -> None:
    found = call("compute", "-", "--against", "--causal", stdin=three.read_bytes())
    assert found.code == 2
    assert "--against computes twice; save it to a file" in found.err


def test_notes_of_both_calls_are_said_once(call: Call) -> None:
    found = call("compute", "[[1, 2]]", "--against", "--scale none")
    assert found.err.count("so K = Q") == 1


def test_a_saved_comparison_is_read_again(call: Call, traces: tuple[str, str]) -> None:
    assert call("diff", *traces, "--output", "d.json").code == 1
    assert call("diff", "d.json::b", "b.npz").code == 0
    assert call("diff", "d.json::a", "b.npz").code == 1
    found = call("compute", "d.json::a", "--format", "csv", "--stage", "output")
    assert found.out == call("compute", "a.json", "--format", "csv", "--stage", "output").out


def test_figures_and_pages_of_a_comparison(call: Call, traces: tuple[str, str]) -> None:
    for name, holds in (
        ("d.svg", "difference.masked"),
        ("d.html", "masked (left out of a.json"),
        ("d.tex", "difference"),
    ):
        assert call("diff", *traces, "--output", name).code == 1
        assert holds in Path(name).read_text(encoding="utf-8")
    found = call("compute", "a.json", "--against", "--causal", "--blank")
    assert (found.code, found.out) == (2, "")
    assert "--blank is of one computation" in found.err
    none = call("diff", "[[1, 2]]", "[[1], [2]]", "--format", "svg")
    assert "no stage has the same shape in both" in none.err
