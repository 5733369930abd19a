"""Damaged files: whatever is done to a valid file, load reads it or raises AttncliError."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.convention import Convention
from attncli.errors import AttncliError
from attncli.files.load import Loaded, load
from attncli.files.roles import Role, only, pick
from attncli.files.write import trace_json
from attncli.trace import Stage, Trace

from .saved import trace_npz

Q = np.arange(6.0).reshape(2, 3)


def _npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def _npz(*, compressed: bool) -> bytes:
    file = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(file, q=Q, mask=Q > 2, tokens=np.array(["the", "cat"]), scale=np.float64(0.5))
    return file.getvalue()


def _trace() -> Trace:
    labels = {"query": ("the", "cat")}
    q = Stage("q", "Q", "Q", Q, ("query", "d"), labels)
    inner = Trace("A", (q,), Convention(window=(1, 2)), "attention", ("n",))
    return Trace("B", (Stage("masked", "M", "M", Q * -np.inf * (Q > 1), ("a", "b")), inner))


def _safetensors() -> bytes:
    tensor = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    half = {"dtype": "BF16", "shape": [2], "data_offsets": [24, 28]}
    head = json.dumps({"q": tensor, "x": half}).encode()
    return struct.pack("<Q", len(head)) + head + bytes(28)


def _zip(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


with np.errstate(all="ignore"):
    SEEDS = {
        "json": b'{"q": [[1, 2.5, "NaN"], [-3e5, 0, 4]], "tokens": ["a", "\\u00e9"], "scale": 2}',
        "literal": b"[[1, 2], [3, 4]]",
        "npy": _npy(Q),
        "fortran": _npy(np.asfortranarray(Q.astype(">f2"))),
        "npz": _npz(compressed=False),
        "deflated": _npz(compressed=True),
        "csv": b'weights,the,"c,at"\nthe,1,2.5\n##cat,nan,-inf\n',
        "tsv": b"# x\n1\t2\n3\t4\n",
        "safetensors": _safetensors(),
        "trace": "".join(trace_json(_trace())).encode(),
        "trace npz": trace_npz(_trace()),
        "gzip": gzip.compress(_npy(Q), mtime=0),
        "zip": _zip({"a.csv": b"1,2\n", "q.npy": _npy(Q)}),
    }

MUTATION = st.tuples(
    st.sampled_from(["flip", "insert", "delete", "truncate", "repeat", "zero"]),
    st.integers(0, 5000),
    st.binary(min_size=1, max_size=5)
    | st.sampled_from(
        [b"\xff\xff\xff\xff", b"[", b"{", b'"', b",", b"e999", b"\xed\xa0\x80", b"-"]
    ),
)


def mutated(data: bytes, mutations: list[tuple[str, int, bytes]]) -> bytes:
    for kind, where, piece in mutations:
        at = where % (len(data) + 1)
        data = {
            "flip": data[:at] + piece + data[at + len(piece) :],
            "insert": data[:at] + piece + data[at:],
            "delete": data[:at] + data[at + len(piece) :],
            "truncate": data[:at],
            "repeat": data[:at] + data[max(0, at - 40) : at] + data[at:],
            "zero": data[:at] + bytes(len(piece)) + data[at + len(piece) :],
        }[kind]
    return data


def attempt(source: str, data: bytes) -> tuple[Loaded | None, tuple[str, ...]]:
    """What load gives, and its warnings or its error."""
    try:
        loaded = load(source, stdin=io.BytesIO(data))
    except AttncliError as problem:
        return None, (str(problem),)
    return loaded, loaded.warnings


def use(source: str, data: bytes) -> None:
    """Load and ask for everything; the message of a refusal must be one printable line."""
    loaded, lines = attempt(source, data)
    assert all(line.isprintable() for line in lines)
    if loaded is None:
        return
    roles: tuple[Role, ...] = ("q", "k", "v", "mask", "past_k", "past_v")
    for role in roles:
        for choose in (pick, only):
            with suppress(AttncliError):
                choose(loaded, role)
    for labels in (loaded.query_labels, loaded.key_labels, loaded.row_labels):
        "".join(labels or ()).encode()


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=150, deadline=None)
@given(
    mutations=st.lists(MUTATION, min_size=1, max_size=4),
    member=st.sampled_from(["", "::q", "::a.csv"]),
)
def test_mutated_bytes(seed: str, mutations: list[tuple[str, int, bytes]], member: str) -> None:
    use(f"-{member}", mutated(SEEDS[seed], mutations))


@pytest.mark.parametrize("seed", SEEDS)
@settings(max_examples=60, deadline=None)
@given(mutations=st.lists(MUTATION, max_size=3))
@pytest.mark.parametrize(
    "ending", ["json", "npy", "npz", "csv", "tsv", "txt", "safetensors", "gz", "zip"]
)
def test_mutated_bytes_under_any_ending(
    seed: str,
    ending: str,
    mutations: list[tuple[str, int, bytes]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzz-{seed}.{ending}"
    path.write_bytes(mutated(SEEDS[seed], mutations))
    use(str(path), b"")


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40) | st.text('[]{},:"0123456789.eE+-tfnNaIi ', max_size=40))
def test_any_literal(text: str) -> None:
    use(f"[{text}", b"")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    use("-", data)


@pytest.mark.parametrize(
    "seed", ["npy", "npz", "deflated", "safetensors", "trace npz", "gzip", "zip"]
)
def test_claimed_sizes_are_not_allocated(seed: str) -> None:
    """Each four bytes in turn claim 4 GiB; memory stays far below that."""
    data = SEEDS[seed]
    tracemalloc.start()
    try:
        for at in range(0, len(data), 3):
            use("-", data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 120 << 20
