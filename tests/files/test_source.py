"""SOURCE: paths, members, standard input, pipes, literals; the format is detected; packed files."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest

from attncli.budget import limited
from attncli.errors import InputError, SizeError

from .saved import Folder, cell_name, encrypted, load, npy, npz, zipped

JSON = b'{"q": [[1, 2]], "k": [[3, 4]]}'
PACKED = {
    "q.json": JSON,
    "q.npy": npy([[1, 2]]),
    "q.npz": npz(q=[[1, 2]], k=[[3, 4]]),
    "q.csv": b"1,2\n",
    "q": b"[[1, 2]]",
}
CONTENTS = [
    *PACKED.values(),
    b"\xef\xbb\xbf[[1, 2]]",
    b"1\t2\n",
    b"1;2\n",
    b" 1  2\n",
    b"[CLS],1,2\n",
]


@pytest.mark.parametrize("content", [*CONTENTS, b"1\n2\n", b"0,0\n"], ids=cell_name)
def test_the_format_is_detected_from_the_content(content: bytes, folder: Folder) -> None:
    expected = {b"1\n2\n": [[1], [2]], b"0,0\n": [[0, 0]]}.get(content, [[1, 2]])
    loaded = load("-", stdin=io.BytesIO(content))
    assert loaded.origin == "standard input"
    for one in (loaded, folder.load(content, "file"), folder.load(content, "file.dat")):
        assert next(iter(one.arrays.values())).tolist() == expected


@pytest.mark.parametrize("name", PACKED)
def test_packed_files_are_read(name: str, folder: Folder) -> None:
    """gzipped, as a member of a zip by its path or its name, or from standard input."""
    packed = gzip.compress(PACKED[name], mtime=0)
    archive = zipped({"d/other.txt": b"", f"d/{name}": PACKED[name]}, zipfile.ZIP_DEFLATED)
    every = [folder.load(packed, f"{name}.gz"), load("-", stdin=io.BytesIO(packed))]
    for member in (f"d/{name}", name):
        every.append(folder.load(archive, "x.zip", member))
        every.append(load(f"-::{member}", stdin=io.BytesIO(archive)))
    for loaded in every:
        assert next(iter(loaded.arrays.values())).tolist() == [[1, 2]]


OTHERS = {"d/": b"", "__MACOSX/._q.json": b"?", "d/.hidden": b"?"}


@pytest.mark.parametrize(
    ("name", "content", "member", "array", "values"),
    [
        ("x.json.gz", gzip.compress(JSON), "k", "k", [[3, 4]]),
        ("x.zip", zipped({"o.txt": b"", "q.json": JSON}), "q.json::k", "k", [[3, 4]]),
        ("x.zip", zipped({"o.txt": b"", "q.npz": PACKED["q.npz"]}), "q.npz::k", "k", [[3, 4]]),
        ("x.zip", zipped({**OTHERS, "d/q.json": JSON}), "", "q", [[1, 2]]),  # its only file
        ("x.zip", zipped({**OTHERS, "d/q.json": JSON}), "k", "k", [[3, 4]]),
        ("x.zip", zipped({**OTHERS, "d/.git/q.json": JSON}), "", "q", [[1, 2]]),
        ("x.zip", npz(a=[[1]], b=[[2]]), "b", "b", [[2]]),  # an npz, whatever it is called
        ("x.zip", npz(a=[[1]], b=[[2]]), "b.npy", "", [[2]]),
        ("a::b.json", b"[[7]]", "", "", [[7]]),
    ],
    ids=cell_name,
)
def test_one_array_of_a_file(
    name: str, content: bytes, member: str, array: str, values: list[list[int]], folder: Folder
) -> None:
    loaded = folder.load(content, name, member)
    assert loaded.arrays[array].tolist() == values
    assert "::k" not in member or loaded.origin == f"{folder.path}/x.zip::{member[:-3]}"


def test_member_of_standard_input() -> None:
    loaded = load("-::key", stdin=io.BytesIO(npz(q=[[1]], key=[[2, 3]])))
    assert loaded.member == "key"
    assert [*loaded.arrays] == ["key"]
    assert loaded.arrays["key"].tolist() == [[2, 3]]


def test_standard_input_of_the_process_and_what_json_imports() -> None:
    code = (
        "import sys, numpy; before = set(sys.modules)\n"
        "from attncli.files.load import load; print(load('-').arrays[''].tolist())\n"
        "heavy = {'csv', 'zipfile', 'gzip', 'tempfile', 'safetensors', 'pathlib', 'pydantic'}\n"
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, input=b"[[2, 3]]", capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == ["[[2, 3]]", "[]"]


def test_a_pipe_and_a_file_descriptor_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    data = npy(np.arange(15.0).reshape(3, 5))
    writer = threading.Thread(target=(tmp_path / "pipe.npy").write_bytes, args=(data,))
    writer.start()
    loaded = load(f"{tmp_path}/pipe.npy")
    writer.join()
    assert loaded.arrays[""].shape == (3, 5)
    reading, writing = os.pipe()
    os.write(writing, b"[[1, 2], [3, 4]]")
    os.close(writing)
    assert load(f"/dev/fd/{reading}").arrays[""].shape == (2, 2)
    os.close(reading)


def test_an_inline_object_and_a_path_that_looks_like_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load('{"q": [[1, 2]]}')
    assert (loaded.origin, loaded.arrays["q"].tolist()) == ("the inline literal", [[1, 2]])
    assert load("  [[1, 2, 3], [4, 5, 6.5]]").arrays[""].tolist() == [[1, 2, 3], [4, 5, 6.5]]
    monkeypatch.chdir(folder.path)
    folder.write("[[7]]", "{x}.json")
    assert load("{x}.json").arrays[""].tolist() == [[7]]


def error_of(source: str, stdin: bytes = b"") -> str:
    with pytest.raises(InputError) as caught:
        load(source, stdin=io.BytesIO(stdin))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("", "a path is expected"),
        ("q.npz::", "names no array after ::"),
        ("a\0b", "'a\\x00b' cannot be read: not a path"),
        ("no\x1b[31m", "'no\\x1b[31m' does not exist"),
        (" ", "' ' does not exist"),
        ("q\0::k", "'q\\x00' cannot be read"),
        ("[[1, 2], [3 4]]", "the inline literal is not JSON: line 1, column 13"),
        ("-", "standard input is empty"),
        ("/dev/zero", "of no format"),
        ("/dev", "is a directory"),
        ("/no/q.npy", "there is no folder /no"),
    ],
)
def test_sources_that_are_refused(source: str, key: str) -> None:
    assert key in error_of(source)


def test_a_missing_file_hints_at_near_names(folder: Folder) -> None:
    folder.write("[[1]]", "qkv.json")
    hint = f"qvk.json does not exist; did you mean {folder.path}/qkv.json?"
    assert error_of(f"{folder.path}/qvk.json").endswith(hint)


def test_no_permission(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = folder.write(npy([[1]]), "q.npy")
    monkeypatch.setattr("builtins.open", refuse)
    assert "cannot be read: Permission denied" in error_of(path)


GZIPPED = gzip.compress(b"1", mtime=0)
REFUSED = [
    *((f"q{ending}", b"", "is empty") for ending in (".json", ".npy", ".npz", ".csv", "")),
    ("q.safetensors", b"", "is empty"),
    ("q.pt", b"PK\x03\x04", "a PyTorch file"),
    ("q.pth", b"x", "a PyTorch file"),
    ("q.pkl", b"x", "a pickle"),
    ("q.h5", b"x", "an HDF5 file"),
    ("q.mat", b"x", "a MATLAB file"),
    ("q.parquet", b"x", "a Parquet file"),
    ("q.xlsx", b"PK\x03\x04", "a spreadsheet"),
    ("q", b"\x80\x04\x95\x00", "a pickle"),
    ("q.npy", b"\x80\x02}q\x00", "a pickle"),
    ("q", b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    ("q.dat", b"\0\1\2\3" * 9, "of no format that attncli reads; it reads .json, .npy, .npz, .csv"),
    ("q.dat", b"hello\nworld\n", "of no format"),
    ("q.dat", b"\xff\xd8\xff\xe0", "of no format"),
    ("x.csv", b"BZh91AY&SY", "a bzip2 file"),
    ("x.json", b"\n<!DOCTYPE html><html>", "a web page"),
    ("x.npy", b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
    ("x.zip", zipped({"a.json": b"", "b.json": b""}), "a.json, b.json; name one: x.zip::a.json"),
    ("x.zip", zipped({}), "holds no file"),
    ("x.zip", zipped({"a.md": b"hello"}), "of no format"),
    ("x.zip", zipped({"q.json": b""}), "is empty"),
    ("x.zip", zipped({"q.pt": b"PK"}), "a PyTorch file"),
    ("x.zip", zipped({"q.json": JSON})[:-30], "not a valid zip"),
    ("x.zip", zipped({"q.csv": b"1,2\n"}, zipfile.ZIP_BZIP2), "not compressed with deflate"),
    ("x.zip", zipped({"q.csv": b"1,2\n"}, zipfile.ZIP_LZMA), "not compressed with deflate"),
    ("x.npz", zipped({"q.npy": npy([[1]])}, zipfile.ZIP_LZMA), "not compressed with deflate"),
    ("x.zip", encrypted(zipped({"q.json": JSON})), "is encrypted"),
    ("x.zip", zipped({"q.gz": GZIPPED}), "gzip inside another file"),
    ("x.gz", gzip.compress(GZIPPED, mtime=0), "gzip inside another file"),
    ("x.json.gz", gzip.compress(JSON * 999, mtime=0)[:-9], "is damaged"),
    ("x.gz", b"\x1f\x8b\x08", "is damaged"),
    ("x.pt.gz", b"x", "a PyTorch file"),
]


@pytest.mark.parametrize(("name", "content", "key"), REFUSED, ids=cell_name)
def test_files_that_are_refused(name: str, content: bytes, key: str, folder: Folder) -> None:
    assert key in folder.refusal(content, name)


TWO = zipped({"a/x.json": b"[[1]]", "b/x.json": b"[[2]]"})
TWINS = zipped({"x.json": b"[[1]]", "y.json": b"[[2]]"}).replace(b"y.json", b"x.json")


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (zipped({"a.json": b"", "b.json": b""}), "no 'x.json'; it holds a.json, b.json; name one"),
        (TWO, "2 files 'x.json': a/x.json, b/x.json; name one: x.zip::a/x.json"),
        (TWINS, "x.json, x.json; zip it again"),
    ],
    ids=cell_name,
)
def test_members_that_are_not_one_file(content: bytes, key: str, folder: Folder) -> None:
    assert key in folder.refusal(content, "x.zip", "x.json")


@pytest.mark.parametrize("name", ["x.json.gz", "x.zip"])
def test_what_is_packed_very_small_or_is_more_than_allowed_is_refused_while_unpacking(
    name: str, folder: Folder
) -> None:
    def pack(text: bytes) -> bytes:
        whole = zipped({"x.json": text}, zipfile.ZIP_DEFLATED)
        return whole if name == "x.zip" else gzip.compress(text, 1)

    spaces = pack(b"[" + b" " * (11 << 20) + b"[1]]")
    assert "unpacks to more than 10 MB of text" in folder.refusal(spaces, name)
    if name == "x.json.gz":
        with pytest.raises(SizeError, match="unpacks to more than 10 MB of text"):
            load("-", stdin=io.BytesIO(spaces))
    with limited(1_200_000_000):
        assert folder.load(spaces, name).arrays
    numbers = (
        np.random.default_rng(3).normal(size=100_000).round(7).tolist()
    )  # 1.1 MB, of which 1.05 are read
    with limited(3_000_000):
        assert "takes at least 5.243 MB" in folder.refusal(pack(str([numbers]).encode()), name)


def test_a_stream_is_read_as_far_as_is_allowed() -> None:
    text = b"[[" + b"1," * (1 << 19) + b"1]]"
    with limited(5 << 20), pytest.raises(SizeError, match=r"at least 5\.243 MB, 5\.243 MB are"):
        load("-", stdin=io.BytesIO(text))


@pytest.mark.parametrize(
    ("name", "text", "key"),
    [
        ("x.json", b"[" + b"[1]," * 30_000 + b"[1]]", "has 60,002 values"),
        ("x.json", b"[[" + b'"NaN",' * 20_001 + b"1]]", "has 40,004 values"),
        ("x.json", b'{"q": [[1]], "x": [' + b"{}," * 10_000 + b"1]}", "has 50,010 values"),
        ("x.csv", b"a,2\n" * 300_000, "has 600,000 cells"),
        ("x.csv", b"\n" * (1 << 20), "has 1.049 million cells"),
        ("x.txt", b"1 2  3\n" * 200_000, "has 799,999 cells"),
    ],
    ids=cell_name,
)
def test_what_a_text_holds_is_counted_before_it_is_made(
    name: str, text: bytes, key: str, folder: Folder
) -> None:
    with limited(40_000 * 50 if name == "x.json" else 500_000 * 50):
        assert key in folder.refusal(text, name)
