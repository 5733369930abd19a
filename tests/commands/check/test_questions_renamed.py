"""A stage that is another one, by hand in NumPy."""

from __future__ import annotations

import numpy as np

from attncli.commands.check.diagnose import check
from tests.commands.check.test_questions_maps import cause

RNG = np.random.default_rng(5)
Q, K, V, D = (RNG.normal(size=(3, n, d)) for n, d in ((7, 5), (11, 5), (11, 2), (7, 2)))
POWERS = np.exp(Q @ K.swapaxes(1, 2) / np.sqrt(5))
WEIGHTS = POWERS / POWERS.sum(axis=-1, keepdims=True)


def test_a_gradient_of_the_weights_is_that_of_the_scaled_scores() -> None:
    """The name of one stage alone is wrong: what else was observed matches."""
    d_weights = D @ V.swapaxes(1, 2)
    d_scaled = WEIGHTS * (d_weights - (WEIGHTS * d_weights).sum(axis=-1, keepdims=True))
    d_v = WEIGHTS.swapaxes(1, 2) @ D
    name = cause(check({"d_weights": d_scaled, "d_v": d_v}, Q, K, V, d_output=D))
    assert name == "what is called d_weights is d_scaled"


def test_gradients_of_weights_and_scores_are_exchanged() -> None:
    d_weights = D @ V.swapaxes(1, 2)
    delta = (WEIGHTS * d_weights).sum(axis=-1, keepdims=True)
    d_scores = WEIGHTS * (d_weights - delta) / np.sqrt(5)
    name = cause(check({"d_weights": d_scores, "d_scores": d_weights}, Q, K, V, d_output=D))
    assert "d_weights is d_scores" in name
    assert "d_scores is d_weights" in name
