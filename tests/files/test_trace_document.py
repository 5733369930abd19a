"""A saved trace: its document, against the schema that ships; reading it back; what is refused."""

from __future__ import annotations

import copy
import io
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.convention import Convention
from attncli.errors import InputError, OutputError
from attncli.files.load import load
from attncli.files.roles import only, pick
from attncli.files.save import trace_json, trace_npz
from attncli.files.trace_file import trace_from_dict, trace_to_dict
from attncli.trace import Stage, Trace

INF = float("inf")


def stage(name: str, value: Any, *, dtype: str = "float64", **labels: tuple[str, ...]) -> Stage:
    array = np.array(value, dtype=dtype)
    ends = {"q": ("query", "d_k"), "k": ("key", "d_k"), "v": ("key", "d_v")}
    last = ends.get(name, ("query", "key"))
    axes = ("batch", "head", *last)[-array.ndim :] if array.ndim else ()
    return Stage(name, name.upper(), f"{name} = …", array, axes, labels, note=f"about {name}")


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
        names = ("name", "symbol", "formula", "axes", "labels", "note")
        if [getattr(one, n) for n in names] != [getattr(other, n) for n in names]:
            return False
        if (one.value.dtype, one.value.tobytes()) != (other.value.dtype, other.value.tobytes()):
            return False
    return True


@pytest.mark.parametrize("trace", [attention(), block()], ids=["attention", "block"])
@pytest.mark.parametrize("kind", ["json", "npz", "dict"])
def test_what_is_written_is_read_back(trace: Trace, kind: str, tmp_path: Path) -> None:
    if kind == "dict":
        document = json.loads(json.dumps(trace_to_dict(trace), allow_nan=False))
        found: Trace | None = trace_from_dict(document, "x")
    else:
        data = trace_npz(trace) if kind == "npz" else "".join(trace_json(trace)).encode()
        (tmp_path / f"x.{kind}").write_bytes(data)
        loaded = load(f"{tmp_path}/x.{kind}")
        assert loaded.warnings == ()
        assert list(loaded.arrays) == list(trace)
        found = loaded.trace
    assert found is not None
    assert same(found, trace)


def test_json_text_is_that_of_the_dict_a_row_a_line() -> None:
    text = "".join(trace_json(attention()))
    assert json.loads(text) == trace_to_dict(attention())
    lines = text.splitlines()
    assert '        [0.5, "-Infinity", "Infinity", "NaN", 1.0],' in lines
    assert "        [true, false, true, true, true]" in lines
    assert '        "query": ["the", "[red]\\u001b"]' in lines


def test_document_spelled_out() -> None:
    trace = Trace("T", (Stage("s", "S", "S = 1", np.array([[np.inf]]), ("query", "key")),))
    assert trace_to_dict(trace) == {
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


def test_npz_is_numpys_without_pickles_and_the_same_each_time() -> None:
    data = trace_npz(block())
    assert data == trace_npz(block())
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        assert archive["encoder.2.attention.q"].tolist() == [[3.5, 2, 3], [4, 5, 6]]
        assert json.loads(str(archive["__trace__"]))["title"] == "Block"


def test_two_stages_of_one_name_are_not_written() -> None:
    trace = Trace("T", (stage("q", [[1]]), stage("q", [[2]])))
    with pytest.raises(OutputError, match="two stages of one name"):
        trace_npz(trace)


def held_against(schema: dict[str, Any], root: dict[str, Any], node: Any, spot: str) -> None:
    """Assert that a node has the keys, types, constants and choices that the schema says."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "oneOf" in schema:
        schema = choose(schema["oneOf"], root, node, spot)
    if "const" in schema:
        assert node == schema["const"], spot
    if "enum" in schema:
        assert node in schema["enum"], spot
    if "type" in schema:
        wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert json_type(node) & set(wanted), spot
    if isinstance(node, dict):
        known, extra = schema.get("properties", {}), schema["additionalProperties"]
        assert set(schema.get("required", ())) <= set(node), spot
        assert extra or set(node) <= set(known), spot
        for key, inner in node.items():
            held_against(known.get(key, extra), root, inner, f"{spot}.{key}")
    for i, inner in enumerate(node if isinstance(node, list) else ()):
        held_against(schema["items"], root, inner, f"{spot}[{i}]")


def choose(schemas: list[Any], root: dict[str, Any], node: Any, spot: str) -> Any:
    fitting = []
    for schema in schemas:
        try:
            held_against(schema, root, node, spot)
        except (AssertionError, KeyError):
            continue
        fitting.append(schema)
    assert len(fitting) == 1, spot
    (one,) = fitting
    return root["$defs"][one["$ref"].rpartition("/")[2]] if "$ref" in one else one


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


def schema() -> dict[str, Any]:
    text = files("attncli.files").joinpath("trace.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("trace", [attention(), block()], ids=["attention", "block"])
def test_output_follows_the_schema(trace: Trace) -> None:
    held_against(schema(), schema(), trace_to_dict(trace), "trace")


@pytest.mark.parametrize("key", ["title", "convention", "steps", "version"])
def test_schema_is_no_empty_promise(key: str) -> None:
    document = trace_to_dict(attention())
    del document[key]
    with pytest.raises(AssertionError):
        held_against(schema(), schema(), document, "trace")


def test_schema_names_every_field_of_a_convention() -> None:
    known = schema()["$defs"]["convention"]
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
        (("title",), None, "t.json: the trace has no title, which should be a string"),
        (("steps",), {}, "t.json: the trace has no steps, which should be a list"),
        (("steps",), [], "t.json is a trace without a stage"),
        (("steps", 1, "name"), "q", "t.json has two stages of one name"),
        (("notes",), [1], "t.json: the trace, notes: entry 1 is not a string"),
        ((*Q, "kind"), "x", 't.json: step 1 is neither of kind "stage" nor "trace"'),
        (Q, 5, "t.json: step 1 is neither of kind"),
        ((*Q, "name"), 5, "t.json: step 1 has no name"),
        ((*Q, "axes"), ["query"], "t.json: step 1 ('q') does not fit: stage q: 2 dimensions but 1"),
        ((*Q, "axes"), [1, 2], "t.json: step 1 ('q'), axes: entry 1 is not a string"),
        ((*Q, "labels"), {"query": ["a"]}, "t.json: step 1 ('q') does not fit: stage q has 2"),
        ((*Q, "labels"), {"query": [1]}, "t.json: step 1 ('q'), labels of 'query': entry 1 is"),
        ((*Q, "shape"), [3, 3], "t.json: step 1 ('q') says shape [3, 3], found [2, 3]"),
        ((*Q, "value"), [[1, 2], [3]], "t.json: step 1 ('q'): row 2 has 1 entry, row 1 has 2"),
        ((*Q, "value"), [["x"]], "t.json: step 1 ('q'): row 1, column 1 is the text 'x'"),
        ((*Q, "dtype"), "object", "t.json: step 1 ('q') has dtype 'object'"),
        ((*Q, "dtype"), "int8", "t.json: step 1 ('q') holds numbers that int8 cannot"),
        ((*Q, "note"), 5, "t.json: step 1 ('q') has no note"),
        (("convention",), 5, "t.json: the trace has a convention that is no object"),
        (("convention", "dtype"), "x", "t.json: the trace has a convention that does not fit: dt"),
        (("convention", "extra"), 1, "t.json: the trace has a convention that does not fit: a co"),
        (("convention", "scale"), 10**400, "t.json: the trace has a convention that does not fit"),
        (("convention", "window"), [1], "t.json: the trace has a convention that does not fit: wi"),
    ],
)
def test_documents_that_are_refused(
    keys: tuple[Any, ...], value: Any, expected: str, tmp_path: Path
) -> None:
    document = copy.deepcopy(trace_to_dict(attention()))
    path_to(document, *keys[:-1])[keys[-1]] = value
    (tmp_path / "t.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        load(f"{tmp_path}/t.json")
    said = str(caught.value)
    assert said.replace(f"{tmp_path}/", "").startswith(expected)
    assert "\n" not in said


@pytest.mark.parametrize("key", ["value", "shape", "axes", "symbol", "formula", "kind"])
def test_missing_keys(key: str) -> None:
    document = trace_to_dict(attention())
    del document["steps"][0][key]
    with pytest.raises(InputError, match=r"t\.json: step 1"):
        trace_from_dict(document, "t.json")


def test_nested_too_deep() -> None:
    trace = attention("a")
    for _ in range(20):
        trace = Trace("T", (trace,), name="t")
    with pytest.raises(InputError, match="is nested more than 16 deep"):
        trace_from_dict(trace_to_dict(trace), "t.json")


def test_step_inside_a_block_is_named() -> None:
    document = trace_to_dict(block())
    del document["steps"][1]["steps"][0]["steps"][0]["steps"][2]["value"]
    with pytest.raises(InputError, match=r"t\.json: step attention\.3 \('v'\) has no value"):
        trace_from_dict(document, "t.json")


def test_npz_whose_array_is_missing(tmp_path: Path) -> None:
    with np.load(io.BytesIO(trace_npz(attention()))) as archive:
        kept = {name: archive[name] for name in archive.files if name != "k"}
    np.savez(tmp_path / "t.npz", **kept)
    with pytest.raises(InputError, match=r"t\.npz: step 2 \('k'\) names the array 'k', which is"):
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


def test_one_stage_of_a_trace(saved: str) -> None:
    loaded = load(f"{saved}::encoder.1.attention.masked")
    assert loaded.trace is None
    assert list(loaded.arrays) == ["encoder.1.attention.masked"]
    assert loaded.key_labels == ("a", "b", "c", "d", "e")
    assert only(loaded, "v").shape == (2, 5)


def test_part_that_is_not_there(saved: str) -> None:
    with pytest.raises(InputError, match="holds no stage or part 'decoder'; it holds input, enco"):
        load(f"{saved}::decoder")
