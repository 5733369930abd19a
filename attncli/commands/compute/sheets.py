"""compute --seeds: a folder of worksheets, one for each seed, and of their solutions.

sheets/sheet-07.html       the worksheet, in the form of --format
sheets/sheet-07.json       the same to be filled in and marked: check sheets/*.json --by-hand
sheets/keys/key-07.html    its solution
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp

from attncli.cli.options import DisplayFlags
from attncli.cli.output import notes_once
from attncli.cli.parsing import unclear
from attncli.cli.results import Result, TraceResult
from attncli.convention import flag_of
from attncli.errors import OutputError
from attncli.files.messages import safe
from attncli.files.write import check_target
from attncli.recorded import CallOption, RecordedCall

MOST = 1000
KEYS = "keys"
FILLED_IN = ("json", "csv", "tsv")
"""Forms that can be filled in and marked: beside every other there is the first of them."""


def seeds_of(text: str) -> range:
    """The seeds A to B, both included.

    >>> seeds_of("1:30")
    range(1, 31)
    """
    first, _, last = text.partition(":")
    if first.isdecimal() and last.isdecimal() and len(text) < 20:
        seeds = range(int(first), int(last) + 1)
        if 0 < len(seeds) <= MOST:
            return seeds
    raise unclear(
        "--seeds", text, f"A:B, such as 1:30: A from 0, B not below A, at most {MOST} seeds"
    )


@dataclass(frozen=True, kw_only=True)
class SheetsResult(Result):
    """Worksheets and their solutions.

    of_seed  a seed → the result of the same call with this one
    show     how the worksheets are shown; its output is the folder
    call     the call, with --seeds
    """

    seeds: range
    of_seed: Callable[[int], TraceResult]
    show: DisplayFlags
    call: RecordedCall | None = None

    def with_call(self, call: RecordedCall | None) -> SheetsResult:
        """The same, with the call that gave it."""
        return replace(self, call=call)

    def present(self) -> int:
        """Writes all of them, or none; the exit code."""
        folder, names = Path(self.show.output or ""), [*self._files(self.seeds)]
        if not folder.is_dir():
            check_target(str(folder), force=False, hint="name a folder for the worksheets")
        for path in (folder / name for name in names):
            if path.exists() and not self.show.force:
                check_target(str(path), force=False)
        try:
            beside = folder if folder.is_dir() else folder.absolute().parent
            part = Path(mkdtemp(prefix=".attncli-", dir=beside))
        except OSError as problem:
            raise _unwritten(folder, problem) from problem
        try:
            (part / KEYS).mkdir()
            with notes_once():
                for seed in self.seeds:
                    self._write(seed, part)
            (folder / KEYS).mkdir(parents=True, exist_ok=True)
            for name in names:
                os.replace(part / name, folder / name)
        except OSError as problem:
            raise _unwritten(folder, problem) from problem
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return 0

    def _files(self, seeds: Iterable[int]) -> Iterator[str]:
        """The names of the files of these seeds."""
        form = self.show.form
        digits = len(str(self.seeds[-1]))
        for seed in seeds:
            number = f"{seed:0{digits}}"
            yield f"sheet-{number}.{form.endings[0]}"
            if form.name not in FILLED_IN:
                yield f"sheet-{number}.{FILLED_IN[0]}"
            yield f"{KEYS}/key-{number}.{form.endings[0]}"

    def _write(self, seed: int, folder: Path) -> None:
        """Writes the files of a seed."""
        result = self.of_seed(seed)
        if self.call is not None:
            option = CallOption("seed", (flag_of("seed"), str(seed)))
            options = (option if x.name == "seeds" else x for x in self.call.options)
            result = result.with_call(replace(self.call, options=tuple(options)))
        for name in self._files([seed]):
            blank = None if name.startswith(KEYS) else self.show.blank
            show = replace(self.show, output=str(folder / name), format=None, blank=blank)
            replace(result, show=show).present()


def _unwritten(folder: Path, problem: OSError) -> OutputError:
    return OutputError(f"{safe(str(folder))} cannot be written: {problem.strerror or problem}")
