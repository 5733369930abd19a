"""The small languages of flags."""

from __future__ import annotations

import math
from typing import Any

import pytest

from attncli.cli.options import Choices
from attncli.cli.parsing import bytes_of, cell_of, slice_of
from attncli.convention import flag_of
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


@pytest.mark.parametrize("text", ["q1", ",k1", "q1,", "a,b,c", ""])
def test_cells_that_are_none(text: str) -> None:
    with pytest.raises(ConventionError, match="--cell"):
        cell_of(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("window", text) for text in ("", "1", "1,2,3", "-2,0", "a,b", "1;2")),
        *((name, text) for name in ("scale", "mask_value") for text in ("", "nan", "one", "1e")),
        *(("seed", text) for text in ("", "1.5", "one")),
    ],
)
def test_choices_that_are_not_understood(name: str, text: str) -> None:
    with pytest.raises(ConventionError, match=f"{flag_of(name)} '{text}' is not understood"):
        Choices(**{name: text})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("mask_value", "-1e9", -1e9),
        ("mask_value", "-inf", -math.inf),
        ("scale", "none", "none"),
        ("scale", "0.125", 0.125),
        ("window", "2,-1", (2, -1)),
        ("seed", "7", 7),
    ],
)
def test_choices(name: str, text: str, value: Any) -> None:
    flags: dict[str, Any] = {name: text, "causal": False, "dtype": None}
    assert Choices(**flags).given == {name: value}


@pytest.mark.parametrize("text", ["", "0", "-1GB", "1TB", "nan", "1.2.3", "9" * 400])
def test_sizes_that_are_not_understood(text: str) -> None:
    with pytest.raises(ConventionError, match="write --max-size SIZE, such as 500MB or 4GB"):
        bytes_of(text)
