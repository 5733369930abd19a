"""Whole pages held against what they should look like.

ATTNCLI_UPDATE_GOLDEN=1 writes the files anew; look at them before you keep them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attncli.convention import Convention
from attncli.trace import Stage, Trace
from attncli.views.delimited import delimited
from attncli.views.markdown import markdown
from attncli.views.showing import Showing

from .rendering import rendered, widest
from .traces import CAUSAL, NEVER, THREE_K, THREE_Q, THREE_V, attention, numbers

GOLDEN = Path(__file__).parent / "golden"
SCREEN = Showing(width=80, height=24)
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
    steps = (
        *(step for step in trace.steps if step.name not in {"weights", "output"}),
        Stage("capped", "C", "C = c · tanh(X / c), c = 3", capped, axes),
        Stage("weights", "A", "A = softmax(C) over keys: each row sums to 1", weights, axes),
        Stage("dropped", "D", "D = A with a share of 0.5 set to 0, the rest / 0.5", dropped, axes),
        Stage("output", "O", "O = D V", dropped @ np.array(THREE_V), ("query", "d_v")),
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


TABLES: dict[str, tuple[Callable[[], Trace], Showing]] = {
    "three_tokens": (attention, SCREEN),
    "three_tokens_work": (attention, replace(SCREEN, work=True)),
    "three_tokens_pipe": (attention, Showing()),
    "three_tokens_40": (attention, Showing(width=40, height=24, work=True)),
    "three_tokens_marks": (attention, replace(SCREEN, heatmap=True)),
    "causal": (causal, replace(SCREEN, work=True)),
    "causal_finite": (lambda: causal(-1e9), replace(SCREEN, work=True)),
    "causal_leaking": (lambda: causal(-2.0), SCREEN),
    "bias": (lambda: attention(mask=[[0, -0.5, 2]], notes=("a note",)), replace(SCREEN, work=True)),
    "empty_rows": (empty_rows, replace(SCREEN, rows=(1, None), work=True)),
    "over_queries": (
        lambda: attention(mask=CAUSAL, convention=Convention(softmax_over="queries")),
        replace(SCREEN, work=True),
    ),
    "softcap_dropout": (softcapped, replace(SCREEN, work=True)),
    "inputs": (causal, replace(SCREEN, stages=("q", "k", "v", "mask"))),
    "grouped": (grouped, SCREEN),
    "grouped_head_3": (grouped, replace(SCREEN, head=2, stages=("k", "weights"))),
    "batched": (batched, SCREEN),
    "many_heads": (
        lambda: attention(numbers(12, 2, 2), numbers(12, 2, 2), numbers(12, 2, 2)),
        replace(SCREEN, stages=("weights",)),
    ),
    "labels_40": (hard_labels, Showing(width=40, height=24)),
    "labels_60": (hard_labels, Showing(width=60, height=24)),
    "labels_80": (hard_labels, SCREEN),
    "labels_140": (hard_labels, Showing(width=140, height=40)),
    "large": (large, SCREEN),
    "large_pipe": (large, Showing(stages=("weights",))),
    "large_cut": (large, replace(SCREEN, rows=(500, 503), cols=(498, 503))),
    "nested": (nested, SCREEN),
    "extreme": (extreme, SCREEN),
    "cell": (causal, replace(SCREEN, cell=("sat", "2"))),
    "cell_masked": (causal, replace(SCREEN, cell=("The", "cat"))),
    "cell_67": (
        lambda: attention(numbers(2, 3, 67), numbers(2, 4, 67), numbers(2, 4, 3)),
        replace(SCREEN, cell=("q2", "k3"), head=1),
    ),
}


def check_golden(name: str, found: str) -> None:
    path = GOLDEN / name
    if os.environ.get("ATTNCLI_UPDATE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TABLES)
def test_table(name: str) -> None:
    build, showing = TABLES[name]
    found = rendered(build(), showing)
    assert widest(found) <= (showing.width or 10**6)
    assert not any(line.endswith(" ") for line in found.splitlines())
    check_golden(f"{name}.txt", found)


@pytest.mark.parametrize(
    ("name", "build", "showing"),
    [
        ("causal", causal, Showing(work=True)),
        ("grouped", grouped, Showing(stages=("weights", "concat"))),
        ("labels", hard_labels, Showing(stages=("weights",))),
        ("cell", causal, Showing(cell=("sat", "cat"))),
    ],
)
def test_markdown(name: str, build: Callable[[], Trace], showing: Showing) -> None:
    check_golden(f"{name}.md", "".join(f"{line}\n" for line in markdown(build(), showing)))


@pytest.mark.parametrize(
    ("name", "build", "delimiter"),
    [("causal.csv", causal, ","), ("grouped.tsv", grouped, "\t"), ("labels.csv", hard_labels, ",")],
)
def test_delimited(name: str, build: Callable[[], Trace], delimiter: str) -> None:
    found = delimited(build(), Showing(stages=("scores", "weights")), delimiter)
    check_golden(name, "".join(f"{line}\n" for line in found))


def test_every_golden_file_is_used() -> None:
    tables = {f"{name}.txt" for name in TABLES}
    others = {"causal.md", "grouped.md", "labels.md", "cell.md"}
    others |= {"causal.csv", "grouped.tsv", "labels.csv"}
    assert {path.name for path in GOLDEN.iterdir()} == tables | others


def test_the_three_token_example_is_the_one_of_the_articles() -> None:
    trace = attention(THREE_Q, THREE_K, THREE_V)
    assert trace["weights"].value[0].round(4).tolist() == [0.4011, 0.4011, 0.1978]
    assert trace["output"].value[1].round(6).tolist() == [6.016681, 3.983319]
