"""The marks of several sheets, a row for each: a table for the screen, csv for a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attncli.commands.check.by_hand.marking import Marking
from attncli.errors import AttncliError
from attncli.files.messages import count
from attncli.files.table import guarded
from attncli.page.text import clean

MOST_COLUMNS = 10_000
"""Of the table in a pipe or a file, where no line is wrapped."""
UNUSABLE = "cannot be used"
FINDINGS = "first mistake", "likely cause", "also affected"


class Row(NamedTuple):
    """A sheet, who filled it in, and its marking, or why it has none."""

    sheet: str
    name: str
    result: Marking | AttncliError

    @property
    def findings(self) -> tuple[str, str, str]:
        """The first mistake, its cause, and the stages that only follow from mistakes."""
        if isinstance(self.result, AttncliError):
            return UNUSABLE, str(self.result), ""
        if not self.result.mistakes:
            return "" if self.result.numbers else "nothing is filled in", "", ""
        first = self.result.mistakes[0]
        return first.start, first.slip, ", ".join(self.result.follows)

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON has it."""
        if isinstance(self.result, AttncliError):
            return {"name": self.name, "error": str(self.result)}
        return {"name": self.name, **self.result.to_dict()}


def table(rows: Sequence[Row], width: int | None) -> str:
    """As a screen has it: the sheet, how many numbers are right, and what was found."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("sheet", "right", *FINDINGS):
        grid.add_column(heading, overflow="fold", no_wrap=heading == "right")
    for row in rows:
        mistake, cause, follows = row.findings
        right = ""
        if isinstance(row.result, Marking):
            right = f"{row.result.n_right}/{row.result.n_cells}"
            if more := len(row.result.mistakes) - 1:
                follows = "; ".join(filter(None, (follows, _more(more))))
            blank = f", {count(row.result.blank, 'cell')} left blank" * bool(row.result.blank)
            mistake = mistake or f"all right{blank}"
        grid.add_row(*map(clean, (Path(row.sheet).name, right, mistake, cause, follows)))
    console = Console(
        file=io.StringIO(),
        width=width or MOST_COLUMNS,
        markup=False,
        highlight=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(grid)
    return "\n".join(map(str.rstrip, captured.get().splitlines()))


def _more(n: int) -> str:
    return count(n, "more mistake") if n > 0 else ""


def csv_text(rows: Sequence[Row], delimiter: str = ",") -> Iterator[str]:
    """As a spreadsheet has it: the same, and the right numbers of each stage."""
    markings = [row.result for row in rows if isinstance(row.result, Marking)]
    stages = list(dict.fromkeys(stage for x in markings for stage in x.points))
    headings = ["sheet", "name", "right", "of", "blank", "mistakes", *FINDINGS]
    written = io.StringIO()
    writer = csv.writer(written, delimiter=delimiter, lineterminator="\n")
    writer.writerow([*headings, *(x for stage in stages for x in (stage, f"{stage} of"))])
    for row in rows:
        numbers: list[Any] = [""] * 4
        points: Mapping[str, tuple[int, int]] = {}
        if isinstance(row.result, Marking):
            marking = row.result
            numbers = [marking.n_right, marking.n_cells, marking.blank, len(marking.mistakes)]
            points = row.result.points
        texts = map(guarded, map(clean, (Path(row.sheet).name, row.name)))
        of_stages = (x for stage in stages for x in points.get(stage, ("", "")))
        writer.writerow([*texts, *numbers, *map(guarded, map(clean, row.findings)), *of_stages])
    yield written.getvalue()
