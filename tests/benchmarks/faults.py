"""What is left behind when a call is ended, its disk is full or its reader goes away. By hand:

    .venv/bin/python tests/benchmarks/faults.py [--moments 60] [--only TEXT] [--kinds compute]

Each kind of call (a command and a form of its output) meets each fault. A fault is passed where the
exit code is the documented one, standard error holds one line at most, the output file is as it was
before or whole, and no temporary file is left (after SIGKILL: one at most). Prints a table of what
was tried and passed, and each failure when it is met; the exit code is 1 where there is one. Ctrl-C
ends it with the table of what was tried.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ATTNCLI = str(Path(sys.executable).with_name("attncli"))
EARLIEST = 0.001  # seconds after the process was started
OLD = b"what was there before\n"
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT}
SIGNALS["SIGHUP"] = signal.SIGHUP
PATIENCE = 120  # seconds that a call may take
# Root may write anywhere, unless it lacks this capability.
UNPRIVILEGED = (
    ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"]
    if os.geteuid() == 0
    else []
)


@dataclass(frozen=True)
class Kind:
    """A call and the file it writes; `arguments` name no output, `source` is a file it reads."""

    name: str
    arguments: tuple[str, ...]
    output: str
    flag: str = "--output"
    source: str = ""
    code: int = 0

    def writing(self, path: str, *, force: bool = False) -> list[str]:
        return [ATTNCLI, *self.arguments, self.flag, path, *(["--force"] if force else [])]


def kinds(folder: Path) -> list[Kind]:
    """Every command with every form of output, their inputs written to a folder."""
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(3, 120, 8))
    np.savez(folder / "qkv.npz", q=q, k=k, v=v)
    few = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    np.savez(folder / "few.npz", q=few, k=few, v=few)
    words = [f"w{i}={','.join(map(str, row.round(3)))}" for i, row in enumerate(q[:20])]
    sentence = "She visited the money bank, near the river bank"
    everything = ("txt", "json", "csv", "tsv", "md", "mmd", "npz", "npy")
    calls = {
        "compute": ("compute", "--q", "qkv.npz", "--quiet"),
        "explain": ("explain", sentence, "--heads", "2", "--quiet"),
        "posenc": ("posenc", "--len", "200", "--dim", "32", "--dots", "--quiet"),
        "similarity": ("similarity", *words, "--quiet"),
        "examples": ("examples", "004-first-example", "--stage", "weights", "--quiet"),
    }
    sources = {"compute": "qkv.npz"}
    found = [
        Kind(f"{name} {form}", call, f"out.{form}", source=sources.get(name, ""))
        for name, call in calls.items()
        for form in everything
    ]
    verify = ("examples", "--verify", "--quiet")
    found += [Kind(f"examples --verify {form}", verify, f"out.{form}") for form in ("json", "md")]
    check = ("check", "--q", "few.npz", "--observed", "[[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]")
    found += [
        Kind(f"check {form}", check, f"out.{form}", source="few.npz", code=1)
        for form in ("txt", "json")
    ]
    # With one query, a causal mask left out looks like one that is aligned bottom-right.
    same: tuple[str, ...] = (
        "check",
        "--q",
        "[[1, 0]]",
        "--k",
        "few.npz::k",
        "--v",
        "few.npz::v",
        "--causal",
    )
    same += ("--observed", "[[0.8022, 0.5989]]", "--decimals", "4", "--quiet")
    found.append(Kind("check --suggest", same, "out.npz", "--suggest", "few.npz", code=1))
    return found


@dataclass(frozen=True)
class Tried:
    """One fault: what is wrong with how the call met it, or nothing."""

    fault: str
    kind: str
    problem: str


class Bench:
    """Where the faults are tried: the inputs, and what each call writes when nothing happens."""

    def __init__(self, folder: Path, moments: int) -> None:
        self.inputs, self.moments = folder / "inputs", moments
        self.inputs.mkdir()
        self.kinds = kinds(self.inputs)
        self.work = folder / "work"

    def fresh(self) -> Path:
        """An empty folder with the inputs."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.inputs, self.work)
        return self.work

    def run(self, call: Sequence[str], **options: object) -> subprocess.CompletedProcess[bytes]:
        known: dict[str, object] = {"stdin": subprocess.DEVNULL, "capture_output": True}
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            call, cwd=self.work, check=False, timeout=PATIENCE, **(known | options)
        )

    def shell(self, kind: Kind, line: str) -> subprocess.CompletedProcess[bytes]:
        """A line of bash in which "$@" is the call without its output."""
        return self.run(["bash", "-o", "pipefail", "-c", line, "-", ATTNCLI, *kind.arguments])

    def whole(self, kind: Kind) -> tuple[bytes, float]:
        """What the file should hold, and the seconds that a warm call takes."""
        for _ in range(2):
            self.fresh()
            start = time.monotonic()
            done = self.run(kind.writing(kind.output))
            seconds = time.monotonic() - start
        if done.returncode != kind.code or done.stderr:
            sys.exit(f"{kind.name} fails on its own: {done.returncode} {done.stderr!r}")
        return (self.work / kind.output).read_bytes(), seconds

    def left(self) -> list[str]:
        """The temporary files that are left."""
        return [name.name for name in self.work.iterdir() if ".attncli" in name.name]


def said(stderr: bytes, code: int) -> str:
    """What is wrong with standard error: one line for 2, nothing or a word for the others."""
    text = stderr.decode(errors="replace")
    if "Traceback" in text and "attncli/" not in text:
        return ""  # Python was interrupted before the first line of attncli
    lines = text.splitlines()
    if code == 2 and stderr and (len(lines) != 1 or not text.startswith("attncli: ")):
        return f"says {text[:300]!r}"
    if "Traceback" in text or "Exception ignored" in text or "fault of attncli" in text:
        return f"says {text[-600:]!r}"
    return ""


def ended(bench: Bench, kind: Kind, whole: bytes, name: str, after: float, twice: bool) -> str:
    """A signal so many seconds after the start; half of the files exist already."""
    folder = bench.fresh()
    target = folder / kind.output
    before = OLD if int(after * 1e5) % 2 else None
    if before is not None:
        target.write_bytes(before)
    number = SIGNALS[name]
    with subprocess.Popen(
        kind.writing(kind.output, force=before is not None),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        time.sleep(after)
        process.send_signal(number)
        if twice:  # as coreutils' timeout does
            time.sleep(0.001)
            process.send_signal(number)
        _, stderr = process.communicate(timeout=PATIENCE)
    code = process.returncode
    found = target.read_bytes() if target.exists() else None
    allowed = {-number, 128 + number, kind.code}
    if number == signal.SIGINT and b"attncli/" not in stderr:
        allowed |= {1} if b"Traceback" in stderr else set()  # Python's own start
    if code not in allowed:
        return f"exit code {code}: {stderr[-600:]!r}"
    if found not in (before, whole) or (code == kind.code and found != whole and code != 1):
        return f"exit code {code}, and the file holds {len(found or b'')} of {len(whole)} bytes"
    if len(bench.left()) > (number == signal.SIGKILL):
        return f"left {bench.left()}"
    return said(stderr, code)


def signals(bench: Bench, kind: Kind, only: str) -> Iterator[Tried]:
    """Every signal at moments from 1 ms to the end of the call, closer together at its end."""
    whole, seconds = bench.whole(kind)
    for name in SIGNALS:
        for twice in (False, True) if name != "SIGKILL" else (False,):
            fault = f"{name} twice" if twice else name
            if only not in fault:
                continue
            for share in np.linspace(0, 1, bench.moments if not twice else bench.moments // 3):
                after = EARLIEST + float(share) * seconds * 1.05
                problem = ended(bench, kind, whole, name, after, twice)
                yield Tried(fault, kind.name, problem and f"after {after * 1e3:.0f} ms: {problem}")


def expect(done: subprocess.CompletedProcess[bytes], code: int, says: str = "") -> str:
    """What differs from an exit code, and a part of standard error (none where it is empty)."""
    stderr = done.stderr.decode(errors="replace")
    if done.returncode != code:
        return f"exit code {done.returncode}, not {code}: {stderr[-300:]!r}"
    if says not in stderr or (not says and stderr):
        return f"says {stderr[-300:]!r}"
    return said(done.stderr, code)


STREAMS = {
    # name → (a line of bash, its exit code (None: that of the call), what standard error says)
    "standard input closed": ('"$@" <&-', None, ""),
    "standard output closed": ('"$@" >&-', 2, "Bad file descriptor"),
    "standard error closed": ('"$@" 2>&-', None, ""),
    "all three closed": ('"$@" <&- >&- 2>&-', 2, ""),
    "| true": ('"$@" | true', 0, ""),
    "| head -1": ('"$@" | head -1', 0, ""),
    "2>&1 | true": ('"$@" 2>&1 | true', 0, ""),
    "standard output is a full disk": ('"$@" > /dev/full', 2, "No space left"),
    "standard error is a full disk, notes": ('"${@/--quiet/--debug}" 2> /dev/full', None, ""),
    "the reader of notes goes away": ('"${@/--quiet/--debug}" 2> >(true)', None, ""),
}


def streams(bench: Bench, kind: Kind) -> Iterator[Tried]:
    """The result goes to standard output, and that is closed, full, or its reader goes away."""
    if kind.flag != "--output":
        return
    form = {"md": "markdown", "mmd": "mermaid", "txt": "table"}.get(
        kind.output[4:], kind.output[4:]
    )
    if kind.name.startswith("check"):
        form = "text" if form == "table" else form
    call = Kind(kind.name, (*kind.arguments, "--format", form), kind.output)
    for fault, (line, expected, says) in STREAMS.items():
        bench.fresh()
        done = bench.shell(call, line)
        code = kind.code if expected is None else expected
        if code == 0 and fault in ("| true", "| head -1", "2>&1 | true"):
            # a small result is written before its reader is gone, so check says it differs
            done.returncode = 0 if done.returncode == kind.code else done.returncode
        yield Tried(fault, kind.name, expect(done, code, says))


def limited() -> None:
    """No file may be longer than this: a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))


def unchanged(bench: Bench, kind: Kind, before: bytes | None) -> str:
    target = bench.work / kind.output
    found = target.read_bytes() if target.exists() else None
    if found != before:
        return "the file is not what it was"
    return f"left {bench.left()}" if bench.left() else ""


def disks(bench: Bench, kind: Kind) -> Iterator[Tried]:
    """A disk that is full, a folder or file that cannot be written."""
    for before in (None, OLD):
        folder = bench.fresh()
        if before is not None:
            (folder / kind.output).write_bytes(before)
        call = kind.writing(kind.output, force=before is not None)
        done = bench.run(call, preexec_fn=limited)
        problem = expect(done, 2, "File too large") or unchanged(bench, kind, before)
        yield Tried("a full disk (a limit of 16 bytes)", kind.name, problem)
        folder.chmod(0o555)
        done = bench.run([*UNPRIVILEGED, *call])
        folder.chmod(0o755)
        problem = expect(done, 2, "Permission denied") or unchanged(bench, kind, before)
        yield Tried("a folder that is read-only", kind.name, problem)
    bench.fresh()
    done = bench.run(kind.writing(f"no/{kind.output}"))
    yield Tried("a folder that is missing", kind.name, expect(done, 2, "make the folder no first"))
    (bench.work / kind.output).mkdir()
    done = bench.run(kind.writing(kind.output))
    yield Tried("the output is a folder", kind.name, expect(done, 2, "is a directory"))
    os.mkfifo(bench.work / f"pipe-{kind.output}")
    line = f'timeout 60 head -c 1 pipe-{kind.output} > /dev/null & "$@"; code=$?; wait; exit $code'
    done = bench.run(["bash", "-c", line, "-", *kind.writing(f"pipe-{kind.output}")])
    if done.returncode == kind.code:  # all was written before the reader was gone
        done.returncode = 0
    yield Tried("the output is a pipe whose reader goes away", kind.name, expect(done, 0))


def small_disk(bench: Bench, kind: Kind) -> Iterator[Tried]:
    """A disk of 64 kB that holds an old file and has no room left (root on Linux)."""
    disk = bench.fresh() / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(disk)],
        check=False,
        capture_output=True,
    ).returncode:
        return
    try:
        target = disk / kind.output
        target.write_bytes(OLD)
        (disk / "filler").write_bytes(b"x" * 8192)
        done = bench.run(kind.writing(f"disk/{kind.output}", force=True))
        if done.returncode == kind.code:  # 4 kB were enough
            problem = ""
        else:
            problem = expect(done, 2, "No space left")
            problem = problem or ("" if target.read_bytes() == OLD else "the old file is lost")
        left = sorted(path.name for path in disk.iterdir())
        if left != sorted(["filler", kind.output]):
            problem = f"left {left}"
        yield Tried("a full disk (a small tmpfs)", kind.name, problem)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def same_file(bench: Bench, kind: Kind, whole: bytes) -> Iterator[Tried]:
    """The output is the input: by its name, through a symbolic link, through a hard link."""
    if not kind.source:
        return
    for name in ("its name", "a symbolic link", "a hard link"):
        for force in (False, True):
            folder = bench.fresh()
            source, target = folder / kind.source, folder / kind.source
            before = source.read_bytes()
            if name != "its name":
                target = folder / f"same-{kind.output}"
                if name == "a symbolic link":
                    target.symlink_to(source.name)
                else:
                    os.link(source, target)
            call = kind.writing(target.name, force=force)
            if kind.flag == "--output":
                form = {"md": "markdown", "mmd": "mermaid", "txt": "table"}
                form["txt"] = "text" if kind.name.startswith("check") else "table"
                call += ["--format", form.get(kind.output[4:], kind.output[4:])]
            done = bench.run(call)
            if force:
                problem = expect(done, kind.code)
                problem = problem or ("" if target.read_bytes() == whole else "not the result")
                if name == "a symbolic link" and not target.is_symlink():
                    problem = "the link is gone"
            else:
                problem = expect(done, 2, "exists already")
                problem = problem or ("" if source.read_bytes() == before else "it was replaced")
            problem = problem or (f"left {bench.left()}" if bench.left() else "")
            forced = "with --force" if force else "without --force"
            yield Tried(f"output = input by {name}, {forced}", kind.name, problem)


def writers(bench: Bench, kind: Kind, whole: bytes) -> Iterator[Tried]:
    """Two calls write one file at once: with --force both succeed, without it one."""
    for force in (False, True):
        folder = bench.fresh()
        both = [
            subprocess.Popen(
                kind.writing(kind.output, force=force),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for _ in range(2)
        ]
        stderr = [process.communicate(timeout=PATIENCE)[1] for process in both]
        codes = sorted(process.returncode for process in both)
        problem = ""
        if codes != sorted([kind.code, kind.code if force else 2]):
            problem = f"exit codes {codes}: {stderr!r}"
        elif (folder / kind.output).read_bytes() != whole:
            problem = "the file is not whole"
        elif bench.left():
            problem = f"left {bench.left()}"
        yield Tried(f"two writers, {'with' if force else 'without'} --force", kind.name, problem)


def faults(bench: Bench, kind: Kind, only: str) -> Iterator[Tried]:
    """Every fault of one kind of call."""
    whole, _ = bench.whole(kind)
    groups: list[Callable[[], Iterator[Tried]]] = [
        lambda: streams(bench, kind),
        lambda: disks(bench, kind),
        lambda: small_disk(bench, kind),
        lambda: same_file(bench, kind, whole),
        lambda: writers(bench, kind, whole),
    ]
    if only not in {*SIGNALS, "SIG"}:
        for group in groups:
            yield from (one for one in group() if only in one.fault)
    yield from signals(bench, kind, only)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moments", type=int, default=60, help="at which each signal is sent")
    parser.add_argument("--only", default="", help="faults whose name holds this text")
    parser.add_argument("--kinds", default="", help="kinds of calls whose name begins with this")
    arguments = parser.parse_args()
    # Ignored interrupts, as in the background, would be passed on to every call.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    tried: Counter[str] = Counter()
    failed: list[Tried] = []
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        bench = Bench(Path(folder), arguments.moments)
        for kind in bench.kinds:
            if not kind.name.startswith(arguments.kinds):
                continue
            for one in faults(bench, kind, arguments.only):
                tried[one.fault] += 1
                if one.problem:
                    failed.append(one)
                    print(f"FAILED  {one.kind}: {one.fault}: {one.problem}", flush=True)
    wrong = Counter(one.fault for one in failed)
    print(f"{'fault':<52}{'tried':>7}{'passed':>8}")
    for fault, count in tried.items():
        print(f"{fault:<52}{count:>7}{count - wrong[fault]:>8}")
    print(f"{'all':<52}{tried.total():>7}{tried.total() - len(failed):>8}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
