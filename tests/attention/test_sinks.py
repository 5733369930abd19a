"""Attention sinks: a score per head that joins the softmax, and has no value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attncli.attention.attend import attend
from attncli.attention.functional import softmax
from attncli.convention import Convention
from attncli.errors import ConventionError, ShapeError

RNG = np.random.default_rng(5)
Q, K, V = (RNG.normal(size=(2, heads, n, 7)) for heads, n in ((6, 5), (3, 11), (3, 11)))
SINKS = RNG.normal(size=6)
NEVER = -np.inf


def by_a_further_column(scores: Any, sinks: Any) -> Any:
    """The definition of gpt-oss: the sinks are a further column, dropped after the softmax."""
    column = np.broadcast_to(sinks[:, None, None], (*scores.shape[:-1], 1))
    wide = np.concatenate([scores, column], axis=-1)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True))[..., :-1]


def test_by_hand() -> None:
    # exp(0) = 1 for each of two keys and exp(ln 2) = 2 for the sink: 1/4, 1/4, and 1/2 on no key.
    trace = attend([[0.0]], [[1.0], [3.0]], [[8.0], [4.0]], sinks=[math.log(2)])
    assert np.allclose(trace["weights"].value, [[0.25, 0.25]], rtol=1e-15)
    assert np.allclose(trace["output"].value, [[3.0]], rtol=1e-15)


def test_sinks_are_a_further_column_of_the_scores() -> None:
    trace = attend(Q, K, V, sinks=SINKS, convention=Convention(causal=True))
    wanted = by_a_further_column(trace["masked"].value, SINKS)
    assert np.allclose(trace["weights"].value, wanted, rtol=1e-13)
    shared = np.repeat(V, 2, axis=-3)
    assert np.allclose(trace["output"].value, wanted @ shared, rtol=1e-12)


@given(arrays(np.float64, (3, 2, 5), elements=st.floats(-700, 700)), st.floats(-700, 700))
def test_weights_and_the_sink_s_share_sum_to_1(scores: Any, sink: float) -> None:
    weights = softmax(scores, sinks=np.full(3, sink))
    top = np.maximum(scores.max(-1), sink)
    share = np.exp(sink - top) / (np.exp(scores - top[..., None]).sum(-1) + np.exp(sink - top))
    assert np.allclose(weights.sum(-1) + share, 1, rtol=1e-12)


def test_a_sink_of_minus_infinity_is_none() -> None:
    with_sinks = attend(Q, K, V, sinks=np.full(6, NEVER))["output"].value
    assert (with_sinks == attend(Q, K, V)["output"].value).all()


def test_a_large_sink_takes_everything_and_nothing_overflows() -> None:
    assert (softmax(np.array([[1.0, 2.0]]), sinks=np.array([1e4])) == 0).all()
    assert softmax(np.array([[1e4, 0.0]]), sinks=np.array([-1e4])).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("empty", ["zero", "nan", "uniform"])
def test_an_empty_row_has_no_weight_whatever_empty_rows_says(empty: Any) -> None:
    how = Convention(empty_rows=empty)
    mask = np.full((5, 11), NEVER)
    weights = attend(Q, K, V, mask=mask, sinks=SINKS, convention=how)["weights"].value
    assert (weights == 0).all()


def test_each_head_has_its_own() -> None:
    alone = [attend(Q[:, h], K[:, h // 2], V[:, h // 2]) for h in range(6)]
    scaled = np.stack([trace["scaled"].value for trace in alone], axis=1)
    trace = attend(Q, K, V, sinks=SINKS)
    assert np.allclose(trace["weights"].value, by_a_further_column(scaled, SINKS), rtol=1e-12)


def test_rows_alone_are_those_of_the_whole() -> None:
    whole, rows = attend(Q, K, V, sinks=SINKS), attend(Q, K, V, sinks=SINKS, rows=[1, 3])
    assert np.allclose(rows["output"].value, whole["output"].value[..., [1, 3], :], rtol=1e-14)


@pytest.mark.parametrize(
    ("sinks", "how", "error", "message"),
    [
        ([1.0], {}, ShapeError, r"sinks \(1\) need one score per head: 6"),
        (1.0, {}, ShapeError, r"sinks \(one number\) need one score per head: 6"),
        (np.zeros((6, 1)), {}, ShapeError, r"sinks \(6 × 1\) need one score per head: 6"),
        (["a"] * 6, {}, ShapeError, "sinks holds"),
        (SINKS, {"softmax_over": "queries"}, ConventionError, "a softmax over keys"),
    ],
)
def test_what_does_not_fit_is_refused(sinks: Any, how: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        attend(Q, K, V, sinks=sinks, convention=Convention(**how))
