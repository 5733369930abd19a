"""Markdown in which no label means anything."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.views.markdown import code, escape, markdown
from attncli.views.showing import Showing

from .traces import attention, matrix


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a|b", r"a\|b"),
        ("<script>&amp;", r"\<script\>\&amp;"),
        ("[x](y) ![z]", r"\[x\](y) \!\[z\]"),
        ("*a* _b_ d_k", r"\*a\* \_b\_ d_k"),
        ("`a`", r"\`a\`"),
        ("1. one", r"1\. one"),
        ("- a", r"\- a"),
        ("---", r"\---"),
        ("0.5 -inf", "0.5 -inf"),
        ("http://x www.y", r"http\://x www\.y"),
        ("$x$ # ~", r"\$x\$ \# \~"),
    ],
)
def test_escape(text: str, written: str) -> None:
    assert escape(text) == written


@given(st.text(alphabet="a`| ", max_size=12))
def test_a_code_span_holds_its_text(text: str) -> None:
    span = code(text)
    fence = re.match("`+", span)
    assert fence is not None
    assert fence[0] not in span[len(fence[0]) : -len(fence[0])].strip(" ").strip("`") or not text


@given(st.text(max_size=12), st.text(max_size=12))
def test_every_row_has_as_many_cells(one: str, other: str) -> None:
    trace = matrix([[1, 2], [3, 4]], labels={"query": [one, other], "key": [other, one]})
    rows = [line for line in markdown(trace, Showing()) if line.startswith("|")]
    assert len(rows) == 4
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows} == {4}


def test_a_page_is_as_wide_as_it_needs_and_without_colour() -> None:
    narrow = Showing(width=20, height=5, colour=True)
    assert list(markdown(attention(), narrow)) == list(markdown(attention(), Showing()))
