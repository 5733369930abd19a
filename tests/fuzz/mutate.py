"""Damage: to bytes, and to the structure of JSON, tables, zips and headers."""

from __future__ import annotations

import io
import json
import re
import struct
import warnings
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
TYPES = ("<f8", ">f8", "<i8", "|b1", "<U4", "|O", "<c16", "|V8", "<f2", "<M8", ">u8", "<f16")
SHAPES = ("()", "(1,)", "(2, 3)", "(0, 2)", "(-1, 2)", "(2, 2)", "(10000000000, 4)", "3")


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


def of_npy(data: bytes, rng: Random) -> bytes:
    """The header's text or version changed, its length kept."""
    (size,) = struct.unpack("<H", data[8:10])
    text, quote = data[10 : 10 + size].decode("latin-1"), rng.choice(["descr", "shape", "'", "}"])
    version = rng.choice([data[6:8]] * 4 + [b"\2\0", b"\3\0", b"\1\1", b"\x09\0", b"\0\0"])
    text = rng.choice([
        text, re.sub(r"'[<>|=]\w+'", repr(rng.choice(TYPES)), text),
        re.sub(r"\([^)]*\)", rng.choice(SHAPES), text), text.replace("False", "True"),
        text.replace(quote, rng.choice(["x", "", "'"])),
    ])  # fmt: skip
    text = text.rstrip("\n ").ljust(size - 1)[: size - 1] + "\n"
    return data[:6] + version + data[8:10] + text.encode("latin-1", "replace") + data[10 + size :]


def of_safetensors(data: bytes, rng: Random) -> bytes:
    """The header mutated as JSON; or its length, or the bytes after it."""
    (size,) = struct.unpack("<Q", data[:8])
    header, body = data[8 : 8 + size], data[8 + size :]
    if rng.random() < 0.2:
        return struct.pack("<Q", rng.choice([0, size - 1, size + 1, 1 << 40])) + header + body
    body = rng.choice([body] * 3 + [body[:-1], body + b"\0"])
    codes = [b'"U8"', b'"F8_E4M3"', b'"BOOL"', b'"F64"', b'"C64"', b'"I32"', b'"BF16"']
    header = rng.choice([re.sub(rb'"[BFIU]\w+"', rng.choice(codes), header), of_json(header, rng)])
    return struct.pack("<Q", len(header)) + header + body


def of_zip(data: bytes, rng: Random) -> bytes:
    """A member removed, renamed, doubled or damaged; or a size that is not true."""
    if rng.random() < 0.25:
        marks = [mark.start() for mark in re.finditer(rb"PK\x01\x02|PK\x03\x04", data)]
        at = rng.choice(marks) + rng.choice([6, 8, 14, 18, 20, 22, 24, 26, 28, 42])
        value = rng.choice([0, 1, 2, 2**31, 2**32 - 1, 12, 1000])
        return data[:at] + struct.pack("<I", value) + data[at + 4 :]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at, new = rng.randrange(len(members)), f"{rng.choice(KEYS)}.npy"
    name, content = members[at]
    of = of_npy if rng.random() < 0.7 else of_bytes
    members[at : at + 1] = rng.choice([
        [], [(new, content)], [members[at], (rng.choice([name, new, "../up.npy"]), content)],
        [(name, of(content, rng))], [(name, of(content, rng))],
    ])  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may be in it twice
        return zipped(members, rng)


STRUCTURAL: dict[str, Callable[[bytes, Random], bytes]] = {
    **dict.fromkeys(("json", "literal", "trace"), of_json),
    **dict.fromkeys(("npz", "trace npz", "zip"), of_zip),
    **dict.fromkeys(("table", "glove"), of_table),
    "npy": of_npy,
    "safetensors": of_safetensors,
}
