"""Hostile and unusual labels."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from attncli.views.text import clean, distinct, fold, pad, sentence, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain [red] text", "plain [red] text"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
        ("\x9b31m", "\\x9b31m"),
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("\u3164", "\\u3164"),
        ("日本語 שלום é", "日本語 שלום é"),
        ("\u0301a", "◌\u0301a"),
        ("a" + 5 * "\u0301", "a" + 4 * "\u0301" + "\\u0301"),
    ],
)
def test_clean(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text())
def test_nothing_clean_can_control_a_terminal(text: str) -> None:
    assert not {unicodedata.category(char) for char in clean(text)} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


@given(st.text(), st.integers(6, 20))
def test_a_label_fits_its_cells(label: str, cells: int) -> None:
    assert 0 < cell_len(shorten(label, cells)) <= cells


def test_a_huge_label_is_cut() -> None:
    assert shorten("a" * 10_000) == "a" * 15 + "…"
    assert cell_len(shorten("\u0301" * 10_000)) <= 16


def test_a_wide_character_is_not_cut_in_half() -> None:
    assert shorten("日本語", 4) == "日…"


def test_outer_spaces_and_emptiness_are_visible() -> None:
    assert [shorten(label) for label in (" a ", "", "  ", "a b")] == ["␣a␣", '""', "␣␣", "a b"]


def test_labels_cut_to_the_same_text_stay_apart() -> None:
    labels = ["tokenization", "tokenizer", "tokenization", "other"]
    assert distinct(labels, [0, 1, 11, 12], 8) == ["token…#1", "token…#2", "toke…#12", "other"]


def test_labels_that_are_the_same_stay_the_same() -> None:
    assert distinct(["the", "the"], [0, 1]) == ["the", "the"]


@given(st.lists(st.text(max_size=30), max_size=6), st.integers(6, 16))
def test_distinct_labels_fit_their_cells(labels: list[str], cells: int) -> None:
    found = distinct(labels, range(len(labels)), cells)
    assert all(cell_len(label) <= cells for label in found)


def test_a_sentence_is_one_line() -> None:
    assert sentence(" a\n\n b\x1b ") == "a b\\x1b"


@given(st.text(), st.integers(10, 60), st.integers(0, 4))
def test_folded_lines_fit(text: str, width: int, indent: int) -> None:
    assert all(cell_len(line) <= width for line in fold(clean(text), width, indent))


def test_a_percent_sign_stays_with_its_number() -> None:
    assert fold("then (27.4 %)", 11) == ["then", "(27.4 %)"]


def test_padding_counts_cells() -> None:
    assert pad("日本", 6) == "日本  "
    assert pad("日本", 6, right=True) == "  日本"
