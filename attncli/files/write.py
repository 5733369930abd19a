"""Writes a trace as JSON or npz, a stage as npy, arrays and texts by their names as npz or
safetensors; and files that are complete or untouched.

write_atomically("trace.npz", partial(write_npz, trace), force=False)
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

from attncli.arrays import Array
from attncli.errors import MissingExtraError, OutputError
from attncli.files.messages import safe
from attncli.files.numbers import nan_to_text
from attncli.recorded import RecordedCall
from attncli.trace import Stage, Trace

Entries = Iterable[tuple[str, Array | str]]
Encode = Callable[[str, Array], dict[str, Any]]

ENTRY = "__trace__"
"""The array of an npz that holds the document."""
OPTIONAL = ("note", "reads", "params", "expression", "sizes")
"""Fields of a stage that are written where they hold something."""
VERSION = 2
"""The version of the format that is written and read."""

AT_ONCE = 1 << 16
"""Numbers of a row that are written at once: a few megabytes, however long it is."""

REPLACE = "replace it with --force"

_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date: the same trace gives the same bytes


def document_of(trace: Trace, encode: Encode | None = None) -> dict[str, Any]:
    """The document of a trace, each value as `encode(dotted name, value)` puts it, or as lists.

    >>> scores = Stage("scores", "S", "S = Q Kᵀ", np.array([[1.0, np.inf]]), ("query", "key"))
    >>> document_of(Trace("Attention", (scores,)))["steps"][0]["value"]
    [[1.0, 'Infinity']]
    """
    encode = encode or (lambda _, value: {"value": plain_lists(value)})
    call = {} if trace.call is None else {"call": _written_call(trace.call)}
    return {"attncli": "trace", "version": VERSION, **call, **_written(trace, "", encode)}


def _written_call(call: RecordedCall) -> dict[str, Any]:
    options = [
        {"name": name, "words": [*words], **({"provides": provides} if provides else {})}
        for name, words, provides in call.options
    ]
    return {"function": call.function, "options": options}


def plain_lists(value: Array) -> Any:
    """An array as nested lists of numbers (or true and false), NaN and infinity as strings.

    >>> plain_lists(np.array([0.1, -np.inf]))
    [0.1, '-Infinity']
    """
    cells = value.tolist()
    finite = value.dtype.kind != "f" or bool(np.isfinite(value).all())
    return cells if finite else nan_to_text(cells)


def _written(trace: Trace, prefix: str, encode: Encode) -> dict[str, Any]:
    return {
        "title": trace.title,
        **({"name": trace.name} if trace.name else {}),
        "convention": trace.convention and nan_to_text(asdict(trace.convention)),
        "notes": list(trace.notes),
        "steps": [
            _written_stage(step, f"{prefix}{step.name}", encode)
            if isinstance(step, Stage)
            else {"kind": "trace", **_written(step, f"{prefix}{step.name}.", encode)}
            for step in trace.steps
        ],
    }


def _written_stage(stage: Stage, dotted: str, encode: Encode) -> dict[str, Any]:
    always = ("name", "symbol", "formula", "axes", "labels")
    optional = [name for name in OPTIONAL if getattr(stage, name)]
    return {
        "kind": "stage",
        **{name: nan_to_text(getattr(stage, name)) for name in always},
        "shape": list(stage.value.shape),
        "dtype": "str" if stage.value.dtype.kind == "U" else stage.value.dtype.name,
        **encode(dotted, stage.value),
        **{name: nan_to_text(getattr(stage, name)) for name in optional},
        **({} if stage.spec is None else {"display": stage.spec.display}),
    }


def trace_json(trace: Trace) -> Iterator[str]:
    """The JSON of a trace, piece by piece, a row of a matrix on a line; see files/trace.py.

    >>> scores = Stage("scores", "S", "S = Q Kᵀ", np.eye(2), ("query", "key"))
    >>> "".join(trace_json(Trace("Attention", (scores,)))).splitlines()[-6:-4]
    ['        [1.0, 0.0],', '        [0.0, 1.0]']
    """
    yield from document_json(document_of(trace, lambda _, value: {"value": value}))


def document_json(document: dict[str, Any]) -> Iterator[str]:
    """The JSON of a document with arrays in it, piece by piece, a row of a matrix on a line."""
    yield from _json(document, "\n")
    yield "\n"


def _json(node: Any, line: str) -> Iterator[str]:
    """JSON of a document with arrays in it; `line` is a line break and the indentation here."""
    inner = f"{line}  "
    is_array = isinstance(node, np.ndarray)
    is_tall = is_array and node.ndim > 1 and node.size > 0  # its rows are on lines of their own
    pieces: Iterable[tuple[str, Any]]
    if isinstance(node, dict) and node:
        start, pieces, end = "{", ((f"{json_text(key)}: ", item) for key, item in node.items()), "}"
    elif is_tall or (isinstance(node, list) and any(isinstance(item, dict) for item in node)):
        start, pieces, end = "[", (("", item) for item in node), "]"
    elif is_array and node.ndim == 1 and node.size > AT_ONCE:
        for at in range(0, node.size, AT_ONCE):
            numbers = json_text(plain_lists(node[at : at + AT_ONCE]))
            yield (", " if at else "[") + numbers[1:-1]
        yield "]"
        return
    else:
        yield json_text(plain_lists(node) if is_array else node)
        return
    separator = start
    for name, item in pieces:
        yield f"{separator}{inner}{name}"
        yield from _json(item, inner)
        separator = ","
    yield f"{line}{end}"


def json_text(plain: Any, indent: int | None = None) -> str:
    """JSON in which what is not plainly visible is written as an escape: no terminal obeys it.

    >>> print(json_text(["é", "\\u202e", "\\x9b"]))
    ["é", "\\u202e", "\\u009b"]
    """
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=indent)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def write_npz(trace: Trace, file: BinaryIO) -> None:
    """Write a trace as npz: an array a stage, and one that describes them; see files/trace.py."""
    document = json.dumps(document_of(trace, lambda name, _: {"array": name}))
    stages = [(name, stage.value) for name, stage in trace.stages()]
    names = {name for name, _ in stages}
    if len(names) < len(stages) or ENTRY in names:
        raise OutputError("the trace has two stages of one name", "give each its own")
    write_arrays(((ENTRY, np.array(document)), *stages), file)


def write_arrays(arrays: Iterable[tuple[str, Array]], file: BinaryIO) -> None:
    """Write arrays by name as npz, one after the other, with a fixed date."""
    import zipfile

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays:
            entry = zipfile.ZipInfo(f"{name}.npy", _ZIP_EPOCH)
            with archive.open(entry, "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def write_dump(path: str, entries: Entries, *, force: bool, hint: str = REPLACE) -> None:
    """Writes arrays, and texts beside them, to a file whose ending says its format."""
    check_dump(path, force=force, hint=hint)
    is_npz = path.lower().endswith(".npz")
    arrays = ((name, np.asarray(entry)) for name, entry in entries)
    write = partial(write_arrays, arrays) if is_npz else partial(_write_safetensors, entries)
    write_atomically(path, write, force=force, hint=hint)


def check_dump(path: str, *, force: bool, hint: str = REPLACE) -> None:
    """OutputError where nothing can be written to this path, before it is known what."""
    if not path.lower().endswith((".npz", ".safetensors")):
        raise OutputError(f"{safe(path)} is neither npz nor safetensors", "end it in .npz")
    check_target(path, force=force, hint=hint)


def _write_safetensors(entries: Entries, file: BinaryIO) -> None:
    try:
        from safetensors.numpy import save
    except ImportError:
        needs = "writing safetensors needs the package safetensors"
        raise MissingExtraError(needs, "pip install 'attncli[safetensors]'") from None
    values = dict(entries)
    texts = {name: x for name, x in values.items() if isinstance(x, str)}
    arrays = {n: np.ascontiguousarray(x) for n, x in values.items() if n not in texts}
    file.write(save(arrays, texts))


def write_npy(stage: Stage, file: BinaryIO) -> None:
    """Write the array of a stage as npy."""
    # Given a file itself, NumPy asks for its position, which a pipe has not, and does not say
    # why a disk refuses.
    np.lib.format.write_array(SimpleNamespace(write=file.write), stage.value, allow_pickle=False)


def write_atomically(
    path: str, write: Callable[[BinaryIO], object], *, force: bool, hint: str = REPLACE
) -> None:
    """Let `write` fill a temporary file in the same folder, then rename it to `path`.

    A symbolic link is followed, the mode of a file that is replaced is kept, and a device or pipe
    (/dev/null) is written directly. Whatever `write` raises passes through, after the part that
    was written is removed.
    """
    try:
        status = check_target(path, force=force, hint=hint)
        if status and not stat.S_ISREG(status.st_mode):
            with open(path, "wb") as device:
                write(device)
            return
        mode = stat.S_IMODE(status.st_mode) if status else None
        _replace(os.path.realpath(path), write, mode, replace=force)
    except BrokenPipeError:
        raise
    except FileExistsError:  # another process was faster
        raise OutputError(f"{safe(path)} exists already", hint) from None
    except OSError as problem:
        text = problem.strerror or problem
        raise OutputError(f"{safe(path)} cannot be written: {text}") from problem
    except ValueError as problem:
        if "null" not in str(problem):  # not about the path: an error of `write`
            raise
        raise OutputError(f"{safe(path)} is not a path", "name a file") from problem


def check_target(path: str, *, force: bool, hint: str = REPLACE) -> os.stat_result | None:
    """What is known of what is at this path already; OutputError where it cannot be written to."""
    folder = os.path.dirname(path)
    if path.endswith(("/", os.sep)):
        raise OutputError(f"{safe(path)} is a directory", "name a file in it")
    if folder and not os.path.exists(folder):
        message = f"{safe(path)} cannot be written: {os.strerror(errno.ENOENT)}"
        raise OutputError(message, f"make the folder {safe(folder)} first")
    status = os.stat(path) if os.path.exists(path) else None
    if status and stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{safe(path)} is a directory", "name a file in it")
    if status and stat.S_ISREG(status.st_mode) and not force:
        raise OutputError(f"{safe(path)} exists already", hint)
    return status


def _replace(
    target: str, write: Callable[[BinaryIO], object], mode: int | None, *, replace: bool
) -> None:
    # Named before it is made, so that whatever ends the process finds it to remove.
    name = f".attncli-{os.getpid()}-{os.urandom(6).hex()}.tmp"
    part = os.path.join(os.path.dirname(target), name)
    try:
        with open(part, "xb") as file:
            if mode is not None:
                os.chmod(part, mode)
            write(file)
        if replace:
            os.replace(part, target)
        else:
            _link(part, target)
    finally:  # after KeyboardInterrupt too
        with suppress(OSError):
            os.unlink(part)


def _link(part: str, target: str) -> None:
    """Gives a file its name, where none has taken it in the meantime: FileExistsError."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.replace(part, target)
