"""Close spellings against the recursive definition of the distance."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.text.spellings import close_spellings, rows_of


@cache
def distance(a: str, b: str) -> int:
    """Optimal string alignment, as it is defined."""
    if not a or not b:
        return len(a) + len(b)
    least = min(
        distance(a[:-1], b) + 1,
        distance(a, b[:-1]) + 1,
        distance(a[:-1], b[:-1]) + (a[-1] != b[-1]),
    )
    if len(a) > 1 and len(b) > 1 and a[-1] == b[-2] and a[-2] == b[-1]:
        least = min(least, distance(a[:-2], b[:-2]) + 1)
    return least


@given(
    word=st.text(alphabet="abc", min_size=2, max_size=7),
    words=st.lists(st.text(alphabet="abc", min_size=1, max_size=9), unique=True, max_size=11),
)
def test_the_closest_three_in_order(word: str, words: list[str]) -> None:
    allowed = 1 if len(word) <= 4 else 2
    near = [
        (distance(word, other), other[0] != word[0], at)
        for at, other in enumerate(words)
        if other != word
    ]
    expected = tuple(words[at] for far, _, at in sorted(near) if far <= allowed)[:3]
    assert close_spellings(word, rows_of([other.encode() for other in words])) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("Florida", ("florida",)),
        ("flroida", ("florida",)),
        ("floridaaa", ("florida",)),
        ("f", ()),
        ("", ()),
        ("x" * 40, ()),
        ("caf", ("cafe",)),
    ],
)
def test_what_is_offered(word: str, expected: tuple[str, ...]) -> None:
    assert close_spellings(word, rows_of([b"florida", b"cafe", b"y" * 40])) == expected


def test_an_empty_vocabulary_offers_nothing() -> None:
    assert close_spellings("king", rows_of([])) == ()


def test_tabs_end_words_too() -> None:
    assert close_spellings("kin", rows_of([b"king"], b"\t"), b"\t") == ("king",)
