"""npy and npz: what is read, and that sizes and types are checked and pickles refused."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attncli.budget import limited
from attncli.errors import InputError, SizeError
from attncli.files.load import load


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=allow_pickle)
    return file.getvalue()


def header(text: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """An npy file with this header."""
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text) + 1)
    return b"\x93NUMPY" + version + size + text.encode() + b"\n" + data


def zipped(entries: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file.getvalue()


def message(tmp_path: Path, name: str, data: bytes, member: str = "") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises((InputError, SizeError)) as caught:
        load(f"{path}::{member}" if member else str(path))
    error = str(caught.value)
    assert "\n" not in error
    return error.replace(f"{tmp_path}/", "")


Q = np.arange(15).reshape(3, 5)


@pytest.mark.parametrize(
    "dtype", ["<f8", ">f8", "<f4", ">f4", "<f2", "i1", ">i2", "<i4", "<i8", "u1", "<u8", "?"]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_types_and_orders(dtype: str, order: Any, tmp_path: Path) -> None:
    array = np.asarray(Q % 2 if dtype == "?" else Q, dtype=dtype, order=order)
    (tmp_path / "q.npy").write_bytes(npy(array))
    found = load(str(tmp_path / "q.npy")).arrays[""]
    assert found.tolist() == array.tolist()
    assert found.dtype == array.dtype.newbyteorder("=")


def test_a_file_larger_than_what_is_allowed_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncli.files.npy.MAP_FROM", 1)
    np.save(tmp_path / "q.npy", np.asfortranarray(Q.astype(float)))
    with limited(1):
        found = load(str(tmp_path / "q.npy")).arrays[""]
    assert isinstance(found.base, np.memmap)
    assert type(found) is np.ndarray
    assert found.tolist() == Q.tolist()
    assert not found.flags.writeable


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[None, 1]], dtype=object), "q.npy holds Python objects, which would need a pic"),
        (np.array([[1j]]), "q.npy holds complex numbers"),
        (np.array([["a"]]), "q.npy holds strings"),
        (np.array([[b"a"]]), "q.npy holds strings"),
        (np.array([["2020-01-01"]], dtype="datetime64[D]"), "q.npy holds dates"),
        (np.array([[1]], dtype="timedelta64[s]"), "q.npy holds time spans"),
        (np.zeros((2, 3), dtype=[("a", "f4"), ("b", "i4")]), "q.npy holds structured values"),
        (np.zeros((2, 3), dtype="V2"), "q.npy holds 2-byte values without a type, as bfloat16"),
        (np.zeros((2, 3), dtype=np.longdouble), "q.npy holds numbers longer than float64"),
        (np.zeros((0, 3)), "q.npy is empty: its shape is (0, 3)"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_types_that_are_refused(array: npt.NDArray[Any], expected: str, tmp_path: Path) -> None:
    data = npy(array, allow_pickle=True)
    assert message(tmp_path, "q.npy", data).startswith(expected)
    assert message(tmp_path, "q.npz", zipped({"q.npy": data})).startswith(
        expected.replace("q.npy", "q.npz, q")
    )


def test_error_for_bfloat16_has_a_hint(tmp_path: Path) -> None:
    error = message(tmp_path, "q.npy", npy(np.zeros((2, 3), dtype="V2")))
    assert error.endswith("save it as float32: numpy.save(path, x.astype('float32'))")


SHAPE = "{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (
            npy(Q.astype(float))[:-8],
            "q.npy declares shape (3, 5) of float64, 120 bytes, but holds 112",
        ),
        (
            npy(Q.astype(float)) + b"1234",
            "q.npy declares shape (3, 5) of float64, 120 bytes, but ho",
        ),
        (
            header(SHAPE.format("<f8", "(1000000, 1000000)"), b"x" * 80),
            "q.npy declares shape (1000000, 1000000) of float64, 8000000000000 bytes, but holds 80",
        ),
        (header(SHAPE.format("<f8", "(-2, 3)")), "q.npy declares the shape '(-2, 3)'"),
        (header(SHAPE.format("<f8", "(1,) * 99"), b"x" * 8), "q.npy is not a valid npy file"),
        (
            header(SHAPE.format("<f8", f"({'1, ' * 40})"), b"x" * 8),
            "q.npy declares the shape '(1, 1,",
        ),
        (header(SHAPE.format("<f8", f"(0, {2**70})")), "q.npy is empty"),
        (header("__import__('os').system('x')"), "q.npy is not a valid npy file: its header"),
        (header("(" * 5000), "q.npy is not a valid npy file"),
        (header("{}"), "q.npy is not a valid npy file"),
        (header(SHAPE.format("no", "(1,)")), "q.npy is not a valid npy file"),
        (b"\x93NUMPY\x01", "q.npy is not a valid npy file"),
        (b"\x93NUMPY\x09\x00\x10\x00" + b" " * 16, "q.npy is not a valid npy file"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 99, "q.npy is not a valid npy file"),
        (b"1,2,3\n", "q.npy is not a valid npy file"),
    ],
)
def test_headers_that_are_refused(data: bytes, expected: str, tmp_path: Path) -> None:
    assert message(tmp_path, "q.npy", data).startswith(expected)


@pytest.mark.parametrize("version", [b"\x02\x00", b"\x03\x00"])
def test_later_versions_of_the_header(version: bytes, tmp_path: Path) -> None:
    data = header(SHAPE.format("<f8", "(1, 2)"), struct.pack("<2d", 3, 5), version)
    (tmp_path / "q.npy").write_bytes(data)
    assert load(str(tmp_path / "q.npy")).arrays[""].tolist() == [[3, 5]]


def test_bool_bytes_beyond_one_are_true(tmp_path: Path) -> None:
    (tmp_path / "m.npy").write_bytes(header(SHAPE.format("|b1", "(1, 3)"), b"\x00\x07\x01"))
    found = load(str(tmp_path / "m.npy")).arrays[""]
    assert found.view(np.uint8).tolist() == [[0, 1, 1]]


def test_npz_with_labels_and_scale(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(
        path,
        q=Q.astype(np.float32),
        K=Q[:2] / 2,
        scale=np.float32(0.5),
        query_tokens=np.array(["a", "bc", "d"]),
        tokens=np.array(["e", "f"]),
    )
    loaded = load(str(path))
    assert {name: a.tolist() for name, a in loaded.arrays.items()} == {
        "q": Q.tolist(),
        "K": (Q[:2] / 2).tolist(),
    }
    assert loaded.arrays["q"].dtype == np.float32
    assert (loaded.scale, loaded.query_labels, loaded.key_labels) == (
        0.5,
        ("a", "bc", "d"),
        ("e", "f"),
    )


@pytest.mark.parametrize(("scale", "expected"), [(np.float32(0.5), 0.5), (np.ones(3), None)])
def test_a_scale_is_read_with_a_member_where_it_is_one_number(
    scale: Any, expected: float | None, tmp_path: Path
) -> None:
    data = zipped({"q.npy": npy([[1]]), "k.npy": npy([[2]]), "scale.npy": npy(scale)})
    (tmp_path / "x.npz").write_bytes(data)
    loaded = load(f"{tmp_path}/x.npz::k")
    assert (list(loaded.arrays), loaded.scale) == (["k"], expected)


def test_npz_member_alone_is_read(tmp_path: Path) -> None:
    data = zipped({"q.npy": npy([[1]]), "x.npy": npy([[2]]), "bad.npy": b"?", "n.txt": b""})
    (tmp_path / "x.npz").write_bytes(data)
    loaded = load(f"{tmp_path}/x.npz::x")
    assert {name: a.tolist() for name, a in loaded.arrays.items()} == {"x": [[2]]}


def test_npz_does_not_read_what_nobody_asked_for(tmp_path: Path) -> None:
    data = zipped({"q.npy": npy([[1]]), "meta.npy": npy([None], allow_pickle=True), "x.npy": b"?"})
    (tmp_path / "x.npz").write_bytes(data)
    loaded = load(f"{tmp_path}/x.npz")
    assert (list(loaded.arrays), loaded.unread) == (["q"], ("meta", "x"))
    assert loaded.notes == (f"{tmp_path}/x.npz: not used: meta, x",)


def with_wrong_size(claimed: int) -> bytes:
    """A deflated entry of zeros for which the archive gives a wrong size."""
    data = zipped({"q.npy": npy(np.zeros((3, 5)))}, zipfile.ZIP_DEFLATED)
    size = struct.pack("<I", len(npy(np.zeros((3, 5)))))
    return data.replace(size, struct.pack("<I", claimed))


def encrypted() -> bytes:
    data = bytearray(zipped({"q.npy": npy([[1]])}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def twice() -> bytes:
    return zipped({"q.npy": npy([[1]]), "p.npy": npy([[1]])}).replace(b"p.npy", b"q.npy")


DAMAGED = zipped({"q.npy": npy(Q)}).replace(npy(Q)[-16:], b"\x55" * 16)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"not a zip", "x.npz is not a valid npz file: File is not a zip file"),
        (zipped({"q.npy": npy(Q)})[:-30], "x.npz is not a valid npz file: File is not a zip"),
        (DAMAGED, "x.npz, q is not a valid npz file: Bad CRC-32"),
        (encrypted(), "x.npz is encrypted; save it without a password"),
        (zipped({}), "x.npz is a zip without an npy file; it holds nothing"),
        (zipped({"a.txt": b""}), "x.npz is a zip without an npy file; it holds a.txt"),
        (zipped({"q.npy": b"what"}), "x.npz, q is not a valid npy file"),
        (
            zipped({"q.npy": npy(Q)[:-1]}),
            "x.npz, q declares shape (3, 5) of int64, 120 bytes, but ho",
        ),
        (zipped({"tokens.npy": npy([1])}), "x.npz, tokens holds no strings"),
        (zipped({"q.npy": npy([[1]]), "scale.npy": npy([1, 2])}), "x.npz, scale is not a number"),
        (
            zipped({"q.npy": npy([[1]]), "scale.npy": npy(1), "Scale.npy": npy(2)}),
            "x.npz has scale twice, in other letters; keep one of them",
        ),
        (with_wrong_size(2_000_000_000), "x.npz, q takes 2 GB, 1 GB are allowed; --max-size 2GB"),
        (
            with_wrong_size(1_000_000),
            "x.npz, q declares shape (3, 5) of float64, 120 bytes, but holds 999872",
        ),
        (with_wrong_size(130), "x.npz, q is not a valid npz file: Bad CRC-32"),
        (
            zipped({"q.npy": header(SHAPE.format("<f8", "(99999, 99999)"), b"x" * 8)}),
            "x.npz, q declares shape (99999, 99999) of float64",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # a zip holds the time
)
def test_archives_that_are_refused(data: bytes, expected: str, tmp_path: Path) -> None:
    assert message(tmp_path, "x.npz", data).startswith(expected)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name(tmp_path: Path) -> None:
    assert message(tmp_path, "x.npz", twice()).startswith("x.npz holds two arrays of one name")


def test_highly_compressed_zeros_are_read_below_the_limit(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", q=np.zeros((1009, 1013)))
    assert load(f"{tmp_path}/x.npz").arrays["q"].shape == (1009, 1013)


def test_more_than_is_allowed_is_refused_before_unpacking(tmp_path: Path) -> None:
    data = zipped({name: npy(np.zeros((1, 1 << 21))) for name in ("q.npy", "k.npy", "x.npy")})
    (tmp_path / "x.npz").write_bytes(data)
    with limited(34 << 20):
        assert list(load(f"{tmp_path}/x.npz").arrays) == ["q", "k"]  # 16 MB each
    with (
        limited(30 << 20),
        pytest.raises(SizeError, match=r"x\.npz takes 33\.55 MB, 31\.46 MB are"),
    ):
        load(f"{tmp_path}/x.npz")
    with (
        limited(15 << 20),
        pytest.raises(SizeError, match=r"x\.npz, x takes 16\.78 MB, 15\.73 MB are"),
    ):
        load(f"{tmp_path}/x.npz::x")


@pytest.mark.parametrize("name", ["x.npz", "x.npy.gz"])
def test_numbers_that_were_packed_are_counted(tmp_path: Path, name: str) -> None:
    matrix = npy(np.zeros((1009, 101), dtype=np.bool_))
    packed = zipped({"mask.npy": matrix}, zipfile.ZIP_DEFLATED)
    (tmp_path / name).write_bytes(packed if name == "x.npz" else gzip.compress(matrix))
    with limited(50 * 1009 * 101):
        assert load(f"{tmp_path}/{name}").arrays
    with (
        limited(50 * 1009 * 101 - 50),
        pytest.raises(SizeError, match="has 101,909 numbers, 101,908"),
    ):
        load(f"{tmp_path}/{name}")


@pytest.mark.parametrize("code", [b"\xff\xff\xff\x7f", b"\x00\x00\x11\x00", b"\x00\xd8\x00\x00"])
def test_invalid_code_points_are_refused(code: bytes, tmp_path: Path) -> None:
    bad = npy(np.array(["ab"])).replace("b".encode("utf-32-le"), code)
    data = zipped({"q.npy": npy([[1]]), "tokens.npy": bad})
    assert message(tmp_path, "x.npz", data).startswith("x.npz, tokens holds a number that is no")
