"""Which format bytes have: told by the first of them where those are clear, else by the ending."""

from __future__ import annotations

import re

from attncli.errors import InputError
from attncli.files.messages import safe

HEAD = 4096
"""How many first bytes are looked at."""

_KINDS = {
    ".json": "json",
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "table",
    ".tsv": "table",
    ".txt": "table",
    ".safetensors": "safetensors",
}

_SAVEZ = "numpy.savez('qkv.npz', q=q, k=k, v=v)"
_IN_TORCH = f"load it in PyTorch and save with {_SAVEZ}, each tensor as t.float().cpu().numpy()"
_PYTORCH = ("a PyTorch file, which runs code when it is read", _IN_TORCH)
_PICKLE = ("a pickle, which runs code when it is read", f"save the arrays with {_SAVEZ}")
_HDF5 = ("an HDF5 file", f"read it with h5py and save with {_SAVEZ}")
_MATLAB = ("a MATLAB file", f"read it with scipy.io.loadmat and save with {_SAVEZ}")
_PARQUET = ("a Parquet file", "save it as csv, in pandas with to_csv")
_GZIP = ("compressed with gzip", "decompress it: gunzip FILE, or gunzip -c FILE | attncli … -")
_EXCEL = ("a spreadsheet", "save the sheet as csv")

_REFUSED_ENDINGS = {
    **dict.fromkeys((".pt", ".pth", ".ckpt"), _PYTORCH),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), _PICKLE),
    **dict.fromkeys((".h5", ".hdf5"), _HDF5),
    ".mat": _MATLAB,
    ".parquet": _PARQUET,
    ".gz": _GZIP,
    **dict.fromkeys((".xls", ".xlsx", ".ods"), _EXCEL),
}

_REFUSED_STARTS = (
    (re.compile(rb"\x80[\x02-\x05]"), _PICKLE),
    (re.compile(rb"\x89HDF"), _HDF5),
    (re.compile(rb"MATLAB 5"), _MATLAB),
    (re.compile(rb"PAR1"), _PARQUET),
    (re.compile(rb"\x1f\x8b"), _GZIP),
)

_UNICODE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")
_LAST_NUMBER = re.compile(rb"[-+]?(\d[\d.eE+-]*|\.\d+|nan|inf(inity)?|true|false)[\"']?\s*$", re.I)

# not every [ is JSON: the first label of a table may be [CLS]
_JSON_START = re.compile(rb'\s*(\{|\[\s*(\[|\]|["\d-]|true|false|null|NaN|Infinity|$))')


def ending_of(path: str) -> str:
    """The ending of a path, lower case and with its dot; "" where it has none.

    >>> ending_of("a.b/Q.NPY"), ending_of("a.b/q")
    ('.npy', '')
    """
    name = path.replace("\\", "/").rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return f".{ending.lower()}" if dot and stem else ""


def refuse_ending(origin: str, ending: str) -> None:
    """Raise InputError for the ending of a format that is known and not read."""
    if ending in _REFUSED_ENDINGS:
        what, hint = _REFUSED_ENDINGS[ending]
        raise InputError(f"{origin} is {what}", hint)


def kind_of(origin: str, ending: str, head: bytes, size: int | None) -> str:
    """The format of a source: "json", "npy", "npz", "table" or "safetensors".

    `size` is the whole length in bytes where it is known. Raises InputError where it is empty,
    of a format that is known and not read, or of none that is known.
    """
    if not head:
        raise InputError(f"{origin} is empty", "it should hold arrays")
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "npz"
    for start, (what, hint) in _REFUSED_STARTS:
        if start.match(head) and not _is_safetensors(head, size):
            raise InputError(f"{origin} is {what}", hint)
    guessed = _guess(head, size) if ending not in _KINDS or ending == ".txt" else None
    kind = guessed or _KINDS.get(ending)
    if kind is None:
        raise InputError(
            f"{origin} is of no format that attncli reads",
            f"it reads {', '.join(_KINDS)}" + (f", not {safe(ending)}" if ending else ""),
        )
    return kind


def _guess(head: bytes, size: int | None) -> str | None:
    """The format that an unknown ending leaves to the first bytes."""
    if _is_safetensors(head, size):
        return "safetensors"
    if _JSON_START.match(head.removeprefix(b"\xef\xbb\xbf")):
        return "json"
    if head.startswith(_UNICODE_MARKS):
        return "table"
    # a table: some line ends in a number
    is_table = b"\0" not in head and any(map(_LAST_NUMBER.search, head.splitlines()))
    return "table" if is_table else None


def _is_safetensors(head: bytes, size: int | None) -> bool:
    length = int.from_bytes(head[:8], "little")
    fits = length < (1 << 32 if size is None else size)
    return len(head) > 8 and head[8:9] == b"{" and fits
