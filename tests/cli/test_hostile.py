"""Text from each place that has any, in every form: no terminal obeys it, no line of it is lost."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from attncli.views.formats import FORMATS

from .conftest import SAMPLES, Call

BAD = "\x1b[31mA\x1b]8;;http://x\x07L\x9b2J\u202eb\u200bc\ufeff\u00ad<b>*x*</b>|`y`\r\n=1"
WORD = "\x1b[31m\x9b\u202eb\u200b\u00ad"  # without what separates tokens and members
FILE = f"f{WORD}|.json"
TEXTS = [name for name, form in FORMATS.items() if not form.binary]
PAGES = ["table", "markdown"]


def poisoned(found: Any, names: set[str], inside: bool = False) -> Any:
    """A document whose texts under these names all end in what is hostile."""
    if isinstance(found, Mapping):
        return {key: poisoned(item, names, inside or key in names) for key, item in found.items()}
    if isinstance(found, list):
        return [poisoned(item, names, inside) for item in found]
    return f"{found}{BAD}" if inside and isinstance(found, str) else found


@pytest.fixture
def hostile(call: Call, tmp_path: Path) -> Call:
    """A folder with files of every kind that holds text, and the way to call attncli there."""

    def write(name: str, document: object) -> None:
        (tmp_path / name).write_text(json.dumps(document))

    q = [[1, 0], [0, 1]]
    write("tokens.json", {"q": q, "tokens": [BAD, "b"], BAD: [[1]]})
    write(FILE, {"q": [["NaN", 1], [0, 1]]})
    write("vectors.json", {WORD: [1, 2], "b": [2, 1], "c": [0, 1]})
    write("weights.json", {"w_q": q, "w_k": q, "w_v": q})
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["", BAD, "d"], [BAD, 1, 0], ["x", 0, 1]])
    trace = call("compute", "--q", "tokens.json", "--quiet", "--format", "json", "--causal").json
    write("trace.json", poisoned(trace, {"title", "symbol", "formula", "note", "notes", "labels"}))
    examples = json.loads((SAMPLES / "my-examples.json").read_text())
    write("ex.json", poisoned(examples, {"title", "author", "date", "why", "note", "id"}))
    return call


CALLS: list[tuple[list[str], list[str]]] = [
    (["compute", "--q", "tokens.json"], TEXTS),
    (["compute", "--q", "tokens.json", "--work"], PAGES),
    (["compute", "--q", "tokens.json", "--cell", "1,2"], PAGES),
    (["compute", "--q", "tokens.json", "--heatmap"], PAGES),
    (["compute", "--q", "t.csv"], TEXTS),
    (["compute", "--q", "trace.json"], TEXTS),
    (["posenc", "--add", "trace.json::q"], TEXTS),
    (["compute", "--q", FILE], TEXTS),
    (["explain", BAD], TEXTS),
    (["explain", BAD, "--outline"], PAGES),
    (["explain", "the bank", "--target", BAD, "--block", "decoder"], TEXTS),
    (["explain", "--tokens", json.dumps([BAD, "b"])], TEXTS),
    (["explain", "--tokens", json.dumps([WORD, "b"]), "--glove", "vectors.json"], TEXTS),
    (["explain", f"b {WORD}", "--dim", "2", "--weights", "weights.json"], TEXTS),
    (["similarity", f"{WORD}=1,2", "b=2,1"], TEXTS),
    (["similarity", f"{WORD}=1,2", "b=2,1", "c=1,1", "--pca"], TEXTS),
    (["similarity", WORD, "b", "--vectors", "vectors.json", "--nearest", "2"], TEXTS),
    (["examples", "--file", "ex.json"], ["table"]),
    (["examples", "--file", "ex.json", "--verify"], ["table", "markdown", "json"]),
    (["examples", "exercise-1", "--file", "ex.json"], ["table", "markdown", "json"]),
    (["examples", "exercise-1", "--file", "ex.json", "--stage", "weights"], TEXTS),
    (["check", "--q", "tokens.json", "--observed", "[[1, 2], [3, 4]]"], ["text", "json"]),
    (["check", "--q", "trace.json", "--observed", "[[1, 2], [3, 4]]"], ["text", "json"]),
]


@pytest.mark.parametrize(
    "number", range(len(CALLS)), ids=[f"{c[0][0]} {n}" for n, c in enumerate(CALLS)]
)
def test_no_text_acts_on_a_terminal_wherever_it_comes_from(hostile: Call, number: int) -> None:
    arguments, forms = CALLS[number]
    for form in forms:
        result = hostile(*arguments, "--format", form)
        assert result.code in (0, 1), result.err
        plain = result.out.replace("\n", "").replace("\t", "" if form == "tsv" else "\t")
        assert plain.isprintable(), form
        assert result.err.replace("\n", "").isprintable(), form


def test_a_trace_read_again_has_its_texts(hostile: Call, tmp_path: Path) -> None:
    before = json.loads((tmp_path / "trace.json").read_text())
    again = hostile("compute", "--q", "trace.json", "--format", "json", "--quiet").json
    labels = next(step["labels"] for step in before["steps"] if step["name"] == "weights")
    assert next(s["labels"] for s in again["steps"] if s["name"] == "weights") == labels
    table = hostile("compute", "--q", "trace.json", "--stage", "q", "--format", "csv").out
    (tmp_path / "again.csv").write_text(table)
    read = hostile("compute", "--q", "again.csv", "--format", "json", "--quiet").json
    assert read["steps"][0]["labels"]["query"] == labels["query"]
