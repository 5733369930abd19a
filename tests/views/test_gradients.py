"""Gradients as they are shown: the 3 × 3 example by hand, what sentences claim, and every format.

The example: dA[q1] = 10, 0, 5 with the weights 0.4011, 0.4011, 0.1978, so δ = 5 and
dZ[q1,k1] = 0.4011 · (10 − 5) = 2.0056; its whole pages are in golden/backward*.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attncli
from attncli import attend, render
from attncli.arrays import Array
from attncli.attention.multi_head import Projections, projected_inputs
from attncli.compare import diff
from attncli.convention import Convention
from attncli.files.load import load
from attncli.files.write import trace_json
from attncli.trace import Trace
from attncli.views.blank import without_numbers
from attncli.views.diff import diff_page
from attncli.views.formats import FORMATS, table
from attncli.views.matrix import Matrix
from attncli.views.page import parts
from attncli.views.parts import Closing, Heading
from attncli.views.select import BlankStage, Block, DisplayOptions, as_matrix
from tests.files.saved import trace_npz

from .test_hostile import HOSTILE
from .traces import THREE_K, THREE_Q, THREE_V

D_OUTPUT = [[1, 0], [0, 1], [1, 1]]
BACKWARD = "Backward: how the loss changes with each number"


def three(**how: Any) -> Trace:
    return attend(THREE_Q, THREE_K, THREE_V, d_output=D_OUTPUT, **how)


def random(*batch: int, seed: int = 5, **how: Any) -> Trace:
    """Four heads on two key heads, three queries, five keys."""
    rng = np.random.default_rng(seed)
    q, d = rng.normal(size=(*batch, 4, 3, 2)), rng.normal(size=(*batch, 4, 3, 7))
    k, v = rng.normal(size=(*batch, 2, 5, 2)), rng.normal(size=(*batch, 2, 5, 7))
    return attend(q, k, v, d_output=d, **how)


def sentences(trace: Trace, **options: Any) -> list[str]:
    """Those on gradients, at the first head and batch entry."""
    *_, last = parts(trace, DisplayOptions(**options))
    assert isinstance(last, Closing)
    return [*last.heads[0][1]]


# ---- the example, with a pencil


@pytest.mark.parametrize(
    "line",
    [
        "dV[k1,1] = 0.4011·1 + 0.4011·0 + 0.5035·1 = 0.9046",
        "dA[q1,k1] = 1·10 + 0·0 = 10",
        "δ[q1] = 0.4011·10 + 0.4011·0 + 0.1978·5 = 5",
        "dZ[q1,k1] = 0.4011 · (10 - 5) = 2.0056",
        "dS[q1,k1] = dZ[q1,k1] / √d_k = 2.0056 / 1.4142 = 1.4181",
        "dQ[q1,1] = 1.4181·1 + (-1.4181)·1 + 0·0 = 0",
        "dK[k1,1] = 1.4181·1 + (-1.1298)·0 + 0·1 = 1.4181",
    ],
)
def test_every_stage_of_the_example_has_its_arithmetic(line: str) -> None:
    assert f"  {line}\n" in render(three(), work=True)


def test_the_heading_is_before_the_gradients_and_what_the_weights_say_before_it() -> None:
    text = render(three())
    assert text.count(BACKWARD) == 1
    assert text.index("q3 attends to") < text.index(BACKWARD) < text.index("d_output  dO given")
    assert BACKWARD not in render(attend(THREE_Q, THREE_K, THREE_V))


def test_the_gradients_of_several_heads_follow_those_heads_forward() -> None:
    text = render(random())
    assert text.count(BACKWARD) == 1
    assert text.rindex("output    O = A V") < text.index(BACKWARD) < text.index("d_output")


def test_delta_is_a_column_beside_its_map_and_a_row_where_softmax_is_over_queries() -> None:
    assert "            δ\n  q1   5.0000\n  q2   3.9833\n  q3  10.0000\n" in render(three())
    over = render(three(softmax_over="queries"), stages=["delta"])
    assert re.search(r"k1 +k2 +k3\n  δ ", over)
    heads = render(random(), stages=["delta"], head=1)
    assert re.search(r"3 × 1\n +δ\n  q1 ", heads)
    assert three()["delta"].value.shape == (3,)


def test_rows_of_delta_are_rows_of_its_map() -> None:
    shown = DisplayOptions(stages=("delta", "d_scores"), rows=(1, 3), cols=(1, 2), head=0)
    found = [part for part in parts(random(), shown) if isinstance(part, Matrix)]
    assert [(m.name, len(m.rows), len(m.columns)) for m in found] == [
        ("delta", 2, 1),
        ("d_scores", 2, 1),
    ]


# ---- sums of 0


def sums(trace: Trace, name: str, head: int = 0) -> list[str]:
    """The sums beside (or below) a stage of one head."""
    block = Block(trace)
    where = {"head": head} if trace[name].value.ndim > 2 else {}
    m = Matrix(block, trace[name], where, DisplayOptions())
    grid = m.grid(tuple(m.rows), tuple(m.columns))
    return [cell.text.strip() for row in grid.cells for cell in row if cell.kind == "sum"]


def test_the_gradients_of_what_softmax_reads_have_their_sums() -> None:
    assert sums(three(), "d_scaled") == ["0", "0", "0"]
    assert sums(three(softmax_over="queries"), "d_scaled") == ["0", "0", "0"]
    assert sums(three(), "d_scores") == []
    assert "each row sums to 0" in three()["d_scaled"].formula
    assert "each column sums to 0" in three(softmax_over="queries")["d_scaled"].formula


def test_beside_a_sink_a_row_sums_to_its_share_of_delta() -> None:
    trace = attend([[1.0]], [[0.0], [0.0]], [[3.0], [6.0]], d_output=[[1.0]], sinks=[0.0])
    # three equal shares: δ = 1/3 · 3 + 1/3 · 6 = 3, dA = 3 and 6
    assert trace["delta"].value.tolist() == pytest.approx([3.0])
    assert trace["d_scaled"].value[0] == pytest.approx([0.0, 1.0])
    assert sums(trace, "d_scaled") == ["1"]
    assert trace["d_sinks"].value == pytest.approx([-1.0])
    assert "ds[head 1] = -(3·0.3333) = -1  (δ times what the sink takes)" in render(
        trace, stages=["d_sinks"], work=True
    ).replace("ds[1]", "ds[head 1]")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**16),
    st.sampled_from([{}, {"causal": True}, {"softcap": 2.0}, {"dropout": 0.4}, {"scale": 30.0}]),
    st.sampled_from(["keys", "queries"]),
)
def test_every_sum_is_0(seed: int, how: dict[str, Any], over: Any) -> None:
    trace = random(seed=seed, softmax_over=over, **how)
    name = next(n for n, stage in trace.stages() if stage.work == "d_softmax")
    assert set(sums(trace, name, head=2)) == {"0"}


# ---- what the sentences say


def test_the_sentences_of_the_example() -> None:
    assert sentences(three()) == [
        "q1 would rather attend to k2 than k1: lowering its score of k1 lowers the loss fastest",
        "q2 would rather attend to k1 than k2: raising its score of k1 lowers the loss fastest",
        "q3 has no gradient: every key offers it the same (dA is 10 everywhere)",
    ]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"causal": True}, "q1 has no gradient: its weight is on k1 alone"),
        ({"mask": np.zeros((3, 3), bool)}, "q1 has no gradient: every key is masked"),
        (
            {"sinks": [2.0], "mask": np.tri(3, dtype=bool)},
            "q1 would rather attend less to k1: lowering its score of k1",
        ),
        ({"softmax_over": "queries"}, "k1 would rather go to "),
        ({"mask": np.full((3, 3), np.nan)}, "q1 has gradients that are not numbers"),
    ],
)
def test_a_row_of_another_kind(how: dict[str, Any], said: str) -> None:
    assert sentences(three(**how))[0].startswith(said)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rounding_is_no_gradient(dtype: Any) -> None:
    assert "q3 has no gradient" in sentences(three(dtype=dtype))[2]


def test_alike_keys_are_named_together() -> None:
    v = [[0.0], [2.0], [2.0], [2.0], [2.0], [2.0]]
    trace = attend([[1.0]], [[0.0]] * 6, v, d_output=[[1.0]])
    (said,) = sentences(trace)
    assert said == (
        "q1 would rather attend to k1 than k2, k3, k4 and 2 more: "
        "raising its score of k1 lowers the loss fastest"
    )


def test_sentences_are_limited_as_those_on_weights_are() -> None:
    rng = np.random.default_rng(3)
    trace = attend(*rng.normal(size=(3, 40, 2)), d_output="random")
    found = sentences(trace)
    assert len(found) == 13
    assert found[-1] == "… 28 more queries: --rows A:B or --full"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**16), st.booleans(), st.sampled_from([None, 1.5]))
def test_a_sentence_names_the_score_that_lowers_the_loss_fastest(
    seed: int, causal: bool, softcap: float | None
) -> None:
    """Each score is moved a little, by a bias, and the loss Σ O ∘ dO computed again."""
    rng = np.random.default_rng(seed)
    q, k, v, d = rng.normal(size=(4, 5, 3))
    how: dict[str, Any] = {"scale": "none", "causal": causal, "softcap": softcap}

    def loss(bias: Array) -> float:
        if softcap:  # a bias inside of the cap
            own: Any = {"mask": bias, "softcap_place": "after-bias"}
        else:
            own = {"mask": bias}
        return float((attend(q, k, v, **how, **own)["output"].value * d).sum())

    for i, said in enumerate(sentences(attend(q, k, v, d_output=d, **how))):
        found = re.search(r": (lowering|raising) its score of k(\d) lowers", said)
        if found is None:
            assert "no gradient" in said
            continue
        drops = {}
        for j in range(5):
            for way, step in (("lowering", -1e-5), ("raising", 1e-5)):
                bias = np.zeros((5, 5))
                bias[i, j] = step
                drops[way, j] = loss(np.zeros((5, 5))) - loss(bias)
        assert drops[found[1], int(found[2]) - 1] == pytest.approx(max(drops.values()), rel=1e-3)


# ---- one weight, all the way back


def test_a_weight_is_followed_to_its_share_of_the_query_and_the_key() -> None:
    text = render(three(), cell=("q1", "k2"))
    for words in (
        "dA[q1,k2] = 1·0 + 0·10",
        "dZ[q1,k2] = A[q1,k2] · (dA[q1,k2] - δ[q1])",
        "= 0.4011 · (0 - 5)",
        "dS[q1,k2] · K[k2] = -1.4181 · [1, 0]",
        "= [-1.4181, 0]  (its share of dQ[q1])",
        "dQ[q1] = [0, 1.4181]  (of all keys together)",
        "= [-1.4181, 0]  (its share of dK[k2])",
        "dK[k2] = [-1.4181, 0.8414]  (of all queries together)",
    ):
        assert words in text
    assert text.index("its share of the output") < text.index(BACKWARD) < text.index("dA[q1,k2]")


def test_of_grouped_heads_it_is_a_share_of_a_key_head() -> None:
    text = render(random(head_order="tiled"), cell=("1", "2"), head=2)
    assert "(its share of dK[k2] of key head 1)" in text
    assert "(of all queries of head 1, head 3)" in text
    assert "(its share of dQ[q1])" in text


def test_a_gradient_of_a_score_by_itself() -> None:
    text = render(three(), stages=["d_scores"], cell=("2", "1"))
    assert "How dS[q2,k1] is computed" in text
    assert "d_weights" in text
    assert "= -1.1298" in text
    assert "How δ[q2] is computed" in render(three(), stages=["delta"], cell=("2", "1"))


# ---- formats


def test_a_saved_trace_is_shown_as_it_was() -> None:
    rng = np.random.default_rng(7)
    weights = {f"w_{name}": rng.normal(size=(5, 4)) for name in "qkv"}
    made = projected_inputs({"x": rng.normal(size=(3, 5))}, Projections(**weights), Convention(), n_heads=2)  # fmt: skip
    made = made.with_gradient("random")
    parts_of_it = (made.values[name] for name in "qkv")
    whole = made.around(attend(*parts_of_it, d_output=made.d_output))
    for trace in (random(2, causal=True, sinks=[1, 2, 3, 4]), three(softmax_over="queries"), whole):
        for data in ("".join(trace_json(trace)).encode(), trace_npz(trace)):
            found = load("-", stdin=io.BytesIO(data)).trace
            assert found is not None
            for form in ("table", "markdown", "html", "csv"):
                kind: Any = form
                assert render(found, kind, work=True) == render(trace, kind, work=True)
            assert render(found, cell=("1", "1")) == render(trace, cell=("1", "1"))


def test_two_traces_with_gradients_are_compared() -> None:
    found = diff(three(), three(scale="none"), names=("a", "b"))
    text = "".join(table.text(three(), DisplayOptions(), diff_page(found)))
    assert "d_scores" in text


def test_a_vector_in_two_traces_is_compared_as_it_is_shown() -> None:
    """δ of head 2 and q1 is 1 more in the second: one column, of that head alone."""
    a = random()
    value = a["delta"].value.copy()
    value[1, 0] += 1
    b = a.mapped(lambda stage: replace(stage, value=value) if stage.name == "delta" else stage)
    found = diff(a, b, names=("ours", "theirs"))
    shown = DisplayOptions(stages=("delta",))
    text = "".join(table.text(found.trace(()), shown, diff_page(found)))
    assert re.search(r"delta +1 +12 +1 +\S+ +2 +q1 +δ\n", text)
    assert "delta, head 2 of 4" in text
    assert re.search(r"difference +theirs − ours +3 × 1\n +δ\n  q1 +1", text)


def test_a_worksheet_leaves_out_what_follows_from_the_given_gradient_alone() -> None:
    blank = without_numbers(three(), ())
    given = {n for n, x in blank.stages() if not isinstance(x, BlankStage)}
    assert given == {"q", "k", "v", "d_output"}
    text = render(three(), work=True, blank=True)
    assert "dZ[q1,k1] = ____ · (____ - ____) = ____" in text
    assert not re.search(r"= -?\d+\.\d{3}", text.partition(BACKWARD)[2])
    assert "would rather" not in text


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "options", [{}, {"work": True, "full": True}, {"cell": ("1", "3")}, {"heatmap": True}]
)
def test_hostile_labels_do_nothing_in_any_format(name: str, options: dict[str, Any]) -> None:
    labels, n = list(HOSTILE), len(HOSTILE)
    rng = np.random.default_rng(2)
    q, k, v, d = rng.normal(size=(4, n, 2))
    own: Any = {"query_labels": labels, "key_labels": labels, "sinks": [0.5], "dropout": 0.3}
    trace = attend(q, k, v, mask=rng.normal(size=(1, n)), d_output=d, **own)
    module, shown = import_module(f"attncli.views.formats.{name}"), DisplayOptions(**options)
    if FORMATS[name].binary:
        pytest.importorskip("typst", reason="needs the extra figures")
        module.write(trace, shown, io.BytesIO())
        return
    text = "".join(module.text(trace, shown))
    controls = {char for char in text if unicodedata.category(char) in ("Cc", "Cf")}
    assert controls <= {"\n", "\t"}
    if name == "csv":
        rows = csv.reader(io.StringIO(text))
        assert not any(cell[:1] in ("=", "@", "+") for row in rows for cell in row)


def test_every_gradient_has_an_arrow_from_what_it_was_computed_from() -> None:
    text = render(random(causal=True, softcap=2.0, dropout=0.2), "mermaid")
    nodes = dict(re.findall(r'(n\d+)\["([\w#;]+?)<br/>', text))
    names = {node: name.replace("#95;", "_") for node, name in nodes.items()}
    arrows = {(names[a], names[b]) for a, b in re.findall(r"(n\d+) --> (n\d+)", text)}
    assert {("dropped", "d_v"), ("d_output", "d_v"), ("d_dropped", "d_weights")} <= arrows
    assert {("d_weights", "delta"), ("delta", "d_masked"), ("capped", "d_scaled")} <= arrows
    assert {("d_scores", "d_q"), ("k", "d_q"), ("d_scores", "d_k"), ("q", "d_k")} <= arrows


def test_a_page_shows_the_heading_at_every_head() -> None:
    """Of a page that shows one head at a time it must not belong to the first."""
    text = render(random(), "html")
    assert f"<div><h2>{BACKWARD}</h2></div>" in text
    (heading,) = (x for x in parts(random(), DisplayOptions()) if isinstance(x, Heading) and x.text == BACKWARD)  # fmt: skip
    assert heading.is_whole


def test_a_bias_that_was_broadcast_has_one_row_for_all() -> None:
    rng = np.random.default_rng(4)
    own: Any = {"query_labels": ["a", "b", "c"], "mask": rng.normal(size=(1, 5))}
    text = render(random(**own), stages=["d_bias"], work=True)
    assert "\n  all  " in text
    assert text.count("d_bias") == 1
    assert text.count("dM[all,k1] = ") == 1


def test_a_vector_of_a_stage_by_the_name_alone_is_not_changed() -> None:
    stage = three()["weights"]
    assert as_matrix(stage) is stage
    assert as_matrix(as_matrix(three()["delta"])).value.shape == (3, 1)


def test_a_batch_of_one_head_without_an_output_projection() -> None:
    rng = np.random.default_rng(7)
    weights = Projections(*(rng.normal(size=(5, 2)) for _ in "qkv"))
    made = projected_inputs({"x": rng.normal(size=(2, 3, 5))}, weights, Convention())
    d = rng.normal(size=(2, 3, 2))
    made = made.with_gradient(d)
    q, k, v = (made.values[name] for name in "qkv")
    trace = made.around(attend(q, k, v, d_output=made.d_output))
    own = attncli.multi_head_attention(made.values["x"], weights, d_output=d, n_heads=1)
    np.testing.assert_allclose(trace["d_x"].value, own["d_x"].value, atol=1e-13)
    assert trace["d_output"].formula == "dO given"


def test_a_sentence_of_words_says_what_its_tokens_would_rather_attend_to() -> None:
    text = render(attncli.explain("The old bank", dim=4, d_output="random"))
    said = re.findall(r'^"(\w+)" (?:would rather|has no gradient)', text, re.MULTILINE)
    assert said == ["The", "old", "bank"]
    assert text.index(BACKWARD) < text.index("would rather")
    assert text.count("Which tokens each token attends to") == 1


def test_what_is_computed_when_it_is_asked_for_is_before_the_gradients() -> None:
    text = render(three(), stages=["lse", "delta"])
    assert re.search(r"5  lse .*Backward: .*9  delta ", text, re.DOTALL)
