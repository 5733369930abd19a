"""Valid files of every form with the small attentions that they hold, and damage to them."""

import gzip
import io
import json
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from attncli import attend
from attncli.arrays import Array
from attncli.files.write import trace_json
from tests.files.conftest import safetensors, trace_npz

Arrays = dict[str, Any]
"""Arrays by name; `scale` is a number, `tokens` a list of names."""
NAMES = {"q": ("q", "Q", "query_states"), "k": ("k", "Key", "keys"), "v": ("v", "values")}
FLOATS, WHOLES = ("<f8", ">f8", "<f4", ">f4", "<f2"), ("<i8", ">i4", "<u2", "i1", "u1")
SAFE_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16}
SAFE_WHOLES = {"I64": "<i8", "U8": "u1"}


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
    text = re.sub('(?<!")-Infinity', '"-Infinity"', json.dumps(lists.get("", lists)))
    text = text.replace(".0,", ",") if rng.random() < 0.5 else text
    return text.encode(rng.choice(["utf-8"] * 8 + ["utf-16", "utf-8-sig"] * ("" not in arrays)))


def to_npy(arrays: Arrays, rng: Random) -> bytes:
    """In a type that holds it, in any order of bytes, of rows or of columns."""
    x = np.asarray(next(iter(arrays.values())))
    if x.dtype.kind == "f":
        x = x.astype(rng.choice(FLOATS + WHOLES * is_whole(x)))
    x, version = np.asfortranarray(x) if rng.random() < 0.3 else x, rng.choice([1, 1, 2])
    np.lib.format.write_array(file := io.BytesIO(), x, version=(version, 0))
    return file.getvalue()


def is_whole(x: Array) -> bool:
    return bool(np.isfinite(x).all() and (x == x.round()).all())


def to_npz(arrays: Arrays, rng: Random) -> bytes:
    return zipped([(f"{name}.npy", to_npy({"": x}, rng)) for name, x in arrays.items()], rng)


def zipped(members: Iterable[tuple[str, bytes]], rng: Random) -> bytes:
    convention = rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(file := io.BytesIO(), "w", convention) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, convention)
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
    table = Arrays()
    for name, x in arrays.items():
        if isinstance(x, np.ndarray):
            types = SAFE_TYPES | (SAFE_WHOLES if is_whole(x) else {})
            types = {"BOOL": bool} if x.dtype == bool else types
            code = rng.choice([*types])
            table[name] = (code, x.shape, x.astype(types[code]).tobytes())
    return safetensors(table)


def to_trace(arrays: Arrays, rng: Random) -> bytes:
    return "".join(trace_json(attend(*[*arrays.values()][:3], causal=True))).encode()


def to_trace_npz(arrays: Arrays, rng: Random) -> bytes:
    return trace_npz(attend(*[*arrays.values()][:3], scale="none"))


def to_glove(arrays: Arrays, rng: Random) -> bytes:
    """GloVe's text, or word2vec's with its first line of counts; packed, or as JSON."""
    lines = [" ".join([word, *map(str, vector)]) for word, vector in arrays.items()]
    head = [f"{len(lines)} 3"] if rng.random() < 0.3 else []
    text = "\n".join([*head, *lines, ""]).encode()
    packed = gzip.compress(text, mtime=0), zipped([("v.txt", text)], rng), to_json(arrays, rng)
    return text if rng.random() < 0.5 else rng.choice(packed)


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


# ---- damage: to bytes, and to the structure of JSON, tables, zips and headers


PIECES = (
    b"\xff\xff\xff\xff", b"[", b"{", b'"', b",", b"e999", b"\xed\xa0\x80", b"-", b"\n", b"\0", b"#",
    b"1", b".", b" ", b"O", b"NaN", b"\xef\xbb\xbf", b"\x1b[31m", b";", b"'", b"=", b"]", b"null",
)  # fmt: skip
NODES: tuple[Any, ...] = (
    None, True, 0, -1, 2.5, 10**30, 10**400, 1e308, "", "x", "NaN", "-Infinity", "nan", "1", [], {},
    [[]], [1], [[1, 2]], [[True]], [[1], [2, 3]], [[[[[1]]]]], {"a": [[1]]}, ["a"], "\x1b[31m",
    "é" * 300, [[1, "x"]], [None], float("nan"), float("inf"), "float64", 3, 1e-300, -0.0,
)  # fmt: skip
KEYS = (
    "q", "Q", "k", "v", "query", "mask", "scale", "Scale", "tokens", "past_k", "sinks", "x", "",
    "w_q", "b_q", "weights", "attncli", "version", "value", "shape", "dtype", "labels", "a\x1b[1m",
)  # fmt: skip
CELLS = (
    "", "x", "1.O", "1,5", "nan", "-inf", "1e400", "=1+1", "#", "# 1", "true", "1_0", "٣", " 2 ", " ",
    "0x10", '"', "1e5", "+3", "-", ".", "1.5.2", "None", "##a", ",", ";", "\t", "|", "\n", ",,",
)  # fmt: skip
WORDS = (
    b"<f8", b">f8", b"|b1", b"<U4", b"|O", b"<c16", b"|V8", b"<f2", b">u8", b"()", b"(1,)", b"(2, 3)",
    b"(0, 2)", b"(-1, 2)", b"[2,3]", b"[-1]", b"[0,2]", b"(9999999,)", b"U8", b"C64", b"F64", b"F16",
    b"BOOL", b"q", b"k", b"True", b"0", b"1", b"8", b"99999999", b"\2\0", b"\x09\0", b"'", b"\xff\xff",
)  # fmt: skip


def damaged(data: bytes, form: str, rng: Random) -> bytes:
    """The file with one to three mutations of one sort, of its bytes or of its structure."""
    structural = STRUCTURAL.get(form, of_bytes) if rng.random() < 0.6 else of_bytes
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        try:
            data = structural(data, rng)
        except Exception:
            data = of_bytes(data, rng)  # it is no longer what it was
    return data


def of_bytes(data: bytes, rng: Random) -> bytes:
    """Some bytes flipped, put in, taken out, doubled, zeroed or replaced."""
    at, other = (rng.randrange(len(data) + 1) for _ in range(2))
    piece, size = rng.choice(PIECES), rng.choice([1, 1, 2, 4, 8])
    middle, end = rng.choice([
        (bytes(x ^ 1 << rng.randrange(8) for x in data[at : at + 1]), at + 1), (piece, at),
        (b"", at + size), (b"", len(data)), (data[max(0, at - 40) : at], at), (b"", other),
        (bytes(size), at + size), (piece, at + len(piece)), (rng.randbytes(size), at + size),
    ])  # fmt: skip
    return data[:at] + middle + data[end:]


def of_json(data: bytes, rng: Random) -> bytes:
    """One node replaced, removed, renamed, nested or exchanged."""
    document = json.loads(data)
    places = list(_places(document))
    if rng.random() < 0.5:  # numbers are most: choose a field instead
        places = [place for place in places if isinstance(place[0], dict)] or places
    (parent, key), (other, name) = rng.choice(places), rng.choice(places)
    own, where = parent[key], rng.choice(KEYS) if isinstance(parent, dict) else key
    new = rng.choice([rng.choice(NODES), rng.choice(NODES), [own], own, json.dumps(other[name])])
    if rng.random() < 0.4:
        del parent[key]
    if isinstance(parent, dict):
        parent[rng.choice([key, where])] = new
    else:
        parent.insert(key, new)
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.05 and text.startswith("{"):
        text = f'{{"{rng.choice(KEYS)}": {json.dumps(new)}, {text[1:]}'  # perhaps a key twice
    return text.encode("utf-8", "surrogatepass")


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every node as its parent and its key there."""
    if isinstance(node, dict | list):
        for key in [*node] if isinstance(node, dict) else range(len(node)):
            yield node, key
            yield from _places(node[key])


def of_table(data: bytes, rng: Random) -> bytes:
    """A cell or a separator replaced or taken out."""
    parts = re.split(r"([,;\t \n]+)", data.decode("utf-8", "replace"))
    parts[rng.randrange(len(parts))] = rng.choice(CELLS)
    return "".join(parts).encode()


def of_header(data: bytes, rng: Random) -> bytes:
    """A word, a number or a shape of the text at the start replaced, its length kept."""
    words = list(re.finditer(rb"[\w<>|]+|\([^)]*\)|\[[^\]]*\]|['\"{}]", data[:400]))
    start, end = rng.choice(words).span()
    return data[:start] + rng.choice(WORDS).ljust(end - start)[: end - start] + data[end:]


def of_zip(data: bytes, rng: Random) -> bytes:
    """A member removed, renamed, doubled or damaged."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at, new = rng.randrange(len(members)), f"{rng.choice(KEYS)}.npy"
    name, content = members[at]
    changed = [(name, rng.choice([of_header, of_header, of_bytes])(content, rng))]
    members[at : at + 1] = rng.choice([
        [], [(new, content)], [members[at], (rng.choice([name, new, "../up.npy"]), content)],
        changed, changed,
    ])  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may be in it twice
        return zipped(members, rng)


STRUCTURAL: dict[str, Callable[[bytes, Random], bytes]] = {
    **dict.fromkeys(("json", "literal", "trace"), of_json),
    **dict.fromkeys(("npz", "trace npz", "zip"), of_zip),
    **dict.fromkeys(("table", "glove"), of_table),
    **dict.fromkeys(("npy", "safetensors"), of_header),
}
