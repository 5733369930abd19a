"""SOURCE: paths, members, standard input, pipes, literals; format detection; what is refused."""

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
from attncli.files.load import load


def message(source: str, stdin: bytes | None = None) -> str:
    """The error of load for a source that it refuses."""
    with pytest.raises((InputError, SizeError)) as caught:
        load(source, stdin=None if stdin is None else io.BytesIO(stdin))
    error = str(caught.value)
    assert "\n" not in error
    return error


def npz(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def test_literal_is_one_matrix_without_a_name() -> None:
    loaded = load("  [[1, 2, 3], [4, 5, 6.5]]")
    assert loaded.origin == "the inline literal"
    assert list(loaded.arrays) == [""]
    assert loaded.arrays[""].tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]]


def test_error_in_a_literal_names_its_column() -> None:
    assert message("[[1, 2], [3 4]]").startswith(
        "the inline literal is not JSON: line 1, column 13"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"q": [[1, 2]]}', [[1, 2]]),
        (b"\xef\xbb\xbf[[1, 2]]", [[1, 2]]),
        (npy([[1, 2]]), [[1, 2]]),
        (npz(q=[[1, 2]]), [[1, 2]]),
        (b"1,2\n", [[1, 2]]),
        (b"1\t2\n", [[1, 2]]),
        (b"1;2\n", [[1, 2]]),
        (b" 1  2\n", [[1, 2]]),
        (b"[CLS],1,2\n", [[1, 2]]),
        (b"1\n2\n", [[1], [2]]),
        (b"0,0\n", [[0, 0]]),
    ],
)
@pytest.mark.parametrize("name", [None, "file", "file.dat"])
def test_format_is_detected_from_the_content(
    content: bytes, expected: list[list[int]], name: str | None, tmp_path: Path
) -> None:
    if name is None:
        loaded = load("-", stdin=io.BytesIO(content))
        assert loaded.origin == "standard input"
    else:
        (tmp_path / name).write_bytes(content)
        loaded = load(str(tmp_path / name))
    (array,) = loaded.arrays.values()
    assert array.tolist() == expected


def test_member_of_standard_input() -> None:
    loaded = load("-::key", stdin=io.BytesIO(npz(q=[[1]], key=[[2, 3]])))
    assert loaded.member == "key"
    assert {name: a.tolist() for name, a in loaded.arrays.items()} == {"key": [[2, 3]]}


def test_standard_input_of_the_process_is_the_default() -> None:
    code = "from attncli.files.load import load; print(load('-').arrays[''].tolist())"
    done = subprocess.run(
        [sys.executable, "-c", code], input=b"[[2, 3]]", capture_output=True, check=True
    )
    assert done.stdout.split() == [b"[[2,", b"3]]"]


def test_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.npy"
    os.mkfifo(pipe)
    data = npy(np.arange(15.0).reshape(3, 5))
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    loaded = load(str(pipe))
    writer.join()
    assert loaded.arrays[""].shape == (3, 5)


def test_file_descriptor_path_is_read() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"[[1, 2], [3, 4]]")
    os.close(writing)
    assert load(f"/dev/fd/{reading}").arrays[""].shape == (2, 2)
    os.close(reading)


def test_path_with_colons_that_exists_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "a::b.json"
    path.write_text("[[7]]")
    assert load(str(path)).arrays[""].tolist() == [[7]]


def test_missing_file_hints_at_near_names(tmp_path: Path) -> None:
    (tmp_path / "qkv.json").write_text("[[1]]")
    wrong = tmp_path / "qvk.json"
    assert message(str(wrong)) == f"{wrong} does not exist; did you mean {tmp_path}/qkv.json?"


def test_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no" / "q.npy"
    assert message(str(path)) == f"{path} does not exist; there is no folder {tmp_path}/no"


def test_directory(tmp_path: Path) -> None:
    assert message(str(tmp_path)) == f"{tmp_path} is a directory; name a file in it"


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "q.npy"
    path.write_bytes(npy([[1]]))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    assert message(str(path)) == f"{path} cannot be read: Permission denied"


@pytest.mark.parametrize("name", ["q.json", "q.npy", "q.npz", "q.csv", "q.safetensors", "q"])
def test_empty_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    assert message(str(path)).startswith(f"{path} is empty")


def test_empty_standard_input() -> None:
    assert message("-", b"").startswith("standard input is empty")


@pytest.mark.parametrize(
    ("name", "content", "what", "hint"),
    [
        ("q.pt", b"PK\x03\x04", "a PyTorch file", "numpy.savez"),
        ("q.pth", b"x", "a PyTorch file", "numpy.savez"),
        ("q.pkl", b"x", "a pickle", "numpy.savez"),
        ("q.h5", b"x", "an HDF5 file", "h5py"),
        ("q.mat", b"x", "a MATLAB file", "scipy.io.loadmat"),
        ("q.parquet", b"x", "a Parquet file", "csv"),
        ("q.xlsx", b"PK\x03\x04", "a spreadsheet", "csv"),
        ("q", b"\x80\x04\x95\x00", "a pickle", "numpy.savez"),
        ("q.npy", b"\x80\x02}q\x00", "a pickle", "numpy.savez"),
        ("q", b"\x89HDF\r\n\x1a\n", "an HDF5 file", "h5py"),
    ],
)
def test_known_formats_that_are_refused(
    name: str, content: bytes, what: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    error = message(str(path))
    assert error.startswith(f"{path} is {what}")
    assert hint in error


@pytest.mark.parametrize("content", [b"\0\1\2\3" * 9, b"hello\nworld\n", b"\xff\xd8\xff\xe0"])
def test_unknown_format_lists_those_that_are_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "q.dat"
    path.write_bytes(content)
    assert message(str(path)) == (
        f"{path} is of no format that attncli reads; "
        "it reads .json, .npy, .npz, .csv, .tsv, .txt, .safetensors, not .dat"
    )


def test_endless_device_is_refused_at_once() -> None:
    assert "of no format" in message("/dev/zero")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", "a path is expected"),
        ("q.npz::", "q.npz:: names no array after ::"),
        ("a\0b", "'a\\x00b' cannot be read: not a path"),
        ("no\x1b[31m", "'no\\x1b[31m' does not exist"),
        (" ", "' ' does not exist"),
        ("q\0::k", "'q\\x00' cannot be read"),
    ],
)
def test_invalid_sources(source: str, expected: str) -> None:
    assert message(source).startswith(expected)


def test_a_stream_is_read_as_far_as_is_allowed() -> None:
    text = b"[[" + b"1," * (1 << 21) + b"1]]"
    with limited(20 << 20):
        error = message("-", text)
    assert error == (
        "standard input takes at least 20.97 MB, 20.97 MB are allowed; "
        "save the arrays as npy or npz, or --max-size 30MB"
    )


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("x.json", b"[" + b"[1]," * 30_000 + b"[1]]", "has 60,002 values"),
        ("x.json", b"[[" + b'"NaN",' * 20_001 + b"1]]", "has 40,004 values"),
        ("x.json", b'{"q": [[1]], "x": [' + b"{}," * 10_000 + b"1]}", "has 50,010 values"),
        ("x.csv", b"a,2\n" * 300_000, "has 600,000 cells"),
        ("x.csv", b"\n" * (1 << 20), "has 1.049 million cells"),
        ("x.txt", b"1 2  3\n" * 200_000, "has 799,999 cells"),
    ],
)
def test_what_a_text_holds_is_counted_before_it_is_made(
    name: str, text: bytes, what: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(text)
    with limited(40_000 * 50 if name == "x.json" else 500_000 * 50):
        assert what in message(f"{tmp_path}/{name}")


PACKED = {
    "q.json": b'{"q": [[1, 2]], "k": [[3, 4]]}',
    "q.npy": npy([[1, 2]]),
    "q.npz": npz(q=[[1, 2]], k=[[3, 4]]),
    "q.csv": b"1,2\n",
    "q": b"[[1, 2]]",
}


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("by", ["path", "stdin"])
def test_gzipped_files_are_read(name: str, by: str, tmp_path: Path) -> None:
    data = gzip.compress(PACKED[name], mtime=0)
    (tmp_path / f"{name}.gz").write_bytes(data)
    loaded = load(f"{tmp_path}/{name}.gz") if by == "path" else load("-", stdin=io.BytesIO(data))
    assert next(iter(loaded.arrays.values())).tolist() == [[1, 2]]


def test_one_array_of_a_gzipped_file(tmp_path: Path) -> None:
    (tmp_path / "x.json.gz").write_bytes(gzip.compress(PACKED["q.json"]))
    assert load(f"{tmp_path}/x.json.gz::k").arrays["k"].tolist() == [[3, 4]]


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("by", ["path", "stdin"])
def test_members_of_a_zip_are_read(name: str, by: str, tmp_path: Path) -> None:
    data = zipped({"d/other.txt": b"", f"d/{name}": PACKED[name]})
    (tmp_path / "x.zip").write_bytes(data)
    for member in (f"d/{name}", name):
        stdin = io.BytesIO(data)
        loaded = load(
            f"{tmp_path}/x.zip::{member}" if by == "path" else f"-::{member}", stdin=stdin
        )
        assert next(iter(loaded.arrays.values())).tolist() == [[1, 2]]


@pytest.mark.parametrize("name", ["q.json", "q.npz"])
def test_one_array_of_a_member(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zipped({"other.txt": b"", name: PACKED[name]}))
    loaded = load(f"{tmp_path}/x.zip::{name}::k")
    assert loaded.arrays["k"].tolist() == [[3, 4]]
    assert loaded.origin == f"{tmp_path}/x.zip::{name}"


def test_the_only_file_of_a_zip_needs_no_name(tmp_path: Path) -> None:
    members = {"d/": b"", "__MACOSX/._q.json": b"?", "d/q.json": PACKED["q.json"]}
    (tmp_path / "x.zip").write_bytes(zipped(members))
    assert load(f"{tmp_path}/x.zip").arrays["q"].tolist() == [[1, 2]]
    assert load(f"{tmp_path}/x.zip::k").arrays["k"].tolist() == [[3, 4]]


def test_file_in_a_hidden_folder_of_a_zip_is_read(tmp_path: Path) -> None:
    members = {"d/.hidden": b"?", "d/.git/q.json": PACKED["q.json"]}
    (tmp_path / "x.zip").write_bytes(zipped(members))
    assert load(f"{tmp_path}/x.zip").arrays["q"].tolist() == [[1, 2]]


def test_a_zip_of_npy_files_is_an_npz_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zipped({"a.npy": npy([[1]]), "b.npy": npy([[2]])}))
    assert load(f"{tmp_path}/x.zip::b").arrays["b"].tolist() == [[2]]
    assert load(f"{tmp_path}/x.zip::b.npy").arrays[""].tolist() == [[2]]


def flagged() -> bytes:
    """A zip whose member says that it is encrypted."""
    data = bytearray(zipped({"q.json": PACKED["q.json"]}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.zip", zipped({"a.json": b"", "b.json": b""}), "x.zip holds a.json, b.json; name one: x.zip::a.json"),
        ("x.zip", zipped({}), "x.zip holds no file"),
        ("x.zip", zipped({"a.md": b"hello"}), "x.zip is of no format"),
        ("x.zip", zipped({"q.json": b""}), "x.zip is empty"),
        ("x.zip", zipped({"q.pt": b"PK"}), "x.zip is a PyTorch file"),
        ("x.zip", zipped({"q.json": PACKED["q.json"]})[:-30], "x.zip is not a valid zip file"),
        ("x.zip", zipped({"q.csv": b"1,2\n"}, zipfile.ZIP_BZIP2), "x.zip is not compressed with deflate"),
        ("x.zip", zipped({"q.csv": b"1,2\n"}, zipfile.ZIP_LZMA), "x.zip is not compressed with deflate"),
        ("x.npz", zipped({"q.npy": npy([[1]])}, zipfile.ZIP_LZMA), "x.npz is not compressed with deflate"),
        ("x.zip", flagged(), "x.zip is encrypted; save it without a password"),
        ("x.zip", zipped({"q.gz": gzip.compress(b"1", mtime=0)}), "x.zip is gzip inside another file"),
        ("x.gz", gzip.compress(gzip.compress(b"1", mtime=0), mtime=0), "x.gz is gzip inside another file"),
        ("x.json.gz", gzip.compress(PACKED["q.json"] * 999, mtime=0)[:-9], "x.json.gz is damaged: Compressed"),
        ("x.gz", b"\x1f\x8b\x08", "x.gz is damaged: "),
        ("x.pt.gz", b"x", "x.pt.gz is a PyTorch file"),
        ("x.csv", b"BZh91AY&SY", "x.csv is a bzip2 file; unpack it first"),
        ("x.json", b"\n<!DOCTYPE html><html>", "x.json is a web page; download the file"),
        ("x.npy", b"version https://git-lfs.github.com/spec/v1\n", "x.npy is a Git LFS pointer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # a zip holds the time
)  # fmt: skip
def test_packed_files_that_are_refused(
    name: str, content: bytes, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert message(str(path)).replace(f"{tmp_path}/", "").startswith(expected)


def test_a_member_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zipped({"a.json": b"", "b.json": b""}))
    assert message(f"{tmp_path}/x.zip::c.json") == (
        f"{tmp_path}/x.zip holds no 'c.json'; it holds a.json, b.json; "
        f"name one: {tmp_path}/x.zip::a.json"
    )


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(zipped({"a/x.json": b"[[1]]", "b/x.json": b"[[2]]"}))
    assert message(f"{tmp_path}/x.zip::x.json") == (
        f"{tmp_path}/x.zip holds 2 files 'x.json': a/x.json, b/x.json; "
        f"name one: {tmp_path}/x.zip::a/x.json"
    )
    twins = zipped({"x.json": b"[[1]]", "y.json": b"[[2]]"}).replace(b"y.json", b"x.json")
    (tmp_path / "x.zip").write_bytes(twins)
    assert message(f"{tmp_path}/x.zip::x.json").endswith("x.json, x.json; zip it again")


@pytest.mark.parametrize("name", ["x.json.gz", "x.zip", "-"])
def test_text_that_is_packed_very_small_is_refused_while_unpacking(
    name: str, tmp_path: Path
) -> None:
    spaces = b"[" + b" " * (11 << 20) + b"[1]]"
    data = zipped({"x.json": spaces}) if name == "x.zip" else gzip.compress(spaces)
    (tmp_path / name).write_bytes(data)
    error = message(name, data) if name == "-" else message(f"{tmp_path}/{name}")
    assert "unpacks to more than 10 MB of text; unpack it, and name what it holds" in error
    with limited(1_200_000_000):
        assert load(f"{tmp_path}/{name}" if name != "-" else "-", stdin=io.BytesIO(data)).arrays


@pytest.mark.parametrize("name", ["x.json.gz", "x.zip"])
def test_more_than_is_allowed_is_refused_while_unpacking(name: str, tmp_path: Path) -> None:
    numbers = np.random.default_rng(3).normal(size=200_000).round(7).tolist()
    data = str([numbers]).encode()  # 2.2 MB
    packed = zipped({"x.json": data}) if name == "x.zip" else gzip.compress(data)
    (tmp_path / name).write_bytes(packed)
    with limited(10_000_000):
        assert "takes at least 10." in message(f"{tmp_path}/{name}")


def test_an_inline_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load('{"q": [[1, 2]]}').arrays["q"].tolist() == [[1, 2]]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "{x}.json").write_text("[[7]]")
    assert load("{x}.json").arrays[""].tolist() == [[7]]


def test_reading_json_imports_no_other_format() -> None:
    code = (
        "import sys; before = set(sys.modules); import numpy; mid = set(sys.modules)\n"
        "from attncli.files.load import load; load('[[1]]')\n"
        "new = set(sys.modules) - mid\n"
        "print(sorted(new & {'csv', 'zipfile', 'gzip', 'tempfile', 'safetensors', 'pathlib', 'pydantic'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
