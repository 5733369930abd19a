"""What takes a process of its own: signals, streams, memory, imports, terminals.

A process costs a second, so that there is one for each behaviour.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.calls import LISTEN, LISTENING, ROOT, SAMPLES

if sys.platform == "win32":
    pytest.skip("signals, shells and /proc", allow_module_level=True)

import pty

ATTNCLI = [sys.executable, "-m", "attncli"]
THREE = str(SAMPLES / "three-tokens.json")
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.savez(tmp_path / "q.npz", q=np.eye(2), k=np.eye(2), v=np.eye(2))
    np.save(tmp_path / "long.npy", np.ones((700, 3)))
    return tmp_path


def left(folder: Path) -> set[str]:
    """The files besides those of the fixture."""
    return {*os.listdir(folder)} - {"q.npz", "long.npy"}


def interrupted(
    folder: Path, call: list[str], number: int, condition: Callable[[int], bool]
) -> tuple[int, bytes]:
    """The exit code and the errors of a call that gets a signal once a condition holds for it."""
    end = time.monotonic() + 30
    with subprocess.Popen(call, cwd=folder, stderr=subprocess.PIPE) as process:
        while not condition(process.pid) and time.monotonic() < end:
            time.sleep(0.001)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    return process.returncode, errors


def python(script: str, *arguments: str, folder: Path | None = None) -> Done:
    call = [sys.executable, "-c", script, *arguments]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def shell(line: str, folder: Path, **environment: str) -> Done:
    """A line of bash in which "$@" is attncli; its streams have a buffer, as they have by default."""
    env = {name: x for name, x in os.environ.items() if name != "PYTHONUNBUFFERED"} | environment
    call = ["bash", "-o", "pipefail", "-c", line, "-", *ATTNCLI]
    return subprocess.run(call, cwd=folder, env=env, capture_output=True, encoding="utf-8",
                          errors="replace", check=False, timeout=60)  # fmt: skip


# ---- signals

# Standard input whose reading does something first.
READING = """
import io, os, signal, sys, time
from attncli.__main__ import main

class Input(io.RawIOBase):
    text = b"[[1, 2]]"

    def readable(self):
        return True

    def readinto(self, buffer):
        {}
        n, buffer[: len(self.text)], self.text = len(self.text), self.text, b""
        return n

sys.stdin = io.TextIOWrapper(io.BufferedReader(Input()))
{}
main()
"""
STDIN = ("compute", "--q", "-", "--format", "csv", "--quiet")


def test_a_write_that_is_ended_leaves_no_file(folder: Path) -> None:
    # The second signal comes just before the temporary file would be removed.
    script = f"""{LISTEN}
import os
from attncli.cli.main import main

unlink = os.unlink
os.unlink = lambda path: (os.kill(os.getpid(), signal.SIGTERM), unlink(path))
main()
"""
    line = "compute --q long.npy --output t.json --quiet"
    call = [sys.executable, "-c", script, *line.split()]
    code, errors = interrupted(folder, call, signal.SIGTERM, lambda _: bool(left(folder)))
    assert (code, errors, left(folder)) == (143, b"", set())


def test_an_interrupt_while_computing_is_a_line_and_leaves_no_file(folder: Path) -> None:
    np.lib.format.open_memmap(folder / "long.npy", "w+", np.float32, (1, 200_000, 64))

    def has_blocks(process: int) -> bool:
        return len(os.listdir(f"/proc/{process}/task")) > 2

    call = [*LISTENING, "compute", "--q", "long.npy", "--output", "out.npy", "--quiet"]
    code, errors = interrupted(folder, call, signal.SIGINT, has_blocks)
    assert (code, errors, left(folder)) == (130, b"attncli: interrupted\n", set())


FINALIZER = """
class Thing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
"""
KILL = """
        try:
            os.kill(os.getpid(), signal.SIGHUP); time.sleep(20)
        except BaseException:
            raise ValueError("something else")
"""


def test_a_signal_is_not_lost() -> None:
    # Python ignores what is raised in a finalizer, and a library may raise what it likes.
    for reading, more, code in (("Thing(); time.sleep(20)", FINALIZER, 143), (KILL, "", 129)):
        start = time.monotonic()
        done = python(LISTEN + READING.format(reading, more), *STDIN)
        assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
        assert time.monotonic() - start < 15


def test_a_hangup_that_is_ignored_stays_so_and_a_late_signal_changes_nothing() -> None:
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    late = """
import atexit
for number in (signal.SIGINT, signal.SIGTERM):
    atexit.register(os.kill, os.getpid(), number)
"""
    hangup = "os.kill(os.getpid(), signal.SIGHUP)"
    done = python(f"{LISTEN}{ignored}{READING.format(hangup, late)}", *STDIN)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("scores,")


def test_an_interrupt_outside_of_the_call_has_no_traceback() -> None:
    raising = "main.run = lambda arguments: signal.raise_signal(signal.SIGINT)"
    done = python(f"{LISTEN}from attncli.cli import main; {raising}; main.main()")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


# ---- imports


def test_importing_attncli_imports_no_other_module_and_an_interrupt_has_no_traceback() -> None:
    # The package is imported before __main__ runs, and the command line while SIGINT has no handler
    script = f"""{LISTEN}import sys
sys.path.insert(0, {str(ROOT)!r}); before = {{*sys.modules}}
import attncli; print(sorted({{*sys.modules}} - before))
import attncli.__main__; print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL)"""
    done = python(script)
    assert done.stdout.splitlines() == ["['__future__', 'attncli', 'attncli._version']", "True"]


def test_a_call_loads_nothing_it_does_not_need() -> None:
    script = """
import os, sys
from attncli.cli.main import run

for call in sys.argv[1:]:
    if not os.fork():
        run(call.split())
        os.write(1, f"\\nMODULES {' '.join(sys.modules)}\\n".encode())
        os._exit(0)
    os.wait()
"""
    calls = ("--help", "--version", "explain -h", "compute --q [[1,2],[3,4]]", "explain a")
    lines = python(script, *calls).stdout.splitlines()
    *helps, computing, explaining = ({*x.split()} for x in lines if x.startswith("MODULES "))
    assert ["numpy" in modules for modules in helps] == [False] * 3
    unneeded = "threadpoolctl attncli.attention.streaming concurrent.futures pydantic numpy.random "
    unneeded += "zipfile gzip tempfile csv safetensors rich.markdown"
    assert computing & {"numpy", *unneeded.split()} == {"numpy"}
    unneeded = "pydantic zipfile csv json rich.markdown attncli.words.vectors "
    unneeded += "attncli.files.load attncli.transformer.state_dict"
    assert explaining & {"numpy.random", *unneeded.split()} == {"numpy.random"}


@pytest.mark.parametrize(
    ("line", "some", "other"),
    [  # of what is typed: what may follow, and what may not
        ("compute --form", "--format", "--output"), ("compute --stage w", "weights", "scaled"),
        ("compute --blank w", "weights", "scaled"), ("similarity --stage ana", "analogy", "weights"),
        ("explain --semantics torch-s", "torch-sdpa", "jax"), ("semantics torch-s", "torch-sdpa", "jax"),
        ("semantics torch-sdpa torch-m", "torch-mha", "torch-sdpa"), ("compute --format ht", "html", "table"),
        ("examples 004", "004-first-example", "003-analogy"), ("examples why-s", "why-scale", "004"),
        ("help ma", "masks", "models"), ("help masks fo", "formulas", "masks"), ("help com", "compute", "check"),
    ],
)  # fmt: skip
def test_completion_knows_commands_choices_and_names(
    folder: Path, line: str, some: str, other: str
) -> None:
    typed = f"attncli {line}"
    variables = {"COMP_WORDS": typed, "COMP_CWORD": f"{len(typed.split()) - 1}"}
    variables |= {"_TYPER_COMPLETE_ARGS": typed, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    for name in ("bash", "zsh", "fish"):
        done = shell('"$@"', folder, _ATTNCLI_COMPLETE=f"complete_{name}", **variables)
        words = {*re.findall(r"^[\w-]+|(?<=\")[\w-]+(?=\")", done.stdout, re.MULTILINE)}
        assert (some in words, other in words, done.stderr) == (True, False, ""), name


def test_completion_imports_nothing_heavy(folder: Path) -> None:
    for line in ("compute --stage w", "examples 004", "help ma", "semantics t"):
        typed = {"COMP_WORDS": f"attncli {line}", "COMP_CWORD": f"{len(line.split())}"}
        done = shell(
            '"$@"', folder, PYTHONPROFILEIMPORTTIME="1", _ATTNCLI_COMPLETE="complete_bash", **typed
        )
        assert not {"numpy", "pydantic"} & {
            row.split("|")[-1].strip() for row in done.stderr.splitlines()
        }


# ---- streams


@pytest.mark.parametrize(
    ("line", "code", "out", "errors"),
    [  # a line, its exit code, what its output begins with and what its errors have
        ('"$@" compute --q long.npy --quiet --format csv | head -c 7', 0, "scores,", ""),
        ('"$@" -h | true', 0, "", ""), ('"$@" compute q.npz >&-', 2, "", "Bad file descriptor"),
        ('"$@" compute q.npz --output t.csv --quiet >&- && head -c 7 t.csv', 0, "scores,", ""),
        ('"$@" check --q q.npz --observed [[0.5,0.5],[0.5,0.5]] <&- 2>&-', 1, "it differs", ""),
        ('"$@" compute q.npz <&- >&- 2>&-', 2, "", ""),
        ('"$@" explain bank --format csv 2> >(true)', 0, "tokens,", ""),
        ('"$@" compute no.json 2> /dev/full', 2, "", ""),
        ('echo [[1]] | setsid -w "$@" compute - --step --quiet', 2, "", "keys from the terminal"),
    ],
)  # fmt: skip
def test_closed_or_full_streams(folder: Path, line: str, code: int, out: str, errors: str) -> None:
    if ("/dev/full" in line or "setsid" in line) and sys.platform != "linux":
        pytest.skip("a device and a program of Linux")
    done = shell(line, folder)
    assert (done.returncode, done.stderr.count("\n")) == (code, bool(errors))
    assert done.stdout[: len(out) or None] == out
    assert errors in done.stderr


# ---- encodings and colours


def test_other_encodings_get_near_characters_and_files_stay_utf_8(folder: Path) -> None:
    done = shell(f'"$@" compute {THREE} --causal', folder, PYTHONIOENCODING="cp1252")
    assert "S = Q K^T" in done.stdout
    assert "3 queries \ufffd 3 keys" in done.stdout  # a byte of that encoding
    c = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = shell(f'"$@" compute {THREE} --stage scaled; "$@" compute {THREE} -o a.md', folder, **c)
    assert done.stdout.isascii()
    assert "S / sqrt d_k" in done.stdout
    assert "S = Q Kᵀ" in (folder / "a.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("term", ["linux", "xterm-256color"])
def test_on_a_terminal_of_eight_colours_marks_stand_beside_the_shades(term: str) -> None:
    main, follower = pty.openpty()
    names = ("COLORTERM", "NO_COLOR", "FORCE_COLOR")
    env = {name: x for name, x in os.environ.items() if name not in names}
    call = [*ATTNCLI, "compute", THREE, "--stage", "weights", "--width", "80"]
    subprocess.run(call, stdout=follower, env=env | {"TERM": term}, check=True, timeout=60)
    os.close(follower)
    text = os.read(main, 65536).decode()
    os.close(main)
    is_marked = term == "linux"
    assert "0.4011" in text
    assert ("\x1b[97;45m ▒ 0.4011 \x1b[0m" in text) == is_marked
    assert ("░▒▓█" in text) == is_marked
    assert ("\x1b[38;5;" in text) != is_marked


# ---- memory

# One call with little allowed, which says its size, then as often as one is said; and its peak.
MEASURED = """
import contextlib, io, re, sys
from attncli.cli.main import run

allowed, sizes = 45.0, []
while True:
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        code = run([*sys.argv[1:], "--quiet", "--max-size", f"{allowed}MB"])
    if code != 2:
        break
    size, unit = re.search(r"needs? ([0-9.]+) (GB|MB), ", errors.getvalue()).groups()
    sizes.append(float(size) * {"GB": 1000, "MB": 1}[unit])
    allowed = sizes[-1] + 1 if "check" in sys.argv and len(sizes) == 1 else 16000
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(sizes[-1], int(peak.split()[1]) * 1024 / 1e6, file=sys.stderr)
"""


MEMORY = """
compute --q q.npy --k k.npy --v v.npy --dropout 0.1 --format html
check --q q.npy --k k.npy --v v.npy --observed w.npy --stage weights --single
explain --tokens a,b --pad-to 1100 --block encoder --layers 3
posenc --len 1500 --dim 1300
compute --q q.npy --formulas long.attn --format html
""".strip().split("\n")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
@pytest.mark.parametrize("call", MEMORY)
def test_the_size_said_is_that_measured(folder: Path, call: str) -> None:
    rng = np.random.default_rng(0)
    for name, shape in {**dict.fromkeys("qkv", (4, 701, 61)), "w": (4, 701, 701)}.items():
        np.save(folder / f"{name}.npy", rng.random(shape).astype(np.float32))
    (folder / "long.attn").write_text("size[z] = 5000003\nA[z] = q[0, z % 3, 0]\n")
    done = python(MEASURED, *call.split(), folder=folder)
    said, measured = map(float, done.stderr.splitlines()[-1].split())
    assert said > 45
    assert said == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize("megabytes", [40, 120, 300])
def test_a_limit_on_memory_is_a_line(folder: Path, megabytes: int) -> None:
    # too little for Python's modules, for NumPy, for the table
    line = f'ulimit -v {megabytes * 1000}; exec "$@" posenc --len 30000 --dim 2000'
    done = shell(line, folder)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("attncli: ")
    assert "MemoryError" not in done.stderr
