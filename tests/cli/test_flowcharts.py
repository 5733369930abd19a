"""Flowcharts of every command: an arrow for all that a stage is computed from, in the right box.

Mermaid draws a node in the first box to end after the node is mentioned, so an arrow between two
boxes has to be written after the ends of both.
"""

from __future__ import annotations

import html
import re
from itertools import takewhile
from pathlib import Path

import pytest

from attncli.files.load import load
from attncli.stages import kind_of

from .conftest import SAMPLES, Call

THREE, HEADS = str(SAMPLES / "three-tokens.json"), str(SAMPLES / "heads.json")
FAMILY = "king=0.9,0.5,0.1 queen=0.2,0.5,0.1 dad=0.9,0.7,0.9 mom=0.2,0.7,0.9"
CALLS = [
    f"compute {THREE} --causal --softcap 2 --dropout 0.3",
    f"compute {HEADS} --sinks [0.5,1,1,1]",
    "explain --tokens The,bank",
    "explain --tokens The,bank --heads 2 --causal",
    "explain --tokens The,bank --target la",
    "explain --tokens The,bank --positions none --projection identity",
    "explain --tokens The,bank --block encoder --layers 2 --norm pre --full",
    "explain --tokens The,bank --block decoder --target la --layers 2 --dropout 0.1 --full",
    "posenc --len 3 --dim 4",
    "posenc --len 3 --dim 4 --dots",
    "posenc --add [0.5,0.2,0.3,0.1]",
    "posenc --kind rope --len 3 --dim 4",
    f"posenc --kind rope --apply {HEADS}",
    "posenc --kind alibi --len 4 --heads 2",
    f"similarity {FAMILY}",
    f"similarity {FAMILY} --pca",
    f"similarity {FAMILY} --nearest 2",
    f"similarity {FAMILY} --analogy king queen dad",
]

Chart = tuple[dict[str, tuple[str, ...]], set[tuple[str, str]]]


def read_chart(text: str) -> Chart:
    """The box of every stage, and the arrows between stages, by dotted names.

    Every arrow is to be written in the innermost box that holds both of its ends, after them.
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
        elif found := re.fullmatch(r"(n\d+) --> (n\d+)", line):
            source, target = names[found[1]], names[found[2]]
            ends = places[source], places[target]
            pairs = zip(*ends, strict=False)
            common = [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
            assert boxes == common, line
            arrows.add((source, target))
        else:
            node, name = line.partition("[")[0], ".".join([*boxes, label.split("<br/>")[0]])
            names[node], places[name] = name, tuple(boxes)
    assert not boxes
    return places, arrows


@pytest.mark.parametrize("line", CALLS)
def test_arrows_are_what_each_stage_is_computed_from(call: Call, tmp_path: Path, line: str) -> None:
    arguments = line.split()
    assert call(*arguments, "--output", "trace.json").code == 0
    trace = load(str(tmp_path / "trace.json")).trace
    assert trace is not None
    stages = {name: stage for name, stage in trace.stages() if kind_of(name).role != "parameter"}
    expected = set()
    for name, stage in stages.items():
        prefix = name[: name.rfind(".") + 1]
        for read in stage.reads.values():
            source = prefix + read if prefix + read in stages else read
            expected |= {(source, name)} if source in stages else set()
    places, arrows = read_chart(call(*arguments, "--format", "mermaid").out)
    assert arrows == expected
    assert places == {name: tuple(name.split(".")[:-1]) for name in stages}
    assert expected


def test_layers_alike_are_one_node_in_their_box(call: Call) -> None:
    arguments = ("explain", "a b", "--block", "decoder", "--target", "c", "--layers", "3")
    places, arrows = read_chart(call(*arguments, "--format", "mermaid").out)
    assert places["encoder.2 to 3"] == ("encoder",)
    ends = ("encoder.1.feed_forward.norm", "decoder.1.feed_forward.norm")
    found = {arrow for arrow in arrows if "2 to 3" in arrow[0] + arrow[1]}
    assert found >= {(ends[0], "encoder.2 to 3"), ("encoder.2 to 3", "decoder.2 to 3")}
    assert (ends[1], "decoder.2 to 3") in found
    assert ("encoder.2 to 3", "decoder.1.cross_attention.k") in found


def test_the_answer_of_an_analogy_comes_from_it(call: Call) -> None:
    arguments = f"similarity {FAMILY} --analogy king queen dad --format mermaid".split()
    _, arrows = read_chart(call(*arguments).out)
    assert ("analogy", "nearest_1.nearest") in arrows
