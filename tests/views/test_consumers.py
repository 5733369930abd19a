"""Every form with hostile labels, read back by what reads such files: nothing acts, nothing is lost.

Spreadsheets and mermaid itself are asked in tests/benchmarks/consumers.py.
"""

from __future__ import annotations

import csv
import io
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyte
import pytest
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console

from attncli.files.load import load
from attncli.files.table import unguarded
from attncli.trace import Stage, Trace
from attncli.views.formats import csv as csv_form
from attncli.views.formats import json as json_form
from attncli.views.formats import markdown, npy, npz
from attncli.views.formats.table import Screen, blocks
from attncli.views.select import DisplayOptions
from attncli.views.text import sentence, shorten

from .hostile import LABELS
from .traces import matrix

WHOLE = DisplayOptions(full=True)
ALL = tuple(LABELS.values())
EACH = pytest.mark.parametrize("label", ALL, ids=list(LABELS))


def of(label: str) -> Trace:
    """A matrix with this label in the middle of its rows and columns."""
    names = ["first", label, "last"]
    return matrix([[1, 2, 3], [4, 5, 6], [7, 8, 9]], labels={"query": names, "key": names})


def all_of_them(labels: tuple[str, ...] = ALL) -> Trace:
    n = len(labels)
    return matrix(np.arange(n * n).reshape(n, n), labels={"query": labels, "key": labels})


# ---- a terminal


def printed(trace: Trace) -> str:
    """What a terminal with colours is sent."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=200)
    for block in blocks(trace, WHOLE, screen=Screen(200, 60, colour=True)):
        console.print(block, soft_wrap=True)
    return out.getvalue().replace("\n", "\r\n")


def events_of(text: str) -> list[tuple[str, list[Any]]]:
    """What a terminal does with it, but for the characters it draws."""
    log = io.StringIO()
    screen: Any = pyte.DebugScreen(to=log)
    pyte.Stream(screen).feed(text)
    events = (json.loads(line) for line in log.getvalue().splitlines())
    return [(name, args) for name, args, _ in events if name != "draw"]


@EACH
def test_a_terminal_does_no_more_than_for_a_plain_label(label: str) -> None:
    as_wide = "x" * cell_len(shorten(label))
    assert events_of(printed(of(label))) == events_of(printed(of(as_wide)))


@EACH
def test_a_terminal_shows_the_label_where_it_belongs(label: str) -> None:
    screen = pyte.Screen(200, 60)
    pyte.Stream(screen).feed(printed(of(label)))
    lines = [line.rstrip() for line in screen.display]
    shown = shorten(label)
    header = next(line for line in lines if "first" in line and "last" in line)
    assert header.split("first")[1].rsplit("last", 1)[0].strip(" ") == shown.strip(" ")
    row = next(line for line in lines if re.search(r"4 +5 +6$", line))
    assert re.sub(r" +4 +5 +6$", "", row) == f"  {shown}"


# ---- a page


def page_of(trace: Trace) -> list[Any]:
    """The tokens of the Markdown, as GitHub's tables, strikethrough and HTML have it."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens: list[Any] = parser.parse("".join(markdown.text(trace, WHOLE)))
    return tokens


def cells_of(trace: Trace) -> list[list[list[Any]]]:
    """The rows of its tables: what the inline parser makes of each cell."""
    rows: list[list[list[Any]]] = []
    tokens = page_of(trace)
    for before, token in pairwise(tokens):
        if before.type == "tr_open":
            rows.append([])
        if before.type in ("th_open", "td_open"):
            rows[-1].append(token.children)
    return rows


@EACH
def test_a_page_shows_the_label_and_nothing_else(label: str) -> None:
    header, _, row, _ = cells_of(of(label))
    shown = shorten(label)
    assert len(header) == len(row) == 4
    for cell, is_bold in ((header[2], False), (row[0], True)):
        types = [token.type for token in cell if token.content or not token.type.startswith("text")]
        bold = ["strong_open", "strong_close"] if is_bold else []
        assert [name for name in types if name not in ("text", "text_special")] == bold
        assert "".join(token.content for token in cell) == shown
    assert not {"html_block", "code_block", "fence"} & {token.type for token in page_of(of(label))}


def test_no_address_in_a_page_is_a_link() -> None:
    # GitHub makes a link of a bare address, which no option of this parser does without a package.
    text = "".join(markdown.text(all_of_them(), WHOLE))
    assert not re.search(r"https?://|www\.|\w@\w", text)


# ---- numbers for programs


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_delimited_text_gives_every_label_back(delimiter: str) -> None:
    text = "".join(csv_form.text(all_of_them(), WHOLE, delimiter=delimiter))
    assert text.replace("\n", "").replace("\t", "").isprintable()
    header, *rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    assert tuple(map(unguarded, header[1:])) == ALL
    assert tuple(unguarded(row[0]) for row in rows) == ALL
    for cell in (*header, *(row[0] for row in rows)):
        assert not re.match(r" *[=+\-@＝＋－＠\t\r\n]", cell)
        # a spreadsheet may split at any of these, whatever the ending of the file
        assert not re.search(r"[,;\t][ '\"]*[=+\-@＝＋－＠]", cell)


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "npz"])
def test_a_file_read_again_has_every_label(tmp_path: Path, form: str) -> None:
    labels = tuple(label for label in ALL if label != LABELS["surrogate"])  # refused in files
    path, trace = tmp_path / f"x.{form}", all_of_them(labels)
    with path.open("wb") as file:
        if form == "npz":
            npz.write(trace, WHOLE, file)
        else:
            texts = (
                json_form.text(trace, WHOLE)
                if form == "json"
                else csv_form.text(trace, WHOLE, delimiter="," if form == "csv" else "\t")
            )
            file.write("".join(texts).encode())
    loaded = load(str(path))
    if loaded.trace is None:
        assert (loaded.row_labels, loaded.column_labels) == (labels, labels)
    else:
        assert loaded.trace["scaled"].labels == {"query": labels, "key": labels}


def test_json_is_read_by_any_parser_and_shows_no_hidden_character() -> None:
    text = "".join(json_form.text(all_of_them(), WHOLE))
    assert text.replace("\n", "").isprintable()
    assert tuple(json.loads(text)["steps"][0]["labels"]["key"]) == ALL


def test_binary_forms_are_read_without_pickles() -> None:
    file = io.BytesIO()
    npz.write(all_of_them(), WHOLE, file)
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        document = json.loads(str(arrays["__trace__"]))
    assert tuple(document["steps"][0]["labels"]["key"]) == ALL
    one = io.BytesIO()
    npy.write(all_of_them(), WHOLE, one)
    one.seek(0)
    assert np.load(one, allow_pickle=False).shape == (len(ALL), len(ALL))


@EACH
def test_a_page_shows_titles_notes_and_formulas_as_they_are(label: str) -> None:
    stage = Stage("scaled", label, label, np.ones((2, 2)), ("query", "key"), note=label)
    block = Trace(label, (stage,), name="block")
    tokens = page_of(Trace(label, (block,), notes=(label,)))
    inline = [token for token in tokens if token.type == "inline"]
    types = {child.type for token in inline for child in token.children}
    assert types <= {"text", "text_special", "code_inline", "strong_open", "strong_close"}
    blocks = {token.type.removesuffix("_open").removesuffix("_close") for token in tokens}
    assert blocks <= {
        "inline",
        "heading",
        "paragraph",
        *["table", "thead", "tbody", "tr", "th", "td"],
    }
    texts = ["".join(child.content for child in token.children) for token in inline]
    shown = [sentence(label)] if label else []
    assert texts[: len(shown)] == shown
    assert texts.count(sentence(label)) >= 3 * len(shown), texts  # its title, and both notes
