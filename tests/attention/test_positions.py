"""Sinusoidal positions against the formula written out, document 004's code and trigonometry."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.attention.positions import add_positions, position_dots, sinusoidal
from attncli.errors import ConventionError, ShapeError

Array = npt.NDArray[np.float64]


def cell(pos: int, column: int, dim: int, base: float = 10000.0) -> float:
    """Section 3.5 for one cell, with nothing but the math module."""
    angle = pos / base ** ((column - column % 2) / dim)
    return math.cos(angle) if column % 2 else math.sin(angle)


def article_table(max_position: int, d_model: int) -> Array:
    """Document 004's loop, with its exponent as printed."""
    pos_enc = np.zeros((max_position, d_model))
    for pos in range(max_position):
        for i in range(0, d_model, 2):
            pos_enc[pos, i] = np.sin(pos / (10000 ** (2 * i / d_model)))
            pos_enc[pos, i + 1] = np.cos(pos / (10000 ** (2 * i / d_model)))
    return pos_enc


@pytest.mark.parametrize(("n", "dim"), [(5, 4), (7, 11), (3, 1), (13, 2), (11, 7)])
def test_every_cell_follows_the_paper(n: int, dim: int) -> None:
    expected = [[cell(pos, column, dim) for column in range(dim)] for pos in range(n)]
    table = sinusoidal(n, dim)["positions"]
    np.testing.assert_allclose(table.value, expected, rtol=0, atol=1e-15)
    assert table.axes == ("position", "dimension")


def test_start_and_base_move_the_table() -> None:
    expected = [[cell(pos, column, 6, base=50.0) for column in range(6)] for pos in (17, 18, 19)]
    table = sinusoidal(3, 6, base=50, start=17)["positions"]
    np.testing.assert_allclose(table.value, expected, rtol=0, atol=1e-15)
    assert table.labels["position"] == ("pos 17", "pos 18", "pos 19")


def test_the_article_counts_2i_twice() -> None:
    table = sinusoidal(5, 4, exponent="article")
    np.testing.assert_allclose(table["positions"].value, article_table(5, 4), rtol=0, atol=1e-15)
    np.testing.assert_allclose(
        table["positions"].value[1], [0.841471, 0.540302, 0.0001, 1.0], atol=5.1e-7
    )
    assert "2i twice" in table["positions"].note
    np.testing.assert_allclose(
        sinusoidal(5, 4)["positions"].value[1],
        [0.841471, 0.540302, 0.0099998, 0.99995],
        atol=5.1e-7,
    )


def test_an_odd_number_of_columns_ends_with_a_sine() -> None:
    table = sinusoidal(3, 5)["positions"]
    assert [name.split()[0] for name in table.labels["dimension"]] == [
        "sin",
        "cos",
        "sin",
        "cos",
        "sin",
    ]
    assert "5 is odd" in table.note
    assert sinusoidal(3, 4)["positions"].note == ""


def test_columns_say_their_wavelength() -> None:
    trace = sinusoidal(2, 4)
    assert trace["positions"].labels["dimension"] == (
        "sin λ6.28",
        "cos λ6.28",
        "sin λ628",
        "cos λ628",
    )
    assert trace["angles"].labels["pair"] == ("λ6.28", "λ628")


def test_the_angles_are_what_the_table_is_made_of() -> None:
    trace = sinusoidal(5, 7, start=2)
    angles, table = trace["angles"].value, trace["positions"].value
    assert angles.shape == (5, 4)
    np.testing.assert_array_equal(table[:, 4], np.sin(angles[:, 2]))
    np.testing.assert_array_equal(table[:, 5], np.cos(angles[:, 2]))


@given(
    start=st.integers(-50, 50),
    distance=st.integers(0, 40),
    pairs=st.integers(1, 8),
    base=st.floats(1.0, 1e6),
)
def test_dots_depend_on_the_distance_alone(
    start: int, distance: int, pairs: int, base: float
) -> None:
    n = distance + 3
    dots = position_dots(sinusoidal(n, 2 * pairs, base=base, start=start))["dots"].value
    expected = math.fsum(math.cos(distance / base ** (i / pairs)) for i in range(pairs))
    np.testing.assert_allclose(np.diagonal(dots, distance), expected, atol=1e-10)


def test_dots_fall_with_the_distance_at_first() -> None:
    dots = position_dots(sinusoidal(5, 64))["dots"]
    assert dots.axes == ("position", "other")
    assert np.all(np.diff(dots.value[0]) < 0)
    assert dots.value[0, 0] == pytest.approx(32)


def test_added_is_document_004s_sum() -> None:
    trace = add_positions([[0.5, 0.2, 0.3, 0.1]], [[0.0, 1.0, 0.841, 0.540]], tokens=["love"])
    assert list(trace) == ["embeddings", "positions", "input"]
    np.testing.assert_allclose(trace["input"].value, [[0.5, 1.2, 1.141, 0.640]], rtol=1e-15)
    assert trace["input"].labels["token"] == ("love",)


def test_added_keeps_the_names_of_rows_and_its_columns_are_no_waves() -> None:
    trace = add_positions(np.ones((3, 5)), sinusoidal(3, 5, start=4))
    assert trace["input"].labels["token"] == ("pos 4", "pos 5", "pos 6")
    assert trace["positions"].labels["dimension"][0] == "sin λ6.28"
    assert "dimension" not in trace["input"].labels
    np.testing.assert_array_equal(trace["input"].value, 1 + trace["positions"].value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sinusoidal(0, 4), "the number of positions is 0"),
        (lambda: sinusoidal(3, -1), "dim is -1"),
        (lambda: sinusoidal(3, 4, exponent="book"), "exponent is 'book'; use paper or article"),  # type: ignore[arg-type]
        (lambda: sinusoidal(3, 4, base=0.5), "base is 0.5"),
        (lambda: sinusoidal(3, 4, base=math.nan), "base is nan"),
        (lambda: sinusoidal(3, 4, start=2**53), "cannot be distinguished"),
    ],
)
def test_choices_that_do_not_exist(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(ConventionError, match=message):
        call()


@pytest.mark.parametrize(
    ("embeddings", "positions", "message"),
    [
        (np.ones((3, 5)), np.ones((2, 5)), "embeddings are 3 × 5 but positions are 2 × 5"),
        (np.ones(3), np.ones((2, 5)), "embeddings has 1 dimensions"),
        ([[1.0], [1.0, 2.0]], np.ones((2, 5)), "embeddings is ragged"),
        ([["a"]], np.ones((2, 5)), "must hold real numbers"),
        ([[1j]], np.ones((1, 1)), "must hold real numbers"),
    ],
)
def test_shapes_that_do_not_fit(
    embeddings: npt.ArrayLike, positions: npt.ArrayLike, message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        add_positions(embeddings, positions)


def test_a_huge_base_gives_no_warning() -> None:
    table = sinusoidal(3, 7, base=1e300, exponent="article")["positions"].value
    np.testing.assert_array_equal(table[:, 6], 0)
