"""One trace with hostile labels through every format: nothing in it acts."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from attncli.views.formats import FORMATS
from attncli.views.formats.mermaid import escape
from attncli.views.select import DisplayOptions

from .traces import CAUSAL, attention

HOSTILE = ("=1+1", "\x1b[31m<script>x</script>", '"]; a --> b\n| [x](y) `z` \u202e')
LABELS = {"query": HOSTILE, "key": HOSTILE}


def written(name: str, **options: Any) -> bytes:
    trace = attention(mask=CAUSAL, labels=LABELS, notes=HOSTILE)
    module: Any = import_module(f"attncli.views.formats.{name}")
    if not FORMATS[name].binary:
        text = "".join(module.text(trace, DisplayOptions(**options)))
        return text.encode("utf-8")
    file = io.BytesIO()
    module.write(trace, DisplayOptions(**options), file)
    return file.getvalue()


@pytest.mark.parametrize("name", [name for name, form in FORMATS.items() if not form.binary])
@pytest.mark.parametrize("options", [{}, {"work": True}, {"cell": ("1", "3")}])
def test_no_character_controls_a_terminal(name: str, options: dict[str, Any]) -> None:
    text = written(name, **options).decode()
    assert "\x1b" not in text
    controls = {char for char in text if unicodedata.category(char) in ("Cc", "Cf")}
    assert controls <= {"\n", "\t"}


def test_markdown_has_no_html_link_or_column_from_a_label() -> None:
    text = written("markdown").decode()
    assert "<script" not in text.replace("\\<script", "")
    assert "[x](" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows
    assert {line.replace("\\|", "").count("|") for line in rows} == {4, 5, 6}


def test_a_flowchart_has_nodes_of_ours_alone() -> None:
    lines = [line.strip() for line in written("mermaid").decode().splitlines()]
    assert all(line.split()[0].startswith(("flowchart", "n", "subgraph", "end")) for line in lines)
    assert all(line.count('"') in (0, 2) for line in lines)


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("a\\nb", "a#92;<wbr/>nb"),
        ("$$x$$", "#36;<wbr/>#36;x#36;<wbr/>#36;"),
        ("fa:fa-ban", "fa#58;<wbr/>fa#45;ban"),
        ("C:\\x $1", "C#58;#92;x #36;1"),
    ],
)
def test_a_flowchart_has_no_break_icon_or_mathematics_of_a_label(label: str, written: str) -> None:
    assert escape(label) == written


@pytest.mark.parametrize("name", ["csv", "tsv"])
def test_no_cell_is_a_formula(name: str) -> None:
    delimiter = "," if name == "csv" else "\t"
    for row in csv.reader(io.StringIO(written(name).decode()), delimiter=delimiter):
        assert not any(cell[:1] in ("=", "@", "+") for cell in row)


def test_json_gives_the_labels_back() -> None:
    steps = json.loads(written("json"))["steps"]
    weights = next(step for step in steps if step["name"] == "weights")
    assert tuple(weights["labels"]["query"]) == HOSTILE


def test_binary_formats_read_back_without_pickles() -> None:
    with np.load(io.BytesIO(written("npz")), allow_pickle=False) as file:
        assert file["weights"].shape == (3, 3)
    assert np.load(io.BytesIO(written("npy")), allow_pickle=False).shape == (3, 2)
