"""Large tables of numbers: NumPy's parser gives the same as ours, which reads all others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.files.load import load
from attncli.files.table import LARGE, plain_matrix

X = np.random.default_rng(3).normal(size=(7919, 11))


def text(delimiter: str, x: object = X) -> bytes:
    rows = np.asarray(x).tolist()
    return "\n".join(delimiter.join(map(repr, row)) for row in rows).encode() + b"\n"


@pytest.mark.parametrize(("ending", "delimiter"), [("csv", ","), ("csv", ";"), ("tsv", "\t")])
def test_every_number_is_exact(tmp_path: Path, ending: str, delimiter: str) -> None:
    data = text(delimiter)
    assert len(data) > LARGE
    assert plain_matrix(data, (delimiter,)) is not None
    (tmp_path / f"x.{ending}").write_bytes(data)
    np.testing.assert_array_equal(load(str(tmp_path / f"x.{ending}")).arrays[""], X)


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt"])
def test_one_column(tmp_path: Path, ending: str) -> None:
    column = X.reshape(-1, 1)
    (tmp_path / f"x.{ending}").write_bytes(text(",", column))
    np.testing.assert_array_equal(load(str(tmp_path / f"x.{ending}")).arrays[""], column)
    (tmp_path / "y.csv").write_bytes(text(",", column) + b"1 2\n")
    with pytest.raises(InputError, match="line 87110, column 1 is the text '1 2'"):
        load(str(tmp_path / "y.csv"))


@pytest.mark.parametrize("newline", [b"\r\n", b"\r"])
def test_line_ends_and_marks(newline: bytes) -> None:
    found = plain_matrix(b"\xef\xbb\xbf" + text(",").replace(b"\n", newline), (",",))
    assert found is not None
    np.testing.assert_array_equal(found, X)


def test_header_and_labels_need_the_full_parser(tmp_path: Path) -> None:
    lines = text(",").decode().splitlines()
    labelled = "\n".join(["," + ",".join(f"c{i}" for i in range(11)), *(f"r,{x}" for x in lines)])
    (tmp_path / "x.csv").write_text(labelled)
    loaded = load(str(tmp_path / "x.csv"))
    assert loaded.column_labels == tuple(f"c{i}" for i in range(11))
    np.testing.assert_array_equal(loaded.arrays[""], X)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda s: s + b"1,2\n", "line 7920 has 2 cells"),
        (lambda s: s.replace(b"\n", b",x\n", 1), "line 1"),
        (lambda s: s + b"1e999," * 10 + b"1\n", "beyond float64"),
        (lambda s: s + b"1," * 10 + b"\n", "an empty cell"),
    ],
)
def test_errors_in_large_tables_name_their_location(
    tmp_path: Path, spoil: object, says: str
) -> None:
    (tmp_path / "x.csv").write_bytes(spoil(text(",")))  # type: ignore[operator]
    with pytest.raises(InputError, match=says):
        load(str(tmp_path / "x.csv"))
