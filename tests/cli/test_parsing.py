"""The small languages of flags."""

from __future__ import annotations

from typing import Any

import pytest

from attncli.cli.parsing import cell_of, number, slice_of, window_of
from attncli.errors import ConventionError


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("2:5", [2, 3, 4, 5]),
        ("1:1", [1]),
        ("4", [4]),
        ("6:", [6, 7]),
        (":2", [1, 2]),
        ("-2:", [6, 7]),
        (":-6", [1, 2]),
        ("-3:-2", [5, 6]),
        ("-1", [7]),
        ("3:99", [3, 4, 5, 6, 7]),
    ],
)
def test_slices_count_from_one_and_include_both_ends(text: str, kept: list[int]) -> None:
    assert list(range(1, 8))[slice(*slice_of(text, "--rows"))] == kept


@pytest.mark.parametrize("text", ["", ":", "a:b", "0:3", "1:0", "5:2", "1:2:3", "1.5:2"])
def test_slices_that_are_none(text: str) -> None:
    with pytest.raises(ConventionError, match="--rows"):
        slice_of(text, "--rows")


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "-2,0", "a,b", "1;2"])
def test_windows_that_are_none(text: str) -> None:
    with pytest.raises(ConventionError, match="--window"):
        window_of(text)


@pytest.mark.parametrize("text", ["q1", ",k1", "q1,", "a,b,c", ""])
def test_cells_that_are_none(text: str) -> None:
    with pytest.raises(ConventionError, match="--cell"):
        cell_of(text)


@pytest.mark.parametrize("text", ["", "nan", "one", "1e"])
def test_numbers_that_are_none(text: str) -> None:
    with pytest.raises(ConventionError, match="--scale"):
        number(text, "--scale", "a number")


@pytest.mark.parametrize(("text", "value"), [("-1e9", -1e9), ("-inf", float("-inf"))])
def test_numbers(text: str, value: Any) -> None:
    assert number(text, "--mask-value", "a number") == value
