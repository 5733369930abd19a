"""Where the result goes: formats, files, pipes, a disk that is full, an output that is the input,
figures and flowcharts."""

import html
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

import attncli
from attncli.cli import main
from attncli.files.load import read_source
from attncli.stages import spec_of
from tests.calls import SAMPLES, Call

resource = pytest.importorskip("resource")

FORMS = ["txt", "json", "csv", "tsv", "md", "mmd", "npz", "npy", "svg", "tex"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "q.npz", q=np.eye(2), k=np.eye(2), v=np.eye(2))
    return tmp_path


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may be longer than 16 bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ---- formats


def test_the_ending_names_the_format(call: Call, three: Path, tmp_path: Path) -> None:
    starts = {"json": b"{", "npz": b"PK", "npy": b"\x93NUMPY", "md": b"#", "svg": b"<svg"}
    starts |= {"tex": b"\\documentclass", "csv": b"scores,k1", "mmd": b"flowchart"}
    for ending in FORMS:
        result = call("compute", "--q", three, "--output", f"out.{ending}")
        assert (result.code, result.out, result.err) == (0, "", "")
        assert (tmp_path / f"out.{ending}").read_bytes().startswith(starts.get(ending, b""))
    assert {path.name for path in tmp_path.iterdir()} == {f"out.{ending}" for ending in FORMS}
    call("compute", "--q", three, "--output", "form.txt", "--format", "json")
    assert json.loads((tmp_path / "form.txt").read_text())["title"]


def test_binary_files_hold_every_stage_or_one(call: Call, three: Path, tmp_path: Path) -> None:
    cut = "cut.npy --stage=weights --rows=2:3 --cols=1"
    for flags in ("out.npy", "out.npz", "scores.npy --stage scores", cut):
        assert call("compute", "--q", three, "--output", *flags.split()).code == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy")[0], [5, 5])
    assert np.load(tmp_path / "scores.npy").tolist() == [[1, 1, 0], [1, 0, 1], [2, 1, 1]]
    np.testing.assert_allclose(np.load(tmp_path / "cut.npy"), [[0.4011], [0.5035]], atol=5e-5)
    with np.load(tmp_path / "out.npz") as file:
        names = [name for name in file.files if not name.startswith("_")]
    assert names == ["q", "k", "v", "scores", "scaled", "weights", "output"]


def test_a_trace_cut_for_the_eye_still_computes_whole(call: Call, three: Path) -> None:
    whole = call("compute", "--q", three, "--format", "json").json["steps"][-1]["value"]
    for form in ("json", "npz"):
        call("compute", "--q", three, "--rows", "2:", "--output", f"cut.{form}")
        again = call("compute", "--q", f"cut.{form}", "--format", "json")
        assert again.json["steps"][-1]["value"] == whole


def test_a_browser_is_shown_the_file_or_the_file_is_named(
    call: Call, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    monkeypatch.setenv("BROWSER", f"sh -c 'echo $0 > {opened}' %s")
    monkeypatch.setattr("webbrowser._tryorder", None)  # it is read anew, whatever ran before
    assert call("compute", "--q", three, "--open", "--output", "a b.html").code == 0
    assert opened.read_text() == f"{(tmp_path / 'a b.html').as_uri()}\n"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = call("compute", "--q", three, "--open")  # without a file: a page in one of its own
    assert (result.code, result.out, result.err) == (0, "", "")
    page = Path(opened.read_text().strip().removeprefix("file://"))
    assert page.is_relative_to(tmp_path)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    result = call("compute", "--q", three, "--open")
    assert (result.code, result.out, "file:///" in result.err) == (0, "", True)


def test_step_waits_for_a_key(call: Call, three: Path) -> None:
    for keys, n in {"\n" * 7: 7, "\nq\n": 2, "": 1}.items():  # q and the end of input leave
        result = call("compute", "--q", three, "--step", stdin=keys.encode())
        titles = re.findall(r"^(?:\d  )?(q|k|v|scores|scaled|weights|output) ", result.out, re.M)
        assert len(titles) == n
        assert "next stage" in result.err


def test_debug_shows_a_traceback(call: Call) -> None:
    result = call("compute", "--q", "missing.json", "--debug")
    assert (result.code, "Traceback" in result.err) == (2, True)


# ---- what is left behind where it cannot be written


@pytest.mark.parametrize("before", [None, b"what was there before"])
def test_a_full_disk_leaves_what_was_there(call: Call, folder: Path, before: bytes | None) -> None:
    lines = {f"out.{form}": "compute --q q.npz" for form in FORMS}
    lines |= {f"{line.split()[0]}.json": line for line in (  # each command that writes a file
        "compute --q q.npz", "explain bank", "posenc --len 5 --dim 4", "similarity a=1,2 b=2,1",
        "examples 004-first-example", "check --q q.npz --observed [[0.5,0.5],[0.5,0.5]]",
    )}  # fmt: skip
    for name, line in lines.items():
        target = folder / name
        if before:
            target.write_bytes(before)
        with full_disk():
            result = call(*line.split(), "--output", name, "--force", "--quiet")
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert f"{name} cannot be written: File too large" in result.err
        assert (target.read_bytes() if target.exists() else None) == before
    assert not list(folder.glob(".attncli-*"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a Linux device")
def test_a_full_device_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in ("table", "json", "npz", "npy"):
        with open("/dev/full", "w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            patch.setattr(sys, "stderr", errors := io.StringIO())
            assert main.run(["compute", "--q", str(folder / "q.npz"), "--format", form]) == 2
        text = errors.getvalue()
        assert ("No space left" in text, text.count("\n")) == (True, 1)


def test_a_pipe_as_the_file_takes_every_form(call: Call, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with ThreadPoolExecutor() as pool:
        for form in ("npy", "npz", "json"):
            content = pool.submit((folder / "pipe").read_bytes)
            done = call("compute", "q.npz", "--quiet", "--format", form, "--output", "pipe")
            assert (done.code, done.err) == (0, "")
            (folder / form).write_bytes(content.result())
    output = json.loads((folder / "json").read_text())["steps"][-1]["value"]
    np.testing.assert_allclose(output, [[0.67, 0.33], [0.33, 0.67]], atol=5e-3)
    for again in (np.load(folder / "npz")["output"], np.load(folder / "npy")):
        np.testing.assert_allclose(output, again, atol=5e-3)


@pytest.mark.parametrize("through", ["its name", "a symbolic link", "a hard link"])
@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("compute --q q.npz", "--format npz --output"),
        ("check --q q.npz --observed [[9,9],[9,9]]", "--format json -o"),
    ],
)  # fmt: skip
def test_output_is_input(call: Call, folder: Path, line: str, output: str, through: str) -> None:
    source = target = folder / "q.npz"
    before = source.read_bytes()
    if through != "its name":
        target = folder / "same.npz"
        (target.symlink_to if through == "a symbolic link" else target.hardlink_to)(source)
    arguments = (*line.split(), *output.split())
    refused = call(*arguments, target.name, "--quiet")
    assert (refused.code, refused.err.count("\n"), "--force" in refused.err) == (2, 1, True)
    assert source.read_bytes() == before
    elsewhere = call(*arguments, "other.npz", "--quiet")
    done = call(*arguments, target.name, "--quiet", "--force")
    assert (done.code, done.err) == (elsewhere.code, "")
    assert target.read_bytes() == (folder / "other.npz").read_bytes()
    assert target.is_symlink() == (through == "a symbolic link")
    if through == "a hard link":  # the other name keeps what it had
        assert source.read_bytes() == before
    assert not list(folder.glob(".attncli-*"))


# ---- figures and flowcharts

THREE, HEADS = str(SAMPLES / "three-tokens.json"), str(SAMPLES / "heads.json")
FAMILY = "king=0.9,0.5,0.1 queen=0.2,0.5,0.1 dad=0.9,0.7,0.9 mom=0.2,0.7,0.9"


DRAWN = {  # a call: what its figure has
    "explain a --target c --block decoder --heads 2": ">head 2<",
    "posenc --len 3 --dim 4 --dots": ">dots: ", "similarity a=1,2 b=2,1 c=1,1 --pca": ">PC 1<",
    "examples 004-first-example --stage weights": ">weights: ",
    f"compute {THREE} --stage scores --stage output": ">output: ",
    f"compute {THREE}": ">0.40<",  # two decimals, unless others are asked for
    f"compute {THREE} --precision 4": ">0.4011<",
}  # fmt: skip


def test_each_command_draws(call: Call, tmp_path: Path) -> None:
    for line, text in DRAWN.items():
        result = call(*line.split(), "--format", "svg", "--quiet")
        assert (result.code, result.err, result.out[:5]) == (0, "", "<svg ")
        assert text in result.out
        assert call(*line.split(), "--output", "a.svg", "--quiet", "--force").code == 0
        assert (tmp_path / "a.svg").read_text() == result.out


def test_a_missing_package_is_named_first(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for ending in ("svg", "png", "pdf"):
        result = call("compute", "--q", "missing.json", "--output", f"a.{ending}")
        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert f"{ending} needs the package matplotlib; pip install 'attncli[figures]'" in result.err  # fmt: skip
    with pytest.raises(attncli.MissingExtraError, match="needs the package matplotlib"):
        attncli.posenc(2, 2).plot()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no pseudo-terminals")
def test_a_picture_is_not_for_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    leader, follower = os.openpty()
    errors = io.StringIO()
    with os.fdopen(follower, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", errors)
        assert main.run(["compute", "--q", THREE, "--format", "png"]) == 2
    os.close(leader)
    assert "not for a terminal" in errors.getvalue()


@pytest.mark.parametrize(("line", "given"), [
    ("explain 'I love AI'", "tokens"), ("explain 'the bank' --projection identity", "tokens"),
    ("explain 'the bank the' --positions none --block encoder", "tokens"),
    ("explain 'the bank' --target 'la rive' --block decoder", "tokens mask"),
    ("compute '[[1,0],[0,1]]' --causal --d-output ones", "q k v mask d_output"),
    ("posenc --len 3 --dim 4 --dots", "divisors"), ("similarity a=1,2 b=2,1 --pca", "vectors"),
])  # fmt: skip
def test_a_flowchart_has_arrows_into_all_that_is_computed(
    call: Call, line: str, given: str
) -> None:
    text = call(*shlex.split(line), "--format", "mermaid").out
    names = {n: re.split("<br/>|\"", name)[0].replace("#95;", "_") for n, name in re.findall(r'(n\d+)\["(.*)', text)}  # fmt: skip
    reached = re.findall(r"--> (n\d+)", text)
    assert {name for node, name in names.items() if node not in reached} == {*given.split()}
    added = [node for node, name in names.items() if name == "added"]
    assert [reached.count(node) for node in added] == [2] * len(added)


@pytest.mark.parametrize(
    "line",
    [
        f"compute {HEADS} --causal --softcap 2 --dropout 0.3 --sinks [0.5,1,1,1]",
        "explain --tokens The,bank --positions none --projection identity",
        "explain --tokens The,bank --block encoder --layers 2 --norm pre --full",
        "explain a --block decoder --target la --layers 2 --dropout 0.1 --full",
        f"posenc --kind rope --apply {HEADS}", f"similarity {FAMILY} --pca",
        f"similarity {FAMILY} --analogy king queen dad",
    ],
)  # fmt: skip
def test_a_flowchart_has_an_arrow_for_each_read(call: Call, tmp_path: Path, line: str) -> None:
    assert call(*line.split(), "--output", "trace.json").code == 0
    trace = read_source(str(tmp_path / "trace.json")).trace
    assert trace is not None
    stages = {name: stage for name, stage in trace.stages() if spec_of(name).role != "parameter"}
    expected = set()
    for name, stage in stages.items():
        prefix = name[: name.rfind(".") + 1]
        for read in stage.reads.values():
            source = prefix + read if prefix + read in stages else read
            expected |= {(source, name)} if source in stages else set()
    text = call(*line.split(), "--format", "mermaid").out
    labels = [x.split("<br/>")[0] for x in re.findall(r'(n\d+\["[^"<]+)', text)]
    names = dict(html.unescape(re.sub(r"#(\d+);", r"&#\1;", x)).split('["') for x in labels)
    assert sorted(names.values()) == sorted(name.rpartition(".")[2] for name in stages)
    arrows = [(names[a], names[b]) for a, b in re.findall(r"(n\d+) --> (n\d+)", text)]
    assert sorted(arrows) == sorted((a.split(".")[-1], b.split(".")[-1]) for a, b in expected)
    # Mermaid draws a node in the first box to end after the node is mentioned, so each arrow is in
    # the innermost box that holds both of its ends, after them
    boxes: list[str] = []
    places: dict[str, list[str]] = {}
    for row in text.splitlines()[1:]:
        node, *rest = row.split()
        if node == "subgraph":
            boxes.append(rest[0])
        elif node == "end":
            boxes.pop()
        elif rest[:1] == ["-->"]:
            pairs = zip(places[node], places[rest[1]], strict=False)
            assert boxes == [a for a, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)], row
        else:
            places[node.partition("[")[0]] = [*boxes]
