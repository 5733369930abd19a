"""Tables: numbers as text, what is shown and left out, and that every line fits."""

import json
import math
import re
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import attncli
from attncli.errors import ShapeError, StageError
from attncli.trace import Stage, Trace
from attncli.words.measures import pca
from tests.page.traces import (
    Array,
    attention,
    grouped,
    lines_of,
    matrix,
    numbers,
    shown,
    table_of,
    widest,
)

# ---- numbers

floats = st.floats(allow_subnormal=True)
decimals = st.builds(lambda n, k: n / 10**k, st.integers(-(10**9), 10**9), st.integers(0, 12))


def column(*values: float, precision: int = 4) -> list[str]:
    """The numbers of a column as a table has them, in line."""
    lines = lines_of(matrix([[x] for x in values]), precision=precision)[-len(values) :]
    return dedent("\n".join(line.removeprefix(f"  q{i}") for i, line in enumerate(lines, 1))).split("\n")  # fmt: skip


def short(x: float, precision: int = 4) -> str:
    """A number as a line of arithmetic has it: S[q1,k1] = x·1 = x."""
    stage = attention([[x]], [[1.0]], [[1.0]])
    (line,) = (s for s in lines_of(stage, stages=("scores",), work=True, precision=precision) if "S[" in s)  # fmt: skip
    return line.rpartition("= ")[2]


def test_a_column() -> None:
    cases: list[tuple[tuple[float, ...], int, list[str]]] = [  # an exponent from 1e7 on
        ((1, -20, 0), 4, ["  1", "-20", "  0"]), ((0.5, 12.25), 4, [" 0.50", "12.25"]),
        ((0.7071067, 0, 1), 4, ["0.7071", "0", "1.0000"]),
        ((0.5, 1e-9, 0), 4, ["0.5000", "0.0000", "0"]),
        ((1e-9, 2.5e-9, 0), 4, ["1.0e-9", "2.5e-9", "0"]), ((-1e9, 0.5), 4, ["-1e9", " 0.5"]),
        ((-153513871339, 0.7071067), 4, ["-1.5351e11", " 0.7071"]),
        ((0.5, -1e-9, -0.0), 4, ["0.5000", "0.0000", "0"]),
        ((5.000000000000001, 0.25), 4, ["5.00", "0.25"]),
        ((1.5, math.nan, -math.inf, math.inf), 4, [" 1.5", " NaN", "-inf", " inf"]),
        ((9999999, 1), 4, ["9999999", "      1"]), ((12345678, 1), 4, ["1.2346e7", "1"]),
        ((99999.5, 0.123456), 4, ["99999.5000", "    0.1235"]),
        ((1e300, 1e-300), 4, ["1e300", "1e-300"]), ((0.123456, 1), 2, ["0.12", "1.00"]),
        ((0.4, 0.1), 0, ["0.4", "0.1"]), ((0.0004, 0.00012), 2, ["0.0004", "0.0001"]),
        ((0.00004, 0.00001), 2, ["4e-5", "1e-5"]),
        ((0.4011, 0.1978, 0.05), 1, ["0.4", "0.2", "0.1"]), ((12.4, 1.6), 0, ["12", " 2"]),
    ]  # fmt: skip
    for values, precision, texts in cases:
        assert column(*values, precision=precision) == texts


@given(st.lists(floats, min_size=1, max_size=8), st.integers(0, 8))
def test_points_are_aligned_without_false_zeros(values: list[float], precision: int) -> None:
    texts = column(*values, precision=precision)
    assert len({text.index(".") for text in texts if "." in text}) <= 1
    largest = max((abs(x) for x in values if math.isfinite(x)), default=0)
    for value, text in zip(values, texts, strict=True):
        if 1e308 > abs(value) == largest > 0 < precision:
            assert float(text) != 0
            assert float(text) == pytest.approx(value, rel=0.06, abs=0.501 * 10**-precision)


@given(st.floats(-1e150, 1e150) | decimals, st.integers(0, 17))
@example(0.5000000000000001, 4)
@example(9999999.99999, 3)
@example(4.9e-5, 2)
def test_a_number_in_a_line_is_the_number_and_as_in_a_table(x: float, precision: int) -> None:
    text = short(x, precision)
    assert text == column(x, precision=precision)[0]
    if precision > 3:
        assert (float(text) == 0) == (x == 0)
        assert float(text) == pytest.approx(x, rel=6e-3, abs=0.501 * 10**-precision)
    assert "e" not in text or not 1e-4 <= abs(x) <= 9e6


# ---- what is shown

SMALL = attention(numbers(4, 3, 7), numbers(4, 5, 7), numbers(4, 5, 11))
BATCHED = attention(*(numbers(2, 2, 3, 5, seed=n) for n in range(3)))
MANY = attention(*(numbers(12, 2, 2, seed=n) for n in range(3)))


def stages_of(trace: Trace, **options: Any) -> dict[str, Any]:
    """The stages that the JSON of a selection holds, by their names."""
    return {step["name"]: step for step in json.loads(shown(trace, "json", **options))["steps"]}


@pytest.mark.parametrize(("order", "key_head"), [("blocks", 0), ("tiled", 1)])
def test_a_selection_keeps_its_names_and_takes_its_key_head(order: str, key_head: int) -> None:
    trace = attention(numbers(4, 3, 7), numbers(2, 5, 7), numbers(2, 5, 11), head_order=order)
    own = stages_of(trace, stages=("weights", "k"), head=1, rows=(1, 3), cols=(4, None))
    assert own["weights"]["labels"] == {"head": ["head 2"], "query": ["q2", "q3"], "key": ["k5"]}
    assert own["k"]["labels"]["kv_head"] == [f"key head {key_head + 1}"]
    np.testing.assert_array_equal(own["k"]["value"], trace["k"].value[[key_head], 1:3, 4:])
    np.testing.assert_array_equal(own["weights"]["value"], trace["weights"].value[1:2, 1:3, 4:])


def test_inputs_come_along_whole_and_a_stage_without_the_columns_does_not() -> None:
    own = stages_of(SMALL, rows=(0, 1), cols=(1, 2), head=3)
    shapes = [np.shape(own[name]["value"]) for name in ("q", "v", "scores", "output")]
    assert shapes == [(1, 3, 7), (1, 5, 11), (1, 1, 1), (1, 1, 1)]
    narrow = attention(numbers(3, 2), numbers(7, 2), numbers(7, 2))
    assert "output" not in stages_of(narrow, cols=(4, 6))
    assert table_of(shown(attention(), stages=("q",)), "q")[1] == ["q1", "1", "0"]
    output = stages_of(BATCHED, batch=1)["output"]
    np.testing.assert_array_equal(output["value"], BATCHED["output"].value[1:])
    assert output["labels"]["batch"] == ["batch 2"]


def test_several_batch_entries_and_heads_are_shown_one_after_the_other() -> None:
    titles = re.findall(r"(?m)^batch (\d).* head (\d)", shown(BATCHED, stages=("weights",)))
    assert titles[:4] == [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
    assert "key head 2" in shown(grouped(), stages=("weights",), head=3)
    text = shown(MANY, stages=("weights",))
    assert [f"head {n} of 12" in text for n in (8, 9)] == [True, False]
    assert "4 of 12 heads" in text


def test_stages_of_nested_blocks() -> None:
    own = (Trace("Block", attention().steps, name=n) for n in ("self", "cross"))
    trace = Trace("Layer", (Trace("Decoder", tuple(own), name="decoder"),))
    for name, blocks in {"decoder.self.weights": 1, "weights": 2, "self.weights": 1, "cross": 1}.items():  # fmt: skip
        text = attncli.render(trace, stages=name)
        assert len(re.findall(r"^\d+  weights", text, re.MULTILINE)) == blocks
        assert ("scores" in text) == (name == "cross")


ONE = matrix(np.ones((1, 2, 2)), axes=("head", "query", "key"))


def test_what_is_not_there() -> None:
    cases: list[tuple[Trace, Any, Any, str]] = [
        (SMALL, {"stages": ("wieghts",)}, StageError, "did you mean weights"), (ONE, {"head": 1}, ShapeError, "only 1"),
        (SMALL, {"head": 4}, ShapeError, "no head 5; choose from 1 to 4"), (SMALL, {"batch": 0}, ShapeError, "no batch entry"),
        (SMALL, {"rows": (3, 9)}, ShapeError, "rows 4 to 9; .* 3"), (SMALL, {"cols": (11, None)}, ShapeError, "columns 12 to the end"),
    ]  # fmt: skip
    for trace, options, error, words in cases:
        for form in ("table", "json", "svg"):
            with pytest.raises(error, match=words):
                shown(trace, form, **options)


# ---- what is left out


def test_full_shows_everything_and_a_pipe_cuts_only_what_is_large() -> None:
    trace = matrix((np.arange(70 * 50) + 0.1).reshape(70, 50) / 7)
    text = shown(trace, width=80, height=24, full=True)
    assert len(re.findall(r"\d+\.\d{4}", text)) == 70 * 50
    assert ["left out" in page for page in (text, shown(trace, width=80, height=24))] == [False, True]  # fmt: skip
    whole = lines_of(matrix(np.ones((100, 100)) / 3))
    assert (len(whole), whole[-1].split()) == (4 + 100, ["q100", *["0.3333"] * 100])
    assert "left out: 85 rows" in lines_of(matrix(np.ones((101, 100)) / 3))[-1]
    for height in (10, 24, 50):
        lines = lines_of(matrix(np.ones((500, 400)) / 3), width=80, height=height)
        assert len(lines) <= 2 + max(height - 6, 16) + 4


def test_corners_are_the_first_and_last() -> None:
    large = matrix(np.arange(10_000).reshape(100, 100))
    rows = table_of(shown(large, width=60, height=10), "scaled")
    assert rows[-18] == ["k1", "k2", "k3", "k4", "…", "k97", "k98", "k99", "k100"]
    assert rows[-17] == ["q1", "0", "1", "2", "3", "…", "96", "97", "98", "99"]
    assert rows[-10] == ["⋮", *"⋮⋮⋮⋮⋱⋮⋮⋮⋮"]
    assert rows[-3] == ["q100", "9900", "9901", "9902", "9903", "…", "9996", "9997", "9998", "9999"]
    assert rows[-2][:8] == ["left", "out:", "86", "rows", "and", "92", "columns", "(--rows"]


STAGE = ("thing", "Z", "")
AXES = ("query", "key")
VECTOR = Stage("mean", "μ", "", np.array([1.0, 2.0, 3.0]), ("query",))
MISFITS = (
    Stage("mask", "M", "", np.zeros((7, 7)), AXES), Stage("tokens", "T", "", np.array(["a", "b"]), ("token",)),
    Stage("scaled", "Z", "", np.ones((2, 3)), AXES), Stage("weights", "A", "", np.ones((5, 0)), AXES),
    Stage("output", "O", "", np.ones((5, 2)), ("query", "d_v")),
)  # fmt: skip


def test_stages_of_other_shapes() -> None:
    cases: list[tuple[Any, Any, str]] = [
        ((Stage(*STAGE, np.array([1.5, 2]), ("dimension",)),), {}, "Z 1.5 2.0"), ((Stage(*STAGE, np.array(7), ()),), {}, "Z 7"),
        ((Stage(*STAGE, np.zeros((0, 3)), AXES),), {}, "nothing to show"),
        ((Stage(*STAGE, np.array([[True, False]]), AXES),), {}, "q1 1 0"),
        ((Stage(*STAGE, np.array([["a", "\x1b"]]), AXES),), {}, "q1 a \\x1b"),
        ((*matrix(np.eye(3)).steps, VECTOR), {"rows": (1, 2), "cols": (2, 3)}, "μ 1 2 3"),  # whole
        (MISFITS, {"work": True, "heatmap": True}, "q5 attends to nothing: every key is masked"),
    ]  # fmt: skip
    for steps, options, last in cases:
        line = " ".join(lines_of(Trace("T", steps), **options)[-1].split())
        assert line.startswith(last)


def test_sums_are_of_whole_rows() -> None:
    lines = lines_of(attention(), stages=("weights",), cols=(0, 1), rows=(0, 1))
    assert [line.split() for line in lines[4:6]] == [["k1", "Σ", "of", "all", "3"], ["q1", "0.4011", "1"]]  # fmt: skip


# ---- every line fits

values = hnp.arrays(float, hnp.array_shapes(min_dims=2, max_dims=2, max_side=14), elements=floats)
screens = st.fixed_dictionaries({
    "precision": st.integers(0, 8), "width": st.integers(40, 140),
    "height": st.none() | st.integers(5, 60), "heatmap": st.sampled_from([None, True]),
    "full": st.booleans(), "work": st.just(True),
})  # fmt: skip


@given(values, screens, st.text(max_size=40), st.sampled_from(["scores", "weights", "other"]))
def test_every_line_fits(array: Array, options: Any, word: str, name: str) -> None:
    query, key = ([f"{word}{index}" for index in range(size)] for size in array.shape)
    labels = {"query": query, "key": key}
    assert widest(shown(matrix(array, name, labels=labels), **options)) <= options["width"]


@given(st.text(max_size=60), st.integers(40, 80), st.sampled_from([None, ("1", "2")]))
def test_every_line_of_an_attention_fits(word: str, width: int, cell: Any) -> None:
    labels = {"query": [f"{word}{i}" for i in range(3)], "key": [f"{i}{word}" for i in range(5)]}
    trace = attention(numbers(3, 9), numbers(5, 9), numbers(5, 7), labels=labels, notes=(word,))
    assert widest(shown(trace, width=width, height=24, work=True, cell=cell)) <= width


# ---- a plot


@given(hnp.arrays(float, st.tuples(st.integers(2, 9), st.just(2)), elements=st.floats(-1e9, 1e9)), st.integers(40, 90))  # fmt: skip
@example(np.ones((8, 2)), 60)  # in one place
def test_points_of_a_plot_fit_and_are_all_named(points: Array, width: int) -> None:
    words = [f"w{i}" for i in range(len(points))]
    text = shown(pca(words, points), width=width)
    assert widest(text) <= width
    assert all(len(re.findall(rf"\b{word}\b", text)) > 1 for word in words)
