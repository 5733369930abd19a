"""safetensors in: types, bfloat16 widened exactly, damage, and files that are cut."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.errors import InputError
from attncli.files.load import load


def pack(**tensors: tuple[str, list[int], bytes]) -> bytes:
    """A safetensors file: name = (type, shape, bytes)."""
    entries: dict[str, Any] = {}
    data = b""
    for name, (code, shape, raw) in tensors.items():
        offsets = [len(data), len(data) + len(raw)]
        entries[name] = {"dtype": code, "shape": shape, "data_offsets": offsets}
        data += raw
    head = json.dumps(entries).encode()
    return struct.pack("<Q", len(head)) + head + data


F32 = np.arange(6, dtype="<f4").reshape(2, 3)


def message(tmp_path: Path, data: bytes, member: str = "") -> str:
    (tmp_path / "x.safetensors").write_bytes(data)
    with pytest.raises(InputError) as caught:
        load(f"{tmp_path}/x.safetensors" + (f"::{member}" if member else ""))
    return str(caught.value).replace(f"{tmp_path}/", "")


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    rows = np.arange(2003 * 2003, dtype="<f4")
    tensors = {f"x{i}": ("F32", [2003, 2003], rows.tobytes()) for i in range(2)}
    path = tmp_path / "x.safetensors"
    path.write_bytes(pack(q=("BF16", [1, 3], b"\x80\x3f" * 3), **tensors))
    load(str(path))  # what is imported is not counted
    tracemalloc.start()
    loaded = load(str(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (loaded.arrays["q"].tolist(), loaded.unread) == ([[1.0, 1.0, 1.0]], ("x0", "x1"))
    assert peak < rows.nbytes / 8
    one = load(f"{path}::x1").arrays["x1"]
    np.testing.assert_array_equal(one.reshape(-1), rows)
    packed = load("-", stdin=io.BytesIO(gzip.compress(path.read_bytes(), 1)))
    assert packed.arrays["q"].tolist() == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("code", "dtype"),
    [("F64", "<f8"), ("F32", "<f4"), ("F16", "<f2"), ("I64", "<i8"), ("U8", "u1"), ("BOOL", "?")],
)
def test_types(code: str, dtype: str, tmp_path: Path) -> None:
    array = F32.astype(dtype)
    (tmp_path / "x.safetensors").write_bytes(pack(q=(code, [2, 3], array.tobytes())))
    found = load(f"{tmp_path}/x.safetensors").arrays["q"]
    assert found.tolist() == array.tolist()
    assert found.dtype == array.dtype


def test_bfloat16_is_the_upper_half_of_a_float32() -> None:
    # 1.0 = 0x3f80, -2.5 = 0xc020, the least subnormal = 0x0001, −∞ = 0xff80
    raw = struct.pack("<4H", 0x3F80, 0xC020, 0x0001, 0xFF80)
    loaded = load("-", stdin=io.BytesIO(pack(q=("BF16", [2, 2], raw))))
    assert loaded.arrays["q"].tolist() == [[1.0, -2.5], [2.0**-133, -np.inf]]
    assert loaded.arrays["q"].dtype == np.float32


def test_member_and_scale(tmp_path: Path) -> None:
    data = pack(
        **{
            "scale": ("F32", [], struct.pack("<f", 0.5)),
            "layers.0.self_attn.q": ("F32", [2, 3], F32.tobytes()),
            "f8": ("F8_E4M3", [2], b"ab"),
        }
    )
    (tmp_path / "x.safetensors").write_bytes(data)
    loaded = load(f"{tmp_path}/x.safetensors")
    assert (loaded.unread, loaded.scale) == (("f8", "layers.0.self_attn.q"), 0.5)
    one = load(f"{tmp_path}/x.safetensors::layers.0.self_attn.q")
    assert one.arrays["layers.0.self_attn.q"].tolist() == F32.tolist()
    assert message(tmp_path, data, "f8").startswith("x.safetensors, f8 has the type 'F8_E4M3'")


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    tensor = b'"q": {"dtype": "%s", "shape": [1, 1], "data_offsets": [0, 4]}'
    head = b"{" + tensor % b"F32" + b", " + tensor % b"I32" + b"}"
    data = struct.pack("<Q", len(head)) + head + bytes(4)
    assert message(tmp_path, data) == "x.safetensors has the key 'q' twice; keep one of them"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (pack(q=("F32", [2, 3], F32.tobytes()))[:-1], "x.safetensors is not a valid safetensors"),
        (pack(q=("F32", [9, 9], F32.tobytes())), "x.safetensors is not a valid safetensors file"),
        (b"\xff" * 30, "x.safetensors is not a valid safetensors file"),
        (b"{}", "x.safetensors is not a valid safetensors file"),
        (pack(), "x.safetensors holds no array"),
        (pack(q=("F8_E5M2", [2], b"ab")), "x.safetensors, q has the type 'F8_E5M2'; save it as"),
        (pack(q=("F32", [0, 3], b"")), "x.safetensors, q is empty"),
        (
            pack(q=("I8", [1, 1], b"a"), scale=("I8", [], b"a"), SCALE=("I8", [], b"b")),
            "x.safetensors has scale twice, in other letters; keep one of them",
        ),
    ],
)
def test_refusals(data: bytes, expected: str, tmp_path: Path) -> None:
    assert message(tmp_path, data).startswith(expected)


@pytest.mark.parametrize("key", ["dtype", "shape", "data_offsets"])
@pytest.mark.parametrize("value", [None, 1.0, "ab", {}, [], [True, True], [0, 4.0], [2**70, 4]])
def test_a_header_of_other_types_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    if (key, value) == ("shape", []):  # one number
        return
    entry = {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]} | {key: value}
    head = json.dumps({"q": entry}).encode()
    assert "x.safetensors" in message(tmp_path, struct.pack("<Q", len(head)) + head + bytes(4))


def test_tensors_that_overlap_or_leave_a_hole_are_refused(tmp_path: Path) -> None:
    for offsets in ([(0, 4), (0, 4)], [(0, 4), (8, 12)], [(4, 8), (0, 3)], [(-4, 0), (0, 12)]):
        entries = {
            name: {"dtype": "F32", "shape": [1, 1], "data_offsets": own}
            for name, own in zip("qk", offsets, strict=True)
        }
        head = json.dumps(entries).encode()
        data = struct.pack("<Q", len(head)) + head + bytes(12)
        assert message(tmp_path, data).startswith("x.safetensors is not a valid safetensors file")


@pytest.mark.parametrize("form", ["safetensors", "npy"])
def test_a_file_that_is_cut_once_it_is_read(tmp_path: Path, form: str) -> None:
    """It is cut while the next one is opened: what was read is used, and no signal ends the call."""
    q = np.ones((1 << 19, 8))
    if form == "npy":
        np.save(tmp_path / "q.npy", q)
    else:
        (tmp_path / "q.safetensors").write_bytes(pack(q=("F64", [*q.shape], q.tobytes())))
    os.mkfifo(tmp_path / "k.npy")
    flags = ("--q", f"q.{form}", "--k", "k.npy", "--v", "[[3, 4]]", "--output", "o.npy")
    call = [sys.executable, "-m", "attncli", "compute", *flags]
    with subprocess.Popen(call, cwd=tmp_path, stderr=subprocess.PIPE) as running:
        with open(tmp_path / "k.npy", "wb") as file:  # once the call opens it too
            os.truncate(tmp_path / f"q.{form}", 1000)
            packed = io.BytesIO()
            np.save(packed, np.ones((1, 8)))
            file.write(packed.getvalue())
        _, said = running.communicate(timeout=60)
    assert (running.returncode, said) == (0, b"")
    assert (np.load(tmp_path / "o.npy") == [3, 4]).all()
