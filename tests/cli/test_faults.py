"""A call that is ended, a disk that is full, an output that is the input: what is left behind."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from .conftest import LISTEN, ROOT, Call

ATTNCLI = [sys.executable, "-m", "attncli"]
FORMS = ["txt", "json", "csv", "tsv", "md", "mmd", "npz", "npy"]
OLD = b"what was there before\n"
# One call of each command that writes a file, and its exit code.
CALLS = {
    "compute": (("compute", "--q", "q.npz"), 0),
    "explain": (("explain", "the river bank"), 0),
    "posenc": (("posenc", "--len", "5", "--dim", "4"), 0),
    "similarity": (("similarity", "a=1,2", "b=2,1"), 0),
    "examples": (("examples", "004-first-example"), 0),
    "check": (("check", "--q", "q.npz", "--observed", "[[0.5, 0.5], [0.5, 0.5]]"), 1),
}
# With one query, a causal mask that is left out looks like one that is aligned bottom-right.
AMBIGUOUS = (
    *("check", "--q", "[[1, 0]]", "--k", "q.npz::k", "--v", "q.npz::v", "--causal"),
    *("--observed", "[[0.67, 0.33]]", "--decimals", "2"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "q.npz", q=np.eye(2), k=np.eye(2), v=np.eye(2))
    return tmp_path


@contextmanager
def small_files() -> Iterator[None]:
    """No file may be longer than 16 bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def waiting_for_a_part(folder: Path) -> None:
    """Waits until a temporary file is there."""
    end = time.monotonic() + 30
    while not list(folder.glob(".attncli-*")) and time.monotonic() < end:
        time.sleep(0.001)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [None, OLD])
def test_a_full_disk_leaves_what_was_there(
    call: Call, folder: Path, form: str, before: bytes | None
) -> None:
    target = folder / f"out.{form}"
    if before:
        target.write_bytes(before)
    with small_files():
        result = call("compute", "--q", "q.npz", "--output", target.name, "--force")
    assert result.code == 2
    assert result.err == f"attncli: {target.name} cannot be written: File too large\n"
    assert (target.read_bytes() if target.exists() else None) == before
    assert {path.name for path in folder.iterdir()} <= {"q.npz", target.name}


@pytest.mark.parametrize("name", CALLS)
def test_a_full_disk_is_2_for_every_command(call: Call, folder: Path, name: str) -> None:
    with small_files():
        result = call(*CALLS[name][0], "--output", "out.json", "--quiet")
    assert (result.code, result.out) == (2, "")
    assert result.err == "attncli: out.json cannot be written: File too large\n"
    assert [path.name for path in folder.iterdir()] == ["q.npz"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a Linux device")
@pytest.mark.parametrize("form", ["npy", "npz", "json"])
def test_a_full_disk_is_named_in_every_form(call: Call, folder: Path, form: str) -> None:
    result = call("compute", "--q", "q.npz", "--output", "/dev/full", "--format", form)
    assert result.code == 2
    assert result.err == "attncli: /dev/full cannot be written: No space left on device\n"


def test_a_read_only_folder(folder: Path) -> None:
    unprivileged: list[str] = []
    if os.geteuid() == 0:  # who may write anywhere, unless it lacks this capability
        if not shutil.which("setpriv"):
            pytest.skip("root may write anywhere, and there is no setpriv")
        unprivileged = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-all"]
    (folder / "old.json").write_bytes(OLD)
    folder.chmod(0o555)
    try:
        for name in ("new.json", "old.json"):
            call = [*ATTNCLI, "compute", "--q", "q.npz", "--output", name, "--force"]
            done = subprocess.run(
                [*unprivileged, *call], cwd=folder, capture_output=True, text=True, check=False
            )
            assert done.returncode == 2
            assert done.stderr == f"attncli: {name} cannot be written: Permission denied\n"
    finally:
        folder.chmod(0o755)
    assert (folder / "old.json").read_bytes() == OLD
    assert sorted(os.listdir(folder)) == ["old.json", "q.npz"]


@pytest.mark.parametrize("through", ["its name", "a symbolic link", "a hard link"])
@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("compute", "--q", "q.npz"), ("--format", "npz", "--output")),
        (("compute", "--q", "q.npz"), ("--format", "npy", "--output")),
        (("posenc", "--add", "q.npz::q"), ("--format", "json", "--output")),
        (("check", "--q", "q.npz", "--observed", "[[9,9],[9,9]]"), ("--format", "json", "-o")),
        (AMBIGUOUS, ("--suggest",)),
    ],
)
def test_an_output_that_is_the_input(
    call: Call, folder: Path, arguments: tuple[str, ...], output: tuple[str, ...], through: str
) -> None:
    source = target = folder / "q.npz"
    before = source.read_bytes()
    if through != "its name":
        target = folder / "same.npz"
        (target.symlink_to if through == "a symbolic link" else target.hardlink_to)(source)
    refused = call(*arguments, *output, target.name, "--quiet")
    assert refused.code == 2
    assert refused.err == f"attncli: {target.name} exists already; replace it with --force\n"
    assert source.read_bytes() == before
    elsewhere = call(*arguments, *output, "other.npz", "--quiet")
    done = call(*arguments, *output, target.name, "--quiet", "--force")
    assert (done.code, done.err) == (elsewhere.code, "")
    assert target.read_bytes() == (folder / "other.npz").read_bytes()
    assert target.is_symlink() == (through == "a symbolic link")
    if through == "a hard link":  # the other name keeps what it had
        assert source.read_bytes() == before
    assert not list(folder.glob(".attncli-*"))


def test_a_verdict_and_a_suggestion_are_two_files(call: Call, folder: Path) -> None:
    flags = ("--format", "text", "--output", "x.npz", "--suggest", "x.npz")
    result = call("check", "--q", "q.npz", "--observed", "[[1,0],[0,1]]", *flags)
    assert result.code == 2
    assert result.err == "attncli: --output and --suggest name one file; name two\n"
    assert [path.name for path in folder.iterdir()] == ["q.npz"]


@pytest.mark.parametrize("force", [False, True])
def test_two_writers_of_one_file(folder: Path, force: bool) -> None:
    call = [*ATTNCLI, "compute", "--q", "q.npz", "--output", "out.json", "--quiet"]
    call += ["--force"] if force else []
    both = [subprocess.Popen(call, cwd=folder, stderr=subprocess.PIPE) for _ in range(2)]
    said = b"".join(process.communicate(timeout=60)[1] for process in both)
    assert sorted(process.returncode for process in both) == [0, 0 if force else 2]
    assert said == (
        b"" if force else b"attncli: out.json exists already; replace it with --force\n"
    )
    alone = [*ATTNCLI, "compute", "--q", "q.npz", "--format", "json"]
    whole = subprocess.run(alone, cwd=folder, capture_output=True, check=True).stdout
    assert (folder / "out.json").read_bytes() == whole
    assert sorted(os.listdir(folder)) == ["out.json", "q.npz"]


@pytest.mark.parametrize("before", [None, OLD])
def test_kill_leaves_the_file_and_no_more_than_a_temporary_one(
    tmp_path: Path, before: bytes | None
) -> None:
    np.save(tmp_path / "q.npy", np.ones((700, 3)))
    if before:
        (tmp_path / "t.json").write_bytes(before)
    call = [*ATTNCLI, "compute", "--q", "q.npy", "--quiet", "--output", "t.json", "--force"]
    with subprocess.Popen(call, cwd=tmp_path) as process:
        waiting_for_a_part(tmp_path)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    names = [path.name for path in tmp_path.iterdir()]
    parts = [name for name in names if name.startswith(".attncli-") and name.endswith(".tmp")]
    assert sorted(names) == sorted(["q.npy", *parts, *(["t.json"] if before else [])])
    assert len(parts) == 1
    assert before is None or (tmp_path / "t.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [("SIGTERM", 143, ""), ("SIGINT", 130, "attncli: interrupted\n"), ("SIGHUP", 129, "")],
)
def test_a_signal_sent_twice_does_not_stop_the_cleaning_up(
    folder: Path, name: str, code: int, says: str
) -> None:
    # The first while the file is written, the second just before it would be removed.
    script = f"""{LISTEN}
import os, sys
import attncli.files.write
from attncli.cli.main import main

def send():
    os.kill(os.getpid(), signal.{name})

def piece(trace):
    yield "half of it"
    send()

unlink = os.unlink
attncli.files.write.trace_json = piece
os.unlink = lambda path: (send(), unlink(path))
main()
"""
    call = ["compute", "--q", "q.npz", "--output", "out.json"]
    done = subprocess.run(
        [sys.executable, "-c", script, *call],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", says)
    assert os.listdir(folder) == ["q.npz"]


@pytest.mark.parametrize(
    ("name", "code", "says"), [("SIGTERM", 143, ""), ("SIGINT", 130, "attncli: interrupted\n")]
)
def test_a_signal_in_a_finalizer_is_not_lost(name: str, code: int, says: str) -> None:
    # Python ignores what is raised there.
    script = f"""{LISTEN}
import os, time
from attncli.cli import main

class Thing:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.01)

def call(arguments):
    Thing()
    time.sleep(20)

main._call = call
main.main()
"""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", says)
    assert time.monotonic() - start < 15


def test_a_hangup_that_is_ignored_stays_so() -> None:
    script = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); from attncli.__main__ import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", script, "compute", "--q", "-", "--format", "csv", "--quiet"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        time.sleep(1)  # it waits for its input by now
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(b"[[1, 2]]", timeout=30)
    assert (process.returncode, err) == (0, b"")
    assert out.startswith(b"scores,")


def test_an_interrupt_outside_of_the_call_has_no_traceback() -> None:
    script = f"""{LISTEN}
from attncli.cli import main

def run(arguments):
    raise KeyboardInterrupt

main.run = run
main.main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_a_signal_after_the_result_is_written_changes_nothing() -> None:
    script = f"""{LISTEN}
import atexit, os
from attncli.__main__ import main

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    atexit.register(os.kill, os.getpid(), number)
main()
"""
    call = ["compute", "--q", "[[1, 2]]", "--format", "csv", "--quiet"]
    done = subprocess.run([sys.executable, "-c", script, *call], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"scores,")


def test_importing_attncli_imports_no_other_module() -> None:
    # Ctrl-C has a traceback until __main__ runs, and the package is imported before it.
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = {{*sys.modules}}; import attncli; print(sorted({{*sys.modules}} - before))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['__future__', 'attncli', 'attncli._version']\n"


def shell(folder: Path, line: str, *call: str) -> subprocess.CompletedProcess[bytes]:
    """A line of bash in which "$@" is a call; streams have a buffer, as they have by default."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line, "-", *ATTNCLI, *call],
        cwd=folder,
        env={name: x for name, x in os.environ.items() if name != "PYTHONUNBUFFERED"},
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("name", CALLS)
def test_closed_input_and_errors_do_not_matter(folder: Path, name: str) -> None:
    call, code = CALLS[name]
    expected = shell(folder, '"$@" 2>/dev/null', *call).stdout
    done = shell(folder, '"$@" <&- 2>&-', *call)
    assert done.returncode == code
    assert done.stdout == expected


@pytest.mark.parametrize("name", CALLS)
def test_with_every_stream_closed_it_is_2(folder: Path, name: str) -> None:
    assert shell(folder, '"$@" <&- >&- 2>&-', *CALLS[name][0]).returncode == 2


@pytest.mark.parametrize("where", ["2> /dev/full", "2> >(true)"])
def test_notes_that_cannot_be_written_are_lost_and_the_result_is_not(
    folder: Path, where: str
) -> None:
    if "full" in where and not os.path.exists("/dev/full"):
        pytest.skip("the system has no /dev/full")
    call = ("explain", "the river bank", "--format", "csv")
    expected = shell(folder, '"$@"', *call)
    assert expected.stderr.startswith(b"attncli: note: ")
    done = shell(folder, f'"$@" {where}', *call)
    assert (done.returncode, done.stdout) == (0, expected.stdout)


def test_an_error_that_cannot_be_written_is_still_2(folder: Path) -> None:
    for where in ("2> /dev/full", "2> >(true)"):
        assert shell(folder, f'"$@" {where}', "compute", "--q", "no.json").returncode == 2


@pytest.mark.parametrize("form", ["npy", "npz", "json"])
def test_a_pipe_as_the_file_takes_every_form(folder: Path, form: str) -> None:
    call = ("compute", "--q", "q.npz", "--output", "pipe", "--format", form)
    done = shell(folder, 'mkfifo pipe; cat pipe & "$@" && wait', *call)
    assert (done.returncode, done.stderr) == (0, b"")
    expected = shell(folder, '"$@"', *call[:3], "--format", form).stdout
    assert done.stdout == expected


def test_a_reader_of_a_pipe_that_goes_away_is_0(folder: Path) -> None:
    np.save(folder / "long.npy", np.ones((300, 300)))
    for form in ("npy", "npz", "json"):
        line = 'mkfifo pipe; head -c 1 pipe > /dev/null & "$@"; code=$?; rm pipe; exit $code'
        call = ("compute", "--q", "long.npy", "--output", "pipe", "--format", form, "--quiet")
        done = shell(folder, line, *call)
        assert (done.returncode, done.stderr) == (0, b"")


def test_what_a_library_makes_of_a_signal_is_no_fault_of_attncli(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncli.cli.signals._received", [(signal.SIGHUP, 0.0)])
    result = call("compute", "--q", "no.json")
    assert (result.code, result.out, result.err) == (129, "", "")
