"""Numbers in the forms in which people have them: MATLAB, printed arrays, code, fractions."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.numerals import number

from .saved import Folder, load

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
    "tensor([[ 0.5, 1.],\n        [ 0.25, -1.]], device='cuda:0', grad_fn=<MmBackward0>)": HALF,
    "torch.tensor([[0.5, 1.0], [0.25, -1]], dtype=torch.float64, requires_grad=True)": HALF,
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
def test_a_form_is_read_from_a_literal_a_file_and_standard_input(text: str, folder: Folder) -> None:
    sources = [load(text)]
    if text[0] != "'":
        sources += [folder.load(text, "q.txt"), load("-", stdin=io.BytesIO(text.encode()))]
    for loaded in sources:
        np.testing.assert_array_equal(loaded.arrays[""], np.array(FORMS[text]))


def test_what_numpy_prints_is_what_it_printed() -> None:
    for seed in range(20):
        draw = np.random.default_rng(seed)
        shape = tuple(draw.integers(1, 14, size=draw.integers(2, 4)))
        array = draw.normal(size=shape) * 10.0 ** draw.integers(-6, 6)
        array = np.round(array) if seed % 3 == 0 else array
        with np.printoptions(precision=17, threshold=10**6, floatmode="unique"):
            for text in (str(array), repr(array), f"q = {array!r}"):
                (read,) = load(text).arrays.values()
                np.testing.assert_array_equal(read, array)


def test_names_without_quotes_and_assignments() -> None:
    for text in ("{q: [[1, 2]], k: [[3, 4]], scale: 1/8}", "q = [1 2];\nk = [3 4];\n"):
        arrays = load(text).arrays
        values = {name: array.ravel().tolist() for name, array in arrays.items()}
        assert values == {"q": [1, 2], "k": [3, 4]}
    assert load("{q: [[1, 2]], scale: 1/8}").scale == 0.125


def test_strings_are_left_as_they_are() -> None:
    loaded = load('{"q": [[.5], [1/2]], "tokens": ["[1 2; 3]", "a: 1/2, array(["]}')
    assert loaded.query_labels == ("[1 2; 3]", "a: 1/2, array([")
    assert loaded.arrays["q"].tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[1 2 x; 3 4 5]", "line 1, column 6: 'x'"),
        ("[[1. 2.]\n [3. 4-5]]", "line 2, column 6: '4-5'"),
        ("[[1/0, 1]]", "line 1, column 3: '1/0'"),
        ("[[__import__('os').system('id'), 1]]", "JSON: line 1, column 3"),
        ("[[1. 2. ... 3.]]", "line 1, column 9: ... stands for numbers that are left out"),
        ("[[1. 2.]\n ...\n [3. 4.]]", "line 2, column 2: ... stands for"),
        ("[1 2; 3]", "row 2 has 1 entry, row 1 has 2"),
        ("array([[1, 2]]", "no array that is understood"),
        ("array([[1, 2]], dtype=object, f())", "no array that is understood"),
        ("[[1, 2]])", "JSON: line 1, column 9"),
        ("[[1, 2], [3, 4,]]", "JSON: line 1, column 16"),
        ("[[1, 2], [3 4]]", "JSON: line 1, column 13"),
        ("[[1, 2] [3, 4]]", "JSON: line 1, column 9"),
        ("[[1, 2];, [3, 4]]", "JSON: line 1, column 8"),
        ("[[0.64, 0639]]", "column 9: '0639'"),
        ('{"q": [[1 2]], "k": [[3, 4]]}', "JSON: line 1, column 11"),
        ("1,2; 3,4", "column 2 is the text '2; 3', expected a number; write decimal points"),
        ("{q: [[1]], q: [[2]]}", "key 'q' twice"),
        ("[[1e999 1]]", "row 1, column 1 is 1e999, beyond float64"),
    ],
)
def test_what_is_not_understood_is_named_with_its_place(text: str, key: str) -> None:
    with pytest.raises(InputError) as caught:
        load(text)
    assert key in str(caught.value)


def test_a_text_is_no_table(folder: Folder) -> None:
    text = "# attncli\n\nAttention, step by step\nin 2 ways, a, b\n\n3\n"
    assert "a text, not rows of numbers: it begins 'Att" in folder.refusal(text, "README.md")


def test_no_text_takes_long() -> None:
    """Text of which every part is read again and again would keep this test for hours."""
    for part in ("[1 2]\n", "a.", "a=", "a:", "];", "[", '"', "], a='", "], a=<", " "):
        for begin in ("{", "[", "array([["):
            with pytest.raises(InputError):
                load(f"{begin}{part * 9_000}x")


def test_numbers_are_those_of_python() -> None:
    for a, b in np.random.default_rng(1).integers((-99, 1), 100, size=(200, 2)).tolist():
        assert number(f"{a}/{b}") == a / b
        assert number(f"{a}/√{b}") == a / math.sqrt(b)
        assert number(f" {a / 7!r} ") == a / 7
    for text in ("", "x", "1/", "/2", "1//2", "√", "√-2", "1 2", "1_0", "0x1", "٣", "1" * 200):
        assert number(text) is None
