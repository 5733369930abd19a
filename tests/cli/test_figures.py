"""Figures from the command line: what is drawn, refused, and said where a package is missing."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from attncli.cli.main import run

from .conftest import SAMPLES, Call

SENTENCE = "She visited the money bank, near the river bank"


def test_the_ending_and_the_format_give_the_same(call: Call, three: Path, tmp_path: Path) -> None:
    printed = call("compute", "--q", three, "--format", "svg")
    assert (printed.code, printed.err) == (0, "")
    assert call("compute", "--q", three, "--output", "a.svg").code == 0
    assert (tmp_path / "a.svg").read_text() == printed.out
    assert printed.out.startswith("<svg ")


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (["explain", SENTENCE, "--heads", "2"], ">head 2<"),
        (["explain", "a b", "--block", "encoder", "--layers", "2"], ">weights<"),
        (["explain", "a b", "--target", "c", "--block", "decoder"], ">decoder.1.cross_attention.weights<"),
        (["posenc", "--len", "3", "--dim", "4"], ">positions<"),
        (["posenc", "--len", "3", "--dim", "4", "--dots"], ">dots<"),
        (["posenc", "--kind", "rope", "--len", "3", "--dim", "4", "--stage", "cos"], ">cos<"),
        (["similarity", "a=1,2", "b=2,1"], ">cosines<"),
        (["similarity", "a=1,2", "b=2,1", "c=1,1", "--pca"], ">PC 1<"),
        (["examples", "004-first-example", "--stage", "weights"], ">weights<"),
        (["compute", "samples.json", "--stage", "scores", "--stage", "output"], ">output<"),
    ],
)  # fmt: skip
def test_each_command_draws(call: Call, tmp_path: Path, line: list[str], shown: str) -> None:
    (tmp_path / "samples.json").write_bytes((SAMPLES / "three-tokens.json").read_bytes())
    result = call(*line, "--format", "svg", "--quiet")
    assert (result.code, result.err) == (0, "")
    assert shown in result.out


def test_decimals_are_two_unless_others_are_asked_for(call: Call, three: Path) -> None:
    assert ">0.40<" in call("compute", "--q", three, "--format", "svg").out
    wanted = call("compute", "--q", three, "--format", "svg", "--precision", "4").out
    assert ">0.4011<" in wanted


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--format", "svg", "--work"], "--work has no effect on svg"),
        (["--format", "svg", "--cell", "1,1"], "--cell has no effect on svg"),
        (["--format", "svg", "--width", "60"], "--width has no effect on svg"),
        (["--format", "svg", "--step"], "--step has no effect on svg"),
        (["--arcs"], "--arcs has no effect on table"),
        (["--arcs", "--output", "a.md"], "--arcs has no effect on markdown"),
        (["--arcs", "--format", "svg", "--heatmap"], "--arcs cannot be used with --heatmap"),
        (["--arcs", "--format", "svg", "--no-heatmap"], "--arcs cannot be used with --no"),
        (["--arcs", "--format", "svg", "--stage", "scores"], "--arcs draws weights, which scores"),
        (["--format", "svg", "--stage", "wieghts"], "did you mean weights?"),
    ],
)
def test_what_is_refused(
    call: Call, three: Path, tmp_path: Path, flags: list[str], says: str
) -> None:
    result = call("compute", "--q", three, *flags)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert says in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line", [["posenc", "--len", "3", "--dim", "4"], ["similarity", "a=1,2", "b=2,1"]]
)
def test_arcs_are_for_commands_that_compute_weights(call: Call, line: list[str]) -> None:
    result = call(*line, "--arcs", "--format", "svg")
    assert (result.code, result.out) == (2, "")
    assert "No such option: --arcs" in result.err


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_a_missing_package_is_named_before_anything_is_read(
    call: Call, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = call("compute", "--q", "missing.json", "--output", f"a.{ending}")
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert f"{ending} needs the package typst; pip install 'attncli[figures]'" in result.err


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals")
def test_a_picture_is_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch, three: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    leader, follower = os.openpty()
    with os.fdopen(follower, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        errors = io.StringIO()
        patch.setattr(sys, "stderr", errors)
        code = run(["compute", "--q", str(three), "--format", "png"])
    os.close(leader)
    assert code == 2
    assert "png is not for a terminal; add --output FILE" in errors.getvalue()


def test_an_outline_is_no_figure(call: Call) -> None:
    result = call("explain", "a b", "--outline", "--format", "svg")
    assert result.code == 2
    assert "--outline has no effect on svg" in result.err
