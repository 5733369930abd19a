"""The words around the matrices: headline, legend, closing sentences, arithmetic."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from attncli.attention.attend import Block as AttendBlock
from attncli.attention.attend import attend
from attncli.attention.layers import Architecture, LayerPlan, layer_norm
from attncli.attention.positions import sinusoidal
from attncli.attention.weights import Dimensions, random_weights
from attncli.convention import Convention
from attncli.errors import ShapeError, StageError
from attncli.trace import Stage, Trace
from attncli.views.closing import sentences
from attncli.views.page import headline
from attncli.views.select import Block, DisplayOptions

from .rendering import lines_of, view
from .traces import CAUSAL, NEVER, attention, matrix, numbers


def weights(*rows: list[float], **how: Any) -> Block:
    stage = Stage("weights", "A", "", np.array(rows), ("query", "key"))
    return Block(Trace("T", (stage,), Convention(**how)))


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ([0.25, 0.25, 0.5], "q1 attends to k3 (50.0 %), then k1 and k2 (25.0 % each)"),
        ([0.0, 1.0, 0.0], "q1 attends to k2 alone (100 %)"),
        ([0.25] * 4, "q1 attends to 4 keys alike (25.0 % each)"),
        (
            [0.4, 0.15, 0.15, 0.15, 0.15],
            "q1 attends to k1 (40.0 %), then k2, k3 and 2 more keys (15.0 % each)",
        ),
        (
            [0.4, 0.3, 0.2, 0.06, 0.04],
            "q1 attends to k1 (40.0 %), then k2 (30.0 %), then k3 (20.0 %); 2 more keys share 10.0 %",
        ),
        (
            [0.4, 0.3, 0.2, 0.1],
            "q1 attends to k1 (40.0 %), then k2 (30.0 %), then k3 (20.0 %), then k4 (10.0 %)",
        ),
        ([0.99999, 0.00001], "q1 attends to k1 (100.0 %), then k2 (< 0.1 %)"),
        ([math.nan, math.nan], "q1 has weights that are not numbers"),
        ([0.0, 0.0], "q1 attends to nothing"),
        ([0.5, 0.25], "q1 attends to k1 (50.0 %), then k2 (25.0 %); 25.0 % on no key"),
        ([0.995], "q1 attends to k1 alone (99.5 %)"),  # as float16 and bfloat16 round
    ],
)
def test_a_sentence(row: list[float], text: str) -> None:
    assert sentences(weights(row), {}, DisplayOptions()) == (text,)


def test_keys_share_themselves_out_when_softmax_is_over_queries() -> None:
    block = weights([0.75, 0.5], [0.25, 0.5], softmax_over="queries")
    assert sentences(block, {}, DisplayOptions()) == (
        "k1 goes to q1 (75.0 %), then q2 (25.0 %)",
        "k2 goes to q1 and q2 (50.0 % each)",
    )


def test_of_many_queries_only_the_first_have_a_sentence() -> None:
    text = sentences(weights(*[[1.0]] * 20), {}, DisplayOptions())
    assert len(text) == 13
    assert text[-1] == "… 8 more queries: --rows A:B or --full"
    assert len(sentences(weights(*[[1.0]] * 20), {}, DisplayOptions(full=True))) == 20


@pytest.mark.parametrize(
    ("empty", "row", "text", "below"),
    [
        ("zero", 0.0, "q1 attends to nothing: every key is masked", "each weight is 0 "),
        ("nan", math.nan, "q1 has weights that are not numbers: every key is masked", "NaN"),
        (
            "uniform",
            0.5,
            "q1 attends to k1 and k2 (50.0 % each), though every key is masked",
            "0.5 ",
        ),
    ],
)
def test_a_query_without_keys(empty: str, row: float, text: str, below: str) -> None:
    axes = ("query", "key")
    steps = (
        Stage("mask", "M", "", np.full((1, 2), NEVER), axes),
        Stage("weights", "A", "", np.full((1, 2), row), axes),
    )
    lines = lines_of(Trace("T", steps, Convention(empty_rows=empty)))  # type: ignore[arg-type]
    assert lines[-1] == text
    assert any("q1: every key is masked" in line and below in line for line in lines)


LEAST = {
    "float16": -65504.0,
    "bfloat16": -3.3895313892515355e38,
    "float32": -3.4028234663852886e38,
    "float64": -1.7976931348623157e308,
}


@pytest.mark.parametrize("dtype", LEAST)
def test_the_least_number_of_a_type_is_shown_as_masked(dtype: str) -> None:
    mask = np.array([[0.0, 0.0, LEAST[dtype]], [LEAST[dtype]] * 3, [0.0, 0.0, 0.0]])
    text = "\n".join(lines_of(attention(mask=mask)))
    assert text.count("///") == 4 + 1 + 1 + 1  # of the scores, of the weights; a legend each
    assert "/// masked: may not attend, the least number of its type is added to its score" in text
    if dtype != "float16":  # of which float64 keeps the scores below it
        assert "q2: every key is masked; each weight is 0.3333 (the mask is finite)" in text
    assert ", though every key is masked" in text


def test_another_large_number_of_a_mask_is_shown_as_it_is() -> None:
    text = "\n".join(lines_of(attention(mask=np.array([[0, 0, -1e9], [0, 0, 0], [0, 0, 0]]))))
    assert "///" not in text


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({}, ()),
        (
            {"causal": True, "causal_align": "bottom-right"},
            ("causal, the last query at the last key",),
        ),
        ({"window": (2, -1)}, ("window of 2 keys before and all after",)),
        ({"scale": "none"}, ("not scaled",)),
        ({"scale": 0.25}, ("scaled by 0.25",)),
        ({"softcap": 30.0, "softcap_place": "after-mask"}, ("softcap 30 after the mask",)),
        ({"mask_value": -1e9}, ("mask value -1e9",)),
        ({"dropout": 0.1, "seed": 3}, ("dropout 0.1 (seed 3)",)),
        (
            {"empty_rows": "nan", "head_order": "tiled"},
            ("empty rows NaN", "key heads shared in turn (tiled)"),
        ),
    ],
)
def test_choices(how: dict[str, Any], text: tuple[str, ...]) -> None:
    assert headline(Block(Trace("T", (), Convention(**how)))).choices == text


def test_every_choice_has_words() -> None:
    how = Convention(
        scale=2.0,
        softmax_over="queries",
        causal=True,
        window=(1, 1),
        mask_means="ignore",
        mask_value=-1.0,
        empty_rows="nan",
        softcap=1.0,
        head_order="tiled",
        dropout=0.5,
    )
    assert len(headline(Block(Trace("T", (), how))).choices) == 10


def test_facts() -> None:
    trace = attention(
        numbers(2, 4, 3, 5),
        numbers(2, 1, 7, 5),
        numbers(2, 1, 7, 11),
        convention=Convention(dtype="float32"),
    )
    assert headline(Block(trace)).facts == (
        "2 batch entries",
        "4 heads on 1 key head",
        "3 queries",
        "7 keys",
        "d_k 5",
        "d_v 11",
        "float32",
    )


def work_of(trace: Trace, stage: str, **more: Any) -> str:
    lines = lines_of(trace, view(stages=(stage,), work=True, **more))
    found = [line.strip() for line in lines if " = " in line and "[" in line and "  = " not in line]
    return found[-1]


def test_work_of_a_long_sum_shows_its_ends() -> None:
    trace = attention(np.ones((1, 64)), np.full((2, 64), 2.0), np.ones((2, 1)))
    text = work_of(trace, "scores")
    ends = " + ".join(["1·2"] * 4), " + ".join(["1·2"] * 2)
    assert text == f"S[q1,k1] = {ends[0]} + … 58 more: 116 … + {ends[1]} = 128"
    narrow = work_of(trace, "scores", width=60)
    assert narrow == "S[q1,k1] = 1·2 + 1·2 + … 61 more: 122 … + 1·2 = 128"


def test_work_subtracts_the_maximum_of_large_scores() -> None:
    trace = attention([[30.0]], [[1.0], [2.0]], [[1.0], [1.0]])
    assert work_of(trace, "weights").startswith(
        "A[q1,k1] = exp(30 - 60) / (exp(30 - 60) + exp(60 - 60))"
    )


def test_work_is_of_the_first_cell_shown() -> None:
    assert work_of(attention(), "scores", rows=(2, 3), cols=(1, 2)) == "S[q3,k2] = 1·1 + 1·0 = 1"


def test_work_reads_the_key_head_of_the_head() -> None:
    q, k = np.ones((4, 1, 1)), np.array([[[5.0]], [[7.0]]])
    trace = attention(q, k, k)
    assert work_of(trace, "scores", head=2) == "S[q1,k1] = 1·7 = 7"
    tiled = Trace("T", trace.steps, Convention(head_order="tiled"))
    assert work_of(tiled, "scores", head=2) == "S[q1,k1] = 1·5 = 7"


def test_negative_factors_are_in_parentheses() -> None:
    trace = attention([[-1.0, -2.0]], [[3.0, -4.0]], [[1.0]])
    assert work_of(trace, "scores") == "S[q1,k1] = -1·3 + (-2)·(-4) = 5"


TWICE = {"query": ("a", "b", "a"), "key": ("1", "x", "1")}


@pytest.mark.parametrize(
    ("cell", "title"),
    [
        (("b", "x"), 'How "b" attends to "x"'),
        (("3", "3"), 'How "a" attends to "1"'),
        (("1", "1"), 'How "a" attends to "1"'),
    ],
)
def test_a_cell_by_label_or_number(cell: tuple[str, str], title: str) -> None:
    assert title in lines_of(attention(labels=TWICE), view(cell=cell))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (("a", "x"), "more than one query is called 'a'; use its number: 1 and 3"),
        (("z", "x"), "there is no query 'z'; there are a, b, a, or a number from 1"),
        (("b", "4"), "there is no key '4'; there are 1, x, 1, or a number from 1"),
    ],
)
def test_a_cell_that_is_not_there(cell: tuple[str, str], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        lines_of(attention(labels=TWICE), view(cell=cell))


def test_a_derivation_needs_the_inputs() -> None:
    trace = attention().keep({"q", "k", "scores", "weights", "output"})
    with pytest.raises(StageError, match="the trace holds no v"):
        lines_of(trace, view(cell=("1", "1")))
    with pytest.raises(StageError, match="no weights to derive"):
        lines_of(matrix([[1.0]]), view(cell=("1", "1")))


def test_a_derivation_ends_with_the_share_of_the_output() -> None:
    lines = lines_of(attention(mask=CAUSAL), view(cell=("q3", "k1")))
    at = lines.index("5  output    O = A V")
    assert lines[at : at + 5] == [
        "5  output    O = A V",
        "  A[q3,k1] · V[k1] = 0.5035 · [10, 0]",
        "                   = [5.0349, 0]  (its share of the output)",
        "  O[q3] = [6.2762, 3.7238]  (the output, of all keys together)",
        "",
    ]


def test_work_of_every_cell_where_nothing_is_left_out() -> None:
    lines = lines_of(attention(), view(stages=("scores",), work=True, full=True, rows=(1, None)))
    assert [line.strip() for line in lines if "=" in line][1:] == [
        "S[q2,k1] = 0·1 + 1·1 = 1",
        "S[q2,k2] = 0·1 + 1·0 = 0",
        "S[q2,k3] = 0·0 + 1·1 = 1",
        "S[q3,k1] = 1·1 + 1·1 = 2",
        "S[q3,k2] = 1·1 + 1·0 = 1",
        "S[q3,k3] = 1·0 + 1·1 = 1",
    ]


SOFTMAX = [
    "  softmax of q2: the largest score, 0.7071, is subtracted from each; no share changes, and exp "
    "cannot overflow",
    "       score   − max     exp   share",
    "  k1  0.7071  0       1.0000  0.6698",
    "  k2  0       -0.7071  0.4931  0.3302",
    "  k3    -inf    -inf  0       0     ",
    "  Σ                   1.4931  1.0000",
]


def test_the_softmax_of_a_row_is_a_table() -> None:
    shown = view(stages=("weights",), work=True, rows=(1, 2))
    lines = lines_of(attention(mask=CAUSAL), shown)
    at = next(i for i, line in enumerate(lines) if "softmax of" in line)
    assert [line.split() for line in lines[at : at + 6]] == [line.split() for line in SOFTMAX]
    cell = lines_of(attention(mask=CAUSAL), view(cell=("q2", "k1")))
    assert [line.split() for line in cell[-6:]] == [line.split() for line in SOFTMAX]


def test_the_softmax_of_every_row_or_column() -> None:
    full = view(stages=("weights",), work=True, full=True)
    rows = [line for line in lines_of(attention(), full) if "softmax of" in line]
    assert [line.split()[2] for line in rows] == ["q1:", "q2:", "q3:"]
    over = attention(convention=Convention(softmax_over="queries"))
    columns = [line for line in lines_of(over, full) if "softmax of" in line]
    assert [line.split()[2] for line in columns] == ["k1:", "k2:", "k3:"]


def test_an_empty_row_has_no_softmax_and_a_sink_is_in_it() -> None:
    empty = lines_of(attention(mask=np.full((3, 3), NEVER)), view(work=True))
    assert not any("softmax of" in line for line in empty)
    trace = attend([[1.0]], [[1.0], [2.0]], [[1.0], [1.0]], sinks=[2.0])
    lines = [line.split() for line in lines_of(trace, view(work=True))]
    assert ["sink", "2", "0", "1.0000", "0.4223"] in lines
    assert ["Σ", "2.3679", "1.0000"] in lines


@pytest.mark.parametrize(
    ("stage", "cell", "lines"),
    [
        ("scores", ("q3", "k1"), ["How S[q3,k1] is computed", "  S[q3,k1] = 1·1 + 1·1"]),
        ("scaled", ("3", "1"), ["  S[q3,k1] = 1·1 + 1·1", "           = 2 / 1.4142"]),
        ("output", ("q2", "2"), ["  O[q2,2] = 0.4011·0 + 0.1978·10 + 0.4011·5"]),
        ("weights", ("q2", "k2"), ["How q2 attends to k2"]),
    ],
)
def test_the_cell_of_a_stage(stage: str, cell: tuple[str, str], lines: list[str]) -> None:
    found = lines_of(attention(), view(cell=cell, stages=(stage,)))
    assert all(line in found for line in lines), found


def test_the_cell_of_a_stage_that_is_given() -> None:
    with pytest.raises(StageError, match="q is not computed from the numbers of other stages"):
        lines_of(attention(), view(cell=("1", "1"), stages=("q",)))
    with pytest.raises(ShapeError, match="mean has one column"):
        lines_of(layer_norm(numbers(3, 2)), view(cell=("1", "2"), stages=("mean",)))


def test_a_vector_of_one_number_has_both_brackets() -> None:
    trace = attention([[1, 0]], [[1, 1], [0, 1]], [[10], [20]])
    lines = lines_of(trace, view(cell=("1", "1")))
    at = lines.index("4  output    O = A V") + 1
    assert lines[at : at + 3] == [
        "  A[q1,k1] · V[k1] = 0.6698 · [10]",
        "                   = [6.6976]  (its share of the output)",
        "  O[q1] = [13.3024]  (the output, of all keys together)",
    ]


def test_equal_tokens_are_numbered() -> None:
    words = ("a", "b", "a")
    text = sentences(Block(attention(labels={"query": words, "key": words})), {}, DisplayOptions())
    assert text[0] == '"a" (1) attends to "a" (1) and "b" (40.1 % each), then "a" (3) (19.8 %)'


def test_an_empty_token_is_quoted_once() -> None:
    names = {"query": ("", "k"), "key": ("", "k")}
    trace = attention([[1.0], [2.0]], [[1.0], [2.0]], [[1.0], [1.0]], labels=names)
    first, second = sentences(Block(trace), {}, DisplayOptions())
    assert first.startswith('"" attends to "k" (')
    assert second.startswith('"k" attends to')


def test_rows_that_ask_nothing_are_tokens() -> None:
    weights = random_weights("encoder", Dimensions(d_model=4))
    layers = LayerPlan(Architecture(dropout=0.1, convention=Convention(dropout=0.1)), weights)
    layers.stack(layers.rows("x", numbers(3, 4)))
    layers.blocks[""] = AttendBlock("", Convention(dropout=0.1))
    lines = lines_of(layers.trace())
    at = lines.index(next(line for line in lines if line.startswith("Position-wise")))
    assert "3 tokens" in lines[at]
    assert "rows are tokens, columns are hidden dimensions" in "".join(lines[at:])
    assert {line for line in lines if line.startswith("dropout")} == {"dropout 0.1 (seed 0)"}


@pytest.mark.parametrize("dim", [12, 64])
def test_waves_have_whole_names_on_a_narrow_screen(dim: int) -> None:
    for screen in (view(80, 24), view(80)):
        lines = lines_of(sinusoidal(3, dim), screen)
        heads = [line for line in lines if "sin λ" in line or line.strip().startswith("λ")]
        shown = {name for line in heads for name in re.findall(r"(?:sin |cos )?λ\S+", line)}
        assert shown
        assert all(re.fullmatch(r"(sin |cos )?λ\d[\d.]*", name) for name in shown), shown


def test_a_window_of_one_key() -> None:
    choices = headline(Block(Trace("T", (), Convention(window=(1, 2))))).choices
    assert choices == ("window of 1 key before and 2 after",)


def test_a_vector_of_weights_has_no_sentences() -> None:
    stage = Stage("weights", "A", "", np.array([0.25, 0.75]), ("key",))
    assert lines_of(Trace("T", (stage,)))[-1].split() == ["A", "0.25", "0.75", "1"]
