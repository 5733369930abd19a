"""The folder into which the tests write, files as bytes, and what reads them, `load`."""

import io
import json
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.errors import InputError, SizeError
from attncli.files.contents import FileContents
from attncli.files.load import read_source
from attncli.files.write import write_npz
from attncli.trace import Trace


class Folder:
    """A folder of a test: what is written into it is read, or refused in one line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, content: str | bytes, name: str) -> str:
        (self.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return f"{self.path}/{name}"

    def load(self, content: str | bytes, name: str, member: str = "") -> FileContents:
        path = self.write(content, name)
        return read_source(f"{path}::{member}" if member else path)

    def refusal(self, content: str | bytes, name: str, member: str = "") -> str:
        """The message without the folder; it is one line, and begins with the name of the file."""
        with pytest.raises((InputError, SizeError)) as caught:
            self.load(content, name, member)
        message = str(caught.value).replace(f"{self.path}/", "")
        assert "\n" not in message
        assert message.startswith(name)
        return message


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def cell_name(cell: object) -> str:
    """The id of a cell of a table; bytes have none, as a zip holds the time."""
    return cell[:40] if isinstance(cell, str) else ""


def npy(array: Any, *, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=allow_pickle)
    return file.getvalue()


def header(text: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    """An npy file with this header."""
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text) + 1)
    return b"\x93NUMPY" + version + size + text.encode() + b"\n" + data


def zipped(entries: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file.getvalue()


def npz(**arrays: Any) -> bytes:
    return zipped({f"{name}.npy": npy(array) for name, array in arrays.items()})


def encrypted(archive: bytes) -> bytes:
    """A zip whose first member says that it is encrypted, in both places."""
    data = bytearray(archive)
    data[data.index(b"PK\x03\x04") + 6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def safetensors(entries: Mapping[str, Any] | bytes, data: bytes = b"") -> bytes:
    """A safetensors file of {name: (type, shape, bytes)}, or of a header as it is and its data."""
    if not isinstance(entries, bytes):
        table = {}
        for name, (code, shape, raw) in entries.items():
            offsets = [len(data), len(data) + len(raw)]
            table[name] = {"dtype": code, "shape": shape, "data_offsets": offsets}
            data += raw
        entries = json.dumps(table).encode()
    return struct.pack("<Q", len(entries)) + entries + data


def trace_npz(trace: Trace) -> bytes:
    file = io.BytesIO()
    write_npz(trace, file)
    return file.getvalue()
