"""SOURCE: paths, members, standard input, pipes, literals; formats told apart; what is refused."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.files.load import load


def message(source: str, stdin: bytes | None = None) -> str:
    """What load says of a source it refuses."""
    with pytest.raises(InputError) as caught:
        load(source, stdin=None if stdin is None else io.BytesIO(stdin))
    said = str(caught.value)
    assert "\n" not in said
    return said


def npz(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=True, **arrays)  # type: ignore[arg-type]
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


def test_literal_with_a_slip_names_its_place() -> None:
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
def test_format_is_told_by_the_content(
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
        ("q.npy.gz", b"x", "compressed with gzip", "gunzip"),
        ("q.xlsx", b"PK\x03\x04", "a spreadsheet", "csv"),
        ("q", b"\x80\x04\x95\x00", "a pickle", "numpy.savez"),
        ("q.npy", b"\x80\x02}q\x00", "a pickle", "numpy.savez"),
        ("q", b"\x89HDF\r\n\x1a\n", "an HDF5 file", "h5py"),
        ("q", b"\x1f\x8b\x08", "compressed with gzip", "gunzip"),
    ],
)
def test_known_formats_that_are_refused(
    name: str, content: bytes, what: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    said = message(str(path))
    assert said.startswith(f"{path} is {what}")
    assert hint in said


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
        ("q\0::k", "'q\\x00' cannot be read"),
    ],
)
def test_odd_sources(source: str, expected: str) -> None:
    assert message(source).startswith(expected)


def test_stream_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attncli.files.blob.STREAM_LIMIT", 5000)
    said = message("-", b"[[" + b"1," * 5000)
    assert said == "standard input holds more than 4 GiB; save it to a file and name that"


def test_reading_json_imports_no_other_format() -> None:
    code = (
        "import sys; before = set(sys.modules); import numpy; mid = set(sys.modules)\n"
        "from attncli.files.load import load; load('[[1]]')\n"
        "new = set(sys.modules) - mid\n"
        "print(sorted(new & {'csv', 'zipfile', 'tempfile', 'safetensors', 'pathlib'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
