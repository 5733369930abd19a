"""Damaged inputs: each is refused in one line, or used as a second reading says."""

from __future__ import annotations

import io
import json
import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.errors import AttncliError
from attncli.files.load import load
from attncli.files.roles import ROLES, only, pick
from tests.turns import in_turn

from . import cases, forms
from .cases import KINDS, Case, case_of, options_of
from .expected import misread
from .run import called, outcome

SEED, NUMBER = 0, 8
"""Cases of a kind; all 36 are exhaustive."""


ALL = [pytest.param(range(36), marks=pytest.mark.exhaustive, id="all")]


@pytest.mark.parametrize("turns", [pytest.param(range(NUMBER), id="some"), *ALL])
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_inputs(kind: str, turns: range) -> None:
    numbers = [list(KINDS).index(kind) + n * len(KINDS) for n in turns]
    ends = {n: outcome(case_of(SEED, n)) for n in numbers}
    assert {n: end for n, end in ends.items() if end.is_defect} == {}


HELD = ("JSON", "npy", "npz", "csv, tsv, txt", "safetensors", "zip, gz", "masks")
"""Kinds of which the second reading has an opinion."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flags"])
def test_undamaged_inputs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is valid is accepted, and the second reading has an opinion on arrays."""
    monkeypatch.setattr(cases, "damaged", lambda data, form, rng: data)
    numbers = range(list(KINDS).index(kind), 7 * len(KINDS), len(KINDS))
    ends = [outcome(case_of(SEED, n)) for n in numbers]
    assert not [end for end in ends if end.is_defect]
    assert sum(end.is_held for end in ends) >= (2 if kind in HELD else 0)


def test_cases_and_their_options() -> None:
    assert [case_of(1, n) for n in range(28)] == [case_of(1, n) for n in range(28)]
    assert case_of(1, 0).arguments != case_of(2, 0).arguments
    assert ("--causal", None) in options_of("compute")
    assert ("--empty-rows", ("zero", "nan", "uniform", "unmasked")) in options_of("compute")
    assert ("--heads", int) in options_of("explain")
    assert "--batch" not in [flag for flag, _ in options_of("explain")]


def test_whatever_is_changed_in_a_result_is_seen() -> None:
    """The second reading can fail: for each stage it knows, the labels, and the convention."""
    q = b'{"q": [[1, 0], [0, 2]], "tokens": ["a", "b"], "mask": [[true, false], [true, true]]}'
    flags: list[tuple[str, str | None]] = [("--q", "q.json"), ("--format", "json")]
    case = Case("JSON", "compute", flags=flags, files={"q.json": q})
    code, out, *_ = called(case)
    assert (code, misread(case, out)) == (0, "")
    for number, stage in enumerate(json.loads(out)["steps"]):
        if stage["name"] in ("q", "k", "v", "mask", "scores", "scaled", "weights", "output"):
            changed: Any = json.loads(out)
            changed["steps"][number]["value"][1][0] = 0.25
            assert misread(case, json.dumps(changed)).startswith(f"{stage['name']}: ")
            del changed["steps"][number]
            assert misread(case, json.dumps(changed)).startswith("no stage")
    assert misread(case, out.replace('"causal": false', '"causal": true')).startswith("causal")
    assert misread(case, out.replace('["a", "b"]', '["b", "a"]')).startswith("q is labelled")


# ---- any bytes, and claimed sizes: load reads them or raises AttncliError


def use(source: str, data: bytes) -> None:
    """Load and ask for everything; the message of a refusal must be one printable line."""
    loaded: Any = None
    try:
        loaded = load(source, stdin=io.BytesIO(data))
    except AttncliError as problem:
        lines: tuple[str, ...] = (str(problem),)
    else:
        lines = loaded.warnings
    assert all(line.isprintable() for line in lines)
    if loaded is None:
        return
    for role in ROLES:
        for choose in (pick, only):
            with suppress(AttncliError):
                choose(loaded, role)
    for labels in (loaded.query_labels, loaded.key_labels, loaded.row_labels):
        "".join(labels or ()).encode()


@given(st.text(max_size=40) | st.text('[]{},:"0123456789.eE+-tfnNaIi ', max_size=40))
def test_any_literal(text: str) -> None:
    use(f"[{text}", b"")


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    use("-", data)


FILES = in_turn(["npy", "npz", "safetensors", "trace npz", "gz", "zip"], range(11))


@pytest.mark.parametrize(("form", "start"), FILES)
def test_claimed_sizes_are_not_allocated(form: str, start: int) -> None:
    """Four bytes at every 33rd place in turn claim 2 GiB; memory stays far below that."""
    rng = Random(0)  # noqa: S311 - not for secrets
    _, write = forms.FORMS[form if form in forms.FORMS else "npy"]
    data = write({"q": forms.numbers(rng, 2, 3)}, rng)
    data = {"gz": forms.gzipped(data), "zip": forms.zipped([("q.npy", data)], rng)}.get(form, data)
    tracemalloc.start()
    try:
        for at in range(3 * start, len(data), 33):
            use("-", data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 :])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 120 << 20
