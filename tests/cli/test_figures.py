"""Figures and flowcharts from the command line."""

from __future__ import annotations

import html
import io
import os
import re
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from attncli.cli.main import run
from attncli.files.load import load
from attncli.stages import kind_of

from .conftest import SAMPLES, Call

THREE, HEADS = str(SAMPLES / "three-tokens.json"), str(SAMPLES / "heads.json")
FAMILY = "king=0.9,0.5,0.1 queen=0.2,0.5,0.1 dad=0.9,0.7,0.9 mom=0.2,0.7,0.9"


# fmt: off
DRAWN = {  # a call: what its figure has
    "explain bank --heads 2": ">head 2<", "explain bank --block encoder --layers 2": ">weights<",
    "explain a --target c --block decoder": ">decoder.1.cross_attention.weights<",
    "posenc --len 3 --dim 4": ">positions<", "posenc --len 3 --dim 4 --dots": ">dots<",
    "posenc --kind rope --len 3 --dim 4 --stage cos": ">cos<", "similarity a=1,2 b=2,1": ">cosines<",
    "similarity a=1,2 b=2,1 c=1,1 --pca": ">PC 1<",
    "examples 004-first-example --stage weights": ">weights<",
    f"compute {THREE} --stage scores --stage output": ">output<",
    f"compute {THREE}": ">0.40<",  # two decimals, unless others are asked for
    f"compute {THREE} --precision 4": ">0.4011<",
}
# fmt: on


@pytest.mark.parametrize("line", DRAWN)
def test_each_command_draws(call: Call, tmp_path: Path, line: str) -> None:
    result = call(*line.split(), "--format", "svg", "--quiet")
    assert (result.code, result.err, result.out[:5]) == (0, "", "<svg ")
    assert DRAWN[line] in result.out
    assert call(*line.split(), "--output", "a.svg", "--quiet").code == 0
    assert (tmp_path / "a.svg").read_text() == result.out


def test_a_missing_package_is_named_before_anything_is_read(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for ending in ("png", "pdf"):
        result = call("compute", "--q", "missing.json", "--output", f"a.{ending}")
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert f"{ending} needs the package typst; pip install 'attncli[figures]'" in result.err


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals")
def test_a_picture_is_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    leader, follower = os.openpty()
    errors = io.StringIO()
    with os.fdopen(follower, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", errors)
        assert run(["compute", "--q", THREE, "--format", "png"]) == 2
    os.close(leader)
    assert "not for a terminal" in errors.getvalue()


@pytest.mark.parametrize(
    "line",
    [
        f"compute {THREE} --causal --softcap 2 --dropout 0.3",
        f"compute {HEADS} --sinks [0.5,1,1,1]",
        "explain --tokens The,bank --target la",
        "explain --tokens The,bank --positions none --projection identity",
        "explain --tokens The,bank --block encoder --layers 2 --norm pre --full",
        "explain a --block decoder --target la --layers 2 --dropout 0.1 --full",
        "posenc --len 3 --dim 4 --dots",
        f"posenc --kind rope --apply {HEADS}",
        "posenc --kind alibi --len 4 --heads 2",
        f"similarity {FAMILY} --pca",
        f"similarity {FAMILY} --analogy king queen dad",
    ],
)
def test_a_flowchart_has_an_arrow_for_all_that_a_stage_is_computed_from(
    call: Call, tmp_path: Path, line: str
) -> None:
    assert call(*line.split(), "--output", "trace.json").code == 0
    trace = load(str(tmp_path / "trace.json")).trace
    assert trace is not None
    stages = {name: stage for name, stage in trace.stages() if kind_of(name).role != "parameter"}
    expected = set()
    for name, stage in stages.items():
        prefix = name[: name.rfind(".") + 1]
        for read in stage.reads.values():
            source = prefix + read if prefix + read in stages else read
            expected |= {(source, name)} if source in stages else set()
    text = call(*line.split(), "--format", "mermaid").out
    labels = [x.split("<br/>")[0] for x in re.findall(r'(n\d+\["[^"<]+)', text)]
    names = dict(html.unescape(re.sub(r"#(\d+);", r"&#\1;", x)).split('["') for x in labels)
    assert sorted(names.values()) == sorted(name.rpartition(".")[2] for name in stages)
    arrows = [(names[a], names[b]) for a, b in re.findall(r"(n\d+) --> (n\d+)", text)]
    assert sorted(arrows) == sorted((a.split(".")[-1], b.split(".")[-1]) for a, b in expected)
    # Mermaid draws a node in the first box to end after the node is mentioned, so each arrow is in
    # the innermost box that holds both of its ends, after them
    boxes: list[str] = []
    places: dict[str, list[str]] = {}
    for row in text.splitlines()[1:]:
        node, *rest = row.split()
        if node == "subgraph":
            boxes.append(rest[0])
        elif node == "end":
            boxes.pop()
        elif rest[:1] == ["-->"]:
            pairs = zip(places[node], places[rest[1]], strict=False)
            assert boxes == [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)], row
        else:
            places[node.partition("[")[0]] = [*boxes]
