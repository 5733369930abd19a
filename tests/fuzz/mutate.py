"""Damage: to bytes, and to the structure of JSON, tables, zips and headers."""

from __future__ import annotations

import io
import json
import re
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
