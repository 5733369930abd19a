"""Runs a case in this process and says how it ended."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from attncli.cli.main import run

from .case import Case
from .expected import misread
from .reading import NoOpinionError

SLOW = 5.0
"""Seconds; small files take a hundredth of that."""
HANGS = 30
"""Seconds after which a case is ended."""
LARGE = 1 << 30
"""Bytes beyond those of the process; the default of --max-size."""

SIZES = (
    "attncli.files.table.LARGE",
    "attncli.files.npy.MAP_FROM",
    "attncli.cli.compute._WORTH_STREAMING",
)
"""From which size on inputs are treated otherwise; 0 where a case is to be treated so."""


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
    before, start = _memory(fresh=True), time.perf_counter()
    try:
        code, out, err, warned = called(case)
    except HangError:
        return Outcome("slow", f"more than {HANGS} s")
    except BaseException as problem:
        return Outcome("escaped", f"{type(problem).__name__}: {problem}")
    took, peak = time.perf_counter() - start, _memory() - before
    if escape := _escape(case, code, out, err) or warned:
        return Outcome("escaped", escape)
    if took > SLOW:
        return Outcome("slow", f"{took:.1f} s")
    if peak > LARGE:
        return Outcome("large", f"{peak >> 20} MB")
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
    """Exit code, output, errors, and warnings of Python that would be printed."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in "oe"]
    given = io.TextIOWrapper(io.BytesIO(case.stdin))
    with ExitStack() as stack:
        stack.enter_context(_folder(case))
        found = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.enter_context(mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}))
        for name in SIZES if case.large else ():
            stack.enter_context(mock.patch(name, 0))
        for name, stream in (("stdin", given), ("stdout", streams[0]), ("stderr", streams[1])):
            stack.enter_context(mock.patch.object(sys, name, stream))
        stack.enter_context(_ended_after(HANGS))
        code = run(case.arguments)
    texts = []
    for stream in streams:
        stream.flush()
        raw: Any = stream.buffer
        texts.append(raw.getvalue().decode("utf-8", "replace"))
    return code, texts[0], texts[1], f"warned: {found[0].message}" if found else ""


@contextmanager
def _folder(case: Case) -> Iterator[None]:
    """A new folder that holds the files of the case, as the current one."""
    before, folder = os.getcwd(), tempfile.mkdtemp(prefix="attncli-fuzz-")
    try:
        os.chdir(folder)
        for name, data in case.files.items():
            with open(name, "wb") as file:
                file.write(data)
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _ended_after(seconds: int) -> Iterator[None]:
    def end(*_: object) -> None:
        raise HangError

    if not hasattr(signal, "setitimer"):  # Windows
        yield
        return
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
    if "a fault of attncli itself" in err:
        return err.strip()[-300:]
    lines = err.splitlines()
    if "--debug" in case.given and code == 2:
        lines = lines[-1:]
    elif "Traceback" in err:
        return "a traceback"
    if any(not line.isprintable() for line in lines):
        return f"unprintable characters: {err!a:.300}"
    if code == 2:
        if out:
            return f"an error after output: {out[:100]!r}"
        errors = [line for line in lines if not line.startswith("attncli: note: ")]
        if len(errors) != 1 or not re.match(r"attncli: \S", errors[0]):
            return f"not one line of error: {err!a:.300}"
    return ""


def _memory(*, fresh: bool = False) -> int:
    """The most bytes that this process had since the last fresh start; 0 but on Linux."""
    with suppress(OSError):
        if fresh:
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        with open("/proc/self/status") as status:
            found = re.search(r"VmHWM:\s+(\d+)", status.read())
            return int(found[1]) << 10 if found else 0
    return 0
