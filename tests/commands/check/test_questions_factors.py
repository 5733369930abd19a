"""The scores times one number and the output times another, computed here by plain loops."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check
from tests.commands.check.planted.parts import TYPES

Array = np.ndarray[Any, Any]
BATCH, HEADS, N_Q, N_K, D, D_V = 2, 3, 7, 13, 5, 11
RNG = np.random.default_rng(1)
SHAPES = (BATCH, HEADS, N_Q, D), (BATCH, HEADS, N_K, D), (BATCH, HEADS, N_K, D_V)
Q, K, V = (RNG.normal(size=shape) for shape in SHAPES)
SINKS = RNG.normal(size=HEADS)


def attention(
    q: Array,
    k: Array,
    v: Array,
    of_scores: Any,
    of_output: Any,
    *,
    hidden: Any = False,
    bias: Any = 0.0,
    sinks: Any = None,
    cap: float = 0.0,
) -> Array:
    """The output, query by query; factors broadcast to [batch, head]."""
    lead = q.shape[:-1]
    a, b = (np.broadcast_to(x, lead[:2]) for x in (of_scores, of_output))
    masked, added = (np.broadcast_to(x, (*lead, k.shape[-2])) for x in (hidden, bias))
    output = np.zeros((*lead, v.shape[-1]))
    for at in np.ndindex(lead):
        x = k[at[:-1]] @ q[at] / np.sqrt(q.shape[-1]) * a[at[:2]]
        x = cap * np.tanh(x / cap) if cap else x
        powers = np.where(masked[at], 0, np.exp(x + added[at]))
        total = powers.sum() + (np.exp(sinks[at[1]]) if sinks is not None else 0)
        output[at] = powers @ v[at[:-1]] / total * b[at[:2]]
    return output


def said(observed: Any, *arrays: Array, **more: Any) -> str:
    verdict = check(observed, *arrays, pairs=False, **more)
    assert verdict.status == "found", str(verdict)
    return verdict.explanations[0].name


BOTH = "the scores times 2 and the output times 4"


def test_both_at_once(dtype: str) -> None:
    arrays = [x.astype(dtype) for x in (Q, K, V)]
    q, k, v = (x.astype(float) for x in arrays)
    assert said(attention(q, k, v, 2, 4).astype(dtype), *arrays) == BOTH
    sentence = said(attention(q, k, v, 0.37, 1.9).astype(dtype), *arrays)
    assert sentence == "the scores times 0.37 and the output times 1.9"


def test_both_at_once_in_bfloat16() -> None:
    rng = np.random.default_rng(2)
    shapes = (3, 31, 17), (3, 29, 17), (3, 29, 13)
    arrays = [rng.normal(size=shape).astype(TYPES["bfloat16"]) for shape in shapes]
    q, k, v = (x.astype(float)[None] for x in arrays)
    output = attention(q, k, v, 2, 4)[0].astype(TYPES["bfloat16"])
    assert said(output, *arrays) == BOTH


def test_under_a_mask_a_bias_a_softcap_and_sinks() -> None:
    after = np.arange(N_K) > np.arange(N_Q)[:, None]
    output = attention(Q, K, V, 2, 4, hidden=after, cap=3.0)
    assert said(output, Q, K, V, causal=True, softcap=3.0) == BOTH
    bias = RNG.normal(size=(N_Q, N_K))
    output = attention(Q, K, V, 2, 4, bias=bias, sinks=SINKS)
    assert said(output, Q, K, V, mask=bias, sinks=SINKS) == BOTH


def test_a_factor_of_each_head() -> None:
    factors = np.array([0.5, 1.7, 3.0])
    sentence = said(attention(Q, K, V, factors, factors[::-1] * 2), Q, K, V)
    assert re.findall(
        r"head (\d) the scores times ([\d.]+) and the output times ([\d.]+)", sentence
    ) == [
        ("1", "0.5", "6"),
        ("2", "1.7", "3.4"),
    ]


def test_a_factor_of_each_batch_item() -> None:
    factors = np.array([[0.6], [2.5]])
    sentence = said(attention(Q, K, V, factors, factors * 2), Q, K, V)
    assert "batch item 1 the scores times 0.6 and the output times 1.2" in sentence
    assert "batch item 2 the scores times 2.5 and the output times 5" in sentence


def test_factors_of_one_batch_item_alone() -> None:
    factors = np.array([[1, 1, 1], [0.5, 1.7, 3.0]])
    sentence = said(attention(Q, K, V, factors, 1), Q, K, V)
    assert "batch item 2, head 2 the scores times 1.7" in sentence
    assert "batch item 1" not in sentence


@pytest.mark.parametrize("of_scores", [2, np.array([0.5, 1.7, 3.0])])
def test_gradients_follow(of_scores: Any) -> None:
    d_output = RNG.normal(size=(BATCH, HEADS, N_Q, D_V))
    output, step = attention(Q, K, V, of_scores, 4), 1e-3
    d_q, d_v = np.zeros_like(Q), np.zeros_like(V)
    for j in range(N_K):  # the output is linear in v, alike in each column
        one = np.zeros_like(V)
        one[:, :, j] = 1
        d_v[:, :, j] = (attention(Q, K, one, of_scores, 4)[..., :1] * d_output).sum(axis=2)
    for d in range(D):  # each row of the output depends on one query: fourth-order differences
        terms = list[Array]()
        for n, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
            moved = Q.copy()
            moved[..., d] += n * step
            terms.append(weight * attention(moved, K, V, of_scores, 4))
        d_q[..., d] = (sum(terms) / (12 * step) * d_output).sum(axis=-1)
    observed = {"output": output, "d_v": d_v}
    sentence = said(observed, Q, K, V, d_output=d_output)
    assert "the output times 4" in sentence
    observed = {x: y.astype("float32") for x, y in {**observed, "d_q": d_q}.items()}
    sentence = said(observed, Q, K, V, d_output=d_output)
    assert "the output times 4" in sentence
