"""Valid files of every form, and the small attentions that they hold."""

from __future__ import annotations

import gzip
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from attncli import Convention, attend
from attncli.arrays import Array
from attncli.files.write import trace_json, write_npz

from .reading import role_of

Arrays = dict[str, Any]
"""Arrays by name; `scale` is a number, `tokens` a list of names."""
NAMES = {
    "q": ("q", "Q", "query", "query_states"), "k": ("k", "Key", "keys"), "v": ("v", "values"),
    "d_output": ("d_output", "dO", "grad_output", "dout"),
}  # fmt: skip
NPY_TYPES = ("<f8", ">f8", "<f4", ">f4", "<f2", "<i8", ">i4", "<u2", "i1", "u1")
SAFE_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "BOOL": "?",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1",
}  # fmt: skip


def numbers(rng: Random, *shape: int) -> Array:
    """Small whole numbers, decimals, or normal ones."""
    draw = np.random.default_rng(rng.getrandbits(32))
    x = draw.normal(size=shape)
    return rng.choice([np.round(3 * x), np.round(x, 1), x])


def problem(rng: Random) -> Arrays:
    """q, k and v that fit together, under one of their names, and what may be beside them."""
    n_q, d, before = rng.choice([1, 2, 3]), 2, rng.choice([(), (), (), (2,), (2, 2)])
    n_k = rng.choice([n_q, 2, 5])
    every: Arrays = {"q": numbers(rng, *before, n_q, d)}
    if rng.random() < 0.9:
        every |= {name: numbers(rng, *before, n_k, d) for name in "kv"}
    n_k = n_k if "k" in every else n_q
    beside: dict[str, Callable[[], Any]] = {
        "mask": lambda: mask(rng, n_q, n_k),
        "scale": lambda: rng.choice([0.5, 1, 2.0]),
        "tokens": lambda: [f"t{i}" for i in range(n_q)],
        "d_output": lambda: numbers(rng, *before, n_q, d),
        "sinks": lambda: numbers(rng, 2),
    }
    every |= {name: make() for name, make in beside.items() if rng.random() < 0.25}
    if not before:
        every.pop("sinks", None)
    if rng.random() < 0.1 and "k" in every and "mask" not in every:
        every |= {f"past_{name}": numbers(rng, *before, 2, d) for name in "kv"}
    return {rng.choice(NAMES.get(name, (name,))): x for name, x in every.items()}


def mask(rng: Random, n_q: int, n_k: int) -> Array:
    """True and false, or numbers to add, that broadcast to the scores."""
    draw = np.random.default_rng(rng.getrandbits(32))
    hidden = draw.random((rng.choice([1, n_q]), n_k)) < 0.4
    return ~hidden if rng.random() < 0.5 else np.where(hidden, -np.inf, 0.5)


def one_matrix(arrays: Arrays) -> Array:
    """What a form that holds one matrix is given: the first."""
    first = np.asarray(next(iter(arrays.values())))
    return first.reshape(-1, first.shape[-1])


def as_lists(x: Any, rng: Random) -> Any:
    """An array as JSON has it, whole numbers sometimes without a point."""
    if not isinstance(x, np.ndarray):
        return x
    text = json.dumps(x.tolist()).replace("-Infinity", '"-Infinity"')
    return json.loads(text.replace(".0,", ",") if rng.random() < 0.5 else text)


def to_json(arrays: Arrays, rng: Random) -> bytes:
    text = json.dumps({name: as_lists(x, rng) for name, x in arrays.items()}, ensure_ascii=False)
    return text.encode(rng.choice(["utf-8"] * 8 + ["utf-16", "utf-8-sig"]))


def to_literal(arrays: Arrays, rng: Random) -> bytes:
    return json.dumps(as_lists(one_matrix(arrays), rng)).encode()


def to_npy(arrays: Arrays, rng: Random) -> bytes:
    """In any type and order of bytes, of rows or of columns, in version 1 or 2."""
    x = np.asarray(next(iter(arrays.values())))
    if x.dtype.kind == "f":
        with np.errstate(all="ignore"):
            x = np.nan_to_num(x, neginf=-100).astype(rng.choice(NPY_TYPES))
    x = np.asfortranarray(x) if rng.random() < 0.3 else x
    file = io.BytesIO()
    np.lib.format.write_array(file, x, version=rng.choice([(1, 0), (1, 0), (2, 0)]))
    return file.getvalue()


def to_npz(arrays: Arrays, rng: Random) -> bytes:
    return zipped([(f"{name}.npy", to_npy({"": x}, rng)) for name, x in arrays.items()], rng)


def zipped(members: Iterable[tuple[str, bytes]], rng: Random) -> bytes:
    """A zip, stored or deflated; names may be in it twice."""
    file = io.BytesIO()
    how = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w", how) as archive:
        warnings.simplefilter("ignore")
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, how)
    return file.getvalue()


def to_table(arrays: Arrays, rng: Random, separators: str = ",;\t ") -> bytes:
    """Lines of cells, sometimes with labels, a header and a comment."""
    separator, matrix = rng.choice(separators), one_matrix(arrays)
    ways = ["%r"] if matrix.dtype == bool else ["%g", "%.3f", "%r"]
    ways = ['"%s"'] if rng.random() < 0.1 and separator == "," else ways
    rows = [[rng.choice(ways) % cell for cell in row] for row in matrix.tolist()]
    labels = rng.random() < 0.3
    if labels:
        rows = [[rng.choice(["the", "cat", "##s", '"x"', "=1+1"]), *row] for row in rows]
    if rng.random() < 0.3:
        corner = ["token" if separator == " " else rng.choice(["", "weights"])] if labels else []
        rows.insert(0, corner + [f"c{i}" for i in range(matrix.shape[1])])
    lines = [separator.join(row) for row in rows]
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines) + 1), "# a comment")
    return rng.choice(["\n", "\r\n"]).join([*lines, ""]).encode()


def to_safetensors(arrays: Arrays, rng: Random) -> bytes:
    header: Arrays = {"__metadata__": {"format": "pt"}} if rng.random() < 0.3 else {}
    body = b""
    for name, given in arrays.items():
        if name == "tokens":  # it holds no text
            continue
        x = np.asarray(given)
        code = "BOOL" if x.dtype == bool else rng.choice([c for c in SAFE_TYPES if c != "BOOL"])
        with np.errstate(all="ignore"):
            x = np.nan_to_num(x, neginf=-100).astype(SAFE_TYPES[code])
        offsets = [len(body), len(body) + x.nbytes]
        header[name] = {"dtype": code, "shape": list(x.shape), "data_offsets": offsets}
        body += x.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def _trace(arrays: Arrays, rng: Random) -> Any:
    given = {role_of(name) or name: x for name, x in arrays.items()}
    how = Convention(causal=rng.random() < 0.3, scale=given.pop("scale", "1/sqrt(d_k)"))
    given = {"k": given["q"], "query_labels": given.pop("tokens", None), **given}
    return attend(**{"v": given["k"], **given}, convention=how)


def to_trace(arrays: Arrays, rng: Random) -> bytes:
    return "".join(trace_json(_trace(arrays, rng))).encode()


def to_trace_npz(arrays: Arrays, rng: Random) -> bytes:
    file = io.BytesIO()
    write_npz(_trace(arrays, rng), file)
    return file.getvalue()


FORMS: dict[str, tuple[str, Callable[[Arrays, Random], bytes]]] = {
    "json": (".json", to_json),
    "literal": ("", to_literal),
    "npy": (".npy", to_npy),
    "npz": (".npz", to_npz),
    "csv": (".csv", lambda arrays, rng: to_table(arrays, rng, ",;")),
    "tsv": (".tsv", lambda arrays, rng: to_table(arrays, rng, "\t")),
    "txt": (".txt", to_table),
    "safetensors": (".safetensors", to_safetensors),
    "trace": (".json", to_trace),
    "trace npz": (".npz", to_trace_npz),
}
"""Each form: its ending, and what writes it."""
SINGLE = ("literal", "npy", "csv", "tsv", "txt")
"""Forms that hold one matrix."""


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def to_glove(words: list[str], rng: Random) -> bytes:
    """GloVe's text, or word2vec's with its first line of counts; three numbers for each word."""
    lines = [" ".join([word, *map(str, numbers(rng, 3).round(2).tolist())]) for word in words]
    head = [f"{len(words)} 3"] if rng.random() < 0.3 else []
    return "\n".join([*head, *lines, ""]).encode()


def attention_weights(rng: Random, d: int) -> Arrays:
    """The projections of one attention of width d, by our names or PyTorch's."""
    shapes: dict[str, tuple[int, ...]] = {f"w_{role}": (d, d) for role in "qkvo"}
    shapes |= {"b_q": (d,)} if rng.random() < 0.5 else {}
    prefix = rng.choice(["", "attention.", "encoder.1."])
    if rng.random() < 0.5:
        prefix = rng.choice(["", "self_attn.", "layers.0.self_attn."])
        shapes = {"in_proj_weight": (3 * d, d), "out_proj.weight": (d, d), "in_proj_bias": (3 * d,)}
    return {prefix + name: numbers(rng, *shape) for name, shape in shapes.items()}
