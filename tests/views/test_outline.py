"""The outline and the flowchart: the way without the matrices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.trace import Trace

from .rendering import outline_page, shown
from .traces import CAUSAL, attention, matrix


def layered(n: int) -> Trace:
    return attncli.explain("a b", dim=4, block="encoder", layers=n)


def tree(trace: Trace, form: str = "table", **options: Any) -> str:
    return shown(trace, form, page=outline_page, **options)


@pytest.mark.parametrize(
    ("form", "patterns"),
    [
        ("table", [r"\n├─ input +2 × 4 +X = E \+ PE\n", r"\n│  └─ 1", r"\n│     ├─ attention  ",
                   r"\n│     │  ├─ parameters  w_q 4 × 4", r"\n│     │  ├─ scores +2 × 2 +S = Q Kᵀ\n", r"\n   └─ contextual"]),
        ("markdown", [r"\n- \*\*input\*\* 2 × 4 `X = E \+ PE`\n", r"\n      - \*\*scores\*\* 2 × 2 `S = Q Kᵀ`\n"]),
    ],
)  # fmt: skip
def test_the_tree(form: str, patterns: list[str]) -> None:
    places = [re.search(pattern, tree(layered(1), form)) for pattern in patterns]
    at = [place.start() for place in places if place]
    assert (len(at), at) == (len(patterns), sorted(at))


def test_layers_alike_are_drawn_once_and_every_line_fits() -> None:
    for n, which in ((2, "2"), (3, "2 to 3"), (7, "2 to 7")):
        short = tree(layered(n)).splitlines()
        (alike,) = (line for line in short if "like layer 1" in line)
        assert which in alike
        assert len(short) == len(tree(layered(1)).splitlines()) + 1
        assert tree(layered(n), full=True).count(" scores ") == n
    for width in (40, 60, 80):
        lines = tree(layered(2), width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert not any(line.endswith(" ") for line in lines)


@pytest.mark.parametrize(
    ("shape", "text"), [((1, 3, 2), "3 × 2"), ((2, 3, 5), "2 × 3 × 5"), ((7,), "7"), ((), "1")]
)
def test_one_head_is_left_out_of_a_shape(shape: tuple[int, ...], text: str) -> None:
    last = tree(matrix(np.ones(shape), "s", ("head", "query", "key")[3 - len(shape) :]))
    assert re.split(" {2,}|\n", last)[-3:-1] == [text, "Z"]


def arrows(trace: Trace, **options: Any) -> set[tuple[str, str]]:
    """Who feeds whom, by the first word of each node."""
    text = shown(trace, "mermaid", **options)
    names = dict(re.findall(r'(n\d+)\["([^"]*?)(?:<br/>|")', text))
    return {(names[a], names[b]) for a, b in re.findall(r"(n\d+) --> (n\d+)", text)}


def test_the_arrows_of_an_attention() -> None:
    pairs = "q scores, k scores, scores scaled, scaled masked, mask masked, masked weights, weights output, v output"  # fmt: skip
    assert arrows(attention(mask=CAUSAL)) == {tuple(pair.split()) for pair in pairs.split(", ")}


def test_every_layer_or_one_node_for_those_alike() -> None:
    assert {("input", "q"), ("norm", "q")} <= arrows(layered(2), full=True)
    assert any(b == "2 to 4" for _, b in arrows(layered(4)))
    assert not arrows(layered(3), stages=("w_q",))
    inner = {("scores", "scaled"), ("weights", "output")}
    assert inner <= arrows(layered(3), stages=("encoder.3",))
    assert not inner & arrows(layered(3), stages=("encoder.2.attention.weights",))
    lines = [line.strip() for line in shown(layered(3), "mermaid", full=True).splitlines()]
    assert sum(line.startswith("subgraph") for line in lines) == lines.count("end") > 6
    nodes = [line.partition("[")[0] for line in lines if '["' in line]
    assert len(nodes) == len({*nodes})
