"""Runs a case in this process and says how it ended."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from attncli.cli.main import run

from .cases import Case
from .expected import misread
from .reading import NoOpinionError

SLOW, HANGS = 5.0, 30
"""Seconds of the processor; small files take a hundredth. Seconds after which a case is ended."""
LARGE = 1 << 20
"""Kilobytes beyond those of the process; the default of --max-size."""
SIZES = ("attncli.files.table.LARGE", "attncli.files.npy.MAP_FROM")
"""From which size on files are read otherwise; 0 where a case is to be read so."""


class Outcome(NamedTuple):
    """How a case ended: `what` in a word, `why` for a person, and whether a second reading held."""

    what: str
    why: str = ""
    is_held: bool = False

    @property
    def is_defect(self) -> bool:
        return self.what not in ("refused", "accepted")


class HangError(BaseException):
    """The call did not end."""


def outcome(case: Case) -> Outcome:
    """Runs a case and judges it."""
    before, start = _peak(), time.process_time()
    try:
        code, out, err, warned = called(case)
    except BaseException as problem:
        return Outcome("escaped", f"{type(problem).__name__}: {problem}")
    took = time.process_time() - start
    if escape := _escape(case, code, out, err) or warned:
        return Outcome("escaped", escape)
    if took > SLOW:
        return Outcome("slow", f"{took:.1f} s")
    if _peak() - before > LARGE:
        return Outcome("large", f"{_peak() - before} kB")
    if code == 2 or not out:
        return Outcome("refused", err.strip())
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            wrong = misread(case, out)
        except NoOpinionError as reason:
            return Outcome("accepted", str(reason))
    return Outcome("misread", wrong) if wrong else Outcome("accepted", is_held=True)


def called(case: Case) -> tuple[int, str, str, str]:
    """Exit code, output, errors, and a warning of Python that would be printed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in "oe")
    streams: dict[str, Any] = {
        "stdin": io.TextIOWrapper(io.BytesIO(case.stdin)),
        "stdout": out,
        "stderr": err,
    }
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="attncli-fuzz-"))
        stack.enter_context(contextlib.chdir(folder))
        for name, data in case.files.items():
            with open(name, "wb") as file:
                file.write(data)
        warned = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.enter_context(mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}))
        for name in SIZES if case.large else ():
            stack.enter_context(mock.patch(name, 0))
        stack.enter_context(mock.patch.multiple(sys, **streams))
        stack.enter_context(_ended_after(HANGS))
        code = run(case.arguments)
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return code, texts[0], texts[1], f"warned: {warned[0].message}" if warned else ""


@contextlib.contextmanager
def _ended_after(seconds: int) -> Iterator[None]:
    def end(*_: object) -> None:
        raise HangError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _escape(case: Case, code: int, out: str, err: str) -> str:
    """What a call must never do; "" where it did nothing of it."""
    may_differ = case.command in ("check", "diff") or {"--verify", "--against"} & case.given.keys()
    if code not in ((0, 1, 2) if may_differ else (0, 2)):
        return f"exit code {code}"
    lines = err.splitlines()
    if "--debug" in case.given and code == 2:
        lines = lines[-1:]
    elif "Traceback" in err or "a fault of attncli itself" in err:
        return err.strip()[-300:]
    if any(not line.isprintable() for line in lines):
        return f"unprintable characters: {err!a:.300}"
    errors = [line for line in lines if not line.startswith("attncli: note: ")]
    if code == 2 and (out or len(errors) != 1 or not re.match(r"attncli: \S", errors[0])):
        return f"not one line of error alone: {out[:100]!a} {err!a:.300}"
    return ""


def _peak() -> int:
    """The most kilobytes that this process had, 0 where that is not known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
