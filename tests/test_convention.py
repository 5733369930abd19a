"""Convention: every value outside its range is refused by name."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli import Convention, ConventionError
from attncli.convention import CHOICES, KNOBS, flag_of, flag_text

SCHEMA = Path(__file__).parents[1] / "attncli" / "files" / "trace.schema.json"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scale", "2"),
        ("scale", math.inf),
        ("scale", True),
        ("scale", 10**400),
        ("softcap", 10**400),
        ("mask_value", -(10**400)),
        ("dtype", np.array(["float32", "float64"])),
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


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_is_complete(name: str) -> None:
    knob, default = KNOBS[name], getattr(Convention, name)
    assert knob.panel in ("Masking", "Scores")
    assert knob.help.endswith(".")
    assert (name in CHOICES) == (knob.valid is None)
    assert bool(knob.parse) == bool(knob.form) == bool(knob.metavar)
    assert bool(knob.valid) == bool(knob.use)
    assert knob.parse or name in CHOICES or isinstance(default, bool)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]["convention"]
    assert name in schema["properties"]
    assert name in schema["required"]


@pytest.mark.parametrize("name", KNOBS)
def test_the_text_of_a_flag_is_read_back(name: str) -> None:
    values = {"window": (3, -1), "scale": 0.1, "softcap": 2.5, "mask_value": -1e9}
    values |= {"dropout": 0.3, "seed": 7, "causal": True}
    for value in CHOICES.get(name, (values.get(name),)):
        flag, _, text = flag_text(name, value).partition(" ")
        assert flag == flag_of(name)
        parse = KNOBS[name].parse
        assert (parse(text) if parse else text or True) == value
