"""Weights transposed and biases left out: only where x and the weights are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attncli import Convention, Projections
from attncli.attention.multi_head import projected_inputs
from attncli.check import check

Array = np.ndarray[Any, np.dtype[Any]]
HEADS, D, N = 3, 15, 11
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, D))
WEIGHTS = {f"w_{name}": RNG.normal(size=(D, D)) / 4 for name in "qkv"}
BIASES = {f"b_{name}": RNG.normal(size=D) for name in "qkv"}


def split(x: Array) -> Array:
    return x.reshape(N, HEADS, -1).swapaxes(0, 1)


def output(**changed: Array) -> Array:
    """Attention of x, written out; some of the weights are other ones."""
    own = WEIGHTS | BIASES | changed
    q, k, v = (split(X @ own[f"w_{name}"] + own[f"b_{name}"]) for name in "qkv")
    scores = q @ k.swapaxes(1, 2) / np.sqrt(D // HEADS)
    weights = np.exp(scores)
    return np.asarray(weights / weights.sum(-1, keepdims=True) @ v)


MADE = projected_inputs({"x": X}, Projections(**WEIGHTS, **BIASES), Convention(), n_heads=HEADS)
QKV = [MADE.values[name] for name in "qkv"]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", [*WEIGHTS, "w_q and w_k and w_v"])
def test_transposed_weights_are_named(name: str, dtype: str) -> None:
    changed = {one: WEIGHTS[one].T for one in name.split(" and ")}
    verdict = check(output(**changed).astype(dtype), *QKV, projected=MADE)
    (found,) = verdict.explanations
    assert (found.name, found.details) == ("weights of a projection transposed", (name,))


@pytest.mark.parametrize("name", ["b_q", "b_v"])
def test_a_bias_that_is_left_out_is_named(name: str) -> None:
    verdict = check(output(**{name: np.zeros(D)}), *QKV, projected=MADE)
    (found,) = verdict.explanations
    assert (found.name, found.details) == ("bias of a projection left out", (name,))


def test_a_bias_of_the_keys_changes_no_weight() -> None:
    assert check(output(b_k=np.zeros(D)), *QKV, projected=MADE)


def test_right_projections_match() -> None:
    assert check(output(), *QKV, projected=MADE)


def test_without_x_nothing_is_said_of_weights() -> None:
    wrong = output(w_q=WEIGHTS["w_q"].T)
    found = check(wrong, *QKV, pairs=False).explanations
    assert "weights of a projection transposed" not in {one.name for one in found}
