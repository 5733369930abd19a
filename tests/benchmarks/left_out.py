"""How many bugs are explained all the same where their row is taken out of the catalogue.

    python tests/benchmarks/left_out.py [PART/PARTS] [--named]

For every row: the input and the wrong numbers of its own page (check --bug ID), checked with a
catalogue that lacks the row. An answer of the numbers, an edit, or another row (a library's
convention, less exact arithmetic) explains them or not. --named lists which explains what.
"""

import contextlib
import io
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attncli.cli.main import run
from attncli.commands.check import search
from attncli.commands.check.bugs.bug import Bug
from attncli.commands.check.bugs.catalogue import CATALOGUE


def printed(arguments: list[str]) -> str:
    """What a call prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        run(arguments)
    return out.getvalue()


def verdict_without(bug: Bug, folder: Path) -> dict[str, Any] | None:
    """The verdict on the example of a bug without its row; None where it has no example."""
    page = printed(["check", "--bug", bug.id])
    line = next((x for x in page.splitlines() if "check bug.json::check" in x), None)
    if line is None:
        return None
    file = folder / f"{bug.id}.json"
    file.write_text(printed(["check", "--bug", bug.id, "--format", "json"]), encoding="utf-8")
    options = line.split("::check")[1].split()
    others = tuple(row for row in CATALOGUE if row is not bug)
    with patch.object(search, "CATALOGUE", others):
        text = printed(["check", f"{file}::check", *options, "--format", "json", "--no-by-hand"])
    return dict(json.loads(text)) if text else None


def answer(verdict: dict[str, Any] | None) -> tuple[str, str]:
    """By what the numbers are explained, and in which words."""
    if verdict is None:
        return "no example", ""
    if causes := verdict["explanations"]:
        is_listed = all(bug["id"] for cause in causes for bug in cause["bugs"])
        return "another row" if is_listed else "an answer", causes[0]["name"]
    if verdict["meanings"]:
        return "a convention", verdict["meanings"][0]["flag"]
    if verdict["edit"]:
        return "an edit", verdict["edit"]["edited"]
    return verdict["status"], ""


def main() -> None:
    part, parts = (int(x) for x in next((x for x in sys.argv[1:] if "/" in x), "1/1").split("/"))
    counts, start = Counter[str](), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for bug in CATALOGUE[part - 1 :: parts]:
            kind, words = answer(verdict_without(bug, Path(folder)))
            counts[kind] += 1
            if "--named" in sys.argv:
                print(f"{kind:12} {bug.name}: {words}", flush=True)
    print(dict(counts), f"{time.process_time() - start:.0f} s of processor time")


if __name__ == "__main__":
    main()
