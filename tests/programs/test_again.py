"""A program that was read is computed of the numbers, and held against the memory, of each call."""

import numpy as np
import pytest

import attncli
from attncli import budget
from attncli.errors import SizeError

TEXT = "scores: S[i,j] = sum[d](q[i,d] * k[j,d])\nA[i,j] = softmax[j](S[i,j])"


def test_each_call_has_its_numbers_and_shapes() -> None:
    rng = np.random.default_rng(0)
    for n_q, n_k in ((3, 5), (3, 5), (7, 5), (3, 5)):
        q, k = rng.standard_normal((n_q, 2)), rng.standard_normal((n_k, 2))
        trace = attncli.attend(q, k, rng.standard_normal((n_k, 2)), formulas=TEXT)
        powers = np.exp(q @ k.T)
        expected = powers / powers.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(trace["A"].value, expected, rtol=1e-12)


def test_less_memory_by_now_refuses_a_program_that_was_read() -> None:
    q = np.ones((101, 2))
    attncli.attend(q, q, q, formulas=TEXT)
    with budget.limited(1000), pytest.raises(SizeError, match="up to line 1 need"):
        attncli.attend(q, q, q, formulas=TEXT)
