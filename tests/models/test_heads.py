"""What each head does: heads whose numbers are known beforehand, and sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attncli.errors import ShapeError
from attncli.models.heads import MEASURES, entropy, measures, successors

#         1  2  3  4  5  6  7      tokens 1 2 3 are said again as 4 5 6
TOKENS = [3, 5, 8, 3, 5, 8, 9]
SINK, BEFORE, ITSELF = [0] * 7, [0, 0, 1, 2, 3, 4, 5], [*range(7)]
INDUCTION = [0, 0, 0, 1, 2, 3, 0]  # 4 sees what followed 1, and so on; the rest sees token 1


def looking_at(keys: list[int]) -> np.ndarray:
    """The weights of a head in which each query sees one key alone."""
    return np.eye(7)[keys]


def test_heads_that_do_one_thing() -> None:
    heads = np.array([looking_at(keys) for keys in (SINK, BEFORE, ITSELF, INDUCTION)])
    found = {name: x.tolist() for name, x in measures(heads, TOKENS).items()}
    assert found == {
        "even": 0.0,
        "entropy": [0, 0, 0, 0],
        # of 6 queries: the one before token 2 is token 1 too; induction sees it in 2, 3 and 7
        "first": [1, pytest.approx(1 / 6), 0, pytest.approx(3 / 6)],
        "previous": [pytest.approx(1 / 6), 1, 0, pytest.approx(1 / 6)],
        "itself": [0, 0, 1, 0],
        "induction": [0, 0, 0, 1],  # of the queries 4, 5 and 6
    }


def test_equal_weights_of_a_causal_head() -> None:
    causal = np.tri(7) / np.arange(1, 8)[:, None]
    found = measures(causal[None], TOKENS)
    harmonic = sum(1 / n for n in range(2, 8)) / 6  # each of n keys gets 1/n, n = 2 … 7
    bits = sum(math.log2(n) for n in range(2, 8)) / 6
    assert found["entropy"] == pytest.approx([bits])
    assert found["even"] == pytest.approx(bits)
    for name in ("first", "previous", "itself"):
        assert found[name] == pytest.approx([harmonic]), name
    assert found["induction"] == pytest.approx([(1 / 4 + 1 / 5 + 1 / 6) / 3])


def test_what_followed_every_earlier_occurrence_counts() -> None:
    # the token of query 5 was 1 and 3; that of query 6 was the one just before, and 1 and 3
    assert successors([2, 4, 2, 6, 2, 2]) == [(2, 1), (4, 1), (4, 3), (5, 1), (5, 3)]
    weights = np.random.default_rng(3).dirichlet(np.ones(6), size=(2, 6))
    by_hand = weights[:, 2, 1] + weights[:, 4, 1] + weights[:, 4, 3]
    by_hand = (by_hand + weights[:, 5, 1] + weights[:, 5, 3]) / 3
    assert measures(weights, [2, 4, 2, 6, 2, 2])["induction"] == pytest.approx(by_hand)


def test_without_a_repetition_there_is_no_induction() -> None:
    weights = np.full((3, 5, 5), 0.2)
    assert "induction" not in measures(weights, [1, 2, 3, 4, 5])
    assert "induction" not in measures(weights, [1, 1, 2, 3, 4])  # what followed it is itself


def test_queries_and_keys_of_two_sentences() -> None:
    weights = np.array([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]])
    found = measures(weights)
    assert found.keys() == {"even", "entropy", "first"}
    assert (found["entropy"].tolist(), found["first"].tolist()) == ([0.5], [0.75])


def test_one_token() -> None:
    found = measures(np.ones((2, 1, 1)), [7])
    assert found.keys() == {"even", "entropy", "first"}
    assert found["first"].tolist() == [1, 1]


def test_a_sink_without_a_value_takes_what_is_missing() -> None:
    # half of each row goes to the sink: −2 · ¼ log₂ ¼ = 1 bit of the two keys
    assert entropy(np.array([[0.25, 0.25]])).tolist() == [1.0]


def test_tokens_that_do_not_fit() -> None:
    with pytest.raises(ShapeError, match="there are 2 tokens for 5 × 5 weights"):
        measures(np.full((3, 5, 5), 0.2), [1, 2])


def test_every_measure_has_a_row_among_the_stages() -> None:
    from attncli.stages import KINDS

    for own in MEASURES:
        assert (KINDS[own.name].symbol, KINDS[own.name].axes) == (own.symbol, "layer head")
