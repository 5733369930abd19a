"""Valid files of every form, and the small attentions that they hold."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from attncli.arrays import Array
from attncli.attention.attend import attend
from attncli.convention import Convention
from attncli.files.write import trace_json, write_npz

from .reading import role_of

Arrays = dict[str, Any]
"""Arrays by name; `scale` is a number, `tokens` a list of names."""

NAMES = {"q": ("q", "Q", "query", "query_states"), "k": ("k", "Key", "keys"), "v": ("v", "values")}
NAMES["d_output"] = ("d_output", "dO", "grad_output", "dout")
NPY_TYPES = ("<f8", ">f8", "<f4", ">f4", "<f2", "<i8", ">i4", "<u2", "i1", "u1")
SAFE_TYPES = ("F64", "F32", "F16", "BF16", "I64", "I32", "I8", "U8")


def numbers(rng: Random, *shape: int) -> Array:
    """Small whole numbers, decimals, or normal ones."""
    style = np.random.default_rng(rng.getrandbits(32))
    match rng.randrange(3):
        case 0:
            return style.integers(-3, 4, shape).astype(float)
        case 1:
            return np.round(style.normal(size=shape), 1)
    return style.normal(size=shape)


def problem(rng: Random) -> Arrays:
    """q, k and v that fit together, under one of their names, and what may be beside them."""
    n_q, n_k, d_k, d_v = rng.choice([1, 2, 3]), rng.choice([2, 3, 5]), rng.choice([1, 2]), 2
    before = rng.choice([(), (), (), (2,), (2, 2)])
    n_k = rng.choice([n_q, n_k])
    found: Arrays = {"q": numbers(rng, *before, n_q, d_k)}
    if rng.random() < 0.9:
        found["k"] = numbers(rng, *before, n_k, d_k)
        found["v"] = numbers(rng, *before, n_k, d_v)
    n_k = n_k if "k" in found else n_q
    if rng.random() < 0.3:
        found["mask"] = mask(rng, n_q, n_k)
    if rng.random() < 0.2:
        found["scale"] = rng.choice([0.5, 1, 2.0])
    if rng.random() < 0.2:
        found["tokens"] = [f"t{i}" for i in range(n_q)]
    if rng.random() < 0.1 and "k" in found and "mask" not in found:
        found["past_k"], found["past_v"] = (
            numbers(rng, *before, 2, d_k),
            numbers(rng, *before, 2, 2),
        )
    if rng.random() < 0.2:
        found["d_output"] = numbers(rng, *before, n_q, d_v if "v" in found else d_k)
    if rng.random() < 0.3 and before:
        found["sinks"] = numbers(rng, 2)
    return {rng.choice(NAMES.get(name, (name,))): x for name, x in found.items()}


def mask(rng: Random, n_q: int, n_k: int, n_axes: int = 2) -> Array:
    """True and false, or numbers to add, that broadcast to so many axes of scores."""
    shape = (rng.choice([1, 2]), rng.choice([1, 2]), rng.choice([1, n_q]), n_k)[4 - n_axes :]
    hidden = np.random.default_rng(rng.getrandbits(32)).random(shape) < 0.4
    return ~hidden if rng.random() < 0.5 else np.where(hidden, -np.inf, 0.5)


def one_matrix(arrays: Arrays) -> Array:
    """What a form that holds one matrix is given: the first."""
    first = np.asarray(next(iter(arrays.values())))
    return first.reshape(-1, first.shape[-1]) if first.ndim > 2 else first


def as_lists(x: Any, rng: Random) -> Any:
    """An array as JSON has it, whole numbers sometimes without a point."""
    if not isinstance(x, np.ndarray):
        return x
    texts = {np.inf: "Infinity", -np.inf: "-Infinity"}
    whole = rng.random() < 0.5

    def plain(node: Any) -> Any:
        if isinstance(node, list):
            return [plain(inner) for inner in node]
        if isinstance(node, bool) or not whole or node in texts or node != int(node):
            return texts.get(node, node)
        return int(node)

    return plain(x.tolist())


def to_json(arrays: Arrays, rng: Random) -> bytes:
    text = json.dumps({name: as_lists(x, rng) for name, x in arrays.items()}, ensure_ascii=False)
    return text.encode(rng.choice(["utf-8"] * 8 + ["utf-16", "utf-8-sig"]))


def to_literal(arrays: Arrays, rng: Random) -> bytes:
    return json.dumps(as_lists(one_matrix(arrays), rng)).encode()


def to_npy(arrays: Arrays, rng: Random) -> bytes:
    return npy(np.asarray(next(iter(arrays.values()))), rng)


def npy(x: Array, rng: Random) -> bytes:
    """In any type and order of bytes, of rows or of columns, in version 1 or 2."""
    if x.dtype.kind == "f":
        with np.errstate(all="ignore"):
            x = np.nan_to_num(x, neginf=-100).astype(rng.choice(NPY_TYPES))
    x = np.asfortranarray(x) if rng.random() < 0.3 else x
    file = io.BytesIO()
    np.lib.format.write_array(file, x, version=rng.choice([(1, 0), (1, 0), (2, 0)]))
    return file.getvalue()


def to_npz(arrays: Arrays, rng: Random) -> bytes:
    return zipped({f"{name}.npy": npy(np.asarray(x), rng) for name, x in arrays.items()}, rng)


def zipped(members: Mapping[str, bytes], rng: Random) -> bytes:
    """A zip, stored or deflated."""
    file = io.BytesIO()
    how = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(file, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, how)
    return file.getvalue()


def to_table(arrays: Arrays, rng: Random, separator: str = "") -> bytes:
    """Lines of cells, sometimes with labels, a header and a comment."""
    separator = separator or rng.choice([",", ",", ";", "\t", " "])
    matrix = one_matrix(arrays)
    ways = ["%r"] if matrix.dtype == bool else ["%g", "%.3f", "%r"]
    rows = [[rng.choice(ways) % cell for cell in row] for row in matrix.tolist()]
    labels, header = rng.random() < 0.3, rng.random() < 0.3
    if labels:
        rows = [[rng.choice(["the", "cat", "##s", '"x"', "=1+1"]), *row] for row in rows]
    if header:
        corner = [rng.choice(["", "weights", "token"])] if labels else []
        corner = ["token"] if separator == " " and labels else corner
        rows.insert(0, corner + [f"c{i}" for i in range(len(rows[0]) - labels)])
    lines = [
        separator.join(
            f'"{c}"' if separator == "," and rng.random() < 0.1 and '"' not in c else c for c in row
        )
        for row in rows
    ]
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines) + 1), "# a comment")
    return rng.choice(["\n", "\n", "\r\n"]).join([*lines, ""]).encode()


def to_csv(arrays: Arrays, rng: Random) -> bytes:
    return to_table(arrays, rng, rng.choice([",", ",", ";"]))


def to_tsv(arrays: Arrays, rng: Random) -> bytes:
    return to_table(arrays, rng, "\t")


def to_safetensors(arrays: Arrays, rng: Random) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}} if rng.random() < 0.3 else {}
    body = b""
    for name, x in arrays.items():
        if name == "tokens":  # it holds no text
            continue
        code = "BOOL" if np.asarray(x).dtype == bool else rng.choice(SAFE_TYPES)
        kinds = {"F": "<f", "I": "<i", "U": "<u", "B": "?"}
        kind = f"{kinds[code[0]]}{int(code[1:]) // 8}" if code[1:].isdigit() else "?"
        with np.errstate(all="ignore"):
            if code == "BF16":
                array = np.asarray(x, dtype=float).astype(ml_dtypes.bfloat16)
            else:
                array = np.nan_to_num(np.asarray(x), neginf=-100).astype(kind)
        offsets = [len(body), len(body) + array.nbytes]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": offsets}
        body += array.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def _trace(arrays: Arrays, rng: Random) -> Any:
    given = {role_of(name) or name: x for name, x in arrays.items()}
    tokens = given.pop("tokens", None)
    scale = given.pop("scale", "1/sqrt(d_k)")
    given.setdefault("k", given["q"])
    given.setdefault("v", given["k"])
    how = Convention(causal=rng.random() < 0.3, scale=scale)
    return attend(**given, query_labels=tokens, convention=how)


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
    "csv": (".csv", to_csv),
    "tsv": (".tsv", to_tsv),
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


def word_vectors(rng: Random, words: list[str]) -> Arrays:
    """A vector of three numbers for each word."""
    return {word: np.round(numbers(rng, 3), 2) for word in words}


def to_glove(vectors: Arrays, rng: Random) -> bytes:
    """GloVe's text, or word2vec's with its first line of counts."""
    lines = [" ".join([word, *map(str, x.tolist())]) for word, x in vectors.items()]
    if rng.random() < 0.3:
        lines.insert(0, f"{len(vectors)} 3")
    return "\n".join([*lines, ""]).encode()


def attention_weights(rng: Random, d: int, *, torch: bool) -> Arrays:
    """The projections of one attention of width d, by our names or PyTorch's."""
    ours = ["", "attention.", "1.attention.", "encoder.1."]
    prefix = rng.choice(["", "self_attn.", "layers.0.self_attn."] if torch else ours)
    if not torch:
        names = [f"w_{role}" for role in "qkvo"] + rng.choice([[], ["b_q", "b_k", "b_v", "b_o"]])
        return {prefix + n: numbers(rng, *((d, d) if n[0] == "w" else (d,))) for n in names}
    found = {"in_proj_weight": numbers(rng, 3 * d, d), "out_proj.weight": numbers(rng, d, d)}
    if rng.random() < 0.5:
        found |= {"in_proj_bias": numbers(rng, 3 * d), "out_proj.bias": numbers(rng, d)}
    return {prefix + name: x for name, x in found.items()}


def catalogue(rng: Random) -> Any:
    """A file of one worked example, with numbers as they could be printed."""
    q, k, v = (numbers(rng, 2, 2) for _ in "qkv")
    more: Arrays = rng.choice([{}, {}, {"mask": mask(rng, 2, 2)}])
    scale: Any = rng.choice(["1/sqrt(d_k)", "none", 2.0])
    trace = attend(q, k, v, **more, convention=Convention(scale=scale))
    claims = [
        {
            "claim": stage,
            "stage": stage,
            "at": {"query": row + 1},
            "printed": [f"{x + rng.choice([0, 0, 0.3]):.2f}" for x in trace[stage].value[row]],
        }
        for stage in ("weights", "output")
        for row in range(2)
    ]
    inputs = {name: as_lists(x, rng) for name, x in (("q", q), ("k", k), ("v", v), *more.items())}
    inputs |= {} if scale == "1/sqrt(d_k)" else {"convention": {"scale": scale}}
    example = {"name": "one", "title": "t", "compute": "attention", "inputs": inputs}
    source = {"id": "mine", "title": "A sheet"}
    whole = {"attncli": "examples", "version": 1, "source": source}
    return {**whole, "examples": [{**example, "claims": claims}]}
