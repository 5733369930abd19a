"""A saved trace: its document, against the schema that ships; reading it back; what is refused."""

from __future__ import annotations

import io
import json
from dataclasses import fields, replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from attncli.convention import Convention
from attncli.errors import InputError, OutputError
from attncli.trace import Stage, Trace

from .saved import (
    Folder,
    document_of,
    load,
    npz,
    only,
    pick,
    schema,
    trace_from,
    trace_json,
    trace_npz,
)

INF = float("inf")


def stage(name: str, value: Any, *, dtype: str = "float64", **labels: tuple[str, ...]) -> Stage:
    array = np.array(value, dtype=dtype)
    ends = {"q": ("query", "d_k"), "k": ("key", "d_k"), "v": ("key", "d_v")}
    axes = ends.get(name, ("query", "key"))
    return Stage(name, name.upper(), f"{name} = …", array, axes, labels, f"about {name}")


HOW: dict[str, Any] = {
    "reads": {"x": "input"},
    "params": {"factor": 0.5, "value": -INF, "n": 3, "empty": "zero", "on": True},
    "work": "[x] · {factor}",
}
KEYS = ("a", "b", "c", "d", "e")


def attention(name: str = "", offset: float = 0.0) -> Trace:
    steps = (
        stage("q", [[1.5 + offset, 2, 3], [4, 5, 6]], query=("the", "[red]\x1b")),
        stage("k", [[7 + offset, 8, 9]] * 5, dtype="float32"),
        stage("v", [[0.1, -0.0, 5e-324]] * 5),
        stage("mask", [[True, False, True, True, True]] * 2, dtype="bool"),
        replace(stage("masked", [[0.5, -INF, INF, np.nan, 1]] * 2, key=KEYS), **HOW),
    )
    convention = Convention(causal=True, window=(2, -1), softcap=30.0)
    return Trace("Attention", steps, convention, name, ("a note",))


def block() -> Trace:
    layers = tuple(Trace(f"Layer {i}", (attention("attention", i),), name=f"{i}") for i in (1, 2))
    encoder = Trace("Encoder", layers, name="encoder")
    return Trace("Block", (stage("input", [[1.0, 2.0]]), encoder, stage("output", [[3.0]])))


TRACES = {"attention": attention(), "block": block()}


def parts(trace: Trace) -> list[Any]:
    """All that a trace holds, numbers as bits."""
    whole: list[Any] = [trace.title, trace.name, trace.notes, trace.convention]
    for step in trace.steps:
        if isinstance(step, Trace):
            whole.append(parts(step))
        else:
            whole += [getattr(step, field.name) for field in fields(step) if field.name != "value"]
            whole += [step.value.dtype, step.value.shape, step.value.tobytes()]
    return whole


@pytest.mark.parametrize("name", TRACES)
def test_what_is_written_is_read_back(name: str, folder: Folder) -> None:
    trace = TRACES[name]
    document = json.loads(json.dumps(document_of(trace), allow_nan=False))
    assert parts(trace_from(document, "x")) == parts(trace)
    texts = {"x.json": "".join(trace_json(trace)), "x.npz": trace_npz(trace)}
    for file, content in texts.items():
        loaded = folder.load(content, file)
        assert loaded.warnings == ()
        assert list(loaded.arrays) == list(trace)
        assert loaded.trace is not None
        assert parts(loaded.trace) == parts(trace)


def test_document_of_a_small_trace() -> None:
    how: dict[str, Any] = {"reads": {"x": "s"}, "params": {"value": -INF, "n": 3}, "work": "{x}"}
    axes = ("query", "key")
    steps = (
        Stage("s", "S", "S = 1", np.array([[np.inf]]), axes),
        Stage("t", "T", "", np.ones(1), ("a",), **how),
    )
    document = document_of(Trace("T", steps))
    plain, computed = document.pop("steps")
    head = {"attncli": "trace", "version": 1, "title": "T", "convention": None, "notes": []}
    assert document == head
    assert plain == {
        "kind": "stage", "name": "s", "symbol": "S", "formula": "S = 1", "axes": [*axes],
        "labels": {}, "shape": [1, 1], "dtype": "float64", "value": [["Infinity"]],
    }  # fmt: skip
    written = {name: computed[name] for name in how}
    assert written == {**how, "params": {"value": "-Infinity", "n": 3}}


def test_optional_fields_may_be_missing() -> None:
    document = document_of(attention())
    for name in ("convention", "notes"):
        del document[name]
    for name in ("labels", "dtype", "note"):
        del document["steps"][0][name]
    trace = trace_from(document, "x")
    assert (trace.convention, trace.notes, trace["q"].labels) == (None, (), {})
    assert trace["q"].value.dtype == np.float64


def test_text_has_one_row_per_line_and_npz_is_read_by_numpy_and_reproducible() -> None:
    text = "".join(trace_json(attention()))
    assert json.loads(text) == document_of(attention())
    assert {
        '        [0.5, "-Infinity", "Infinity", "NaN", 1.0],',
        "        [true, false, true, true, true]",
        '        "query": ["the", "[red]\\u001b"]',
    } <= {*text.splitlines()}
    data = trace_npz(block())
    assert data == trace_npz(block())
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        assert archive["encoder.2.attention.q"].tolist() == [[3.5, 2, 3], [4, 5, 6]]
        assert json.loads(str(archive["__trace__"]))["title"] == "Block"
    with pytest.raises(OutputError, match="two stages of one name"):
        trace_npz(Trace("T", (stage("q", [[1]]), stage("q", [[2]]))))


# ---- the schema that ships


def shipped() -> Any:
    return json.loads(files("attncli.files").joinpath("trace.schema.json").read_text("utf-8"))


JSON_TYPES: dict[type, str] = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "integer number",
    float: "number", type(None): "null",
}  # fmt: skip


def fits(rule: dict[str, Any], node: Any) -> bool:
    """Whether a node has the keys, types, constants and choices that a rule of the schema says."""
    if "$ref" in rule:
        return fits(shipped()["$defs"][rule["$ref"].rpartition("/")[2]], node)
    if choices := rule.get("oneOf", rule.get("anyOf")):
        n_fitting = sum(fits(choice, node) for choice in choices)
        return n_fitting == 1 if "oneOf" in rule else n_fitting > 0
    if node != rule.get("const", node) or node not in rule.get("enum", [node]):
        return False
    if rule.get("type", "") not in JSON_TYPES[type(node)]:
        return False
    if isinstance(node, dict):
        known, extra = rule.get("properties", {}), rule["additionalProperties"]
        has_keys = {*rule.get("required", ())} <= {*node} and (extra or {*node} <= {*known})
        return has_keys and all(fits(known.get(key, extra), x) for key, x in node.items())
    if isinstance(node, list):
        items = rule.get("prefixItems", [rule.get("items")] * len(node))
        return len(items) == len(node) and all(map(fits, items, node))
    return True


def test_output_follows_the_schema() -> None:
    assert shipped() == schema()  # to write it: python -m attncli.files.trace > …/trace.schema.json
    assert all(fits(shipped(), document_of(trace)) for trace in TRACES.values())
    for key in ("title", "convention", "steps", "version"):
        assert not fits(shipped(), json.loads(changed(document_of(attention()), key, ...)))
    known = shipped()["$defs"]["convention"]
    assert {*known["required"]} == {*known["properties"]} == {*Convention.__dataclass_fields__}


# ---- documents that are refused


def changed(document: dict[str, Any], path: str, value: Any) -> str:
    """The document with another value at a dotted path, as text; without it where it is `...`."""
    inner: Any = document
    *names, last = (int(name) if name.isdigit() else name for name in path.split("."))
    for name in names:
        inner = inner[name]
    inner[last] = value
    if value is ...:
        del inner[last]
    return json.dumps(document)


REFUSED = [
    ("version", 2, "version '2' of the trace format"),
    ("version", None, "version 'None'"),
    ("title", None, "title should be"),
    ("steps", {}, "steps should be"),
    ("steps", [], "a trace without a stage"),
    ("steps.1.name", "q", "two stages of one name"),
    ("notes", [1], "notes, entry 1 should be"),
    ("steps.0", 5, "step 1: should be an object"),
    ("steps.0.kind", "x", "step 1 ('q'): should be of kind"),
    ("steps.0.name", 5, "step 1: name should be"),
    ("steps.0.axes", ["query"], "step 1 ('q'): stage q: 2 dimensions but 1 axis"),
    ("steps.0.axes", [1, 2], "step 1 ('q'): axes, entry 1"),
    ("steps.0.labels", {"query": ["a"]}, "step 1 ('q'): stage q has 2 entries along"),
    ("steps.0.labels", {"\x1b": [1]}, "step 1 ('q'): labels, '\\x1b', entry 1"),
    ("steps.0.shape", [3, 3], "step 1 ('q'): shape is [3, 3], found [2, 3]"),
    ("steps.0.value", [[1, 2], [3]], "step 1 ('q'): value: row 2 has 1 entry"),
    ("steps.0.value", [["x"]], "step 1 ('q'): value: row 1, column 1 is the text 'x'"),
    ("steps.0.dtype", "object", "step 1 ('q'): dtype should be"),
    ("steps.0.dtype", "int8", "step 1 ('q'): value holds numbers that int8 cannot"),
    ("steps.0.note", 5, "step 1 ('q'): note should be"),
    ("steps.0.reads", {"x": 5}, "step 1 ('q'): reads, 'x' should be"),
    ("steps.0.params", {"p": [5]}, "step 1 ('q'): params, 'p' should be"),
    ("steps.0.params", 5, "step 1 ('q'): params should be"),
    ("steps.0.work", 5, "step 1 ('q'): work should be"),
    ("convention", 5, "convention: should be an object"),
    ("convention.dtype", "x", "convention: dtype is 'x'"),
    ("convention.extra", 1, "convention: a convention has no field 'extra'"),
    ("convention.scale", 10**400, "convention: scale is a number beyond float64"),
    ("convention.window", [1], "convention: window is (1,)"),
    *(
        (f"steps.0.{key}", ..., "step 1")
        for key in ("value", "shape", "axes", "symbol", "formula", "kind")
    ),
]


@pytest.mark.parametrize(("path", "value", "key"), REFUSED)
def test_documents_that_are_refused(path: str, value: Any, key: str, folder: Folder) -> None:
    assert key in folder.refusal(changed(document_of(attention()), path, value), "t.json")


def test_what_is_missing_or_nested_too_deep_is_named(folder: Folder) -> None:
    text = changed(document_of(block()), "steps.1.steps.0.steps.0.steps.2.value", ...)
    assert "step encoder.1.attention.3 ('v'): value is missing" in folder.refusal(text, "t.json")
    trace = attention("a")
    for _ in range(20):
        trace = Trace("T", (trace,), name="t")
    text = json.dumps(document_of(trace))
    assert "nested more than 16 deep" in folder.refusal(text, "t.json")
    with np.load(io.BytesIO(trace_npz(attention()))) as archive:
        kept = {name: archive[name] for name in archive.files if name != "k"}
    assert "step 2 ('k'): names the array 'k', which is" in folder.refusal(npz(**kept), "t.npz")


# ---- arrays and parts of a trace


def test_roles_of_a_flat_trace(folder: Folder) -> None:
    loaded = folder.load(trace_npz(attention()), "t.npz")
    shapes = {role: only(loaded, role).shape for role in ("q", "k", "v", "mask")}
    assert shapes == {"q": (2, 3), "k": (5, 3), "v": (5, 3), "mask": (2, 5)}
    assert pick(loaded, "past_k") is None
    assert (loaded.query_labels, loaded.key_labels) == (("the", "[red]\x1b"), KEYS)


@pytest.fixture
def saved(folder: Folder) -> str:
    return folder.write("".join(trace_json(block())), "block.json")


@pytest.mark.parametrize("part", ["encoder.2", "encoder.2.attention"])
def test_a_part_of_a_trace(saved: str, part: str) -> None:
    loaded = load(f"{saved}::{part}")
    assert only(loaded, "q").tolist() == [[3.5, 2, 3], [4, 5, 6]]
    assert loaded.trace is not None
    assert loaded.trace.name == part.rpartition(".")[2]
    assert loaded.query_labels == ("the", "[red]\x1b")


def test_one_stage_of_a_trace_and_what_is_none(saved: str) -> None:
    loaded = load(f"{saved}::encoder.1.attention.masked")
    assert (loaded.trace, loaded.key_labels) == (None, KEYS)
    assert list(loaded.arrays) == ["encoder.1.attention.masked"]
    assert only(loaded, "v").shape == (2, 5)
    with pytest.raises(InputError, match="no stage or part 'decoder'; it holds input, enco"):
        load(f"{saved}::decoder")
    both = "2 attentions: encoder.1.attention, encoder.2.attention; say which"
    with pytest.raises(InputError, match=f"{both}: .*::encoder.1.attention"):
        pick(load(saved), "q")


def test_what_a_stage_reads_is_renamed_within_a_part(folder: Folder) -> None:
    inner = Stage("norm", "N", "", np.ones(2), ("a",), reads={"x": "encoder.1.x", "y": "input"})
    trace = Trace("T", (Trace("E", (Trace("L", (inner,), name="1"),), name="encoder"),))
    part: Any = folder.load("".join(trace_json(trace)), "t.json", "encoder.1").trace
    assert part["norm"].reads == {"x": "x", "y": "input"}
