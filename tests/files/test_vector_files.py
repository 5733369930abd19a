"""Files as they are downloaded, and files without vectors."""

from __future__ import annotations

import gzip
import os
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attncli.errors import AttncliError, InputError
from attncli.files.word_vectors import Vectors, nearest, read_vectors

GLOVE = b"the 0.5 -1 2\nking 0.25 1 3\nqueen -0.125 4 5\n"


def write(tmp_path: Path, content: bytes, name: str = "v.txt") -> str:
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def zipped(tmp_path: Path, members: dict[str, bytes]) -> str:
    path = tmp_path / "glove.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return str(path)


@pytest.mark.parametrize("name", ["v.txt.gz", "v.txt"])
def test_gzip_is_detected_from_its_first_bytes(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, gzip.compress(GLOVE, mtime=0), name)
    assert read_vectors(path, ["king"]).matrix.tolist() == [[0.25, 1, 3]]
    assert nearest(path, [0.25, 1, 3], n=1).pairs[0][0] == "king"


def test_truncated_gzip_is_read_up_to_the_damage(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    lines = [f"w{i} {' '.join(map(str, rng.normal(size=7)))}" for i in range(20_011)]
    packed = gzip.compress("\n".join(lines).encode(), mtime=0)
    path = write(tmp_path, packed[: len(packed) // 2], "v.gz")
    found = read_vectors(path, ["w3", "w20010"])
    assert found.words == ("w3",)
    assert list(found.missing) == ["w20010"]
    (error,) = found.warnings
    assert error.startswith(f"{path} is damaged: Compressed file ended")
    last = int(error.split("after line ")[1].split(";")[0])
    assert 1000 < last < 20_010
    assert read_vectors(path, [f"w{last - 1}"]).words == (f"w{last - 1}",)


def test_gzip_with_a_wrong_checksum_gives_a_warning(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(GLOVE, mtime=0))
    packed[-6] ^= 1
    found = read_vectors(write(tmp_path, bytes(packed)), ["king", "zzz"])
    assert found.words == ("king",)
    assert "CRC check failed" in found.warnings[0]


def test_a_zip_with_one_file_needs_no_name(tmp_path: Path) -> None:
    path = zipped(tmp_path, {"v.txt": GLOVE, "__MACOSX/._v.txt": b"\0", "folder/": b""})
    assert read_vectors(path, ["king"]).words == ("king",)


def test_a_zip_with_several_files_lists_them(tmp_path: Path) -> None:
    path = zipped(tmp_path, {"d/a.50d.txt": GLOVE, "d/a.100d.txt": b"king 1\n"})
    for member in ("d/a.50d.txt", "a.50d.txt"):
        assert read_vectors(f"{path}::{member}", ["king"]).matrix.shape == (1, 3)
    with pytest.raises(
        InputError, match=r"holds d/a.50d.txt, d/a.100d.txt; name one: .*::d/a.50d.txt"
    ):
        read_vectors(path, ["king"])
    with pytest.raises(InputError, match=r"holds no 'b.txt'; it holds d/a.50d.txt"):
        read_vectors(f"{path}::b.txt", ["king"])


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    path = Path(zipped(tmp_path, {"v.txt": GLOVE}))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x03\x04") + 6] |= 1  # the flag of encryption, in both places
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is encrypted; save it without a password"):
        read_vectors(str(path), ["king"])


def test_a_truncated_zip_is_refused(tmp_path: Path) -> None:
    content = Path(zipped(tmp_path, {"v.txt": GLOVE})).read_bytes()
    with pytest.raises(InputError, match="is not a valid zip file"):
        read_vectors(write(tmp_path, content[:-30]), ["king"])


def test_file_whose_name_holds_colons(tmp_path: Path) -> None:
    assert read_vectors(write(tmp_path, GLOVE, "a::b"), ["king"]).words == ("king",)
    with pytest.raises(InputError, match="holds no 'b'; leave out ::name"):
        read_vectors(write(tmp_path, GLOVE, "plain") + "::b", ["king"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\r\n\n", "is empty"),
        (b"\n<!DOCTYPE html><html>", "is a web page"),
        (b"<HTML><head>", "is a web page"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
            "Git LFS pointer.*lfs pull",
        ),
        (b"3 4\nking \x00\x11\x02\x03\x04\x05\x80\x01", "word2vec's binary format; convert it"),
        (b"\x80\x04\x95\x00\x00\x00", "is a pickle"),
        (b"\x93NUMPY\x01\x00", "is binary"),
        (b"\xff\xfek\x00i\x00", "is UTF-16"),
        (b"BZh91AY", "is a bzip2 file; unpack it first"),
        (b"\x1f\x8b\x08\x00", "is damaged"),
        (gzip.compress(gzip.compress(GLOVE, mtime=0), mtime=0), "gzip inside another file"),
        (b"Lorem ipsum dolor\nsit amet\n", "holds no vectors: it begins 'Lorem ipsum dolor'"),
        (b"400000 100\n", "holds no vectors"),
        (b'["king", 1]', "JSON but not an object"),
        (b'{"king": ', "is not JSON: line 1, column 10"),
        (b'{"king": {"a": 1}}', "holds no vectors"),
        (b"{}", "holds no vectors"),
        (b'{"king": [\xff]}', "is not text: byte 11 is not utf-8"),
        (b'{"a":' * 100_000, "is nested too deeply"),
        (b"a" * (1 << 21), "line 1 is longer than 1 MB"),
        (gzip.compress(b"the 0.5 -1 2 " * 99, mtime=0)[:30], "holds no complete line"),
    ],
)
def test_other_contents_are_refused_in_one_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read_vectors(path, ["king"])
    assert str(caught.value).startswith(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nowhere.txt", "nowhere.txt does not exist"),
        ("nowhere.zip::a.txt", "nowhere.zip does not exist"),
        ("a\0b", "cannot be read"),
        ("x" * 5000, "cannot be read"),
        ("king=0.9,abc", "'king=0.9,abc' is not a word and its numbers"),
        ("king=0.9 queen", "'queen' is not a word and its numbers"),
        ("king=1e999", "is not a word and its numbers"),
        ("{broken", "the inline literal is not JSON: line 1, column 2"),
        ("no\x1b[31m", r"'no\\x1b\[31m' does not exist"),
    ],
)
def test_invalid_sources(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_vectors(source, ["king"])


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        read_vectors(str(tmp_path), ["king"])


@pytest.mark.parametrize("first", [b"{", b"[", b'"', b"<unk>", b"[PAD]", b"{}", b'{"'])
def test_a_text_may_begin_with_any_token(tmp_path: Path, first: bytes) -> None:
    path = write(tmp_path, first + b" 0.1 0.2 0.3\n" + GLOVE)
    assert read_vectors(path, [first.decode(), "king"]).words == (first.decode(), "king")


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(GLOVE,))
    writer.start()
    found = read_vectors(str(pipe), ["King", "quen"])
    writer.join()
    assert found.folded == {"King": "king"}
    assert found.missing == {"quen": ("queen",)}


WHOLE = [
    GLOVE,
    b"3 3\n" + GLOVE,
    gzip.compress(GLOVE, mtime=0),
    b'{"king": [1, 2], "queen": [3, 4]}',
    b"3 2\r\nnew york 1 2\r\n. . . 3 4\r\ncaf\xe9 5 6",
]


def outcome(source: str, words: list[str]) -> tuple[Vectors | None, str]:
    """What was read, or the text of our error; any other error is a failure."""
    try:
        return read_vectors(source, words), ""
    except AttncliError as error:
        return None, str(error)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A readable file with a few bytes changed, cut out, doubled or put in."""
    content = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, len(content)))
        until = at + draw(st.integers(0, 7))
        content[at:until] = draw(st.one_of(st.binary(max_size=5), st.just(content[at:until] * 2)))
    return bytes(content)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(content=st.one_of(mutated(), st.binary(max_size=60)), pack=st.booleans())
def test_any_file_is_read_or_raises_attncli_error(
    tmp_path: Path, content: bytes, pack: bool
) -> None:
    path = zipped(tmp_path, {"v.txt": content}) if pack else write(tmp_path, content)
    words = {"king", "queem", "new york", "café", "", "3"}
    found, error = outcome(path, sorted(words))
    assert "\n" not in error
    if found is not None:
        assert np.isfinite(found.matrix).all()
        assert set(found.words) | set(found.missing) == words
        assert len(nearest(path, np.ones(found.matrix.shape[1]), n=2).pairs) <= 2


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(at=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 200))
def test_damaged_zip_is_read_or_raises_attncli_error(
    tmp_path: Path, at: int, byte: int, cut: int
) -> None:
    path = Path(zipped(tmp_path, {"v.txt": GLOVE}))
    content = bytearray(path.read_bytes())
    content[at % len(content)] = byte
    path.write_bytes(content[: len(content) - cut] if cut % 3 == 0 else content)
    found, error = outcome(str(path), ["king"])
    assert "\n" not in error
    assert found is None or len(found.words) <= 1


@settings(max_examples=300)
@given(source=st.text(alphabet="king=,;. 0159-e{}[]\"':\n\x00é\ud800", max_size=30))
def test_any_inline_text_is_read_or_raises_attncli_error(source: str) -> None:
    found, error = outcome(source, ["king"])
    assert error if found is None else found.matrix.ndim == 2
