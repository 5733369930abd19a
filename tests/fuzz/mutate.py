"""Damage: to bytes, and to the structure of JSON, tables, zips and headers."""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Iterator
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
)  # fmt: skip
CELLS = (
    "", "x", "1.O", "1,5", "nan", "-inf", "inf", "1e400", "=1+1", "'=1", "#", "# 1", "true", "1_0",
    "٣", " 2 ", "0x10", '"', '"a', "weights", "1e5", "+3", "-", ".", "1.5.2", "NaN", "None", "##a",
)  # fmt: skip


def damaged(data: bytes, form: str, rng: Random) -> bytes:
    """The file as it is (one in five), or with one to three mutations of one sort."""
    sort = rng.random()
    if sort < 0.2:
        return data
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        try:
            data = (STRUCTURAL.get(form, of_bytes) if sort < 0.7 else of_bytes)(data, rng)
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
    """One node replaced, removed, doubled, renamed, nested or exchanged."""
    document = json.loads(data)
    places = list(_places(document))
    if rng.random() < 0.5:  # numbers are most: choose a field instead
        places = [place for place in places if isinstance(place[0], dict)] or places
    if not places:
        return json.dumps(rng.choice(NODES)).encode()
    parent, key = rng.choice(places)
    own, (other, name), node = parent[key], rng.choice(places), rng.choice(NODES)
    where = rng.choice(KEYS) if isinstance(parent, dict) else key
    match rng.randrange(8):
        case 0:
            del parent[key]
        case 1:
            parent[key] = [own]
        case 2 if isinstance(parent, dict):
            parent[where] = parent.pop(key)
        case 3 if isinstance(parent, dict):
            parent[where] = rng.choice([node, own])
        case 2 | 3:
            parent.insert(key, rng.choice([node, own]))
        case 4:
            parent[key] = json.loads(json.dumps(other[name]))
        case 5 | 6 if isinstance(own, int | float):
            parent[key] = rng.choice(NUMBERS)
        case _:
            parent[key] = node
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.05 and text.startswith("{"):
        text = f'{{"{rng.choice(KEYS)}": {json.dumps(node)}, {text[1:]}'  # perhaps a key twice
    return text.encode("utf-8", "surrogatepass")


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every node as its parent and its key there."""
    if isinstance(node, dict | list):
        for key in [*node] if isinstance(node, dict) else range(len(node)):
            yield node, key
            yield from _places(node[key])


def of_table(data: bytes, rng: Random) -> bytes:
    """One cell, row, column or separator changed."""
    lines = data.decode("utf-8", "replace").splitlines()
    separator = next((one for one in "\t;, " if one in lines[-1]), ",")
    rows = [line.split(separator) for line in lines]
    row = rng.choice(rows)
    column = rng.randrange(len(row))
    match rng.randrange(7):
        case 0 | 1 | 2:
            row[column] = rng.choice(CELLS)
        case 3:
            row.insert(column, rng.choice(CELLS))
        case 4:
            del row[column]
        case 5:
            rows.insert(rng.randrange(len(rows)), [rng.choice([cell, "x"]) for cell in row])
        case 6:
            separator = rng.choice([",", ";", "\t", " ", ", ", "|"])
    return "\n".join([separator.join(row) for row in rows] + [""]).encode()


def of_npy(data: bytes, rng: Random) -> bytes:
    """The header's text or version changed, its length kept."""
    (size,) = struct.unpack("<H", data[8:10])
    text, quote = data[10 : 10 + size].decode("latin-1"), rng.choice(["descr", "shape", "'", "}"])
    kinds = ("<f8", ">f8", "<i8", "|b1", "<U4", "|O", "<c16", "|V8", "<f2", "<M8", ">u8", "<f16")
    shapes = ("()", "(1,)", "(2, 3)", "(0, 2)", "(-1, 2)", "(2, 2)", "(10000000000, 4)", "3")
    version = rng.choice([data[6:8]] * 4 + [b"\2\0", b"\3\0", b"\1\1", b"\x09\0", b"\0\0"])
    text = rng.choice([
        text, re.sub(r"'[<>|=]\w+'", repr(rng.choice(kinds)), text),
        re.sub(r"\([^)]*\)", rng.choice(shapes), text), text.replace("False", "True"),
        text.replace(quote, rng.choice(["x", "", "'"])),
    ])  # fmt: skip
    text = text.rstrip("\n ").ljust(size - 1)[: size - 1] + "\n"
    return data[:6] + version + data[8:10] + text.encode("latin-1", "replace") + data[10 + size :]


def of_safetensors(data: bytes, rng: Random) -> bytes:
    """The header mutated as JSON; or a type, its length, or the bytes after it."""
    (size,) = struct.unpack("<Q", data[:8])
    header, body = data[8 : 8 + size], data[8 + size :]
    match rng.randrange(6):
        case 0:
            return struct.pack("<Q", rng.choice([0, size - 1, size + 1, 1 << 40])) + header + body
        case 1:
            body = rng.choice([body[:-1], body + b"\0", b""])
        case 2:
            code = rng.choice(re.findall(rb'"(?:F|I|U|BF)(?:8|16|32|64)"|"BOOL"', header))
            same = {b'8"': b'"U8" "I8" "F8_E4M3" "BOOL"', b'4"': b'"F64" "I64" "U64" "C64"'}
            same |= {b'2"': b'"F32" "I32" "U32"', b'6"': b'"F16" "BF16" "I16" "U16"'}
            header = header.replace(code, rng.choice(same.get(code[-2:], b'"U8"').split()), 1)
        case 3:
            name = rng.choice(re.findall(rb'"(\w+)": {', header))
            header = header.replace(name, rng.choice(KEYS).encode(), 1)
        case _:
            header = of_json(header, rng)
    return struct.pack("<Q", len(header)) + header + body


def of_zip(data: bytes, rng: Random) -> bytes:
    """A member removed, renamed, doubled, added or damaged; or a size that is not true."""
    if rng.random() < 0.25:
        marks = [mark.start() for mark in re.finditer(rb"PK\x01\x02|PK\x03\x04", data)]
        at = rng.choice(marks) + rng.choice([6, 8, 14, 18, 20, 22, 24, 26, 28, 42])
        value = rng.choice([0, 1, 2, 2**31, 2**32 - 1, 12, 1000])
        return data[:at] + struct.pack("<I", value) + data[at + 4 :]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at, new = rng.randrange(len(members)), f"{rng.choice(KEYS)}.npy"
    name, content = members[at]
    of = of_npy if name.endswith(".npy") and rng.random() < 0.7 else of_bytes
    members[at : at + 1] = rng.choice([
        [], [(new, content)], [members[at], (rng.choice([name, new, "../up.npy"]), content)],
        [(name, of(content, rng))], [(name, of(content, rng))],
    ])  # fmt: skip
    return zipped(members, rng)


STRUCTURAL: dict[str, Callable[[bytes, Random], bytes]] = {
    **dict.fromkeys(("json", "literal", "trace", "examples"), of_json),
    **dict.fromkeys(("npz", "trace npz", "zip"), of_zip),
    **dict.fromkeys(("csv", "tsv", "txt", "glove"), of_table),
    "npy": of_npy,
    "safetensors": of_safetensors,
}
