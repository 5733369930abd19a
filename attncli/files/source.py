"""Source: what a SOURCE names, opened: a path, standard input, a literal; gz and zip unpacked.

    "qkv.json"   "qkv.npz::q"   "-"   "[[1, 2]]"   "glove.txt.gz"   "glove.6B.zip::glove.6B.50d.txt"

The format is that of the first bytes where those are clear, else that of the ending. A file on disk
is not read into memory here, and neither is what it unpacks to.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO

from attncli import budget
from attncli.errors import AttncliError, InputError, SizeError
from attncli.files.messages import (
    LITERAL,
    STANDARD_INPUT,
    ask_for,
    explained,
    listing,
    quote,
    reason,
    safe,
)

if TYPE_CHECKING:
    from zipfile import ZipFile

TEXT = 5
"""Bytes of memory for each byte of text that is parsed whole: itself, decoded, and the values."""
_RATIO = 20  # text is packed to a third; a matrix of zeros and ones to much less, but is small
_ANY_RATIO = 100  # part of what is allowed: text of that size is read however small it is packed
_HEAD = 4096  # the first bytes, by which formats are detected: a page of memory
_STEP = 1 << 20  # bytes read at a time

KINDS = {
    ".json": "json",
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "table",
    ".tsv": "table",
    ".txt": "table",
    ".safetensors": "safetensors",
}
_BEGINS = (
    (b"\x93NUMPY", "npy"),
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),  # an empty one
)

_SAVEZ = "numpy.savez('qkv.npz', q=q, k=k, v=v)"
_PYTORCH = "a PyTorch file, which runs code when it is read"
_IN_TORCH = f"load it in PyTorch and save with {_SAVEZ}, each tensor as t.float().cpu().numpy()"
_PICKLE = "a pickle, which runs code when it is read"
_PAGE = rb"(?i)(\xef\xbb\xbf)?\s*<(!doctype|html|head|\?xml|!--)"

# what is refused: its endings, its first bytes (b"(?!)" matches none), what it is, what to do
_REFUSED = (
    (".pt .pth .ckpt", b"(?!)", _PYTORCH, _IN_TORCH),
    (".pkl .pickle .joblib", rb"\x80[\x02-\x05]", _PICKLE, f"save the arrays with {_SAVEZ}"),
    (".h5 .hdf5", rb"\x89HDF", "an HDF5 file", f"read it with h5py and save with {_SAVEZ}"),
    (".mat", b"MATLAB 5", "a MATLAB file", f"read it with scipy.io.loadmat and save with {_SAVEZ}"),
    (".parquet", b"PAR1", "a Parquet file", "save it as csv, in pandas with to_csv"),
    (".xls .xlsx .ods", b"(?!)", "a spreadsheet", "save the sheet as csv"),
    ("", b"BZh[1-9]1AY", "a bzip2 file", "unpack it first"),
    ("", rb"\xfd7zXZ", "an xz file", "unpack it first"),
    ("", rb"7z\xbc\xaf", "a 7z file", "unpack it first"),
    ("", rb"\x28\xb5\x2f\xfd", "a zstd file", "unpack it first"),
    ("", _PAGE, "a web page", "download the file that the page links to"),
    ("", b"version https://git-lfs", "a Git LFS pointer, not the file itself", "run: git lfs pull"),
)

# not every [ is JSON: the first label of a table may be [CLS]
_JSON_START = re.compile(rb'\s*(\{|\[\s*(\[|\]|["\d.+-]|true|false|null|NaN|Infinity|$))')
_OF_NUMBERS, _TWO_NUMBERS = re.compile(r"[\s\d.,;eE+/√−-]*"), re.compile(r"\d[\s,;]+[\d.+√−-]")
# an array as NumPy, PyTorch or JAX print it, or as code
_CALLS = r"(\w+\.)*(array|asarray|matrix|tensor|Tensor|FloatTensor|Array)\s*\(\s*\["
ARRAY = re.compile(rf"\s*(Parameter containing:\s*)?([A-Za-z]\w*\s*=\s*)?({_CALLS}|(?<==)\s*\[)")
_LAST_NUMBER = re.compile(rb"[-+]?(\d[\d.eE+-]*|\.\d+|nan|inf(inity)?|true|false)[\"']?\s*$", re.I)
# of a zip: folders, and files that operating systems add
_NO_CONTENT = re.compile(r"__MACOSX/.*|(.*/)?(\.[^/]*)?", re.DOTALL)
_UNICODE_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")


@dataclass
class Source:
    """An open file, stream or literal, and what is known about it."""

    origin: str  # what messages call it
    file: Any  # the bytes, from the first one on
    head: bytes  # the first bytes
    ending: str = ""  # of the path or zip member, lower case with its dot, without .gz
    name: str = ""  # what is asked for after `::`, or ""
    path: str = ""  # of a file on disk that is not packed, or ""
    size: int | None = None  # in bytes, on disk or in memory; None: it can be read only once
    packed: Callable[[], int] | None = None  # how many bytes it is unpacked from so far, or None

    def read(self, cost: int = 1) -> bytes:
        """All bytes; SizeError where `cost` times as many are more than is allowed."""
        subject = f"{self.origin} takes at least"
        hint = "save the arrays as npy or npz" if cost == TEXT else ""
        if self.size is not None:
            budget.check_bytes(self.size * cost, subject, hint)
            data: bytes = self.file.read()
            return data
        whole = io.BytesIO()
        while step := self.file.read(_STEP):
            whole.write(step)
            budget.check_bytes(whole.tell() * cost, subject, hint)
            if cost == TEXT:
                self.check_unpacked(whole.tell())
        return whole.getvalue()

    def check_unpacked(self, n_bytes: int, ratio: int = _RATIO, part: int = _ANY_RATIO) -> None:
        """SizeError where text was unpacked from less than its `ratio`-th part, and is large."""
        if self.packed is None:
            return
        most = max(ratio * self.packed(), budget.allowed() // part)
        if n_bytes > most:
            size = budget.in_bytes(most)
            hint = "unpack it, and name what it holds"
            raise SizeError(f"{self.origin} unpacks to more than {size} of text", hint)

    def in_memory(self) -> Source:
        """This source, with its bytes in memory where it could be read only once."""
        if self.size is not None:
            return self
        data = self.read()
        return replace(self, file=io.BytesIO(data), size=len(data))

    @property
    def kind(self) -> str:
        """Its format: "gzip", "zip", one that `load` reads, or "" for any other."""
        head, ending = self.head, self.ending
        length = int.from_bytes(head[:8], "little")  # of the header of safetensors, which follows
        is_tensors = head[8:9] == b"{" and length < (1 << 32 if self.size is None else self.size)
        for endings, begins, format_name, hint in _REFUSED:
            if ending in endings.split() or (re.match(begins, head) and not is_tensors):
                raise InputError(f"{self.origin} is {format_name}", hint)
        for begin, kind in _BEGINS:
            if head.startswith(begin) and not is_tensors:
                return kind
        if ending in KINDS and ending != ".txt":
            return KINDS[ending]
        if is_tensors:
            return "safetensors"
        text = head.removeprefix(b"\xef\xbb\xbf")
        if _JSON_START.match(text) or ARRAY.match(text.decode("ascii", "replace")):
            return "json"
        # a table: some line ends in a number
        is_table = b"\0" not in text and any(map(_LAST_NUMBER.search, text.splitlines()))
        is_table = is_table or text.startswith(_UNICODE_MARKS)
        return "table" if is_table else KINDS.get(ending, "")


def streamed(
    origin: str, file: Any, ending: str, name: str, packed: Callable[[], int] | None = None
) -> Source:
    """The Source of a stream that cannot seek."""
    stream = _Stream(file, origin)
    reader = io.BufferedReader(stream, _STEP)
    return Source(origin, reader, stream.ahead, ending, name, packed=packed)


class _Stream(io.RawIOBase):
    """A stream that cannot seek, of which the first bytes were read; its errors are InputErrors."""

    def __init__(self, file: Any, origin: str) -> None:
        self.source, self.origin, self.ahead, self.count = file, origin, b"", 0
        self.problem: InputError | None = None
        while len(self.ahead) < _HEAD and (more := self._more(_HEAD)):
            self.ahead += more
        if self.problem and not self.ahead:
            raise self.problem

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.count

    def readinto(self, buffer: Any) -> int:
        data = self.ahead[: len(buffer)] or self._more(len(buffer))
        self.ahead = self.ahead[len(data) :]
        self.count += len(data)
        if self.problem and not data:
            raise self.problem
        buffer[: len(data)] = data
        return len(data)

    def _more(self, n: int) -> bytes:
        """Up to n further bytes; none, and a problem, where the file is damaged."""
        try:
            if not self.problem:
                with explained(f"{self.origin} is damaged", "download or copy it again"):
                    return bytes(self.source.read1(n))  # one read: whole bytes, or an error
        except InputError as problem:
            self.problem = problem
        return b""


@contextmanager
def open_source(
    text: str, stdin: BinaryIO | None = None, *, absent: str = "", origin: str = ""
) -> Iterator[Source]:
    """What a SOURCE names, open for reading, unpacked where it is gzipped or in a zip.

    A path that exists is taken whole, even with `::` in it. In a zip, what follows `::` is a
    member, and what follows that a name in the member; a zip that holds npy files is an npz.
    `absent` ends the hint where there is no such file: where one is to be had. `origin` is what
    messages call it, where that is not its path.
    """
    text, is_literal = (text, False) if os.path.exists(text) else literal(text)
    path, name = _split(text) if "::" in text and not is_literal else (text, "")
    if not path:
        raise InputError("the path is empty")
    label = LITERAL if is_literal else STANDARD_INPUT if path == "-" else safe(path)
    origin = origin or label
    with ExitStack() as stack:
        try:
            if is_literal:
                data = text.encode("utf-8", "backslashreplace")
                ending = ".txt" if are_numbers(text) else ".json"
                source = Source(origin, io.BytesIO(data), data[:_HEAD], ending, size=len(data))
            else:
                source = _opened(origin, path, name, stdin, stack)
            kind = source.kind
            if kind == "gzip" or (kind == "zip" and source.ending != ".npz"):
                source = _unpacked(source, stack)
            yield source
        except AttncliError:
            raise
        except FileNotFoundError as problem:
            hint = _near(path)
            end = "" if hint.endswith("?") else "."
            hint = f"{hint}{end} {absent}" if absent else hint
            raise InputError(f"{origin} does not exist", hint) from problem
        except OSError as problem:
            text = problem.strerror or reason(problem)
            raise InputError(f"{origin} cannot be read: {text}") from problem
        except MemoryError as problem:
            raise SizeError(f"{origin} does not fit into memory") from problem


def are_numbers(text: str) -> bool:
    """Whether a text is numbers alone, without a bracket: 1 2 3; 4 5 6."""
    return bool(_OF_NUMBERS.fullmatch(text) and _TWO_NUMBERS.search(text))


def literal(text: str) -> tuple[str, bool]:
    """A SOURCE without quotes that cmd.exe leaves, and whether it is numbers in a form we read."""
    inner = text.strip()[1:-1].strip()
    if text.strip()[:1] == "'" == text.strip()[-1:] and inner[:1] in ("[", "{"):
        text = inner
    if os.path.exists(text):
        return text, False
    is_bracketed = text.lstrip().startswith(("[", "{", "\\begin{", "\\["))
    return text, is_bracketed or bool(ARRAY.match(text)) or are_numbers(text)


def _split(text: str) -> tuple[str, str]:
    """The path and the name after `::`."""
    parts = text.split("::")
    paths = ("::".join(parts[:n]) for n in range(len(parts), 0, -1))
    path = next(filter(os.path.exists, paths), parts[0])
    name = text[len(path) + 2 :]
    if path != text and not name:
        raise InputError(f"{safe(text)} names no array after ::", "write path::name")
    return path, name


def _opened(origin: str, path: str, name: str, stdin: BinaryIO | None, stack: ExitStack) -> Source:
    if path == "-":
        if stdin is None and sys.stdin is None:
            raise InputError("standard input is closed", "name a file")
        return streamed(origin, stdin or sys.stdin.buffer, "", name)
    try:
        status = os.stat(path)
    except ValueError as problem:  # a null character, or half a surrogate pair
        raise InputError(f"{origin} cannot be read: not a path") from problem
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{origin} is a directory", "name a file in it")
    # without a buffer, whose bytes would be a copy of what is read at once
    file = stack.enter_context(open(path, "rb", 0))  # noqa: SIM115 - the stack closes it
    ending = os.path.splitext(path.lower().removesuffix(".gz"))[1]
    if not stat.S_ISREG(status.st_mode):
        return streamed(origin, io.BufferedReader(file), ending, name)
    head = file.read(_HEAD)
    file.seek(0)
    return Source(origin, file, head, ending, name, path, status.st_size)


def _near(path: str) -> str:
    """A hint with the names in the same folder that look alike."""
    import difflib

    folder, name = os.path.split(path)
    if folder and not os.path.isdir(folder):
        return f"there is no folder {safe(folder)}"
    near = difflib.get_close_matches(name, os.listdir(folder or "."), n=3)
    paths = " or ".join(safe(os.path.join(folder, other)) for other in near)
    return f"did you mean {paths}?" if near else "check the path"


def _unpacked(source: Source, stack: ExitStack) -> Source:
    """What a gzipped file holds, or the member of a zip that is asked for; an npz as it is."""
    if source.kind == "zip":
        inner = _member(source.in_memory(), stack)
    else:
        import gzip

        file = stack.enter_context(gzip.GzipFile(fileobj=source.file))
        packed = source.file.raw.tell if source.size is None else source.file.tell
        inner = streamed(source.origin, file, source.ending, source.name, packed)
    if inner.kind == "gzip":
        raise InputError(f"{inner.origin} is gzip inside another file", "unpack it first")
    return inner


def _member(source: Source, stack: ExitStack) -> Source:
    archive = open_zip(source, stack)
    files = [info for info in archive.infolist() if not _NO_CONTENT.fullmatch(info.filename)]
    member, _, rest = source.name.partition("::")
    members = [info for info in files if info.filename == member]
    members = members or [info for info in files if os.path.basename(info.filename) == member]
    if not members and any(info.filename.endswith(".npy") for info in files):
        return source
    if not members and len(files) == 1:
        members, rest = files, source.name
    names = [info.filename for info in members or files]
    if not members:
        lacks = f"no {quote(member)}; it holds " if member else ""
        hint = f"name one: {ask_for(source.origin, names[0])}" if names else "check the file"
        raise InputError(f"{source.origin} holds {lacks}{listing(names) or 'no file'}", hint)
    if len(members) > 1:
        message = f"{source.origin} holds {len(members)} files {quote(member)}: {listing(names)}"
        hint = (
            "zip it again" if member in names else f"name one: {ask_for(source.origin, names[0])}"
        )
        raise InputError(message, hint)
    info = members[0]
    origin = source.origin if len(files) == 1 else ask_for(source.origin, info.filename)
    with explained(f"{origin} is damaged", "download or copy it again"):
        file = stack.enter_context(archive.open(info))
    ending = os.path.splitext(info.filename.lower())[1]
    return streamed(origin, file, ending, rest, lambda: info.compress_size)


def open_zip(source: Source, stack: ExitStack) -> ZipFile:
    """The zip in a source, after its directory was checked."""
    import zipfile

    kind = "npz" if source.ending == ".npz" else "zip"
    with explained(f"{source.origin} is not a valid {kind} file", "copy it again"):
        archive = stack.enter_context(zipfile.ZipFile(source.file))
    infos = archive.infolist()
    if any(info.flag_bits & 1 for info in infos):
        raise InputError(f"{source.origin} is encrypted", "save it without a password")
    if {info.compress_type for info in infos} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise InputError(f"{source.origin} is not compressed with deflate", "zip it again")
    if sum(info.compress_size for info in infos) > (source.size or 0):
        raise InputError(f"{source.origin} has an index of more than its bytes", "copy it again")
    return archive
