"""What holds for every table, whatever is in it."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rich.text import Text

from attncli.trace import Stage, Trace
from attncli.views.formats.table import blocks
from attncli.views.matrix import Matrix
from attncli.views.page import parts
from attncli.views.select import DisplayOptions

from .rendering import View, lines_of, rendered, view, widest
from .traces import Array, attention, matrix, numbers

values = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=14), elements=st.floats()
)
views = st.builds(
    view,
    precision=st.integers(0, 8),
    width=st.integers(40, 140),
    height=st.none() | st.integers(5, 60),
    heatmap=st.sampled_from([None, True]),
    full=st.booleans(),
    work=st.just(True),
)


@settings(max_examples=60)
@given(values, views, st.text(max_size=40), st.sampled_from(["scores", "weights", "other"]))
def test_every_line_fits(array: Array, shown: View, word: str, name: str) -> None:
    labels = {
        axis: [f"{word}{index}" for index in range(size)]
        for axis, size in zip(("query", "key"), array.shape, strict=True)
    }
    assert widest(rendered(matrix(array, name, labels=labels), shown)) <= (shown.screen.width or 0)


@settings(max_examples=40)
@given(st.text(max_size=60), st.integers(40, 80), st.sampled_from([None, ("1", "2")]))
def test_every_line_of_an_attention_fits(
    word: str, width: int, cell: tuple[str, str] | None
) -> None:
    labels = {"query": [f"{word}{i}" for i in range(3)], "key": [f"{i}{word}" for i in range(5)]}
    trace = attention(numbers(3, 9), numbers(5, 9), numbers(5, 7), labels=labels, notes=(word,))
    shown = view(width, 24, work=True, cell=cell)
    assert widest(rendered(trace, shown)) <= width


@settings(max_examples=40)
@given(values, views)
def test_decimal_points_are_aligned(array: Array, shown: View) -> None:
    (m,) = [part for part in parts(matrix(array), shown.options) if isinstance(part, Matrix)]
    grid = m.grid(tuple(m.rows), tuple(m.columns))
    cells = [cell.text for row in grid.cells for cell in row if cell.kind == "number"]
    assert len({len(text) for text in cells}) == 1
    assert len({text.index(".") for text in cells if "." in text}) <= 1


@given(st.text(min_size=1, max_size=20))
def test_labels_are_never_markup_or_control(label: str) -> None:
    found = rendered(matrix([[1.0]], labels={"query": [label], "key": ["[bold]"]}), view())
    assert "[bold]" in found
    assert all(line.isprintable() or "\ufe0f" in line for line in found.splitlines())


def test_blocks_are_texts_one_for_each_stage() -> None:
    found = list(blocks(attention(), DisplayOptions()))
    assert all(isinstance(block, Text) for block in found)
    assert [str(block).strip().split()[0] for block in found[:-1]] == ["Scaled", *"1234"]


def test_a_heading_goes_with_its_first_stage() -> None:
    trace = attention(numbers(2, 3, 2), numbers(2, 3, 2), numbers(2, 3, 2))
    found = [str(block) for block in blocks(trace, DisplayOptions())]
    assert found[1].startswith("\nhead 1 of 2\n\n1  scores")
    assert len(found) == 1 + 2 * 4 + 1


def test_full_shows_everything() -> None:
    shown = view(80, 24, full=True)
    lines = lines_of(matrix((np.arange(200 * 150) + 0.1).reshape(200, 150) / 7), shown)
    cells = sum(len(re.findall(r"\d+\.\d{4}", line)) for line in lines)
    assert cells == 200 * 150
    assert not any("left out" in line for line in lines)


@pytest.mark.parametrize("height", [10, 24, 50])
def test_a_matrix_is_no_taller_than_the_screen(height: int) -> None:
    shown = view(80, height)
    for block in blocks(matrix(np.ones((500, 400)) / 3), shown.options, screen=shown.screen):
        assert len(str(block).splitlines()) <= max(height - 6, 16) + 4


def test_corners_are_the_first_and_last() -> None:
    lines = lines_of(matrix(np.arange(10_000).reshape(100, 100)), view(60, 10))
    header, first, *_, last, left_out = map(str.split, lines[4:21])
    assert header == ["k1", "k2", "k3", "k4", "…", "k97", "k98", "k99", "k100"]
    assert first == ["q1", "0", "1", "2", "3", "…", "96", "97", "98", "99"]
    assert lines[12].split() == ["⋮", *"⋮⋮⋮⋮⋱⋮⋮⋮⋮"]
    assert last == ["q100", *["9900", "9901", "9902", "9903", "…", "9996", "9997", "9998", "9999"]]
    assert " ".join(left_out) == "left out: 86 rows and 92 columns (--rows A:B, --cols A:B"


def test_a_pipe_cuts_only_what_is_large() -> None:
    whole = lines_of(matrix(np.ones((100, 100)) / 3))
    assert len(whole) == 4 + 100
    assert whole[-1].split() == ["q100", *["0.3333"] * 100]
    cut = lines_of(matrix(np.ones((101, 100)) / 3))
    assert cut[-1] == "  left out: 85 rows (--rows A:B or --full)"


def test_sums_are_of_whole_rows() -> None:
    lines = lines_of(attention(), view(stages=("weights",), cols=(0, 1), rows=(0, 1)))
    assert lines[4:6] == ["          k1  Σ of all 3", "  q1  0.4011           1"]


@pytest.mark.parametrize(
    ("array", "axes", "last"),
    [
        (np.array([1.5, 2]), ("dimension",), "  Z     1.5     2.0"),
        (np.array(7), (), "  Z       7"),
        (np.zeros((0, 3)), ("query", "key"), "  nothing to show"),
        (np.array([[True, False]]), ("query", "key"), "  q1       1       0"),
        (np.array([["a", "\x1b"]]), ("query", "key"), "  q1       a    \\x1b"),
    ],
)
def test_stages_of_other_shapes(array: Array, axes: tuple[str, ...], last: str) -> None:
    stage = Stage("thing", "Z", "", array, axes)
    assert lines_of(Trace("T", (stage,)))[-1] == last


def test_stages_that_do_not_fit_each_other_still_show() -> None:
    axes = ("query", "key")
    steps = (
        Stage("mask", "M", "", np.zeros((7, 7)), axes),
        Stage("tokens", "T", "", np.array(["a", "b"]), ("token",)),
        Stage("scaled", "Z", "", np.ones((2, 3)), axes),
        Stage("weights", "A", "", np.ones((5, 0)), axes),
        Stage("output", "O", "", np.ones((5, 2)), ("query", "d_v")),
    )
    lines = lines_of(Trace("T", steps), view(work=True, heatmap=True))
    assert lines[-1] == "q5 attends to nothing: every key is masked"


def test_a_very_narrow_screen_still_works() -> None:
    assert "0.4011" in rendered(attention(), view(20, 24, work=True))


def test_rows_and_columns_leave_a_vector_whole() -> None:
    vector = Stage("mean", "μ", "", np.array([1.0, 2.0, 3.0]), ("query",))
    trace = Trace("Both", (*matrix(np.eye(3)).steps, vector))
    assert lines_of(trace, view(rows=(1, 2), cols=(2, 3)))[-1].split() == ["μ", "1", "2", "3"]
