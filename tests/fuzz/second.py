"""A second reading of every form of file, by json, gzip, zipfile and NumPy alone.

It gives what a file holds, or raises: `NoOpinionError` where it does not decide what is meant,
`RefusalError` or any other error where the file must not be accepted.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import struct
import zipfile
from collections.abc import Iterable
from typing import Any

import ml_dtypes
import numpy as np

from attncli.arrays import Array

from .cases import Case
from .forms import SAFE_TYPES
from .reading import LABELS, NoOpinionError, Reading, RefusalError, role_of

PLAIN = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
NOT_JSON = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def reading_of(source: str, case: Case) -> tuple[Reading, str]:
    """What a SOURCE is read as, and what its `::name` asks for."""
    if source.lstrip()[:1] in ("[", "{") and source not in case.files:
        return _of_json(source.encode()), ""
    data, ending, name = opened(source, case)
    if data[8:9] == b"{" and struct.unpack("<Q", data[:8])[0] < len(data):
        return _of_safetensors(data), name
    if data[:6] == b"\x93NUMPY":
        return Reading({"": npy_array(data)}), name
    if data[:2] == b"PK" or ending == ".npz":  # zipfile reads one with bytes before it
        return _of_npz(data), name
    if ending in (".npy", ".safetensors"):
        raise RefusalError(f"not {ending}")
    if ending == ".json" or data.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \n\t")[:1] in (b"[", b"{"):
        return _of_json(data), name
    return Reading({"": table(data, ending)}), name


def opened(source: str, case: Case) -> tuple[bytes, str, str]:
    """The bytes that a SOURCE names, unpacked, their ending, and what is left after `::`."""
    path, _, name = source.partition("::")
    data = case.stdin if path == "-" else case.files[path]
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    ending = _ending(path)
    if data[:2] != b"PK" or ending == ".npz":
        return data, ending, name
    archive, (asked, _, rest) = zipfile.ZipFile(io.BytesIO(data)), name.partition("::")
    names = [one for one in archive.namelist() if asked in (one, one.rpartition("/")[2])]
    if not asked or len(names) != 1:
        raise NoOpinionError("which member is meant")
    return archive.read(names[0]), _ending(names[0]), rest


def _ending(path: str) -> str:
    last = re.search(r"\.[a-z]+$", path.lower().removesuffix(".gz"))
    return last[0] if last else ""


def _named(pairs: Iterable[tuple[str, Any]]) -> Reading:
    """Arrays, labels and the factor on the scores by their names; NaN is no array, nor a scale."""
    reading = Reading({})
    names = [name.lower() for name, _ in pairs]
    if any(names.count(one) > 1 for one in (*LABELS, "scale")):
        raise NoOpinionError("scale or tokens twice")
    for name, x in pairs:
        if name.lower() in LABELS:
            reading.labels[name.lower()] = x.tolist() if isinstance(x, np.ndarray) else x
        elif name.lower() == "scale":
            reading.scale = float(np.asarray(x).reshape(())) if np.size(x) == 1 else math.nan
        elif isinstance(x, np.ndarray):
            reading.arrays[name] = x
        else:
            reading.wrong += (name,)
    if "__trace__" in names or "attncli" in names:
        raise NoOpinionError("traces are held by tests of their own")
    if any(np.size(x) == 0 for x in reading.arrays.values()) and not any(map(role_of, names)):
        raise NoOpinionError("nothing in it")
    return reading


# ---- JSON


def _of_json(data: bytes) -> Reading:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise RefusalError("a key twice")
        return dict(pairs)

    try:
        document = json.loads(data, object_pairs_hook=unique)
    except json.JSONDecodeError as problem:
        if re.search(rb"\.(?!\d)|(?<!\d)\.|\d\s*/", data):
            raise NoOpinionError(".5, 5. and 1/2 are numbers too") from problem
        raise
    json.dumps(document, ensure_ascii=False).encode()  # half a surrogate pair raises
    if isinstance(document, list):
        return Reading({"": json_array(document)})
    pairs = [(name, value) for name, value in document.items() if value is not None]
    return _named([(name, _array_or(value) if _may_be(name) else value) for name, value in pairs])


def _may_be(name: str) -> bool:
    return name.lower() not in (*LABELS, "scale")


def _array_or(value: Any) -> Any:
    """The array of nested lists; what has no numbers alone as it is."""
    try:
        return json_array(value) if isinstance(value, list) else value
    except (RefusalError, ValueError, OverflowError):
        return value


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
        if isinstance(node, float) and math.isinf(node):
            raise NoOpinionError("Infinity, or a number beyond float64")
        return number if isinstance(number, bool) else float(number)

    array = np.array(read(nested))
    if len(kinds) != 1:
        raise RefusalError("no number, or true among numbers")
    return array


# ---- npy, npz, safetensors, tables


def npy_array(data: bytes) -> Array:
    """An npy file of version 1, 2 or 3 that ends with its last number."""
    if data[6:8] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise RefusalError("no such version")
    file = io.BytesIO(data)
    array = np.load(file, allow_pickle=False)
    if file.read(1):
        raise RefusalError("bytes after the array")
    return np.asarray(array)


def _of_npz(data: bytes) -> Reading:
    archive, arrays = zipfile.ZipFile(io.BytesIO(data)), list[tuple[str, Any]]()
    names = [name for name in archive.namelist() if name.endswith(".npy")]
    if len(set(names)) < len(names) or not names:
        raise RefusalError("two arrays of one name, or none")
    for name in names:
        try:
            arrays.append((name[:-4], npy_array(archive.read(name))))
        except Exception:
            arrays.append((name[:-4], None))
    return _named(arrays)


def _of_safetensors(data: bytes) -> Reading:
    """The tensors, cut out of the bytes by the header."""
    (length,) = struct.unpack("<Q", data[:8])
    header, body, arrays = json.loads(data[8 : 8 + length]), data[8 + length :], []
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        begin, end = tensor["data_offsets"]
        if not 0 <= begin <= end <= len(body):
            raise RefusalError("offsets")
        array = None
        if tensor["dtype"] in SAFE_TYPES:
            array = np.frombuffer(body[begin:end], SAFE_TYPES[tensor["dtype"]])
            array = array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array
            array = array.reshape(tensor["shape"])
        arrays.append((name, array))
    return _named(arrays)


def table(data: bytes, ending: str) -> Array:
    """The numbers of a table, without comments, a header and labels that hold no number."""
    text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    lines = [line.strip() for line in re.split("\r\n|\r|\n", text) if not line.startswith("# ")]
    separators = {*re.findall("[,;\t]", text)}
    if (
        re.search("nan|inf", text.lower())
        or len(separators) != 1
        or not separators <= {".tsv": {"\t"}, ".csv": {",", ";"}}.get(ending, separators)
    ):
        raise NoOpinionError("which separator is meant")
    rows = [[cell.strip() for cell in re.split("[,;\t]", line)] for line in lines if line]
    if len(rows) > 1 and not any(PLAIN.fullmatch(cell) for cell in rows[0]):
        rows = rows[1:]
    if not any(PLAIN.fullmatch(row[0]) for row in rows):
        rows = [row[1:] for row in rows]
    if not all(PLAIN.fullmatch(cell) for row in rows for cell in row):
        raise NoOpinionError("texts among numbers, quotes and other numbers")
    matrix = np.array([[float(cell) for cell in row] for row in rows])
    if not np.isfinite(matrix).all():
        raise RefusalError("beyond float64")
    return matrix
