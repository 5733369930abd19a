"""What masks, causality and empty rows mean: by hand, and against a second reading in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attncli import Convention, ConventionError, attend, stream
from attncli.arrays import Array
from tests import plain
from tests.fuzz.reading import RefusalError

Q = np.zeros((3, 2))
V5, V3 = np.array([[2.0], [3], [5], [7], [11]]), np.array([[2.0], [3], [5]])
INF, MASK = math.inf, np.eye(3, dtype=bool)


def weights(n_k: int = 3, **how: Any) -> list[list[float]]:
    """The weights of three queries, all of whose scores are 0."""
    v = V5 if n_k == 5 else V3
    found: list[list[float]] = attend(Q, np.zeros((n_k, 2)), v, **how)["weights"].value.tolist()
    return found


def test_open_last_is_top_left_but_for_the_last_query() -> None:
    assert weights(5, causal=True, causal_align="open-last") == [
        [1, 0, 0, 0, 0],
        [0.5, 0.5, 0, 0, 0],
        [0.2] * 5,
    ]
    assert weights(3, causal=True, causal_align="open-last") == weights(3, causal=True)


@pytest.mark.parametrize(
    ("together", "first", "last"),
    [
        ("both", [1, 0, 0], [0, 1 / 2, 1 / 2]),
        ("mask", [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]),
        ("causal", [1, 0, 0], [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_a_mask_and_causal(together: Any, first: list[float], last: list[float]) -> None:
    mask = np.array([[True, True, True], [True, True, True], [False, True, True]])
    found = weights(mask=mask, causal=True, mask_and_causal=together)
    assert (found[0], found[2]) == (first, last)


def test_a_mask_and_causal_may_be_refused() -> None:
    with pytest.raises(ConventionError, match="refuses together"):
        weights(mask=MASK, causal=True, mask_and_causal="refused")
    with pytest.raises(ConventionError, match="refuses together"):
        stream(Q, Q, V3, mask=MASK, causal=True, mask_and_causal="refused")
    assert weights(causal=True, mask_and_causal="refused")[0] == [1, 0, 0]


def test_a_window_may_count_the_own_key() -> None:
    assert weights(causal=True, window=(2, 0), window_counts="own")[2] == [0, 0.5, 0.5]
    assert weights(causal=True, window=(2, 0))[2] == [1 / 3, 1 / 3, 1 / 3]
    with pytest.raises(ConventionError, match="counts the query's own key has none"):
        Convention(window=(0, 0), window_counts="own")


@pytest.mark.parametrize(
    ("mask", "how", "expected"),
    [
        ([0.0, -INF, 0], {}, [0.5, 0, 0.5]),
        ([0.0, -INF, 0], {"mask_numbers": "truth"}, [0, 1, 0]),
        ([0.0, -INF, 0], {"mask_numbers": "truth", "mask_means": "ignore"}, [0.5, 0, 0.5]),
        ([0.0, 1, 1], {"mask_numbers": "truth"}, [0, 0.5, 0.5]),
        ([0.0, 1, 0], {"mask_numbers": "add"}, [1 / (2 + math.e), math.e / (2 + math.e)]),
        ([False, True, False], {"mask_means": "add"}, [1 / (2 + math.e), math.e / (2 + math.e)]),
        ([0.0, 2, 0], {"mask_numbers": "truth", "mask_means": "add"}, [1 / (2 + math.e)]),
    ],
)
def test_what_numbers_and_truth_mean(
    mask: list[float], how: dict[str, Any], expected: list[float]
) -> None:
    found = weights(mask=np.array([mask]), **how)[0]
    assert found[: len(expected)] == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("mask", "how", "expected"),
    [
        (np.zeros((1, 3), bool), {"empty_rows": "unmasked"}, [1 / 3, 1 / 3, 1 / 3]),
        (np.zeros((1, 3), bool), {"empty_rows": "unmasked", "causal": True}, [1, 0, 0]),
        (np.zeros((1, 3), bool), {"empty_rows_inf": "uniform"}, [0, 0, 0]),
        (np.full((1, 3), -INF), {"empty_rows_inf": "uniform"}, [1 / 3, 1 / 3, 1 / 3]),
        (np.full((1, 3), -INF), {"empty_rows": "uniform"}, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_empty_rows(mask: Array, how: dict[str, Any], expected: list[float]) -> None:
    assert weights(mask=mask, **how)[0] == expected


def test_an_added_mask_value_keeps_the_order_of_the_scores() -> None:
    """ln 2 and 0, both lowered by 10,000: shares of 2/3 and 1/3 where all are masked."""
    q, k = [[1.0]], [[math.log(2)], [0.0]]
    how: Any = {"mask": np.zeros((1, 2), bool), "mask_value": -1e4}
    added = attend(q, k, k, mask_value_rule="add", **how)["weights"].value
    assert added == pytest.approx(np.array([[2 / 3, 1 / 3]]))
    assert attend(q, k, k, **how)["weights"].value.tolist() == [[0.5, 0.5]]


def test_a_bias_inside_the_softcap_is_capped() -> None:
    """Scores of 0 and a bias of 1: 2 · tanh(1/2) inside, 1 outside."""
    mask = np.array([[1.0, -INF, 0]])
    inside = attend(Q, np.zeros((3, 2)), V3, mask=mask, softcap=2, softcap_place="after-bias")
    assert list(inside)[3:] == [
        "mask",
        "scores",
        "scaled",
        "biased",
        "capped",
        "masked",
        "weights",
        "output",
    ]
    assert inside["masked"].value[0] == pytest.approx([2 * math.tanh(0.5), -INF, 0])
    outside = attend(Q, np.zeros((3, 2)), V3, mask=mask, softcap=2)
    assert outside["masked"].value[0].tolist() == [1, -INF, 0]
    boolean = attend(Q, np.zeros((3, 2)), V3, mask=mask == 0, softcap=2, softcap_place="after-bias")
    assert "biased" not in boolean  # nothing is added


KNOBS: dict[str, list[Any]] = {
    "causal": [False, True],
    "causal_align": ["top-left", "bottom-right", "open-last"],
    "mask_and_causal": ["both", "mask", "causal", "refused"],
    "window": [None, (2, 1), (1, -1)],
    "window_counts": ["others", "own"],
    "mask_means": ["keep", "ignore", "add"],
    "mask_numbers": ["add", "truth"],
    "mask_value": [-INF, -10.0],
    "mask_value_rule": ["replace", "add"],
    "empty_rows": ["zero", "nan", "uniform", "unmasked"],
    "empty_rows_inf": [None, "zero", "nan", "uniform", "unmasked"],
    "softcap": [None, 2.0],
    "softcap_place": ["before-mask", "after-bias", "after-mask"],
}


@settings(max_examples=300, deadline=None)
@given(
    how=st.fixed_dictionaries({name: st.sampled_from(values) for name, values in KNOBS.items()}),
    sizes=st.sampled_from([(3, 5), (5, 3), (5, 5)]),
    kind=st.sampled_from(["none", "boolean", "0/1", "0/-inf", "bias"]),
    lengths=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_every_combination_is_as_the_second_reading_has_it(
    how: dict[str, Any], sizes: tuple[int, int], kind: str, lengths: bool, seed: int
) -> None:
    (n_q, n_k), draw = sizes, np.random.default_rng(seed)
    q, k, v = (
        draw.standard_normal(shape) for shape in ((2, 1, n_q, 7), (2, 1, n_k, 7), (2, 1, n_k, 11))
    )
    keep = draw.random((n_q, n_k)) > 0.4
    keep[draw.integers(n_q)] = False
    mask = {
        "none": None,
        "boolean": keep,
        "0/1": keep.astype(float),
        "0/-inf": np.where(keep, 0.0, -INF),
        "bias": np.where(keep, draw.standard_normal(keep.shape), -INF),
    }[kind]
    arrays = {"q": q, "k": k, "v": v} | ({} if mask is None else {"mask": mask})
    kv_len = [n_k - 1, n_k] if lengths else None
    try:
        with np.errstate(all="ignore"):
            expected = plain.attention(arrays, how, kv_len)["output"]
    except RefusalError:
        with pytest.raises(ConventionError):
            attend(q, k, v, mask=mask, kv_len=kv_len, **how)
        return
    found = attend(q, k, v, mask=mask, kv_len=kv_len, **how)["output"].value
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    streamed = stream(q, k, v, mask=mask, kv_len=kv_len, **how)
    np.testing.assert_allclose(streamed, expected, rtol=1e-11, atol=1e-11)
