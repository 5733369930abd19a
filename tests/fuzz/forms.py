"""Valid files of every form, and the small attentions that they hold."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from attncli import attend
from attncli.arrays import Array
from attncli.files.write import trace_json, write_npz

Arrays = dict[str, Any]
"""Arrays by name; `scale` is a number, `tokens` a list of names."""
NAMES = {"q": ("q", "Q", "query_states"), "k": ("k", "Key", "keys"), "v": ("v", "values")}
FLOATS, WHOLES = ("<f8", ">f8", "<f4", ">f4", "<f2"), ("<i8", ">i4", "<u2", "i1", "u1")
SAFE_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "I64": "<i8", "U8": "u1",
}  # fmt: skip


def numbers(rng: Random, *shape: int) -> Array:
    """Whole numbers or quarters, that every type holds."""
    draw = np.random.default_rng(rng.getrandbits(32))
    return draw.integers(0, 8, shape) / rng.choice([1, 4])


def problem(rng: Random) -> Arrays:
    """q, k and v that fit together, under one of their names, and what may be beside them."""
    n_q, before = rng.choice([1, 2, 3]), rng.choice([(), (), (), (2,), (2, 2)])
    n_k = rng.choice([n_q, 2, 5])
    every: Arrays = {"q": numbers(rng, *before, n_q, 2)}
    every |= {name: numbers(rng, *before, n_k, 2) for name in "kv"}
    beside = {
        "mask": mask(rng, n_q, n_k)["mask"],
        "scale": rng.choice([0.5, 1, 2.0]),
        "tokens": [f"t{i}" for i in range(n_q)],
        "d_output": numbers(rng, *before, n_q, 2),
    }
    every |= {name: x for name, x in beside.items() if rng.random() < 0.25}
    every |= {"sinks": numbers(rng, 2)} if before and rng.random() < 0.25 else {}
    if rng.random() < 0.2 and "mask" not in every:
        every |= {f"past_{name}": numbers(rng, *before, 2, 2) for name in "kv"}
    return {rng.choice(NAMES.get(name, (name,))): x for name, x in every.items()}


def mask(rng: Random, n_q: int = 3, n_k: int = 3) -> Arrays:
    """True and false, or numbers to add, that broadcast to the scores."""
    draw = np.random.default_rng(rng.getrandbits(32))
    hidden = draw.random((rng.choice([1, n_q]), n_k)) < 0.4
    return {"mask": rng.choice([~hidden, np.where(hidden, -np.inf, 0.5)])}


def weights(rng: Random) -> Arrays:
    """The projections of one attention of width 3, by our names or PyTorch's."""
    own = {f"w_{role}": numbers(rng, 3, 3) for role in "qkvo"}
    packed = {"in_proj_weight": numbers(rng, 9, 3), "out_proj.weight": numbers(rng, 3, 3)}
    return rng.choice([own, packed])


def to_json(arrays: Arrays, rng: Random) -> bytes:
    lists: Any = {name: getattr(x, "tolist", lambda x=x: x)() for name, x in arrays.items()}
    text = json.dumps(lists.get("", lists)).replace("-Infinity", '"-Infinity"')
    text = text.replace(".0,", ",") if rng.random() < 0.5 else text
    return text.encode(rng.choice(["utf-8"] * 8 + ["utf-16", "utf-8-sig"] * ("" not in arrays)))


def to_npy(arrays: Arrays, rng: Random) -> bytes:
    """In a type that holds it, in any order of bytes, of rows or of columns."""
    x = np.asarray(next(iter(arrays.values())))
    if x.dtype.kind == "f":
        x = x.astype(rng.choice(FLOATS + WHOLES * is_whole(x)))
    x = np.asfortranarray(x) if rng.random() < 0.3 else x
    file = io.BytesIO()
    np.lib.format.write_array(file, x, version=rng.choice([(1, 0), (1, 0), (2, 0)]))
    return file.getvalue()


def is_whole(x: Array) -> bool:
    return bool(np.isfinite(x).all() and (x == x.round()).all())


def to_npz(arrays: Arrays, rng: Random) -> bytes:
    return zipped([(f"{name}.npy", to_npy({"": x}, rng)) for name, x in arrays.items()], rng)


def zipped(members: Iterable[tuple[str, bytes]], rng: Random) -> bytes:
    file = io.BytesIO()
    how = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, how)
    return file.getvalue()


def to_table(arrays: Arrays, rng: Random) -> bytes:
    """Lines of cells, sometimes with labels, a header and a comment."""
    separator, matrix = rng.choice(",;\t"), next(iter(arrays.values()))
    way = rng.choice(["%r"] if matrix.dtype == bool else ["%g", "%.3f", "%r"])
    rows = [[way % cell for cell in row] for row in matrix.tolist()]
    if rng.random() < 0.3:
        rows = [[rng.choice(["the", "cat", "##s", '"x"', "=1+1"]), *row] for row in rows]
        rows.insert(0, ["", *(f"c{i}" for i in range(matrix.shape[1]))])
    lines = ["# a comment"] * (rng.random() < 0.2) + [separator.join(row) for row in rows]
    return rng.choice(["\n", "\r\n"]).join([*lines, ""]).encode()


def to_safetensors(arrays: Arrays, rng: Random) -> bytes:
    header, body = Arrays(), b""
    for name, x in arrays.items():
        if isinstance(x, np.ndarray):
            codes = [*SAFE_TYPES] if is_whole(x) else [*SAFE_TYPES][:4]
            code = "BOOL" if x.dtype == bool else rng.choice(codes)
            start, body = len(body), body + x.astype(SAFE_TYPES.get(code, bool)).tobytes()
            offsets = [start, len(body)]
            header[name] = {"dtype": code, "shape": list(x.shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def to_trace(arrays: Arrays, rng: Random) -> bytes:
    return "".join(trace_json(attend(*[*arrays.values()][:3], causal=True))).encode()


def to_trace_npz(arrays: Arrays, rng: Random) -> bytes:
    write_npz(attend(*[*arrays.values()][:3], scale="none"), file := io.BytesIO())
    return file.getvalue()


def to_glove(arrays: Arrays, rng: Random) -> bytes:
    """GloVe's text, or word2vec's with its first line of counts."""
    lines = [" ".join([word, *map(str, vector)]) for word, vector in arrays.items()]
    head = [f"{len(lines)} 3"] if rng.random() < 0.3 else []
    return "\n".join([*head, *lines, ""]).encode()


FORMS: dict[str, tuple[str, Callable[[Arrays, Random], bytes]]] = {
    "json": (".json", to_json),
    "literal": ("", to_json),
    "npy": (".npy", to_npy),
    "npz": (".npz", to_npz),
    "table": (".txt", to_table),
    "safetensors": (".safetensors", to_safetensors),
    "trace": (".json", to_trace),
    "trace npz": (".npz", to_trace_npz),
    "gz": (".npy.gz", lambda arrays, rng: gzip.compress(to_npy(arrays, rng), 6, mtime=0)),
    "zip": (".zip", lambda arrays, rng: zipped([("q.npy", to_npy(arrays, rng))], rng)),
    "glove": (".txt", to_glove),
}
"""Each form: its ending, and what writes it."""
SINGLE = ("literal", "npy", "table", "gz", "zip")
"""Forms that hold one matrix."""
