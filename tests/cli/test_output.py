"""Where the result goes: formats, files, pipes, and what is refused before anything is written."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import LISTENING, Call

ATTNCLI = [sys.executable, "-m", "attncli"]


@pytest.mark.parametrize("ending", ["json", "csv", "tsv", "md", "npz", "npy", "txt", "svg"])
def test_the_ending_names_the_format(call: Call, three: Path, tmp_path: Path, ending: str) -> None:
    result = call("compute", "--q", three, "--output", f"out.{ending}")
    assert (result.code, result.out, result.err) == (0, "", "")
    content = (tmp_path / f"out.{ending}").read_bytes()
    starts = {"json": b"{", "npz": b"PK", "npy": b"\x93NUMPY", "md": b"#", "svg": b"<svg"}
    assert content.startswith(starts.get(ending, b""))
    assert [path.name for path in tmp_path.iterdir()] == [f"out.{ending}"]


def test_format_wins_over_the_ending(call: Call, three: Path, tmp_path: Path) -> None:
    call("compute", "--q", three, "--output", "out.txt", "--format", "json")
    assert json.loads((tmp_path / "out.txt").read_text())["title"]


def test_the_browser_is_given_the_file(
    call: Call, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    monkeypatch.setenv("BROWSER", f"sh -c 'echo $0 > {opened}' %s")
    assert call("compute", "--q", three, "--open", "--output", "a b.html").code == 0
    assert opened.read_text() == f"{(tmp_path / 'a b.html').as_uri()}\n"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = call("compute", "--q", three, "--open")  # without a file: a page in one of its own
    assert (result.code, result.out, result.err) == (0, "", "")
    path = opened.read_text().strip().removeprefix("file://")
    assert path.startswith(f"{tmp_path}/attncli-")
    assert Path(path).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_without_a_browser_the_file_is_named(
    call: Call, three: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    result = call("compute", "--q", three, "--open")
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith("attncli: note: there is no browser to open file:///")


def test_latex_in_a_file_is_a_document_and_on_standard_output_a_part_of_one(
    call: Call, three: Path, tmp_path: Path
) -> None:
    part = call("compute", "--q", three, "--format", "latex").out
    assert call("compute", "--q", three, "--output", "out.tex").code == 0
    document = (tmp_path / "out.tex").read_text(encoding="utf-8")
    assert part.startswith("% needs")
    assert document.startswith("\\documentclass")
    assert document.endswith(f"\\begin{{document}}\n{part}\\end{{document}}\n")


def test_latex_has_no_shades(call: Call, three: Path) -> None:
    result = call("compute", "--q", three, "--format", "latex", "--heatmap")
    assert (result.code, result.out) == (2, "")
    assert "--heatmap has no effect on latex" in result.err


def test_npy_holds_the_output_or_the_named_stage(call: Call, three: Path, tmp_path: Path) -> None:
    call("compute", "--q", three, "--output", "out.npy")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy")[0], [5, 5])
    call("compute", "--q", three, "--output", "scores.npy", "--stage", "scores")
    assert np.load(tmp_path / "scores.npy").tolist() == [[1, 1, 0], [1, 0, 1], [2, 1, 1]]


def test_npz_holds_every_stage(call: Call, three: Path, tmp_path: Path) -> None:
    call("compute", "--q", three, "--output", "out.npz")
    with np.load(tmp_path / "out.npz") as file:
        stages = ["q", "k", "v", "scores", "scaled", "weights", "output"]
        assert [name for name in file.files if not name.startswith("_")] == stages


def test_csv_is_exact_and_reads_back(call: Call, three: Path) -> None:
    result = call("compute", "--q", three, "--stage", "weights", "--format", "csv")
    rows = list(csv.reader(io.StringIO(result.out)))
    assert rows[0][1:] == ["k1", "k2", "k3"]
    weight = float(rows[1][1])
    assert weight == np.exp(np.sqrt(0.5)) / (2 * np.exp(np.sqrt(0.5)) + 1)
    again = call("compute", "--q", "-", "--quiet", "--format", "json", stdin=result.out.encode())
    assert again.json["steps"][0]["value"][0][0] == weight


def test_selection_reaches_every_format(call: Call, three: Path) -> None:
    flags = ("--stage", "weights", "--rows", "2:3", "--cols", "1")
    steps = call("compute", "--q", three, "--format", "json", *flags).json["steps"]
    assert [step["name"] for step in steps] == ["weights"]
    assert np.shape(steps[0]["value"]) == (2, 1)
    assert steps[0]["labels"]["query"] == ["q2", "q3"]
    table = call("compute", "--q", three, "--format", "csv", *flags).out
    assert [line.split(",")[0] for line in table.splitlines()[1:]] == ["q2", "q3"]


@pytest.mark.parametrize("form", ["json", "npz"])
def test_a_trace_cut_for_the_eye_still_computes_whole(call: Call, three: Path, form: str) -> None:
    call("compute", "--q", three, "--rows", "2:", "--output", f"cut.{form}")
    whole = call("compute", "--q", three, "--format", "json").json["steps"][-1]["value"]
    again = call("compute", "--q", f"cut.{form}", "--format", "json")
    assert again.json["steps"][-1]["value"] == whole


def test_a_lone_stage_of_a_trace_is_not_taken_for_q(call: Call, three: Path) -> None:
    call("compute", "--q", three, "--stage", "weights", "--output", "weights.json")
    result = call("compute", "--q", "weights.json")
    assert result.code == 2
    assert "holds no q; it holds weights" in result.err
    assert call("compute", "--q", "weights.json::weights").code == 0


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--format", "json", "--work"], "--work has no effect on json"),
        (["--format", "csv", "--cell", "1,1"], "--cell has no effect on csv"),
        (["--output", "x.npz", "--heatmap"], "--heatmap has no effect on npz"),
        (["--output", "x.doc"], "the ending of x.doc names no format"),
        (["--output", "x"], "the ending of x names no format"),
        (["--open", "--format", "csv"], "--open has no effect on csv"),
        (["--open", "--output", "x.npz"], "--open has no effect on npz"),
        (["--force"], "--force has no effect without --output"),
        (["--format", "json", "--step"], "--step has no effect on json"),
        (["--stage", "wieghts"], "there is no stage 'wieghts'"),
        (["--head", "2"], "there is no head"),
        (["--batch", "1"], "there is no batch"),
        (["--rows", "9:"], "there are no rows 9"),
        (["--rows", "x"], "--rows 'x' is not understood"),
        (["--format", "npy", "--stage", "weights", "--stage", "scores"], "npy holds one stage"),
        (["--cell", "q9,k1"], "q9"),
        (["--causal-align", "top-left"], "--causal-align has no effect without"),
        (["--seed", "1"], "--seed has no effect without"),
        (["--softcap-place", "after-mask"], "--softcap-place has no effect without"),
        (["--softcap", "0"], "softcap is 0.0"),
        (["--dropout", "1"], "dropout is 1.0"),
        (["--mask-means", "keep"], "no effect without --mask"),
        (["--mask", "[[0,1,1]]"], "nothing but 0 and 1"),
        (["--mask", "[[0,2,1]]", "--mask-means", "keep"], "needs a mask of true/false or 0/1"),
        (["--mask", "[[0,2,1]]", "--mask-and-causal", "mask"], "has no effect without --causal"),
        (["--window", "0,0", "--window-counts", "own"], "counts the query's own key has none"),
        (["--mask-numbers", "truth"], "no effect without a mask of numbers"),
        (["--causal", "--mask", "[[0,2,1]]", "--mask-and-causal", "refused"], "refuses together"),
        (["--mask-value-rule", "add"], "has no effect without --mask-value"),
        (["--mask", "[[0.5,0.5]]"], "2 entries along the key axis"),
        (["--mask-value", "inf", "--causal"], "mask_value is inf"),
        (["--kv-heads", "2"], "--kv-heads is given without --heads"),
        (["--heads", "3", "--kv-heads", "2"], "3 query heads cannot evenly share 2"),
        (["--heads", "3"], "q: a width of 2 does not divide into 3 heads"),
        (["--layout", "bshd"], "the layout bshd has 4 axes, the array 2"),
        (["--layout", "hsd", "--heads", "2"], "--heads splits (tokens, d) or bsd"),
        (["--past-k", "[[1,2]]"], "past_k but no past_v"),
        (["--past-k", "[[1,2,3]]", "--past-v", "[[1,2]]"], "past_k (1 × 3) cannot be put before k"),
        (["--k", ""], "a path is expected"),
        (["--kv-len", "4"], "kv_len is [4] with 3 keys"),
        (["--kv-len", "two"], "--kv-len 'two' is not understood"),
        (["--window", "1"], "--window '1' is not understood"),
        (["--k", "-", "--mask", "-::m"], "standard input can be read only once"),
    ],
)
def test_what_is_refused(call: Call, three: Path, tmp_path: Path, flags: Any, says: str) -> None:
    result = call("compute", "--q", three, *flags)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert says in result.err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_kept_without_force(call: Call, three: Path, tmp_path: Path) -> None:
    (tmp_path / "out.json").write_text("precious")
    result = call("compute", "--q", three, "--output", "out.json")
    assert result.code == 2
    assert "--force" in result.err
    assert (tmp_path / "out.json").read_text() == "precious"
    assert call("compute", "--q", three, "--output", "out.json", "--force").code == 0
    assert json.loads((tmp_path / "out.json").read_text())["title"]


def test_a_missing_folder_is_named(call: Call, three: Path) -> None:
    result = call("compute", "--q", three, "--output", "no/such/out.json")
    assert result.code == 2
    assert "no/such" in result.err


def test_what_does_not_fit_into_memory_is_refused_before(call: Call, tmp_path: Path) -> None:
    x = np.lib.format.open_memmap(
        tmp_path / "long.npy", mode="w+", dtype=np.float32, shape=(64, 100_000, 1)
    )
    del x
    result = call("compute", "--q", "long.npy", "--output", "all.npz", "--quiet")
    assert result.code == 2
    assert "64 × 100000 × 100000 scores need" in result.err


def test_debug_shows_a_traceback(call: Call) -> None:
    result = call("compute", "--q", "missing.json", "--debug")
    assert result.code == 2
    assert "Traceback" in result.err


def quote(path: Path) -> str:
    return shlex.quote(str(path))


def run_in_shell(command: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which attncli is this one: the folder's name may hold it, and spaces."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'attncli() {{ {shlex.join(ATTNCLI)} "$@"; }}; {command}'],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_closed_pipe_is_no_error(three: Path) -> None:
    done = run_in_shell(f"attncli compute --q {quote(three)} --format csv | head -1")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("scores,")


def test_a_reader_that_never_reads_is_no_error(tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", np.ones((400, 3)))
    done = run_in_shell(
        f"attncli compute --q {quote(tmp_path / 'q.npy')} --quiet --format csv | true"
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("form", ["table", "json", "npz"])
def test_a_full_disk_is_reported(three: Path, form: str) -> None:
    done = run_in_shell(f"attncli compute --q {quote(three)} --format {form} > /dev/full")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left" in done.stderr


@pytest.mark.parametrize(
    "call",
    ["compute --q {three}", "explain 'the bank'", "posenc --len 500 --dim 4", "compute --help"],
)
@pytest.mark.parametrize("reader", ["true", "head -1"])
def test_a_reader_that_goes_away_is_0_everywhere(three: Path, call: str, reader: str) -> None:
    done = run_in_shell(f"attncli {call.format(three=quote(three))} | {reader}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("call", ["compute --q {three}", "compute --q {three} --format json", "-h"])
def test_closed_standard_output_is_reported(three: Path, call: str) -> None:
    done = run_in_shell(f"attncli {call.format(three=quote(three))} >&-")
    assert done.returncode == 2
    assert done.stderr == "attncli: cannot write the result: Bad file descriptor\n"


def test_with_standard_output_closed_a_file_is_written_whole(three: Path, tmp_path: Path) -> None:
    done = run_in_shell(
        f"cd {quote(tmp_path)} && attncli compute --q {quote(three)} --output t.json >&-"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "t.json").read_text())["attncli"] == "trace"


def test_with_standard_error_closed_notes_are_lost_and_the_result_is_not() -> None:
    done = run_in_shell("attncli compute --q '[[1,2]]' --format json 2>&-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["attncli"] == "trace"
    assert run_in_shell("attncli compute --q nowhere.json 2>&-").returncode == 2


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)],
    ids=["TERM", "INT", "HUP"],
)
def test_whoever_is_ended_while_writing_leaves_no_file(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    np.save(tmp_path / "q.npy", np.ones((700, 3)))
    call = ["compute", "--q", "q.npy", "--quiet", "--output", "t.json"]
    with subprocess.Popen([*LISTENING, *call], cwd=tmp_path, stderr=subprocess.PIPE) as process:
        end = time.monotonic() + 30
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.001)  # until there is a temporary file
        process.send_signal(number)
        try:
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == code
    assert [path.name for path in tmp_path.iterdir()] == ["q.npy"]


def test_an_interrupt_while_modules_are_imported_has_no_traceback() -> None:
    # Until main() listens, the system ends the process without a word.
    imported = "import attncli.__main__; print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL)"
    call = [
        sys.executable,
        "-c",
        f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {imported}",
    ]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_interrupting_ends_with_130() -> None:
    reading, writing = os.pipe()  # nobody writes, so the call waits for its input
    with subprocess.Popen(
        [*LISTENING, "compute", "--q", "-"],
        stdin=reading,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    os.close(reading)
    os.close(writing)
    assert (process.returncode, out, err) == (130, "", "attncli: interrupted\n")


@pytest.mark.parametrize(("keys", "stages"), [("\n\n\n\n", 4), ("\nq\n", 2), ("", 1)])
def test_step_waits_and_leaves_on_q_and_end_of_input(three: Path, keys: str, stages: int) -> None:
    done = subprocess.run(
        [*ATTNCLI, "compute", "--q", three, "--step"],
        input=keys,
        capture_output=True,
        text=True,
        check=True,
    )
    shown = [
        name for name in ("scores", "scaled", "weights", "output") if f"  {name}" in done.stdout
    ]
    assert len(shown) == stages
    assert "next stage" in done.stderr


@pytest.mark.parametrize("flags", [["--rows", "0:1"], ["--cols", "x"], ["--cell", "q1"]])
def test_a_wrong_call_is_all_that_is_reported(call: Call, flags: list[str]) -> None:
    result = call("compute", "--q", "[[1,2]]", *flags)  # which would remark that K = Q
    assert result.code == 2
    assert result.err.count("\n") == 1


def test_an_encoding_without_these_characters_gets_near_ones(three: Path) -> None:
    done = run_in_shell(f"PYTHONIOENCODING=ascii attncli compute --q {quote(three)} --causal")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "S = Q K^T" in done.stdout
    assert "Z = S / sqrt d_k = S / 1.4142" in done.stdout
    assert "\\" not in done.stdout
    latin = run_in_shell(
        f"PYTHONIOENCODING=latin-1 attncli compute --q {quote(three)} | iconv -f latin1"
    )
    assert "3 queries · 3 keys" in latin.stdout


def test_step_without_a_terminal_for_its_keys_is_refused_before_anything_is_printed() -> None:
    done = subprocess.run(
        [*ATTNCLI, "compute", "--q", "-", "--step", "--quiet"],
        input="[[1, 2]]",
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # so that there is no terminal to open
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("attncli: --step reads keys from the terminal, and there is none")
