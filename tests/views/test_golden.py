"""Whole pages compared with what they should look like.

ATTNCLI_UPDATE_GOLDEN=1 writes the files anew; look at them before you keep them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.attention.attend import attend
from attncli.convention import Convention
from attncli.trace import Stage, Trace
from attncli.views.formats import csv, latex, markdown, tsv
from attncli.views.select import DisplayOptions

from .rendering import View, rendered, view, widest
from .traces import CAUSAL, NEVER, THREE_K, THREE_Q, THREE_V, attention, computed, numbers

GOLDEN = Path(__file__).parent / "golden"
SCREEN = view(80, 24)
WORDS = {"query": ("The", "cat", "sat"), "key": ("The", "cat", "sat")}
HARD = (
    "incomprehensibilities",
    "incomprehensible",
    "日本語",
    "👍🏽 ok",
    "[red]שלום",
    "\x1b[31mred\n",
    " the",
    "e\u0301t\u0301e\u0301",
)


def causal(mask_value: float = NEVER) -> Trace:
    return attention(
        mask=CAUSAL, convention=Convention(causal=True, mask_value=mask_value), labels=WORDS
    )


def grouped() -> Trace:
    trace = attention(numbers(4, 3, 2), numbers(2, 5, 2), numbers(2, 5, 3))
    concat = np.swapaxes(trace["output"].value, 0, 1).reshape(3, 12)
    stage = Stage("concat", "H", "H = [O₁ … O₄]", concat, ("query", "d_model"))
    return replace(trace, steps=(*trace.steps, stage))


def batched() -> Trace:
    padding = np.zeros((2, 1, 1, 3))
    padding[1, :, :, 2] = NEVER
    mask = np.broadcast_to(padding, (2, 2, 2, 3))
    return attention(numbers(2, 2, 2, 5), numbers(2, 2, 3, 5), numbers(2, 2, 3, 2), mask)


def softcapped() -> Trace:
    how = Convention(softcap=3.0, softcap_place="after-mask", dropout=0.5)
    trace = attention(mask=CAUSAL, convention=how)
    masked = trace["masked"].value
    capped = 3 * np.tanh(masked / 3)
    weights = np.exp(capped) / np.exp(capped).sum(-1, keepdims=True)
    dropped = weights * [[2, 0, 2], [2, 2, 2], [0, 2, 2]]
    axes = ("query", "key")
    work = "c · tanh([x] / c) = {cap} · tanh({x} / {cap})"
    cap = computed("capped", "B", "B = c · tanh(L / c), c = 3", capped, axes, {}, work, x="masked")
    shares = "A = softmax(B) over keys: each row sums to 1"
    drop = "D = A, each number set to 0 with probability 0.5, the others divided by 0.5"
    drawn = computed("dropped", "D", drop, dropped, axes, {}, "dropout", x="weights")
    output, ends = dropped @ np.array(THREE_V), ("query", "d_v")
    steps = (
        *(step for step in trace.steps if step.name not in {"weights", "output"}),
        replace(cap, params={"cap": 3.0}),
        computed("weights", "A", shares, weights, axes, {}, "softmax", x="capped"),
        replace(drawn, params={"p": 0.5}),
        computed("output", "O", "O = D V", output, ends, {}, "products", a="dropped", v="v"),
    )
    return replace(trace, steps=steps)


def large(n: int = 1024) -> Trace:
    mask = np.triu(np.full((n, n), NEVER), 1)
    how = Convention(causal=True)
    return attention(numbers(n, 3), numbers(n, 3, seed=8), numbers(n, 2), mask, how)


def empty_rows() -> Trace:
    return attention(mask=np.array([[0, NEVER, 0], [NEVER] * 3, [0, 0, 0]]))


def hard_labels() -> Trace:
    labels = {"query": HARD[:4], "key": HARD}
    return attention(numbers(4, 2), numbers(8, 2), numbers(8, 2), labels=labels)


def nested() -> Trace:
    x = Stage("input", "X", "", numbers(3, 4), ("token", "d_model"), {"token": WORDS["key"]})
    inner = replace(attention(labels=WORDS), name="attention", title="Self-attention")
    norm = Stage("norm", "N", "N = LayerNorm(X + O)", numbers(3, 4), ("token", "d_model"))
    return Trace("Encoder layer", (x, inner, norm), notes=("weights are random",))


def extreme() -> Trace:
    scaled = np.array([[1e-9, np.nan, -np.inf], [-1.5, 0.25, np.inf], [2.5e12, -3e-7, 0]])
    tiny = np.array([[1e-7, 2.5e-8, 0]])
    return Trace(
        "Numbers of every kind",
        (
            Stage("scaled", "Z", "", scaled, ("query", "key")),
            Stage("small", "T", "", tiny, ("query", "key"), note="none of these is zero but one"),
            Stage("whole", "W", "", np.array([[-12, 7], [0, 300]]), ("position", "dimension")),
            Stage("tokens", "T", "", np.array(["The", "cat"]), ("token",)),
        ),
    )


def backward() -> Trace:
    return attend(THREE_Q, THREE_K, THREE_V, d_output=[[1, 0], [0, 1], [1, 1]])


def backward_grouped() -> Trace:
    q, d = numbers(4, 3, 2), numbers(4, 3, 5, seed=9)
    k, v = numbers(2, 3, 2), numbers(2, 3, 5, seed=8)
    words = {f"{axis}_labels": list(names) for axis, names in WORDS.items()}
    more: Any = {"sinks": [0.5, 1, 0, -1], "mask": [[0, -0.5, 2]], "causal": True, **words}
    return attend(q, k, v, d_output=d, softcap=3.0, **more)


TABLES: dict[str, tuple[Callable[[], Trace], View]] = {
    "backward": (backward, view(80, 40, work=True)),
    "backward_60": (backward_grouped, view(60, 40, head=2, work=True)),
    "backward_140": (backward_grouped, view(140, 40)),
    "backward_cell": (backward, view(80, 24, cell=("q1", "k2"))),
    "backward_grouped_cell": (backward_grouped, view(80, 24, head=2, cell=("sat", "cat"))),
    "three_tokens": (attention, SCREEN),
    "three_tokens_work": (attention, view(80, 24, work=True)),
    "three_tokens_pipe": (attention, view()),
    "three_tokens_40": (attention, view(40, 24, work=True)),
    "three_tokens_marks": (attention, view(80, 24, heatmap=True)),
    "causal": (causal, view(80, 24, work=True)),
    "causal_finite": (lambda: causal(-1e9), view(80, 24, work=True)),
    "causal_leaking": (lambda: causal(-2.0), SCREEN),
    "bias": (lambda: attention(mask=[[0, -0.5, 2]], notes=("a note",)), view(80, 24, work=True)),
    "empty_rows": (empty_rows, view(80, 24, rows=(1, None), work=True)),
    "over_queries": (
        lambda: attention(mask=CAUSAL, convention=Convention(softmax_over="queries")),
        view(80, 24, work=True),
    ),
    "softcap_dropout": (softcapped, view(80, 24, work=True)),
    "inputs": (causal, view(80, 24, stages=("q", "k", "v", "mask"))),
    "grouped": (grouped, SCREEN),
    "grouped_head_3": (grouped, view(80, 24, head=2, stages=("k", "weights"))),
    "batched": (batched, SCREEN),
    "many_heads": (
        lambda: attention(numbers(12, 2, 2), numbers(12, 2, 2), numbers(12, 2, 2)),
        view(80, 24, stages=("weights",)),
    ),
    "labels_40": (hard_labels, view(40, 24)),
    "labels_60": (hard_labels, view(60, 24)),
    "labels_80": (hard_labels, SCREEN),
    "labels_140": (hard_labels, view(140, 40)),
    "large": (large, SCREEN),
    "large_pipe": (large, view(stages=("weights",))),
    "large_cut": (large, view(80, 24, rows=(500, 503), cols=(498, 503))),
    "nested": (nested, SCREEN),
    "extreme": (extreme, SCREEN),
    "cell": (causal, view(80, 24, cell=("sat", "2"))),
    "cell_masked": (causal, view(80, 24, cell=("The", "cat"))),
    "cell_67": (
        lambda: attention(numbers(2, 3, 67), numbers(2, 4, 67), numbers(2, 4, 3)),
        view(80, 24, cell=("q2", "k3"), head=1),
    ),
}


def check_golden(name: str, found: str) -> None:
    path = GOLDEN / name
    if os.environ.get("ATTNCLI_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_table(name: str) -> None:
    build, options = TABLES[name]
    found = rendered(build(), options)
    assert widest(found) <= (options.screen.width or 10**6)
    assert not any(line.endswith(" ") for line in found.splitlines())
    check_golden(f"{name}.txt", found)


@pytest.mark.parametrize(
    ("name", "build", "options"),
    [
        ("causal", causal, DisplayOptions(work=True)),
        ("backward", backward, DisplayOptions(work=True)),
        ("grouped", grouped, DisplayOptions(stages=("weights", "concat"))),
        ("labels", hard_labels, DisplayOptions(stages=("weights",))),
        ("cell", causal, DisplayOptions(cell=("sat", "cat"))),
    ],
)
def test_markdown(name: str, build: Callable[[], Trace], options: DisplayOptions) -> None:
    check_golden(f"{name}.md", "".join(markdown.text(build(), options)))


@pytest.mark.parametrize(
    ("name", "build", "options"),
    [
        ("causal", causal, DisplayOptions(work=True)),
        ("labels", hard_labels, DisplayOptions(stages=("weights",))),
        ("large", large, DisplayOptions(stages=("weights",))),
        ("cell", causal, DisplayOptions(cell=("sat", "cat"))),
    ],
)
def test_latex(name: str, build: Callable[[], Trace], options: DisplayOptions) -> None:
    check_golden(f"{name}.tex", "".join(latex.text(build(), options)))


@pytest.mark.parametrize(
    ("name", "build", "delimiter"),
    [("causal.csv", causal, ","), ("grouped.tsv", grouped, "\t"), ("labels.csv", hard_labels, ",")],
)
def test_delimited(name: str, build: Callable[[], Trace], delimiter: str) -> None:
    form = csv if delimiter == "," else tsv
    found = form.text(build(), DisplayOptions(stages=("scores", "weights")))
    check_golden(name, "".join(found))


def test_every_golden_file_is_used() -> None:
    tables = {f"{name}.txt" for name in TABLES}
    others = {"backward.md", "causal.md", "grouped.md", "labels.md", "cell.md"}
    others |= {"causal.tex", "labels.tex", "large.tex", "cell.tex"}
    others |= {"causal.csv", "grouped.tsv", "labels.csv"}
    figures = {"three_tokens", "causal", "causal_arcs", "grouped", "labels"}  # see test_svg
    others |= {f"{name}.svg" for name in figures}
    others |= {"diff.txt", "diff_marks.txt", "diff.md"}  # of test_diff.py
    assert {path.name for path in GOLDEN.iterdir()} == tables | others


def test_the_three_token_example_is_the_one_of_the_articles() -> None:
    trace = attention(THREE_Q, THREE_K, THREE_V)
    assert trace["weights"].value[0].round(4).tolist() == [0.4011, 0.4011, 0.1978]
    assert trace["output"].value[1].round(6).tolist() == [6.016681, 3.983319]
