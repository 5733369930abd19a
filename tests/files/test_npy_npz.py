"""npy and npz: what is read; sizes and types are checked, and pickles refused."""

from __future__ import annotations

import gzip
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.budget import limited
from attncli.errors import SizeError

from .saved import Folder, cell_name, encrypted, header, load, npy, npz, zipped

Q = np.arange(15).reshape(3, 5)
TYPES = ["<f8", ">f8", "<f4", ">f4", "<f2", "i1", ">i2", "<i4", "<i8", "u1", "<u8", "?"]


def test_types_and_orders(folder: Folder) -> None:
    for dtype in TYPES:
        for ordered in (np.ascontiguousarray, np.asfortranarray):
            array = ordered((Q % 2 if dtype == "?" else Q).astype(dtype))
            read = folder.load(npy(array), "q.npy").arrays[""]
            assert read.tolist() == array.tolist()
            assert read.dtype == array.dtype.newbyteorder("=")


def test_a_file_larger_than_what_is_allowed_is_mapped(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncli.files.npy.MAP_FROM", 1)
    with limited(1):
        read = folder.load(npy(np.asfortranarray(Q.astype(float))), "q.npy").arrays[""]
    assert isinstance(read.base, np.memmap)
    assert type(read) is np.ndarray
    assert read.tolist() == Q.tolist()
    assert not read.flags.writeable


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("array", "key"),
    [
        (np.array([[None, 1]], dtype=object), "Python objects"),
        (np.array([[1j]]), "complex numbers"),
        (np.array([["a"]]), "strings"),
        (np.array([[b"a"]]), "strings"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), "dates"),
        (np.array([[1]], dtype="timedelta64[s]"), "time spans"),
        (np.zeros((2, 3), dtype=[("a", "f4"), ("b", "i4")]), "structured values"),
        (np.zeros((2, 3), dtype="V2"), "as bfloat16"),
        (np.zeros((2, 3), dtype=np.longdouble), "longer than float64"),
        (np.zeros((0, 3)), "is empty"),
    ],
    ids=cell_name,
)
def test_types_that_are_refused(array: Any, key: str, folder: Folder) -> None:
    data = npy(array, allow_pickle=True)
    assert key in folder.refusal(data, "q.npy")
    assert f"q.npz, q {'is' if key == 'is empty' else 'holds'}" in folder.refusal(
        zipped({"q.npy": data}), "q.npz"
    )


def described(descr: str, shape: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    return header(text, data, version)


@pytest.mark.parametrize("version", [b"\x02\x00", b"\x03\x00"])
def test_later_versions_of_the_header(version: bytes, folder: Folder) -> None:
    data = described("<f8", "(1, 2)", struct.pack("<2d", 3, 5), version)
    assert folder.load(data, "q.npy").arrays[""].tolist() == [[3, 5]]


def test_bool_bytes_beyond_one_are_true(folder: Folder) -> None:
    read = folder.load(described("|b1", "(1, 3)", b"\x00\x07\x01"), "m.npy").arrays[""]
    assert read.view(np.uint8).tolist() == [[0, 1, 1]]


LARGE = described("<f8", "(99999, 99999)", b"x" * 8)


def claimed(size: int) -> bytes:
    """A deflated entry of zeros for which the archive gives a wrong size."""
    entry = npy(np.zeros((3, 5)))
    data = zipped({"q.npy": entry}, zipfile.ZIP_DEFLATED)
    return data.replace(struct.pack("<I", len(entry)), struct.pack("<I", size))


def coded(code: bytes) -> bytes:
    """An npz with a label that holds this code point."""
    bad = npy(np.array(["ab"])).replace("b".encode("utf-32-le"), code)
    return zipped({"q.npy": npy([[1]]), "tokens.npy": bad})


REFUSED = [
    ("q.npy", npy(Q.astype(float))[:-8], "float64, 120 bytes, but holds 112"),
    ("q.npy", npy(Q.astype(float)) + b"1234", "float64, 120 bytes, but holds"),
    ("q.npy", LARGE, "(99999, 99999) of float64, 79998400008 bytes, but holds 8"),
    ("q.npy", described("<f8", "(-2, 3)"), "shape '(-2, 3)'"),
    ("q.npy", described("<f8", "(1,) * 99", b"x" * 8), "not a valid npy"),
    ("q.npy", described("<f8", f"({'1, ' * 40})", b"x" * 8), "shape '(1, 1,"),
    ("q.npy", described("<f8", f"(0, {2**70})"), "is empty"),
    ("q.npy", described("no", "(1,)"), "not a valid npy"),
    ("q.npy", header("__import__('os').system('x')"), "not a valid npy"),
    ("q.npy", header("(" * 5000), "not a valid npy"),
    ("q.npy", header("{}"), "not a valid npy"),
    ("q.npy", b"\x93NUMPY\x01", "not a valid npy"),
    ("q.npy", b"\x93NUMPY\x09\x00\x10\x00" + b" " * 16, "not a valid npy"),
    ("q.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 99, "not a valid npy"),
    ("q.npy", b"1,2,3\n", "not a valid npy"),
    ("x.npz", b"not a zip", "not a valid npz"),
    ("x.npz", npz(q=Q)[:-30], "not a valid npz"),
    ("x.npz", npz(q=Q).replace(npy(Q)[-16:], b"\x55" * 16), "Bad CRC"),
    ("x.npz", encrypted(npz(q=[[1]])), "is encrypted"),
    ("x.npz", npz(q=[[1]], p=[[1]]).replace(b"p.npy", b"q.npy"), "two arrays of one name"),
    ("x.npz", zipped({}), "holds nothing"),
    ("x.npz", zipped({"a.txt": b""}), "holds a.txt"),
    ("x.npz", zipped({"q.npy": b"what"}), "q is not a valid npy"),
    ("x.npz", zipped({"q.npy": npy(Q)[:-1]}), "q declares shape (3, 5) of int64, 120 bytes"),
    ("x.npz", zipped({"q.npy": LARGE}), "q declares shape (99999, 99999)"),
    ("x.npz", npz(tokens=[1]), "tokens holds no strings"),
    ("x.npz", npz(q=[[1]], scale=[1, 2]), "scale is not a number"),
    ("x.npz", npz(q=[[1]], scale=1, Scale=2), "scale twice"),
    ("x.npz", claimed(2_000_000_000), "q takes 2 GB, 1 GB are allowed"),
    ("x.npz", claimed(1_000_000), "q declares shape (3, 5) of float64, 120 bytes, but holds 99"),
    ("x.npz", claimed(130), "Bad CRC"),
    ("x.npz", coded(b"\xff\xff\xff\x7f"), "tokens holds a number that is no"),
    ("x.npz", coded(b"\x00\x00\x11\x00"), "tokens holds a number that is no"),
    ("x.npz", coded(b"\x00\xd8\x00\x00"), "tokens holds a number that is no"),
]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(("name", "data", "key"), REFUSED, ids=cell_name)
def test_files_that_are_refused(name: str, data: bytes, key: str, folder: Folder) -> None:
    assert key in folder.refusal(data, name)


def test_npz_with_labels_and_scale(tmp_path: Path) -> None:
    labels = {"query_tokens": np.array(["a", "bc", "d"]), "tokens": np.array(["e", "f"])}
    arrays: dict[str, Any] = {"q": Q.astype(np.float32), "K": Q[:2] / 2}
    np.savez_compressed(tmp_path / "x.npz", scale=np.float32(0.5), **arrays, **labels)
    loaded = load(f"{tmp_path}/x.npz")
    assert list(loaded.arrays) == ["q", "K"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(loaded.arrays[name], array, strict=True)
    assert loaded.scale == 0.5
    assert (loaded.query_labels, loaded.key_labels) == (("a", "bc", "d"), ("e", "f"))


@pytest.mark.parametrize(("scale", "expected"), [(np.float32(0.5), 0.5), (np.ones(3), None)])
def test_a_scale_is_read_with_a_member_where_it_is_one_number(
    scale: Any, expected: float | None, folder: Folder
) -> None:
    loaded = folder.load(npz(q=[[1]], k=[[2]], scale=scale), "x.npz", "k")
    assert (list(loaded.arrays), loaded.scale) == (["k"], expected)


def test_only_what_is_asked_for_is_read(folder: Folder) -> None:
    pickled = npy([None], allow_pickle=True)
    data = zipped({"q.npy": npy([[1]]), "meta.npy": pickled, "x.npy": b"?", "n.txt": b""})
    loaded = folder.load(data, "x.npz")
    assert (list(loaded.arrays), loaded.unread) == (["q"], ("meta", "x"))
    assert ["not used: meta, x" in note for note in loaded.notes] == [True]
    data = zipped({"q.npy": b"?", "x.npy": npy([[2]]), "n.txt": b""})
    assert folder.load(data, "x.npz", "x").arrays["x"].tolist() == [[2]]


def test_highly_compressed_zeros_are_read_below_the_limit(folder: Folder) -> None:
    data = zipped({"q.npy": npy(np.zeros((1009, 1013)))}, zipfile.ZIP_DEFLATED)
    assert folder.load(data, "x.npz").arrays["q"].shape == (1009, 1013)


def test_more_than_is_allowed_is_refused_before_unpacking(folder: Folder) -> None:
    zeros = np.zeros((1, 1 << 19))  # 4 MiB each
    path = folder.write(npz(q=zeros, k=zeros, x=zeros), "x.npz")
    with limited(9 << 20):
        assert list(load(path).arrays) == ["q", "k"]
    with limited(7 << 20), pytest.raises(SizeError, match=r"x\.npz takes 8\.389 MB, 7\.34 MB are"):
        load(path)
    with limited(3 << 20), pytest.raises(SizeError, match=r"x\.npz, x takes 4\.194 MB, 3\.146 MB"):
        load(f"{path}::x")


@pytest.mark.parametrize("name", ["x.npz", "x.npy.gz"])
def test_numbers_that_were_packed_are_counted(folder: Folder, name: str) -> None:
    matrix = npy(np.zeros((1009, 101), dtype=np.bool_))
    packed = zipped({"mask.npy": matrix}, zipfile.ZIP_DEFLATED)
    packed = packed if name == "x.npz" else gzip.compress(matrix)
    with limited(50 * 1009 * 101):
        assert folder.load(packed, name).arrays
    with limited(50 * 1009 * 101 - 50):
        assert "has 101,909 numbers, 101,908" in folder.refusal(packed, name)
