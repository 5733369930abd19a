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


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("explain bank --heads 2", ">head 2<"),
        ("explain bank --block encoder --layers 2", ">weights<"),
        ("explain a --target c --block decoder", ">decoder.1.cross_attention.weights<"),
        ("posenc --len 3 --dim 4", ">positions<"),
        ("posenc --len 3 --dim 4 --dots", ">dots<"),
        ("posenc --kind rope --len 3 --dim 4 --stage cos", ">cos<"),
        ("similarity a=1,2 b=2,1", ">cosines<"),
        ("similarity a=1,2 b=2,1 c=1,1 --pca", ">PC 1<"),
        ("examples 004-first-example --stage weights", ">weights<"),
        (f"compute {THREE} --stage scores --stage output", ">output<"),
        (f"compute {THREE}", ">0.40<"),  # two decimals, unless others are asked for
        (f"compute {THREE} --precision 4", ">0.4011<"),
    ],
)
def test_each_command_draws(call: Call, tmp_path: Path, line: str, shown: str) -> None:
    result = call(*line.split(), "--format", "svg", "--quiet")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("<svg ")
    assert shown in result.out
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


Chart = tuple[dict[str, tuple[str, ...]], set[tuple[str, str]]]


def read_chart(text: str) -> Chart:
    """The box of every stage of a flowchart, and the arrows between stages, by dotted names.

    Mermaid draws a node in the first box to end after the node is mentioned, so every arrow is to
    be written in the innermost box that holds both of its ends, after them.
    """
    boxes: list[str] = []
    places: dict[str, tuple[str, ...]] = {}
    names: dict[str, str] = {}
    arrows = set()
    first, *lines = text.splitlines()
    assert first == "flowchart TD"
    for line in map(str.strip, lines):
        label = html.unescape(re.sub(r"#(\d+);", r"&#\1;", line.partition('["')[2]))
        if line.startswith("subgraph"):
            boxes.append(label.partition(":")[0])
        elif line == "end":
            boxes.pop()
        elif arrow := re.fullmatch(r"(n\d+) --> (n\d+)", line):
            ends = names[arrow[1]], names[arrow[2]]
            pairs = zip(*(places[end] for end in ends), strict=False)
            assert boxes == [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)], line
            arrows.add(ends)
        else:
            node, name = line.partition("[")[0], ".".join([*boxes, label.split("<br/>")[0]])
            names[node], places[name] = name, tuple(boxes)
    assert not boxes
    return places, arrows


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
        "posenc --add [0.5,0.2,0.3,0.1]",
        f"posenc --kind rope --apply {HEADS}",
        "posenc --kind alibi --len 4 --heads 2",
        f"similarity {FAMILY} --pca",
        f"similarity {FAMILY} --analogy king queen dad",
    ],
)
def test_arrows_are_what_each_stage_is_computed_from(call: Call, tmp_path: Path, line: str) -> None:
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
    places, arrows = read_chart(call(*line.split(), "--format", "mermaid").out)
    assert arrows == expected
    assert places == {name: tuple(name.split(".")[:-1]) for name in stages}
    assert expected


def test_layers_alike_are_one_node_in_their_box(call: Call) -> None:
    line = "explain a --block decoder --target c --layers 3 --format mermaid"
    places, arrows = read_chart(call(*line.split()).out)
    assert places["encoder.2 to 3"] == ("encoder",)
    assert arrows >= {
        ("encoder.1.feed_forward.norm", "encoder.2 to 3"),
        ("encoder.2 to 3", "decoder.2 to 3"),
        ("decoder.1.feed_forward.norm", "decoder.2 to 3"),
        ("encoder.2 to 3", "decoder.1.cross_attention.k"),
    }
