"""Random vectors: the same word has the same one, whatever the other words are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli import ConventionError
from attncli.words.vectors import random_vectors

WORDS = st.lists(st.text(alphabet=st.characters()), max_size=7)


def test_vectors_stay_what_they_are() -> None:
    # Written down once, so that a change of NumPy's or ours shows: others have these numbers too.
    expected = [-0.22060458827550744, -0.8264216158630495, -0.5396450448983192]
    assert random_vectors(["bank"], 3)["bank"].tolist() == expected
    other_seed = [-0.4171744971355287, -0.07572138422314012, 0.1703867132254886]
    assert random_vectors(["bank"], 3, seed=1)["bank"].tolist() == other_seed


@given(WORDS, st.integers(1, 7), st.integers(0, 2**70))
def test_a_word_has_its_vector_wherever_it_occurs(words: list[str], dim: int, seed: int) -> None:
    vectors = random_vectors(words, dim, seed)
    assert vectors.keys() == {*words}
    for word, vector in vectors.items():
        assert vector.shape == (dim,)
        assert ((vector >= -1) & (vector < 1)).all()
        alone = random_vectors([word], dim + 2, seed)[word]
        np.testing.assert_array_equal(alone[:dim], vector)


def test_different_words_differ_and_spellings_of_one_do_not() -> None:
    vectors = random_vectors(["bank", "Bank", "banks", "caf\u00e9", "cafe\u0301", "\ud800"], 5)
    assert len({tuple(vector.tolist()) for vector in vectors.values()}) == 5
    np.testing.assert_array_equal(vectors["caf\u00e9"], vectors["cafe\u0301"])


def test_they_fill_the_range_evenly() -> None:
    vectors = np.array([*random_vectors([str(number) for number in range(301)], 37).values()])
    np.testing.assert_allclose(vectors.mean(), 0, atol=0.02)
    np.testing.assert_allclose(vectors.var(), 1 / 3, rtol=0.03)


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ConventionError, match="dim is 0"):
        random_vectors(["bank"], 0)
    with pytest.raises(ConventionError, match="seed is -1"):
        random_vectors(["bank"], 3, seed=-1)
