"""Any text and any bytes, and claimed sizes: load reads them or raises AttncliError."""

from __future__ import annotations

import io
import tracemalloc
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli.errors import AttncliError
from attncli.files.load import Loaded, load
from attncli.files.roles import ROLES, only, pick

from . import forms


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
    for role in ROLES:
        for choose in (pick, only):
            with suppress(AttncliError):
                choose(loaded, role)
    for labels in (loaded.query_labels, loaded.key_labels, loaded.row_labels):
        "".join(labels or ()).encode()


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40) | st.text('[]{},:"0123456789.eE+-tfnNaIi ', max_size=40))
def test_any_literal(text: str) -> None:
    use(f"[{text}", b"")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    use("-", data)


@pytest.mark.parametrize("form", ["npy", "npz", "safetensors", "trace npz", "gz", "zip"])
def test_claimed_sizes_are_not_allocated(form: str) -> None:
    """Each four bytes in turn claim 2 GiB; memory stays far below that."""
    rng = Random(0)  # noqa: S311 - not for secrets
    _, write = forms.FORMS[form if form in forms.FORMS else "npy"]
    data = write({"q": forms.numbers(rng, 2, 3)}, rng)
    data = {"gz": forms.gzipped(data), "zip": forms.zipped({"q.npy": data}, rng)}.get(form, data)
    tracemalloc.start()
    try:
        for at in range(0, len(data), 3):
            use("-", data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 120 << 20
