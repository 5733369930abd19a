"""Vectors from files that the tests write: what is found, and the warnings."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from attncli.errors import AttncliError, InputError, ShapeError
from attncli.files.word_vectors import nearest, read_vectors

GLOVE = (
    b"the 0.5 -1 2\nking 0.25 1e-2 3\nqueen -0.125 4 5\nKing 7 7 7\n. . . 1 2 3\nat name@x 9 8 7\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_bytes(GLOVE)
    return path


def write(tmp_path: Path, content: bytes, name: str = "v.txt") -> str:
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def test_words_come_in_the_order_asked_for(file: Path) -> None:
    found = read_vectors(str(file), ["queen", "the", "queen"])
    assert found.words == ("queen", "the", "queen")
    assert found.matrix.tolist() == [[-0.125, 4, 5], [0.5, -1, 2], [-0.125, 4, 5]]
    assert (found.missing, found.folded, found.warnings) == ({}, {}, ())
    assert not found.matrix.flags.writeable


def test_no_words_give_an_empty_matrix(file: Path) -> None:
    assert read_vectors(str(file), []).matrix.shape == (0, 3)


@pytest.mark.parametrize("word", [". . .", "at name@x"])
def test_a_token_may_hold_spaces(file: Path, word: str) -> None:
    assert read_vectors(str(file), [word]).words == (word,)


def test_case_is_folded_only_where_the_exact_word_is_missing(file: Path) -> None:
    exact = read_vectors(str(file), ["King", "king"])
    assert exact.folded == {}
    assert exact.matrix.tolist() == [[7, 7, 7], [0.25, 0.01, 3]]
    other = read_vectors(str(file), ["KING", "The"])
    assert other.folded == {"KING": "king", "The": "the"}
    assert other.matrix.tolist() == [[0.25, 0.01, 3], [0.5, -1, 2]]


def test_case_is_folded_beyond_ascii(tmp_path: Path) -> None:
    path = write(tmp_path, "ÉTÉ 1 2\nÖl 3 4\n".encode())
    assert read_vectors(path, ["été", "öl"]).folded == {"été": "ÉTÉ", "öl": "Öl"}


def test_missing_words_get_close_spellings(file: Path) -> None:
    found = read_vectors(str(file), ["qeen", "kin", "zzzzzz"])
    assert found.words == ()
    assert found.missing == {"qeen": ("queen",), "kin": ("king", "King"), "zzzzzz": ()}


@pytest.mark.parametrize(
    "content",
    [
        GLOVE.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + GLOVE,
        b"6 3\n" + GLOVE,
        b"\xef\xbb\xbf6 3\r\n" + GLOVE.replace(b"\n", b"\r\n"),
        GLOVE.replace(b"\n", b" \n"),
        GLOVE.rstrip(b"\n"),
        b"".join(b"\t".join(line.split(b" ", 1)) for line in GLOVE.splitlines(True)[:4]),
        GLOVE.replace(b" ", b"\t"),
    ],
    ids=[
        "crlf",
        "bom",
        "header",
        "all three",
        "space at the end",
        "no last newline",
        "tab",
        "tabs",
    ],
)
def test_line_ends_headers_and_separators(tmp_path: Path, content: bytes) -> None:
    found = read_vectors(write(tmp_path, content), ["king", "the", "King"])
    assert found.matrix.tolist() == [[0.25, 0.01, 3], [0.5, -1, 2], [7, 7, 7]]
    assert found.warnings == ()


def test_the_first_and_the_last_line_are_found(tmp_path: Path) -> None:
    path = write(tmp_path, b"\n".join(b"w%d %d %d" % (i, i, -i) for i in range(1009)))
    assert read_vectors(path, ["w1008", "w0"]).matrix.tolist() == [[1008, -1008], [0, 0]]


def test_all_words_of_a_large_file(tmp_path: Path) -> None:
    numbers = " ".join(["0.12345"] * 97)
    lines = [f"w{i}x{'y' * (i % 31)} {i} {numbers}" for i in range(4001)]
    path = write(tmp_path, "\n".join(lines).encode())
    words = [line.split()[0] for line in lines]
    found = read_vectors(path, words)
    assert found.words == tuple(words)
    np.testing.assert_array_equal(found.matrix[:, 0], np.arange(4001))


def test_numbers_as_tokens(tmp_path: Path) -> None:
    path = write(tmp_path, b"1 0.5 2\n2 3 4\n1990 5 6\nnew 5 7 8\n")
    found = read_vectors(path, ["1990", "1", "new 5"])
    assert found.matrix.tolist() == [[5, 6], [0.5, 2], [7, 8]]


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        (b"king 1 2", "line 2: king holds 2 numbers, not 3; skipped"),
        (b"king 1 2 3 4", "line 2: king holds 4 numbers, not 3; skipped"),
        (b"king", "line 2: king holds 0 numbers, not 3; skipped"),
        (b"king 1 two 3", "line 2: king holds something that is not a number; skipped"),
        (b"king 1 nan 3", "line 2: king holds a number that is not finite; skipped"),
        (b"king 1 2 -inf", "line 2: king holds a number that is not finite; skipped"),
        (b"king 1 2 1_0", "line 2: king holds something that is not a number; skipped"),
    ],
)
def test_incomplete_line_is_skipped_with_a_warning(
    tmp_path: Path, line: bytes, warning: str
) -> None:
    path = write(tmp_path, b"the 1 2 3\n" + line + b"\nqueen 4 5 6\nof 7 8 9\n")
    found = read_vectors(path, ["king", "queen"])
    assert found.words == ("queen",)
    assert list(found.missing) == ["king"]
    assert found.warnings == (warning,)


def test_truncated_last_line_gives_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, b"the 1 2 3\nking 4 5 6\nhuman -0.09 ")
    found = read_vectors(path, ["king", "truth"])
    assert found.words == ("king",)
    assert found.warnings == ("line 3 is cut off: human holds 1 number, not 3",)


def test_header_with_wrong_counts_gives_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, b"5 3\nthe 1 2 3\nking 4 5 6\n")
    assert read_vectors(path, ["zzz"]).warnings == ("line 1 gives 5 words, the file holds 2",)
    assert read_vectors(path, ["king", "the"]).warnings == ()
    path = write(tmp_path, b"2 300\nthe 1 2 3\nking 4 5 6\n")
    assert read_vectors(path, ["the"]).warnings == (
        "line 1 gives 300 numbers per word, the lines hold 3",
    )


def test_first_of_equal_words_is_used(tmp_path: Path) -> None:
    path = write(tmp_path, b"king 1 2\nking 3 4\nking 5 6\nqueen 7 8\n")
    found = read_vectors(path, ["king", "queen"])
    assert found.matrix.tolist() == [[1, 2], [7, 8]]
    assert found.warnings == ("line 2: king appears again; the first is used",)


def test_bytes_that_are_not_utf8_are_read_as_latin1(tmp_path: Path) -> None:
    path = write(tmp_path, b"the 1 2\ncaf\xe9 3 4\n\xff\xfe 5 6\n")
    found = read_vectors(path, ["café", "the"])
    assert found.matrix.tolist() == [[3, 4], [1, 2]]
    assert found.warnings == ("line 2 is not UTF-8; read as Latin-1",)


@pytest.mark.parametrize("as_file", [True, False], ids=["file", "inline"])
def test_json(tmp_path: Path, as_file: bool) -> None:
    text = json.dumps({"king": [1, 2.5], "Queen": [3, 4], "bad": [1], "worse": "x", "n": [1, "a"]})
    source = write(tmp_path, text.encode(), "v.json") if as_file else text
    found = read_vectors(source, ["queen", "king", "bad", "worse", "kinf"])
    assert found.words == ("queen", "king")
    assert found.matrix.tolist() == [[3, 4], [1, 2.5]]
    assert found.folded == {"queen": "Queen"}
    assert found.missing == {"bad": (), "worse": (), "kinf": ("king",)}
    assert found.warnings == (
        "entry 3: bad holds 1 number, not 2; skipped",
        "entry 4: worse holds something that is not a list of numbers; skipped",
    )


def test_json_numbers_that_are_not_finite(tmp_path: Path) -> None:
    path = write(tmp_path, b'{"a": [1, NaN], "b": [1, 1e999], "c": [1, 2], "c": [3, 4]}')
    found = read_vectors(path, ["a", "b", "c"])
    assert found.matrix.tolist() == [[1, 2]]
    assert found.warnings == (
        "entry 1: a holds a number that is not finite; skipped",
        "entry 2: b holds a number that is not finite; skipped",
        "entry 4: c appears again; the first is used",
    )


@pytest.mark.parametrize(
    "source",
    ["king=0.9,0.5 queen=0.2,0.5", "king=0.9, 0.5; queen = 0.2,0.5", "king=0.9,0.5\nqueen=.2,+.5"],
)
def test_vectors_written_inline(source: str) -> None:
    assert read_vectors(source, ["queen", "king"]).matrix.tolist() == [[0.2, 0.5], [0.9, 0.5]]


def test_nearest_leaves_out_excluded_words(file: Path) -> None:
    found = nearest(str(file), [0.0, 4.0, 5.0], n=2, exclude=["queen"])
    matrix: dict[str, list[float]]
    matrix = {"the": [0.5, -1, 2], "king": [0.25, 0.01, 3], "King": [7, 7, 7], ". . .": [1, 2, 3]}
    target = np.array([0.0, 4.0, 5.0]) / np.sqrt(41)
    cosines = {w: float(np.array(v) @ target) / math.hypot(*v) for w, v in matrix.items()}
    expected = sorted(cosines.items(), key=lambda pair: -pair[1])[:2]
    assert [word for word, _ in found.pairs] == [word for word, _ in expected]
    np.testing.assert_allclose([c for _, c in found.pairs], [c for _, c in expected], rtol=1e-14)


@pytest.mark.parametrize("broken", [b"", b"bad 1 2\nzero 0 0 0\n"], ids=["whole", "broken lines"])
def test_nearest_equals_sorting_all_cosines(tmp_path: Path, broken: bytes) -> None:
    rng = np.random.default_rng(3)
    table = {f"w{i}": rng.normal(size=3).round(3) for i in range(50_021)}
    rows = "".join(f"{w} {' '.join(map(str, v))}\n" for w, v in table.items())
    path = write(tmp_path, broken + b"50021 3\n"[: 8 * (not broken)] + rows.encode())
    found = nearest(path, [1, 2, 3], n=7, exclude=["w11"])
    matrix = np.array(list(table.values()))
    cosines = matrix @ [1, 2, 3] / np.linalg.norm(matrix, axis=1) / np.sqrt(14)
    cosines[11] = -2
    np.testing.assert_allclose([c for _, c in found.pairs], np.sort(cosines)[::-1][:7], rtol=1e-12)
    assert found.warnings == (("line 1 is not a vector; skipped",) if broken else ())


def test_nearest_in_inline_vectors() -> None:
    found = nearest("king=1,0 queen=0,1 up=1,1 void=0,0", [0, 3], n=5, exclude=["up"])
    assert found.pairs == (("queen", 1.0), ("king", 0.0))


@pytest.mark.parametrize(
    ("vector", "error", "message"),
    [
        ([1, 2], ShapeError, r"shape \(2,\), not \(3,\)"),
        (["a", "b", "c"], ShapeError, "does not hold numbers"),
        ([0, 0, 0], InputError, "no direction"),
        ([1, np.nan, 0], InputError, "no direction"),
    ],
)
def test_nearest_refuses_invalid_vectors(
    file: Path, vector: list[float], error: type[AttncliError], message: str
) -> None:
    with pytest.raises(error, match=message):
        nearest(str(file), vector)
