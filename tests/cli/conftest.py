"""Calling the command line in-process, the way a shell would."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attncli.cli.main import run

ROOT = Path(__file__).parents[2]
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


def stages(document: Any) -> dict[str, Any]:
    """The stages of a trace's JSON by their names, as arrays."""

    def number(x: Any) -> Any:
        return [number(y) for y in x] if isinstance(x, list) else float(x)

    steps = (step for step in document["steps"] if "value" in step)
    return {step["name"]: np.array(number(step["value"])) for step in steps}
