"""attncli formulas, and --formulas and --set on the commands that compute."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attncli
from tests.calls import SAMPLES, Call
from tests.programs.references import inputs_of

THREE = SAMPLES / "three-tokens.json"


def test_it_prints_what_it_computes(call: Call, tmp_path: Path) -> None:
    flags = ["--causal", "--softcap", "2"]
    mine = str(tmp_path / "mine.attn")
    assert call("formulas", "--q", THREE, *flags, "-o", mine).code == 0
    ours = json.loads(call("compute", "--q", THREE, *flags, "--format", "json").out)
    own = json.loads(call("compute", "--q", THREE, "--formulas", mine, "--format", "json").out)
    values = {x["name"]: x["value"] for x in own["steps"]}
    assert all(values[x["name"]] == x["value"] for x in ours["steps"])
    back = ["--d-output", "random"]
    assert call("formulas", "--q", THREE, *flags, *back, "-o", mine, "--force").code == 0
    ours = call("compute", "--q", THREE, *flags, *back, "--format", "json").json
    own = call("compute", "--q", THREE, "--formulas", mine, *back, "--format", "json").json
    values = {x["name"]: x["value"] for x in own["steps"]}
    assert all(values[x["name"]] == x["value"] for x in ours["steps"])
    assert "d_k" in values


def test_it_prints_variants_latex_and_markdown(call: Call) -> None:
    listed = call("formulas", "--list").out.splitlines()
    assert len(listed) >= 18
    assert any(line.startswith("differential ") and "2024" in line for line in listed)
    assert call("formulas", "stick-breaking").out.startswith("# Stick-breaking")
    latex = call("formulas", "--causal", "--d-output", "ones", "--format", "latex").out
    assert latex.count("&=") == latex.count("\\\\\n") + 1
    assert "\\begin{align*}" in latex
    assert call("formulas", "--format", "markdown").out.startswith("```\n#")


@pytest.mark.parametrize("name", ["sinks", "differential", "ssd", "mla"])
def test_compute_takes_what_the_file_holds_by_name(call: Call, tmp_path: Path, name: str) -> None:
    x = inputs_of(name)
    path = str(tmp_path / "x.npz")
    np.savez(path, **x)
    result = call(
        "compute", "--q", path, "--formulas", name, "--d-output", "ones", "--format", "json"
    )
    assert result.code == 0, result.err
    steps = {step["name"]: step["value"] for step in json.loads(result.out)["steps"]}
    trace = attncli.attend_by(name, x, d_output="ones")
    for own, stage in trace.stages():
        np.testing.assert_array_equal(np.array(steps[own], float), stage.value.astype(float))


def test_embeddings_and_weights_have_files_of_their_own(call: Call, tmp_path: Path) -> None:
    x = inputs_of("mla")
    embeddings, weights = str(tmp_path / "x.npy"), str(tmp_path / "w.npz")
    np.save(embeddings, x["x"])
    np.savez(weights, **{name: array for name, array in x.items() if name.startswith("w_")})
    own, mine = ["--x", embeddings, "--weights", weights], str(tmp_path / "mine.json")
    result = call("compute", *own, "--formulas", "mla", "-o", mine)
    assert (result.code, result.err) == (0, "")
    assert call("check", mine, *own, "--formulas", "mla").code == 0


def test_set_replaces_one_stage_and_what_follows(call: Call) -> None:
    line = "scores[h,i,j] = -sum[d]((q[h,i,d] - k[h,j,d]) ** 2)"
    result = call("compute", "--q", THREE, "--set", line, "--d-output", "ones", "--format", "json")
    steps = {step["name"]: np.array(step["value"]) for step in json.loads(result.out)["steps"]}
    q, k = steps["q"], steps["k"]
    expected = -((q[:, None] - k[None]) ** 2).sum(axis=-1)
    np.testing.assert_allclose(steps["scores"], expected)
    assert "d_q" in steps
    assert call("compute", "--q", THREE, "--set", "skores[i,j] = 1").code == 2


def test_set_says_what_is_wrong_with_its_own_line(call: Call) -> None:
    for line, words in {
        "skores[i,j] = 1": "did you mean scores",
        "weights = 2": "weights is a stage",
        "weights[i,j] = softmax[j](skores[i,j])": "--set, line 1: ",
        "a[i] = 1\nb[i] = 2": "is not one line",
        "": "is not one line",
    }.items():
        result = call("compute", "--q", THREE, "--set", line)
        assert (result.code, result.out) == (2, "")
        assert words in result.err


def test_set_takes_parameters(call: Call) -> None:
    softer = ["--set", "temperature = 2", "--set", "scaled[i,j] = scores[i,j] / temperature"]
    ours = call("compute", "--q", THREE, "--scale", "0.5", "--stage", "output", "--format", "csv")
    own = call("compute", "--q", THREE, *softer, "--format", "json")
    values = {x["name"]: x["value"] for x in own.json["steps"]}
    assert [*map(float, ours.out.split()[-1].split(",")[-2:])] == values["output"][-1]
    idle = call("compute", "--q", THREE, "--set", "temperature = 2")
    assert idle.code == 0
    assert "no line reads temperature" in idle.err
    capped = ["--formulas", "softcap", "--stage", "output", "--format", "csv"]
    theirs = call("compute", "--q", THREE, *capped, "--set", "cap = 1e9")
    assert theirs.out != call("compute", "--q", THREE, *capped).out


def test_explain_has_them_in_every_layer(call: Call) -> None:
    words = ["explain", "the bank", "--block", "encoder", "--layers", "2", "--heads", "2", "--full"]
    result = call(*words, "--formulas", "softmax1", "--d-output", "ones", "--format", "json")
    assert result.code == 0, result.err
    assert result.out.count('"name": "weights"') == 2
    assert "sink=0" in result.out
    again = call(*words, "--set", "scaled[h,i,j] = scores[h,i,j] / 3", "--format", "json")
    assert again.out.count("/ 3") >= 2


def test_a_stage_of_a_layer_keeps_its_name(call: Call) -> None:
    lines = (
        "residual: R[h,i,j] = sum[d](q[h,i,d] * k[h,j,d])\nO[h,i,e] = sum[j](R[h,i,j] * v[h,j,e])"
    )
    words = ["explain", "the bank", "--heads", "2", "--formulas", lines]
    assert call(*words).code == 0
    result = call(*words, "--block", "encoder")
    assert (result.code, result.out) == (2, "")
    assert "encoder.1.attention has a stage of its own called residual" in result.err


def test_a_program_of_dropout_reads_what_is_kept(call: Call) -> None:
    printed = call("formulas", "--q", THREE, "--dropout", "0.3", "--seed", "2").out
    assert "if kept[b,i,j] else 0" in printed
    line = "scaled[i,j] = scores[i,j] / 2"
    flags = ["--q", THREE, "--dropout", "0.3", "--seed", "2", "--format", "json"]
    ours, own = (
        call("compute", *flags, *more).json for more in (["--scale", "0.5"], ["--set", line])
    )
    words = ["explain", "the bank", "--block", "encoder", "--heads", "2", "--dropout", "0.3"]
    assert call(*words, "--set", "scaled[h,i,j] = scores[h,i,j] / 2").code == 0
    values = [{x["name"]: x["value"] for x in json["steps"]} for json in (ours, own)]
    assert values[0]["dropped"] == values[1]["dropped"]


def test_check_says_the_first_stage_that_differs(call: Call, tmp_path: Path) -> None:
    mine, theirs = (str(tmp_path / name) for name in ("mine.json", "theirs.json"))
    call("compute", "--q", THREE, "--formulas", "softcap", "-o", mine)
    call("compute", "--q", THREE, "--softcap", "1.5", "-o", theirs)
    same = call("check", "--q", THREE, "--formulas", "softcap", "--observed", mine)
    assert (same.code, same.out.partition(":")[0]) == (0, "It matches")
    other = call("check", "--q", THREE, "--formulas", "softcap", "--observed", theirs)
    assert other.code == 1
    assert "first stage that does is scores" in other.out
    found = call(
        "check", "--q", THREE, "--formulas", "softcap", "--observed", theirs, "--format", "json"
    )
    assert json.loads(found.out)["first"] == "scores"


def test_diff_and_against_compute_by_them(call: Call) -> None:
    assert call("diff", THREE, THREE, "--formulas", "softcap").code == 0
    assert call("compute", "--q", THREE, "--against", "--formulas softcap").code == 1


def test_an_error_shows_the_line_and_a_caret(call: Call) -> None:
    result = call("compute", "--q", THREE, "--formulas", "A[i,j] = sofmax[j](q[i,j])")
    first, line, caret = result.err.splitlines()
    assert result.code == 2
    assert "did you mean softmax" in first
    assert line.index("sofmax") == caret.index("^")


def test_flags_of_our_formulas_are_refused(call: Call) -> None:
    for flags in (["--causal"], ["--tiles", "2"], ["--semantics", "pytorch"]):
        result = call("compute", "--q", THREE, "--formulas", "relu", *flags)
        assert (result.code, result.out) == (2, "")


def test_attend_takes_formulas_and_a_trace_carries_them(tmp_path: Path) -> None:
    q, k, v = np.eye(2), np.ones((3, 2)), np.arange(4.0).reshape(2, 2)
    text = "A[i,j] = softmax[j](q[i,j] * tau[0])\nO[i,e] = sum[j](A[i,j] * v[j,e] where j < 2)"
    trace = attncli.attend(q, k, v, formulas=text, inputs={"tau": [2.0]})
    assert trace["A"].axes == ("query", "key")
    lines = trace.program.splitlines()
    assert [line.partition(" = ")[0] for line in lines] == ["A[i,j]", "O[i,e]"]
    given: dict[str, Any] = {"q": q, "v": v, "tau": [2.0]}
    again = attncli.attend_by(trace.program, given)
    np.testing.assert_array_equal(again["O"].value, trace["O"].value)
    with pytest.raises(attncli.ConventionError):
        attncli.attend(q, k, v, formulas=text, inputs={"tau": [2.0]}, causal=True)
