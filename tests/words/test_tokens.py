"""Tokens of many languages, and what holds for every string."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli import InputError
from attncli.words.tokens import tokenize

# White space and what is invisible and parts tokens; everything else must survive.
DROPPED = set(
    "\u200b\ufeff\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)

# Characters that meet in every rule, so that random strings of them try the rules together.
TRICKY = "aZé\u0301ß1٣½_'’·-‐.,٫ \t\n\u00a0\u200b\u200c\u200d\u00ad\ufe0f\u20e3हि銀は한💡👍🏽🇩🇪#*€©\x1b\ud800"


def is_dropped(character: str) -> bool:
    return character.isspace() or character in DROPPED


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "She visited the money bank, near the river bank",
            ["She", "visited", "the", "money", "bank", ",", "near", "the", "river", "bank"],
        ),
        ("don't rock'n'roll l’eau", ["don't", "rock'n'roll", "l’eau"]),
        ("'quoted' dogs'", ["'", "quoted", "'", "dogs", "'"]),
        ("well-known -- yes—no -5", ["well-known", "--", "yes", "—", "no", "-", "5"]),
        ("3.14, 1,000.50! 3.", ["3.14", ",", "1,000.50", "!", "3", "."]),
        ("a,b 10:30 3·4 col·lecció", ["a", ",", "b", "10", ":", "30", "3", "·", "4", "col·lecció"]),
        ("U.S., e.g. the U.S.A.", ["U.S.", ",", "e.g.", "the", "U.S.A."]),
        ("J.R.R.Tolkien", ["J", ".", "R", ".", "R", ".", "Tolkien"]),
        ("wait... what?!", ["wait", "...", "what", "?", "!"]),
        ("50% of €5 x² snake_case GPT-4", ["50", "%", "of", "€", "5", "x²", "snake_case", "GPT-4"]),
        ("<pad> [red]", ["<pad>", "[", "red", "]"]),
        ("man<PADDING>[PAD]!", ["man", "<PADDING>", "[PAD]", "!"]),
        ("<padded> pad", ["<", "padded", ">", "pad"]),
        ("मैं हिन्दी बोलता हूँ।", ["मैं", "हिन्दी", "बोलता", "हूँ", "।"]),
        ("السلام عليكم، ٣٫١٤", ["السلام", "عليكم", "،", "٣٫١٤"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("צה״ל", ["צה״ל"]),
        ("私は銀行。コーヒー", ["私", "は", "銀", "行", "。", "コーヒー"]),
        ("은행에 갔다", ["은행에", "갔다"]),
        ("Ελλάδα Москва", ["Ελλάδα", "Москва"]),
        ("cafe\u0301\u200b\ufeffnaïve", ["cafe\u0301", "naïve"]),
        ("👨‍👩‍👧‍👦👍🏽🇩🇪🇫🇷", ["👨‍👩‍👧‍👦", "👍🏽", "🇩🇪", "🇫🇷"]),
        ("1️⃣2️⃣#️⃣", ["1️⃣", "2️⃣", "#️⃣"]),
        ("🏳️‍🌈🙂‍↔️❤️‍🔥!", ["🏳️‍🌈", "🙂‍↔️", "❤️‍🔥", "!"]),
        ("🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007fx", None),
        ("\x1b[31m", ["\x1b", "[", "31m"]),
    ],
)
def test_sentences(sentence: str, expected: list[str] | None) -> None:
    assert list(tokenize(sentence)) == (expected or [sentence[:-1], "x"])


def test_lowercase_is_by_token() -> None:
    assert tokenize("The ΟΔΟΣ", lowercase=True) == ("the", "οδος")


@pytest.mark.parametrize("sentence", ["", " \t\n", "\u200b\u3000\ufeff"])
def test_an_empty_sentence_is_an_error(sentence: str) -> None:
    with pytest.raises(InputError, match="the sentence is empty; give it at least one word"):
        tokenize(sentence)


@given(st.text() | st.text(alphabet=TRICKY))
def test_nothing_but_space_is_lost_and_joining_by_spaces_changes_nothing(sentence: str) -> None:
    kept = "".join(c for c in sentence if not is_dropped(c))
    if not kept:
        return
    tokens = tokenize(sentence)
    assert "".join(tokens) == kept
    assert all(tokens)
    assert tokenize(" ".join(tokens)) == tokens
    assert [tokenize(token) for token in tokens] == [(token,) for token in tokens]


@given(st.text(alphabet=TRICKY))
def test_marks_stay_with_what_they_mark(sentence: str) -> None:
    if all(is_dropped(c) for c in sentence):
        return
    end = 0
    for token in tokenize(sentence):
        start = sentence.index(token, end)
        stray = unicodedata.category(token[0])[0] == "M"
        assert not stray or start == 0 or is_dropped(sentence[start - 1])
        end = start + len(token)


@pytest.mark.parametrize(
    "piece", ["a.", "'", "1,", "👍\u200d", "a-", "\u0301", "..", "bank ", "\u200d"]
)
def test_long_sentences_take_linear_time(piece: str) -> None:
    start = time.perf_counter()
    assert tokenize(piece * 50_000 + "xx")
    assert time.perf_counter() - start < 5
