"""One table per format: a text or bytes, and its arrays or a key word of the refusal."""

import io
import json
import math
import re
import struct
import zipfile
from typing import Any
from unittest import mock

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.files.contents import FileContents
from attncli.files.load import read_source
from attncli.files.lookup import only, pick
from attncli.files.roles import ROLES
from attncli.formula.numerals import number
from tests.files.conftest import Folder, cell_name, encrypted, header, npy, npz, safetensors, zipped

INF, MAX = math.inf, 2**63
Q = np.arange(15).reshape(3, 5)
F32 = np.arange(6, dtype="<f4").reshape(2, 3)


def described(descr: str, shape: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """An npy file of what its header says."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    return header(text, data, version)


EVERYTHING = """{"q": [[1, 2], [3, 4.5]], "Keys": [[1, 2]], "v": [[5, 6, 7]], "mask": [[true], [false]],
    "tokens": {"queries": ["the", "cat"], "keys": ["sat"]}, "scale": 0.25, "title": "x", "c": null}"""
NESTED = '{"layer": {"q": [[1]], "k": {"deep": [[2]]}, "name": "x"}, "heads": [{"v": [[3]]}, {"v": [[4]]}]}'
AS_TEXT = {"q": {"the": [1, 0], "cat": [0, 1]}, "k": [[1, 1]]}
DRAWN = np.random.default_rng(7).random((2, 3)).tolist()
SCALED = '{"q": [[1]], "k": [[2]], "scale": 0.5}'
UNREAD = {"q.npy": npy([[1]]), "x.npy": b"?", "n.txt": b""}
UNREAD["meta.npy"] = npy([None], allow_pickle=True)
LABELLED = npz(q=[[1]], K=[[2.5]], scale=np.float32(0.5), query_tokens=["a", "bc"], tokens=["e"])
LAYER = "layers.0.self_attn.q"
TENSORS = safetensors({"scale": ("F32", [], struct.pack("<f", 0.5)), LAYER: ("F32", [2, 3], F32.tobytes()), "f8": ("F8_E4M3", [2], b"ab")})  # fmt: skip
BF16 = struct.pack("<4H", 0x3F80, 0xC020, 0x0001, 0xFF80)  # 1, -2.5, the least subnormal, −∞

# name::member, content, arrays by name (or one without a name), and other fields of what is read
READ: list[tuple[str, str | bytes, Any, dict[str, Any]]] = [
    ("x.json", EVERYTHING, {"q": [[1, 2], [3, 4.5]], "Keys": [[1, 2]], "v": [[5, 6, 7]], "mask": [[True], [False]]},
     {"query_labels": ("the", "cat"), "key_labels": ("sat",), "scale": 0.25, "others": ("title",), "notes": ()}),
    ("x.json", '{"q": [[1]], "tokens": ["a", "b"]}', {"q": [[1]]}, {"query_labels": ("a", "b"), "key_labels": ("a", "b")}),
    ("x.json", '{"q": [[1]], "tokens": ["a"], "query_tokens": ["b"]}', {"q": [[1]]}, {"query_labels": ("b",), "key_labels": ("a",)}),
    ("x.json", '{"q": [[1]], "tokens": ["\\ud83d\\ude00\\\\ud800"]}', {"q": [[1]]}, {"key_labels": ("\U0001f600\\ud800",)}),
    ("x.json", "[[1, 0.0]]", [[1, 0]], {"dtype": "float64"}),
    ("x.json", "[[true, false]]", [[True, False]], {"dtype": "bool"}),
    ("x.json", f"[[{MAX - 1}]]", [[MAX - 1]], {"dtype": "int64"}),
    ("x.json", f"[[{MAX}]]", [[2.0**63]], {"dtype": "float64"}),
    ("x.json", '[["Infinity", 1], [-Infinity, 2]]', [[INF, 1.0], [-INF, 2.0]], {}),
    ("x.json", "[[1e-400, -0.0, 5e-324]]", [[0.0, -0.0, 5e-324]], {}),
    *(("x.json", "[[1, 2]]".encode(code), [[1, 2]], {}) for code in ("utf-8-sig", "utf-16", "utf-32")),
    ("x.json", json.dumps(AS_TEXT), {"q": [[1, 0], [0, 1]], "k": [[1, 1]]}, {"words": {"q": ("the", "cat")}}),
    ("x.json", '{"q": [[1]], "key": {"weight": [[2]]}}', {"q": [[1]]}, {"unread": ("key.weight",)}),
    ("x.json", '{"q": {"random": [2, 3], "seed": 7}, "k": [[1]]}', {"q": DRAWN, "k": [[1]]}, {"words": {}}),
    ("x.json", '{"h": {"w_q": {"random": [2, 3], "seed": 7}}}', {"h.w_q": DRAWN}, {}),
    ("x.json", '{"q": {"random": [2, 3], "cat": [4, 5]}}', {"q": [[2, 3], [4, 5]]}, {"words": {"q": ("random", "cat")}}),
    ("x.json::k", SCALED, {"k": [[2]]}, {"scale": 0.5, "member": "k"}),
    ("x.json::b", '{"a": [[1]], "b": [[2]], "c": [null]}', {"b": [[2]]}, {"notes": ()}),
    ("x.json::layer.k.deep", NESTED, {"layer.k.deep": [[2]]}, {}),
    ("x.json::heads.1.v", NESTED, {"heads.1.v": [[4]]}, {}),
    ("x.json::layer", NESTED, {"q": [[1]]}, {"unread": ("k.deep",)}),  # by what its name is there
    *(("q.npy", described("<f8", "(1, 2)", struct.pack("<2d", 3, 5), version), [[3, 5]], {}) for version in (b"\2\0", b"\3\0")),
    ("x.npz", LABELLED, {"q": [[1]], "K": [[2.5]]}, {"query_labels": ("a", "bc"), "key_labels": ("e",), "scale": 0.5}),
    ("x.npz::k", npz(q=[[1]], k=[[2]], scale=0.5), {"k": [[2]]}, {"scale": 0.5}),
    ("x.npz::k", npz(q=[[1]], k=[[2]], scale=[1, 1, 1]), {"k": [[2]]}, {"scale": None}),  # a norm's
    ("x.npz", zipped(UNREAD), {"q": [[1]]}, {"unread": ("x", "meta")}),
    ("x.npz::x", zipped({"q.npy": b"?", "x.npy": npy([[2]])}), {"x": [[2]]}, {}),
    ("x.safetensors", TENSORS, {}, {"unread": ("f8", LAYER), "scale": 0.5}),
    (f"x.safetensors::{LAYER}", TENSORS, {LAYER: F32.tolist()}, {}),
    ("x.safetensors", safetensors({"q": ("BF16", [2, 2], BF16)}), {"q": [[1, -2.5], [2.0**-133, -INF]]}, {"dtype": "float32"}),
    ("t.csv", "1,2\n3,4\n", [[1, 2], [3, 4]], {"dtype": "float64", "row_labels": None, "column_labels": None}),
    ("t.csv", "1,2\r\n3,4\r\n\r\n\n", [[1, 2], [3, 4]], {}),
    ("t.csv", "1;2.5\n3;4\n", [[1, 2.5], [3, 4]], {}),
    ("t.csv", "\ufeff1,2\n", [[1, 2]], {}),
    ("t.csv", "1\n2\n", [[1], [2]], {}),
    ("t.csv", "# a, b\n#c\n1,2\n# end\n", [[1, 2]], {"column_labels": None}),
    ("t.csv", "a,b\n1,2\n", [[1, 2]], {"row_labels": None, "column_labels": ("a", "b")}),
    ("t.csv", "the,1,2\ncat,3,4\n", [[1, 2], [3, 4]], {"row_labels": ("the", "cat"), "column_labels": None}),
    ("t.csv", "the,1,2\n", [[1, 2]], {"row_labels": ("the",)}),
    ("t.csv", ",a,b\nthe,1,2\n", [[1, 2]], {"row_labels": ("the",), "column_labels": ("a", "b"), "notes": ()}),
    ("t.csv", ",0,1\n0,1,2\n1,3,4\n", [[1, 2], [3, 4]], {"row_labels": ("0", "1"), "column_labels": ("0", "1")}),
    ("t.csv", "weights,in,20\nin,1,2\n20,3,4\n", [[1, 2], [3, 4]], {"row_labels": ("in", "20"), "column_labels": ("in", "20")}),
    ("t.csv", 'w,"a,b","c""d"\n"e\nf",1,2\n', [[1, 2]], {"row_labels": ("e\nf",), "column_labels": ("a,b", 'c"d')}),
    ("t.csv", "w,a\n##ing,1\n#,2\n# x\nb,3\n# end\n", [[1], [2], [3]], {"row_labels": ("##ing", "#", "b"), "column_labels": ("a",)}),
    ("t.csv", "w,'=1+1,'tis\n'@x,1,2\n", [[1, 2]], {"row_labels": ("@x",), "column_labels": ("=1+1", "'tis")}),
    ("t.csv", "a.1.weights head 2,1,b\n1,1,2\n", [[1, 2]], {"row_labels": ("1",), "column_labels": ("1", "b")}),
    ("t.csv", "word,x,y\nthe,1/2,.5\ncat,1,-1/4\n", [[0.5, 0.5], [1, -0.25]], {"row_labels": ("the", "cat")}),
    ("t.tsv", "w\té,\nthe\t1\n".encode("utf-16"), [[1]], {"row_labels": ("the",), "column_labels": ("é,",)}),
    ("t.txt", "1 2\n 3   4 \n", [[1, 2], [3, 4]], {}),
    ("t.txt", "the 1 2\ncat 3 4\n", [[1, 2], [3, 4]], {"row_labels": ("the", "cat")}),
    ("t.csv", '"1","2"\n', [[1, 2]], {}),
    ("t.csv", "-Infinity,inf\n+INF,1e-3\n", [[-INF, INF], [INF, 0.001]], {}),
    ("t.csv", "True,false\nFALSE,true\n", [[True, False], [False, True]], {"dtype": "bool"}),
    # names without quotes and assignments; strings are left as they are
    ("x.txt", "{q: [[1, 2]], k: [[3, 4]], scale: 1/8}", {"q": [[1, 2]], "k": [[3, 4]]}, {"scale": 0.125}),
    ("x.txt", "q = [1 2];\nk = [3 4];\n", {"q": [1, 2], "k": [3, 4]}, {}),
    ("x.txt", '{"q": [[.5], [1/2]], "tokens": ["[1 2; 3]", "a: 1/2, array(["]}', {"q": [[0.5], [0.5]]},
     {"query_labels": ("[1 2; 3]", "a: 1/2, array([")}),
]  # fmt: skip


@pytest.mark.parametrize("row", READ, ids=lambda row: cell_name(row[1]))
def test_what_is_read(row: tuple[Any, ...], folder: Folder) -> None:
    name, content, arrays, more = row
    file, _, member = name.partition("::")
    loaded = folder.load(content, file, member)
    expected = arrays if isinstance(arrays, dict) else {"": arrays}
    assert {name: array.tolist() for name, array in loaded.arrays.items()} == expected
    first = next(iter(loaded.arrays.values()), None)
    fields = {field: getattr(first if field == "dtype" else loaded, field) for field in more}
    assert fields == more


def test_types_and_orders(folder: Folder) -> None:
    for dtype in ("<f8", ">f8", "<f4", ">f4", "<f2", "i1", ">i2", "<i4", "<i8", "u1", "<u8", "?"):
        for ordered in (np.ascontiguousarray, np.asfortranarray):
            array = ordered((Q % 2 if dtype == "?" else Q).astype(dtype))
            read = folder.load(npy(array), "q.npy").arrays[""]
            assert (read.tolist(), read.dtype) == (array.tolist(), array.dtype.newbyteorder("="))
    codes = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "U8": "u1", "BOOL": "?"}
    for code, dtype in codes.items():
        array = F32.astype(dtype)
        data = safetensors({"q": (code, [2, 3], array.tobytes())})
        read = folder.load(data, "x.safetensors").arrays["q"]
        assert (read.tolist(), read.dtype) == (array.tolist(), array.dtype)
    bits = folder.load(described("|b1", "(1, 3)", b"\x00\x07\x01"), "m.npy").arrays[""]
    assert bits.view(np.uint8).tolist() == [[0, 1, 1]]  # bytes beyond one are true


REMARKS: list[tuple[str, str | bytes, list[str]]] = [
    ("x.json", '[["NaN", 1]]', ["1 NaN of 2 numbers, the first at row 1, column 1"]),
    ("x.json", '{"k": [[[1, 2, 3], [4, 5, "Infinity"], ["NaN", 7, 8]]]}',
     ["k holds 1 NaN and 1 infinite of 9 numbers, the first at row 2, column 3 of head 1"]),
    ("x.json", '{"q": [[1, "NaN"]], "k": [["Infinity", 1]], "v": [[1, 2]]}', ["q holds", "k holds"]),
    # in a mask −∞ is meant, ∞ is not
    ("x.json", '{"q": [[1]], "mask": [[0, "-Infinity"]]}', []),
    ("x.json", '{"q": [[1]], "mask": [[0, "Infinity"]]}', ["mask holds 1 infinite of 2"]),
    ("x.json", '[[0, "-Infinity"], [0, 0]]', []),
    ("x.json", '[[0.5, "-Infinity"]]', ["1 infinite of 2"]),
    ("x.json", '{"n": 5, "q": [[1]], "meta": {"a": 1}, "names": ["a"], "maks": "x"}',
     ["not used: names, n, meta, maks; did you mean mask?"]),
    ("x.npz", zipped(UNREAD), ["not used: x, meta"]),
    ("t.csv", "1,2\n3,NAN\n", ["1 NaN of 4 numbers, the first at row 2, column 2"]),
    ("t.csv", "weights,1,2\n1,0.25,0.75\n2,0.5,0.5\n", ["as labels"]),
    ("t.csv", "a,b\n1,2\n", ["line 1 is read as a header"]),
]  # fmt: skip


def test_remarks(folder: Folder) -> None:
    for name, content, keys in REMARKS:
        notes = folder.load(content, name).notes
        assert len(notes) == len(keys)
        assert all(key in note for key, note in zip(keys, notes, strict=True))


# ---- refusals

ZEROS = "0" * 309
LARGE = described("<f8", "(99999, 99999)", b"x" * 8)
SIX = ("F32", [2, 3], F32.tobytes())
TENSOR = b'"q": {"dtype": "%s", "shape": [1, 1], "data_offsets": [0, 4]}'


def claimed(size: int) -> bytes:
    """A deflated entry of zeros for which the archive gives a wrong size."""
    entry = npy(np.zeros((3, 5)))
    data = zipped({"q.npy": entry}, zipfile.ZIP_DEFLATED)
    return data.replace(struct.pack("<I", len(entry)), struct.pack("<I", size))


def coded(code: bytes) -> bytes:
    """An npz with a label that holds this code point."""
    bad = npy(["ab"]).replace("b".encode("utf-32-le"), code)
    return zipped({"q.npy": npy([[1]]), "tokens.npy": bad})


def entries(n_bytes: int, changes: dict[str, Any]) -> bytes:
    """A safetensors file of one number for each name, with changes of its header."""
    one = {"dtype": "F32", "shape": [1, 1]}
    table = {name: one | change for name, change in changes.items()}
    return safetensors(json.dumps(table).encode(), bytes(n_bytes))


def placed(*offsets: tuple[int, int]) -> bytes:
    """A safetensors file of numbers at these offsets of twelve bytes."""
    return entries(12, {f"x{i}": {"data_offsets": place} for i, place in enumerate(offsets)})


# name::member, a key word, the contents that are refused with it
REFUSED: list[tuple[str | bytes, ...]] = [
    ("x.json", "JSON: line 2, column 9", "[[1, 2],\n [3, 4],,]"),
    ("x.json", "JSON: line 1, column", "[[1, 2]", "[[1]] x", "{'q': [[1]]}"),
    ("x.json", "is empty", "", "   \n", "[]", "[[], []]"),
    ("x.json", "neither a list nor an object", "5", '"q"', "null"),
    ("x.json", "no array", "{}", '{"title": "x"}', '{"n": 5}'),
    ("x.json", "q: [2, 1.5] is no shape", '{"q": {"random": [2, 1.5], "seed": 7}}'),
    ("x.json", "q: [0] is no shape", '{"q": {"random": [0], "seed": 7}}'),
    ("x.json", "q: the seed is -7", '{"q": {"random": [2], "seed": -7}}'),
    ("x.json", "q has 100 million numbers", '{"q": {"random": [10000, 10000], "seed": 7}}'),
    ("x.json", "row 2 has 2 entries, row 1 has 3", "[[1, 2, 3], [4, 5], [6, 7, 8]]"),
    ("x.json", "q: head 2 has 1 entry, head 1 has 2", '{"q": [[[1], [2]], [[3]]]}'),
    ("x.json", "v: row 1 of head 2 of batch 2 has 2", '{"v": [[[[1]], [[2]]], [[[3]], [[4, 5]]]]}'),
    ("x.json", "q: row 2 has 1 entry, row 1 has 2", '{"q": {"the": [1, 0], "cat": [0]}}'),
    ("x.json", "row 2 is 3, row 1 is a list", "[[1, 2], 3]"),
    ("x.json", "row 1, column 2 is the text", '[[3, "x"]]', '[[3, "1.5"]]', '[[3, "nan"]]'),
    ("x.json", "the text 'a\\x1b[31m'", '[[1, "a\\u001b[31m"]]'),
    ("x.json", "row 1, column 2 is true, expected a number", "[[1, true]]"),
    ("x.json", "expected true or false", "[[true, 0]]", "[[true, NaN]]"),
    ("x.json", "row 1, column 2 is 1e999, beyond float64", "[[1, 1e999]]"),
    ("x.json", "row 1, column 2 is 1000000000", f"[[0.5, 1{ZEROS}]]", f"[[1, 1{ZEROS}]]"),
    ("x.json", "twice", '{"q": [[1]], "q": [[2]]}', '{"x": {"q": 1, "q": 2}}', '{"a.b": [[1]], "a": {"b": [[2]]}}'),
    ("x.json", "nested", "[" * 100_000, "[" * 20 + "1" + "]" * 20, '{"a": ' * 20 + "[[1]]" + "}" * 20),
    *(("x.json", f"scale{problem}", f'{{"q": [[1]], "scale": {x}}}')
      for problem, x in ((" is not a number", '"x"'), (" is not a number", "true"), (" is not a number", "1e999"),
                         (" is not finite", "NaN"), (" is not finite", f"1{ZEROS}"), (" twice", '1, "Scale": 2'))),
    *(("x.json", f"tokens{problem}", f'{{"q": [[1]], "tokens": {x}}}')
      for problem, x in ((" twice", '["a"], "Tokens": ["b"]'), (" is an empty list", "[]"), (" is not a list", "5"),
                         (": entry 2 is not a string", '["a", 1]'), (" names query", '{"query": []}'),
                         (".keys: entry 1", '{"keys": [1]}'))),
    ("x.json", "half of a surrogate", '{"q": [[1]], "tokens": ["\\ud800"]}'),
    ("x.json", "byte 20 is not utf-8", b'{"q": [[1]], "t": "\xff"}'),
    *(("x.json", f"{name} is {what}, not an array", f'{{"q": [[1]], "{name}": {text}}}')
      for name, what, text in (("k", "3", "3"), ("mask", "an object", '{"causal": true}'), ("Values", "an object", "{}"),
                               ("attention_mask", "true", "true"), ("past_k", "the text 'x'", '"x"'),
                               ("k", "an object", '{"m": [[2]]}'), ("k", "an object", '{"the": ["a"]}'))),
    ("x.json::c", "no 'c'; it holds a, b; name one: x.json::a", '{"a": [[1]], "b": 5}'),
    ("x.json::b", "b is 5, not an array", '{"a": [[1]], "b": 5}'),
    ("x.json::b", "b: entry 1 is null", '{"a": [[1]], "b": [null]}'),
    ("x.json::q", "without a name, not 'q'", "[[1]]"),
    ("x.json::no", "it holds layer.q, layer.k.deep, heads.0.v, heads.1.v, layer.name", NESTED),
    ("q.npy", "float64, 120 bytes, but holds", npy(Q.astype(float))[:-8], npy(Q.astype(float)) + b"1234"),
    ("q.npy", "(99999, 99999) of float64, 79998400008 bytes, but holds 8", LARGE),
    ("q.npy", "shape '(-2, 3)'", described("<f8", "(-2, 3)")),
    ("q.npy", "shape '(1, 1,", described("<f8", f"({'1, ' * 40})", b"x" * 8)),
    ("q.npy", "is empty", described("<f8", f"(0, {2**70})")),
    ("q.npy", "not a valid npy", header("__import__('os').system('x')"), header("(" * 5000), header("{}"),
     described("no", "(1,)"), described("<f8", "(1,) * 99", b"x" * 8), b"\x93NUMPY\x01", b"1,2,3\n",
     b"\x93NUMPY\x09\x00\x10\x00" + b" " * 16, b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 99),
    ("x.npz", "not a valid npz", b"not a zip", npz(q=Q)[:-30]),
    ("x.npz", "Bad CRC", npz(q=Q).replace(npy(Q)[-16:], b"\x55" * 16), claimed(130)),
    ("x.npz", "x.npz is encrypted", encrypted(npz(q=[[1]]))),
    ("x.npz", "two arrays of one name", npz(q=[[1]], p=[[1]]).replace(b"p.npy", b"q.npy")),
    ("x.npz", "a zip without an npy file", zipped({}), zipped({"a.txt": b""})),
    ("x.npz", "q is not a valid npy", zipped({"q.npy": b"what"})),
    ("x.npz", "q declares shape (3, 5) of int64, 120 bytes", zipped({"q.npy": npy(Q)[:-1]})),
    ("x.npz", "q declares shape (99999, 99999)", zipped({"q.npy": LARGE})),
    ("x.npz", "tokens holds no strings", npz(tokens=[1])),
    ("x.npz", "scale", npz(q=[[1]], scale=[1, 2]), npz(q=[[1]], scale=1, Scale=2)),
    ("x.npz", "q takes 2 GB, 1 GB are allowed", claimed(2_000_000_000)),
    ("x.npz", "q declares shape (3, 5) of float64, 120 bytes, but holds 99", claimed(1_000_000)),
    ("x.npz", "tokens holds a number that is no", *map(coded, (b"\xff\xff\xff\x7f", b"\0\0\x11\0", b"\0\xd8\0\0"))),
    ("x.safetensors", "not a valid safetensors", safetensors({"q": SIX})[:-1], b"\xff" * 30, b"{}",
     safetensors({"q": ("F32", [9, 9], F32.tobytes())}),
     placed((0, 4), (0, 4)), placed((0, 4), (8, 12)), placed((4, 8), (0, 3)), placed((-4, 0), (0, 12)), placed((0, 12))),
    ("x.safetensors", "no array", safetensors({})),
    ("x.safetensors", "q has the type 'F8_E5M2'", safetensors({"q": ("F8_E5M2", [2], b"ab")})),
    ("x.safetensors::f8", "f8 has the type 'F8_E4M3'", TENSORS),
    ("x.safetensors", "q is empty", safetensors({"q": ("F32", [0, 3], b"")})),
    ("x.safetensors", "scale twice", safetensors({"q": SIX, **{s: ("I8", [], b"a") for s in ("scale", "SCALE")}})),
    ("x.safetensors", "key 'q' twice", safetensors(b"{" + TENSOR % b"F32" + b", " + TENSOR % b"I32" + b"}", bytes(4))),
    ("t.csv", "line 4 has 3 cells, line 2 has 2", "# x\n1,2\n\n3,4,5\n"),
    ("t.csv", "line 2, column 2 is an empty cell", "1,2\n3,\n"),
    ("t.csv", "line 2, column 2 is the text", "1,2\n3,x\n", "a.w,1\na.w,x\n", "1,2\n3,1_0\n", "1,2\n3,true\n"),
    ("t.csv", "line 2, column 1 is the text", "1,2\nx,3\n4,5\n", "1,2\nx,3\n", "a,b\n#1,2\n3,4\n"),
    ("t.csv", "line 4, column 2 is the text '?'", 'w,a\n"x\ny",1\ncat,?\n'),
    ("t.csv", "line 2, column 2 is 1e999, beyond float64", "1,2\n3,1e999\n"),
    ("t.csv", "line 1, column 2 is the text '2', expected true or false", "true,2\n"),
    ("t.csv", "line 1, column 1 is the text", "1.O,2\n3,4\n5,6\n", "1_000,2\n3,4\n", "a,1\n1,2\n"),
    ("t.csv", "line 1, column 2 is the text", "0,-l,-9\n0,0,0\n", "1,0x10\n3,4\n"),
    ("t.csv", "line 1, column 2 is the text 'a', expected a number; a header", "5,a,b\ncat,1,2\n"),
    ("t.csv", "line 1, column 1 is the text '#1', expected a number; a comment", "#1,2\n3,4\n"),
    ("t.csv", "several matrices of q, the second from line 4", "q,d1\nq1,1\n\nq,d1\nk1,2\n"),
    ("t.csv", "only a header", "a,b\n"),
    ("t.csv", "is empty", "\n\n", "# only\n"),
    ("t.csv", "line 2 is not valid", '1,2\n"3,4\n'),
    ("t.csv", "byte 7 is not utf-8", b"1,2\n3,\xff\n"),
    ("t.csv", "a null character", b"1,\x002\n3,4\n"),
    ("t.csv", "decimal points", "1,5;2,5\n3,5;4,5\n"),
    ("x.txt", "line 2, column 6: '4-5'", "[[1. 2.]\n [3. 4-5]]"),
    ("x.txt", "line 1, column 3: '1/0'", "[[1/0, 1]]"),
    ("x.txt", "line 1, column 9: ... stands for numbers that are left out", "[[1. 2. ... 3.]]"),
    ("x.txt", "line 2, column 2: ... stands for", "[[1. 2.]\n ...\n [3. 4.]]"),
    ("x.txt", "no array that is understood", "array([[1, 2]]", "array([[1, 2]], dtype=object, f())"),
    ("x.txt", "JSON: line 1, column", "[[1, 2]])", "[[1, 2] [3, 4]]", "[[1, 2], [3, 4,]]", "[[1, 2], [3 4]]",
     "[[1, 2];, [3, 4]]", '{"q": [[1 2]], "k": [[3, 4]]}', "[[__import__('os').system('id'), 1]]"),
    ("x.txt", "column 9: '0639'", "[[0.64, 0639]]"),
    ("x.txt", "column 2 is the text '2; 3', expected a number; write decimal points", "1,2; 3,4"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row[0]}-{row[1]}")
def test_what_is_refused(row: tuple[Any, ...], folder: Folder) -> None:
    name, key, *contents = row
    file, _, member = name.partition("::")
    for content in contents:
        assert key in folder.refusal(content, file, member)


def test_a_long_number_is_shortened_in_the_message(folder: Folder) -> None:
    for n_digits in (4000, 5000):  # Python itself reads up to 4300
        refusal = folder.refusal(f"[[{'9' * n_digits}]]", "x.json")
        assert "beyond float64" in refusal
        assert len(refusal) < 120


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_types_that_are_refused(folder: Folder) -> None:
    types: dict[Any, str] = {
        object: "Python objects", complex: "complex numbers", "U1": "strings", "S1": "strings",
        "datetime64[D]": "dates", "timedelta64[s]": "time spans", "f4,i4": "structured values",
        "V2": "2-byte values without a type, as bfloat16", np.longdouble: "numbers longer than",
    }  # fmt: skip
    for dtype, key in types.items():
        data = npy(np.zeros((2, 3), dtype), allow_pickle=True)
        assert f"q.npy holds {key}" in folder.refusal(data, "q.npy")
        assert f"q.npz, q holds {key}" in folder.refusal(zipped({"q.npy": data}), "q.npz")


def test_a_header_of_other_types_is_refused(folder: Folder) -> None:
    one = {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}
    for key in one:
        values: tuple[Any, ...] = (None, 1.0, "ab", {}, [], [True, True], [0, 4.0], [2**70, 4])
        for value in values:
            if (key, value) != ("shape", []):  # one number
                assert folder.refusal(entries(4, {"q": {**one, key: value}}), "x.safetensors")


# ---- numbers in the forms in which people have them: MATLAB, printed arrays, code, fractions

FORMS: list[tuple[Any, ...]] = [
    ([[0.5, 1.0], [0.25, -1.0]],
     "[.5 1; 1/4 -1]", "[.5, 1; 1/4, -1]", "[.5 1;\n 1/4 -1;]", "[0.5 1\n 0.25 -1]", ".5 1; .25 -1",
     "0.5 1\n0.25 -1", "[[1/2, 1], [1/4, −1]]", "[[ 0.5   1.  ]\n [ 0.25 -1.  ]]",
     "array([[ 0.5 ,  1.  ],\n       [ 0.25, -1.  ]])", "np.array([[.5, 1], [.25, -1]], dtype=float32)",
     "Array([[ 0.5 ,  1.  ], [ 0.25, -1.  ]], dtype=float32)",
     "tensor([[ 0.5, 1.],\n        [ 0.25, -1.]], device='cuda:0', grad_fn=<MmBackward0>)",
     "torch.tensor([[0.5, 1.0], [0.25, -1]], dtype=torch.float64, requires_grad=True)",
     "Parameter containing:\ntensor([[ 0.5, 1.], [0.25, -1.]], requires_grad=True)",
     "'[[0.5, 1], [0.25, -1]]'"),  # as cmd.exe leaves them
    ([[[1.0, 2.0]], [[3.0, 4.0]]], "[[[1. 2.]]\n\n [[3. 4.]]]"),
    ([1, 2, 3], "[1 2 3]"),
    ([[1, 2]], "1,2"),
    ([[0.5, 1.5], [6.0, 0.25]], "[[1/√4, sqrt(9)/2], [2√9, 1/sqrt(16)]]"),
    ([[0.001, 200.0]], "[[1e-3 2.E+2]]"),
    ([[True, False]], "[[ True False]]"),
    ([[INF, -INF]], "[[inf -inf]]"),
]  # fmt: skip


def test_a_form_is_read_from_a_literal_a_file_and_standard_input(folder: Folder) -> None:
    for expected, text in ((expected, text) for expected, *texts in FORMS for text in texts):
        sources = [read_source(text)]
        if text[0] != "'":
            sources += [
                folder.load(text, "q.txt"),
                read_source("-", stdin=io.BytesIO(text.encode())),
            ]
        for loaded in sources:
            np.testing.assert_array_equal(loaded.arrays[""], np.array(expected))


def test_what_numpy_prints_is_what_it_printed() -> None:
    for seed in range(20):
        draw = np.random.default_rng(seed)
        shape = tuple(draw.integers(1, 14, size=draw.integers(2, 4)))
        array = draw.normal(size=shape) * 10.0 ** draw.integers(-6, 6)
        array = np.round(array) if seed % 3 == 0 else array
        with np.printoptions(precision=17, threshold=10**6, floatmode="unique"):
            for text in (str(array), repr(array), f"q = {array!r}"):
                (read,) = read_source(text).arrays.values()
                np.testing.assert_array_equal(read, array)


def test_no_text_takes_long() -> None:
    """Text of which every part is read again and again would keep this test for hours."""
    for part in ("[1 2]\n", "a.", "a=", "a:", "];", "[", '"', "], a='", "], a=<", " "):
        for begin in ("{", "[", "array([["):
            with pytest.raises(InputError):
                read_source(f"{begin}{part * 9_000}x")


def test_numbers_are_those_of_python() -> None:
    for a, b in np.random.default_rng(1).integers((-99, 1), 100, size=(200, 2)).tolist():
        assert number(f"{a}/{b}") == a / b
        assert number(f"{a}/√{b}") == a / math.sqrt(b)
        assert number(f" {a / 7!r} ") == a / 7
    for text in ("", "x", "1/", "/2", "1//2", "√", "√-2", "1 2", "1_0", "0x1", "٣", "1" * 200):
        assert number(text) is None


# ---- large tables of numbers, which NumPy's parser reads: it gives the same as ours

TABLE = np.random.default_rng(3).normal(size=(1009, 11))


def text_of(delimiter: str, x: Any = TABLE) -> bytes:
    return "\n".join(delimiter.join(map(repr, row)) for row in x.tolist()).encode() + b"\n"


def test_a_large_table(folder: Folder) -> None:
    for name, delimiter, newline in (
        ("x.csv", ",", b"\n"), ("x.csv", ";", b"\r\n"), ("x.tsv", "\t", b"\n"), ("x.csv", ",", b"\r"),
        ("x.txt", "column", b"\n"),
    ):  # fmt: skip
        expected = TABLE.reshape(-1, 1) if delimiter == "column" else TABLE
        data = text_of(delimiter, expected).replace(b"\n", newline)
        data = b"\xef\xbb\xbf" + data if newline == b"\r" else data
        with mock.patch("csv.reader", None):  # ours is slower, and must not be asked
            np.testing.assert_array_equal(folder.load(data, name).arrays[""], expected)
    data = text_of(",")
    names = tuple(f"c{i}" for i in range(11))
    lines = [f",{','.join(names)}", *(f"r,{line}" for line in data.decode().splitlines())]
    loaded = folder.load("\n".join(lines), "x.csv")
    assert loaded.column_labels == names
    np.testing.assert_array_equal(loaded.arrays[""], TABLE)
    for wrong, key in (
        (data + b"1,2\n", "line 1010 has 2 cells"),
        (data.replace(b"\n", b",x\n", 1), "line 1"),
        (data + b"1e999," * 10 + b"1\n", "beyond float64"),
        (data + b"1," * 10 + b"\n", "an empty cell"),
        (data.replace(b",", b"\n") + b"1 2\n", "line 11100, column 1 is the text '1 2'"),
    ):
        assert key in folder.refusal(wrong, "x.csv")


# ---- which array has a role, by its name or as the only one


def loaded(*names: str, member: str | None = None, shape: tuple[int, ...] = (2, 3)) -> FileContents:
    """Arrays of these names; each is filled with the number of its place."""
    arrays = {name: np.full(shape, place + 1.0) for place, name in enumerate(names)}
    return FileContents("x.npz", arrays, member=member)


BOOLEANS = FileContents("x.npz", {"q": np.ones((2, 3), bool)})
ALIASES = {
    "q": "q, Q, query, Queries, query_states, xq",
    "k": "k, KEY, keys, key-states, xk, key layer",
    "v": "v, value, Values, value_states, xv",
    "mask": "mask, attn_mask, attention_mask, Attn_Bias",
    "past_k": "past_k, past_key, k_cache, key_cache, cache_k",
    "past_v": "past_v, past_values, v_cache, value_cache",
}


def test_aliases() -> None:
    for role, names in ALIASES.items():
        for name in names.split(", "):
            file = loaded("query" if role != "q" else "other", name)
            assert np.all(pick(file, role) == 2)
            assert not any(pick(file, other) is not None for other in {*ALIASES} - {role, "q"})
    aliases = [alias for names in ROLES.values() for alias in names.aliases]
    assert len(set(aliases)) == len(aliases)


def test_an_only_array_and_a_member() -> None:
    for file in (loaded(""), loaded("x"), loaded("k", member="k")):
        assert np.all(pick(file, "q") == 1)
        assert pick(file, "k") is None
    assert (only(loaded("q", "k", "v"), "k") == 2).all()
    for file in (loaded("x"), loaded(""), loaded("q"), loaded("v", member="v")):
        assert (only(file, "k") == 1).all()
    assert only(loaded("mask", shape=(3,)), "mask").shape == (3,)
    assert only(BOOLEANS, "mask").dtype == np.bool_


MANY = loaded("\x1b[2J", *(f"t{i}" for i in range(40)))
WITHOUT: list[tuple[Any, FileContents, str, str]] = [
    (pick, loaded("q", "query", "k"), "q", "2 arrays that could be q: q, query; say which: x.n"),
    (pick, loaded("k"), "q", "no q; it holds k; name one: x.npz::k"),
    (pick, loaded("a", "b"), "q", "no q; it holds a, b; name one: x.npz::a"),
    (only, loaded("a", "b"), "k", "no k; it holds a, b; name one: x.npz::a"),
    (only, MANY, "k", "t10 and 29 more"),
    (only, MANY, "k", "'\\x1b[2J', t0"),
    (only, loaded("q", shape=(5,)), "q", "1 dimension, q needs 2 to 4"),
    (only, loaded("q", shape=(2, 1, 1, 1, 3)), "q", "5 dimensions, q needs 2 to 4"),
    (only, loaded("mask", shape=()), "mask", "0 dimensions, mask needs 1 to 4"),
    (only, loaded("q", shape=(2, 0)), "q", "is empty"),
    (pick, BOOLEANS, "q", "q holds true and false"),
]  # fmt: skip


def test_roles_that_no_array_can_have() -> None:
    for read, file, role, key in WITHOUT:
        with pytest.raises(InputError, match=re.escape(key)):
            read(file, role)
