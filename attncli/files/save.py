"""Out: a trace as JSON or npz, a stage as npy, and a file that is either whole or untouched.

write_atomically("trace.npz", partial(write_npz, trace), force=False)
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from attncli.errors import OutputError
from attncli.files.messages import safe
from attncli.files.trace import ENTRY, document_of, plain_lists
from attncli.trace import Stage, Trace

# what a terminal, an editor or a UTF-8 encoder may trip over; JSON can escape it
_UNSAFE = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date: the same trace gives the same bytes


def trace_json(trace: Trace) -> Iterator[str]:
    """The JSON of a trace, piece by piece, a row of a matrix on a line; see `trace`.

    >>> scores = Stage("scores", "S", "S = Q Kᵀ", np.eye(2), ("query", "key"))
    >>> "".join(trace_json(Trace("Attention", (scores,)))).splitlines()[-6:-4]
    ['        [1.0, 0.0],', '        [0.0, 1.0]']
    """
    yield from _json(document_of(trace, lambda _, value: {"value": value}), "\n")
    yield "\n"


def write_npz(trace: Trace, file: BinaryIO) -> None:
    """Write a trace as npz: an array a stage, and one that describes them; see `trace`."""
    document = json.dumps(document_of(trace, lambda name, _: {"array": name}))
    stages = list(trace.stages())
    names = {name for name, _ in stages}
    if len(names) < len(stages) or ENTRY in names:
        raise OutputError("the trace has two stages of one name", "give each its own")
    with zipfile.ZipFile(file, "w") as archive:
        _add(archive, ENTRY, np.array(document))
        for name, stage in stages:
            _add(archive, name, stage.value)


def write_npy(stage: Stage, file: BinaryIO) -> None:
    """Write the array of a stage as npy."""
    np.lib.format.write_array(file, stage.value, allow_pickle=False)


def trace_npz(trace: Trace) -> bytes:
    """The bytes that `write_npz` writes."""
    file = io.BytesIO()
    write_npz(trace, file)
    return file.getvalue()


def stage_npy(stage: Stage) -> bytes:
    """The bytes that `write_npy` writes."""
    file = io.BytesIO()
    write_npy(stage, file)
    return file.getvalue()


def write_bytes_atomically(path: str, chunks: bytes | Iterable[bytes], *, force: bool) -> None:
    """Write bytes, or pieces of them, to a file; see `write_atomically`."""

    def write(file: BinaryIO) -> None:
        file.writelines((chunks,) if isinstance(chunks, bytes) else chunks)

    write_atomically(path, write, force=force)


def write_atomically(path: str, write: Callable[[BinaryIO], None], *, force: bool) -> None:
    """Have `write` fill a file: beside its place first, then renamed, so never in part.

    A symbolic link is followed, the mode of a file that is replaced is kept, and a device or pipe
    (/dev/null) is written directly. Whatever `write` raises passes through, after the part that
    was written is removed.

    Raises OutputError where a file is there already without `force`, and where the system refuses;
    BrokenPipeError where the reader of a pipe went away.
    """
    try:
        status = os.stat(path) if os.path.exists(path) else None
        if status and stat.S_ISDIR(status.st_mode):
            raise OutputError(f"{safe(path)} is a directory", "name a file in it")
        if status and not stat.S_ISREG(status.st_mode):
            with open(path, "wb") as device:
                write(device)
            return
        if status and not force:
            raise OutputError(f"{safe(path)} exists already", "replace it with --force")
        _replace(os.path.realpath(path), write, status and stat.S_IMODE(status.st_mode))
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise OutputError(
            f"{safe(path)} cannot be written: {problem.strerror or problem}", _mend(path)
        ) from problem
    except ValueError as problem:
        if "null" not in str(problem):  # not about the path: an error of `write`
            raise
        raise OutputError(f"{safe(path)} is not a path", "name a file") from problem


def _mend(path: str) -> str:
    folder = os.path.dirname(path)
    return "" if os.path.isdir(folder or ".") else f"make the folder {safe(folder)} first"


def _replace(target: str, write: Callable[[BinaryIO], None], mode: int | None) -> None:
    handle, beside = _open_beside(target)
    try:
        with open(handle, "wb") as file:
            if mode is not None:
                os.chmod(beside, mode)
            write(file)
        os.replace(beside, target)
    except BaseException:  # KeyboardInterrupt too
        with suppress(OSError):
            os.unlink(beside)
        raise


def _open_beside(target: str) -> tuple[int, str]:
    """A new file of the usual mode in the folder of another, and its path."""
    folder = os.path.dirname(target)
    number = 0
    while True:
        beside = os.path.join(folder, f".attncli-{os.getpid()}-{number}.tmp")
        with suppress(FileExistsError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            return os.open(beside, flags, 0o666), beside
        number += 1


def _add(archive: zipfile.ZipFile, name: str, array: npt.NDArray[Any]) -> None:
    entry = zipfile.ZipInfo(f"{name}.npy", _ZIP_EPOCH)
    with archive.open(entry, "w", force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _json(node: Any, line: str) -> Iterator[str]:
    """JSON of a document with arrays in it; `line` is a line break and the indentation here."""
    inner = f"{line}  "
    pieces: Iterable[tuple[str, Any]]
    if isinstance(node, dict) and node:
        start, pieces, end = "{", ((f"{_text(key)}: ", item) for key, item in node.items()), "}"
    elif _is_tall(node):
        start, pieces, end = "[", (("", item) for item in node), "]"
    else:
        yield _text(plain_lists(node) if isinstance(node, np.ndarray) else node)
        return
    separator = start
    for name, item in pieces:
        yield f"{separator}{inner}{name}"
        yield from _json(item, inner)
        separator = ","
    yield f"{line}{end}"


def _is_tall(node: Any) -> bool:
    """Whether the entries of a list or array each stand on a line of their own."""
    if isinstance(node, np.ndarray):
        return node.ndim > 1 and node.size > 0
    return isinstance(node, list) and any(isinstance(item, dict) for item in node)


def _text(plain: Any) -> str:
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
