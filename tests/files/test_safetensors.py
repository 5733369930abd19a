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
from typing import Any

import numpy as np
import pytest

from .saved import Folder, cell_name, load, npy, safetensors

NAME = "x.safetensors"
F32 = np.arange(6, dtype="<f4").reshape(2, 3)
SIX = ("F32", [2, 3], F32.tobytes())


def test_only_what_is_asked_for_is_read(folder: Folder) -> None:
    rows = np.arange(1009 * 1013, dtype="<f4")
    large = ("F32", [1009, 1013], rows.tobytes())
    data = safetensors({"q": ("BF16", [1, 3], b"\x80\x3f" * 3), "x0": large, "x1": large})
    path = folder.write(data, NAME)
    load(path)  # what is imported is not counted
    tracemalloc.start()
    loaded = load(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (loaded.arrays["q"].tolist(), loaded.unread) == ([[1.0, 1.0, 1.0]], ("x0", "x1"))
    assert peak < rows.nbytes / 8
    np.testing.assert_array_equal(load(f"{path}::x1").arrays["x1"].reshape(-1), rows)
    packed = load("-", stdin=io.BytesIO(gzip.compress(data, 1)))
    assert packed.arrays["q"].tolist() == [[1.0, 1.0, 1.0]]


TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "U8": "u1", "BOOL": "?"}


def test_types(folder: Folder) -> None:
    for code, dtype in TYPES.items():
        array = F32.astype(dtype)
        read = folder.load(safetensors({"q": (code, [2, 3], array.tobytes())}), NAME).arrays["q"]
        assert (read.dtype, read.tolist()) == (array.dtype, array.tolist())


def test_bfloat16_is_the_upper_half_of_a_float32(folder: Folder) -> None:
    # 1.0 = 0x3f80, -2.5 = 0xc020, the least subnormal = 0x0001, −∞ = 0xff80
    raw = struct.pack("<4H", 0x3F80, 0xC020, 0x0001, 0xFF80)
    read = folder.load(safetensors({"q": ("BF16", [2, 2], raw)}), NAME).arrays["q"]
    assert read.tolist() == [[1.0, -2.5], [2.0**-133, -np.inf]]
    assert read.dtype == np.float32


def test_member_and_scale(folder: Folder) -> None:
    name, scale = "layers.0.self_attn.q", ("F32", [], struct.pack("<f", 0.5))
    data = safetensors({"scale": scale, name: SIX, "f8": ("F8_E4M3", [2], b"ab")})
    loaded = folder.load(data, NAME)
    assert (loaded.unread, loaded.scale) == (("f8", name), 0.5)
    assert folder.load(data, NAME, name).arrays[name].tolist() == F32.tolist()
    assert "f8 has the type 'F8_E4M3'" in folder.refusal(data, NAME, "f8")


def entry(**changes: Any) -> bytes:
    """A file of one number, with changes of its header."""
    one = {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]} | changes
    return safetensors(json.dumps({"q": one}).encode(), bytes(4))


def placed(*offsets: tuple[int, int]) -> bytes:
    """A file of numbers at these offsets of twelve bytes."""
    one = {"dtype": "F32", "shape": [1, 1]}
    names = zip("qk", offsets, strict=True)
    table = {name: {**one, "data_offsets": offset} for name, offset in names}
    return safetensors(json.dumps(table).encode(), bytes(12))


TENSOR = b'"q": {"dtype": "%s", "shape": [1, 1], "data_offsets": [0, 4]}'
TWICE = b"{" + TENSOR % b"F32" + b", " + TENSOR % b"I32" + b"}"
ONE = ("I8", [], b"a")
REFUSED = [
    (safetensors({"q": SIX})[:-1], "not a valid safetensors"),
    (safetensors({"q": ("F32", [9, 9], F32.tobytes())}), "not a valid safetensors"),
    (b"\xff" * 30, "not a valid safetensors"),
    (b"{}", "not a valid safetensors"),
    (placed((0, 4), (0, 4)), "not a valid safetensors"),  # they overlap
    (placed((0, 4), (8, 12)), "not a valid safetensors"),  # they leave a hole
    (placed((4, 8), (0, 3)), "not a valid safetensors"),
    (placed((-4, 0), (0, 12)), "not a valid safetensors"),
    (safetensors({}), "no array"),
    (safetensors({"q": ("F8_E5M2", [2], b"ab")}), "q has the type 'F8_E5M2'"),
    (safetensors({"q": ("F32", [0, 3], b"")}), "q is empty"),
    (safetensors({"q": ("I8", [1, 1], b"a"), "scale": ONE, "SCALE": ONE}), "scale twice"),
    (safetensors(TWICE, bytes(4)), "key 'q' twice"),
]


@pytest.mark.parametrize(("data", "key"), REFUSED, ids=cell_name)
def test_files_that_are_refused(data: bytes, key: str, folder: Folder) -> None:
    assert key in folder.refusal(data, NAME)


@pytest.mark.parametrize("key", ["dtype", "shape", "data_offsets"])
def test_a_header_of_other_types_is_refused(folder: Folder, key: str) -> None:
    for value in (None, 1.0, "ab", {}, [], [True, True], [0, 4.0], [2**70, 4]):
        if (key, value) != ("shape", []):  # one number
            assert folder.refusal(entry(**{key: value}), NAME)


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
