"""Another δ, or another saved log-sum-exp, in the backward pass: written in plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli.commands.check import search
from attncli.commands.check.bugs.catalogue import CATALOGUE
from attncli.commands.check.diagnose import check

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(37)
Q, K, V, D = (RNG.normal(size=(2, 3, n, d)) for n, d in ((7, 5), (11, 5), (11, 13), (7, 13)))


def forward(q: Array, k: Array) -> tuple[Array, Array]:
    """Scores, and the log-sum-exp of each row."""
    x = q @ k.swapaxes(2, 3) / np.sqrt(5)
    return x, np.log(np.exp(x).sum(axis=-1, keepdims=True))


def gradients(q: Array, k: Array, v: Array, d: Array, **other: Array) -> dict[str, Array]:
    """d_q, d_k and d_v by exp(x − lse) and δ, of which either may be another one."""
    x, lse = forward(q, k)
    weights = np.exp(x - other.get("lse", lse))
    d_weights = d @ v.swapaxes(2, 3)
    delta = (np.exp(x - lse) * d_weights).sum(axis=-1, keepdims=True)
    d_scores = weights * (d_weights - other.get("delta", delta)) / np.sqrt(5)
    return {
        "d_q": d_scores @ k,
        "d_k": d_scores.swapaxes(2, 3) @ q,
        "d_v": weights.swapaxes(2, 3) @ d,
    }


@pytest.fixture
def without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue without rows on δ and the log-sum-exp of the backward pass."""
    rows = tuple(x for x in CATALOGUE if "δ" not in x.name and "log-sum-exp" not in x.name)
    monkeypatch.setattr(search, "CATALOGUE", rows)


def others() -> dict[str, tuple[str, Array, str]]:
    x, lse = forward(Q, K)
    top = x.max(axis=-1, keepdims=True)
    weights = np.exp(x - lse)
    delta = (weights * (D @ V.swapaxes(2, 3))).sum(axis=-1, keepdims=True)
    return {
        "left out": ("delta", 0 * delta, "δ is left out"),
        "added": ("delta", -delta, "δ is added, not subtracted"),
        "twice": ("delta", 2 * delta, "δ is 2 times what it should be"),
        "of powers": ("delta", delta * np.exp(lse - top), "δ is taken of outputs that are not divided by their sums: powers less"),
        "of bare powers": ("delta", delta * np.exp(lse), "δ is taken of outputs that are not divided by their sums: powers as"),
        "of a query": ("delta", np.roll(delta, 1, axis=2), "δ of each query is that of the one before"),
        "of a head": ("delta", delta[:, [0, 0, 0]], "δ of heads 2 and 3 is that of head 1"),
        "no maximum": ("lse", lse - top, "the backward pass alone: the log-sum-exp that it reads lacks the maximum"),
        "the maximum": ("lse", top, "the backward pass alone: the log-sum-exp that it reads is the maximum of its row alone"),
        "base 2": ("lse", lse * np.log(2), "the backward pass alone: the log-sum-exp that it reads is 0.6931 times what it should be (ln 2)"),
        "larger": ("lse", lse + 0.5, "the backward pass alone: the log-sum-exp that it reads is larger by 0.5"),
    }  # fmt: skip


@pytest.mark.usefixtures("without_rows")
@pytest.mark.parametrize("what", others())
def test_another_delta_or_log_sum_exp(what: str, dtype: str) -> None:
    name, numbers, words = others()[what]
    q, k, v, d = (x.astype(dtype) for x in (Q, K, V, D))
    wide = [x.astype(float) for x in (q, k, v, d)]
    right, wrong = (
        {n: x.astype(dtype) for n, x in gradients(*wide, **other).items()}
        for other in ({}, {name: numbers})
    )
    assert check(right, q, k, v, d_output=d).matches
    verdict = check(wrong, q, k, v, d_output=d, pairs=False)
    assert verdict.explanations, str(verdict)
    assert verdict.explanations[0].name.startswith(words)


@pytest.mark.usefixtures("without_rows")
def test_a_delta_of_no_known_kind_is_not_said() -> None:
    noise = np.random.default_rng(2).normal(size=(2, 3, 7, 1))
    observed = gradients(Q, K, V, D, delta=noise)
    verdict = check(observed, Q, K, V, d_output=D, pairs=False)
    assert not any("δ" in x.name for x in verdict.explanations)
