"""csv, tsv and columns of text in: delimiters, headers, labels, places of errors; large tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from .saved import Folder, cell_name

Labels = tuple[str, ...] | None

TABLES = [
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
    ("t.csv", "weights,in,20\nin,1,2\n20,3,4\n", [[1, 2], [3, 4]], ("in", "20"), ("in", "20")),
    ("t.csv", 'w,"a,b","c""d"\n"e\nf",1,2\n', [[1, 2]], ("e\nf",), ("a,b", 'c"d')),
    ("t.csv", "w,;,b\n;,1,2\n", [[1, 2]], (";",), (";", "b")),
    ("t.csv", "w,a\n##ing,1\n#,2\n# x\nb,3\n# end\n", [[1], [2], [3]], ("##ing", "#", "b"), ("a",)),
    ("t.csv", "w,'=1+1,'tis\n'@x,1,2\n", [[1, 2]], ("@x",), ("=1+1", "'tis")),
    ("t.csv", "a.1.weights head 2,1,b\n1,1,2\n", [[1, 2]], ("1",), ("1", "b")),
    ("t.csv", "word,x,y\nthe,1/2,.5\ncat,1,-1/4\n", [[0.5, 0.5], [1, -0.25]], ("the", "cat"), ("x", "y")),
    ("t.tsv", "1\t2\n3\t4\n", [[1, 2], [3, 4]], None, None),
    ("t.tsv", "w\ta,b\nthe\t1\n", [[1]], ("the",), ("a,b",)),
    ("t.tsv", "w\té\nthe\t1\n".encode("utf-16"), [[1]], ("the",), ("é",)),
    ("t.txt", "1 2\n 3   4 \n", [[1, 2], [3, 4]], None, None),
    ("t.txt", "the 1 2\ncat 3 4\n", [[1, 2], [3, 4]], ("the", "cat"), None),
    ("t.csv", '"1","2"\n', [[1, 2]], None, None),
    ("t.csv", "-Infinity,inf\n+INF,1e-3\n", [[-math.inf, math.inf], [math.inf, 0.001]], None, None),
    ("t.csv", "True,false\nFALSE,true\n", [[True, False], [False, True]], None, None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "values", "rows", "columns"), TABLES, ids=cell_name)
def test_tables(
    name: str, text: str, values: list[Any], rows: Labels, columns: Labels, folder: Folder
) -> None:
    loaded = folder.load(text, name)
    array = loaded.arrays[""]
    assert array.tolist() == values
    assert array.dtype == (np.bool_ if isinstance(values[0][0], bool) else np.float64)
    assert (loaded.row_labels, loaded.column_labels) == (rows, columns)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("1,2\n3,nan\n", ["1 NaN of 4 numbers, the first at row 2, column 2"]),
        ("1,2\n3,NAN\n", ["1 NaN of 4"]),
        ("weights,1,2\n1,0.25,0.75\n2,0.5,0.5\n", ["as labels"]),
        ("a,b\n1,2\n", ["line 1 is read as a header"]),
        (",a,b\nthe,1,2\n", []),
    ],
)
def test_remarks(text: str, keys: list[str], folder: Folder) -> None:
    warnings = folder.load(text, "t.csv").warnings
    assert len(warnings) == len(keys)
    assert all(key in warning for key, warning in zip(keys, warnings, strict=True))


REFUSED = [
    ("1,2\n3\n", "line 2 has 1 cell, line 1 has 2"),
    ("# x\n1,2\n\n3,4,5\n", "line 4 has 3 cells, line 2 has 2"),
    ("1,2\n3,\n", "line 2, column 2 is an empty cell"),
    ("1,2\n3,x\n", "line 2, column 2 is the text 'x'"),
    ("1,2\nx,3\n4,5\n", "line 2, column 1 is the text 'x'"),
    ("1,2\nx,3\n", "line 2, column 1 is the text 'x'"),
    ("a,b\n#1,2\n3,4\n", "line 2, column 1 is the text '#1'"),
    ("w,a\nthe,1\ncat,x\n", "line 3, column 2 is the text 'x'"),
    ('w,a\n"x\ny",1\ncat,?\n', "line 4, column 2 is the text '?'"),
    ("1,2\n3,1e999\n", "line 2, column 2 is 1e999, beyond float64"),
    ("1,2\n3,1_0\n", "line 2, column 2 is the text '1_0'"),
    ("1,2\n3,true\n", "line 2, column 2 is the text 'true', expected a number"),
    ("true,2\n", "line 1, column 2 is the text '2', expected true or false"),
    ("q,d1\nq1,1\n\nk,d1\nk1,2\n", "several matrices, the second from line 4"),
    ("a.w,1\na.w,x\n", "line 2, column 2 is the text 'x'"),
    ("a,b\n", "only a header"),
    ("1.O,2\n3,4\n5,6\n", "line 1, column 1 is the text '1.O', expected a number; a head"),
    ("0,-l,-9\n0,0,0\n", "line 1, column 2 is the text '-l'"),
    ("1,0x10\n3,4\n", "line 1, column 2 is the text '0x10'"),
    ("5,a,b\ncat,1,2\n", "line 1, column 2 is the text 'a', expected a number; a header"),
    ("1_000,2\n3,4\n", "line 1, column 1 is the text '1_000'"),
    ("#1,2\n3,4\n", "line 1, column 1 is the text '#1', expected a number; a comment"),
    ("a,1\n1,2\n", "line 1, column 1 is the text 'a'"),
    ("\n\n", "is empty"),
    ("# only\n", "is empty"),
    ('1,2\n"3,4\n', "line 2 is not valid"),
    ("1,2\n3,a\x1b[31m\n", "line 2, column 2 is the text 'a\\x1b[31m'"),
    (b"1,2\n3,\xff\n", "byte 7 is not utf-8"),
    (b"1,\x002\n3,4\n", "a null character"),
    ("1,5;2,5\n3,5;4,5\n", "decimal points"),
]


@pytest.mark.parametrize(("text", "key"), REFUSED, ids=cell_name)
def test_refusals_name_line_and_column(text: str, key: str, folder: Folder) -> None:
    assert key in folder.refusal(text, "t.csv")


def test_a_table_has_no_members(folder: Folder) -> None:
    assert "without a name, not 'q'" in folder.refusal("1,2\n", "t.csv", "q")


# ---- large tables of numbers, which NumPy's parser reads: it gives the same as ours

LARGE = np.random.default_rng(3).normal(size=(1009, 11))


def text_of(delimiter: str, x: Any = LARGE) -> bytes:
    return "\n".join(delimiter.join(map(repr, row)) for row in x.tolist()).encode() + b"\n"


@pytest.mark.parametrize(
    ("name", "delimiter", "newline"),
    [
        ("x.csv", ",", b"\n"),
        ("x.csv", ";", b"\r\n"),
        ("x.tsv", "\t", b"\n"),
        ("x.csv", ",", b"\r"),
        ("x.txt", "column", b"\n"),
    ],
)
def test_every_number_of_a_large_table_is_exact(
    name: str, delimiter: str, newline: bytes, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ours, which is slower, does not read it
    monkeypatch.setattr("csv.reader", None)
    expected = LARGE.reshape(-1, 1) if delimiter == "column" else LARGE
    data = text_of(delimiter, expected).replace(b"\n", newline)
    data = b"\xef\xbb\xbf" + data if newline == b"\r" else data
    np.testing.assert_array_equal(folder.load(data, name).arrays[""], expected)


def test_header_and_labels_of_a_large_table(folder: Folder) -> None:
    header = "," + ",".join(f"c{i}" for i in range(11))
    lines = [header, *(f"r,{line}" for line in text_of(",").decode().splitlines())]
    loaded = folder.load("\n".join(lines), "x.csv")
    assert loaded.column_labels == tuple(f"c{i}" for i in range(11))
    np.testing.assert_array_equal(loaded.arrays[""], LARGE)


@pytest.mark.parametrize(
    ("old", "new", "end", "key"),
    [
        (b"", b"", b"1,2\n", "line 1010 has 2 cells"),
        (b"\n", b",x\n", b"", "line 1"),
        (b"", b"", b"1e999," * 10 + b"1\n", "beyond float64"),
        (b"", b"", b"1," * 10 + b"\n", "an empty cell"),
        (b",", b"\n", b"1 2\n", "line 11100, column 1 is the text '1 2'"),
    ],
)
def test_errors_in_large_tables_name_their_place(
    old: bytes, new: bytes, end: bytes, key: str, folder: Folder
) -> None:
    data = text_of(",").replace(old, new, -1 if old == b"," else 1) if old else text_of(",")
    assert key in folder.refusal(data + end, "x.csv")
