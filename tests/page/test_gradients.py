"""Gradients as they are shown: the 3 × 3 example by hand, and what sentences claim.

The example: dA[q1] = 10, 0, 5 with the weights 0.4011, 0.4011, 0.1978, so δ = 5 and
dZ[q1,k1] = 0.4011 · (10 − 5) ≈ 2.0056.
"""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attncli
from attncli import attend, render
from attncli.trace import Trace
from tests.page.traces import THREE, grouped, shown, table_of

BACKWARD = "Backward: how the loss changes with each number"


def three(**convention: Any) -> Trace:
    return attend(*THREE, d_output=[[1, 0], [0, 1], [1, 1]], **convention)


def sentences(trace: Trace) -> list[str]:
    """Those on gradients, at the first head."""
    lines = render(trace).partition(BACKWARD)[2].splitlines()
    return lines[len(lines) - lines[::-1].index("") :]


def test_a_page_with_gradients() -> None:
    cases: list[tuple[Trace, Any, list[str]]] = [  # what the page has, in this order
        (three(), {"work": True}, [
            r"q3 attends to", BACKWARD, r"d_output  dO",
            r"δ\[q1\] = 0.4011·10 \+ 0.4011·0 \+ 0.1978·5 = 5\n", r"- δ\[q1\]\) = 0.4011 · \(10 - 5\) ≈ 2.0056\n",
            r"dS\[q1,k1\] = dZ\[q1,k1\] / √d_k = 2.0056 / 1.4142 = 1.4181\n",
            r"dQ\[q1,1\] = 1.4181·1 \+ \(-1.4181\)·1 \+ 0·0 = 0\n"]),
        (three(), {"stages": ["lse", "delta"]}, ["lse ", BACKWARD, " delta "]),
        (three(), {"form": "html"}, [f"<h2>{BACKWARD}</h2>"]),
        (three(), {}, [r" δ\n  q1   5.0000\n  q2   3.9833\n  q3  10.0000\n"]),
        (three(softmax_over="queries"), {"stages": ["delta"]}, [r"k1 +k2 +k3\n  δ "]),
        (grouped(), {"stages": ["delta"], "head": 1}, [r"3 × 1\n +δ\n  q1 "]),
        (grouped(query_labels=["a", "b", "c"], mask=[[0.5, 1, 2, 3, 4]]), {"stages": ["d_bias"], "work": True},
         [r"\n  all  ", r"dM\[all,k1\] = "]),
        (three(), {"blank": True, "work": True}, [r"- δ\[q1\]\) = ____ · \(____ - ____\) = ____"]),
        (three(), {"cell": ("q1", "k2")}, [
            r"its part of O\[q1\]", BACKWARD, r"dA\[q1,k2\] = 1·0 \+ 0·10", r"= 0.4011 · \(0 - 5\)",
            r"dS\[q1,k2\] · K\[k2\] = -1.4181 · \[1, 0\]", r"= \[-1.4181, 0\] .*part of dQ\[q1\]",
            r"k2  -1.4181 +0.8414\n", r"= \[-1.4181, 0\] .*part of dK\[k2\]"]),
        (grouped(head_order="tiled"), {"cell": ("1", "2"), "head": 2},
         [r"part of dQ\[q1\]", r"head 1 \+ head 3", r"part of dK\[k2\] of key head 1"]),
        (three(), {"cell": ("2", "1"), "stages": ["d_scores"]}, [r"dS\[q2,k1\]", "= -1.1298"]),
        (three(), {"cell": ("2", "1"), "stages": ["delta"]}, [r"How δ\[q2\]"]),
        (attncli.explain("The old bank", dim=4, d_output="random"), {}, [BACKWARD, '\n"The" lowers', '\n"bank" lowers']),
    ]  # fmt: skip
    for trace, options, patterns in cases:
        text, at = render(trace, **options), 0
        for pattern in patterns:
            place = re.compile(pattern).search(text, at)
            assert place, pattern
            at = place.end()
        assert text.count(BACKWARD) <= 1 or "form" in options
        assert not options.get("blank") or not re.search(
            r"= -?\d+\.\d{3}|lowers the loss", text[at:]
        )


def test_rows_of_delta_are_rows_of_its_map() -> None:
    part = shown(grouped(), stages=("delta", "d_scores"), rows=(1, 3), cols=(1, 2), head=0)
    assert re.findall(r"\d +(delta|d_scores) [^·]*?(\d × \d)", part) == [("delta", "2 × 1"), ("d_scores", "2 × 1")]  # fmt: skip


def sums(trace: Trace, name: str, **options: Any) -> list[str]:
    """The sums beside a stage, or below it."""
    rows = table_of(shown(trace, stages=(name,), **options), name)
    below = [row[1:] for row in rows if row[0] == "Σ"]
    beside = [row[-1] for row in rows if row[0][0] == "q"]
    return below[0] if below else beside if any(row[-1] == "Σ" for row in rows) else []


def test_beside_a_sink_a_row_sums_to_its_share_of_delta() -> None:
    trace = attend([[1.0]], [[0.0], [0.0]], [[3.0], [6.0]], d_output=[[1.0]], sinks=[0.0])
    # three equal shares: δ = 1/3 · 3 + 1/3 · 6 = 3, dA = 3 and 6
    assert trace["delta"].value.tolist() == pytest.approx([3.0])
    assert trace["d_scaled"].value[0] == pytest.approx([0.0, 1.0])
    assert sums(trace, "d_scaled") == ["1"]
    assert trace["d_sinks"].value == pytest.approx([-1.0])
    assert "= -(3·exp(0 - 1.0986)) = -1" in render(trace, stages=["d_sinks"], work=True)
    assert sums(three(), "d_scores") == []  # after the scale there is none


@given(
    st.sampled_from([{}, {"causal": True}, {"softcap": 2.0}, {"dropout": 0.4}, {"scale": 30.0}]),
    st.sampled_from(["keys", "queries"]),
    st.integers(0, 2**16),
)
def test_every_sum_is_0(convention: dict[str, Any], over: Any, seed: int) -> None:
    trace = grouped(softmax_over=over, d_output=np.random.default_rng(seed).normal(size=(4, 3, 7)), **convention)  # fmt: skip
    name = next(name for name, x in trace.stages() if {"d", "delta"} <= x.reads.keys())
    assert set(sums(trace, name, head=2)) == {"0"}


def test_a_sentence() -> None:
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["q1 .* less weight on k1 and more on k2", "q2 .* more weight on k1 and less on k2", "q3 has no gradient: dA is 10 for every key"]),
        ({"causal": True}, ["q1 has no gradient: .* k1 alone"]),
        ({"mask": np.zeros((3, 3), bool)}, ["q1 has no gradient: every key is masked"]),
        ({"sinks": [2.0], "mask": np.tri(3, dtype=bool)}, ["q1 .* with less weight on k1$"]),
        ({"softmax_over": "queries"}, ["k1 .* weight on q"]),
        ({"mask": np.full((3, 3), np.nan)}, ["q1 .* not numbers"]),
        *[({"dtype": dtype}, [".*", ".*", "q3 has no gradient"]) for dtype in ("float32", "float16", "bfloat16")],
    ]  # fmt: skip
    for convention, words in cases:
        for pattern, sentence in zip(words, sentences(three(**convention)), strict=False):
            assert re.match(pattern, sentence)


def test_alike_keys_are_named_together_and_sentences_are_limited() -> None:
    trace = attend([[1.0]], [[0.0]] * 6, [[0.0], *[[2.0]] * 5], d_output=[[1.0]])
    assert "more weight on k1 and less on k2, k3, k4 and 2 more" in sentences(trace)[0]
    many = attend(*np.random.default_rng(3).normal(size=(3, 40, 2)), d_output="random")
    assert (len(sentences(many)), "28 more" in sentences(many)[-1]) == (13, True)
