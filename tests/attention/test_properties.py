"""What must hold for every attention, whatever the numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attncli import Convention, attend

SIZES = st.integers(1, 6)
NUMBERS = st.floats(-30, 30, width=32)
CONVENTIONS = st.builds(
    Convention,
    causal=st.booleans(),
    window=st.none() | st.tuples(st.integers(-1, 3), st.integers(-1, 3)),
    softcap=st.none() | st.floats(0.5, 50),
    scale=st.sampled_from(["1/sqrt(d_k)", "none", 0.125]),
    causal_align=st.sampled_from(["top-left", "bottom-right"]),
)


@st.composite
def qkv(draw: Any, heads: bool = False) -> Any:
    """q, k, v of any fitting shape, and a boolean mask."""
    n_q, n_k, d_k, d_v, h = (draw(SIZES) for _ in range(5))
    lead = (h,) if heads else ()
    shapes = (*lead, n_q, d_k), (*lead, n_k, d_k), (*lead, n_k, d_v)
    q, k, v = (draw(arrays(np.float64, shape, elements=NUMBERS)) for shape in shapes)
    return q, k, v, draw(arrays(np.bool_, (n_q, n_k)))


@given(qkv(), CONVENTIONS)
def test_rows_are_means_of_the_values_that_are_not_masked_or_empty(
    case: Any, how: Convention
) -> None:
    q, k, v, mask = case
    trace = attend(q, k, v, mask=mask, convention=how)
    weights, hidden = trace["weights"].value, np.isneginf(trace["mask"].value)
    assert hidden[~mask].all()
    assert (weights[hidden] == 0).all()
    np.testing.assert_allclose(weights.sum(axis=-1), ~hidden.all(axis=-1), atol=1e-12)
    output, slack = trace["output"].value[weights.any(axis=-1)], 1e-12 * (1 + np.abs(v).max())
    assert (output >= v.min(axis=0) - slack).all()
    assert (output <= v.max(axis=0) + slack).all()


@given(qkv(), st.randoms(use_true_random=False))
def test_permuting_keys_with_values_changes_nothing_and_queries_permute_rows(
    case: Any, random: Any
) -> None:
    q, k, v, mask = case
    keys, rows = (random.sample(range(len(x)), len(x)) for x in (k, q))
    before = attend(q, k, v, mask=mask)["output"].value
    after = attend(q[rows], k[keys], v[keys], mask=mask[rows][:, keys])["output"].value
    np.testing.assert_allclose(after, before[rows], atol=1e-11)


@given(qkv(), st.floats(-1e3, 1e3))
def test_a_constant_added_to_a_row_of_scores_changes_nothing(case: Any, constant: float) -> None:
    q, k, v, mask = case
    bias = np.where(mask, 0.0, -np.inf)
    before = attend(q, k, v, mask=bias)["weights"].value
    after = attend(q, k, v, mask=bias + constant)["weights"].value
    np.testing.assert_allclose(after, before, atol=1e-10)


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
    exact = attend(q, k, v, mask=mask, convention=how)
    rough = attend(q, k, v, mask=mask, convention=replace(how, dtype="float32"))
    epsilon, d_k = np.finfo(np.float32).eps, q.shape[-1]
    # The dot product of d_k terms errs by at most d_k · ε · Σ|q||k| (Higham 2002, section 3.1);
    # softmax turns an absolute error δ of the scores into a relative one of 2δ.
    worst = np.abs(q) @ np.abs(k).T * max(how.scale_factor(d_k), 1)
    delta = (d_k + 4) * epsilon * (1 + worst.max())
    assume(delta < 0.05)
    error = np.abs(rough["weights"].value - exact["weights"].value)
    assert (error <= 2.5 * delta + 8 * epsilon).all()
