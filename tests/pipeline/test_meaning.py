"""Static against contextual: cosines, and the sentences on equal words."""

from __future__ import annotations

import numpy as np
import pytest

from attncli.pipeline.meaning import cosine_text, meaning

BANKS = ("money", "bank", "river", "bank")
STATIC = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]])
CONTEXT = np.array([[1.0, 0, 0], [3, 4, 0], [0, 0, 1], [0, 4, 3]])


def test_cosines_before_and_after() -> None:
    trace = meaning(BANKS, STATIC, CONTEXT)
    assert trace is not None
    assert trace["static"].value[1].tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose(trace["contextual"].value[1], [0.6, 1, 0, 0.64], atol=1e-15)
    assert trace["static"].labels["other"] == BANKS


def test_equal_words_part() -> None:
    trace = meaning(BANKS, STATIC, CONTEXT)
    assert trace is not None
    first, second = trace.notes
    assert (
        first
        == '"bank" (2) and "bank" (4): cosine 1 before, 0.6400 after: one word in two contexts'
    )
    assert second.startswith(
        '"money" and "bank" (2): cosine 0.0000 before, 0.6000 after: moved closer'
    )


def test_without_positions_they_stay_equal_and_it_says_why() -> None:
    trace = meaning(BANKS, STATIC, STATIC * 2, placed=False)
    assert trace is not None
    (only,) = trace.notes
    assert only.startswith(
        '"bank" (2) and "bank" (4): cosine 1 before and 1 after: without positions'
    )


def test_a_mask_parts_them_even_without_positions() -> None:
    trace = meaning(BANKS, STATIC, CONTEXT, placed=False, masked=True)
    assert trace is not None
    assert trace.notes[0].endswith("no positions, but each sees other words")


def test_pairs_move_apart_too() -> None:
    trace = meaning(("a", "b"), np.array([[1, 0], [1, 0]]), np.eye(2))
    assert trace is not None
    assert trace.notes == ('"a" and "b": cosine 1 before, 0.0000 after: moved further apart',)


def test_of_many_repeated_words_a_few_have_a_sentence() -> None:
    words = tuple("abcdefg" * 2)
    vectors = np.random.default_rng(3).normal(size=(7, 5))
    trace = meaning(words, np.tile(vectors, (2, 1)), np.random.default_rng(4).normal(size=(14, 5)))
    assert trace is not None
    assert [note[:11] for note in trace.notes[:4]] == [
        f'"{w}" ({i})' + " and" for i, w in enumerate("abcd", 1)
    ]
    assert sum("one word in two contexts" in note for note in trace.notes) == 4


@pytest.mark.parametrize("vectors", [[[1.0]], [[np.nan], [1.0]]])
def test_one_word_or_no_numbers_mean_nothing(vectors: list[list[float]]) -> None:
    assert meaning(["a", "b"][: len(vectors)], vectors, vectors) is None


@pytest.mark.parametrize(
    ("cosine", "text"),
    [(1.0, "1"), (0.99996, "1 − 0.00004"), (-0.5, "-0.5000"), (0.99994, "0.9999")],
)
def test_a_cosine_below_one_is_never_written_as_one(cosine: float, text: str) -> None:
    assert cosine_text(cosine) == text
