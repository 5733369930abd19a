"""The outline and the flowchart: the way without the matrices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.trace import Stage, Trace

from .rendering import lines_of, outline_page, shown
from .traces import CAUSAL, attention


def layered(n: int) -> Trace:
    return attncli.explain("a b", dim=4, block="encoder", layers=n)


def tree(trace: Trace, **options: Any) -> list[str]:
    return lines_of(trace, page=outline_page, **options)


def test_the_tree() -> None:
    lines = tree(layered(1))
    at = next(i for i, line in enumerate(lines) if "encoder" in line)
    assert re.match(r"├─ input +2 × 4 +X = E \+ PE", lines[at - 1])
    assert lines[at + 1].startswith("│  └─ 1")
    assert re.match(r"│     ├─ attention  ", lines[at + 2])
    assert re.match(r"│     │  ├─ parameters  w_q 4 × 4", lines[at + 3])
    assert any(re.match(r"│     │  ├─ scores +2 × 2 +S = Q Kᵀ", line) for line in lines)
    assert lines[-1].startswith("   └─ contextual")


@pytest.mark.parametrize("n", [2, 3, 7])
def test_layers_alike_are_drawn_once(n: int) -> None:
    one, whole = tree(layered(1)), tree(layered(n), full=True)
    short = tree(layered(n))
    (alike,) = (line for line in short if "like layer 1" in line)
    assert f"{'2' if n == 2 else f'2 to {n}'}" in alike
    assert len(short) == len(one) + 1
    assert sum(" scores " in line for line in whole) == n


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    lines = tree(layered(2), width=width)
    assert max(map(len, lines)) <= width
    assert not any(line.endswith(" ") for line in lines)


def test_markdown_makes_a_list_of_lists() -> None:
    lines = shown(layered(1), "markdown", page=outline_page).splitlines()
    assert "- **input** 2 × 4 `X = E + PE`" in lines
    assert "      - **scores** 2 × 2 `S = Q Kᵀ`" in lines


@pytest.mark.parametrize(
    ("shape", "text"), [((1, 3, 2), "3 × 2"), ((2, 3, 5), "2 × 3 × 5"), ((7,), "7"), ((), "1")]
)
def test_one_head_is_left_out_of_a_shape(shape: tuple[int, ...], text: str) -> None:
    axes = ("head", "query", "key")[3 - len(shape) :]
    last = tree(Trace("T", (Stage("s", "S", "", np.ones(shape), axes),)))[-1]
    assert re.split(" {2,}", last)[1:] == [text, "S"]


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


def test_blocks_are_balanced_and_names_unique() -> None:
    lines = [line.strip() for line in shown(layered(3), "mermaid", full=True).splitlines()]
    starts = [line for line in lines if line.startswith("subgraph")]
    assert len(starts) == lines.count("end") > 6
    nodes = [line.partition("[")[0] for line in lines if '["' in line]
    assert len(nodes) == len({*nodes})
