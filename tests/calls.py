"""Calling the command line in-process, the way a shell would."""

import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.cli.main import run

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "samples"

# A test run in the background passes on that interrupts are ignored, so listen again.
LISTEN = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
)
LISTENING = (sys.executable, "-c", f"{LISTEN}from attncli.__main__ import main; main()")


@dataclass(frozen=True)
class Result:
    """What a call left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Call = Callable[..., Result]


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return bytes(stream.buffer.read()).decode("utf-8", "replace")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Runs attncli with these arguments in an empty folder; gives code, output and errors."""
    monkeypatch.chdir(tmp_path)
    for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def calling(*arguments: str | Path, stdin: bytes = b"") -> Result:
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in "oe")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = run([str(argument) for argument in arguments])
        return Result(code, _text(out), _text(err))

    return calling


@pytest.fixture
def three() -> Path:
    return SAMPLES / "three-tokens.json"


# Calls in one process, a fork for each: what is imported before the first is imported once.
FORKING = """
import contextlib, io, json, os, sys, traceback

from attncli.cli.main import run

exec(sys.argv[2])
for call in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    if not os.fork():
        with contextlib.redirect_stdout(io.StringIO()) as out:
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                try:
                    code = exec(call[1]) if call[0] == "-c" else run(call)
                except Exception:
                    code = traceback.print_exc()
        with open(writer, "w") as pipe:
            json.dump([code, out.getvalue(), errors.getvalue()], pipe)
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        print(pipe.read(), flush=True)
    os.wait()
"""


def forked(
    calls: list[list[str]], folder: Path, *path: Path, first: str = "", **environment: str
) -> list[Result]:
    """What each call leaves behind, with packages of this path; ["-c", CODE] is code of Python.

    first  code that runs before the first call, such as imports that all of them share
    """
    settings = {"PYTHONPATH": os.pathsep.join(map(str, path)), "COLUMNS": "200", "NO_COLOR": "1"}
    call = [sys.executable, "-c", FORKING, json.dumps(calls), first]
    done = subprocess.run(
        call,
        cwd=folder,
        env={**os.environ, **settings, **environment},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return [Result(*json.loads(line)) for line in done.stdout.splitlines()]


REPLACED = {
    "LONG-X": "long-x.npz --heads 2 --max-size 100MB",
    "LONG": "long.npz --max-size 100MB",
    "XKV": '"x": EYE, "w_k": EYE, "w_v": EYE',  # all but w_q
    "XW": '"x": EYE, WEIGHTS',
    "WEIGHTS": '"w_q": EYE, "w_k": EYE, "w_v": EYE',
    "QO": '"q": [[1]], "output": [[1]]',
    "EYE": "[[1,0],[0,1]]",
    "OUT": "[[5,5],[6.016681,3.983319],[6.276174,3.723826]]",
    "MASK": "[[true,false,true],[false,false,false],[true,true,true]]",
}


def arguments_of(line: str) -> list[str]:
    """The words of a call, as a shell splits them, with what stands for a document in its place."""
    for name, text in REPLACED.items():
        line = line.replace(name, text)
    return shlex.split(line)


def stages(document: Any) -> dict[str, Any]:
    """The stages of a trace's JSON by their names, as arrays."""

    def number(x: Any) -> Any:
        return [number(y) for y in x] if isinstance(x, list) else float(x)

    steps = (step for step in document["steps"] if "value" in step)
    return {step["name"]: np.array(number(step["value"])) for step in steps}
