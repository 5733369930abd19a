"""Damage: to bytes, and to the structure of JSON, tables, zips and headers."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from random import Random
from typing import Any

from .forms import zipped

PIECES = (
    b"\xff\xff\xff\xff", b"[", b"{", b'"', b",", b"e999", b"\xed\xa0\x80", b"-", b"\n", b"\0", b"#",
    b"1", b".", b" ", b"O", b"NaN", b"\xef\xbb\xbf", b"\x1b[31m", b";", b"'", b"=", b"]", b"null",
)  # fmt: skip
NODES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2.5, 10**30, 10**400, 1e308, "", "x", "NaN", "-Infinity", "nan",
    "1", [], {}, [[]], [1], [[1, 2]], [[True]], [[1], [2, 3]], [[[[[1]]]]], {"a": [[1]]}, ["a"],
    "\x1b[31m", "é" * 300, [[1, "x"]], [None], float("nan"), float("inf"), "float64", 3,
)  # fmt: skip
NUMBERS = (0, 1, -1, 2.5, 1e-300, 1e300, "NaN", "-Infinity", True, 10**19, 7, float("nan"), -0.0)
KEYS = (
    "q", "Q", "k", "v", "query", "key_states", "mask", "attn_mask", "scale", "Scale", "tokens",
    "Tokens", "past_k", "past_v", "sinks", "x", "", "w_q", "w_o", "b_q", "weights",
    "linear1.weight", "output", "attncli", "version", "value", "shape", "dtype", "axes", "labels",
    "name", "a\x1b[1m", "query_tokens", "key_tokens", "convention", "causal", "window", "array",
    "convention",
)  # fmt: skip
SAME_SIZE = {
    "64": (b'"F64"', b'"I64"', b'"U64"', b'"C64"'), "32": (b'"F32"', b'"I32"', b'"U32"'),
    "16": (b'"F16"', b'"BF16"', b'"I16"', b'"U16"'), "OL": (b'"U8"', b'"I8"', b'"F8_E4M3"'),
    "I8": (b'"U8"', b'"BOOL"', b'"F8_E5M2"'), "U8": (b'"I8"', b'"BOOL"'),
}  # fmt: skip
CELLS = (
    "", "x", "1.O", "1,5", "nan", "-inf", "inf", "1e400", "=1+1", "'=1", "#", "# 1", "true", "1_0",
    "٣", " 2 ", "0x10", '"', '"a', "weights", "1e5", "+3", "-", ".", "1.5.2", "NaN", "None", "##a",
)  # fmt: skip


def damaged(data: bytes, form: str, rng: Random) -> bytes:
    """The file as it is (one in five), or with one to three mutations of one sort."""
    sort = rng.random()
    if sort < 0.2:
        return data
    structural = _STRUCTURAL.get(form)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        try:
            data = structural(data, rng) if structural and sort < 0.7 else of_bytes(data, rng)
        except Exception:
            data = of_bytes(data, rng)  # it is no longer what it was
    return data


def of_bytes(data: bytes, rng: Random) -> bytes:
    """One mutation of some bytes."""
    at, piece = rng.randrange(len(data) + 1), rng.choice(PIECES)
    size = rng.choice([1, 1, 2, 4, 8])
    match rng.randrange(9):
        case 0:
            return (
                data[:at]
                + bytes(x ^ (1 << rng.randrange(8)) for x in data[at : at + 1])
                + data[at + 1 :]
            )
        case 1:
            return data[:at] + piece + data[at:]
        case 2:
            return data[:at] + data[at + size :]
        case 3:
            return data[:at]
        case 4:
            return data[:at] + data[max(0, at - 40) : at] + data[at:]
        case 5:
            return data[:at] + bytes(size) + data[at + size :]
        case 6:
            return data[:at] + piece + data[at + len(piece) :]
        case 7:
            other = rng.randrange(len(data) + 1)
            return data[:at] + data[other:]
    return data[:at] + rng.randbytes(size) + data[at + size :]


# ---- JSON


def of_json(data: bytes, rng: Random) -> bytes:
    """One node replaced, removed, doubled, renamed, nested or exchanged."""
    document = json.loads(data)
    places = list(_places(document))
    if not places:
        return json.dumps(rng.choice(NODES)).encode()
    parent, key = rng.choice(places)
    if isinstance(parent, list) and rng.random() < 0.5:  # numbers are most: choose a field instead
        fields = [place for place in places if isinstance(place[0], dict)]
        parent, key = rng.choice(fields or places)
    if isinstance(parent[key], int | float) and rng.random() < 0.5:
        parent[key] = rng.choice(NUMBERS)
        return json.dumps(document).encode()
    match rng.randrange(7):
        case 0 | 1:
            parent[key] = rng.choice(NODES)
        case 2:
            del parent[key]
        case 3:
            parent[key] = [parent[key]]
        case 4 if isinstance(parent, dict):
            parent[rng.choice(KEYS)] = parent.pop(key)
        case 4:
            parent.insert(key, parent[key])
        case 5 if isinstance(parent, dict):
            parent[rng.choice(KEYS)] = rng.choice([*NODES, parent[key]])
        case 5:
            parent.append(rng.choice(NODES))
        case 6:
            other, name = rng.choice(places)
            parent[key] = json.loads(json.dumps(other[name])) if name in _keys(other) else None
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.05 and text.startswith("{"):
        text = f'{{"{rng.choice(KEYS)}": {json.dumps(rng.choice(NODES))}, {text[1:]}'
    return text.encode("utf-8", "surrogatepass")


def _keys(node: Any) -> Any:
    return node.keys() if isinstance(node, dict) else range(len(node))


def _places(node: Any) -> Any:
    """Every node as its parent and its key there."""
    for key in list(_keys(node)) if isinstance(node, dict | list) else ():
        yield node, key
        yield from _places(node[key])


# ---- tables and word vectors


def of_table(data: bytes, rng: Random) -> bytes:
    """One cell, row, column, quote or separator changed."""
    lines = data.decode("utf-8", "replace").splitlines()
    separator = next((one for one in "\t;, " if one in lines[-1]), ",")
    rows = [line.split(separator) for line in lines]
    row = rng.randrange(len(rows))
    column = rng.randrange(len(rows[row]))
    match rng.randrange(8):
        case 0 | 1 | 2:
            rows[row][column] = rng.choice(CELLS)
        case 3:
            rows[row].insert(column, rng.choice(CELLS))
        case 4:
            del rows[row][column]
        case 5:
            rows.insert(row, list(rng.choice([rows[row], [rng.choice(CELLS)] * len(rows[row])])))
        case 6:
            del rows[row]
        case 7:
            separator = rng.choice([",", ";", "\t", " ", ", ", "|"])
    return "\n".join([separator.join(row) for row in rows] + [""]).encode()


# ---- npy, safetensors, zip


def of_npy(data: bytes, rng: Random) -> bytes:
    """The header's text or version changed, its length kept."""
    (size,) = struct.unpack("<H", data[8:10])
    text, start = data[10 : 10 + size].decode("latin-1"), 10
    kinds = ("<f8", ">f8", "<i8", "|b1", "<U4", "|O", "<c16", "|V8", "<f2", "<M8", ">u8", "<f16")
    shapes = ("()", "(1,)", "(2, 3)", "(0, 2)", "(-1, 2)", "(2, 2)", "(10000000000, 4)", "3")
    match rng.randrange(5):
        case 0:
            version = rng.choice([b"\2\0", b"\3\0", b"\1\1", b"\x09\0", b"\0\0"])
            return data[:6] + version + data[8:]
        case 1:
            text = re.sub(r"'[<>|=]\w+'", repr(rng.choice(kinds)), text)
        case 2:
            text = re.sub(r"\([^)]*\)", rng.choice(shapes), text)
        case 3:
            text = text.replace("False", "Fals_").replace("True", "False").replace("Fals_", "True")
        case 4:
            text = text.replace(
                rng.choice(["descr", "shape", "'", "}"]), rng.choice(["x", "", "'"])
            )
    text = text.rstrip("\n ").ljust(size - 1)[: size - 1] + "\n"
    return data[:start] + text.encode("latin-1", "replace") + data[start + size :]


def of_safetensors(data: bytes, rng: Random) -> bytes:
    """The header mutated as JSON; or its length, or the bytes after it."""
    (size,) = struct.unpack("<Q", data[:8])
    header, body = data[8 : 8 + size], data[8 + size :]
    match rng.randrange(6):
        case 0:
            return struct.pack("<Q", rng.choice([0, size - 1, size + 1, 1 << 40])) + header + body
        case 1:
            body = rng.choice([body[:-1], body + b"\0", b""])
        case 2:
            code = rng.choice(re.findall(rb'"(?:F|I|U)(?:8|16|32|64)"|"BOOL"|"BF16"', header))
            header = header.replace(code, rng.choice(SAME_SIZE[code[-3:-1].decode()]), 1)
        case 3:
            old = rng.choice(re.findall(rb'"(\w+)": {', header))
            header = header.replace(old, rng.choice(KEYS).encode("ascii", "replace"), 1)
        case _:
            header = of_json(header, rng)
    return struct.pack("<Q", len(header)) + header + body


def of_zip(data: bytes, rng: Random) -> bytes:
    """A member removed, renamed, doubled, added or damaged; or a size that is not true."""
    if rng.random() < 0.25:
        marks = [found.start() for found in re.finditer(rb"PK\x01\x02|PK\x03\x04", data)]
        at = rng.choice(marks) + rng.choice([6, 8, 14, 18, 20, 22, 24, 26, 28, 42])
        value = rng.choice([0, 1, 2, 2**31, 2**32 - 1, 12, 1000])
        return data[:at] + struct.pack("<I", value) + data[at + 4 :]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = rng.randrange(len(members))
    name, content = members[at]
    new = f"{rng.choice(KEYS)}.npy"
    match rng.randrange(6):
        case 0:
            del members[at]
        case 1:
            members[at] = (new, content)
        case 2:
            members.append((rng.choice([name, new, "../up.npy", "a.txt"]), content))
        case 3:
            members.append((new, rng.choice(members)[1]))
        case _:
            of = of_npy if name.endswith(".npy") and rng.random() < 0.7 else of_bytes
            members[at] = (name, of(content, rng))
    if len({one for one, _ in members}) == len(members):
        return zipped(dict(members), rng)
    return _with_twins(members)


def _with_twins(members: list[tuple[str, bytes]]) -> bytes:
    """A zip in which several members have one name: put into the bytes of one with other names."""
    others = {chr(65 + i) * len(name): name for i, (name, _) in enumerate(members)}
    contents = [content for _, content in members]
    data = zipped(dict(zip(others, contents, strict=True)), Random(0))  # noqa: S311 - no secret
    for other, name in others.items():
        data = data.replace(other.encode(), name.encode())
    return data


_STRUCTURAL = {
    "json": of_json,
    "literal": of_json,
    "trace": of_json,
    "examples": of_json,
    "npy": of_npy,
    "npz": of_zip,
    "trace npz": of_zip,
    "zip": of_zip,
    "csv": of_table,
    "tsv": of_table,
    "txt": of_table,
    "glove": of_table,
    "safetensors": of_safetensors,
}
