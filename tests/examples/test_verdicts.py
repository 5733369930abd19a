"""The rules: printed numbers, rounding, ties, statements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.errors import InputError
from attncli.examples.printed import EXACT, VERDICTS, compare, cut_off, holds, read_printed, worst

R, A, D, N, _ = VERDICTS


@pytest.mark.parametrize(
    ("printed", "value", "decimals"),
    [
        ("0.540", 0.54, 3),
        ("5", 5.0, 0),
        ("-.25", -0.25, 2),
        ("−0.25", -0.25, 2),
        ("1e-4", 0.0001, 4),
        ("2.50e-3", 0.0025, 5),
        ("3e5", 300000.0, -5),
        (5, 5.0, 0),
        (5.25, 5.25, 2),
        (1e-5, 0.00001, 5),
        ("1/√2", math.sqrt(0.5), EXACT),
        ("-√3", -math.sqrt(3), EXACT),
        ("2/3", 2 / 3, EXACT),
        ("sin(3/10)", math.sin(0.3), EXACT),
        ("-cos(0.0001)", -math.cos(0.0001), EXACT),
        ("-Infinity", -math.inf, EXACT),
    ],
)
def test_printed_numbers_are_read(printed: Any, value: float, decimals: int) -> None:
    read = read_printed(printed, "it")
    assert read.value == pytest.approx(value, rel=1e-15)
    assert read.decimals.tolist() == decimals


def test_decimals_apply_to_numbers_that_are_not_text() -> None:
    read = read_printed([0.5, "0.5"], "it", 3)
    assert read.decimals.tolist() == [3, 1]
    assert read.text == ["0.500", "0.5"]


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        "1/0",
        "√-1",
        "1//2",
        "sin(x)",
        "sin(1",
        "1,5",
        "1e999",
        "0x10",
        "1_0",
        "__import__",
        "9" * 70,
        True,
        None,
        {},
        [],
        [["1"], "2"],
        ["1", ["2"]],
        [[[[["1"]]]]],
    ],
)
def test_invalid_printed_numbers_are_refused(bad: Any) -> None:
    with pytest.raises(InputError, match=r"^it"):
        read_printed(bad, "it")


@pytest.mark.parametrize(
    ("ours", "printed", "verdict"),
    [
        (0.4011, "0.40", A),
        (0.4, "0.40", R),
        (0.4051, "0.40", D),
        (0.125, "0.12", A),  # a tie goes either way
        (0.125, "0.13", A),
        (-0.125, "-0.13", A),
        (2.675, "2.68", A),  # float64 holds it a little below the tie
        (2.675, "2.67", A),
        (0.5, "0", A),
        (0.5, "1", A),
        (0.5000001, "0", D),
        (0.1 + 0.2, "0.3", R),  # the same number but for the last bit
        (2.4006249368060817, "2.4006249368060817", R),
        (2.4006249368060817, "2.4006249368060818", R),  # the next digit float64 cannot tell
        (1.0000000000000002, "1.0000000000000000", R),  # one ulp
        (1.000000000000001, "1.0000000000000000", A),  # what float64 may lose on the way
        (1.0000000000001, "1.0000000000000000", D),
        (123456.0, "1.2e5", A),
        (42.857142857142854, "43", A),
        (1 / math.sqrt(2), "1/√2", R),
        (0.7071, "1/√2", D),
        (0.99995000041666, "1.0000", A),
        (0.99995000041666, "cos(0.0001)", D),
        (math.nan, "NaN", R),
        (math.nan, "0.5", D),
        (-math.inf, "-Infinity", R),
        (math.inf, "1", D),
        (1.0, "Infinity", D),
        (0.0, "0", R),
        (6e-17, "0.0", A),
        (1e300, "0", D),
    ],
)
def test_the_verdict_of_one_number(ours: float, printed: str, verdict: str) -> None:
    assert compare(ours, read_printed(printed, "it")).tolist() == verdict


@given(st.floats(-1e6, 1e6), st.integers(0, 8))
def test_a_number_rounded_by_python_agrees(ours: float, decimals: int) -> None:
    verdict = compare(ours, read_printed(f"{ours:.{decimals}f}", "it")).tolist()
    assert verdict in (R, A)


@given(st.floats(-1e6, 1e6), st.integers(0, 8), st.integers(1, 1000))
def test_two_units_off_differs(ours: float, decimals: int, units: int) -> None:
    wrong = round(ours, decimals) + (units + 1) * 10.0**-decimals
    assert compare(ours, read_printed(f"{wrong:.{decimals}f}", "it")).tolist() == D


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_printed_in_full_is_reproduced(ours: float) -> None:
    assert compare(ours, read_printed(repr(ours), "it")).tolist() == R


def test_the_worst_cell_gives_the_verdict() -> None:
    cells = compare([0.4, 0.4011, 0.3], read_printed(["0.4", "0.4", "0.4"], "it"))
    assert cells.tolist() == [R, A, D]
    assert (worst(cells), worst(cells[:2]), worst(cells[:0])) == (D, A, N)


@pytest.mark.parametrize(
    ("ours", "states", "magnitude", "verdicts"),
    [
        ([1.0, 1 + 2e-16, 1.01], {"equal": 1}, 1.0, [R, R, D]),
        ([1e-16, 1e-12], {"equal": 0}, 1.0, [R, D]),
        ([1e-300], {"equal": 0}, 0.0, [D]),
        ([0.0], {"equal": 0}, 0.0, [R]),
        ([0.9995, 0.99], {"close_to": 1}, 1.0, [R, D]),
        ([0.0, 0.2], {"unequal": 0}, 1.0, [R, R]),
        ([0.0, 1e-17], {"unequal": 0}, 1.0, [D, D]),
        ([math.nan], {"equal": 0}, 1.0, [D]),
        ([math.nan], {"unequal": 0}, 1.0, [D]),
    ],
)
def test_the_verdict_of_a_statement(
    ours: list[float], states: dict[Any, float], magnitude: float, verdicts: list[str]
) -> None:
    assert holds(ours, states, magnitude).tolist() == verdicts


@pytest.mark.parametrize(
    ("ours", "printed", "cut"),
    [
        (0.1978, "0.19", True),
        (-0.1978, "-0.19", True),
        (0.1978, "0.20", False),
        (0.1978, "0.18", False),
        (np.inf, "1", False),
        (0.5, "1/2", False),
    ],
)
def test_truncated_digits_are_recognized(ours: float, printed: str, cut: bool) -> None:
    assert cut_off(ours, read_printed(printed, "it")) is cut
