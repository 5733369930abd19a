"""The log-sum-exp of each row: by hand, in both bases, with sinks, empty rows and large inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attncli
from attncli.attention.attend import attend
from attncli.attention.functional import CACHED, log_sum_exp

INF = math.inf
Q = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
K = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]


def test_worked_by_hand() -> None:
    """Scores 1, 1, 0 over √2: ln (2 e^0.70711 + 1) = ln 5.05623; the third 2, 1, 1: √2 + ln 1.98614."""
    lse = attend(Q, K, K)["lse"]
    assert lse.value == pytest.approx([1.620622, 1.620622, 2.100405], abs=1e-6)
    assert lse.axes == ("query",)
    assert lse.formula == "lse = ln Σ exp(Z) over each row"


def test_in_base_2_it_is_divided_by_ln_2() -> None:
    assert log_sum_exp(np.log([[2.0, 6.0]]), base="2").tolist() == pytest.approx([3.0])
    assert attend(Q, K, K, lse_base="2")["lse"].value[0] == pytest.approx(1.620622 / 0.6931472)


def test_a_sink_joins_the_sum() -> None:
    """Scores 0 of two keys, and a sink of ln 2 or ln 6: ln 4 and ln 8."""
    q, k = np.zeros((2, 3, 5)), np.zeros((2, 2, 5))
    lse = attend(q, k, k, sinks=np.log([2.0, 6.0]))["lse"]
    assert lse.value == pytest.approx(np.log([[4.0] * 3, [8.0] * 3]))
    assert lse.axes == ("head", "query")


def test_a_row_with_nothing_to_attend_to_has_minus_infinity() -> None:
    mask = np.array([[True, True, False], [False, False, False], [True, True, True]])
    for empty in ("zero", "nan", "uniform"):
        lse = attend(Q, K, K, mask=mask, empty_rows=empty)["lse"].value
        assert lse.tolist() == pytest.approx([math.log(2) + 0.5**0.5, -INF, 2.100405], abs=1e-6)


def test_what_is_not_allowed_has_no_part_though_it_is_no_number() -> None:
    x, allowed = np.array([[np.nan, 3.0]]), np.array([[False, True]])
    assert log_sum_exp(x, allowed).tolist() == [3.0]
    assert np.isnan(log_sum_exp(x))


def test_large_scores_neither_overflow_nor_vanish() -> None:
    x = np.array([[1e300, 1e300], [-1e5, -1e5], [800.0, -INF], [INF, 0.0]])
    assert log_sum_exp(x).tolist() == [1e300, -1e5 + math.log(2), 800.0, INF]


def test_over_queries_there_is_none() -> None:
    assert "lse" not in attend(Q, K, K, softmax_over="queries")


@given(st.integers(1, 7), st.integers(1, 5), st.sampled_from([1, 3, CACHED // 2 + 1, CACHED + 7]))
def test_softmax_is_exp_of_the_score_less_it(heads: int, n_q: int, n_k: int) -> None:
    x = np.random.default_rng(n_k).normal(size=(heads, n_q, n_k))
    lse = log_sum_exp(x)
    assert np.exp(x - lse[..., None]).sum(axis=-1) == pytest.approx(1, abs=1e-12)
    assert lse == pytest.approx(np.logaddexp.reduce(x, axis=-1), abs=1e-12)


def test_it_is_computed_only_where_it_is_named() -> None:
    trace = attend(Q, K, K)
    assert "lse" not in list(trace)
    assert list(trace.computing(["weights"])) == list(trace)
    assert list(trace.computing(["lse"])) == [*trace, "lse"]


def test_it_is_found_in_a_block_by_its_dotted_name() -> None:
    encoder = attncli.explain("the cat", block="encoder")
    name = next(n for n in encoder if n.endswith(".weights")).replace("weights", "lse")
    assert encoder[name].value == pytest.approx(encoder.computing(["lse"])[name].value)
    assert name not in list(encoder)
    with pytest.raises(attncli.StageError, match="no stage"):
        encoder["attention.nothing"]
