"""Word vectors: what is read of a file, the warnings, files as they are downloaded, the nearest."""

import gzip
import itertools
import json
import math
import os
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from attncli.errors import InputError, ShapeError
from attncli.words.vectors import close_spellings, nearest, read_vectors
from tests.files.conftest import Folder, zipped

GLOVE = b"the 0.5 -1 2\nking 0.25 1e-2 3\nqueen -0.125 4 5\nKing 7 7 7\n. . . 1 2 3\nat name@x 9 8 7\n"  # fmt: skip


def test_words_are_found_exactly_in_another_case_or_get_close_spellings(folder: Folder) -> None:
    file = folder.write(GLOVE, "vectors.txt")
    read = read_vectors(file, ["queen", "the", "queen"])
    assert read.words == ("queen", "the", "queen")
    assert read.matrix.tolist() == [[-0.125, 4, 5], [0.5, -1, 2], [-0.125, 4, 5]]
    assert (read.missing, read.folded, read.warnings) == ({}, {}, ())
    assert not read.matrix.flags.writeable
    assert read_vectors(file, []).matrix.shape == (0, 3)
    assert read_vectors(file, [". . .", "at name@x"]).words == (". . .", "at name@x")
    read = read_vectors(file, ["King", "king"])
    assert (read.folded, read.matrix.tolist()) == ({}, [[7, 7, 7], [0.25, 0.01, 3]])
    read = read_vectors(file, ["KING", "The"])
    assert read.folded == {"KING": "king", "The": "the"}
    assert read.matrix.tolist() == [[0.25, 0.01, 3], [0.5, -1, 2]]
    read = read_vectors(file, ["qeen", "kin", "zzzzzz"])
    assert read.words == ()
    assert read.missing == {"qeen": ("queen",), "kin": ("king", "King"), "zzzzzz": ()}
    path = folder.write("ÉTÉ 1 2\nÖl 3 4\n", "v.txt")
    assert read_vectors(path, ["été", "öl"]).folded == {"été": "ÉTÉ", "öl": "Öl"}
    path = folder.write(b"1 0.5 2\n2 3 4\n1990 5 6\nnew 5 7 8\n", "v.txt")
    assert read_vectors(path, ["1990", "1", "new 5"]).matrix.tolist() == [[5, 6], [0.5, 2], [7, 8]]
    for first in (b"{", b"[", b'"', b"<unk>", b"[PAD]", b"{}", b'{"'):  # any token may begin
        path = folder.write(first + b" 0.1 0.2 0.3\n" + GLOVE, "v.txt")
        assert read_vectors(path, [first.decode(), "king"]).words == (first.decode(), "king")


FORMS = {
    "crlf": GLOVE.replace(b"\n", b"\r\n"),
    "bom": b"\xef\xbb\xbf" + GLOVE,
    "all three": b"\xef\xbb\xbf6 3\r\n" + GLOVE.replace(b"\n", b"\r\n"),
    "space at the end": GLOVE.replace(b"\n", b" \n"),
    "blank lines": GLOVE.replace(b"king", b"\n \nking", 1),
    "no last newline": GLOVE.rstrip(b"\n"),
    "tab": b"".join(b"\t".join(line.split(b" ", 1)) for line in GLOVE.splitlines(True)[:4]),
    "tabs": GLOVE.replace(b" ", b"\t"),
    "gzip": gzip.compress(GLOVE, mtime=0),
    "zip": zipped({"v.txt": GLOVE, "__MACOSX/._v.txt": b"\0", "folder/": b""}),
}


def test_line_ends_headers_separators_packing_and_a_name_with_colons(folder: Folder) -> None:
    for form, content in FORMS.items():
        path = folder.write(content, "v.txt")
        read = read_vectors(path, ["king", "the", "King"])
        assert read.matrix.tolist() == [[0.25, 0.01, 3], [0.5, -1, 2], [7, 7, 7]], form
        assert read.warnings == ()
        assert nearest(path, [0.25, 0.01, 3], n=1).pairs[0][0] == "king"
    path = folder.write(zipped({"d/a.50d.txt": GLOVE, "d/a.100d.txt": b"king 1\n"}), "v.zip")
    for member in ("d/a.50d.txt", "a.50d.txt"):
        assert read_vectors(f"{path}::{member}", ["king"]).matrix.shape == (1, 3)
    assert read_vectors(folder.write(GLOVE, "a::b"), ["king"]).words == ("king",)


def test_all_words_of_a_large_file(folder: Folder) -> None:
    numbers = " ".join(["0.12345"] * 97)
    lines = [f"w{i}x{'y' * (i % 31)} {i} {numbers}" for i in range(4001)]
    words = [line.split()[0] for line in lines]
    read = read_vectors(folder.write("\n".join(lines), "v.txt"), words)
    assert read.words == tuple(words)
    np.testing.assert_array_equal(read.matrix[:, 0], np.arange(4001))


ODD: list[tuple[bytes, str, str, list[str]]] = [
    (b"of 1 2 3\na 1 2\nb 1 2 3 4\nc\nd 1 two 3\ne 1 2 1_0\nf 1 nan 3\ng 1 2 -inf\n", "a b c d e f g of", "of",
     ["line 2: a holds 2 numbers", "line 3: b holds 4 numbers", "line 4: c holds 0 numbers",
      "line 5: d holds something", "line 6: e holds something", "f holds a number that is not finite",
      "g holds a number that is not"]),
    (b"the 1 2 3\nking 4 5 6\nhuman -0.09 ", "king zzz", "king", ["line 3 is cut off: human"]),
    (b"5 3\nthe 1 2 3\nking 4 5 6\n", "zzz", "", ["line 1 gives 5 words, the file holds 2"]),
    (b"5 3\nthe 1 2 3\nking 4 5 6\n", "king the", "king the", []),
    (b"2 300\nthe 1 2 3\nking 4 5 6\n", "the", "the", ["gives 300 numbers per word"]),
    (b"the 1 2\nof 3 4\nthe 5 6\nthe 7 8\na 7 8\n", "the a", "the a", ["line 3: the appears again"]),
    (b"the 1 2\nof 3 4\nthe 5 6\n", "the of", "the of", []),  # what follows is not read
    (b'{"c": [1, 2], "c": [3, 4]}', "c", "c", []),
    (b"the 1 2\ncaf\xe9 3 4\n\xff\xfe 5 6\n", "café the", "café the", ["line 2 is not UTF-8"]),
    (b'{"a": [1, NaN], "b": [1, 1e999], "c": [1, 2], "c": [3, 4]}', "a b c", "c",
     ["entry 1: a holds a number that is not", "entry 2: b holds", "entry 4: c appears again"]),
]  # fmt: skip


def test_lines_that_are_skipped_or_odd_give_one_warning_each(folder: Folder) -> None:
    for content, asked, words, keys in ODD:
        read = read_vectors(folder.write(content, "v.txt"), asked.split())
        assert read.words == tuple(words.split())
        assert [*read.missing] == [word for word in asked.split() if word not in words.split()]
        assert len(read.warnings) == len(keys)
        assert all(key in warning for key, warning in zip(keys, read.warnings, strict=True))
        values = {"the": [1, 2], "café": [3, 4], "c": [1, 2]}  # the first of equal words
        assert read.matrix.shape[1] == 3 or read.matrix[0].tolist() == values[read.words[0]]


def test_json_inline_vectors_and_a_pipe(folder: Folder) -> None:
    text = json.dumps({"king": [1, 2.5], "Queen": [3, 4], "bad": [1], "worse": "x", "n": [1, "a"]})
    for source in (folder.write(text, "v.json"), text):
        read = read_vectors(source, ["queen", "king", "bad", "worse", "kinf"])
        assert (read.words, read.folded) == (("queen", "king"), {"queen": "Queen"})
        assert read.matrix.tolist() == [[3, 4], [1, 2.5]]
        assert read.missing == {"bad": (), "worse": (), "kinf": ("king",)}
        bad, worse = read.warnings
        assert "entry 3: bad holds 1 number, not 2" in bad
        assert "entry 4: worse" in worse
    for words in (
        "king=.9,.5 queen=.2,+.5",
        "king=.9, .5;queen = .2,.5",
        "king=.9,.5\nqueen=.2,.5",
    ):
        assert read_vectors(words, ["queen", "king"]).matrix.tolist() == [[0.2, 0.5], [0.9, 0.5]]
    os.mkfifo(folder.path / "pipe")
    with ThreadPoolExecutor(1) as pool:
        pool.submit((folder.path / "pipe").write_bytes, GLOVE)
        read = read_vectors(f"{folder.path}/pipe", ["KING", "quen"])  # though it is read once
    assert (read.folded, read.missing) == ({"KING": "king"}, {"quen": ("queen",)})


# ---- damaged files and other contents


def test_a_damaged_gzip_is_read_up_to_the_damage(folder: Folder) -> None:
    numbers = np.random.default_rng(5).normal(size=(10_007, 3)).tolist()
    lines = [f"w{i} {' '.join(map(str, row))}" for i, row in enumerate(numbers)]
    packed = gzip.compress("\n".join(lines).encode(), mtime=0)
    path = folder.write(packed[: len(packed) // 2], "v.gz")
    read = read_vectors(path, ["w3", "w10006"])
    assert read.words == ("w3",)
    assert [*read.missing] == ["w10006"]
    (warning,) = read.warnings
    assert "is damaged: Compressed file ended" in warning
    last = int(warning.split("after line ")[1].split(";")[0])
    assert 1000 < last < 10_006
    assert read_vectors(path, [f"w{last - 1}"]).words == (f"w{last - 1}",)
    checked = bytearray(gzip.compress(GLOVE, mtime=0))
    checked[-6] ^= 1
    read = read_vectors(folder.write(bytes(checked), "v.gz"), ["king", "zzz"])
    assert read.words == ("king",)
    assert "CRC check failed" in read.warnings[0]


# name::member, key word, contents
REFUSED: list[tuple[Any, ...]] = [
    ("v.txt", "is empty", b"", b" \n\r\n\n"),
    ("v.txt", "word2vec's binary format", b"3 4\nking \x00\x11\x02\x03\x04\x05\x80\x01"),
    ("v.txt", "a pickle", b"\x80\x04\x95\x00\x00\x00"),
    ("v.txt", "is binary", b"\x93NUMPY\x01\x00"),
    ("v.txt", "UTF-16", b"\xff\xfek\x00i\x00"),
    ("v.txt", "is damaged", b"\x1f\x8b\x08\x00"),
    ("v.txt", "no vectors: it begins 'Lorem ipsum dolor'", b"Lorem ipsum dolor\nsit amet\n"),
    ("v.txt", "no vectors", b"400000 100\n", b'{"king": {"a": 1}}', b"{}"),
    ("v.txt", "JSON but not an object", b'["king", 1]'),
    ("v.txt", "JSON: line 1, column 10", b'{"king": '),
    ("v.txt", "byte 11 is not utf-8", b'{"king": [\xff]}'),
    ("v.txt", "nested too deeply", b'{"a":' * 100_000),
    ("v.txt", "line 1 is longer than 1 MB", b"a" * (1 << 21)),
    ("v.txt", "no complete line", gzip.compress(b"the 0.5 -1 2 " * 99, mtime=0)[:30]),
    ("v.txt::b", "no 'b'; leave out ::name", GLOVE),
    ("a\0b", "cannot be read", None),
    ("king=0.9,abc", "'king=0.9,abc' is not a word", None),
    ("king=0.9 queen", "'queen' is not a word", None),
    ("king=1e999", "is not a word", None),
    ("{broken", "JSON: line 1, column 2", None),
]  # fmt: skip


def test_what_is_refused_in_one_line(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.path)
    for source, key, *contents in REFUSED:
        for content in contents:
            if content is not None:
                folder.write(content, source.partition("::")[0])
            with pytest.raises(InputError, match=rf"^[^\n]*{re.escape(key)}[^\n]*\Z"):
                read_vectors(source, ["king"])


# ---- the nearest words, and close spellings


@pytest.mark.parametrize("broken", [b"", b"bad 1 2\nzero 0 0 0\n"], ids=["whole", "broken lines"])
def test_the_nearest_are_those_of_all_cosines_sorted(folder: Folder, broken: bytes) -> None:
    matrix = np.random.default_rng(3).normal(size=(35_023, 3)).round(3)  # more than one block
    rows = "".join(f"w{i} {x} {y} {z}\n" for i, (x, y, z) in enumerate(matrix.tolist()))
    path = folder.write(broken + b"35023 3\n"[: 8 * (not broken)] + rows.encode(), "v.txt")
    cosines = matrix @ [1, 2, 3] / np.linalg.norm(matrix, axis=1) / np.sqrt(14)
    first, *others = np.argsort(-cosines)[:8].tolist()
    neighbours = nearest(path, [1, 2, 3], n=7, exclude=[f"w{first}"])
    assert [word for word, _ in neighbours.pairs] == [f"w{i}" for i in others]
    np.testing.assert_allclose([c for _, c in neighbours.pairs], cosines[others], rtol=1e-12)
    assert ["line 1 is not a vector" in x for x in neighbours.warnings] == [True] * bool(broken)


def test_the_cosine_of_a_word_with_itself_is_at_most_1() -> None:
    # a·a / (‖a‖·‖a‖) is rounded to 1 + 2⁻⁵² for one in nine of these, such as 0.1, 0.1, 0.2
    for vector in itertools.product([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], repeat=3):
        ((_, cosine),) = nearest(f"bank={','.join(map(str, vector))}", vector).pairs
        assert 1 - 1e-15 < cosine <= 1


def test_the_nearest_of_inline_vectors_and_vectors_that_have_none() -> None:
    four = "king=1,0 queen=0,1 up=1,1 void=0,0"
    pairs = nearest(four, [0, 3], n=5, exclude=["up"]).pairs
    assert pairs == (("queen", 1.0), ("king", 0.0))
    for key, vector in (
        (r"shape \(3,\), not \(2,\)", [1, 2, 3]), ("numbers", ["a", "b"]),
        ("no direction", [0, 0]), ("no direction", [1, math.nan]),
    ):  # fmt: skip
        with pytest.raises((InputError, ShapeError), match=key):
            nearest(four, vector)


VOCABULARY = """the king queen queue receive florida cafe definitely separate attention
    transformer river bank Paris yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy I of naïve"""
MISSPELLINGS = """teh the, kingg king, kng king, quen queen, quene queen, recieve receive, caf cafe,
    flroida florida, floridaaa florida, Florida florida, café cafe, definately definitely,
    seperate separate, atention attention, attetnion attention, transfomer transformer,
    rivers river, banks bank, pariss Paris, naive naïve"""


def test_close_spellings() -> None:
    vocabulary = VOCABULARY.split()
    for word, expected in (pair.split() for pair in MISSPELLINGS.split(",")):
        assert close_spellings(word, vocabulary)[0] == expected
    for distant in ("", "f", "i", "x" * 40, "zebra", "kangaroo", "attn"):
        assert close_spellings(distant, vocabulary) == ()
    # at most three, the closest first
    words = ["kind", "kin", "ring", "king", "kong", "King", "kings"]
    assert close_spellings("kiing", words) == ("king", "King", "kings")
    assert close_spellings("kint", ["kint", "kins", "kino"]) == ("kins", "kino")
    assert close_spellings("king", []) == ()
