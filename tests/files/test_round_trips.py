"""What is written is read back bit for bit: any float64, NaN and infinity and −0 included."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attncli.arrays import Array
from attncli.files.table import guarded
from attncli.trace import Stage, Trace

from .saved import Folder, Loaded, load, stage_npy, trace_json, trace_npz

AWKWARD = [np.nan, np.inf, -np.inf, -0.0, 5e-324, -2.2e-308, 1.7976931348623157e308, 0.1, 1e16]
NUMBERS = st.floats(width=64) | st.sampled_from(AWKWARD)
MATRICES = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2), elements=NUMBERS)
BLOCKS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=5), elements=NUMBERS)
OTHERS = hnp.arrays(st.sampled_from([np.bool_, np.int64, np.uint8]), (2, 3))
LABEL = st.text(st.characters(exclude_categories=["Cs"]), max_size=7)


def same(read: Array, expected: Array) -> bool:
    """Equal in type, shape and bits; any NaN equals any other."""
    if (read.dtype, read.shape) != (expected.dtype, expected.shape):
        return False
    nan = np.isnan(expected)
    zero = expected.dtype.type(0)
    bits = np.where(nan, zero, read).tobytes() == np.where(nan, zero, expected).tobytes()
    return bits and bool(np.isnan(read[nan]).all())


def trace_of(value: Array, labels: list[str] | None = None) -> Trace:
    axes = tuple(f"axis{i}" for i in range(value.ndim))
    named = {} if labels is None else {"axis0": tuple(labels)}
    return Trace("T", (Stage("scores", "S", "S = Q Kᵀ", value, axes, named),))


def both(trace: Trace) -> list[Loaded]:
    """A trace as read from json and from npz."""
    files = ("".join(trace_json(trace)).encode(), trace_npz(trace))
    return [load("-", stdin=io.BytesIO(data)) for data in files]


@given(BLOCKS, OTHERS, st.sampled_from(["float64", "float32", "float16"]))
def test_a_trace_and_a_stage(block: Array, other: Array, dtype: str) -> None:
    with np.errstate(all="ignore"):
        value = block.astype(dtype)
    for array in (value, other):
        for loaded in both(trace_of(array)):
            assert same(loaded.arrays["scores"], array)
    stage = trace_of(value)["scores"]
    assert same(load("-", stdin=io.BytesIO(stage_npy(stage))).arrays[""], value)


@given(st.lists(LABEL, min_size=1, max_size=5))
def test_labels_of_any_characters(labels: list[str]) -> None:
    for loaded in both(trace_of(np.zeros((len(labels), 1)), labels)):
        assert loaded.trace is not None
        assert loaded.trace["scores"].labels["axis0"] == tuple(labels)


# a null character is no text
CSV_LABEL = LABEL.filter(lambda label: "\0" not in label)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(matrix=MATRICES, data=st.data())
@pytest.mark.parametrize(("name", "delimiter"), [("x.csv", ","), ("x.tsv", "\t")])
def test_table_as_attncli_writes_it(
    matrix: Array, data: Any, name: str, delimiter: str, folder: Folder
) -> None:
    rows, columns = (data.draw(st.lists(CSV_LABEL, min_size=n, max_size=n)) for n in (matrix.shape))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(["weights", *map(guarded, columns)])
    for label, numbers in zip(rows, matrix, strict=True):
        writer.writerow([guarded(label), *(repr(float(number)) for number in numbers)])
    loaded = folder.load(text.getvalue(), name)
    assert same(loaded.arrays[""], matrix)
    assert (loaded.row_labels, loaded.column_labels) == (tuple(rows), tuple(columns))
