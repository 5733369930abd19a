"""The language beside NumPy: each formula at once, cell by cell, and as it is read back."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

import numpy as np
import pytest

from attncli.formula.compute import compute
from attncli.formula.evaluate import Values, places_at, sizes_of
from attncli.formula.expression import text_of
from attncli.formula.parser import parse, parsed
from attncli.programs.attend import attend_by
from attncli.programs.text import ProgramError

RNG = np.random.default_rng(3)
B, H, N_Q, N_K, D, E = 2, 3, 5, 5, 7, 11
ARRAYS: dict[str, Any] = {
    "q": RNG.normal(size=(B, H, N_Q, D)),
    "k": RNG.normal(size=(B, H, N_K, D)),
    "v": RNG.normal(size=(B, H, N_K, E)),
    "S": RNG.normal(size=(B, H, N_Q, N_K)),
    "s": RNG.normal(size=H),
    "c": np.array([2, 0, 1, 4, 3]),
}
Q, K, V, S = (ARRAYS[name] for name in "qkvS")
MAY = np.tril(np.ones((N_Q, N_K), bool))


def softmax(x: Any, axes: Any) -> Any:
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    return powers / powers.sum(axis=axes, keepdims=True)


SIGMOID = 1 / (1 + np.exp(-S))
CASES = {
    "O[b,h,i,e] = sum[j](S[b,h,i,j] * v[b,h,j,e] where j <= i)": (S * MAY) @ V,
    "Z[b,h,i,d] = sum[j](k[b,h,j,d] where j < i)": np.tril(np.ones((N_Q, N_K)), -1) @ K,
    "Z[b,h,i,d,e] = sum[j](k[b,h,j,d] * v[b,h,j,e] where j <= i)": np.einsum(
        "ij,bhjd,bhje->bhide", MAY, K, V
    ),
    "W[b,h,i,j] = softmax[j](S[b,h,i,j] where j <= i)": softmax(np.where(MAY, S, -np.inf), -1),
    "W[b,h,i,j] = softmax[i,j](S[b,h,i,j])": softmax(S, (-2, -1)),
    "L[b,h] = lse[i,j](S[b,h,i,j])": np.log(np.exp(S).sum(axis=(-2, -1))),
    "P[b,h,i] = prod[j](S[b,h,i,j] where j > i)": np.where(~MAY, S, 1).prod(axis=-1),
    "M[b,h,i] = min[j](S[b,h,i,j])": S.min(axis=-1),
    "M[b,h,i] = mean[j](S[b,h,i,j] where j <= i)": (S * MAY).sum(-1) / MAY.sum(-1),
    "M[b,h,i] = 1 if any[j](S[b,h,i,j] > 1) else 0": (S > 1).any(axis=-1),
    "M[b,h,i] = 1 if all[j](S[b,h,i,j] > -1) else 0": (S > -1).all(axis=-1),
    "M[b,h,i] = max(S[b,h,i,0], 0.5, -s[h])": np.maximum(
        np.maximum(S[..., 0], 0.5), -ARRAYS["s"][:, None]
    ),
    "W[i,j] = 1 if 0 <= i - j < 2 else 0": np.tril(np.ones((N_Q, N_K)))
    - np.tril(np.ones((N_Q, N_K)), -2),
    "X[b,h,i,j] = S[b,h,i,c[j]]": S[..., ARRAYS["c"]],
    "X[b,h,i,j] = S[b,h,i,j - 1] if j > 0 else 0": np.pad(S[..., :-1], [(0, 0)] * 3 + [(1, 0)]),
    "X[b,h,i,j] = σ(S[b,h,i,j]) · 2^3": SIGMOID * 8,
    "X[b,h,i] = √(Σ[j](S[b,h,i,j]^2)) / Π[j](1)": np.sqrt((S**2).sum(-1)),
    "X[b,h,i,j] = softplus(S[b,h,i,j]) + sign(S[b,h,i,j])": np.log1p(np.exp(S)) + np.sign(S),
    "X[b,h,i,j] = floor(S[b,h,i,j]) // 2 % 3": np.floor(S) // 2 % 3,
    "Y[b,h,i,e] = sum[j](softmax[j](S[b,h,i,j]) * v[b,h,j,e])": softmax(S, -1) @ V,
    "y[i,e] = sum[b,h,j](softmax[j](S[b,h,i,j]) * v[b,h,j,e])": (softmax(S, -1) @ V).sum((0, 1)),
    "T[b,h,i,j] = S[b,h,i,j] ≥ s[h] or j ≠ i": (ARRAYS["s"][:, None, None] <= S)
    | ~np.eye(N_Q, dtype=bool),
}


@pytest.mark.parametrize("text", CASES)
def test_it_is_what_numpy_has(text: str) -> None:
    result = compute(text, ARRAYS, {"i": N_Q, "j": N_K})
    expected = np.broadcast_to(CASES[text], result.shape).astype(float)
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-13)
    formula = parse(text)
    shapes = {name: x.shape for name, x in ARRAYS.items()}
    sizes = sizes_of(formula, result.shape, shapes, {"i": N_Q, "j": N_K})
    values = Values(formula, ARRAYS, {}, sizes)
    for at in [*np.ndindex(*result.shape)][::7]:
        number = values.number(formula.body, places_at(formula, at, sizes))
        assert number == pytest.approx(expected[at], rel=1e-12, abs=1e-13)
    assert parsed(text_of(formula.body)) == formula.body


def test_large_numbers_have_an_exponent() -> None:
    line = "Z[i] = max(x[i], -1e300) + 2.5e20 - 1e-300 + 1000000 * -1e9"
    text = text_of(parse(line).body)
    assert text == "max(x[i], -1e300) + 2.5e20 - 1e-300 + 1000000 * -1000000000"
    assert parsed(text) == parse(line).body


def test_any_axes_may_be_before_those_that_are_named() -> None:
    text = "S[...,i,j] = sum[d](q[...,i,d] * k[...,j,d])\nL[...,i] = lse[j](S[...,i,j])"
    for q, k in ((Q, K), (Q[0], K[0]), (Q[0, 0], K[0, 0])):
        trace = attend_by(text, {"q": q, "k": k})
        scores = np.einsum("...id,...jd->...ij", q, k)
        np.testing.assert_allclose(trace["S"].value, scores, rtol=1e-12, atol=1e-13)
        logs = np.log(np.exp(scores).sum(axis=-1))
        np.testing.assert_allclose(trace["L"].value, logs, rtol=1e-12, atol=1e-13)


def test_a_sum_may_have_a_letter_that_is_on_the_left() -> None:
    text = "A[i,j] = S[i,j] / sum[j](S[i,j - 1] where j > 0) if j < 2 else S[2 * j - 4,j]"
    a = attend_by(text, {"S": S[0, 0]})["A"].value
    np.testing.assert_allclose(a[:, :2], S[0, 0, :, :2] / S[0, 0, :, :-1].sum(-1, keepdims=True))
    np.testing.assert_array_equal(a[1, 2:], [S[0, 0, 0, 2], S[0, 0, 2, 3], S[0, 0, 4, 4]])
    with pytest.raises(ProgramError, match="places are 0 to 4, where j = 0"):
        attend_by("A[i,j] = S[i,j] / sum[j](S[i,j - 1]) if j > 0 else 0", {"S": S[0, 0]})


class _Cycle:
    """Garbage that only the collector finds, and another thread may run meanwhile."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sleep(0)


def test_threads_may_parse_at_once() -> None:
    """Python 3.11.7 ended some of these in a SystemError: two parsers count one depth."""

    def parsed_number(number: int) -> str:
        for _ in range(3):
            _Cycle()
        return text_of(parsed("(" * 20 + f"x[i] + {number}" + ")" * 20))

    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(7) as pool:
            texts = list(pool.map(parsed_number, range(2003)))
    finally:
        gc.set_threshold(*thresholds)
    assert texts == [f"x[i] + {number}" for number in range(2003)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [("on > 0", 1 / 3), ("1 < 2", 1 / 3), ("2 < 1", 0), ("on < 0", 0), ("on > 0 and j < 2", 0.5)],
)
def test_a_condition_may_be_of_parameters_alone(where: str, expected: float) -> None:
    text = f"on = 1\nA[i,j] = softmax[j](x[i] + y[j] where {where})"
    trace = attend_by(text, {"x": np.ones(2), "y": np.zeros(3)}, d_output="ones")
    assert trace["A"].value[:, 0] == pytest.approx([expected] * 2)
    assert np.abs(trace["d_x"].value).max() < 1e-15
    counts = attend_by(f"on = 1\nN[] = mean[j](y[j] where {where})", {"y": np.arange(3.0)})
    of_all = np.arange(3.0)[: round(1 / expected)].mean() if expected else np.nan
    np.testing.assert_allclose(counts["N"].value, of_all)


def test_a_sum_within_a_sum_of_the_same_letter_is_its_own() -> None:
    x = np.array([2.0, 3.0, 7.0])
    trace = attend_by("A[i] = sum[i](sum[i](x[i]) * x[i])\nB[i] = sum[i](sum[i](x[i]))", {"x": x})
    assert trace["A"].value.tolist() == [144.0] * 3
    assert trace["B"].value.tolist() == [36.0] * 3
    sinks = attend_by("L[i] = lse[i](x[i], sink=x[i])", {"x": x})["L"].value
    np.testing.assert_allclose(sinks, np.log(np.exp(x).sum() + np.exp(x)))
