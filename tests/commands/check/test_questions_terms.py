"""Gradients whose sums count some queries or keys otherwise than once, by hand in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from attncli.arrays import Array
from attncli.commands.check.diagnose import check
from tests.commands.check.test_questions_maps import cause


class Case(NamedTuple):
    """Arrays, and the terms of their gradients: the weights A, and dS; two query heads a key head."""

    q: Array
    k: Array
    v: Array
    d_output: Array
    weights: Array
    d_scores: Array

    def d_q(self, times: Array) -> Array:
        return np.asarray((self.d_scores * times) @ self.k.repeat(2, axis=1))

    def d_k(self, times: Array) -> Array:
        return _grouped((self.d_scores * times[:, None]).swapaxes(2, 3) @ self.q)

    def d_v(self, times: Array) -> Array:
        return _grouped((self.weights * times[:, None]).swapaxes(2, 3) @ self.d_output)


def _grouped(x: Array) -> Array:
    return np.asarray(x.reshape(len(x), -1, 2, *x.shape[2:]).sum(axis=2))


def case(n_q: int = 17, n_k: int = 13, batch: int = 2, groups: int = 3) -> Case:
    rng = np.random.default_rng(n_q)
    sizes = (2 * groups, n_q, 5), (groups, n_k, 5), (groups, n_k, 7), (2 * groups, n_q, 7)
    q, k, v, d_output = (rng.normal(size=(batch, *size)) for size in sizes)
    powers = np.exp(q @ k.repeat(2, axis=1).swapaxes(2, 3) / np.sqrt(5))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    d_weights = d_output @ v.repeat(2, axis=1).swapaxes(2, 3)
    delta = (weights * d_weights).sum(axis=-1, keepdims=True)
    return Case(q, k, v, d_output, weights, weights * (d_weights - delta) / np.sqrt(5))


QUERY, KEY = np.arange(17), np.arange(13)
TERMS: dict[str, tuple[list[str], Array, str]] = {
    "every second one in d_v": (
        ["d_v"],
        QUERY % 2 == 0,
        "the last of every 2 queries counts 0 times",
    ),
    "one twice in d_k and d_v": (["d_v", "d_k"], 1.0 + (QUERY == 4), "query 5 counts 2 times"),
    "some in d_k": (["d_k"], (QUERY < 3) | (QUERY > 7), "queries 4 to 8 count 0 times"),
    "the last of d_q": (["d_q"], KEY < 12, "key 13 counts 0 times"),
    "a list of d_q": (["d_q"], ~np.isin(KEY, (2, 3, 9)), "keys 3, 4 and 10 count 0 times"),
    "half in d_q": (["d_q"], np.where(KEY < 7, 0.5, 1.0), "the first 7 keys count 0.5 times"),
}


@pytest.mark.parametrize("what", TERMS)
def test_counts_of_terms_are_said(what: str) -> None:
    names, times, fact = TERMS[what]
    x = case()
    observed = {name: getattr(x, name)(np.asarray(times, dtype=np.float64)) for name in names}
    name = cause(check(observed, x.q, x.k, x.v, d_output=x.d_output))
    assert fact in name
    assert f"in {' and '.join(names)} " in name


def test_terms_of_long_inputs_count_by_blocks() -> None:
    x = case(n_q=523, n_k=11, batch=1, groups=1)
    d_v = x.d_v(np.arange(523) < 512.0).astype(np.float32)
    q, k, v, d_output = (y.astype(np.float32) for y in (x.q, x.k, x.v, x.d_output))
    name = cause(check({"d_v": d_v}, q, k, v, d_output=d_output))
    assert "the queries from 513 on count 0 times" in name
    assert "the last block of 16, 32, 64 or 128" in name
