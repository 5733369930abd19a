"""Numbers as text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from attncli.views.numbers import align, percent, short, style_of, texts

floats = st.floats(allow_subnormal=True)


def column(*values: float, precision: int = 4) -> list[str]:
    found = align(texts(np.array([values]).T, precision))
    return [text for (text,) in found]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((1, -20, 0), ["  1", "-20", "  0"]),
        ((0.5, 12.25), [" 0.50", "12.25"]),
        ((0.7071067, 0, 1), ["0.7071", "0     ", "1.0000"]),
        ((0.5, 1e-9, 0), ["0.5000", "0.0000", "0     "]),
        ((1e-9, 2.5e-9, 0), ["1.0e-9", "2.5e-9", "0     "]),
        ((-1e9, 0.5), ["-1e9", " 0.5"]),
        ((-153513871339, 0.7071067), ["-1.5351e11", " 0.7071   "]),
        ((0.5, -1e-9, -0.0), ["0.5000", "0.0000", "0     "]),
        ((5.000000000000001, 0.25), ["5.00", "0.25"]),
        ((1.5, math.nan, -math.inf, math.inf), [" 1.5", " NaN", "-inf", " inf"]),
        ((9999999, 1), ["9999999", "      1"]),
        ((12345678, 1), ["1.2346e7", "1       "]),
        ((99999.5, 0.123456), ["99999.5000", "    0.1235"]),
        ((-0.0, 0.25), ["0   ", "0.25"]),
        ((1e300, 1e-300), ["1e300 ", "1e-300"]),
    ],
)
def test_a_column(values: tuple[float, ...], shown: list[str]) -> None:
    assert column(*values) == shown


def test_precision() -> None:
    assert column(0.123456, 1, precision=2) == ["0.12", "1.00"]
    assert column(0.4, 0.1, precision=0) == ["0.4", "0.1"]
    assert column(0.5, 0.1, precision=0) == ["0.5", "0.1"]
    assert column(0.0004, 0.00012, precision=2) == ["0.0004", "0.0001"]
    assert column(0.00004, 0.00001, precision=2) == ["4e-5", "1e-5"]
    assert column(0.4011, 0.1978, 0.05, precision=1) == ["0.4", "0.2", "0.1"]
    assert column(12.4, 1.6, precision=0) == ["12", " 2"]


@given(st.lists(floats, min_size=1, max_size=8), st.integers(0, 8))
def test_decimal_points_are_aligned(values: list[float], precision: int) -> None:
    shown = column(*values, precision=precision)
    assert len({len(text) for text in shown}) == 1
    assert len({text.index(".") for text in shown if "." in text}) <= 1


@given(st.lists(floats, min_size=1, max_size=8), st.integers(1, 8))
def test_the_largest_number_is_never_a_false_zero(values: list[float], precision: int) -> None:
    shown = column(*values, precision=precision)
    largest = max((abs(x) for x in values if math.isfinite(x)), default=0)
    for value, text in zip(values, shown, strict=True):
        if 1e308 > abs(value) == largest > 0:
            assert float(text) != 0
            assert float(text) == pytest.approx(value, rel=0.06, abs=0.501 * 10**-precision)


@given(floats, st.integers(4, 8))
def test_a_short_number_is_the_number(x: float, precision: int) -> None:
    if abs(x) < 1e308:
        shown = float(short(x, precision))
        assert (shown == 0) == (x == 0)
        assert shown == pytest.approx(x, rel=6e-3, abs=0.501 * 10**-precision)


@given(st.floats(1e-4, 9e6), st.integers(0, 17))
def test_a_number_that_decimals_show_has_no_exponent(x: float, precision: int) -> None:
    assert "e" not in short(x, precision)
    assert all("e" not in text for text in column(x, -x, 1.5e11, 0.0, precision=precision)[:2])


@given(st.floats(-9e6, 9e6), st.integers(0, 8))
def test_a_number_is_written_the_same_in_a_table_and_in_a_line(x: float, precision: int) -> None:
    assert short(x, precision) == column(x, precision=precision)[0]


@pytest.mark.parametrize(
    ("x", "shown"),
    [
        (1.0, "1"),
        (0.19780, "0.1978"),
        (-1e9, "-1e9"),
        (1.25e-7, "1.25e-7"),
        (1200.0, "1200"),
        (math.nan, "NaN"),
        (-math.inf, "-inf"),
    ],
)
def test_short(x: float, shown: str) -> None:
    assert short(x, 4) == shown


def test_percent() -> None:
    assert [percent(x) for x in (0, 1, 0.99999, 0.25, 1e-5)] == [
        "0.0 %",
        "100 %",
        "100.0 %",
        "25.0 %",
        "< 0.1 %",
    ]


@given(floats, st.integers(0, 17))
@example(0.5000000000000001, 4)
@example(9999999.99999, 3)
@example(4.9e-5, 2)
def test_a_number_by_itself_is_written_as_in_a_matrix_of_its_own(x: float, precision: int) -> None:
    assert short(x, precision) == style_of(np.array([x]), precision).write(x)


@given(st.integers(-(10**9), 10**9), st.integers(0, 12), st.integers(0, 17))
def test_and_so_is_one_of_few_decimals(digits: int, decimals: int, precision: int) -> None:
    x = digits / 10**decimals
    assert short(x, precision) == style_of(np.array([x]), precision).write(x)
