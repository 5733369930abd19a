"""Close spellings: the obvious misspellings of a word are offered, what is far from it is not."""

from __future__ import annotations

import pytest

from attncli.files.word_vectors import close_spellings

VOCABULARY = (
    *("the", "king", "queen", "queue", "receive", "florida", "cafe", "definitely", "separate"),
    *("attention", "transformer", "river", "bank", "Paris", "y" * 40, "I", "of", "naïve"),
)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("teh", "the"),
        ("kingg", "king"),
        ("kng", "king"),
        ("quen", "queen"),
        ("quene", "queen"),
        ("recieve", "receive"),
        ("flroida", "florida"),
        ("floridaaa", "florida"),
        ("Florida", "florida"),
        ("caf", "cafe"),
        ("café", "cafe"),
        ("definately", "definitely"),
        ("seperate", "separate"),
        ("atention", "attention"),
        ("attetnion", "attention"),
        ("transfomer", "transformer"),
        ("rivers", "river"),
        ("banks", "bank"),
        ("pariss", "Paris"),
        ("naive", "naïve"),
    ],
)
def test_obvious_misspellings_come_first(word: str, expected: str) -> None:
    assert close_spellings(word, VOCABULARY)[0] == expected


@pytest.mark.parametrize("word", ["", "f", "i", "x" * 40, "zebra", "kangaroo", "attn"])
def test_distant_words_are_not_offered(word: str) -> None:
    assert close_spellings(word, VOCABULARY) == ()


def test_at_most_three_are_offered_the_closest_first() -> None:
    words = ["kind", "kin", "ring", "king", "kong", "King", "kings"]
    assert close_spellings("kiing", words) == ("king", "King", "kings")
    assert close_spellings("kint", ["kint", "kins", "kino"]) == ("kins", "kino")


def test_an_empty_vocabulary_offers_nothing() -> None:
    assert close_spellings("king", []) == ()
