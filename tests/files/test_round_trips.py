"""What is written is read back bit for bit: any float64, NaN and infinity and −0 included."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attncli.files.load import load
from attncli.files.table import guarded
from attncli.files.write import trace_json
from attncli.trace import Stage, Trace

from .saved import stage_npy, trace_npz

Array = npt.NDArray[Any]

AWKWARD = [np.nan, np.inf, -np.inf, -0.0, 5e-324, -2.2e-308, 1.7976931348623157e308, 0.1, 1e16]
NUMBERS = st.floats(width=64) | st.sampled_from(AWKWARD)
MATRICES = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2), elements=NUMBERS)
BLOCKS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=5), elements=NUMBERS)
LABEL = st.text(st.characters(exclude_categories=["Cs"]), max_size=7)


def read(data: bytes) -> Any:
    return load("-", stdin=io.BytesIO(data))


def same(found: Array, expected: Array) -> bool:
    """Equal in type, shape and bits; any NaN equals any other."""
    if (found.dtype, found.shape) != (expected.dtype, expected.shape):
        return False
    nan = np.isnan(expected) if expected.dtype.kind == "f" else np.zeros(expected.shape, bool)
    filled = np.where(nan, expected.dtype.type(0), expected)
    return (
        bool(np.all(np.isnan(found[nan])) if nan.any() else True)
        and np.where(nan, expected.dtype.type(0), found).tobytes() == filled.tobytes()
    )


def trace_of(value: Array, labels: list[str] | None = None) -> Trace:
    axes = tuple(f"axis{i}" for i in range(value.ndim))
    named = {} if labels is None else {"axis0": tuple(labels)}
    return Trace("T", (Stage("scores", "S", "S = Q Kᵀ", value, axes, named),))


@given(BLOCKS, st.sampled_from(["float64", "float32", "float16"]))
def test_trace_as_json_and_npz(block: Array, dtype: str) -> None:
    with np.errstate(all="ignore"):
        value = block.astype(dtype)
    for data in ("".join(trace_json(trace_of(value))).encode(), trace_npz(trace_of(value))):
        assert same(read(data).arrays["scores"], value)


@given(hnp.arrays(st.sampled_from([np.bool_, np.int64, np.uint8]), (2, 3)))
def test_integers_and_booleans(value: Array) -> None:
    for data in ("".join(trace_json(trace_of(value))).encode(), trace_npz(trace_of(value))):
        assert same(read(data).arrays["scores"], value)


@given(st.lists(LABEL, min_size=1, max_size=5))
def test_labels_of_any_characters(labels: list[str]) -> None:
    trace = trace_of(np.zeros((len(labels), 1)), labels)
    for data in ("".join(trace_json(trace)).encode(), trace_npz(trace)):
        assert read(data).trace["scores"].labels["axis0"] == tuple(labels)


@given(BLOCKS)
def test_npy(block: Array) -> None:
    (stage,) = trace_of(block).steps
    assert isinstance(stage, Stage)
    assert same(read(stage_npy(stage)).arrays[""], block)


# a null character is no text
CSV_LABEL = LABEL.filter(lambda label: "\0" not in label)


@given(matrix=MATRICES, data=st.data())
@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_table_as_attncli_writes_it(
    matrix: Array,
    data: st.DataObject,
    ending: str,
    delimiter: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    n_rows, n_columns = matrix.shape
    rows = data.draw(st.lists(CSV_LABEL, min_size=n_rows, max_size=n_rows))
    columns = data.draw(st.lists(CSV_LABEL, min_size=n_columns, max_size=n_columns))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow(["weights", *map(guarded, columns)])
    for label, numbers in zip(rows, matrix, strict=True):
        writer.writerow([guarded(label), *(repr(float(number)) for number in numbers)])
    path = tmp_path_factory.getbasetemp() / f"round-trip.{ending}"
    path.write_bytes(text.getvalue().encode())
    loaded = load(str(path))
    assert same(loaded.arrays[""], matrix)
    assert loaded.row_labels == tuple(rows)
    assert loaded.column_labels == tuple(columns)
