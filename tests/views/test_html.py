"""HTML as markup: well-formed, with the numbers of the table, and nothing in it that a label made.

What its script does is tested in a browser: tests/browser.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from attncli.trace import Trace
from attncli.views.formats import html
from attncli.views.select import DisplayOptions

from .test_hostile import HOSTILE, LABELS
from .traces import CAUSAL, THREE_K, THREE_Q, THREE_V, attention

VOID = {"meta", "img"}
MAY_END_UNSAID = {"tr", "td", "th"}  # as HTML has it: at the next one, or at the end of the table
TAGS = {
    *("html", "head", "meta", "title", "style", "script", "body", "nav", "main", "section", "div"),
    *("h1", "h2", "h3", "p", "ul", "li", "table", "tr", "td", "th", "bdi", "pre", "code", "small"),
    *("details", "summary"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "class", "style", "scope", "role", "id"),
    *("aria-label", "tabindex", "hidden", "type", "data-head", "data-batch", "data-layer"),
}


class Reader(HTMLParser):
    """Checks that every element is closed where it should be; collects tables and tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.tables: list[list[list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in MAY_END_UNSAID:
            self._end(("td", "th", "tr") if tag == "tr" else ("td", "th"))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        assert {name for name, _ in attrs} <= ATTRIBUTES

    def _end(self, tags: tuple[str, ...]) -> None:
        while self.open[-1] in tags:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self._end(tuple(MAY_END_UNSAID))
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data


def read(trace: Trace, **options: object) -> tuple[Reader, str]:
    text = "".join(html.text(trace, DisplayOptions(**options)))  # type: ignore[arg-type]
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert reader.tags <= TAGS
    return reader, text


def test_the_tables_have_the_numbers_of_the_worked_example() -> None:
    reader, text = read(attention(THREE_Q, THREE_K, THREE_V))
    assert reader.tables[-2] == [
        ["", "k1", "k2", "k3", "Σ"],
        ["q1", "0.4011", "0.4011", "0.1978", "1"],
        ["q2", "0.4011", "0.1978", "0.4011", "1"],
        ["q3", "0.5035", "0.2483", "0.2483", "1"],
    ]
    assert re.search(r"<td class=a\d+>0.5035", text)  # the weights are shaded
    assert text.startswith("<!doctype html>\n")
    assert "<li>q1 attends to k1 and k2 (40.1 % each), then k3 (19.8 %)</li>" in text


@pytest.mark.parametrize("options", [{}, {"work": True}, {"cell": ("1", "3")}, {"heatmap": True}])
def test_a_label_makes_no_element(options: dict[str, object]) -> None:
    _, text = read(attention(mask=CAUSAL, labels=LABELS, notes=HOSTILE), **options)
    assert "&lt;script&gt;" in text
    assert text.count("<script") == 4  # three of data, one that runs, none of a label


def test_a_page_asks_for_nothing_from_elsewhere() -> None:
    _, text = read(attention(mask=CAUSAL))
    assert "default-src 'none'" in text
    assert not any(
        words in text for words in ("http:", "https:", "src=", "href=", "url(", "@import")
    )
