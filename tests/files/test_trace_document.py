"""A saved trace: its document, against the schema that ships; reading it back; what is refused."""

from __future__ import annotations

import copy
import io
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.convention import Convention
from attncli.errors import InputError, OutputError
from attncli.files.load import load
from attncli.files.roles import only, pick
from attncli.files.trace import schema, trace_from
from attncli.files.write import document_of, trace_json
from attncli.trace import Stage, Trace

from .saved import trace_npz

INF = float("inf")


def stage(name: str, value: Any, *, dtype: str = "float64", **labels: tuple[str, ...]) -> Stage:
    array = np.array(value, dtype=dtype)
    ends = {"q": ("query", "d_k"), "k": ("key", "d_k"), "v": ("key", "d_v")}
    last = ends.get(name, ("query", "key"))
    axes = ("batch", "head", *last)[-array.ndim :] if array.ndim else ()
    reads, params = (
        {"x": "input"},
        {"factor": 0.5, "value": -INF, "n": 3, "empty": "zero", "on": True},
    )
    how: dict[str, Any] = {"reads": reads, "params": params, "work": "[x] · {factor}"}
    how = how if name == "masked" else {}
    return Stage(name, name.upper(), f"{name} = …", array, axes, labels, f"about {name}", **how)


def attention(name: str = "", offset: float = 0.0) -> Trace:
    steps = (
        stage("q", [[1.5 + offset, 2, 3], [4, 5, 6]], query=("the", "[red]\x1b")),
        stage("k", [[7 + offset, 8, 9]] * 5, dtype="float32"),
        stage("v", [[0.1, -0.0, 5e-324]] * 5),
        stage("mask", [[True, False, True, True, True]] * 2, dtype="bool"),
        stage("masked", [[0.5, -INF, INF, np.nan, 1]] * 2, key=("a", "b", "c", "d", "e")),
    )
    convention = Convention(causal=True, window=(2, -1), softcap=30.0)
    return Trace("Attention", steps, convention, name, ("a note",))


def block() -> Trace:
    layers = tuple(Trace(f"Layer {i}", (attention("attention", i),), name=f"{i}") for i in (1, 2))
    encoder = Trace("Encoder", layers, name="encoder")
    return Trace("Block", (stage("input", [[1.0, 2.0]]), encoder, stage("output", [[3.0]])))


def same(found: Trace, expected: Trace) -> bool:
    """Whether two traces agree in everything, numbers bit for bit."""
    if (found.title, found.name, found.notes, found.convention, len(found.steps)) != (
        expected.title,
        expected.name,
        expected.notes,
        expected.convention,
        len(expected.steps),
    ):
        return False
    for one, other in zip(found.steps, expected.steps, strict=True):
        if isinstance(one, Trace) or isinstance(other, Trace):
            if not (isinstance(one, Trace) and isinstance(other, Trace) and same(one, other)):
                return False
            continue
        names = ("name", "symbol", "formula", "axes", "labels", "note", "reads", "params", "work")
        if [getattr(one, n) for n in names] != [getattr(other, n) for n in names]:
            return False
        if (one.value.dtype, one.value.tobytes()) != (other.value.dtype, other.value.tobytes()):
            return False
    return True


@pytest.mark.parametrize("trace", [attention(), block()], ids=["attention", "block"])
@pytest.mark.parametrize("kind", ["json", "npz", "dict"])
def test_what_is_written_is_read_back(trace: Trace, kind: str, tmp_path: Path) -> None:
    if kind == "dict":
        document = json.loads(json.dumps(document_of(trace), allow_nan=False))
        found: Trace | None = trace_from(document, "x")
    else:
        data = trace_npz(trace) if kind == "npz" else "".join(trace_json(trace)).encode()
        (tmp_path / f"x.{kind}").write_bytes(data)
        loaded = load(f"{tmp_path}/x.{kind}")
        assert loaded.warnings == ()
        assert list(loaded.arrays) == list(trace)
        found = loaded.trace
    assert found is not None
    assert same(found, trace)


def test_json_text_has_one_row_per_line() -> None:
    text = "".join(trace_json(attention()))
    assert json.loads(text) == document_of(attention())
    lines = text.splitlines()
    assert '        [0.5, "-Infinity", "Infinity", "NaN", 1.0],' in lines
    assert "        [true, false, true, true, true]" in lines
    assert '        "query": ["the", "[red]\\u001b"]' in lines


def test_document_of_a_small_trace() -> None:
    trace = Trace("T", (Stage("s", "S", "S = 1", np.array([[np.inf]]), ("query", "key")),))
    assert document_of(trace) == {
        "attncli": "trace",
        "version": 1,
        "title": "T",
        "convention": None,
        "notes": [],
        "steps": [
            {
                "kind": "stage",
                "name": "s",
                "symbol": "S",
                "formula": "S = 1",
                "axes": ["query", "key"],
                "labels": {},
                "shape": [1, 1],
                "dtype": "float64",
                "value": [["Infinity"]],
            }
        ],
    }


def test_how_a_stage_was_computed_is_written_and_read() -> None:
    how: dict[str, Any] = {"reads": {"x": "s"}, "params": {"value": -INF, "n": 3}, "work": "{x}"}
    trace = Trace("T", (Stage("s", "S", "", np.ones(1), ("a",), **how),))
    (written,) = document_of(trace)["steps"]
    assert written["reads"] == {"x": "s"}
    assert written["params"] == {"value": "-Infinity", "n": 3}
    assert written["work"] == "{x}"
    found = trace_from(document_of(trace), "x")["s"]
    assert (found.reads, found.params, found.work) == (how["reads"], how["params"], how["work"])


def test_optional_fields_may_be_missing() -> None:
    document = document_of(attention())
    del document["convention"], document["notes"]
    del document["steps"][0]["labels"], document["steps"][0]["dtype"], document["steps"][0]["note"]
    found = trace_from(document, "x")
    assert (found.convention, found.notes, found["q"].labels) == (None, (), {})
    assert found["q"].value.dtype == np.float64


def test_writing_does_not_import_pydantic() -> None:
    code = (
        "import sys, numpy as np; from attncli.trace import Stage, Trace\n"
        "from attncli.files.write import trace_json\n"
        "list(trace_json(Trace('T', (Stage('s', 'S', '', np.ones(1), ('a',)),))))\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"


def test_npz_is_read_by_numpy_and_reproducible() -> None:
    data = trace_npz(block())
    assert data == trace_npz(block())
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        assert archive["encoder.2.attention.q"].tolist() == [[3.5, 2, 3], [4, 5, 6]]
        assert json.loads(str(archive["__trace__"]))["title"] == "Block"


def test_two_stages_of_one_name_are_not_written() -> None:
    trace = Trace("T", (stage("q", [[1]]), stage("q", [[2]])))
    with pytest.raises(OutputError, match="two stages of one name"):
        trace_npz(trace)


def follows(schema: dict[str, Any], root: dict[str, Any], node: Any, where: str) -> None:
    """Assert that a node has the keys, types, constants and choices that the schema says."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if choices := schema.get("oneOf", schema.get("anyOf")):
        fitting = [choice for choice in choices if fits(choice, root, node)]
        assert fitting, where
        assert len(fitting) == 1 or "oneOf" not in schema, where
        return
    if "const" in schema:
        assert node == schema["const"], where
    if "enum" in schema:
        assert node in schema["enum"], where
    if "type" in schema:
        assert schema["type"] in json_type(node), where
    if isinstance(node, dict):
        known, extra = schema.get("properties", {}), schema["additionalProperties"]
        assert set(schema.get("required", ())) <= set(node), where
        assert extra or set(node) <= set(known), where
        for key, inner in node.items():
            follows(known.get(key, extra), root, inner, f"{where}.{key}")
    if isinstance(node, list):
        items = schema.get("prefixItems", [schema.get("items")] * len(node))
        for i, (inner, item) in enumerate(zip(node, items, strict=True)):
            follows(item, root, inner, f"{where}[{i}]")


def fits(schema: dict[str, Any], root: dict[str, Any], node: Any) -> bool:
    try:
        follows(schema, root, node, "")
    except AssertionError:
        return False
    return True


def json_type(node: Any) -> set[str]:
    names: dict[type, set[str]] = {
        dict: {"object"},
        list: {"array"},
        str: {"string"},
        bool: {"boolean"},
        int: {"integer", "number"},
        float: {"number"},
        type(None): {"null"},
    }
    return names[type(node)]


def shipped() -> dict[str, Any]:
    text = files("attncli.files").joinpath("trace.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("trace", [attention(), block()], ids=["attention", "block"])
def test_output_follows_the_schema(trace: Trace) -> None:
    follows(shipped(), shipped(), document_of(trace), "trace")


@pytest.mark.parametrize("key", ["title", "convention", "steps", "version"])
def test_schema_refuses_missing_keys(key: str) -> None:
    document = document_of(attention())
    del document[key]
    with pytest.raises(AssertionError):
        follows(shipped(), shipped(), document, "trace")


def test_shipped_schema_is_up_to_date() -> None:
    """To write it: python -m attncli.files.trace > attncli/files/trace.schema.json."""
    assert shipped() == schema()


def test_schema_names_every_field_of_a_convention() -> None:
    known = shipped()["$defs"]["convention"]
    fields = set(Convention.__dataclass_fields__)
    assert set(known["required"]) == set(known["properties"]) == fields


def path_to(document: Any, *keys: Any) -> Any:
    for key in keys:
        document = document[key]
    return document


Q = ("steps", 0)


@pytest.mark.parametrize(
    ("keys", "value", "expected"),
    [
        (("version",), 2, "t.json has version '2' of the trace format, this attncli reads versi"),
        (("version",), None, "t.json has version 'None'"),
        (("title",), None, "t.json: title should be a valid string"),
        (("steps",), {}, "t.json: steps should be a valid list"),
        (("steps",), [], "t.json is a trace without a stage"),
        (("steps", 1, "name"), "q", "t.json has two stages of one name"),
        (("notes",), [1], "t.json: notes, entry 1 should be a valid string"),
        ((*Q, "kind"), "x", 't.json: step 1 (\'q\'): should be of kind "stage" or "trace"'),
        (Q, 5, "t.json: step 1: should be an object"),
        ((*Q, "name"), 5, "t.json: step 1: name should be a valid string"),
        ((*Q, "axes"), ["query"], "t.json: step 1 ('q'): stage q: 2 dimensions but 1 axis names"),
        ((*Q, "axes"), [1, 2], "t.json: step 1 ('q'): axes, entry 1 should be a valid string"),
        ((*Q, "labels"), {"query": ["a"]}, "t.json: step 1 ('q'): stage q has 2 entries along qu"),
        ((*Q, "labels"), {"\x1b": [1]}, "t.json: step 1 ('q'): labels, '\\x1b', entry 1 should be"),
        ((*Q, "shape"), [3, 3], "t.json: step 1 ('q'): shape is [3, 3], found [2, 3]"),
        ((*Q, "value"), [[1, 2], [3]], "t.json: step 1 ('q'): value: row 2 has 1 entry, row 1 ha"),
        ((*Q, "value"), [["x"]], "t.json: step 1 ('q'): value: row 1, column 1 is the text 'x'"),
        ((*Q, "dtype"), "object", "t.json: step 1 ('q'): dtype should be 'float64', 'float32'"),
        ((*Q, "dtype"), "int8", "t.json: step 1 ('q'): value holds numbers that int8 cannot"),
        ((*Q, "note"), 5, "t.json: step 1 ('q'): note should be a valid string"),
        ((*Q, "reads"), {"x": 5}, "t.json: step 1 ('q'): reads, 'x' should be a valid string"),
        ((*Q, "params"), {"p": [5]}, "t.json: step 1 ('q'): params, 'p' should be a number, text"),
        ((*Q, "params"), 5, "t.json: step 1 ('q'): params should be an object"),
        ((*Q, "work"), 5, "t.json: step 1 ('q'): work should be a valid string"),
        (("convention",), 5, "t.json: convention: should be an object"),
        (("convention", "dtype"), "x", "t.json: convention: dtype is 'x'; use float64, float32"),
        (("convention", "extra"), 1, "t.json: convention: a convention has no field 'extra'"),
        (("convention", "scale"), 10**400, "t.json: convention: scale is a number beyond float64"),
        (("convention", "window"), [1], "t.json: convention: window is (1,); use two whole"),
    ],
)
def test_documents_that_are_refused(
    keys: tuple[Any, ...], value: Any, expected: str, tmp_path: Path
) -> None:
    document = copy.deepcopy(document_of(attention()))
    path_to(document, *keys[:-1])[keys[-1]] = value
    (tmp_path / "t.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        load(f"{tmp_path}/t.json")
    error = str(caught.value)
    assert error.replace(f"{tmp_path}/", "").startswith(expected)
    assert "\n" not in error


@pytest.mark.parametrize("key", ["value", "shape", "axes", "symbol", "formula", "kind"])
def test_missing_keys(key: str) -> None:
    document = document_of(attention())
    del document["steps"][0][key]
    with pytest.raises(InputError, match=r"t\.json: step 1"):
        trace_from(document, "t.json")


def test_nested_too_deep() -> None:
    trace = attention("a")
    for _ in range(20):
        trace = Trace("T", (trace,), name="t")
    with pytest.raises(InputError, match="is nested more than 16 deep"):
        trace_from(document_of(trace), "t.json")


def test_step_inside_a_block_is_named() -> None:
    document = document_of(block())
    del document["steps"][1]["steps"][0]["steps"][0]["steps"][2]["value"]
    with pytest.raises(
        InputError, match=r"t\.json: step encoder\.1\.attention\.3 \('v'\): value is missing"
    ):
        trace_from(document, "t.json")


def test_npz_whose_array_is_missing(tmp_path: Path) -> None:
    with np.load(io.BytesIO(trace_npz(attention()))) as archive:
        kept = {name: archive[name] for name in archive.files if name != "k"}
    np.savez(tmp_path / "t.npz", **kept)
    with pytest.raises(InputError, match=r"t\.npz: step 2 \('k'\): names the array 'k', which is"):
        load(f"{tmp_path}/t.npz")


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "block.json"
    path.write_text("".join(trace_json(block())))
    return str(path)


def test_roles_of_a_flat_trace(tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_bytes(trace_npz(attention()))
    loaded = load(f"{tmp_path}/t.npz")
    shapes = {
        role: found.shape
        for role in ("q", "k", "v", "mask")
        if (found := pick(loaded, role)) is not None
    }
    assert shapes == {"q": (2, 3), "k": (5, 3), "v": (5, 3), "mask": (2, 5)}
    assert pick(loaded, "past_k") is None
    assert only(loaded, "k").shape == (5, 3)
    assert loaded.query_labels == ("the", "[red]\x1b")
    assert loaded.key_labels == ("a", "b", "c", "d", "e")


def test_two_attentions_are_ambiguous(saved: str) -> None:
    with pytest.raises(InputError) as caught:
        pick(load(saved), "q")
    assert str(caught.value) == (
        f"{saved} holds 2 attentions: encoder.1.attention, encoder.2.attention; "
        f"say which: {saved}::encoder.1.attention"
    )


@pytest.mark.parametrize("part", ["encoder.2", "encoder.2.attention"])
def test_part_of_a_trace(saved: str, part: str) -> None:
    loaded = load(f"{saved}::{part}")
    q = pick(loaded, "q")
    assert q is not None
    assert q.tolist() == [[3.5, 2, 3], [4, 5, 6]]
    assert loaded.trace is not None
    assert loaded.trace.name == part.rpartition(".")[2]
    assert loaded.query_labels == ("the", "[red]\x1b")


def test_reads_are_renamed_within_a_part(tmp_path: Path) -> None:
    inner = Stage("norm", "N", "", np.ones(2), ("a",), reads={"x": "encoder.1.x", "y": "input"})
    trace = Trace("T", (Trace("E", (Trace("L", (inner,), name="1"),), name="encoder"),))
    (tmp_path / "t.json").write_text("".join(trace_json(trace)))
    part = load(f"{tmp_path}/t.json::encoder.1").trace
    assert part is not None
    assert part["norm"].reads == {"x": "x", "y": "input"}


def test_one_stage_of_a_trace(saved: str) -> None:
    loaded = load(f"{saved}::encoder.1.attention.masked")
    assert loaded.trace is None
    assert list(loaded.arrays) == ["encoder.1.attention.masked"]
    assert loaded.key_labels == ("a", "b", "c", "d", "e")
    assert only(loaded, "v").shape == (2, 5)


def test_part_that_is_not_there(saved: str) -> None:
    with pytest.raises(InputError, match="holds no stage or part 'decoder'; it holds input, enco"):
        load(f"{saved}::decoder")
