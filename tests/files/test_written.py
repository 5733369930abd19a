"""What is written: whole files or none; a trace, its schema, and reading it back bit for bit."""

import csv
import io
import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import attncli
from attncli.arrays import Array
from attncli.convention import Convention
from attncli.errors import InputError, OutputError
from attncli.files.contents import FileContents
from attncli.files.load import read_source
from attncli.files.lookup import only, pick
from attncli.files.trace import schema, trace_from
from attncli.files.write import AT_ONCE, document_of, trace_json, write_atomically, write_npy
from attncli.formats.exact import csv_text
from attncli.page.options import DisplayOptions
from attncli.trace import Stage, Trace
from tests.files.conftest import Folder, npz, trace_npz

# ---- a saved trace

INF = float("inf")


def stage(name: str, value: Any, *, dtype: str = "float64", **labels: tuple[str, ...]) -> Stage:
    array = np.array(value, dtype=dtype)
    ends = {"q": ("query", "d_k"), "k": ("key", "d_k"), "v": ("key", "d_v")}
    axes = ends.get(name, ("query", "key"))
    return Stage(name, name.upper(), f"{name} = …", array, axes, labels, f"about {name}")


HOW: dict[str, Any] = {
    "reads": {"x": "input"},
    "params": {"factor": 0.5, "value": -INF, "n": 3, "empty": "zero", "on": True},
    "expression": "Z[i,j] = x[i,j] * factor",
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


def test_what_is_written_is_read_back() -> None:
    for trace in (attention(), block()):
        document = json.loads(json.dumps(document_of(trace), allow_nan=False))
        assert parts(trace_from(document, "x")) == parts(trace)
        for loaded in both(trace):
            assert loaded.warnings == ()
            assert list(loaded.arrays) == list(trace)
            assert loaded.trace is not None
            assert parts(loaded.trace) == parts(trace)


def test_document_of_a_small_trace() -> None:
    convention: dict[str, Any] = {
        "reads": {"x": "s"},
        "params": {"value": -INF, "n": 3},
        "expression": "x = x",
    }
    axes = ("query", "key")
    step = Stage("s", "S", "S = 1", np.array([[np.inf]]), axes)
    document = document_of(
        Trace("T", (step, Stage("t", "T", "", np.ones(1), ("a",), **convention)))
    )
    plain, computed = document.pop("steps")
    head = {"attncli": "trace", "version": 2, "title": "T", "convention": None, "notes": []}
    assert document == head
    assert plain == {
        "kind": "stage", "name": "s", "symbol": "S", "formula": "S = 1", "axes": [*axes],
        "labels": {}, "shape": [1, 1], "dtype": "float64", "value": [["Infinity"]],
    }  # fmt: skip
    written = {name: computed[name] for name in convention}
    assert written == {**convention, "params": {"value": "-Infinity", "n": 3}}


def test_optional_fields_may_be_missing() -> None:
    document = document_of(attention())
    step = document["steps"][0]
    for node, name in ((document, "convention"), (document, "notes"), (step, "labels")):
        del node[name]
    del step["dtype"], step["note"]
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


def test_a_row_longer_than_is_written_at_once_is_one_row() -> None:
    n = 2 * AT_ONCE + 3
    value = np.arange(n) / 7
    value[[0, n - 2]] = np.nan, -np.inf
    trace = Trace("Long", (Stage("A", "A", "", value, ("z",)),))
    text = "".join(trace_json(trace))
    assert json.loads(text) == document_of(trace)
    assert json.dumps(document_of(trace)["steps"][0]["value"]) in text  # on one line
    header, row = csv.reader("".join(csv_text(trace, DisplayOptions())).splitlines())
    assert header == ["A", *(str(at + 1) for at in range(n))]
    assert row[:3] == ["A", "NaN", repr(1 / 7)]
    np.testing.assert_array_equal([float(x) for x in row[1:]], value)


def test_the_schema_that_ships_is_that_of_the_reader_and_names_all_that_is_written() -> None:
    text = files("attncli.files").joinpath("trace.schema.json").read_text("utf-8")
    shipped = json.loads(text)
    assert shipped == schema()  # to write it: python -m attncli.files.trace > …/trace.schema.json
    document = document_of(attention())
    stages = [(step, shipped["$defs"]["StageModel"]) for step in document["steps"]]
    convention = (document["convention"], shipped["$defs"]["convention"])
    for node, rule in ((document, shipped), convention, *stages):
        assert {*rule["required"]} <= {*node} <= {*rule["properties"]}
    assert {"title", "convention", "steps", "version"} <= {*shipped["required"]}


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
    *(
        ("version", n, f"version '{n}' of the trace format, this attncli reads version 2")
        for n in (1, 3)
    ),
    ("steps", [], "a trace without a stage"),
    ("steps.1.name", "q", "two stages of one name"),
    ("steps.0", 5, "step 1: should be an object"),
    ("steps.0.kind", "x", "step 1 ('q'): should be of kind"),
    ("steps.0.axes", ["query"], "step 1 ('q'): stage q: 2 dimensions but 1 axis"),
    ("steps.0.axes", [1, 2], "step 1 ('q'): axes, entry 1"),
    ("steps.0.labels", {"query": ["a"]}, "step 1 ('q'): stage q has 2 entries along"),
    ("steps.0.labels", {"\x1b": [1]}, "step 1 ('q'): labels, '\\x1b', entry 1"),
    ("steps.0.shape", [3, 3], "step 1 ('q'): shape is [3, 3], found [2, 3]"),
    ("steps.0.value", [[1, 2], [3]], "step 1 ('q'): value: row 2 has 1 entry"),
    ("steps.0.value", [["x"]], "step 1 ('q'): value: row 1, column 1 is the text 'x'"),
    ("steps.0.dtype", "object", "step 1 ('q'): dtype should be"),
    ("steps.0.dtype", "int8", "step 1 ('q'): value holds numbers that int8 cannot"),
    ("steps.0.params", {"p": [5]}, "step 1 ('q'): params, 'p' should be"),
    ("convention", 5, "convention: should be an object"),
    ("convention.dtype", "x", "convention: dtype is 'x'"),
    ("convention.extra", 1, "convention: a convention has no field 'extra'"),
    ("convention.scale", 10**400, "convention: scale is a number beyond float64"),
    ("convention.window", [1], "convention: window is (1,)"),
    *((f"steps.0.{key}", ..., "step 1") for key in ("value", "shape", "axes", "symbol", "kind")),
]


def test_documents_that_are_refused(folder: Folder) -> None:
    for path, value, key in REFUSED:
        assert key in folder.refusal(changed(document_of(attention()), path, value), "t.json")
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


def test_roles_of_a_flat_trace(folder: Folder) -> None:
    loaded = folder.load(trace_npz(attention()), "t.npz")
    assert (only(loaded, "mask").shape, pick(loaded, "past_k")) == ((2, 5), None)
    assert (loaded.query_labels, loaded.key_labels) == (("the", "[red]\x1b"), KEYS)
    cut = stage("weights", [[1.0], [0.5]], query=("a", "b"))  # two of three queries were saved
    document = document_of(Trace("T", (stage("q", [[1.0], [2.0], [3.0]]), cut)))
    assert folder.load(json.dumps(document), "t.json").query_labels is None


def test_a_part_of_a_trace_one_stage_of_it_and_what_is_none(folder: Folder) -> None:
    saved = folder.write("".join(trace_json(block())), "block.json")
    for part, name in (("encoder.2", "2"), ("encoder.2.attention", "attention")):
        loaded = read_source(f"{saved}::{part}")
        assert only(loaded, "q").tolist() == [[3.5, 2, 3], [4, 5, 6]]
        assert loaded.trace is not None
        assert (loaded.trace.name, loaded.query_labels) == (name, ("the", "[red]\x1b"))
    loaded = read_source(f"{saved}::encoder.1.attention.masked")
    assert (loaded.trace, loaded.key_labels) == (None, KEYS)
    assert list(loaded.arrays) == ["encoder.1.attention.masked"]
    assert only(loaded, "v").shape == (2, 5)
    with pytest.raises(InputError, match="no stage or part 'decoder'; it holds input, enco"):
        read_source(f"{saved}::decoder")
    both = "2 attentions: encoder.1.attention, encoder.2.attention; say which"
    with pytest.raises(InputError, match=f"{both}: .*::encoder.1.attention"):
        pick(read_source(saved), "q")


def test_what_a_stage_reads_is_renamed_within_a_part(folder: Folder) -> None:
    inner = Stage("norm", "N", "", np.ones(2), ("a",), reads={"x": "encoder.1.x", "y": "input"})
    trace = Trace("T", (Trace("E", (Trace("L", (inner,), name="1"),), name="encoder"),))
    part: Any = folder.load("".join(trace_json(trace)), "t.json", "encoder.1").trace
    assert part["norm"].reads == {"x": "x", "y": "input"}


# ---- numbers and labels of any kind

AWKWARD = [np.nan, np.inf, -np.inf, -0.0, 5e-324, -2.2e-308, 1.7976931348623157e308, 0.1, 1e16]
NUMBERS = st.floats(width=64) | st.sampled_from(AWKWARD)
MATRICES = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2), elements=NUMBERS)
BLOCKS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=5), elements=NUMBERS)
OTHERS = hnp.arrays(st.sampled_from([np.bool_, np.int64, np.uint8]), (2, 3))
LABEL = st.text(st.characters(exclude_categories=["Cs"]), max_size=7)


def same(read: Array, expected: Array) -> bool:
    """Equal in type, shape and bits; any NaN equals any other."""
    if (read.dtype, read.shape) != (expected.dtype, expected.shape):
        return False
    nan = np.isnan(expected)
    zero = expected.dtype.type(0)
    bits = np.where(nan, zero, read).tobytes() == np.where(nan, zero, expected).tobytes()
    return bits and bool(np.isnan(read[nan]).all())


def trace_of(value: Array, labels: list[str] | None = None) -> Trace:
    axes = tuple(f"axis{i}" for i in range(value.ndim))
    named = {} if labels is None else {"axis0": tuple(labels)}
    return Trace("T", (Stage("scores", "S", "S = Q Kᵀ", value, axes, named),))


def both(trace: Trace) -> list[FileContents]:
    """A trace as read from json and from npz."""
    files = ("".join(trace_json(trace)).encode(), trace_npz(trace))
    return [read_source("-", stdin=io.BytesIO(data)) for data in files]


@given(BLOCKS, OTHERS, st.sampled_from(["float64", "float32", "float16"]))
def test_a_trace_and_a_stage(block: Array, other: Array, dtype: str) -> None:
    with np.errstate(all="ignore"):
        value = block.astype(dtype)
    for array in (value, other):
        for loaded in both(trace_of(array)):
            assert same(loaded.arrays["scores"], array)
    write_npy(trace_of(value)["scores"], file := io.BytesIO())
    assert same(read_source("-", stdin=io.BytesIO(file.getvalue())).arrays[""], value)


@given(st.lists(LABEL, min_size=1, max_size=5))
def test_labels_of_any_characters(labels: list[str]) -> None:
    for loaded in both(trace_of(np.zeros((len(labels), 1)), labels)):
        assert loaded.trace is not None
        assert loaded.trace["scores"].labels["axis0"] == tuple(labels)


# a null character is no text
CSV_LABEL = LABEL.filter(lambda label: "\0" not in label)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(matrix=MATRICES, data=st.data())
@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_table_as_attncli_writes_it(matrix: Array, data: Any, form: Any, folder: Folder) -> None:
    rows, columns = (data.draw(st.lists(CSV_LABEL, min_size=n, max_size=n)) for n in matrix.shape)
    labels = {"query": tuple(rows), "key": tuple(columns)}
    trace = Trace("T", (Stage("weights", "A", "", matrix, ("query", "key"), labels),))
    loaded = folder.load(attncli.render(trace, form, full=True), f"x.{form}")
    assert same(loaded.arrays[""], matrix)
    assert (loaded.row_labels, loaded.column_labels) == (tuple(rows), tuple(columns))


# ---- the whole file or none, and what was there before untouched


def write_bytes(path: object, *pieces: bytes, force: bool = False) -> None:
    write_atomically(str(path), lambda file: file.writelines(pieces), force=force)


def test_a_new_file_has_the_usual_mode_and_a_replaced_one_keeps_its_own(tmp_path: Path) -> None:
    path, leftover = tmp_path / "x.bin", tmp_path / ".attncli-0.tmp"
    leftover.write_bytes(b"theirs")  # of another run: it is not touched
    write_bytes(path, b"ab", b"c")
    assert path.read_bytes() == b"abc"
    assert path.stat().st_mode == leftover.stat().st_mode
    assert sorted(os.listdir(tmp_path)) == [".attncli-0.tmp", "x.bin"]
    assert leftover.read_bytes() == b"theirs"
    path.chmod(0o640)
    with pytest.raises(OutputError, match=r"x\.bin exists already; replace it with --force"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"abc"
    write_bytes(path, b"new", force=True)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("is_there", [True, False])
def test_interrupted_writing_leaves_nothing(is_there: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    if is_there:
        path.write_bytes(b"old")
    for error in (KeyboardInterrupt(), SystemExit(), ValueError(), OSError(28, "No space left")):

        def write(file: BinaryIO, error: BaseException = error) -> None:
            file.write(b"half")
            raise error

        with pytest.raises(OutputError if isinstance(error, OSError) else type(error)):
            write_atomically(str(path), write, force=True)
        assert os.listdir(tmp_path) == (["x.bin"] if is_there else [])
        assert not is_there or path.read_bytes() == b"old"


def test_devices_and_closed_pipes() -> None:
    write_bytes("/dev/null", b"x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):  # the caller knows what it means
        write_bytes(f"/dev/fd/{writing}", b"x" * 100_000)
    os.close(writing)


def test_standard_output_may_be_a_pipe_and_writing_a_trace_imports_no_pydantic() -> None:
    code = (
        "import sys, numpy as np; from attncli.trace import Stage, Trace\n"
        "from attncli.files.write import trace_json, write_atomically\n"
        "list(trace_json(Trace('T', (Stage('s', 'S', '', np.ones(1), ('a',)),))))\n"
        "text = str('pydantic' in sys.modules).encode()\n"
        "write_atomically('/dev/stdout', lambda file: file.write(text), force=False)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"False"


def test_a_symbolic_link_is_followed_also_where_it_dangles(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    for content, is_there in ((b"new", False), (b"newer", True)):
        write_bytes(tmp_path / "link", content, force=is_there)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_bytes() == content


def test_paths_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for path, key in (
        ("", "is a directory"),
        ("no/x", "No such file or directory; make the folder"),
        ("file/x", "Not a directory"),
        ("a\0b", "a\\x00b' is not a path"),
        ("x" * 300, "cannot be written"),
    ):
        with pytest.raises(OutputError, match=re.escape(key)):
            write_bytes(f"{tmp_path}/{path}", b"", force=True)
        assert os.listdir(tmp_path) == ["file"]

    refuse = mock.Mock(side_effect=PermissionError(13, "Permission denied"))
    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(OutputError, match="x cannot be written: Permission denied"):
        write_bytes(tmp_path / "x", b"")


def test_of_two_writers_without_force_the_second_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "out.json"

    def slow(file: BinaryIO) -> None:
        write_bytes(target, b"first")
        file.write(b"second")

    for link in (os.link, mock.Mock(side_effect=OSError(95, "Operation not supported"))):
        with mock.patch("os.link", link), pytest.raises(OutputError, match="exists already"):
            write_atomically(str(target), slow, force=False)
        assert target.read_bytes() == b"first"
        assert os.listdir(tmp_path) == ["out.json"]
        target.unlink()
