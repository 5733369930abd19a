"""What must hold for every attention, whatever the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attncli import Convention, attend
from attncli.attention.functional import softmax

SIZES = st.integers(1, 6)
NUMBERS = st.floats(-30, 30, width=32)


@st.composite
def qkv(draw: Any, heads: bool = False) -> Any:
    """q, k, v of any fitting shape, and a boolean mask."""
    n_q, n_k, d_k, d_v, h = (draw(SIZES) for _ in range(5))
    lead = (h,) if heads else ()
    shapes = (*lead, n_q, d_k), (*lead, n_k, d_k), (*lead, n_k, d_v)
    q, k, v = (draw(arrays(np.float64, shape, elements=NUMBERS)) for shape in shapes)
    return q, k, v, draw(arrays(np.bool_, (n_q, n_k)))


CONVENTIONS = st.builds(
    Convention,
    causal=st.booleans(),
    window=st.none() | st.tuples(st.integers(-1, 3), st.integers(-1, 3)),
    softcap=st.none() | st.floats(0.5, 50),
    scale=st.sampled_from(["1/sqrt(d_k)", "none", 0.125]),
    causal_align=st.sampled_from(["top-left", "bottom-right"]),
)


@given(qkv(), CONVENTIONS)
def test_rows_sum_to_one_or_are_empty(case: Any, how: Convention) -> None:
    q, k, v, mask = case
    trace = attend(q, k, v, mask=mask, convention=how)
    sums = trace["weights"].value.sum(axis=-1)
    empty = np.isneginf(trace["mask"].value).all(axis=-1)
    np.testing.assert_allclose(sums, np.where(empty, 0, 1), atol=1e-12)


@given(qkv(), CONVENTIONS)
def test_masked_cells_have_no_weight(case: Any, how: Convention) -> None:
    q, k, v, mask = case
    trace = attend(q, k, v, mask=mask, convention=how)
    hidden = np.isneginf(trace["mask"].value)
    assert (trace["weights"].value[hidden] == 0).all()
    assert hidden[~mask].all()


@given(qkv(), CONVENTIONS)
def test_the_output_lies_within_the_range_of_v(case: Any, how: Convention) -> None:
    q, k, v, mask = case
    trace = attend(q, k, v, mask=mask, convention=how)
    full = trace["weights"].value.any(axis=-1)
    output, slack = trace["output"].value[full], 1e-12 * (1 + np.abs(v).max())
    assert (output >= v.min(axis=0) - slack).all()
    assert (output <= v.max(axis=0) + slack).all()


@given(qkv(), st.randoms(use_true_random=False))
def test_permuting_keys_with_values_changes_nothing(case: Any, random: Any) -> None:
    q, k, v, mask = case
    order = random.sample(range(len(k)), len(k))
    before = attend(q, k, v, mask=mask)["output"].value
    after = attend(q, k[order], v[order], mask=mask[:, order])["output"].value
    np.testing.assert_allclose(after, before, atol=1e-11)


@given(qkv(), st.randoms(use_true_random=False))
def test_permuting_queries_permutes_rows(case: Any, random: Any) -> None:
    q, k, v, mask = case
    order = random.sample(range(len(q)), len(q))
    before = attend(q, k, v, mask=mask)["output"].value
    after = attend(q[order], k, v, mask=mask[order])["output"].value
    np.testing.assert_allclose(after, before[order], atol=1e-11)


@given(qkv(), st.floats(-1e3, 1e3))
def test_a_constant_added_to_a_row_of_scores_changes_nothing(case: Any, constant: float) -> None:
    q, k, v, mask = case
    bias = np.where(mask, 0.0, -np.inf)
    before = attend(q, k, v, mask=bias)["weights"].value
    after = attend(q, k, v, mask=bias + constant)["weights"].value
    np.testing.assert_allclose(after, before, atol=1e-10)


@given(qkv(), NUMBERS)
def test_causal_output_ignores_everything_after(case: Any, other: float) -> None:
    q, k, v, _ = case
    causal = Convention(causal=True)
    before = attend(q, k, v, convention=causal)["output"].value
    for i in range(min(len(q), len(k))):
        later_k, later_v = k.copy(), v.copy()
        later_k[i + 1 :], later_v[i + 1 :] = other, other
        after = attend(q, later_k, later_v, convention=causal)["output"].value
        np.testing.assert_allclose(after[: i + 1], before[: i + 1], atol=1e-11)


@given(qkv(heads=True), CONVENTIONS)
def test_heads_are_independent(case: Any, how: Convention) -> None:
    q, k, v, mask = case
    together = attend(q, k, v, mask=mask, convention=how)["output"].value
    for head in range(len(q)):
        alone = attend(q[head], k[head], v[head], mask=mask, convention=how)["output"].value
        np.testing.assert_allclose(together[head], alone, atol=1e-11)


@given(qkv(), CONVENTIONS)
def test_float32_agrees_with_float64_within_its_own_precision(case: Any, how: Convention) -> None:
    q, k, v, mask = case
    low = Convention(**{**how.__dict__, "dtype": "float32"})
    exact = attend(q, k, v, mask=mask, convention=how)
    rough = attend(q, k, v, mask=mask, convention=low)
    epsilon, d_k = np.finfo(np.float32).eps, q.shape[-1]
    # The dot product of d_k terms errs by at most d_k · ε · Σ|q||k| (Higham 2002, section 3.1);
    # softmax turns an absolute error δ of the scores into a relative one of 2δ.
    worst = np.abs(q) @ np.abs(k).T * max(exact.convention.scale_factor(d_k), 1)  # type: ignore[union-attr]
    delta = (d_k + 4) * epsilon * (1 + worst.max())
    assume(delta < 0.05)
    error = np.abs(rough["weights"].value - exact["weights"].value)
    assert (error <= 2.5 * delta + 8 * epsilon).all()


@given(arrays(np.float64, st.tuples(SIZES, SIZES), elements=st.floats(-1e308, 1e308)))
def test_softmax_is_finite_for_any_finite_scores(scores: Any) -> None:
    weights = softmax(scores)
    assert ((weights >= 0) & (weights <= 1)).all()
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-12)
