"""ALiBi against the slopes its authors print and a loop over every cell."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attncli.attention.positions import alibi, alibi_slopes
from attncli.errors import ConventionError


def published_slopes(n: int) -> list[float]:
    """The recursion of the authors' code, which states the rule another way."""
    if math.log2(n).is_integer():
        first = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [first * first**i for i in range(n)]
    below: int = 2 ** math.floor(math.log2(n))
    return published_slopes(below) + published_slopes(2 * below)[0::2][: n - below]


def test_eight_heads_have_the_papers_slopes() -> None:
    halves = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(8).tolist() == halves


@pytest.mark.parametrize("n_heads", [1, 2, 3, 5, 7, 11, 12, 13, 16, 31, 40, 112])
def test_slopes_are_the_authors(n_heads: int) -> None:
    np.testing.assert_allclose(alibi_slopes(n_heads), published_slopes(n_heads), rtol=1e-13)


@given(
    n_heads=st.integers(1, 5),
    n_q=st.integers(1, 7),
    n_k=st.integers(1, 7),
    first=st.integers(-3, 5),
    causal=st.booleans(),
)
def test_every_cell(n_heads: int, n_q: int, n_k: int, first: int, causal: bool) -> None:
    bias = alibi(n_heads, n_q, n_k, causal=causal, first_query=first)["bias"]
    assert bias.value.shape == (n_heads, n_q, n_k)
    assert bias.axes == ("head", "query", "key")
    for (head, query, key), found in np.ndenumerate(bias.value):
        distance = query + first - key
        expected = -published_slopes(n_heads)[head] * abs(distance)
        hidden = causal and distance < 0
        assert found == (-math.inf if hidden else pytest.approx(expected, rel=1e-12))


def test_keys_default_to_as_many_as_queries() -> None:
    assert alibi(3, 5)["bias"].value.shape == (3, 5, 5)


def test_no_zero_is_negative() -> None:
    bias = alibi(2, 3, causal=False)["bias"].value
    assert not np.signbit(bias[bias == 0]).any()


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 3), (2, 3, 0), (-1, 3, 3)])
def test_sizes_below_one(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ConventionError, match="use a whole number from 1"):
        alibi(*sizes)
