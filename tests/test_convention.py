"""Convention: every value outside its range is refused by name; flags, keywords, plain numbers."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

from attncli import Convention, ConventionError
from attncli.convention import CHOICES, KNOBS, Fields, convention_of, flag_of, flag_text

SCHEMA = Path(__file__).parents[1] / "attncli" / "files" / "trace.schema.json"
REFUSED: dict[str, list[Any]] = {
    "scale": ["2", math.inf, True, 10**400, np.float64(np.nan), np.array([0.5]), np.ones(2)],
    "softcap": [0, -1.0, 10**400], "softcap_place": ["between"], "dropout": [1.0, -0.1],
    "mask_value": [math.inf, math.nan, -(10**400)], "mask_means": ["drop"], "seed": [-1],
    "temperature": [0, -1.0, float("inf"), "2"], "causal": [1], "qk_norm": [1], "causal_align": ["left"], "window": [(1,), (-2, 0), [1, 2]],
    "empty_rows": ["mean"], "softmax_over": ["rows"], "head_order": ["mixed"],
    "dtype": ["int8", np.array(["float32", "float64"])],
}  # fmt: skip


def test_what_is_refused() -> None:
    for field, values in REFUSED.items():
        for value in values:
            with pytest.raises(ConventionError, match=f"{field} is"):
                Convention(**{field: value})


def test_it_survives_a_mapping() -> None:
    convention = Convention(causal=True, window=(3, 0), scale=0.5)
    assert Convention.from_mapping(asdict(convention)) == convention
    with pytest.raises(ConventionError, match="no field 'sclae'"):
        Convention.from_mapping({"sclae": 1})


def test_every_knob_is_complete_and_the_text_of_its_flag_is_read_back() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]["convention"]
    values = {"window": (3, -1), "scale": 0.1, "softcap": 2.5, "mask_value": -1e9}
    values |= {"dropout": 0.3, "seed": 7, "causal": True, "qk_norm": True, "temperature": 2.0}
    for name, knob in KNOBS.items():
        assert knob.panel in ("Masking", "Scores", "Kernels", "Libraries"), name
        assert knob.help.endswith("."), name
        assert (name in CHOICES) == (knob.valid is None), name
        assert bool(knob.parse) == bool(knob.form) == bool(knob.metavar), name
        assert bool(knob.valid) == bool(knob.use), name
        assert knob.parse or name in CHOICES or isinstance(getattr(Convention, name), bool), name
        assert name in schema["properties"].keys() & schema["required"]
        for value in CHOICES.get(name, (values.get(name),)):
            flag, _, text = flag_text(name, value).partition(" ")
            assert flag == flag_of(name)
            assert (knob.parse(text) if knob.parse else text or True) == value


def test_numbers_of_numpy_are_kept_as_plain_ones() -> None:
    cases: list[tuple[str, Any, Any]] = [
        ("scale", np.float32(0.5), 0.5), ("scale", np.array(0.25), 0.25), ("scale", np.int64(2), 2),
        ("softcap", np.float64(30), 30.0), ("mask_value", np.float16(-np.inf), -math.inf),
        ("causal", np.bool_(True), True), ("causal", np.array(True), True), ("seed", np.uint8(7), 7),
        ("window", (np.int64(3), np.int32(-1)), (3, -1)), ("dtype", np.str_("float32"), "float32"),
    ]  # fmt: skip
    for field, value, kept in cases:
        own = getattr(Convention(**{field: value}), field)
        assert (own, type(own)) == (kept, type(kept)), field


def test_keywords_go_into_a_convention_that_leaves_them_open() -> None:
    assert get_type_hints(Fields) == get_type_hints(Convention)
    convention = convention_of(Convention(causal=True), {"causal": True, "window": (3, 0)})
    assert convention == Convention(causal=True, window=(3, 0))
    with pytest.raises(ConventionError, match=r"scale is 0\.5, but 0\.25"):
        convention_of(Convention(scale=0.25), {"scale": 0.5})
