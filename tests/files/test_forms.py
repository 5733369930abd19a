"""Numbers in the forms in which people have them: MATLAB, printed arrays, code, fractions."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.files.load import load
from attncli.numerals import number

HALF = [[0.5, 1.0], [0.25, -1.0]]
FORMS = {
    "[.5 1; 1/4 -1]": HALF,
    "[.5, 1; 1/4, -1]": HALF,
    "[.5 1;\n 1/4 -1;]": HALF,
    "[0.5 1\n 0.25 -1]": HALF,
    ".5 1; .25 -1": HALF,
    "0.5 1\n0.25 -1": HALF,
    "[[1/2, 1], [1/4, −1]]": HALF,
    "[[ 0.5   1.  ]\n [ 0.25 -1.  ]]": HALF,
    "array([[ 0.5 ,  1.  ],\n       [ 0.25, -1.  ]])": HALF,
    "np.array([[.5, 1], [.25, -1]], dtype=float32)": HALF,
    "Array([[ 0.5 ,  1.  ], [ 0.25, -1.  ]], dtype=float32)": HALF,
    "tensor([[ 0.5000,  1.0000],\n        [ 0.2500, -1.0000]], device='cuda:0', "
    "grad_fn=<MmBackward0>)": HALF,
    "torch.tensor([[0.5, 1.0], [0.25, -1.0]], dtype=torch.float64, requires_grad=True)": HALF,
    "Parameter containing:\ntensor([[ 0.5, 1.], [0.25, -1.]], requires_grad=True)": HALF,
    "'[[0.5, 1], [0.25, -1]]'": HALF,  # as cmd.exe leaves them
    "[[[1. 2.]]\n\n [[3. 4.]]]": [[[1.0, 2.0]], [[3.0, 4.0]]],
    "[1 2 3]": [1, 2, 3],
    "1,2": [[1, 2]],
    "[[1/√4, sqrt(9)/2], [2√9, 1/sqrt(16)]]": [[0.5, 1.5], [6.0, 0.25]],
    "[[1e-3 2.E+2]]": [[0.001, 200.0]],
    "[[ True False]]": [[True, False]],
    "[[inf -inf]]": [[math.inf, -math.inf]],
}


@pytest.mark.parametrize("text", FORMS)
def test_a_form_is_read_from_a_literal_a_file_and_standard_input(text: str, tmp_path: Path) -> None:
    expected = np.array(FORMS[text])
    path = tmp_path / "q.txt"
    path.write_text(text, encoding="utf-8")
    sources = [load(text)]
    if text[0] != "'":
        sources += [load(str(path)), load("-", stdin=io.BytesIO(text.encode()))]
    for loaded in sources:
        np.testing.assert_array_equal(loaded.arrays[""], expected)


@pytest.mark.parametrize("seed", range(20))
def test_what_numpy_prints_is_what_it_printed(seed: int) -> None:
    draw = np.random.default_rng(seed)
    shape = tuple(draw.integers(1, 14, size=draw.integers(2, 4)))
    array = draw.normal(size=shape) * 10.0 ** draw.integers(-6, 6)
    array = np.round(array) if seed % 3 == 0 else array
    with np.printoptions(precision=17, threshold=10**6, floatmode="unique"):
        for text in (str(array), repr(array), f"q = {array!r}"):
            (found,) = load(text).arrays.values()
            np.testing.assert_array_equal(found, array)


def test_names_without_quotes_and_assignments() -> None:
    for text in ("{q: [[1, 2]], k: [[3, 4]], scale: 1/8}", "q = [1 2];\nk = [3 4];\n"):
        arrays = load(text).arrays
        assert {name: array.ravel().tolist() for name, array in arrays.items()} == {
            "q": [1, 2],
            "k": [3, 4],
        }
    assert load("{q: [[1, 2]], scale: 1/8}").scale == 0.125


def test_fractions_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text("word,x,y\nthe,1/2,.5\ncat,1,-1/4\n")
    loaded = load(str(tmp_path / "q.csv"))
    assert loaded.arrays[""].tolist() == [[0.5, 0.5], [1.0, -0.25]]
    assert loaded.row_labels == ("the", "cat")


HINT = "a number is 0.5, .5, 1e-3, 1/2 or 1/√2, a matrix [[1, 2], [3, 4]] or [1 2; 3 4]"
ELIDED = "print all: np.set_printoptions(threshold=10**9), torch.set_printoptions(profile='full')"
REFUSED = {
    "[1 2 x; 3 4 5]": f"line 1, column 6: 'x' is not understood; {HINT}",
    "[[1. 2.]\n [3. 4-5]]": f"line 2, column 6: '4-5' is not understood; {HINT}",
    "[[1/0, 1]]": f"line 1, column 3: '1/0' is not understood; {HINT}",
    "[[__import__('os').system('id'), 1]]": "is not JSON: line 1, column 3",
    "[[1. 2. ... 3.]]": f"line 1, column 9: ... stands for numbers that are left out; {ELIDED}",
    "[[1. 2.]\n ...\n [3. 4.]]": f"line 2, column 2: ... stands for numbers that are left out; "
    f"{ELIDED}",
    "[1 2; 3]": "row 2 has 1 entry, row 1 has 2; give every row as many",
    "array([[1, 2]]": f"the inline literal is no array that is understood; {HINT}",
    "array([[1, 2]], dtype=object, f())": "is no array that is understood",
    "[[1, 2]])": "is not JSON: line 1, column 9: Extra data",
    "[[1, 2], [3, 4,]]": "is not JSON: line 1, column 16",
    "[[1, 2], [3 4]]": "is not JSON: line 1, column 13",
    "[[1, 2] [3, 4]]": "is not JSON: line 1, column 9",
    "[[1, 2];, [3, 4]]": "is not JSON: line 1, column 8",
    "[[0.64, 0639]]": "column 9: '0639' is not understood",
    '{"q": [[1 2]], "k": [[3, 4]]}': "is not JSON: line 1, column 11",
    "1,2; 3,4": "column 2 is the text '2; 3', expected a number; write decimal points, and one kind",
    "{q: [[1]], q: [[2]]}": "the inline literal has the key 'q' twice",
    "[[1e999 1]]": "row 1, column 1 is 1e999, beyond float64",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_understood_is_named_with_its_place(text: str) -> None:
    with pytest.raises(InputError) as caught:
        load(text)
    assert str(caught.value).endswith(REFUSED[text]) or REFUSED[text] in str(caught.value)


def test_a_text_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(
        "# attncli\n\nAttention, step by step\nin 2 ways, a, b\n\n3\n"
    )
    with pytest.raises(InputError) as caught:
        load(str(tmp_path / "README.md"))
    what = "README.md is a text, not rows of numbers: it begins 'Attention,'"
    assert f"{what}; give a file of numbers: json, npy, npz, csv or tsv" in str(caught.value)


def test_strings_are_left_as_they_are() -> None:
    loaded = load('{"q": [[.5], [1/2]], "tokens": ["[1 2; 3]", "a: 1/2, array(["]}')
    assert loaded.query_labels == ("[1 2; 3]", "a: 1/2, array([")
    assert loaded.arrays["q"].tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize(
    "part", ["[1 2]\n", "a.", "a=", "a:", "];", "[", '"', "], a='", "], a=<", " "]
)
def test_no_text_takes_long(part: str) -> None:
    """Text of which every part is read again and again would keep this test for hours."""
    for begin in ("", "{", "[", "array([["):
        with pytest.raises(InputError):
            load(f"{begin}{part * 9_000}x" if begin else f"[{part * 9_000}x")


def test_numbers_are_those_of_python() -> None:
    for a, b in np.random.default_rng(1).integers((-99, 1), 100, size=(200, 2)).tolist():
        assert number(f"{a}/{b}") == a / b
        assert number(f"{a}/√{b}") == a / math.sqrt(b)
        assert number(f" {a / 7!r} ") == a / 7
    for text in ("", "x", "1/", "/2", "1//2", "√", "√-2", "1 2", "1_0", "0x1", "٣", "1" * 200):
        assert number(text) is None
