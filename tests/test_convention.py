"""Convention: every value outside its range is refused by name."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest

from attncli import Convention, ConventionError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scale", "2"),
        ("scale", math.inf),
        ("scale", True),
        ("softmax_over", "rows"),
        ("causal", 1),
        ("causal_align", "left"),
        ("window", (1,)),
        ("window", (-2, 0)),
        ("window", [1, 2]),
        ("mask_means", "drop"),
        ("mask_value", math.inf),
        ("mask_value", math.nan),
        ("empty_rows", "mean"),
        ("softcap", 0),
        ("softcap", -1.0),
        ("softcap_place", "between"),
        ("head_order", "mixed"),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("seed", -1),
        ("dtype", "int8"),
    ],
)
def test_what_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ConventionError, match=f"{field} is"):
        Convention(**{field: value})


def test_it_survives_a_mapping() -> None:
    how = Convention(causal=True, window=(3, 0), scale=0.5)
    assert Convention.from_mapping(asdict(how)) == how


def test_an_unknown_field_is_named() -> None:
    with pytest.raises(ConventionError, match="no field 'sclae'"):
        Convention.from_mapping({"sclae": 1})
