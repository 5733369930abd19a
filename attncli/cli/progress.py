"""A progress bar on standard error, for what takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Report = Callable[[int, int], None]

PATIENCE = 1.0  # seconds before a bar is worth a look


@contextmanager
def progress_bar(what: str, *, quiet: bool) -> Iterator[Report | None]:
    """A function to call with how much is done, of how much; it draws once a second has passed.

    None, and nothing drawn, with --quiet or where standard error is no terminal.
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(what)
    try:
        yield bar.report
    finally:
        bar.close()


class _Bar:
    def __init__(self, what: str) -> None:
        self.what, self.began = what, time.monotonic()
        self.shown: Any = None
        self.task: Any = None

    def report(self, done: int, total: int) -> None:
        if self.shown is None:
            if time.monotonic() - self.began < PATIENCE:
                return
            from rich.console import Console
            from rich.progress import Progress

            self.shown = Progress(console=Console(stderr=True), transient=True)
            self.shown.start()
            self.task = self.shown.add_task(self.what, total=total)
        self.shown.update(self.task, completed=done, total=total)

    def close(self) -> None:
        if self.shown is not None:
            self.shown.stop()
