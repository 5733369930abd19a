"""write_atomically: the whole file or none, and what was there before untouched."""

from __future__ import annotations

import os
import re
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
from attncli.trace import Stage, Trace

from .saved import load, write_atomically, write_npy, write_npz

STAGE = Stage("output", "O", "O = A V", np.arange(15.0).reshape(3, 5), ("query", "d_v"))


def write_bytes(path: object, *pieces: bytes, force: bool = False) -> None:
    write_atomically(str(path), lambda file: file.writelines(pieces), force=force)


def test_a_new_file_has_the_content_and_the_usual_mode(tmp_path: Path) -> None:
    leftover = tmp_path / ".attncli-0.tmp"  # of another run: it is not touched
    leftover.write_bytes(b"theirs")
    write_bytes(tmp_path / "x.bin", b"ab", b"c")
    assert (tmp_path / "x.bin").read_bytes() == b"abc"
    assert (tmp_path / "x.bin").stat().st_mode == leftover.stat().st_mode
    assert sorted(os.listdir(tmp_path)) == [".attncli-0.tmp", "x.bin"]
    assert leftover.read_bytes() == b"theirs"


def test_an_existing_file_needs_force_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with pytest.raises(OutputError, match=r"x\.bin exists already; replace it with --force"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    write_bytes(path, b"new", force=True)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), OSError(28, "No space left")])
def test_interrupted_writing_leaves_nothing(
    error: BaseException, is_there: bool, tmp_path: Path
) -> None:
    path = tmp_path / "x.bin"
    if is_there:
        path.write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise error

    with pytest.raises(OutputError if isinstance(error, OSError) else type(error)):
        write_atomically(str(path), write, force=True)
    assert os.listdir(tmp_path) == (["x.bin"] if is_there else [])
    assert not is_there or path.read_bytes() == b"old"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a Linux device")
def test_devices_and_pipes_are_written_directly(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="/dev/full cannot be written: No space left on device"):
        write_bytes("/dev/full", b"x")
    write_bytes("/dev/null", b"x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    os.mkfifo(tmp_path / "pipe")
    contents: list[bytes] = []
    reader = threading.Thread(target=lambda: contents.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_bytes(tmp_path / "pipe", b"abc")
    reader.join()
    assert (contents, os.listdir(tmp_path)) == ([b"abc"], ["pipe"])
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):  # the caller knows what it means
        write_bytes(f"/dev/fd/{writing}", b"x" * 100_000)
    os.close(writing)


def test_standard_output_may_be_a_pipe_and_writing_a_trace_imports_no_pydantic() -> None:
    code = (
        "import sys, numpy as np; from attncli.trace import Stage, Trace\n"
        "from attncli.files.write import trace_json, write_atomically\n"
        "list(trace_json(Trace('T', (Stage('s', 'S', '', np.ones(1), ('a',)),))))\n"
        "text = str('pydantic' in sys.modules).encode()\n"
        "write_atomically('/dev/stdout', lambda file: file.write(text), force=False)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"False"


@pytest.mark.parametrize("is_there", [True, False])
def test_a_symbolic_link_is_followed_also_where_it_dangles(tmp_path: Path, is_there: bool) -> None:
    if is_there:
        (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_bytes(tmp_path / "link", b"new", force=is_there)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(OutputError, match="x cannot be written: Permission denied"):
        write_bytes(tmp_path / "x", b"")


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, key in (
        ("", "is a directory"),
        ("no/x", "No such file or directory; make the folder"),
        ("file/x", "Not a directory"),
        ("a\0b", "a\\x00b' is not a path"),
        ("x" * 300, "cannot be written"),
    ):
        with pytest.raises(OutputError, match=re.escape(key)):
            write_bytes(f"{tmp_path}/{path}", b"", force=True)
        assert os.listdir(tmp_path) == ["file"]


def test_a_stage_as_npy_and_a_trace_as_npz(tmp_path: Path) -> None:
    write_atomically(f"{tmp_path}/o.npy", partial(write_npy, STAGE), force=False)
    write_atomically(f"{tmp_path}/t.npz", partial(write_npz, Trace("T", (STAGE,))), force=False)
    for array in (
        np.load(tmp_path / "o.npy"),
        load(f"{tmp_path}/o.npy").arrays[""],
        load(f"{tmp_path}/t.npz").arrays["output"],
    ):
        assert array.tolist() == STAGE.value.tolist()


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
        write_bytes(target, b"first")
        file.write(b"second")

    with pytest.raises(OutputError, match="exists already"):
        write_atomically(str(target), slow, force=False)
    assert target.read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["out.json"]
