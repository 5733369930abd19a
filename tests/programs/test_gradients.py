"""Gradients of programs: by hand, of random ones by differences, and of long ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attncli
from attncli.arrays import Array
from attncli.errors import ConventionError
from tests.programs.random_programs import EmptyError, random_program, slopes

Q = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


def gradient_of(text: str, name: str, arrays: dict[str, Array], d: Any = "ones") -> Array:
    return attncli.attend_by(text, arrays, d_output=d)[f"d_{name}"].value


def slope_of(text: str, name: str, arrays: dict[str, Array], step: float = 1e-6) -> Array:
    """How fast the sum of the last stage grows with each number of an input."""
    result = np.zeros(arrays[name].shape)
    for at in np.ndindex(*result.shape):
        losses = []
        for way in (step, -step):
            moved = arrays[name].astype(float)
            moved[at] += way
            trace = attncli.attend_by(text, {**arrays, name: moved})
            losses.append(trace[[*trace][-1]].value.sum())
        result[at] = (losses[0] - losses[1]) / (2 * step)
    return result


def test_a_term_without_the_letter_of_a_sum_counts_as_often_as_the_sum_has_terms() -> None:
    """Σ_j (q_i − k_j) = 3 q_i − 2 = 1, −2, 1; its square grows by 2 · 3 times that."""
    gradient = gradient_of("A[i] = sum[j](q[i,0] - k[j,0]) ** 2", "q", {"q": Q, "k": Q})
    assert gradient.tolist() == [[6, 0], [-12, 0], [6, 0]]


def test_a_condition_on_the_letter_of_a_softmax_says_which_shares_count() -> None:
    text = "A[i,j] = softmax[j](q[i,0] * k[j,0]) if j <= i else 0\nO[i,e] = sum[j](A[i,j] * v[j,e])"
    arrays = {"q": Q, "k": Q, "v": np.array([[10.0, 0], [0, 10], [5, 5]])}
    gradient = gradient_of(text, "q", arrays)
    share = np.e / (2 * np.e + 1)  # of k1 and of k3, where q is 1; the scores are 1, 0, 1
    np.testing.assert_allclose(gradient[0, 0], 10 * share * (1 - 2 * share), atol=1e-12)
    np.testing.assert_allclose(gradient[1:], np.array([[-10 / 9, 0], [0, 0]]), atol=1e-12)


X = {"x": np.array([0.3, -0.7, 1.1]), "y": np.array([0.9, 0.2, -0.4, 0.6, -1.3])}
X |= {"c": np.array([2.0, 0.0, 0.0, 1.0, 2.0]), "m": np.linspace(-1, 2, 15).reshape(3, 5)}
X |= {"w": np.cos(np.arange(18.0)).reshape(3, 6)}
X |= {"p": np.linspace(-1, 1, 6) ** 2, "one": np.array([[0.3, 0.8]])}
CASES = [
    "A[i] = mean[j](x[i] + m[i,j]) ** 2",
    "A[i] = cos(sum[j](x[i] * y[j] + x[i]))",
    "A[i] = 1 / (9 + sum[j](x[i] + y[j]))",
    "A[i] = ln(9 + sum[j](x[i] + y[j]))",
    "A[i] = abs(sqrt(9 + sum[j](x[i] + y[j])))",
    "A[i] = max[j](x[i] + y[j]) ** 2",
    "A[i] = lse[j](x[i] + y[j]) ** 3",
    "A[i] = prod[j](x[i] + y[j]) ** 2",
    "A[i] = (sum[j](x[i] * (j + 1)) if i > 0 else sum[j](x[i] + 0 * y[j])) ** 2",
    "A[i] = exp(-sum[j](m[i,j] + y[j]) ** 2)",
    "A[i] = sum[j](sum[i](x[i] + y[j]) * x[i] + y[j]) ** 2",
    "A[i,j] = softmax[j](m[i,j] * x[i]) if m[i,j] > 0 else y[j]",
    "A[i] = sum[j](softmax[j](m[i,j] * x[i]) where j < 2)",
    "A[i] = sum[j](m[i,j] * softmax[j](m[i,j] * y[j]) where j < i or y[j] > 0.5)",
    "A[i] = prod[j](softmax[j](m[i,j]) + x[i] where j > 1)",
    "A[i] = max[j](softmax[j](m[i,j] * x[i]) where j < 3) * x[i]",
    "A[i] = max(softmax[i](x[i]), 0.3)",
    "A[i] = max[j](sin(m[i,j] * x[i]))",
    "A[i,j] = min(softmax[i,j](sum[r](m[i,j] - p[i·r]) + y[j]), 0.5 * cos(x[0]) + x[i])\nsize[r] = 2\nsize[i] = 3",
    "A[i] = max(0, sum[j](m[i,j] * y[j])) + max(x[i], 0)",
    "A[i,j] = softmax[j](m[i,j] + x[i], sink=x[i]) if j < i else 0",
    "A[i] = sum[j](softmax[j](m[i,j], sink=x[0]) where j < 2) ** 2",
    "A[i,j] = lse[j](m[i,j] * x[i], sink=y[j])",
    "A[] = sum[j](x[c[j]] * y[j]) + sum[j](x[c[j]]) ** 2",
    "A[i] = sum[j](y[j] where x[i] > 9 or m[0,j] != 0)",
    "n = 2\nA[j] = y[j] if j < n else m[1,j]",
    "n = 2\nA[j] = y[j] if j < n else y[j - n] ** 2",
    "A[i] = degrees(x[i]) + min[j](y[j] * x[i])",
    "size[h] = 2\nA[h,i] = prod[i](x[i] * 2) + x[i] * h",
    "size[h] = 2\nS[h,i] = x[i] * 2\nA[h] = prod[i](S[h,i]) + x[0]",
    "size[i] = 3\nS[h,i,j] = x[i] * y[j] * one[0,h]\nA[h,j] = prod[i](S[h,i,j]) + y[j] * one[0,h]",
    "A[i] = sum[j](x[i] * x[i] + y[j] * x[1] + one[0,1] * one[0,0])",
    "A[b,h,i] = one[i,0] + one[b,h,0,1] * x[i]\nsize[i] = 3",
    "size[i] = 3\nA[i] = p[i·1] * p[i·0] ** 2",
    "size[i] = 3\nA[i,r] = p[1·i] * p[i·r] + p[i·0]\nsize[r] = 2",
    "size[i] = 3\nsize[r] = 2\nA[i,r] = p[r·i] * p[i·r] ** 2",
    "size[i] = 3\nA[i,r] = w[i,i·r] * w[i,i·0]\nsize[r] = 2",
]


@pytest.mark.parametrize("text", CASES)
def test_gradients_are_those_of_differences(text: str) -> None:
    lines = text.split("\n")
    text = "\n".join(sorted(lines, key=lambda line: not line.startswith("size")))
    trace = attncli.attend_by(text, X, d_output="ones")
    names = [name for name in X if f"d_{name}" in trace]
    assert names
    for name in names:
        expected = slope_of(text, name, X)
        np.testing.assert_allclose(trace[f"d_{name}"].value, expected, rtol=1e-6, atol=1e-7)


def of_seed(seed: int, depth: int) -> tuple[int, int]:
    """How many numbers of the gradients of a random program were compared, and were not smooth."""
    program, n_compared, n_kinks = random_program(seed, depth=depth), 0, 0
    given = {name: np.asarray(x, np.longdouble)[None] for name, x in program.inputs.items()}
    try:
        with np.errstate(all="ignore"):
            result = program.run(given)[0].astype(float)
    except EmptyError:
        return 0, 0
    d = np.random.default_rng(seed).standard_normal(result.shape)
    if not np.isfinite(result).all() or np.abs(result).max(initial=0) > 1e6:
        return 0, 0
    trace = attncli.attend_by(program.text, program.inputs, d_output=d)
    last = next(name for name in reversed([*trace]) if not name.startswith("d_"))
    np.testing.assert_allclose(trace[last].value, result, 1e-9, 1e-9, err_msg=program.text)
    gradients = [trace[name].value for name in trace if name.startswith("d_")]
    for name, x in program.inputs.items():
        expected, is_smooth = slopes(program, name, d)
        is_smooth &= np.isfinite(expected)
        expected = np.where(is_smooth, expected, 0).astype(float)
        near = 1e-6 * max(1.0, np.abs(expected).max())

        def agrees(gradient: Array) -> bool:
            both = np.where(is_smooth, gradient, 0), expected  # noqa: B023
            return gradient.shape == x.shape and np.allclose(*both, 1e-6, near)  # noqa: B023

        if f"d_{name}" in trace:
            ours = trace[f"d_{name}"].value
            assert agrees(ours), (program.text, name, ours, expected)
        else:  # it is that of another stage, or it is 0
            others = [g for g in gradients if g.shape == x.shape]
            assert any(map(agrees, [np.zeros(x.shape), *others])), (program.text, name, expected)
        n_compared += int(is_smooth.sum())
        n_kinks += int((~is_smooth).sum())
    return n_compared, n_kinks


@pytest.mark.parametrize(
    ("first", "n", "depth"),
    [
        (0, 20, 4),
        (20, 10, 6),
        *(pytest.param(n, 50, 4, marks=pytest.mark.exhaustive) for n in range(1000, 1500, 50)),
        *(pytest.param(n, 25, 6, marks=pytest.mark.exhaustive) for n in range(2000, 2200, 25)),
    ],
)
def test_gradients_of_random_programs_are_those_of_differences(
    first: int, n: int, depth: int
) -> None:
    counts = np.array([of_seed(seed, depth) for seed in range(first, first + n)])
    n_programs = (counts[:, 0] > 0).sum()
    assert n_programs > 0.7 * n
    assert counts[:, 0].sum() > 50 * n_programs
    assert counts[:, 1].sum() < 0.02 * counts[:, 0].sum()


def test_a_long_sum_has_its_gradient() -> None:
    text = "A[i] = " + " + ".join(["q[i,0] * q[i,1]"] * 30)
    assert gradient_of(text, "q", {"q": Q}).tolist() == (30 * Q[:, ::-1]).tolist()
    assert (gradient_of("A[i,d] = " + " + ".join(["q[i,d]"] * 60), "q", {"q": Q}) == 60).all()


@pytest.mark.parametrize("term", ["q[i,0]", "q[i,0] * tanh(q[i,1] + exp(q[i,0] * q[i,1]))"])
def test_many_stages_have_their_gradients(term: str) -> None:
    n_stages = 300 if term == "q[i,0]" else 60  # 60 are too long for one line
    lines = [f"S{n}[i] = 0.5 * S{n - 1}[i] + {term}" for n in range(1, n_stages)]
    text = "\n".join(["S0[i] = q[i,0]", *lines])
    gradient, step = gradient_of(text, "q", {"q": Q}), 1e-6

    def result(q: Array) -> Array:
        one = (
            q[:, 0] if term == "q[i,0]" else q[:, 0] * np.tanh(q[:, 1] + np.exp(q[:, 0] * q[:, 1]))
        )
        return 2 * one  # but for 0.5 ** 59

    for d in range(2):
        way = step * np.eye(2)[d]
        slope = (result(Q + way) - result(Q - way)) / (2 * step)
        np.testing.assert_allclose(gradient[:, d], slope, rtol=1e-8, atol=1e-8)


def test_what_is_too_deep_for_a_gradient_is_said_before_anything_is_computed() -> None:
    text = "A[i] = " + "tanh(" * 115 + "q[i,0]" + ")" * 115
    assert np.isfinite(attncli.attend_by(text, {"q": Q})["A"].value).all()
    with pytest.raises(ConventionError, match="gradient of A is too long for a formula"):
        attncli.attend_by(text, {"q": Q}, d_output="ones")
    whole = "A[i] = " + "tanh(" * 25 + "q[i,0]" + ")" * 25
    assert gradient_of(whole, "q", {"q": Q}).shape == Q.shape
