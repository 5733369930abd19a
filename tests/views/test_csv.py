"""Delimited text reads back as the same numbers, and runs nowhere."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from attncli.files.table import guarded, unguarded
from attncli.views.formats.csv import text
from attncli.views.select import DisplayOptions

from .traces import Array, attention, matrix, numbers

shapes = hnp.array_shapes(min_dims=2, max_dims=2, max_side=5)


@given(hnp.arrays(np.float64, shapes, elements=st.floats()), st.sampled_from(",\t"))
def test_numbers_read_back_the_same(values: Array, delimiter: str) -> None:
    lines = "".join(text(matrix(values), DisplayOptions(), delimiter=delimiter)).splitlines()
    header, *rows = csv.reader(lines, delimiter=delimiter)
    assert header[0] == "scaled"
    read = [[float(text) for text in row[1:]] for row in rows]
    np.testing.assert_array_equal(np.array(read), values)


def test_non_finite_numbers_are_named() -> None:
    lines = "".join(text(matrix([[np.nan, np.inf, -np.inf]]), DisplayOptions())).splitlines()
    assert lines == ["scaled,k1,k2,k3", "q1,NaN,Infinity,-Infinity"]


def test_numbers_are_rounded_where_decimals_are_asked_for() -> None:
    values = [[0.4011, 1 / 3, -1.5e11], [np.nan, -np.inf, 1e-9]]
    lines = "".join(text(matrix(values), DisplayOptions(precision=2, rounded=True))).splitlines()
    assert lines[1:] == ["q1,0.40,0.33,-1.5e+11", "q2,NaN,-Infinity,0.00"]
    words = matrix(np.array([["a", "=1"]]))
    assert "".join(text(words, DisplayOptions(rounded=True))).splitlines()[1] == "q1,a,'=1"


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_labels_are_one_cell_each(labels: list[str]) -> None:
    trace = matrix(np.ones((1, len(labels))), labels={"key": labels})
    header, row = csv.reader("".join(text(trace, DisplayOptions())).split("\n")[:-1])
    assert header == ["scaled", *map(guarded, labels)]
    assert len(row) == len(header)


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@x", "'@x"),
        (" =x", "' =x"),
        ("＝1＋1", "'＝1＋1"),
        ("'=1", "''=1"),
        ("'tis", "'tis"),
        ("\t=x", "\\x09=x"),
        ("a=b", "a=b"),
        ("a, b; c", "a, b; c"),
        ("a;=1", "a\\x3b=1"),  # which a spreadsheet may split
        ("a, -1", "a\\x2c -1"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\\x1b[31m", "\\x5cx1b[31m"),
        ("C:\\new", "C:\\new"),
        ("\u202e\u200b\U000e0041", "\\u202e\\u200b\\U000e0041"),
    ],
)
def test_no_label_is_a_formula(label: str, written: str) -> None:
    assert guarded(label) == written
    assert unguarded(written) == label


@given(st.text() | st.from_regex(r"\\[xuU]?[0-9a-f]{0,8}[;,' =+\-@]*", fullmatch=True))
def test_every_label_reads_back_as_itself(label: str) -> None:
    assert guarded(label).isprintable()
    assert unguarded(guarded(label)) == label


def test_matrices_are_named_by_their_heads_and_blank_lines_part_them() -> None:
    trace = attention(numbers(2, 3, 2), numbers(2, 3, 2), numbers(2, 3, 2))
    lines = "".join(
        text(trace, DisplayOptions(stages=("scores", "output")), delimiter=";")
    ).splitlines()
    assert [line.partition(";")[0] for line in lines if not line.startswith("q")] == [
        "scores head 1",
        "",
        "scores head 2",
        "",
        "output head 1",
        "",
        "output head 2",
    ]


def test_what_is_chosen_keeps_its_name() -> None:
    trace = attention(numbers(2, 3, 2), numbers(2, 3, 2), numbers(2, 3, 2))
    options = DisplayOptions(stages=("weights",), head=1, rows=(2, 3), cols=(1, 3))
    lines = "".join(text(trace, options)).splitlines()
    assert lines[0] == "weights head 2,k2,k3"
    assert lines[1].startswith("q3,")


def test_nothing_is_left_out() -> None:
    lines = "".join(text(matrix(np.zeros((150, 130))), DisplayOptions())).splitlines()
    assert len(lines) == 151
    assert lines[-1].count(",") == 130
