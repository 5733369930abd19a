"""A second reading of every form of file, by json, csv, gzip, zipfile and NumPy alone.

A reader gives what a file holds, or raises: `RefusalError` or any other error says that the file
must not be accepted. Where two readings are honest, there are two, of which one must be equal.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from attncli.arrays import Array

from .reading import LABELS, NoOpinionError, Reading, RefusalError
from .tables import table_readings

NOT_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def readings(source: str, files: Mapping[str, bytes], stdin: bytes) -> tuple[list[Reading], str]:
    """What a SOURCE may be read as, at least one, and what its `::name` asks for."""
    if source.lstrip()[:1] in ("[", "{") and source not in files:
        return [json_reading(source.encode())], ""
    data, ending, name = opened(source, files, stdin)
    return _by_form(data, ending, name), name


def opened(source: str, files: Mapping[str, bytes], stdin: bytes) -> tuple[bytes, str, str]:
    """The bytes that a SOURCE names, unpacked, their ending, and what is left after `::`."""
    path = next((name for name in files if source == name or source.startswith(f"{name}::")), "-")
    if path not in files and not re.match(r"-(::|$)", source):
        raise RefusalError("no such file")
    data = stdin if path == "-" else files[path]
    return unpacked(data, _ending(path), source[len(path) + 2 :])


def _ending(path: str) -> str:
    found = re.search(r"\.[a-z]+$", path.lower().removesuffix(".gz"))
    return found[0] if found else ""


def unpacked(data: bytes, ending: str, name: str) -> tuple[bytes, str, str]:
    """The bytes inside a gz or a zip, their ending, and what is left of the name."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
        if data[:2] == b"\x1f\x8b":
            raise RefusalError("gzip twice")
    if data[:2] == b"PK" and ending != ".npz":
        archive = zipfile.ZipFile(io.BytesIO(data))
        names = [one for one in archive.namelist() if not re.match(r"__MACOSX/|(.*/)?(\.|$)", one)]
        asked, _, rest = name.partition("::")
        found = [one for one in names if one == asked]
        found = found or [one for one in names if one.rpartition("/")[2] == asked]
        if not found and any(one.endswith(".npy") for one in names):
            return data, ".npz", name
        if not found:
            found, rest = names, name
        if len(found) != 1:
            raise RefusalError("which member")
        return archive.read(found[0]), _ending(found[0]), rest
    return data, ending, name


def _by_form(data: bytes, ending: str, member: str) -> list[Reading]:
    """By the first bytes, else by the ending; of an unknown one, all that can be read."""
    if data[8:9] == b"{" and struct.unpack("<Q", data[:8])[0] < len(data):
        return [safetensors_reading(data, member)]
    if data[:6] == b"\x93NUMPY":
        return [Reading({"": npy_array(data)})]
    if data[:2] == b"PK" or ending == ".npz":  # zipfile reads one with bytes before it
        return [npz_reading(data, member)]
    if ending in (".npy", ".safetensors"):
        raise RefusalError(f"not {ending}")
    if ending == ".json":
        return [json_reading(data, member)]
    if ending in (".csv", ".tsv"):
        return table_readings(data, ending)
    try:
        return [json_reading(data, member)]
    except (ValueError, AttributeError):  # no JSON, or but a number
        return table_readings(data, ending)


# ---- JSON


class Beyond:
    """A number beyond float64: an error where it is used."""


def _other(found: re.Match[str]) -> str:
    above, _, below = found[0].partition("/")
    try:
        return repr(float(above) / float(below or 1)) if below or "." in above else above
    except ZeroDivisionError:
        return ""


def json_document(data: bytes) -> Any:
    """A JSON text, a number beyond float64 as Beyond; RefusalError for a key that is there twice."""

    def number(text: str) -> float | Beyond:
        return Beyond() if math.isinf(float(text)) else float(text)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise RefusalError("a key twice")
        return dict(pairs)

    try:
        document = json.loads(data, parse_float=number, object_pairs_hook=unique)
    except json.JSONDecodeError:  # .5, 5. and 1/2 are numbers too
        text = re.sub(r"[-+]?[\d.]+(?:[eE][-+]?\d+)?(?:/[\d.]+)?(?=\s*[],])", _other, data.decode())
        document = json.loads(text, parse_float=number, object_pairs_hook=unique)
    json.dumps(document, ensure_ascii=False, default=str).encode()  # half a surrogate pair raises
    return document


def json_array(nested: Any) -> Array:
    """Nested lists of numbers, or of true and false, as an array."""
    kinds = set()

    def read(node: Any) -> Any:
        if isinstance(node, list):
            return [read(inner) for inner in node]
        kinds.add(type(node) is bool)
        number = NOT_JSON.get(node, node) if isinstance(node, str) else node
        if not isinstance(number, bool | int | float):
            raise RefusalError(f"{node!r} among numbers")
        return number if isinstance(number, bool) else float(number)

    array = np.array(read(nested))
    if len(kinds) != 1:
        raise RefusalError("no number, or true among numbers")
    return array


def json_reading(data: bytes, member: str = "") -> Reading:
    """An object of arrays, a nested list, or a saved trace."""
    document = json_document(data)
    if isinstance(document, list):
        return Reading({"": json_array(document)})
    if document.get("attncli") == "trace":
        return trace_reading(document, None, member)
    found = Reading({})
    names = [name.lower() for name in document if document[name] is not None]
    if not member and any(names.count(one) > 1 for one in (*LABELS, "scale")):
        raise RefusalError("scale or tokens twice")
    for name, value in document.items():
        if value is None:
            continue
        if name.lower() in LABELS:
            found.labels[name.lower()] = value
        elif name.lower() == "scale":
            if isinstance(value, bool) or not math.isfinite(float(json_array([value])[0])):
                raise RefusalError("scale")
            found.scale = float(value)
        elif isinstance(value, list):
            try:
                found.arrays[name] = json_array(value)
            except (RefusalError, ValueError, OverflowError):
                found.wrong += (name,)
        else:
            found.wrong += (name,)
    return found


# ---- npy, npz, safetensors


def npy_array(data: bytes) -> Array:
    """An npy file of version 1, 2 or 3 that ends with its last number."""
    if data[6:8] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise RefusalError("no such version")
    file = io.BytesIO(data)
    array = np.load(file, allow_pickle=False)
    if file.read(1):
        raise RefusalError("bytes after the array")
    return np.asarray(array)


def npz_reading(data: bytes, member: str = "") -> Reading:
    """The arrays of an npz; those called as labels are lists of names."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    names = [name for name in archive.namelist() if name.endswith(".npy")]
    if len(set(names)) < len(names):
        raise RefusalError("two arrays of one name")
    found = Reading({})
    if "__trace__.npy" in names:
        arrays = {name[:-4]: npy_array(archive.read(name)) for name in names}
        return trace_reading(json_document(str(arrays.pop("__trace__")).encode()), arrays, member)
    if not names:
        raise RefusalError("no npy in it")
    for filename in names:
        name = filename[:-4]
        try:
            array = npy_array(archive.read(filename))
            if name.lower() in LABELS:
                if name.lower() in found.labels:
                    raise NoOpinionError("tokens in two cases of letters")
                found.labels[name.lower()] = array.tolist()
            elif name.lower() == "scale" and name != member:
                if found.scale is not None:
                    raise RefusalError("scale twice")
                found.scale = _scale(array, member)
            else:
                found.arrays[name] = array
        except Exception:
            if name.lower() in (*LABELS, "scale"):
                raise
            found.wrong += (name,)
    return found


SAFE = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip


def _scale(array: Array, member: str) -> float | None:
    """The factor on the scores; beside an array that is asked for, several may be a norm's own."""
    if array.size == 1:
        return float(array.reshape(-1)[0])
    return None if member else math.nan


def safetensors_reading(data: bytes, member: str = "") -> Reading:
    """The tensors, cut out of the bytes by the header."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body, found = json_document(data[8 : 8 + length]), data[8 + length :], Reading({})
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        if not 0 <= begin <= end <= len(body):
            raise RefusalError("offsets")
        if tensor["dtype"] not in SAFE:
            found.wrong += (name,)
            continue
        array = np.frombuffer(body[begin:end], SAFE[tensor["dtype"]]).reshape(tensor["shape"])
        if name.lower() == "scale" and name != member:
            found.scale = _scale(array, member)
        elif array.dtype == ml_dtypes.bfloat16:
            found.arrays[name] = array.astype(np.float32)
        else:
            found.arrays[name] = array
    return found


# ---- saved traces


def trace_reading(document: Any, arrays: dict[str, Array] | None, member: str) -> Reading:
    """The stages of a trace by dotted name, and the convention of the attention that is meant."""
    found, conventions = Reading({}), {"": document.get("convention")}

    def walk(steps: list[Any], prefix: str) -> None:
        for step in steps:
            name = prefix + step["name"] if step["kind"] == "stage" or "name" in step else prefix
            if step["kind"] == "trace":
                conventions[f"{name}."] = step.get("convention")
                walk(step["steps"], f"{name}.")
                continue
            value = json_array(step["value"]) if arrays is None else arrays[step["array"]]
            axes, labels = step["axes"], step.get("labels") or {}
            labels = {axis: labels[axis] for axis in labels if axis in axes}
            if list(value.shape) != step["shape"] or len(axes) != value.ndim:
                raise RefusalError("the shape")
            if not all(isinstance(one, str) for one in (*axes, step["symbol"], step["formula"])):
                raise RefusalError("a name that is no text")
            if any(len(labels[axis]) != value.shape[axes.index(axis)] for axis in labels):
                raise RefusalError("labels")
            if arrays is None and step.get("dtype"):
                value = value.astype(step["dtype"])
            if name in found.arrays:
                raise RefusalError("a stage twice")
            found.arrays[name] = value
            for axis in ("query", "key"):
                if axis in labels and step["name"] == {"query": "q", "key": "k"}[axis]:
                    found.labels[f"{name}:{axis}"] = labels[axis]

    walk(document["steps"], "")
    is_one = bool(member) and member in found.arrays
    part = f"{member}." if member and not is_one else ""
    inside = [name for name in found.arrays if name.startswith(part)]
    queries = [name for name in inside if name.rpartition(".")[2] == "q"]
    if queries and not is_one:
        depth = min(name.count(".") for name in queries)
        first, *others = [name for name in queries if name.count(".") == depth]
        if others:
            raise RefusalError("several attentions")
        found.prefix = first[:-1]
        found.labels = {
            f"{axis}_tokens": found.labels[f"{found.prefix}{name}:{axis}"]
            for axis, name in (("query", "q"), ("key", "k"))
            if f"{found.prefix}{name}:{axis}" in found.labels
        }
        found.how = conventions.get(found.prefix) or conventions[part] or conventions[""] or {}
    elif is_one:  # one array, like that of any other file
        found.labels = {}
    else:
        found.labels, found.how = {}, document.get("convention") or {}
    return found
