"""write_atomically: the whole file or none, and what was there before untouched."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from attncli.errors import OutputError
from attncli.files.load import load
from attncli.files.write import write_atomically, write_npy, write_npz
from attncli.trace import Stage, Trace

from .saved import stage_npy

STAGE = Stage("output", "O", "O = A V", np.arange(15.0).reshape(3, 5), ("query", "d_v"))


def write_bytes(path: str, *pieces: bytes, force: bool) -> None:
    write_atomically(path, lambda file: file.writelines(pieces), force=force)


def test_new_file_has_the_content_and_the_usual_mode(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    write_bytes(str(path), b"ab", b"c", force=False)
    other = tmp_path / "y"
    other.touch()
    assert path.read_bytes() == b"abc"
    assert path.stat().st_mode == other.stat().st_mode
    assert sorted(os.listdir(tmp_path)) == ["x.bin", "y"]


def test_existing_file_needs_force(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    with pytest.raises(OutputError) as caught:
        write_bytes(str(path), b"new", force=False)
    assert str(caught.value) == f"{path} exists already; replace it with --force"
    assert path.read_bytes() == b"old"
    write_bytes(str(path), b"new", force=True)
    assert path.read_bytes() == b"new"


def test_mode_of_a_replaced_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_bytes(str(path), b"new", force=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError, ValueError])
@pytest.mark.parametrize("existing", [True, False])
def test_interrupted_writing_leaves_nothing(
    error: type[BaseException], existing: bool, tmp_path: Path
) -> None:
    path = tmp_path / "x.bin"
    if existing:
        path.write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise error

    with pytest.raises(error):
        write_atomically(str(path), write, force=True)
    assert os.listdir(tmp_path) == (["x.bin"] if existing else [])
    assert not existing or path.read_bytes() == b"old"


def test_full_disk_while_writing(tmp_path: Path) -> None:
    def write(file: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OutputError, match=r"x\.bin cannot be written: No space left on device$"):
        write_atomically(f"{tmp_path}/x.bin", write, force=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a Linux device")
def test_full_device() -> None:
    with pytest.raises(OutputError, match="/dev/full cannot be written: No space left on device"):
        write_bytes("/dev/full", b"x", force=False)


def test_devices_are_written_directly() -> None:
    write_bytes("/dev/null", b"x", force=False)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_bytes(str(pipe), b"abc", force=False)
    reader.join()
    assert found == [b"abc"]
    assert os.listdir(tmp_path) == ["pipe"]


def test_broken_pipe_is_raised_to_the_caller() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        write_bytes(f"/dev/fd/{writing}", b"x" * 100_000, force=False)
    os.close(writing)


def test_standard_output_that_is_a_pipe() -> None:
    code = "from attncli.files.write import write_atomically as w; w('/dev/stdout', lambda f: f.write(b'x'), force=False)"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"x"


def test_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_bytes(f"{tmp_path}/link", b"new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_dangling_link_creates_its_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    write_bytes(f"{tmp_path}/link", b"new", force=False)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(OutputError, match=r"x cannot be written: Permission denied$"):
        write_bytes(f"{tmp_path}/x", b"", force=False)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "{}/ is a directory; name a file in it"),
        ("no/x", "{0}/no/x cannot be written: No such file or directory; make the folder {0}/no"),
        ("file/x", "{}/file/x cannot be written: Not a directory"),
        ("a\0b", "'{}/a\\x00b' is not a path"),
        ("x" * 300, "{}/xxxx"),
    ],
)
def test_paths_that_cannot_be_written(path: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError) as caught:
        write_bytes(f"{tmp_path}/{path}", b"", force=True)
    assert str(caught.value).startswith(expected.format(tmp_path))
    assert os.listdir(tmp_path) == ["file"]


def test_leftover_of_another_run_is_not_touched(tmp_path: Path) -> None:
    leftover = tmp_path / ".attncli-0.tmp"
    leftover.write_bytes(b"theirs")
    write_bytes(f"{tmp_path}/x", b"mine", force=False)
    assert leftover.read_bytes() == b"theirs"
    assert (tmp_path / "x").read_bytes() == b"mine"


def test_stage_as_npy(tmp_path: Path) -> None:
    write_atomically(f"{tmp_path}/o.npy", partial(write_npy, STAGE), force=False)
    assert np.load(io.BytesIO(stage_npy(STAGE))).tolist() == STAGE.value.tolist()
    assert load(f"{tmp_path}/o.npy").arrays[""].tolist() == STAGE.value.tolist()


def test_trace_as_npz_to_a_file_and_to_a_pipe(tmp_path: Path) -> None:
    write_atomically(f"{tmp_path}/t.npz", partial(write_npz, Trace("T", (STAGE,))), force=False)
    assert load(f"{tmp_path}/t.npz").arrays["output"].tolist() == STAGE.value.tolist()


@pytest.mark.parametrize("has_links", [True, False])
def test_of_two_writers_without_force_the_second_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def no_link(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    if not has_links:
        monkeypatch.setattr(os, "link", no_link)
    target = tmp_path / "out.json"

    def slow(file: BinaryIO) -> None:
        write_atomically(str(target), lambda other: other.write(b"first"), force=False)
        file.write(b"second")

    with pytest.raises(OutputError, match="exists already; replace it with --force"):
        write_atomically(str(target), slow, force=False)
    assert target.read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
