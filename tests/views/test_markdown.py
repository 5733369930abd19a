"""Markdown in which no label means anything."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.views.formats.markdown import code, escape, text
from attncli.views.select import DisplayOptions

from .traces import matrix


@pytest.mark.parametrize(
    ("plain", "written"),
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
def test_escape(plain: str, written: str) -> None:
    assert escape(plain) == written


@given(st.text(alphabet="a`| ", max_size=12))
def test_a_code_span_holds_its_text(plain: str) -> None:
    span = code(plain)
    fence = re.match("`+", span)
    assert fence is not None
    assert fence[0] not in span[len(fence[0]) : -len(fence[0])].strip(" ").strip("`") or not plain


@given(st.text(max_size=12), st.text(max_size=12))
def test_every_row_has_as_many_cells(one: str, other: str) -> None:
    trace = matrix([[1, 2], [3, 4]], labels={"query": [one, other], "key": [other, one]})
    rows = [
        line for line in "".join(text(trace, DisplayOptions())).splitlines() if line.startswith("|")
    ]
    assert len(rows) == 4
    assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows} == {4}
