"""Pages of another kind: outlines, flowcharts, comparisons, worksheets; what a cell reads; letters."""

import json
import re
from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.commands.diff.comparison import Comparison
from attncli.commands.diff.page import diff_page
from attncli.errors import ConventionError, StageError
from attncli.page.outline import outline_page
from attncli.page.worksheet import without_numbers
from attncli.trace import Stage, Trace
from tests.page.traces import (
    CAUSAL,
    WORDS,
    attention,
    causal,
    every_kind,
    matrix,
    numbers,
    shown,
    table_of,
)
from tests.turns import in_turn

# ---- the outline and the flowchart: the way without the matrices


def layered(n: int) -> Trace:
    return attncli.explain("a b", dim=4, block="encoder", layers=n)


def tree(trace: Trace, form: str = "table", **options: Any) -> str:
    return shown(trace, form, page=outline_page, **options)


TREES = {
    "table": r"\n├─ input +2 × 4 +X = E \+ PE\n.*\n│  └─ 1.*\n│     ├─ attention  .*\n│     │  ├─ parameters  w_q 4 × 4"
             r".*\n│     │  ├─ scores +2 × 2 +S = Q Kᵀ\n.*\n   └─ contextual",
    "markdown": r"\n- \*\*input\*\* 2 × 4 `X = E \+ PE`\n.*\n      - \*\*scores\*\* 2 × 2 `S = Q Kᵀ`\n",
}  # fmt: skip


def test_the_tree_has_layers_alike_once() -> None:
    for form, pattern in TREES.items():
        assert re.search(pattern, tree(layered(1), form), re.DOTALL), form
    for n, which in ((2, "2"), (7, "2 to 7")):
        short = tree(layered(n)).splitlines()
        (alike,) = (line for line in short if "like layer 1" in line)
        assert which in alike
        assert len(short) == len(tree(layered(1)).splitlines()) + 1
        assert tree(layered(n), full=True).count(" scores ") == n
    shapes: dict[str, tuple[int, ...]] = {"3 × 2": (1, 3, 2), "2 × 3 × 5": (2, 3, 5), "7": (7,), "1": ()}  # fmt: skip
    for text, shape in shapes.items():  # without a head that is the only one
        last = tree(matrix(np.ones(shape), "s", ("head", "query", "key")[3 - len(shape) :]))
        assert re.split(" {2,}|\n", last)[-3:-1] == [text, "Z"]


def test_the_arrows_of_an_attention_and_of_layers_alike() -> None:
    def arrows(trace: Trace, **options: Any) -> set[str]:
        """Who feeds whom, by the first word of each node."""
        text = shown(trace, "mermaid", **options)
        names = dict(re.findall(r'(n\d+)\["([^"]*?)(?:<br/>|")', text))
        return {f"{names[a]} {names[b]}" for a, b in re.findall(r"(n\d+) --> (n\d+)", text)}

    pairs = "q scores, k scores, scores scaled, scaled masked, mask masked, masked weights, weights output, v output"  # fmt: skip
    assert arrows(attention(mask=CAUSAL)) == {*pairs.split(", ")}
    assert {"input q", "norm q"} <= arrows(layered(2), full=True)
    assert any(pair.endswith(" 2 to 4") for pair in arrows(layered(4)))
    assert not arrows(layered(3), stages=("w_q",))
    inner = {"scores scaled", "weights output"}
    assert inner <= arrows(layered(3), stages=("encoder.3",))
    assert not inner & arrows(layered(3), stages=("encoder.2.attention.weights",))


# ---- comparisons: both matrices and their difference, where it is largest

NAMES = ("ours.json", "theirs.json")


def page(comparison: Comparison, form: str = "table", **options: Any) -> str:
    own = {"width": 80} if form == "table" else {}
    return shown(comparison.trace(()), form, page=diff_page(comparison), **own, **options)


def heads(n: int, *at: tuple[int, ...]) -> Comparison:
    """Weights of n heads, n × 20 × 30, that differ at some places."""
    value, other = numbers(n, 20, 30), numbers(n, 20, 30)
    for size, index in enumerate(at, 1):
        other[index] += size
    a, b = (matrix(x, "weights", ("head", "query", "key")) for x in (value, other))
    return attncli.diff(a, b, names=NAMES)


def test_what_is_the_same_is_marked_and_not_shown_as_a_number() -> None:
    masked = attncli.diff(attention(labels=WORDS), causal(), names=NAMES)
    text = page(masked, stages=("weights",))
    assert table_of(text, "difference")[1][1] == "0.5989"  # 1 − 0.4011
    assert table_of(text, "difference")[3] == ["sat", "·", "·", "·"]  # it may attend to all
    assert "Σ" not in text.partition("\ndifference ")[2]
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in page(masked, stages=("scores",)) for name in (*NAMES, "difference"))
    with pytest.raises(StageError, match="'score'"):
        page(masked, stages=("score",))


def test_the_head_with_the_largest_difference_is_shown_and_others_if_asked_for() -> None:
    comparison = heads(12, (3, 5, 7), (10, 15, 2))
    text = page(comparison)
    assert "1 more of 12 places" in text
    rows = table_of(text, "difference")
    assert "k3" in rows[0]
    assert "q16" in [row[0] for row in rows]
    whole = page(comparison, full=True)
    assert whole.count("\n  q20 ") % (2 * 3) == 0
    for own, heads_of in ((text, {"11"}), (page(comparison, head=3), {"4"}), (whole, {"4", "11"})):
        assert {*re.findall(r"head (\d+) of 12", own)} == heads_of
    part = page(comparison, rows=(0, 4))
    assert ["\n  q4 " in part, "\n  q5 " in part] == [True, False]
    html = page(heads(3, (2, 5, 7)), "html")
    assert {*re.findall(r"head (\d) of 3", html)} == {"1", "2", "3"}


def test_both_have_the_same_scale_of_shades_and_a_difference_one_around_zero() -> None:
    a, b = (matrix([[x, 2 * x]], "weights") for x in (0.1, 0.4))
    text = page(attncli.diff(a, b), heatmap=True)
    tops = re.findall(r"(size of the )?number, from \S+ to (\S+)", text)
    assert tops == [("", "1"), ("", "1"), ("size of the ", "1")]
    trace = attncli.diff(attention(), attention(causal=True)).trace()
    assert "size of the number" in shown(trace, stages=("difference.weights",), heatmap=True)


def test_blocks_that_are_the_same() -> None:
    inner = [replace(attention(), name=str(n)) for n in (1, 2, 3)]
    other = [inner[0], replace(attention(causal=True), name="2"), inner[2]]
    text = page(attncli.diff(*(Trace("Stack", tuple(x)) for x in (inner, other))))
    assert re.search(r"^2$", text, re.MULTILINE)
    assert re.search(r"the same: 1 \(\d stages\), 3 \(\d stages\)", text)


# ---- worksheets: what was computed is gone from every part of the page


DECIMAL = re.compile(r"\d+\.\d{3,}")
KINDS = every_kind()
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "work": {"work": True}, "all": {"work": True, "full": True},
    "heatmap": {"heatmap": True}, "cell": {"cell": ("2", "1")},
}  # fmt: skip
CASES = [(kind, form) for kind in KINDS for form in ("table", "markdown", "html", "latex")]


def opened(page: str) -> str:
    """A page of html without its style and script, and the numbers of its data as text."""
    (data,) = re.findall(r'<script type="application/json" id="data">([^<]*)', page)
    read = json.loads(data)
    values: list[float] = []
    for stage in read["stages"]:
        values += np.frombuffer(b64decode(stage.get("float64", "")), "<f8").tolist()
    text = re.sub(r"<(style|script).*?</\1>", "", page, flags=re.DOTALL)
    return f"{text} {' '.join(f'{abs(x):.4f}' for x in values)}"


def decimals_of(stage: Stage) -> set[str]:
    """The numbers of a stage as a page may round them."""
    if stage.value.dtype.kind not in "iuf":
        return set()
    values = np.abs(stage.value[np.isfinite(stage.value)].astype(float)).tolist()
    return {f"{x:.{decimals}f}" for x in values for decimals in range(3, 8)}


def sheet(trace: Trace, form: Any = "table", blank: Any = True, **options: Any) -> str:
    return attncli.render(trace, form, blank=blank, **options)


@pytest.mark.parametrize(("case", "option"), in_turn(CASES, OPTIONS, name="-".join))
def test_no_number_of_a_worksheet_is_a_computed_one(case: tuple[str, Any], option: str) -> None:
    form, trace, options = case[1], KINDS[case[0]](), OPTIONS[option]
    derived = any("softmax" in x.expression or x.name == "positions" for _, x in trace.stages())
    if options.get("cell") and (not derived or case[0] == "split"):
        pytest.skip("nothing to derive")
    texts = [sheet(trace, form, **options), attncli.render(trace, form, **options)]
    blank, key = (opened(text) if form == "html" else text for text in texts)
    allowed: set[str] = set()
    for _, stage in without_numbers(trace, ()).stages():
        allowed |= decimals_of(stage)
    for _, stage in trace.stages():
        labels = [label for axis in stage.labels for label in stage.labels[axis]]
        allowed.update(DECIMAL.findall(" ".join([stage.formula, *labels])))
    assert {*DECIMAL.findall(re.sub(r"rule\{.*?\}|#[0-9a-f]{6}", "", blank))} <= allowed
    assert {*DECIMAL.findall(key)} - allowed  # the key has others
    assert "%" not in re.sub(r"<style>.*?</style>|\\?% needs", "", blank, flags=re.DOTALL)
    assert not re.search(r"\bnan\b", blank, re.IGNORECASE)


def test_what_stays() -> None:
    cases: list[tuple[Trace, Any, list[str]]] = [  # what the sheet has
        (attncli.explain("The bank", dim=4, block="encoder"), {}, ["\nw_q ", "\nw_o ", "\ngamma ", "\nw_1 ", "\nb_2 "]),
        (attention(mask=CAUSAL), {"stages": "masked"}, ["q1    ____     ///     ///", "q2    ____    ____     ///", "q3    ____    ____    ____"]),
        (causal(), {"cell": ("cat", "The")}, [
            "S[cat,The] = ____·____ + ____·____", "Z[cat,The] = S[cat,The] / √d_k", "= ____ / ____\n",
            "A[cat,The] · V[The] = ____ · [____, ____]"]),
        (attention([[-1.0, -2.0]], [[-3.0, -4.0]], [[-1.0]]), {"work": True}, ["S[q1,k1] = ____·____ + ____·____ = ____\n"]),
        (attention(), {"form": "html", "blank": "weights"}, ["<td class=blank>____<td"]),
        (attention(), {"form": "markdown", "blank": "weights"}, ["| **q1** | \\___\\_ |"]),
        (attention(), {"form": "latex", "blank": "weights"}, [r"\text{q1} & \rule{0pt}{1.8em}\rule{3em}{0.4pt} &"]),
    ]  # fmt: skip
    for trace, options, parts in cases:
        assert [part for part in parts if part not in sheet(trace, **options)] == []
        if "w_q" in parts[0]:
            assert "\nw_q " not in attncli.render(trace)


def test_the_weights_stand_where_the_arithmetic_reads_them() -> None:
    trace = attncli.explain("The bank", dim=4, block="encoder")
    text = attncli.render(trace, work=True)
    names = ("w_q", "w_k", "w_v", "w_o", "w_1", "w_2")
    at = [text.index(f"\n{name} ") for name in names]
    assert at == sorted(at)
    assert at[2] < text.index(" Q = X W_q ") < at[4]
    assert "parameters: W_q" not in text
    of_q = attncli.render(trace, work=True, stages="encoder.1.attention.q")
    assert ("\nw_q " in of_q, "parameters: W_q 4 × 4" in of_q) == (False, True)


def test_one_stage_is_blank_and_others_tell_nothing_of_it() -> None:
    trace = attention(numbers(3, 2), numbers(3, 2, seed=8), numbers(3, 2, seed=9))
    text = sheet(trace, blank=["weights"], work=True)
    assert not decimals_of(trace["weights"]) & {*DECIMAL.findall(text)}
    assert decimals_of(trace["output"]) & {*DECIMAL.findall(text)}
    # The values are given, so they stand beside the room for the weights.
    assert re.search(r"O\[q1,1\] = ____·\(?-?[\d.]+\)? \+ ____·", text)
    assert re.search(r"A\[q1,k1\] = exp\(____\) / \(exp\(____\) \+ ", text)
    assert "attends to" not in text
    assert "Σ" in text  # of the softmax as a table, where there is room for it
    nan = attention([[np.nan, 1.0]], [[1.0, 1.0]], [[1.0]])
    assert "S[q1,k1] = NaN·1 + 1·1 = NaN" in attncli.render(nan, work=True)


def test_notes_are_left_out_where_numbers_are_and_what_cannot_be_blank_is_refused() -> None:
    vectors = {
        "The": [1, 0, 2],
        "old": [3, 1, 0],
        "bank": [0, -2, 1],
    }  # of random ones nothing is said
    trace = attncli.explain("The old bank", vectors=vectors)
    key, blank, some = attncli.render(trace), sheet(trace), sheet(trace, blank="attention.weights")
    assert ["cosine 0." in key, "cosine " in blank, "cosine " in some] == [True, False, True]
    assert "attends to" not in some
    with pytest.raises(StageError, match="did you mean weights"):
        sheet(attention(), blank="wieghts")
    for form in ("mermaid", "svg"):
        with pytest.raises(ConventionError, match=form):
            sheet(attention(), form)


def test_a_vector_without_direction_has_a_dash_and_why_and_data_has_nan() -> None:
    trace = attncli.similarity(("a", "b"), [[0.0, 0.0], [1.0, 2.0]])
    forms: tuple[Any, ...] = ("table", "markdown", "latex", "html", "svg")
    for stage in ("cosines", "angles"):
        for form in forms:
            text = attncli.render(trace, form, stages=stage, work=form != "svg")
            assert "a vector of zeros has no direction" in text.replace("&#x27;", "'"), form
            assert (
                "–" in text,
                "NaN" in re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL),
            ) == (True, False), form
        of_data: tuple[Any, ...] = ("json", "csv")
        for form in of_data:
            assert "NaN" in attncli.render(trace, form, stages=stage)
    cosine = matrix([[np.nan, 1.0]], "scores")
    assert "NaN" in shown(cosine)  # where it has no such meaning


@pytest.mark.parametrize("kind", KINDS)
def test_a_letter_is_one_stage_of_a_block(kind: str) -> None:
    symbols: dict[str, list[str]] = {}
    for name, stage in KINDS[kind]().stages():
        symbols.setdefault(name.rpartition(".")[0], []).append(stage.symbol)
    for prefix, letters in symbols.items():
        assert len({*letters}) == len(letters), prefix
