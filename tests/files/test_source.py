"""SOURCE: paths, standard input, pipes, literals; packed files; how much is read and allowed."""

import gzip
import io
import os
import re
import subprocess
import sys
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from attncli.budget import limited
from attncli.errors import InputError, SizeError
from attncli.files.load import read_source
from tests.files.conftest import Folder, encrypted, npy, npz, safetensors, zipped

JSON = b'{"q": [[1, 2]], "k": [[3, 4]]}'
PACKED = {"q.json": JSON, "q.npy": npy([[1, 2]]), "q.npz": npz(q=[[1, 2]], k=[[3, 4]])}
PACKED |= {"q.csv": b"1,2\n", "q": b"[[1, 2]]"}


def first(source: str, stdin: bytes = b"") -> Any:
    return next(iter(read_source(source, stdin=io.BytesIO(stdin)).arrays.values())).tolist()


def test_the_format_is_detected_from_the_content(folder: Folder) -> None:
    others = (b"\xef\xbb\xbf[[1, 2]]", b"1\t2\n", b"1;2\n", b" 1  2\n", b"[CLS],1,2\n")
    contents: dict[bytes, Any] = {content: [[1, 2]] for content in (*PACKED.values(), *others)}
    for content, expected in {**contents, b"1\n2\n": [[1], [2]], b"0,0\n": [[0, 0]]}.items():
        assert first("-", content) == expected
        for name in ("file", "file.dat"):
            assert first(folder.write(content, name)) == expected


def test_packed_files_are_read(folder: Folder) -> None:
    """gzipped, as a member of a zip by its path or its name, or from standard input."""
    for name, content in PACKED.items():
        packed = gzip.compress(content, mtime=0)
        archive = zipped({"d/other.txt": b"", f"d/{name}": content}, zipfile.ZIP_DEFLATED)
        assert first("-", packed) == first(folder.write(packed, f"{name}.gz")) == [[1, 2]]
        path = folder.write(archive, "x.zip")
        for member in (f"d/{name}", name):
            assert first(f"-::{member}", archive) == first(f"{path}::{member}") == [[1, 2]]


OTHERS = {"d/": b"", "__MACOSX/._q.json": b"?", "d/.hidden": b"?"}
ONE_OF: list[tuple[str, bytes, str, Any]] = [
    ("x.json.gz", gzip.compress(JSON), "k", [[3, 4]]),
    ("x.zip", zipped({"o.txt": b"", "q.json": JSON}), "q.json::k", [[3, 4]]),
    ("x.zip", zipped({"o.txt": b"", "q.npz": PACKED["q.npz"]}), "q.npz::k", [[3, 4]]),
    ("x.zip", zipped({**OTHERS, "d/q.json": JSON}), "q", [[1, 2]]),  # its only file
    ("x.zip", zipped({**OTHERS, "d/.git/q.json": JSON}), "q", [[1, 2]]),
    ("x.zip", npz(a=[[1]], b=[[2]]), "b", [[2]]),  # an npz, whatever it is called
    ("x.zip", npz(a=[[1]], b=[[2]]), "b.npy", [[2]]),
    ("a::b.json", b"[[7]]", "", [[7]]),
]


def test_one_array_of_a_file(folder: Folder) -> None:
    for name, content, member, values in ONE_OF:
        loaded = folder.load(content, name, member)
        assert [array.tolist() for array in loaded.arrays.values()] == [values]
        assert "::k" not in member or loaded.origin == f"{folder.path}/x.zip::{member[:-3]}"


def test_standard_input_a_pipe_and_a_file_descriptor(tmp_path: Path) -> None:
    loaded = read_source("-::key", stdin=io.BytesIO(npz(q=[[1]], key=[[2, 3]])))
    assert (loaded.origin, loaded.member, [*loaded.arrays]) == ("standard input", "key", ["key"])
    os.mkfifo(tmp_path / "pipe.npy")
    with ThreadPoolExecutor(1) as pool:
        pool.submit((tmp_path / "pipe.npy").write_bytes, npy([[3, 5]]))
        assert first(f"{tmp_path}/pipe.npy") == [[3, 5]]
    reading, writing = os.pipe()
    os.write(writing, b"[[1, 2]]")
    os.close(writing)
    assert first(f"/dev/fd/{reading}") == [[1, 2]]
    os.close(reading)


def test_literals_a_path_that_looks_like_one_and_what_is_refused(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_source('{"q": [[1, 2]]}').origin == "what you typed"
    assert first("  [[1, 2, 3], [4, 5, 6.5]]") == [[1, 2, 3], [4, 5, 6.5]]
    monkeypatch.chdir(folder.path)
    folder.write("[[7]]", "{x}.json")
    assert first("{x}.json") == [[7]]
    folder.write("[[1]]", "qkv.json")
    refuse = mock.Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr("builtins.open", refuse)
    for source, key in (
        ("", "the path is empty"),
        ("q.npz::", "names no array after ::"),
        ("a\0b", "'a\\x00b' cannot be read: not a path"),
        ("no\x1b[31m", "'no\\x1b[31m' does not exist"),
        (" ", "' ' does not exist"),
        ("q\0::k", "'q\\x00' cannot be read"),
        ("[[1, 2], [3 4]]", "what you typed is not JSON: line 1, column 13"),
        ("-", "standard input is empty"),
        ("/dev", "is a directory"),
        ("/no/q.npy", "there is no folder /no"),
        ("qvk.json", "qvk.json does not exist; did you mean qkv.json"),
        ("qkv.json", "cannot be read: Permission denied"),
    ):
        with pytest.raises(InputError, match=rf"^[^\n]*{re.escape(key)}[^\n]*\Z"):
            read_source(source, stdin=io.BytesIO())
    monkeypatch.undo()
    with pytest.raises(InputError, match="of no format"):
        read_source("/dev/zero")


GZIPPED = gzip.compress(b"1", mtime=0)
ONE = zipped({"q.csv": b"1,2\n"})
TWINS = zipped({"x.json": b"[[1]]", "y.json": b"[[2]]"}).replace(b"y.json", b"x.json")
# name::member, key word, content
REFUSED = [
    *((f"q{end}", "is empty", b"") for end in (".npy", ".npz", ".csv", ".safetensors", "")),
    *((f"q{end}", what, b"PK\x03\x04") for end, what in (
        (".pt", "a PyTorch file"), (".pth", "a PyTorch file"), (".pkl", "a pickle"), (".h5", "an HDF5 file"),
        (".mat", "a MATLAB file"), (".parquet", "a Parquet file"), (".xlsx", "a spreadsheet"))),
    ("q", "a pickle", b"\x80\x04\x95\x00"),
    ("q.npy", "a pickle", b"\x80\x02}q\x00"),
    ("q", "an HDF5 file", b"\x89HDF\r\n\x1a\n"),
    *(("q.dat", "reads .json, .npy, .npz, .csv", x) for x in (b"\0\1\2\3" * 9, b"hello\nworld\n", b"\xff\xd8\xff\xe0")),
    ("x.csv", "a bzip2 file", b"BZh91AY&SY"),
    ("x.json", "a web page", b"\n<!DOCTYPE html><html>"),
    ("x.npy", "a Git LFS pointer", b"version https://git-lfs.github.com/spec/v1\n"),
    ("x.zip", "a.json, b.json; name one: x.zip::a.json", zipped({"a.json": b"", "b.json": b""})),
    ("x.zip::c", "no 'c'; it holds a.json, b.json", zipped({"a.json": b"", "b.json": b""})),
    ("x.zip::x.json", "a/x.json, b/x.json; name one: x.zip::a/x.json", zipped({"a/x.json": b"", "b/x.json": b""})),
    ("x.zip::x.json", "x.json, x.json; zip it again", TWINS),
    ("x.zip", "holds no file", zipped({})),
    ("x.zip", "of no format", zipped({"a.md": b"hello"})),
    ("x.zip", "is empty", zipped({"q.json": b""})),
    ("x.zip", "not a valid zip", zipped({"q.json": JSON})[:-30]),
    ("x.zip", "not compressed with deflate", zipped({"q.csv": b"1,2\n"}, zipfile.ZIP_BZIP2)),
    ("x.npz", "not compressed with deflate", zipped({"q.npy": npy([[1]])}, zipfile.ZIP_LZMA)),
    ("x.zip", "Invalid argument", ONE[:-6] + b"\x7f" + ONE[-5:]),  # its index begins before it
    ("x.zip", "x.zip is encrypted", encrypted(zipped({"q.json": JSON}))),
    ("x.zip", "gzip inside another file", zipped({"q.gz": GZIPPED})),
    ("x.gz", "gzip inside another file", gzip.compress(GZIPPED, mtime=0)),
    ("x.json.gz", "is damaged", gzip.compress(JSON * 999, mtime=0)[:-9]),
    ("x.gz", "is damaged", b"\x1f\x8b\x08"),
    ("x.pt.gz", "a PyTorch file", b"x"),
    ("README.md", "a text, not rows of numbers: it begins 'Att", b"# a\n\nAttention, step by step\nin 2 ways, a, b\n\n3\n"),
]  # fmt: skip


def test_files_that_are_refused(folder: Folder) -> None:
    for name, key, content in REFUSED:
        file, _, member = name.partition("::")
        assert key in folder.refusal(content, file, member)


# ---- how much is read, and allowed


def test_only_what_is_asked_for_is_read(folder: Folder) -> None:
    rows = np.arange(1009 * 1013, dtype="<f4")
    large = ("F32", [1009, 1013], rows.tobytes())
    data = safetensors({"q": ("BF16", [1, 3], b"\x80\x3f" * 3), "x0": large, "x1": large})
    path = folder.write(data, "x.safetensors")
    read_source(path)  # what is imported is not counted
    tracemalloc.start()
    loaded = read_source(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (loaded.arrays["q"].tolist(), loaded.unread) == ([[1.0, 1.0, 1.0]], ("x0", "x1"))
    assert peak < rows.nbytes / 8
    np.testing.assert_array_equal(read_source(f"{path}::x1").arrays["x1"].reshape(-1), rows)
    assert first("-", gzip.compress(data, 1)) == [[1.0, 1.0, 1.0]]


def test_a_file_larger_than_what_is_allowed_is_mapped(folder: Folder) -> None:
    array = np.asfortranarray(np.arange(15.0).reshape(3, 5))
    with mock.patch("attncli.files.npy.MAP_FROM", 1), limited(1):
        read = folder.load(npy(array), "q.npy").arrays[""]
    assert isinstance(read.base, np.memmap)
    assert (type(read), read.flags.writeable) == (np.ndarray, False)
    assert read.tolist() == array.tolist()


@pytest.mark.parametrize("name", ["q.safetensors", "q.npy"])
def test_a_file_that_is_cut_once_it_is_read(folder: Folder, name: str) -> None:
    """It is cut while the next one is opened: what was read is used, and no signal ends the call."""
    q = np.ones((1 << 19, 8))
    packed = safetensors({"q": ("F64", [*q.shape], q.tobytes())})
    path = folder.write(npy(q) if name == "q.npy" else packed, name)
    os.mkfifo(folder.path / "k.npy")
    flags = ("--q", name, "--k", "k.npy", "--v", "[[3, 4]]", "--output", "o.npy")
    call = [sys.executable, "-m", "attncli", "compute", *flags]
    with subprocess.Popen(call, cwd=folder.path, stderr=subprocess.PIPE) as running:
        with open(folder.path / "k.npy", "wb") as file:  # once the call opens it too
            os.truncate(path, 1000)
            file.write(npy(np.ones((1, 8))))
        _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (0, b"")
    assert (np.load(folder.path / "o.npy") == [3, 4]).all()


def test_more_than_is_allowed_is_refused_before_unpacking(folder: Folder) -> None:
    zeros = np.zeros((1, 1 << 19))  # 4 MiB each
    path = folder.write(npz(q=zeros, k=zeros, x=zeros), "x.npz")
    with limited(9 << 20):
        assert list(read_source(path).arrays) == ["q", "k"]
    with limited(7 << 20), pytest.raises(SizeError, match=r"x\.npz takes 8\.389 MB, 7\.34 MB are"):
        read_source(path)
    with limited(3 << 20), pytest.raises(SizeError, match=r"x\.npz, x takes 4\.194 MB, 3\.146 MB"):
        read_source(f"{path}::x")
    deflated = zipped({"q.npy": npy(np.zeros((1009, 1013)))}, zipfile.ZIP_DEFLATED)
    assert folder.load(deflated, "x.npz").arrays["q"].shape == (1009, 1013)


def test_numbers_that_were_packed_are_counted(folder: Folder) -> None:
    matrix = npy(np.zeros((1009, 101), dtype=np.bool_))
    archive = zipped({"mask.npy": matrix}, zipfile.ZIP_DEFLATED)
    for name, packed in {"x.npz": archive, "x.npy.gz": gzip.compress(matrix)}.items():
        with limited(50 * 1009 * 101):
            assert folder.load(packed, name).arrays
        with limited(50 * 1009 * 101 - 50):
            assert "has 101,909 numbers, 101,908" in folder.refusal(packed, name)


def test_text_is_bounded_while_unpacking(folder: Folder) -> None:
    spaces = b"[" + b" " * (11 << 20) + b"[1]]"
    numbers = str([np.random.default_rng(3).normal(size=100_000).round(7).tolist()]).encode()
    for name in ("x.json.gz", "x.zip"):
        packed, of_numbers = (
            gzip.compress(text, 1)
            if "gz" in name
            else zipped({"x.json": text}, zipfile.ZIP_DEFLATED)
            for text in (spaces, numbers)
        )
        assert "unpacks to more than 10 MB of text" in folder.refusal(packed, name)
        with limited(1_200_000_000):
            assert folder.load(packed, name).arrays
        with limited(3_000_000):  # of 1.1 MB 1.05 are read
            assert "takes at least 5.243 MB" in folder.refusal(of_numbers, name)
    with pytest.raises(SizeError, match="unpacks to more than 10 MB of text"):
        read_source("-", stdin=io.BytesIO(gzip.compress(spaces, 1)))


def test_what_a_text_holds_is_counted_before_it_is_made(folder: Folder) -> None:
    for name, text, key in (
        ("x.json", b"[" + b"[1]," * 30_000 + b"[1]]", "has 60,002 values"),
        ("x.json", b"[[" + b'"NaN",' * 20_001 + b"1]]", "has 40,004 values"),
        ("x.json", b'{"q": [[1]], "x": [' + b"{}," * 10_000 + b"1]}", "has 50,010 values"),
        ("x.csv", b"a,2\n" * 300_000, "has 600,000 cells"),
        ("x.csv", b"\n" * (1 << 20), "has 1.049 million cells"),
        ("x.txt", b"1 2  3\n" * 200_000, "has 799,999 cells"),
    ):
        with limited(40_000 * 50 if name == "x.json" else 500_000 * 50):
            assert key in folder.refusal(text, name)
    stream = io.BytesIO(b"[[" + b"1," * (1 << 19) + b"1]]")
    with limited(5 << 20), pytest.raises(SizeError, match=r"at least 5\.243 MB, 5\.243 MB are"):
        read_source("-", stdin=stream)
