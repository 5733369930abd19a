"""Rounding to the small number types, against types that other libraries define."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.attention.attend import attend
from attncli.attention.functional import round_to, widen
from attncli.convention import Convention, DType


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


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_beyond_a_type_is_infinite_without_a_warning(dtype: DType) -> None:
    assert widen(np.array([1e300, -1e300]), dtype).tolist() == [np.inf, -np.inf]
    trace = attend([[1e300]], [[0.0]], [[1.0]], convention=Convention(dtype=dtype))
    assert trace["q"].value.tolist() == [[np.inf]]
