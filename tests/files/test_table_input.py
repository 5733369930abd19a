"""csv, tsv and columns of text in: delimiters, headers, labels, and the location of errors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.files.load import Loaded, load


def read(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Loaded:
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(data)
    return load(str(tmp_path / name))


Labels = tuple[str, ...] | None


@pytest.mark.parametrize(
    ("name", "text", "values", "rows", "columns"),
    [
        ("t.csv", "1,2\n3,4\n", [[1, 2], [3, 4]], None, None),
        ("t.csv", "1,2\r\n3,4\r\n\r\n\n", [[1, 2], [3, 4]], None, None),
        ("t.csv", "1;2.5\n3;4\n", [[1, 2.5], [3, 4]], None, None),
        ("t.csv", "\ufeff1,2\n", [[1, 2]], None, None),
        ("t.csv", "1\n2\n", [[1], [2]], None, None),
        ("t.csv", "# a, b\n#c\n1,2\n# end\n", [[1, 2]], None, None),
        ("t.csv", "# 1,2\n3,4\n", [[3, 4]], None, None),
        ("t.csv", "a,b\n1,2\n", [[1, 2]], None, ("a", "b")),
        ("t.csv", "the,1,2\ncat,3,4\n", [[1, 2], [3, 4]], ("the", "cat"), None),
        ("t.csv", "the,1,2\n", [[1, 2]], ("the",), None),
        ("t.csv", "x,a,b\nthe,1,2\ncat,3,4\n", [[1, 2], [3, 4]], ("the", "cat"), ("a", "b")),
        ("t.csv", ",a,b\nthe,1,2\n", [[1, 2]], ("the",), ("a", "b")),
        ("t.csv", ",0,1\n0,1,2\n1,3,4\n", [[1, 2], [3, 4]], ("0", "1"), ("0", "1")),
        ("t.csv", "weights,in,2024\nin,1,2\n2024,3,4\n", [[1, 2], [3, 4]], ("in", "2024"),
         ("in", "2024")),
        ("t.csv", 'w,"a,b","c""d"\n"e\nf",1,2\n', [[1, 2]], ("e\nf",), ("a,b", 'c"d')),
        ("t.csv", "w,;,b\n;,1,2\n", [[1, 2]], (";",), (";", "b")),
        ("t.csv", "w,a\n##ing,1\n#,2\n# remark\nb,3\n# end\n", [[1], [2], [3]], ("##ing", "#", "b"),
         ("a",)),
        ("t.csv", "w,'=1+1,'tis\n'@x,1,2\n", [[1, 2]], ("@x",), ("=1+1", "'tis")),
        ("t.csv", "a.1.weights head 2,1,b\n1,1,2\n", [[1, 2]], ("1",), ("1", "b")),
        ("t.tsv", "1\t2\n3\t4\n", [[1, 2], [3, 4]], None, None),
        ("t.tsv", "w\ta,b\nthe\t1\n", [[1]], ("the",), ("a,b",)),
        ("t.txt", "1 2\n 3   4 \n", [[1, 2], [3, 4]], None, None),
        ("t.txt", "the 1 2\ncat 3 4\n", [[1, 2], [3, 4]], ("the", "cat"), None),
        ("t.csv", '"1","2"\n', [[1, 2]], None, None),
        ("t.csv", "-Infinity,inf\n+INF,1e-3\n", [[-math.inf, math.inf], [math.inf, 0.001]], None,
         None),
        ("t.csv", "True,false\nFALSE,true\n", [[True, False], [False, True]], None, None),
    ],
)  # fmt: skip
def test_tables(
    name: str, text: str, values: list[list[float]], rows: Labels, columns: Labels, tmp_path: Path
) -> None:
    loaded = read(tmp_path, text, name)
    array = loaded.arrays[""]
    assert array.tolist() == values
    assert array.dtype == (np.bool_ if isinstance(values[0][0], bool) else np.float64)
    assert (loaded.row_labels, loaded.column_labels) == (rows, columns)


@pytest.mark.parametrize("word", ["nan", "NaN", "NAN"])
def test_nan(word: str, tmp_path: Path) -> None:
    loaded = read(tmp_path, f"1,2\n3,{word}\n")
    assert math.isnan(loaded.arrays[""][1, 1])
    assert loaded.warnings == (
        f"{tmp_path}/t.csv holds 1 NaN of 4 numbers, the first at row 2, column 2",
    )


def test_numeric_labels_give_a_warning(tmp_path: Path) -> None:
    loaded = read(tmp_path, "weights,1,2\n1,0.25,0.75\n2,0.5,0.5\n")
    assert loaded.arrays[""].tolist() == [[0.25, 0.75], [0.5, 0.5]]
    assert loaded.warnings == (
        f"{tmp_path}/t.csv: the first line and column are read as labels, "
        "for the corner is 'weights'",
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    loaded = read(tmp_path, "w\té\nthe\t1\n".encode(encoding), "t.tsv")
    assert loaded.column_labels == ("é",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,2\n3\n", "t.csv, line 2 has 1 cell, line 1 has 2; give every row as many"),
        ("# x\n1,2\n\n3,4,5\n", "t.csv, line 4 has 3 cells, line 2 has 2"),
        ("1,2\n3,\n", "t.csv, line 2, column 2 is an empty cell, expected a number"),
        ("1,2\n3,x\n", "t.csv, line 2, column 2 is the text 'x', expected a number"),
        ("1,2\nx,3\n4,5\n", "t.csv, line 2, column 1 is the text 'x'"),
        ("1,2\nx,3\n", "t.csv, line 2, column 1 is the text 'x', expected a number"),
        ("a,b\n#1,2\n3,4\n", "t.csv, line 2, column 1 is the text '#1'"),
        ("w,a\nthe,1\ncat,x\n", "t.csv, line 3, column 2 is the text 'x'"),
        ('w,a\n"x\ny",1\ncat,?\n', "t.csv, line 4, column 2 is the text '?'"),
        ("1,2\n3,1e999\n", "t.csv, line 2, column 2 is 1e999, beyond float64"),
        ("1,2\n3,1_0\n", "t.csv, line 2, column 2 is the text '1_0'"),
        ("1,2\n3,true\n", "t.csv, line 2, column 2 is the text 'true', expected a number"),
        ("true,2\n", "t.csv, line 1, column 2 is the text '2', expected true or false"),
        ("q,d1\nq1,1\n\nk,d1\nk1,2\n", "t.csv holds several matrices, the second from line 4"),
        ("a.w,1\na.w,x\n", "t.csv, line 2, column 2 is the text 'x'"),
        ("a,b\n", "t.csv holds no number, only a header"),
        (
            "1.O,2\n3,4\n5,6\n",
            "t.csv, line 1, column 1 is the text '1.O', expected a number; a head",
        ),
        ("0,-l,-9\n0,0,0\n", "t.csv, line 1, column 2 is the text '-l', expected a number"),
        ("1,0x10\n3,4\n", "t.csv, line 1, column 2 is the text '0x10', expected a number"),
        (
            "5,a,b\ncat,1,2\n",
            "t.csv, line 1, column 2 is the text 'a', expected a number; a header",
        ),
        ("1_000,2\n3,4\n", "t.csv, line 1, column 1 is the text '1_000', expected a number"),
        ("#1,2\n3,4\n", "t.csv, line 1, column 1 is the text '#1', expected a number; a comment"),
        ("a,1\n1,2\n", "t.csv, line 1, column 1 is the text 'a', expected a number"),
        ("\n\n", "t.csv is empty"),
        ("# only\n", "t.csv is empty"),
        ('1,2\n"3,4\n', "t.csv, line 2 is not valid: unexpected end of data"),
        ("1,2\n3,a\x1b[31m\n", "t.csv, line 2, column 2 is the text 'a\\x1b[31m'"),
        (b"1,2\n3,\xff\n", "t.csv is not text: byte 7 is not utf-8"),
        (b"1,\x002\n3,4\n", "t.csv is not text: it holds a null character"),
    ],
)
def test_errors_name_file_line_and_column(text: str | bytes, expected: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    error = str(caught.value)
    assert "\n" not in error
    assert error.replace(f"{tmp_path}/", "").startswith(expected)


def test_decimal_comma_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="write decimal points, and one kind of separator"):
        read(tmp_path, "1,5;2,5\n3,5;4,5\n")


def test_a_header_is_said_to_be_one(tmp_path: Path) -> None:
    (remark,) = read(tmp_path, "a,b\n1,2\n").warnings
    assert remark.endswith("t.csv: line 1 is read as a header")
    assert read(tmp_path, ",a,b\nthe,1,2\n").warnings == ()


def test_table_has_no_members(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,2\n")
    with pytest.raises(InputError, match="holds one array without a name, not 'q'; leave out"):
        load(f"{tmp_path}/t.csv::q")
