"""The words around the matrices: closing sentences, headline, legends, arithmetic, the steps to a cell."""

import math
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attncli
from attncli.convention import Convention
from attncli.errors import ShapeError, StageError
from attncli.formula.matrices import formula_of
from attncli.formula.parser import parse
from attncli.trace import Stage, Trace
from tests.page.traces import (
    CAUSAL,
    NEVER,
    attention,
    causal,
    every_kind,
    lines_of,
    matrix,
    numbers,
    shown,
)

# ---- closing sentences


def sentences(*rows: list[float], full: bool = False, **convention: Any) -> list[str]:
    """The sentences on these weights."""
    stage = Stage("weights", "A", "", np.array(rows), ("query", "key"))
    lines = lines_of(Trace("T", (stage,), Convention(**convention)), full=full)
    return lines[len(lines) - lines[::-1].index("") :]


def test_a_sentence() -> None:
    cases: list[tuple[list[float], str]] = [  # the keys in the order they are named with, and their weights
        ([0.25, 0.25, 0.5], "k3 50.0 % k1 k2 25.0 % each"), ([0.0, 1.0, 0.0], "k2 alone 100 %"),
        ([0.25] * 4, "4 keys alike 25.0 % each"),
        ([0.4, 0.15, 0.15, 0.15, 0.15], "k1 40.0 % k2 k3 2 more keys 15.0 % each"),
        ([0.4, 0.3, 0.2, 0.06, 0.04], "k1 40.0 % k2 30.0 % k3 20.0 % 2 keys 10.0 %"),
        ([0.4, 0.3, 0.2, 0.1], "k1 40.0 % k2 30.0 % k3 20.0 % k4 10.0 %"),
        ([0.99999, 0.00001], "k1 > 99.9 % k2 < 0.1 %"), ([math.nan, math.nan], "not numbers"),
        ([0.0, 0.0], "nothing"), ([0.5, 0.25], "k1 50.0 % k2 25.0 % 25.0 % on no key"),
        ([0.5, 0.485], "k1 50.0 % k2 48.5 % 1.5 % on no key"),  # from 1 % on
        ([0.995], "k1 alone 99.5 %"),  # as float16 and bfloat16 round
    ]  # fmt: skip
    for row, words in cases:
        (sentence,) = sentences(row)
        assert sentence.startswith("q1 ")
        around = r"[(),;:]|\b(attends|to|then|and|the|other)\b|has weights that are"
        assert re.sub(around, "", sentence[3:]).split() == words.split()


def test_sentences_over_queries_of_many_and_of_tokens() -> None:
    first, second = sentences([0.75, 0.5], [0.25, 0.5], softmax_over="queries")
    assert re.match(r"k1 .* q1 \(75.0 %\), .* q2 \(25.0 %\)", first)
    assert re.match(r"k2 .* q1 and q2 \(50.0 % each\)", second)
    texts = sentences(*[[1.0]] * 20)
    assert (len(texts), "8 more" in texts[-1], "--rows" in texts[-1]) == (13, True, True)
    assert len(sentences(*[[1.0]] * 20, full=True)) == 20
    first = lines_of(attention(labels=dict.fromkeys(("query", "key"), ("a", "b", "a"))))[-3]
    assert re.findall(r'"\w"(?: \(\d\))?', first) == ['"a" (1)', '"a" (1)', '"b"', '"a" (3)']
    empty = dict.fromkeys(("query", "key"), ("", "k"))
    lines = lines_of(attention([[1.0], [2.0]], [[1.0], [2.0]], [[1.0], [1.0]], labels=empty))
    assert lines[-2].startswith('"" attends to "k" (')
    vector = Stage("weights", "A", "", np.array([0.25, 0.75]), ("key",))
    assert lines_of(Trace("T", (vector,)))[-1].split() == ["A", "0.25", "0.75", "1"]  # has none


def test_a_query_without_keys() -> None:
    cases: list[tuple[Any, float, str, str]] = [
        ("zero", 0.0, "nothing", "is 0 "), ("nan", math.nan, "not numbers", "NaN"), ("uniform", 0.5, "(50.0 % each)", "0.5 "),
    ]  # fmt: skip
    for empty, row, sentence, legend in cases:
        axes = ("query", "key")
        own = (Stage(n, "A", "", np.full((1, 2), x), axes) for n, x in (("mask", NEVER), ("weights", row)))  # fmt: skip
        lines = lines_of(Trace("T", tuple(own), Convention(empty_rows=empty)))
        assert sentence in lines[-1]
        assert "every key is masked" in lines[-1]
        assert any("q1: every key is masked" in line and legend in line for line in lines)


def test_the_least_number_of_a_type_is_shown_as_masked() -> None:
    cases: list[tuple[str, float]] = [
        ("float16", -65504.0), ("bfloat16", -3.3895313892515355e38), ("float32", -3.4028234663852886e38), ("float64", -1.7976931348623157e308),
    ]  # fmt: skip
    for dtype, least in cases:
        mask = np.array([[0.0, 0.0, least], [least] * 3, [0.0, 0.0, 0.0]])
        text = shown(attention(mask=mask))
        assert text.count("///") == 4 + 1 + 1 + 1  # of the scores, of the weights; a legend each
        if dtype != "float16":  # of which float64 keeps the scores below it
            assert "q2: every key is masked; each weight is 0.3333" in text
        assert ", though every key is masked" in text
        assert "///" not in shown(attention(mask=np.array([[0, 0, -1e9], [0, 0, 0], [0, 0, 0]])))
        assert shown(causal(-2.0)).count("///") == 3 + 1  # of the scores alone, and a legend


def test_choices() -> None:
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({}, ""),
        ({"causal": True, "causal_align": "bottom-right"}, "causal, the last query at the last key"),
        ({"window": (2, -1)}, "window of 2 keys before and all after"), ({"window": (1, 2)}, "window of 1 key before and 2 after"),
        ({"scale": "none"}, "not scaled"), ({"scale": 0.25}, "scaled by 0.25"),
        ({"softcap": 30.0, "softcap_place": "after-mask"}, "softcap 30 after the mask"),
        ({"mask_value": -1e9}, "mask value -1e9"), ({"dropout": 0.1, "seed": 3}, "dropout 0.1 (seed 3)"),
        ({"empty_rows": "nan", "head_order": "tiled"}, "empty rows NaN · key heads shared in turn (tiled)"),
        ({"scale": 2.0, "softmax_over": "queries", "mask_means": "ignore"}, None),
    ]  # fmt: skip
    for convention, words in cases:
        line = lines_of(replace(matrix([[1.0]]), convention=Convention(**convention)))[1]
        assert line == words or (words is None and len(line.split(" · ")) == len(convention))


def test_facts() -> None:
    trace = attention(numbers(2, 4, 3, 5), numbers(2, 1, 7, 5), numbers(2, 1, 7, 11), dtype="float32")  # fmt: skip
    for fact in ("2 batch entries", "4 heads on 1 key head", "3 queries", "7 keys", "d_k 5", "d_v 11", "float32"):  # fmt: skip
        assert fact in shown(trace).partition("\n\n")[0]
    text = attncli.render(attncli.explain("a b c", dim=4, block="encoder", dropout=0.1))
    assert re.search(r"Position-wise.* 3 tokens", text)
    assert "rows are tokens, columns are hidden dimensions" in text
    assert {*re.findall(r"^dropout.*", text, re.MULTILINE)} == {"dropout 0.1 (seed 0)"}
    for dim, height in ((12, 24), (64, None)):
        names = re.findall(r"(?:sin |cos )?λ\S*", shown(attncli.posenc(3, dim), width=80, height=height))  # fmt: skip
        assert all(re.fullmatch(r"(sin |cos )?λ\d[\d.]*", name) for name in names[3:])


# ---- arithmetic

LONG = attention(np.ones((1, 64)), np.full((2, 64), 2.0), np.ones((2, 1)))


def test_the_arithmetic_of_one_cell() -> None:
    cases: list[tuple[Trace, str, Any, str]] = [
        (LONG, "scores", {}, f"S[q1,k1] = {' + '.join(['1·2'] * 4)} + … 58 more: 116 … + 1·2 + 1·2 = 128"),
        (LONG, "scores", {"width": 60}, "S[q1,k1] = 1·2 + 1·2 + … 61 more: 122 … + 1·2 = 128"),
        (attention([[-1.0, -2.0]], [[3.0, -4.0]], [[1.0]]), "scores", {}, "S[q1,k1] = -1·3 + (-2)·(-4) = 5"),
        (attention(mask=[[0, -0.5, 2]]), "masked", {"cols": (1, 2)}, "L[q1,k2] = Z[q1,k2] + M[q1,k2] = 0.7071 + (-0.5) = 0.2071"),
        (attention([[30.0]], [[1.0], [2.0]], [[1.0], [1.0]]), "weights", {}, "A[q1,k1] = exp(30 - 60) / (exp(30 - 60) + exp(60 - 60))"),
    ]  # fmt: skip
    for trace, stage, options, line in cases:
        lines = lines_of(trace, stages=(stage,), work=True, **options)
        (own,) = (text for text in lines if text.startswith(f"  {line[0]}["))
        assert own == f"  {line}" or own.startswith(f"  {line} = ")


@pytest.mark.parametrize(
    ("expression", "forms", "in_matrices"),
    [
        ("sum[d](q[i,d] * k[j,d]) ** 2", "(-2·3 + 1·(-4))²", "(Q Kᵀ)²"),
        ("q[i,j] ** 3 / -k[i,j]", "Q[q1,1]^3 / (-K[k1,1]) = (-2)^3 / (-3)", "Q^3 / (−K)"),
        ("(q[i,j] * 2) ** k[i,j]", "(Q[q1,1]·2)^K[k1,1] = (-2·2)^3", "(Q · 2)^K"),
        ("2 - (k[i,j] - 1 if k[i,j] > 0 else 0)", "2 - (K[k1,1] - 1) = 2 - (3 - 1)",
         "2 − (K − 1 where K > 0)"),
        ("-(q[i,j] + k[i,j])", "-(Q[q1,1] + K[k1,1]) = -(-2 + 3)", "−(Q + K)"),
    ],
)  # fmt: skip
def test_parentheses(expression: str, forms: str, in_matrices: str) -> None:
    q = Stage("q", "Q", "", np.array([[-2.0, 1.0]]), ("query", "d_k"))
    k = Stage("k", "K", "", np.array([[3.0, -4.0]]), ("key", "d_k"))
    text = f"A[i,j] = {expression}"
    own = Stage(
        "a", "A", "", np.array([[5.0]]), ("", ""), reads={"q": "q", "k": "k"}, expression=text
    )
    lines = lines_of(Trace("T", (q, k, own)), stages=("a",), work=True)
    assert f"  A = {forms}" in {re.sub(" [=≈] 5$", "", line) for line in lines}
    assert formula_of(parse(text), {"q": "Q", "k": "K"}, {}) == f"A = {in_matrices}"


@pytest.mark.parametrize(
    ("body", "in_matrices"),
    [
        ("q[i,d] * k[j,d] if q[i,d] > 0 else 0", "(Q where Q > 0) Kᵀ"),
        ("q[i,d] * k[j,d] if k[j,d] > 0 else 0", "Q (K where K > 0)ᵀ"),
        ("q[i,d] * (k[j,d] if k[j,d] > 0 else 0)", "Q (K where K > 0)ᵀ"),
    ],
)
def test_a_condition_on_a_factor_leaves_a_product_of_matrices(body: str, in_matrices: str) -> None:
    formula = parse(f"A[i,j] = sum[d]({body})")
    assert formula_of(formula, {"q": "Q", "k": "K"}, {}) == f"A = {in_matrices}"


@pytest.mark.parametrize(
    ("v", "line"),
    [
        ([8, 2, 1], "O[q1,1] = 0.40·8 + 0.40·2 + 0.20·1 ≈ 4.21"),
        ([10, 0, 5], "O[q1,1] = 0.40·10 + 0.40·0 + 0.20·5 = 5"),
    ],
)
def test_a_sum_of_rounded_numbers_says_that_it_is_rounded(v: list[float], line: str) -> None:
    """As it is written the first is 4.20; A = (0.4011, 0.4011, 0.1978) gives 4.2089."""
    trace = attention([[1, 0]], [[1, 1], [1, 0], [0, 1]], [[x] for x in v])
    assert f"  {line}" in lines_of(trace, stages=("output",), work=True, precision=2)


@pytest.mark.parametrize("width", [50, 63, 80, 97])
@pytest.mark.parametrize("precision", [4, 16])
def test_no_number_of_a_long_equation_is_broken(width: int, precision: int) -> None:
    trace = attncli.explain("the river bank", dim=4)
    options: dict[str, Any] = {"stages": ["meaning.added"], "work": True, "precision": precision}
    lines, whole = (lines_of(trace, width=cells, **options) for cells in (width, 1000))
    at = [next(n for n, x in enumerate(some) if x.startswith("  cos(")) for some in (lines, whole)]
    written, expected = lines[at[0] :], whole[at[1]]
    assert max(map(len, written)) <= width
    assert re.findall(r"[\d.]+", " ".join(written)) == re.findall(r"[\d.]+", expected)


def test_the_softmax_as_a_table() -> None:
    for over, names in (("keys", "q1 q2 q3"), ("queries", "k1 k2 k3")):
        text = shown(attention(softmax_over=over), stages=("weights",), work=True, full=True)
        assert re.findall(r"softmax of (\w+):", text) == names.split()
    assert "softmax of" not in shown(attention(mask=np.full((3, 3), NEVER)), work=True)


# ---- one cell

TWICE = attention(labels={"query": ("a", "b", "a"), "key": ("1", "x", "1")})
PARTIAL = attention().keep({"q", "k", "scores", "weights", "output"})
ENCODER = attncli.explain("a b", dim=2, block="encoder")


def test_the_steps_to_a_cell() -> None:
    cases: list[tuple[Trace, Any, Any, list[str]]] = [
        (TWICE, ("b", "x"), {}, ['How "b" attends to "x"']), (TWICE, ("3", "3"), {}, ['How "a" (3) attends to "1" (3)']),
        (attention(), ("3", "1"), {"stages": ("scaled",)}, ["S[q3,k1]", "= 1·1 + 1·1", "= 2 / 1.4142"]),
        (attention(), ("q2", "2"), {"stages": ("output",)}, ["O[q2,2] = 0.4011·0 + 0.1978·10 + 0.4011·5"]),
        (attention(mask=CAUSAL), ("q3", "k1"), {}, ["q3  6.2762  3.7238\n", "A[q3,k1] · V[k1] = 0.5035 · [10, 0]", "≈ [5.0349, 0]  (its part of O[q3])"]),
        (attention(mask=CAUSAL), ("q1", "k2"), {}, ["= 0", "-inf"]),
        (attention(numbers(2, 3, 67), numbers(2, 4, 67), numbers(2, 4, 3)), ("q2", "k3"), {"head": 1}, ["more:"]),
    ]  # fmt: skip
    for trace, cell, options, words in cases:
        at = [shown(trace, cell=cell, **options).find(word) for word in words]
        assert at == sorted(at)
        assert min(at) >= 0


def test_a_sum_of_weights_that_is_no_matrix_has_no_share() -> None:
    program = "\n".join([
        "scores: S[i,j] = sum[d](q[i,d] * k[j,d])", "weights: A[i,j] = softmax[j](S[i,j])",
        "places: p[j] = j + 1", "mean: m[i] = sum[j](A[i,j] * p[j])",
        "output: O[i,e] = sum[j](A[i,j] * v[j,e])",
    ])  # fmt: skip
    q, k, v = (numbers(3, n, seed=n) for n in (2, 2, 5))
    text = shown(attncli.attend(q, k, v, formulas=program), cell=("3", "2"))
    assert re.findall(r"its part of (.*)\)", text) == ["O[q3]"]


def test_the_last_cell_of_every_stage_has_its_steps() -> None:
    n_shown = 0
    for make in every_kind().values():
        trace = make()
        for name, stage in trace.stages():
            if stage.expression:
                last = [str(size) for size in (1, 1, *stage.value.shape)][-2:]
                is_column = stage.kind.vector or stage.value.ndim == 1
                cell = (last[1], "1") if is_column else (last[0], last[1])
                with suppress(
                    ShapeError, StageError
                ):  # a wave from 0, or what it reads is not here
                    assert "\nHow " in shown(trace, cell=cell, stages=(name,))
                    n_shown += 1
    assert n_shown > 100


def test_a_cell_that_is_not_there() -> None:
    cases: list[tuple[Trace, Any, Any, Any, str]] = [
        (TWICE, ("a", "x"), (), ShapeError, r"a\(1\) or a\(3\)"),
        (TWICE, ("b", "4"), (), ShapeError, r"no key '4'; there are 1 \(1\), x, 1 \(3\)"),
        (PARTIAL, ("1", "1"), (), StageError, "no v"), (matrix([[1.0]]), ("1", "1"), (), StageError, "no weights"),
        (attention(), ("1", "1"), ("q",), StageError, "q is not computed"),
        (ENCODER, ("1", "2"), ("encoder.1.attention.mean",), ShapeError, "one column"),
    ]  # fmt: skip
    for trace, cell, stages, error, words in cases:
        with pytest.raises(error, match=words):
            shown(trace, cell=cell, stages=stages)
