"""check on a constant that is added to the scores of a row, and on numbers that have two names."""

from typing import Any

import numpy as np
import pytest

from attncli.commands.check.diagnose import check

RNG = np.random.default_rng(1)
Q, K, V = (RNG.normal(size=(2, 3, 7, d)) for d in (5, 5, 11))
SEEN = np.tril(np.ones((7, 7), dtype=bool))
SCORES = Q @ np.swapaxes(K, -1, -2)
MASKED = np.where(SEEN, SCORES / 5**0.5, -np.inf)
POWERS = np.exp(MASKED)
WEIGHTS = POWERS / POWERS.sum(axis=-1, keepdims=True)
LSE = np.log(POWERS.sum(axis=-1))


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        ({"masked": MASKED + 1, "weights": WEIGHTS, "output": WEIGHTS @ V}, "1 is added"),
        ({"masked": MASKED + 1}, "1 is added"),
        ({"scores": SCORES + 3, "weights": WEIGHTS}, "3 is added"),
        ({"scaled": SCORES / 5**0.5 - 2.5, "lse": LSE - 2.5, "output": WEIGHTS @ V}, "2.5 is subtracted"),
        ({"masked": MASKED - MASKED.max(axis=-1, keepdims=True), "weights": WEIGHTS}, "largest score of each row"),
        ({"scaled": SCORES / 5**0.5 + RNG.normal(size=(2, 3, 7, 1)), "weights": WEIGHTS}, "a constant of each row"),
    ],
)  # fmt: skip
def test_a_constant_of_a_row_is_harmless(dtype: Any, observed: Any, words: str) -> None:
    stages = {name: x.astype(dtype) for name, x in observed.items()}
    q, k, v = (x.astype(dtype) for x in (Q, K, V))
    verdict = check(stages, q, k, v, causal=True)
    (explanation,) = verdict.explanations
    assert explanation.name.startswith("harmless")
    assert words in explanation.name
    assert "lse alone" in explanation.name
    assert not verdict.matches


def test_a_constant_that_lse_lacks_or_that_changes_the_output_is_not_called_harmless() -> None:
    for more in ({"lse": LSE}, {"output": WEIGHTS @ V + 0.1}):
        verdict = check({"masked": MASKED + 1, **more}, Q, K, V, causal=True)
        assert not any("harmless" in explanation.name for explanation in verdict.explanations)


def test_a_factor_that_is_half_and_the_scale_is_called_both() -> None:
    """d_k is 4: the scale is 1/√4."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(2, 7, d)) for d in (4, 4, 11))
    mask = np.where(rng.random((7, 7)) < 0.5, rng.normal(size=(7, 7)), 0.0)
    powers = np.exp(q @ np.swapaxes(k, -1, -2) / 2 + mask / 2)
    verdict = check(powers / powers.sum(axis=-1, keepdims=True) @ v, q, k, v, mask=mask)
    detail = verdict.explanations[0].details[0]
    assert "half" in detail
    assert "scale" in detail


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("stage", ["weights", "output"])
def test_no_softmax_in_some_rows_or_in_all(causal: bool, stage: str) -> None:
    scaled = np.where(SEEN, SCORES / 5**0.5, 0.0) if causal else SCORES / 5**0.5
    powers = np.exp(np.where(SEEN, SCORES / 5**0.5, -np.inf) if causal else scaled)
    right = powers / powers.sum(axis=-1, keepdims=True)
    late = right.copy()
    late[:, :, 4:] = scaled[:, :, 4:]
    for weights, part in ((scaled, ""), (late, "queries 5 to 7: ")):
        observed = weights if stage == "weights" else weights @ V
        verdict = check(observed, Q, K, V, stage=stage, causal=causal)
        assert f"{part}softmax left out" in verdict.explanations[0].name
