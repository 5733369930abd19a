"""Every form with hostile labels, read back by what reads it: nothing acts, nothing is lost.

Spreadsheets and mermaid itself are asked in tests/benchmarks/consumers.py, LaTeX in latex.py there,
and what the script of a page does in tests/browser.
"""

import csv
import re
import unicodedata
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from markdown_it import MarkdownIt
from rich.cells import cell_len

import attncli
from attncli.files.table import guarded, unguarded
from attncli.trace import Stage, Trace
from tests.formats.hostile import BODIES, LABELS, LEFT_SIDES
from tests.page.traces import Array, attention, coloured, lines_of, matrix, numbers, shown

ALL = tuple(LABELS.values())
MARKS = "\ue000\ue001\ue002"  # what the package itself marks numbers and labels with
TEXTS = ["table", "markdown", "html", "latex", "mermaid", "svg", "csv", "tsv", "json"]


def cut(label: str) -> str:
    """A label as people see it: hidden characters by their number, 16 cells, spaces visible."""
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in label)
    text = re.sub(r"^ +| +$", lambda spaces: "␣" * len(spaces[0]), text) or '""'
    return text if len(text) <= 16 else f"{text[:15]}…"


def of(label: str) -> Trace:
    """A matrix with this label in the middle of its rows and columns."""
    names = ["first", label, "last"]
    return matrix([[1, 2, 3], [4, 5, 6], [7, 8, 9]], labels={"query": names, "key": names})


# ---- labels as people see them


def test_a_label_in_a_table() -> None:
    for label, text in {
        "日本語 שלום é": "日本語 שלום é", "\u3164": "\\u3164", "\u0301a": "◌\u0301a",
        "a" + 5 * "\u0301": "a" + 4 * "\u0301" + "\\u0301", "a" * 10_000: "a" * 15 + "…",
        "日本語日本語日本語": "日本語日本語日…", MARKS: "\\ue000\\ue001\\ue…",  # not cut in half
    }.items():  # fmt: skip
        rows = lines_of(matrix([[7.0]], labels={"query": [label]}))
        assert re.fullmatch(rf"  {re.escape(text)} +7", rows[-1])
    # Cut to the same text they stay apart, and equal ones equal.
    long = ["incomprehensibilities", "incomprehensibility", "the", "the"]
    rows = [line.split()[0] for line in lines_of(matrix(np.eye(4), labels={"query": long}))[-4:]]
    assert rows == ["incomprehensi…#1", "incomprehensi…#2", "the", "the"]


@given(st.text(), st.integers(40, 60))
def test_no_text_controls_a_terminal_or_is_markup(text: str, width: int) -> None:
    trace = matrix([[1.0]], labels={"query": [text], "key": ["[bold]"]})
    page = shown(replace(trace, notes=(text,)), width=width)
    assert "[bold]" in page
    controls = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert not {unicodedata.category(char) for char in page.replace("\n", "")} & controls


def test_a_note_is_one_paragraph_whose_percent_signs_stay_with_their_numbers() -> None:
    lines = lines_of(replace(of("a"), notes=(" a\n\n b\x1b " + "x" * 60 + " (27.4 %)",)), width=76)
    assert lines[1:4] == ["a b\\x1b " + "x" * 60, "(27.4 %)", ""]


# ---- every form at once


@pytest.mark.parametrize("form", TEXTS)
def test_no_character_of_any_form_controls_or_marks(form: str) -> None:
    names, title = (*ALL, *(f"{mark}7" for mark in MARKS)), MARKS + "\x1b[31m<script>\u202e"
    more: Any = {"sinks": [0.5], "dropout": 0.3, "mask": numbers(1, 5), "notes": names}
    x, labels = numbers(len(names), 2), {"query": names, "key": (*MARKS, *ALL[:2])}
    trace = attention(x, x[:5], x[:5], labels=labels, d_output=x, **more)
    trace = replace(trace, title=title).mapped(lambda stage: replace(stage, note=title))
    for option in ({}, {"work": True, "rows": (0, 9)}, {"cell": ("1", "3")}, {"heatmap": True}):
        text = shown(trace, form, **option)
        controls = {char for char in text if unicodedata.category(char) in ("Cc", "Cf")}
        assert controls <= {"\n", "\t"}, option
        assert not {*text} & {*MARKS} or form in ("csv", "tsv", "json"), option


def test_a_terminal_with_colours_gets_no_other_sequence_than_those_of_a_plain_label() -> None:
    for label in ALL:
        as_wide = "x" * cell_len(cut(label))
        sent = (coloured(of(text), 200, full=True) for text in (label, as_wide))
        acts, plain = (re.findall(r"[\x00-\x1f\x7f-\x9f][^a-zA-Z]*[a-zA-Z]?", x) for x in sent)
        assert acts == plain, label
        assert re.search(rf"\n  {re.escape(cut(label))} +4 +5 +6\n", shown(of(label)))


@pytest.mark.parametrize("left", LEFT_SIDES)
@pytest.mark.parametrize("body", BODIES)
def test_any_formula_of_a_file_leaves_the_numbers_as_they_are(left: str, body: str) -> None:
    whole = attention().mapped(lambda stage: replace(stage, expression=f"{left} = {body}"))
    for form in ("table", "html", "latex"):
        assert "0.4011" in shown(whole, form, work=True)
    assert shown(whole, cell=("q1", "k1"))


# ---- Markdown

OPEN = ("th_open", "td_open")


def page_of(trace: Trace) -> list[Any]:
    """The tokens of the Markdown, as GitHub's tables, strikethrough and HTML have it."""
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    tokens: list[Any] = parser.parse(shown(trace, "markdown", full=True))
    return tokens


def test_a_page_shows_the_label_and_nothing_else() -> None:
    for label in ALL:
        tokens = page_of(of(label))
        cells = [x.children for before, x in pairwise(tokens) if before.type in OPEN]
        assert len(cells) == 4 * 4
        for cell, bold in ((cells[2], []), (cells[8], ["strong_open", "strong_close"])):
            types = [token.type for token in cell if token.content or token.type[:4] != "text"]
            assert [name for name in types if name not in ("text", "text_special")] == bold, label
            assert "".join(token.content for token in cell) == cut(label)
        assert not {"html_block", "code_block", "fence"} & {token.type for token in tokens}
    # GitHub makes a link of a bare address, which this parser does not
    every = matrix(np.eye(len(ALL)), labels={"query": ALL, "key": ALL})
    assert not re.search(r"https?://|www\.|\w@\w", shown(every, "markdown", full=True))


def test_a_page_shows_titles_notes_and_formulas_as_they_are() -> None:
    inside = {"text", "text_special", "code_inline", "strong_open", "strong_close"}
    around = {"inline", "heading", "paragraph", "table", "thead", "tbody", "tr", "th", "td"}
    for label in filter(None, ALL):
        stage = Stage("scaled", label, label, np.ones((2, 2)), ("query", "key"), note=label)
        tokens = page_of(Trace(label, (Trace(label, (stage,), name="block"),), notes=(label,)))
        inline = [token.children for token in tokens if token.type == "inline"]
        assert {child.type for children in inline for child in children} <= inside, label
        assert {re.sub("_(open|close)$", "", token.type) for token in tokens} <= around, label
        texts = ["".join(child.content for child in children) for children in inline]
        assert texts.count(texts[0]) >= 3  # its title, and both notes


def test_a_code_span_holds_its_text() -> None:
    for formula in ("a`b", "``", "` |", "a | b", "`a```b`"):
        stage = replace(matrix([[1.0]])["scaled"], formula=formula)
        spans = [child.content for token in page_of(Trace("T", (stage,))) for child in token.children or () if child.type == "code_inline"]  # fmt: skip
        assert spans == [formula]


# ---- numbers for programs


@given(hnp.arrays(float, (3, 5), elements=st.floats()), st.sampled_from(["csv", "tsv"]))
def test_numbers_read_back_the_same(values: Array, form: str) -> None:
    lines = shown(matrix(values), form).splitlines()
    _, *rows = csv.reader(lines, delimiter="," if form == "csv" else "\t")
    read = [[float(text) for text in row[1:]] for row in rows]
    np.testing.assert_array_equal(np.array(read), values)


def test_rows_of_csv() -> None:
    rounded = {"precision": 2, "rounded": True}
    for values, options, lines in (
        ([[np.nan, np.inf, -np.inf]], {}, ["q1,NaN,Infinity,-Infinity"]), ([["a", "=1"]], rounded, ["q1,a,'=1"]),
        ([[0.4011, 1 / 3, -1.5e11], [np.nan, 0, 1e-9]], rounded, ["q1,0.40,0.33,-1.5e11", "q2,NaN,0,0.00"]),
    ):  # fmt: skip
        assert shown(matrix(values), "csv", **options).splitlines()[1:] == lines


def test_no_label_is_a_formula() -> None:
    for label, text in {
        "=1+1": "'=1+1", "+1": "'+1", "-1": "'-1", "@x": "'@x", " =x": "' =x",
        "＝1＋1": "'＝1＋1", "'=1": "''=1", "'tis": "'tis", "\t=x": "\\x09=x",
        "a=b": "a=b", "a, b; c": "a, b; c", "C:\\new": "C:\\new",
        "a;=1": "a\\x3b=1", "a, -1": "a\\x2c -1",  # which a spreadsheet may split
        "\x1b[31m": "\\x1b[31m", "\\x1b[31m": "\\x5cx1b[31m",
        "\u202e\u200b\U000e0041": "\\u202e\\u200b\\U000e0041",
    }.items():  # fmt: skip
        trace = matrix([[1.0]], labels={"key": [label], "query": [label]})
        for form, between in (("csv", ","), ("tsv", "\t")):
            rows = csv.reader(shown(trace, form).splitlines(), delimiter=between)
            assert [*rows] == [["scaled", text], [text, "1.0"]]
        assert unguarded(text) == label


@given(st.text() | st.from_regex(r"\\[xuU]?[0-9a-f]{0,8}[;,' =+\-@]*", fullmatch=True))
def test_every_label_reads_back_as_itself(label: str) -> None:
    assert guarded(label).isprintable()
    assert unguarded(guarded(label)) == label


def test_matrices_of_csv_are_named_by_their_heads_and_hold_everything() -> None:
    trace = attention(*(numbers(2, 3, 2, seed=n) for n in range(3)))
    lines = shown(trace, "csv", stages=("scores", "output")).splitlines()
    assert [line.partition(",")[0] for line in lines if line[:1] != "q"] == [
        "scores head 1", "", "scores head 2", "", "output head 1", "", "output head 2",
    ]  # fmt: skip
    part = shown(trace, "tsv", stages=("weights",), head=1, rows=(2, 3), cols=(1, 3)).splitlines()
    assert part[0] == "weights head 2\tk2\tk3"
    assert [line[:2] for line in part[1:]] == ["q3"]
    large = shown(matrix(np.zeros((150, 130))), "csv").splitlines()
    assert (len(large), large[-1].count(",")) == (151, 130)


# ---- HTML

MAY_END_UNSAID = {"meta", "img", "tr", "td", "th"}  # or have no end
TAGS = """html head meta title style script body nav main section div h1 h2 h3 p ul li table
    tr td th bdi pre code small details summary noscript header span"""
ATTRIBUTES = """lang charset name content http-equiv class style scope role id aria-label tabindex
    hidden type aria-hidden data-x"""


class Reader(HTMLParser):
    """Checks that every element and attribute is known, and closed where it should be."""

    open: tuple[str, ...] = ()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS.split()
        assert {name for name, _ in attrs} <= {*ATTRIBUTES.split()}
        self.open += () if tag in MAY_END_UNSAID else (tag,)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1] == tag
        self.open = self.open[:-1]


def test_a_page_has_the_numbers_of_the_worked_example_and_allows_its_own_script_alone() -> None:
    """By the digest that a browser makes of all that is between the tags (CSP level 3, 8.2)."""
    text = attncli.render(attention(), "html")
    for tag in ("script", "style"):
        (allowed,) = re.findall(rf"{tag}-src '([^']+)'", text)
        (own,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.DOTALL)
        assert allowed == f"sha256-{b64encode(sha256(own.encode()).digest()).decode()}"
    rows = [re.findall(r"<t[dh][^>]*>(?:<bdi>)?([^<]*)", row) for row in text.split("<tr>")]
    for row in ("q1 0.4011 0.4011 0.1978 1", "q2 0.4011 0.1978 0.4011 1", "q3 0.5035 0.2483 0.2483 1"):  # fmt: skip
        assert row.split() in rows
    assert text.startswith("<!doctype html>\n")
    assert "default-src 'none'" in text
    plain = text.replace('"http://www.w3.org/2000/svg"', "")  # a name, nothing is fetched
    assert not re.search(r"http:|https:|src=|href=|url\((?!#)|@import|eval|innerHTML", plain)


@pytest.mark.parametrize("option", [{}, {"work": True}, {"cell": ("1", "3")}, {"heatmap": True}])
def test_a_label_makes_no_element(option: Any) -> None:
    names = ("<b>x</b>", "</script><script>", *ALL)
    x, labels = numbers(len(names), 2), {"query": names, "key": names[:5]}
    text = shown(attention(x, x[:5], x[:5], labels=labels, notes=names), "html", **option)
    assert text.count("<script") == 2  # one of data, one that runs, none of a label
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    reader, controls = Reader(), r'<(div|section|aside) id="(bar|words|why)".*?\n</\1>\n'
    assert len(re.findall(controls, text, re.DOTALL)) == 3  # they hold nothing of a trace
    reader.feed(re.sub(controls, "", text, flags=re.DOTALL))
    assert reader.open == ()


# ---- flowcharts


def test_a_flowchart_has_nodes_of_ours_alone() -> None:
    token = Stage("tokens", "T", "", np.ones((2, 1)), ("count", "token"))
    for label in ALL:
        stage = replace(token, formula=label, labels={"token": (label,)})
        lines = shown(Trace("T", (stage, Trace(label, (stage,), name="x"))), "mermaid").splitlines()
        assert all(re.match(r" *(flowchart|n\d+|subgraph|end)", line) for line in lines)
        for line in lines:
            text = "".join(line.split('"')[1:-1]).replace("<wbr/>", "").replace("<br/>", "")
            assert line.count('"') in (0, 2)
            assert not {*text.replace(";", "")} & {*'"[]<>`%{}()|\n\x1b'}, label
    text = shown(Trace("T", (replace(token, formula="fa:fa-ban $$x$$ a\\nb"),)), "mermaid")
    assert all(part in text for part in ("fa#58;<wbr/>fa#45;ban", "#36;<wbr/>#36;x", "a#92;<wbr/>nb"))  # fmt: skip
