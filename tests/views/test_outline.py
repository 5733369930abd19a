"""The outline and the flowchart: the way without the matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attncli.trace import Stage, Trace
from attncli.views.formats import markdown, mermaid, table
from attncli.views.outline import outline, outline_page, shape_of
from attncli.views.select import DisplayOptions

from .rendering import View, view
from .traces import CAUSAL, attention, numbers

W_Q = Stage("w_q", "W_q", "", numbers(5, 3), ("d_model", "h·d_k"))


def layered(n: int) -> Trace:
    layers = []
    for number in range(1, n + 1):
        before = "input" if number == 1 else f"encoder.{number - 1}.attention.output"
        q, k, v, *others = (step for step in attention().steps if isinstance(step, Stage))
        inputs = (replace(stage, reads={"x": before}) for stage in (q, k, v))
        inner = Trace("Self-attention", (W_Q, *inputs, *others), name="attention")
        layers.append(Trace("Layer", (inner,), name=str(number)))
    x = Stage("input", "X", "X = E + PE", numbers(3, 5), ("token", "dimension"))
    return Trace("All", (x, Trace("Encoder", tuple(layers), name="encoder")))


def drawn(trace: Trace, shown: View) -> list[str]:
    return "".join(table.text(trace, shown.options, outline_page, shown.screen)).splitlines()


def test_the_tree() -> None:
    lines = drawn(layered(1), view())[2:]
    assert lines == [
        "├─ input             3 × 5  X = E + PE",
        "└─ encoder  Encoder",
        "   └─ 1  Layer",
        "      └─ attention  Self-attention",
        "         ├─ parameters  w_q 5 × 3",
        "         ├─ q        3 × 2  Q",
        "         ├─ k        3 × 2  K",
        "         ├─ v        3 × 2  V",
        "         ├─ scores   3 × 3  S = Q Kᵀ",
        "         ├─ scaled   3 × 3  Z = S / √d_k = S / 1.4142",
        "         ├─ weights  3 × 3  A = softmax(Z) over keys: each row sums to 1",
        "         └─ output   3 × 2  O = A V",
    ]


@pytest.mark.parametrize("n", [2, 3, 7])
def test_layers_alike_are_drawn_once(n: int) -> None:
    whole = outline(layered(n), DisplayOptions(full=True)).branches
    short = outline(layered(n), DisplayOptions()).branches
    lines = [f"{b.name}: {b.formula}" for b in short if "like layer 1" in b.formula]
    one = "2: like layer 1, with weights of its own"
    assert lines == [one if n == 2 else f"2 to {n}: like layer 1, each with weights of its own"]
    assert len(whole) == 2 + 10 * n
    assert len(short) == 2 + 10 + 1


@pytest.mark.parametrize("width", [40, 60, 80])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    lines = drawn(layered(2), view(width))
    assert max(map(len, lines)) <= width
    assert not any(line.endswith(" ") for line in lines)


def test_markdown_makes_a_list_of_lists() -> None:
    lines = "".join(markdown.text(layered(1), DisplayOptions(), outline_page)).splitlines()
    assert "- **input** 3 × 5 `X = E + PE`" in lines
    assert "      - **scores** 3 × 3 `S = Q Kᵀ`" in lines


@pytest.mark.parametrize(
    ("shape", "text"), [((1, 3, 2), "3 × 2"), ((2, 3, 5), "2 × 3 × 5"), ((7,), "7"), ((), "1")]
)
def test_one_head_is_left_out_of_a_shape(shape: tuple[int, ...], text: str) -> None:
    axes = ("head", "query", "key")[3 - len(shape) :]
    assert shape_of(Stage("s", "S", "", np.ones(shape), axes)) == text


def arrows(trace: Trace, options: DisplayOptions | None = None) -> set[tuple[str, str]]:
    """Who feeds whom, by the first word of each node."""
    lines = [
        line.strip()
        for line in "".join(mermaid.text(trace, options or DisplayOptions())).splitlines()
    ]
    names = {
        line.partition("[")[0]: line.partition('["')[2].split("<br/>")[0].rstrip('"]')
        for line in lines
        if line.startswith("n") and '["' in line
    }
    pairs = (line.split(" --> ") for line in lines if " --> " in line)
    return {(names[a], names[b]) for a, b in pairs}


def test_the_arrows_of_an_attention() -> None:
    assert arrows(attention(mask=CAUSAL)) == {
        ("q", "scores"),
        ("k", "scores"),
        ("scores", "scaled"),
        ("scaled", "masked"),
        ("mask", "masked"),
        ("masked", "weights"),
        ("weights", "output"),
        ("v", "output"),
    }


def test_every_layer_or_one_node_for_those_alike() -> None:
    assert {("input", "q"), ("input", "k"), ("output", "q")} <= arrows(
        layered(2), DisplayOptions(full=True)
    )
    short = arrows(layered(4))
    assert any(b == "2 to 4" for a, b in short if a == "output")


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("encoder.2.attention.weights", set()),
        ("weights", {("weights", "2 to 3")}),
        ("w_q", set()),
        ("encoder.3", arrows(attention())),
    ],
)
def test_chosen_stages_of_layers_are_drawn(stage: str, expected: set[tuple[str, str]]) -> None:
    assert arrows(layered(3), DisplayOptions(stages=(stage,))) == expected


def test_blocks_are_balanced_and_names_unique() -> None:
    lines = [
        line.strip()
        for line in "".join(mermaid.text(layered(3), DisplayOptions(full=True))).splitlines()
    ]
    starts = [line for line in lines if line.startswith("subgraph")]
    assert len(starts) == lines.count("end") == 7
    nodes = [line.partition("[")[0] for line in lines if '["' in line]
    assert len(nodes) == len(set(nodes))


@pytest.mark.parametrize(
    "text", ['"]', "a;b", "<b>", "`x`", "%%{init}", "end\n", "#34;", "--> x", "\x1b["]
)
def test_nothing_in_a_label_acts(text: str) -> None:
    written = mermaid.escape(text).replace("<wbr/>", "")  # the one tag of ours
    assert not set(written.replace(";", "")) & set('"[]<>`%{}()|\n\x1b')
    stage = Stage("tokens", "T", text, np.ones((2, 1)), ("count", "token"), {"token": (text,)})
    lines = "".join(mermaid.text(Trace("T", (stage,)), DisplayOptions())).splitlines()
    assert len(lines) == 2
    assert lines[1].count('"') == 2
