"""Rounding to the small number types, against types that other libraries define."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attncli.attention.functional import round_to


@given(st.floats(width=32))
def test_bfloat16_is_rounded_as_ml_dtypes_rounds_it(x: float) -> None:
    ours = round_to(np.array([x], dtype=np.float32), "bfloat16")
    theirs = np.array([x], dtype=np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(ours, theirs)


@given(st.floats(width=32))
def test_bfloat16_is_idempotent(x: float) -> None:
    once = round_to(np.array([x], dtype=np.float32), "bfloat16")
    np.testing.assert_array_equal(round_to(once, "bfloat16"), once)


def test_float64_and_float32_are_left_alone() -> None:
    x = np.array([0.1, 1e300])
    assert round_to(x, "float64") is x
    assert round_to(x[:1].astype(np.float32), "float32").dtype == np.float32
